//! Decides all checks of a call together, and charges the counters by its outcome.

use smallvec::SmallVec;

use super::{Refused, State, check};
use crate::model::{Charge, Check, Effect, Hits, Limit, Timestamp, Verdict};

/// Evaluates `checks` in order at `now` and charges them.
///
/// `slots[i]` is the place in `states` of the counter of `checks[i]`; checks of one counter share
/// a slot, and a later one sees what the earlier one would charge. Then, if the call is admitted,
/// every check is charged, also one that was refused under [`Effect::Observe`] or as one of
/// several quotas. If not, only refunds and checks of [`Charge::Always`] are.
pub fn decide(
    checks: &[Check],
    slots: &[usize],
    states: &mut [Option<State>],
    now: Timestamp,
) -> SmallVec<[Verdict; 4]> {
    let alone = checks.len() == 1;
    let refused = |check: &Check| match check.effect {
        _ if is_always_charged(check) => Refused::Charged,
        Effect::Deny => Refused::Uncharged,
        Effect::Quota(_) if alone => Refused::Uncharged,
        Effect::Observe | Effect::Quota(_) => Refused::Charged,
    };
    let before: SmallVec<[Option<State>; 4]> =
        if alone { SmallVec::new() } else { states.iter().cloned().collect() };
    let mut verdicts: SmallVec<[Verdict; 4]> = checks
        .iter()
        .zip(slots)
        .map(|(one, &slot)| {
            let state = &mut states[slot];
            self::check(&one.limit, state, one.hits, now, refused(one))
        })
        .collect();
    if alone || !is_denied(checks, &verdicts) {
        return verdicts;
    }
    states.clone_from_slice(&before);
    for ((one, &slot), verdict) in checks.iter().zip(slots).zip(&mut verdicts) {
        if is_always_charged(one) {
            self::check(&one.limit, &mut states[slot], one.hits, now, Refused::Charged);
        } else if !verdict.allowed {
            verdict.remaining = left(&one.limit, verdict.used);
        }
    }
    verdicts
}

fn is_always_charged(check: &Check) -> bool {
    check.charge == Charge::Always || matches!(check.hits, Hits::Refund(_))
}

fn left(limit: &Limit, used: u64) -> u64 {
    limit.capacity().saturating_sub(used)
}

/// Whether the answer's overall code is over limit: a refused check that denies, or a refused one
/// in every quota group.
fn is_denied(checks: &[Check], verdicts: &[Verdict]) -> bool {
    let mut quotas: SmallVec<[(u16, bool); 4]> = SmallVec::new();
    for (check, verdict) in checks.iter().zip(verdicts) {
        match check.effect {
            Effect::Deny if !verdict.allowed => return true,
            Effect::Deny | Effect::Observe => {}
            Effect::Quota(group) => match quotas.iter_mut().find(|(other, _)| *other == group) {
                Some((_, over)) => *over |= !verdict.allowed,
                None => quotas.push((group, !verdict.allowed)),
            },
        }
    }
    !quotas.is_empty() && quotas.iter().all(|&(_, over)| over)
}
