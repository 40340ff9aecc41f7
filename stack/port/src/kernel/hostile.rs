//! A device whose other end a sequence of bytes describes, for the fuzzer and for tests: headers of
//! virtio-net, true ones and any others, before frames of any length.
//!
//! A socket pair is in place of the kernel. Every frame is received as it was sent, or dropped and
//! counted.
#![forbid(unsafe_code)]

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::MacAddr;

use super::sys::{Interface, Queue};
use super::vnet::{HEADER_BYTES, Vnet};
use super::{KernelConfig, KernelDevice, KernelPort, LONG_BYTES};
use crate::{Burst, Frame, Port};

/// Frames that the stack holds at most: more than there are long buffers.
const HELD_MAX: usize = 80;
const MTU_BYTES: u16 = 1500;

/// Runs one input. Returns the frames that were received, and those that were dropped.
///
/// # Panics
/// If a frame is not received as it was sent, or is dropped and not counted once.
pub fn hostile_device(bytes: &[u8]) -> (u64, u64) {
    let (mut port, other, stats) = device().unwrap_or_else(|error| panic!("a socket pair: {error}"));
    let (mut held, mut received, mut dropped) = (Vec::new(), 0, 0);
    for step in bytes.chunks(STEP_BYTES) {
        let step: [u8; STEP_BYTES] = core::array::from_fn(|at| step.get(at).copied().unwrap_or_default());
        let (header, frame) = message(&step);
        if let Err(error) = other.send(&[&header[..], &frame].concat()) {
            panic!("a datagram of {} bytes: {error}", frame.len());
        }
        let mut burst = Burst::new();
        port.rx_burst(&mut burst);
        let counters = [Counter::PortRxBadOffload, Counter::PortRxTooLong, Counter::PortRxNoBuffer];
        let counted = counters.map(|counter| stats.read(counter)).iter().sum::<u64>();
        assert_eq!(burst.len() as u64 + counted - dropped, 1, "each frame counts once");
        dropped = counted;
        received += burst.len() as u64;
        assert!(burst.iter().all(|got| got.bytes() == frame), "a frame has other bytes");
        held.extend(burst);
        if held.len() > HELD_MAX || step.first().is_some_and(|kind| kind & RELEASE != 0) {
            held.clear();
        }
    }
    (received, dropped)
}

/// The kind of header, six bytes of its fields, two of the frame's length.
const STEP_BYTES: usize = 9;
/// The stack releases the frames that it holds.
const RELEASE: u8 = 0x80;

/// Returns a header and a frame.
fn message(&[kind, a, b, c, d, e, f, low, high]: &[u8; STEP_BYTES]) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let word = |low, high| u16::from_le_bytes([low, high]);
    let super_segment =
        Vnet { flags: 1, gso_type: 1, hdr_len: 54, gso_size: word(a, b), csum_start: 34, csum_offset: 16 };
    let vnet = match kind & 3 {
        0 => Vnet::default(),
        1 => super_segment,
        2 => Vnet { hdr_len: word(c, d), csum_start: word(e, f), ..super_segment },
        _ => Vnet { flags: a, gso_type: b, gso_size: word(c, d), csum_offset: word(e, f), ..super_segment },
    };
    let frame_bytes = usize::from(word(low, high)).min(LONG_BYTES);
    let frame = (0..frame_bytes).map(|at| (at as u8).wrapping_mul(7) ^ (at >> 8) as u8 ^ low).collect();
    (vnet.encode(), frame)
}

fn device() -> std::io::Result<(KernelPort, UnixDatagram, CoreStats)> {
    let (ours, other) = UnixDatagram::pair()?;
    ours.set_nonblocking(true)?;
    let config = KernelConfig {
        device: KernelDevice::Tap,
        interface: "hostile0".into(),
        mtu_bytes: MTU_BYTES,
        rx_frames: 64,
        tx_frames: 1,
        joins_segments: false,
    };
    let interface = Arc::new(Interface::new(&config.interface)?);
    let stats = CoreStats::detached();
    let port = KernelPort::over(&config, interface, MacAddr([2; 6]), Queue::Tap(ours.into()), stats.clone());
    Ok((port, other, stats))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_headers_are_received_and_others_dropped() {
        let frame = |kind, segment: u16, bytes: u16| {
            let ([a, b], [low, high]) = (segment.to_le_bytes(), bytes.to_le_bytes());
            hostile_device(&[kind, a, b, 0, 0, 0, 0, low, high])
        };
        assert_eq!(frame(0, 0, 1514), (1, 0));
        assert_eq!(frame(0, 0, 1519), (0, 1), "longer than the link's");
        assert_eq!(frame(1, 1448, 65_535), (1, 0));
        assert_eq!(frame(1, 1501, 65_535), (0, 1), "a segment longer than the link's");
        assert_eq!(frame(1, 0, 3000), (0, 1), "a segment of nothing");
        assert_eq!(frame(1, 1448, 53), (0, 1), "shorter than its headers");
        // One long buffer is taken in advance.
        let held = hostile_device(&[1, 100, 0, 0, 0, 0, 0, 0, 64].repeat(70));
        assert_eq!(held, (64, 6), "without a free buffer");
    }

    proptest::proptest! {
        #[test]
        fn any_headers_are_survived(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            hostile_device(&bytes);
        }
    }
}
