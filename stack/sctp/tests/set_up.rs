//! Set-up of an association (RFC 9260 s5.1), with what is lost, refused and reported.

use ironwarp_llp::{ConnectError, Events};
use ironwarp_sctp::{SctpConfig, State};
use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Nanos};

use crate::common::*;

/// RFC 9260 s5.1: INIT, INIT ACK, COOKIE ECHO, COOKIE ACK, and their tags. The listener keeps
/// nothing until the cookie returns.
#[test]
fn four_packets_set_up_an_association() {
    let client = SctpConfig {
        outbound_streams: 5,
        inbound_streams: 40,
        adaptation_code_point: Some(1),
        ..SctpConfig::default()
    };
    let (mut a, mut b) = (Node::new(1, client), Node::listening(2));
    let at_a = a.connect(2);

    let init = a.sent().remove(0);
    assert_eq!((init.ports, init.tag, init.kinds()), ([FROM, PORT], 0, vec![INIT]), "tag 0, alone");
    let tag_a = word(init.value(), 0);
    assert_eq!(tlvs(&init.value()[16..]), [(0xc006, vec![0, 0, 0, 1])], "the indication");

    let init_ack = b.answers(1, &init.packet()).remove(0);
    assert_eq!((init_ack.ports, init_ack.tag, init_ack.kinds()), ([PORT, FROM], tag_a, vec![INIT_ACK]));
    assert_eq!(b.associations(), 0, "no state");
    let tag_b = word(init_ack.value(), 0);
    let [(7, cookie)] = &tlvs(&init_ack.value()[16..])[..] else { panic!("a cookie") };

    let cookie_echo = a.answers(2, &init_ack.packet()).remove(0);
    assert_eq!((cookie_echo.tag, &cookie_echo.chunks[..]), (tag_b, &[(COOKIE_ECHO, 0, cookie.clone())][..]));
    assert_eq!(a.state(at_a), State::CookieEchoed);

    let cookie_ack = b.answers(1, &cookie_echo.packet()).remove(0);
    assert_eq!((cookie_ack.tag, cookie_ack.kinds()), (tag_a, vec![COOKIE_ACK]));
    assert_eq!(a.answers(2, &cookie_ack.packet()), []);

    let [(at_b, Events::ESTABLISHED)] = b.take_events()[..] else { panic!("one event") };
    assert_eq!(a.take_events(), [(at_a, Events::ESTABLISHED)]);
    let (at_a, at_b) = (a.info(at_a), b.info(at_b));
    assert_eq!((at_a.state, at_b.state), (State::Established, State::Established));
    assert_eq!((at_a.outbound_streams, at_a.inbound_streams), (5, 40), "s5.1.1: the smaller of both wishes");
    assert_eq!((at_b.outbound_streams, at_b.inbound_streams), (40, 5));
    assert_eq!((at_a.adaptation_code_point, at_b.adaptation_code_point), (None, Some(1)));
    assert!(at_a.listener.is_none() && at_b.listener.is_some());
}

/// RFC 9260 s4, notes 2 and 3, and s6.3.3 (E2): what is lost is sent again, after a time that
/// doubles.
#[test]
fn a_lost_packet_of_set_up_is_sent_again() {
    let (mut a, mut b) = (Node::new(1, SctpConfig::default()), Node::listening(2));
    let at_a = a.connect(2);
    let first = a.sent();
    a.pass(Nanos::from_millis(199));
    assert_eq!(a.sent(), []);
    a.pass(Nanos::from_millis(2));
    assert_eq!(a.sent(), first, "the same INIT");
    a.pass(Nanos::from_millis(398));
    assert_eq!(a.sent(), []);
    a.pass(Nanos::from_millis(2));
    let init = a.sent().remove(0);
    let init_ack = b.answers(1, &init.packet()).remove(0);
    let cookie_echo = a.answers(2, &init_ack.packet());
    a.pass(Nanos::from_millis(201));
    assert_eq!(a.sent(), cookie_echo, "the same COOKIE ECHO");
    b.answers(1, &cookie_echo[0].packet());
    a.pass(Nanos::from_millis(401));
    let again = a.sent();
    assert_eq!(again, cookie_echo);
    let cookie_ack = b.answers(1, &again[0].packet());
    assert_eq!(b.take_events().len(), 1, "RFC 9260 s5.2.4 (D): one association");
    a.answers(2, &cookie_ack[0].packet());
    assert_eq!(a.take_events(), [(at_a, Events::ESTABLISHED)]);
    a.pass(Nanos::from_secs(29));
    assert_eq!(a.sent(), [], "no timer is left but that of HEARTBEATs");
}

