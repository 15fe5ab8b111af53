//! Slots in chunks, so that a growing shard neither moves them nor reserves twice what it needs.

use std::ops::{Index, IndexMut};

use super::shard::Slot;

const CHUNK: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Slab {
    chunks: Vec<Box<[Slot]>>,
    /// Slots handed out so far.
    len: u32,
    free: Vec<u32>,
}

impl Slab {
    /// A slot as it was left, or a new one.
    pub(super) fn take(&mut self) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        if self.len as usize == self.chunks.len() * CHUNK {
            self.chunks.push((0..CHUNK).map(|_| Slot::default()).collect());
        }
        self.len += 1;
        self.len - 1
    }

    pub(super) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }
}

impl Index<u32> for Slab {
    type Output = Slot;

    fn index(&self, slot: u32) -> &Slot {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

impl IndexMut<u32> for Slab {
    fn index_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}
