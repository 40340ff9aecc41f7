//! Authentication commands and the messages of DH-HMAC-CHAP (Base 2.0, 8.13).
//!
//! [`Message::decode`] takes bytes of any kind and checks every length. A message is at most
//! [`MESSAGE_BYTES_MAX`] bytes long, except a Negotiate with many protocols.

use super::SubmissionQueueEntry;
use super::opcode::FABRICS;
use crate::auth::{Group, Hash, Nonce};

/// Result of Connect: the queue has to authenticate (ATR).
pub const AUTH_REQUIRED: u64 = 1 << 17;
/// Result of Connect: it also needs a secure channel (ASCR), which exists over TCP alone.
pub const SECURE_CHANNEL_REQUIRED: u64 = 1 << 18;
/// The longest message: a Reply with SHA-512 and ffdhe8192.
pub const MESSAGE_BYTES_MAX: usize = 16 + 2 * 64 + 1024;
/// Bytes that a host offers to the controller's messages.
pub const RECEIVE_BYTES: u32 = 4096;

/// Dword 10 of both commands: SECP E9h, SPSP1 and SPSP0 1.
const PROTOCOL: u32 = 0xe901_0100;
/// Byte 40 is reserved.
const PROTOCOL_MASK: u32 = !0xff;

const HEADER_BYTES: usize = 6;
/// The part of a DH-HMAC-CHAP message before its values.
const FIXED_BYTES: usize = 16;
/// The descriptor of a protocol in a Negotiate, the offset of its list of groups, and the most
/// entries of a list.
const DESCRIPTOR_BYTES: usize = 64;
const GROUPS_AT: usize = 34;
const IDS_MAX: usize = 30;

const TYPE_COMMON: u8 = 0;
const TYPE_DH_HMAC_CHAP: u8 = 1;
const NEGOTIATE: u8 = 0x00;
const CHALLENGE: u8 = 0x01;
const REPLY: u8 = 0x02;
const SUCCESS1: u8 = 0x03;
const SUCCESS2: u8 = 0x04;
const FAILURE2: u8 = 0xf0;
const FAILURE1: u8 = 0xf1;
/// The only reason of a failure: authentication failure.
const REASON: u8 = 1;

/// Returns an Authentication Send or Receive for a message of `bytes` bytes.
pub fn command(cid: u16, fctype: u8, bytes: u32) -> SubmissionQueueEntry {
    let mut entry = SubmissionQueueEntry::new(FABRICS, cid, fctype.into());
    entry.set_dword(10, PROTOCOL);
    entry.set_dword(11, bytes);
    entry
}

/// Returns the bytes that an Authentication Send or Receive moves. `None`: it is for another
/// protocol, or moves none.
pub fn bytes_of(entry: &SubmissionQueueEntry) -> Option<u32> {
    let bytes = entry.dword(11);
    (entry.dword(10) & PROTOCOL_MASK == PROTOCOL && bytes > 0).then_some(bytes)
}

/// Why an authentication fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u8)]
pub enum Explanation {
    /// A response is wrong, or a secret is missing.
    #[error("authentication failed")]
    Failed = 1,
    /// DH-HMAC-CHAP is not offered.
    #[error("no usable protocol")]
    Protocol = 2,
    /// A secure channel is asked for.
    #[error("secure channel concatenation mismatch")]
    SecureChannel = 3,
    /// No hash function of the list is allowed.
    #[error("no usable hash function")]
    Hash = 4,
    /// No group of the list is allowed.
    #[error("no usable Diffie-Hellman group")]
    Group = 5,
    /// A field or a length is wrong.
    #[error("incorrect payload")]
    Payload = 6,
    /// Another message was due.
    #[error("incorrect protocol message")]
    Message = 7,
}

