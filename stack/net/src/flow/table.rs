//! A hash table from a flow's hash to a connection's number: open addressing with linear probing.
//!
//! A slot has 8 bytes, so eight share a cache line and nearly every look-up touches one line. The
//! table does not contain the keys: the caller of a look-up compares the key of each entry with an
//! equal hash. There are no tombstones: a removal moves later entries of the cluster back, so a
//! table that has held a million connections is as fast as a new one.
//!
//! The size is fixed, and nothing allocates after [`FlowTable::new`]. Cost: about 2 ns per look-up
//! while the table is in cache.

/// A slot of the table. The value [`EMPTY`] marks a free one.
#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    value: u32,
}

const EMPTY: u32 = u32::MAX;

const FREE: Slot = Slot { hash: 0, value: EMPTY };

/// The maximum distance of an entry from the slot that its hash selects. At half load the longest
/// cluster of `n` well-mixed hashes is about `5 ln n`: 72 for a million. So only badly mixed hashes
/// reach 128.
const PROBES_MAX: usize = 128;

/// The largest supported capacity: a table of 2^31 slots of 8 bytes.
const ENTRIES_MAX: usize = 1 << 30;

/// There is no free slot for another entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFull;

impl core::fmt::Display for TableFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the flow table is full")
    }
}

impl core::error::Error for TableFull {}

/// A map from hashes to values, at most half full. Several entries may share a hash.
pub struct FlowTable {
    slots: Box<[Slot]>,
    len: usize,
}

impl FlowTable {
    /// Returns a table for `entries_max` entries, at least 1 and at most 2^30. It takes 16 to 32
    /// bytes per entry.
    pub fn new(entries_max: usize) -> Self {
        let slots = (entries_max.clamp(1, ENTRIES_MAX) * 2).next_power_of_two();
        FlowTable { slots: vec![FREE; slots].into_boxed_slice(), len: 0 }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the maximum number of entries.
    pub fn capacity(&self) -> usize {
        self.slots.len() / 2
    }

    /// Returns the first value with this hash for which `matches` returns true.
    #[inline(always)]
    pub fn lookup(&self, hash: u32, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        for distance in 0..PROBES_MAX {
            let slot = self.slot(self.probe(hash, distance));
            if slot.value == EMPTY {
                return None;
            }
            if slot.hash == hash && matches(slot.value) {
                return Some(slot.value);
            }
        }
        None
    }

    /// Prefetches where a lookup of this hash begins.
    #[inline]
    pub fn prefetch(&self, hash: u32) {
        if let Some(slot) = self.slots.get(self.probe(hash, 0)) {
            ironwarp_arch::prefetch_read(slot);
        }
    }

    /// Adds an entry, without a check for an equal one. The value `u32::MAX` is rejected.
    pub fn insert(&mut self, hash: u32, value: u32) -> Result<(), TableFull> {
        if self.len >= self.capacity() || value == EMPTY {
            return Err(TableFull);
        }
        let at = (0..PROBES_MAX)
            .map(|distance| self.probe(hash, distance))
            .find(|&at| self.slot(at).value == EMPTY)
            .ok_or(TableFull)?;
        self.set(at, Slot { hash, value });
        self.len += 1;
        Ok(())
    }

    /// Removes one entry with this hash and value. Returns whether there was one.
    pub fn remove(&mut self, hash: u32, value: u32) -> bool {
        let Some(at) = self.find(hash, value) else { return false };
        self.close_gap(at);
        self.len -= 1;
        true
    }

    fn find(&self, hash: u32, value: u32) -> Option<usize> {
        (0..PROBES_MAX)
            .map(|distance| self.probe(hash, distance))
            .take_while(|&at| self.slot(at).value != EMPTY)
            .find(|&at| self.slot(at).hash == hash && self.slot(at).value == value)
    }

    /// Frees the slot `gap` and moves later entries of its cluster back (backward shift deletion),
    /// so that no free slot lies between an entry and the slot that its hash selects. Half load
    /// guarantees a free slot, where the loop ends.
    fn close_gap(&mut self, mut gap: usize) {
        let mut at = self.wrap(gap + 1);
        while self.slot(at).value != EMPTY {
            let slot = self.slot(at);
            let from_home = self.wrap(at.wrapping_sub(slot.hash as usize));
            let from_gap = self.wrap(at.wrapping_sub(gap));
            if from_home >= from_gap {
                self.set(gap, slot);
                gap = at;
            }
            at = self.wrap(at + 1);
        }
        self.set(gap, FREE);
    }

    #[inline]
    fn probe(&self, hash: u32, distance: usize) -> usize {
        self.wrap(hash as usize + distance)
    }

    #[inline]
    fn wrap(&self, at: usize) -> usize {
        // The number of slots is a power of two, so not 0.
        at & self.slots.len().wrapping_sub(1)
    }

    #[inline]
    fn slot(&self, at: usize) -> Slot {
        self.slots.get(at).copied().unwrap_or(FREE)
    }

    fn set(&mut self, at: usize, to: Slot) {
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = to;
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
