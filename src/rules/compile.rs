//! Rules files to a rule set, with every fault of every file.

mod limit;
mod metadata;
mod series;
mod window;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::diagnostic::{Diagnostic, Faults, RulesError};
use super::field::Level as Fields;
use super::file::{Placed, Record};
use super::pattern::{Glob, MatchMode, Pattern};
use super::tree::{Domain, Level, Node, RuleSet};
use super::yaml::{self, Span, Yaml, shorten};
use super::{Rule, RuleLimit};
use crate::model::{ChargeMode, Consistency, FailureMode};
use crate::telemetry::RuleSeries;

/// A file to compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Stands in messages.
    pub name: String,
    pub text: String,
}

/// How the files of a set are taken together, and what holds where no file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompileOptions {
    /// Several files may add to one domain.
    pub merge_domains: bool,
    pub charge: ChargeMode,
    pub on_store_failure: FailureMode,
}

/// Compiles all files to one set.
///
/// # Errors
///
/// All faults of all files; a file that is not YAML ends at the first one.
pub fn compile(
    files: &[SourceFile],
    options: CompileOptions,
    series: &RuleSeries,
) -> Result<RuleSet, RulesError> {
    compile_readable(files, Vec::new(), options, series)
}

/// Likewise, with the faults of files that could not be read.
pub(super) fn compile_readable(
    files: &[SourceFile],
    mut faults: Vec<Diagnostic>,
    options: CompileOptions,
    series: &RuleSeries,
) -> Result<RuleSet, RulesError> {
    let mut compiler = Compiler { options, domains: HashMap::new() };
    for file in files {
        let mut own = Faults::new(file);
        compiler.file(file, &mut own);
        let mut found = own.into_found();
        found.sort_by_key(|fault| fault.place.as_ref().map(|place| (place.line, place.column)));
        faults.extend(found);
    }
    if !faults.is_empty() {
        return Err(RulesError(faults));
    }
    let domains = compiler.domains.into_values().map(|draft| {
        let mut root = Level::new(draft.nodes);
        series::attach(&draft.name, &mut root, series);
        (draft.name, Domain { root })
    });
    Ok(RuleSet::new(domains.collect(), version(files)))
}

