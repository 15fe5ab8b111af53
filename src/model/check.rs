//! What a store is asked: checks of counters, grouped in calls.

use std::fmt;

use smallvec::SmallVec;

use super::descriptor::Hits;
use super::limit::{Charge, Consistency, Limit};

/// The name of a counter, as bytes. Only `key` makes one and knows what is in it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterKey(SmallVec<[u8; 64]>);

impl CounterKey {
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<SmallVec<[u8; 64]>> for CounterKey {
    fn from(bytes: SmallVec<[u8; 64]>) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for CounterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for CounterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CounterKey({self})")
    }
}

/// One limit evaluated for one counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub key: CounterKey,
    pub limit: Limit,
    pub hits: Hits,
    /// Ignored for refunds, which are always written, and for looks, which never are.
    pub charge: Charge,
    pub effect: Effect,
    /// Only for fixed windows that have a length; ignored for others.
    pub consistency: Consistency,
}

/// What a refused check means for its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The call is denied.
    Deny,
    /// Nothing: the rule is in shadow mode.
    Observe,
    /// The call is denied if every quota group of it has a refused check. The number tells the
    /// groups of one call apart.
    Quota(u16),
}

/// All checks of one request, decided together: in order, at one instant, charged all or (but for
/// [`Charge::Always`]) not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Call {
    pub checks: SmallVec<[Check; 1]>,
}
