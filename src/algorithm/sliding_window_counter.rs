//! Weighs the count of the previous window by how much of it the sliding window still covers.
//!
//! With p and c the hits of the previous and the current aligned window and e the time since the
//! current one started, a call of h hits passes while ⌈p·(W − e)/W⌉ + c + h ≤ N. Bound: N, under
//! the assumption that the previous window's hits were spread evenly; 2N over an interval of
//! length W whatever the traffic.

use super::Refused;
use crate::model::{Hits, Limit, MAX_HITS, Timestamp, Verdict};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindowCounter {
    /// Start of the current window.
    start: Timestamp,
    previous: u64,
    current: u64,
}

pub(super) fn check(
    limit: &Limit,
    state: &mut Option<SlidingWindowCounter>,
    hits: Hits,
    now: Timestamp,
    refused: Refused,
) -> Verdict {
    let length = limit.window.length();
    let now = state.map_or(now, |state| state.start.max(now));
    let (start, end) = limit.window.bounds(now);
    let (previous, current) = match *state {
        Some(state) if state.start == start => (state.previous, state.current),
        Some(state) if state.start.plus_micros(length) == start => (state.current, 0),
        _ => (0, 0),
    };
    let left = end.micros_since(now);
    let used = (weigh(previous, left, length) + current).min(MAX_HITS);
    let capacity = limit.capacity();
    let allowed = match hits {
        Hits::Take(hits) => used + hits <= capacity,
        Hits::Look => used <= capacity,
        Hits::Refund(_) => true,
    };
    let (mut after_previous, mut after_current) = (previous, current);
    match hits {
        Hits::Take(hits) if capacity > 0 && (allowed || refused == Refused::Charged) => {
            after_current = (current + hits).min(MAX_HITS);
        }
        Hits::Refund(hits) => {
            after_current = current.saturating_sub(hits);
            after_previous = previous.saturating_sub(hits.saturating_sub(current));
        }
        Hits::Take(_) | Hits::Look => {}
    }
    if (after_previous, after_current) != (previous, current) {
        *state =
            Some(SlidingWindowCounter { start, previous: after_previous, current: after_current });
    }
    let used_after = weigh(after_previous, left, length) + after_current;
    Verdict {
        allowed,
        used,
        remaining: capacity.saturating_sub(used_after),
        reset: if after_current > 0 { left + length } else { left },
        retry_after: (!allowed && hits.count() <= capacity && capacity > 0)
            .then(|| wait(capacity - hits.count(), after_previous, after_current, left, length)),
    }
}

/// ⌈count·left/length⌉.
fn weigh(count: u64, left: u64, length: u64) -> u64 {
    let weighed = (u128::from(count) * u128::from(left)).div_ceil(u128::from(length));
    u64::try_from(weighed).unwrap_or(u64::MAX)
}

/// ⌊part·length/count⌋, at most `length`.
fn share(part: u64, count: u64, length: u64) -> u64 {
    let share = u128::from(part) * u128::from(length) / u128::from(count.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(length)
}

/// µs until the weighed hits are at most `room`, where they are more now.
fn wait(room: u64, previous: u64, current: u64, left: u64, length: u64) -> u64 {
    if current <= room {
        // In this window: the weight must fall to (room − c)/p.
        left - share(room - current, previous, length)
    } else {
        // In the next one, where c is the previous count.
        left + length - share(room, current, length)
    }
}

impl SlidingWindowCounter {
    pub(super) fn expires_at(&self, limit: &Limit) -> Timestamp {
        self.start.plus_micros(2 * limit.window.length())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::tests::{limit, take};
    use crate::model::AlgorithmKind;

    const S: u64 = 1_000_000;

    #[test]
    fn the_previous_window_fades_out() {
        let limit = limit(AlgorithmKind::SlidingWindowCounter, 10, 10 * S, 10);
        let mut state = None;
        let at = |secs: u64| Timestamp::from_secs(secs);
        assert_eq!(take(&limit, &mut state, 10, at(109)), (true, 0, 11 * S));
        // 10 hits at full weight; the first of them has left after a tenth of the window.
        assert_eq!(take(&limit, &mut state, 1, at(110)), (false, 0, S));
        assert_eq!(take(&limit, &mut state, 1, at(111)), (true, 0, 19 * S));
        assert_eq!(take(&limit, &mut state, 5, at(115)), (false, 4, S));
        assert_eq!(take(&limit, &mut state, 5, at(116)), (true, 0, 14 * S));
        // 6 in this window: in the next one, 5 more fit once ⌈6·(W − e)/W⌉ ≤ 5.
        assert_eq!(take(&limit, &mut state, 5, at(119)), (false, 3, 2_666_667));
    }
}
