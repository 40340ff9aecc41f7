//! The owner cores of all registrations, so that a word has one owner under every tag.
//!
//! A registration may pin its range to one core. Two that overlap must be pinned to the same core,
//! since otherwise two cores would own a shared word; the second is refused. A registration counts
//! until no core can use it any more, not only until it is revoked. Protected by the table's lock
//! and sized at the start, except the list of pinned ranges, which grows with them. A registration
//! checks the pinned ranges; a pinned one checks all.

use super::BaseToMode;
use ironwarp_types::CoreId;

/// A range that is registered or not yet released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnedRange {
    pub start: usize,
    /// 0 in an unused slot.
    pub len: usize,
    pub pin: Option<CoreId>,
    /// Added to its tagged offsets before the hash that selects owners, wrapping.
    pub owner_hash_offset: u64,
}

const EMPTY_RANGE: OwnedRange = OwnedRange { start: 0, len: 0, pin: None, owner_hash_offset: 0 };

/// Another registration of the same bytes is pinned differently, or has other tagged offsets in a
/// deterministic table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conflict;

/// The ranges of all slots.
pub(crate) struct OwnerMap {
    ranges: Box<[OwnedRange]>,
    pinned: Vec<u32>,
    base_to_mode: BaseToMode,
}

impl OwnerMap {
    pub(crate) fn new(slots: u32, base_to_mode: BaseToMode) -> Self {
        Self { ranges: vec![EMPTY_RANGE; slots as usize].into(), pinned: Vec::new(), base_to_mode }
    }

    /// Checks whether a range may be registered. A deterministic table selects owners by tagged
    /// offsets, since addresses differ from run to run. Then the result is the number to add to the
    /// range's offsets, so that they match those of a range that it overlaps.
    pub(crate) fn check(&self, range: OwnedRange, base_to: u64) -> Result<u64, Conflict> {
        match self.base_to_mode {
            BaseToMode::Address => self.check_pin(range).map(|()| 0),
            BaseToMode::Slot => self.check_pin(range).and_then(|()| self.shared_hash_offset(range, base_to)),
        }
    }

    fn check_pin(&self, range: OwnedRange) -> Result<(), Conflict> {
        let agrees = |existing: &OwnedRange| existing.pin == range.pin || !existing.overlaps(&range);
        let alike = if range.pin.is_some() {
            self.ranges.iter().all(agrees)
        } else {
            self.pinned.iter().all(|&slot| agrees(&self.ranges[slot as usize]))
        };
        if alike { Ok(()) } else { Err(Conflict) }
    }

    fn shared_hash_offset(&self, range: OwnedRange, base_to: u64) -> Result<u64, Conflict> {
        let mut shift = None;
        for (slot, existing) in
            self.ranges.iter().enumerate().filter(|(_, existing)| existing.overlaps(&range))
        {
            // The offset of the byte at address 0 in the numbering of that range.
            let other_base_to =
                self.base_to_mode.base_to(slot, core::ptr::null()).wrapping_add(existing.owner_hash_offset);
            let zero_to = other_base_to.wrapping_sub(existing.start as u64);
            let needed = zero_to.wrapping_add(range.start as u64).wrapping_sub(base_to);
            if shift.replace(needed).is_some_and(|other| other != needed) {
                return Err(Conflict);
            }
        }
        Ok(shift.unwrap_or(0))
    }

    /// Records a checked range.
    pub(crate) fn insert(&mut self, slot: u32, range: OwnedRange) {
        self.ranges[slot as usize] = range;
        if range.pin.is_some() {
            self.pinned.push(slot);
        }
    }

    /// Removes a range that is released.
    pub(crate) fn remove(&mut self, slot: u32) {
        let existing = core::mem::replace(&mut self.ranges[slot as usize], EMPTY_RANGE);
        if existing.pin.is_some() {
            self.pinned.retain(|&pinned| pinned != slot);
        }
    }
}

impl OwnedRange {
    fn overlaps(&self, other: &OwnedRange) -> bool {
        // Ranges do not wrap, and an empty range overlaps nothing.
        self.start < other.start + other.len && other.start < self.start + self.len
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn range(start: usize, len: usize, pin: Option<u16>) -> OwnedRange {
        OwnedRange { start, len, pin: pin.map(CoreId), owner_hash_offset: 0 }
    }

    fn owner_map(base_to_mode: BaseToMode, existing: &[OwnedRange]) -> OwnerMap {
        let mut owner_map = OwnerMap::new(8, base_to_mode);
        existing.iter().zip(0..).for_each(|(&range, slot)| owner_map.insert(slot, range));
        owner_map
    }

    #[test]
    fn ranges_that_overlap_are_pinned_alike_or_refused() {
        let owner_map = owner_map(BaseToMode::Address, &[range(100, 10, Some(1)), range(200, 10, None)]);
        let check = |start, len, pin| owner_map.check(range(start, len, pin), 0);
        assert_eq!(check(105, 1, Some(1)), Ok(0));
        assert_eq!(check(109, 1, Some(2)), Err(Conflict));
        assert_eq!(check(109, 1, None), Err(Conflict));
        assert_eq!(check(90, 11, None), Err(Conflict));
        assert_eq!(check(200, 10, Some(1)), Err(Conflict));
        assert_eq!(check(90, 10, None), Ok(0));
        assert_eq!(check(110, 90, Some(2)), Ok(0));
        assert_eq!(check(200, 10, None), Ok(0));
    }

    #[test]
    fn a_range_that_is_released_is_in_nobodys_way() {
        let mut owner_map = owner_map(BaseToMode::Address, &[range(100, 10, Some(1))]);
        owner_map.remove(0);
        assert_eq!(owner_map.check(range(100, 10, None), 0), Ok(0));
        assert!(owner_map.pinned.is_empty());
        owner_map.remove(0);
    }

    #[test]
    fn in_a_table_that_replays_one_byte_has_one_number() {
        let mut owner_map = owner_map(BaseToMode::Slot, &[range(1000, 100, None)]);
        let base_to = |slot| BaseToMode::Slot.base_to(slot, core::ptr::null());
        let shift = owner_map.check(range(1050, 100, None), base_to(1)).unwrap();
        assert_eq!(base_to(1).wrapping_add(shift), base_to(0) + 50);
        owner_map.insert(1, OwnedRange { owner_hash_offset: shift, ..range(1050, 100, None) });
        // A range that overlaps only the second also follows the first.
        let shift = owner_map.check(range(1140, 100, None), base_to(2)).unwrap();
        assert_eq!(base_to(2).wrapping_add(shift), base_to(0) + 140);
        // Between two ranges with separate numbering no number fits a third.
        owner_map.insert(3, range(1300, 100, None));
        assert_eq!(owner_map.check(range(1120, 200, None), base_to(4)), Err(Conflict));
        assert_eq!(owner_map.check(range(5000, 8, None), base_to(4)), Ok(0));
    }
}
