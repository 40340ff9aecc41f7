//! Retransmissions that overlap with different contents, and sequence numbers that wrap.

use ironwarp_tcp::{ByteStream, State};
use proptest::prelude::*;

use crate::common::pattern::{Pattern, byte_at, read_all};
use crate::common::raw::{ACK, PSH, Segment};
use crate::hostile_peer::scene::Scene;

const BYTES: usize = 6_000;

/// Two versions of every byte, so that a test can tell which one was delivered.
fn version(which: bool, offset: usize) -> u8 {
    byte_at(offset as u64) & 0xfe | u8::from(which)
}

fn contradicting(from: usize, len: usize, which: bool) -> Vec<u8> {
    (from..from + len).map(|offset| version(which, offset)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// RFC 9293 s3.10.7.4, seventh step: overlaps in any order deliver every byte once, with the
    /// value of one of the segments. A delivered byte does not change.
    #[test]
    fn contradictory_overlaps_deliver_every_byte_once(
        iss in any::<u32>(),
        segments in prop::collection::vec((0usize..BYTES, 1usize..1_400, any::<bool>(), any::<bool>()), 0..60),
    ) {
        let mut scene = Scene::new();
        let (peer, id) = scene.target(State::Established, 40_000, iss);
        let id = id.expect("a connection");
        let first = peer.seq;
        let mut taken = 0;
        let closing = (0..BYTES).step_by(1_000).map(|from| (from, 1_000, true, true));
        for (from, len, which, reads) in segments.into_iter().chain(closing) {
            let len = len.min(BYTES - from);
            let seq = first.wrapping_add(from as u32);
            peer.send_raw(&mut scene.node, Segment { seq, payload: contradicting(from, len, which), ..peer.raw(ACK | PSH) });
            let mut stream = scene.node.tcp.rx(id);
            while reads && stream.available() > 0 {
                let right = stream.front().iter().enumerate().all(|(at, byte)| {
                    [version(true, taken + at), version(false, taken + at)].contains(byte)
                });
                prop_assert!(right, "wrong bytes from {} on", taken);
                let len = stream.front().len();
                taken += len;
                stream.consume(len);
            }
            scene.drain_replies();
        }
        prop_assert_eq!(taken, BYTES);
        scene.close_target(&peer, Some(id));
        scene.assert_nothing_leaked();
    }
}

/// RFC 9293 s3.10.7.4, seventh step: a later segment does not replace in-order bytes.
/// RFC 5044 sA.3.
#[test]
fn the_first_version_of_an_in_order_byte_is_kept() {
    let mut scene = Scene::new();
    let (peer, id) = scene.target(State::Established, 40_000, 9);
    let (id, first) = (id.expect("a connection"), peer.seq);
    let mut send_raw = |from: u32, len: usize, which| {
        let payload = contradicting(from as usize, len, which);
        peer.send_raw(
            &mut scene.node,
            Segment { seq: first.wrapping_add(from), payload, ..peer.raw(ACK | PSH) },
        );
    };
    send_raw(0, 100, true);
    send_raw(0, 200, false);
    send_raw(50, 250, true);
    let mut bytes = vec![0; 300];
    assert!(scene.node.tcp.rx(id).peek(&mut bytes));
    for (at, &byte) in bytes.iter().enumerate() {
        let which = !(100..200).contains(&at);
        assert_eq!(byte, version(which, at), "byte {at}");
    }
}

/// RFC 9293 s3.4: the sequence numbers of either side may wrap at any octet, in order and out of
/// order.
#[test]
fn sequence_numbers_may_wrap_at_every_octet() {
    for before in (0..3_000).step_by(7).chain([1 << 31, (1 << 31) - 1, (1 << 31) + 1]) {
        let mut scene = Scene::new();
        let (mut peer, id) = scene.target(State::Established, 40_000, 0u32.wrapping_sub(before));
        let id = id.expect("a connection");
        let at = |from: u32| peer.seq.wrapping_add(from);
        let mut taken = 0;
        for from in [500, 2_000, 1_000, 0, 1_500, 2_500] {
            peer.send_raw(&mut scene.node, peer.data(at(from), 500));
            read_all(&mut scene.node.tcp.rx(id), &mut taken);
        }
        assert_eq!(taken, 3_000, "a wrap after {before}");
        peer.seq = at(3_000);
        scene.node.transmit(id, &mut Pattern::new(3_000, 500), 8);
        peer.receive_all(&mut scene.node);
        peer.send_raw(&mut scene.node, peer.raw(ACK));
        assert_eq!(scene.node.tcp.acked_bytes(id), 3_000);
    }
}

/// RFC 9293 s3.10.7.4: an old segment, repeated a thousand times, changes nothing. Every answer has
/// the same sequence number.
#[test]
fn old_segments_can_be_repeated_without_effect() {
    let mut scene = Scene::new();
    let (mut peer, id) = scene.target(State::Established, 40_000, u32::MAX - 1_500);
    for _ in 0..5 {
        peer.send(&mut scene.node, 1_000);
    }
    let mut taken = 0;
    read_all(&mut scene.node.tcp.rx(id.expect("a connection")), &mut taken);
    scene.drain_replies();
    for round in 0..1_000u32 {
        let seq = peer.seq.wrapping_sub(5_000 - round * 4);
        peer.send_raw(&mut scene.node, peer.data(seq, (round % 1_000) as usize));
        for captured in peer.receive_all(&mut scene.node) {
            assert_eq!(captured.ack, peer.seq);
        }
        scene.drain_replies();
    }
    assert_eq!(scene.node.tcp.rx(id.expect("a connection")).available(), 0);
    scene.bystander_works();
}
