//! The counters of each rule, shared by all rule sets that have the rule.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

/// Hits by outcome, named as in the reference's statistics.
#[derive(Debug, Default)]
pub struct RuleMetrics {
    pub total_hits: AtomicU64,
    pub within_limit: AtomicU64,
    pub near_limit: AtomicU64,
    pub over_limit: AtomicU64,
    pub shadow_mode: AtomicU64,
}

/// A domain and the composites of its levels.
type Path = (String, Vec<String>);

/// Hands out one [`RuleMetrics`] per domain and path, so that counts outlive a reload.
#[derive(Debug, Default)]
pub struct RuleSeries {
    by_path: Mutex<HashMap<Path, Arc<RuleMetrics>>>,
}

impl RuleSeries {
    /// `levels`: the composite (`key` or `key_value`) of each level, outermost first.
    pub fn get(&self, domain: &str, levels: &[String]) -> Arc<RuleMetrics> {
        let key = (domain.to_owned(), levels.to_vec());
        Arc::clone(self.by_path.lock().entry(key).or_default())
    }
}