/// RFC 9260 s5.1.6: Max.Init.Retransmits bounds the INITs and the COOKIE ECHOs.
#[test]
fn a_silent_peer_is_given_up() {
    for (answers_init, kind) in [(false, INIT), (true, COOKIE_ECHO)] {
        let config =
            SctpConfig { rto_max: Nanos::from_millis(400), init_retries: 5, ..SctpConfig::default() };
        let (mut a, mut b) = (Node::new(1, config), Node::listening(2));
        let id = a.connect(2);
        let mut sent = a.sent();
        if answers_init {
            let init_ack = b.answers(1, &sent[0].packet());
            sent = a.answers(2, &init_ack[0].packet());
        }
        a.pass(Nanos::from_secs(5));
        sent.extend(a.sent());
        assert_eq!(sent.iter().flat_map(Sent::kinds).collect::<Vec<_>>(), [kind; 6]);
        assert_eq!(a.take_events(), [(id, Events::TIMED_OUT)]);
        a.sctp.release(id);
        assert_eq!((a.associations(), a.sctp.resource_usage().flows), (0, 0));
    }
}

/// Without a transmit buffer nothing is lost for good.
#[test]
fn set_up_survives_a_time_without_buffers() {
    let (mut a, mut b) = (Node::new(1, SctpConfig::default()), Node::listening(2));
    a.control.allow_allocations(0);
    let id = a.connect(2);
    assert_eq!((a.sent(), a.read(Counter::SctpTxNoBuffer)), (vec![], 1));
    a.control.allow_allocations(u64::MAX);
    a.pass(Nanos::from_millis(201));
    exchange(&mut a, &mut b);
    assert_eq!(a.state(id), State::Established);
}

/// Returns the ABORT that an INIT is answered with: its tag, flags and causes. `None` without an
/// answer. Nothing may change.
fn refusal(init: &InitChunk) -> Option<(u32, u8, Vec<u16>)> {
    let mut node = Node::listening(2);
    let answers = node.answers(1, &init.packet());
    assert_eq!((node.associations(), node.take_events()), (0, vec![]));
    let [answer] = &answers[..] else { return None };
    let [(ABORT, flags, causes)] = &answer.chunks[..] else { panic!("{answer:?}") };
    Some((answer.tag, *flags, tlvs(causes).into_iter().map(|(code, _)| code).collect()))
}

/// RFC 9260 s3.3.2 and s5.1.2 B: numbers and parameters that refuse an INIT. The ABORT has the
/// initiate tag, without the T bit.
#[test]
fn an_init_with_impossible_values_is_refused() {
    let init = InitChunk::default;
    let tag = init().tag;
    let bad_value = Some((tag, 0, vec![7]));
    assert_eq!(refusal(&InitChunk { a_rwnd: 1_499, ..init() }), bad_value);
    assert_eq!(refusal(&InitChunk { streams: [0, 1], ..init() }), bad_value);
    assert_eq!(refusal(&InitChunk { streams: [1, 0], ..init() }), bad_value);
    let host_name = vec![tlv(5, &[10, 0, 0, 1]), tlv(11, b"peer.example\0")];
    assert_eq!(refusal(&InitChunk { parameters: host_name, ..init() }), Some((tag, 0, vec![])));
    let short_address = vec![tlv(5, &[10, 0, 0])];
    assert_eq!(refusal(&InitChunk { parameters: short_address, ..init() }), Some((tag, 0, vec![13])));
    let partial = vec![tlv(5, &[10, 0, 0, 1]), vec![0xc0, 6, 0, 9, 0, 0, 0, 1]];
    assert_eq!(refusal(&InitChunk { parameters: partial, ..init() }), Some((tag, 0, vec![13])));
    assert_eq!(refusal(&InitChunk { tag: 0, ..init() }), None, "no tag to answer to");
}

/// RFC 9260 s8.4, rule 3: nobody listens.
#[test]
fn an_init_without_a_listener_is_refused() {
    let mut node = Node::new(2, SctpConfig::default());
    let answers = node.answers(1, &InitChunk::default().packet());
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].tag, &answers[0].chunks[..]), (Peer::OWN_TAG, &[(ABORT, 0, vec![])][..]));
    let listener = node.listen();
    Peer::cookie(&mut node, &InitChunk::default());
    node.sctp.unlisten(listener);
    assert_eq!(node.answers(1, &InitChunk::default().packet())[0].kinds(), [ABORT]);
}

/// RFC 9260 s8.4, rule 3: the side that opens may try again.
#[test]
fn a_refused_init_is_sent_again_as_often_as_configured() {
    let mut a = Node::new(1, SctpConfig { refused_retries: 2, ..SctpConfig::default() });
    let id = a.connect(2);
    for delay_ms in [201, 401] {
        let tag = word(a.sent()[0].value(), 0);
        a.answers(2, &packet([PORT, FROM], tag, &[chunk(ABORT, 0, &[])]));
        assert_eq!((a.state(id), a.sent()), (State::CookieWait, vec![]));
        a.pass(Nanos::from_millis(delay_ms));
    }
    let tag = word(a.sent()[0].value(), 0);
    a.answers(2, &packet([PORT, FROM], tag, &[chunk(ABORT, 0, &[])]));
    assert_eq!(a.take_events(), [(id, Events::REFUSED)]);
}

