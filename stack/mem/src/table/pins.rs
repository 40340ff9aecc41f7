//! Which core's the words of every registration are, so that all names of a word agree.
//!
//! A registration may pin its range to one core. Two that overlap must be pinned alike, or two cores would each take
//! a shared word for theirs; the second is refused. A registration counts until no core can be using it any more, not
//! only until it is revoked. Kept behind the table's lock and sized at the start, save the list of pinned ranges,
//! which grows with them. A registration costs a look at the pinned ones; a pinned one costs a look at all.

use super::Origin;
use ironwarp_types::CoreId;

/// Bytes that are or were just registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holding {
    pub start: usize,
    /// 0 in a slot that holds nothing.
    pub len: usize,
    pub pin: Option<CoreId>,
    /// What is added to its tagged offsets before the hash that decides owners, wrapping.
    pub owner_shift: u64,
}

const NOTHING: Holding = Holding { start: 0, len: 0, pin: None, owner_shift: 0 };

/// Another registration of the same bytes is pinned otherwise, or in a table that replays is numbered otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conflict;

/// The holdings of all slots.
pub(crate) struct Pins {
    holdings: Box<[Holding]>,
    pinned: Vec<u32>,
    origin: Origin,
}

impl Pins {
    pub(crate) fn new(slots: u32, origin: Origin) -> Self {
        Self { holdings: vec![NOTHING; slots as usize].into(), pinned: Vec::new(), origin }
    }

    /// Whether a range may be registered so. A table that replays takes owners from tagged offsets, since addresses
    /// differ from run to run; there the answer is the offset that the range must go by because of a range that it
    /// overlaps, less its own.
    pub(crate) fn check(&self, range: Holding, first_to: u64) -> Result<u64, Conflict> {
        match self.origin {
            Origin::Address => self.check_pin(range).map(|()| 0),
            Origin::Slot => self.check_pin(range).and_then(|()| self.shared_shift(range, first_to)),
        }
    }

    fn check_pin(&self, range: Holding) -> Result<(), Conflict> {
        let agrees = |held: &Holding| held.pin == range.pin || !held.overlaps(&range);
        let alike = if range.pin.is_some() {
            self.holdings.iter().all(agrees)
        } else {
            self.pinned.iter().all(|&slot| agrees(&self.holdings[slot as usize]))
        };
        if alike { Ok(()) } else { Err(Conflict) }
    }

    fn shared_shift(&self, range: Holding, first_to: u64) -> Result<u64, Conflict> {
        let mut shift = None;
        for (slot, held) in self.holdings.iter().enumerate().filter(|(_, held)| held.overlaps(&range)) {
            // Where the byte at address 0 would lie in the numbering of that range.
            let theirs = self.origin.first_to(slot, core::ptr::null()).wrapping_add(held.owner_shift);
            let origin = theirs.wrapping_sub(held.start as u64);
            let needed = origin.wrapping_add(range.start as u64).wrapping_sub(first_to);
            if shift.replace(needed).is_some_and(|other| other != needed) {
                return Err(Conflict);
            }
        }
        Ok(shift.unwrap_or(0))
    }

    /// Notes a range that was found right.
    pub(crate) fn hold(&mut self, slot: u32, range: Holding) {
        self.holdings[slot as usize] = range;
        if range.pin.is_some() {
            self.pinned.push(slot);
        }
    }

    /// Forgets a range that nobody uses any more.
    pub(crate) fn release(&mut self, slot: u32) {
        let held = core::mem::replace(&mut self.holdings[slot as usize], NOTHING);
        if held.pin.is_some() {
            self.pinned.retain(|&pinned| pinned != slot);
        }
    }
}

impl Holding {
    fn overlaps(&self, other: &Holding) -> bool {
        // Ranges were checked not to wrap, and one of no bytes overlaps nothing.
        self.start < other.start + other.len && other.start < self.start + self.len
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn range(start: usize, len: usize, pin: Option<u16>) -> Holding {
        Holding { start, len, pin: pin.map(CoreId), owner_shift: 0 }
    }

    fn pins(origin: Origin, held: &[Holding]) -> Pins {
        let mut pins = Pins::new(8, origin);
        held.iter().zip(0..).for_each(|(&range, slot)| pins.hold(slot, range));
        pins
    }

    #[test]
    fn ranges_that_overlap_are_pinned_alike_or_refused() {
        let pins = pins(Origin::Address, &[range(100, 10, Some(1)), range(200, 10, None)]);
        let check = |start, len, pin| pins.check(range(start, len, pin), 0);
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
        let mut pins = pins(Origin::Address, &[range(100, 10, Some(1))]);
        pins.release(0);
        assert_eq!(pins.check(range(100, 10, None), 0), Ok(0));
        assert!(pins.pinned.is_empty());
        pins.release(0);
    }

    #[test]
    fn in_a_table_that_replays_one_byte_has_one_number() {
        let mut pins = pins(Origin::Slot, &[range(1000, 100, None)]);
        let first_to = |slot| Origin::Slot.first_to(slot, core::ptr::null());
        let shift = pins.check(range(1050, 100, None), first_to(1)).unwrap();
        assert_eq!(first_to(1).wrapping_add(shift), first_to(0) + 50);
        pins.hold(1, Holding { owner_shift: shift, ..range(1050, 100, None) });
        // A range that overlaps only the second goes by the first as well.
        let shift = pins.check(range(1140, 100, None), first_to(2)).unwrap();
        assert_eq!(first_to(2).wrapping_add(shift), first_to(0) + 140);
        // Between two ranges that were numbered apart there is no number for a third.
        pins.hold(3, range(1300, 100, None));
        assert_eq!(pins.check(range(1120, 200, None), first_to(4)), Err(Conflict));
        assert_eq!(pins.check(range(5000, 8, None), first_to(4)), Ok(0));
    }
}
