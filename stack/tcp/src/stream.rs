//! What TCP asks of the protocol above it, and what it offers that protocol.
//!
//! TCP never sees an FPDU and never stores a byte stream to send. It *pulls* units, which the layer above cuts so
//! that a segment begins with an FPDU header and holds whole FPDUs (RFC 5044 s5.1), and it *lends* the in-order
//! bytes that have arrived, from which the layer above takes whole FPDUs and leaves the rest. To a layer that asks for
//! it, TCP also *shows* what it holds beyond a gap.

use core::ops::Range;

/// Where TCP pulls its next sendable unit from.
pub trait UnitSource {
    /// Writes the next unit into the front of `room` and answers its length in bytes, 0 when nothing can be sent
    /// now.
    ///
    /// `room` is one segment's payload (the effective maximum segment size, EMSS). Its bytes are whatever the
    /// buffer held before; every byte up to the answered length is overwritten. A unit, once answered, is part of
    /// the stream for good: TCP keeps it until it is acknowledged.
    fn fill(&mut self, room: &mut [u8]) -> usize;

    /// Whether there is nothing to give now, as far as can be told at a glance: asked before a buffer is taken. A source
    /// that answers `false` may still fill nothing.
    fn is_empty(&mut self) -> bool {
        false
    }

    /// Whether the next unit is the last that the source will give, and short. Such a one may take a buffer that is kept
    /// for it when the pool is empty. Asked only then.
    fn is_last(&self) -> bool {
        false
    }
}

/// A source with nothing to send.
impl UnitSource for () {
    fn is_empty(&mut self) -> bool {
        true
    }

    fn fill(&mut self, _room: &mut [u8]) -> usize {
        0
    }
}

/// The in-order bytes that have arrived and have not been taken.
///
/// Bytes lie in pieces as the segments brought them. Whoever reads takes what it can use and leaves the rest, which
/// TCP holds until more arrives.
pub trait ByteStream {
    /// All bytes that can be read now.
    fn available(&self) -> usize;

    /// The first piece, contiguous. Empty only when nothing is available.
    fn front(&self) -> &[u8];

    /// Copies the first `out.len()` bytes across pieces, without taking them. Answers `false`, and copies nothing,
    /// when fewer are available.
    fn peek(&self, out: &mut [u8]) -> bool;

    /// Takes the first `n` bytes, or all when there are fewer.
    fn consume(&mut self, n: usize);
}

/// The bytes that are held beyond a gap, shown and not lent: they stay where they are, and come again in order.
///
/// RFC 5044 appendix A.3: TCP shows a segment only once it has passed every check and will be kept, and says where in
/// the order of the sender it belongs. Places are distances in bytes from the first byte of the [`ByteStream`] that has
/// not been taken, so they need no arithmetic modulo 2^32 (RFC 5044 s4.3).
pub trait OutOfOrderBytes {
    /// What came last; `None` when it is held no longer, or the gap before it has closed.
    fn latest(&self) -> Option<LatestArrival>;

    /// The held bytes from `at` on that lie in one piece. Empty when the byte at `at` is not held.
    fn piece(&self, at: u32) -> &[u8];

    /// Copies the held bytes from `at` on across pieces. Answers `false`, and leaves `out` as it may be, when not all of
    /// them are held.
    fn peek_at(&self, at: u32, out: &mut [u8]) -> bool;
}

/// Where the bytes lie that came last of all that are held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatestArrival {
    /// The piece that they came in.
    pub piece: Range<u32>,
    /// The held bytes around it, without a gap.
    pub run: Range<u32>,
}
