//! Gives each rule its metric series, once the whole set is known to be good.

use std::sync::Arc;

use super::{Level, Node};
use crate::telemetry::RuleSeries;

pub(super) fn attach(domain: &str, root: &mut Level, series: &RuleSeries) {
    Walk { domain, series, levels: Vec::new() }.nodes(root, None);
}

/// The way from the root to a node.
struct Above<'n> {
    parent: Option<&'n Above<'n>>,
    is_dynamic: [bool; 2],
}

impl Above<'_> {
    fn any(&self, detailed: bool) -> bool {
        self.is_dynamic[usize::from(detailed)]
            || self.parent.is_some_and(|parent| parent.any(detailed))
    }
}

struct Walk<'s> {
    domain: &'s str,
    series: &'s RuleSeries,
    /// Composites of the nodes above.
    levels: Vec<String>,
}

impl Walk<'_> {
    fn nodes(&mut self, level: &mut Level, parent: Option<&Above<'_>>) {
        for node in level.nodes_mut() {
            self.levels.push(node.composite.to_string());
            let is_dynamic = [false, true].map(|detailed| node.is_metric_dynamic(detailed));
            let above = Above { parent, is_dynamic };
            self.rule(node, &above);
            self.nodes(&mut node.children, Some(&above));
            self.levels.pop();
        }
    }

    fn rule(&self, node: &mut Node, above: &Above<'_>) {
        if above.any(node.detailed_metric) {
            return;
        }
        if let Some(rule) = node.rule.as_mut().and_then(Arc::get_mut) {
            rule.metrics = Some(self.series.get(self.domain, &self.levels));
        }
    }
}
