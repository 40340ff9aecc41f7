//! Access rights, who may reach memory, local scatter/gather elements, and what an access can fail with.

use bitflags::bitflags;
use ironwarp_types::{PdId, QpNum, STag};
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
        /// Memory windows and fast registrations may be made over it, whatever the other rights are.
        const BIND = 16;
    }
}

/// On whose behalf memory is reached: a stream, and the protection domain that it belongs to.
///
/// A tag has one of two scopes: a protection domain, or a single stream. A domain alone, as [`From`] makes it, reaches
/// nothing that is limited to a stream. The two highest domains are nobody's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AccessScope {
    pd: PdId,
    qp: QpNum,
}

/// The domain that marks tags of narrower scope in the table, so that every look-up tells them by the one compare.
pub(crate) const NO_PD: PdId = PdId(u32::MAX);

/// The domain of a reach that asked for [`NO_PD`]. Nothing is ever registered in it.
const RESERVED_PD: PdId = PdId(u32::MAX - 1);

impl AccessScope {
    /// The number that no queue pair has.
    pub(crate) const NO_STREAM: QpNum = QpNum(0);

    /// A stream of a protection domain; queue pairs are numbered from 1.
    #[inline]
    pub const fn new(pd: PdId, qp: QpNum) -> Self {
        // The table's memory safety rests on this: no reach equals the mark, so no look-up passes by it unchecked.
        let pd = if pd.0 == NO_PD.0 { RESERVED_PD } else { pd };
        AccessScope { pd, qp }
    }

    /// The protection domain.
    #[inline(always)]
    pub const fn pd(&self) -> PdId {
        self.pd
    }

    /// The stream.
    pub const fn qp(&self) -> QpNum {
        self.qp
    }

    /// Whether memory can be registered in a domain.
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
    /// The rights that let somebody change bytes.
    pub(crate) const WRITING: Access =
        Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

    /// The rights that make no sense where the owner itself may not write.
    pub(crate) const NEEDS_LOCAL_WRITE: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);

    /// The rights of the peer.
    pub(crate) const REMOTE: Access =
        Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);
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
    /// The STag is limited to another stream.
    #[error("the STag is limited to another stream")]
    WrongStream,
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