/// Twelve digits that name the content.
fn version(files: &[SourceFile]) -> String {
    let mut hash = Sha256::new();
    for file in files {
        hash.update((file.text.len() as u64).to_le_bytes());
        hash.update(file.text.as_bytes());
    }
    hash.finalize()[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What holds for limits that do not say themselves.
#[derive(Debug, Clone, Copy)]
struct Defaults {
    charge: ChargeMode,
    on_store_failure: FailureMode,
    consistency: Consistency,
}

impl Defaults {
    fn overridden(self, record: &Record<'_, '_>) -> Self {
        let charge = match record.word("charge") {
            Some("auto") => ChargeMode::Auto,
            Some("admitted") => ChargeMode::Admitted,
            Some("always") => ChargeMode::Always,
            _ => self.charge,
        };
        let on_store_failure = match record.word("on_store_failure") {
            Some("error") => FailureMode::Error,
            Some("allow") => FailureMode::Allow,
            Some("deny") => FailureMode::Deny,
            Some("local") => FailureMode::Local,
            _ => self.on_store_failure,
        };
        let consistency = match record.word("consistency") {
            Some("strict") => Consistency::Strict,
            Some("leased") => Consistency::Leased,
            _ => self.consistency,
        };
        Self { charge, on_store_failure, consistency }
    }
}

struct Compiler {
    options: CompileOptions,
    /// By name; those without a valid name are faulty and stand under `?`.
    domains: HashMap<String, Draft>,
}

struct Draft {
    name: String,
    /// Of the first file, `file:line:column`.
    place: String,
    nodes: Vec<Node>,
    siblings: Siblings,
}

/// Where each rule of a level stands, by what tells it from its siblings.
type Siblings = HashMap<(Box<str>, &'static str, Vec<u8>), String>;

fn place(file: &SourceFile, span: Span) -> String {
    format!("{}:{}:{}", file.name, span.line(), span.column())
}

impl Compiler {
    fn file(&mut self, file: &SourceFile, faults: &mut Faults<'_>) {
        let before = faults.count();
        let root = match yaml::read(&file.text, faults) {
            Some(root) if !root.is_null() => root,
            _ if faults.count() > before => return,
            _ => {
                faults
                    .add(Span::start(), "the file has no `domain`")
                    .help("expected `domain: <name>` and `descriptors:`");
                return;
            }
        };
        let Some(record) = Record::read(&root, Fields::File, faults) else { return };
        let domain = required(&record, "domain", "the file has no `domain`", faults);
        let mut draft = self.draft(file, domain, faults);
        let server = Defaults {
            charge: self.options.charge,
            on_store_failure: self.options.on_store_failure,
            consistency: Consistency::Strict,
        };
        let scope = Scope { file, path: &draft.name, defaults: server.overridden(&record) };
        faults.enter(shorten(&draft.name).into_owned());
        for item in record.items("descriptors") {
            draft.nodes.extend(descriptor(item, &scope, &mut draft.siblings, faults));
        }
        faults.leave();
        self.domains.insert(draft.name.clone(), draft);
    }

    /// What the rules of a file are added to: those of earlier files, if they may be.
    fn draft(
        &mut self,
        file: &SourceFile,
        domain: Option<Placed<&str>>,
        faults: &mut Faults<'_>,
    ) -> Draft {
        let new = |name: &str, span| Draft {
            name: name.to_owned(),
            place: place(file, span),
            nodes: Vec::new(),
            siblings: Siblings::new(),
        };
        let Some(Placed { span, value: name }) = domain else {
            return new("?", Span::start());
        };
        match self.domains.remove(name) {
            Some(draft) if self.options.merge_domains => draft,
            Some(Draft { place: first, .. }) => {
                faults.add(span, format!("domain `{}` is defined twice", shorten(name))).help(
                    format!("the first is at {first}; join the files or turn on domain merging"),
                );
                Draft { place: first, ..new(name, span) }
            }
            None => new(name, span),
        }
    }
}

/// What a descriptor takes from what encloses it.
struct Scope<'s> {
    file: &'s SourceFile,
    path: &'s str,
    defaults: Defaults,
}

/// A text that must be there and not be empty.
fn required<'a>(
    record: &Record<'a, '_>,
    name: &str,
    missing: &str,
    faults: &mut Faults<'_>,
) -> Option<Placed<&'a str>> {
    match record.text(name) {
        Some(text) if text.value.is_empty() => {
            faults.add(text.span, format!("`{name}` is empty"));
            None
        }
        Some(text) => Some(text),
        None if record.key(name).is_some() => None,
        None => {
            faults.add(record.span, missing).help(format!("expected `{name}: <text>`"));
            None
        }
    }
}

fn descriptor(
    node: &Yaml<'_>,
    scope: &Scope<'_>,
    siblings: &mut Siblings,
    faults: &mut Faults<'_>,
) -> Option<Node> {
    faults.enter(label(node));
    let node = enclosed(node, scope, siblings, faults);
    faults.leave();
    node
}

/// `key` or `key=value` of a descriptor, whether it is valid or not.
fn label(node: &Yaml<'_>) -> String {
    let text = |name| node.get(name).and_then(Yaml::as_text).map(shorten);
    let key = text("key").unwrap_or_else(|| "?".into());
    match node.get("value").filter(|value| !value.is_null()).and_then(Yaml::as_text) {
        Some(value) if !value.is_empty() => format!("{key}={}", shorten(value)),
        _ => key.into_owned(),
    }
}

fn enclosed(
    node: &Yaml<'_>,
    scope: &Scope<'_>,
    siblings: &mut Siblings,
    faults: &mut Faults<'_>,
) -> Option<Node> {
    let record = Record::read(node, Fields::Descriptor, faults)?;
    let key = required(&record, "key", "a descriptor without a `key`", faults);
    let value = record.text("value").filter(|value| !value.value.is_empty());
    let key_text = key.map_or("?", |key| key.value);
    let node = build(&record, key_text, value, scope, faults);
    if let (Some(key), Some(node)) = (key, &node) {
        refuse_twin(key.span, node, scope.file, siblings, faults);
    }
    node
}

fn refuse_twin(
    span: Span,
    node: &Node,
    file: &SourceFile,
    siblings: &mut Siblings,
    faults: &mut Faults<'_>,
) {
    let (kind, identity) = node.pattern.identity();
    match siblings.entry((node.key.clone(), kind, identity)) {
        Slot::Vacant(slot) => {
            slot.insert(place(file, span));
        }
        Slot::Occupied(slot) => {
            faults.add(span, "a rule for the same key and value exists on this level").help(
                format!(
                    "the first is at {}; several limits for one value go into its `rate_limits`",
                    slot.get()
                ),
            );
        }
    }
}

