//! When each call of a connection is due.

use super::keys::Rng;

/// How calls follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// Closed loop: the next call when one is answered.
    OnAnswer,
    /// Open loop: so many calls a second at random moments, whatever the answers do.
    Poisson(f64),
    /// Open loop with equal gaps.
    Even(f64),
}

impl Pace {
    /// Calls per second asked for; `None` in the closed loop.
    pub(super) fn rate(self) -> Option<f64> {
        match self {
            Self::OnAnswer => None,
            Self::Poisson(rate) | Self::Even(rate) => Some(rate),
        }
    }
}

/// The schedule of one connection, in nanoseconds since the run began.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pace: Pace,
    gap_nanos: f64,
    due_nanos: f64,
    rng: Rng,
}

impl Schedule {
    /// The schedule of connection `index` of `connections`, which share the rate.
    pub(super) fn new(pace: Pace, seed: u64, index: u64, connections: u64) -> Self {
        let gap_nanos = pace.rate().map_or(0.0, |rate| connections as f64 * 1e9 / rate);
        let mut rng = Rng::new(seed ^ index.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let due_nanos = match pace {
            Pace::OnAnswer => 0.0,
            Pace::Poisson(_) => rng.exponential() * gap_nanos,
            Pace::Even(_) => gap_nanos * index as f64 / connections as f64,
        };
        Self { pace, gap_nanos, due_nanos, rng }
    }

    /// When the next call is due; in the closed loop that is always `now`.
    pub(super) fn due(&self, now_nanos: u64) -> u64 {
        if self.pace == Pace::OnAnswer { now_nanos } else { self.due_nanos as u64 }
    }

    pub(super) fn advance(&mut self) {
        self.due_nanos += match self.pace {
            Pace::OnAnswer => 0.0,
            Pace::Poisson(_) => self.gap_nanos * self.rng.exponential(),
            Pace::Even(_) => self.gap_nanos,
        };
    }

    /// How many calls, at most `most`, are due from now on and before `until`.
    pub(super) fn count_until(mut self, until_nanos: u64, most: u64) -> u64 {
        let mut count = 0;
        while self.pace != Pace::OnAnswer && self.due(0) < until_nanos && count < most {
            self.advance();
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[track_caller]
    fn check(pace: Pace, seconds: u64, want: std::ops::RangeInclusive<u64>) {
        let count: u64 = (0..3)
            .map(|index| Schedule::new(pace, 1, index, 3).count_until(seconds * SECOND, u64::MAX))
            .sum();
        assert!(want.contains(&count), "{count}");
    }

    #[test]
    fn connections_share_the_rate() {
        check(Pace::Even(1_000.0), 2, 2_000..=2_000);
        check(Pace::Poisson(10_000.0), 10, 99_000..=101_000); // three deviations
        check(Pace::OnAnswer, 2, 0..=0);
    }

    #[test]
    fn equal_gaps_are_equal_over_all_connections() {
        let mut due: Vec<u64> = Vec::new();
        for index in 0..4 {
            let mut schedule = Schedule::new(Pace::Even(1_000.0), 1, index, 4);
            for _ in 0..5 {
                due.push(schedule.due(0));
                schedule.advance();
            }
        }
        due.sort_unstable();
        assert_eq!(due, (0..20).map(|call| call * 1_000_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_count_has_an_end() {
        assert_eq!(Schedule::new(Pace::Even(1e6), 1, 0, 1).count_until(SECOND, 10), 10);
    }
}
