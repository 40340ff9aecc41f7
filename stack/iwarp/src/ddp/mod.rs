//! DDP: direct data placement (RFC 5041).
//!
//! [`header`] encodes and decodes segment headers (s4). [`untagged`] keeps the message numbers of a
//! queue and makes the checks of s7.1 for untagged segments. [`tagged`] maps refused memory
//! accesses to DDP errors. `ironwarp_mem` does the placement.

pub mod header;
pub mod tagged;
pub mod untagged;

pub use header::{Header, TAGGED_BYTES, Tagged, UNTAGGED_BYTES, Untagged};

use crate::terminate::Terminate;

/// The errors of DDP (RFC 5041 s7.2), each with its type and code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum DdpFault {
    /// The segment is shorter than its header.
    LocalCatastrophic = 0x0000,
    /// The steering tag does not allow this placement.
    InvalidStag = 0x0100,
    /// The segment reaches outside its tagged buffer.
    BaseOrBounds = 0x0101,
    /// The steering tag belongs to another protection domain.
    NotAssociated = 0x0102,
    /// Offset plus length exceeds 2^64.
    TaggedOffsetWrap = 0x0103,
    /// A tagged segment has a version other than 1.
    TaggedVersion = 0x0104,
    /// The stream has no such queue.
    InvalidQueue = 0x0201,
    /// No buffer is posted for the message.
    NoBuffer = 0x0202,
    /// The message number is not the next one.
    MsnRange = 0x0203,
    /// The message offset does not continue the message.
    InvalidOffset = 0x0204,
    /// The message is longer than its buffer.
    TooLong = 0x0205,
    /// An untagged segment has a version other than 1.
    UntaggedVersion = 0x0206,
}

impl From<DdpFault> for Terminate {
    fn from(fault: DdpFault) -> Self {
        let [etype, code] = (fault as u16).to_be_bytes();
        Terminate { layer: Terminate::LAYER_DDP, etype, code }
    }
}
