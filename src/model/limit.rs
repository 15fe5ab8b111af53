//! What is allowed: algorithm, amount, window and burst of one limit.

use std::fmt;

use super::time::Timestamp;

/// The longest window, and the longest time in which a bucket may refill: ten years of 365 days,
/// in µs. Products of it stay exact in every store.
pub const MAX_WINDOW: u64 = 10 * 365 * 86_400 * 1_000_000;

/// How many window boundaries a calendar window carries: the start of the previous window and of
/// the current, next and next but one.
pub const CALENDAR_BOUNDS: usize = 4;

/// How hits are counted against the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AlgorithmKind {
    FixedWindow,
    SlidingWindowLog,
    SlidingWindowCounter,
    TokenBucket,
    Gcra,
}

impl AlgorithmKind {
    pub const ALL: [Self; 5] = [
        Self::FixedWindow,
        Self::SlidingWindowLog,
        Self::SlidingWindowCounter,
        Self::TokenBucket,
        Self::Gcra,
    ];

    /// The name in rules files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindowLog => "sliding_window_log",
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::TokenBucket => "token_bucket",
            Self::Gcra => "gcra",
        }
    }

    /// Whether the algorithm has a capacity apart from its amount.
    pub const fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket | Self::Gcra)
    }
}

/// A time unit of the RLS API, with the lengths of envoyproxy/ratelimit: a month is 30 days and a
/// year 365, all aligned to the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 604_800,
            Self::Month => 2_592_000,
            Self::Year => 31_536_000,
        }
    }

    /// The name in rules files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The number of `RateLimitResponse.RateLimit.Unit` and `envoy.type.v3.RateLimitUnit`.
    pub const fn wire(self) -> i32 {
        match self {
            Self::Second => 1,
            Self::Minute => 2,
            Self::Hour => 3,
            Self::Day => 4,
            Self::Month => 5,
            Self::Year => 6,
            Self::Week => 7,
        }
    }

    pub fn from_wire(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.wire() == number)
    }

    /// Reads a unit name in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The stretch of time that the amount is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// Length in µs: a whole number of milliseconds, 1 ms to [`MAX_WINDOW`]. Fixed windows are
    /// aligned to the Unix epoch.
    Length(u64),
    /// Window boundaries of a calendar around the caller's time. The store picks the window by
    /// its own clock, so a caller's wrong clock does no harm unless it is off by a whole window.
    Calendar([Timestamp; CALENDAR_BOUNDS]),
}

impl Window {
    /// Start and end of the fixed window that holds `now`.
    pub fn bounds(self, now: Timestamp) -> (Timestamp, Timestamp) {
        match self {
            Self::Length(length) => {
                let start = now.as_micros() - now.as_micros() % length;
                (Timestamp::from_micros(start), Timestamp::from_micros(start + length))
            }
            Self::Calendar([first, second, third, fourth]) => {
                if now < second {
                    (first, second)
                } else if now < third {
                    (second, third)
                } else {
                    (third, fourth)
                }
            }
        }
    }

    /// Length in µs; of a calendar window, that of the current one.
    pub fn length(self) -> u64 {
        match self {
            Self::Length(length) => length,
            Self::Calendar([_, start, end, _]) => end.micros_since(start),
        }
    }
}

/// One limit as a store evaluates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    pub algorithm: AlgorithmKind,
    /// Hits per window (N).
    pub amount: u32,
    pub window: Window,
    /// Capacity of a token bucket or of GCRA (B); equals `amount` for the others.
    pub burst: u32,
}

impl Limit {
    /// The most hits that one call can ever pass: the burst of buckets, else the amount.
    pub fn capacity(&self) -> u64 {
        if self.amount == 0 { 0 } else { u64::from(self.burst) }
    }
}

/// Who pays for a call, as a rule says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChargeMode {
    /// Fixed windows: [`Charge::Always`] for explicit hits, else [`Charge::Admitted`]. The other
    /// algorithms: [`Charge::Admitted`].
    #[default]
    Auto,
    Admitted,
    Always,
}

/// Who pays for a call, resolved for one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Charge {
    /// Charged only when the whole call is admitted.
    Admitted,
    /// Charged whatever the outcome.
    Always,
}

impl ChargeMode {
    /// `explicit`: see [`super::Hits::are_explicit`].
    pub fn resolve(self, algorithm: AlgorithmKind, explicit: bool) -> Charge {
        match self {
            Self::Always => Charge::Always,
            Self::Auto if explicit && algorithm == AlgorithmKind::FixedWindow => Charge::Always,
            Self::Auto | Self::Admitted => Charge::Admitted,
        }
    }
}

/// Whether every hit is counted before its call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consistency {
    /// The store decides each call.
    #[default]
    Strict,
    /// Hits may be taken from the store in advance, many at once. They are counted before they
    /// are spent, so that never more than the limit is admitted.
    Leased,
}

/// What a call gets when the store gives no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailureMode {
    /// A gRPC error, so that the proxy's own failure mode decides.
    #[default]
    Error,
    Allow,
    Deny,
    /// The embedded store, with the limit divided by the expected replicas.
    Local,
}
