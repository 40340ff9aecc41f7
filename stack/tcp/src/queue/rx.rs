//! Received frames of one connection: in-order frames that wait to be read, and out-of-order
//! frames.
//!
//! ```text
//!    consumed    in_order: not yet read         gap        out_of_order: sorted, disjoint
//!  ----------|=========================|.................|=====|....|===|.....
//!            ^                         ^                 ^
//!       rcv_nxt - unread            rcv_nxt        out_of_order.front().seq
//! ```
//!
//! Frames are kept as they arrived. Three rules keep a peer from holding many buffers with few
//! bytes:
//!
//! - A small segment is copied into spare room of the frame before it.
//! - The number of out-of-order frames of a connection is limited.
//! - All frames come from an arena of fixed size.
//!
//! Out-of-order frames may take half of the arena's shared part, after which new ones are refused.
//! In-order bytes may take the rest. When nothing is left, one connection at a time may take the
//! emergency reserve to complete its FPDU, so that many partial FPDUs cannot block each other. A
//! connection that does not complete its FPDU in time is aborted. A held frame, which a selective
//! acknowledgement may have reported, is dropped only while others lack frames and its connection
//! makes no progress ([`Shortage`](super::Shortage)).
//!
//! Source: RFC 9293 s3.10.7.4, seventh step, and s3.4 for overlaps. Cost: an in-order frame is one
//! node pushed and, when read, one popped. An out-of-order frame after all others is one push.

use ironwarp_port::Frame;
use ironwarp_types::Seq;

use super::{Arena, List, NIL, Piece};

/// A segment up to this size is copied into the frame before it if that has room. The copy costs
/// less than holding a second frame.
const SMALL_BYTES: u32 = 256;

/// Waiting frames of one connection above which larger segments are copied too.
const IN_ORDER_FRAMES_SOFT_MAX: u16 = 64;

/// No node was free: the bytes are dropped and not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RxFull;

/// One connection's received frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RxQueues {
    pub(crate) in_order: List,
    pub(crate) out_of_order: List,
    /// The connection's slot.
    slot: u32,
}

impl RxQueues {
    pub(crate) const fn new(reserve: u16, slot: u32) -> Self {
        RxQueues { in_order: List::with_reserve(reserve), out_of_order: List::with_reserve(0), slot }
    }

    /// Appends bytes at RCV.NXT. Returns the end of the held bytes: all, a part, or none of them
    /// may be held.
    #[inline]
    pub(crate) fn push_in_order<F: Frame>(
        &mut self,
        arena: &mut Arena<Piece<F>>,
        mut piece: Piece<F>,
    ) -> Seq {
        let seq_end = piece.seq_end();
        if !self.in_order.is_empty() && self.compact(arena, &mut piece) {
            return seq_end;
        }
        match arena.push_back(&mut self.in_order, piece) {
            Ok(_) => seq_end,
            Err(piece) => self.push_when_full(arena, piece),
        }
    }

    /// Copies the piece into the frame before it where that saves a frame. Returns whether all of
    /// it was copied.
    #[inline(never)]
    fn compact<F: Frame>(&self, arena: &mut Arena<Piece<F>>, piece: &mut Piece<F>) -> bool {
        if self.in_order.len() >= IN_ORDER_FRAMES_SOFT_MAX || arena.is_under_pressure() {
            return self.pack(arena, piece);
        }
        piece.len() <= SMALL_BYTES
            && arena.back_mut(&self.in_order).is_some_and(|tail| tail.append_piece(piece))
    }

    /// docs/semantics.md, Window: above a watermark, frames are filled completely, so that the
    /// bytes take as few frames as possible.
    #[cold]
    fn pack<F: Frame>(&self, arena: &mut Arena<Piece<F>>, piece: &mut Piece<F>) -> bool {
        if let Some(tail) = arena.back_mut(&self.in_order) {
            tail.append_part(piece);
        }
        piece.move_to_front();
        piece.len() == 0
    }

