//! Which rule a descriptor finds, against tables and against trying every rule.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::key::KeyCodec;
use crate::rules::{CompileOptions, SourceFile, compile, explain};
use crate::telemetry::RuleSeries;

fn set(text: &str) -> RuleSet {
    let file = SourceFile { name: "rules.yaml".into(), text: text.into() };
    compile(&[file], CompileOptions::default(), &RuleSeries::default()).unwrap()
}

/// `k=v,k2=v2`
fn entries(text: &str) -> Vec<Entry<'_>> {
    text.split(',')
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap();
            Entry { key: key.as_bytes(), value: value.as_bytes() }
        })
        .collect()
}

const SHOP: &str = r#"
domain: shop
descriptors:
  - { key: tenant, rate_limit: { requests_per_unit: 3, unit: hour } }
  - { key: tenant, value: vip, rate_limit: { requests_per_unit: 100, unit: hour, name: viprule } }
  - { key: tenant, value: free }
  - { key: w, value: img/*, share_threshold: true, rate_limit: { requests_per_unit: 2, unit: hour } }
  - { key: w, value: "*", rate_limit: { requests_per_unit: 7, unit: hour } }
  - { key: w, rate_limit: { requests_per_unit: 9, unit: hour } }
  - { key: par, descriptors: [ { key: chi, rate_limit: { requests_per_unit: 4, unit: hour } } ] }
  - { key: par, value: x, rate_limit: { requests_per_unit: 8, unit: hour } }
  - { key: a_b, rate_limit: { requests_per_unit: 6, unit: hour } }
  - { key: a, value: b, rate_limit: { requests_per_unit: 5, unit: hour } }
  - { key: k, value: "*", rate_limit: { requests_per_unit: 1, unit: hour } }
  - { key: k, value: aa*, rate_limit: { requests_per_unit: 2, unit: hour } }
  - { key: "x*", rate_limit: { requests_per_unit: 11, unit: hour } }
  - { key: xa, value: "1*", rate_limit: { requests_per_unit: 12, unit: hour } }
  - { key: xa, rate_limit: { requests_per_unit: 13, unit: hour } }
"#;

#[test]
fn descriptors_find_their_rule() {
    let rules = set(SHOP);
    let shop = rules.domain("shop").unwrap();
    for (descriptor, want) in [
        ("tenant=t1", Some("shop.tenant")),
        ("tenant=vip", Some("shop.tenant_vip")),
        ("tenant=free", Some("shop.tenant_free")),
        ("tenant=", Some("shop.tenant")),
        ("w=img/1", Some("shop.w_img/*")),
        ("w=img/*", Some("shop.w_img/*")),
        ("w=other", Some("shop.w_*")),
        ("w=", Some("shop.w_*")),
        ("k=aab", Some("shop.k_aa*")),
        ("k=ab", Some("shop.k_*")),
        ("par=y,chi=1", Some("shop.par.chi")),
        ("par=x,chi=1", None),
        ("par=y", None),
        ("tenant=x,extra=1", None),
        ("extra=1,tenant=x", None),
        // Key and value are never joined: in the reference these two fall together.
        ("a_b=z", Some("shop.a_b")),
        ("a=b", Some("shop.a_b")),
        ("tenant_vip=zzz", None),
        // A star in the key spans key and value, after the patterns of the key itself.
        ("xray=v", Some("shop.x*")),
        ("xa=12", Some("shop.xa_1*")),
        ("xa=2", Some("shop.x*")),
        ("unknown=1", None),
    ] {
        let found = shop.find(&entries(descriptor)).map(|found| found.rule.path.as_str());
        assert_eq!(found, want, "{descriptor}");
    }
    assert!(shop.find(&[]).is_none());
    assert!(rules.domain("Shop").is_none());
    let amount = |descriptor| shop.find(&entries(descriptor)).unwrap().rule.limits[0].amount;
    assert_eq!((amount("a_b=z"), amount("a=b")), (6, 5));
    let free = shop.find(&entries("tenant=free")).unwrap();
    assert!(free.rule.limits.is_empty() && !free.rule.unlimited);
}

#[test]
fn values_need_not_be_utf8() {
    let rules = set(SHOP);
    let shop = rules.domain("shop").unwrap();
    let find = |value| shop.find(&[Entry { key: b"w", value }]).unwrap().rule.path.as_str();
    assert_eq!(find(b"img/\xff"), "shop.w_img/*");
    assert_eq!(find(b"\xff"), "shop.w_*");
}

#[test]
fn the_most_specific_pattern_wins() {
    let rules = set(r#"
domain: d
descriptors:
  - { key: ip, value: 10.0.0.0/8, match: cidr }
  - { key: ip, value: 10.1.0.0/16, match: cidr }
  - { key: ip, value: "10.1.2.*" }
  - { key: ip, value: "2001:db8::/32", match: cidr }
  - { key: p, value: /a/* }
  - { key: p, value: /a/b/*/c }
  - { key: p, value: /a/b/, match: prefix }
  - { key: p, value: "/a/.+/long", match: regex }
  - { key: p, value: "/a/b/x.*", match: regex }
  - { key: p, value: "/a/b/y*z" }
  - { key: p, value: "/a/b/*yz" }
