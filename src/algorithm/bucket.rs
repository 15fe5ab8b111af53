//! Token bucket and GCRA: one meter, two names.
//!
//! ITU-T I.371 gives the generic cell rate algorithm in two equal forms, virtual scheduling (a
//! theoretical arrival time) and a leaky bucket (a level that drains); a token bucket is the
//! leaky bucket seen from above: tokens = burst − level. The level is what is stored, because
//! used hits outlive a change of the rate, while a theoretical arrival time means another number
//! of hits at another rate.
//!
//! A call of h hits passes while level + h ≤ B; the level drains by N hits per W. Bound: B + N over
//! every interval of length W. Hits charged although refused raise the level to at most 2B, one
//! full bucket of debt.

use super::Refused;
use crate::model::{Hits, Limit, MAX_HITS, Timestamp, Verdict};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// When the level was true.
    last: Timestamp,
    /// Whole hits in the bucket.
    level: u64,
    /// A further fraction of a hit, in 1/W (W in µs); below W.
    fraction: u64,
}

pub(super) fn check(
    limit: &Limit,
    state: &mut Option<Bucket>,
    hits: Hits,
    now: Timestamp,
    refused: Refused,
) -> Verdict {
    let now = state.map_or(now, |state| state.last.max(now));
    let (amount, length) = (u128::from(limit.amount), u128::from(limit.window.length()));
    let capacity = limit.capacity();
    let full = u128::from(capacity) * length;
    let before = state.map_or(0, |state| {
        let level = u128::from(state.level) * length + u128::from(state.fraction);
        level.min(2 * full).saturating_sub(u128::from(now.micros_since(state.last)) * amount)
    });
    let used = whole(before, length);
    let allowed = match hits {
        Hits::Take(hits) => used + hits <= capacity,
        Hits::Look => used <= capacity,
        Hits::Refund(_) => true,
    };
    let after = match hits {
        Hits::Take(hits) if allowed || refused == Refused::Charged => {
            (before + u128::from(hits) * length).min(2 * full)
        }
        Hits::Refund(hits) => before.saturating_sub(u128::from(hits) * length),
        Hits::Take(_) | Hits::Look => before,
    };
    if after != before {
        *state = Some(Bucket {
            last: now,
            level: u64::try_from(after / length).unwrap_or(MAX_HITS),
            fraction: u64::try_from(after % length).unwrap_or(0),
        });
    }
    let excess = (after + u128::from(hits.count()) * length).saturating_sub(full);
    Verdict {
        allowed,
        used,
        remaining: capacity.saturating_sub(whole(after, length)),
        reset: match limit.amount {
            0 => limit.window.length(),
            _ => whole(after, amount).max(1),
        },
        retry_after: (!allowed && hits.count() <= capacity && limit.amount > 0)
            .then(|| whole(excess, amount)),
    }
}

/// ⌈value/unit⌉.
fn whole(value: u128, unit: u128) -> u64 {
    u64::try_from(value.div_ceil(unit)).unwrap_or(u64::MAX)
}

impl Bucket {
    pub(super) fn expires_at(&self, limit: &Limit) -> Timestamp {
        let length = u128::from(limit.window.length());
        let level = u128::from(self.level) * length + u128::from(self.fraction);
        self.last.plus_micros(whole(level, u128::from(limit.amount.max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::tests::{limit, take};
    use crate::model::AlgorithmKind;

    const MS: u64 = 1_000;

    #[test]
    fn allows_a_burst_then_the_rate() {
        let limit = limit(AlgorithmKind::Gcra, 3, 1_000 * MS, 3);
        let mut state = None;
        let at = |millis: u64| Timestamp::from_micros(100_000_000 + millis * MS);
        assert_eq!(take(&limit, &mut state, 3, at(0)), (true, 0, 1_000 * MS));
        // A hit takes 333,333⅓ µs to drain; the wait is rounded up.
        assert_eq!(take(&limit, &mut state, 1, at(0)), (false, 0, 333_334));
        assert_eq!(take(&limit, &mut state, 1, at(333)), (false, 0, 334));
        assert_eq!(take(&limit, &mut state, 1, at(334)), (true, 0, 999_333 + 1));
        assert_eq!(take(&limit, &mut state, 1, at(666)), (false, 0, 667));
        assert_eq!(take(&limit, &mut state, 1, at(667)), (true, 0, 999_667));
    }

    #[test]
    fn idle_time_earns_one_burst() {
        let limit = limit(AlgorithmKind::TokenBucket, 1, 1_000 * MS, 2);
        let mut state = None;
        let at = |secs: u64| Timestamp::from_secs(secs);
        assert!(take(&limit, &mut state, 2, at(10)).0);
        assert!(take(&limit, &mut state, 2, at(1_000)).0);
        assert_eq!(take(&limit, &mut state, 1, at(1_000)), (false, 0, 1_000 * MS));
        assert_eq!(
            take(&limit, &mut state, 1, at(5)),
            (false, 0, 1_000 * MS),
            "clock stepped back"
        );
    }

    #[test]
    fn a_forced_charge_goes_into_debt_of_one_bucket() {
        let limit = limit(AlgorithmKind::TokenBucket, 10, 1_000 * MS, 10);
        let mut state = None;
        let verdict =
            check(&limit, &mut state, Hits::Take(1_000), Timestamp::from_secs(1), Refused::Charged);
        assert!(!verdict.allowed);
        assert_eq!((verdict.remaining, verdict.reset, verdict.retry_after), (0, 2_000 * MS, None));
        let later =
            check(&limit, &mut state, Hits::Take(1), Timestamp::from_secs(1), Refused::Uncharged);
        assert_eq!(later.retry_after, Some(1_100 * MS));
    }

    #[test]
    fn raising_the_rate_never_refuses_what_the_old_one_allowed() {
        let slow = limit(AlgorithmKind::Gcra, 10, 1_000 * MS, 50);
        let fast = Limit { amount: 20, ..slow };
        let mut state = None;
        let at = Timestamp::from_secs;
        check(&slow, &mut state, Hits::Take(30), at(1), Refused::Uncharged);
        let verdict = check(&fast, &mut state, Hits::Take(20), at(1), Refused::Uncharged);
        assert!(verdict.allowed);
    }
}
