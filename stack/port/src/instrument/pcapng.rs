//! Writes pcapng, the capture format that Wireshark and tcpdump read.
//!
//! Source: draft-ietf-opsawg-pcapng, with three of its blocks: the section header (s4.1), an
//! interface description (s4.2) with time in nanoseconds, and the enhanced packet (s4.3) with the
//! direction in its flags. Little-endian throughout. Takes frames from the link header on; gives
//! bytes to any writer. Writing allocates nothing.

use std::io::{self, Write};

/// A section of a capture that is being written.
pub(super) struct PcapngWriter<W: Write> {
    out: W,
    interfaces: u32,
    written_bytes: u64,
}

/// One captured frame.
pub(super) struct Packet<'a> {
    pub(super) interface: u32,
    /// Nanoseconds since 1970.
    pub(super) at_ns: u64,
    /// The value of the flags option: 1 inbound, 2 outbound.
    pub(super) flags: u32,
    /// The frame, from the link header on.
    pub(super) frame: &'a [u8],
    /// Bytes of it to record.
    pub(super) snap_bytes: u32,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a section.
    pub(super) fn new(out: W) -> io::Result<Self> {
        let mut writer = PcapngWriter { out, interfaces: 0, written_bytes: 0 };
        let mut body = Vec::new();
        body.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        body.extend_from_slice(&[1, 0, 0, 0]);
        // The section's length is not known in advance.
        body.extend_from_slice(&u64::MAX.to_le_bytes());
        option(&mut body, OPTION_USER_APPLICATION, b"ironwarp");
        option(&mut body, OPTION_END, &[]);
        writer.block(BLOCK_SECTION_HEADER, &body)?;
        Ok(writer)
    }

    /// Describes an Ethernet interface and returns its number.
    pub(super) fn add_interface(&mut self, name: &str, snap_bytes: u32) -> io::Result<u32> {
        let mut body = Vec::new();
        body.extend_from_slice(&LINK_TYPE_ETHERNET.to_le_bytes());
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(&snap_bytes.to_le_bytes());
        option(&mut body, OPTION_INTERFACE_NAME, name.as_bytes());
        option(&mut body, OPTION_TIME_RESOLUTION, &[NANOSECONDS]);
        option(&mut body, OPTION_END, &[]);
        self.block(BLOCK_INTERFACE, &body)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes one frame.
    pub(super) fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let kept = packet.frame.len().min(packet.snap_bytes as usize);
        let data = packet.frame.get(..kept).unwrap_or_default();
        let padding = [0u8; 3].get(..pad_bytes(kept)).unwrap_or_default();
        let total = PACKET_OVERHEAD_BYTES + (kept + padding.len()) as u32;
        let head = [
            BLOCK_ENHANCED_PACKET,
            total,
            packet.interface,
            (packet.at_ns >> 32) as u32,
            packet.at_ns as u32,
            kept as u32,
            packet.frame.len() as u32,
        ];
        // Option code and length share a word: the flags are 4 bytes long; then the end of options.
        let tail = [OPTION_FLAGS | 4 << 16, packet.flags, 0, total];
        self.words(&head)?;
        self.out.write_all(data)?;
        self.out.write_all(padding)?;
        self.words(&tail)?;
        self.written_bytes += u64::from(total);
        Ok(())
    }

    /// Returns the bytes written so far.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Flushes buffered bytes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let total = BLOCK_FRAME_BYTES + body.len() as u32;
        self.words(&[kind, total])?;
        self.out.write_all(body)?;
        self.words(&[total])?;
        self.written_bytes += u64::from(total);
        Ok(())
    }

    fn words(&mut self, words: &[u32]) -> io::Result<()> {
        words.iter().try_for_each(|word| self.out.write_all(&word.to_le_bytes()))
    }
}

/// Appends an option: code, length, value, padding to four bytes. A value that is too long is cut.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&(value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    body.resize(body.len() + pad_bytes(value.len()), 0);
}

/// Returns the bytes up to the next multiple of four.
fn pad_bytes(len: usize) -> usize {
    len.wrapping_neg() & 3
}

const BLOCK_SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINK_TYPE_ETHERNET: u16 = 1;
const OPTION_END: u16 = 0;
const OPTION_INTERFACE_NAME: u16 = 2;
const OPTION_USER_APPLICATION: u16 = 4;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_FLAGS: u32 = 2;
/// A negative power of ten.
const NANOSECONDS: u8 = 9;
/// Type and length before the body, length again after it.
const BLOCK_FRAME_BYTES: u32 = 12;
/// Seven words before a packet's data, four after it.
const PACKET_OVERHEAD_BYTES: u32 = 44;
