//! Received DATA: delivery, the receive window, and when a SACK is sent.

use ironwarp_llp::Events;
use ironwarp_sctp::{MessageHeader, SctpConfig, State};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;
use proptest::prelude::*;

use crate::common::*;

/// The buffer of a received frame, which takes of the window.
const FRAME: u32 = 2_048;

fn header(stream: u16, is_unordered: bool) -> MessageHeader {
    MessageHeader { stream, ppid: DataChunk::PPID, is_unordered }
}

/// A node with an association, whose peer sends TSN 100 first.
fn node_with(config: SctpConfig) -> (Node, Peer) {
    let mut node = Node::new(2, config);
    node.listen();
    let peer = Peer::set_up(&mut node);
    (node, peer)
}

fn node() -> (Node, Peer) {
    node_with(SctpConfig::default())
}

/// RFC 9260 s6.6 and s3.3.1: unordered messages are delivered at once, whatever is missing and
/// whatever their SSNs.
#[test]
fn unordered_messages_are_delivered_as_they_arrive() {
    let (mut node, peer) = node();
    node.upper.takes = true;
    for (tsn, payload) in [(102, b"c"), (100, b"a"), (101, b"b")] {
        peer.send(&mut node, &[data(tsn, payload)]);
    }
    let expected = [b"c", b"a", b"b"].map(|payload| (header(0, true), payload.to_vec()));
    assert_eq!((&node.upper.taken[..], node.read(Counter::SctpRxMessages)), (&expected[..], 3));
    assert_eq!((node.take_events(), node.sctp.resource_usage().rx_frames), (vec![], 0));
}

/// RFC 9260 s6.6: ordered messages wait for those before them, in their stream only.
#[test]
fn ordered_messages_are_delivered_in_the_order_of_their_stream() {
    let (mut node, peer) = node();
    node.upper.takes = true;
    peer.send(&mut node, &[ordered(101, 1, b"second")]);
    assert_eq!((node.upper.taken.len(), node.take_events()), (0, vec![]));
    let other = DataChunk { tsn: 102, stream: 1, ssn: Some(0), flags: 3, payload: b"other" };
    peer.send(&mut node, &[other.build()]);
    peer.send(&mut node, &[ordered(100, 0, b"first")]);
    let payloads: Vec<_> = node.upper.taken.drain(..).map(|(_, payload)| payload).collect();
    assert_eq!(payloads, [b"other".to_vec(), b"first".to_vec()]);
    assert_eq!(node.take_events(), [(peer.id, Events::READABLE)], "what waited");
    assert_eq!(node.read_all(peer.id), [(header(0, false), b"second".to_vec())]);
    assert_eq!(node.sctp.resource_usage().rx_frames, 0);
}

/// RFC 9260 s6.5: after 65535 the next SSN is 0.
#[test]
fn stream_sequence_numbers_wrap() {
    let (mut node, peer) = node();
    node.upper.takes = true;
    for n in 0..=65_536u32 {
        peer.send(&mut node, &[ordered(100 + n, n as u16, b"x")]);
    }
    assert_eq!(node.upper.taken.len(), 65_537);
}

/// What no reader takes is held until it is read, and longer than its association.
#[test]
fn messages_are_held_until_they_are_read() {
    let (mut node, peer) = node();
    peer.send(&mut node, &[data(100, b"one"), ordered(101, 0, b"two")]);
    assert_eq!(node.take_events(), [(peer.id, Events::READABLE); 2]);
    assert_eq!(node.sctp.resource_usage().rx_frames, 1, "both are in one frame");
    peer.send(&mut node, &[chunk(ABORT, 0, &[])]);
    assert_eq!(node.sctp.message(peer.id, 1), None);
    let payloads: Vec<_> = node.read_all(peer.id).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(payloads, [b"one", b"two"]);
    assert_eq!(node.sctp.resource_usage().rx_frames, 0);

    let (mut node, peer) = self::node();
    peer.send(&mut node, &[data(100, b"one")]);
    node.sctp.release(peer.id);
    assert_eq!((node.sctp.message(peer.id, 0), node.sctp.resource_usage().rx_frames), (None, 0));
}

