//! Every store gives the same verdicts: each case runs on all of them, by its own clock.

mod algorithms;
mod calls;

use std::time::Duration;

use tollgate::clock::Clock;
use tollgate::model::{Call, Check, Hits, Limit, Verdict};
use tollgate::store::memory::MemoryStore;
use tollgate::store::redis::RedisStore;
use tollgate::store::{Store, StoreError};

use crate::support::redis::RedisServer;
use crate::support::{MIDNIGHT, call, check, redis_store, store_settings};

/// A test per case and store.
macro_rules! for_each_store {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $case() {
                super::$case(crate::conformance::Harness::memory()).await;
            })*
        }
        mod redis {
            $(#[tokio::test] async fn $case() {
                super::$case(crate::conformance::Harness::redis()).await;
            })*
        }
    };
}
use for_each_store;

enum AnyStore {
    Memory(MemoryStore),
    Redis(RedisStore),
}

impl Store for AnyStore {
    async fn decide(&self, batch: &[Call]) -> Result<Vec<Verdict>, StoreError> {
        match self {
            Self::Memory(store) => store.decide(batch).await,
            Self::Redis(store) => store.decide(batch).await,
        }
    }
}

/// A store of its own, whose clock stands at midnight until it is set.
struct Harness {
    store: AnyStore,
    clock: Clock,
    /// Ends when it is dropped.
    _server: Option<RedisServer>,
}

impl Harness {
    fn memory() -> Self {
        let clock = Clock::manual(MIDNIGHT);
        let store = MemoryStore::new(&store_settings().memory, clock.clone());
        Self { store: AnyStore::Memory(store), clock, _server: None }
    }

    fn redis() -> Self {
        let clock = Clock::manual(MIDNIGHT);
        let server = RedisServer::start();
        let store = redis_store(&server, clock.clone());
        Self { store: AnyStore::Redis(store), clock, _server: Some(server) }
    }

    /// Sets the clock to this long after midnight.
    fn at(&self, since_midnight: Duration) {
        self.clock.set(MIDNIGHT + since_midnight);
    }

    /// Decides calls in one batch; what holds for every verdict is checked on the way.
    async fn batch(&self, calls: &[Call]) -> Vec<Verdict> {
        let verdicts = self.store.decide(calls).await.unwrap();
        let checks: Vec<&Check> = calls.iter().flat_map(|call| &call.checks).collect();
        assert_eq!(verdicts.len(), checks.len());
        for (verdict, check) in verdicts.iter().zip(checks) {
            assert!(verdict.remaining <= check.limit.capacity(), "{verdict:?} of {check:?}");
            assert!(verdict.reset > 0, "{verdict:?} of {check:?}");
            assert!(!verdict.allowed || verdict.retry_after.is_none(), "{verdict:?} of {check:?}");
        }
        verdicts
    }

    /// Decides one call.
    async fn call(&self, checks: &[Check]) -> Vec<Verdict> {
        self.batch(&[call(checks.iter().cloned())]).await
    }

    /// Decides one call and says which checks passed.
    async fn allowed(&self, checks: &[Check]) -> Vec<bool> {
        self.call(checks).await.iter().map(|verdict| verdict.allowed).collect()
    }

    async fn one(&self, key: &str, limit: Limit, hits: Hits) -> Verdict {
        self.call(&[check(key, limit, hits)]).await[0]
    }

    async fn take(&self, key: &str, limit: Limit, hits: u64) -> Verdict {
        self.one(key, limit, Hits::Take(hits)).await
    }

    /// Hits counted at the moment.
    async fn used(&self, key: &str, limit: Limit) -> u64 {
        self.one(key, limit, Hits::Look).await.used
    }
}
