//! A registered region with a shadow copy of what it must hold.
//!
//! Pieces are taken for operations under way and given back when it is known what they hold. Everything that is not
//! taken must at all times be equal to the shadow, so a byte written outside of its message shows; so does one beside
//! the region.

use ironwarp::{
    Access, Context, GuardZones, ProtectionDomain, Region, RemoteMemory, Sge, VerbsError, guarded,
};
use ironwarp_types::SeededEntropy;

use super::Pattern;
use crate::plan::Placement;

/// Some bytes of a plot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The first.
    pub at: usize,
    /// How many.
    pub len: usize,
}

/// Bytes that hold what a shadow says.
pub struct ShadowedRegion {
    region: Region,
    /// What lies beside it.
    guard_zones: GuardZones,
    shadow: Vec<u8>,
    /// Pieces that nobody has taken, in order and apart.
    free: Vec<Piece>,
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
        Ok(ShadowedRegion { region, guard_zones, shadow: vec![0; bytes], free, scratch: Vec::new() })
    }

    /// Takes a piece of `len` bytes, from somewhere; `None` where no gap is wide enough.
    pub fn alloc(&mut self, len: usize, rng: &mut SeededEntropy) -> Option<Piece> {
        if len == 0 {
            return Some(Piece { at: 0, len: 0 });
        }
        let wide = |gap: &Piece| gap.len >= len;
        let count = self.free.iter().filter(|gap| wide(gap)).count();
        let pick = rng.below(count as u64) as usize;
        let index = self.free.iter().enumerate().filter(|(_, gap)| wide(gap)).nth(pick)?.0;
        let gap = self.free.remove(index);
        let slack = gap.len - len;
        // At an end half the time, so that neighbours touch.
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

    /// Takes the first `len` bytes of a plot of which nothing is taken.
    pub fn alloc_first(&mut self, len: usize) -> Piece {
        let rest = self.shadow.len() - len;
        self.free = vec![Piece { at: len, len: rest }];
        Piece { at: 0, len }
    }

    /// Gives a piece back.
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

    /// Writes the message's bytes from `offset` on into a piece, and remembers that they are there.
    pub fn write(&mut self, piece: Piece, pattern: Pattern, offset: usize) {
        let shadow = &mut self.shadow[piece.at..piece.at + piece.len];
        pattern.fill(offset, shadow);
        if self.region.write_at(piece.at, shadow).is_err() {
            unreachable!("a piece lies in its region");
        }
    }

    /// A piece now holds the message's bytes from `offset` on, or this says where it does not.
    pub fn expect_pattern(&mut self, piece: Piece, pattern: Pattern, offset: usize) -> Result<(), String> {
        pattern.fill(offset, &mut self.shadow[piece.at..piece.at + piece.len]);
        self.verify(piece)
    }

    /// A piece holds as much of the message as was placed before its stream ended, and for the rest what it held before.
    pub fn expect_partial(
        &mut self,
        piece: Piece,
        pattern: Pattern,
        offset: usize,
        placement: Placement,
    ) -> Result<(), String> {
        let mut wanted = vec![0; piece.len];
        pattern.fill(offset, &mut wanted);
        self.read(piece);
        let shadow = &mut self.shadow[piece.at..piece.at + piece.len];
        let fault = match placement {
            Placement::InOrder => check_prefix(&self.scratch, shadow, &wanted),
            Placement::OutOfOrder => check_segments(&self.scratch, shadow, &wanted),
        };
        shadow.copy_from_slice(&self.scratch);
        fault.map_or(Ok(()), |fault| Err(format!("{piece:?} {fault}")))
    }

    /// A piece holds what the shadow says.
    pub fn verify(&mut self, piece: Piece) -> Result<(), String> {
        self.read(piece);
        let shadow = &self.shadow[piece.at..piece.at + piece.len];
        if self.scratch == shadow {
            return Ok(());
        }
        let at = self.scratch.iter().zip(shadow).position(|(got, want)| got != want).unwrap_or(0);
        let wrong = self.scratch.iter().zip(shadow).filter(|(got, want)| got != want).count();
        Err(format!(
            "byte {at} of {piece:?} is {:#04x} and not {:#04x}; {wrong} are wrong",
            self.scratch[at], shadow[at]
        ))
    }

    /// Everything that nobody has taken holds what the shadow says.
    pub fn verify_free(&mut self) -> Result<(), String> {
        (0..self.free.len()).try_for_each(|index| self.verify(self.free[index]))
    }

    /// Whether everything has been given back.
    pub fn is_all_free(&self) -> bool {
        self.free == [Piece { at: 0, len: self.shadow.len() }]
    }

    /// Everything has been given back and holds what the shadow says.
    pub fn close(&mut self) -> Result<(), String> {
        if !self.guard_zones.are_intact() {
            return Err("bytes were written beside the region".into());
        }
        if self.is_all_free() { self.verify_free() } else { Err("pieces were never given back".into()) }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.shadow.len()
    }

    /// The element that names a piece.
    pub fn sge(&self, piece: Piece) -> Sge {
        let found = self.region.slice(piece.at, piece.len as u32);
        found.unwrap_or_else(|_| unreachable!("a piece lies in its region"))
    }

    /// How the peer names a piece.
    pub fn remote(&self, piece: Piece) -> RemoteMemory {
        RemoteMemory { stag: self.region.stag(), tagged_offset: self.region.base_to() + piece.at as u64 }
    }

    fn read(&mut self, piece: Piece) {
        self.scratch.resize(piece.len, 0);
        if self.region.read_at(piece.at, &mut self.scratch).is_err() {
            unreachable!("a piece lies in its region");
        }
    }
}

/// What is wrong where a message was placed from its beginning on, up to some byte.
fn check_prefix(found: &[u8], old: &[u8], new: &[u8]) -> Option<String> {
    let placed = found.iter().zip(new).take_while(|(found, new)| found == new).count();
    let fault = || format!("holds neither the old bytes nor the new behind byte {placed}");
    (found[placed..] != old[placed..]).then(fault)
}

/// What is wrong where segments of a message were placed as they came. RFC 5041 s5.3 allows it; our stack holds back the
/// segment that ends the message until everything before it is there.
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

    /// Without early placement what was placed ends at one byte.
    #[test]
    fn in_order_only_a_beginning_may_have_been_placed() {
        for placed in 0..=6 {
            let found = [&NEW[..placed], &OLD[placed..]].concat();
            assert_eq!(check_prefix(&found, &OLD, &NEW), None, "{found:?}");
        }
        assert!(check_prefix(&[1, 2, 0, 4, 0, 0], &OLD, &NEW).is_some());
        assert!(check_prefix(&[1, 2, 9, 0, 0, 0], &OLD, &NEW).is_some());
    }

    /// RFC 5041 s5.3: segments may be placed in any order; a byte that is neither old nor new was never right.
    #[test]
    fn early_any_segment_but_the_last_may_have_been_placed() {
        for found in [OLD, NEW, [1, 2, 0, 0, 0, 0], [0, 0, 3, 4, 0, 0], [1, 0, 3, 0, 5, 0]] {
            assert_eq!(check_segments(&found, &OLD, &NEW), None, "{found:?}");
        }
        assert!(check_segments(&[1, 2, 9, 0, 0, 0], &OLD, &NEW).is_some());
        assert!(check_segments(&[1, 2, 0, 0, 5, 6], &OLD, &NEW).is_some());
    }
}