impl Explanation {
    fn of(code: u8) -> Self {
        use Explanation::*;
        let all = [Failed, Protocol, SecureChannel, Hash, Group, Payload, Message];
        all.into_iter().find(|&one| one as u8 == code).unwrap_or(Failed)
    }
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The number of the exchange.
    pub t_id: u16,
    /// The rest.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// The host begins.
    Negotiate {
        /// SC_C: 0 without a secure channel.
        sc_c: u8,
        /// Identifiers of hash functions and groups for DH-HMAC-CHAP. `None`: another protocol.
        offer: Option<(Vec<u8>, Vec<u8>)>,
    },
    /// The controller has chosen.
    Challenge {
        /// The hash function.
        hash: Hash,
        /// The group.
        group: Group,
        /// C1 and S1.
        nonce: Nonce,
        /// The controller's public value.
        public: Vec<u8>,
    },
    /// The host's proof.
    Reply {
        /// R1.
        response: Vec<u8>,
        /// C2 and S2, if the controller has to prove itself.
        nonce: Option<Nonce>,
        /// The host's public value.
        public: Vec<u8>,
    },
    /// The controller has accepted the host.
    Success1 {
        /// HL.
        hash_bytes: u8,
        /// R2.
        response: Option<Vec<u8>>,
    },
    /// The host has accepted the controller.
    Success2,
    /// The controller gives up.
    Failure1(Explanation),
    /// The host gives up.
    Failure2(Explanation),
}

/// Takes the parts of a message one after another.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Explanation> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Explanation::Payload)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Explanation> {
        self.take(N)?.try_into().map_err(|_| Explanation::Payload)
    }
}

