//! A received frame and the range of it that holds stream bytes.

use ironwarp_port::Frame;
use ironwarp_types::Seq;

use crate::header::Segment;

/// Stream bytes in a received frame.
pub(crate) struct Piece<F> {
    pub(crate) frame: F,
    /// The sequence number of the first byte.
    pub(crate) seq: Seq,
    /// The range of the bytes in the frame.
    pub(crate) start: u16,
    pub(crate) end: u16,
}

impl<F: Frame> Piece<F> {
    #[inline(always)]
    pub(crate) fn new(frame: F, segment: &Segment) -> Self {
        Piece { frame, seq: segment.seq, start: segment.start, end: segment.end }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.end.saturating_sub(self.start))
    }

    /// Returns the sequence number after the last byte.
    #[inline]
    pub(crate) fn seq_end(&self) -> Seq {
        self.seq.plus(self.len())
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.frame.bytes().get(usize::from(self.start)..usize::from(self.end)).unwrap_or_default()
    }

    /// Drops bytes before `seq`.
    pub(crate) fn trim_front(&mut self, seq: Seq) {
        if self.seq.lt(seq) {
            self.skip(seq.since(self.seq).min(self.len()) as u16);
        }
    }

    /// Drops bytes from `seq` on.
    pub(crate) fn trim_back(&mut self, seq: Seq) {
        if seq.lt(self.seq_end()) {
            let keep = if self.seq.lt(seq) { seq.since(self.seq) } else { 0 };
            self.end = self.start + keep as u16;
        }
    }

    /// Drops the first `n` bytes. The piece must hold that many.
    #[inline]
    pub(crate) fn skip(&mut self, n: u16) {
        debug_assert!(u32::from(n) <= self.len());
        self.start = self.start.wrapping_add(n);
        self.seq = self.seq.plus(u32::from(n));
    }

    /// Moves bytes of the following piece into this frame, as many as fit.
    pub(crate) fn append_part(&mut self, other: &mut Piece<F>) {
        let room = self.frame.capacity().min(usize::from(u16::MAX)).saturating_sub(usize::from(self.end));
        let part = other.len().min(room as u32) as u16;
        let (start, end) = (other.start, other.end);
        other.end = start + part;
        if part > 0 && self.append_piece(other) {
            other.end = end;
            other.skip(part);
        } else {
            other.end = end;
        }
    }

    /// Moves the bytes over the headers before them, to make room after them.
    pub(crate) fn move_to_front(&mut self) {
        let range = usize::from(self.start)..usize::from(self.end);
        if let Some(bytes) = self.frame.bytes_mut().get_mut(..range.end) {
            bytes.copy_within(range, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Copies the bytes of another piece after these if the frame has room. The frame is not
    /// shared, so its spare room may be used.
    pub(crate) fn append_piece(&mut self, other: &Piece<F>) -> bool {
        let bytes = other.bytes();
        let (from, to) = (usize::from(self.end), usize::from(self.end) + bytes.len());
        if to > self.frame.capacity() || to > usize::from(u16::MAX) {
            return false;
        }
        self.frame.resize(to);
        let Some(room) = self.frame.bytes_mut().get_mut(from..to) else { return false };
        room.copy_from_slice(bytes);
        self.end = to as u16;
        true
    }
}
