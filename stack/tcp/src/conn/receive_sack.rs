//! The contents of SACK options: ranges held beyond a gap, and duplicates.
//!
//! Takes ranges as they are held; gives blocks, the most recent first. A block is repeated in ACKs
//! while it is among the four most recent. A range that is no longer reported stays held.
//!
//! Source: RFC 2018 s4 (the first block contains the segment that triggered the ACK), RFC 2883 s4
//! (duplicates are reported once). Cost: none while all bytes arrive in order; otherwise a scan of
//! four blocks.

use ironwarp_types::Seq;
use serde::{Deserialize, Serialize};

use crate::header::{SackBlock, SackBlocks};

/// The bytes beyond RCV.NXT that the next ACKs report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SackRanges {
    /// Disjoint blocks, the most recent first.
    blocks: SackBlocks,
    /// RFC 2883: bytes that arrived again, for the next ACK; empty if there are none.
    duplicate: SackBlock,
}

impl SackRanges {
    /// Returns whether there is nothing to report.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.duplicate.is_empty()
    }

    /// All bytes of an out-of-order segment are held.
    pub(crate) fn on_out_of_order(&mut self, start: Seq, end: Seq) {
        let mut latest = SackBlock { start, end };
        self.blocks.retain(|block| {
            let touches = block.start.leq(latest.end) && latest.start.leq(block.end);
            if touches {
                latest.start = latest.start.min(block.start);
                latest.end = latest.end.max(block.end);
            }
            !touches
        });
        if self.blocks.is_full() {
            self.blocks.pop();
        }
        self.blocks.insert(0, latest);
    }

    /// Returns the range around the bytes that arrived most recently. All of it is held.
    pub(crate) fn latest(&self) -> Option<SackBlock> {
        self.blocks.first().copied()
    }

    /// Bytes arrived that had arrived before.
    pub(crate) fn on_duplicate(&mut self, start: Seq, end: Seq) {
        if start.lt(end) {
            self.duplicate = SackBlock { start, end };
        }
    }

    /// RFC 2883 s4: records the part of an out-of-order segment that was held already.
    pub(crate) fn find_duplicate(&mut self, start: Seq, end: Seq) {
        let overlap = self.blocks.iter().find(|block| block.start.lt(end) && start.lt(block.end)).copied();
        if let Some(block) = overlap {
            self.on_duplicate(start.max(block.start), end.min(block.end));
        }
    }

    /// RCV.NXT moved: bytes before it are acknowledged cumulatively.
    pub(crate) fn advance(&mut self, rcv_nxt: Seq) {
        self.blocks.retain(|block| block.end.gt(rcv_nxt));
    }

    /// Returns the blocks of the next ACK, at most `most`.
    pub(crate) fn next_blocks(&mut self, most: usize) -> SackBlocks {
        let duplicate = core::mem::take(&mut self.duplicate);
        let duplicate = (!duplicate.is_empty()).then_some(duplicate);
        duplicate.into_iter().chain(self.blocks.iter().copied()).take(most).collect()
    }

    /// Returns whether all blocks to report lie between two sequence numbers.
    pub(crate) fn are_within(&self, from: Seq, to: Seq) -> bool {
        let span = to.since(from);
        let is_within = |block: &SackBlock| {
            block.start.since(from) < block.end.since(from) && block.end.since(from) <= span
        };
        self.blocks.iter().all(is_within)
    }

    /// Checks with `holds` that all reported blocks are held.
    pub(crate) fn check(&self, holds: impl Fn(SackBlock) -> bool) -> Result<(), String> {
        match self.blocks.iter().find(|&&block| !holds(block)) {
            None => Ok(()),
            Some(block) => Err(format!("block {block:?} is reported and not held")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_of(sack_ranges: &mut SackRanges) -> Vec<(u32, u32)> {
        sack_ranges.next_blocks(4).iter().map(|block| (block.start.0, block.end.0)).collect()
    }

    /// A saved block must lie in the receive window and hold something.
    #[test]
    fn an_impossible_block_is_not_within_the_window() {
        let (nxt, adv) = (Seq(u32::MAX - 9), Seq(90));
        let of = |start: u32, end: Seq| {
            let mut sack_ranges = SackRanges::default();
            sack_ranges.blocks.push(SackBlock { start: nxt.plus(start), end });
            sack_ranges.are_within(nxt, adv)
        };
        assert!(of(5, adv));
        assert_eq!([of(5, nxt.plus(5)), of(5, nxt.plus(4)), of(5, adv.plus(1))], [false; 3]);
    }

    /// RFC 2018 s4: the block of the most recent segment first, the others in the order of their
    /// last change.
    #[test]
    fn the_latest_block_comes_first_and_blocks_that_touch_are_one() {
        let mut sack_ranges = SackRanges::default();
        for (start, end) in [(10, 20), (30, 40), (50, 60)] {
            sack_ranges.on_out_of_order(Seq(start), Seq(end));
        }
        assert_eq!(blocks_of(&mut sack_ranges), [(50, 60), (30, 40), (10, 20)]);
        sack_ranges.on_out_of_order(Seq(20), Seq(30));
        assert_eq!(blocks_of(&mut sack_ranges), [(10, 40), (50, 60)]);
        sack_ranges.advance(Seq(40));
        assert_eq!(blocks_of(&mut sack_ranges), [(50, 60)]);
    }

    #[test]
    fn a_fifth_block_replaces_the_oldest() {
        let mut sack_ranges = SackRanges::default();
        for at in 1..=5 {
            sack_ranges.on_out_of_order(Seq(at * 10), Seq(at * 10 + 5));
        }
        assert_eq!(blocks_of(&mut sack_ranges), [(50, 55), (40, 45), (30, 35), (20, 25)]);
    }

    /// RFC 2883 s4: first in the option, and once.
    #[test]
    fn a_duplicate_is_reported_once_and_first() {
        let mut sack_ranges = SackRanges::default();
        sack_ranges.on_out_of_order(Seq(10), Seq(20));
        sack_ranges.find_duplicate(Seq(15), Seq(30));
        assert_eq!(blocks_of(&mut sack_ranges), [(15, 20), (10, 20)]);
        assert_eq!(blocks_of(&mut sack_ranges), [(10, 20)]);
    }
}
