//! Denies at once what Redis has just denied, until the moment at which it could pass.
//!
//! Exact: a refused check of a counter stays refused until its retry-after, since others can only
//! add to the counter. What gives back, a refund, is seen when it passes through this process; one
//! of another replica is not, so its effect shows here when the entry ends.
//!
//! Invariants:
//! - An entry answers only for the same counter and the same limit, and for hits that it proves to
//!   be too many.
//! - It never answers for checks that would have been charged, or that deny nothing.
//! - An entry ends no later than its refusal does: its time counts from before the call was sent.
//!   The wait that it tells counts from when the answer was there, so waiting it out suffices.
//! - Memory is fixed from the start.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use siphasher::sip128::SipHasher13;

use crate::clock::Stopwatch;
use crate::model::{
    AlgorithmKind, Charge, Check, Consistency, CounterKey, Effect, Hits, Limit, Verdict,
};

/// Entries that share a lock; a new one replaces the one of them that ends first.
const WAYS: usize = 4;

/// Remembers refusals.
#[derive(Debug)]
pub struct DenyCache {
    sets: Box<[Mutex<[Entry; WAYS]>]>,
    digest_key: [u8; 16],
    limits: RandomState,
    /// All times are µs since this was started.
    clock: Stopwatch,
    /// Refunds so far: what was refused before one says nothing after it.
    refunds: AtomicU64,
    hits: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    key: [u64; 2],
    limit: u64,
    /// Hits that were refused.
    hits: u64,
    /// Until when they are refused.
    until: u64,
    /// When they can pass, and when the counter is unused, as told to callers.
    retry_at: u64,
    reset_at: u64,
    used: u64,
    remaining: u64,
}

/// The moment before a call was sent.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    at: u64,
    refunds: u64,
}

impl DenyCache {
    /// `bytes`: of memory; 0 for a cache that remembers nothing.
    pub fn new(bytes: usize) -> Self {
        let sets = bytes / size_of::<Mutex<[Entry; WAYS]>>();
        let sets = if sets == 0 { 0 } else { 1 << sets.ilog2() };
        let limits = RandomState::new();
        let mut digest_key = [0; 16];
        digest_key[..8].copy_from_slice(&limits.hash_one(0_u8).to_ne_bytes());
        digest_key[8..].copy_from_slice(&limits.hash_one(1_u8).to_ne_bytes());
        Self {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            digest_key,
            limits,
            clock: Stopwatch::start(),
            refunds: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }
    }

    /// Checks denied without Redis so far.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Notes that a call is about to be sent.
    pub fn before(&self) -> Sent {
        Sent { at: self.now(), refunds: self.refunds.load(Ordering::Acquire) }
    }

    /// The verdict on `check`, where it is known to be refused.
    pub fn find(&self, check: &Check) -> Option<Verdict> {
        let Hits::Take(hits) = check.hits else { return None };
        if self.sets.is_empty() || !denies_uncharged(check) {
            return None;
        }
        let key = self.digest(&check.key);
        let entry = {
            let set = self.set(key).lock();
            *set.iter().find(|entry| entry.key == key && entry.proves(hits, &check.limit))?
        };
        let now = self.now();
        if now >= entry.until || entry.limit != self.limits.hash_one(check.limit) {
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(Verdict {
            allowed: false,
            used: entry.used,
            remaining: entry.remaining,
            reset: entry.reset_at.saturating_sub(now).max(1),
            retry_after: (hits <= check.limit.capacity())
                .then(|| entry.retry_at.saturating_sub(now).max(1)),
        })
    }

    /// Remembers the answer to `check` if it is a refusal with an end.
    pub fn learn(&self, check: &Check, verdict: &Verdict, sent: Sent) {
        let (Hits::Take(hits), Some(retry_after)) = (check.hits, verdict.retry_after) else {
            return;
        };
        let lasts = check.limit.algorithm == AlgorithmKind::FixedWindow
            || (hits == 1 && verdict.remaining == 0);
        if self.sets.is_empty() || !lasts || !denies_uncharged(check) {
            return;
        }
        let key = self.digest(&check.key);
        let now = self.now();
        let entry = Entry {
            key,
            limit: self.limits.hash_one(check.limit),
            hits,
            until: sent.at.saturating_add(retry_after),
            retry_at: now.saturating_add(retry_after),
            reset_at: now.saturating_add(verdict.reset),
            used: verdict.used,
            remaining: verdict.remaining,
        };
        let mut set = self.set(key).lock();
        if self.refunds.load(Ordering::Acquire) != sent.refunds {
            return;
        }
        let same = set.iter().position(|other| other.key == key && other.limit == entry.limit);
        let first_to_end = (0..WAYS).min_by_key(|&way| set[way].until).unwrap_or_default();
        set[same.unwrap_or(first_to_end)] = entry;
    }

    /// Forgets all that is known of a counter, before something is given back to it and after.
    pub fn forget(&self, key: &CounterKey) {
        if self.sets.is_empty() {
            return;
        }
        self.refunds.fetch_add(1, Ordering::AcqRel);
        let key = self.digest(key);
        for entry in self.set(key).lock().iter_mut().filter(|entry| entry.key == key) {
            *entry = Entry::default();
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn digest(&self, key: &CounterKey) -> [u64; 2] {
        let digest = SipHasher13::new_with_key(&self.digest_key).hash(key.as_bytes());
        [digest.h1, digest.h2]
    }

    fn set(&self, key: [u64; 2]) -> &Mutex<[Entry; WAYS]> {
        let place = usize::try_from(key[0]).unwrap_or_default() & (self.sets.len() - 1);
        &self.sets[place]
    }
}

impl Entry {
    /// Whether `hits` are refused because those of the entry were. What is left of a fixed window
    /// does not change; of the others it may, while fewer hits than one remain.
    fn proves(&self, hits: u64, limit: &Limit) -> bool {
        match limit.algorithm {
            AlgorithmKind::FixedWindow => hits >= self.hits,
            _ => hits == self.hits,
        }
    }
}

/// Whether a refusal denies the call and leaves the counter as it is. Of leased checks it says
/// little: what leases hold may be given back.
fn denies_uncharged(check: &Check) -> bool {
    check.effect == Effect::Deny
        && check.charge == Charge::Admitted
        && check.consistency == Consistency::Strict
}

#[cfg(test)]
mod tests;
