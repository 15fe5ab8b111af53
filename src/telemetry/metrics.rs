//! Every metric name, label and bucket.

use std::sync::Arc;
use std::time::Duration;

use super::RuleSeries;

/// All metrics of the process.
#[derive(Debug, Default)]
pub struct Metrics {
    pub rules: Arc<RuleSeries>,
}

/// The `grpc_method` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    ShouldRateLimit,
    Check,
}

/// The `err_type` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request was at fault, or no rules are loaded.
    Service,
    /// The counter store gave no verdict.
    Redis,
}

impl Metrics {
    /// The Prometheus text format, version 0.0.4.
    pub fn encode(&self) -> String {
        String::new()
    }

    /// One call answered, whatever the answer.
    pub fn observe_call(&self, _method: Method, _elapsed: Duration) {}

    /// One `ShouldRateLimit` call answered with an error.
    pub fn count_error(&self, _kind: ErrorKind) {}
}
