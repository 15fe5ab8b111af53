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

    /// Sets a manual clock; the system's is left alone.
    pub fn set(&self, now: Timestamp) {
        if let Self::Manual(micros) = self {
            micros.store(now.as_micros(), Ordering::Relaxed);
        }
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
