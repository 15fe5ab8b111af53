//! What the Redis store sends and stores, and that it admits exactly the limit.

mod outage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::clock::Clock;
use tollgate::model::{AlgorithmKind, Call, Hits, Limit, Timestamp, Verdict, Window};
use tollgate::settings::StoreSettings;
use tollgate::store::Store;
use tollgate::store::redis::RedisStore;

use crate::support::redis::RedisServer;
use crate::support::{MIDNIGHT, call, check, limit, redis_store, store_settings};

const DAY: Duration = Duration::from_secs(86_400);
/// Ten years, in which nothing refills that a test would see.
const AGES: Duration = Duration::from_secs(10 * 365 * 86_400);
fn take(key: &str, limit: Limit, hits: u64) -> Vec<Call> {
    vec![call([check(key, limit, Hits::Take(hits))])]
}

fn daily(amount: u32) -> Limit {
    limit(AlgorithmKind::FixedWindow, amount, DAY)
}

async fn decide_one(store: &RedisStore, batch: &[Call]) -> Verdict {
    store.decide(batch).await.unwrap()[0]
}

/// Every key with its time to live in ms.
fn ttls(server: &RedisServer) -> Vec<(String, i64)> {
    let keys: Vec<String> = server.run(&["KEYS", "*"]);
    keys.into_iter()
        .map(|key| {
            let ttl = server.run(&["PTTL", &key]);
            (key, ttl)
        })
        .collect()
}

#[tokio::test]
async fn every_key_expires_and_no_later_than_its_state() {
    let server = RedisServer::start();
    let store = redis_store(&server, Clock::System);
    let window = Duration::from_secs(100);
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 10, window);
        for hits in [Hits::Take(4), Hits::Take(9), Hits::Take(3), Hits::Refund(2), Hits::Look] {
            store.decide(&[call([check(algorithm.name(), limit, hits)])]).await.unwrap();
        }
        let refused = format!("{} refused", algorithm.name());
        store.decide(&take(&refused, limit, 11)).await.unwrap();
        let none = Limit { amount: 0, ..limit };
        store.decide(&take(&format!("{} none", algorithm.name()), none, 1)).await.unwrap();
    }
    let ttls = ttls(&server);
    assert_eq!(ttls.len(), AlgorithmKind::ALL.len(), "refused hits store nothing: {ttls:?}");
    for (key, ttl) in ttls {
        let most = match key.as_str() {
            "sliding_window_counter" => 200_000,
            // 5 of 10 hits are left to drain.
            "token_bucket" | "gcra" => 50_000,
            _ => 100_000,
        };
        assert!((1..=most).contains(&ttl), "{key} lives {ttl} ms");
    }
}

#[tokio::test]
async fn jitter_only_lengthens_the_life_of_a_key() {
    let server = RedisServer::start();
    let settings = StoreSettings { ttl_jitter: Duration::from_secs(1_000), ..store_settings() };
    let store = RedisStore::new(&server.url(), &settings, Clock::manual(MIDNIGHT)).unwrap();
    for key in 0..50 {
        store.decide(&take(&key.to_string(), daily(1), 1)).await.unwrap();
    }
    let day = 86_400_000;
    let mut lives: Vec<i64> = ttls(&server).into_iter().map(|(_, ttl)| ttl).collect();
    lives.sort_unstable();
    // The test itself takes less than 20 s of it.
    assert!(lives[0] > day - 20_000 && lives[49] <= day + 1_000_000, "{lives:?}");
    assert!(lives[49] - lives[0] > 100_000, "they differ: {lives:?}");
}

#[tokio::test]
async fn a_decision_is_one_command_on_few_connections() {
    const CALLS: u64 = 500;
    let server = RedisServer::start();
    let store = Arc::new(redis_store(&server, Clock::System));
    decide_one(&store, &take("k", daily(1_000_000), 1)).await;
    let (before, sent) = (server.calls_of("evalsha"), store.commands());
    let mut tasks = JoinSet::new();
    for _ in 0..CALLS {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let limit = daily(1_000_000);
            let pair = call([check("k", limit, Hits::Take(1)), check("l", limit, Hits::Take(1))]);
            store.decide(&[pair.clone(), pair]).await.unwrap();
        });
    }
    tasks.join_all().await;
    assert_eq!(server.calls_of("evalsha") - before, CALLS);
    assert_eq!(store.commands() - sent, CALLS);
    let gets = server.calls_of("get");
    assert_eq!((gets, server.calls_of("set")), (2 * CALLS + 1, 2 * CALLS + 1), "once per key");
    let clients: usize = server.info("connected_clients").unwrap().parse().unwrap();
    assert!(clients <= store_settings().connections + 1, "{clients} clients");
    // The test's own connections ask once each when they are opened.
    let opened: u64 = server.info("total_connections_received").unwrap().parse().unwrap();
    assert!(server.calls_of("ping") <= opened, "no check per call");
}

#[tokio::test]
async fn what_does_not_parse_counts_as_unused_and_is_replaced() {
    let server = RedisServer::start();
    let clock = Clock::manual(MIDNIGHT);
    let store = redis_store(&server, clock);
    let stored: [&[&str]; 12] = [
        &["SET", "k", ""],
        &["SET", "k", "x"],
        &["SET", "k", "1:2:3:4"],
        &["SET", "k", "-1:5:5"],
        &["SET", "k", "1e300:1e300"],
        &["SET", "k", "99999999999999999999:1"],
        &["SET", "k", "99999999999999999999:1:1"],
        &["SET", "k", "1750032000000000:5:999999999999999"],
        &["RPUSH", "k", "a", "b"],
        &["RPUSH", "k", "1750032000000000:1:1", "b", "c"],
        &["RPUSH", "k", "a", "1750032000000000:1:1"],
        &["HSET", "k", "a", "b"],
    ];
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 10, Duration::from_secs(100));
        for words in stored {
            server.run::<()>(words);
            let verdict = decide_one(&store, &take("k", limit, 4)).await;
            assert_eq!((verdict.used, verdict.remaining), (0, 6), "{algorithm:?} on {words:?}");
            let verdict = decide_one(&store, &take("k", limit, 6)).await;
            assert_eq!((verdict.used, verdict.remaining), (4, 0), "{algorithm:?} on {words:?}");
            server.run::<()>(&["DEL", "k"]);
        }
    }
}

