//! What is both logged and counted: one function each, so that the two cannot drift apart.

use std::error::Error;

use super::{ErrorKind, Metrics};
use crate::model::Timestamp;

/// Characters of a caller's text that a log line shows.
const SHOWN: usize = 64;

/// New rules are in force; `now` in seconds of Unix time.
pub fn rules_loaded(metrics: &Metrics, version: &str, domains: usize, rules: usize, now: u64) {
    metrics.rules_loaded(version, rules, now);
    tracing::info!(version, domains, rules, "rules loaded");
}

/// The newest rules are refused; `has_rules`: older ones are in force; `faults` as `tollgate check`
/// prints them.
pub fn rules_rejected(metrics: &Metrics, count: usize, has_rules: bool, faults: &str) {
    metrics.rules_rejected();
    let effect = if has_rules {
        "those loaded before stay in force"
    } else {
        "calls get errors until there are good ones"
    };
    tracing::error!(count, "rules refused, {effect}\n{}", faults.trim_end());
}

/// So many limits ask for what is not there yet.
pub fn failure_modes_unheeded(limits: usize) {
    tracing::warn!(
        limits,
        "on_store_failure is not acted on yet, without a verdict calls get an error"
    );
}

/// A `ShouldRateLimit` call got an error for an answer; `reason` is one of a closed set. Logged
/// once a second per reason, with the number of calls left out.
pub fn call_failed(
    metrics: &Metrics,
    kind: ErrorKind,
    reason: &'static str,
    error: &dyn Error,
    now: Timestamp,
) {
    metrics.count_error(kind);
    if let Some(more) = metrics.log_limit.admit(reason, now) {
        let error = chain(error);
        tracing::warn!(reason, error, more, "call has no decision");
    }
}

/// A call named a domain without rules, which is admitted; often a misspelt name.
pub fn unknown_domain(metrics: &Metrics, domain: &str, now: Timestamp) {
    metrics.count_unknown_domain();
    if let Some(more) = metrics.log_limit.admit("unknown_domain", now) {
        let domain: String = domain.chars().take(SHOWN).collect();
        tracing::warn!(?domain, more, "no rules for the domain, the call is admitted");
    }
}

/// An error and what caused it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
