//! The embedded store: counters in this process.
//!
//! Keys are spread over shards by a keyed 128-bit digest; a call locks the shards of all its keys,
//! in order, so it is atomic and no two calls can wait for each other.
//!
//! Invariants:
//! - Work per call does not depend on how many counters there are.
//! - Keys and bytes never exceed their caps. When full, the counters that expire soonest go
//!   first; among those of about the same expiry, ones below their limit go before ones at it.

mod expiry;
mod shard;
mod slab;

use std::hash::{BuildHasher, RandomState};

use parking_lot::{Mutex, MutexGuard};
use siphasher::sip128::SipHasher13;
use smallvec::{SmallVec, smallvec};

use self::shard::{Digest, Shard};
use super::{Store, StoreError};
use crate::algorithm::{self, Refused, State};
use crate::clock::Clock;
use crate::model::{Call, Charge, Check, CounterKey, Effect, Timestamp, Verdict};
use crate::settings::MemorySettings;
use crate::telemetry::MemoryStats;

/// Most shards; fewer where the cap on keys is small.
const MAX_SHARDS: usize = 64;
/// A shard holds at least this many keys, so that eviction has a choice.
const MIN_KEYS_PER_SHARD: usize = 64;
/// Most expired counters removed while a shard is locked.
const SWEPT_PER_LOCK: usize = 512;

/// Keeps counters in memory.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    digest_key: [u8; 16],
    clock: Clock,
}

impl MemoryStore {
    pub fn new(settings: &MemorySettings, clock: Clock) -> Self {
        let shards = (settings.max_keys / MIN_KEYS_PER_SHARD).clamp(1, MAX_SHARDS);
        let shards = 1 << shards.ilog2();
        let shard = || {
            let (keys, bytes) = (settings.max_keys / shards, settings.max_bytes / shards);
            Mutex::new(Shard::new(keys.max(1), bytes))
        };
        let random = RandomState::new();
        let mut digest_key = [0; 16];
        digest_key[..8].copy_from_slice(&random.hash_one(0_u8).to_ne_bytes());
        digest_key[8..].copy_from_slice(&random.hash_one(1_u8).to_ne_bytes());
        Self { shards: (0..shards).map(|_| shard()).collect(), digest_key, clock }
    }

    /// Decides one call, which takes no waiting here.
    pub fn decide_now(&self, call: &Call) -> SmallVec<[Verdict; 1]> {
        self.decide_at(call, self.clock.now())
    }

    /// Evaluates `call` at `now`.
    pub fn decide_at(&self, call: &Call, now: Timestamp) -> SmallVec<[Verdict; 1]> {
        match call.checks.as_slice() {
            [check] => smallvec![self.decide_one(check, now)],
            checks => self.decide_many(checks, now).into_iter().collect(),
        }
    }

    fn decide_one(&self, check: &Check, now: Timestamp) -> Verdict {
        let refused = match (check.charge, check.effect) {
            (Charge::Always, _) | (_, Effect::Observe) => Refused::Charged,
            (Charge::Admitted, _) => Refused::Uncharged,
        };
        let digest = self.digest(&check.key);
        let mut shard = self.shards[self.shard_of(digest)].lock();
        shard.update(digest, &check.limit, now, |state| {
            algorithm::check(&check.limit, state, check.hits, now, refused)
        })
    }

    fn decide_many(&self, checks: &[Check], now: Timestamp) -> SmallVec<[Verdict; 4]> {
        let mut digests: SmallVec<[Digest; 8]> = SmallVec::new();
        let slots: SmallVec<[usize; 8]> = checks
            .iter()
            .map(|check| {
                let digest = self.digest(&check.key);
                digests.iter().position(|&known| known == digest).unwrap_or_else(|| {
                    digests.push(digest);
                    digests.len() - 1
                })
            })
            .collect();
        let mut locked = Locked::new(self, &digests);
        let mut states: SmallVec<[Option<State>; 8]> = digests
            .iter()
            .map(|&digest| locked.shard(self.shard_of(digest)).take(digest))
            .collect();
        let verdicts = algorithm::decide(checks, &slots, &mut states, now);
        for (slot, (digest, state)) in digests.iter().zip(states).enumerate() {
            // The last check of the counter has its newest verdict and limit.
            let last = slots.iter().rposition(|&other| other == slot).unwrap_or_default();
            let (limit, verdict) = (&checks[last].limit, &verdicts[last]);
            locked.shard(self.shard_of(*digest)).put(*digest, state, limit, verdict, now);
        }
        verdicts
    }

    /// Removes expired counters, a bounded number while a shard is locked; to be called now and
    /// then.
    pub fn sweep(&self) {
        let now = self.clock.now();
        for shard in &self.shards {
            while shard.lock().sweep(now, SWEPT_PER_LOCK) {}
        }
    }

    pub fn stats(&self) -> MemoryStats {
        self.shards.iter().fold(MemoryStats::default(), |sum, shard| {
            let one = shard.lock().stats();
            MemoryStats {
                keys: sum.keys + one.keys,
                bytes: sum.bytes + one.bytes,
                evictions: sum.evictions + one.evictions,
                expirations: sum.expirations + one.expirations,
            }
        })
    }

    fn digest(&self, key: &CounterKey) -> Digest {
        let digest = SipHasher13::new_with_key(&self.digest_key).hash(key.as_bytes());
        Digest { high: digest.h1, low: digest.h2 }
    }

    fn shard_of(&self, digest: Digest) -> usize {
        // The index of a shard uses other bits of the digest.
        usize::try_from(digest.low >> 32).unwrap_or_default() & (self.shards.len() - 1)
    }
}

/// The locked shards of one call.
struct Locked<'a>(SmallVec<[(usize, MutexGuard<'a, Shard>); 8]>);

impl<'a> Locked<'a> {
    fn new(store: &'a MemoryStore, digests: &[Digest]) -> Self {
        let mut shards: SmallVec<[usize; 8]> =
            digests.iter().map(|&digest| store.shard_of(digest)).collect();
        shards.sort_unstable();
        shards.dedup();
        Self(shards.into_iter().map(|index| (index, store.shards[index].lock())).collect())
    }

    fn shard(&mut self, index: usize) -> &mut Shard {
        let place = self.0.partition_point(|&(other, _)| other < index);
        &mut self.0[place].1
    }
}

impl Store for MemoryStore {
    async fn decide(&self, batch: &[Call]) -> Result<Vec<Verdict>, StoreError> {
        let now = self.clock.now();
        let mut verdicts = Vec::with_capacity(batch.iter().map(|call| call.checks.len()).sum());
        for call in batch {
            verdicts.extend(self.decide_at(call, now));
        }
        Ok(verdicts)
    }
}

#[cfg(test)]
mod tests;
