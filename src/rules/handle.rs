//! The rule set in force, and what became of the last reload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::{RuleSet, RulesError};

/// Shares the rule set; readers never wait.
#[derive(Debug, Default)]
pub struct RulesHandle {
    current: ArcSwap<RuleSet>,
    loaded: AtomicBool,
    loads: Mutex<Loads>,
}

#[derive(Debug, Default)]
struct Loads {
    ok: u64,
    failed: u64,
    last_error: Option<String>,
}

/// What is loaded, for health checks and people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesStatus {
    /// Empty before the first good load.
    pub version: String,
    /// Whether there was a good load.
    pub loaded: bool,
    /// Why the last load was rejected, unless a later one was good.
    pub last_error: Option<String>,
    pub domains: usize,
    pub rules: usize,
    pub loads_ok: u64,
    pub loads_failed: u64,
}

impl RulesHandle {
    /// The set in force; empty before the first good load. Hold it for one call only.
    pub fn load(&self) -> Guard<Arc<RuleSet>> {
        self.current.load()
    }

    /// Whether there was a good load.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    pub fn replace(&self, rules: RuleSet) {
        let mut loads = self.loads.lock();
        loads.ok += 1;
        loads.last_error = None;
        self.current.store(Arc::new(rules));
        self.loaded.store(true, Ordering::Release);
    }

    /// Keeps the set in force and remembers why the new one is not.
    pub fn reject(&self, error: &RulesError) {
        let mut loads = self.loads.lock();
        loads.failed += 1;
        loads.last_error = Some(error.to_string());
    }

    pub fn status(&self) -> RulesStatus {
        let loads = self.loads.lock();
        let rules = self.current.load();
        RulesStatus {
            version: rules.version.clone(),
            loaded: self.is_loaded(),
            last_error: loads.last_error.clone(),
            domains: rules.domains().count(),
            rules: rules.rules().len(),
            loads_ok: loads.ok,
            loads_failed: loads.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{CompileOptions, SourceFile, compile};
    use crate::telemetry::RuleSeries;

    #[test]
    fn a_rejected_load_keeps_the_rules_in_force() {
        let set = |text: &str| {
            let file = SourceFile { name: "r.yaml".into(), text: text.into() };
            compile(&[file], CompileOptions::default(), &RuleSeries::default())
        };
        let handle = RulesHandle::default();
        assert_eq!((handle.is_loaded(), handle.status().domains), (false, 0));

        handle.reject(&set("domain:").unwrap_err());
        assert!(!handle.is_loaded());
        handle.replace(set("domain: shop\ndescriptors: [{key: a}]").unwrap());
        handle.reject(&set("nothing: x").unwrap_err());

        let status = handle.status();
        assert_eq!((status.loaded, status.domains, status.rules), (true, 1, 1));
        assert_eq!((status.loads_ok, status.loads_failed), (1, 2));
        assert!(status.last_error.unwrap().starts_with("r.yaml:1:1: unknown key `nothing`"));
        assert!(handle.load().domain("shop").is_some());
        assert_eq!(handle.load().version, status.version);

        handle.replace(set("domain: x").unwrap());
        assert_eq!(handle.status().last_error, None);
    }
}
