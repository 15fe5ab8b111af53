//! All leases of a process, spread over locks by a keyed digest of counter and limit.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::HashMap;
use parking_lot::Mutex;
use siphasher::sip128::{Hasher128, SipHasher13};
use tokio::sync::watch;

use super::entry::Entry;
use super::{Taken, Unspent};
use crate::clock::{Clock, Moment};
use crate::model::{Check, Verdict};
use crate::telemetry::LeaseStats;

const SHARDS: usize = 64;
/// Most counters watched or leased; calls for others go to the store one by one.
const MAX_ENTRIES: usize = 1 << 16;

/// The leases of a process, shared by its workers.
#[derive(Debug)]
pub struct Leases {
    shards: Box<[Mutex<Shard>]>,
    digest_key: [u8; 16],
    clock: Clock,
    refills: AtomicU64,
    returned: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<u128, Entry>,
    /// Hits served from leases.
    served: u64,
    /// Nothing is leased any more.
    closed: bool,
}

/// A counter under one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counter(u128);

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum Answer {
    /// Served from a lease; a refill is to be started if one is handed out.
    Served(Verdict, Option<Refill>),
    /// More is to be taken first, by this caller.
    Refill(Refill),
    /// Another caller is taking more.
    Wait(Refilled),
    /// The store is to be asked.
    Strict,
}

/// The one refill of a counter that is under way. Dropped without an answer, it has failed.
#[derive(Debug)]
pub(super) struct Refill {
    leases: Arc<Leases>,
    counter: Counter,
    hits: u64,
    answered: bool,
    // Dropped after the refill has been taken off its counter, which wakes those who wait.
    waiting: watch::Sender<()>,
}

/// Waits for the end of a refill.
#[derive(Debug)]
pub(super) struct Refilled(watch::Receiver<()>);

impl Leases {
    pub fn new(clock: Clock) -> Self {
        let random = RandomState::new();
        let mut digest_key = [0; 16];
        digest_key[..8].copy_from_slice(&random.hash_one(0_u8).to_ne_bytes());
        digest_key[8..].copy_from_slice(&random.hash_one(1_u8).to_ne_bytes());
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            digest_key,
            clock,
            refills: AtomicU64::new(0),
            returned: AtomicU64::new(0),
        }
    }

    pub fn stats(&self) -> LeaseStats {
        LeaseStats {
            hits: self.shards.iter().map(|shard| shard.lock().served).sum(),
            refills: self.refills.load(Relaxed),
            returned: self.returned.load(Relaxed),
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.moment()
    }

    pub(super) fn counter(&self, check: &Check) -> Counter {
        let mut hasher = SipHasher13::new_with_key(&self.digest_key);
        check.limit.hash(&mut hasher);
        hasher.write(check.key.as_bytes());
        Counter(hasher.finish128().as_u128())
    }

    fn shard(&self, counter: &Counter) -> &Mutex<Shard> {
        // The map's own hash uses the other half.
        &self.shards[(counter.0 >> 64) as usize % SHARDS]
    }

    /// Notes a call for `hits`, and serves it or tells how it may come to them.
    pub(super) fn arrive(self: &Arc<Self>, counter: &Counter, check: &Check, hits: u64) -> Answer {
        let now = self.now();
        let mut shard = self.shard(counter).lock();
        if let Some(entry) = shard.entries.get_mut(&counter.0) {
            entry.note(hits, now);
        } else if shard.entries.len() < MAX_ENTRIES / SHARDS {
            let (capacity, length) = (check.limit.capacity(), check.limit.window.length());
            let mut entry = Entry::new(check.key.clone(), capacity, length, now);
            entry.note(hits, now);
            shard.entries.insert(counter.0, entry);
        }
        self.answer(&mut shard, counter, hits, now)
    }

    /// Likewise, for a call that has been noted and has waited.
    pub(super) fn ask(self: &Arc<Self>, counter: &Counter, hits: u64) -> Answer {
        self.answer(&mut self.shard(counter).lock(), counter, hits, self.now())
    }

    fn answer(
        self: &Arc<Self>,
        shard: &mut Shard,
        counter: &Counter,
        hits: u64,
        now: Moment,
    ) -> Answer {
        let Shard { entries, served, closed } = shard;
        let Some(entry) = entries.get_mut(&counter.0).filter(|_| !*closed) else {
            return Answer::Strict;
        };
        if let Some(verdict) = entry.spend(hits, now) {
            *served += hits;
            let is_due = entry.is_low(now) && entry.refill.is_none();
            let size = is_due.then(|| entry.slice_for(hits, now)).flatten();
            return Answer::Served(verdict, size.map(|size| self.refill(entry, *counter, size)));
        }
        if let Some(refill) = &entry.refill {
            return Answer::Wait(Refilled(refill.clone()));
        }
        match entry.slice_for(hits, now) {
            Some(size) => Answer::Refill(self.refill(entry, *counter, size)),
            None => Answer::Strict,
        }
    }

    fn refill(self: &Arc<Self>, entry: &mut Entry, counter: Counter, hits: u64) -> Refill {
        let (waiting, refilled) = watch::channel(());
        entry.refill = Some(refilled);
        self.refills.fetch_add(1, Relaxed);
        Refill { leases: Arc::clone(self), counter, hits, answered: false, waiting }
    }

    /// Takes note of the answer to a call that went to the store at `asked`.
    pub(super) fn learn(&self, counter: &Counter, verdict: &Verdict, asked: Moment) {
        if let Some(entry) = self.shard(counter).lock().entries.get_mut(&counter.0) {
            entry.learn(verdict, asked);
        }
    }

    /// Takes back what has not been spent in time, and forgets counters that are not used.
    pub(super) fn sweep(&self) -> Vec<Unspent> {
        let now = self.now();
        let mut unspent = Vec::new();
        for shard in &self.shards {
            shard.lock().entries.retain(|_, entry| entry.sweep(now, &mut unspent));
        }
        unspent
    }

    /// Takes everything back; from then on nothing is leased.
    pub(super) fn drain(&self) -> Vec<Unspent> {
        let mut unspent = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.closed = true;
            for entry in shard.entries.values_mut() {
                entry.drain(&mut unspent);
            }
        }
        unspent
    }

    pub(super) fn count_returned(&self, hits: u64) {
        self.returned.fetch_add(hits, Relaxed);
    }
}

impl Refill {
    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    pub(super) fn now(&self) -> Moment {
        self.leases.now()
    }

    pub(super) fn waiter(&self) -> Refilled {
        Refilled(self.waiting.subscribe())
    }

    /// Hands in the answer to the request that was sent at `asked`.
    pub(super) fn settle(mut self, asked: Moment, taken: &Taken) {
        self.answered = true;
        let now = self.now();
        // Dropped before `self`, whose end takes the lock too.
        let mut shard = self.leases.shard(&self.counter).lock();
        let Shard { entries, closed, .. } = &mut *shard;
        let Some(entry) = entries.get_mut(&self.counter.0) else { return };
        entry.learn(&taken.verdict, asked);
        if taken.verdict.allowed && !*closed {
            entry.add(self.hits, taken, asked, now);
        }
    }
}

impl Drop for Refill {
    fn drop(&mut self) {
        let now = self.now();
        let mut shard = self.leases.shard(&self.counter).lock();
        if let Some(entry) = shard.entries.get_mut(&self.counter.0) {
            entry.refill = None;
            if !self.answered {
                entry.pause(now);
            }
        }
    }
}

impl Refilled {
    pub(super) async fn done(mut self) {
        // An error, since nothing is ever sent: the refill has ended.
        _ = self.0.changed().await;
    }
}
