//! The nodes of one level, indexed so that a lookup does not grow with their number.

use std::cmp::Reverse;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use ipnet::IpNet;
use smallvec::SmallVec;

use super::{Node, Pattern};
use crate::model::Entry;
use crate::rules::pattern::parse_network;

/// Position of a node in its level, which is file order.
type Id = u32;
/// Keyed by bytes that callers choose, so the hash is seeded at random.
type Map<K, V> = HashMap<K, V, RandomState>;

/// Sibling nodes.
#[derive(Debug, Default)]
pub(in crate::rules) struct Level {
    nodes: Vec<Node>,
    keys: Map<Box<[u8]>, KeyIndex>,
    /// Nodes with a star in their key, the most specific first.
    joined: Vec<Rank>,
}

/// The nodes of one key.
#[derive(Debug, Default)]
struct KeyIndex {
    exact: Map<Box<[u8]>, Id>,
    patterns: Option<Box<PatternIndex>>,
    any: Option<Id>,
}

#[derive(Debug, Default)]
struct PatternIndex {
    cidrs: CidrIndex,
    prefixes: PrefixIndex,
    /// The other globs and regular expressions, the most specific first.
    others: Vec<Rank>,
}

/// Sorts the more specific before the less specific: by literal bytes, then by file order.
type Rank = (Reverse<usize>, Id);

impl Level {
    pub(in crate::rules) fn new(nodes: Vec<Node>) -> Self {
        let mut level = Self { nodes, keys: Map::default(), joined: Vec::new() };
        for (id, node) in (0..).zip(&level.nodes) {
            if matches!(node.pattern, Pattern::Joined(_)) {
                level.joined.push((Reverse(node.pattern.literals()), id));
                continue;
            }
            let index = level.keys.entry(node.key.as_bytes().into()).or_default();
            let patterns = &mut index.patterns;
            match &node.pattern {
                Pattern::Any => index.any = Some(id),
                Pattern::Exact(value) => {
                    index.exact.insert(value.clone(), id);
                }
                Pattern::Cidr(network) => {
                    patterns.get_or_insert_default().cidrs.insert(*network, id);
                }
                Pattern::Prefix(prefix) => {
                    patterns.get_or_insert_default().prefixes.0.push(Prefix {
                        bytes: prefix.clone(),
                        id,
                        parent: None,
                    });
                }
                Pattern::Glob(_) | Pattern::Regex { .. } | Pattern::Joined(_) => {
                    let rank = (Reverse(node.pattern.literals()), id);
                    patterns.get_or_insert_default().others.push(rank);
                }
            }
        }
        for index in level.keys.values_mut() {
            if let Some(patterns) = &mut index.patterns {
                patterns.prefixes.link();
                patterns.others.sort_unstable();
            }
        }
        level.joined.sort_unstable();
        level
    }

    /// In file order.
    pub(in crate::rules) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(in crate::rules) fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    pub(super) fn find(&self, entry: &Entry<'_>) -> Option<&Node> {
        let index = self.keys.get(entry.key);
        let id = index
            .and_then(|index| index.find_value(&self.nodes, entry))
            .or_else(|| self.find_joined(entry))
            .or_else(|| index.and_then(|index| index.any))?;
        self.node(id)
    }

    fn node(&self, id: Id) -> Option<&Node> {
        self.nodes.get(id as usize)
    }

    fn find_joined(&self, entry: &Entry<'_>) -> Option<Id> {
        if self.joined.is_empty() {
            return None;
        }
        let mut text: SmallVec<[u8; 256]> = SmallVec::from_slice(entry.key);
        text.push(b'_');
        text.extend_from_slice(entry.value);
        self.joined.iter().map(|&(_, id)| id).find(|&id| {
            matches!(self.node(id), Some(Node { pattern: Pattern::Joined(glob), .. })
                if glob.matches(&text))
        })
    }
}

impl KeyIndex {
    fn find_value(&self, nodes: &[Node], entry: &Entry<'_>) -> Option<Id> {
        if let Some(&id) = self.exact.get(entry.value) {
            return Some(id);
        }
        let patterns = self.patterns.as_ref()?;
        patterns.cidrs.find(entry.value).or_else(|| patterns.find(nodes, entry))
    }
}

impl PatternIndex {
    /// The most specific of prefixes and others.
    fn find(&self, nodes: &[Node], entry: &Entry<'_>) -> Option<Id> {
        let prefix = self.prefixes.find(entry.value);
        self.others
            .iter()
            .take_while(|&&rank| prefix.is_none_or(|best| rank < best))
            .find(|(_, id)| match nodes.get(*id as usize).map(|node| &node.pattern) {
                Some(Pattern::Glob(glob)) => glob.matches(entry.value),
                Some(Pattern::Regex { regex, .. }) => regex.is_match(entry.value),
                _ => false,
            })
            .copied()
            .or(prefix)
            .map(|(_, id)| id)
    }
}

/// Networks by length, so that a lookup costs one hash per length in use.
#[derive(Debug, Default)]
struct CidrIndex {
    networks: Map<IpNet, Id>,
    /// Prefix lengths in use, the longest first.
    lengths_v4: Vec<u8>,
    lengths_v6: Vec<u8>,
}

impl CidrIndex {
    fn insert(&mut self, network: IpNet, id: Id) {
        self.networks.insert(network, id);
        let lengths = match network {
            IpNet::V4(_) => &mut self.lengths_v4,
            IpNet::V6(_) => &mut self.lengths_v6,
        };
        lengths.push(network.prefix_len());
        lengths.sort_unstable_by_key(|&length| Reverse(length));
        lengths.dedup();
    }

    fn find(&self, value: &[u8]) -> Option<Id> {
        if self.networks.is_empty() {
            return None;
        }
        let network = parse_network(value)?;
        let lengths = match network {
            IpNet::V4(_) => &self.lengths_v4,
            IpNet::V6(_) => &self.lengths_v6,
        };
        lengths.iter().filter(|&&length| length <= network.prefix_len()).find_map(|&length| {
            let wider = IpNet::new(network.addr(), length).ok()?;
            self.networks.get(&wider.trunc()).copied()
        })
    }
}

/// Prefixes in order of their bytes, each linked to the longest other one that it begins with.
///
/// The longest prefix of a value is the last one at or before the value in that order, or one that
/// this begins with: all between a prefix of the value and the value begin with that prefix.
#[derive(Debug, Default)]
struct PrefixIndex(Vec<Prefix>);

#[derive(Debug)]
struct Prefix {
    bytes: Box<[u8]>,
    id: Id,
    parent: Option<usize>,
}

impl PrefixIndex {
    fn link(&mut self) {
        self.0.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        let mut open: Vec<usize> = Vec::new();
        for index in 0..self.0.len() {
            while let Some(&outer) = open.last()
                && !self.0[index].bytes.starts_with(&self.0[outer].bytes)
            {
                open.pop();
            }
            self.0[index].parent = open.last().copied();
            open.push(index);
        }
    }

    fn find(&self, value: &[u8]) -> Option<Rank> {
        let after = self.0.partition_point(|prefix| *prefix.bytes <= *value);
        let mut candidate = after.checked_sub(1);
        while let Some(prefix) = candidate.and_then(|index| self.0.get(index)) {
            if value.starts_with(&prefix.bytes) {
                return Some((Reverse(prefix.bytes.len()), prefix.id));
            }
            candidate = prefix.parent;
        }
        None
    }
}
