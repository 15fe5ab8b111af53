//! The embedded store when it is full, swept and shared between threads.

use std::sync::Arc;

use super::*;
use crate::model::{AlgorithmKind, Consistency, Hits, Limit, Window};

const S: u64 = 1_000_000;

fn store(max_keys: usize) -> (MemoryStore, Clock) {
    let clock = Clock::manual(Timestamp::from_secs(1_000));
    let settings = MemorySettings { max_keys, max_bytes: usize::MAX };
    (MemoryStore::new(&settings, clock.clone()), clock)
}

fn check(key: &str, algorithm: AlgorithmKind, amount: u32, hits: u64) -> Check {
    Check {
        key: CounterKey::from_bytes(key.as_bytes()),
        limit: Limit { algorithm, amount, window: Window::Length(100 * S), burst: amount },
        hits: Hits::Take(hits),
        charge: Charge::Admitted,
        effect: Effect::Deny,
        consistency: Consistency::Strict,
    }
}

fn decide(store: &MemoryStore, checks: &[Check]) -> Vec<bool> {
    let call = Call { checks: checks.iter().cloned().collect() };
    store.decide_now(&call).iter().map(|verdict| verdict.allowed).collect()
}

#[test]
fn a_denied_call_charges_none_of_its_counters() {
    let (store, _) = store(1_000);
    let fixed = |key: &str, amount| check(key, AlgorithmKind::FixedWindow, amount, 1);
    assert_eq!(decide(&store, &[fixed("narrow", 1), fixed("wide", 2)]), [true, true]);
    assert_eq!(decide(&store, &[fixed("narrow", 1), fixed("wide", 2)]), [false, true]);
    assert_eq!(decide(&store, &[fixed("wide", 2)]), [true]);
    assert_eq!(decide(&store, &[fixed("wide", 2)]), [false]);
}

#[test]
fn expired_counters_are_swept_and_live_ones_stay() {
    let (store, clock) = store(100_000);
    for algorithm in AlgorithmKind::ALL {
        for key in 0..1_000 {
            decide(&store, &[check(&format!("{algorithm:?}{key}"), algorithm, 10, 1)]);
        }
    }
    assert_eq!(store.stats().keys, 5_000);
    clock.set(Timestamp::from_secs(1_090));
    decide(&store, &[check("SlidingWindowLog0", AlgorithmKind::SlidingWindowLog, 10, 1)]);
    store.sweep();
    // Buckets drained in 10 s; the windows end at 1,100, counters live for two of them.
    assert_eq!(store.stats().keys, 3_000);
    clock.set(Timestamp::from_secs(1_120));
    store.sweep();
    assert_eq!(store.stats().keys, 1_001, "sliding counters, and the log charged at 1,090");
    clock.set(Timestamp::from_secs(1_300));
    store.sweep();
    let stats = store.stats();
    assert_eq!((stats.keys, stats.bytes, stats.expirations), (0, 0, 5_000));
}

#[test]
fn a_full_store_evicts_counters_below_their_limit_first() {
    let (store, _) = store(64);
    let fixed = |key: &str| check(key, AlgorithmKind::FixedWindow, 2, 1);
    for key in 0..32 {
        let key = format!("hot{key}");
        assert_eq!(decide(&store, &[fixed(&key)]), [true]);
        assert_eq!(decide(&store, &[fixed(&key)]), [true]);
    }
    for key in 0..1_000 {
        assert_eq!(decide(&store, &[fixed(&format!("cold{key}"))]), [true]);
    }
    for key in 0..32 {
        assert_eq!(decide(&store, &[fixed(&format!("hot{key}"))]), [false], "hot{key} was evicted");
    }
    let stats = store.stats();
    assert_eq!((stats.keys, stats.evictions), (64, 968));
}

#[test]
fn a_full_store_evicts_what_expires_soonest() {
    let (store, _) = store(64);
    let bucket = |key: &str, hits| check(key, AlgorithmKind::Gcra, 100, hits);
    for key in 0..32 {
        decide(&store, &[bucket(&format!("late{key}"), 90)]);
    }
    for key in 0..200 {
        decide(&store, &[bucket(&format!("soon{key}"), 1)]);
    }
    for key in 0..32 {
        assert_eq!(decide(&store, &[bucket(&format!("late{key}"), 20)]), [false], "late{key}");
    }
}

#[test]
fn logs_count_against_the_cap_on_bytes() {
    let clock = Clock::manual(Timestamp::from_secs(1_000));
    let settings = MemorySettings { max_keys: 100, max_bytes: 50_000 };
    let store = MemoryStore::new(&settings, clock.clone());
    for key in 0..100 {
        for tick in 0..100 {
            clock.set(Timestamp::from_micros(1_000 * S + tick));
            decide(&store, &[check(&key.to_string(), AlgorithmKind::SlidingWindowLog, 1_000, 1)]);
            assert!(store.stats().bytes <= 50_000);
        }
    }
    assert!(store.stats().evictions > 0);
}

#[test]
fn slots_are_as_small_as_documented() {
    assert_eq!(size_of::<shard::Slot>(), 64);
}

#[test]
fn threads_admit_exactly_the_limit() {
    for algorithm in AlgorithmKind::ALL {
        let (store, _) = store(1_000);
        let store = Arc::new(store);
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let calls = (0..1_000).filter(|_| {
                            // Both orders of two keys: neither may wait for the other for ever.
                            let (a, b) =
                                (check("a", algorithm, 500, 1), check("b", algorithm, 900, 1));
                            let all =
                                [decide(&store, &[a.clone(), b.clone()]), decide(&store, &[b, a])];
                            all[0] == [true, true] || all[1] == [true, true]
                        });
                        calls.count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(admitted <= 500, "{algorithm:?} admitted {admitted}");
        assert_eq!(decide(&store, &[check("b", algorithm, 900, 400)]), [true], "{algorithm:?}");
        assert_eq!(decide(&store, &[check("b", algorithm, 900, 1)]), [false], "{algorithm:?}");
    }
}

#[test]
fn live_counters_are_found_again_whatever_comes_and_goes() {
    let (store, clock) = store(1_000_000);
    let used = |key: u32, algorithm| {
        let mut look = check(&format!("live{key}"), algorithm, 100, 1);
        look.hits = Hits::Look;
        let call = Call { checks: [look].into_iter().collect() };
        store.decide_now(&call)[0].used
    };
    for round in 0..20 {
        clock.set(Timestamp::from_secs(1_000 + 20 * round));
        for key in 0..500 {
            decide(&store, &[check(&format!("live{key}"), AlgorithmKind::Gcra, 100, 100)]);
        }
        for key in 0..3_000 {
            decide(&store, &[check(&format!("{round}/{key}"), AlgorithmKind::TokenBucket, 10, 1)]);
        }
        clock.set(Timestamp::from_secs(1_000 + 20 * round + 19));
        store.sweep();
        assert_eq!(store.stats().keys, 500, "round {round}");
        for key in 0..500 {
            assert_ne!(used(key, AlgorithmKind::Gcra), 0, "live{key} in round {round}");
        }
    }
}
