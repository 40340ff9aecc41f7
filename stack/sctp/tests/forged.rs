//! Packets of an attacker, who does not know the tags, and chunks that a peer should not send.

use ironwarp_llp::Events;
use ironwarp_sctp::{SctpConfig, State};
use ironwarp_stats::Counter;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::common::*;

/// RFC 9260 s8.5 and s8.5.1: a packet with another tag is dropped, whatever it has.
#[test]
fn a_packet_with_another_tag_is_dropped() {
    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    let chunks: [Vec<u8>; 9] = [
        chunk(ABORT, 0, &[]),
        chunk(ABORT, 1, &[]),
        chunk(SHUTDOWN, 0, &[0; 4]),
        chunk(SHUTDOWN_ACK, 0, &[]),
        chunk(SHUTDOWN_COMPLETE, 1, &[]),
        chunk(HEARTBEAT, 0, &tlv(1, b"nonce")),
        chunk(ERROR, 0, &tlv(1, &[0; 4])),
        chunk(DATA, 3, &[1; 13]),
        InitChunk::default().build(INIT_ACK),
    ];
    for (count, chunk) in chunks.into_iter().enumerate() {
        assert_eq!(node.answers(1, &packet([FROM, PORT], peer.tag ^ 1, &[chunk])), []);
        assert_eq!(node.read(Counter::SctpDropTag), count as u64 + 1);
    }
    assert_eq!((node.state(peer.id), node.take_events()), (State::Established, vec![]));
}

/// RFC 9260 s8.5.1 B: which tags an ABORT may have.
#[test]
fn an_abort_has_our_tag_or_with_the_t_bit_the_peers() {
    for (own, flags, ends) in [(true, 0, true), (true, 1, false), (false, 0, false), (false, 1, true)] {
        let mut node = Node::listening(2);
        let peer = Peer::set_up(&mut node);
        let tag = if own { peer.tag } else { Peer::OWN_TAG };
        assert_eq!(node.answers(1, &packet([FROM, PORT], tag, &[chunk(ABORT, flags, &[])])), []);
        let events = if ends { vec![(peer.id, Events::RESET)] } else { vec![] };
        assert_eq!(node.take_events(), events, "{own} {flags}");
    }
}

/// RFC 9260 s3.3.7: an ABORT whose causes do not fit it.
#[test]
fn an_abort_with_a_format_error_is_dropped() {
    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    for causes in [&[0, 12, 0, 3][..], &[0, 12, 0, 9, 1, 2, 3, 4], &[0, 12, 0, 4, 0]] {
        assert_eq!(peer.send(&mut node, &[chunk(ABORT, 0, causes)]), []);
    }
    assert_eq!((node.take_events(), node.read(Counter::SctpDropBadChunk)), (vec![], 3));
    peer.send(&mut node, &[chunk(ABORT, 0, &tlv(12, b"reason"))]);
    assert_eq!(node.take_events(), [(peer.id, Events::RESET)]);
}

/// RFC 9260 s9.1 and s3.3.7: nothing in a packet with an ABORT is answered. What comes before the
/// ABORT counts.
#[test]
fn a_packet_with_an_abort_is_never_answered() {
    let (mut node, mut events) = (Node::listening(2), Vec::new());
    let peer = Peer::set_up(&mut node);
    let (heartbeat, abort) = (chunk(HEARTBEAT, 0, &tlv(1, b"nonce")), |flags| chunk(ABORT, flags, &[]));
    assert_eq!(peer.send(&mut node, &[heartbeat.clone(), abort(1)]), [], "an ABORT of another tag");
    assert_eq!(peer.send(&mut node, &[chunk(0x7f, 0, &[]), abort(0)]), [], "an ABORT that is not read");
    events.extend(node.take_events());
    assert_eq!(peer.send(&mut node, &[heartbeat, abort(0)]), []);
    assert_eq!((events, node.take_events()), (vec![], vec![(peer.id, Events::RESET)]));
}

