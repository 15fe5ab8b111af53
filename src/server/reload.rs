//! Loads the rules at start and whenever their files change.

use std::sync::Arc;

use super::Health;
use crate::clock::Clock;
use crate::rules::{self, CompileOptions, RulesError, RulesHandle};
use crate::settings::{RulesSettings, Settings};
use crate::telemetry::{Metrics, events};

/// Keeps a [`RulesHandle`] in step with its files.
#[derive(Debug)]
pub(super) struct Reloader {
    settings: RulesSettings,
    options: CompileOptions,
    rules: Arc<RulesHandle>,
    metrics: Arc<Metrics>,
    health: Health,
    clock: Clock,
}

impl Reloader {
    pub(super) fn new(
        settings: &Settings,
        rules: Arc<RulesHandle>,
        metrics: Arc<Metrics>,
        health: Health,
        clock: Clock,
    ) -> Self {
        let options = CompileOptions {
            merge_domains: settings.rules.merge_domains,
            charge: settings.mode.charge,
            on_store_failure: settings.mode.on_store_failure,
        };
        Self { settings: settings.rules.clone(), options, rules, metrics, health, clock }
    }

    /// Reads all sources. Files that say the same as before change nothing; a set with a fault
    /// changes nothing but what is told about it.
    ///
    /// # Errors
    ///
    /// All faults of all files.
    pub(super) fn reload(&self) -> Result<(), RulesError> {
        let rules = match rules::load(&self.settings.sources, self.options, &self.metrics.rules) {
            Ok(rules) => rules,
            Err(error) => {
                self.rules.reject(&error);
                events::rules_rejected(&self.metrics, error.0.len(), &error.render());
                return Err(error);
            }
        };
        let before = self.rules.status();
        if before.loaded && before.version == rules.version && before.last_error.is_none() {
            return Ok(());
        }
        self.rules.replace(rules);
        let status = self.rules.status();
        self.health.set_serving(status.domains > 0 || !self.settings.healthy_needs_domain);
        let now = self.clock.now().as_secs();
        let (version, domains, rules) = (&status.version, status.domains, status.rules);
        events::rules_loaded(&self.metrics, version, domains, rules, now);
        Ok(())
    }
}
