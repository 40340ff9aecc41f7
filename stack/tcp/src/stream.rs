//! What TCP asks of the protocol above it, and what it offers that protocol.
//!
//! TCP never sees an FPDU and never stores a byte stream to send. It *pulls* units, which the layer above cuts so
//! that a segment begins with an FPDU header and holds whole FPDUs (RFC 5044 s5.1), and it *lends* the in-order
//! bytes that have arrived, from which the layer above takes whole FPDUs and leaves the rest.

/// Where TCP pulls its next sendable unit from.
pub trait UnitSource {
    /// Writes the next unit into the front of `room` and answers its length in bytes, 0 when nothing can be sent
    /// now.
    ///
    /// `room` is one segment's payload (the effective maximum segment size, EMSS). Its bytes are whatever the
    /// buffer held before; every byte up to the answered length is overwritten. A unit, once answered, is part of
    /// the stream for good: TCP keeps it until it is acknowledged.
    fn fill(&mut self, room: &mut [u8]) -> usize;
}

/// A source with nothing to send.
impl UnitSource for () {
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
