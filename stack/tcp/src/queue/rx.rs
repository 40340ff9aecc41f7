//! Received frames of one connection: those in order that wait to be read, and those that came too early.
//!
//! ```text
//!      read      in_order: in order, not read        gap        out_of_order: sorted, apart
//!  ----------|=========================|.................|=====|....|===|.....
//!            ^                         ^                 ^
//!       rcv_nxt - unread            rcv_nxt        out_of_order.front().seq
//! ```
//!
//! Frames are kept as they came. Three rules keep a peer from holding many buffers with few bytes: a small segment is
//! copied into the spare room of the frame before it; early frames are limited in number for every connection; all
//! frames come out of an arena of fixed size. Early ones may take half of its shared part; beyond that new ones are
//! refused. Bytes in order may take the rest; when nothing is left, one connection at a time may take as many more as
//! finish its FPDU, so that a crowd of half FPDUs comes to an end; who does not finish in time is given up. None that is
//! held is ever dropped, since the peer may have heard of it in a selective acknowledgement.
//!
//! Source: RFC 9293 s3.10.7.4, seventh step, and s3.4 for overlaps. Cost: an in-order frame is one node pushed and, when
//! read, one popped; an early frame behind all others is one push.

use ironwarp_port::Frame;
use ironwarp_types::Seq;

use super::{Arena, List, NIL, Piece};

/// A segment up to this size is copied into the frame before it when that has room. Copying it costs less than the
/// second frame would.
const SMALL_BYTES: u32 = 256;

/// Waiting frames of one connection from which on larger segments are copied too.
const IN_ORDER_FRAMES_SOFT_MAX: u16 = 64;

/// There was no room for the bytes: they are dropped and not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RxFull;

/// One connection's received frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxQueues {
    pub(crate) in_order: List,
    pub(crate) out_of_order: List,
    /// The connection's place.
    slot: u32,
}

impl RxQueues {
    pub(crate) const fn new(reserve: u16, slot: u32) -> Self {
        RxQueues { in_order: List::with_reserve(reserve), out_of_order: List::with_reserve(0), slot }
    }

    /// Appends the bytes that come next, and answers the end of those that are held: of all, of a part, or none.
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

    /// Copies the piece into the frame before it where that saves a frame. Answers whether all of it is there.
    #[inline(never)]
    fn compact<F: Frame>(&self, arena: &mut Arena<Piece<F>>, piece: &mut Piece<F>) -> bool {
        if self.in_order.len() >= IN_ORDER_FRAMES_SOFT_MAX || arena.is_under_pressure() {
            return self.pack(arena, piece);
        }
        piece.len() <= SMALL_BYTES
            && arena.back_mut(&self.in_order).is_some_and(|tail| tail.append_piece(piece))
    }

    /// semantics.md, Window: above a watermark frames are filled to the brim, so that bytes take no more frames than they
    /// must.
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

