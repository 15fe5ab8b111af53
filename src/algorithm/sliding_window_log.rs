//! Keeps the time of every admitted hit of the last window: exact, at a cost in memory.
//!
//! Bound: N over every interval of the window's length. Hits charged although refused count up to
//! 2N, so that the log stays bounded.

use std::collections::VecDeque;

use super::Refused;
use crate::model::{Hits, Limit, Timestamp, Verdict};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlidingWindowLog {
    /// When, and how many; oldest first, no two at one time.
    entries: VecDeque<(Timestamp, u64)>,
    /// Sum of all entries' hits.
    total: u64,
}

pub(super) fn check(
    limit: &Limit,
    state: &mut Option<Box<SlidingWindowLog>>,
    hits: Hits,
    now: Timestamp,
    refused: Refused,
) -> Verdict {
    let length = limit.window.length();
    let last = state.as_ref().and_then(|log| log.entries.back()).map(|&(at, _)| at);
    let now = last.map_or(now, |last| last.max(now));
    if let Some(log) = state {
        log.drop_until(now, length);
    }
    let used = state.as_ref().map_or(0, |log| log.total);
    let capacity = limit.capacity();
    let allowed = match hits {
        Hits::Take(hits) => used + hits <= capacity,
        Hits::Look => used <= capacity,
        Hits::Refund(_) => true,
    };
    match hits {
        Hits::Take(hits) if allowed || refused == Refused::Charged => {
            let hits = hits.min((2 * capacity).saturating_sub(used));
            if hits > 0 {
                state.get_or_insert_default().push(now, hits);
            }
        }
        Hits::Refund(hits) => {
            if let Some(log) = state {
                log.take_back(hits);
            }
        }
        Hits::Take(_) | Hits::Look => {}
    }
    if state.as_ref().is_some_and(|log| log.entries.is_empty()) {
        *state = None;
    }
    let total = state.as_ref().map_or(0, |log| log.total);
    let last = state.as_ref().and_then(|log| log.entries.back());
    Verdict {
        allowed,
        used,
        remaining: capacity.saturating_sub(total),
        reset: last.map_or(length, |&(at, _)| at.plus_micros(length).micros_since(now)),
        retry_after: match (state, hits) {
            (Some(log), _) if !allowed && hits.count() <= capacity => {
                log.wait(capacity - hits.count(), now, length)
            }
            _ => None,
        },
    }
}

impl SlidingWindowLog {
    /// Drops what has left the window that ends at `now`.
    fn drop_until(&mut self, now: Timestamp, length: u64) {
        while let Some(&(at, hits)) = self.entries.front()
            && at.plus_micros(length) <= now
        {
            self.total -= hits;
            self.entries.pop_front();
        }
    }

    fn push(&mut self, now: Timestamp, hits: u64) {
        self.total += hits;
        match self.entries.back_mut() {
            Some((at, last)) if *at == now => *last += hits,
            _ => self.entries.push_back((now, hits)),
        }
    }

    /// Removes the newest hits.
    fn take_back(&mut self, mut hits: u64) {
        while let Some((_, last)) = self.entries.back_mut() {
            let taken = hits.min(*last);
            *last -= taken;
            self.total -= taken;
            hits -= taken;
            if *last > 0 {
                break;
            }
            self.entries.pop_back();
        }
    }

    /// µs until at most `room` hits are left.
    fn wait(&self, room: u64, now: Timestamp, length: u64) -> Option<u64> {
        let mut left = self.total;
        for &(at, hits) in &self.entries {
            left -= hits;
            if left <= room {
                return Some(at.plus_micros(length).micros_since(now));
            }
        }
        None
    }

    pub(super) fn expires_at(&self, limit: &Limit) -> Timestamp {
        let last = self.entries.back().map(|&(at, _)| at).unwrap_or_default();
        last.plus_micros(limit.window.length())
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.entries.capacity() * size_of::<(Timestamp, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::tests::{limit, take};
    use crate::model::AlgorithmKind;

    const S: u64 = 1_000_000;

    #[test]
    fn a_hit_counts_for_exactly_one_window() {
        let limit = limit(AlgorithmKind::SlidingWindowLog, 3, 10 * S, 3);
        let mut state = None;
        let at = Timestamp::from_secs;
        assert_eq!(take(&limit, &mut state, 1, at(1)), (true, 2, 10 * S));
        assert_eq!(take(&limit, &mut state, 2, at(5)), (true, 0, 10 * S));
        assert_eq!(
            take(&limit, &mut state, 1, at(7)),
            (false, 0, 4 * S),
            "the hit at 1 leaves at 11"
        );
        assert_eq!(
            take(&limit, &mut state, 2, at(7)),
            (false, 0, 8 * S),
            "needs one of those at 5"
        );
        assert_eq!(take(&limit, &mut state, 1, at(11)), (true, 0, 10 * S));
        assert_eq!(take(&limit, &mut state, 1, at(3)), (false, 0, 4 * S), "clock stepped back");
    }

    #[test]
    fn a_refund_takes_the_newest_hits_back() {
        let limit = limit(AlgorithmKind::SlidingWindowLog, 3, 10 * S, 3);
        let mut state = None;
        let at = Timestamp::from_secs;
        take(&limit, &mut state, 1, at(1));
        take(&limit, &mut state, 2, at(5));
        let refund =
            check(&limit, &mut state_log(&mut state), Hits::Refund(2), at(6), Refused::Uncharged);
        assert_eq!((refund.used, refund.remaining, refund.reset), (3, 2, 5 * S));
    }

    fn state_log(state: &mut Option<super::super::State>) -> Option<Box<SlidingWindowLog>> {
        match state.take() {
            Some(super::super::State::Log(log)) => Some(log),
            _ => None,
        }
    }
}
