//! Request and rules to checks, remembering who asked.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Context;
use crate::key::{KeyEntry, KeyHead, KeyWindow};
use crate::model::{
    AlgorithmKind, Call, ChargeMode, Check, Consistency, Descriptor, Effect, Entry, Hits, Limit,
    LimitOverride, Request, Window,
};
use crate::rules::{Domain, Match, Rule, RuleLimit};
use crate::telemetry::RuleMetrics;

/// What was found for a request.
#[derive(Debug)]
pub(super) struct Plan<'r> {
    /// In request order.
    pub(super) descriptors: SmallVec<[Planned<'r>; 4]>,
    /// A quota that can't run out keeps the others from refusing the request.
    pub(super) quota_left: bool,
}

/// One descriptor of a request.
#[derive(Debug)]
pub(super) struct Planned<'r> {
    pub(super) source: Source<'r>,
    /// The checks of this descriptor in the call.
    pub(super) checks: Range<usize>,
    pub(super) role: Role,
    pub(super) hits: Hits,
}

/// Where the limits of a descriptor come from.
#[derive(Debug)]
pub(super) enum Source<'r> {
    /// No rule, a rule without a limit, or one whose limits are all replaced.
    NoLimit,
    Unlimited(&'r Rule, Arc<RuleMetrics>),
    Rule {
        rule: &'r Rule,
        /// Those that no other rule of the request replaces.
        limits: SmallVec<[&'r RuleLimit; 1]>,
        metrics: Arc<RuleMetrics>,
    },
    Override(LimitOverride, Arc<RuleMetrics>),
}

/// What a refused descriptor means for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Enforced,
    Shadowed,
    /// The request is refused when all quotas are.
    Quota,
}

