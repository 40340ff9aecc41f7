//! MPA start-up in both roles and revisions: the peer sends any bytes, in any pieces, among frames
//! that are right.

use crate::{Input, Node, Peer};
use ironwarp::{ConnectParams, MpaRevision};
use ironwarp_testkit::mpa;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let (mut input, mut node) = (Input::new(bytes), Node::new(|_| ()));
    let kind = input.u8();
    let responder = kind & 1 == 1;
    let peer = if responder { Some(Peer::connect(&mut node, false, 2000)) } else { called(&mut node, kind) };
    let Some(mut peer) = peer else { return node.finish() };
    while !input.is_empty() {
        match input.u8() % 6 {
            0 => {
                let bytes = input.short_bytes();
                peer.send(&mut node, bytes);
            }
            1 => {
                let mut frame =
                    startup(input.u8() < 250 && responder, input.u8(), input.u8() % 4, input.short_bytes());
                if input.u8() > 200 {
                    let at = input.below(frame.len());
                    frame[at] ^= input.u8();
                }
                peer.send(&mut node, &frame);
            }
            2 => {
                let enhanced = input.u32().to_be_bytes();
                peer.send(&mut node, &startup(responder, 0x50 | input.u8() & 0x20, 2, &enhanced));
            }
            3 => {
                // One byte in a segment.
                let bytes = startup(responder, input.u8(), 1 + input.u8() % 2, &[]);
                bytes.chunks(1).for_each(|byte| peer.send(&mut node, byte));
            }
            4 => {
                let ulpdu = input.short_bytes();
                peer.send(&mut node, &mpa::fpdu(ulpdu));
            }
            _ => {
                node.advance(input.nanos());
                peer.turn(&mut node);
            }
        }
    }
    node.finish();
}

/// A frame of the requester or of the responder.
fn startup(request: bool, flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    if request { mpa::request(flags, revision, private) } else { mpa::reply(flags, revision, private) }
}

fn called(node: &mut Node, kind: u8) -> Option<Peer> {
    Peer::connect(node, false, 1999);
    let qp = node.create_qp()?;
    let revision = [None, Some(MpaRevision::One), Some(MpaRevision::Two)][usize::from(kind >> 1) % 3];
    let params = ConnectParams { revision, ..ConnectParams::default() };
    node.ctx.connect_with(qp, ([10, 0, 0, 2], 4791).into(), &params).ok()?;
    node.run();
    Peer::accept(node)
}
