//! What the Redis store does when Redis flushes, refuses, stops, dies or holds something else, and
//! how many commands it sends.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::clock::{Clock, Stopwatch};
use tollgate::model::{AlgorithmKind, Call, Hits, Limit, Timestamp, Verdict, Window};
use tollgate::settings::{RedisUrl, StoreSettings};
use tollgate::store::redis::RedisStore;
use tollgate::store::{Store, StoreError};

use crate::support::redis::RedisServer;
use crate::support::{MIDNIGHT, call, check, limit, redis_store, store_settings};

const DAY: Duration = Duration::from_secs(86_400);
/// Ten years, in which nothing refills that a test would see.
const AGES: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How long a store may take to work again; a second is what is promised.
const RECOVERY: Duration = Duration::from_secs(5);

fn take(key: &str, limit: Limit, hits: u64) -> Vec<Call> {
    vec![call([check(key, limit, Hits::Take(hits))])]
}

fn daily(amount: u32) -> Limit {
    limit(AlgorithmKind::FixedWindow, amount, DAY)
}

async fn decide_one(store: &RedisStore, batch: &[Call]) -> Verdict {
    store.decide(batch).await.unwrap()[0]
}

fn open(url: &RedisUrl, timeout: Duration) -> RedisStore {
    let settings =
        StoreSettings { timeout, connect_timeout: Duration::from_millis(500), ..store_settings() };
    RedisStore::new(url, &settings, Clock::System).unwrap()
}

