//! A bounded table of entries with an address as key and a deadline. Neighbours and path MTUs are
//! stored in one each.
//!
//! All memory is allocated in [`AddressTable::new`]. Cost: a look-up takes one hash, nearly always
//! one cache line of the index, and the entry. A deadline causes a pass over all slots.

use core::net::IpAddr;

use ironwarp_types::Nanos;

use crate::flow::{FlowHasher, FlowTable};

/// An entry of an [`AddressTable`].
pub(crate) trait Entry: Copy {
    /// Returns the key.
    fn addr(&self) -> IpAddr;
    /// Returns the deadline of the entry.
    fn due(&self) -> Nanos;
}

pub(crate) struct AddressTable<E> {
    entries: Box<[Option<E>]>,
    free: Vec<u32>,
    index: FlowTable,
    hasher: FlowHasher,
    /// No entry is due before this time.
    next_due: Nanos,
    /// The slot where the search for an entry to evict continues.
    next_evicted: usize,
}

impl<E: Entry> AddressTable<E> {
    pub(crate) fn new(entries_max: u32, hasher: FlowHasher) -> Self {
        AddressTable {
            entries: vec![None; entries_max as usize].into_boxed_slice(),
            free: (0..entries_max).rev().collect(),
            index: FlowTable::new(entries_max as usize),
            hasher,
            next_due: Nanos::MAX,
            next_evicted: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the entry of an address and its slot.
    pub(crate) fn find(&self, addr: IpAddr) -> Option<(usize, E)> {
        let has_addr = |at: u32| self.get(at as usize).is_some_and(|entry| entry.addr() == addr);
        let at = self.index.lookup(self.hash(addr), has_addr)? as usize;
        Some((at, self.get(at)?))
    }

    /// Replaces the entry of a slot by one with the same address.
    pub(crate) fn set(&mut self, at: usize, entry: E) {
        self.next_due = self.next_due.min(entry.due());
        if let Some(slot) = self.entries.get_mut(at) {
            *slot = Some(entry);
        }
    }

    /// Adds an entry with a new address. If no slot is free, the first of the next `scan` entries
    /// for which `may_evict` returns true is removed. Returns `false` if there is no such entry.
    pub(crate) fn insert(&mut self, entry: E, scan: usize, may_evict: impl Fn(&E) -> bool) -> bool {
        if self.free.is_empty() {
            self.evict(scan, may_evict);
        }
        let Some(at) = self.free.pop() else { return false };
        if self.index.insert(self.hash(entry.addr()), at).is_err() {
            self.free.push(at);
            return false;
        }
        self.set(at as usize, entry);
        true
    }

    fn evict(&mut self, scan: usize, may_evict: impl Fn(&E) -> bool) {
        for _ in 0..scan.min(self.entries.len()) {
            let at = self.next_evicted;
            self.next_evicted = (at + 1).checked_rem(self.entries.len()).unwrap_or(0);
            if self.get(at).is_some_and(|entry| may_evict(&entry)) {
                return self.remove(at);
            }
        }
    }

    fn remove(&mut self, at: usize) {
        if let Some(entry) = self.entries.get_mut(at).and_then(Option::take) {
            self.index.remove(self.hash(entry.addr()), at as u32);
            self.free.push(at as u32);
        }
    }

    /// Returns the time from which [`AddressTable::on_due`] has work to do.
    pub(crate) fn next_due(&self) -> Nanos {
        self.next_due
    }

    /// Replaces each due entry by the result of `update`. `None` removes the entry.
    pub(crate) fn on_due(&mut self, now: Nanos, mut update: impl FnMut(E) -> Option<E>) {
        self.next_due = Nanos::MAX;
        for at in 0..self.entries.len() {
            match self.get(at) {
                Some(entry) if entry.due() <= now => match update(entry) {
                    Some(entry) => self.set(at, entry),
                    None => self.remove(at),
                },
                Some(entry) => self.next_due = self.next_due.min(entry.due()),
                None => {}
            }
        }
    }

    fn get(&self, at: usize) -> Option<E> {
        self.entries.get(at).copied().flatten()
    }

    fn hash(&self, addr: IpAddr) -> u32 {
        self.hasher.hash_addr(addr)
    }

    /// Checks the invariants: each slot is either free or found under its address, and none is due
    /// before `next_due`.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let used = self.entries.iter().flatten().count();
        if used != self.index.len() || used + self.free.len() != self.entries.len() {
            return Err("the entries, the free list and the index have different counts");
        }
        for (at, entry) in
            self.entries.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.as_ref()?)))
        {
            if self.find(entry.addr()).is_none_or(|(found, _)| found != at) {
                return Err("an entry is not found under its address");
            }
            if entry.due() < self.next_due {
                return Err("an entry is due before its table");
            }
        }
        Ok(())
    }
}
