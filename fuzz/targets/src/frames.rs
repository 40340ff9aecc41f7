//! Frames of any bytes to a node, from Ethernet to the options of TCP. A flag of each makes its
//! checksums right.

use crate::{Input, Node};
use ironwarp_testkit::repair;

/// Frames that one frame may cause, and the bursts of start-up: an amplifier is a finding.
const REPLIES_MAX: usize = 4;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let (mut input, mut node) = (Input::new(bytes), Node::new(|_| ()));
    node.collect();
    while !input.is_empty() {
        let kind = input.u8();
        let mut frame = input.bytes(1600).to_vec();
        if kind & 1 == 1 {
            repair(&mut frame);
        }
        let before = node.frames;
        node.inject(&frame);
        node.collect();
        assert!(node.frames.1 - before.1 <= REPLIES_MAX, "one frame is answered by many");
        if kind & 2 == 2 {
            node.advance(input.nanos());
            node.collect();
        }
    }
    node.finish();
}
