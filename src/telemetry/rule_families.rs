//! The rules' counters as metric families, read when somebody scrapes.

use std::collections::BTreeMap;

use prometheus::proto::{Counter, LabelPair, Metric, MetricFamily, MetricType};

use super::rule_series::{RuleCount, RuleSeries, SeriesPath};

/// Statistics of the reference, by domain and the first two levels of the path.
const BY_KEYS: [(RuleCount, &str, &str); 5] = [
    (RuleCount::TotalHits, "ratelimit_service_rate_limit_total_hits", "Hits that had a limit"),
    (
        RuleCount::WithinLimit,
        "ratelimit_service_rate_limit_within_limit",
        "Hits of descriptors that were not over the limit",
    ),
    (
        RuleCount::NearLimit,
        "ratelimit_service_rate_limit_near_limit",
        "Hits above the near-limit ratio, up to the limit",
    ),
    (RuleCount::OverLimit, "ratelimit_service_rate_limit_over_limit", "Hits over the limit"),
    (
        RuleCount::ShadowMode,
        "ratelimit_service_rate_limit_shadow_mode",
        "Hits over the limit that shadow mode let pass",
    ),
];

/// Our own, by domain and the whole path.
const BY_RULE: [(RuleCount, &str, &str); 2] = [
    (
        RuleCount::Admitted,
        "tollgate_rule_admitted_hits_total",
        "Hits of calls that were admitted whole",
    ),
    (
        RuleCount::Denied,
        "tollgate_rule_denied_hits_total",
        "Hits of calls that this or another limit denied",
    ),
];

pub(super) fn rule_families(series: &RuleSeries) -> Vec<MetricFamily> {
    let mut by_keys: [BTreeMap<Vec<(&str, String)>, u64>; BY_KEYS.len()] = Default::default();
    let mut by_rule: [BTreeMap<Vec<(&str, String)>, u64>; BY_RULE.len()] = Default::default();
    series.for_each(|path, metrics| {
        for (sums, (count, ..)) in by_keys.iter_mut().zip(BY_KEYS) {
            *sums.entry(keys(path)).or_default() += metrics.get(count);
        }
        for (sums, (count, ..)) in by_rule.iter_mut().zip(BY_RULE) {
            *sums.entry(rule(path)).or_default() += metrics.get(count);
        }
    });
    let by_keys = BY_KEYS.iter().zip(by_keys);
    let by_rule = BY_RULE.iter().zip(by_rule);
    by_keys.chain(by_rule).map(|((_, name, help), sums)| family(name, help, sums)).collect()
}

fn keys((domain, levels): &SeriesPath) -> Vec<(&'static str, String)> {
    let levels = ["key1", "key2"].into_iter().zip(levels);
    let labels = levels.map(|(name, level)| (name, sanitize(level)));
    std::iter::once(("domain", domain.clone())).chain(labels).collect()
}

fn rule((domain, levels): &SeriesPath) -> Vec<(&'static str, String)> {
    vec![("domain", domain.clone()), ("rule", levels.join("."))]
}

/// Writes `_` for `:` and `|` and for the dots of IPv4 addresses, as the reference does.
fn sanitize(level: &str) -> String {
    let mut out = level.replace([':', '|'], "_");
    let bytes = level.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let end = ipv4_end(bytes, start);
        if end > start {
            out.replace_range(start..end, &level[start..end].replace('.', "_"));
            start = end;
        } else {
            start += 1;
        }
    }
    out
}

/// End of the four dotted numbers of at most three digits at `start`, or `start`.
fn ipv4_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    for part in 0..4 {
        if part > 0 {
            if bytes.get(at) != Some(&b'.') {
                return start;
            }
            at += 1;
        }
        let digits = bytes[at..].iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return start;
        }
        at += digits;
    }
    at
}

fn family(name: &str, help: &str, sums: BTreeMap<Vec<(&str, String)>, u64>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(MetricType::COUNTER);
    family.set_metric(sums.into_iter().map(|(labels, sum)| metric(labels, sum)).collect());
    family
}

fn metric(labels: Vec<(&str, String)>, sum: u64) -> Metric {
    let pairs = labels.into_iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value);
        pair
    });
    let mut metric = Metric::from_label(pairs.collect());
    let mut counter = Counter::default();
    #[expect(clippy::cast_precision_loss, reason = "Prometheus counts in doubles")]
    counter.set_value(sum as f64);
    metric.set_counter(counter);
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sanitized_as_in_the_reference() {
        for (level, want) in [
            ("remote_address_10.0.0.1", "remote_address_10_0_0_1"),
            ("path_/v1.2/x|y:z", "path_/v1.2/x_y_z"),
            ("net_10.0.0.0/8", "net_10_0_0_0/8"),
            ("version_1.2.3", "version_1.2.3"),
            ("é_1.2.3.4", "é_1_2_3_4"),
        ] {
            assert_eq!(sanitize(level), want);
        }
    }
}
