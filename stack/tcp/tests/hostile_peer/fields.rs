//! Boundary values of every header field in every state.

use ironwarp_stats::Counter;
use ironwarp_tcp::State;

use crate::common::raw::{ACK, PSH, RST, SYN, Segment, frame};
use crate::hostile_peer::scene::Scene;

/// Boundary values of 32-bit numbers, and offsets close to a valid number.
const EDGES: [u32; 12] =
    [0, 1, 2, 100, 65_535, 65_536, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, u32::MAX - 1, u32::MAX];

/// For each state, derives segments from valid ones with `segments`, sends them, and checks the
/// bystander.
fn in_every_state(segments: impl Fn(&Segment) -> Vec<Segment>) {
    let mut scene = Scene::new();
    for state in Scene::STATES {
        let (peer, _) = scene.target(state, 40_000, 5);
        let right = peer.raw(if state == State::SynSent { SYN | ACK } else { ACK | PSH });
        let all = segments(&right);
        let (mut peer, mut id) = (peer, None::<ironwarp_tcp::ConnId>);
        scene.close_target(&peer, id);
        for (round, raw) in all.into_iter().enumerate() {
            // A new victim for each segment, since most segments end or change it.
            let port = 1 + (round + state as usize * 5_000) as u16;
            (peer, id) = scene.target(state, port, 5);
            let relative = |number: u32, from: u32, to: u32| number.wrapping_sub(from).wrapping_add(to);
            let raw = Segment {
                src_port: if raw.src_port == right.src_port { port } else { raw.src_port },
                seq: relative(raw.seq, right.seq, peer.seq),
                ack: relative(raw.ack, right.ack, peer.ack),
                ..raw
            };
            scene.node.receive(&frame(&raw));
            scene.drain_replies();
            scene.close_target(&peer, id);
            if round % 16 == 0 {
                scene.bystander_works();
            }
        }
        scene.bystander_works();
    }
    scene.assert_nothing_leaked();
}

/// RFC 9293 s3.10.7: every combination of control bits, in the window, before and after it, with
/// and without payload.
#[test]
fn every_combination_of_control_bits_is_harmless_in_every_state() {
    in_every_state(|right| {
        let mut all = Vec::new();
        for flags in 0..=255 {
            for offset in [0, u32::MAX, 100, 1 << 31] {
                let payload = vec![1; if flags % 2 == 0 { 0 } else { 20 }];
                all.push(Segment { flags, seq: right.seq.wrapping_add(offset), payload, ..right.clone() });
            }
        }
        all
    });
}

/// RFC 9293 s3.4: sequence and acknowledgement numbers at all distances.
#[test]
fn boundary_sequence_numbers_are_harmless_in_every_state() {
    in_every_state(|right| {
        let mut all = Vec::new();
        for seq in EDGES {
            for ack in EDGES {
                let payload = vec![2; (seq % 3) as usize * 700];
                all.push(Segment {
                    seq: right.seq.wrapping_add(seq),
                    ack: right.ack.wrapping_add(ack),
                    payload,
                    ..right.clone()
                });
            }
        }
        all
    });
}

/// RFC 9293 s3.1: data offset, reserved bits, window, urgent pointer, ports, payload of any length.
#[test]
fn boundary_values_of_other_fields_are_harmless_in_every_state() {
    in_every_state(|right| {
        let mut all = Vec::new();
        for offset in 0..16 {
            for options in [0, 4, 20, 40] {
                let raw = Segment { offset: Some(offset), options: vec![1; options], ..right.clone() };
                all.extend([raw.clone(), Segment { payload: vec![3; 9], ..raw }]);
            }
        }
        all.extend((0..16).map(|reserved| Segment { reserved, ..right.clone() }));
        for edge in [0, 1, 0x7fff, 0x8000, 0xffff] {
            all.push(Segment { window: edge, ..right.clone() });
            all.push(Segment { urgent: edge, flags: 0x3f & right.flags | 0x20, ..right.clone() });
            all.push(Segment { src_port: edge.max(50_001), ..right.clone() });
            all.push(Segment { dst_port: edge, ..right.clone() });
            all.push(Segment { checksum: Some(edge), ..right.clone() });
        }
        all.extend([1, 2, 536, 1_459, 1_460].map(|len| Segment { payload: vec![4; len], ..right.clone() }));
        all
    });
}

