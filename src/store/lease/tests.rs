//! Leases over stores that lose answers, at times that the tests choose.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::clock::Clock;
use crate::model::Limit;
use crate::settings::MemorySettings;
use crate::store::Store;
use crate::store::memory::MemoryStore;

/// So long that a busy machine changes nothing.
const LIMIT: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp::from_secs(1_000_000);
const WINDOW: u64 = 10_000_000;

/// What happens to a request for a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    /// The store has counted the hits, and the answer is lost.
    AnswerLost,
    RequestLost,
}

/// A store with a clock of its own, in memory.
struct Fake {
    store: MemoryStore,
    clock: Clock,
    fate: Mutex<Fate>,
    takes: AtomicU64,
}

impl Fake {
    fn new() -> Arc<Self> {
        let settings = MemorySettings { max_keys: 1_000, max_bytes: 1 << 20 };
        let clock = Clock::manual(START);
        let store = MemoryStore::new(&settings, clock.clone());
        let fate = Mutex::new(Fate::Answered);
        Arc::new(Self { store, clock, fate, takes: AtomicU64::new(0) })
    }

    fn used(&self, limit: Limit) -> u64 {
        let look = Check { hits: Hits::Look, ..check(limit, 1) };
        self.store.decide_now(&call(look))[0].used
    }
}

impl Slices for Fake {
    async fn take(&self, check: Check) -> Result<Taken, StoreError> {
        self.takes.fetch_add(1, Relaxed);
        let fate = *self.fate.lock();
        if fate == Fate::RequestLost {
            return Err(StoreError::Timeout(LIMIT));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let window = Some(check.limit.window.bounds(self.clock.now()).0);
        let verdict = self.store.decide_now(&call(check))[0];
        match fate {
            Fate::AnswerLost => Err(StoreError::Timeout(LIMIT)),
            _ => Ok(Taken { verdict, window }),
        }
    }

    async fn give_back(&self, unspent: &[Unspent]) -> Result<u64, StoreError> {
        let mut given = 0;
        for one in unspent {
            let limit = limit(u32::MAX, one.length);
            if limit.window.bounds(self.clock.now()).0 == one.window {
                let refund = Hits::Refund(one.hits);
                self.store.decide_now(&call(Check { hits: refund, ..check(limit, 1) }));
                given += one.hits;
            }
        }
        Ok(given)
    }
}

impl Store for Fake {
    async fn decide(&self, batch: &[Call]) -> Result<Vec<Verdict>, StoreError> {
        self.store.decide(batch).await
    }
}

fn limit(amount: u32, window: u64) -> Limit {
    let window = Window::Length(window);
    Limit { algorithm: AlgorithmKind::FixedWindow, amount, window, burst: amount }
}

fn check(limit: Limit, hits: u64) -> Check {
    Check {
        key: CounterKey::from_bytes(b"k"),
        limit,
        hits: Hits::Take(hits),
        charge: Charge::Admitted,
        effect: Effect::Deny,
        consistency: Consistency::Leased,
    }
}

fn call(check: Check) -> Call {
    Call { checks: smallvec![check] }
}

/// A process with leases, and a clock of its own.
struct Replica {
    leased: Leased<Fake>,
    leases: Arc<Leases>,
    clock: Clock,
}

impl Replica {
    fn new(fake: &Arc<Fake>) -> Self {
        let clock = Clock::manual(START);
        let leases = Arc::new(Leases::new(clock.clone()));
        let below = Combine::new(Arc::clone(fake), LIMIT);
        let leased = Leased::new(Arc::clone(&leases), Arc::clone(fake), below, LIMIT);
        Self { leased, leases, clock }
    }

    async fn take(&self, limit: Limit, hits: u64) -> Verdict {
        self.leased.decide(call(check(limit, hits))).await.unwrap().verdicts[0]
    }

    /// How many of `calls` pass.
    async fn admitted(&self, limit: Limit, calls: u64) -> u64 {
        let mut admitted = 0;
        for _ in 0..calls {
            admitted += u64::from(self.take(limit, 1).await.allowed);
        }
        admitted
    }