/// RFC 9260 s6.2: a SACK for every second packet, and after SACK.Delay for one.
#[test]
fn every_second_packet_is_acknowledged_at_once_and_one_after_a_delay() {
    let (mut node, peer) = node();
    node.upper.takes = true;
    assert_eq!(peer.send(&mut node, &[data(100, b"1"), data(101, b"2")]), [], "one packet");
    let sent = peer.send(&mut node, &[data(102, b"3")]);
    let sack = Sack { cum_tsn: 102, a_rwnd: 512 * 1024, blocks: vec![], duplicates: vec![] };
    assert_eq!((Sack::only(&sent), sent[0].tag, sent.len()), (sack, Peer::OWN_TAG, 1));
    peer.send(&mut node, &[data(103, b"4")]);
    node.pass(Nanos::from_micros(900));
    assert_eq!(node.sent(), []);
    node.pass(Nanos::from_micros(200));
    assert_eq!(Sack::only(&node.sent()).cum_tsn, 103);
    node.pass(Nanos::from_secs(1));
    assert_eq!(node.sent(), [], "once");
}

/// RFC 9260 s6.7 and s3.3.4: while there is a gap, and when it closes, every packet is acknowledged
/// at once.
#[test]
fn gaps_are_reported_at_once() {
    let (mut node, peer) = node();
    node.upper.takes = true;
    let mut sack_of = |tsn| {
        let sack = Sack::only(&peer.send(&mut node, &[data(tsn, b"x")]));
        (sack.cum_tsn, sack.blocks)
    };
    assert_eq!(sack_of(102), (99, vec![[3, 3]]));
    assert_eq!(sack_of(103), (99, vec![[3, 4]]));
    assert_eq!(sack_of(106), (99, vec![[3, 4], [7, 7]]));
    assert_eq!(sack_of(100), (100, vec![[2, 3], [6, 6]]));
    assert_eq!(sack_of(101), (103, vec![[3, 3]]));
    assert_eq!(sack_of(105), (103, vec![[2, 3]]));
    assert_eq!(sack_of(104), (106, vec![]));
}

/// RFC 9260 s6.2 and s3.3.4: duplicates are reported at once, as often as they arrive.
#[test]
fn duplicates_are_reported_at_once() {
    let (mut node, peer) = node();
    node.upper.takes = true;
    peer.send(&mut node, &[data(100, b"x")]);
    let sack = Sack::only(&peer.send(&mut node, &[data(100, b"x"), data(100, b"x")]));
    assert_eq!((sack.cum_tsn, sack.duplicates), (100, vec![100, 100]));
    let sack = Sack::only(&peer.send(&mut node, &[data(100, b"x")]));
    assert_eq!((sack.duplicates, node.upper.taken.len()), (vec![100], 1), "none twice");
    let many = vec![data(100, b"x"); 40];
    assert_eq!(Sack::only(&peer.send(&mut node, &many)).duplicates.len(), 16);
    assert_eq!(node.read(Counter::SctpRxDuplicates), 43);
}

/// RFC 9260 s6.2: the I bit asks for a SACK without delay. It leaves at the end of the next
/// iteration of the core loop, for a reply may carry it.
#[test]
fn the_i_bit_is_answered_at_once() {
    let (mut node, peer) = node();
    let immediate = DataChunk { tsn: 100, stream: 0, ssn: None, flags: 3 | 8, payload: b"x" };
    assert_eq!(peer.send(&mut node, &[immediate.build()]), []);
    assert!(node.sctp.has_pending_acks());
    assert_eq!(Sack::only(&node.sent()).cum_tsn, 100);
    assert!(!node.sctp.has_pending_acks());
    // The second packet waits no longer than the first.
    peer.send(&mut node, &[DataChunk { tsn: 101, ..immediate }.build()]);
    assert_eq!(
        Sack::only(&peer.send(&mut node, &[DataChunk { tsn: 102, ..immediate }.build()])).cum_tsn,
        102
    );
    assert_eq!(node.sent(), []);
}