    #[cold]
    fn push_when_full<F: Frame>(&mut self, arena: &mut Arena<Piece<F>>, piece: Piece<F>) -> Seq {
        let (seq, seq_end) = (piece.seq, piece.seq_end());
        if arena.push_back_emergency(&mut self.in_order, piece, self.slot).is_ok() { seq_end } else { seq }
    }

    /// Holds a piece beyond a gap. Bytes that are already held are kept, and their new copy is
    /// dropped. Returns whether any byte is new.
    pub(crate) fn push_out_of_order<F: Frame>(
        &mut self,
        arena: &mut Arena<Piece<F>>,
        mut piece: Piece<F>,
        frames_max: u16,
    ) -> Result<bool, RxFull> {
        let prev = self.find_predecessor(arena, piece.seq);
        if let Some(before) = arena.value_mut(prev) {
            piece.trim_front(before.seq_end());
            if piece.len() > 0 && piece.len() <= SMALL_BYTES && before.seq_end() == piece.seq {
                return self.extend_out_of_order(arena, prev, piece, frames_max);
            }
        }
        let replaces = self.remove_covered(arena, prev, &mut piece);
        self.insert_out_of_order(arena, prev, piece, if replaces { None } else { Some(frames_max) })
    }

    /// Copies a small piece into the frame of the piece directly before it, if possible.
    fn extend_out_of_order<F: Frame>(
        &mut self,
        arena: &mut Arena<Piece<F>>,
        prev: u32,
        mut piece: Piece<F>,
        frames_max: u16,
    ) -> Result<bool, RxFull> {
        let replaces = self.remove_covered(arena, prev, &mut piece);
        if piece.len() > 0 && arena.value_mut(prev).is_some_and(|before| before.append_piece(&piece)) {
            return Ok(true);
        }
        self.insert_out_of_order(arena, prev, piece, if replaces { None } else { Some(frames_max) })
    }

    /// Inserts a piece. The limits apply unless it replaces a held one, which the peer may know of.
    fn insert_out_of_order<F: Frame>(
        &mut self,
        arena: &mut Arena<Piece<F>>,
        prev: u32,
        piece: Piece<F>,
        frames_max: Option<u16>,
    ) -> Result<bool, RxFull> {
        if piece.len() == 0 {
            return Ok(false);
        }
        // Half of the shared part is reserved for in-order bytes, so that out-of-order bytes never
        // block them.
        if frames_max.is_some_and(|most| self.out_of_order.len() >= most || arena.is_half_used()) {
            return Err(RxFull);
        }
        arena.insert_after(&mut self.out_of_order, prev, piece).map(|_| true).map_err(|_| RxFull)
    }

    /// Returns the last out-of-order piece that begins at or before `seq`, or [`NIL`]. Most
    /// arrivals are after all others.
    fn find_predecessor<F: Frame>(&self, arena: &Arena<Piece<F>>, seq: Seq) -> u32 {
        let tail = self.out_of_order.tail();
        if arena.value(tail).is_some_and(|last| last.seq.leq(seq)) {
            return tail;
        }
        let (mut prev, mut at) = (NIL, self.out_of_order.head());
        while arena.value(at).is_some_and(|piece| piece.seq.leq(seq)) {
            prev = at;
            at = arena.next(at);
        }
        prev
    }

    /// Removes pieces that the new one covers completely, and trims it where the next one begins.
    /// Returns whether one was removed, in which case a node is free for the new one.
    fn remove_covered<F: Frame>(
        &mut self,
        arena: &mut Arena<Piece<F>>,
        prev: u32,
        piece: &mut Piece<F>,
    ) -> bool {
        let mut removed = false;
        loop {
            let next = if prev == NIL { self.out_of_order.head() } else { arena.next(prev) };
            let Some(after) = arena.value(next) else { return removed };
            if after.seq_end().gt(piece.seq_end()) {
                piece.trim_back(after.seq);
                return removed;
            }
            if piece.len() == 0 {
                return removed;
            }
            removed |= arena.remove_after(&mut self.out_of_order, prev).is_some();
        }
    }

