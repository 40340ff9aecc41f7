//! Packets: the common header, its checksum, and the chunks behind it.
//!
//! ```text
//!  0        4     8          12
//!  | ports  | tag | CRC-32C  | chunk, padded to 4 | chunk ...
//!
//!  | type 1 | flags 1 | length 2 | value |                     a chunk; the length has no padding
//!  | type 2 | length 2 | value |                               a parameter or an error cause
//! ```
//!
//! Takes the octets of a packet and gives views of them: nothing is copied. [`PacketWriter`] writes
//! packets in place. Source: RFC 9260 s3, s6.8 and s6.10; RFC 5061 s4.2.6.
//!
//! Any octets may be parsed. An iterator ends at the first chunk or parameter whose length is
//! impossible, and its `rest` then is not empty. A typed view is `None` for a value that is shorter
//! than its fixed part.
//!
//! Cost: one pass of CRC-32C over a packet, and four octets for each chunk.

mod chunk;
mod parameter;
#[cfg(test)]
mod tests;
mod writer;

use ironwarp_arch::{crc32c, crc32c_append};
use thiserror::Error;

pub use chunk::{
    Chunk, ChunkType, Chunks, DATA_FIXED_BYTES, DATA_HEADER_BYTES, Data, DataFlags, INIT_FIXED_BYTES, Init,
    InitFixed, RawChunk, SACK_FIXED_BYTES, Sack,
};
pub use parameter::{CauseCode, Parameter, ParameterType, Tlv, Tlvs};
pub use writer::{ChunkWriter, PacketWriter};

/// The length of the common header in bytes.
pub const COMMON_HEADER_BYTES: usize = 12;

/// The flag T of ABORT and SHUTDOWN COMPLETE: the verification tag is the receiver's, reflected.
pub const FLAG_REFLECTED: u8 = 1;

/// Chunks, parameters and error causes begin at multiples of this, in bytes.
const ALIGNMENT: usize = 4;

/// Why octets are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PacketError {
    /// Shorter than the common header.
    #[error("the packet is shorter than the common header")]
    Short,
    /// RFC 9260 s6.8: the checksum is wrong.
    #[error("the CRC-32C of the packet is wrong")]
    Checksum,
    /// RFC 9260 s3.1: a port is 0.
    #[error("a port of the packet is 0")]
    PortZero,
}

/// A packet with a correct checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketView<'a> {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// The verification tag.
    pub tag: u32,
    chunks: &'a [u8],
}

impl<'a> PacketView<'a> {
    /// Checks the checksum and parses the common header.
    pub fn parse(octets: &'a [u8]) -> Result<Self, PacketError> {
        let (header, chunks) = octets.split_first_chunk::<COMMON_HEADER_BYTES>().ok_or(PacketError::Short)?;
        let [s0, s1, d0, d1, t0, t1, t2, t3, checksum @ ..] = *header;
        if checksum_of(header, chunks) != checksum {
            return Err(PacketError::Checksum);
        }
        let (src_port, dst_port) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
        if src_port == 0 || dst_port == 0 {
            return Err(PacketError::PortZero);
        }
        Ok(PacketView { src_port, dst_port, tag: u32::from_be_bytes([t0, t1, t2, t3]), chunks })
    }

    /// Returns the chunks in order.
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks::new(self.chunks)
    }
}

/// Returns the checksum field of a packet. RFC 9260 appendix A: the CRC is sent with its least
/// significant octet first, and computed with zeroes in its place.
fn checksum_of(header: &[u8; COMMON_HEADER_BYTES], chunks: &[u8]) -> [u8; 4] {
    let [a, b, c, d, e, f, g, h, ..] = *header;
    crc32c_append(crc32c(&[a, b, c, d, e, f, g, h, 0, 0, 0, 0]), chunks).to_le_bytes()
}

/// What a receiver does with a chunk or parameter of a type that it does not recognise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IfUnrecognized {
    /// Ignore what follows it: in the packet for a chunk, in the chunk for a parameter.
    pub stops: bool,
    /// Report it to the sender.
    pub reports: bool,
}

impl IfUnrecognized {
    /// RFC 9260 s3.2 (table 2) and s3.2.1 (table 3): the two upper bits of the type decide.
    const fn of(upper_octet: u8) -> Self {
        IfUnrecognized { stops: upper_octet & 0x80 == 0, reports: upper_octet & 0x40 != 0 }
    }
}

/// Returns the length with padding.
pub(crate) const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Splits the element of `bytes` and its padding from a list. The padding of the last one may be
/// missing (RFC 9260 s3.2, note). `None` if the list is shorter than the element.
fn split_padded(list: &[u8], bytes: usize) -> Option<(&[u8], &[u8])> {
    let element = list.get(..bytes)?;
    Some((element, list.get(padded(bytes)..).unwrap_or_default()))
}
