//! Flushed, refused, frozen, killed: what callers see, and how soon it works again.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::clock::{Clock, Stopwatch};
use tollgate::model::{AlgorithmKind, Call, Hits, Verdict};
use tollgate::settings::{RedisUrl, StoreSettings};
use tollgate::store::redis::RedisStore;
use tollgate::store::{Store, StoreError};

use super::{daily, decide_one, take};
use crate::support::redis::{RedisServer, redis_url};
use crate::support::{call, check, limit, redis_store, store_settings};

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a store may take to work again; a second is what is promised.
const RECOVERY: Duration = Duration::from_secs(5);

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

/// Proxies and access lists often refuse `SCRIPT`; these commands are all that is needed.
#[tokio::test]
async fn a_user_without_script_commands_is_enough() {
    let server = RedisServer::start();
    server.run::<()>(&[
        "ACL", "SETUSER", "limited", "on", ">pw", "~*", "+eval", "+evalsha", "+time", "+get",
        "+set", "+del", "+lindex", "+llen", "+ltrim", "+rpush", "+pexpire",
    ]);
    let store = open(&server.url_as("limited:pw@"), RECOVERY);
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 3, Duration::from_secs(86_400));
        for hits in [Hits::Take(2), Hits::Take(2), Hits::Refund(1), Hits::Refund(1)] {
            store.decide(&[call([check(algorithm.name(), limit, hits)])]).await.unwrap();
            server.run::<()>(&["SCRIPT", "FLUSH"]);
        }
        assert_eq!(decide_one(&store, &take(algorithm.name(), limit, 1)).await.used, 0);
    }
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
    // A busy machine may be late, but 50 waits for a connection would take longer still.
    assert!(watch.elapsed() < 20 * CONNECT_TIMEOUT, "{:?}", watch.elapsed());
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
    let url = redis_url(&server.url().expose().replace("redis://", "rediss://"));
    let error = open(&url, RECOVERY).decide(&take("k", daily(1), 1)).await.unwrap_err();
    assert_eq!(error.reason(), "connect");
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
