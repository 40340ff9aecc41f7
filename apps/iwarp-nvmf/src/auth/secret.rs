//! Secrets as `nvme gen-dhchap-key` makes them: `DHHC-1:hh:base64:`.
//!
//! `hh` names the hash function of the transform, 00 for none. The base64 part is the key, of 32,
//! 48 or 64 bytes, with its CRC-32 behind it. Keys are zeroed when dropped, and no text shows them.

use core::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use serde::Deserialize;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Hash, SecretBytes};

/// The longest key.
const KEY_BYTES_MAX: usize = 64;
/// Bytes of the CRC.
const CRC_BYTES: usize = 4;

/// A secret of a host or of a controller.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Secret {
    key: SecretBytes,
    /// The function that transforms the key.
    transform: Option<Hash>,
}

/// Why a text is no secret. It does not show the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// It is not of the form.
    #[error("a secret has the form DHHC-1:hh:base64: with hh from 00 to 03, as nvme gen-dhchap-key makes it")]
    Form,
    /// The base64 part is not base64.
    #[error("the base64 part of the secret is damaged")]
    Base64,
    /// The key has another length.
    #[error("a key of {0} bytes; 32, 48 and 64 are allowed")]
    Length(usize),
    /// The CRC does not match.
    #[error("the CRC of the secret is wrong: a character differs from what was generated")]
    Crc,
}

impl Secret {
    /// Reads the text form.
    ///
    /// # Errors
    ///
    /// [`SecretError`] says what is wrong.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let inner = text.strip_prefix("DHHC-1:").and_then(|rest| rest.strip_suffix(':'));
        let (transform, encoded) = inner.and_then(|rest| rest.split_once(':')).ok_or(SecretError::Form)?;
        let transform = match transform {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Form),
        };
        let mut decoded = Zeroizing::new([0; KEY_BYTES_MAX + CRC_BYTES + 3]);
        let length = STANDARD.decode_slice(encoded, decoded.as_mut_slice());
        let length = length.map_err(|_| SecretError::Base64)?;
        let (key, crc) = decoded
            .get(..length)
            .and_then(|all| all.split_last_chunk::<CRC_BYTES>())
            .ok_or(SecretError::Length(0))?;
        if ![32, 48, KEY_BYTES_MAX].contains(&key.len()) {
            return Err(SecretError::Length(key.len()));
        }
        if crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, key) != u64::from(u32::from_le_bytes(*crc)) {
            return Err(SecretError::Crc);
        }
        Ok(Secret { key: Zeroizing::new(key.to_vec()), transform })
    }

    /// Returns the key for responses. `nqn` is that of the secret's owner.
    pub(super) fn transformed(&self, nqn: &str) -> SecretBytes {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }

    /// Returns whether two secrets have the same key.
    pub fn has_key_of(&self, other: &Secret) -> bool {
        self.key.as_slice().ct_eq(&other.key).into()
    }
}

impl TryFrom<String> for Secret {
    type Error = SecretError;

    fn try_from(text: String) -> Result<Self, SecretError> {
        Secret::parse(&Zeroizing::new(text))
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.transform == other.transform && self.has_key_of(other)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