/// RFC 9260 s6.2: held frames close the window, and reading opens it again, in steps of a quarter.
#[test]
fn the_window_is_what_held_frames_leave() {
    let window = 16 * FRAME;
    let (mut node, peer) = node_with(SctpConfig { a_rwnd_bytes: window, ..SctpConfig::default() });
    for n in 0..16 {
        let sent = peer.send(&mut node, &[data(100 + n, b"x")]);
        if n % 2 == 1 {
            assert_eq!(Sack::only(&sent).a_rwnd, window - (n + 1) * FRAME);
        }
    }
    let sack = Sack::only(&peer.send(&mut node, &[data(116, b"new")]));
    assert_eq!((sack.cum_tsn, sack.a_rwnd, node.read(Counter::SctpDropNoWindow)), (115, 0, 1));
    for n in 1..=4u32 {
        node.sctp.consume(peer.id, 0);
        let sent = node.sent();
        if n < 4 {
            assert_eq!(sent, []);
        } else {
            assert_eq!(Sack::only(&sent).a_rwnd, window / 4);
        }
    }
    peer.send(&mut node, &[data(116, b"new")]);
    assert_eq!(node.read_all(peer.id).len(), 13);
}

/// RFC 9260 s6.2: in a closed window the last held message makes room for an earlier one, and is
/// not acknowledged any more.
#[test]
fn a_gap_is_filled_while_the_window_is_closed() {
    let (mut node, peer) = node_with(SctpConfig { a_rwnd_bytes: 2 * FRAME, ..SctpConfig::default() });
    peer.send(&mut node, &[ordered(101, 1, b"second")]);
    let sack = Sack::only(&peer.send(&mut node, &[ordered(103, 3, b"fourth")]));
    assert_eq!((sack.a_rwnd, sack.blocks), (0, vec![[2, 2], [4, 4]]));
    let sack = Sack::only(&peer.send(&mut node, &[ordered(100, 0, b"first")]));
    assert_eq!((sack.cum_tsn, sack.a_rwnd, sack.blocks), (101, 0, vec![]));
    assert_eq!(node.read(Counter::SctpRxReneged), 1);
    assert_eq!(node.read_all(peer.id).len(), 2);
    peer.send(&mut node, &[ordered(102, 2, b"third")]);
    peer.send(&mut node, &[ordered(103, 3, b"fourth")]);
    assert_eq!(node.read_all(peer.id).len(), 2);
}

/// Each association has its reserve, and the peer of one with no room gets no acknowledgement.
#[test]
fn an_association_cannot_hold_the_reserve_of_another() {
    let config = SctpConfig {
        held_messages_reserve: 2,
        held_messages_shared: 3,
        associations_max: 2,
        ..SctpConfig::default()
    };
    let (mut node, peer) = node_with(config);
    for n in 0..8 {
        peer.send(&mut node, &[data(100 + n, b"x")]);
    }
    assert_eq!((node.sctp.resource_usage().rx_frames, node.read(Counter::SctpDropNoWindow)), (5, 3));
    let from_other = |tag, chunk| packet([FROM + 1, PORT], tag, &[chunk]);
    let init_ack = node.answers(1, &from_other(0, InitChunk::default().build(INIT))).remove(0);
    let (tag, cookie) = (word(init_ack.value(), 0), tlvs(&init_ack.value()[16..]).remove(0).1);
    node.answers(1, &from_other(tag, chunk(COOKIE_ECHO, 0, &cookie)));
    for n in 0..3 {
        node.answers(1, &from_other(tag, data(100 + n, b"x")));
    }
    assert_eq!(node.sctp.resource_usage().rx_frames, 7);
}

/// RFC 9260 s6.5: a message of a stream that does not exist is acknowledged, reported and dropped.
#[test]
fn a_stream_that_does_not_exist_is_reported() {
    let (mut node, peer) = node();
    node.upper.takes = true;
    let streams = node.info(peer.id).inbound_streams;
    let beyond = DataChunk { tsn: 100, stream: streams, ssn: Some(0), flags: 3 | 8, payload: b"x" };
    let sent = peer.send(&mut node, &[beyond.build()]);
    assert_eq!(Sack::only(&node.sent()).cum_tsn, 100);
    assert_eq!(sent[0].chunks, [(ERROR, 0, tlv(1, &[0, streams as u8, 0, 0]))]);
    assert_eq!((node.upper.taken.len(), node.read(Counter::SctpDropBadStream)), (0, 1));
    let last = DataChunk { tsn: 101, stream: streams - 1, ssn: Some(0), flags: 3, payload: b"x" };
    peer.send(&mut node, &[last.build()]);
    assert_eq!(node.upper.taken, [(header(streams - 1, false), b"x".to_vec())]);
}

