//! Streams in which every byte depends on its offset, so that a misplaced byte is detected.

use ironwarp_tcp::{ByteStream, UnitSource};

/// Returns the byte at an offset of a stream.
pub fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

pub fn bytes_at(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(byte_at).collect()
}

/// A source of `left` more bytes in units of at most `unit` bytes.
pub struct Pattern {
    pub next: u64,
    pub left: u64,
    pub unit: usize,
    /// The sizes of the pulled units.
    pub units: Vec<usize>,
}

impl Pattern {
    pub fn new(bytes: u64, unit: usize) -> Self {
        Pattern { next: 0, left: bytes, unit, units: Vec::new() }
    }
}

impl UnitSource for Pattern {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let len = self.unit.min(room.len()).min(self.left as usize);
        for (at, byte) in room.iter_mut().take(len).enumerate() {
            *byte = byte_at(self.next + at as u64);
        }
        self.next += len as u64;
        self.left -= len as u64;
        if len > 0 {
            self.units.push(len);
        }
        len
    }
}

/// Consumes all readable bytes, and panics if a byte does not match its offset.
pub fn read_all(stream: &mut impl ByteStream, taken: &mut u64) {
    while stream.available() > 0 {
        let front = stream.front();
        assert!(!front.is_empty(), "bytes are available, but the first piece is empty");
        for (at, &byte) in front.iter().enumerate() {
            assert_eq!(byte, byte_at(*taken + at as u64), "byte {} is wrong", *taken + at as u64);
        }
        let len = front.len();
        *taken += len as u64;
        stream.consume(len);
    }
}
