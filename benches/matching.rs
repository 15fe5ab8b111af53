//! What it costs to find a rule, to place a calendar window, and to load many rules.

use divan::{Bencher, black_box};
use tollgate::key::{KeyCodec, KeyEntry};
use tollgate::model::{Entry, Timestamp};
use tollgate::rules::{CompileOptions, RuleSet, SourceFile, compile};
use tollgate::telemetry::RuleSeries;

fn main() {
    divan::main();
}

const SIZES: [usize; 2] = [10, 50_000];

/// Rules for single entries, and one for a descriptor of four; about 400 bytes each.
fn text(rules: usize) -> String {
    let mut out = "domain: shop\ndescriptors:\n".to_owned();
    for index in 0..rules {
        out += &format!(
            "  - key: customer\n    value: \"customer-{index:08}\"\n    # {}\n    rate_limit:\n      \
             unit: minute\n      requests_per_unit: {index}\n      name: limit-{index}\n    \
             metadata:\n      owner: team-{}\n      description: {}\n",
            "-".repeat(60),
            index % 10,
            "what this rule is for and who asked for it ".repeat(3),
        );
    }
    out += "  - key: region
    descriptors:
      - key: tenant
        value: t*
        descriptors:
          - key: path
            descriptors:
              - { key: user, rate_limit: { unit: minute, requests_per_unit: 5 } }
";
    out
}

fn rules(count: usize) -> RuleSet {
    let file = SourceFile { name: "bench".into(), text: text(count) };
    match compile(&[file], CompileOptions::default(), &RuleSeries::default()) {
        Ok(rules) => rules,
        Err(error) => panic!("{error}"),
    }
}

fn entries() -> [Entry<'static>; 4] {
    [
        Entry { key: b"region", value: b"eu-west-1" },
        Entry { key: b"tenant", value: b"t-4711" },
        Entry { key: b"path", value: b"/api/v2/orders" },
        Entry { key: b"user", value: b"8f14e45f-ceea-467f-9575-6c1b1f0e3a2d" },
    ]
}

#[divan::bench(args = SIZES)]
fn find(bencher: Bencher<'_, '_>, count: usize) {
    let (rules, entries) = (rules(count), entries());
    bencher.bench_local(|| {
        let domain = rules.domain(black_box("shop"));
        domain.and_then(|domain| domain.find(black_box(&entries))).map(|found| found.nodes.len())
    });
}

#[divan::bench(args = SIZES)]
fn find_exact(bencher: Bencher<'_, '_>, count: usize) {
    let rules = rules(count);
    let entries = [Entry { key: b"customer", value: b"customer-00000007" }];
    bencher.bench_local(|| {
        let domain = rules.domain(black_box("shop"));
        domain.and_then(|domain| domain.find(black_box(&entries))).map(|found| found.nodes.len())
    });
}

#[divan::bench(args = SIZES)]
fn find_and_write_key(bencher: Bencher<'_, '_>, count: usize) {
    let (rules, entries, codec) = (rules(count), entries(), KeyCodec::default());
    bencher.bench_local(|| {
        let found = rules.domain(black_box("shop"))?.find(black_box(&entries))?;
        let fields =
            found.nodes.iter().zip(&entries).map(|(node, entry)| match &node.shared_pattern {
                Some(pattern) => KeyEntry::Shared { key: entry.key, pattern },
                None => KeyEntry::Value(*entry),
            });
        Some(codec.encode(&found.rule.limits[0].key_head, "shop", fields))
    });
}

#[divan::bench]
fn calendar_window(bencher: Bencher<'_, '_>) {
    let text = "{domain: d, descriptors: [{key: k, rate_limit: {unit: month, calendar: true, \
                timezone: Europe/Paris}}]}";
    let file = SourceFile { name: "bench".into(), text: text.into() };
    let rules = match compile(&[file], CompileOptions::default(), &RuleSeries::default()) {
        Ok(rules) => rules,
        Err(error) => panic!("{error}"),
    };
    let limits: Vec<_> = rules.rules().flat_map(|rule| &rule.limits).collect();
    bencher.bench_local(|| limits[0].at(|| black_box(Timestamp::from_secs(1_800_000_000))));
}

#[divan::bench(args = SIZES, sample_count = 5)]
fn load(bencher: Bencher<'_, '_>, count: usize) {
    let file = SourceFile { name: "bench".into(), text: text(count) };
    bencher.bench_local(|| {
        let rules =
            compile(std::slice::from_ref(&file), CompileOptions::default(), &RuleSeries::default());
        rules.map(|rules| rules.rules().len()).ok()
    });
}
