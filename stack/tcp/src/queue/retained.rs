//! A unit that was pulled and is not acknowledged.

use ironwarp_port::Sealed;
use ironwarp_types::{Nanos, Seq};

use super::NIL;

/// What is known of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnitState {
    /// Pulled and never sent: the peer's window did not take it.
    Unsent,
    /// Sent, and neither acknowledged nor found lost since.
    InFlight,
    /// The peer says that it holds it; it may still change its mind (RFC 2018 s8).
    Sacked,
    /// To be sent again.
    Lost,
}

/// Immutable payload and its sequence range. The frame is the one that it was pulled into; what is sent again is a
/// fresh frame with a copy of a range of it, since the driver may still hold this one.
///
/// A unit is cut in two where a window, a path's MTU or an edge of an acknowledgement lies inside it. The parts share the
/// frame. Our FIN is a unit of no payload that has a number all the same.
pub(crate) struct Unit<S> {
    pub(crate) sealed: S,
    /// When it left last.
    pub(crate) sent_at: Nanos,
    pub(crate) seq: Seq,
    pub(crate) len: u16,
    /// Where the payload begins in the frame.
    pub(crate) payload_at: u16,
    /// For one that is [`UnitState::Sacked`]: the node of the last unit that is known to be so without a gap from here.
    pub(crate) run: u32,
    pub(crate) state: UnitState,
    /// Whether it was sent more than once.
    pub(crate) retransmitted: bool,
    pub(crate) fin: bool,
}

impl<S: Sealed> Unit<S> {
    /// Payload that was just pulled, or our FIN when `fin`.
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

    /// Sequence numbers that it takes.
    #[inline]
    pub(crate) fn seq_len(&self) -> u32 {
        u32::from(self.len) + u32::from(self.fin)
    }

    #[inline]
    pub(crate) fn seq_end(&self) -> Seq {
        self.seq.plus(self.seq_len())
    }

    /// The bytes from `seq`, at most `len` of them.
    pub(crate) fn range(&self, seq: Seq, len: usize) -> &[u8] {
        let skip = seq.since(self.seq).min(u32::from(self.len)) as usize;
        let from = usize::from(self.payload_at) + skip;
        let to = usize::from(self.payload_at) + (skip + len).min(usize::from(self.len));
        self.sealed.bytes().get(from..to).unwrap_or_default()
    }

    /// Forgets its first `bytes`, which are acknowledged.
    pub(crate) fn trim_front(&mut self, bytes: u32) {
        let bytes = bytes.min(u32::from(self.len));
        self.seq = self.seq.plus(bytes);
        self.len -= bytes as u16;
        self.payload_at += bytes as u16;
    }

    /// Cuts itself down to its first `bytes` and answers the rest. A part that cannot be sent in one piece, or half of a
    /// part, is a unit like any other.
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
}
