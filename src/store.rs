//! Where counters live: one contract, two stores.
//!
//! Invariants:
//! - No call ever sees another one half way through.
//! - Verdicts depend on the calls, the stored state and the time, never on which store answered.
//! - Stores do not retry, log or count; what wraps them does.

mod combine;
mod deny_cache;
mod error;
mod lease;
pub mod memory;
pub mod redis;

pub use combine::Combine;
pub use deny_cache::DenyCache;
pub use error::StoreError;
pub use lease::{Leased, Leases, Slices, Taken, Unspent};

use std::sync::Arc;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use self::memory::MemoryStore;
use self::redis::RedisStore;
use crate::model::{Call, Hits, Verdict};

/// Keeps counters and decides batches of calls.
pub trait Store: Send + Sync + 'static {
    /// Evaluates the calls in order, each atomically and all at one instant, and charges them:
    /// one verdict per check, in the order given.
    ///
    /// # Errors
    ///
    /// The charges may or may not have happened. Apply the rule's failure policy; do not retry, a
    /// second charge would count the same hits twice.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future never leaves a call half charged.
    fn decide(
        &self,
        batch: &[Call],
    ) -> impl Future<Output = Result<Vec<Verdict>, StoreError>> + Send;

    /// Likewise, in less than `limit`, where the store itself allows for more.
    ///
    /// # Errors
    ///
    /// As [`Store::decide`].
    fn decide_within(
        &self,
        batch: &[Call],
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<Verdict>, StoreError>> + Send {
        let _ = limit;
        self.decide(batch)
    }
}

impl<S: Store> Store for Arc<S> {
    async fn decide(&self, batch: &[Call]) -> Result<Vec<Verdict>, StoreError> {
        self.as_ref().decide(batch).await
    }

    async fn decide_within(
        &self,
        batch: &[Call],
        limit: Duration,
    ) -> Result<Vec<Verdict>, StoreError> {
        self.as_ref().decide_within(batch, limit).await
    }
}

/// A call with its verdicts, one per check.
#[derive(Debug)]
pub struct Decided {
    pub call: Call,
    pub verdicts: SmallVec<[Verdict; 1]>,
}

/// The store in use, as the limiter sees it.
#[derive(Debug, Clone)]
pub enum StoreStack {
    Memory(Arc<MemoryStore>),
    /// Cache and leases are those of the process, the way to Redis each worker's own.
    Redis {
        denied: Arc<DenyCache>,
        store: Leased<RedisStore>,
    },
}

impl StoreStack {
    /// Decides one call.
    ///
    /// # Errors
    ///
    /// As [`Store::decide`].
    pub async fn decide(&self, call: Call) -> Result<Decided, StoreError> {
        match self {
            Self::Memory(store) => {
                let verdicts = store.decide_now(&call);
                Ok(Decided { call, verdicts })
            }
            Self::Redis { denied, store } => decide_in_redis(denied, store, call).await,
        }
    }
}

async fn decide_in_redis(
    denied: &DenyCache,
    store: &Leased<RedisStore>,
    call: Call,
) -> Result<Decided, StoreError> {
    if let [check] = call.checks.as_slice()
        && let Some(verdict) = denied.find(check)
    {
        return Ok(Decided { call, verdicts: smallvec![verdict] });
    }
    let forget_refunded = |call: &Call| {
        for check in &call.checks {
            if matches!(check.hits, Hits::Refund(_)) {
                denied.forget(&check.key);
            }
        }
    };
    forget_refunded(&call);
    let sent = denied.before();
    let decided = store.decide(call).await?;
    forget_refunded(&decided.call);
    for (check, verdict) in decided.call.checks.iter().zip(&decided.verdicts) {
        denied.learn(check, verdict, sent);
    }
    Ok(decided)
}