    fn pass(&self, micros: u64) {
        self.clock.set(self.clock.now().plus_micros(micros));
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_is_served_from_leases() {
    let fake = Fake::new();
    let replica = Replica::new(&fake);
    let huge = limit(1_000_000_000, WINDOW);
    assert_eq!(replica.admitted(huge, 10_000).await, 10_000);
    let stats = replica.leases.stats();
    assert!(stats.hits > 9_900, "{stats:?}");
    assert!(stats.refills < 30, "{stats:?}");
    assert!((10_000..40_000).contains(&fake.used(huge)), "{}", fake.used(huge));
}

#[tokio::test(start_paused = true)]
async fn quiet_keys_and_small_rests_are_asked_for_one_by_one() {
    let fake = Fake::new();
    let replica = Replica::new(&fake);
    let huge = limit(1_000_000_000, WINDOW);
    for calls in 1..20 {
        replica.take(huge, 1).await;
        replica.pass(100_000);
        assert_eq!(fake.used(huge), calls);
    }
    let small = limit(30, WINDOW);
    assert_eq!(replica.admitted(small, 200).await, 11, "19 hits were used before");
    assert_eq!(replica.leases.stats().hits, 0);
}

#[tokio::test(start_paused = true)]
async fn other_calls_pass_through_unchanged() {
    let fake = Fake::new();
    let replica = Replica::new(&fake);
    let huge = limit(1_000_000_000, WINDOW);
    let leased = check(huge, 1);
    let others = [
        vec![leased.clone(), leased.clone()],
        vec![Check { consistency: Consistency::Strict, ..leased.clone() }],
        vec![Check { charge: Charge::Always, ..leased.clone() }],
        vec![Check { effect: Effect::Observe, ..leased.clone() }],
        vec![Check { hits: Hits::Look, ..leased.clone() }],
        vec![Check { hits: Hits::Refund(1), ..leased.clone() }],
        vec![Check { limit: Limit { algorithm: AlgorithmKind::Gcra, ..huge }, ..leased }],
    ];
    for checks in others {
        for _ in 0..100 {
            replica.leased.decide(Call { checks: checks.clone().into() }).await.unwrap();
        }
    }
    assert_eq!(replica.leases.stats(), crate::telemetry::LeaseStats::default());
}

#[tokio::test(start_paused = true)]
async fn answers_from_a_lease_say_what_is_left() {
    let fake = Fake::new();
    let replica = Replica::new(&fake);
    let limit = limit(10_000, WINDOW);
    let mut before = 10_000;
    for call in 1..=2_000 {
        let verdict = replica.take(limit, 1).await;
        assert!(verdict.remaining <= before.min(10_000 - call), "{verdict:?} of call {call}");
        assert_eq!(verdict.used + 1 + verdict.remaining, 10_000);
        before = verdict.remaining.max(8_000);
        assert_eq!(verdict.reset, WINDOW - START.as_micros() % WINDOW);
    }
    replica.pass(700_000);
    assert!(replica.leases.stats().hits > 1_900);
    let verdict = replica.take(limit, 1).await;
    assert_eq!(verdict.reset, WINDOW - START.as_micros() % WINDOW - 700_000);
}

#[tokio::test(start_paused = true)]
async fn unspent_hits_go_back_after_a_second_and_at_the_end() {
    let fake = Fake::new();
    let replica = Replica::new(&fake);
    let huge = limit(1_000_000_000, 100 * WINDOW);
    replica.admitted(huge, 1_000).await;
    assert!(fake.used(huge) > 1_000);
    replica.leases.keep_up(&*fake).await;
    assert!(fake.used(huge) > 1_000, "not idle yet");
    replica.pass(1_000_000);
    replica.leases.keep_up(&*fake).await;
    assert_eq!(fake.used(huge), 1_000);
    replica.admitted(huge, 1_000).await;
    assert!(fake.used(huge) > 2_000);
    replica.leases.close(&*fake).await;
    assert_eq!(fake.used(huge), 2_000);
    assert_eq!(replica.admitted(huge, 1_000).await, 1_000);
    assert_eq!(fake.used(huge), 3_000, "nothing is leased after the end");
}

/// Whether hits of a slice of a window that has just begun are spent `passed` µs later.
async fn spends_after(passed: u64, window: u64) -> bool {
    let fake = Fake::new();
    let replica = Replica::new(&fake);
    let limit = limit(1_000_000_000, window);
    let mut calls = 0;
    while fake.used(limit) < calls + 100 {
        replica.take(limit, 1).await;
        calls += 1;
    }
    let before = fake.used(limit);
    replica.pass(passed);
    replica.take(limit, 1).await;
    fake.used(limit) == before
}

#[tokio::test(start_paused = true)]
async fn a_slice_ends_before_its_window_and_grows_old() {
    assert!(spends_after(998_999, 1_000_000).await);
    assert!(!spends_after(999_000, 1_000_000).await, "clocks may differ by a thousandth");
    assert!(spends_after(1_999_999, WINDOW).await);
    assert!(!spends_after(2_000_000, WINDOW).await, "the store's clock may have been set");
}

#[tokio::test(start_paused = true)]
async fn a_refill_that_fails_only_loses_hits() {
    let fake = Fake::new();
    let replica = Replica::new(&fake);
    let limit = limit(10_000, WINDOW);
    let mut admitted = 0;
    for fate in [Fate::Answered, Fate::AnswerLost, Fate::RequestLost, Fate::Answered] {
        *fake.fate.lock() = fate;
        assert_eq!(replica.admitted(limit, 500).await, 500, "{fate:?}");
        admitted += 500;
        replica.pass(1_000_000);
    }
    assert!(fake.takes.load(Relaxed) > 4);
    admitted += replica.admitted(limit, 20_000).await;
    assert_eq!(fake.used(limit), 10_000);
    assert!((9_000..10_000).contains(&admitted), "one slice is lost: {admitted}");
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_key_share_a_refill() {
    let fake = Fake::new();
    let replica = Replica::new(&fake);
    let huge = limit(1_000_000_000, WINDOW);
    replica.admitted(huge, 7).await;
    let before = fake.takes.load(Relaxed);
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let leased = replica.leased.clone();
            tokio::spawn(async move { leased.decide(call(check(huge, 1))).await })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap().unwrap().verdicts[0].allowed);
    }
    assert!(fake.takes.load(Relaxed) - before <= 4);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_does_not_lose_the_refill() {
    let fake = Fake::new();
    let replica = Replica::new(&fake);
    let huge = limit(1_000_000_000, WINDOW);
    replica.admitted(huge, 5).await;
    let leased = replica.leased.clone();
    let caller = tokio::spawn(async move { leased.decide(call(check(huge, 1))).await });
    tokio::task::yield_now().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    assert!(replica.take(huge, 1).await.allowed);
    assert_eq!((fake.takes.load(Relaxed), replica.leases.stats().hits), (1, 1));
}

/// One thing that happens to two replicas and their store.
#[derive(Debug, Clone)]
enum Event {
    Calls {
        replica: usize,
        calls: u64,
        hits: u64,
    },
    /// Time passes for all; the replicas' own clocks jump on beyond that.
    Pass {
        micros: u64,
        jump: u64,
    },
    KeepUp(usize),
    /// A replica is lost with what it holds, and another takes its place.
    Kill(usize),
    Fate(Fate),
}

fn event() -> impl Strategy<Value = Event> {
    let fate = prop_oneof![
        3 => Just(Fate::Answered),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::RequestLost),
    ];
    prop_oneof![
        6 => (0_usize..2, 1_u64..200, 1_u64..4)
            .prop_map(|(replica, calls, hits)| Event::Calls { replica, calls, hits }),
        3 => (0_u64..400_000, prop_oneof![4 => Just(0), 1 => 0_u64..3_000_000])
            .prop_map(|(micros, jump)| Event::Pass { micros, jump }),
        1 => (0_usize..2).prop_map(Event::KeepUp),
        1 => (0_usize..2).prop_map(Event::Kill),
        1 => fate.prop_map(Event::Fate),
    ]
}

proptest! {
    #[test]
    fn no_window_admits_more_than_its_limit(
        events in proptest::collection::vec(event(), 1..60),
        amount in 1_u32..2_000,
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let fake = Fake::new();
            let limit = limit(amount, 1_000_000);
            let mut replicas = [Replica::new(&fake), Replica::new(&fake)];
            // By window of the store's time when the call was answered.
            let mut admitted = std::collections::HashMap::<Timestamp, u64>::new();
            for event in events {
                match event {
                    Event::Calls { replica, calls, hits } => for _ in 0..calls {
                        let verdict = replicas[replica].take(limit, hits).await;
                        if verdict.allowed {
                            let window = limit.window.bounds(fake.clock.now()).0;
                            *admitted.entry(window).or_default() += hits;
                        }
                        assert!(verdict.remaining <= u64::from(amount) && verdict.reset > 0);
                    },
                    Event::Pass { micros, jump } => {
                        fake.clock.set(fake.clock.now().plus_micros(micros));
                        for replica in &replicas {
                            replica.pass(micros + jump);
                        }
                    }
                    Event::KeepUp(replica) => replicas[replica].leases.keep_up(&*fake).await,
                    Event::Kill(replica) => replicas[replica] = Replica::new(&fake),
                    Event::Fate(fate) => *fake.fate.lock() = fate,
                }
            }
            for (window, hits) in admitted {
                assert!(hits <= u64::from(amount), "{hits} of {amount} in {window:?}");
            }
        });
    }
}