/// RFC 9260 s8.5.1 B: in COOKIE-WAIT the peer's tag is not known, so a reflected one is none.
#[test]
fn a_reflected_abort_in_cookie_wait_is_dropped() {
    let mut a = Node::new(1, SctpConfig::default());
    let id = a.connect(2);
    let tag = word(a.sent()[0].value(), 0);
    a.answers(2, &packet([PORT, FROM], tag, &[chunk(ABORT, 1, &[])]));
    assert_eq!(a.state(id), State::CookieWait);
    a.answers(2, &packet([PORT, FROM], tag, &[chunk(ABORT, 0, &[])]));
    assert_eq!(a.take_events(), [(id, Events::REFUSED)]);
}

/// RFC 9260 s8.3: the value returns as it is, and one of a packet is answered.
#[test]
fn a_heartbeat_is_echoed() {
    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    let value = tlv(1, b"nonce");
    let heartbeats = vec![chunk(HEARTBEAT, 0, &value); 20];
    let [answer] = &peer.send(&mut node, &heartbeats)[..] else { panic!("one answer") };
    assert_eq!((answer.tag, &answer.chunks[..]), (Peer::OWN_TAG, &[(HEARTBEAT_ACK, 0, value)][..]));
}

/// RFC 9260 s5.1 C: until the COOKIE ACK nothing else is sent, and in COOKIE-WAIT no tag is known.
#[test]
fn nothing_is_answered_in_set_up() {
    for state in [1, 2] {
        let (mut node, tag, ports) = node_in(state);
        node.sent();
        let chunks = [chunk(HEARTBEAT, 0, &tlv(1, b"nonce")), chunk(0xff, 0, b"report me")];
        assert_eq!(node.answers(1, &packet(ports, tag, &chunks)), []);
        assert_eq!(node.read(Counter::SctpDropUnexpectedChunk), 1);
    }
}

/// RFC 9260 s3.2, table 2: chunks of unrecognised types, and what follows them.
#[test]
fn unrecognized_chunks_are_reported_and_stop_as_their_types_ask() {
    let heartbeat = chunk(HEARTBEAT, 0, &tlv(1, b"n"));
    for (kind, reports, stops) in
        [(0x3f, false, true), (0x7f, true, true), (0xbf, false, false), (0xff, true, false)]
    {
        let mut node = Node::listening(2);
        let peer = Peer::set_up(&mut node);
        let unrecognized = chunk(kind, 3, b"value");
        let answers = peer.send(&mut node, &[unrecognized.clone(), heartbeat.clone()]);
        let mut expected = Vec::new();
        if !stops {
            expected.push((HEARTBEAT_ACK, 0, tlv(1, b"n")[..5].to_vec()));
        }
        if reports {
            expected.push((ERROR, 0, tlv(6, &unrecognized[..9])[..13].to_vec()));
        }
        let chunks = answers.into_iter().flat_map(|answer| answer.chunks).collect::<Vec<_>>();
        let shorten = |(kind, flags, value): (u8, u8, Vec<u8>)| (kind, flags, value);
        assert_eq!(chunks.into_iter().map(shorten).map(trimmed).collect::<Vec<_>>(), expected, "{kind:#x}");
    }
}

/// Cuts a value behind its only TLV.
fn trimmed((kind, flags, value): (u8, u8, Vec<u8>)) -> (u8, u8, Vec<u8>) {
    let length = usize::from(u16::from_be_bytes([value[2], value[3]]));
    (kind, flags, value[..length].to_vec())
}

/// RFC 9260 s6.10: what comes before a partial chunk counts.
#[test]
fn a_partial_chunk_is_dropped() {
    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    let mut partial = chunk(HEARTBEAT, 0, &tlv(1, b"two"));
    partial.truncate(8);
    let answers = peer.send(&mut node, &[chunk(HEARTBEAT, 0, &tlv(1, b"one!")), partial]);
    assert_eq!(answers[0].chunks, [(HEARTBEAT_ACK, 0, tlv(1, b"one!"))]);
    assert_eq!(node.read(Counter::SctpDropBadChunk), 1);
}

