//! Access rights, the scope of a stream, local scatter/gather elements, and the errors of an
//! access.

use crate::copy::Faulted;
use bitflags::bitflags;
use ironwarp_types::{PdId, QpNum, STag};
use thiserror::Error;

bitflags! {
    /// The permitted uses of a region. The owner may always read it, so there is no flag for local
    /// reads.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u16 {
        /// Receives and Read Responses may be placed here.
        const LOCAL_WRITE = 1;
        /// The peer may read it with RDMA Read.
        const REMOTE_READ = 2;
        /// The peer may write it with RDMA Write. Requires `LOCAL_WRITE`, as in verbs.
        const REMOTE_WRITE = 4;
        /// The peer may execute atomic operations on it (RFC 7306). Requires `LOCAL_WRITE`, as in
        /// verbs.
        const REMOTE_ATOMIC = 8;
        /// Memory windows and fast registrations may be bound to it, independent of the other
        /// rights.
        const BIND = 16;
    }
}

/// The scope of an access: a stream and its protection domain.
///
/// A tag is valid for a protection domain or for a single stream. A scope made from a domain alone
/// by [`From`] reaches nothing that is limited to a stream. The two highest domains cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AccessScope {
    pd: PdId,
    qp: QpNum,
}

/// The domain that marks tags of narrower scope in the table, so that one comparison detects them
/// in every look-up.
pub(crate) const NO_PD: PdId = PdId(u32::MAX);

/// The domain of a scope that was made from [`NO_PD`]. Nothing is registered in it.
const RESERVED_PD: PdId = PdId(u32::MAX - 1);

impl AccessScope {
    /// A number that no queue pair has.
    pub(crate) const NO_STREAM: QpNum = QpNum(0);

    /// A protection domain in which nothing can be registered.
    pub const PD_WITHOUT_MEMORY: PdId = RESERVED_PD;

    /// Creates the scope of a stream. Queue pairs are numbered from 1.
    #[inline]
    pub const fn new(pd: PdId, qp: QpNum) -> Self {
        // The table's memory safety depends on this: no scope equals the mark, so no look-up skips
        // the check.
        let pd = if pd.0 == NO_PD.0 { RESERVED_PD } else { pd };
        AccessScope { pd, qp }
    }

    /// Returns the protection domain.
    #[inline(always)]
    pub const fn pd(&self) -> PdId {
        self.pd
    }

    /// Returns the stream.
    pub const fn qp(&self) -> QpNum {
        self.qp
    }

    /// Returns whether memory can be registered in a domain.
    pub(crate) const fn is_usable_pd(pd: PdId) -> bool {
        pd.0 < RESERVED_PD.0
    }
}

impl From<PdId> for AccessScope {
    #[inline]
    fn from(pd: PdId) -> Self {
        AccessScope::new(pd, Self::NO_STREAM)
    }
}

impl Access {
    /// The rights that allow changes of bytes.
    pub(crate) const WRITING: Access =
        Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

    /// The rights that require local write access.
    pub(crate) const NEEDS_LOCAL_WRITE: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);

    /// The rights of the peer.
    pub(crate) const REMOTE: Access =
        Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);
}

/// A scatter or gather element: a part of a local region.
///
/// `addr` is a tagged offset of the region that `lkey` names. The core checks it at use, so an
/// invalid element fails its work request only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// The tagged offset of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// The region's STag.
    pub lkey: STag,
}

const _: () = assert!(size_of::<Sge>() == 16);

/// Why a look-up failed. The variants are in the order of the checks.
///
/// The caller selects the Terminate code, which depends on the operation (RFC 5041 s7.2 for Writes
/// and Read Responses, RFC 5040 s4.8 for Read Requests).
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
    /// The STag is limited to another stream.
    #[error("the STag is limited to another stream")]
    WrongStream,
    /// The region does not grant what the operation needs.
    #[error("the region does not grant this access")]
    NoRight,
    /// Tagged offset plus length exceeds 64 bits.
    #[error("tagged offset plus length wraps")]
    Wrap,
    /// A byte lies outside the region.
    #[error("outside the region's bounds")]
    Bounds,
    /// The memory of the region is gone, or not accessible any more: an access faulted.
    #[error("the region's memory is not there")]
    Faulted,
}

impl From<RangeError> for AccessError {
    fn from(refused: RangeError) -> Self {
        match refused {
            RangeError::Faulted => AccessError::Faulted,
            RangeError::OutOfRange | RangeError::Misaligned | RangeError::ReadOnly => AccessError::Bounds,
        }
    }
}

impl From<Faulted> for AccessError {
    fn from(_: Faulted) -> Self {
        AccessError::Faulted
    }
}

/// Why a copy to, from or within registered memory failed. No byte was accessed, unless the memory
/// itself faulted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum RangeError {
    /// A byte lies outside the region or span.
    #[error("outside the registered range")]
    OutOfRange,
    /// The address of an 8-byte word must be a multiple of 8.
    #[error("the word is not aligned")]
    Misaligned,
    /// The span was looked up for reading only.
    #[error("the span was not looked up for writing")]
    ReadOnly,
    /// The memory is gone, or not accessible any more. A part of the bytes may have been copied.
    #[error("the memory is not there")]
    Faulted,
}

impl From<Faulted> for RangeError {
    fn from(_: Faulted) -> Self {
        RangeError::Faulted
    }
}

/// Returns whether `len` bytes from `offset` lie within `size` bytes.
#[inline]
pub(crate) fn check_range(size: usize, offset: usize, len: usize) -> Result<(), RangeError> {
    match size.checked_sub(offset) {
        Some(rest) if len <= rest => Ok(()),
        _ => Err(RangeError::OutOfRange),
    }
}
