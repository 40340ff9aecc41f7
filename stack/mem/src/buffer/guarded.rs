//! Memory with a margin on each side that no region covers, for tests that detect writes outside of
//! a region.
//!
//! [`guarded`] returns the owner for a region, and the [`GuardZones`] that the test keeps. The
//! margins hold a pattern that no correct code changes, so [`GuardZones::are_intact`] returns false
//! once a byte was placed outside the region.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{NonNull, slice_from_raw_parts_mut};
use std::sync::Arc;

use crate::StableBytes;

/// The size of a margin in bytes.
const GUARD_ZONE_BYTES: usize = 64;

/// The value of every byte of a margin.
const GUARD_FILL: u8 = 0xa5;

/// The owner of the bytes between two margins.
pub struct GuardedBuf(Arc<GuardedAllocation>);

/// The two margins.
pub struct GuardZones(Arc<GuardedAllocation>);

/// One allocation: a margin, `len` bytes, a margin.
struct GuardedAllocation {
    bytes: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes between the margins are reached through the one `GuardedBuf` alone, and the
// margins are only read after their initialisation.
unsafe impl Send for GuardedAllocation {}
// SAFETY: as above; shared access reads the margins and nothing else.
unsafe impl Sync for GuardedAllocation {}

/// Returns `len` zeroed bytes between two margins.
///
/// ```
/// let (bytes, guard_zones) = ironwarp_mem::guarded(100);
/// # drop(bytes);
/// assert!(guard_zones.are_intact());
/// ```
pub fn guarded(len: usize) -> (GuardedBuf, GuardZones) {
    let layout = GuardedAllocation::layout(len);
    // SAFETY: the layout has two margins, so its size is not zero.
    let Some(bytes) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
    for start in [0, GUARD_ZONE_BYTES + len] {
        // SAFETY: both margins lie within the allocation, to which no other pointer exists yet.
        unsafe { bytes.add(start).write_bytes(GUARD_FILL, GUARD_ZONE_BYTES) };
    }
    let whole = Arc::new(GuardedAllocation { bytes, len });
    (GuardedBuf(whole.clone()), GuardZones(whole))
}

impl GuardZones {
    /// Returns whether no byte of the margins was written.
    pub fn are_intact(&self) -> bool {
        let GuardedAllocation { bytes, len } = *self.0;
        let starts = [0, GUARD_ZONE_BYTES + len];
        let mut guard_zones = starts.iter().flat_map(|start| *start..*start + GUARD_ZONE_BYTES);
        // SAFETY: every one of these bytes lies within the allocation and outside of what the
        // region reaches.
        guard_zones.all(|at| unsafe { bytes.add(at).read_volatile() } == GUARD_FILL)
    }
}

// SAFETY: the allocation never moves while an `Arc` holds it, is written through this value alone,
// and its margins, which others read, are no part of these bytes.
unsafe impl StableBytes for GuardedBuf {
    fn stable_bytes(&mut self) -> NonNull<[u8]> {
        let GuardedAllocation { bytes, len } = *self.0;
        // SAFETY: the first margin lies before.
        let first = unsafe { bytes.add(GUARD_ZONE_BYTES) };
        NonNull::new(slice_from_raw_parts_mut(first.as_ptr(), len))
            .unwrap_or(NonNull::slice_from_raw_parts(first, 0))
    }
}

impl GuardedAllocation {
    fn layout(len: usize) -> Layout {
        let whole = len.checked_add(2 * GUARD_ZONE_BYTES);
        match whole.map(|bytes| Layout::from_size_align(bytes, GUARD_ZONE_BYTES)) {
            Some(Ok(layout)) => layout,
            _ => panic!("{len} bytes are more than there are addresses for"),
        }
    }
}

impl Drop for GuardedAllocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `guarded` with this layout, and freed only here.
        unsafe { dealloc(self.bytes.as_ptr(), Self::layout(self.len)) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A size that wraps would give an allocation too small for its margins.
    #[test]
    #[should_panic(expected = "more than there are addresses for")]
    fn a_length_that_leaves_no_room_for_margins_is_refused() {
        let _ = guarded(usize::MAX - GUARD_ZONE_BYTES);
    }

    /// The margins detect a write.
    #[test]
    fn a_byte_beside_the_region_is_noticed_and_one_inside_is_not() {
        let (mut inside, guard_zones) = guarded(10);
        let bytes = inside.stable_bytes().cast::<u8>();
        assert_eq!(inside.stable_bytes().len(), 10);
        for (at, intact) in [(0, true), (9, true), (10, false), (-1, false)] {
            // SAFETY: all of these lie within the allocation, and nothing else accesses it
            // meanwhile.
            unsafe {
                let place = bytes.offset(at);
                let before = place.read();
                place.write(1);
                assert_eq!(guard_zones.are_intact(), intact, "{at}");
                place.write(before);
            }
            assert!(guard_zones.are_intact());
        }
    }
}
