//! Frames through a port with an IPsec boundary.

use std::net::IpAddr;
use std::sync::Arc;

use ironwarp_ipsec::{Action, Mode, OVERHEAD_BYTES_MAX, SecurePort};
use ironwarp_port::memory::{self, MemoryConfig, MemoryPort};
use ironwarp_port::{Burst, Frame, Port, Sealed, TxMeta, TxOffloads};

use crate::common::*;

type Secure = SecurePort<MemoryPort>;

/// Two protected ports, back to back, and what each counted.
fn ports(form: Form) -> (Secure, Secure) {
    let (left, right) = pair(form);
    let config = MemoryConfig::default().offloading();
    let (left_port, right_port) = memory::pair(&config, &config);
    let secure = |port, end: End| SecurePort::new(port, end.ipsec, Arc::new(|| NOW));
    (secure(left_port, left), secure(right_port, right))
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &ethertype, packet].concat()
}

fn send<P: Port>(port: &mut P, frames: &[Vec<u8>]) -> Burst<<P::Frame as Frame>::Sealed> {
    let mut burst = Burst::new();
    for bytes in frames {
        let mut frame = port.alloc().expect("the pool has a frame");
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(bytes);
        burst.push(frame.seal(TxMeta::default()));
    }
    port.tx_burst(&mut burst);
    burst
}

fn receive<P: Port>(port: &mut P) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    port.rx_burst(&mut burst);
    burst.iter().map(|frame| frame.bytes().to_vec()).collect()
}

#[test]
fn frames_cross_a_protected_link_as_they_were_sent() {
    for form in Form::all() {
        let (mut left, mut right) = ports(form);
        let sent: Vec<_> = (0..3).map(|bytes| frame(&segment(form.ends, bytes * 500))).collect();
        assert!(send(&mut left, &sent).is_empty());
        assert_eq!(receive(&mut right), sent, "{form:?}");
    }
}

#[test]
fn the_link_carries_esp_and_other_protocols_than_ip_pass() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, mut right) = ports(form);
    let sent = frame(&segment(form.ends, 100));
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    drop(send(&mut left, &[sent.clone(), arp.clone()]));
    let seen = receive(right.port_mut());
    assert_eq!((seen.len(), seen[0][23], &seen[1]), (2, 50, &arp));
    assert_eq!(seen[0][..14], sent[..14]);
    // The same text in clear is not delivered.
    drop(send(left.port_mut(), &[sent, arp.clone()]));
    assert_eq!(receive(&mut right), [arp]);
}

#[test]
fn a_frame_of_a_vlan_keeps_its_tag() {
    let form = Form::new(GCM, Mode::Tunnel);
    let (mut left, mut right) = ports(form);
    let plain = frame(&segment(form.ends, 10));
    let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    drop(send(&mut left, std::slice::from_ref(&tagged)));
    assert_eq!(receive(&mut right), [tagged]);
}

#[test]
fn a_flow_in_clear_passes_unchanged_and_a_discarded_one_not() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, mut right) = ports(form);
    let other: IpAddr = "10.0.0.9".parse().unwrap();
    let selector = ironwarp_ipsec::Selector::between(
        ironwarp_ipsec::Prefix::host(other),
        ironwarp_ipsec::Prefix::host(RIGHT),
    );
    let bypass = ironwarp_ipsec::Policy { selector, action: Action::Bypass };
    left.ipsec_mut().add_policy(0, bypass).unwrap();
    let clear = frame(&segment((other, RIGHT), 10));
    let discarded = frame(&segment((LEFT, other), 10));
    drop(send(&mut left, &[clear.clone(), discarded]));
    assert_eq!(receive(right.port_mut()), [clear]);
}

/// A frame that waits for the device keeps its sequence number: it is sealed once, and sent once.
#[test]
fn frames_that_the_device_did_not_take_leave_once_and_in_order() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, mut right) = ports(form);
    let sent: Vec<_> = (0..20).map(|bytes| frame(&segment(form.ends, bytes))).collect();
    left.port_mut().control().limit_tx_burst(3);
    let mut burst = send(&mut left, &sent);
    let mut received = receive(&mut right);
    for _ in 0..10 {
        left.tx_burst(&mut burst);
        received.extend(receive(&mut right));
    }
    assert_eq!(received, sent);
}

/// A retransmission is another packet with another number; the retained frame is not changed.
#[test]
fn a_retained_frame_can_be_sent_again() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, mut right) = ports(form);
    let bytes = frame(&segment(form.ends, 40));
    let mut first = left.alloc().expect("the pool has a frame");
    first.resize(bytes.len());
    first.bytes_mut().copy_from_slice(&bytes);
    let sealed = first.seal(TxMeta::default());
    for _ in 0..2 {
        left.tx_burst(&mut Burst::from_iter([sealed.clone()]));
        assert_eq!(sealed.bytes(), bytes);
        assert_eq!(receive(&mut right), std::slice::from_ref(&bytes));
    }
}

#[test]
fn without_a_second_frame_a_packet_is_dropped_and_uses_no_number() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, mut right) = ports(form);
    let sent = frame(&segment(form.ends, 40));
    let control = left.port_mut().control();
    let mut burst = send(&mut left, &[]);
    let mut first = left.alloc().expect("the pool has a frame");
    first.resize(sent.len());
    first.bytes_mut().copy_from_slice(&sent);
    burst.push(first.seal(TxMeta::default()));
    control.allow_allocations(0);
    left.tx_burst(&mut burst);
    assert!(burst.is_empty() && receive(&mut right).is_empty());
    control.allow_allocations(u64::MAX);
    drop(send(&mut left, &[sent]));
    let seen = receive(right.port_mut());
    assert_eq!(seen[0][38..42], [0, 0, 0, 1], "the first number");
}

/// No packet that the stack makes is too long once protected, and no device is asked for a sum.
#[test]
fn the_port_reports_the_room_that_is_left_and_no_offloads() {
    for form in Form::all() {
        let (mut left, mut right) = ports(form);
        assert_eq!(left.caps().mtu_bytes, 1500 - OVERHEAD_BYTES_MAX);
        assert_eq!((left.tx_offloads(), left.caps().tx_offloads), (TxOffloads::empty(), TxOffloads::empty()));
        let headers = if form.ends.0.is_ipv4() { 40 } else { 60 };
        let sent = frame(&segment(form.ends, usize::from(left.caps().mtu_bytes) - headers));
        drop(send(&mut left, std::slice::from_ref(&sent)));
        assert_eq!(receive(&mut right), [sent], "{form:?}");
    }
}
