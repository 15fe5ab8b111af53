//! Leases over a real Redis: never more than the limit, few commands, and what is lost on the way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::clock::{Clock, Stopwatch};
use tollgate::model::{
    AlgorithmKind, Call, Check, Consistency, CounterKey, Hits, Limit, Timestamp, Verdict,
};
use tollgate::server::{App, Stop};
use tollgate::settings::{RedisUrl, RulesSource, StoreSettings, StoreUrl};
use tollgate::store::redis::RedisStore;
use tollgate::store::{Combine, Leased, Leases, Slices, Store, StoreError, Unspent};

use crate::support::redis::RedisServer;
use crate::support::{MIDNIGHT, call, check, limit, redis_store, runtime, store_settings};

const DAY: Duration = Duration::from_secs(86_400);
/// Ten years, whose end no test sees.
const AGES: Duration = Duration::from_secs(10 * 365 * 86_400);
const TASKS: u64 = 64;

fn fixed(amount: u32, window: Duration) -> Limit {
    limit(AlgorithmKind::FixedWindow, amount, window)
}

fn leased(key: &str, limit: Limit) -> Call {
    call([Check { consistency: Consistency::Leased, ..check(key, limit, Hits::Take(1)) }])
}

/// A process, or one of its workers: a table of leases and a way to Redis.
#[derive(Clone)]
struct Replica {
    leases: Arc<Leases>,
    store: Arc<RedisStore>,
    stack: Leased<RedisStore>,
}

impl Replica {
    /// On the current runtime.
    fn new(url: &RedisUrl) -> Self {
        Self::worker(url, &Arc::new(Leases::new(Clock::System)), store_settings().timeout)
    }

    fn worker(url: &RedisUrl, leases: &Arc<Leases>, timeout: Duration) -> Self {
        let settings = StoreSettings { timeout, ..store_settings() };
        let store = Arc::new(RedisStore::new(url, &settings, Clock::System).unwrap());
        let below = Combine::new(Arc::clone(&store), timeout);
        let stack = Leased::new(Arc::clone(leases), Arc::clone(&store), below, timeout);
        Self { leases: Arc::clone(leases), store, stack }
    }

    async fn take(&self, call: Call) -> Result<Verdict, StoreError> {
        Ok(self.stack.decide(call).await?.verdicts[0])
    }

    /// How many of `calls` pass, made by [`TASKS`] tasks; those that fail don't.
    async fn admitted(&self, key: &str, limit: Limit, calls: u64) -> u64 {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (replica, call) = (self.clone(), leased(key, limit));
            tasks.spawn(async move {
                let mut admitted = 0;
                for _ in 0..calls / TASKS + u64::from(task < calls % TASKS) {
                    let verdict = replica.take(call.clone()).await;
                    admitted += u64::from(verdict.is_ok_and(|verdict| verdict.allowed));
                }
                admitted
            });
        }
        tasks.join_all().await.into_iter().sum()
    }
}

/// Runs `work` in three replicas, each on a thread of its own; the sum of what they return.
fn in_replicas<F>(url: &RedisUrl, work: impl Fn(usize, Replica) -> F + Clone + Send) -> u64
where
    F: Future<Output = u64>,
{
    thread::scope(|scope| {
        let replicas: Vec<_> = (0..3)
            .map(|index| {
                let work = work.clone();
                scope.spawn(move || {
                    runtime().block_on(async { work(index, Replica::new(url)).await })
                })
            })
            .collect();
        replicas.into_iter().map(|replica| replica.join().unwrap()).sum()
    })
}

/// How many more pass, asked for one by one.
fn rest(server: &RedisServer, key: &str, limit: Limit) -> u64 {
    runtime().block_on(async {
        let store = redis_store(server, Clock::System);
        let call = call([check(key, limit, Hits::Take(1))]);
        let mut rest = 0;
        while store.decide(std::slice::from_ref(&call)).await.unwrap()[0].allowed {
            rest += 1;
        }
        rest
    })
}

#[test]
fn replicas_share_a_limit_exactly() {
    let server = RedisServer::start();
    let limit = fixed(1_000, AGES);
    let admitted = in_replicas(&server.url(), async |_, replica| {
        let admitted = replica.admitted("k", limit, 20_000 / 3).await;
        replica.leases.close(&*replica.store).await;
        admitted
    });
    let rest = rest(&server, "k", limit);
    assert_eq!(admitted + rest, 1_000, "{rest} were not admitted before the end");
    assert!(rest <= 100, "{rest} of 1,000 not admitted, though there were 20,000 calls");
}

#[test]
fn a_replica_that_is_killed_costs_what_it_held() {
    let server = RedisServer::start();
    let limit = fixed(1_000, AGES);
    let admitted = in_replicas(&server.url(), async |index, replica| {
        if index == 0 {
            // Its thread ends with it.
            return replica.admitted("k", limit, 150).await;
        }
        let admitted = replica.admitted("k", limit, 10_000).await;
        replica.leases.close(&*replica.store).await;
        admitted
    });
    let total = admitted + rest(&server, "k", limit);
    assert!((500..=1_000).contains(&total), "{total}");
}

