//! Every kind of fault with its place and wording, and what good files compile to.

mod consistency;

use super::*;

fn file(name: &str, text: &str) -> SourceFile {
    SourceFile { name: name.into(), text: text.into() }
}

fn compile_one(text: &str) -> Result<RuleSet, RulesError> {
    compile(&[file("r", text)], CompileOptions::default(), &RuleSeries::default())
}

/// `want`: `line:column: message` of each fault, without paths and help.
#[track_caller]
fn check(text: &str, want: &[&str]) {
    let got: Vec<_> = match compile_one(text) {
        Ok(_) => Vec::new(),
        Err(RulesError(faults)) => faults
            .iter()
            .map(|fault| {
                let place = fault.place.as_ref().unwrap();
                format!("{}:{}: {}", place.line, place.column, fault.message)
            })
            .collect(),
    };
    assert_eq!(got, want, "in\n{text}");
}

/// The faults of one or more rules; places count from their start.
#[track_caller]
fn check_rule(rules: &str, want: &[&str]) {
    check_below(&format!("{{domain: d, descriptors: [\n{rules}]}}"), 1, want);
}

/// The faults of one limit; places count from its start.
#[track_caller]
fn check_limit(limit: &str, want: &[&str]) {
    let text = format!("{{domain: d, descriptors: [\n{{key: k, rate_limit:\n{limit}}}]}}");
    check_below(&text, 2, want);
}

