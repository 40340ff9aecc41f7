//! The anti-replay window of an inbound association.
//!
//! Source: RFC 4303 s3.4.3 and appendix A2. The window is a ring of bits. Sequence number `n` has
//! bit `n % (64 * blocks)`, so the window moves without a shift (RFC 6479).
//!
//! ```text
//!   top - size      top - size + 1                  top
//!  -----|-----------------|--------------------------|----------->
//!       too old           one bit each: seen or not   new
//! ```

/// Sizes that a window may have, in packets. RFC 4303 s3.4.3: 32 must be supported.
pub(crate) const WINDOW_MIN: u32 = 32;
pub(crate) const WINDOW_MAX: u32 = 4096;

const BLOCK_BITS: u64 = u64::BITS as u64;

pub(crate) struct ReplayWindow {
    /// The highest sequence number that was authenticated; 0 before the first.
    top: u64,
    size: u64,
    extended: bool,
    /// A power of two of blocks, at least one more than the window covers.
    blocks: Box<[u64]>,
}

impl ReplayWindow {
    /// Makes an empty window of `size` packets, from [`WINDOW_MIN`] to [`WINDOW_MAX`].
    pub(crate) fn new(size: u32, extended: bool) -> Self {
        let size = u64::from(size.clamp(WINDOW_MIN, WINDOW_MAX));
        let blocks = (size.div_ceil(BLOCK_BITS) + 1).next_power_of_two();
        ReplayWindow { top: 0, size, extended, blocks: vec![0; blocks as usize].into() }
    }

    /// Returns the sequence number whose lower half is `low`, if it is neither seen nor too old.
    /// Whether the packet is the peer's is not known yet.
    pub(crate) fn check(&self, low: u32) -> Option<u64> {
        let sequence = self.infer(low)?;
        let is_old = self.top.checked_sub(sequence).is_some_and(|behind| behind >= self.size);
        let is_seen = sequence <= self.top && self.block(sequence) & bit(sequence) != 0;
        // RFC 4303 s3.3.3: the first packet of an association has number 1.
        (sequence != 0 && !is_old && !is_seen).then_some(sequence)
    }

    /// Notes the number of an authenticated packet, which passed [`ReplayWindow::check`].
    pub(crate) fn accept(&mut self, sequence: u64) {
        let (first, last) = (self.top / BLOCK_BITS + 1, sequence / BLOCK_BITS);
        if sequence > self.top {
            // A jump beyond the ring clears each block once.
            let last = last.min(first.saturating_add(self.blocks.len() as u64 - 1));
            (first..=last).for_each(|block| *self.block_mut(block * BLOCK_BITS) = 0);
            self.top = sequence;
        }
        *self.block_mut(sequence) |= bit(sequence);
    }

    /// RFC 4303 appendix A2.2: the upper half that places the number into the window or above it.
    fn infer(&self, low: u32) -> Option<u64> {
        if !self.extended {
            return Some(low.into());
        }
        let (top_low, top_high) = (self.top as u32, (self.top >> 32) as u32);
        let bottom = top_low.wrapping_sub(self.size as u32 - 1);
        let high = match u64::from(top_low) >= self.size - 1 {
            // Case A: the window lies in one subspace.
            true if low >= bottom => top_high,
            true => top_high.checked_add(1)?,
            // Case B: it begins in the previous one.
            false if low >= bottom => top_high.checked_sub(1)?,
            false => top_high,
        };
        Some(u64::from(high) << 32 | u64::from(low))
    }

    fn index(&self, sequence: u64) -> usize {
        (sequence / BLOCK_BITS) as usize & (self.blocks.len() - 1)
    }

    fn block(&self, sequence: u64) -> u64 {
        self.blocks.get(self.index(sequence)).copied().unwrap_or(0)
    }

    fn block_mut(&mut self, sequence: u64) -> &mut u64 {
        let index = self.index(sequence);
        #[allow(clippy::indexing_slicing)] // The mask keeps the index below the length.
        &mut self.blocks[index]
    }
}

