//! What the service tells about itself: metrics and logs.

mod metrics;
mod rule_series;
mod tracing;

pub use metrics::{ErrorKind, Method, Metrics};
pub use rule_series::{RuleMetrics, RuleSeries};
pub use tracing::{RateLimited, install};