    /// Files a piece that lies beyond a gap. Bytes that are there already are kept, and the new copy of them dropped.
    pub(crate) fn push_out_of_order<F: Frame>(
        &mut self,
        arena: &mut Arena<Piece<F>>,
        mut piece: Piece<F>,
        frames_max: u16,
    ) -> Result<(), RxFull> {
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

    /// A small piece directly behind another one shares its frame when it can.
    fn extend_out_of_order<F: Frame>(
        &mut self,
        arena: &mut Arena<Piece<F>>,
        prev: u32,
        mut piece: Piece<F>,
        frames_max: u16,
    ) -> Result<(), RxFull> {
        let replaces = self.remove_covered(arena, prev, &mut piece);
        if arena.value_mut(prev).is_some_and(|before| before.append_piece(&piece)) {
            return Ok(());
        }
        self.insert_out_of_order(arena, prev, piece, if replaces { None } else { Some(frames_max) })
    }

    /// Adds a piece, within limits unless it takes the place of one that was there: what that one held has been told to
    /// the peer.
    fn insert_out_of_order<F: Frame>(
        &mut self,
        arena: &mut Arena<Piece<F>>,
        prev: u32,
        piece: Piece<F>,
        frames_max: Option<u16>,
    ) -> Result<(), RxFull> {
        if piece.len() == 0 {
            return Ok(());
        }
        // Half of what is shared is for bytes in order: what came early never keeps them out.
        if frames_max.is_some_and(|most| self.out_of_order.len() >= most || arena.is_half_used()) {
            return Err(RxFull);
        }
        arena.insert_after(&mut self.out_of_order, prev, piece).map(|_| ()).map_err(|_| RxFull)
    }

    /// The last early piece that begins at or before `seq`, or [`NIL`]. Most arrivals lie behind all others.
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

    /// Removes pieces that the new one covers whole, and trims it where the next one begins. Answers whether any was
    /// removed: then a node is free for the new one, whatever others do.
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

    /// Moves early pieces that the gap before `rcv_nxt` no longer keeps apart, and answers the new RCV.NXT.
    pub(crate) fn close_gap<F: Frame>(&mut self, arena: &mut Arena<Piece<F>>, mut rcv_nxt: Seq) -> Seq {
        while arena.front(&self.out_of_order).is_some_and(|piece| piece.seq.leq(rcv_nxt)) {
            let Some(mut piece) = arena.pop_front(&mut self.out_of_order) else { break };
            piece.trim_front(rcv_nxt);
            // The node that it had is free: it cannot be refused.
            if piece.len() > 0 {
                rcv_nxt = self.push_in_order(arena, piece);
            }
        }
        rcv_nxt
    }

    /// Takes the first `n` bytes, or all.
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

    /// Gives all frames back.
    pub(crate) fn clear<F: Frame>(&mut self, arena: &mut Arena<Piece<F>>) {
        arena.clear(&mut self.in_order);
        arena.clear(&mut self.out_of_order);
    }

    /// The held pieces from the one on in which `seq` lies. None when it lies in none.
    pub(crate) fn out_of_order_from<'a, F: Frame>(
        &self,
        arena: &'a Arena<Piece<F>>,
        seq: Seq,
    ) -> impl Iterator<Item = &'a Piece<F>> + use<'a, F> {
        let at = self.find_predecessor(arena, seq);
        let holds = arena.value(at).is_some_and(|piece| seq.lt(piece.seq_end()));
        arena.iter_from(if holds { at } else { NIL })
    }

    /// Whether every byte of a range is held beyond the gap.
    pub(crate) fn holds<F: Frame>(&self, arena: &Arena<Piece<F>>, start: Seq, end: Seq) -> bool {
        let mut at = start;
        for piece in arena.iter(&self.out_of_order) {
            if piece.seq.leq(at) && at.lt(piece.seq_end()) {
                at = piece.seq_end();
            }
        }
        end.leq(at)
    }

    /// Ready bytes are contiguous up to `rcv_nxt` and `unread` in number; early ones are sorted, apart and beyond it.
    pub(crate) fn check<F: Frame>(
        &self,
        arena: &Arena<Piece<F>>,
        rcv_nxt: Seq,
        unread: u32,
    ) -> Result<(), String> {
        let mut at = rcv_nxt.minus(unread);
        for piece in arena.iter(&self.in_order) {
            if piece.seq != at || piece.len() == 0 {
                return Err(format!("ready piece {:?}+{} does not follow {at:?}", piece.seq, piece.len()));
            }
            at = piece.seq_end();
        }
        if at != rcv_nxt {
            return Err(format!("ready bytes end at {at:?}, not at rcv_nxt {rcv_nxt:?}"));
        }
        for piece in arena.iter(&self.out_of_order) {
            // The first must leave a gap; two neighbours may touch.
            let apart = if at == rcv_nxt { piece.seq.gt(at) } else { piece.seq.geq(at) };
            if !apart || piece.len() == 0 {
                return Err(format!("early piece {:?}+{} overlaps {at:?}", piece.seq, piece.len()));
            }
            at = piece.seq_end();
        }
        Ok(())
    }
}
