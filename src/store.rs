//! Where counters live: one contract, two stores.
//!
//! Invariants:
//! - No call ever sees another one half way through.
//! - Verdicts depend on the calls, the stored state and the time, never on which store answered.
//! - Stores do not retry, log or count; what wraps them does.

mod error;
pub mod memory;
pub mod redis;

pub use error::StoreError;

use std::sync::Arc;

use crate::model::{Call, Verdict};
use memory::MemoryStore;
use redis::RedisStore;

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
}

/// The store in use, as the limiter sees it.
#[derive(Debug, Clone)]
pub enum StoreStack {
    Memory(Arc<MemoryStore>),
    Redis(Arc<RedisStore>),
}

impl StoreStack {
    /// Decides one call: one verdict per check.
    ///
    /// # Errors
    ///
    /// As [`Store::decide`].
    pub async fn decide(&self, call: &Call) -> Result<Vec<Verdict>, StoreError> {
        match self {
            Self::Memory(store) => store.decide(std::slice::from_ref(call)).await,
            Self::Redis(store) => store.decide(std::slice::from_ref(call)).await,
        }
    }
}