fn bit(sequence: u64) -> u64 {
    1 << (sequence % BLOCK_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(size: u32, extended: bool, seen: impl IntoIterator<Item = u64>) -> ReplayWindow {
        let mut window = ReplayWindow::new(size, extended);
        seen.into_iter().for_each(|sequence| window.accept(sequence));
        window
    }

    /// RFC 4303 s3.4.3: every number is accepted once, in any order within the window.
    #[test]
    fn a_number_is_accepted_once_within_the_window() {
        for size in [32, 64, 100, 1024, 4096] {
            let mut window = window(size, false, [u64::from(size)]);
            for low in (1..size).rev() {
                assert_eq!(window.check(low), Some(low.into()));
                window.accept(low.into());
                assert_eq!(window.check(low), None, "{low} of {size} is a replay");
            }
            assert_eq!(window.check(size), None);
        }
    }

    #[test]
    fn a_number_below_the_window_and_zero_are_refused() {
        let window = window(64, false, [1000]);
        assert_eq!([936, 937, 1001, 0].map(|low| window.check(low)), [None, Some(937), Some(1001), None]);
    }

    #[test]
    fn a_jump_forgets_what_it_leaves_behind_and_nothing_else() {
        let mut window = window(64, false, 1..=200);
        window.accept(240);
        assert_eq!(window.check(200), None);
        assert!((201..240).all(|low| window.check(low).is_some()));
        window.accept(1 << 31);
        assert!(((1 << 31) - 63..1 << 31).all(|low| window.check(low).is_some()));
        assert_eq!(window.check(240), None);
    }

    /// RFC 4303 appendix A2.2, both cases.
    #[test]
    fn the_upper_half_is_inferred_around_the_window() {
        let top = (5 << 32) + 1000;
        let case_a = window(64, true, [top]);
        assert_eq!(case_a.check(937), Some(top - 63));
        assert_eq!(case_a.check(936), Some((6 << 32) + 936), "below the window is the next subspace");
        assert_eq!(case_a.check(5000), Some((5 << 32) + 5000));
        let case_b = window(64, true, [(5 << 32) + 10]);
        assert_eq!(case_b.check(u32::MAX), Some((5 << 32) - 1));
        assert_eq!(case_b.check(u32::MAX - 52), Some((5 << 32) - 53));
        assert_eq!(case_b.check(u32::MAX - 53), Some((6 << 32) - 54));
        assert_eq!(case_b.check(9), Some((5 << 32) + 9));
    }

    /// RFC 4303 appendix A2.2: the window ends at the boundary of a subspace, and one below.
    #[test]
    fn the_upper_half_is_inferred_at_the_boundary() {
        let at_boundary = window(64, true, [(5 << 32) + 63]);
        assert_eq!(at_boundary.check(0), Some(5 << 32));
        assert_eq!(at_boundary.check(u32::MAX), Some((6 << 32) - 1), "above, not below");
        let below = window(64, true, [(5 << 32) + 62]);
        assert_eq!(below.check(u32::MAX), Some((5 << 32) - 1));
        assert_eq!(below.check(u32::MAX - 1), Some((6 << 32) - 2));
    }

    #[test]
    fn the_window_moves_across_a_boundary() {
        let mut window = window(64, true, [(1 << 32) - 3, (1 << 32) - 1]);
        window.accept((1 << 32) + 2);
        let expected = [(0, Some(1 << 32)), (u32::MAX, None), (u32::MAX - 1, Some((1 << 32) - 2)), (2, None)];
        assert_eq!(expected.map(|(low, _)| (low, window.check(low))), expected);
    }

    #[test]
    fn there_is_no_number_below_the_first_or_above_the_last() {
        assert_eq!(window(64, true, [10]).check(u32::MAX), None);
        let last = window(64, true, [u64::MAX]);
        assert_eq!(last.check(5), None);
        assert_eq!(last.check(u32::MAX), None, "the last number is seen");
        assert_eq!(last.check(u32::MAX - 1), Some(u64::MAX - 1));
    }
}
