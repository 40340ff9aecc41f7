//! Payload that is read in its frame before it is queued.

use crate::{ConnId, Events};

/// The result of a packet of a stream.
pub enum Arrival<R> {
    /// The reader took the lent payload. It has seen the events, and what it did not consume is
    /// queued.
    Delivered(R),
    /// The events of any other packet. Payload that the reader refused is queued and reported as
    /// READABLE.
    Events(ConnId, Events),
}

/// A packet whose acknowledgement is applied, and whose payload is lent to a reader. No bytes
/// before it are unread.
pub struct Lent<'a, B> {
    /// The connection.
    pub conn: ConnId,
    /// The events of the acknowledgement.
    pub events: Events,
    /// [`Progress::acked_bytes`](crate::Progress) of the connection, if the events contain ACKED.
    pub acked_bytes: u64,
    /// The acknowledgement lets data other than the source's be sent, as
    /// [`Progress::wants_transmit`](crate::Progress).
    pub wants_transmit: bool,
    /// The payload.
    pub bytes: &'a mut B,
}

/// The payload of a transport whose messages are read whole.
pub struct LentMessage<'a> {
    /// The octets in their frame.
    pub octets: &'a [u8],
    /// The reader took them.
    pub is_taken: bool,
}

/// The lent payload of a transport that lends none: messages are read after they have arrived.
pub enum NoBytes {}

/// Takes payload in its frame. A `FnMut(Lent) -> Option<R>` is one, too.
pub trait PayloadReader<B, R> {
    /// Returns the 32-bit sum of a segment before it is folded (RFC 1071), or `None` to leave it to
    /// the transport. `segment` has `header_bytes` of the transport's header. A reader that needs
    /// the payload for a CRC, too, may read it once for both. The segment is not checked yet.
    #[inline(always)]
    fn sum(&mut self, conn: ConnId, segment: &[u8], header_bytes: usize) -> Option<u32> {
        let _ = (conn, segment, header_bytes);
        None
    }

    /// Takes the payload of the segment that was summed last, or returns `None` to leave it to the
    /// queue.
    fn read(&mut self, lent: Lent<'_, B>) -> Option<R>;

    /// Returns the result of two payloads of a packet, which a reader took one after the other for
    /// one connection. A closure gives the second.
    fn join(&self, first: R, second: R) -> R;
}

impl<B, R, T: FnMut(Lent<'_, B>) -> Option<R>> PayloadReader<B, R> for T {
    fn read(&mut self, lent: Lent<'_, B>) -> Option<R> {
        self(lent)
    }

    fn join(&self, _first: R, second: R) -> R {
        second
    }
}
