//! The interface between DDP and the layer below it (LLP).
//!
//! RFC 5041 s3 lists what DDP requires of that layer. MPA over TCP meets it together:
//!
//! | requirement | over TCP |
//! | --- | --- |
//! | 1, 2: MULPDU and its changes; what was accepted is not segmented again | TCP *pulls*: [`UnitSource::fill`] gets the room of the segment that leaves next, so no segment waits with an older MULPDU |
//! | 3: reliable transfer, or an error | a returned unit is retained until the peer acknowledges it, or the connection ends |
//! | 4, 7: boundaries and lengths of segments | a unit is whole FPDUs, each with its length; [`ByteStream`] lets MPA take whole ones and leave the rest |
//! | 5: placement out of order, with the order of the sender | [`OutOfOrderBytes`]: positions in the stream |
//! | 6: a digest of CRC32C's strength | MPA's CRC |
//! | 8, 9, 10: end of a stream and of its connection | a connection has one stream: both end together |
//! | 11: no duplicates | consumed bytes are never lent again |
//!
//! TCP does not parse FPDUs and stores no byte stream to send. The layer above cuts units so that a
//! segment begins with an FPDU header and contains whole FPDUs (RFC 5044 s5.1). TCP *lends* the
//! received in-order bytes. The layer above consumes whole FPDUs and leaves the rest. On request
//! TCP also *shows* the bytes that it holds beyond a gap.
//!
//! The frames around segments, if a lower layer needs any, are a matter of the crate above
//! (`Framing` of `ironwarp-iwarp`).
//!
//! [`Transport`] is what the core loop asks of a transport, and the types beside it are its
//! results. [`UnitSource`] and [`ByteStream`] join a transport to the layer above. They are generic
//! parameters of the data path: no call through them is dynamic.
#![forbid(unsafe_code)]

mod arena;
mod events;
mod ids;
mod lent;
mod listeners;
pub mod saved;
mod timeouts;
mod transport;

use core::ops::Range;

pub use arena::{Arena, EmergencyGrant, List, NIL};
pub use events::{Blocked, Events, Transmitted};
pub use ids::{ConnId, ConnectError, ListenError, ListenerId};
pub use lent::{Arrival, Lent, LentMessage, NoBytes, PayloadReader};
pub use listeners::Listeners;
pub use saved::{RestoreError, SaveError};
pub use timeouts::{KeepAlive, Timeouts};
pub use transport::{Abort, ConnectionInfo, PathErrorOutcome, Progress, ResourceUsage, Transport};

/// The source from which TCP pulls units to send.
pub trait UnitSource {
    /// Writes the next unit to the front of `room` and returns its length in bytes. Returns 0 when
    /// nothing can be sent now.
    ///
    /// `room` is the payload of one segment (the effective maximum segment size, EMSS). Its
    /// contents are unspecified; the source overwrites every byte up to the returned length. A
    /// returned unit is part of the stream: TCP retains it until the peer acknowledges it.
    fn fill(&mut self, room: &mut [u8]) -> usize;

    /// Returns the 32-bit sum of the unit that [`UnitSource::fill`] wrote last, before it is folded
    /// (RFC 1071), if it was computed with the copy.
    fn sum(&self) -> Option<u32> {
        None
    }

    /// Returns whether the source is known to be empty. Called before each unit, before a buffer is
    /// allocated. A source that returns `false` may still fill nothing.
    fn is_empty(&mut self) -> bool {
        false
    }

    /// Returns whether the next unit is the last one of the source, and short. Such a unit may take
    /// a reserved buffer when the pool is empty. Called only in that case.
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

/// The in-order bytes that have arrived and are not consumed.
///
/// The bytes lie in pieces as the segments brought them. The reader consumes what it can use and
/// leaves the rest, which TCP holds until more bytes arrive.
pub trait ByteStream {
    /// Returns the number of bytes that can be read now.
    fn available(&self) -> usize;

    /// Returns the first contiguous piece. Empty only when nothing is available.
    fn front(&self) -> &[u8];

    /// Copies the first `out.len()` bytes across pieces, without consuming them. Returns `false`
    /// and copies nothing when fewer are available.
    fn peek(&self, out: &mut [u8]) -> bool;

    /// Consumes the first `n` bytes, or all when there are fewer.
    fn consume(&mut self, n: usize);
}

/// The bytes held beyond a gap. They are shown, not lent: they stay in place and are delivered
/// again in order.
///
/// RFC 5044 appendix A.3: TCP shows a segment only after it has passed all checks and is certain to
/// be kept, together with its position in the stream. Positions are distances in bytes from the
/// first unconsumed byte of the [`ByteStream`], so they need no arithmetic modulo 2^32
/// (RFC 5044 s4.3).
pub trait OutOfOrderBytes {
    /// Returns the latest arrival; `None` when it is no longer held, or the gap before it has
    /// closed.
    fn latest(&self) -> Option<LatestArrival>;

    /// Returns the held bytes from position `at` up to the end of their piece. Empty when the byte
    /// at `at` is not held.
    fn piece(&self, at: u32) -> &[u8];

    /// Copies the held bytes from position `at` across pieces. Returns `false` when not all of them
    /// are held; the contents of `out` are then unspecified.
    fn peek_at(&self, at: u32, out: &mut [u8]) -> bool;
}

/// The position of the most recently arrived bytes beyond a gap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatestArrival {
    /// The piece in which they arrived.
    pub piece: Range<u32>,
    /// The contiguous held range that contains the piece.
    pub run: Range<u32>,
}
