//! A DATA chunk that was sent and is not acknowledged by the cumulative TSN.

use ironwarp_port::Sealed;
use ironwarp_types::Seq;

use crate::packet::{DATA_HEADER_BYTES, padded};
use crate::paths::PathId;

/// Where a chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChunkState {
    /// Sent, and neither acknowledged nor given up since.
    InFlight,
    /// In a Gap Ack Block. The peer may still drop it (RFC 9260 s6.2).
    Acked,
    /// Marked for retransmission.
    Lost,
}

/// A chunk in the frame of its first transmission. The driver may still hold that frame, so a
/// retransmission copies the chunk to a new one.
pub(crate) struct SentChunk<S> {
    pub(super) sealed: S,
    pub(super) tsn: Seq,
    /// The place of the chunk in its frame.
    pub(super) start: u16,
    /// The length of the chunk without padding, in bytes.
    pub(super) bytes: u16,
    pub(super) stream: u16,
    /// The path that it was sent over last.
    pub(super) path: PathId,
    pub(super) state: ChunkState,
    /// SACKs that reported it missing.
    pub(super) misses: u8,
    /// The first TSN that was sent after its last transmission. Only reports of this and later ones
    /// count as misses.
    pub(super) later: Seq,
}

impl<S: Sealed> SentChunk<S> {
    /// The chunk at `start` in a frame, which is sent for the first time, on a path.
    pub(super) fn new(sealed: &S, start: usize, tsn: Seq, later: Seq, stream: u16, path: PathId) -> Self {
        let length = sealed.bytes().get(start + 2..).and_then(<[u8]>::first_chunk);
        SentChunk {
            sealed: sealed.clone(),
            tsn,
            start: start as u16,
            bytes: length.map_or(0, |length| u16::from_be_bytes(*length)),
            stream,
            path,
            state: ChunkState::InFlight,
            misses: 0,
            later,
        }
    }

    pub(super) fn octets(&self) -> &[u8] {
        let start = usize::from(self.start);
        self.sealed.bytes().get(start..start + usize::from(self.bytes)).unwrap_or_default()
    }
}

impl<S> SentChunk<S> {
    /// Returns its size for the windows: with header and padding (RFC 9260 s7.2).
    pub(super) fn size(&self) -> u32 {
        padded(self.bytes.into()) as u32
    }

    /// Returns the length of the message in bytes.
    pub(super) fn message_bytes(&self) -> u32 {
        self.bytes.saturating_sub(DATA_HEADER_BYTES).into()
    }
}
