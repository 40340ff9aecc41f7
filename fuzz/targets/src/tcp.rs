//! A live node as a sequence of segments near the expected sequence numbers, frames of any kind,
//! calls of its application, faults of its port and steps of its clock.

use crate::{Input, Node, Peer};
use ironwarp::{RemoteMemory, SendWr};
use ironwarp_testkit::{ACK, Segment, mpa, repair};

const CONNECTIONS_MAX: usize = 4;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let (mut input, mut node) = (Input::new(bytes), Node::new(|_| ()));
    let mut peers = vec![Peer::connect(&mut node, false, 2000)];
    while !input.is_empty() {
        let kind = input.u8();
        let at = usize::from(kind >> 4) % peers.len();
        match kind & 15 {
            0..=3 => {
                let segment = near(&mut input, &peers[at]);
                peers[at].inject(&mut node, &segment);
            }
            4 => {
                let segment =
                    Segment { flags: ACK, options: sack(&mut input, &peers[at]), ..peers[at].segment() };
                peers[at].inject(&mut node, &segment);
            }
            5 => {
                let bytes = input.short_bytes();
                peers[at].send(&mut node, bytes);
            }
            6 => {
                let ulpdu = input.short_bytes();
                peers[at].send(&mut node, &mpa::fpdu(ulpdu));
            }
            7 => {
                let request = mpa::request(input.u8(), 1 + input.u8() % 2, &[]);
                peers[at].send(&mut node, &request);
            }
            8 => {
                let local = 2000 + peers.len() as u16;
                let peer = Peer::connect(&mut node, input.flag(), local);
                peers.push(peer);
                if peers.len() > CONNECTIONS_MAX {
                    peers.remove(0);
                }
            }
            9 => peers[at].0.acknowledges = input.flag(),
            10 => apply(&mut input, &mut node),
            11 => node.control.allow_allocations(if input.flag() { u64::MAX } else { input.u8().into() }),
            12 => node.control.set_link(input.u8() % 4 > 0),
            13 => {
                let mut frame = input.bytes(1600).to_vec();
                repair(&mut frame);
                node.inject(&frame);
            }
            14 => peers[at].turn(&mut node),
            _ => node.advance(input.nanos()),
        }
        node.run();
    }
    node.finish();
}

/// A segment whose numbers are near the expected ones.
fn near(input: &mut Input<'_>, peer: &Peer) -> Segment {
    let mut segment = peer.segment();
    segment.flags = input.u8();
    segment.seq = segment.seq.wrapping_add(input.offset());
    segment.ack = segment.ack.wrapping_add(input.offset());
    segment.window = input.u16();
    let shape = input.u8();
    if shape & 1 == 1 {
        segment.options = input.short_bytes().to_vec();
    }
    if shape & 2 == 2 {
        segment.payload = input.short_bytes().to_vec();
    }
    if shape & 4 == 4 {
        // Time stamps.
        segment.options =
            [&[1, 1, 8, 10][..], &input.u32().to_be_bytes(), &input.u32().to_be_bytes()].concat();
    }
    segment
}

/// Up to four SACK blocks near what the node sent.
fn sack(input: &mut Input<'_>, peer: &Peer) -> Vec<u8> {
    let blocks = 1 + input.u8() % 4;
    let mut options = vec![1, 1, 5, 2 + 8 * blocks];
    for _ in 0..2 * blocks {
        options.extend(peer.0.rcv_nxt.wrapping_add(input.offset()).to_be_bytes());
    }
    options
}

/// A call of the node's application.
fn apply(input: &mut Input<'_>, node: &mut Node) {
    let kind = input.u8();
    if kind.is_multiple_of(8) {
        if let Some(qp) = node.create_qp() {
            let _ = node.ctx.connect(qp, ([10, 0, 0, 2], 4791).into(), b"");
        }
        return;
    }
    let Some(&qp) = node.qps.get(usize::from(kind >> 4) % node.qps.len().max(1)) else { return };
    let remote = RemoteMemory { stag: ironwarp::STag(input.u32()), tagged_offset: input.u64() };
    let (offset, len) = (input.below(2048), input.below(2048) as u32);
    let local = [node.memory.slice(offset, len).expect("inside")];
    let _ = match kind % 8 {
        1 | 2 => node.ctx.post_send(qp, &SendWr::send(1, &local)).is_ok(),
        3 => node.ctx.post_send(qp, &SendWr::write(2, &local, remote)).is_ok(),
        4 => node.ctx.post_send(qp, &SendWr::read(3, &local, remote)).is_ok(),
        5 => node.ctx.disconnect(qp).is_ok(),
        6 => node.ctx.abort(qp).is_ok(),
        _ => node.ctx.post_send(qp, &SendWr::send_inline(4, b"inline")).is_ok(),
    };
}
