//! Off-path attackers who know the addresses and ports of a connection and guess sequence numbers
//! (RFC 5961).

use ironwarp_stats::Counter;
use ironwarp_tcp::{ByteStream, State, TcpEvents};
use ironwarp_types::Nanos;
use proptest::prelude::*;

use crate::common::pattern::Pattern;
use crate::common::raw::{ACK, FIN, PSH, RST, SYN, Segment, frame};
use crate::hostile_peer::scene::Scene;

/// RFC 5961 s3: of two million resets over all sequence numbers, only the one at RCV.NXT ends the
/// connection. Resets in the window trigger challenge ACKs, which are rate-limited. RFC 5961 s3.2.
#[test]
fn blind_resets_do_not_end_a_connection() {
    let mut scene = Scene::new();
    let (peer, id) = scene.target(State::Established, 40_000, 123_456);
    for step in 1..20_000u32 {
        let seq = peer.seq.wrapping_add(step.wrapping_mul(214_013));
        peer.send_raw(&mut scene.node, Segment { seq, ..peer.raw(RST) });
    }
    // Every number of a small window except RCV.NXT.
    for offset in 1..20_000u32 {
        peer.send_raw(&mut scene.node, Segment { seq: peer.seq.wrapping_add(offset), ..peer.raw(RST) });
    }
    assert_eq!(scene.node.tcp.state(id.expect("a connection")), State::Established);
    scene.node.flush();
    assert!(scene.node.sent().len() <= 8, "challenge ACKs are rate-limited");
    assert!(scene.node.read(Counter::TcpTxRepliesRateLimited) > 10_000);
    scene.drain_replies();
    scene.bystander_works();
    peer.send_raw(&mut scene.node, peer.raw(RST));
    assert_eq!(scene.node.take_events(id.expect("a connection")), TcpEvents::RESET);
}

/// RFC 5961 s4: a SYN with any sequence number, with or without payload, triggers a challenge ACK
/// and changes nothing. RFC 5961 s4.2.
#[test]
fn blind_syns_do_not_end_a_connection() {
    for state in [State::Established, State::CloseWait, State::FinWait1, State::FinWait2] {
        let mut scene = Scene::new();
        let (peer, id) = scene.target(state, 40_000, 123_456);
        for step in 0..5_000u32 {
            let seq = peer.seq.wrapping_add(step.wrapping_mul(858_993));
            let flags = if step % 2 == 0 { SYN } else { SYN | ACK };
            peer.send_raw(
                &mut scene.node,
                Segment { seq, payload: vec![7; (step % 3) as usize], ..peer.raw(flags) },
            );
        }
        assert_eq!(scene.node.tcp.state(id.expect("a connection")), state);
        scene.drain_replies();
        scene.bystander_works();
        scene.close_target(&peer, id);
        scene.assert_nothing_leaked();
    }
}

/// RFC 5961 s5: payload with an invalid acknowledgement is dropped.
/// RFC 9293 (MAY-12); RFC 5961 s5.2.
#[test]
fn blind_data_is_not_delivered() {
    let mut scene = Scene::new();
    let (peer, id) = scene.target(State::Established, 40_000, 123_456);
    let id = id.expect("a connection");
    for step in 1..5_000u32 {
        // In the window, but with a guessed acknowledgement: from older than any window to the far
        // future.
        let ack = peer.ack.wrapping_add(100_000).wrapping_add(step.wrapping_mul(836_000));
        if peer.ack.wrapping_sub(ack) <= 70_000 {
            continue;
        }
        let raw = Segment { ack, payload: vec![9; 100], ..peer.raw(ACK | PSH) };
        peer.send_raw(&mut scene.node, raw);
    }
    assert_eq!(scene.node.tcp.rx(id).available(), 0);
    scene.drain_replies();
    scene.bystander_works();
}