    /// Moves the out-of-order pieces that are now contiguous with `rcv_nxt`, and returns the new
    /// RCV.NXT.
    pub(crate) fn close_gap<F: Frame>(&mut self, arena: &mut Arena<Piece<F>>, mut rcv_nxt: Seq) -> Seq {
        while arena.front(&self.out_of_order).is_some_and(|piece| piece.seq.leq(rcv_nxt)) {
            let Some(mut piece) = arena.pop_front(&mut self.out_of_order) else { break };
            piece.trim_front(rcv_nxt);
            // Its node was just freed, so the push cannot be refused.
            if piece.len() > 0 {
                rcv_nxt = self.push_in_order(arena, piece);
            }
        }
        rcv_nxt
    }

    /// Removes the first `n` bytes, or all when there are fewer.
    pub(crate) fn consume<F: Frame>(&mut self, arena: &mut Arena<Piece<F>>, mut n: u32) {
        while n > 0 {
            let Some(front) = arena.front_mut(&self.in_order) else { return };
            let len = front.len();
            if n < len {
                front.skip(n as u16);
                return;
            }
            n -= len;
            arena.pop_front(&mut self.in_order);
        }
    }

    /// Frees all frames.
    pub(crate) fn clear<F: Frame>(&mut self, arena: &mut Arena<Piece<F>>) {
        arena.clear(&mut self.in_order);
        arena.clear(&mut self.out_of_order);
    }

    /// Returns the held pieces from the one that contains `seq` on, or none if no piece contains
    /// it.
    pub(crate) fn out_of_order_from<'a, F: Frame>(
        &self,
        arena: &'a Arena<Piece<F>>,
        seq: Seq,
    ) -> impl Iterator<Item = &'a Piece<F>> + use<'a, F> {
        let at = self.find_predecessor(arena, seq);
        let holds = arena.value(at).is_some_and(|piece| seq.lt(piece.seq_end()));
        arena.iter_from(if holds { at } else { NIL })
    }

    /// Returns whether all bytes of a range are held beyond the gap.
    pub(crate) fn holds<F: Frame>(&self, arena: &Arena<Piece<F>>, start: Seq, end: Seq) -> bool {
        let mut at = start;
        for piece in arena.iter(&self.out_of_order) {
            if piece.seq.leq(at) && at.lt(piece.seq_end()) {
                at = piece.seq_end();
            }
        }
        end.leq(at)
    }

    /// Checks that in-order bytes are contiguous up to `rcv_nxt` and `unread` in number, and that
    /// out-of-order pieces are sorted, disjoint and beyond it.
    pub(crate) fn check<F: Frame>(
        &self,
        arena: &Arena<Piece<F>>,
        rcv_nxt: Seq,
        unread: u32,
    ) -> Result<(), String> {
        let mut at = rcv_nxt.minus(unread);
        for piece in arena.iter(&self.in_order) {
            if piece.seq != at || piece.len() == 0 {
                return Err(format!("in-order piece {:?}+{} does not follow {at:?}", piece.seq, piece.len()));
            }
            at = piece.seq_end();
        }
        if at != rcv_nxt {
            return Err(format!("in-order bytes end at {at:?}, not at rcv_nxt {rcv_nxt:?}"));
        }
        for piece in arena.iter(&self.out_of_order) {
            // The first piece must leave a gap; adjacent pieces may touch.
            let apart = if at == rcv_nxt { piece.seq.gt(at) } else { piece.seq.geq(at) };
            if !apart || piece.len() == 0 {
                return Err(format!("out-of-order piece {:?}+{} overlaps {at:?}", piece.seq, piece.len()));
            }
            at = piece.seq_end();
        }
        Ok(())
    }
}
