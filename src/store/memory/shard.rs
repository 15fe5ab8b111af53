//! One lock's worth of counters: a slab of slots, found by digest, filed by expiry.
//!
//! A charge moves a counter's expiry but not its place in the file: a counter that is due too
//! early is filed anew when its turn comes, so charges stay cheap.

use hashbrown::HashTable;

use super::expiry::{ExpiryFile, Links, Tier};
use super::slab::Slab;
use crate::algorithm::State;
use crate::model::{Limit, Timestamp, Verdict};
use crate::telemetry::MemoryStats;

/// Counters that eviction files anew before it takes the next one as it is.
const REFILED_PER_EVICTION: usize = 32;

/// A keyed digest of a counter key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Digest {
    pub(super) high: u64,
    pub(super) low: u64,
}

#[derive(Debug)]
pub(super) struct Shard {
    index: HashTable<u32>,
    slots: Slab,
    file: ExpiryFile,
    /// Bytes of logs, which live outside of their slots.
    heap_bytes: usize,
    max_keys: usize,
    max_bytes: usize,
    evictions: u64,
    expirations: u64,
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    digest: Digest,
    state: Option<State>,
    pub(super) expires: Timestamp,
    pub(super) links: Links,
}

impl Shard {
    pub(super) fn new(max_keys: usize, max_bytes: usize) -> Self {
        Self {
            index: HashTable::new(),
            slots: Slab::default(),
            file: ExpiryFile::default(),
            heap_bytes: 0,
            max_keys: max_keys.min(Links::MAX_SLOTS),
            max_bytes,
            evictions: 0,
            expirations: 0,
        }
    }

    /// Runs `check` on the state of `digest` and keeps what it leaves.
    pub(super) fn update(
        &mut self,
        digest: Digest,
        limit: &Limit,
        now: Timestamp,
        check: impl FnOnce(&mut Option<State>) -> Verdict,
    ) -> Verdict {
        let Some(slot) = self.find(digest) else {
            let mut state = None;
            let verdict = check(&mut state);
            self.put(digest, state, limit, &verdict, now);
            return verdict;
        };
        let own = &mut self.slots[slot];
        let heap_before = heap_bytes(own.state.as_ref());
        let verdict = check(&mut own.state);
        let heap_after = heap_bytes(own.state.as_ref());
        self.heap_bytes = self.heap_bytes - heap_before + heap_after;
        self.settle(slot, limit, &verdict, now);
        if heap_after > heap_before {
            self.make_room(0);
        }
        verdict
    }

    /// Takes the state of `digest` out, to be put back before the lock is let go.
    pub(super) fn take(&mut self, digest: Digest) -> Option<State> {
        let slot = self.find(digest)?;
        let state = self.slots[slot].state.take();
        self.heap_bytes -= heap_bytes(state.as_ref());
        state
    }

    /// Keeps `state`; of an unused counter, nothing.
    pub(super) fn put(
        &mut self,
        digest: Digest,
        state: Option<State>,
        limit: &Limit,
        verdict: &Verdict,
        now: Timestamp,
    ) {
        let slot = match self.find(digest) {
            Some(slot) => slot,
            None if state.is_none() => return,
            None => {
                self.make_room(1);
                self.insert(digest)
            }
        };
        let heap = heap_bytes(state.as_ref());
        self.heap_bytes += heap;
        self.slots[slot].state = state;
        self.settle(slot, limit, verdict, now);
        if heap > 0 {
            self.make_room(0);
        }
    }

    /// Removes expired counters, `most` at a time. Returns whether there may be more.
    pub(super) fn sweep(&mut self, now: Timestamp, most: usize) -> bool {
        for _ in 0..most {
            let Some(slot) = self.file.first_due(now) else { return false };
            if self.slots[slot].expires <= now {
                self.remove(slot);
                self.expirations += 1;
            } else {
                self.refile(slot, now);
            }
        }
        true
    }

    pub(super) fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.index.len(),
            bytes: self.bytes(),
            evictions: self.evictions,
            expirations: self.expirations,
        }
    }

    /// Slots with their share of the index, and logs.
    fn bytes(&self) -> usize {
        self.index.len() * BYTES_PER_KEY + self.heap_bytes
    }

    fn find(&self, digest: Digest) -> Option<u32> {
        let slots = &self.slots;
        self.index.find(digest.high, |&slot| slots[slot].digest == digest).copied()
    }

    /// Notes what the last check has left, and files the counter if it is new or has reached or
    /// left its limit.
    fn settle(&mut self, slot: u32, limit: &Limit, verdict: &Verdict, now: Timestamp) {
        let own = &mut self.slots[slot];
        own.expires = own.state.as_ref().map_or(now, |state| state.expires_at(limit));
        let tier = if verdict.remaining == 0 { Tier::AtLimit } else { Tier::BelowLimit };
        if own.links.tier() != Some(tier) {
            self.file.remove(&mut self.slots, slot);
            self.file.insert(&mut self.slots, slot, tier, now);
        }
    }

    fn refile(&mut self, slot: u32, now: Timestamp) {
        let tier = self.slots[slot].links.tier().unwrap_or(Tier::BelowLimit);
        self.file.remove(&mut self.slots, slot);
        self.file.insert(&mut self.slots, slot, tier, now);
    }

    /// Evicts until `more` counters fit.
    fn make_room(&mut self, more: usize) {
        while self.index.len() + more > self.max_keys
            || (self.bytes() + more * BYTES_PER_KEY > self.max_bytes && self.index.len() > 1)
        {
            if !self.evict() {
                return;
            }
        }
    }

    /// Evicts the counter that expires soonest, one below its limit if there is any.
    fn evict(&mut self) -> bool {
        for refiled in 0..=REFILED_PER_EVICTION {
            let Some((slot, due)) = self.file.soonest() else { return false };
            if self.slots[slot].expires > due && refiled < REFILED_PER_EVICTION {
                self.refile(slot, due);
            } else {
                self.remove(slot);
                self.evictions += 1;
                break;
            }
        }
        true
    }

    fn insert(&mut self, digest: Digest) -> u32 {
        let slot = self.slots.take();
        self.slots[slot].digest = digest;
        let slots = &self.slots;
        self.index.insert_unique(digest.high, slot, |&slot| slots[slot].digest.high);
        slot
    }

    fn remove(&mut self, slot: u32) {
        self.file.remove(&mut self.slots, slot);
        let own = &mut self.slots[slot];
        self.heap_bytes -= heap_bytes(own.state.as_ref());
        own.state = None;
        let digest = own.digest;
        self.slots.give_back(slot);
        // Not through `entry`, which may rehash the table.
        if let Ok(entry) = self.index.find_entry(digest.high, |&other| other == slot) {
            entry.remove();
        }
    }
}

/// A slot, and what the index takes for it at a load of one half.
const BYTES_PER_KEY: usize = size_of::<Slot>() + 2 * (size_of::<u32>() + 1);

fn heap_bytes(state: Option<&State>) -> usize {
    match state {
        Some(State::Log(log)) => log.heap_bytes(),
        _ => 0,
    }
}
