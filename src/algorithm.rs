//! The five ways to count, as pure functions from state, hits and time to verdict and state.
//!
//! Invariants:
//! - No IO, no clock, no locks: a store hands in state and time.
//! - All arithmetic is exact in integers and saturates at [`MAX_HITS`](crate::model::MAX_HITS).
//!   `lua/` has the same functions, equal bit for bit.
//! - Time never moves back within a state: an earlier `now` counts as that of the last charge.
//! - A state keeps used hits, never what is left, so a changed limit applies to the next call.

mod bucket;
mod call;
mod fixed_window;
mod sliding_window_counter;
mod sliding_window_log;

pub use bucket::Bucket;
pub use call::decide;
pub use fixed_window::FixedWindow;
pub use sliding_window_counter::SlidingWindowCounter;
pub use sliding_window_log::SlidingWindowLog;

use crate::model::{AlgorithmKind, Hits, Limit, Timestamp, Verdict};

/// What a store keeps for one counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    FixedWindow(FixedWindow),
    Log(Box<SlidingWindowLog>),
    Counter(SlidingWindowCounter),
    Bucket(Bucket),
}

/// Whether a refused check is charged all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Charged,
    Uncharged,
}

/// Evaluates one check and charges it.
///
/// `state` is that of the check's counter, `None` for one that is unused or expired; it stays
/// `None` where nothing was charged. A state of another algorithm counts as unused: the key holds
/// the algorithm, so stores never mix them.
pub fn check(
    limit: &Limit,
    state: &mut Option<State>,
    hits: Hits,
    now: Timestamp,
    refused: Refused,
) -> Verdict {
    macro_rules! run {
        ($variant:ident, $make:expr) => {{
            let mut own = match state.take() {
                Some(State::$variant(own)) => Some(own),
                _ => None,
            };
            let verdict = $make(limit, &mut own, hits, now, refused);
            *state = own.map(State::$variant);
            verdict
        }};
    }
    match limit.algorithm {
        AlgorithmKind::FixedWindow => run!(FixedWindow, fixed_window::check),
        AlgorithmKind::SlidingWindowLog => run!(Log, sliding_window_log::check),
        AlgorithmKind::SlidingWindowCounter => run!(Counter, sliding_window_counter::check),
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra => run!(Bucket, bucket::check),
    }
}

impl State {
    /// The instant from which the counter is as good as unused.
    pub fn expires_at(&self, limit: &Limit) -> Timestamp {
        match self {
            Self::FixedWindow(state) => state.expires_at(limit),
            Self::Log(state) => state.expires_at(limit),
            Self::Counter(state) => state.expires_at(limit),
            Self::Bucket(state) => state.expires_at(limit),
        }
    }

    /// Hits that count at `now`.
    pub fn used(&self, limit: &Limit, now: Timestamp) -> u64 {
        let mut state = Some(self.clone());
        check(limit, &mut state, Hits::Look, now, Refused::Uncharged).used
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::Window;

    pub(crate) fn limit(algorithm: AlgorithmKind, amount: u32, window: u64, burst: u32) -> Limit {
        Limit { algorithm, amount, window: Window::Length(window), burst }
    }

    /// Whether the hits passed, what remains, and the wait: retry-after if refused, else reset.
    pub(crate) fn take(
        limit: &Limit,
        state: &mut Option<State>,
        hits: u64,
        now: Timestamp,
    ) -> (bool, u64, u64) {
        let verdict = check(limit, state, Hits::Take(hits), now, Refused::Uncharged);
        let wait = verdict.retry_after.unwrap_or(verdict.reset);
        (verdict.allowed, verdict.remaining, wait)
    }
}
