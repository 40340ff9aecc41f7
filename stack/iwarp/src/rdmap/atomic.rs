//! Headers of Atomic Requests and Atomic Responses (RFC 7306 s5.2). The header is the whole payload
//! of either message.
//!
//! ```text
//! request   | reserved:28 AOpCode:4 | identifier:u32 | STag:u32 | TO:u64 | data:u64 | mask:u64 | compare:u64 | mask:u64 |
//! response  | identifier:u32 | original value:u64 |
//! ```
//! Fields are big-endian on the wire and numbers in these types, so the byte order of memory does
//! not matter here. `ironwarp_mem` carries the operations out. A request that cannot be decoded or
//! is not allowed ends the stream with the error in [`RdmapFault`], before the word is accessed.

use ironwarp_mem::{AtomicOp, WordError};
use ironwarp_types::STag;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{RdmapFault, Rfc7306Profile};

/// Octets of an Atomic Request (RFC 7306 s4, s5.2.1, figure 4).
pub const ATOMIC_REQUEST_BYTES: usize = size_of::<RequestWire>();

/// Octets of an Atomic Response (RFC 7306 s5.2.2, figure 6). The 32 octets that s4 mentions match
/// neither figure.
pub const ATOMIC_RESPONSE_BYTES: usize = size_of::<ResponseWire>();

const _: () = assert!(ATOMIC_REQUEST_BYTES == 52 && ATOMIC_RESPONSE_BYTES == 12);

const OPERATION_MASK: u32 = 0x0f;
const FETCH_ADD: u32 = 0;
const SWAP: u32 = 1;
const CMP_SWAP: u32 = 2;

/// RFC 7306 s5.2.1: an unused mask is sent as all ones, and unused data as zero.
const UNUSED_MASK: u64 = u64::MAX;
const UNUSED_DATA: u64 = 0;

/// The fields of an Atomic Request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicRequest {
    /// The requester's identifier, which the response repeats.
    pub identifier: u32,
    /// The buffer of the word.
    pub stag: STag,
    /// The offset of the word in that buffer.
    pub tagged_offset: u64,
    /// The operation and its operands.
    pub operation: AtomicOp,
}

/// The fields of an Atomic Response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResponse {
    /// The identifier of the request.
    pub identifier: u32,
    /// The word's value before the operation.
    pub original: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RequestWire {
    operation: U32,
    identifier: U32,
    stag: U32,
    tagged_offset: U64,
    data: U64,
    mask: U64,
    compare: U64,
    compare_mask: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ResponseWire {
    identifier: U32,
    original: U64,
}

impl AtomicRequest {
    /// Decodes a payload, which must be exactly one header. An operation that the profile lacks is
    /// treated as an unknown message (RFC 7306 s1.1, s5.2.1).
    pub fn decode(payload: &[u8], profile: Rfc7306Profile) -> Result<AtomicRequest, RdmapFault> {
        let wire = RequestWire::ref_from_bytes(payload).map_err(|_| RdmapFault::Unspecified)?;
        Ok(AtomicRequest {
            identifier: wire.identifier.get(),
            stag: STag(wire.stag.get()),
            tagged_offset: wire.tagged_offset.get(),
            operation: wire.operation(profile)?,
        })
    }

    /// Encodes the header. The caller checks that the peer's profile has Swap before it sends one
    /// ([`Rfc7306Profile::swap`]).
    pub fn encode(&self) -> [u8; ATOMIC_REQUEST_BYTES] {
        let (code, data, mask, compare, compare_mask) = match self.operation {
            AtomicOp::FetchAdd { add, mask } => (FETCH_ADD, add, mask, UNUSED_DATA, UNUSED_MASK),
            AtomicOp::Swap { swap } => (SWAP, swap, UNUSED_MASK, UNUSED_DATA, UNUSED_MASK),
            AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask } => {
                (CMP_SWAP, swap, swap_mask, compare, compare_mask)
            }
        };
        let wire = RequestWire {
            operation: code.into(),
            identifier: self.identifier.into(),
            stag: self.stag.0.into(),
            tagged_offset: self.tagged_offset.into(),
            data: data.into(),
            mask: mask.into(),
            compare: compare.into(),
            compare_mask: compare_mask.into(),
        };
        zerocopy::transmute!(wire)
    }
}

impl RequestWire {
    /// RFC 7306 s5.2.1: the 28 bits before the code are ignored, and so is every field that the
    /// operation does not use.
    fn operation(&self, profile: Rfc7306Profile) -> Result<AtomicOp, RdmapFault> {
        let (data, mask) = (self.data.get(), self.mask.get());
        match self.operation.get() & OPERATION_MASK {
            FETCH_ADD => Ok(AtomicOp::FetchAdd { add: data, mask }),
            CMP_SWAP => {
                let (compare, compare_mask) = (self.compare.get(), self.compare_mask.get());
                Ok(AtomicOp::CmpSwap { compare, compare_mask, swap: data, swap_mask: mask })
            }
            SWAP if profile.swap => Ok(AtomicOp::Swap { swap: data }),
            _ => Err(RdmapFault::Opcode),
        }
    }
}

impl AtomicResponse {
    /// Decodes a payload, which must be exactly one header.
    pub fn decode(payload: &[u8]) -> Result<AtomicResponse, RdmapFault> {
        let wire = ResponseWire::ref_from_bytes(payload).map_err(|_| RdmapFault::Unspecified)?;
        Ok(AtomicResponse { identifier: wire.identifier.get(), original: wire.original.get() })
    }

    /// Decodes the payload of the response to request `identifier`, the oldest outstanding one. A
    /// response with another identifier answers a request that was never sent or is not the oldest
    /// (RFC 7306 s5.2.2, s7).
    pub fn decode_for(payload: &[u8], identifier: u32) -> Result<AtomicResponse, RdmapFault> {
        let response = AtomicResponse::decode(payload)?;
        if response.identifier == identifier { Ok(response) } else { Err(RdmapFault::StreamCatastrophic) }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; ATOMIC_RESPONSE_BYTES] {
        let wire = ResponseWire { identifier: self.identifier.into(), original: self.original.into() };
        zerocopy::transmute!(wire)
    }
}

impl From<WordError> for RdmapFault {
    /// RFC 5040 s7.2: the checks are those of a Read Request's source, which RFC 7306 does not
    /// repeat for Atomics. RFC 7306 s8.2 adds the check of the alignment.
    fn from(refused: WordError) -> Self {
        match refused {
            WordError::Access(error) => error.into(),
            WordError::Misaligned => RdmapFault::StreamCatastrophic,
        }
    }
}

#[cfg(test)]
mod tests;
