//! Batches over a store that waits until it is let.

use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use super::*;
use crate::clock::Clock;
use crate::model::{
    AlgorithmKind, Charge, Check, Consistency, CounterKey, Effect, Hits, Limit, Timestamp, Verdict,
    Window,
};
use crate::settings::MemorySettings;
use crate::store::memory::MemoryStore;

const LIMIT: Duration = Duration::from_millis(15);

fn memory() -> MemoryStore {
    let settings = MemorySettings { max_keys: 1_000, max_bytes: 1 << 20 };
    MemoryStore::new(&settings, Clock::manual(Timestamp::from_secs(1_000)))
}

fn call(checks: &[(u8, u64)]) -> Call {
    let check = |&(key, hits): &(u8, u64)| Check {
        key: CounterKey::from_bytes(&[key]),
        limit: Limit {
            algorithm: AlgorithmKind::FixedWindow,
            amount: 5,
            window: Window::Length(1_000_000_000),
            burst: 5,
        },
        hits: Hits::Take(hits),
        charge: Charge::Admitted,
        effect: Effect::Deny,
        consistency: Consistency::Strict,
    };
    Call { checks: checks.iter().map(check).collect() }
}

/// Notes the sizes of its batches, and decides each when it is let.
#[derive(Clone)]
struct Gated {
    store: Arc<MemoryStore>,
    gate: Arc<Semaphore>,
    batches: Arc<Mutex<Vec<usize>>>,
}

impl Gated {
    fn new() -> Self {
        let gate = Arc::new(Semaphore::new(0));
        Self { store: Arc::new(memory()), gate, batches: Arc::default() }
    }
}

impl Store for Gated {
    async fn decide(&self, batch: &[Call]) -> Result<Vec<Verdict>, StoreError> {
        self.batches.lock().push(batch.len());
        match self.gate.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return Err(StoreError::MalformedReply { want: 1, got: 0 }),
        }
        self.store.decide(batch).await
    }
}

fn spawn(combine: &Combine, call: Call) -> tokio::task::JoinHandle<Result<Decided, StoreError>> {
    let combine = combine.clone();
    tokio::spawn(async move { combine.decide(call).await })
}

async fn settle() {
    for _ in 0..10 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_arrive_during_a_batch_go_together_in_the_next() {
    let gated = Gated::new();
    let combine = Combine::new(gated.clone(), LIMIT);
    let first = spawn(&combine, call(&[(0, 1)]));
    settle().await;
    let rest: Vec<_> = (0..7).map(|_| spawn(&combine, call(&[(0, 1)]))).collect();
    settle().await;
    gated.gate.add_permits(2);
    assert!(first.await.unwrap().unwrap().verdicts[0].allowed);
    let mut admitted = 0;
    for one in rest {
        admitted += usize::from(one.await.unwrap().unwrap().verdicts[0].allowed);
    }
    assert_eq!((admitted, gated.batches.lock().as_slice()), (4, [1, 7].as_slice()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_batch_fails_each_of_its_calls_once() {
    let gated = Gated::new();
    let combine = Combine::new(gated.clone(), LIMIT);
    let calls: Vec<_> = (0..3).map(|_| spawn(&combine, call(&[(0, 1)]))).collect();
    settle().await;
    gated.gate.close();
    for one in calls {
        assert_eq!(one.await.unwrap().unwrap_err().reason(), "malformed_reply");
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_calls_are_not_sent_and_leave_the_others_alone() {
    let gated = Gated::new();
    let combine = Combine::new(gated.clone(), LIMIT);
    let under_way = spawn(&combine, call(&[(0, 1)]));
    settle().await;
    let (dropped, kept) = (spawn(&combine, call(&[(0, 5)])), spawn(&combine, call(&[(0, 4)])));
    settle().await;
    under_way.abort();
    dropped.abort();
    settle().await;
    gated.gate.add_permits(9);
    let kept = kept.await.unwrap().unwrap();
    assert_eq!((kept.verdicts[0].allowed, kept.verdicts[0].used), (true, 1));
    assert_eq!(gated.batches.lock().as_slice(), [1, 1]);
}

#[tokio::test]
async fn a_call_that_waited_too_long_is_not_sent() {
    let gated = Gated::new();
    let combine = Combine::new(gated.clone(), Duration::from_millis(1));
    let first = spawn(&combine, call(&[(0, 1)]));
    settle().await;
    let late = spawn(&combine, call(&[(0, 1)]));
    settle().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    gated.gate.add_permits(9);
    first.await.unwrap().unwrap();
    assert_eq!(late.await.unwrap().unwrap_err().reason(), "timeout");
    assert_eq!(gated.batches.lock().as_slice(), [1]);
}

proptest! {
    #[test]
    fn results_are_those_of_the_calls_one_after_the_other(
        calls in proptest::collection::vec(
            proptest::collection::vec((0_u8..3, 1_u64..4), 1..4),
            1..40,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let got: Vec<Vec<Verdict>> = runtime.block_on(async {
            let combine = Combine::new(memory(), Duration::from_secs(60));
            let tasks: Vec<_> = calls.iter().map(|checks| spawn(&combine, call(checks))).collect();
            let mut got = Vec::new();
            for task in tasks {
                got.push(task.await.unwrap().unwrap().verdicts.to_vec());
            }
            got
        });
        let alone = memory();
        for (checks, got) in calls.iter().zip(got) {
            prop_assert_eq!(alone.decide_now(&call(checks)).to_vec(), got);
        }
    }
}
