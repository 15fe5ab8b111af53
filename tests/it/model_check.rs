//! The script in Redis and `tollgate::algorithm` are one function: random batches get the same
//! verdicts from both, to the bit.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use tollgate::algorithm::{self, Refused, State};
use tollgate::clock::Clock;
use tollgate::model::{
    AlgorithmKind, Call, Charge, Check, Consistency, CounterKey, Effect, Hits, Limit, MAX_HITS,
    MAX_WINDOW, Timestamp, Verdict, Window,
};
use tollgate::store::Store;

use crate::support::redis::RedisServer;
use crate::support::{MIDNIGHT, call, check, limit, redis_store, runtime};

/// Fewer than a search for faults wants, enough to notice one: set `PROPTEST_CASES` for more.
const CASES: u32 = 400;

/// The specification: `algorithm::decide` over a map.
#[derive(Default)]
struct Reference(HashMap<CounterKey, State>);

impl Reference {
    fn decide(&mut self, batch: &[Call], now: Timestamp) -> Vec<Verdict> {
        let before = self.0.clone();
        let verdicts = batch.iter().flat_map(|call| self.decide_call(call, now)).collect();
        // Redis keeps expired entries of a log until the next charge, which only a clock that
        // steps back can tell.
        for check in batch.iter().flat_map(|call| &call.checks) {
            let mut looked = before.get(&check.key).cloned();
            algorithm::check(&check.limit, &mut looked, Hits::Look, now, Refused::Uncharged);
            if let Some(state) = before.get(&check.key)
                && self.0.get(&check.key) == looked.as_ref()
            {
                self.0.insert(check.key.clone(), state.clone());
            }
        }
        verdicts
    }

    fn decide_call(&mut self, call: &Call, now: Timestamp) -> Vec<Verdict> {
        let mut keys: Vec<&CounterKey> = Vec::new();
        let mut slots = Vec::new();
        for check in &call.checks {
            let known = keys.iter().position(|key| **key == check.key);
            slots.push(known.unwrap_or(keys.len()));
            if known.is_none() {
                keys.push(&check.key);
            }
        }
        let mut states: Vec<_> = keys.iter().map(|key| self.0.remove(*key)).collect();
        let verdicts = algorithm::decide(&call.checks, &slots, &mut states, now);
        let kept = keys.into_iter().zip(states);
        self.0.extend(kept.filter_map(|(key, state)| Some((key.clone(), state?))));
        verdicts.into_vec()
    }
}

/// A counter, with two limits that it may have over time.
#[derive(Debug, Clone)]
struct Counter {
    limits: [Limit; 2],
}

#[derive(Debug, Clone)]
struct Step {
    /// How far the clock goes, in parts of the window of one of the counters.
    counter: Index,
    stride: Stride,
    calls: Vec<Vec<Spec>>,
}

#[derive(Debug, Clone)]
enum Stride {
    Stay,
    Micros(i64),
    /// Thousandths of a window.
    Windows(i64),
}

#[derive(Debug, Clone)]
struct Spec {
    counter: Index,
    limit: Index,
    hits: Hits,
    charge: Charge,
    effect: Effect,
}

fn amounts() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 1..12_u32,
        1 => Just(0),
        1 => 100..2_000_u32,
        1 => select(vec![u32::MAX, u32::MAX - 1, 1 << 31]),
        1 => any::<u32>(),
    ]
}

fn lengths() -> impl Strategy<Value = u64> {
    let millis = prop_oneof![
        3 => select(vec![1, 7, 1_000, 60_000, 999_983, 86_400_000, MAX_WINDOW / 1_000]),
        1 => 1..=MAX_WINDOW / 1_000,
        1 => 1..10_000_u64,
    ];
    millis.prop_map(|millis| millis * 1_000)
}

fn windows(algorithm: AlgorithmKind) -> BoxedStrategy<Window> {
    let length = lengths().prop_map(Window::Length);
    if algorithm != AlgorithmKind::FixedWindow {
        return length.boxed();
    }
    let calendar = vec(1..3_000_000_u64, 4).prop_map(|spans| {
        let mut bound = MIDNIGHT.as_secs() - spans[0];
        Window::Calendar([0, 1, 2, 3].map(|place| {
            bound += if place == 0 { 0 } else { spans[place] };
            Timestamp::from_secs(bound)
        }))
    });
    prop_oneof![4 => length, 1 => calendar].boxed()
}

fn counter(algorithms: Vec<AlgorithmKind>) -> impl Strategy<Value = Counter> {
    select(algorithms).prop_flat_map(|algorithm| {
        (windows(algorithm), [amounts(), amounts()], [amounts(), amounts()]).prop_map(
            move |(window, amounts, bursts)| {
                let limit = |place: usize| {
                    let amount = amounts[place];
                    // The rules refuse a bucket that takes longer to refill than this.
                    let most = u128::from(MAX_WINDOW) * u128::from(amount)
                        / u128::from(window.length().max(1));
                    let burst = u128::from(bursts[place].max(1)).min(most);
                    let burst = if algorithm.has_burst() { burst } else { amount.into() };
                    Limit { algorithm, amount, window, burst: burst.try_into().unwrap() }
                };
                Counter { limits: [limit(0), limit(1)] }
            },
        )
    })
}