#[track_caller]
fn check_below(text: &str, lines: usize, want: &[&str]) {
    let moved = |fault: &&str| {
        let (line, rest) = fault.split_once(':').unwrap();
        format!("{}:{rest}", line.parse::<usize>().unwrap() + lines)
    };
    let want: Vec<_> = want.iter().map(moved).collect();
    check(text, &want.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn files_that_are_not_rules() {
    check("", &["1:1: the file has no `domain`"]);
    check("# only a comment\n", &["1:1: the file has no `domain`"]);
    check("---\n", &["1:1: the file has no `domain`"]);
    check(
        "- a\n",
        &["1:1: expected a map with the fields of the top of a rules file, found a list"],
    );
    check(
        "just text",
        &["1:1: expected a map with the fields of the top of a rules file, found a plain value"],
    );
    check("descriptors: []\n", &["1:1: the file has no `domain`"]);
    check("domain:\n", &["1:1: the file has no `domain`"]);
    check("domain: ''\n", &["1:9: `domain` is empty"]);
    check("domain: [a]\n", &["1:9: `domain` can not be a list"]);
    check("domain: a\n---\ndomain: b\n", &["2:1: a second document in one file"]);
    check("domain: a\n\tdescriptors: []\n", &["2:1: a tab in the indentation"]);
    check("\tdomain: a\n", &["1:1: a tab in the indentation"]);
    check("domain: a\ndomain: b\n", &["2:1: key `domain` is given twice in one map"]);
    check(
        "domain: a: b\n",
        &["1:10: not valid YAML: mapping values are not allowed in this context"],
    );
    check("[a]: b\ndomain: d\n", &["1:1: expected a field name, found a list"]);
    check("\u{feff}domain: d\n", &[]);
    check("%YAML 1.1\n---\ndomain: d\ndescriptors:\n...\n", &[]);
}

#[test]
fn unknown_keys_at_every_level() {
    check(
        "domain: d\ndescriptor: []\n",
        &["2:1: unknown key `descriptor` in the top of a rules file"],
    );
    check_rule("{key: k, vaule: v}", &["1:10: unknown key `vaule` in a descriptor"]);
    check_limit("{unlimied: true, unit: day}", &["1:2: unknown key `unlimied` in a rate limit"]);
    check_limit("{unlimied: true}", &["1:2: unknown key `unlimied` in a rate limit"]);
    check_rule("{kye: k}", &["1:2: unknown key `kye` in a descriptor"]);
    check_limit(
        "{unit: day, shadow_mode: true}",
        &["1:13: unknown key `shadow_mode` in a rate limit"],
    );
    check_limit(
        "{unit: day, replaces: [{named: x, name: y}]}",
        &["1:25: unknown key `named` in an item of `replaces`"],
    );
    check_rule("{key: k, metadata: {anything: {at: [all, 1]}}}", &[]);
}

#[test]
fn unknown_keys_come_with_advice() {
    let help = |text: &str| compile_one(text).unwrap_err().0.remove(0).help.unwrap();
    let limit = |key: &str| {
        help(&format!(
            "{{domain: d, descriptors: [{{key: k, rate_limit: {{{key}: 1, unit: day}}}}]}}"
        ))
    };
    assert_eq!(limit("unlimied"), "did you mean `unlimited`?");
    assert_eq!(limit("Requests_Per_Unit"), "did you mean `requests_per_unit`?");
    assert_eq!(limit("shadow_mode"), "`shadow_mode` belongs to a descriptor, not to a rate limit");
    assert_eq!(
        help("{domain: d, frobnicate: 1}"),
        "the top of a rules file has `domain`, `descriptors`, `charge`, `on_store_failure`, \
         `consistency`"
    );
}

#[test]
fn values_of_the_wrong_type() {
    check_rule("{key: k, shadow_mode: \"true\"}", &["1:23: `shadow_mode` can not be \"true\""]);
    check_rule("{key: k, quota_mode: 1}", &["1:22: `quota_mode` can not be `1`"]);
    check_rule("{key: k, shadow_mode: yes, quota_mode: Off}", &[]);
    check_rule("{key: [k]}", &["1:7: `key` can not be a list"]);
    check_rule("{key: k, rate_limit: day}", &["1:22: `rate_limit` can not be `day`"]);
    check_rule("{key: k, descriptors: {}}", &["1:23: `descriptors` can not be a map"]);
    check_rule("{key: k, metadata: [a]}", &["1:20: `metadata` can not be a list"]);
    check_rule("{key: k, metadata: {[a]: b}}", &["1:21: a key of `metadata` can not be a list"]);
    check_rule("a", &["1:1: expected a map with the fields of a descriptor, found a plain value"]);
    check_rule("{key: k, match: fuzzy}", &["1:17: `match` can not be `fuzzy`"]);
    for (amount, shown) in
        [("-1", "`-1`"), ("4294967296", "`4294967296`"), ("1.5", "`1.5`"), ("'7'", "\"7\"")]
    {
        let want = format!("1:32: `requests_per_unit` can not be {shown}");
        check_limit(&format!("{{unit: day, requests_per_unit: {amount}}}"), &[&want]);
    }
    check_limit(
        "{unit: day, replaces: [x]}",
        &["1:24: expected a map with the fields of an item of `replaces`, found a plain value"],
    );
    check_limit("{unit: days}", &["1:8: `unit` can not be `days`"]);
    check_limit("{unit: unknown}", &["1:8: `unit` can not be `unknown`"]);
    check_limit("{unit: MiNuTe, requests_per_unit: 4294967295}", &[]);
    check_limit("{unit: day, charge: sometimes}", &["1:21: `charge` can not be `sometimes`"]);
    check_limit("{unit: day, on_store_failure: x}", &["1:31: `on_store_failure` can not be `x`"]);
    check_limit("{unit: day, algorithm: fixed}", &["1:24: `algorithm` can not be `fixed`"]);
}

#[test]
fn values_are_their_source_text() {
    for value in ["42", "1.10", "true", "2026-12-01", "007", "0x1F", "1e3", "no"] {
        let rules =
            compile_one(&format!("{{domain: d, descriptors: [{{key: k, value: {value}}}]}}"))
                .unwrap();
        assert_eq!(rules.rules().next().unwrap().path, format!("d.k_{value}"));
    }
    for value in ["''", "null", "~", "\"\""] {
        let rules =
            compile_one(&format!("{{domain: d, descriptors: [{{key: k, value: {value}}}]}}"))
                .unwrap();
        assert_eq!(rules.rules().next().unwrap().path, "d.k");
    }
}

#[test]
fn descriptors_that_contradict_themselves() {
    check_rule("{value: v}", &["1:2: a descriptor without a `key`"]);
    check_rule("{key: ''}", &["1:7: `key` is empty"]);
    check_rule("{key: k, match: cidr}", &["1:10: `match` without a `value` to match"]);
    check_rule(
        "{key: k, value: 10.0.0.0/40, match: cidr}",
        &["1:17: `10.0.0.0/40` is not a network"],
    );
    check_rule(
        "{key: k, value: '(', match: regex}",
        &["1:17: not a regular expression: unclosed group"],
    );
    check_rule(
        "{key: 'k*', value: v, match: exact}",
        &["1:23: `match` says how to read `value`, but the key holds a `*`"],
    );
    check_rule(
        "{key: k, value: v, share_threshold: true}",
        &["1:20: `share_threshold` needs a rule that matches several values"],
    );
    check_rule("{key: k, value: v, share_threshold: false}", &[]);
    check_rule("{key: 'k*', share_threshold: true}", &[]);
    check_rule("{key: k, value: v, match: prefix, share_threshold: true}", &[]);
    check_rule(
        "{key: k, rate_limit: {unit: day}, rate_limits: [{unit: day}]}",
        &["1:35: both `rate_limit` and `rate_limits`"],
    );
    check_rule("{key: k, rate_limits: []}", &["1:10: `rate_limits` is empty"]);
    check_rule("{key: k, rate_limits: null, rate_limit: ~, descriptors: }", &[]);
}

#[test]
fn rules_that_exist_twice() {
    let twice = "a rule for the same key and value exists on this level";
    let at = |place: &str| format!("{place}: {twice}");
    check_rule("{key: k},\n{key: k}", &[&at("2:7")]);
    check_rule("{key: k, value: 7},\n{key: k, value: '7', match: exact}", &[&at("2:7")]);
    check_rule("{key: k, value: a*},\n{key: k, value: a, match: prefix}", &[&at("2:7")]);
    check_rule("{key: 'k*', value: v},\n{key: 'k*', value: v}", &[&at("2:7")]);
    check_rule(
        "{key: ip, value: 10.0.0.1, match: cidr},\n{key: ip, value: 10.0.0.1/32, match: cidr}",
        &[&at("2:7")],
    );
    check_rule("{key: p, descriptors: [\n{key: c},\n{key: c}]}", &[&at("3:7")]);
    // Each of these falls together in the reference, or differs in its kind.
    check_rule("{key: a_b}, {key: a, value: b}", &[]);
    check_rule("{key: a, value: b_c}, {key: a_b, value: c}", &[]);
    check_rule("{key: k, value: 'x*'}, {key: k, value: 'x*', match: exact}", &[]);
}

#[test]
fn limits_that_contradict_themselves() {
    check_limit("{}", &["1:1: a limit without a `unit`"]);
    check_limit("{requests_per_unit: 1}", &["1:2: a limit without a `unit`"]);
    check_limit("{unit: day, window: 1s}", &["1:13: both `window` and `unit`"]);
    check_limit("{window: 1s, unit_multiplier: 2}", &["1:14: both `window` and `unit_multiplier`"]);
    check_limit(
        "{unit: day, unit_multiplier: 0}",
        &["1:30: a `unit_multiplier` of 0 makes no window"],
    );
    check_limit(
        "{unit: year, unit_multiplier: 11}",
        &["1:31: a window of 11 years is longer than ten years"],
    );
    check_limit("{unit: year, unit_multiplier: 10}", &[]);
    check_limit("{window: 90}", &["1:10: `window: 90` has no unit"]);
    check_limit("{window: 999us}", &["1:10: `999us` is not a whole number of milliseconds"]);
    check_limit("{window: 5000d}", &["1:10: `5000d` is longer than ten years"]);
    check_limit("{unit: day, burst: 5}", &["1:20: `fixed_window` has no `burst`"]);
    check_limit(
        "{unit: day, algorithm: gcra, burst: 0}",
        &["1:37: a `burst` of 0 lets nothing pass"],
    );
    check_limit(
        "{unit: year, algorithm: token_bucket, requests_per_unit: 1, burst: 11}",
        &["1:61: the bucket takes more than ten years to refill"],
    );
    check_limit(
        "{unit: day, algorithm: sliding_window_log, requests_per_unit: 10001}",
        &["1:63: a log of 10001 hits is slow and large"],
    );
    check_limit(
        "{unit: day, algorithm: sliding_window_log, requests_per_unit: 10001, allow_large_log: on}",
        &[],
    );
    check_limit("{unit: day, allow_large_log: true}", &["1:13: `fixed_window` has no log"]);
    check_limit("{unit: hour, calendar: true}", &["1:14: unit `hour` has no calendar"]);
    check_limit(
        "{unit: day, calendar: true, unit_multiplier: 2}",
        &["1:46: a calendar window is one unit long"],
    );
    check_limit("{unit: day, calendar: true, unit_multiplier: 1}", &[]);
    check_limit(
        "{unit: day, calendar: true, algorithm: gcra}",
        &["1:13: `gcra` has no calendar windows"],
    );
    check_limit("{window: 1d, calendar: true}", &["1:14: both `window` and `calendar`"]);
    check_limit("{unit: day, timezone: UTC}", &["1:13: `timezone` without `calendar`"]);
    check_limit("{unit: day, calendar: true, timezone: Mars}", &["1:39: unknown time zone `Mars`"]);
    check_limit("{unlimited: true, unit: day}", &["1:19: `unit` has no meaning with `unlimited`"]);
    check_limit(
        "{unlimited: true, unit: dayz}",
        &["1:19: `unit` has no meaning with `unlimited`", "1:25: `unit` can not be `dayz`"],
    );
    check_limit("{unlimited: true, requests_per_unit: 5, name: x}", &[]);
    check_limit(
        "{unlimited: true, window: 1s}",
        &["1:19: `window` has no meaning with `unlimited`"],
    );
    check_limit("{unit: day, replaces: [{}]}", &["1:24: an item of `replaces` without a `name`"]);
    check_limit("{unit: day, replaces: [{name: ''}]}", &["1:31: `name` is empty"]);
    check_limit(
        "{unit: day, name: x, replaces: [{name: x}]}",
        &["1:40: `x` replaces a limit of its own rule"],
    );
    check_limit("{unit: day, name: x, replaces: [{name: y}, {name: y}]}", &[]);
    check_rule(
        "{key: k, rate_limits: [{unit: day, name: x},\n{unit: hour, name: x}]}",
        &["2:20: two limits of one rule have the name `x`"],
    );
    check_rule(
        "{key: k, rate_limits: [{unit: day}, {unlimited: true}]}",
        &["1:38: `unlimited` beside other limits of the same rule"],
    );
}

#[test]
fn anchors_and_merge_keys_are_bounded() {
    check(
        "domain: d\ndescriptors:\n- &a {key: k, rate_limit: &l {unit: day}}\n- {<<: *a, key: j}\n- {key: i, rate_limit: {<<: [*l], requests_per_unit: 2}}\n",
        &[],
    );
    check(
        "domain: d\ndescriptors: [*x]\n",
        &["2:15: not valid YAML: while parsing node, found unknown anchor"],
    );
    check("domain: d\ndescriptors: &a [*a]\n", &["2:18: an alias inside the node that it repeats"]);
    let mut bomb = "domain: d\nx0: &x0 [a, a, a, a, a, a, a, a, a, a]\n".to_owned();
    for level in 1..10 {
        let items = vec![format!("*x{}", level - 1); 10].join(", ");
        bomb += &format!("x{level}: &x{level} [{items}]\n");
    }
    check(&bomb, &["6:9: anchors and aliases repeat more than 200000 values"]);
    let deep = format!("domain: d\ndescriptors: {}", "[".repeat(100_000));
    check(&deep, &["2:269: lists and maps are nested more than 200 deep"]);
    let nested =
        (0..98).fold("[]".to_owned(), |inner, _| format!("[{{key: k, descriptors: {inner}}}]"));
    check(&format!("domain: d\ndescriptors: {nested}"), &[]);
}

#[test]
fn domains_across_files() {
    let files = [
        file("a", "{domain: d, descriptors: [{key: k, descriptors: [{key: x}]}]}"),
        file("b", "{domain: d, descriptors: [{key: j}]}"),
        file("c", "{domain: e, descriptors: [{key: k}]}"),
    ];
    let run = |files: &[SourceFile], merge_domains| {
        let options = CompileOptions { merge_domains, ..CompileOptions::default() };
        match compile(files, options, &RuleSeries::default()) {
            Ok(rules) => rules.rules().map(|rule| rule.path.clone()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(
        run(&files, false),
        "b:1:10: domain `d` is defined twice; the first is at a:1:10; join the files or turn on \
         domain merging"
    );
    assert_eq!(run(&files, true), "d.j d.k.x e.k");
    let nameless = [file("a", "descriptors: [{key: k}]"), file("b", "descriptors: [{key: k}]")];
    assert_eq!(run(&nameless, true).lines().count(), 2, "no rule of theirs is a duplicate");
    let twice = [
        files[0].clone(),
        file("b", "{domain: d, descriptors: [{key: k, descriptors: [{key: y}]}]}"),
    ];
    assert!(run(&twice, true).starts_with("b:1:33: a rule for the same key and value exists"));
}

#[test]
fn one_run_reports_every_fault_of_every_file() {
    let files = [
        file(
            "a",
            "domain: d\nunknown: 1\ndescriptors:\n- {value: v, rate_limit: {unit: x}}\n- {key: k, descriptors: [{key: l, rate_limits: [{unit: day}, {}]}]}\n",
        ),
        file("b", "domain: [\n"),
        file("c", "nothing: 1\ndomain: c"),
    ];
    let error = compile(&files, CompileOptions::default(), &RuleSeries::default()).unwrap_err();
    let places: Vec<_> = error
        .0
        .iter()
        .map(|fault| {
            let place = fault.place.as_ref().unwrap();
            format!("{}:{}:{} {}", fault.file, place.line, place.column, fault.path)
        })
        .collect();
    assert_eq!(
        places,
        [
            "a:2:1 ",
            "a:4:4 d > ?=v",
            "a:4:33 d > ?=v > rate_limit",
            "a:5:62 d > k > l > rate_limits[1]",
            "b:1:9 ",
            "c:1:1 ",
        ]
    );
}

#[test]
fn the_nearest_charge_and_failure_mode_hold() {
    let options = CompileOptions {
        on_store_failure: FailureMode::Allow,
        charge: ChargeMode::Admitted,
        merge_domains: false,
    };
    let text = r"
domain: d
charge: always
descriptors:
- { key: a, rate_limit: { unit: day } }
- key: b
  charge: auto
  on_store_failure: local
  descriptors:
  - { key: c, rate_limit: { unit: day } }
  - { key: d, charge: admitted, rate_limits: [{ unit: day, on_store_failure: deny }, { unit: hour }] }
";
    let rules = compile(&[file("r", text)], options, &RuleSeries::default()).unwrap();
    let modes: Vec<_> = rules
        .rules()
        .flat_map(|rule| &rule.limits)
        .map(|limit| (limit.charge, limit.on_store_failure))
        .collect();
    assert_eq!(
        modes,
        [
            (ChargeMode::Always, FailureMode::Allow),
            (ChargeMode::Auto, FailureMode::Local),
            (ChargeMode::Admitted, FailureMode::Deny),
            (ChargeMode::Admitted, FailureMode::Local),
        ]
    );
}

#[test]
fn windows_are_reported_in_the_largest_unit() {
    for (limit, want) in [
        ("window: 90s", (90_000_000, "90 second")),
        ("window: 2h", (7_200_000_000, "2 hour")),
        ("window: 60m", (3_600_000_000, "1 hour")),
        ("window: 14d", (1_209_600_000_000, "2 week")),
        ("window: 1500ms", (1_500_000, "")),
        ("unit: minute, unit_multiplier: 60", (3_600_000_000, "60 minute")),
    ] {
        let rules = compile_one(&format!(
            "{{domain: d, descriptors: [{{key: k, rate_limit: {{{limit}}}}}]}}"
        ))
        .unwrap();
        let rule = rules.rules().next().unwrap();
        let crate::rules::RuleWindow::Length(length) = rule.limits[0].window else {
            unreachable!()
        };
        let unit = rule.limits[0]
            .unit
            .map_or(String::new(), |unit| format!("{} {unit}", rule.limits[0].unit_multiplier));
        assert_eq!((length, unit.as_str()), want, "{limit}");
    }
}

#[test]
fn metadata_keeps_types_and_order() {
    use crate::model::MetadataValue::{Bool, List, Map, Null, Number, String as Text};
    let rules = compile_one(
        "{domain: d, descriptors: [{key: k, metadata: {z: 1.5, a: '1', n: ~, l: [true, yes, 0x10], 7: {x: -1_000}}}]}",
    )
    .unwrap();
    let metadata = rules.rules().next().unwrap().metadata.clone().unwrap();
    let named = |name: &str, value| (name.to_owned(), value);
    assert_eq!(
        metadata.0,
        [
            named("z", Number(1.5)),
            named("a", Text("1".into())),
            named("n", Null),
            named("l", List(vec![Bool(true), Text("yes".into()), Number(16.0)])),
            named("7", Map(crate::model::Metadata(vec![named("x", Number(-1000.0))]))),
        ]
    );
}

#[test]
fn shared_patterns_of_different_kinds_differ() {
    let rules = compile_one(
        "{domain: d, descriptors: [\
         {key: k, value: 'a*b', share_threshold: true, rate_limit: {unit: day}},\
         {key: k, value: 'a*b', match: prefix, share_threshold: true, rate_limit: {unit: day}},\
         {key: k, value: 'prefix:a*b', share_threshold: true, rate_limit: {unit: day}}]}",
    )
    .unwrap();
    let shared =
        |node: &Node| String::from_utf8(node.shared_pattern.clone().unwrap().into()).unwrap();
    let nodes = rules.domain("d").unwrap().nodes();
    assert_eq!(
        nodes.iter().map(shared).collect::<Vec<_>>(),
        ["a*b", "prefix:a*b", "glob:prefix:a*b"]
    );
}

#[test]
fn equal_content_has_an_equal_version() {
    let version = |text: &str| compile_one(text).unwrap().version;
    assert_eq!(version("domain: d"), version("domain: d"));
    assert_ne!(version("domain: d"), version("domain: e"));
    assert_eq!(version("domain: d").len(), 12);
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[ \\n\\t:a-f{}\\[\\],*&'\"<|>#!%?@~-]{0,60}") {
        compile_one(&text).ok();
        compile_one(&format!("domain: d\ndescriptors:\n- key: k\n  {text}\n")).ok();
    }
}
