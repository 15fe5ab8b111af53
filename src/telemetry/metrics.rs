//! Every metric name, label and bucket.
//!
//! Names that start with `ratelimit_` are those of the reference's Prometheus mapping, for its
//! dashboards and alerts; names that start with `tollgate_` are ours.
//!
//! Invariants:
//! - Every series exists at zero from the start; those of a rule, from when the rule is loaded.
//! - Labels come from rules, never from requests, unless a rule asks for it.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use super::rule_families::rule_families;
use super::{RateLimited, RuleSeries};

/// The text format that [`Metrics::encode`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Seconds; the default buckets of Prometheus clients, which the reference uses.
const RESPONSE_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Seconds; up to the longest time that a store may take.
const STORE_BUCKETS: &[f64] = &[
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 1.0,
];
/// The `reason` label of store errors.
pub const STORE_ERRORS: [&str; 5] = ["timeout", "connect", "malformed_reply", "stopped", "redis"];

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    pub rules: Arc<RuleSeries>,
    /// Keeps log lines about calls to one per reason and second.
    pub(super) log_limit: RateLimited,
    registry: Registry,
    calls: [IntCounter; 2],
    call_seconds: [Histogram; 2],
    errors: [IntCounter; 2],
    global_shadow: IntCounter,
    loads: [IntCounter; 2],
    unknown_domains: IntCounter,
    unmatched: IntCounter,
    store_seconds: Histogram,
    store_errors: IntCounterVec,
    store_commands: IntCounter,
    deny_cache_hits: IntCounter,
    leases: [IntCounter; 3],
    rules_info: IntGaugeVec,
    rules_count: IntGauge,
    rules_loaded_at: IntGauge,
    rules_rejected: IntGauge,
    memory: [IntGauge; 2],
    memory_removed: [IntCounter; 2],
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

/// What the embedded store holds and has let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStats {
    pub keys: usize,
    pub bytes: usize,
    /// Live counters dropped because the store was full.
    pub evictions: u64,
    pub expirations: u64,
}

/// What leases have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseStats {
    /// Hits served without asking the store.
    pub hits: u64,
    pub refills: u64,
    /// Hits given back unspent.
    pub returned: u64,
}

