//! Leases: hits of a busy fixed window that this process has taken from the store in advance and
//! spends without asking it.
//!
//! Invariants:
//! - A hit is counted in the store before it is spent, and spent at most once. So what is admitted
//!   in a window never exceeds the hits counted in it, whatever is lost on the way.
//! - A lease ends before the window that counted it: its time runs from when the request for it
//!   was sent, by the clock that runs faster.
//! - Hits are given back by whoever can no longer spend them, once, and only into the window that
//!   counted them. A request that failed is taken to have counted hits that nobody may spend.
//! - What no lease serves goes to the store as it came.

mod entry;
mod table;

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tokio::time::timeout;

pub use table::Leases;

use self::table::{Answer, Refill};
use super::{Combine, Decided, StoreError};
use crate::clock::Stopwatch;
use crate::model::{
    AlgorithmKind, Call, Charge, Check, Consistency, CounterKey, Effect, Hits, Timestamp, Verdict,
    Window,
};

/// How often a call waits for a refill before it goes to the store by itself.
const MAX_WAITS: usize = 4;
/// Most leases given back with one command.
const MAX_UNSPENT: usize = 128;

/// What leases need of a store.
pub trait Slices: Send + Sync + 'static {
    /// Decides a check that takes hits from a fixed window with a length, as
    /// [`Store::decide`](super::Store::decide) does.
    ///
    /// # Errors
    ///
    /// The hits may or may not have been counted.
    fn take(&self, check: Check) -> impl Future<Output = Result<Taken, StoreError>> + Send;

    /// Gives hits back, each to its window if that is the stored one and not over yet; tells how
    /// many were.
    ///
    /// # Errors
    ///
    /// The hits may or may not have been given back. Do not retry.
    fn give_back(
        &self,
        unspent: &[Unspent],
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// A verdict with the window that it speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub verdict: Verdict,
    /// Start of the window by the store's time; `None` if it has not begun by that.
    pub window: Option<Timestamp>,
}

/// Hits of a lease that nobody will spend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unspent {
    pub key: CounterKey,
    pub hits: u64,
    /// Start of the window that counted them.
    pub window: Timestamp,
    /// µs.
    pub length: u64,
}

/// A worker's way to the store, past the leases of the process.
#[derive(Debug)]
pub struct Leased<S> {
    leases: Arc<Leases>,
    slices: Arc<S>,
    below: Combine,
    /// How long a call may take in all.
    limit: Duration,
}

impl<S> Clone for Leased<S> {
    fn clone(&self) -> Self {
        Self {
            leases: Arc::clone(&self.leases),
            slices: Arc::clone(&self.slices),
            below: self.below.clone(),
            limit: self.limit,
        }
    }
}

impl<S: Slices> Leased<S> {
    /// `slices` and `below` are ways to the same store. `limit`: how long a call may take in all.
    pub fn new(leases: Arc<Leases>, slices: Arc<S>, below: Combine, limit: Duration) -> Self {
        Self { leases, slices, below, limit }
    }

    /// Decides one call.
    ///
    /// # Errors
    ///
    /// As [`Store::decide`](super::Store::decide).
    ///
    /// # Cancel safety
    ///
    /// A dropped call is decided whole or not at all.
    pub async fn decide(&self, call: Call) -> Result<Decided, StoreError> {
        let Some(hits) = leasable(&call) else { return self.below.decide(call).await };
        let check = &call.checks[0];
        let counter = self.leases.counter(check);
        let mut answer = self.leases.arrive(&counter, check, hits);
        if let Answer::Served(verdict, None) = answer {
            return Ok(Decided { call, verdicts: smallvec![verdict] });
        }
        let since = Stopwatch::start();
        let mut waits = 0;
        loop {
            let refilled = match answer {
                Answer::Served(verdict, refill) => {
                    if let Some(refill) = refill {
                        self.start(refill, check);
                    }
                    return Ok(Decided { call, verdicts: smallvec![verdict] });
                }
                Answer::Refill(refill) => {
                    let refilled = refill.waiter();
                    self.start(refill, check);
                    refilled
                }
                Answer::Wait(refilled) => refilled,
                Answer::Strict => break,
            };
            let left = self.limit.saturating_sub(since.elapsed());
            if waits == MAX_WAITS || timeout(left, refilled.done()).await.is_err() {
                break;
            }
            waits += 1;
            answer = self.leases.ask(&counter, hits);
        }
        let asked = self.leases.now();
        let decided = self.below.decide_since(call, since).await?;
        if let Some(verdict) = decided.verdicts.first() {
            self.leases.learn(&counter, verdict, asked);
        }
        Ok(decided)
    }

    /// Refills in a task of its own, so that a caller who leaves doesn't lose the hits.
    fn start(&self, refill: Refill, check: &Check) {
        let slices = Arc::clone(&self.slices);
        let check = Check { hits: Hits::Take(refill.hits()), ..check.clone() };
        tokio::spawn(async move {
            let asked = refill.now();
            // Without an answer the refill fails when it is dropped.
            if let Ok(taken) = slices.take(check).await {
                refill.settle(asked, &taken);
            }
        });
    }
}

impl Leases {
    /// Gives back what has not been spent for a while; to be called a few times per second.
    pub async fn keep_up(&self, slices: &impl Slices) {
        self.give_back(self.sweep(), slices).await;
    }

    /// Gives everything back, and serves nothing from then on.
    pub async fn close(&self, slices: &impl Slices) {
        self.give_back(self.drain(), slices).await;
    }

    async fn give_back(&self, unspent: Vec<Unspent>, slices: &impl Slices) {
        for part in unspent.chunks(MAX_UNSPENT) {
            match slices.give_back(part).await {
                Ok(hits) => self.count_returned(hits),
                // They stay counted until their window ends; so would the rest.
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "lost leases");
                    break;
                }
            }
        }
    }
}

/// The hits of a call that a lease may serve.
fn leasable(call: &Call) -> Option<u64> {
    let [check] = call.checks.as_slice() else { return None };
    let is_leased = check.consistency == Consistency::Leased
        && check.limit.algorithm == AlgorithmKind::FixedWindow
        && matches!(check.limit.window, Window::Length(_))
        && check.charge == Charge::Admitted
        && check.effect == Effect::Deny;
    match check.hits {
        Hits::Take(hits) if is_leased && hits > 0 && hits <= check.limit.capacity() => Some(hits),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
