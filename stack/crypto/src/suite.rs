//! The suites and their sizes. RFC 8221 s5 and s6 say which are required: all but GMAC, which RFC
//! 7146 recommends.

/// The length of an AES key. ESP's keys of 192 bits are optional, and absent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AesBits {
    /// AES-128.
    Aes128,
    /// AES-256.
    Aes256,
}

/// An integrity algorithm, truncated as ESP sends it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hmac {
    /// HMAC-SHA-256-128 (RFC 4868).
    Sha256,
    /// HMAC-SHA1-96 (RFC 2404), for peers of RFC 7146 that have nothing newer.
    Sha1,
}

/// What protects the packets of a security association.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Suite {
    /// AES-GCM with an ICV of 16 bytes (RFC 4106).
    AesGcm(AesBits),
    /// AES-GMAC: integrity without confidentiality (RFC 4543).
    AesGmac(AesBits),
    /// AES-CBC (RFC 3602) with an HMAC.
    AesCbc(AesBits, Hmac),
    /// No encryption (RFC 2410) with an HMAC.
    Null(Hmac),
}

use AesBits::{Aes128, Aes256};

const SALT_BYTES: usize = 4;

impl AesBits {
    /// Bytes of the key.
    pub const fn key_bytes(self) -> usize {
        match self {
            Aes128 => 16,
            Aes256 => 32,
        }
    }
}

impl Hmac {
    /// Bytes of the key, which are those of the hash (RFC 2404 s3, RFC 4868 s2.1.1).
    pub const fn key_bytes(self) -> usize {
        match self {
            Hmac::Sha256 => 32,
            Hmac::Sha1 => 20,
        }
    }
}

impl Suite {
    /// Every suite.
    pub const ALL: [Suite; 10] = [
        Suite::AesGcm(Aes128),
        Suite::AesGcm(Aes256),
        Suite::AesGmac(Aes128),
        Suite::AesGmac(Aes256),
        Suite::AesCbc(Aes128, Hmac::Sha256),
        Suite::AesCbc(Aes256, Hmac::Sha256),
        Suite::AesCbc(Aes128, Hmac::Sha1),
        Suite::AesCbc(Aes256, Hmac::Sha1),
        Suite::Null(Hmac::Sha256),
        Suite::Null(Hmac::Sha1),
    ];

    /// Bytes of keying material of one direction: the cipher's key, then the salt or the HMAC's key
    /// (RFC 4106 s8.1, RFC 7296 s2.17).
    pub const fn key_bytes(self) -> usize {
        match self {
            Suite::AesGcm(aes) | Suite::AesGmac(aes) => aes.key_bytes() + SALT_BYTES,
            Suite::AesCbc(aes, hmac) => aes.key_bytes() + hmac.key_bytes(),
            Suite::Null(hmac) => hmac.key_bytes(),
        }
    }

    /// Bytes of the IV ahead of the text.
    pub const fn iv_bytes(self) -> usize {
        match self {
            Suite::AesGcm(_) | Suite::AesGmac(_) => 8,
            Suite::AesCbc(..) => 16,
            Suite::Null(_) => 0,
        }
    }

    /// Bytes of the ICV at the packet's end.
    pub const fn icv_bytes(self) -> usize {
        match self {
            Suite::AesGcm(_) | Suite::AesGmac(_) => 16,
            Suite::AesCbc(_, hmac) | Suite::Null(hmac) => match hmac {
                Hmac::Sha256 => 16,
                Hmac::Sha1 => 12,
            },
        }
    }

    /// Bytes of which the text, with its padding and trailer, is a multiple (RFC 4303 s2.4).
    pub const fn text_multiple_bytes(self) -> usize {
        match self {
            Suite::AesCbc(..) => 16,
            Suite::AesGcm(_) | Suite::AesGmac(_) | Suite::Null(_) => 4,
        }
    }
}