/// RFC 9260 s6.8: a wrong checksum; s3.1: port 0.
#[test]
fn a_corrupt_packet_is_dropped() {
    let mut node = Node::listening(2);
    let mut corrupt = InitChunk::default().packet();
    corrupt[20] ^= 1;
    assert_eq!(node.answers(1, &corrupt), []);
    assert_eq!(node.answers(1, &packet([0, PORT], 0, &[InitChunk::default().build(INIT)])), []);
    assert_eq!(node.answers(1, &packet([FROM, PORT], 1, &[])), []);
    let counts = [Counter::SctpDropChecksum, Counter::SctpDropBadHeader].map(|counter| node.read(counter));
    assert_eq!(counts, [1, 2]);
}

/// Floods of INITs hold nothing.
#[test]
fn an_init_flood_takes_no_memory() {
    let mut node = Node::new(2, SctpConfig { associations_max: 4, ..SctpConfig::default() });
    node.listen();
    for from in 1..1_000 {
        let init = packet([from, PORT], 0, &[InitChunk::default().build(INIT)]);
        assert_eq!(node.answers(1, &init)[0].kinds(), [INIT_ACK]);
    }
    let usage = node.sctp.resource_usage();
    assert_eq!((usage.connections, usage.flows, usage.rx_frames), (0, 0, 0));
    Peer::set_up(&mut node);
}

/// The states that a node can be in, with the tag that it expects.
fn node_in(state: usize) -> (Node, u32, [u16; 2]) {
    let (mut node, ports) = (Node::listening(2), [FROM, PORT]);
    match state {
        0 => return (node, 5, ports),
        1 | 2 => {
            node.connect_from(PORT, addr(1, FROM), 1);
            let tag = word(node.sent()[0].value(), 0);
            if state == 2 {
                let init_ack = InitChunk { parameters: vec![tlv(7, b"cookie")], ..InitChunk::default() };
                node.answers(1, &packet(ports, tag, &[init_ack.build(INIT_ACK)]));
            }
            return (node, tag, ports);
        }
        _ => {}
    }
    let peer = Peer::set_up(&mut node);
    match state {
        3 => {}
        4 => assert_eq!(node.close(peer.id), Events::empty()),
        _ => assert_eq!(peer.send(&mut node, &[chunk(SHUTDOWN, 0, &[0; 4])]).len(), 1),
    }
    node.sent();
    (node, peer.tag, ports)
}

fn any_chunk() -> impl Strategy<Value = Vec<u8>> {
    let list = vec((prop_oneof![0u16..14, any::<u16>()], vec(any::<u8>(), 0..12)), 0..6);
    let value = prop_oneof![
        vec(prop_oneof![Just(0u8), any::<u8>()], 0..40),
        list.prop_map(|list| list.iter().flat_map(|(kind, value)| tlv(*kind, value)).collect()),
        (any::<u32>(), any::<u32>(), any::<[u16; 2]>(), vec(any::<u8>(), 0..20)).prop_map(
            |(tag, a_rwnd, streams, cookie)| {
                InitChunk { tag, a_rwnd, streams, tsn: 1, parameters: vec![tlv(7, &cookie)] }.build(INIT)[4..]
                    .to_vec()
            }
        ),
    ];
    (prop_oneof![4 => 0u8..16, 1 => any::<u8>()], 0u8..4, value)
        .prop_map(|(kind, flags, value)| chunk(kind, flags, &value))
}

proptest! {
    /// Chunks of any kind in every state, with the right tag, the peer's, none or another: no
    /// panic, the invariants hold, and at most three packets are sent for one.
    #[test]
    fn any_chunks_are_harmless_in_every_state(
        state in 0usize..6, packets in vec((vec(any_chunk(), 1..4), 0u8..5, any::<Option<usize>>()), 1..8),
    ) {
        let (mut node, tag, ports) = node_in(state);
        for (chunks, tag_of, cut) in packets {
            let tag = match tag_of {
                0 => 0,
                1 => Peer::OWN_TAG,
                2 => 99,
                _ => tag,
            };
            let mut octets = packet(ports, tag, &chunks);
            if let Some(cut) = cut {
                octets.truncate(12 + cut % (octets.len() - 11));
                octets = packet(ports, tag, &[octets[12..].to_vec()]);
            }
            prop_assert!(node.answers(1, &octets).len() <= 3);
        }
    }
}
