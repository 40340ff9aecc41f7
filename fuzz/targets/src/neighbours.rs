//! ARP, neighbour discovery and ICMP with fields of any value, beside a connection that they may
//! quote.

use crate::peer::route;
use crate::{Input, Node, Peer};
use ironwarp_testkit::{ICMP, ICMP6, Segment, repair};

const NODE_V4: [u8; 4] = [10, 0, 0, 1];
const PEER_V4: [u8; 4] = [10, 0, 0, 2];
const NODE_V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const PEER_V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let (mut input, mut node) = (Input::new(bytes), Node::new(|_| ()));
    let v6 = input.flag();
    let mut peer = Peer::connect(&mut node, v6, 2000);
    while !input.is_empty() {
        match input.u8() % 5 {
            0 => {
                let frame = arp(&mut input);
                node.inject(&frame);
            }
            1 => {
                let frame = discovery(&mut input);
                node.inject(&frame);
            }
            2 => {
                let frame = error(&mut input, &peer, v6);
                node.inject(&frame);
            }
            3 => {
                let mut echo = vec![if v6 { 128 } else { 8 }, input.u8(), 0, 0];
                echo.extend(input.short_bytes());
                node.inject(&route(v6).packet(if v6 { ICMP6 } else { ICMP }, &echo));
            }
            _ => node.advance(input.nanos()),
        }
        peer.turn(&mut node);
    }
    node.finish();
}

/// An address of the link, the node's more often than others.
fn v4(input: &mut Input<'_>) -> [u8; 4] {
    match input.u8() {
        0..=99 => NODE_V4,
        100..=199 => PEER_V4,
        200..=249 => [10, 0, 0, input.u8()],
        _ => input.u32().to_be_bytes(),
    }
}

fn v6(input: &mut Input<'_>) -> [u8; 16] {
    let mut address = match input.u8() {
        0..=99 => NODE_V6,
        100..=199 => PEER_V6,
        200..=219 => [0; 16],
        _ => {
            [[0xfe, 0x80, 0, 0, 0, 0, 0, 0], input.u64().to_be_bytes()].concat().try_into().unwrap_or(NODE_V6)
        }
    };
    if input.u8() > 200 {
        address[15] = input.u8();
    }
    address
}

fn mac(input: &mut Input<'_>) -> [u8; 6] {
    let mut mac = route(false).macs[0];
    if input.u8() > 128 {
        mac[usize::from(input.u8()) % 6] = input.u8();
    }
    mac
}

fn arp(input: &mut Input<'_>) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, input.u8() % 3];
    packet.extend(mac(input));
    packet.extend(v4(input));
    packet.extend(mac(input));
    packet.extend(v4(input));
    if input.u8() > 200 {
        let at = input.below(packet.len());
        packet[at] ^= input.u8();
    }
    packet.truncate(if input.u8() > 230 { input.below(28) } else { 28 });
    route(false).ethernet(0x0806, &packet)
}

/// Solicitations and advertisements with options.
fn discovery(input: &mut Input<'_>) -> Vec<u8> {
    let kind = [135, 136, 133, 134, 137][input.below(5)];
    let mut message = vec![kind, u8::from(input.u8() > 250), 0, 0, input.u8(), 0, 0, 0];
    message.extend(v6(input));
    for _ in 0..input.u8() % 4 {
        let (option, units) = (input.u8() % 6, input.u8() % 3);
        message.extend([option, units]);
        message.extend(mac(input));
    }
    let mut frame = route(true).packet(ICMP6, &message);
    frame[22..38].copy_from_slice(&v6(input));
    frame[38..54].copy_from_slice(&v6(input));
    frame[21] = if input.u8() > 230 { input.u8() } else { 255 };
    repair(&mut frame);
    frame
}

/// Unreachable destinations, packets too big and the like, about the connection or about anything.
fn error(input: &mut Input<'_>, peer: &Peer, v6: bool) -> Vec<u8> {
    let mut message = vec![input.u8() % 16, input.u8() % 8, 0, 0];
    message.extend(if input.flag() { u32::from(input.u16()) } else { input.u32() }.to_be_bytes());
    // What the node sent: its header is the reverse of the peer's.
    let (seq, ack) = (peer.0.rcv_nxt.wrapping_add(input.offset()), peer.0.snd_nxt());
    let [dst_port, src_port] = peer.0.ports;
    let quoted = Segment { src_port, dst_port, seq, ack, ..peer.segment() };
    let mut quote = quoted.frame(peer.0.route.back())[14..].to_vec();
    if input.u8() > 200 {
        let at = input.below(quote.len());
        quote[at] ^= input.u8();
    }
    quote.truncate(if input.u8() > 200 { input.below(64) } else { 64 });
    message.extend(quote);
    route(v6).packet(if v6 { ICMP6 } else { ICMP }, &message)
}
