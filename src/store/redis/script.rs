//! The Lua text, its digest, and what goes to it and comes back.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::LazyLock;

use redis::{Cmd, Value};

use crate::model::{
    AlgorithmKind, Call, Charge, Check, CounterKey, Effect, Hits, Limit, Timestamp, Verdict, Window,
};
use crate::store::StoreError;

const TEXT: &str = concat!(
    include_str!("../../../lua/common.lua"),
    include_str!("../../../lua/plain.lua"),
    include_str!("../../../lua/exact.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/sliding_window_log.lua"),
    include_str!("../../../lua/sliding_window_counter.lua"),
    include_str!("../../../lua/bucket.lua"),
    include_str!("../../../lua/call.lua"),
);
/// SHA-1 of [`TEXT`] in hexadecimal, the name that Redis gives it.
static DIGEST: LazyLock<String> =
    LazyLock::new(|| sha1_smol::Sha1::from(TEXT.as_bytes()).digest().to_string());

/// Numbers per check in the reply.
const ANSWERS: usize = 5;

/// A batch as the script takes it.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// Distinct.
    keys: Vec<&'a CounterKey>,
    /// µs; 0 has Redis tell the time.
    now: u64,
    /// ms.
    jitter: u64,
    is_plain: bool,
    /// Limits and checks, as the head of `lua/plain.lua` or of `lua/call.lua` says.
    numbers: Vec<i64>,
    checks: usize,
}

impl<'a> Request<'a> {
    /// `now`: `None` has Redis tell the time. `jitter`: ms by which keys outlive their state.
    pub(super) fn new(batch: &'a [Call], now: Option<Timestamp>, jitter: u64) -> Self {
        let checks = batch.iter().map(|call| call.checks.len()).sum();
        let is_plain = batch.iter().all(is_plain);
        let mut keys = Distinct::default();
        let mut limits = Distinct::default();
        let mut calls = Vec::with_capacity(batch.len() + 4 * checks);
        for call in batch {
            if !is_plain {
                calls.push(place(call.checks.len()));
            }
            for check in &call.checks {
                calls.push(place(keys.place_of(&check.key) + 1));
                calls.push(place(limits.place_of(&check.limit) + 1));
                calls.push(signed(check.hits));
                calls.push(if is_plain { i64::from(is_charged(check)) } else { mode(check) });
            }
        }
        let mut numbers = Vec::with_capacity(1 + 8 * limits.items.len() + calls.len());
        numbers.push(place(limits.items.len()));
        for limit in limits.items {
            if is_plain {
                numbers.extend([number(limit.capacity()), number(limit.window.length())]);
            } else {
                push_limit(&mut numbers, limit);
            }
        }
        numbers.extend_from_slice(&calls);
        let now = now.map_or(0, Timestamp::as_micros);
        Self { keys: keys.items, now, jitter, is_plain, numbers, checks }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.checks == 0
    }

    /// The call by digest.
    pub(super) fn evalsha(&self) -> Cmd {
        self.command("EVALSHA", &DIGEST)
    }

    /// The call with the whole text, which Redis then knows by its digest.
    pub(super) fn eval(&self) -> Cmd {
        self.command("EVAL", TEXT)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let bytes: usize = self.keys.iter().map(|key| key.as_bytes().len()).sum();
        let arguments = 6 + self.keys.len() + self.numbers.len();
        let mut command =
            Cmd::with_capacity(arguments, script.len() + bytes + 8 * self.numbers.len() + 64);
        command.arg(name).arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key.as_bytes());
        }
        command.arg(self.now).arg(self.jitter);
        command.arg(if self.is_plain { "plain" } else { "mixed" });
        for number in &self.numbers {
            command.arg(*number);
        }
        command
    }

    /// One verdict per check.
    pub(super) fn decode(&self, reply: &Value) -> Result<Vec<Verdict>, StoreError> {
        let want = self.checks * ANSWERS;
        let Value::Array(values) = reply else {
            return Err(StoreError::MalformedReply { want, got: 0 });
        };
        let numbers = values.iter().map_while(|value| match value {
            Value::Int(number) => Some(*number),
            _ => None,
        });
        let numbers: Vec<i64> = numbers.collect();
        if numbers.len() != want || values.len() != want {
            return Err(StoreError::MalformedReply { want, got: numbers.len() });
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
        Ok(numbers.chunks_exact(ANSWERS).filter_map(verdict).collect())
    }
}

/// Whether the call is of the common kind, for which the script has a short way.
fn is_plain(call: &Call) -> bool {
    match call.checks.as_slice() {
        [Check { limit: Limit { algorithm: AlgorithmKind::FixedWindow, window, .. }, .. }] => {
            matches!(window, Window::Length(_))
        }
        _ => false,
    }
}

/// Whether the only check of a call is charged though refused.
fn is_charged(check: &Check) -> bool {
    check.charge == Charge::Always || check.effect == Effect::Observe
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

    fn check() -> Check {
        Check {
            key: CounterKey::from_bytes(b"k"),
            limit: Limit {
                algorithm: AlgorithmKind::FixedWindow,
                amount: 1,
                window: Window::Length(1_000),
                burst: 1,
            },
            hits: Hits::Look,
            charge: Charge::Admitted,
            effect: Effect::Deny,
        }
    }

    #[track_caller]
    fn check_malformed(reply: &Value, got: usize) {
        let call = Call { checks: smallvec::smallvec![check()] };
        let batch = [call];
        let request = Request::new(&batch, None, 0);
        let error = request.decode(reply).unwrap_err();
        assert!(
            matches!(error, StoreError::MalformedReply { want: 5, got: found } if found == got)
        );
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error() {
        check_malformed(&Value::Nil, 0);
        check_malformed(&Value::Array(vec![Value::Int(1); 4]), 4);
        check_malformed(&Value::Array(vec![Value::Int(1); 6]), 6);
        check_malformed(&Value::Array([vec![Value::Int(1); 4], vec![Value::Nil]].concat()), 4);
    }
}