/// RFC 9260 s5.1 and s8.5.1 A: an INIT is alone in its packet, and has tag 0.
#[test]
fn an_init_that_is_bundled_or_has_a_tag_is_not_processed() {
    let mut node = Node::listening(2);
    let init = InitChunk::default().build(INIT);
    let cookie_ack = chunk(COOKIE_ACK, 0, &[]);
    assert_eq!(node.answers(1, &packet([FROM, PORT], 0, &[init.clone(), cookie_ack.clone()])), []);
    assert_eq!(node.answers(1, &packet([FROM, PORT], 0, &[cookie_ack, init.clone()])), []);
    assert_eq!(node.read(Counter::SctpDropTag), 2);
    let [answer] = &node.answers(1, &packet([FROM, PORT], 99, &[init]))[..] else { panic!("one answer") };
    assert_eq!((answer.tag, &answer.chunks[..]), (99, &[(ABORT, 1, vec![])][..]), "out of the blue");
}

/// RFC 9260 s3.2.1 and s3.2.2: what an INIT ACK reports, and what is not read.
#[test]
fn unrecognized_parameters_are_reported_as_their_types_ask() {
    let mut node = Node::listening(2);
    let indication = tlv(0xc006, &[0, 0, 0, 9]);
    for (kind, reports, stops) in
        [(0x3ff0, false, true), (0x7ff0, true, true), (0x8000, false, false), (0xfff0, true, false)]
    {
        let unrecognized = tlv(kind, b"12345");
        let tag = u32::from(kind);
        let parameters = vec![unrecognized.clone(), indication.clone()];
        let init = InitChunk { tag, parameters, ..InitChunk::default() };
        let reply = node.answers(1, &init.packet()).remove(0);
        let parameters = tlvs(&reply.value()[16..]);
        let reported: Vec<_> = parameters.iter().filter(|(kind, _)| *kind == 8).collect();
        assert_eq!(reported.first().map(|(_, value)| &value[..]), reports.then_some(&unrecognized[..9]));
        let cookie = &parameters.iter().find(|(kind, _)| *kind == 7).expect("a cookie").1;
        node.answers(1, &echo(word(reply.value(), 0), cookie));
        let [(id, Events::ESTABLISHED)] = node.take_events()[..] else { panic!("{kind:#x}") };
        assert_eq!(node.info(id).adaptation_code_point, (!stops).then_some(9));
        node.sctp.release(id);
    }
}

/// An INIT full of parameters to report is answered with an INIT ACK that fits the path.
#[test]
fn reports_that_do_not_fit_are_left_out() {
    let mut node = Node::listening(2);
    let parameters = vec![tlv(0xfff0, &[]); 300];
    Peer::cookie(&mut node, &InitChunk { parameters, ..InitChunk::default() });
}

/// Starts a connection, and returns the answers to an INIT ACK with the right tag, and the events.
fn answers_to_init_ack(tag_of_packet: Option<u32>, init_ack: &InitChunk) -> (Vec<Sent>, Vec<Events>, u32) {
    let mut a = Node::new(1, SctpConfig::default());
    a.connect(2);
    let tag = word(a.sent()[0].value(), 0);
    let packet = packet([PORT, FROM], tag_of_packet.unwrap_or(tag), &[init_ack.build(INIT_ACK)]);
    let answers = a.answers(2, &packet);
    (answers, a.take_events().into_iter().map(|(_, event)| event).collect(), tag)
}

