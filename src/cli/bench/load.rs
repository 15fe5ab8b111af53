//! A valid load: what to send, how fast, and for how long.

use std::net::SocketAddr;
use std::time::Duration;

use super::keys::Keys;
use super::pace::Pace;
use super::request::Question;

/// Where calls go to.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// As written; it is what calls name as their authority.
    pub(super) authority: String,
    pub(super) addr: SocketAddr,
}

#[derive(Debug, Clone)]
pub(super) struct Load {
    /// At least one; connections are dealt to them in turn.
    pub(super) targets: Vec<Target>,
    pub(super) question: Question,
    pub(super) keys: Keys,
    /// Number of the first unique key.
    pub(super) first_key: u64,
    pub(super) connections: usize,
    /// Calls in flight over all connections: the closed loop keeps so many, the open loop sends
    /// no more.
    pub(super) in_flight: usize,
    pub(super) pace: Pace,
    pub(super) warmup: Duration,
    pub(super) length: Length,
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Time(Duration),
    /// After so many calls, and after the time whatever has happened.
    Calls(u64, Duration),
}

impl Length {
    pub(super) fn longest(self) -> Duration {
        match self {
            Self::Time(duration) | Self::Calls(_, duration) => duration,
        }
    }

    /// Calls of connection `index` of `connections`.
    pub(super) fn quota(self, index: u64, connections: u64) -> u64 {
        match self {
            Self::Time(_) => u64::MAX,
            Self::Calls(calls, _) => share(calls, index, connections),
        }
    }
}

/// The part of `whole` that falls to `index` of `parts`; parts differ by one at most.
pub(super) fn share(whole: u64, index: u64, parts: u64) -> u64 {
    whole / parts + u64::from(index < whole % parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (whole, parts) in [(64, 4), (65, 4), (3, 4), (5_000, 7)] {
            let shares: Vec<u64> = (0..parts).map(|index| share(whole, index, parts)).collect();
            assert_eq!(shares.iter().sum::<u64>(), whole);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
