//! A virtio card against a virtual switch (vhost) in another process: segments cross as one frame
//! where both ends support it.
#![cfg(feature = "dpdk")]

mod vdev_lab;

use ironwarp_port::dpdk::{DpdkPort, Eal, PoolLevels, PortSettings, SealedMbuf, Vdev};
use ironwarp_port::{Burst, Checksum, Frame, Port, Sealed, TxMeta, TxOffloads};
use ironwarp_stats::{CoreStats, Counter};
use vdev_lab::{Lab, Needs, alone, pattern, receive};

const HEADER_BYTES: usize = 54;
/// Segments that the card sends together.
const SEGMENTS: usize = 24;
const SEGMENT_BYTES: usize = 1446;

fn switch(lab: &Lab, super_segments: bool, stats: &CoreStats) -> (Eal, DpdkPort) {
    open(lab, Vdev::vhost(0, &lab.path("vhost.sock"), super_segments).expect("a device"), true, stats)
}

fn card(lab: &Lab, super_segments: bool, stats: &CoreStats) -> (Eal, DpdkPort) {
    let line = format!("net_virtio_user0,path={},queue_size=1024", lab.path("vhost.sock").display());
    open(lab, Vdev::parse(&line).expect("a device"), super_segments, stats)
}

fn open(lab: &Lab, vdev: Vdev, fast_path: bool, stats: &CoreStats) -> (Eal, DpdkPort) {
    let settings = PortSettings { fast_path, ..PortSettings::default() };
    let eal = lab.eal(&lab.config().vdev(vdev.clone()));
    let port = DpdkPort::open(&eal, vdev.name(), &settings, stats.clone());
    (eal, port.unwrap_or_else(|error| panic!("{error}")))
}

/// The payload of a flow from an offset on.
fn payload(at: usize, len: usize) -> Vec<u8> {
    pattern(3, at + len).split_off(at)
}

/// A TCP segment without options over IPv4, whose checksum the device shall fill in, if it can.
fn segment(port: &mut DpdkPort, at: usize, len: usize) -> SealedMbuf {
    let total = (40 + len) as u16;
    let mut bytes = [&[2; 12][..], &[8, 0, 0x45, 0], &total.to_be_bytes(), &[0, 0, 0x40, 0, 64, 6]].concat();
    bytes.extend([0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0, 80]);
    let ip_sum = sum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&(!ip_sum).to_be_bytes());
    bytes.extend((at as u32).to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.extend(payload(at, len));
    let pseudo = sum(&[&bytes[26..34], &[0, 6], &(total - 20).to_be_bytes()].concat());
    let offloads = port.caps().tx_offloads & TxOffloads::TCP_CHECKSUM;
    bytes[50..52].copy_from_slice(&pseudo.to_be_bytes());
    if offloads.is_empty() {
        let checksum = !sum(&bytes[34..]);
        bytes[50..52].copy_from_slice(&checksum.to_be_bytes());
    }
    let mut frame = port.alloc().expect("a frame in the pool");
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(&bytes);
    frame.seal(TxMeta { l2_bytes: 14, l3_bytes: 20, l4_bytes: 20, offloads })
}

fn sum(bytes: &[u8]) -> u16 {
    ironwarp_arch::checksum::fold(ironwarp_arch::checksum::sum(bytes))
}

fn send_all(port: &mut DpdkPort, mut burst: Burst<SealedMbuf>) {
    while !burst.is_empty() {
        port.tx_burst(&mut burst);
        std::thread::yield_now();
    }
}

fn send_flow(port: &mut DpdkPort) -> Burst<SealedMbuf> {
    let burst: Burst<_> =
        (0..SEGMENTS).map(|number| segment(port, number * SEGMENT_BYTES, SEGMENT_BYTES)).collect();
    send_all(port, burst.clone());
    burst
}

/// Receives the flow's payload, and returns the number of frames.
fn receive_flow(port: &mut DpdkPort) -> usize {
    let (mut at, mut frames) = (0, 0);
    while at < SEGMENTS * SEGMENT_BYTES {
        for frame in receive(port) {
            let bytes = frame.bytes();
            assert_eq!(usize::from(u16::from_be_bytes([bytes[16], bytes[17]])) + 14, bytes.len());
            assert_eq!(bytes[38..42], (at as u32).to_be_bytes());
            assert_eq!(sum(&bytes[14..34]), 0xffff, "IP's checksum");
            let len = bytes.len() - HEADER_BYTES;
            assert_eq!(bytes[HEADER_BYTES..], payload(at, len));
            if frame.rx().l4_checksum != Checksum::Good {
                let pseudo = [&bytes[26..34], &[0, 6], &(len as u16 + 20).to_be_bytes()].concat();
                assert_eq!(sum(&[&pseudo, &bytes[34..]].concat()), 0xffff, "TCP's checksum");
            }
            at += len;
            frames += 1;
        }
    }
    frames
}

/// Whether every buffer is in its pool, but for those that the device holds.
fn is_full(levels: PoolLevels) -> bool {
    levels.tx_available == levels.tx_frames
}

/// Both directions, from the card to the switch and back. Returns the frames that crossed as the
/// switch saw them, and the counters of the ends.
fn exchange(lab: &Lab, switch_merges: bool, card_joins: bool, expect: impl FnOnce(usize, &CoreStats)) {
    let stats = CoreStats::detached();
    if lab.role() == "first" {
        let (_eal, mut port) = switch(lab, switch_merges, &stats);
        let peer = lab.peer("card");
        let frames = receive_flow(&mut port);
        let kept = send_flow(&mut port);
        assert!(kept.iter().enumerate().all(|(number, frame)| {
            frame.bytes()[HEADER_BYTES..] == payload(number * SEGMENT_BYTES, SEGMENT_BYTES)
        }));
        expect(frames, &stats);
        let output = peer.wait_with_output().expect("the card's end");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        drop(kept);
        assert!(is_full(port.pool_levels()), "{:?}", port.pool_levels());
    } else {
        let (_eal, mut port) = card(lab, card_joins, &stats);
        let kept = send_flow(&mut port);
        assert_eq!(receive_flow(&mut port), SEGMENTS, "a switch states no such offload");
        assert!(kept.iter().enumerate().all(|(number, frame)| {
            frame.bytes()[HEADER_BYTES..] == payload(number * SEGMENT_BYTES, SEGMENT_BYTES)
        }));
        let joined = stats.read(Counter::PortTxSuperSegments);
        assert_eq!(joined, u64::from(switch_merges && card_joins), "super-segments");
        assert_eq!(stats.read(Counter::PortTxFrames), SEGMENTS as u64);
    }
}

#[test]
fn segments_of_a_burst_cross_as_one_frame_and_stay_as_they_were() {
    alone("segments_of_a_burst_cross_as_one_frame_and_stay_as_they_were", Needs::Nothing, |lab| {
        exchange(lab, true, true, |frames, stats| {
            assert_eq!((frames, stats.read(Counter::PortRxSuperSegments)), (1, 1));
        });
    });
}

#[test]
fn a_device_without_the_offload_gets_plain_frames() {
    alone("a_device_without_the_offload_gets_plain_frames", Needs::Nothing, |lab| {
        exchange(lab, false, true, |frames, stats| {
            assert_eq!((frames, stats.read(Counter::PortRxSuperSegments)), (SEGMENTS, 0));
        });
    });
}

#[test]
fn segments_that_shall_not_be_joined_leave_alone() {
    alone("segments_that_shall_not_be_joined_leave_alone", Needs::Nothing, |lab| {
        exchange(lab, true, false, |frames, _| assert_eq!(frames, SEGMENTS));
    });
}
