//! Loads the rules at start and whenever their files change.

use std::sync::Arc;

use super::Health;
use crate::clock::Clock;
use crate::model::FailureMode;
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

    /// Reads all sources. A set with a fault changes nothing but what is told about it.
    ///
    /// # Errors
    ///
    /// All faults of all files.
    pub(super) fn reload(&self) -> Result<(), RulesError> {
        self.load().inspect_err(|error| {
            self.rules.reject(error);
            let has_rules = self.rules.is_loaded();
            events::rules_rejected(&self.metrics, error.0.len(), has_rules, &error.render());
        })
    }

    /// Likewise, and tells nobody of faults but the caller. Files that say the same as before
    /// change nothing.
    ///
    /// # Errors
    ///
    /// All faults of all files.
    pub(super) fn load(&self) -> Result<(), RulesError> {
        let rules = rules::load(&self.settings.sources, self.options, &self.metrics.rules)?;
        let before = self.rules.status();
        if before.loaded && before.version == rules.version && before.last_error.is_none() {
            return Ok(());
        }
        let limits = rules.rules().flat_map(|rule| &rule.limits);
        let unheeded = limits.filter(|limit| limit.on_store_failure != FailureMode::Error).count();
        if unheeded > 0 {
            events::failure_modes_unheeded(unheeded);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Flags;

    #[test]
    fn faults_of_a_start_are_left_to_its_caller_to_tell() {
        let mut flags = Flags::default();
        flags.set("rules.paths", ["/nonexistent/rules".to_owned()]);
        let settings = Settings::load(None, [], &flags).unwrap().settings;
        let (rules, metrics) = (Arc::<RulesHandle>::default(), Arc::<Metrics>::default());
        let reloader = Reloader::new(
            &settings,
            Arc::clone(&rules),
            Arc::clone(&metrics),
            Health::default(),
            Clock::System,
        );
        assert!(reloader.load().is_err());
        assert!(metrics.encode().contains("\nratelimit_service_config_load_error 0\n"));
        assert!(reloader.reload().is_err());
        assert!(metrics.encode().contains("\nratelimit_service_config_load_error 1\n"));
        assert!(rules.status().last_error.is_some() && !rules.is_loaded());
    }
}
