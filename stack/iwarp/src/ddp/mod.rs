//! DDP: direct data placement (RFC 5041).
//!
//! [`header`] reads and writes segment headers (s4); [`untagged`] keeps the message numbers of a queue and does the
//! checks of s7.1 for untagged segments; [`tagged`] says what a refused access to memory is called on the wire.
//! Placement itself is `ironwarp_mem`'s.

pub mod header;
pub mod tagged;
pub mod untagged;

pub use header::{Header, TAGGED_BYTES, Tagged, UNTAGGED_BYTES, Untagged};

use crate::terminate::Terminate;

/// What DDP can find wrong (RFC 5041 s7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DdpFault {
    /// The segment is too short for its own header.
    LocalCatastrophic,
    /// The steering tag names nothing that allows this placement.
    InvalidStag,
    /// The segment reaches outside its tagged buffer.
    BaseOrBounds,
    /// The steering tag belongs to another protection domain.
    NotAssociated,
    /// Offset and length together pass 2^64.
    TaggedOffsetWrap,
    /// A tagged segment of a version that is not 1.
    TaggedVersion,
    /// The queue number is none of this stream's.
    InvalidQueue,
    /// No buffer waits for the message.
    NoBuffer,
    /// The message number is not the next one.
    MsnRange,
    /// The message offset is not where the message stands.
    InvalidOffset,
    /// The message is longer than the buffer that waits for it.
    TooLong,
    /// An untagged segment of a version that is not 1.
    UntaggedVersion,
}

impl From<DdpFault> for Terminate {
    fn from(fault: DdpFault) -> Self {
        let (etype, code) = match fault {
            DdpFault::LocalCatastrophic => (0, 0x00),
            DdpFault::InvalidStag => (1, 0x00),
            DdpFault::BaseOrBounds => (1, 0x01),
            DdpFault::NotAssociated => (1, 0x02),
            DdpFault::TaggedOffsetWrap => (1, 0x03),
            DdpFault::TaggedVersion => (1, 0x04),
            DdpFault::InvalidQueue => (2, 0x01),
            DdpFault::NoBuffer => (2, 0x02),
            DdpFault::MsnRange => (2, 0x03),
            DdpFault::InvalidOffset => (2, 0x04),
            DdpFault::TooLong => (2, 0x05),
            DdpFault::UntaggedVersion => (2, 0x06),
        };
        Terminate { layer: Terminate::LAYER_DDP, etype, code }
    }
}
