//! House rules that no lint knows, read off the source text.
//!
//! The scanner is a line reader, not a parser: it looks at code up to a file's own tests, without
//! comments. That is enough as long as `cargo fmt` lays the code out.

#![allow(clippy::unwrap_used, reason = "a checkout without its files is no case to handle")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What code of a module may name after `crate::`, besides itself. `*` is everything.
const MAY_USE: [(&str, &str); 15] = [
    ("model", ""),
    ("proto", ""),
    ("clock", "model"),
    ("algorithm", "model"),
    ("key", "model"),
    ("settings", "model"),
    ("telemetry", "model settings"),
    ("rules", "model settings telemetry key"),
    ("store", "model clock algorithm settings telemetry"),
    ("limiter", "model clock key rules store settings telemetry"),
    ("api", "model proto limiter telemetry clock settings"),
    ("server", "model proto clock algorithm key settings telemetry rules store limiter api"),
    ("cli", "*"),
    ("lib", "*"),
    ("main", "*"),
];

const MOST_LINES: usize = 500;
const CLOCK: &str = "src/clock.rs";
/// `hit` is a client: it reads codes and makes none.
const STATUS: [&str; 3] = ["src/api/status.rs", "src/cli/hit.rs", "src/cli/bench/calls.rs"];
const METRICS: [&str; 2] = ["src/telemetry/metrics.rs", "src/telemetry/rule_families.rs"];
const METRICS_PAGE: &str = "docs/metrics.md";
const METRIC_PREFIXES: [&str; 2] = ["tollgate_", "ratelimit_service_"];

struct Source {
    /// From the root of the project, such as `src/key.rs`.
    name: String,
    text: String,
}

impl Source {
    fn is_of(&self, files: &[&str]) -> bool {
        files.contains(&self.name.as_str())
    }

    /// Whether it is compiled for tests or benches alone.
    fn is_for_tests(&self) -> bool {
        !self.name.starts_with("src/")
            || self.name.ends_with("/tests.rs")
            || self.name.ends_with("/golden.rs")
    }

    /// The module below the crate's root that it belongs to.
    fn module(&self) -> Option<&str> {
        self.name.strip_prefix("src/")?.split(['/', '.']).next()
    }

    /// Code up to the file's own tests, without comments; numbers start at 1.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests = self.text.find("\n#[cfg(test)]\nmod tests").unwrap_or(self.text.len());
        let end = if self.is_for_tests() { 0 } else { tests };
        let lines = self.text[..end].lines();
        let lines = lines.enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        lines.map(|(index, line)| (index + 1, line.split(" // ").next().unwrap_or(line)))
    }

    /// The code as one text, for what spans lines.
    fn code_text(&self) -> String {
        self.code().map(|(_, line)| line).collect::<Vec<_>>().join("\n")
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for start in ["build.rs", "src", "tests", "benches"] {
        collect(&root().join(start), &mut found);
    }
    assert!(found.len() > 50, "the sources are not where they were");
    found
}

fn collect(path: &Path, found: &mut Vec<Source>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), found);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        found.push(Source { name, text: fs::read_to_string(path).unwrap() });
    }
}

/// Fails with all that `rule` finds in any source, each with its file.
#[track_caller]
fn check(rule: impl Fn(&Source) -> Vec<String>) {
    let faults: Vec<_> = sources()
        .iter()
        .flat_map(|source| {
            let prefix = &source.name;
            rule(source).into_iter().map(|fault| format!("{prefix}{fault}")).collect::<Vec<_>>()
        })
        .collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Whole words of code, for names.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[test]
fn modules_use_only_what_lies_below_them() {
    check(|source| {
        let Some(own) = source.module() else { return Vec::new() };
        let Some((_, allowed)) = MAY_USE.iter().find(|(module, _)| *module == own) else {
            return vec![": a module without a place in the table of this test".to_owned()];
        };
        let mut faults = Vec::new();
        for (number, line) in source.code() {
            for path in line.split("crate::").skip(1) {
                let target = words(path).next().unwrap_or_default();
                let known = *allowed == "*" || allowed.split(' ').any(|module| module == target);
                if path.starts_with('{') {
                    faults.push(format!(":{number}: name each module in a `use` of its own"));
                } else if target != own && !known {
                    faults.push(format!(":{number}: `{own}` may not use `{target}`"));
                }
            }
        }
        faults
    });
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    check(|source| {
        let mut faults = Vec::new();
        let lines = source.text.lines().count();
        if lines > MOST_LINES {
            faults.push(format!(": {lines} lines, at most {MOST_LINES}: split it"));
        }
        if !source.text.starts_with("//! ") {
            faults.push(":1: no `//!` head that says what it is for".to_owned());
        }
        if source.name.ends_with("/mod.rs") {
            faults.push(": name it after its folder, beside it".to_owned());
        }
        faults
    });
}

#[test]
fn nothing_is_left_for_later() {
    // In parts, so that this file passes.
    let banned = [["TO", "DO"], ["FIX", "ME"], ["todo", "!("], ["unimplemented", "!("]]
        .map(|parts| parts.concat());
    let ignored = ["#[", "ignore"].concat();
    check(|source| {
        let mut faults = Vec::new();
        for (index, line) in source.text.lines().enumerate() {
            for word in banned.iter().chain([&ignored]).filter(|word| line.contains(*word)) {
                faults.push(format!(":{}: {word}", index + 1));
            }
        }
        faults
    });
}

#[test]
fn one_file_names_the_clocks_of_the_system() {
    check(|source| {
        if source.is_of(&[CLOCK]) {
            return Vec::new();
        }
        let names = |line: &str| words(line).any(|word| word == "Instant" || word == "SystemTime");
        let text = source.text.lines().enumerate();
        text.filter(|(_, line)| line.contains("std::time") && names(line))
            .filter(|_| source.name != "tests/tidy.rs")
            .map(|(index, _)| format!(":{}: time comes from `clock`", index + 1))
            .collect()
    });
}

#[test]
fn one_file_knows_codes_and_statuses() {
    check(|source| {
        if source.is_of(&STATUS) {
            return Vec::new();
        }
        let is_code = |line: &str| {
            line.contains("StatusCode::")
                || line.contains("tonic::") && words(line).any(|w| w == "Code")
        };
        let lines = source.code().filter(|(_, line)| is_code(line));
        lines.map(|(number, _)| format!(":{number}: codes belong into {}", STATUS[0])).collect()
    });
}

#[test]
fn metrics_are_named_in_their_files_alone() {
    check(|source| {
        if source.is_of(&METRICS) {
            return Vec::new();
        }
        let is_name =
            |line: &str| METRIC_PREFIXES.iter().any(|it| line.contains(&format!("\"{it}")));
        let lines = source.code().filter(|(_, line)| is_name(line));
        lines.map(|(number, _)| format!(":{number}: metrics belong into {}", METRICS[0])).collect()
    });
}

/// Names of metrics in `text`; the series of a histogram count as the histogram.
fn metrics(text: &str) -> BTreeSet<&str> {
    let names = words(text).filter(|word| {
        METRIC_PREFIXES.iter().any(|prefix| word.len() > prefix.len() && word.starts_with(prefix))
    });
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name)).collect()
}

