//! NVMe in-band authentication, DH-HMAC-CHAP: what both sides compute.
//!
//! Each side proves that it has a secret, without showing it: the host to the controller, and the
//! controller to the host if that asks for it. With a Diffie-Hellman group, who records an exchange
//! cannot test guesses of a secret. It is the start of a connection that is authenticated, not its
//! data.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`secret`] | secrets in their text form |
//! | [`dh`] | groups and exponentiation |
//! | [`jobs`] | computations for a thread that is no polled core |
//!
//! The messages are in [`crate::wire::auth`], the exchanges in [`crate::target`] and
//! [`crate::host`]. Source: NVM Express Base 2.0, 8.13.

pub mod dh;
pub mod jobs;
pub mod secret;

use std::collections::BTreeMap;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::{Digest, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use dh::{DhKey, Group};
pub use secret::Secret;

/// Bytes that are zeroed when dropped.
pub type SecretBytes = Zeroizing<Vec<u8>>;

/// A hash function, by its identifier on the wire and in secrets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

impl Hash {
    /// All of them, the weakest first.
    pub const ALL: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

    /// Returns the function with an identifier.
    pub fn of(identifier: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&one| one as u8 == identifier)
    }

    /// Returns the bytes of its result.
    pub fn bytes(self) -> usize {
        [0, 32, 48, 64][self as usize]
    }

    fn digest(self, data: &[u8]) -> SecretBytes {
        Zeroizing::new(match self {
            Hash::Sha256 => Sha256::digest(data).to_vec(),
            Hash::Sha384 => Sha384::digest(data).to_vec(),
            Hash::Sha512 => Sha512::digest(data).to_vec(),
        })
    }

    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> SecretBytes {
        fn of<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> SecretBytes {
            // HMAC takes keys of any length (RFC 2104 s2).
            let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return Zeroizing::default() };
            parts.iter().for_each(|part| mac.update(part));
            Zeroizing::new(mac.finalize().into_bytes().to_vec())
        }
        match self {
            Hash::Sha256 => of::<Hmac<Sha256>>(key, parts),
            Hash::Sha384 => of::<Hmac<Sha384>>(key, parts),
            Hash::Sha512 => of::<Hmac<Sha512>>(key, parts),
        }
    }
}

/// The secrets of a host: its own, and that of the controller for this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostSecrets {
    /// Proves the host.
    pub host: Secret,
    /// Proves the controller. `None`: the host cannot ask for it.
    pub controller: Option<Secret>,
}

/// Whom a target authenticates, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthPolicy {
    /// The secrets by the NQN of the host.
    pub hosts: BTreeMap<String, Arc<HostSecrets>>,
    /// Whether other hosts are refused. If not, they are not authenticated.
    pub is_required: bool,
    /// The hash functions that are allowed.
    pub hashes: Vec<Hash>,
    /// The groups that are allowed.
    pub groups: Vec<Group>,
}

impl Default for AuthPolicy {
    /// Nobody is authenticated.
    fn default() -> Self {
        let groups = vec![Group::Ffdhe2048, Group::Ffdhe3072];
        AuthPolicy { hosts: BTreeMap::new(), is_required: false, hashes: Hash::ALL.to_vec(), groups }
    }
}

/// What both sides of an exchange know before they compute.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The function that was negotiated.
    pub hash: Hash,
    /// The group that was negotiated.
    pub group: Group,
    /// T_ID.
    pub t_id: u16,
    /// The host.
    pub hostnqn: String,
    /// The subsystem.
    pub subnqn: String,
}

/// A challenge: its random bytes, and the sequence number beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nonce {
    /// C1 or C2.
    pub challenge: Vec<u8>,
    /// S1 or S2, never 0.
    pub seqnum: u32,
}

impl Nonce {
    /// A fresh one.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn random(hash: Hash) -> Result<Self, getrandom::Error> {
        let mut challenge = vec![0; hash.bytes()];
        getrandom::fill(&mut challenge)?;
        Ok(Nonce { challenge, seqnum: getrandom::u32()?.max(1) })
    }
}

impl Exchange {
    /// Returns R1, the host's response to the controller's challenge. `shared` is the
    /// Diffie-Hellman secret, empty without a group.
    pub fn host_response(&self, secret: &Secret, shared: &[u8], nonce: &Nonce) -> SecretBytes {
        let key = secret.transformed(&self.hostnqn);
        self.response(&key, shared, nonce, ("HostHost", [&self.hostnqn, &self.subnqn]))
    }

    /// Returns R2, the controller's response to the host's challenge.
    pub fn controller_response(&self, secret: &Secret, shared: &[u8], nonce: &Nonce) -> SecretBytes {
        let key = secret.transformed(&self.subnqn);
        self.response(&key, shared, nonce, ("Controller", [&self.subnqn, &self.hostnqn]))
    }

    fn response(
        &self,
        key: &[u8],
        shared: &[u8],
        nonce: &Nonce,
        (label, [own, other]): (&str, [&str; 2]),
    ) -> SecretBytes {
        // The session key is the hash of the shared secret with its leading zeros. It augments the
        // challenge.
        let augmented = if self.group == Group::Null {
            Zeroizing::new(nonce.challenge.clone())
        } else {
            self.hash.hmac(&self.hash.digest(shared), &[&nonce.challenge])
        };
        // SC_C is 0: there is no secure channel over RDMA.
        let (seqnum, t_id, sc_c) = (nonce.seqnum.to_le_bytes(), self.t_id.to_le_bytes(), [0]);
        let parts: [&[u8]; 8] =
            [&augmented, &seqnum, &t_id, &sc_c, label.as_bytes(), own.as_bytes(), &[0], other.as_bytes()];
        self.hash.hmac(key, &parts)
    }
}

/// Returns whether two responses are the same, in a time that depends on their length alone.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests;