#[test]
fn no_hit_of_an_old_window_is_admitted_in_a_new_one() {
    const WINDOW: u64 = 250_000;
    const RUN: Duration = Duration::from_millis(2_500);
    let server = RedisServer::start();
    let limits: Arc<Vec<Limit>> = Arc::new(
        [50, 300, 1_000, 3_000, 10_000]
            .map(|amount| fixed(amount, Duration::from_micros(WINDOW)))
            .to_vec(),
    );
    let served = AtomicU64::new(0);
    // Admitted calls that began and ended in a window, by limit and window.
    let counts = Mutex::new(HashMap::<(u32, u64), u64>::new());
    in_replicas(&server.url(), async |_, replica| {
        let watch = Stopwatch::start();
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (replica, limits) = (replica.clone(), Arc::clone(&limits));
            tasks.spawn(async move {
                let mut counts = HashMap::<(u32, u64), u64>::new();
                let mut turn = usize::try_from(task).unwrap();
                while watch.elapsed() < RUN {
                    let limit = limits[turn % limits.len()];
                    turn += 1;
                    let start = Clock::System.now().as_micros() / WINDOW;
                    let call = leased(&limit.amount.to_string(), limit);
                    let allowed = replica.take(call).await.is_ok_and(|verdict| verdict.allowed);
                    let end = Clock::System.now().as_micros() / WINDOW;
                    if allowed && start == end {
                        *counts.entry((limit.amount, start)).or_default() += 1;
                    }
                    if turn % 8 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                counts
            });
        }
        while watch.elapsed() < RUN {
            tokio::time::sleep(Duration::from_millis(100)).await;
            replica.leases.keep_up(&*replica.store).await;
        }
        for (place, hits) in tasks.join_all().await.into_iter().flatten() {
            *counts.lock().unwrap().entry(place).or_default() += hits;
        }
        served.fetch_add(replica.leases.stats().hits, Relaxed);
        0
    });
    assert!(served.into_inner() > 1_000, "leases were used");
    for ((amount, window), hits) in counts.into_inner().unwrap() {
        assert!(hits <= u64::from(amount), "{hits} of {amount} in window {window}");
    }
}

#[test]
fn a_flush_of_scripts_changes_nothing() {
    let server = RedisServer::start();
    let limit = fixed(30_000, AGES);
    let admitted = in_replicas(&server.url(), async |index, replica| {
        let mut admitted = 0;
        for _ in 0..20 {
            admitted += replica.admitted("k", limit, 1_000).await;
            if index == 0 {
                server.run::<()>(&["SCRIPT", "FLUSH"]);
            }
        }
        replica.leases.close(&*replica.store).await;
        admitted
    });
    assert_eq!(admitted + rest(&server, "k", limit), 30_000);
}

