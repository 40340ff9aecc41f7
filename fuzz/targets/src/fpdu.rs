//! FPDUs with and without markers: any bytes to the readers, and whatever was written is read
//! again.

use crate::{Input, Node, Peer};
use ironwarp_testkit::mpa::{self, CRC, Damage, Framer, MARKERS};
use ironwarp_testkit::rdmap::{WRITE, tagged};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.u8();
    let markers = kind & 1 == 1;
    let mut node = Node::new(|config| {
        config.mpa.markers = markers;
        config.ddp.place_out_of_order = markers && kind & 2 == 2;
    });
    let mut peer = Peer::connect(&mut node, false, 2000);
    let flags = CRC | if kind & 4 == 4 { MARKERS } else { 0 };
    peer.send(&mut node, &mpa::request(flags, 1, &[]));
    let mut framer = Framer::new(markers);
    while !input.is_empty() {
        match input.u8() % 5 {
            0 => {
                let ulpdu = input.bytes(1400);
                let bytes = fpdu(&mut framer, ulpdu, &mut input);
                peer.send(&mut node, &bytes);
            }
            1 => {
                let bytes = input.short_bytes();
                framer.position += bytes.len();
                peer.send(&mut node, bytes);
            }
            2 => {
                // Out of order: the second half first.
                let ulpdu = input.bytes(1400);
                let bytes = fpdu(&mut framer, ulpdu, &mut input);
                let (first, second) = bytes.split_at(input.below(bytes.len()));
                let mut frames = Vec::new();
                peer.0.send(first, &mut frames);
                peer.0.send(second, &mut frames);
                frames.iter().rev().for_each(|frame| node.inject(frame));
                peer.turn(&mut node);
            }
            3 => {
                // A Write of one segment to the node's memory, or beside it.
                let to = node.memory.base_to().wrapping_add(u64::from(input.u16()));
                let ulpdu = tagged(WRITE, node.memory.stag().0, to, input.short_bytes());
                let bytes = fpdu(&mut framer, &ulpdu, &mut input);
                peer.send(&mut node, &bytes);
            }
            _ => node.advance(input.nanos()),
        }
    }
    node.finish();
}

/// An FPDU, with markers if the node asked for them, and a fault now and then.
fn fpdu(framer: &mut Framer, ulpdu: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = framer.fpdu(ulpdu, Damage::None);
    if input.u8() > 240 {
        let at = input.below(bytes.len());
        bytes[at] ^= input.u8();
    }
    bytes
}
