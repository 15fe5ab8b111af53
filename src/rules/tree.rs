//! Finds the rule of a descriptor.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Rule;
use crate::model::Entry;

/// All rules of all domains.
#[derive(Debug, Default)]
pub struct RuleSet {
    domains: HashMap<Box<str>, Domain>,
    /// Names the content: equal files give equal versions.
    pub version: String,
}

#[derive(Debug, Default)]
pub struct Domain {}

/// One level on the way to a rule.
#[derive(Debug)]
pub struct Node {
    /// The pattern that stands for the value in the counter key (`share_threshold`).
    pub shared_pattern: Option<Box<[u8]>>,
}

/// The rule that a descriptor ends on, and the nodes on the way, one per entry.
#[derive(Debug, Clone)]
pub struct Match<'r> {
    pub rule: &'r Arc<Rule>,
    pub nodes: SmallVec<[&'r Node; 4]>,
}

impl RuleSet {
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }
}

impl Domain {
    pub fn find(&self, _entries: &[Entry<'_>]) -> Option<Match<'_>> {
        None
    }
}

impl Match<'_> {
    /// The levels of the metric series of a rule with `detailed_metric`, or below a
    /// `value_to_metric`: with the caller's values.
    pub fn metric_levels(&self, _entries: &[Entry<'_>]) -> Vec<String> {
        Vec::new()
    }
}