/// Any counters and calls, or only the common kind, for which the script has a short way.
fn histories() -> impl Strategy<Value = (Vec<Counter>, Vec<Step>)> {
    let of = |algorithms: Vec<AlgorithmKind>, checks: std::ops::Range<usize>| {
        (vec(counter(algorithms), 1..4), vec(step(checks), 1..14))
    };
    prop_oneof![
        3 => of(AlgorithmKind::ALL.to_vec(), 1..5),
        1 => of(vec![AlgorithmKind::FixedWindow], 1..2),
    ]
}

fn hits() -> impl Strategy<Value = Hits> {
    let counts = || {
        prop_oneof![
            6 => 1..8_u64,
            2 => 1..2_000_u64,
            1 => 1..=MAX_HITS,
            1 => select(vec![MAX_HITS, MAX_HITS - 1, 1 << 32, (1 << 52) + 1, u32::MAX.into()]),
        ]
    };
    prop_oneof![
        7 => counts().prop_map(Hits::Take),
        1 => Just(Hits::Look),
        2 => counts().prop_map(Hits::Refund),
    ]
}

fn specs() -> impl Strategy<Value = Spec> {
    let charge = prop_oneof![3 => Just(Charge::Admitted), 1 => Just(Charge::Always)];
    let effect = prop_oneof![
        5 => Just(Effect::Deny),
        1 => Just(Effect::Observe),
        2 => (0..3_u16).prop_map(Effect::Quota),
    ];
    (any::<Index>(), any::<Index>(), hits(), charge, effect).prop_map(
        |(counter, limit, hits, charge, effect)| Spec { counter, limit, hits, charge, effect },
    )
}

fn step(checks: std::ops::Range<usize>) -> impl Strategy<Value = Step> {
    let stride = prop_oneof![
        2 => Just(Stride::Stay),
        2 => (-3..2_000_i64).prop_map(Stride::Micros),
        4 => (0..1_200_i64).prop_map(Stride::Windows),
        3 => select(vec![250, 500, 1_000, 2_000]).prop_map(Stride::Windows),
        1 => (-2_500..4_000_i64).prop_map(Stride::Windows),
    ];
    let calls = vec(prop_oneof![1 => vec(specs(), 1), 1 => vec(specs(), checks)], 1..5);
    (any::<Index>(), stride, calls).prop_map(|(counter, stride, calls)| Step {
        counter,
        stride,
        calls,
    })
}

fn advance(now: u64, stride: &Stride, window: u64) -> u64 {
    let micros = match *stride {
        Stride::Stay => 0,
        Stride::Micros(micros) => micros,
        Stride::Windows(parts) => i64::try_from(window / 1_000).unwrap() * parts,
    };
    now.saturating_add_signed(micros).clamp(MIDNIGHT.as_micros() / 2, 2 * MIDNIGHT.as_micros())
}

fn build(step: &Step, counters: &[Counter], case: u64) -> Vec<Call> {
    let check = |spec: &Spec| {
        let place = spec.counter.index(counters.len());
        Check {
            key: CounterKey::from_bytes(format!("{case}|{place}").as_bytes()),
            limit: *spec.limit.get(&counters[place].limits),
            hits: spec.hits,
            charge: spec.charge,
            effect: spec.effect,
            consistency: Consistency::Strict,
        }
    };
    step.calls.iter().map(|specs| Call { checks: specs.iter().map(check).collect() }).collect()
}

/// A log of hundreds of entries, in which searches take several steps.
#[test]
fn a_long_log_is_searched_as_it_is_walked() {
    let server = RedisServer::start();
    let runtime = runtime();
    let clock = Clock::manual(MIDNIGHT);
    let store = runtime.block_on(async { redis_store(&server, clock.clone()) });
    let limit = limit(AlgorithmKind::SlidingWindowLog, 900, Duration::from_secs(1));
    let mut reference = Reference::default();
    let mut now = MIDNIGHT.as_micros();
    let mut random = 1_u64;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (random >> 33) % most
    };
    for place in 0..4_000 {
        now += match below(100) {
            0 => below(900_000),
            1..30 => 0,
            _ => below(1_500),
        };
        clock.set(Timestamp::from_micros(now));
        let hits = match below(20) {
            0 => Hits::Refund(1 + below(300)),
            1 => Hits::Take(1 + below(400)),
            _ => Hits::Take(1 + below(2)),
        };
        let batch = [call([check("k", limit, hits)])];
        let want = reference.decide(&batch, Timestamp::from_micros(now));
        let got = runtime.block_on(store.decide(&batch)).unwrap();
        assert_eq!(got, want, "step {place} at {now}: {hits:?}");
    }
}

