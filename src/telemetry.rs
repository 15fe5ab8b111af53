//! What the service tells about itself: metrics and logs.

pub mod events;
mod metrics;
mod rule_families;
mod rule_series;
mod tracing;

pub use metrics::{
    CONTENT_TYPE, ErrorKind, LeaseStats, MemoryStats, Method, Metrics, STORE_ERRORS,
};
pub use rule_series::{Outcome, RuleCount, RuleHits, RuleMetrics, RuleSeries};
pub use tracing::{RateLimited, install};
