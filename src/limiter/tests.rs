//! Calls through the limiter on an embedded store, at times that the tests choose.

mod answers;

use std::future::Future;
use std::pin::pin;
use std::task::{self, Poll, Waker};

use smallvec::smallvec;

use super::*;
use crate::model::{
    ChargeMode, Code, Descriptor, DescriptorStatus, Entry, FailureMode, LimitOverride, Metadata,
    MetadataValue, Timestamp, Unit,
};
use crate::rules::{CompileOptions, SourceFile, compile};
use crate::settings::{HeaderNames, MemorySettings};
use crate::store::memory::MemoryStore;
use crate::telemetry::RuleCount;

const RULES: &str = "
domain: shop
descriptors:
  - key: narrow
    rate_limit: { requests_per_unit: 1, unit: hour, name: narrow }
  - key: wide
    rate_limit: { requests_per_unit: 10, unit: hour }
  - key: soft
    shadow_mode: true
    rate_limit: { requests_per_unit: 1, unit: hour }
  - key: pool
    quota_mode: true
    rate_limit: { requests_per_unit: 1, unit: hour }
  - key: pool
    value: big
    quota_mode: true
    rate_limit: { requests_per_unit: 2, unit: hour }
  - key: free
    rate_limit: { unlimited: true }
  - key: vip
    rate_limit: { requests_per_unit: 3, unit: hour, replaces: [{ name: narrow }] }
  - key: several
    metadata: { tier: gold }
    rate_limits:
      - { name: burst, requests_per_unit: 2, unit: second, algorithm: token_bucket, burst: 4 }
      - { name: daily, requests_per_unit: 5, unit: day }
  - key: file
    value: doc-*
    share_threshold: true
    rate_limit: { requests_per_unit: 2, unit: hour }
  - key: late
    rate_limit: { requests_per_unit: 10, unit: hour }
";

struct Rig {
    limiter: Limiter,
    metrics: Arc<Metrics>,
    clock: Clock,
}

fn rig_with(change: impl FnOnce(&mut ModeSettings, &mut ResponseSettings)) -> Rig {
    rig_of(RULES, change)
}

fn rig_of(rules: &str, change: impl FnOnce(&mut ModeSettings, &mut ResponseSettings)) -> Rig {
    let mut mode = ModeSettings {
        shadow: false,
        quota: false,
        charge: ChargeMode::Auto,
        on_store_failure: FailureMode::Error,
        near_limit_ratio: 0.8,
    };
    let mut response = ResponseSettings { headers: None, dynamic_metadata: false };
    change(&mut mode, &mut response);
    let clock = Clock::manual(Timestamp::from_secs(1_000_000 * 3_600));
    let metrics = Arc::new(Metrics::default());
    let file = SourceFile { name: "rules.yaml".to_owned(), text: rules.to_owned() };
    let rules = Arc::new(RulesHandle::default());
    rules.replace(compile(&[file], CompileOptions::default(), &metrics.rules).unwrap());
    let memory = MemorySettings { max_keys: 1_000, max_bytes: 1 << 20 };
    let store = StoreStack::Memory(Arc::new(MemoryStore::new(&memory, clock.clone())));
    let (keys, shared_clock) = (KeyCodec::default(), clock.clone());
    let context = Context::new(rules, keys, mode, &response, Arc::clone(&metrics), shared_clock);
    let limiter = Limiter::new(Arc::new(context), store);
    Rig { limiter, metrics, clock }
}

fn rig() -> Rig {
    rig_with(|_, _| {})
}

/// The embedded store answers at once.
fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut task::Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the embedded store made a call wait"),
    }
}

impl Rig {
    fn ask(&self, request: &Request<'_>) -> Decision {
        now_or_never(self.limiter.should_rate_limit(request)).unwrap()
    }

    /// One descriptor per entry, one hit.
    fn hit(&self, entries: &[(&'static str, &'static str)]) -> Decision {
        self.ask(&request(entries.iter().map(|&(key, value)| descriptor(key, value)), 0))
    }

    fn count(&self, level: &str, count: RuleCount) -> u64 {
        let mut sum = 0;
        self.metrics.rules.for_each(|(_, levels), metrics| {
            if levels == &[level] {
                sum += metrics.get(count);
            }
        });
        sum
    }
}

fn descriptor(key: &'static str, value: &'static str) -> Descriptor<'static> {
    let entry = Entry { key: key.as_bytes(), value: value.as_bytes() };
    Descriptor { entries: smallvec![entry], ..Descriptor::default() }
}

