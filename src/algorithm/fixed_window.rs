//! Counts hits in windows that are aligned to the Unix epoch or to a calendar.
//!
//! Bound: N in each aligned window, so at most 2N over an interval of the window's length, where
//! it spans the end of one window and the start of the next. This is what envoyproxy/ratelimit
//! does.

use super::Refused;
use crate::model::{Hits, Limit, Timestamp, Verdict};

/// Counts beyond this stay there: twice the largest amount, so that it is over every limit, and
/// small enough for Redis to keep window and count in one integer.
const MAX_COUNT: u64 = (1 << 33) - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    /// Start of the window that `count` belongs to.
    start: Timestamp,
    count: u64,
}

pub(super) fn check(
    limit: &Limit,
    state: &mut Option<FixedWindow>,
    hits: Hits,
    now: Timestamp,
    refused: Refused,
) -> Verdict {
    let now = state.map_or(now, |state| state.start.max(now));
    let (start, end) = limit.window.bounds(now);
    let used = state.filter(|state| state.start == start).map_or(0, |state| state.count);
    let capacity = limit.capacity();
    let allowed = match hits {
        Hits::Take(hits) => used + hits <= capacity,
        Hits::Look => used <= capacity,
        Hits::Refund(_) => true,
    };
    let count = match hits {
        Hits::Take(hits) if capacity > 0 && (allowed || refused == Refused::Charged) => {
            (used + hits).min(MAX_COUNT)
        }
        Hits::Refund(hits) => used.saturating_sub(hits),
        Hits::Take(_) | Hits::Look => used,
    };
    if count != used {
        *state = Some(FixedWindow { start, count });
    }
    // A clock set back by more than the calendar that the limit brings along is past its end.
    let reset = end.micros_since(now).max(1);
    Verdict {
        allowed,
        used,
        remaining: capacity.saturating_sub(count),
        reset,
        retry_after: (!allowed && hits.count() <= capacity && capacity > 0).then_some(reset),
    }
}

impl FixedWindow {
    pub(super) fn expires_at(&self, limit: &Limit) -> Timestamp {
        limit.window.bounds(self.start).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::tests::{limit, take};
    use crate::model::{AlgorithmKind, Window};

    const HOUR: u64 = 3_600_000_000;

    #[test]
    fn counts_anew_at_each_aligned_boundary() {
        let limit = limit(AlgorithmKind::FixedWindow, 2, HOUR, 2);
        let mut state = None;
        let at = |micros| Timestamp::from_micros(micros);
        assert_eq!(take(&limit, &mut state, 1, at(HOUR - 2)), (true, 1, 2));
        assert_eq!(take(&limit, &mut state, 1, at(HOUR - 1)), (true, 0, 1));
        assert_eq!(take(&limit, &mut state, 1, at(HOUR - 1)), (false, 0, 1));
        assert_eq!(take(&limit, &mut state, 1, at(HOUR)), (true, 1, HOUR));
        assert_eq!(
            take(&limit, &mut state, 1, at(HOUR - 1)),
            (true, 0, HOUR),
            "clock stepped back"
        );
    }

    #[test]
    fn a_state_beyond_the_calendar_still_ends() {
        let day = |n: u64| Timestamp::from_secs(n * 86_400);
        let calendar = |first: u64| {
            let window = Window::Calendar([0, 1, 2, 3].map(|days| day(first + days)));
            Limit { algorithm: AlgorithmKind::FixedWindow, amount: 1, window, burst: 1 }
        };
        let mut state = None;
        assert!(take(&calendar(99), &mut state, 1, day(100)).0);
        assert_eq!(take(&calendar(89), &mut state, 1, day(90)), (true, 0, 1));
    }

    #[test]
    fn follows_calendar_boundaries() {
        let day = |n: u64| Timestamp::from_secs(n * 86_400);
        let window = Window::Calendar([day(0), day(31), day(59), day(90)]);
        let limit = Limit { algorithm: AlgorithmKind::FixedWindow, amount: 1, window, burst: 1 };
        let mut state = None;
        let month = |days: u64| days * 86_400_000_000;
        assert_eq!(take(&limit, &mut state, 1, day(40)), (true, 0, month(19)));
        assert_eq!(take(&limit, &mut state, 1, day(58)), (false, 0, month(1)));
        assert_eq!(take(&limit, &mut state, 1, day(59)), (true, 0, month(31)));
    }
}
