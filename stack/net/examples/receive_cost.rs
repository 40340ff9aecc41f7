//! Counts the instructions to receive a TCP segment, with callgrind.
//!
//! ```text
//! cargo build --release -p ironwarp-net --example receive_cost
//! valgrind --tool=callgrind --toggle-collect='*receive_one*' target/release/examples/receive_cost
//! ```
//! The printed number of instructions, divided by [`FRAMES`], is the cost of one frame without the
//! allocation of its buffer.

use std::hint::black_box;
use std::net::Ipv4Addr;

use ironwarp_net::{Net, NetConfig, Received};
use ironwarp_port::memory::{self, MemoryConfig, MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Checksum, Port, RxMeta, Wire};
use ironwarp_stats::CoreStats;
use ironwarp_types::{MacAddr, Nanos};

/// The number of received frames.
const FRAMES: usize = 100_000;

/// A segment of one byte from 10.0.0.2:50000 to 10.0.0.1:4420. The device reports its checksums as
/// correct.
fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 41, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    frame.extend([0xc3, 0x50, 0x11, 0x44, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x10, 0, 0, 0, 0, 0, b'x']);
    frame
}

#[inline(never)]
fn receive_one(net: &mut Net, wire: &mut Wire<MemoryPort>, frame: MemoryFrame) -> Option<MemoryFrame> {
    match net.on_frame(Nanos::from_secs(1), frame, wire) {
        Some(Received::Packet(segment)) => {
            black_box(segment.hash);
            Some(segment.frame)
        }
        _ => None,
    }
}

fn main() {
    let (port, mut peer) = memory::detached(&MemoryConfig::default());
    let cfg = NetConfig::new(MacAddr([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 0, 1), 24, 1500, [1, 2]);
    let mut net = Net::new(cfg, port.caps(), CoreStats::detached());
    let mut wire = Wire::new(port);
    let rx = RxMeta { ip_checksum: Checksum::Good, l4_checksum: Checksum::Good, ..RxMeta::default() };
    assert!(peer.inject_with(&frame(), rx), "the frame fits");
    let mut burst = Burst::new();
    wire.rx_burst(&mut burst);
    let mut frame = burst.pop();
    for _ in 0..FRAMES {
        frame = frame.and_then(|frame| receive_one(&mut net, &mut wire, frame));
    }
    assert!(frame.is_some(), "the frame is a segment");
    println!("{FRAMES} frames received");
}