fn request<'a>(descriptors: impl Iterator<Item = Descriptor<'a>>, hits_addend: u32) -> Request<'a> {
    Request { domain: "shop", descriptors: descriptors.collect(), hits_addend }
}

fn with_hits(key: &'static str, hits: u64) -> Descriptor<'static> {
    Descriptor { hits_addend: Some(hits), ..descriptor(key, "x") }
}

/// Overall code, and code and remaining of each status.
#[track_caller]
fn check(decision: &Decision, overall: Code, statuses: &[(Code, u32)]) {
    let got: Vec<_> =
        decision.statuses.iter().map(|status| (status.code, status.limit_remaining)).collect();
    assert_eq!((decision.overall_code, got.as_slice()), (overall, statuses));
}

use Code::{Ok as OK, OverLimit as OVER};

#[test]
fn a_denied_call_charges_nothing() {
    let rig = rig();
    check(&rig.hit(&[("wide", "a"), ("narrow", "a")]), OK, &[(OK, 9), (OK, 0)]);
    check(&rig.hit(&[("wide", "a"), ("narrow", "a")]), OVER, &[(OK, 8), (OVER, 0)]);
    check(&rig.hit(&[("wide", "a")]), OK, &[(OK, 8)]);
    assert_eq!(rig.count("wide", RuleCount::Admitted), 2);
    assert_eq!(rig.count("wide", RuleCount::Denied), 1);
    assert_eq!(rig.count("narrow", RuleCount::OverLimit), 1);
}

#[test]
fn a_shadow_rule_counts_and_never_refuses() {
    let rig = rig();
    check(&rig.hit(&[("soft", "a")]), OK, &[(OK, 0)]);
    check(&rig.hit(&[("soft", "a")]), OK, &[(OK, 0)]);
    assert_eq!(rig.count("soft", RuleCount::ShadowMode), 1);
    let both = rig.hit(&[("soft", "a"), ("narrow", "b")]);
    check(&both, OK, &[(OK, 0), (OK, 0)]);
}

#[test]
fn quotas_refuse_only_when_all_are_used_up() {
    let rig = rig();
    let pools = [("pool", "one"), ("pool", "big")];
    check(&rig.hit(&pools), OK, &[(OK, 0), (OK, 1)]);
    check(&rig.hit(&pools), OK, &[(OVER, 0), (OK, 0)]);
    check(&rig.hit(&pools), OVER, &[(OVER, 0), (OVER, 0)]);
    check(&rig.hit(&[("pool", "one")]), OVER, &[(OVER, 0)]);
}

#[test]
fn in_global_quota_mode_what_has_no_limit_is_a_quota_that_is_left() {
    let rig = rig_with(|mode, _| mode.quota = true);
    rig.hit(&[("narrow", "a")]);
    check(&rig.hit(&[("narrow", "a")]), OVER, &[(OVER, 0)]);
    check(&rig.hit(&[("narrow", "a"), ("nothing", "a")]), OK, &[(OVER, 0), (OK, 0)]);
    check(&rig.hit(&[("narrow", "a"), ("free", "a")]), OVER, &[(OVER, 0), (OK, u32::MAX)]);
}

#[test]
fn global_shadow_mode_admits_and_tells_the_truth_in_statuses() {
    let rig = rig_with(|mode, _| mode.shadow = true);
    rig.hit(&[("narrow", "a")]);
    check(&rig.hit(&[("narrow", "a")]), OK, &[(OVER, 0)]);
    assert!(rig.metrics.encode().contains("ratelimit_service_global_shadow_mode 1\n"));
}

#[test]
fn a_replaced_limit_is_neither_charged_nor_shown() {
    let rig = rig();
    let both = rig.hit(&[("narrow", "a"), ("vip", "a")]);
    check(&both, OK, &[(OK, 0), (OK, 2)]);
    assert_eq!(both.statuses[0], DescriptorStatus::default());
    check(&rig.hit(&[("narrow", "a")]), OK, &[(OK, 0)]);
}

#[test]
fn of_several_limits_the_one_that_refuses_is_shown_else_the_tightest() {
    let rig = rig();
    let name = |decision: &Decision| {
        decision.statuses[0].current_limit.as_ref().unwrap().name.as_deref().unwrap().to_owned()
    };
    // 3 of 4 tokens against 4 of 5 of the day; never above what the limit says.
    let first = rig.hit(&[("several", "a")]);
    check(&first, OK, &[(OK, 2)]);
    assert_eq!(name(&first), "burst");
    for _ in 0..3 {
        rig.hit(&[("several", "a")]);
    }
    let refused = rig.hit(&[("several", "a")]);
    check(&refused, OVER, &[(OVER, 0)]);
    assert_eq!(name(&refused), "burst");
    assert_eq!(refused.statuses[0].retry_after, Some(500_000));
    assert_eq!(refused.statuses[0].duration_until_reset, Some(1_000_000), "whole seconds");
    rig.clock.set(rig.clock.now().plus_micros(10_000_000));
    assert_eq!(name(&rig.hit(&[("several", "a")])), "daily");
    let refused = rig.hit(&[("several", "a")]);
    assert_eq!((name(&refused).as_str(), refused.overall_code), ("daily", OVER));
}

#[test]
fn a_shared_pattern_has_one_counter() {
    let rig = rig();
    check(&rig.hit(&[("file", "doc-a")]), OK, &[(OK, 1)]);
    check(&rig.hit(&[("file", "doc-b")]), OK, &[(OK, 0)]);
    check(&rig.hit(&[("file", "doc-c")]), OVER, &[(OVER, 0)]);
}

#[test]
fn late_reports_are_charged_though_refused() {
    let rig = rig();
    let ask = |hits| rig.ask(&request([with_hits("late", hits)].into_iter(), 0));
    check(&ask(0), OK, &[(OK, 10)]);
    check(&ask(14), OVER, &[(OVER, 0)]);
    check(&ask(0), OVER, &[(OVER, 0)]);
    let refund = Descriptor { is_negative_hits: true, ..with_hits("late", 6) };
    check(&rig.ask(&request([refund].into_iter(), 0)), OK, &[(OK, 2)]);
}

#[test]
fn an_override_shares_the_fixed_window_of_its_length() {
    let rig = rig();
    let over = |requests_per_unit| Descriptor {
        limit: Some(LimitOverride { requests_per_unit, unit: Unit::Hour, unit_multiplier: 1 }),
        ..descriptor("narrow", "a")
    };
    check(&rig.ask(&request([over(3)].into_iter(), 0)), OK, &[(OK, 2)]);
    check(&rig.hit(&[("narrow", "a")]), OVER, &[(OVER, 0)]);
    check(&rig.ask(&request([over(0)].into_iter(), 0)), OVER, &[(OVER, 0)]);
    check(&rig.ask(&request([over(3)].into_iter(), 2)), OK, &[(OK, 0)]);
}

#[test]
fn headers_follow_the_last_refused_else_the_tightest_descriptor() {
    let names = HeaderNames { limit: "L".into(), remaining: "M".into(), reset: "S".into() };
    let rig = rig_with(|_, response| response.headers = Some(names));
    let values = |decision: &Decision| -> Vec<String> {
        decision
            .response_headers
            .iter()
            .map(|header| format!("{}={}", header.name, header.value))
            .collect()
    };
    assert_eq!(values(&rig.hit(&[("free", "a"), ("nothing", "a")])), [""; 0]);
    let tightest = rig.hit(&[("wide", "a"), ("vip", "a")]);
    assert_eq!(values(&tightest), ["L=3", "M=2", "S=3600"]);
    rig.hit(&[("narrow", "a")]);
    let refused = rig.hit(&[("narrow", "a"), ("wide", "a")]);
    assert_eq!(values(&refused), ["L=1", "M=0", "S=3600"]);
}

#[test]
fn metadata_names_rules_and_merges_theirs() {
    let rig = rig_with(|_, response| response.dynamic_metadata = true);
    let decision = rig.hit(&[("several", "a"), ("soft", "a")]);
    let Metadata(fields) = decision.dynamic_metadata.unwrap();
    let get = |name: &str| &fields.iter().find(|(own, _)| own == name).unwrap().1;
    assert_eq!(get("domain"), &MetadataValue::String("shop".into()));
    let tier = ("tier".to_owned(), MetadataValue::String("gold".into()));
    assert_eq!(get("metadata"), &MetadataValue::Map(Metadata(vec![tier])));
    let MetadataValue::List(descriptors) = get("descriptors") else { panic!("no list") };
    let MetadataValue::Map(Metadata(first)) = &descriptors[0] else { panic!("no map") };
    assert_eq!(first[1], ("rule".to_owned(), MetadataValue::String("shop.several".into())));
}

#[test]
fn without_rules_there_is_no_decision_and_unknown_domains_pass() {
    let rig = rig();
    let unknown = Request { domain: "nowhere", ..request([with_hits("late", 1)].into_iter(), 0) };
    check(&rig.ask(&unknown), OK, &[(OK, 0)]);
    assert!(rig.metrics.encode().contains("tollgate_unknown_domain_total 1\n"));
}
