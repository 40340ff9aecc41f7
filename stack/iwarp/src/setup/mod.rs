//! Connection set-up, whatever the lower layer: private data, read depths and the peer-to-peer
//! model.
//!
//! Each side sends one message. Over TCP it is a Request or Reply Frame ([`crate::mpa::startup`]),
//! over SCTP a session control chunk ([`crate::sctp`]). Both have private data, which in the
//! enhanced forms begins with [`Enhanced`] (RFC 6581 s9). What the two sides agree on does not
//! depend on the lower layer: [`Offer::agree`] and [`ResponderParams::agree`] return the [`Terms`].

mod enhanced;
mod negotiation;

use arrayvec::ArrayVec;
use ironwarp_types::limits::PRIVATE_DATA_BYTES_MAX;

pub use enhanced::{ENHANCED_BYTES, Enhanced, READS_UNNEGOTIATED, ReadDepths, Rtr, RtrKinds};
pub use negotiation::{Offer, ResponderParams, Terms};

/// The private data of an application.
///
/// A message carries up to 512 octets, or 508 with enhanced data. Linux siw and cxgb4 keep the
/// length in 8 bits, so they handle at most 255 octets correctly, enhanced data included.
pub type PrivateData = ArrayVec<u8, PRIVATE_DATA_BYTES_MAX>;

/// The private data to send is longer than a message allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{asked} bytes of private data, at most {allowed} are allowed")]
pub struct PrivateDataTooLong {
    /// The length to send, in bytes.
    pub asked: usize,
    /// The allowed length, in bytes.
    pub allowed: usize,
}

/// The largest private data of an application in one message. RFC 6581 s9 uses four of the 512
/// octets of RFC 5043 and RFC 5044.
pub const fn private_data_bytes_max(enhanced: bool) -> usize {
    if enhanced { PRIVATE_DATA_BYTES_MAX - ENHANCED_BYTES } else { PRIVATE_DATA_BYTES_MAX }
}

/// Checks the length of private data.
#[inline]
pub(crate) fn check_private_data(data: &[u8], enhanced: bool) -> Result<(), PrivateDataTooLong> {
    let allowed = private_data_bytes_max(enhanced);
    if data.len() > allowed { Err(PrivateDataTooLong { asked: data.len(), allowed }) } else { Ok(()) }
}