/// RFC 9293 s3.10.7.4, fifth step: an acknowledgement of unsent data changes nothing. The answers
/// are rate-limited.
#[test]
fn blind_acks_acknowledge_nothing() {
    let mut scene = Scene::new();
    let (mut peer, id) = scene.target(State::Established, 40_000, 123_456);
    let id = id.expect("a connection");
    scene.node.transmit(id, &mut Pattern::new(4_000, 500), 8);
    let una = peer.ack;
    peer.receive_all(&mut scene.node);
    for step in 0..20_000u32 {
        let ack = peer.ack.wrapping_add(1).wrapping_add(step.wrapping_mul(100_003));
        if ack.wrapping_sub(una) > 4_000 {
            peer.send_raw(&mut scene.node, Segment { ack, ..peer.raw(ACK) });
        }
    }
    assert_eq!(scene.node.tcp.acked_bytes(id), 0);
    peer.send_raw(&mut scene.node, peer.raw(ACK));
    assert_eq!(scene.node.tcp.acked_bytes(id), 4_000);
    scene.drain_replies();
    scene.bystander_works();
}

/// RFC 5961 s3 and s4, RFC 1337: guesses at half-open connections and at TIME-WAIT.
#[test]
fn blind_segments_do_not_end_half_open_or_waiting_connections() {
    let mut scene = Scene::new();
    let (peer, id) = scene.target(State::TimeWait, 40_000, 123_456);
    for flags in [RST, RST | ACK, FIN | ACK, SYN | ACK, ACK, 0] {
        for offset in [0, 1, u32::MAX, 1_000, 1 << 31] {
            peer.send_raw(&mut scene.node, Segment { seq: peer.seq.wrapping_add(offset), ..peer.raw(flags) });
            scene.drain_replies();
        }
    }
    // TIME-WAIT is still in force: an old FIN is answered with an ACK, not with a reset.
    peer.send_raw(&mut scene.node, Segment { seq: peer.seq.wrapping_sub(1), ..peer.raw(FIN | ACK) });
    let answer = crate::common::raw::captured(&mut scene.node, peer.port);
    assert_eq!(answer.iter().map(|captured| captured.flags).collect::<Vec<_>>(), [ACK]);
    scene.close_target(&peer, id);
    let (peer, id) = scene.target(State::SynReceived, 40_001, 123_456);
    for step in 1..1_000u32 {
        let seq = peer.seq.wrapping_add(step.wrapping_mul(4_294_967));
        peer.send_raw(&mut scene.node, Segment { seq, ..peer.raw(RST) });
        peer.send_raw(&mut scene.node, Segment { ack: peer.ack.wrapping_add(step), ..peer.raw(ACK) });
    }
    peer.send_raw(&mut scene.node, peer.raw(ACK));
    assert!(scene.node.established().is_some(), "the handshake continues");
    scene.close_target(&peer, id);
    scene.assert_nothing_leaked();
}

/// RFC 9293 s3.10.7.1: segments without a connection, of all kinds and from all ports, take no
/// resources. The answers are rate-limited.
#[test]
fn answers_to_unknown_segments_are_limited() {
    let mut scene = Scene::new();
    scene.drain_replies();
    for round in 0..5_000u16 {
        let raw = Segment {
            src_port: 1 + round,
            dst_port: 1 + round % 100,
            seq: u32::from(round) * 77_777,
            flags: (round % 64) as u8,
            payload: vec![1; usize::from(round % 50)],
            ..Segment::default()
        };
        scene.node.receive(&frame(&raw));
    }
    scene.node.flush();
    assert!(scene.node.sent().len() <= 8);
    scene.node.now += Nanos::from_millis(5);
    scene.bystander_works();
    scene.assert_nothing_leaked();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Segments outside the window, with any flags, have no effect that the application can
    /// observe.
    #[test]
    fn segments_outside_the_window_have_no_effect(
        guesses in prop::collection::vec((1u32 << 20..u32::MAX - 70_000, any::<u32>(), any::<u8>(), 0usize..300), 1..80),
    ) {
        let mut scene = Scene::new();
        let (peer, id) = scene.target(State::Established, 40_000, 123_456);
        let id = id.expect("a connection");
        for (offset, ack, flags, len) in guesses {
            let seq = peer.seq.wrapping_add(offset);
            peer.send_raw(&mut scene.node, Segment { seq, ack, payload: vec![1; len], ..peer.raw(flags) });
        }
        prop_assert_eq!(scene.node.tcp.state(id), State::Established);
        prop_assert_eq!(scene.node.tcp.rx(id).available(), 0);
        prop_assert_eq!(scene.node.take_events(id), TcpEvents::empty());
        scene.drain_replies();
        scene.bystander_works();
    }
}
