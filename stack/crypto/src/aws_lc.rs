//! The suites by AWS-LC.
//!
//! Takes a packet with its headroom, whose ESP header is written and whose length is checked. GCM
//! seals from one buffer into another in one pass; the other suites copy the text first.

use core::fmt;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::rand;

use crate::{AesBits, BadIcv, ESP_HEADER_BYTES, HEADROOM_BYTES, Hmac, KeyError, SealError, Suite};

const SALT_BYTES: usize = 4;
const GCM_IV_BYTES: usize = 8;
const GCM_ICV_BYTES: usize = 16;
const BLOCK_BYTES: usize = 16;

/// The expanded keys of one direction.
pub(crate) enum Backend {
    Gcm { key: LessSafeKey, salt: [u8; SALT_BYTES], encrypts: bool },
    Hmac(Box<HmacKeys>),
}

pub(crate) struct HmacKeys {
    cipher: Option<Cbc>,
    key: hmac::Key,
    icv_bytes: usize,
}

/// Both halves, of which one is used. The library has the round keys of both in either.
struct Cbc {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
    /// The upper half of the blocks that become IVs, at random: a key of an earlier run, with
    /// sequence numbers from 1 again, repeats no IV.
    iv_prefix: u64,
}

/// A packet taken apart, without its headroom.
struct Parts<'a> {
    header: &'a mut [u8; ESP_HEADER_BYTES],
    /// IV and text.
    body: &'a mut [u8],
    icv: &'a mut [u8],
}

impl Backend {
    pub(crate) fn new(suite: Suite, key: &[u8]) -> Result<Self, KeyError> {
        let split = |aes: AesBits| key.split_at_checked(aes.key_bytes()).ok_or(KeyError::Refused);
        Ok(match suite {
            Suite::AesGcm(aes) | Suite::AesGmac(aes) => {
                let (key, salt) = split(aes)?;
                let algorithm = match aes {
                    AesBits::Aes128 => &AES_128_GCM,
                    AesBits::Aes256 => &AES_256_GCM,
                };
                let key = UnboundKey::new(algorithm, key).map_err(|_| KeyError::Refused)?;
                let salt = salt.try_into().map_err(|_| KeyError::Refused)?;
                Backend::Gcm { key: LessSafeKey::new(key), salt, encrypts: matches!(suite, Suite::AesGcm(_)) }
            }
            Suite::AesCbc(aes, hmac) => {
                let (cipher, integrity) = split(aes)?;
                Backend::hmac(suite, Some(Cbc::new(aes, cipher)?), hmac, integrity)
            }
            Suite::Null(hmac) => Backend::hmac(suite, None, hmac, key),
        })
    }

    fn hmac(suite: Suite, cipher: Option<Cbc>, algorithm: Hmac, key: &[u8]) -> Self {
        let algorithm = match algorithm {
            Hmac::Sha256 => hmac::HMAC_SHA256,
            Hmac::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        };
        let key = hmac::Key::new(algorithm, key);
        Backend::Hmac(Box::new(HmacKeys { cipher, key, icv_bytes: suite.icv_bytes() }))
    }

    /// Seals `text` and `trailer` into `packet`. `high` is the upper half of an extended sequence
    /// number; `unique` becomes the IV, and must never repeat.
    pub(crate) fn seal(
        &self,
        high: Option<u32>,
        unique: u64,
        text: &[u8],
        trailer: &[u8],
        packet: &mut [u8],
    ) -> Result<(), SealError> {
        match self {
            Backend::Gcm { key, salt, encrypts: true } => {
                let Parts { header, body, .. } = parts(packet, 0).ok_or(SealError::Length)?;
                let (iv, body) = body.split_first_chunk_mut().ok_or(SealError::Length)?;
                *iv = unique.to_be_bytes();
                let (out, rest) = body.split_at_mut_checked(text.len()).ok_or(SealError::Length)?;
                let (aad, aad_bytes) = gcm_aad(header, high);
                let aad = Aad::from(aad.get(..aad_bytes).unwrap_or(&aad));
                key.seal_out_of_place_scatter(nonce(salt, iv), aad, text, out, trailer, rest)
                    .map_err(|_| SealError::Length)
            }
            Backend::Gcm { key, salt, encrypts: false } => {
                let Parts { body, .. } = parts(packet, GCM_ICV_BYTES).ok_or(SealError::Length)?;
                let (iv, body) = body.split_first_chunk_mut().ok_or(SealError::Length)?;
                *iv = unique.to_be_bytes();
                gather(text, trailer, body)?;
                let nonce = nonce(salt, iv);
                let sealed =
                    with_gmac_aad(packet, high, |aad| key.seal_in_place_separate_tag(nonce, aad, &mut []));
                let tag = sealed.and_then(Result::ok).ok_or(SealError::Length)?;
                let Parts { icv, .. } = parts(packet, GCM_ICV_BYTES).ok_or(SealError::Length)?;
                icv.copy_from_slice(tag.as_ref());
                Ok(())
            }
            Backend::Hmac(keys) => {
                let HmacKeys { cipher, key, icv_bytes } = &**keys;
                let Parts { header, body, icv } = parts(packet, *icv_bytes).ok_or(SealError::Length)?;
                match cipher {
                    Some(cipher) => {
                        let (first, rest) =
                            body.split_first_chunk_mut::<BLOCK_BYTES>().ok_or(SealError::Length)?;
                        *first = (u128::from(cipher.iv_prefix) << 64 | u128::from(unique)).to_be_bytes();
                        gather(text, trailer, rest)?;
                        cipher.encrypt_behind_iv(body)?;
                    }
                    None => gather(text, trailer, body)?,
                }
                let tag = integrity(key, header, body, high);
                icv.copy_from_slice(tag.as_ref().get(..*icv_bytes).ok_or(SealError::Length)?);
                Ok(())
            }
        }
    }

