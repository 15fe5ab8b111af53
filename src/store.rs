//! Where counters live: one contract, two stores.
//!
//! Invariants:
//! - No call ever sees another one half way through.
//! - Verdicts depend on the calls, the stored state and the time, never on which store answered.
//! - Stores do not retry, log or count; what wraps them does.

mod combine;
mod error;
mod lease;
pub mod memory;
pub mod redis;

pub use combine::Combine;
pub use error::StoreError;
pub use lease::{Leased, Leases, Slices, Taken, Unspent};

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use self::memory::MemoryStore;
use self::redis::RedisStore;
use crate::model::{Call, Verdict};

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
    Redis(Leased<RedisStore>),
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
            Self::Redis(store) => store.decide(call).await,
        }
    }
}