fn build(
    record: &Record<'_, '_>,
    key: &str,
    value: Option<Placed<&str>>,
    scope: &Scope<'_>,
    faults: &mut Faults<'_>,
) -> Option<Node> {
    let pattern = pattern(record, key, value, faults);
    let composite = match value {
        None => key.to_owned(),
        Some(value) => format!("{key}_{}", value.value),
    };
    let path = format!("{}.{composite}", scope.path);
    let defaults = scope.defaults.overridden(record);
    let limits = limit::limits(record, defaults, faults);

    let inner = Scope { file: scope.file, path: &path, defaults };
    let mut twins = Siblings::new();
    let children: Vec<_> = record
        .items("descriptors")
        .iter()
        .filter_map(|item| descriptor(item, &inner, &mut twins, faults))
        .collect();

    let shares = record.bool("share_threshold").unwrap_or(false);
    let is_wild = pattern.as_ref().is_none_or(Pattern::is_wild);
    if shares
        && !is_wild
        && let Some(span) = record.key("share_threshold")
    {
        faults
            .add(span, "`share_threshold` needs a rule that matches several values")
            .help("expected a `*` in `value`, or `match: prefix`, `glob`, `regex` or `cidr`");
    }
    let metadata = record.node("metadata").map(|node| metadata::convert(node, faults));
    let pattern = pattern?;
    let rule = (limits.is_some() || children.is_empty()).then(|| {
        let limit::Limits { list, unlimited, replaces } = limits.unwrap_or_default();
        Arc::new(Rule {
            path,
            limits: list,
            unlimited,
            replaces,
            shadow_mode: record.bool("shadow_mode").unwrap_or(false),
            quota_mode: record.bool("quota_mode").unwrap_or(false),
            metadata,
            metrics: None,
        })
    });
    Some(Node {
        key: key.into(),
        shared_pattern: shares.then(|| shared_pattern(&pattern, record, value, &composite)),
        composite: composite.into(),
        pattern,
        value_to_metric: record.bool("value_to_metric").unwrap_or(false),
        detailed_metric: record.bool("detailed_metric").unwrap_or(false),
        rule,
        children: Level::new(children),
    })
}

/// `None` if it is faulty.
fn pattern(
    record: &Record<'_, '_>,
    key: &str,
    value: Option<Placed<&str>>,
    faults: &mut Faults<'_>,
) -> Option<Pattern> {
    let mode = record.word("match").and_then(MatchMode::from_name);
    let at_match = mode.and_then(|_| record.key("match"));
    if key.contains('*') {
        if let Some(span) = at_match {
            faults
                .add(span, "`match` says how to read `value`, but the key holds a `*`")
                .help("leave it out: with a star in the key, key and value are one glob");
        }
        let joined = value.map_or(key.to_owned(), |value| format!("{key}_{}", value.value));
        return Some(Pattern::Joined(Glob::new(&joined)));
    }
    let Some(value) = value else {
        // Broken values are reported where they are read.
        if let (Some(span), true) = (at_match, record.key("value").is_none()) {
            faults.add(span, "`match` without a `value` to match").help("give a `value`");
        }
        return Some(Pattern::Any);
    };
    match Pattern::try_new(value.value, mode) {
        Ok(pattern) => Some(pattern),
        Err((message, help)) => {
            faults.add(value.span, message).help(help);
            None
        }
    }
}

/// The bytes that stand for the value in counter keys: the pattern as written. Where the kind is
/// not told by the text, or the text could be taken for a kind, the kind stands before it.
fn shared_pattern(
    pattern: &Pattern,
    record: &Record<'_, '_>,
    value: Option<Placed<&str>>,
    composite: &str,
) -> Box<[u8]> {
    let text = value.map_or(composite, |value| value.value);
    let mode = record.word("match").and_then(MatchMode::from_name).unwrap_or(MatchMode::Glob);
    let looks_marked =
        text.split_once(':').is_some_and(|(mark, _)| MatchMode::from_name(mark).is_some());
    match (pattern, mode) {
        (Pattern::Joined(_), _) => composite.as_bytes().into(),
        (_, MatchMode::Glob) if !looks_marked => text.as_bytes().into(),
        _ => format!("{}:{text}", mode.name()).into_bytes().into(),
    }
}

#[cfg(test)]
mod tests;
