//! What becomes of received frames, one situation a test.

mod arp;
mod conservation;
mod icmp;
mod icmp_error;
mod ipv4;
mod ipv6;
mod own;
mod tcp;
mod vlan;

use ironwarp_stats::Counter;

use crate::testing::{Bench, tcp_frame};

/// A fresh net drops the frame, under exactly this counter, and sends nothing.
fn assert_dropped(frame: &[u8], reason: Counter) {
    let mut bench = Bench::new();
    assert!(bench.receive(frame).is_none());
    assert_eq!(bench.counted(), [(reason, 1)]);
    assert!(bench.sent().is_empty());
}

fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = tcp_frame(b"data");
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn a_frame_shorter_than_an_ethernet_header_is_dropped() {
    assert_dropped(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8], Counter::NetDropShort);
}

#[test]
fn a_frame_for_another_station_is_dropped() {
    assert_dropped(&changed(5, &[9]), Counter::NetDropNotOurMac);
    assert_dropped(&changed(0, &[0x33, 0x33, 0, 0, 0, 1]), Counter::NetDropNotOurMac);
}

#[test]
fn a_frame_from_a_group_address_is_dropped() {
    assert_dropped(&changed(6, &[0x03]), Counter::NetDropSourceMac);
    assert_dropped(&changed(6, &[0xff; 6]), Counter::NetDropSourceMac);
}

#[test]
fn tagged_frames_and_other_protocols_are_dropped_each_under_its_name() {
    assert_dropped(&changed(12, &[0x81, 0x00]), Counter::NetDropVlan);
    assert_dropped(&changed(12, &[0x88, 0xa8]), Counter::NetDropVlan);
    assert_dropped(&changed(12, &[0x86, 0xdd]), Counter::NetDropIpVersion);
    assert_dropped(&changed(12, &[0x00, 0x2e]), Counter::NetDropEthertype);
}
