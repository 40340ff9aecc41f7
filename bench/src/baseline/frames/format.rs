//! The division of messages into frames, and the header of a frame.

use ironwarp_port::{Frame, Port, TxMeta};
use ironwarp_types::MacAddr;

/// Link header.
const HEADER_BYTES: usize = 14;
/// The offsets of kind and sequence number.
const KIND_AT: usize = HEADER_BYTES;
const SEQUENCE_AT: usize = HEADER_BYTES + 2;
/// Link header, kind, unused byte, sequence number.
const PREFIX_BYTES: usize = SEQUENCE_AT + 8;
/// The shortest Ethernet frame without its checksum (IEEE 802.3).
const FRAME_BYTES_MIN: usize = 60;
/// IEEE 802: for local experiments.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// The purpose of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// The server sends it back.
    Ping = 1,
    /// A ping that was sent back.
    Pong = 2,
    /// The server counts it.
    Data = 3,
}

/// How messages of one size are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Frames of a message.
    pub frames: u64,
    /// Payload bytes of every frame but the last.
    full_bytes: usize,
    /// Payload bytes of the last frame.
    last_bytes: usize,
}

impl Layout {
    /// A message of `bytes` over frames with at most `mtu` bytes of payload.
    pub fn new(bytes: u64, mtu: u16) -> Self {
        let full = u64::from(mtu.max(1));
        let frames = bytes.div_ceil(full).max(1);
        Layout { frames, full_bytes: full as usize, last_bytes: (bytes - (frames - 1) * full) as usize }
    }

    /// Bytes of the frame at `frame_index` in its message.
    pub(super) fn frame_bytes(&self, frame_index: u64) -> usize {
        (HEADER_BYTES + self.payload_bytes(frame_index)).max(FRAME_BYTES_MIN)
    }

    /// Application bytes of the frame at `frame_index` in its message.
    pub(super) fn payload_bytes(&self, frame_index: u64) -> usize {
        if frame_index + 1 < self.frames { self.full_bytes } else { self.last_bytes }
    }

    /// Application bytes of a message.
    pub fn message_bytes(&self) -> u64 {
        (self.frames - 1) * self.full_bytes as u64 + self.last_bytes as u64
    }
}

/// The bytes that all frames of a sender begin with, up to the sequence number.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameTemplate([u8; SEQUENCE_AT]);

impl FrameTemplate {
    /// Frames of one kind, sent by `source`.
    pub(super) fn new(source: MacAddr, kind: Kind) -> Self {
        let mut head = [0; SEQUENCE_AT];
        head[..6].fill(0xff);
        head[6..12].copy_from_slice(&source.0);
        head[12..14].copy_from_slice(&ETHERTYPE);
        head[KIND_AT] = kind as u8;
        FrameTemplate(head)
    }

    /// Builds a frame of `bytes`; `None` while the pool is empty.
    #[inline]
    pub(super) fn build<P: Port>(
        &self,
        port: &mut P,
        bytes: usize,
        sequence: u64,
    ) -> Option<<P::Frame as Frame>::Sealed> {
        let mut frame = port.alloc()?;
        frame.resize(bytes);
        self.write(frame.bytes_mut(), sequence);
        Some(frame.seal(TxMeta::default()))
    }

    /// Writes the first bytes of a frame.
    #[inline]
    fn write(&self, frame: &mut [u8], sequence: u64) {
        let Some(head) = frame.first_chunk_mut::<PREFIX_BYTES>() else { return };
        head[..SEQUENCE_AT].copy_from_slice(&self.0);
        head[SEQUENCE_AT..].copy_from_slice(&sequence.to_be_bytes());
    }
}

/// Whether a frame is one that the server counts.
#[inline]
pub(super) fn is_data(frame: &[u8]) -> bool {
    frame
        .first_chunk::<PREFIX_BYTES>()
        .is_some_and(|head| head[12..14] == ETHERTYPE && head[KIND_AT] == Kind::Data as u8)
}

/// Returns the kind and sequence number; `None` for frames of other programs.
pub(super) fn parse_header(frame: &[u8]) -> Option<(Kind, u64)> {
    let head = frame.first_chunk::<PREFIX_BYTES>()?;
    if head[12..14] != ETHERTYPE {
        return None;
    }
    let kind = [Kind::Ping, Kind::Pong, Kind::Data].into_iter().find(|&kind| kind as u8 == head[KIND_AT])?;
    let sequence = head[SEQUENCE_AT..].try_into().ok()?;
    Some((kind, u64::from_be_bytes(sequence)))
}

/// Turns a ping into a pong.
pub(super) fn to_pong(frame: &mut [u8]) {
    if let Some(head) = frame.first_chunk_mut::<PREFIX_BYTES>() {
        head[KIND_AT] = Kind::Pong as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_at_the_mtu_and_loses_no_byte() {
        for (bytes, mtu, frames) in [
            (64, 1500, 1),
            (1500, 1500, 1),
            (1501, 1500, 2),
            (65_536, 1500, 44),
            (1 << 20, 9000, 117),
            (0, 1500, 1),
        ] {
            let layout = Layout::new(bytes, mtu);
            assert_eq!(layout.frames, frames, "{bytes} over {mtu}");
            assert_eq!(layout.message_bytes(), bytes);
            let sum: usize = (0..frames).map(|frame_index| layout.payload_bytes(frame_index)).sum();
            assert_eq!(sum as u64, bytes);
        }
    }

    #[test]
    fn a_short_message_is_padded_to_the_shortest_frame() {
        assert_eq!(Layout::new(1, 1500).frame_bytes(0), 60);
        assert_eq!(Layout::new(64, 1500).frame_bytes(0), 78);
    }

    #[test]
    fn a_frame_says_what_it_is_and_others_are_not_ours() {
        let mut frame = [0; 60];
        let source = MacAddr([2, 0, 0, 0, 0, 1]);
        FrameTemplate::new(source, Kind::Data).write(&mut frame, 8);
        assert_eq!((parse_header(&frame), is_data(&frame)), (Some((Kind::Data, 8)), true));
        FrameTemplate::new(source, Kind::Ping).write(&mut frame, 7);
        assert_eq!((parse_header(&frame), is_data(&frame)), (Some((Kind::Ping, 7)), false));
        to_pong(&mut frame);
        assert_eq!(parse_header(&frame), Some((Kind::Pong, 7)));
        frame[12] = 0x08;
        assert_eq!(parse_header(&frame), None);
        assert_eq!(parse_header(&[0xff; 20]), None);
        assert!(!is_data(&frame) && !is_data(&[0xff; 20]));
    }
}