/// Makes metrics of one registry. Names are constants, so a fault is one of this file; it shows
/// in the test that lists them all.
struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn add<T: prometheus::core::Collector + Clone + 'static>(&self, metric: &T) {
        if let Err(error) = self.0.register(Box::new(metric.clone())) {
            tracing::error!(%error, "metric is not exported");
        }
    }

    #[expect(clippy::expect_used, reason = "names and labels are constants of this file")]
    fn counter(&self, name: &str, help: &str) -> IntCounter {
        let metric = IntCounter::new(name, help).expect("a valid metric name");
        self.add(&metric);
        metric
    }

    #[expect(clippy::expect_used, reason = "names and labels are constants of this file")]
    fn counters(&self, name: &str, help: &str, label: &str, values: &[&str]) -> IntCounterVec {
        let metric =
            IntCounterVec::new(Opts::new(name, help), &[label]).expect("a valid metric name");
        for value in values {
            metric.with_label_values(&[value]);
        }
        self.add(&metric);
        metric
    }

    #[expect(clippy::expect_used, reason = "names and labels are constants of this file")]
    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        let metric = IntGauge::new(name, help).expect("a valid metric name");
        self.add(&metric);
        metric
    }

    #[expect(clippy::expect_used, reason = "names and labels are constants of this file")]
    fn info(&self, name: &str, help: &str, label: &str) -> IntGaugeVec {
        let metric =
            IntGaugeVec::new(Opts::new(name, help), &[label]).expect("a valid metric name");
        self.add(&metric);
        metric
    }

    #[expect(clippy::expect_used, reason = "names and labels are constants of this file")]
    fn histogram(&self, opts: HistogramOpts, buckets: &[f64]) -> Histogram {
        let metric =
            Histogram::with_opts(opts.buckets(buckets.to_vec())).expect("a valid metric name");
        self.add(&metric);
        metric
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        let make = Maker(&registry);
        let methods = ["ShouldRateLimit", "Check"];
        let calls = make.counters(
            "ratelimit_service_total_requests",
            "gRPC calls answered",
            "grpc_method",
            &methods,
        );
        let call_seconds = methods.map(|method| {
            let opts = HistogramOpts::new(
                "ratelimit_service_response_time_seconds",
                "Time from a gRPC call to its answer",
            );
            make.histogram(opts.const_label("grpc_method", method), RESPONSE_BUCKETS)
        });
        let error_kinds = ["service_error", "redis_error"];
        let errors = make.counters(
            "ratelimit_service_should_rate_limit_error",
            "Calls answered with an error",
            "err_type",
            &error_kinds,
        );
        let build = make.info("tollgate_build_info", "Version that runs", "version");
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Self {
            calls: methods.map(|method| calls.with_label_values(&[method])),
            call_seconds,
            errors: error_kinds.map(|kind| errors.with_label_values(&[kind])),
            global_shadow: make.counter(
                "ratelimit_service_global_shadow_mode",
                "Calls over a limit that global shadow mode let pass",
            ),
            loads: [
                make.counter("ratelimit_service_config_load_success", "Rules loaded"),
                make.counter("ratelimit_service_config_load_error", "Rules refused"),
            ],
            unknown_domains: make
                .counter("tollgate_unknown_domain_total", "Calls for a domain without rules"),
            unmatched: make.counter(
                "tollgate_unmatched_descriptors_total",
                "Descriptors of known domains that no rule matched",
            ),
            store_seconds: make.histogram(
                HistogramOpts::new("tollgate_store_seconds", "Time that the counter store took"),
                STORE_BUCKETS,
            ),
            store_errors: make.counters(
                "tollgate_store_errors_total",
                "Calls without a verdict from the counter store",
                "reason",
                &STORE_ERRORS,
            ),
            deny_cache_hits: make.counter(
                "tollgate_deny_cache_hits_total",
                "Checks denied without asking Redis again",
            ),
            store_commands: make
                .counter("tollgate_store_commands_total", "Script calls sent to Redis"),
            leases: [
                make.counter(
                    "tollgate_lease_hits_total",
                    "Hits served from leases, without asking Redis",
                ),
                make.counter("tollgate_lease_refills_total", "Requests to Redis for a lease"),
                make.counter(
                    "tollgate_lease_returned_hits_total",
                    "Hits of leases given back unspent",
                ),
            ],
            rules_info: make.info(
                "tollgate_rules_info",
                "Version of the rules in force",
                "version",
            ),
            rules_count: make.gauge("tollgate_rules", "Rules in force"),
            rules_loaded_at: make.gauge(
                "tollgate_rules_loaded_timestamp_seconds",
                "When the rules in force were loaded, in Unix time",
            ),
            rules_rejected: make.gauge(
                "tollgate_rules_rejected",
                "1 while the newest rules are refused and older ones stay in force",
            ),
            memory: [
                make.gauge("tollgate_memory_keys", "Counters in the embedded store"),
                make.gauge("tollgate_memory_bytes", "Bytes of counters in the embedded store"),
            ],
            memory_removed: [
                make.counter(
                    "tollgate_memory_evictions_total",
                    "Live counters dropped because the embedded store was full",
                ),
                make.counter("tollgate_memory_expirations_total", "Counters removed as expired"),
            ],
            rules: Arc::default(),
            log_limit: RateLimited::default(),
            registry,
        }
    }
}

impl Metrics {
    /// All metrics in the Prometheus text format, version 0.0.4.
    pub fn encode(&self) -> String {
        let mut families = self.registry.gather();
        families.extend(rule_families(&self.rules));
        families.retain(|family| !family.get_metric().is_empty());
        TextEncoder::new().encode_to_string(&families).unwrap_or_else(|error| {
            tracing::error!(%error, "metrics are not encoded");
            String::new()
        })
    }

    /// One call answered, whatever the answer.
    pub fn observe_call(&self, method: Method, elapsed: Duration) {
        self.calls[method as usize].inc();
        self.call_seconds[method as usize].observe(elapsed.as_secs_f64());
    }

    /// One `ShouldRateLimit` call answered with an error.
    pub(super) fn count_error(&self, kind: ErrorKind) {
        self.errors[kind as usize].inc();
    }

    pub fn count_global_shadow(&self) {
        self.global_shadow.inc();
    }

    pub(super) fn count_unknown_domain(&self) {
        self.unknown_domains.inc();
    }

    pub fn count_unmatched(&self) {
        self.unmatched.inc();
    }

