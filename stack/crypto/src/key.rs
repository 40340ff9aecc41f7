//! The keys of one direction of a security association, and the packets that they seal and open.

use core::fmt;
use core::ops::Range;

use zeroize::Zeroizing;

use crate::aws_lc::{Backend, fingerprint};
use crate::{ESP_HEADER_BYTES, HEADROOM_BYTES, Suite};

/// The keying material of one direction, zeroed when dropped. It is not `Clone`, and a key takes it
/// by value, so that it is used once.
pub struct KeyMaterial {
    /// On the heap: a move copies the pointer, and leaves no key bytes behind.
    bytes: Zeroizing<Box<[u8]>>,
}

/// Why keys were refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// The keying material has another length than the suite's.
    #[error("the key has {found} bytes; the suite takes {expected}")]
    Length {
        /// Bytes given.
        found: usize,
        /// [`Suite::key_bytes`].
        expected: usize,
    },
    /// The library refused the key.
    #[error("the library of ciphers refused the key")]
    Refused,
}

/// Why a packet was not sealed. Its buffer must not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// The last sequence number is used (RFC 4303 s3.3.3).
    #[error("the sequence numbers of the association have ended")]
    SequenceEnded,
    /// The buffer or the text has a length that the suite does not take.
    #[error("the packet has a length that the suite does not take")]
    Length,
}

/// The packet is not one that the peer sealed, or was altered. Its buffer has unspecified bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the integrity check value is wrong")]
pub struct BadIcv;

/// What a sender seals with. It owns the sequence number and is not `Clone`, so that no nonce is
/// used twice.
#[derive(Debug)]
pub struct SealingKey {
    backend: Backend,
    pub(crate) suite: Suite,
    spi: u32,
    extended: bool,
    /// The last sequence number that was used; 0 before the first packet (RFC 4303 s3.3.3).
    pub(crate) sequence: u64,
}

/// What a receiver opens with.
#[derive(Debug)]
pub struct OpeningKey {
    backend: Backend,
    suite: Suite,
    extended: bool,
}

impl KeyMaterial {
    /// Copies the keying material: [`Suite::key_bytes`] bytes. The caller zeroes its own copy.
    pub fn new(suite: Suite, bytes: &[u8]) -> Result<Self, KeyError> {
        let expected = suite.key_bytes();
        if bytes.len() != expected {
            return Err(KeyError::Length { found: bytes.len(), expected });
        }
        Ok(KeyMaterial { bytes: Zeroizing::new(bytes.into()) })
    }

    /// Returns a number by which two equal keys are known without keeping either.
    pub fn fingerprint(&self) -> [u8; 16] {
        fingerprint(&self.bytes)
    }

    fn for_suite(&self, suite: Suite) -> Result<&[u8], KeyError> {
        let (found, expected) = (self.bytes.len(), suite.key_bytes());
        if found == expected { Ok(&self.bytes) } else { Err(KeyError::Length { found, expected }) }
    }
}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyMaterial({} bytes)", self.bytes.len())
    }
}

impl SealingKey {
    /// Makes the key of outbound packets. `extended` is whether sequence numbers have 64 bits.
    pub fn new(suite: Suite, key: KeyMaterial, spi: u32, extended: bool) -> Result<Self, KeyError> {
        let backend = Backend::new(suite, key.for_suite(suite)?)?;
        Ok(SealingKey { backend, suite, spi, extended, sequence: 0 })
    }

    fn sequence_max(&self) -> u64 {
        if self.extended { u64::MAX } else { u64::from(u32::MAX) }
    }

    /// Seals `text` and the `trailer` behind it into `packet`. It begins [`HEADROOM_BYTES`] before
    /// the ESP header and ends with the ICV. Both together have a multiple of
    /// [`Suite::text_multiple_bytes`].
    ///
    /// The packet gets the next sequence number, also if sealing fails. GCM writes only ciphertext
    /// into `packet`. The other suites first copy the text into it, so no other process may read or
    /// write the buffer meanwhile.
    pub fn seal(&mut self, text: &[u8], trailer: &[u8], packet: &mut [u8]) -> Result<(), SealError> {
        if self.sequence == self.sequence_max() {
            return Err(SealError::SequenceEnded);
        }
        self.sequence += 1;
        let sequence = self.sequence;
        let length = text.len() + trailer.len();
        if !length.is_multiple_of(self.suite.text_multiple_bytes())
            || text_range(self.suite, packet.len()).is_none_or(|range| range.len() != length)
        {
            return Err(SealError::Length);
        }
        let (_, header) = packet.split_first_chunk_mut::<HEADROOM_BYTES>().ok_or(SealError::Length)?;
        let (header, _) = header.split_first_chunk_mut::<ESP_HEADER_BYTES>().ok_or(SealError::Length)?;
        // The lower 32 bits of the sequence number are sent.
        *header = (u64::from(self.spi) << 32 | sequence & 0xffff_ffff).to_be_bytes();
        let high = self.extended.then_some((sequence >> 32) as u32);
        self.backend.seal(high, sequence, text, trailer, packet)
    }
}

impl OpeningKey {
    /// Makes the key of inbound packets. `extended` is whether sequence numbers have 64 bits.
    pub fn new(suite: Suite, key: KeyMaterial, extended: bool) -> Result<Self, KeyError> {
        let backend = Backend::new(suite, key.for_suite(suite)?)?;
        Ok(OpeningKey { backend, suite, extended })
    }

    /// Opens `packet` in place. The suites with HMAC decrypt after the check, so no other process
    /// may write the buffer meanwhile. It begins [`HEADROOM_BYTES`] before the ESP header and ends
    /// with the ICV. `high` is the upper half of the sequence number that the receiver inferred,
    /// which counts if the number is extended (RFC 4303 appendix A2). Returns the place of the text
    /// with its trailer.
    pub fn open(&self, high: u32, packet: &mut [u8]) -> Result<Range<usize>, BadIcv> {
        let text = text_range(self.suite, packet.len()).ok_or(BadIcv)?;
        if !text.len().is_multiple_of(self.suite.text_multiple_bytes()) {
            return Err(BadIcv);
        }
        self.backend.open(self.extended.then_some(high), packet)?;
        Ok(text)
    }
}

/// Returns where the text is in a packet of `length` bytes with its headroom.
fn text_range(suite: Suite, length: usize) -> Option<Range<usize>> {
    let start = HEADROOM_BYTES + ESP_HEADER_BYTES + suite.iv_bytes();
    let end = length.checked_sub(suite.icv_bytes())?;
    (start <= end).then_some(start..end)
}
