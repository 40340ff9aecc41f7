//! The protocol of server and client: requests of 32 bytes and responses of 16, all numbers
//! big-endian.
//!
//! ```text
//! request  operation u8 | 3 bytes 0 | blocks u32 | first u64 | offset u64 | stag u32 | tag u32
//! response   tag u32 | outcome u32 | first u64
//! ```
//! Decoding accepts any bytes and refuses those that are not in this form.

use ironwarp::{RemoteMemory, STag};

/// Bytes in a block.
pub const BLOCK_BYTES: u32 = 4096;
/// Blocks that one request may move.
pub const BLOCKS_MAX: u32 = 16;
/// Requests that a client may have outstanding.
pub const WINDOW: usize = 8;
/// Bytes of a request.
pub const REQUEST_BYTES: usize = 32;
/// Bytes of a response.
pub const RESPONSE_BYTES: usize = 16;

/// The operation that a client requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Copy blocks of the disk to the client's memory.
    Read = 1,
    /// Copy blocks of the client's memory to the disk.
    Write = 2,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// The number of blocks, 1 to [`BLOCKS_MAX`].
    pub blocks: u32,
    /// The first block on the disk.
    pub first: u64,
    /// The source or sink in the client's memory.
    pub memory: RemoteMemory,
    /// Returned in the response.
    pub tag: u32,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The blocks are moved.
    Done,
    /// A block lies beyond the disk.
    OutOfRange,
    /// No blocks, or more than [`BLOCKS_MAX`].
    BadLength,
    /// The message is not a request.
    BadRequest,
}

/// The outcomes, in the order of their numbers on the wire.
const OUTCOMES: [Outcome; 4] = [Outcome::Done, Outcome::OutOfRange, Outcome::BadLength, Outcome::BadRequest];

/// A response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// The tag of the request.
    pub tag: u32,
    /// The outcome.
    pub outcome: Outcome,
    /// The first block of the request.
    pub first: u64,
}

impl Request {
    /// Encodes the request.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0] = self.operation as u8;
        bytes[4..8].copy_from_slice(&self.blocks.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.memory.tagged_offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.memory.stag.0.to_be_bytes());
        bytes[28..].copy_from_slice(&self.tag.to_be_bytes());
        bytes
    }

    /// Decodes a request; `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != REQUEST_BYTES {
            return None;
        }
        let operations = [Operation::Read, Operation::Write];
        let operation = operations.into_iter().find(|&operation| operation as u8 == bytes[0])?;
        let (stag, tagged_offset) = (STag(u32_at(bytes, 24)?), u64_at(bytes, 16)?);
        let memory = RemoteMemory { stag, tagged_offset };
        Some(Request {
            operation,
            blocks: u32_at(bytes, 4)?,
            first: u64_at(bytes, 8)?,
            memory,
            tag: u32_at(bytes, 28)?,
        })
    }

    /// Checks whether a disk of this size can carry it out.
    pub fn check(&self, disk_blocks: u64) -> Outcome {
        if !(1..=BLOCKS_MAX).contains(&self.blocks) {
            return Outcome::BadLength;
        }
        match self.first.checked_add(self.blocks.into()) {
            Some(end) if end <= disk_blocks => Outcome::Done,
            _ => Outcome::OutOfRange,
        }
    }
}

impl Response {
    /// Encodes the response.
    pub fn encode(&self) -> [u8; RESPONSE_BYTES] {
        let mut bytes = [0; RESPONSE_BYTES];
        bytes[..4].copy_from_slice(&self.tag.to_be_bytes());
        bytes[4..8].copy_from_slice(&(self.outcome as u32).to_be_bytes());
        bytes[8..].copy_from_slice(&self.first.to_be_bytes());
        bytes
    }

    /// Decodes a response; `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != RESPONSE_BYTES {
            return None;
        }
        let outcome = *OUTCOMES.get(u32_at(bytes, 4)? as usize)?;
        Some(Response { tag: u32_at(bytes, 0)?, outcome, first: u64_at(bytes, 8)? })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().map(u32::from_be_bytes).ok()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().map(u64::from_be_bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let memory = RemoteMemory { stag: STag(0x1234_5678), tagged_offset: u64::MAX - 5 };
        Request { operation: Operation::Write, blocks: 3, first: 1 << 40, memory, tag: 9 }
    }

    #[test]
    fn requests_and_answers_survive_the_wire() {
        assert_eq!(Request::decode(&request().encode()), Some(request()));
        for outcome in OUTCOMES {
            let response = Response { tag: 7, outcome, first: 3 };
            assert_eq!(Response::decode(&response.encode()), Some(response));
        }
    }

    #[test]
    fn what_is_no_request_is_none() {
        let mut unknown = request().encode();
        unknown[0] = 3;
        assert_eq!(Request::decode(&unknown), None);
        assert_eq!(Request::decode(&request().encode()[..31]), None);
        assert_eq!(Request::decode(&[]), None);
        assert_eq!(Response::decode(&[0xff; RESPONSE_BYTES]), None);
    }

    #[test]
    fn blocks_beyond_the_disk_are_refused_also_where_numbers_would_wrap() {
        let at = |first, blocks| Request { first, blocks, ..request() }.check(100);
        assert_eq!(at(97, 3), Outcome::Done);
        assert_eq!(at(98, 3), Outcome::OutOfRange);
        assert_eq!(at(u64::MAX, 1), Outcome::OutOfRange);
        assert_eq!(at(u64::MAX - 2, 16), Outcome::OutOfRange);
        assert_eq!(
            (at(0, 0), at(0, BLOCKS_MAX + 1), at(0, u32::MAX)),
            (Outcome::BadLength, Outcome::BadLength, Outcome::BadLength)
        );
    }
}
