//! A registered region with a shadow copy of what it must hold.
//!
//! Operations in flight allocate pieces and release them when their contents are known. Every byte
//! that is not allocated must equal the shadow at all times. So a byte written outside of its
//! message is detected, even one outside of the region.

use ironwarp::{
    Access, Context, GuardZones, ProtectionDomain, Region, RemoteMemory, Sge, VerbsError, guarded,
};
use ironwarp_types::SeededEntropy;

use super::Pattern;
use crate::app::post::split_randomly;
use crate::plan::Placement;

/// A range of bytes in a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// Offset of the first byte.
    pub at: usize,
    /// Length in bytes.
    pub len: usize,
}

impl Piece {
    /// Splits into the first `len` bytes and the rest.
    pub fn split(self, len: usize) -> (Self, Self) {
        let len = len.min(self.len);
        (Self { at: self.at, len }, Self { at: self.at + len, len: self.len - len })
    }
}

/// A region and the shadow of its expected contents.
pub struct ShadowedRegion {
    region: Region,
    /// Guard bytes around the region.
    guard_zones: GuardZones,
    shadow: Vec<u8>,
    /// Free pieces, in order and not adjacent.
    free: Vec<Piece>,
    /// As long as the region, so that a read of a piece fills nothing first.
    scratch: Vec<u8>,
}

impl ShadowedRegion {
    /// Registers `bytes` bytes of zeros.
    pub fn new(
        ctx: &Context,
        pd: ProtectionDomain,
        bytes: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let (owner, guard_zones) = guarded(bytes);
        let region = ctx.register(pd, owner, access)?;
        let free = vec![Piece { at: 0, len: bytes }];
        Ok(ShadowedRegion { region, guard_zones, shadow: vec![0; bytes], free, scratch: vec![0; bytes] })
    }

    /// Allocates a piece of `len` bytes at a random offset. Returns `None` where no gap is wide
    /// enough.
    pub fn alloc(&mut self, len: usize, rng: &mut SeededEntropy) -> Option<Piece> {
        if len == 0 {
            return Some(Piece::default());
        }
        let wide = |gap: &Piece| gap.len >= len;
        let count = self.free.iter().filter(|gap| wide(gap)).count();
        let pick = rng.below(count as u64) as usize;
        let index = self.free.iter().enumerate().filter(|(_, gap)| wide(gap)).nth(pick)?.0;
        let gap = self.free.remove(index);
        let slack = gap.len - len;
        // At an end of the gap half the time, so that pieces are adjacent.
        let before = match rng.below(4) {
            0 => 0,
            1 => slack,
            _ => rng.below(slack as u64 + 1) as usize,
        };
        let (left, right) = (before, slack - before);
        if right > 0 {
            self.free.insert(index, Piece { at: gap.at + before + len, len: right });
        }
        if left > 0 {
            self.free.insert(index, Piece { at: gap.at, len: left });
        }
        Some(Piece { at: gap.at + before, len })
    }

    /// Allocates the first `len` bytes of a region without allocations.
    pub fn alloc_first(&mut self, len: usize) -> Piece {
        let rest = self.shadow.len() - len;
        self.free = vec![Piece { at: len, len: rest }];
        Piece { at: 0, len }
    }

    /// Allocates a piece for a receive, as a scatter list of at most `most` elements.
    pub fn alloc_receive(
        &mut self,
        len: usize,
        most: usize,
        rng: &mut SeededEntropy,
    ) -> Option<(Vec<Piece>, Vec<Sge>)> {
        let pieces = split_randomly(self.alloc(len, rng)?, most, rng);
        let scatter = pieces.iter().map(|piece| self.sge(*piece)).collect();
        Some((pieces, scatter))
    }

    pub fn release(&mut self, piece: Piece) {
        if piece.len == 0 {
            return;
        }
        let index = self.free.partition_point(|gap| gap.at < piece.at);
        self.free.insert(index, piece);
        let touches = |a: Piece, b: Piece| a.at + a.len == b.at;
        if index + 1 < self.free.len() && touches(self.free[index], self.free[index + 1]) {
            self.free[index].len += self.free.remove(index + 1).len;
        }
        if index > 0 && touches(self.free[index - 1], self.free[index]) {
            self.free[index - 1].len += self.free.remove(index).len;
        }
    }

    /// Writes the bytes of the pattern from `offset` on into a piece and into the shadow.
    pub fn write(&mut self, piece: Piece, pattern: Pattern, offset: usize) {
        let shadow = &mut self.shadow[piece.at..piece.at + piece.len];
        pattern.fill(offset, shadow);
        if self.region.write_at(piece.at, shadow).is_err() {
            unreachable!("a piece lies in its region");
        }
    }

    /// Checks that a piece holds the bytes of the pattern from `offset` on, and updates the shadow.
    pub fn expect_pattern(&mut self, piece: Piece, pattern: Pattern, offset: usize) -> Result<(), String> {
        pattern.fill(offset, &mut self.shadow[piece.at..piece.at + piece.len]);
        self.verify(piece)
    }

