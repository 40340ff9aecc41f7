//! Random bytes, and valid frames with changed, missing or added bytes, as input to net and tcp.

use ironwarp_tcp::State;
use proptest::prelude::*;

use crate::common::raw::{ACK, FIN, PSH, SYN, Segment, frame, route};
use crate::hostile_peer::scene::Scene;

/// A valid frame except for some octets.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let right = (0usize..5, 0usize..1_400, any::<u32>()).prop_map(|(kind, len, number)| {
        let raw =
            Segment { src_port: 40_000, dst_port: 4_420, seq: number, window: 100, ..Segment::default() };
        match kind {
            0 => frame(&Segment {
                flags: SYN,
                options: vec![2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0],
                ..raw
            }),
            1 => frame(&Segment { flags: ACK | PSH, payload: vec![1; len], ..raw }),
            2 => frame(&Segment { flags: FIN | ACK, ..raw }),
            3 => route().packet(1, &vec![8; len]),
            _ => route().packet(number as u8, &vec![2; len]),
        }
    });
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (right, changes, prop::option::of(any::<prop::sample::Index>()), 0usize..40).prop_map(
        |(mut frame, changes, cut, more)| {
            for (at, value) in changes {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len()));
            }
            frame.resize(frame.len() + more, 0xee);
            frame
        },
    )
}

/// Random bytes after a valid link header, or without one.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    let ethertype = prop_oneof![
        3 => Just([8u8, 0]), 3 => Just([8, 6]), 3 => Just([0x86, 0xdd]), 1 => Just([0x81, 0]), 1 => any::<[u8; 2]>(),
    ];
    (any::<bool>(), ethertype, bytes).prop_map(|(ours, ethertype, bytes)| {
        if !ours {
            return bytes;
        }
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ethertype, &bytes].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// No sequence of bytes stops the node, affects the bystander or leaks resources.
    #[test]
    fn random_frames_do_not_affect_the_bystander(
        frames in prop::collection::vec(prop_oneof![2 => damaged(), 1 => anything()], 1..60),
    ) {
        let mut scene = Scene::new();
        for frame in frames {
            scene.node.receive(&frame);
            scene.drain_replies();
        }
        scene.bystander_works();
        scene.assert_nothing_leaked();
    }

    /// A valid segment of an open connection that is damaged anywhere after the addresses is never
    /// delivered.
    #[test]
    fn a_damaged_segment_is_never_delivered(at in 34usize..134, flip in 1u8..=255) {
        let mut scene = Scene::new();
        let (peer, id) = scene.target(State::Established, 40_000, 5);
        let mut frame = frame(&peer.data(peer.seq, 80));
        frame[at] ^= flip;
        scene.node.receive(&frame);
        prop_assert_eq!(ironwarp_tcp::ByteStream::available(&scene.node.tcp.rx(id.expect("a connection"))), 0);
        scene.bystander_works();
    }
}
