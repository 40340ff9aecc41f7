//! Errors of the table.

use thiserror::Error;

use super::REGIONS_MAX;
#[cfg(doc)]
use super::{MemLimits, MemTable};

/// Why a table could not be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TableError {
    /// The number of regions is 0 or above [`REGIONS_MAX`].
    #[error("a table holds 1 to {REGIONS_MAX} regions")]
    RegionsOutOfRange,
    /// The system provided no random bytes. Without them tags would be predictable.
    #[error("the system gave no random bytes")]
    Entropy,
}

/// Why memory could not be registered. The owner was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RegisterError {
    /// The table's limit of regions is reached. Deregistered regions count until every core has
    /// quiesced.
    #[error("the limit of {limit} regions is reached")]
    TableFull {
        /// The limit, from [`MemLimits::regions_max`].
        limit: u32,
    },
    /// The quota of the context is used up ([`MemTable::for_context`]).
    #[error("the quota of {limit} regions is used up")]
    QuotaExceeded {
        /// The quota.
        limit: u32,
    },
    /// The region has no bytes.
    #[error("a region needs at least one byte")]
    Empty,
    /// A remote write or atomic right without the local write right (the rule of verbs).
    #[error("remote write and atomic rights need the local write right")]
    NeedsLocalWrite,
    /// The range ends beyond the address space.
    #[error("the range wraps")]
    Wrap,
    /// The protection domain is one of the two reserved ones.
    #[error("the two highest protection domains are reserved")]
    ReservedPd,
    /// Some of the bytes are registered or not yet released, with another owner core or with none.
    /// In a deterministic table also: they lie across two separate registrations.
    #[error("some of the bytes are registered with another pinning")]
    PinConflict,
    /// The core that the range should be pinned to does not exist.
    #[error("the table was made for fewer cores")]
    NoSuchCore,
}

/// Why a core's handle could not be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CoreError {
    /// The table has fewer cores.
    #[error("the table was made for fewer cores")]
    NoSuchCore,
    /// The core has a handle already.
    #[error("the core has a handle already")]
    InUse,
}
