//! Which counters expire next: lists by expiry, each in two tiers.
//!
//! Lists are doubly linked through the slots, so that filing, unfiling and finding the next one
//! take constant time, but for a search among the lists. There are few of them: the further away
//! an expiry, the coarser its list.

use std::collections::BTreeMap;

use super::slab::Slab;
use crate::model::Timestamp;

/// Finest distance between two lists, in µs.
const FINEST: u64 = 64_000;
/// The counters of a list expire within this part of the time that they had left when filed.
const COARSENESS: u64 = 16;

/// Whether a counter has anything left; those that do are evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    BelowLimit,
    AtLimit,
}

/// A slot's place in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    /// The slot before, or the list that this slot is the first of, with [`LIST`] set.
    before: u32,
    /// The slot after, with [`AT_LIMIT`] set if in that tier; [`NONE`] of it if the last.
    after: u32,
}

/// Marks a list in [`Links::before`].
const LIST: u32 = 1 << 31;
/// Marks the tier in [`Links::after`].
const AT_LIMIT: u32 = 1 << 31;
/// No slot.
const NONE: u32 = (1 << 31) - 1;
/// [`Links::before`] of a slot that is not filed.
const UNFILED: u32 = u32::MAX;

impl Links {
    pub(super) const MAX_SLOTS: usize = NONE as usize;

    /// The tier that the slot is filed under, if it is.
    pub(super) fn tier(self) -> Option<Tier> {
        match (self.before, self.after & AT_LIMIT) {
            (UNFILED, _) => None,
            (_, 0) => Some(Tier::BelowLimit),
            _ => Some(Tier::AtLimit),
        }
    }

    fn after(self) -> Option<u32> {
        Some(self.after & !AT_LIMIT).filter(|&slot| slot != NONE)
    }

    fn set_after(&mut self, after: u32) {
        self.after = (self.after & AT_LIMIT) | after;
    }
}

impl Default for Links {
    fn default() -> Self {
        Self { before: UNFILED, after: NONE }
    }
}

#[derive(Debug, Default)]
pub(super) struct ExpiryFile {
    /// Lists by the instant at which all of their counters have expired, unless moved since.
    due: BTreeMap<Timestamp, u32>,
    lists: Vec<Lists>,
    free: Vec<u32>,
}

/// First slots of the two tiers.
#[derive(Debug, Clone, Copy)]
struct Lists {
    first: [u32; 2],
}

impl Lists {
    const EMPTY: Self = Self { first: [NONE; 2] };

    fn first(self, tier: Tier) -> Option<u32> {
        Some(self.first[tier as usize]).filter(|&slot| slot != NONE)
    }
}

impl ExpiryFile {
    /// Files a slot that is not.
    pub(super) fn insert(&mut self, slots: &mut Slab, slot: u32, tier: Tier, now: Timestamp) {
        let expires = slots[slot].expires;
        let step = (expires.micros_since(now) / COARSENESS).next_power_of_two().max(FINEST);
        let at = expires.as_micros().div_ceil(step).saturating_mul(step);
        let list = *self.due.entry(Timestamp::from_micros(at)).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.lists.push(Lists::EMPTY);
                u32::try_from(self.lists.len() - 1).unwrap_or(NONE)
            })
        });
        let first = &mut self.lists[list as usize].first[tier as usize];
        let mark = if tier == Tier::AtLimit { AT_LIMIT } else { 0 };
        slots[slot].links = Links { before: LIST | list, after: *first | mark };
        if *first != NONE {
            slots[*first].links.before = slot;
        }
        *first = slot;
    }

    /// Takes a slot out of its list, if it is in one.
    pub(super) fn remove(&mut self, slots: &mut Slab, slot: u32) {
        let links = std::mem::take(&mut slots[slot].links);
        let Some(tier) = links.tier() else { return };
        let after = links.after();
        if links.before & LIST == 0 {
            slots[links.before].links.set_after(after.unwrap_or(NONE));
        } else {
            let list = (links.before & !LIST) as usize;
            self.lists[list].first[tier as usize] = after.unwrap_or(NONE);
        }
        if let Some(after) = after {
            slots[after].links.before = links.before;
        }
    }

    /// A slot of a list that is due at `now`.
    pub(super) fn first_due(&mut self, now: Timestamp) -> Option<u32> {
        while let Some(entry) = self.due.first_entry()
            && *entry.key() <= now
        {
            let lists = self.lists[*entry.get() as usize];
            let first = lists.first(Tier::BelowLimit).or(lists.first(Tier::AtLimit));
            if first.is_some() {
                return first;
            }
            self.free.push(entry.remove());
        }
        None
    }

    /// The slot to evict, and when its list is due.
    pub(super) fn soonest(&self) -> Option<(u32, Timestamp)> {
        [Tier::BelowLimit, Tier::AtLimit].into_iter().find_map(|tier| {
            self.due.iter().find_map(|(&at, &list)| {
                self.lists[list as usize].first(tier).map(|slot| (slot, at))
            })
        })
    }
}