    /// Checks that a piece holds only the part of the message that was placed before its stream
    /// ended, and its old bytes elsewhere.
    pub fn expect_partial(
        &mut self,
        piece: Piece,
        pattern: Pattern,
        offset: usize,
        placement: Placement,
    ) -> Result<(), String> {
        let mut wanted = vec![0; piece.len];
        pattern.fill(offset, &mut wanted);
        let (found, shadow) = self.read(piece);
        let fault = match placement {
            Placement::InOrder => check_prefix(found, shadow, &wanted),
            Placement::OutOfOrder => check_segments(found, shadow, &wanted),
        };
        shadow.copy_from_slice(found);
        fault.map_or(Ok(()), |fault| Err(format!("{piece:?} {fault}")))
    }

    pub fn take(&mut self, piece: Piece) -> Vec<u8> {
        let (found, shadow) = self.read(piece);
        shadow.copy_from_slice(found);
        found.to_vec()
    }

    /// Checks that a piece equals the shadow.
    pub fn verify(&mut self, piece: Piece) -> Result<(), String> {
        let (found, shadow) = self.read(piece);
        if found == shadow {
            return Ok(());
        }
        let differs = |at: &usize| found[*at] != shadow[*at];
        let at = (0..found.len()).find(differs).unwrap_or(0);
        let wrong = (0..found.len()).filter(differs).count();
        Err(format!(
            "byte {at} of {piece:?} is {:#04x} and not {:#04x}; {wrong} are wrong",
            found[at], shadow[at]
        ))
    }

    /// Checks that every free byte equals the shadow.
    pub fn verify_free(&mut self) -> Result<(), String> {
        (0..self.free.len()).try_for_each(|index| self.verify(self.free[index]))
    }

    /// Returns whether every piece has been released.
    pub fn is_all_free(&self) -> bool {
        self.free == [Piece { at: 0, len: self.shadow.len() }]
    }

    /// Checks that every piece has been released and equals the shadow.
    pub fn close(&mut self) -> Result<(), String> {
        if !self.guard_zones.are_intact() {
            return Err("bytes outside of the region were written".into());
        }
        if self.is_all_free() { self.verify_free() } else { Err("pieces were not released".into()) }
    }

    pub fn len(&self) -> usize {
        self.shadow.len()
    }

    /// The scatter/gather element of a piece.
    pub fn sge(&self, piece: Piece) -> Sge {
        let found = self.region.slice(piece.at, piece.len as u32);
        found.unwrap_or_else(|_| unreachable!("a piece lies in its region"))
    }

    pub fn remote(&self, piece: Piece) -> RemoteMemory {
        RemoteMemory { stag: self.region.stag(), tagged_offset: self.region.base_to() + piece.at as u64 }
    }

    /// Returns the bytes of a piece and its shadow.
    fn read(&mut self, piece: Piece) -> (&[u8], &mut [u8]) {
        let found = &mut self.scratch[..piece.len];
        if self.region.read_at(piece.at, found).is_err() {
            unreachable!("a piece lies in its region");
        }
        (found, &mut self.shadow[piece.at..piece.at + piece.len])
    }
}

/// Describes the first difference where a message was placed in order up to some byte.
fn check_prefix(found: &[u8], old: &[u8], new: &[u8]) -> Option<String> {
    let placed = found.iter().zip(new).take_while(|(found, new)| found == new).count();
    let fault = || format!("holds neither the old bytes nor the new after byte {placed}");
    (found[placed..] != old[placed..]).then(fault)
}

/// Describes the first difference where segments of a message were placed in any order.
/// RFC 5041 s5.3 allows that; our stack holds back the segment that ends the message until every
/// earlier one has arrived.
fn check_segments(found: &[u8], old: &[u8], new: &[u8]) -> Option<String> {
    let neither = |at: &usize| found[*at] != old[*at] && found[*at] != new[*at];
    if let Some(at) = (0..found.len()).find(neither) {
        return Some(format!("holds at byte {at} neither the old one nor the new one"));
    }
    let ended = found.last() != old.last();
    let missing = found.iter().zip(new).position(|(found, new)| found != new)?;
    ended.then(|| format!("holds the last byte of a message and not byte {missing}"))
}

#[cfg(test)]
mod tests {
    use super::{check_prefix, check_segments};

    const OLD: [u8; 6] = [0; 6];
    const NEW: [u8; 6] = [1, 2, 3, 4, 5, 6];

    #[test]
    fn in_order_placement_leaves_a_prefix_of_the_message() {
        for placed in 0..=6 {
            let found = [&NEW[..placed], &OLD[placed..]].concat();
            assert_eq!(check_prefix(&found, &OLD, &NEW), None, "{found:?}");
        }
        assert!(check_prefix(&[1, 2, 0, 4, 0, 0], &OLD, &NEW).is_some());
        assert!(check_prefix(&[1, 2, 9, 0, 0, 0], &OLD, &NEW).is_some());
    }

    /// RFC 5041 s5.3: segments may be placed in any order, but every byte is either old or new.
    #[test]
    fn out_of_order_placement_may_place_any_segment_except_the_last() {
        for found in [OLD, NEW, [1, 2, 0, 0, 0, 0], [0, 0, 3, 4, 0, 0], [1, 0, 3, 0, 5, 0]] {
            assert_eq!(check_segments(&found, &OLD, &NEW), None, "{found:?}");
        }
        assert!(check_segments(&[1, 2, 9, 0, 0, 0], &OLD, &NEW).is_some());
        assert!(check_segments(&[1, 2, 0, 0, 5, 6], &OLD, &NEW).is_some());
    }
}
