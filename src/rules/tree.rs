//! Finds the rule of a descriptor.
//!
//! Each entry is looked up on one level: exact value, else the most specific pattern, else the
//! rule without a value. The first hit decides the subtree; nothing is tried twice.

mod index;

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::Rule;
use super::pattern::Pattern;
use crate::model::Entry;
pub(super) use index::Level;

/// All rules of all domains.
#[derive(Debug, Default)]
pub struct RuleSet {
    domains: HashMap<Box<str>, Domain, RandomState>,
    /// By path.
    rules: Vec<Arc<Rule>>,
    /// Names the content: equal files give equal versions.
    pub version: String,
}

/// The rules of one domain.
#[derive(Debug, Default)]
pub struct Domain {
    pub(super) root: Level,
}

/// One level on the way to a rule.
#[derive(Debug)]
pub struct Node {
    pub(super) key: Box<str>,
    /// `key`, or `key_value` with the value as written.
    pub(super) composite: Box<str>,
    pub(super) pattern: Pattern,
    /// The pattern that stands for the value in the counter key (`share_threshold`).
    pub shared_pattern: Option<Box<[u8]>>,
    pub(super) value_to_metric: bool,
    pub(super) detailed_metric: bool,
    pub(super) rule: Option<Arc<Rule>>,
    pub(super) children: Level,
}

/// The rule that a descriptor ends on, and the nodes on the way, one per entry.
#[derive(Debug, Clone)]
pub struct Match<'r> {
    pub rule: &'r Arc<Rule>,
    pub nodes: SmallVec<[&'r Node; 4]>,
}

impl RuleSet {
    pub(super) fn new(domains: Vec<(String, Domain)>, version: String) -> Self {
        let mut rules = Vec::new();
        for (_, domain) in &domains {
            collect(domain.root.nodes(), &mut rules);
        }
        rules.sort_by(|a: &Arc<Rule>, b| a.path.cmp(&b.path));
        let domains = domains.into_iter().map(|(name, domain)| (name.into(), domain)).collect();
        Self { domains, rules, version }
    }

    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// Names and rules, by name.
    pub fn domains(&self) -> impl Iterator<Item = (&str, &Domain)> {
        let mut domains: Vec<_> =
            self.domains.iter().map(|(name, domain)| (name.as_ref(), domain)).collect();
        domains.sort_by_key(|(name, _)| *name);
        domains.into_iter()
    }

    /// Every rule, by path.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Arc<Rule>> {
        self.rules.iter()
    }
}

fn collect(nodes: &[Node], rules: &mut Vec<Arc<Rule>>) {
    for node in nodes {
        rules.extend(node.rule.clone());
        collect(node.children.nodes(), rules);
    }
}

impl Domain {
    /// The rule that stands at the end of exactly these entries.
    pub fn find(&self, entries: &[Entry<'_>]) -> Option<Match<'_>> {
        let (last, outer) = entries.split_last()?;
        let mut level = &self.root;
        let mut nodes = SmallVec::new();
        for entry in outer {
            let node = level.find(entry)?;
            nodes.push(node);
            level = &node.children;
        }
        let node = level.find(last)?;
        nodes.push(node);
        Some(Match { rule: node.rule.as_ref()?, nodes })
    }

    /// The outermost nodes, in file order.
    pub fn nodes(&self) -> &[Node] {
        self.root.nodes()
    }
}

impl Node {
    /// `key` or `key_value` as in the rules file.
    pub fn composite(&self) -> &str {
        &self.composite
    }

    /// What a descriptor that ends here gets.
    pub fn rule(&self) -> Option<&Arc<Rule>> {
        self.rule.as_ref()
    }

    /// The nodes of the next entry, in file order.
    pub fn nodes(&self) -> &[Node] {
        self.children.nodes()
    }

    /// Whether the metric level of this node is the caller's value, in a series of a rule that is
    /// `detailed` or not.
    pub(super) fn is_metric_dynamic(&self, detailed: bool) -> bool {
        (detailed || self.value_to_metric)
            && self.shared_pattern.is_none()
            && !matches!(self.pattern, Pattern::Exact(_))
    }
}

impl Match<'_> {
    /// The levels of the metric series of a rule with `detailed_metric`, or below a
    /// `value_to_metric`: with the caller's values.
    pub fn metric_levels(&self, entries: &[Entry<'_>]) -> Vec<String> {
        let detailed = self.nodes.last().is_some_and(|leaf| leaf.detailed_metric);
        let level = |(node, entry): (&&Node, &Entry<'_>)| {
            let key = String::from_utf8_lossy(entry.key);
            match () {
                () if !node.is_metric_dynamic(detailed) => node.composite.to_string(),
                () if entry.value.is_empty() => key.into_owned(),
                () => format!("{key}_{}", String::from_utf8_lossy(entry.value)),
            }
        };
        self.nodes.iter().zip(entries).map(level).collect()
    }
}

#[cfg(test)]
mod tests;