#[tokio::test]
async fn a_log_with_a_fault_inside_starts_anew() {
    let server = RedisServer::start();
    let clock = Clock::manual(MIDNIGHT);
    let store = redis_store(&server, clock.clone());
    let limit = limit(AlgorithmKind::SlidingWindowLog, 8, Duration::from_secs(100));
    let at = |secs: u64| clock.set(MIDNIGHT + Duration::from_secs(secs));
    let mut hits_after = Vec::new();
    for hits in [Hits::Refund(4), Hits::Take(5)] {
        server.run::<()>(&["FLUSHALL"]);
        for second in 0..8 {
            at(second);
            decide_one(&store, &take("k", limit, 1)).await;
        }
        for index in ["1", "2", "3", "4", "5", "6"] {
            server.run::<()>(&["LSET", "k", index, "?"]);
        }
        // Both have to search, and meet the fault.
        at(8);
        store.decide(&[call([check("k", limit, hits)])]).await.unwrap();
        at(103);
        hits_after.push(decide_one(&store, &take("k", limit, 8)).await.used);
    }
    assert_eq!(hits_after, [0, 5], "only what came after the fault counts");
}

/// As many calls as tasks can send, through two stores: exactly the limit is admitted.
async fn check_exact(algorithm: AlgorithmKind) {
    const LIMIT: u32 = 1_000;
    const TASKS: u64 = 64;
    const CALLS: u64 = 20_000;
    let server = RedisServer::start();
    let stores = [(); 2].map(|()| Arc::new(redis_store(&server, Clock::System)));
    let limit = limit(algorithm, LIMIT, AGES);
    let admitted = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let store = Arc::clone(&stores[task as usize % 2]);
        let admitted = Arc::clone(&admitted);
        tasks.spawn(async move {
            for _ in 0..CALLS.div_ceil(TASKS) {
                let verdict = decide_one(&store, &take("k", limit, 1)).await;
                admitted.fetch_add(u64::from(verdict.allowed), Relaxed);
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(admitted.load(Relaxed), u64::from(LIMIT), "{algorithm:?}");
}

#[tokio::test]
async fn fixed_windows_admit_exactly_the_limit() {
    check_exact(AlgorithmKind::FixedWindow).await;
}

#[tokio::test]
async fn sliding_logs_admit_exactly_the_limit() {
    check_exact(AlgorithmKind::SlidingWindowLog).await;
}

#[tokio::test]
async fn sliding_counters_admit_exactly_the_limit() {
    check_exact(AlgorithmKind::SlidingWindowCounter).await;
}

#[tokio::test]
async fn token_buckets_admit_exactly_the_burst() {
    check_exact(AlgorithmKind::TokenBucket).await;
}

#[tokio::test]
async fn gcra_admits_exactly_the_burst() {
    check_exact(AlgorithmKind::Gcra).await;
}

/// A calendar window is picked by the time of the store, not by that of the caller.
#[tokio::test]
async fn the_time_is_that_of_redis() {
    let server = RedisServer::start();
    let store = redis_store(&server, Clock::System);
    let time: (u64, u64) = server.run(&["TIME"]);
    let bounds = [-2, -1, 1, 2]
        .map(|days: i64| Timestamp::from_secs(time.0.saturating_add_signed(days * 86_400)));
    let limit = Limit { window: Window::Calendar(bounds), ..daily(5) };
    let verdict = decide_one(&store, &take("k", limit, 1)).await;
    let day = 86_400_000_000;
    assert!((day - 60_000_000..=day).contains(&verdict.reset), "{}", verdict.reset);
}

#[tokio::test]
async fn a_log_has_one_entry_per_instant() {
    let server = RedisServer::start();
    let clock = Clock::manual(MIDNIGHT);
    let store = redis_store(&server, clock.clone());
    let limit = limit(AlgorithmKind::SlidingWindowLog, 1_000, DAY);
    for instant in 0..3 {
        clock.set(MIDNIGHT + Duration::from_secs(instant));
        for _ in 0..10 {
            decide_one(&store, &take("k", limit, 3)).await;
        }
    }
    assert_eq!(server.run::<u64>(&["LLEN", "k"]), 3);
    let newest: String = server.run(&["LINDEX", "k", "-1"]);
    assert_eq!(newest, "1750032002000000:30:90");
}

#[tokio::test]
async fn states_can_be_read_in_redis() {
    let server = RedisServer::start();
    let clock = Clock::manual(MIDNIGHT + Duration::from_secs(1));
    let store = redis_store(&server, clock);
    for (algorithm, want) in [
        (AlgorithmKind::FixedWindow, "1750032000000:4"),
        (AlgorithmKind::SlidingWindowCounter, "1750032000000:0:4"),
        (AlgorithmKind::TokenBucket, "1750032001000000:4:0"),
    ] {
        decide_one(&store, &take(algorithm.name(), limit(algorithm, 10, DAY), 4)).await;
        assert_eq!(server.run::<String>(&["GET", algorithm.name()]), want);
    }
}
