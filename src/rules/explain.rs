//! Why a descriptor has the limit that it has, or none.

use std::cmp::Reverse;
use std::fmt;

use serde_json::{Value, json};

use super::pattern::Pattern;
use super::{Domain, Node, RuleLimit, RuleSet};
use crate::key::{KeyCodec, KeyEntry};
use crate::model::Entry;

/// Rules without a match that are listed per level.
const LISTED: usize = 20;

/// The way of one descriptor through the rules of its domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub domain: String,
    /// One per entry that was looked up.
    pub levels: Vec<LevelTrace>,
    pub outcome: Outcome,
}

/// What was tried for one entry, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelTrace {
    /// `key=value`.
    pub entry: String,
    pub tried: Vec<Tried>,
    /// Further rules without a match that are not listed.
    pub unlisted: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    pub rule: String,
    pub matched: bool,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The call passes uncounted; says why.
    NoRule(String),
    Rule {
        path: String,
        unlimited: bool,
        shadow_mode: bool,
        quota_mode: bool,
        limits: Vec<LimitTrace>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitTrace {
    pub limit: String,
    pub counter_key: String,
}

/// Follows a descriptor through the rules and names its counters.
pub fn explain(
    rules: &RuleSet,
    domain: &str,
    entries: &[Entry<'_>],
    codec: &KeyCodec,
) -> Explanation {
    let mut levels = Vec::new();
    let outcome = match rules.domain(domain) {
        None => Outcome::NoRule(format!("there is no domain `{domain}`")),
        Some(found) => follow(found, domain, entries, codec, &mut levels),
    };
    Explanation { domain: domain.to_owned(), levels, outcome }
}

fn follow(
    domain: &Domain,
    name: &str,
    entries: &[Entry<'_>],
    codec: &KeyCodec,
    levels: &mut Vec<LevelTrace>,
) -> Outcome {
    let mut siblings = domain.nodes();
    let mut last: Option<&Node> = None;
    for entry in entries {
        if let (Some(node), []) = (last, siblings) {
            let composite = &node.composite;
            return Outcome::NoRule(format!("`{composite}` has no rules for a further entry"));
        }
        let (trace, winner) = try_level(siblings, entry);
        levels.push(trace);
        let Some(node) = winner else {
            return Outcome::NoRule(format!("no rule for the entry `{}`", show(entry)));
        };
        siblings = node.nodes();
        last = Some(node);
    }
    let Some(found) = domain.find(entries) else {
        return Outcome::NoRule(match last {
            None => "the descriptor has no entries".to_owned(),
            Some(node) => format!("`{}` only leads to rules of further entries", node.composite),
        });
    };
    let limit = |limit: &RuleLimit| {
        let entries =
            found.nodes.iter().zip(entries).map(|(node, entry)| match &node.shared_pattern {
                Some(pattern) => KeyEntry::Shared { key: entry.key, pattern },
                None => KeyEntry::Value(*entry),
            });
        let counter_key = codec.encode(&limit.key_head, name, entries).to_string();
        LimitTrace { limit: limit.to_string(), counter_key }
    };
    Outcome::Rule {
        path: found.rule.path.clone(),
        unlimited: found.rule.unlimited,
        shadow_mode: found.rule.shadow_mode,
        quota_mode: found.rule.quota_mode,
        limits: found.rule.limits.iter().map(limit).collect(),
    }
}

/// Tries the rules of a level one by one, in the order in which the index gives precedence.
fn try_level<'n>(siblings: &'n [Node], entry: &Entry<'_>) -> (LevelTrace, Option<&'n Node>) {
    let mut candidates: Vec<_> = siblings.iter().enumerate().collect();
    candidates.sort_by_key(|&(place, node)| (precedence(&node.pattern), place));
    let is_match = |node: &Node| node.pattern.matches(&node.key, entry);
    let winner = candidates.iter().position(|(_, node)| is_match(node));
    let tried = match winner {
        Some(at) => &candidates[..=at],
        None => &candidates[..],
    };
    let mut trace = LevelTrace { entry: show(entry), tried: Vec::new(), unlisted: 0 };
    for (_, node) in tried {
        let matched = is_match(node);
        // Exact values that differ, and other keys, are what an index never looks at.
        let is_near = match &node.pattern {
            Pattern::Exact(_) => matched,
            Pattern::Joined(_) => true,
            _ => node.key.as_bytes() == entry.key,
        };
        if matched || (is_near && trace.tried.len() < LISTED) {
            trace.tried.push(Tried {
                rule: node.composite.to_string(),
                matched,
                why: why(&node.pattern, matched),
            });
        } else {
            trace.unlisted += 1;
        }
    }
    (trace, winner.map(|at| candidates[at].1))
}

/// Smaller is tried earlier; file order decides between equals.
fn precedence(pattern: &Pattern) -> (u8, Reverse<usize>) {
    let class = match pattern {
        Pattern::Exact(_) => 0,
        Pattern::Cidr(_) => 1,
        Pattern::Prefix(_) | Pattern::Glob(_) | Pattern::Regex { .. } => 2,
        Pattern::Joined(_) => 3,
        Pattern::Any => 4,
    };
    (class, Reverse(pattern.literals()))
}

fn why(pattern: &Pattern, matched: bool) -> String {
    let verb = if matched { "matches" } else { "does not match" };
    match pattern {
        Pattern::Any => "the rule without a value takes every value left".to_owned(),
        Pattern::Exact(_) => "the value is equal".to_owned(),
        Pattern::Cidr(network) => format!("{network} {verb}"),
        Pattern::Prefix(_) | Pattern::Glob(_) | Pattern::Regex { .. } | Pattern::Joined(_) => {
            format!("{} with {} literal characters {verb}", pattern.kind(), pattern.literals())
        }
    }
}

fn show(entry: &Entry<'_>) -> String {
    format!("{}={}", String::from_utf8_lossy(entry.key), String::from_utf8_lossy(entry.value))
}

impl Explanation {
    /// Whether the descriptor has a rule.
    pub fn has_rule(&self) -> bool {
        matches!(self.outcome, Outcome::Rule { .. })
    }

    pub fn to_json(&self) -> Value {
        let levels = self.levels.iter().map(|level| {
            let tried = level.tried.iter().map(
                |tried| json!({ "rule": tried.rule, "matched": tried.matched, "why": tried.why }),
            );
            json!({
                "entry": level.entry,
                "tried": tried.collect::<Vec<_>>(),
                "unlisted": level.unlisted,
            })
        });
        let mut out = json!({ "domain": self.domain, "levels": levels.collect::<Vec<_>>() });
        match &self.outcome {
            Outcome::NoRule(reason) => {
                out["rule"] = Value::Null;
                out["reason"] = json!(reason);
            }
            Outcome::Rule { path, unlimited, shadow_mode, quota_mode, limits } => {
                let limits = limits
                    .iter()
                    .map(|limit| json!({ "limit": limit.limit, "counter_key": limit.counter_key }));
                out["rule"] = json!({
                    "path": path,
                    "unlimited": unlimited,
                    "shadow_mode": shadow_mode,
                    "quota_mode": quota_mode,
                    "limits": limits.collect::<Vec<_>>(),
                });
            }
        }
        out
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "domain {}", self.domain)?;
        for (depth, level) in (1..).zip(&self.levels) {
            writeln!(f, "entry {depth}: {}", level.entry)?;
            for Tried { rule, matched, why } in &level.tried {
                writeln!(f, "  {} {rule}: {why}", if *matched { "+" } else { "-" })?;
            }
            if level.unlisted > 0 {
                writeln!(f, "  - other rules of this level: {}", level.unlisted)?;
            }
        }
        match &self.outcome {
            Outcome::NoRule(reason) => writeln!(f, "no rule: {reason}"),
            Outcome::Rule { path, unlimited, shadow_mode, quota_mode, limits } => {
                writeln!(f, "rule {path}")?;
                for (flag, text) in [
                    (*shadow_mode, "shadow mode: counted, never refused"),
                    (*quota_mode, "quota mode: refused only if all quotas of the call are used"),
                    (*unlimited, "unlimited"),
                    (!*unlimited && limits.is_empty(), "no limit"),
                ] {
                    if flag {
                        writeln!(f, "  {text}")?;
                    }
                }
                for LimitTrace { limit, counter_key } in limits {
                    writeln!(f, "  {limit}\n    counter {counter_key}")?;
                }
                Ok(())
            }
        }
    }
}
