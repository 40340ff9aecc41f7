//! DDP: direct data placement (RFC 5041).
//!
//! [`header`] encodes and decodes segment headers (s4). [`untagged`] keeps the message numbers of a queue and makes
//! the checks of s7.1 for untagged segments. [`tagged`] maps refused memory accesses to DDP errors. `ironwarp_mem`
//! does the placement.

pub mod header;
pub mod tagged;
pub mod untagged;

pub use header::{Header, TAGGED_BYTES, Tagged, UNTAGGED_BYTES, Untagged};

use crate::terminate::Terminate;

/// The errors of DDP (RFC 5041 s7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DdpFault {
    /// The segment is shorter than its header.
    LocalCatastrophic,
    /// The steering tag does not allow this placement.
    InvalidStag,
    /// The segment reaches outside its tagged buffer.
    BaseOrBounds,
    /// The steering tag belongs to another protection domain.
    NotAssociated,
    /// Offset plus length exceeds 2^64.
    TaggedOffsetWrap,
    /// A tagged segment has a version other than 1.
    TaggedVersion,
    /// The stream has no such queue.
    InvalidQueue,
    /// No buffer is posted for the message.
    NoBuffer,
    /// The message number is not the next one.
    MsnRange,
    /// The message offset does not continue the message.
    InvalidOffset,
    /// The message is longer than its buffer.
    TooLong,
    /// An untagged segment has a version other than 1.
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