#[test]
fn the_page_of_metrics_lists_what_there_is() {
    let sources = sources();
    let code: Vec<_> =
        sources.iter().filter(|it| it.is_of(&METRICS)).map(Source::code_text).collect();
    let exported: BTreeSet<_> = code.iter().flat_map(|text| metrics(text)).collect();
    assert!(exported.len() > 20, "{exported:?}");
    let page = fs::read_to_string(root().join(METRICS_PAGE)).unwrap();
    let rows: String = page.lines().filter(|line| line.starts_with("| `")).collect();
    let listed = metrics(&rows);
    let missing: Vec<_> = exported.difference(&listed).collect();
    assert!(missing.is_empty(), "not in {METRICS_PAGE}: {missing:?}");
    let named = metrics(&page);
    let unknown: Vec<_> = named.difference(&exported).collect();
    assert!(unknown.is_empty(), "{METRICS_PAGE} names what does not exist: {unknown:?}");
}

/// The text of the string literal that ends nearest before `end`, quotes left out.
fn last_literal(text: &str) -> Option<&str> {
    let mut found = None;
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        let body = &rest[start + 1..];
        let mut escaped = false;
        let end = body.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        found = Some(&body[..end]);
        rest = &body[end + 1..];
    }
    found
}

/// What stands between the parenthesis at the start of `text` and the one that closes it.
fn arguments(text: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (0_u32, false, false);
    for (index, c) in text.char_indices() {
        match c {
            '"' if !escaped => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        if depth == 0 {
            return &text[1.min(index)..index];
        }
    }
    text
}

/// A clause: no capital first, no full stop at the end.
fn is_clause(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_uppercase()) && !text.ends_with('.')
}

#[test]
fn messages_are_clauses() {
    check(|source| {
        let code = source.code_text();
        let mut faults = Vec::new();
        for level in ["trace", "debug", "info", "warn", "error"] {
            for event in code.split(&format!("tracing::{level}!")).skip(1) {
                match last_literal(arguments(event)) {
                    Some(text) if is_clause(text) => {}
                    Some(text) => faults.push(format!(": log message \"{text}\"")),
                    None => faults.push(format!(": a tracing::{level} without a message")),
                }
            }
        }
        for error in code.split("#[error").skip(1) {
            let text = arguments(error).trim_start();
            let body = text.strip_prefix('"').and_then(|_| {
                // The first literal: what follows are values.
                let end =
                    text[1..].match_indices('"').find(|(at, _)| !text[..=*at].ends_with('\\'));
                end.map(|(at, _)| &text[1..=at])
            });
            if let Some(text) = body.filter(|text| !is_clause(text)) {
                faults.push(format!(": error text \"{text}\""));
            }
        }
        faults
    });
}

#[test]
fn literals_and_arguments_are_found() {
    for (text, want) in [
        (r#"("a")"#, Some("a")),
        (r#"(x = %y, "b \"c\" (d")"#, Some(r#"b \"c\" (d"#)),
        ("(x)", None),
    ] {
        assert_eq!(last_literal(arguments(text)), want);
        assert_eq!(arguments(&format!("{text}; f(\"z\")")), &text[1..text.len() - 1]);
    }
    assert!(is_clause("no answer") && !is_clause("No answer") && !is_clause("no answer."));
}