"#);
    let domain = rules.domain("d").unwrap();
    for (descriptor, want) in [
        ("ip=10.9.9.9", "10.0.0.0/8"),
        ("ip=10.1.2.3", "10.1.0.0/16"),
        ("ip=10.1.2.x", "10.1.2.*"),
        ("ip=2001:db8::7", "2001:db8::/32"),
        ("p=/a/q", "/a/*"),
        ("p=/a/b/q", "/a/b/"),
        ("p=/a/b/q/c", "/a/b/*/c"),
        ("p=/a/q/long", "/a/.+/long"),
        ("p=/a/b/x1", "/a/b/x.*"),
        ("p=/a/b/yyz", "/a/b/y*z"),
    ] {
        let found = domain.find(&entries(descriptor)).unwrap();
        let key = descriptor.split('=').next().unwrap();
        assert_eq!(found.rule.path, format!("d.{key}_{want}"), "{descriptor}");
    }
}

#[test]
fn metric_series_follow_the_flags() {
    let series = RuleSeries::default();
    let text = r#"
domain: dom
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value_to_metric: true
        descriptors:
          - { key: user, rate_limit: { requests_per_unit: 60, unit: minute } }
          - { key: agent, detailed_metric: true, rate_limit: { requests_per_unit: 6, unit: minute } }
  - { key: p, value: /a/*, rate_limit: { unit: day } }
  - { key: p, value: /b/*, value_to_metric: true, rate_limit: { unit: day } }
  - { key: p, value: /c/*, value_to_metric: true, share_threshold: true, rate_limit: { unit: day } }
  - { key: p, value: /d/*, detailed_metric: true, rate_limit: { unit: day } }
  - { key: p, value: e, detailed_metric: true, rate_limit: { unit: day } }
  - { key: q, rate_limit: { unit: day } }
"#;
    let file = SourceFile { name: "r".into(), text: text.into() };
    let rules = compile(&[file], CompileOptions::default(), &series).unwrap();
    let domain = rules.domain("dom").unwrap();
    for (descriptor, levels, is_static) in [
        ("route=draw,method=GET,user=7", "route_draw.method_GET.user", false),
        ("route=draw,method=,user=7", "route_draw.method.user", false),
        ("route=draw,method=GET,agent=7", "route_draw.method_GET.agent_7", false),
        ("p=/a/1", "p_/a/*", true),
        ("p=/b/1", "p_/b/1", false),
        ("p=/c/1", "p_/c/*", true),
        ("p=/d/1", "p_/d/1", false),
        ("p=e", "p_e", true),
        ("q=1", "q", true),
    ] {
        let entries = entries(descriptor);
        let found = domain.find(&entries).unwrap();
        assert_eq!(found.metric_levels(&entries).join("."), levels, "{descriptor}");
        assert_eq!(found.rule.metrics.is_some(), is_static, "{descriptor}");
        if let Some(metrics) = &found.rule.metrics {
            let levels: Vec<_> = levels.split('.').map(str::to_owned).collect();
            assert!(Arc::ptr_eq(metrics, &series.get("dom", &levels)), "{descriptor}");
        }
    }
}

#[test]
fn the_dump_is_sorted_and_has_a_line_per_limit() {
    let rules = set(r#"
domain: d
descriptors:
  - { key: z, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 12 } }
  - { key: a, quota_mode: true, rate_limits: [
        { unit: second, requests_per_unit: 1, algorithm: gcra, burst: 5, name: x },
        { window: 1500ms, requests_per_unit: 2, unit_multiplier: null },
        { window: 2h, requests_per_unit: 3 },
        { unit: week, calendar: yes, requests_per_unit: 4 } ] }
  - { key: u, rate_limit: { unlimited: true } }
  - { key: none }
"#);
    assert_eq!(
        rules.dump(),
        "d.a: unit=SECOND requests_per_unit=1, shadow_mode: false, quota_mode: true, \
         algorithm: gcra, burst: 5, name: x\n\
         d.a: unit=UNKNOWN requests_per_unit=2, shadow_mode: false, quota_mode: true, \
         window: 1500ms\n\
         d.a: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: true, \
         unit_multiplier: 2\n\
         d.a: unit=WEEK requests_per_unit=4, shadow_mode: false, quota_mode: true, \
         calendar: week@UTC\n\
         d.u: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n\
         d.z: unit=DAY requests_per_unit=12, shadow_mode: true, quota_mode: false\n"
    );
}

/// Rules over few letters, so that they overlap.
fn rule() -> impl Strategy<Value = (String, String, &'static str)> {
    let key = proptest::sample::select(vec!["a", "b", "a*", "*"]).prop_map(str::to_owned);
    let mode = proptest::sample::select(vec!["", "exact", "prefix", "glob", "regex", "cidr"]);
    (key, mode).prop_flat_map(|(key, mode)| {
        let value = match mode {
            "cidr" => "(1\\.0\\.0\\.[01]|1\\.0\\.0\\.0/(24|31)|::/[01]|0\\.0\\.0\\.0/0)",
            "regex" => "[ab1.]{0,2}(\\.\\*)?[ab]?",
            _ => "[ab1.*]{0,4}",
        };
        let mode = if key.contains('*') { "" } else { mode };
        (Just(key), value, Just(mode))
    })
}

fn yaml(rules: &[(String, String, &str)], children: &str) -> String {
    let mut seen = BTreeSet::new();
    let mut out = String::new();
    for (key, value, mode) in rules {
        let pattern = match (key.contains('*'), value.as_str()) {
            (true, _) => Pattern::Any,
            (false, "") => Pattern::Any,
            (false, value) => {
                Pattern::try_new(value, super::super::pattern::MatchMode::from_name(mode)).unwrap()
            }
        };
        let joined = format!("{key}_{value}").replace("**", "*").replace("**", "*");
        let identity = match key.contains('*') {
            true => (joined.clone(), "joined", Vec::new()),
            false => {
                let (kind, identity) = pattern.identity();
                (key.clone(), kind, identity)
            }
        };
        if (key.contains('*') && value.is_empty()) || !seen.insert(identity) {
            continue;
        }
        let mode = match (*mode, value.as_str()) {
            ("", _) | (_, "") => String::new(),
            (mode, _) => format!(", match: {mode}"),
        };
        out += &format!("{{key: '{key}', value: '{value}'{mode}{children}}}, ");
    }
    out
}

proptest! {
    /// `explain` tries the rules of a level one by one; the index must agree with it.
    #[test]
    fn the_index_finds_what_trying_all_rules_finds(
        outer in proptest::collection::vec(rule(), 0..12),
        inner in proptest::collection::vec(rule(), 0..6),
        asked in proptest::collection::vec(("[ab]{1,2}", "([ab1.]{0,4}|1\\.0\\.0\\.[0-2]|::1)"), 1..3),
    ) {
        let inner = yaml(&inner, "");
        let children = format!(", rate_limit: {{unit: day}}, descriptors: [{inner}]");
        let rules = set(&format!("domain: d\ndescriptors: [{}]", yaml(&outer, &children)));
        let entries: Vec<_> = asked
            .iter()
            .map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() })
            .collect();
        let explanation = explain(&rules, "d", &entries, &KeyCodec::default());
        let found = rules.domain("d").unwrap().find(&entries);
        let tried: Vec<_> = explanation
            .levels
            .iter()
            .flat_map(|level| level.tried.iter().filter(|tried| tried.matched))
            .map(|tried| tried.rule.clone())
            .collect();
        match found {
            Some(found) => {
                let nodes: Vec<_> = found.nodes.iter().map(|node| node.composite().to_owned()).collect();
                prop_assert_eq!(nodes, tried);
            }
            None => prop_assert!(tried.len() < entries.len(), "{}", explanation),
        }
    }
}
