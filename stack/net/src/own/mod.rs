//! Our own addresses: which there are, which may be used, and which of them a packet to somebody has as its source.

mod addresses;
mod source;

pub use addresses::AddressState;
pub(crate) use addresses::{Addresses, Claim, OWN_MAX, Say};
pub(crate) use source::Source;