#[test]
fn a_redis_that_forgets_costs_one_more_limit_at_most() {
    let mut server = RedisServer::start();
    let limit = fixed(1_000, AGES);
    let url = server.url();
    let admitted = runtime().block_on(async {
        let leases = Arc::new(Leases::new(Clock::System));
        let replica = Replica::worker(&url, &leases, Duration::from_millis(200));
        let mut admitted = replica.admitted("k", limit, 700).await;
        assert_eq!(admitted, 700);
        server.kill();
        // What is held is spent; the rest fails.
        let held = replica.admitted("k", limit, 2_000).await;
        assert!(held <= 300, "{held}");
        admitted += held;
        server.launch();
        let watch = Stopwatch::start();
        while replica.take(leased("k", limit)).await.is_err() {
            assert!(watch.elapsed() < Duration::from_secs(10), "still down");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        admitted += 1 + replica.admitted("k", limit, 5_000).await;
        leases.close(&*replica.store).await;
        admitted
    });
    let total = admitted + rest(&server, "k", limit);
    assert!((1_700..=2_000).contains(&total), "{total}");
}

#[test]
fn a_hot_key_costs_few_commands() {
    const CALLS: u64 = 20_000;
    let server = RedisServer::start();
    let limit = fixed(4_000_000_000, AGES);
    // A clock that stands still, so that the rate, which sizes slices, is not the machine's.
    let leases = Arc::new(Leases::new(Clock::manual(MIDNIGHT)));
    let url = server.url();
    // Two workers of one process.
    let admitted: u64 = thread::scope(|scope| {
        let worker = || {
            runtime().block_on(async {
                let worker = Replica::worker(&url, &leases, store_settings().timeout);
                worker.admitted("k", limit, CALLS / 2).await
            })
        };
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(admitted, CALLS);
    let commands = server.calls_of("evalsha") + server.calls_of("eval");
    assert!(commands * 1_000 <= 5 * CALLS, "{commands} commands for {CALLS} calls");
}

#[tokio::test]
async fn hits_go_back_only_to_the_window_that_counted_them() {
    let server = RedisServer::start();
    let clock = Clock::manual(MIDNIGHT);
    let store = redis_store(&server, clock.clone());
    let daily = fixed(100, DAY);
    let take = async |hits| store.take(check("k", daily, Hits::Take(hits))).await.unwrap();
    let back = async |hits, window: Timestamp| {
        let key = CounterKey::from_bytes(b"k");
        let length = daily.window.length();
        store.give_back(&[Unspent { key, hits, window, length }]).await.unwrap()
    };
    assert_eq!(back(5, MIDNIGHT).await, 0, "there is no window");
    assert_eq!(take(60).await.window, Some(MIDNIGHT));
    assert_eq!(back(20, MIDNIGHT).await, 20);
    assert_eq!(take(1).await.verdict.used, 40);
    for other in [MIDNIGHT + DAY, Timestamp::from_micros(MIDNIGHT.as_micros() - 86_400_000_000)] {
        assert_eq!(back(20, other).await, 0);
    }
    let tomorrow = MIDNIGHT + DAY;
    clock.set(tomorrow);
    assert_eq!(back(20, MIDNIGHT).await, 0, "the window is over, its counter still there");
    assert_eq!(take(30).await.window, Some(tomorrow));
    assert_eq!(back(20, MIDNIGHT).await, 0, "another window has begun");
    assert_eq!(take(1).await.verdict.used, 30);

    clock.set(MIDNIGHT);
    assert_eq!(take(1).await.window, None, "the stored window has not begun");
    assert_eq!(back(2, tomorrow).await, 2, "the clock was set back, the window is the same");
    assert_eq!(back(1_000, tomorrow).await, 30, "no more than was counted");
    assert_eq!(server.run::<u64>(&["EXISTS", "k"]), 0);
    server.run::<()>(&["RPUSH", "k", "a"]);
    assert_eq!(back(1, MIDNIGHT).await, 0);
}

/// Windows are stored by a number that comes around.
#[tokio::test]
async fn a_window_is_not_taken_for_one_of_the_same_number() {
    const TURN: u64 = (1 << 20) - 2;
    let server = RedisServer::start();
    let clock = Clock::manual(MIDNIGHT);
    let store = redis_store(&server, clock.clone());
    let limit = fixed(100, Duration::from_secs(1));
    let mut stored = Vec::new();
    for window in [MIDNIGHT, MIDNIGHT + Duration::from_secs(TURN)] {
        clock.set(window);
        server.run::<()>(&["DEL", "k"]);
        store.take(check("k", limit, Hits::Take(30))).await.unwrap();
        stored.push(server.run::<String>(&["GET", "k"]));
    }
    assert_eq!(stored[0], stored[1]);
    let key = CounterKey::from_bytes(b"k");
    let late = Unspent { key, hits: 30, window: MIDNIGHT, length: limit.window.length() };
    assert_eq!(store.give_back(&[late]).await.unwrap(), 0);
}

#[test]
fn a_service_leases_what_its_rules_say_and_gives_back_at_its_end() {
    const CALLS: u64 = 640;
    let server = RedisServer::start();
    let folder = tempfile::TempDir::new().unwrap();
    let rules = folder.path().join("rules.yaml");
    let text = "{domain: d, consistency: leased, descriptors: [
        {key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}]}";
    std::fs::write(&rules, text).unwrap();
    let mut settings = crate::served::settings();
    settings.rules.sources =
        vec![RulesSource { path: rules, ignore_dotfiles: false, swapped_link: None }];
    settings.store.url = StoreUrl::Redis(server.url());
    runtime().block_on(async {
        let app = App::start(&settings).unwrap();
        let (http, admin) = (app.addresses().http, app.addresses().admin);
        let (stop, asked) = Stop::new();
        let clients = async {
            let mut tasks = JoinSet::new();
            for _ in 0..16 {
                tasks.spawn(async move {
                    for _ in 0..CALLS / 16 {
                        let body = br#"{"domain":"d","entries":{"k":"v"}}"#;
                        let answer = crate::http::ask(http, "POST", "/v1/check", body).await;
                        assert_eq!(answer.status, 200);
                    }
                });
            }
            tasks.join_all().await;
            let commands = server.calls_of("evalsha") + server.calls_of("eval");
            assert!(commands < CALLS / 4, "{commands} commands for {CALLS} calls");
            let watch = Stopwatch::start();
            let none = "\ntollgate_lease_hits_total 0\n";
            while crate::http::ask(admin, "GET", "/metrics", b"").await.body.contains(none) {
                assert!(watch.elapsed() < Duration::from_secs(10), "no lease was counted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            stop.stop();
        };
        let (served, ()) = tokio::join!(app.run(asked), clients);
        served.unwrap();
    });
    let stored: u64 = server.run(&["GET", "tg1|fw31536000s|d|k=v"]);
    assert_eq!(stored % (1 << 33), CALLS);
}
