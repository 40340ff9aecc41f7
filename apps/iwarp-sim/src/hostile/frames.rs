//! Builds a hostile host's DDP segments and FPDUs, valid or invalid, without any of the stack's code.
//!
//! Sources: RFC 5044 s4, RFC 5041 s4, RFC 5040 s4.

use crate::wire::stream::{MARKER_STEP, crc32c};

/// The defect of an FPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Nothing.
    None,
    /// Its CRC.
    Crc,
    /// Its markers, with a valid CRC.
    Markers,
}

/// Operations of RFC 5040 s4.1.
pub const WRITE: u8 = 0;
pub const READ_REQUEST: u8 = 1;
pub const READ_RESPONSE: u8 = 2;
pub const SEND: u8 = 3;
pub const SEND_INVALIDATE: u8 = 4;
pub const TERMINATE: u8 = 7;

/// The sender's state of one direction of a connection.
#[derive(Debug)]
pub struct PeerSender {
    /// Whether the peer requested markers.
    pub markers: bool,
    /// Bytes sent after the start-up frame.
    sent_bytes: u64,
    /// Messages sent on queue 0 and on queue 1.
    pub sends: u32,
    pub reads: u32,
}

/// The header fields of an untagged segment.
#[derive(Clone, Copy, Debug)]
pub struct UntaggedHeader {
    pub queue: u32,
    pub msn: u32,
    pub mo: u32,
    /// The field reserved for RDMAP: a tag to invalidate.
    pub word: u32,
}

impl PeerSender {
    /// The state before the first message.
    pub fn new(markers: bool) -> Self {
        PeerSender { markers, sent_bytes: 0, sends: 0, reads: 0 }
    }

    /// The next Send.
    pub fn send(&mut self, payload: &[u8], invalidates: Option<u32>) -> Vec<u8> {
        self.sends += 1;
        let untagged_header =
            UntaggedHeader { queue: 0, msn: self.sends, mo: 0, word: invalidates.unwrap_or(0) };
        untagged(if invalidates.is_some() { SEND_INVALIDATE } else { SEND }, untagged_header, payload)
    }

    /// The next Read Request, of `bytes` bytes.
    pub fn read(&mut self, stag: u32, to: u64, bytes: u32) -> Vec<u8> {
        self.reads += 1;
        let untagged_header = UntaggedHeader { queue: 1, msn: self.reads, mo: 0, word: 0 };
        let sink = [&0x5151u32.to_be_bytes()[..], &0x1000u64.to_be_bytes()].concat();
        let source = [&stag.to_be_bytes()[..], &to.to_be_bytes()].concat();
        untagged(READ_REQUEST, untagged_header, &[&sink[..], &bytes.to_be_bytes(), &source].concat())
    }

    /// The FPDU of a ULPDU.
    pub fn fpdu(&mut self, ulpdu: &[u8], damage: Damage) -> Vec<u8> {
        let mut words = (ulpdu.len() as u16).to_be_bytes().to_vec();
        words.extend_from_slice(ulpdu);
        words.resize(words.len().next_multiple_of(4), 0);
        let (mut out, mut head) = (Vec::new(), None);
        for word in words.chunks(4) {
            self.mark(&mut out, head, damage);
            head.get_or_insert(out.len());
            out.extend_from_slice(word);
        }
        self.mark(&mut out, head, damage);
        let wrong = u32::from(damage == Damage::Crc);
        // The CRC is sent least significant byte first (RFC 5044 s4.4).
        out.extend_from_slice(&(crc32c(&out) ^ wrong).to_le_bytes());
        self.sent_bytes += out.len() as u64;
        out
    }

    fn mark(&self, out: &mut Vec<u8>, head: Option<usize>, damage: Damage) {
        if !self.markers || !(self.sent_bytes + out.len() as u64).is_multiple_of(MARKER_STEP) {
            return;
        }
        let back = head.map_or(0, |head| out.len() - head) as u16;
        let back = if damage == Damage::Markers { back ^ 4 } else { back };
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&back.to_be_bytes());
    }
}

/// A tagged segment that ends its message.
pub fn tagged(opcode: u8, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let header = [&[0xc1, 0x40 | opcode][..], &stag.to_be_bytes(), &to.to_be_bytes()].concat();
    [&header, payload].concat()
}

/// An untagged segment that ends its message.
pub fn untagged(opcode: u8, untagged_header: UntaggedHeader, payload: &[u8]) -> Vec<u8> {
    let words = [untagged_header.word, untagged_header.queue, untagged_header.msn, untagged_header.mo]
        .map(u32::to_be_bytes);
    [&[0x41, 0x40 | opcode][..], &words.concat(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5044 s4.3: a marker every 512 bytes, the first right before the first FPDU.
    #[test]
    fn markers_point_back_to_their_fpdu() {
        let mut sender = PeerSender::new(true);
        let first = sender.fpdu(&[7; 600], Damage::None);
        assert_eq!(first[..6], [0, 0, 0, 0, 0x02, 0x58]);
        assert_eq!(first[512..516], [0, 0, 0x01, 0xfc]);
        assert_eq!(first.len(), 4 + 604 + 4 + 4);
    }
}