/// RFC 9293 s3.1, MUST-7: options of every kind and length, whole and truncated, in a SYN and in
/// other segments.
#[test]
fn every_kind_and_length_of_an_option_is_harmless_in_every_state() {
    in_every_state(|right| {
        let mut all = Vec::new();
        for kind in (0..=34).chain([69, 253, 254, 255]) {
            for len in (0..=12).chain([38, 39, 40, 41, 127, 128, 255]) {
                let mut options = vec![kind, len];
                options.resize(if len % 5 == 0 { 4 } else { 40 }, 0xff);
                all.push(Segment { options, ..right.clone() });
            }
        }
        all
    });
}

/// RFC 9293 s3.1, MUST-3: a segment with a wrong checksum is dropped.
#[test]
fn a_segment_with_a_wrong_checksum_is_dropped() {
    let mut scene = Scene::new();
    let (peer, id) = scene.target(State::Established, 40_000, 5);
    let right = Segment { payload: vec![1; 10], ..peer.raw(ACK | RST) };
    let whole = frame(&right);
    let sum = u16::from_be_bytes([whole[50], whole[51]]);
    for wrong in (0..=u16::MAX).filter(|&wrong| wrong != sum) {
        // Zero has two representations, which a receiver cannot distinguish.
        if (wrong, sum) == (0xffff, 0) || (wrong, sum) == (0, 0xffff) {
            continue;
        }
        scene.node.receive(&frame(&Segment { checksum: Some(wrong), ..right.clone() }));
    }
    assert_eq!(scene.node.tcp.state(id.expect("a connection")), State::Established);
    assert!(scene.node.read(Counter::NetDropL4Checksum) >= 65_533);
    assert!(scene.node.sent().is_empty());
    scene.bystander_works();
}

/// RFC 9293 s3.1: a data offset below the header or beyond the segment.
#[test]
fn a_segment_with_an_impossible_data_offset_is_dropped() {
    let mut scene = Scene::new();
    let (peer, id) = scene.target(State::Established, 40_000, 5);
    let right = peer.raw(ACK | RST);
    for offset in [0, 4, 6, 15] {
        scene.node.receive(&frame(&Segment { offset: Some(offset), ..right.clone() }));
    }
    assert_eq!(scene.node.tcp.state(id.expect("a connection")), State::Established);
    assert_eq!(scene.node.read(Counter::TcpDropBadHeader), 4);
    assert!(scene.node.sent().is_empty());
    scene.bystander_works();
}

/// RFC 791 and RFC 894: each octet before a valid segment takes every value, with a correct and a
/// wrong header checksum. Only the valid segment is delivered, or none.
#[test]
fn every_value_of_every_lower_header_octet_is_harmless() {
    let mut scene = Scene::new();
    let (peer, id) = scene.target(State::Established, 40_000, 5);
    let right = frame(&peer.data(peer.seq, 10));
    for at in 0..34 {
        for value in 0..=255 {
            for repaired in [false, true] {
                let mut frame = right.clone();
                frame[at] = value;
                if repaired && !(24..26).contains(&at) {
                    frame[24..26].fill(0);
                    let sum = header_sum(&frame[14..34]);
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                }
                scene.node.receive(&frame);
                scene.drain_replies();
            }
        }
        scene.bystander_works();
    }
    let mut taken = 0;
    crate::common::pattern::read_all(&mut scene.node.tcp.rx(id.expect("a connection")), &mut taken);
    assert_eq!(taken, 10);
    scene.close_target(&peer, id);
    scene.assert_nothing_leaked();
}

fn header_sum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}
