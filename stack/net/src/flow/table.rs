//! From a flow's hash to a connection: open addressing with linear probing.
//!
//! An entry is 8 bytes, so eight share a cache line and a lookup touches one line nearly always. The key itself
//! stays with its owner: a lookup passes a question that the owner answers for each entry whose hash is equal.
//! There are no tombstones: removal moves later entries of the cluster back, so a table that has seen a million
//! connections is as fast as a new one.
//!
//! Sized once; never allocates again. Cost: about 2 ns a lookup while the table is in cache.

/// A place in the table. The value [`EMPTY`] marks a free one.
#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    value: u32,
}

const EMPTY: u32 = u32::MAX;

const FREE: Slot = Slot { hash: 0, value: EMPTY };

/// How far from its home an entry may lie. At half load the longest cluster of `n` well-mixed hashes is about
/// `5 ln n`: 72 for a million, so a limit of 128 is met only by hashes that were not well mixed.
const PROBES_MAX: usize = 128;

/// Entries that may be asked for: a table of 2^31 entries of 8 bytes.
const ENTRIES_MAX: usize = 1 << 30;

/// There is no place for another entry.
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
    /// A table for `entries_max` entries, at least one and at most 2^30. It takes 16 to 32 bytes an entry.
    pub fn new(entries_max: usize) -> Self {
        let slots = (entries_max.clamp(1, ENTRIES_MAX) * 2).next_power_of_two();
        FlowTable { slots: vec![FREE; slots].into_boxed_slice(), len: 0 }
    }

    /// Entries present.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no entry is present.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entries that fit.
    pub fn capacity(&self) -> usize {
        self.slots.len() / 2
    }

    /// The first value under `hash` for which `matches` answers yes.
    #[inline]
    pub fn lookup(&self, hash: u32, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        for probe in 0..PROBES_MAX {
            let slot = self.slot(self.place(hash, probe));
            if slot.value == EMPTY {
                return None;
            }
            if slot.hash == hash && matches(slot.value) {
                return Some(slot.value);
            }
        }
        None
    }

    /// Adds an entry. Whether an equal one is there already is not looked at. `u32::MAX` cannot be stored.
    pub fn insert(&mut self, hash: u32, value: u32) -> Result<(), TableFull> {
        if self.len >= self.capacity() || value == EMPTY {
            return Err(TableFull);
        }
        let place = (0..PROBES_MAX)
            .map(|probe| self.place(hash, probe))
            .find(|&place| self.slot(place).value == EMPTY)
            .ok_or(TableFull)?;
        self.set(place, Slot { hash, value });
        self.len += 1;
        Ok(())
    }

    /// Removes one entry equal to `hash` and `value`, and answers whether there was one.
    pub fn remove(&mut self, hash: u32, value: u32) -> bool {
        let Some(place) = self.find(hash, value) else { return false };
        self.close_gap(place);
        self.len -= 1;
        true
    }

    fn find(&self, hash: u32, value: u32) -> Option<usize> {
        (0..PROBES_MAX)
            .map(|probe| self.place(hash, probe))
            .take_while(|&place| self.slot(place).value != EMPTY)
            .find(|&place| self.slot(place).hash == hash && self.slot(place).value == value)
    }

    /// Frees the place `gap` and moves later entries of its cluster back, so that no entry has a free place between
    /// its home and itself. Ends at the first free place, which half load guarantees.
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
    fn place(&self, hash: u32, probe: usize) -> usize {
        self.wrap(hash as usize + probe)
    }

    #[inline]
    fn wrap(&self, place: usize) -> usize {
        place & (self.slots.len() - 1)
    }

    #[inline]
    fn slot(&self, place: usize) -> Slot {
        self.slots.get(place).copied().unwrap_or(FREE)
    }

    fn set(&mut self, place: usize, to: Slot) {
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = to;
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
