//! The only source of time.

#![expect(clippy::disallowed_types, reason = "the one place that reads the system's clocks")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::model::Timestamp;

/// Tells the time of day; tests hand in their own.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    /// Stands still until it is set.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    pub fn manual(now: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicU64::new(now.as_micros())))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp::default() + since_epoch
            }
            Self::Manual(micros) => Timestamp::from_micros(micros.load(Ordering::Relaxed)),
        }
    }

    pub fn moment(&self) -> Moment {
        let steady = match self {
            Self::System => Some(Instant::now()),
            Self::Manual(_) => None,
        };
        Moment { steady, day: self.now() }
    }

    /// Sets a manual clock; the system's is left alone.
    pub fn set(&self, now: Timestamp) {
        if let Self::Manual(micros) = self {
            micros.store(now.as_micros(), Ordering::Relaxed);
        }
    }
}

/// A moment by two clocks: one that nobody sets but that may stand still while the machine sleeps,
/// and the time of day.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Absent where time is a manual clock's.
    steady: Option<Instant>,
    day: Timestamp,
}

impl Moment {
    /// µs from `earlier` to `self` by the clock that says more, so never less than they were
    /// unless both clocks are wrong.
    pub fn micros_since(self, earlier: Self) -> u64 {
        let steady = self.steady.zip(earlier.steady).map_or(0, |(end, start)| {
            u64::try_from(end.saturating_duration_since(start).as_micros()).unwrap_or(u64::MAX)
        });
        steady.max(self.day.micros_since(earlier.day))
    }
}

/// Measures how long something takes.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_says_more_is_believed() {
        let steady = Instant::now();
        let moment = |after: u64, day: u64| Moment {
            steady: Some(steady + Duration::from_micros(after)),
            day: Timestamp::from_micros(day),
        };
        assert_eq!(moment(5, 100).micros_since(moment(0, 100)), 5, "day stood still");
        assert_eq!(moment(5, 10).micros_since(moment(0, 100)), 5, "day was set back");
        assert_eq!(moment(5, 900).micros_since(moment(0, 100)), 800, "the machine slept");
    }
}
