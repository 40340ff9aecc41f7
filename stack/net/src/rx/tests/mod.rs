//! Received frames: one situation per test.

mod arp;
mod conservation;
mod fast;
mod icmp;
mod icmp_error;
mod ipv4;
mod ipv6;
mod local_addresses;
mod tcp;
mod udp;
mod vlan;

use core::net::IpAddr;

use ironwarp_port::RxMeta;
use ironwarp_stats::Counter;
use ironwarp_types::MacAddr;

use crate::Route;
use crate::testing::{Bench, tcp_frame};

/// Asserts that a new net drops the frame, counts it under `reason` only, and sends nothing.
fn assert_dropped(frame: &[u8], reason: Counter) {
    assert_dropped_by(Bench::new(), frame, reason);
}

fn assert_dropped_by(mut bench: Bench, frame: &[u8], reason: Counter) {
    assert!(bench.receive_any(frame, RxMeta::default()).is_none());
    assert_eq!(bench.counted(), [(reason, 1)]);
    assert!(bench.sent().is_empty());
}

fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    overwrite(tcp_frame(b"data"), at, bytes)
}

fn overwrite(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

fn route(bench: &mut Bench, dst: impl Into<IpAddr>) -> Route {
    bench.net.route(bench.now, dst.into(), &mut bench.wire)
}

/// Returns the link address of the next hop to `dst`, if it is known.
fn next_hop_mac(bench: &mut Bench, dst: impl Into<IpAddr>) -> Option<MacAddr> {
    match route(bench, dst) {
        Route::Ready(path) => Some(path.remote_mac()),
        Route::Pending | Route::Unreachable => None,
    }
}

fn pass_to_next_deadline(bench: &mut Bench) {
    let due = bench.net.next_deadline().expect("something is due");
    bench.pass(due - bench.now);
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
fn tagged_frames_and_other_protocols_are_dropped_under_their_counters() {
    assert_dropped(&changed(12, &[0x81, 0x00]), Counter::NetDropVlan);
    assert_dropped(&changed(12, &[0x88, 0xa8]), Counter::NetDropVlan);
    assert_dropped(&changed(12, &[0x86, 0xdd]), Counter::NetDropIpVersion);
    assert_dropped(&changed(12, &[0x00, 0x2e]), Counter::NetDropEthertype);
}