impl Message {
    /// Reads a message. Returns it with the bytes behind it.
    ///
    /// # Errors
    ///
    /// What a Failure message says of it.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Explanation> {
        let mut parts = Parts(bytes);
        let [of, id, _, _, t_low, t_high] = parts.array::<HEADER_BYTES>()?;
        let body = match (of, id) {
            (TYPE_COMMON, NEGOTIATE) => Self::negotiate(&mut parts)?,
            (TYPE_COMMON, FAILURE1 | FAILURE2) => {
                let [_, code] = parts.array()?;
                let explanation = Explanation::of(code);
                if id == FAILURE1 { Body::Failure1(explanation) } else { Body::Failure2(explanation) }
            }
            (TYPE_DH_HMAC_CHAP, CHALLENGE | REPLY | SUCCESS1 | SUCCESS2) => Self::chap(id, &mut parts)?,
            _ => return Err(Explanation::Message),
        };
        Ok((Message { t_id: u16::from_le_bytes([t_low, t_high]), body }, parts.0))
    }

    fn negotiate(parts: &mut Parts<'_>) -> Result<Body, Explanation> {
        let [sc_c, protocols] = parts.array()?;
        let mut offer = None;
        for _ in 0..protocols {
            let descriptor = parts.take(DESCRIPTOR_BYTES)?;
            let &[of, _, hashes, groups, ref ids @ ..] = descriptor else { continue };
            if of != TYPE_DH_HMAC_CHAP || offer.is_some() {
                continue;
            }
            let list = |from: usize, count: u8| {
                let count = Some(usize::from(count)).filter(|&count| count <= IDS_MAX)?;
                Some(ids.get(from..from + count)?.to_vec())
            };
            let lists = list(0, hashes).zip(list(GROUPS_AT - 4, groups));
            offer = Some(lists.ok_or(Explanation::Payload)?);
        }
        Ok(Body::Negotiate { sc_c, offer })
    }

    fn chap(id: u8, parts: &mut Parts<'_>) -> Result<Body, Explanation> {
        let [hash_bytes, _, first, second] = parts.array()?;
        let [public_bytes, seqnum] =
            [u16::from_le_bytes(parts.array()?).into(), u32::from_le_bytes(parts.array()?)];
        let bytes = usize::from(hash_bytes);
        Ok(match id {
            CHALLENGE => {
                let hash = Hash::of(first).ok_or(Explanation::Hash)?;
                let group = Group::of(second).ok_or(Explanation::Group)?;
                if hash.bytes() != bytes {
                    return Err(Explanation::Payload);
                }
                let nonce = Nonce { challenge: parts.take(bytes)?.to_vec(), seqnum };
                Body::Challenge { hash, group, nonce, public: parts.take(public_bytes as usize)?.to_vec() }
            }
            REPLY => {
                let response = parts.take(bytes)?.to_vec();
                // C2 is there without a use, too.
                let nonce = Nonce { challenge: parts.take(bytes)?.to_vec(), seqnum };
                let nonce = (first != 0).then_some(nonce);
                Body::Reply { response, nonce, public: parts.take(public_bytes as usize)?.to_vec() }
            }
            SUCCESS1 => {
                let response = if first == 0 { None } else { Some(parts.take(bytes)?.to_vec()) };
                Body::Success1 { hash_bytes, response }
            }
            _ => Body::Success2,
        })
    }

    /// Returns the bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MESSAGE_BYTES_MAX);
        let (of, id) = match self.body {
            Body::Negotiate { .. } => (TYPE_COMMON, NEGOTIATE),
            Body::Challenge { .. } => (TYPE_DH_HMAC_CHAP, CHALLENGE),
            Body::Reply { .. } => (TYPE_DH_HMAC_CHAP, REPLY),
            Body::Success1 { .. } => (TYPE_DH_HMAC_CHAP, SUCCESS1),
            Body::Success2 => (TYPE_DH_HMAC_CHAP, SUCCESS2),
            Body::Failure1(_) => (TYPE_COMMON, FAILURE1),
            Body::Failure2(_) => (TYPE_COMMON, FAILURE2),
        };
        let [t_low, t_high] = self.t_id.to_le_bytes();
        bytes.extend([of, id, 0, 0, t_low, t_high]);
        let mut fixed = |(hash_bytes, first, second): (u8, u8, u8), public: usize, seqnum: u32| {
            bytes.extend([hash_bytes, 0, first, second]);
            bytes.extend((public as u16).to_le_bytes());
            bytes.extend(seqnum.to_le_bytes());
        };
        match &self.body {
            Body::Negotiate { sc_c, offer } => {
                bytes.extend([*sc_c, offer.is_some().into()]);
                if let Some((hashes, groups)) = offer {
                    let mut descriptor = [0; DESCRIPTOR_BYTES];
                    let [of, _, hash_count, group_count, ids @ ..] = &mut descriptor;
                    (*of, *hash_count, *group_count) =
                        (TYPE_DH_HMAC_CHAP, hashes.len() as u8, groups.len() as u8);
                    ids.iter_mut().zip(hashes).for_each(|(place, id)| *place = *id);
                    ids.iter_mut().skip(GROUPS_AT - 4).zip(groups).for_each(|(place, id)| *place = *id);
                    bytes.extend(descriptor);
                }
            }
            Body::Challenge { hash, group, nonce, public } => {
                fixed((hash.bytes() as u8, *hash as u8, *group as u8), public.len(), nonce.seqnum);
                bytes.extend(nonce.challenge.iter().chain(public));
            }
            Body::Reply { response, nonce, public } => {
                let none = Nonce { challenge: vec![0; response.len()], seqnum: 0 };
                let (has_nonce, nonce) = (nonce.is_some().into(), nonce.as_ref().unwrap_or(&none));
                fixed((response.len() as u8, has_nonce, 0), public.len(), nonce.seqnum);
                bytes.extend(response.iter().chain(&nonce.challenge).chain(public));
            }
            Body::Success1 { hash_bytes, response } => {
                fixed((*hash_bytes, response.is_some().into(), 0), 0, 0);
                bytes.extend(response.iter().flatten());
            }
            Body::Success2 => bytes.resize(FIXED_BYTES, 0),
            Body::Failure1(explanation) | Body::Failure2(explanation) => {
                bytes.extend([REASON, *explanation as u8]);
            }
        }
        bytes
    }
}