/// RFC 9260 s6.2: a DATA chunk without user data ends the association. A fragment does, too, since
/// no DDP segment needs one.
#[test]
fn an_empty_message_or_a_fragment_aborts_the_association() {
    for (flags, payload, cause) in
        [(3, &b""[..], tlv(9, &[0, 0, 0, 100])), (1, b"x", tlv(13, b"B/E\0")), (2, b"x", tlv(13, b"B/E\0"))]
    {
        let (mut node, peer) = node();
        let bad = DataChunk { tsn: 100, stream: 0, ssn: None, flags, payload };
        let sent = peer.send(&mut node, &[bad.build(), data(101, b"x")]);
        assert_eq!((sent.len(), &sent[0].chunks[..]), (1, &[(ABORT, 0, cause)][..]));
        assert_eq!(node.take_events(), [(peer.id, Events::RESET)]);
    }
}

/// RFC 9260 s5.1 D: DATA may come with the COOKIE ECHO.
#[test]
fn data_may_come_with_the_cookie() {
    let mut node = Node::listening(2);
    let (tag, cookie) = Peer::cookie(&mut node, &InitChunk::default());
    let sent =
        node.answers(1, &packet([FROM, PORT], tag, &[chunk(COOKIE_ECHO, 0, &cookie), data(100, b"early")]));
    assert_eq!(sent[0].kinds(), [COOKIE_ACK]);
    let [(id, Events::ESTABLISHED), (_, Events::READABLE)] = node.take_events()[..] else { panic!("events") };
    assert_eq!(node.read_all(id), [(header(0, true), b"early".to_vec())]);
}

/// RFC 9260 s6: DATA counts in ESTABLISHED, SHUTDOWN-PENDING and SHUTDOWN-SENT, and SACK in
/// SHUTDOWN-RECEIVED in place of the last.
#[test]
fn data_in_another_state_is_dropped() {
    let mut a = Node::new(1, SctpConfig::default());
    a.connect(2);
    let tag = word(a.sent()[0].value(), 0);
    assert_eq!(a.answers(2, &packet([PORT, FROM], tag, &[data(100, b"x")])), []);
    let (mut node, peer) = node();
    peer.send(&mut node, &[chunk(SHUTDOWN, 0, &[0; 4])]);
    assert_eq!(peer.send(&mut node, &[data(100, b"x"), sack(1, 0, &[])]), []);
    assert_eq!(node.take_events(), [(peer.id, Events::PEER_CLOSED)]);
    assert_eq!(node.read(Counter::SctpDropUnexpectedChunk), 2);
}

/// RFC 9260 s9.2: in SHUTDOWN-SENT DATA is answered with SHUTDOWN at once, and with a SACK if the
/// cumulative TSN does not say it all. T2-shutdown starts again, and T5 bounds it.
#[test]
fn data_in_shutdown_sent_is_answered_with_shutdown() {
    let config =
        SctpConfig { association_retries: 3, rto_max: Nanos::from_millis(400), ..SctpConfig::default() };
    let (mut node, peer) = node_with(config);
    node.upper.takes = true;
    node.close(peer.id);
    node.sent();
    let sent = peer.send(&mut node, &[data(100, b"x")]);
    assert_eq!(sent[0].chunks, [(SHUTDOWN, 0, vec![0, 0, 0, 100])]);
    let sent = peer.send(&mut node, &[data(102, b"x")]);
    assert_eq!(
        (sent.len(), sent[0].kinds(), Sack::only(&sent).blocks),
        (1, vec![SACK, SHUTDOWN], vec![[2, 2]])
    );
    assert_eq!(node.upper.taken.len(), 2);
    for n in 0..19 {
        assert_eq!(node.state(peer.id), State::ShutdownSent, "{n}");
        node.pass(Nanos::from_millis(100));
        peer.send(&mut node, &[data(102, b"x")]);
    }
    node.pass(Nanos::from_millis(101));
    assert_eq!(node.sent().last().map(Sent::kinds), Some(vec![ABORT]));
    assert_eq!(node.take_events(), [(peer.id, Events::TIMED_OUT)]);
}

