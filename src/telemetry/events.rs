//! State changes: one function each, so that log line and metric cannot drift apart.

use super::Metrics;

/// New rules are in force; `now` in seconds of Unix time.
pub fn rules_loaded(metrics: &Metrics, version: &str, domains: usize, rules: usize, now: u64) {
    metrics.rules_loaded(version, rules, now);
    tracing::info!(version, domains, rules, "rules loaded");
}

/// The newest rules are refused; `faults` as `tollgate check` prints them.
pub fn rules_rejected(metrics: &Metrics, count: usize, faults: &str) {
    metrics.rules_rejected();
    tracing::error!(count, "rules refused, those loaded before stay in force\n{faults}");
}
