//! Associations whose packets are encapsulated in UDP: RFC 6951 s5.1 to s5.6.

use ironwarp_llp::{ConnId, Events};
use ironwarp_sctp::{MessageHeader, SctpConfig, State};
use ironwarp_types::Nanos;

use crate::common::{FROM, Node, PORT, addr};

const UDP_AT: usize = 34;
const LOCAL: u16 = 9_899;

/// A host that opens associations to the port 9899 of the other.
fn opener() -> SctpConfig {
    SctpConfig { udp_local_port: LOCAL, udp_encapsulation_port: LOCAL, ..SctpConfig::default() }
}

/// A host that answers as it is asked.
fn listener() -> SctpConfig {
    SctpConfig { udp_local_port: LOCAL, ..SctpConfig::default() }
}

/// Source and destination port of an encapsulated packet; `None`: it is not encapsulated.
fn udp_ports(frame: &[u8]) -> Option<[u16; 2]> {
    let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    assert!([17, 132].contains(&frame[23]) && usize::from(half(16)) == frame.len() - 14);
    (frame[23] == 17).then(|| {
        assert_eq!(usize::from(half(UDP_AT + 4)), frame.len() - UDP_AT);
        [half(UDP_AT), half(UDP_AT + 2)]
    })
}

/// Passes frames in both directions until none is sent, and returns the UDP ports of each. A
/// translator gives the first node another port.
fn pass(a: &mut Node, b: &mut Node, translated: u16) -> Vec<Option<[u16; 2]>> {
    let mut ports = Vec::new();
    loop {
        let (from_a, from_b) = (a.frames(), b.frames());
        if from_a.is_empty() && from_b.is_empty() {
            return ports;
        }
        ports.extend(from_a.iter().chain(&from_b).map(|frame| udp_ports(frame)));
        for mut frame in from_a {
            translate(&mut frame, UDP_AT, translated);
            b.receive(&frame);
        }
        for mut frame in from_b {
            translate(&mut frame, UDP_AT + 2, LOCAL);
            a.receive(&frame);
        }
    }
}

/// Changes a port of a frame's datagram, if it has one, and leaves its checksum out.
fn translate(frame: &mut [u8], at: usize, port: u16) {
    if frame[23] != 17 {
        return;
    }
    frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
    frame[UDP_AT + 6..UDP_AT + 8].fill(0);
}

fn pair(translated: u16) -> (Node, ConnId, Node, ConnId) {
    let (mut a, mut b) = (Node::new(1, opener()), Node::new(2, listener()));
    b.listen();
    let at_a = a.connect(2);
    let ports = pass(&mut a, &mut b, translated);
    assert!(ports.len() >= 4 && ports.iter().all(Option::is_some), "{ports:?}");
    let [(at_b, Events::ESTABLISHED)] = b.take_events()[..] else { panic!("no association") };
    assert_eq!(a.take_events(), [(at_a, Events::ESTABLISHED)]);
    (a, at_a, b, at_b)
}

fn send(node: &mut Node, id: ConnId, message: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(node.transmit(id, MessageHeader::default(), &[message]).0, 1);
    node.frames()
}

/// RFC6951-5.1-01, 5.3-01, 5.3-02, 5.4-01: the port of each side is kept for its address, as a
/// translator shows it, and follows a later packet from another port.
#[test]
fn packets_go_to_the_port_that_the_peer_sends_from() {
    let (mut a, at_a, mut b, at_b) = pair(20_000);
    assert_eq!(udp_ports(&send(&mut b, at_b, b"to the translator")[0]), Some([LOCAL, 20_000]));
    let mut frame = send(&mut a, at_a, b"from another port")[0].clone();
    translate(&mut frame, UDP_AT, 30_000);
    b.receive(&frame);
    assert_eq!(udp_ports(&send(&mut b, at_b, b"there")[0]), Some([LOCAL, 30_000]));
}

/// RFC6951-5.4-01 and s8: only a packet with the verification tag changes the port.
#[test]
fn a_packet_with_a_wrong_tag_does_not_change_the_port() {
    let (mut a, at_a, mut b, at_b) = pair(20_000);
    let mut frame = send(&mut a, at_a, b"forged")[0].clone();
    translate(&mut frame, UDP_AT, 30_000);
    frame[UDP_AT + 8 + 4] ^= 1;
    let sctp = UDP_AT + 8;
    frame[sctp + 8..sctp + 12].fill(0);
    let sum = ironwarp_arch::crc32c(&frame[sctp..]).to_le_bytes();
    frame[sctp + 8..sctp + 12].copy_from_slice(&sum);
    b.receive(&frame);
    assert_eq!(b.read(ironwarp_stats::Counter::SctpDropTag), 1);
    assert_eq!(udp_ports(&send(&mut b, at_b, b"where it was")[0]), Some([LOCAL, 20_000]));
}

/// RFC6951-5.4-02, 5.6-01, 5.6-02: a packet that is not encapsulated ends the encapsulation towards
/// its address, and with it the room that UDP's header takes.
#[test]
fn a_plain_packet_ends_the_encapsulation() {
    let (mut a, at_a, mut b, at_b) = pair(LOCAL);
    let longest = |node: &mut Node, id| {
        let message = vec![7; 1_472];
        let mut bytes = 1_472;
        while node.transmit(id, MessageHeader::default(), &[&message[..bytes]]).0 == 0 {
            bytes -= 4;
        }
        (bytes, node.frames())
    };
    let (encapsulated, frames) = longest(&mut b, at_b);
    assert_eq!(frames[0].len(), 14 + 1_500, "the whole MTU");
    // As if the translator were gone.
    let frame = send(&mut a, at_a, b"plain")[0].clone();
    let mut plain = [&frame[..UDP_AT], &frame[UDP_AT + 8..]].concat();
    let bytes = (plain.len() - 14) as u16;
    plain[16..18].copy_from_slice(&bytes.to_be_bytes());
    plain[23] = 132;
    plain[24..26].fill(0);
    let sum = ironwarp_arch::checksum::fold(ironwarp_arch::checksum::sum(&plain[14..34]));
    plain[24..26].copy_from_slice(&(!sum).to_be_bytes());
    b.receive(&plain);
    // Its SACK may wait for an iteration.
    b.pass(Nanos::from_millis(2));
    let sack = [b.frames(), b.frames()].concat();
    assert_eq!(udp_ports(&sack[0]), None);
    let (bare, frames) = longest(&mut b, at_b);
    assert_eq!((udp_ports(&frames[0]), bare), (None, encapsulated + 8));
    assert_eq!(frames[0].len(), 14 + 1_500, "the whole MTU");
    assert_eq!((a.state(at_a), b.state(at_b)), (State::Established, State::Established));
}

/// An opener that is not configured so sends plain packets, and a host that does not listen on the
/// UDP port ignores others.
#[test]
fn encapsulation_is_off_unless_configured() {
    let (mut a, mut b) = (Node::new(1, SctpConfig::default()), Node::new(2, listener()));
    b.listen();
    a.connect_from(FROM, addr(2, PORT), 2);
    let ports = pass(&mut a, &mut b, 0);
    assert!(ports.len() >= 4 && ports.iter().all(Option::is_none), "{ports:?}");
    let (mut a, mut b) = (Node::new(1, opener()), Node::listening(2));
    a.connect(2);
    assert_eq!(pass(&mut a, &mut b, LOCAL), [Some([LOCAL, LOCAL])]);
}
