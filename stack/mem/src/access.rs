//! Access rights, local scatter/gather elements, and what an access can fail with.

use bitflags::bitflags;
use ironwarp_types::STag;
use thiserror::Error;

bitflags! {
    /// What a region may be used for. The owner may always read it, so "local read" is no flag.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u16 {
        /// Receives and Read Responses may be placed here.
        const LOCAL_WRITE = 1;
        /// The peer may read it with RDMA Read.
        const REMOTE_READ = 2;
        /// The peer may write it with RDMA Write. Asks for `LOCAL_WRITE` too, as in verbs.
        const REMOTE_WRITE = 4;
        /// The peer may run atomic operations on it (RFC 7306). Asks for `LOCAL_WRITE` too.
        const REMOTE_ATOMIC = 8;
    }
}

impl Access {
    /// The rights that let somebody change bytes.
    pub(crate) const WRITING: Access =
        Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

    /// The rights that make no sense where the owner itself may not write.
    pub(crate) const NEEDS_LOCAL_WRITE: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);
}

/// A scatter or gather element: a piece of a local region.
///
/// `addr` is a TO of the region that `lkey` names. The core checks it when it uses it, so a made-up element is an
/// error of its work request and nothing worse.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// The TO of the first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The region's STag.
    pub lkey: STag,
}

const _: () = assert!(size_of::<Sge>() == 16);

/// Why a look-up granted nothing. The variants are in the order of the checks.
///
/// Which Terminate code one becomes depends on the operation (RFC 5041 s7.2 for Writes and Read Responses, RFC 5040
/// s4.8 for Read Requests), so that choice is the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum AccessError {
    /// No region has this STag.
    #[error("no region has this STag")]
    UnknownStag,
    /// The STag was valid until its region was revoked.
    #[error("the region of this STag has been revoked")]
    Revoked,
    /// The region belongs to another protection domain.
    #[error("the region belongs to another protection domain")]
    WrongPd,
    /// The region does not grant what the operation needs.
    #[error("the region does not grant this access")]
    NoRight,
    /// TO plus length exceeds 64 bits.
    #[error("tagged offset plus length wraps")]
    Wrap,
    /// Some byte lies outside the region.
    #[error("outside the region's bounds")]
    Bounds,
}

/// Why a copy to, from or within registered memory was not made. No byte has been touched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum RangeError {
    /// Some byte lies outside the region or span.
    #[error("outside the registered range")]
    OutOfRange,
    /// An 8-byte word must lie at an address that is a multiple of 8.
    #[error("the word is not aligned")]
    Misaligned,
    /// The span was looked up for reading only.
    #[error("the span was not looked up for writing")]
    ReadOnly,
}

/// Whether `len` bytes from `offset` lie within `size` bytes.
#[inline]
pub(crate) fn check_range(size: usize, offset: usize, len: usize) -> Result<(), RangeError> {
    match size.checked_sub(offset) {
        Some(rest) if len <= rest => Ok(()),
        _ => Err(RangeError::OutOfRange),
    }
}