    /// Opens `packet` in place.
    pub(crate) fn open(&self, high: Option<u32>, packet: &mut [u8]) -> Result<(), BadIcv> {
        match self {
            Backend::Gcm { key, salt, encrypts: true } => {
                let Parts { header, body, .. } = parts(packet, 0).ok_or(BadIcv)?;
                let (iv, sealed) = body.split_first_chunk_mut().ok_or(BadIcv)?;
                let (aad, aad_bytes) = gcm_aad(header, high);
                let aad = Aad::from(aad.get(..aad_bytes).unwrap_or(&aad));
                key.open_in_place(nonce(salt, iv), aad, sealed).map(|_| ()).map_err(|_| BadIcv)
            }
            Backend::Gcm { key, salt, encrypts: false } => {
                let Parts { body, icv, .. } = parts(packet, GCM_ICV_BYTES).ok_or(BadIcv)?;
                let mut icv: [u8; GCM_ICV_BYTES] = (&*icv).try_into().map_err(|_| BadIcv)?;
                let nonce = nonce(salt, body.first_chunk().ok_or(BadIcv)?);
                let opened =
                    with_gmac_aad(packet, high, |aad| key.open_in_place(nonce, aad, &mut icv).map(|_| ()));
                opened.and_then(Result::ok).ok_or(BadIcv)
            }
            Backend::Hmac(keys) => {
                let HmacKeys { cipher, key, icv_bytes } = &**keys;
                let Parts { header, body, icv } = parts(packet, *icv_bytes).ok_or(BadIcv)?;
                let tag = integrity(key, header, body, high);
                verify_slices_are_equal(tag.as_ref().get(..*icv_bytes).ok_or(BadIcv)?, icv)
                    .map_err(|_| BadIcv)?;
                cipher.as_ref().map_or(Ok(()), |cipher| cipher.decrypt_behind_iv(body))
            }
        }
    }
}

impl Cbc {
    fn new(aes: AesBits, key: &[u8]) -> Result<Self, KeyError> {
        let algorithm = match aes {
            AesBits::Aes128 => &AES_128,
            AesBits::Aes256 => &AES_256,
        };
        let key = || UnboundCipherKey::new(algorithm, key);
        let encrypting = key().and_then(EncryptingKey::cbc).map_err(|_| KeyError::Refused)?;
        let decrypting = key().and_then(DecryptingKey::cbc).map_err(|_| KeyError::Refused)?;
        let mut iv_prefix = [0; 8];
        rand::fill(&mut iv_prefix).map_err(|_| KeyError::Refused)?;
        Ok(Cbc { encrypting, decrypting, iv_prefix: u64::from_ne_bytes(iv_prefix) })
    }

    /// Encrypts whole blocks, the first of which becomes the IV of the others. RFC 3602 s3: an IV
    /// must be unpredictable. A unique block encrypted with the same key is (SP 800-38A, appendix
    /// C), and behind an IV of zero that is what CBC makes of the first block.
    fn encrypt_behind_iv(&self, blocks: &mut [u8]) -> Result<(), SealError> {
        let zero = EncryptionContext::Iv128(FixedLength::from([0; BLOCK_BYTES]));
        self.encrypting.less_safe_encrypt(blocks, zero).map(|_| ()).map_err(|_| SealError::Length)
    }