pub(super) fn plan<'r>(
    context: &Context,
    domain: &'r Domain,
    request: &Request<'_>,
) -> (Plan<'r>, Call) {
    let found: SmallVec<[Option<Match<'r>>; 4]> = request
        .descriptors
        .iter()
        .map(|descriptor| match descriptor.limit {
            Some(_) => None,
            None => domain.find(&descriptor.entries),
        })
        .collect();
    let replaced: SmallVec<[&str; 4]> =
        found.iter().flatten().flat_map(|found| &found.rule.replaces).map(|name| &**name).collect();
    let mut builder = Builder { context, request, call: Call::default() };
    let descriptors = request
        .descriptors
        .iter()
        .zip(found)
        .map(|(descriptor, found)| builder.descriptor(descriptor, found, &replaced))
        .collect();
    let mut call = builder.call;
    let mut plan = Plan { descriptors, quota_left: false };
    assign_effects(context, &mut plan, &mut call);
    (plan, call)
}

struct Builder<'a, 'q> {
    context: &'a Context,
    request: &'a Request<'q>,
    call: Call,
}

impl Builder<'_, '_> {
    fn descriptor<'r>(
        &mut self,
        descriptor: &Descriptor<'_>,
        found: Option<Match<'r>>,
        replaced: &[&str],
    ) -> Planned<'r> {
        let start = self.call.checks.len();
        let hits = Hits::of(self.request, descriptor);
        let (source, role) = match (descriptor.limit, found) {
            (Some(limit), _) => (self.over(descriptor, limit, hits), Role::Enforced),
            (None, Some(found)) => {
                let role = if found.rule.shadow_mode {
                    Role::Shadowed
                } else if found.rule.quota_mode {
                    Role::Quota
                } else {
                    Role::Enforced
                };
                (self.rule(descriptor, &found, replaced, hits), role)
            }
            (None, None) => {
                self.context.metrics.count_unmatched();
                (Source::NoLimit, Role::Enforced)
            }
        };
        Planned { source, checks: start..self.call.checks.len(), role, hits }
    }

    fn over<'r>(
        &mut self,
        descriptor: &Descriptor<'_>,
        limit: LimitOverride,
        hits: Hits,
    ) -> Source<'r> {
        let length = limit.unit.seconds() * u64::from(limit.unit_multiplier) * 1_000_000;
        let head = KeyHead::new(AlgorithmKind::FixedWindow, KeyWindow::Length(length), 0);
        let entries = descriptor.entries.iter().map(|&entry| KeyEntry::Value(entry));
        let params = Limit {
            algorithm: AlgorithmKind::FixedWindow,
            amount: limit.requests_per_unit,
            window: Window::Length(length),
            burst: limit.requests_per_unit,
        };
        let how = (self.context.mode.charge, Consistency::Strict);
        self.push(&head, entries, params, how, descriptor, hits);
        let metrics = self.context.metrics.rules.overrides(self.request.domain);
        Source::Override(limit, metrics)
    }

    fn rule<'r>(
        &mut self,
        descriptor: &Descriptor<'_>,
        found: &Match<'r>,
        replaced: &[&str],
        hits: Hits,
    ) -> Source<'r> {
        let rule: &'r Rule = found.rule;
        let metrics = || {
            rule.metrics.clone().unwrap_or_else(|| {
                let levels = found.metric_levels(&descriptor.entries);
                self.context.metrics.rules.detailed(self.request.domain, &levels)
            })
        };
        if rule.unlimited {
            return Source::Unlimited(rule, metrics());
        }
        let limits: SmallVec<[&RuleLimit; 1]> = rule
            .limits
            .iter()
            .filter(|limit| limit.name.as_deref().is_none_or(|name| !replaced.contains(&name)))
            .collect();
        if limits.is_empty() {
            return Source::NoLimit;
        }
        let metrics = metrics();
        for limit in &limits {
            let entries = descriptor.entries.iter().zip(&found.nodes).map(key_entry);
            let params = limit.at(|| self.context.clock.now());
            let how = (limit.charge, limit.consistency);
            self.push(&limit.key_head, entries, params, how, descriptor, hits);
        }
        Source::Rule { rule, limits, metrics }
    }

    fn push<'k>(
        &mut self,
        head: &KeyHead,
        entries: impl Iterator<Item = KeyEntry<'k>>,
        limit: Limit,
        (charge, consistency): (ChargeMode, Consistency),
        descriptor: &Descriptor<'_>,
        hits: Hits,
    ) {
        let explicit = Hits::are_explicit(self.request, descriptor);
        self.call.checks.push(Check {
            key: self.context.keys.encode(head, self.request.domain, entries),
            limit,
            hits,
            charge: charge.resolve(limit.algorithm, explicit),
            effect: Effect::Deny,
            consistency,
        });
    }
}

fn key_entry<'k>((entry, node): (&Entry<'k>, &&'k crate::rules::Node)) -> KeyEntry<'k> {
    match &node.shared_pattern {
        Some(pattern) => KeyEntry::Shared { key: entry.key, pattern },
        None => KeyEntry::Value(*entry),
    }
}

/// Settles who can deny the call, once it is known which descriptors there are.
fn assign_effects(context: &Context, plan: &mut Plan<'_>, call: &mut Call) {
    for planned in &mut plan.descriptors {
        match &planned.source {
            // In quota mode, what has no limit is a quota that never runs out.
            Source::NoLimit => plan.quota_left |= context.mode.quota,
            Source::Rule { rule, .. } if planned.role == Role::Shadowed => {
                plan.quota_left |= rule.quota_mode || context.mode.quota;
            }
            Source::Rule { .. } | Source::Override(..) if context.mode.quota => {
                planned.role = Role::Quota;
            }
            Source::Rule { .. } | Source::Override(..) | Source::Unlimited(..) => {}
        }
    }
    for (group, planned) in (0..).zip(&plan.descriptors) {
        let effect = match planned.role {
            _ if context.mode.shadow => Effect::Observe,
            Role::Enforced => Effect::Deny,
            Role::Quota if !plan.quota_left => Effect::Quota(group),
            Role::Shadowed | Role::Quota => Effect::Observe,
        };
        for check in &mut call.checks[planned.checks.clone()] {
            check.effect = effect;
        }
    }
}
