//! Batches of any calls, for `lua/call.lua`.

use std::collections::HashMap;
use std::hash::Hash;

use crate::model::{
    AlgorithmKind, Call, Charge, Check, CounterKey, Effect, Hits, Limit, Verdict, Window,
};
use crate::store::StoreError;

/// Numbers per check in the reply.
const ANSWERS: usize = 5;

/// A batch of any calls.
#[derive(Debug)]
pub(super) struct Mixed<'a> {
    /// Distinct.
    keys: Vec<&'a CounterKey>,
    /// Limits and checks, as the head of `lua/call.lua` says.
    numbers: Vec<i64>,
    checks: usize,
}

impl<'a> Mixed<'a> {
    pub(super) fn new(batch: &'a [Call]) -> Self {
        let checks = batch.iter().map(|call| call.checks.len()).sum();
        let mut keys = Distinct::default();
        let mut limits = Distinct::default();
        let mut calls = Vec::with_capacity(batch.len() + 4 * checks);
        for call in batch {
            calls.push(place(call.checks.len()));
            for check in &call.checks {
                calls.push(place(keys.place_of(&check.key) + 1));
                calls.push(place(limits.place_of(&check.limit) + 1));
                calls.push(signed(check.hits));
                calls.push(mode(check));
            }
        }
        let mut numbers = Vec::with_capacity(1 + 8 * limits.items.len() + calls.len());
        numbers.push(place(limits.items.len()));
        for limit in limits.items {
            push_limit(&mut numbers, limit);
        }
        numbers.extend_from_slice(&calls);
        Self { keys: keys.items, numbers, checks }
    }

    pub(super) fn keys(&self) -> &[&'a CounterKey] {
        &self.keys
    }

    pub(super) fn numbers(&self) -> &[i64] {
        &self.numbers
    }

    /// One verdict per check.
    pub(super) fn decode(&self, reply: &[i64]) -> Result<Vec<Verdict>, StoreError> {
        let want = self.checks * ANSWERS;
        if reply.len() != want {
            return Err(StoreError::MalformedReply { want, got: reply.len() });
        }
        let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
        let verdict = |answer: &[i64]| match *answer {
            [allowed, used, remaining, reset, retry_after] => Some(Verdict {
                allowed: allowed == 1,
                used: unsigned(used),
                remaining: unsigned(remaining),
                reset: unsigned(reset),
                retry_after: u64::try_from(retry_after).ok(),
            }),
            _ => None,
        };
        Ok(reply.chunks_exact(ANSWERS).filter_map(verdict).collect())
    }
}

fn push_limit(numbers: &mut Vec<i64>, limit: &Limit) {
    numbers.push(match limit.algorithm {
        AlgorithmKind::FixedWindow => 1,
        AlgorithmKind::SlidingWindowLog => 2,
        AlgorithmKind::SlidingWindowCounter => 3,
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra => 4,
    });
    numbers.push(i64::from(limit.amount));
    numbers.push(number(limit.capacity()));
    match limit.window {
        Window::Calendar(bounds) if limit.algorithm == AlgorithmKind::FixedWindow => {
            numbers.push(0);
            numbers.extend(bounds.map(|bound| number(bound.as_micros())));
        }
        window => numbers.push(number(window.length())),
    }
}

fn signed(hits: Hits) -> i64 {
    match hits {
        Hits::Take(hits) => number(hits),
        Hits::Look => 0,
        Hits::Refund(hits) => -number(hits),
    }
}

fn mode(check: &Check) -> i64 {
    let effect = match check.effect {
        Effect::Deny => 0,
        Effect::Observe => 1,
        Effect::Quota(group) => 2 + i64::from(group),
    };
    2 * effect + i64::from(check.charge == Charge::Always)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn place(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The distinct ones of the items seen, in order.
#[derive(Debug)]
struct Distinct<'a, T> {
    items: Vec<&'a T>,
    /// Filled once there are too many items to look through.
    places: HashMap<&'a T, usize>,
}

/// Up to as many items are compared one by one.
const FEW: usize = 8;

impl<T> Default for Distinct<'_, T> {
    fn default() -> Self {
        Self { items: Vec::new(), places: HashMap::new() }
    }
}

impl<'a, T: Eq + Hash> Distinct<'a, T> {
    fn place_of(&mut self, item: &'a T) -> usize {
        let known = if self.items.len() <= FEW {
            self.items.iter().position(|other| *other == item)
        } else {
            self.places.get(item).copied()
        };
        if let Some(place) = known {
            return place;
        }
        self.items.push(item);
        let last = self.items.len() - 1;
        if last == FEW {
            self.places.extend(self.items.iter().copied().zip(0..));
        } else if last > FEW {
            self.places.insert(item, last);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_place() {
        let numbers: Vec<u32> = (0..100).collect();
        let mut distinct = Distinct::default();
        for _ in 0..2 {
            for (place, number) in numbers.iter().enumerate() {
                assert_eq!(distinct.place_of(number), place);
            }
        }
        assert_eq!(distinct.items.len(), 100);
    }
}
