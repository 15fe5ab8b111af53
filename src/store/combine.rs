//! Joins calls that arrive together into one batch of the store below.
//!
//! A task per combiner takes whatever has gathered, sends it as one batch, and goes on with what
//! has gathered meanwhile. Nobody waits for a timer: with an idle store, a call goes out at once,
//! and alone.
//!
//! Invariants:
//! - The results are those of some order of the calls, one after the other.
//! - A failed batch fails each of its calls once.
//! - A batch belongs to no caller: a dropped call leaves the others of its batch alone, and is not
//!   sent if its batch is not under way yet.
//! - No call waits longer than the time limit, queueing included.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{Decided, Store, StoreError};
use crate::clock::Stopwatch;
use crate::model::Call;

/// Most calls in one batch. Beyond that a call gets no cheaper, and one script call would keep
/// other clients of Redis waiting.
const MAX_BATCH: usize = 128;

/// A way to a store that batches calls. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Combine {
    queue: mpsc::UnboundedSender<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    call: Call,
    since: Stopwatch,
    answer: oneshot::Sender<Result<Decided, StoreError>>,
}

impl Combine {
    /// Starts the task that batches, on the current Tokio runtime; it ends with the last clone.
    /// `limit`: how long a call may take in all.
    pub fn new(store: impl Store, limit: Duration) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        tokio::spawn(run(store, limit, waiting));
        Self { queue }
    }

    /// Decides one call.
    ///
    /// # Errors
    ///
    /// As [`Store::decide`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call is decided whole or not at all.
    pub async fn decide(&self, call: Call) -> Result<Decided, StoreError> {
        self.decide_since(call, Stopwatch::start()).await
    }

    /// Likewise, for a call that has been waiting since `since`.
    ///
    /// # Errors
    ///
    /// As [`Store::decide`].
    pub async fn decide_since(&self, call: Call, since: Stopwatch) -> Result<Decided, StoreError> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { call, since, answer };
        self.queue.send(waiting).map_err(|_| StoreError::Stopped)?;
        answered.await.map_err(|_| StoreError::Stopped)?
    }
}

async fn run(store: impl Store, limit: Duration, mut queue: mpsc::UnboundedReceiver<Waiting>) {
    let mut gathered = Vec::with_capacity(MAX_BATCH);
    while queue.recv_many(&mut gathered, MAX_BATCH).await > 0 {
        let mut left = limit;
        let mut calls = Vec::with_capacity(gathered.len());
        let mut answers = Vec::with_capacity(gathered.len());
        for Waiting { call, since, answer } in gathered.drain(..) {
            if answer.is_closed() {
                continue;
            }
            match limit.checked_sub(since.elapsed()) {
                Some(own) if !own.is_zero() => {
                    left = left.min(own);
                    calls.push(call);
                    answers.push(answer);
                }
                _ => reply(answer, Err(StoreError::Timeout(limit))),
            }
        }
        if calls.is_empty() {
            continue;
        }
        match store.decide_within(&calls, left).await {
            Ok(verdicts) => {
                let mut verdicts = verdicts.into_iter();
                for (call, answer) in calls.into_iter().zip(answers) {
                    let own = verdicts.by_ref().take(call.checks.len()).collect();
                    reply(answer, Ok(Decided { call, verdicts: own }));
                }
            }
            Err(error) => {
                for answer in answers {
                    reply(answer, Err(error.clone()));
                }
            }
        }
    }
}

fn reply(
    answer: oneshot::Sender<Result<Decided, StoreError>>,
    decided: Result<Decided, StoreError>,
) {
    // Nobody waits for it any more if that fails.
    answer.send(decided).ok();
}

#[cfg(test)]
mod tests;
