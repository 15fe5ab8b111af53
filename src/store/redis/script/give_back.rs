//! Unspent hits of leases, for `lua/give_back.lua`.

use crate::model::CounterKey;
use crate::store::Unspent;

/// Hits to give back.
#[derive(Debug)]
pub(super) struct GiveBack<'a> {
    keys: Vec<&'a CounterKey>,
    /// As the head of `lua/give_back.lua` says.
    numbers: Vec<i64>,
}

impl<'a> GiveBack<'a> {
    pub(super) fn new(unspent: &'a [Unspent]) -> Self {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let numbers = |one: &Unspent| [one.hits, one.window.as_micros(), one.length].map(signed);
        Self {
            keys: unspent.iter().map(|one| &one.key).collect(),
            numbers: unspent.iter().flat_map(numbers).collect(),
        }
    }

    pub(super) fn keys(&self) -> &[&'a CounterKey] {
        &self.keys
    }

    pub(super) fn numbers(&self) -> &[i64] {
        &self.numbers
    }

    /// How many hits were given back in all; `None` for another kind of reply.
    pub(super) fn decode(&self, reply: &[i64]) -> Option<u64> {
        let all = reply.len() == self.keys.len();
        all.then(|| reply.iter().map(|&hits| u64::try_from(hits).unwrap_or(0)).sum())
    }
}
