//! A writer of packets in place.
//!
//! A chunk that does not fit is left out as a whole. Padding is zero and never more than three
//! octets (RFC 9260 s3.2 and s3.2.1).

use super::chunk::CHUNK_HEADER_BYTES;
use super::parameter::TLV_HEADER_BYTES;
use core::ops::Range;

use ironwarp_arch::crc32c;

use super::{ALIGNMENT, COMMON_HEADER_BYTES, ChunkType, DATA_HEADER_BYTES, Data, DataFlags, padded};

/// The length of a DATA chunk before its payload.
const HEADER: usize = DATA_HEADER_BYTES as usize;

/// A packet under construction.
pub struct PacketWriter<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl<'a> PacketWriter<'a> {
    /// Begins a packet with no chunk. `ports` are the local and the remote one. `None` if `room` is
    /// shorter than the common header.
    pub fn new(room: &'a mut [u8], ports: [u16; 2], tag: u32) -> Option<Self> {
        let header = room.first_chunk_mut::<COMMON_HEADER_BYTES>()?;
        let ([[a, b], [c, d]], [e, f, g, h]) = (ports.map(u16::to_be_bytes), tag.to_be_bytes());
        *header = [a, b, c, d, e, f, g, h, 0, 0, 0, 0];
        Some(PacketWriter { room, used: COMMON_HEADER_BYTES })
    }

    /// Appends a chunk whose value `write` writes. Returns whether it fits; otherwise the packet is
    /// as before.
    pub fn chunk(&mut self, kind: ChunkType, flags: u8, write: impl FnOnce(&mut ChunkWriter<'_>)) -> bool {
        let Some(room) = self.room.get_mut(self.used..) else { return false };
        let mut writer = ChunkWriter { room, used: 0, fits: true };
        writer.put(&[kind.0, flags, 0, 0]);
        write(&mut writer);
        let bytes = writer.used;
        writer.pad();
        let ChunkWriter { room: [_, _, l0, l1, ..], used, fits: true } = writer else { return false };
        let Ok(length) = u16::try_from(bytes) else { return false };
        [*l0, *l1] = length.to_be_bytes();
        self.used += used;
        true
    }

    /// Appends a DATA chunk. `fill` writes the payload in place, at most `payload_max` bytes of it
    /// and no more than fit, and returns its length and more flags of the chunk. Returns the place
    /// of the chunk in the packet without padding, or `None` if the payload is empty; then the
    /// packet is as before.
    pub fn data(
        &mut self,
        data: &Data<'_>,
        payload_max: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, DataFlags),
    ) -> Option<Range<usize>> {
        let start = self.used;
        let room = self.room.get_mut(start..)?;
        let whole_words = room.len() & !(ALIGNMENT - 1);
        let (header, payload) = room.get_mut(..whole_words)?.split_first_chunk_mut::<HEADER>()?;
        let (bytes, more_flags) = match payload.len().min(payload_max) {
            0 => (0, DataFlags::empty()),
            most => {
                let (bytes, flags) = fill(payload.get_mut(..most)?);
                (bytes.min(most), flags)
            }
        };
        let length = u16::try_from(HEADER + bytes).ok().filter(|_| bytes > 0)?;
        let padding = payload.get_mut(bytes..padded(bytes))?;
        padding.iter_mut().for_each(|octet| *octet = 0);
        let ([kind, flags, l0, l1, fixed @ ..], [high, low]) = (header, length.to_be_bytes());
        (*kind, *flags, *l0, *l1) = (ChunkType::DATA.0, (data.flags | more_flags).bits(), high, low);
        *fixed = data.fixed();
        self.used += padded(length.into());
        Some(start..start + usize::from(length))
    }

    /// Appends a PAD chunk that makes the packet `packet_bytes` long, if there is room.
    pub fn pad_to(&mut self, packet_bytes: usize) {
        let padding = packet_bytes.saturating_sub(self.used + CHUNK_HEADER_BYTES);
        self.chunk(ChunkType::PAD, 0, |chunk| chunk.put_zeroes(padding & !(ALIGNMENT - 1)));
    }

    /// Returns whether a chunk was appended.
    pub fn has_chunks(&self) -> bool {
        self.used > 0
    }

    /// Returns whether a chunk with a value of so many bytes fits.
    pub fn has_room(&self, value_bytes: usize) -> bool {
        self.room.len() - self.used >= padded(CHUNK_HEADER_BYTES + value_bytes)
    }

    /// Writes the checksum, and returns the length of the packet in bytes.
    pub fn finish(self) -> usize {
        // RFC 9260 appendix A: the field is zero meanwhile.
        let checksum = crc32c(self.room.get(..self.used).unwrap_or_default());
        let header = self.room.first_chunk_mut::<COMMON_HEADER_BYTES>();
        if let Some(field) = header.and_then(|header| header.last_chunk_mut()) {
            *field = checksum.to_le_bytes();
        }
        self.used
    }
}

/// A chunk under construction.
pub struct ChunkWriter<'a> {
    room: &'a mut [u8],
    used: usize,
    fits: bool,
}

impl ChunkWriter<'_> {
    /// Appends octets.
    pub fn put(&mut self, octets: &[u8]) {
        match self.room.get_mut(self.used..).and_then(|room| room.get_mut(..octets.len())) {
            Some(place) => {
                place.copy_from_slice(octets);
                self.used += octets.len();
            }
            None => self.fits = false,
        }
    }

    fn put_zeroes(&mut self, count: usize) {
        match self.room.get_mut(self.used..).and_then(|room| room.get_mut(..count)) {
            Some(place) => {
                place.fill(0);
                self.used += count;
            }
            None => self.fits = false,
        }
    }

    /// Returns whether a parameter or error cause with a value of so many bytes fits.
    pub fn has_room(&self, value_bytes: usize) -> bool {
        self.room.len().saturating_sub(padded(self.used)) >= TLV_HEADER_BYTES + padded(value_bytes)
    }

    /// Appends a parameter or an error cause whose value `write` writes. Pads what is before it, so
    /// that the last one of a chunk has no padding in the chunk's length.
    pub fn tlv(&mut self, kind: u16, write: impl FnOnce(&mut Self)) {
        self.pad();
        let start = self.used;
        self.put(&kind.to_be_bytes());
        self.put(&[0, 0]);
        write(self);
        let length = u16::try_from(self.used - start);
        match (length, self.room.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<TLV_HEADER_BYTES>)) {
            (Ok(length), Some([_, _, l0, l1])) => [*l0, *l1] = length.to_be_bytes(),
            _ => self.fits = false,
        }
    }

    fn pad(&mut self) {
        self.put([0; 3].get(..padded(self.used) - self.used).unwrap_or_default());
    }
}