/// Windows after which Redis no longer has a key, which a clock that is handed in can't tell it.
const FORGOTTEN: u64 = 1 << 18;

#[test]
fn redis_decides_as_the_algorithms_do() {
    let server = RedisServer::start();
    let runtime = runtime();
    let clock = Clock::manual(MIDNIGHT);
    let store = runtime.block_on(async { redis_store(&server, clock.clone()) });
    let config = Config { failure_persistence: None, ..Config::default() };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { CASES };
    let cases_begun = Cell::new(0);
    TestRunner::new(Config { cases, ..config })
        .run(&histories(), |(counters, steps)| {
            let case = cases_begun.replace(cases_begun.get() + 1);
            let mut reference = Reference::default();
            let mut now = MIDNIGHT.as_micros();
            for (place, step) in steps.iter().enumerate() {
                let window = step.counter.get(&counters).limits[0].window.length();
                now = advance(now, &step.stride, window);
                clock.set(Timestamp::from_micros(now));
                let batch = build(step, &counters, case);
                for check in batch.iter().flat_map(|call| &call.checks) {
                    let Some(state) = reference.0.get(&check.key) else { continue };
                    let age = state.expires_at(&check.limit).as_micros().abs_diff(now);
                    if age / check.limit.window.length() > FORGOTTEN {
                        server.run::<()>(&["DEL", &check.key.to_string()]);
                        reference.0.remove(&check.key);
                    }
                }
                let want = reference.decide(&batch, Timestamp::from_micros(now));
                let got = runtime.block_on(store.decide(&batch)).unwrap();
                prop_assert_eq!(got, want, "step {} at {}: {:?}", place, now, batch);
            }
            Ok(())
        })
        .unwrap();
}

/// What `expression` gives in the script, with `arguments` from `ARGV[4]` on.
fn evaluate(
    connection: &mut redis::Connection,
    expression: &str,
    arguments: &[u64],
) -> (u128, u128) {
    let functions =
        concat!(include_str!("../../lua/common.lua"), include_str!("../../lua/exact.lua"));
    let mut command = redis::cmd("EVAL");
    command.arg(format!(
        "{functions}
         local a, b, c = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
         local one, two = {expression}
         return {{ tonumber(one), two or 0 }}"
    ));
    command.arg(0).arg(1_000_000).arg(7).arg("").arg(arguments);
    command.query(connection).unwrap()
}

fn muldiv(connection: &mut redis::Connection, [a, b, c]: [u64; 3]) -> ((u128, u128), (u128, u128)) {
    let product = u128::from(a) * u128::from(b);
    let want = (product / u128::from(c), product % u128::from(c));
    (evaluate(connection, "muldiv(a, b, c)", &[a, b, c]), want)
}

/// Against 128-bit integers.
#[test]
fn the_script_multiplies_and_divides_exactly() {
    let server = RedisServer::start();
    let connection = RefCell::new(server.connection());
    let operand = |bits: u32| (0..=bits).prop_flat_map(|bits| 0..=(1_u64 << bits) - 1);
    let operands = (operand(53), operand(51), operand(53));
    let config = Config { failure_persistence: None, cases: 10_000, ..Config::default() };
    TestRunner::new(config)
        .run(&operands, |(a, b, c)| {
            let c = c.max(1);
            let is_large = u128::from(a) * u128::from(b) / u128::from(c) > u128::from(MAX_HITS);
            if is_large || (c > 1 << 51 && b >= c) {
                return Ok(()); // not asked of it
            }
            let (got, want) = muldiv(&mut connection.borrow_mut(), [a, b, c]);
            prop_assert_eq!(got, want, "{} * {} / {}", a, b, c);
            Ok(())
        })
        .unwrap();
    // Sums that are exactly the divisor, in each of the ways that it works.
    for operands in [
        [12, 1 << 50, 3 << 50],
        [MAX_HITS - 1, 1 << 50, 1 << 52],
        [MAX_HITS, MAX_WINDOW, MAX_WINDOW],
        [MAX_HITS, 1, MAX_HITS],
        [1 << 32, MAX_WINDOW, 1 << 32],
    ] {
        let (got, want) = muldiv(&mut connection.borrow_mut(), operands);
        assert_eq!(got, want, "{operands:?}");
    }
}

/// The time is 1 s after the epoch and the jitter 7 ms.
#[test]
fn keys_live_until_their_state_is_worth_nothing() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for (expires, want) in [(1_001_500, 2), (1_002_000, 2), (1_000_001, 1), (1_000_000, 1), (0, 1)]
    {
        let got = evaluate(&mut connection, "ttl(a)", &[expires]).0;
        assert_eq!(got, want + 7, "until {expires}");
    }
}
