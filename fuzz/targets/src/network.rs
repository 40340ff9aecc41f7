//! Two nodes with the fuzzer as the network: it delivers, loses, repeats, delays and damages
//! frames. Whatever arrives is right: no byte of a message differs from what was sent, and no
//! message comes twice or out of turn.

use std::collections::VecDeque;

use crate::node::{PORT, advance, config};
use crate::{Input, Node};
use ironwarp::memory::{self, FarEnd, MemoryConfig};
use ironwarp::{CompletionOpcode, CompletionStatus, MacAddr, QueuePair, SendWr};
use ironwarp_port::{Burst, Frame};
use ironwarp_sim::VirtualClock;

const MESSAGES_MAX: u64 = 8;
const MESSAGE_BYTES: u32 = 48;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let (mut input, clock) = (Input::new(bytes), VirtualClock::new());
    let (mut near, mut near_wire) = node("10.0.0.1/24", 1, &clock);
    let (mut far, mut far_wire) = node("10.0.0.2/24", 2, &clock);
    let qp = near.create_qp().expect("a queue pair");
    near.ctx.connect(qp, ([10, 0, 0, 2], PORT).into(), b"").expect("room");
    let (mut to_far, mut to_near) = (VecDeque::new(), VecDeque::new());
    let mut posted = 0;
    while !input.is_empty() {
        carry(&mut input, &mut near_wire, &mut far_wire, &mut to_far);
        far.run();
        carry(&mut input, &mut far_wire, &mut near_wire, &mut to_near);
        near.run();
        let kind = input.u8();
        if kind & 1 == 1 && posted < MESSAGES_MAX && near.established.contains(&qp) {
            posted += u64::from(post(&mut near, qp, posted));
        }
        if kind & 2 == 2 {
            advance(&clock, input.nanos() / 16);
        }
    }
    // The network is without faults from here.
    for step in 0..400u64 {
        advance(&clock, 1_000_000 << (step / 20).min(12));
        deliver_all(&mut near_wire, &mut far_wire, &mut to_far);
        far.run();
        deliver_all(&mut far_wire, &mut near_wire, &mut to_near);
        near.run();
    }
    check(&near, &far);
}

fn node(address: &str, mac: u8, clock: &VirtualClock) -> (Node, FarEnd) {
    let mac = MacAddr([2, 0, 0, 0, 0, mac]);
    let memory = MemoryConfig { mac, rx_frames: 128, tx_frames: 128, ..MemoryConfig::default() };
    let (port, far) = memory::detached(&memory);
    (Node::over(config(address), port, clock.clone()), far)
}

fn content(number: u64) -> Vec<u8> {
    (0..MESSAGE_BYTES as u8).map(|at| at.wrapping_mul(7) ^ (number as u8).wrapping_mul(31)).collect()
}

fn post(near: &mut Node, qp: QueuePair, number: u64) -> bool {
    near.ctx.post_send(qp, &SendWr::send_inline(number, &content(number))).is_ok()
}

/// Takes frames from one wire and decides what becomes of each.
fn carry(input: &mut Input<'_>, from: &mut FarEnd, to: &mut FarEnd, waiting: &mut VecDeque<Vec<u8>>) {
    let mut burst = Burst::new();
    from.collect(&mut burst);
    waiting.extend(burst.drain(..).map(|frame| frame.bytes().to_vec()));
    for _ in 0..waiting.len() {
        let Some(mut frame) = waiting.pop_front() else { break };
        match input.u8() {
            0..=179 => {
                to.inject(&frame);
            }
            180..=199 => {}
            200..=214 => waiting.push_back(frame),
            215..=229 => {
                to.inject(&frame);
                to.inject(&frame);
            }
            230..=244 => {
                let at = input.below(frame.len());
                frame[at] ^= input.u8();
                to.inject(&frame);
            }
            _ => {
                frame.truncate(input.below(frame.len()));
                to.inject(&frame);
            }
        }
    }
}

fn deliver_all(from: &mut FarEnd, to: &mut FarEnd, waiting: &mut VecDeque<Vec<u8>>) {
    let mut burst = Burst::new();
    from.collect(&mut burst);
    waiting.extend(burst.drain(..).map(|frame| frame.bytes().to_vec()));
    for frame in waiting.drain(..) {
        to.inject(&frame);
    }
}

/// Sends that completed arrived; what arrived is right and in order.
fn check(near: &Node, far: &Node) {
    let good = |node: &Node, opcode| {
        let all = node.completions.iter().filter(move |done| done.opcode == opcode);
        all.filter(|done| done.status == CompletionStatus::Success).map(|done| done.wr_id).collect::<Vec<_>>()
    };
    let (sent, received) = (good(near, CompletionOpcode::Send), good(far, CompletionOpcode::Receive));
    assert!(received.len() >= sent.len(), "sent {sent:?}, received {received:?}");
    assert!(received.iter().copied().eq(0..received.len() as u64), "out of turn: {received:?}");
    for number in received {
        let mut bytes = vec![0; MESSAGE_BYTES as usize];
        far.memory.read_at(number as usize * 64, &mut bytes).expect("inside");
        assert_eq!(bytes, content(number), "message {number}");
    }
}
