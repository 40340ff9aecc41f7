//! A unit that was pulled and is not acknowledged.

use ironwarp_port::Sealed;
use ironwarp_types::{Nanos, Seq};
use serde::{Deserialize, Serialize};

use super::NIL;

/// The transmission state of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum UnitState {
    /// Pulled and never sent, because it exceeds the peer's window.
    Unsent,
    /// Sent, and neither acknowledged nor marked lost since.
    InFlight,
    /// SACKed. The peer may still discard it (RFC 2018 s8).
    Sacked,
    /// To be retransmitted.
    Lost,
}

/// Immutable payload and its sequence range, in the frame that the source filled. The driver may
/// still hold that frame, so a retransmission uses a new frame with a copy of the range.
///
/// A unit is split where a window, the path MTU or an edge of an acknowledgement lies inside it.
/// The parts share the frame. Our FIN is a unit without payload that takes one sequence number.
pub(crate) struct Unit<S> {
    pub(crate) sealed: S,
    /// When it was last sent.
    pub(crate) sent_at: Nanos,
    pub(crate) seq: Seq,
    pub(crate) len: u16,
    /// The offset of the payload in the frame.
    pub(crate) payload_at: u16,
    /// For a [`UnitState::Sacked`] unit: the node of the last unit of the contiguous SACKed run
    /// that begins here.
    pub(crate) run: u32,
    pub(crate) state: UnitState,
    /// It was sent more than once.
    pub(crate) retransmitted: bool,
    pub(crate) fin: bool,
}

impl<S: Sealed> Unit<S> {
    /// Creates a unit of pulled payload, or of our FIN when `fin`.
    #[inline]
    pub(crate) fn new(sealed: S, seq: Seq, len: u16, payload_at: u16, fin: bool) -> Self {
        Unit {
            sealed,
            sent_at: Nanos::ZERO,
            seq,
            len,
            payload_at,
            run: NIL,
            state: UnitState::Unsent,
            retransmitted: false,
            fin,
        }
    }

    /// Returns the count of sequence numbers that it takes.
    #[inline]
    pub(crate) fn seq_len(&self) -> u32 {
        u32::from(self.len) + u32::from(self.fin)
    }

    #[inline]
    pub(crate) fn seq_end(&self) -> Seq {
        self.seq.plus(self.seq_len())
    }

    /// Returns the bytes from `seq`, at most `len` of them.
    pub(crate) fn range(&self, seq: Seq, len: usize) -> &[u8] {
        let skip = seq.since(self.seq).min(u32::from(self.len)) as usize;
        let from = usize::from(self.payload_at) + skip;
        let to = usize::from(self.payload_at) + (skip + len).min(usize::from(self.len));
        self.sealed.bytes().get(from..to).unwrap_or_default()
    }

    /// Drops its first `bytes`, which are acknowledged.
    pub(crate) fn trim_front(&mut self, bytes: u32) {
        let bytes = bytes.min(u32::from(self.len));
        self.seq = self.seq.plus(bytes);
        self.len -= bytes as u16;
        self.payload_at += bytes as u16;
    }

    /// Shortens the unit to its first `bytes` and returns the rest. Both parts are ordinary units
    /// and may be split again.
    pub(crate) fn split_off(&mut self, bytes: u16) -> Self {
        let bytes = bytes.min(self.len);
        let rest = Unit {
            sealed: self.sealed.clone(),
            sent_at: self.sent_at,
            seq: self.seq.plus(u32::from(bytes)),
            len: self.len - bytes,
            payload_at: self.payload_at + bytes,
            run: NIL,
            state: self.state,
            retransmitted: self.retransmitted,
            fin: self.fin,
        };
        (self.len, self.fin) = (bytes, false);
        rest
    }

    /// Returns whether `next` is the part of the same frame that follows this one.
    pub(crate) fn continues_in(&self, next: &Self) -> bool {
        self.seq_end() == next.seq
            && !self.fin
            && u32::from(self.payload_at) + u32::from(self.len) == u32::from(next.payload_at)
            && core::ptr::eq(self.sealed.bytes().as_ptr(), next.sealed.bytes().as_ptr())
    }

    /// Appends the part that follows, which was split off before.
    pub(crate) fn join(&mut self, part: &Self) {
        self.len += part.len;
        self.fin = part.fin;
        self.retransmitted |= part.retransmitted;
        self.sent_at = self.sent_at.max(part.sent_at);
    }
}