/// Decides until it works.
async fn recover(store: &RedisStore, batch: &[Call]) -> Verdict {
    let watch = Stopwatch::start();
    loop {
        match store.decide(batch).await {
            Ok(verdicts) => return verdicts[0],
            Err(error) if watch.elapsed() > RECOVERY => panic!("still down: {error:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// The error and its causes, as a log line has them.
fn chain(error: &StoreError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error} {error:?}");
        cause = error.source();
    }
    text
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
async fn a_flush_of_scripts_is_never_seen_and_costs_one_body() {
    const TASKS: usize = 64;
    const CALLS: usize = 60;
    const FLUSHES: u64 = 20;
    let server = RedisServer::start();
    let store = Arc::new(redis_store(&server, Clock::System));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for _ in 0..CALLS {
                store.decide(&take("k", daily(1_000_000), 1)).await.unwrap();
            }
        });
    }
    for _ in 0..FLUSHES {
        server.run::<()>(&["SCRIPT", "FLUSH"]);
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tasks.join_all().await;
    let verdict = decide_one(&store, &take("k", daily(1_000_000), 1)).await;
    assert_eq!(verdict.used, (TASKS * CALLS) as u64, "every hit counted once");
    let bodies = server.calls_of("eval");
    assert!((1..=FLUSHES + 1).contains(&bodies), "{bodies} bodies for {FLUSHES} flushes");
    assert_eq!(server.calls_of("script|load"), 0);
}

#[tokio::test]
async fn a_user_without_script_commands_is_enough() {
    let server = RedisServer::start();
    server.run::<()>(&["ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-script"]);
    let store = open(&server.url_as("limited:pw@"), RECOVERY);
    assert!(decide_one(&store, &take("k", daily(1), 1)).await.allowed);
    server.run::<()>(&["SCRIPT", "FLUSH"]);
    assert!(!decide_one(&store, &take("k", daily(1), 1)).await.allowed);
}

#[tokio::test]
async fn a_unix_socket_works() {
    let server = RedisServer::start();
    let store = open(&server.unix_url(), RECOVERY);
    assert!(decide_one(&store, &take("k", daily(1), 1)).await.allowed);
}

#[tokio::test]
async fn an_absent_redis_is_named_at_once_and_used_when_it_comes() {
    let mut server = RedisServer::absent();
    // A call that waited for the timeout would show it.
    let store = open(&server.url(), Duration::from_secs(600));
    let batch = take("k", daily(1_000), 1);
    for _ in 0..100 {
        let error = store.decide(&batch).await.unwrap_err();
        assert_eq!(error.reason(), "connect");
        assert!(chain(&error).contains("refused"), "{}", chain(&error));
    }
    server.launch();
    assert_eq!(recover(&store, &batch).await.used, 0);
}

#[tokio::test]
async fn a_redis_that_was_killed_is_used_again() {
    let mut server = RedisServer::start();
    let store = open(&server.url(), RECOVERY);
    let batch = take("k", daily(1_000), 1);
    assert_eq!(decide_one(&store, &batch).await.used, 0);
    server.kill();
    for _ in 0..10 {
        store.decide(&batch).await.unwrap_err();
    }
    assert_eq!(store.decide(&batch).await.unwrap_err().reason(), "connect");
    server.launch();
    assert_eq!(recover(&store, &batch).await.used, 0);
    for used in 1..20 {
        assert_eq!(decide_one(&store, &batch).await.used, used, "no stale connection is left");
    }
}

#[tokio::test]
async fn a_frozen_redis_costs_no_more_than_the_timeout() {
    const TIMEOUT: Duration = Duration::from_millis(15);
    let server = RedisServer::start();
    let store = open(&server.url(), TIMEOUT);
    let batch = take("k", daily(1_000_000), 1);
    recover(&store, &batch).await;
    server.freeze();
    let watch = Stopwatch::start();
    for _ in 0..50 {
        let error = store.decide(&batch).await.unwrap_err();
        assert!(matches!(error.reason(), "timeout" | "connect"), "{error:?}");
    }
    // Far below what 50 waits of anything but that timeout would take.
    assert!(watch.elapsed() < 40 * 50 * TIMEOUT / 10, "{:?}", watch.elapsed());
    server.thaw();
    recover(&store, &batch).await;
}

#[tokio::test]
async fn a_wrong_password_is_named_and_not_shown() {
    let server = RedisServer::start_with(&["--requirepass", "right-secret"]);
    let store = open(&server.url_as("default:wrong-secret@"), RECOVERY);
    let error = store.decide(&take("k", daily(1), 1)).await.unwrap_err();
    assert_eq!(error.reason(), "connect");
    let text = format!("{} {store:?}", chain(&error));
    assert!(text.contains("WRONGPASS") || text.contains("authentication"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_plain_port_that_is_asked_for_tls_is_an_error() {
    let server = RedisServer::start();
    let url = RedisUrl::new(server.url().expose().replace("redis://", "rediss://"));
    let error = open(&url, RECOVERY).decide(&take("k", daily(1), 1)).await.unwrap_err();
    assert_eq!(error.reason(), "connect");
}

#[tokio::test]
async fn a_url_that_is_none_is_refused() {
    let result = RedisStore::new(&RedisUrl::new("http://x"), &store_settings(), Clock::System);
    assert_eq!(result.unwrap_err().reason(), "connect");
}

#[tokio::test]
async fn a_reply_that_says_read_only_drops_the_connections() {
    let server = RedisServer::start();
    let store = open(&server.url(), RECOVERY);
    let batch = take("k", daily(1_000), 1);
    assert_eq!(decide_one(&store, &batch).await.used, 0);
    let before: u64 = server.info("total_connections_received").unwrap().parse().unwrap();
    server.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = store.decide(&batch).await.unwrap_err();
    assert!(chain(&error).contains("read only"), "{}", chain(&error));
    server.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(recover(&store, &batch).await.used, 1);
    let after: u64 = server.info("total_connections_received").unwrap().parse().unwrap();
    assert!(after > before + 3, "more than the test's own: {before} to {after}");
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

/// A dropped call leaves its connection as it was.
#[tokio::test]
async fn a_call_that_is_given_up_does_no_harm() {
    let server = RedisServer::start();
    let store = redis_store(&server, Clock::System);
    let batch = take("k", daily(1_000_000), 1);
    decide_one(&store, &batch).await;
    for _ in 0..100 {
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => {}
            _ = store.decide(&batch) => {}
        }
    }
    let used = decide_one(&store, &batch).await.used;
    assert!((1..=101).contains(&used), "{used}");
    assert!(server.info("connected_clients").unwrap().parse::<u64>().unwrap() <= 3);
}
