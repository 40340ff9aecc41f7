//! FPDUs with and without markers: any bytes to the readers, and whatever was written is read again.
#![no_main]

use ironwarp_fuzz::{Input, Node, Peer, packet};
use libfuzzer_sys::fuzz_target;

/// MPA's flags of a request: markers, CRC.
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let kind = input.u8();
    let markers = kind & 1 == 1;
    let mut node = Node::new(|config| {
        config.mpa.markers = markers;
        config.ddp.place_out_of_order = markers && kind & 2 == 2;
    });
    let mut peer = Peer::connect(&mut node, false, 2000);
    let flags = CRC | if kind & 4 == 4 { MARKERS } else { 0 };
    peer.send(&mut node, &packet::startup(true, flags, 1, &[]));
    // The position in the stream of FPDUs, for the markers that the node asked for.
    let mut stream = Stream { markers, position: 0, fpdu_at: 0 };
    while !input.is_empty() {
        match input.u8() % 5 {
            0 => {
                let ulpdu = input.bytes(1400);
                let bytes = stream.frame(ulpdu, &mut input);
                peer.send(&mut node, &bytes);
            }
            1 => {
                let bytes = input.short_bytes();
                stream.position += bytes.len();
                peer.send(&mut node, bytes);
            }
            2 => {
                // Out of order: the second half first.
                let ulpdu = input.bytes(1400);
                let bytes = stream.frame(ulpdu, &mut input);
                let (first, second) = bytes.split_at(input.below(bytes.len()));
                let mut ahead = peer.segment();
                ahead.flags = packet::ACK;
                ahead.seq = ahead.seq.wrapping_add(first.len() as u32);
                ahead.payload = second.to_vec();
                node.inject(&ahead.frame(false));
                peer.send(&mut node, first);
                peer.seq = peer.seq.wrapping_add(second.len() as u32);
            }
            3 => {
                // A Write of one segment to the node's memory, or beside it.
                let to = node.memory.base_to().wrapping_add(u64::from(input.u16()));
                let stag = node.memory.stag().0.to_be_bytes();
                let data = input.short_bytes();
                let ulpdu = [&[0xc1, 0x40][..], &stag, &to.to_be_bytes(), data].concat();
                let bytes = stream.frame(&ulpdu, &mut input);
                peer.send(&mut node, &bytes);
            }
            _ => node.advance(input.nanos()),
        }
    }
    node.finish();
});

struct Stream {
    markers: bool,
    /// Octets of the stream so far.
    position: usize,
    /// Where the current FPDU began.
    fpdu_at: usize,
}

impl Stream {
    /// RFC 5044 s4: an FPDU with a marker every 512 octets, if the node asked for markers, and a fault now and then.
    fn frame(&mut self, ulpdu: &[u8], input: &mut Input<'_>) -> Vec<u8> {
        let mut bytes = if self.markers { self.marked(ulpdu) } else { packet::fpdu(ulpdu) };
        if input.u8() > 240 {
            let at = input.below(bytes.len());
            bytes[at] ^= input.u8();
        }
        self.position += bytes.len();
        bytes
    }

    /// With markers, whose distance back to the FPDU's length field is a multiple of four; the CRC covers them.
    fn marked(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut plain = [&(ulpdu.len() as u16).to_be_bytes()[..], ulpdu].concat();
        plain.resize(plain.len().next_multiple_of(4), 0);
        self.fpdu_at = self.position;
        let mut out = Vec::new();
        let put = |out: &mut Vec<u8>, word: &[u8]| {
            let at = self.position + out.len();
            if at.is_multiple_of(512) {
                // The marker precedes the length field at the front of an FPDU, and then points to itself.
                let back = if out.is_empty() { 0 } else { (at - self.fpdu_at) as u16 };
                out.extend([&[0, 0][..], &back.to_be_bytes()].concat());
            }
            out.extend(word);
        };
        plain.chunks(4).for_each(|word| put(&mut out, word));
        let at = self.position + out.len();
        if at.is_multiple_of(512) {
            out.extend([&[0, 0][..], &((at - self.fpdu_at) as u16).to_be_bytes()].concat());
        }
        let crc = packet::crc(&out);
        out.extend(crc);
        out
    }
}
