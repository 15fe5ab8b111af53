//! The Lua text, its digest, and what goes to it and comes back.

mod give_back;
mod mixed;
mod plain;

use std::sync::LazyLock;

use redis::{Cmd, Value};

use self::give_back::GiveBack;
use self::mixed::Mixed;
use self::plain::Plain;
use crate::model::{Call, CounterKey, Timestamp, Verdict};
use crate::store::{StoreError, Taken, Unspent};

const TEXT: &str = concat!(
    include_str!("../../../lua/common.lua"),
    include_str!("../../../lua/plain.lua"),
    include_str!("../../../lua/give_back.lua"),
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

/// A batch, or hits to give back, as the script takes it.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// µs; 0 has Redis tell the time.
    now: u64,
    /// ms.
    jitter: u64,
    calls: Calls<'a>,
}

#[derive(Debug)]
enum Calls<'a> {
    Plain(Plain<'a>),
    Mixed(Mixed<'a>),
    GiveBack(GiveBack<'a>),
}

impl<'a> Request<'a> {
    /// `now`: `None` has Redis tell the time. `jitter`: ms by which keys outlive their state.
    pub(super) fn new(batch: &'a [Call], now: Option<Timestamp>, jitter: u64) -> Self {
        let calls = match Plain::try_new(batch) {
            Some(plain) => Calls::Plain(plain),
            None => Calls::Mixed(Mixed::new(batch)),
        };
        Self { now: now.map_or(0, Timestamp::as_micros), jitter, calls }
    }

    /// `now` as for [`Request::new`].
    pub(super) fn give_back(unspent: &'a [Unspent], now: Option<Timestamp>) -> Self {
        let calls = Calls::GiveBack(GiveBack::new(unspent));
        Self { now: now.map_or(0, Timestamp::as_micros), jitter: 0, calls }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys().is_empty()
    }

    /// The call by digest.
    pub(super) fn evalsha(&self) -> Cmd {
        self.command("EVALSHA", &DIGEST)
    }

    /// The call with the whole text, which Redis then knows by its digest.
    pub(super) fn eval(&self) -> Cmd {
        self.command("EVAL", TEXT)
    }

    fn keys(&self) -> &[&'a CounterKey] {
        match &self.calls {
            Calls::Plain(plain) => plain.keys(),
            Calls::Mixed(mixed) => mixed.keys(),
            Calls::GiveBack(back) => back.keys(),
        }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let keys = self.keys();
        let (kind, numbers) = match &self.calls {
            Calls::Plain(plain) => ("plain", plain.numbers()),
            Calls::Mixed(mixed) => ("mixed", mixed.numbers()),
            Calls::GiveBack(back) => ("give_back", back.numbers()),
        };
        let bytes: usize = keys.iter().map(|key| key.as_bytes().len()).sum();
        let arguments = 6 + keys.len() + numbers.len();
        let mut command =
            Cmd::with_capacity(arguments, script.len() + bytes + 8 * numbers.len() + 64);
        command.arg(name).arg(script).arg(keys.len());
        for key in keys {
            command.arg(key.as_bytes());
        }
        command.arg(self.now).arg(self.jitter).arg(kind);
        for number in numbers {
            command.arg(*number);
        }
        command
    }

    /// One verdict per check.
    pub(super) fn decode(&self, reply: &Value) -> Result<Vec<Verdict>, StoreError> {
        let numbers = numbers(reply);
        match &self.calls {
            Calls::Plain(plain) => plain.decode(&numbers),
            Calls::Mixed(mixed) => mixed.decode(&numbers),
            Calls::GiveBack(_) => Err(self.malformed(&numbers)),
        }
    }

    /// The verdict of a batch of one plain check, with the window that it speaks of.
    pub(super) fn decode_taken(&self, reply: &Value) -> Result<Taken, StoreError> {
        let numbers = numbers(reply);
        match (&self.calls, numbers.as_slice()) {
            (Calls::Plain(plain), [_, _]) => {
                let verdicts = plain.decode(&numbers)?;
                let verdict = *verdicts.first().ok_or_else(|| self.malformed(&numbers))?;
                Ok(Taken { verdict, window: plain.window(&numbers) })
            }
            _ => Err(self.malformed(&numbers)),
        }
    }

    /// How many hits were given back in all.
    pub(super) fn decode_given_back(&self, reply: &Value) -> Result<u64, StoreError> {
        let numbers = numbers(reply);
        match &self.calls {
            Calls::GiveBack(back) => back.decode(&numbers),
            Calls::Plain(_) | Calls::Mixed(_) => None,
        }
        .ok_or_else(|| self.malformed(&numbers))
    }

    fn malformed(&self, numbers: &[i64]) -> StoreError {
        StoreError::MalformedReply { want: self.keys().len(), got: numbers.len() }
    }
}

/// The whole numbers of a reply; none if it is anything else.
fn numbers(reply: &Value) -> Vec<i64> {
    let Value::Array(values) = reply else { return Vec::new() };
    let numbers = values.iter().map(|value| match value {
        Value::Int(number) => Some(*number),
        _ => None,
    });
    numbers.collect::<Option<_>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::model::{AlgorithmKind, Charge, Check, Consistency, Effect, Hits, Limit, Window};

    fn batch(hits: Hits) -> [Call; 1] {
        let check = Check {
            key: CounterKey::from_bytes(b"k"),
            limit: Limit {
                algorithm: AlgorithmKind::FixedWindow,
                amount: 1,
                window: Window::Length(1_000),
                burst: 1,
            },
            hits,
            charge: Charge::Admitted,
            effect: Effect::Deny,
            consistency: Consistency::Strict,
        };
        [Call { checks: smallvec![check] }]
    }

    #[track_caller]
    fn check_malformed(hits: Hits, reply: &Value) {
        let batch = batch(hits);
        let error = Request::new(&batch, None, 0).decode(reply).unwrap_err();
        assert!(matches!(error, StoreError::MalformedReply { .. }), "{error}");
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error() {
        for (hits, right) in [(Hits::Look, 5), (Hits::Take(1), 2)] {
            check_malformed(hits, &Value::Nil);
            check_malformed(hits, &Value::Array(vec![Value::Int(1); right - 1]));
            check_malformed(hits, &Value::Array(vec![Value::Int(1); right + 1]));
            let nil = [vec![Value::Int(1); right - 1], vec![Value::Nil]].concat();
            check_malformed(hits, &Value::Array(nil));
            let batch = batch(hits);
            let request = Request::new(&batch, None, 0);
            assert!(request.decode(&Value::Array(vec![Value::Int(1); right])).is_ok());
        }
    }
}