/// RFC 9260 s3.3.4: a TSN that no Gap Ack Block reaches, and one gap more than there are blocks.
#[test]
fn tsns_that_a_sack_cannot_report_are_dropped() {
    let (mut node, peer) = node();
    node.upper.takes = true;
    let far = peer.send(&mut node, &[data(99 + 65_536, b"x")]);
    assert_eq!(Sack::only(&far).blocks, Vec::<[u16; 2]>::new());
    for n in 1..=64 {
        peer.send(&mut node, &[data(100 + 2 * n, b"x")]);
    }
    let sack = Sack::only(&peer.send(&mut node, &[data(100 + 130, b"x")]));
    assert_eq!((sack.blocks.len(), sack.blocks.last()), (64, Some(&[129, 129])));
    let sack = Sack::only(&peer.send(&mut node, &[data(100, b"x")]));
    assert_eq!((sack.cum_tsn, sack.blocks.len()), (100, 64), "the first missing one is never dropped");
    assert_eq!(node.read(Counter::SctpDropNoWindow), 2);
}

/// RFC 9260 s5.2.4 (B): an old cookie with another tag of the peer counts until data has arrived.
#[test]
fn the_tag_of_a_peer_that_has_sent_data_stays() {
    for has_data in [false, true] {
        let mut node = Node::new(2, SctpConfig::default());
        let id = node.connect_from(PORT, addr(1, FROM), 1);
        node.sent();
        let (tag, old) = Peer::cookie(&mut node, &InitChunk { tag: 1, ..InitChunk::default() });
        let (_, cookie) = Peer::cookie(&mut node, &InitChunk { tag: 2, ..InitChunk::default() });
        assert_eq!(node.answers(1, &echo(tag, &cookie))[0].tag, 2);
        let immediate = DataChunk { tsn: 100, stream: 0, ssn: None, flags: 3 | 8, payload: b"x" }.build();
        if has_data {
            node.answers(1, &packet([FROM, PORT], tag, std::slice::from_ref(&immediate)));
        }
        node.answers(1, &echo(tag, &old));
        let mut sent = node.answers(1, &packet([FROM, PORT], tag, &[immediate]));
        sent.extend(node.sent());
        assert_eq!((sent[0].tag, Sack::only(&sent).cum_tsn), (if has_data { 2 } else { 1 }, 100));
        assert_eq!(node.state(id), State::Established);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// In any order, with duplicates, with chunks in one packet or in many, read at once or later:
    /// every message is delivered once, and ordered ones in order.
    #[test]
    fn every_message_is_delivered_once(
        kinds in prop::collection::vec((0u16..3, any::<bool>()), 1..60),
        arrivals in prop::collection::vec((any::<prop::sample::Index>(), 1usize..4, any::<bool>()), 0..120),
    ) {
        let (mut node, peer) = node();
        let mut next_ssn = [0u16; 3];
        let chunks: Vec<_> = kinds.iter().enumerate().map(|(n, &(stream, is_unordered))| {
            let ssn = (!is_unordered).then(|| {
                next_ssn[usize::from(stream)] += 1;
                next_ssn[usize::from(stream)] - 1
            });
            DataChunk { tsn: 100 + n as u32, stream, ssn, flags: 3, payload: &[n as u8, 1, 2] }.build()
        }).collect();
        let mut read = Vec::new();
        let in_order = chunks.iter().map(|chunk| (vec![chunk.clone()], true));
        let disorder = arrivals.into_iter().map(|(at, count, takes)| {
            let at = at.index(chunks.len());
            (chunks[at..].iter().take(count).cloned().collect(), takes)
        });
        for (chunks, takes) in disorder.collect::<Vec<_>>().into_iter().chain(in_order) {
            node.upper.takes = takes;
            peer.send(&mut node, &chunks);
            if takes {
                read.append(&mut node.upper.taken);
                read.extend(node.read_all(peer.id));
            }
        }
        prop_assert_eq!(read.len(), kinds.len());
        for stream in 0..3 {
            let ordered: Vec<u8> = read.iter()
                .filter(|(header, _)| header.stream == stream && !header.is_unordered)
                .map(|(_, payload)| payload[0]).collect();
            prop_assert!(ordered.is_sorted());
        }
        read.sort_by_key(|(_, payload)| payload[0]);
        for (n, (found, payload)) in read.iter().enumerate() {
            prop_assert_eq!(*found, header(kinds[n].0, kinds[n].1));
            prop_assert_eq!(payload, &[n as u8, 1, 2]);
        }
        prop_assert_eq!(node.sctp.resource_usage().rx_frames, 0);
    }
}
