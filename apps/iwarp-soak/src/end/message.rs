//! The messages of Sends, and the memory that a server advertises.

use ironwarp::{PrivateData, RemoteMemory, STag};
use ironwarp_types::{Entropy, SeededEntropy};

pub(super) const HEADER_BYTES: usize = 24;
/// The longest message, header included.
pub(super) const MESSAGE_BYTES_MAX: usize = 4096;
/// Messages of a queue pair without an answer.
pub(super) const WINDOW: usize = 8;
/// The bytes of a session's memory at the server.
pub(super) const ARENA_BYTES: usize = 64 << 10;
/// The words of a session for atomic operations.
pub(super) const WORDS: usize = 8;
const MAGIC: u32 = 0x501e_501e;

/// A header: the number of the message, and the seed and length of what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The number, counted from 0 for each direction of a connection.
    pub(super) seq: u64,
    pub(super) seed: u64,
    pub(super) len: u32,
}

impl Header {
    /// Writes a whole message into `message` and returns its length.
    pub(super) fn write(self, message: &mut [u8; MESSAGE_BYTES_MAX]) -> usize {
        let bytes = HEADER_BYTES + self.len as usize;
        message[..4].copy_from_slice(&MAGIC.to_be_bytes());
        message[4..12].copy_from_slice(&self.seq.to_be_bytes());
        message[12..20].copy_from_slice(&self.seed.to_be_bytes());
        message[20..24].copy_from_slice(&self.len.to_be_bytes());
        fill(self.seed, &mut message[HEADER_BYTES..bytes]);
        bytes
    }

    /// Checks a received message: its number, its length and every byte of its contents.
    pub(super) fn check(message: &[u8], seq: u64) -> Result<Header, String> {
        let field = |at: usize, bytes: usize| -> u64 {
            message
                .get(at..at + bytes)
                .unwrap_or_default()
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let header = Header { seq: field(4, 8), seed: field(12, 8), len: field(20, 4) as u32 };
        if message.len() < HEADER_BYTES || field(0, 4) != u64::from(MAGIC) {
            return Err(format!("message {seq}: {} bytes without a header", message.len()));
        }
        if header.seq != seq || header.len as usize != message.len() - HEADER_BYTES {
            return Err(format!("message {seq}: {header:?} in {} bytes", message.len()));
        }
        let mut wanted = [0; MESSAGE_BYTES_MAX];
        let wanted = &mut wanted[..header.len as usize];
        fill(header.seed, wanted);
        match difference(&message[HEADER_BYTES..], wanted) {
            None => Ok(header),
            Some(difference) => Err(format!("message {seq}: {difference}")),
        }
    }
}

/// The eight octets of Immediate Data of a number.
pub(super) fn immediate(seq: u64) -> [u8; 8] {
    (!seq).to_be_bytes()
}

/// The memory of a session at the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advertisement {
    /// [`ARENA_BYTES`] that may be written and read.
    pub(super) arena: RemoteMemory,
    /// [`WORDS`] for atomic operations.
    pub(super) words: RemoteMemory,
}

impl Advertisement {
    pub(super) fn encode(&self) -> [u8; 24] {
        let mut data = [0; 24];
        for (at, place) in [(0, self.arena), (12, self.words)] {
            data[at..at + 4].copy_from_slice(&place.stag.0.to_be_bytes());
            data[at + 4..at + 12].copy_from_slice(&place.tagged_offset.to_be_bytes());
        }
        data
    }

    pub(super) fn decode(data: &PrivateData) -> Option<Self> {
        let place = |at: usize| {
            let stag = data.get(at..at + 4)?.try_into().ok()?;
            let tagged_offset = data.get(at + 4..at + 12)?.try_into().ok()?;
            Some(RemoteMemory {
                stag: STag(u32::from_be_bytes(stag)),
                tagged_offset: u64::from_be_bytes(tagged_offset),
            })
        };
        Some(Advertisement { arena: place(0)?, words: place(12)? })
    }
}

/// Fills `bytes` with the contents of a seed.
pub(super) fn fill(seed: u64, bytes: &mut [u8]) {
    let mut entropy = SeededEntropy::new(seed);
    for chunk in bytes.chunks_mut(8) {
        let word = entropy.next_u64().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Returns the first offset at which two texts of one length differ, with both bytes.
pub(super) fn difference(found: &[u8], wanted: &[u8]) -> Option<String> {
    let at = found.iter().zip(wanted).position(|(found, wanted)| found != wanted)?;
    let (found, wanted) = (found.get(at)?, wanted.get(at)?);
    Some(format!("byte {at} is {found:#04x} instead of {wanted:#04x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_checked_to_the_last_byte() {
        let mut message = [0; MESSAGE_BYTES_MAX];
        let header = Header { seq: 5, seed: 99, len: 1000 };
        let bytes = header.write(&mut message);
        assert_eq!(Header::check(&message[..bytes], 5), Ok(header));
        assert!(Header::check(&message[..bytes], 6).is_err());
        assert!(Header::check(&message[..bytes - 1], 5).is_err());
        assert!(Header::check(&message[..10], 5).is_err());
        message[bytes - 1] ^= 1;
        assert!(Header::check(&message[..bytes], 5).is_err_and(|text| text.contains("byte 999")));
    }

    #[test]
    fn contents_depend_on_the_seed_and_a_difference_is_found() {
        let (mut one, mut same, mut other) = ([0; 37], [0; 37], [0; 37]);
        fill(1, &mut one);
        fill(1, &mut same);
        fill(2, &mut other);
        assert_eq!((one == same, one == other), (true, false));
        assert_eq!(difference(&one, &same), None);
        same[36] ^= 1;
        assert!(difference(&one, &same).is_some_and(|text| text.starts_with("byte 36 is")));
    }
}
