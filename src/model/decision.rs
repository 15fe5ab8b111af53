//! What is answered: a verdict per check, a status per descriptor, a decision per request.

use std::sync::Arc;

use smallvec::SmallVec;

use super::limit::Unit;
use super::metadata::Metadata;

/// A store's answer to one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    /// Hits counted before this check, at the same instant.
    pub used: u64,
    /// Hits left after this check: of an allowed check as if its call were admitted, of a
    /// refused one what is really left.
    pub remaining: u64,
    /// µs until the counter is unused again, or until the fixed window ends; at least 1.
    pub reset: u64,
    /// µs until the same hits can pass, rounded up; `None` if allowed or never.
    pub retry_after: Option<u64>,
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub overall_code: Code,
    /// In request order.
    pub statuses: SmallVec<[DescriptorStatus; 4]>,
    pub response_headers: Vec<Header>,
    pub dynamic_metadata: Option<Metadata>,
}

/// `RateLimitResponse.Code` without its unknown value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Ok,
    OverLimit,
}

/// Answer to one descriptor; the default is that of a descriptor without a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct DescriptorStatus {
    pub code: Code,
    /// Absent where no limit applied.
    pub current_limit: Option<CurrentLimit>,
    /// Never above the limit; [`u32::MAX`] for an unlimited rule.
    pub limit_remaining: u32,
    /// µs, absent where no limit applied. Of a refused descriptor the time after which the same
    /// call can pass.
    pub duration_until_reset: Option<u64>,
    /// µs until the same hits can pass; `None` where the descriptor passed or never can.
    pub retry_after: Option<u64>,
}

impl Default for DescriptorStatus {
    fn default() -> Self {
        Self {
            code: Code::Ok,
            current_limit: None,
            limit_remaining: 0,
            duration_until_reset: None,
            retry_after: None,
        }
    }
}

/// The limit that a status speaks of, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentLimit {
    pub requests_per_unit: u32,
    /// Absent for a `window` that is no whole number of a unit.
    pub unit: Option<Unit>,
    /// How many units the window is long.
    pub unit_multiplier: u32,
    pub name: Option<Arc<str>>,
}

/// A header for the proxy to add to its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: Arc<str>,
    pub value: String,
}