/// RFC 9260 s3.3.3 and s5.1.2 B: an INIT ACK that refuses itself ends the attempt.
#[test]
fn an_init_ack_with_impossible_values_ends_the_attempt() {
    let cookie = vec![tlv(7, b"cookie")];
    let init_ack = || InitChunk { parameters: cookie.clone(), ..InitChunk::default() };
    let cases = [
        (InitChunk { streams: [0, 1], ..init_ack() }, vec![7]),
        (InitChunk { streams: [1, 0], ..init_ack() }, vec![7]),
        (InitChunk { parameters: vec![], ..init_ack() }, vec![2]),
        (InitChunk { parameters: vec![tlv(7, b"cookie"), tlv(11, b"name\0")], ..init_ack() }, vec![]),
        (InitChunk { parameters: vec![tlv(7, &[7; 1_465])], ..init_ack() }, vec![4]),
    ];
    for (init_ack, causes) in cases {
        let (answers, events, _) = answers_to_init_ack(None, &init_ack);
        let [(ABORT, 0, value)] = &answers[0].chunks[..] else { panic!("{answers:?}") };
        assert_eq!(answers[0].tag, Peer::OWN_TAG);
        assert_eq!(tlvs(value).into_iter().map(|(code, _)| code).collect::<Vec<_>>(), causes);
        assert_eq!(events, [Events::REFUSED]);
    }
    let (answers, events, tag) = answers_to_init_ack(None, &InitChunk { tag: 0, ..init_ack() });
    assert_eq!((answers[0].tag, &answers[0].chunks[..]), (tag, &[(ABORT, 1, vec![])][..]), "reflected");
    assert_eq!(events, [Events::REFUSED]);
    let (answers, events, _) = answers_to_init_ack(None, &InitChunk { a_rwnd: 1_499, ..init_ack() });
    assert_eq!((answers[0].kinds(), events), (vec![ABORT], vec![]), "a small window changes no state");
    let (answers, events, _) = answers_to_init_ack(Some(5), &init_ack());
    assert_eq!((answers, events), (vec![], vec![]), "another tag");
}

/// RFC 9260 s3.2.2: an ERROR behind COOKIE ECHO reports parameters of the INIT ACK.
#[test]
fn unrecognized_parameters_of_an_init_ack_are_reported_with_the_cookie() {
    let parameters = vec![tlv(0xc0f0, b"abc"), tlv(7, b"cookie"), tlv(0x80f0, b"no")];
    let (answers, ..) = answers_to_init_ack(None, &InitChunk { parameters, ..InitChunk::default() });
    let report = tlv(8, &tlv(0xc0f0, b"abc")[..7]);
    let chunks = vec![(COOKIE_ECHO, 0, b"cookie".to_vec()), (ERROR, 0, report[..11].to_vec())];
    assert_eq!(answers[0].chunks, chunks);
}

/// Limits and addresses that refuse a call.
#[test]
fn a_connection_needs_a_slot_and_a_free_flow() {
    let mut a = Node::new(1, SctpConfig { associations_max: 1, ..SctpConfig::default() });
    let id = a.connect(2);
    let mut connect = |local, remote| {
        let path = a.net.path_to(&Flow { local, remote }, ironwarp_types::MacAddr([2; 6]));
        a.sctp.connect(a.now, Flow { local, remote }, path, &mut a.wires).err()
    };
    assert_eq!(connect(addr(1, FROM), addr(2, PORT)), Some(ConnectError::InUse));
    assert_eq!(connect(addr(1, FROM), addr(3, PORT)), Some(ConnectError::Full));
    assert_eq!(connect(addr(1, 0), addr(3, PORT)), Some(ConnectError::InvalidAddress));
    assert_eq!(connect(addr(1, FROM), addr(3, 0)), Some(ConnectError::InvalidAddress));
    a.sctp.release(id);
    a.connect(3);
}

/// RFC 9260 s5.1: a lack of resources refuses the cookie.
#[test]
fn a_cookie_without_a_free_slot_is_refused() {
    let mut node = Node::new(2, SctpConfig { associations_max: 1, ..SctpConfig::default() });
    node.listen();
    let (tag, cookie) = Peer::cookie(&mut node, &InitChunk::default());
    node.connect_from(FROM, addr(3, PORT), 3);
    node.sent();
    let [answer] = &node.answers(1, &echo(tag, &cookie))[..] else { panic!("one answer") };
    assert_eq!((answer.tag, &answer.chunks[..]), (Peer::OWN_TAG, &[(ABORT, 0, tlv(4, &[]))][..]));
}

/// RFC 9260 s6.3.1: the set-up is a round trip for both sides, so the first loss does not wait for
/// RTO.Initial. One that took longer than that is none, since something was sent again (C5).
#[test]
fn the_set_up_measures_the_round_trip() {
    let SctpConfig { rto_min, rto_initial, .. } = SctpConfig::default();
    for (wait, rto) in [(Nanos::from_millis(1), rto_min), (rto_initial + Nanos::from_millis(50), rto_initial)]
    {
        let (mut a, mut b) = (Node::new(1, SctpConfig::default()), Node::listening(2));
        let at_a = a.connect(2);
        let init = a.frames();
        a.pass(wait);
        a.frames();
        init.iter().for_each(|frame| b.receive(frame));
        b.frames().iter().for_each(|frame| a.receive(frame));
        let echo = a.frames();
        b.pass(wait);
        echo.iter().for_each(|frame| b.receive(frame));
        let [(at_b, Events::ESTABLISHED)] = b.take_events()[..] else { panic!("no association") };
        assert_eq!((a.info(at_a).rto, b.info(at_b).rto), (rto, rto));
    }
}
