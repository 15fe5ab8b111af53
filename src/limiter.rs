//! One request in, one decision out: find the rules, ask the store once, report.
//!
//! Invariants:
//! - A request reads one rule set; a reload never changes it half way.
//! - The store is asked at most once per request, and not at all where no limit applies.

mod error;
mod headers;
mod metadata;
mod plan;
mod report;

use std::sync::Arc;

pub use error::LimiterError;

use crate::clock::{Clock, Stopwatch};
use crate::key::KeyCodec;
use crate::model::{Decision, Request};
use crate::rules::RulesHandle;
use crate::settings::{ModeSettings, ResponseSettings};
use crate::store::{StoreError, StoreStack};
use crate::telemetry::{Metrics, events};

/// Decides requests. Each worker thread has one of its own, with its own way to the store; rules,
/// metrics and counters are context.
#[derive(Debug, Clone)]
pub struct Limiter {
    context: Arc<Context>,
    store: StoreStack,
}

/// What all limiters of a process share.
#[derive(Debug)]
pub struct Context {
    rules: Arc<RulesHandle>,
    keys: KeyCodec,
    mode: ModeSettings,
    headers: Option<headers::Names>,
    dynamic_metadata: bool,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Context {
    pub fn new(
        rules: Arc<RulesHandle>,
        keys: KeyCodec,
        mode: ModeSettings,
        response: &ResponseSettings,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        let headers = response.headers.as_ref().map(headers::Names::new);
        let dynamic_metadata = response.dynamic_metadata;
        Self { rules, keys, mode, headers, dynamic_metadata, metrics, clock }
    }
}

impl Limiter {
    pub fn new(context: Arc<Context>, store: StoreStack) -> Self {
        Self { context, store }
    }

    /// Finds the rules of `request`, asks the store, and reports.
    ///
    /// # Errors
    ///
    /// There is no decision. If the store failed, the hits may or may not have been counted.
    ///
    /// # Cancel safety
    ///
    /// A dropped call is counted whole or not at all.
    pub async fn should_rate_limit(&self, request: &Request<'_>) -> Result<Decision, LimiterError> {
        let context = &*self.context;
        if !context.rules.is_loaded() {
            return Err(LimiterError::NoRules);
        }
        let rules = context.rules.load();
        let Some(domain) = rules.domain(request.domain) else {
            events::unknown_domain(&context.metrics, request.domain, context.clock.now());
            return Ok(report::unlimited(request));
        };
        let (plan, call) = plan::plan(context, domain, request);
        let verdicts = if call.checks.is_empty() {
            Vec::new()
        } else {
            let watch = Stopwatch::start();
            let answer = self.store.decide(&call).await;
            context
                .metrics
                .observe_store(watch.elapsed(), answer.as_ref().err().map(StoreError::reason));
            answer.map_err(LimiterError::Store)?
        };
        Ok(report::report(context, request, &plan, &call, &verdicts))
    }
}

#[cfg(test)]
mod tests;
