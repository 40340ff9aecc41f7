//! Segments of DDP and RDMAP behind a valid CRC, with state: the fields are the expected ones or
//! near them.

use crate::{Input, Node, Peer};
use ironwarp::config::Extensions;
use ironwarp::{AtomicOp, RemoteMemory, STag, SendWr};
use ironwarp_testkit::mpa;

/// The next message of each untagged queue.
type Msns = [u32; 4];

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.u8();
    let mut node = Node::new(|config| {
        config.rdmap.extensions = if kind & 1 == 1 { Extensions::Rfc7306 } else { Extensions::Off };
    });
    let mut peer = Peer::connect(&mut node, false, 2000);
    peer.send(&mut node, &mpa::request(mpa::CRC, 1, &[]));
    let mut msns = [1; 4];
    while !input.is_empty() {
        match input.u8() % 8 {
            0..=3 => {
                let ulpdu = untagged(&mut input, &node, &mut msns);
                peer.send(&mut node, &mpa::fpdu(&ulpdu));
            }
            4 | 5 => {
                let ulpdu = tagged(&mut input, &node);
                peer.send(&mut node, &mpa::fpdu(&ulpdu));
            }
            6 => {
                request(&mut input, &mut node);
                node.run();
                peer.turn(&mut node);
            }
            _ => {
                node.advance(input.nanos());
                peer.turn(&mut node);
            }
        }
    }
    node.finish();
}

/// A tag and an offset: of the node's memory, near it, or any.
fn place(input: &mut Input<'_>, node: &Node) -> ([u8; 4], [u8; 8]) {
    let stag = if input.u8() < 230 { node.memory.stag().0 } else { input.u32() };
    let to = node.memory.base_to().wrapping_add(u64::from(input.offset()));
    (stag.to_be_bytes(), to.to_be_bytes())
}

fn control(input: &mut Input<'_>, usual: u8) -> u8 {
    if input.u8() < 240 { usual } else { input.u8() }
}

fn untagged(input: &mut Input<'_>, node: &Node, msns: &mut Msns) -> Vec<u8> {
    // Operation and its queue (RFC 5040 s4.2, RFC 7306 s4).
    let kinds = [(3u8, 0u8), (4, 0), (5, 0), (6, 0), (1, 1), (10, 1), (7, 2), (11, 3), (8, 0), (9, 0)];
    let (opcode, queue) = kinds[input.below(kinds.len())];
    let msn = msns[usize::from(queue)].wrapping_add(if input.u8() < 230 { 0 } else { input.offset() });
    let mo = if input.u8() < 230 { 0 } else { input.offset() };
    let last = if input.u8() < 220 { 0x40 } else { 0 };
    let ddp = control(input, last | 1);
    let rdmap = control(input, 0x40 | opcode);
    let (invalidated, _) = place(input, node);
    let qn = if input.u8() < 240 { u32::from(queue) } else { input.u32() };
    if last != 0 {
        msns[usize::from(queue)] = msns[usize::from(queue)].wrapping_add(1);
    }
    let payload = match opcode {
        1 => {
            let ((sink, sink_to), (source, source_to)) = (place(input, node), place(input, node));
            let bytes = if input.u8() < 200 { input.u16().into() } else { input.u32() };
            [&sink[..], &sink_to, &bytes.to_be_bytes(), &source, &source_to].concat()
        }
        10 => {
            let (stag, to) = place(input, node);
            let to = if input.flag() { (u64::from_be_bytes(to) & !7).to_be_bytes() } else { to };
            let head = [u32::from(input.u8() % 4), input.u32()].map(u32::to_be_bytes).concat();
            let operands =
                [input.u64(), input.u64(), input.u64(), input.u64()].map(u64::to_be_bytes).concat();
            [&head[..], &stag, &to, &operands].concat()
        }
        8 | 9 => input.u64().to_be_bytes().to_vec(),
        11 => [&u32::from(input.u8()).to_be_bytes()[..], &input.u64().to_be_bytes()].concat(),
        _ => input.short_bytes().to_vec(),
    };
    let cut = if input.u8() < 240 { payload.len() } else { input.below(payload.len() + 1) };
    let numbers = [qn, msn, mo].map(u32::to_be_bytes).concat();
    [&[ddp, rdmap][..], &invalidated, &numbers, &payload[..cut]].concat()
}

fn tagged(input: &mut Input<'_>, node: &Node) -> Vec<u8> {
    let opcode = if input.u8() < 128 { 0 } else { 2 };
    let last = if input.u8() < 200 { 0x40 } else { 0 };
    let (ddp, rdmap) = (control(input, 0x80 | last | 1), control(input, 0x40 | opcode));
    let (stag, to) = place(input, node);
    let data = input.bytes(1400);
    [&[ddp, rdmap][..], &stag, &to, data].concat()
}

/// A request of the node's application, whose response the peer owes.
fn request(input: &mut Input<'_>, node: &mut Node) {
    let Some(&qp) = node.established.first() else { return };
    let remote = RemoteMemory { stag: STag(1), tagged_offset: 0 };
    let (offset, len) = (input.below(2048), input.below(2048) as u32);
    let local = [node.memory.slice(offset, len).expect("inside")];
    let word = [node.memory.slice(offset & !7, 8).expect("inside")];
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    let _ = match input.u8() % 6 {
        0 => node.ctx.post_send(qp, &SendWr::send(1, &local)),
        1 => node.ctx.post_send(qp, &SendWr::read(2, &local, remote)),
        2 => node.ctx.post_send(qp, &SendWr::write(3, &local, remote)),
        3 => node.ctx.post_send(qp, &SendWr::atomic(4, &word, remote, &add)),
        4 => node.ctx.post_send(qp, &SendWr::read(5, &local, remote).fenced()),
        _ => return drop(node.ctx.disconnect(qp)),
    };
}