    fn decrypt_behind_iv(&self, body: &mut [u8]) -> Result<(), BadIcv> {
        let (iv, text) = body.split_first_chunk_mut::<BLOCK_BYTES>().ok_or(BadIcv)?;
        let context = DecryptionContext::Iv128(FixedLength::from(*iv));
        self.decrypting.decrypt(text, context).map(|_| ()).map_err(|_| BadIcv)
    }
}

/// Names the variant: neither keys nor salts are printed.
impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Gcm { .. } => "Gcm(..)",
            Backend::Hmac(_) => "Hmac(..)",
        })
    }
}

/// Returns the first half of an HMAC-SHA-256 with the key, of which nothing about the key follows.
pub(crate) fn fingerprint(key: &[u8]) -> [u8; 16] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), b"fingerprint of a key of ESP");
    tag.as_ref().first_chunk().copied().unwrap_or_default()
}

/// Takes a packet apart, with the last `icv_bytes` as the ICV.
fn parts(packet: &mut [u8], icv_bytes: usize) -> Option<Parts<'_>> {
    let (_, esp) = packet.split_first_chunk_mut::<HEADROOM_BYTES>()?;
    let (header, rest) = esp.split_first_chunk_mut()?;
    let (body, icv) = rest.split_at_mut_checked(rest.len().checked_sub(icv_bytes)?)?;
    Some(Parts { header, body, icv })
}

fn gather(text: &[u8], trailer: &[u8], body: &mut [u8]) -> Result<(), SealError> {
    let (text_place, trailer_place) = body.split_at_mut_checked(text.len()).ok_or(SealError::Length)?;
    if trailer_place.len() != trailer.len() {
        return Err(SealError::Length);
    }
    text_place.copy_from_slice(text);
    trailer_place.copy_from_slice(trailer);
    Ok(())
}

/// RFC 4106 s4 and RFC 4543 s3.2: the salt, then the IV of the packet.
fn nonce(salt: &[u8; SALT_BYTES], iv: &[u8; GCM_IV_BYTES]) -> Nonce {
    let mut nonce = [0; SALT_BYTES + GCM_IV_BYTES];
    let (first, last) = nonce.split_at_mut(SALT_BYTES);
    first.copy_from_slice(salt);
    last.copy_from_slice(iv);
    Nonce::assume_unique_for_key(nonce)
}

/// RFC 4106 s5: the SPI and the sequence number, of 32 or 64 bits. Returns the bytes and how many.
fn gcm_aad(header: &[u8; ESP_HEADER_BYTES], high: Option<u32>) -> ([u8; 12], usize) {
    let [s0, s1, s2, s3, n0, n1, n2, n3] = *header;
    match high.map(u32::to_be_bytes) {
        Some([h0, h1, h2, h3]) => ([s0, s1, s2, s3, h0, h1, h2, h3, n0, n1, n2, n3], 12),
        None => ([s0, s1, s2, s3, n0, n1, n2, n3, 0, 0, 0, 0], ESP_HEADER_BYTES),
    }
}

/// Calls `compute` with the authenticated data of GMAC (RFC 4543 s3.3): SPI, sequence number, IV
/// and text. They lie in the packet in this order, but for the upper half of an extended sequence
/// number. For that the SPI moves into the headroom meanwhile.
fn with_gmac_aad<T>(
    packet: &mut [u8],
    high: Option<u32>,
    compute: impl FnOnce(Aad<&[u8]>) -> T,
) -> Option<T> {
    let end = packet.len().checked_sub(GCM_ICV_BYTES)?;
    let Some(high) = high else {
        return Some(compute(Aad::from(packet.get(HEADROOM_BYTES..end)?)));
    };
    let start: &mut [u8; 8] = packet.first_chunk_mut()?;
    let saved = *start;
    let spi = u64::from_be_bytes(saved) << 32;
    *start = (spi | u64::from(high)).to_be_bytes();
    let result = compute(Aad::from(packet.get(..end)?));
    *packet.first_chunk_mut()? = saved;
    Some(result)
}

/// RFC 4303 s3.3.2.1: the HMAC over header, IV and text, and the upper half of an extended sequence
/// number, which is not sent.
fn integrity(key: &hmac::Key, header: &[u8; ESP_HEADER_BYTES], body: &[u8], high: Option<u32>) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(header);
    context.update(body);
    if let Some(high) = high {
        context.update(&high.to_be_bytes());
    }
    context.sign()
}
