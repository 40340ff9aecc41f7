//! The ciphers of ESP (RFC 4303) behind one interface: a whole packet is sealed or opened at once.
//!
//! Takes the keying material of one direction of a security association, then packets. A
//! [`SealingKey`] owns the sequence number, so it never uses a nonce twice: the number moves before
//! the packet is sealed, ends without a wrap, and the key cannot be cloned. An [`OpeningKey`] gives
//! the text of a packet only when its integrity check value (ICV) is right.
//!
//! | suite | confidentiality | integrity | source |
//! | --- | --- | --- | --- |
//! | [`Suite::AesGcm`] | AES in counter mode | GHASH, ICV of 16 bytes | RFC 4106 |
//! | [`Suite::AesGmac`] | none | GHASH, ICV of 16 bytes | RFC 4543 |
//! | [`Suite::AesCbc`] | AES-CBC | [`Hmac`] | RFC 3602, 4868, 2404 |
//! | [`Suite::Null`] | none | [`Hmac`] | RFC 2410, 4868, 2404 |
//!
//! Extended sequence numbers: GCM and GMAC have all 64 bits in the authenticated data. With HMAC
//! the upper 32 bits follow the packet in the sum and are not sent (RFC 4303 s2.2.1).
//!
//! Packets allocate nothing. Keys are zeroed when dropped, and `Debug` prints none of them. The
//! backend is AWS-LC (`aws_lc.rs`), which has all of its state in the key.
//!
//! What can fail: a key of the wrong length, a packet too short for its suite, the end of the
//! sequence numbers, a wrong ICV.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod aws_lc;
mod key;
mod suite;
#[cfg(test)]
mod tests;

pub use key::{BadIcv, KeyError, KeyMaterial, OpeningKey, SealError, SealingKey};
pub use suite::{AesBits, Hmac, Suite};

/// Bytes of the SPI and the sequence number, ahead of the IV.
pub const ESP_HEADER_BYTES: usize = 8;

/// Bytes ahead of the ESP header that a buffer must have. GMAC with extended sequence numbers uses
/// them while it computes, and restores them: its input has 4 bytes that the packet lacks.
pub const HEADROOM_BYTES: usize = 4;
