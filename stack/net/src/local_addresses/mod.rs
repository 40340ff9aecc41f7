//! The local addresses: their states, duplicate detection and defence, and the choice of a source
//! address.

mod source;
mod table;

pub(crate) use source::SourceAddress;
pub(crate) use table::{AcdMessage, AddressState, ConflictOutcome, LOCAL_ADDRESSES_MAX, LocalAddresses};