    /// One answer of the store; `error` is one of [`STORE_ERRORS`].
    pub fn observe_store(&self, elapsed: Duration, error: Option<&'static str>) {
        self.store_seconds.observe(elapsed.as_secs_f64());
        if let Some(reason) = error {
            self.store_errors.with_label_values(&[reason]).inc();
        }
    }

    /// Script calls sent to Redis so far.
    pub fn set_store_commands(&self, total: u64) {
        raise(&self.store_commands, total);
    }

    /// Checks denied without Redis so far.
    pub fn set_deny_cache_hits(&self, total: u64) {
        raise(&self.deny_cache_hits, total);
    }

    /// What leases have done so far.
    pub fn set_leases(&self, stats: LeaseStats) {
        let totals = [stats.hits, stats.refills, stats.returned];
        for (counter, total) in self.leases.iter().zip(totals) {
            raise(counter, total);
        }
    }

    /// New rules are in force since `now`, in seconds of Unix time.
    pub fn rules_loaded(&self, version: &str, rules: usize, now: u64) {
        self.loads[0].inc();
        self.rules_info.reset();
        self.rules_info.with_label_values(&[version]).set(1);
        self.rules_count.set(i64::try_from(rules).unwrap_or(i64::MAX));
        self.rules_loaded_at.set(i64::try_from(now).unwrap_or(i64::MAX));
        self.rules_rejected.set(0);
        self.rules.forget_unused();
    }

    /// The newest rules are refused.
    pub fn rules_rejected(&self) {
        self.loads[1].inc();
        self.rules_rejected.set(1);
    }

    /// The state of the embedded store.
    pub fn set_memory(&self, stats: MemoryStats) {
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        self.memory[0].set(gauge(stats.keys));
        self.memory[1].set(gauge(stats.bytes));
        for (counter, total) in self.memory_removed.iter().zip([stats.evictions, stats.expirations])
        {
            raise(counter, total);
        }
    }
}

/// Sets a counter to what is counted elsewhere.
fn raise(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Outcome, RuleHits};

    #[test]
    fn all_series_exist_at_zero_from_the_start() {
        let metrics = Metrics::default();
        let _loaded = metrics.rules.get("shop", &["user_id".to_owned()]);
        metrics.rules_loaded("abc", 1, 1_700_000_000);
        let text = metrics.encode();
        for line in [
            "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"user_id\"} 0",
            "ratelimit_service_rate_limit_over_limit{domain=\"shop\",key1=\"user_id\"} 0",
            "ratelimit_service_rate_limit_shadow_mode{domain=\"shop\",key1=\"user_id\"} 0",
            "tollgate_rule_denied_hits_total{domain=\"shop\",rule=\"user_id\"} 0",
            "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"} 0",
            "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 0",
            "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 0",
            "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"} 0",
            "ratelimit_service_config_load_success 1",
            "ratelimit_service_config_load_error 0",
            "ratelimit_service_global_shadow_mode 0",
            "tollgate_unknown_domain_total 0",
            "tollgate_unmatched_descriptors_total 0",
            "tollgate_store_errors_total{reason=\"timeout\"} 0",
            "tollgate_store_seconds_count 0",
            "tollgate_store_commands_total 0",
            "tollgate_deny_cache_hits_total 0",
            "tollgate_lease_hits_total 0",
            "tollgate_lease_refills_total 0",
            "tollgate_lease_returned_hits_total 0",
            "tollgate_rules_info{version=\"abc\"} 1",
            "tollgate_memory_evictions_total 0",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn levels_beyond_the_second_are_summed_as_in_the_reference() {
        let metrics = Metrics::default();
        let levels = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        for leaf in ["x", "y"] {
            let rule = metrics.rules.get("shop", &levels(&["ip_10.0.0.1", "b:c", leaf]));
            rule.add(RuleHits::new(2, 0, 10, 0.8, Outcome::Within, true));
        }
        let text = metrics.encode();
        let sum = "ratelimit_service_rate_limit_total_hits\
                   {domain=\"shop\",key1=\"ip_10_0_0_1\",key2=\"b_c\"} 4";
        assert!(text.contains(sum), "{text}");
        let own = "tollgate_rule_admitted_hits_total\
                   {domain=\"shop\",rule=\"ip_10.0.0.1.b:c.x\"} 2";
        assert!(text.contains(own), "{text}");
    }
}
