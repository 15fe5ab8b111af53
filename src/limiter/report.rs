//! Verdicts to a decision, and to the rules' metrics.

use smallvec::SmallVec;

use super::plan::{Plan, Planned, Role, Source};
use super::{Context, headers, metadata};
use crate::model::{
    Call, Check, Code, CurrentLimit, Decision, DescriptorStatus, Hits, Request, Verdict, Window,
};
use crate::telemetry::{Outcome, RuleHits, RuleMetrics};

const SECOND: u64 = 1_000_000;

/// The decision for a domain without rules.
pub(super) fn unlimited(request: &Request<'_>) -> Decision {
    Decision {
        overall_code: Code::Ok,
        statuses: request.descriptors.iter().map(|_| DescriptorStatus::default()).collect(),
        response_headers: Vec::new(),
        dynamic_metadata: None,
    }
}

/// What became of one descriptor.
pub(super) struct Outcomes {
    pub(super) status: DescriptorStatus,
    /// A limit refused it, whatever its role.
    pub(super) over: bool,
}

pub(super) fn report(
    context: &Context,
    request: &Request<'_>,
    plan: &Plan<'_>,
    call: &Call,
    verdicts: &[Verdict],
) -> Decision {
    let outcomes: SmallVec<[Outcomes; 4]> =
        plan.descriptors.iter().map(|planned| descriptor(planned, call, verdicts)).collect();
    let refused = is_refused(plan, &outcomes);
    let admitted = !refused || context.mode.shadow;
    if refused && context.mode.shadow {
        context.metrics.count_global_shadow();
    }
    for planned in &plan.descriptors {
        count(context, planned, call, verdicts, admitted);
    }
    let response_headers = match &context.headers {
        Some(names) => headers::write(names, plan, &outcomes),
        None => Vec::new(),
    };
    let dynamic_metadata =
        context.dynamic_metadata.then(|| metadata::write(request, plan, &outcomes));
    Decision {
        overall_code: if admitted { Code::Ok } else { Code::OverLimit },
        statuses: outcomes.into_iter().map(|outcome| outcome.status).collect(),
        response_headers,
        dynamic_metadata,
    }
}

/// Over limit if an enforced descriptor is, or if all quotas are.
fn is_refused(plan: &Plan<'_>, outcomes: &[Outcomes]) -> bool {
    let over = |role: Role| {
        plan.descriptors
            .iter()
            .zip(outcomes)
            .filter(move |(planned, _)| planned.role == role && !planned.checks.is_empty())
            .map(|(_, outcome)| outcome.over)
    };
    let mut quotas = over(Role::Quota).peekable();
    over(Role::Enforced).any(|over| over)
        || (!plan.quota_left && quotas.peek().is_some() && quotas.all(|over| over))
}

fn descriptor(planned: &Planned<'_>, call: &Call, verdicts: &[Verdict]) -> Outcomes {
    let Some(shown) = shown(planned, call, verdicts) else {
        let limit_remaining = match planned.source {
            Source::Unlimited(..) => u32::MAX,
            _ => 0,
        };
        let status = DescriptorStatus { limit_remaining, ..DescriptorStatus::default() };
        return Outcomes { status, over: false };
    };
    let (check, verdict) = (&call.checks[shown], &verdicts[shown]);
    let over = !verdict.allowed;
    let shadowed = over && planned.role == Role::Shadowed;
    let status = DescriptorStatus {
        code: if over && !shadowed { Code::OverLimit } else { Code::Ok },
        current_limit: Some(current_limit(planned, shown)),
        limit_remaining: if shadowed { 0 } else { remaining(check, verdict) },
        duration_until_reset: Some(wait(check, verdict)),
        retry_after: verdict.retry_after.filter(|_| !shadowed),
    };
    Outcomes { status, over }
}

/// The check that stands for a descriptor: the refused one that takes longest to pass again, else
/// the one with the least share of its limit left.
fn shown(planned: &Planned<'_>, call: &Call, verdicts: &[Verdict]) -> Option<usize> {
    planned.checks.clone().reduce(|best, other| {
        let share = |index: usize| {
            let capacity = call.checks[index].limit.capacity().max(1);
            u128::from(verdicts[index].remaining) * u128::from(u64::MAX) / u128::from(capacity)
        };
        let never = |index: usize| verdicts[index].retry_after.unwrap_or(u64::MAX);
        let better = match (verdicts[best].allowed, verdicts[other].allowed) {
            (true, true) => share(other) < share(best),
            (false, false) => never(other) > never(best),
            (best_allowed, _) => best_allowed,
        };
        if better { other } else { best }
    })
}

fn current_limit(planned: &Planned<'_>, shown: usize) -> CurrentLimit {
    match &planned.source {
        Source::Rule { limits, .. } => {
            let limit = limits[shown - planned.checks.start];
            CurrentLimit {
                requests_per_unit: limit.amount,
                unit: limit.unit,
                unit_multiplier: limit.unit_multiplier,
                name: limit.name.clone(),
            }
        }
        Source::Override(limit, _) => CurrentLimit {
            requests_per_unit: limit.requests_per_unit,
            unit: Some(limit.unit),
            unit_multiplier: limit.unit_multiplier,
            name: None,
        },
        Source::NoLimit | Source::Unlimited(..) => {
            CurrentLimit { requests_per_unit: 0, unit: None, unit_multiplier: 1, name: None }
        }
    }
}

/// Hits left, never above the limit that is shown, though a burst may be.
fn remaining(check: &Check, verdict: &Verdict) -> u32 {
    u32::try_from(verdict.remaining).unwrap_or(u32::MAX).min(check.limit.amount)
}

/// µs until the counter is unused again, or until the same hits can pass: in whole seconds,
/// rounded up, since Envoy cuts fractions off and the wait must suffice all the same. A passed
/// check never shows more than its window, two of a sliding counter.
fn wait(check: &Check, verdict: &Verdict) -> u64 {
    let length = check.limit.window.length();
    let round = |micros: u64| match check.limit.window {
        Window::Length(length) if length < SECOND => micros,
        _ => micros.div_ceil(SECOND) * SECOND,
    };
    match verdict.retry_after {
        Some(retry_after) => round(retry_after),
        None if check.limit.algorithm.has_burst() => round(verdict.reset.min(length)),
        None => round(verdict.reset),
    }
}

/// Counts hits by outcome as the reference does: of several limits those of the one that is shown.
fn count(
    context: &Context,
    planned: &Planned<'_>,
    call: &Call,
    verdicts: &[Verdict],
    admitted: bool,
) {
    let Hits::Take(hits) = planned.hits else { return };
    let (metrics, shown): (&RuleMetrics, _) = match &planned.source {
        Source::Rule { metrics, .. } | Source::Override(_, metrics) => {
            let Some(shown) = shown(planned, call, verdicts) else { return };
            (metrics, shown)
        }
        Source::Unlimited(_, metrics) => {
            return metrics.add(RuleHits::unlimited(hits, admitted));
        }
        Source::NoLimit => return,
    };
    let verdict = &verdicts[shown];
    let outcome = match (verdict.allowed, planned.role) {
        (true, _) => Outcome::Within,
        (false, Role::Shadowed) => Outcome::Shadowed,
        (false, _) => Outcome::Over,
    };
    let capacity = call.checks[shown].limit.capacity();
    metrics.add(RuleHits::new(
        hits,
        verdict.used,
        capacity,
        context.mode.near_limit_ratio,
        outcome,
        admitted,
    ));
}
