//! Requirements of RFC 9293 that the other files do not cover, one script each.
//! `docs/conformance.csv` lists them.

use crate::common;

use common::node::{Node, addr};
use common::pattern::{Pattern, read_all};
use common::raw::{ACK, FIN, PORT, PSH, Peer, RST, SYN, Segment, captured, frame};
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ConnId, ConnectError, ListenError, State, TcpConfig, TcpEvents, Transport};
use ironwarp_testkit::URG;
use ironwarp_types::{Flow, Nanos};

const ISS: u32 = u32::MAX - 1_000;

fn script() -> Script {
    Script::accepted(TcpConfig::default(), 64_000)
}

fn listening(config: TcpConfig) -> Node {
    let mut node = Node::new(1, 1_500, config);
    node.tcp.listen(addr(1, PORT)).expect("room");
    node
}

/// A connection to a listener. Its SYN has these options.
fn opened(options: &[u8]) -> (Node, Peer, ConnId) {
    let mut node = listening(TcpConfig::default());
    let (peer, id) = Peer::open(&mut node, 40_000, ISS, options);
    (node, peer, id)
}

fn read(node: &mut Node, id: ConnId) -> u64 {
    let mut taken = 0;
    read_all(&mut node.tcp.rx(id), &mut taken);
    taken
}

/// RFC 9293 s3.10.7.4, eighth step in FIN-WAIT-1, and figure 13: the peer's FIN is acknowledged
/// although the ACK of our FIN is in the same burst, which ends the connection before pending ACKs
/// leave.
#[test]
fn a_fin_is_acknowledged_when_the_ack_of_ours_follows_in_the_same_burst() {
    let mut s = script();
    s.close();
    s.expect(&["F. 1 ack 1"]);
    s.peer("F. 1 ack 1 win 64000");
    s.peer(". 2 ack 2 win 64000");
    assert_eq!(s.events(), TcpEvents::PEER_CLOSED | TcpEvents::CLOSED);
    s.expect(&[". 2 ack 2"]);
}

/// RFC 9293 s3.1, MUST-1: the window field is unsigned.
#[test]
fn a_window_with_its_highest_bit_set_is_a_large_one() {
    for window in [0x8000, 0xffff] {
        let mut s =
            Script::accepted(TcpConfig { initial_window_segments: 60, ..TcpConfig::default() }, window);
        let done = s.transmit(&mut Pattern::new(1 << 20, 1_000), 100);
        assert_eq!(done.units, usize::from(window) / 1_000);
    }
}

/// RFC 9293 s3.1, MUST-2: SYN, SYN-ACK, ACK, payload, FIN and reset have a correct checksum.
/// MUST-45: all are sent from the connection's local address (RFC 1122 s3.3.4.3). [`captured`]
/// asserts both.
#[test]
fn every_sent_segment_has_a_correct_checksum_and_source() {
    let (mut node, mut peer, id) = opened(&[2, 4, 0x05, 0xb4]);
    let mut all = vec![];
    node.transmit(id, &mut Pattern::new(3_001, 1_460), 8);
    all.extend(peer.receive_all(&mut node));
    peer.send(&mut node, 101);
    node.flush();
    all.extend(peer.receive_all(&mut node));
    node.tcp.close(node.now, id, &mut node.wires);
    all.extend(peer.receive_all(&mut node));
    peer.send_raw(&mut node, Segment { dst_port: 1, ..peer.raw(ACK) });
    all.extend(captured(&mut node, peer.port));
    assert_eq!(
        all.iter().map(|captured| captured.flags & !PSH).collect::<Vec<_>>(),
        [ACK, ACK, ACK, ACK, FIN | ACK, RST]
    );
    node.connect(5_000, addr(2, 80), 2);
    assert!(captured(&mut node, 80)[0].has(SYN));
}

/// RFC 9293 s3.9.1.2, MUST-61 and MUST-60: no payload is held back for more, and the last segment
/// has PSH.
#[test]
fn the_last_available_segment_has_the_push_bit() {
    for bytes in [1, 1_460, 4_000] {
        let (mut node, mut peer, id) = opened(&[2, 4, 0x05, 0xb4]);
        node.transmit(id, &mut Pattern::new(bytes, 1_460), 32);
        let sent = peer.receive_all(&mut node);
        assert_eq!(sent.iter().map(|captured| captured.payload.len() as u64).sum::<u64>(), bytes);
        assert!(sent.last().is_some_and(|captured| captured.has(PSH)), "{sent:?}");
    }
}

/// RFC 9293 s3.9.1.2, SHLD-28: a source with enough bytes fills segments completely.
/// RFC 4821 s5.3; RFC 8201 s5.4.
#[test]
fn segments_have_the_maximum_length() {
    let (mut node, mut peer, id) = opened(&[2, 4, 0x05, 0xb4]);
    node.transmit(id, &mut Pattern::new(1 << 20, usize::MAX), 10);
    // The initial window.
    let sent: Vec<usize> =
        peer.receive_all(&mut node).iter().map(|captured| captured.payload.len()).collect();
    assert_eq!(sent, [1_460; 10]);
}

/// RFC 9293 s3.8.5, MUST-31 and s3.8.6, MUST-66: urgent data is ordinary data for every pointer,
/// with an open and with a closed window. SHLD-13: we send no urgent data.
#[test]
fn urgent_data_is_ordinary_data() {
    let (mut node, mut peer, id) = opened(&[]);
    for urgent in [0, 1, 100, 101, 65_535] {
        peer.send_raw(&mut node, Segment { flags: ACK | URG, urgent, ..peer.data(peer.seq, 100) });
        peer.seq = peer.seq.wrapping_add(100);
    }
    peer.send_raw(&mut node, Segment { urgent: 500, ..peer.raw(ACK | URG) });
    assert_eq!(read(&mut node, id), 500);
    node.transmit(id, &mut Pattern::new(100, 100), 8);
    let sent = peer.receive_all(&mut node);
    assert_eq!(sent.iter().map(|captured| captured.payload.len()).sum::<usize>(), 100);
    assert!(sent.iter().all(|captured| captured.flags & URG == 0 && captured.urgent == 0), "{sent:?}");
}

/// RFC 9293 s3.1, MUST-4, MUST-5, MUST-6, MUST-64: known and unknown options, at any alignment, in
/// segments of every kind.
#[test]
fn options_are_accepted_in_any_segment() {
    let lists: [&[u8]; 6] =
        [&[1], &[0], &[1, 1, 1, 253, 3, 9], &[254, 2], &[1, 2, 4, 2, 0], &[30, 10, 1, 2, 3, 4, 5, 6, 7, 8]];
    for list in lists {
        let options = || list.to_vec();
        let (mut node, mut peer, id) = opened(list);
        peer.send_raw(&mut node, Segment { options: options(), ..peer.data(peer.seq, 10) });
        peer.seq = peer.seq.wrapping_add(10);
        assert_eq!(read(&mut node, id), 10, "{list:?}");
        node.transmit(id, &mut Pattern::new(10, 10), 1);
        peer.receive_all(&mut node);
        peer.send_raw(&mut node, Segment { options: options(), ..peer.raw(ACK) });
        assert!(node.tcp.all_acked(id), "{list:?}");
        peer.send_raw(&mut node, Segment { options: options(), ..peer.raw(FIN | ACK) });
        assert_eq!(node.tcp.state(id), State::CloseWait);
        peer.seq = peer.seq.wrapping_add(1);
        peer.send_raw(&mut node, Segment { options: options(), ..peer.raw(RST) });
        assert!(node.take_events(id).contains(TcpEvents::RESET));
    }
}

/// RFC 9293 s3.2, MUST-64: an MSS option after an odd number of octets is valid.
#[test]
fn the_mss_is_parsed_at_any_alignment() {
    for pad in 0..4 {
        let options = [&vec![1; pad][..], &[2, 4, 0x03, 0xe8]].concat();
        let (node, _, id) = opened(&options);
        assert_eq!(node.tcp.emss(id), 1_000, "after {pad} octets");
    }
}

/// RFC 9293 s3.1, MUST-7: an invalid length harms neither its connection nor another.
#[test]
fn an_illegal_option_length_is_harmless_in_any_segment() {
    for broken in [&[3u8, 0][..], &[3, 1, 7], &[8, 200, 7], &[5], &[253, 0], &[2, 3, 1], &[0, 255, 255, 255]]
    {
        let (mut node, peer, id) = opened(broken);
        peer.send_raw(&mut node, Segment { options: broken.to_vec(), ..peer.data(peer.seq, 10) });
        assert_eq!(read(&mut node, id), 10, "{broken:?}");
    }
}

/// Parses an option list by RFC 9293 s3.1. Panics at an invalid length.
fn options_of(captured: &Segment) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    let mut rest = &captured.options[..];
    while let Some((&kind, after)) = rest.split_first() {
        match kind {
            0 => {
                assert!(after.iter().all(|&octet| octet == 0), "padding: {:?}", captured.options);
                break;
            }
            1 => rest = after,
            _ => {
                let len = usize::from(after[0]);
                assert!((2..=rest.len()).contains(&len), "{:?}", captured.options);
                all.push((kind, rest[2..len].to_vec()));
                rest = &rest[len..];
            }
        }
    }
    all
}

/// RFC 9293 s3.1, MUST-68 and MUST-69: in our option lists every option has its length, and zeros
/// follow the end. s3.7.1, MUST-14, SHLD-5, MAY-3, MUST-65: all SYNs, and no other segments,
/// announce our segment size. MUST-67: it is the MTU less both headers. RFC 1191 s3.1;
/// RFC 1122 s3.3.2.
#[test]
fn only_our_syns_announce_a_segment_size_of_the_mtu_less_forty() {
    for mtu in [576, 1_500, 9_000] {
        let mss = (mtu - 40u16).to_be_bytes().to_vec();
        let mut node = Node::new(1, mtu, TcpConfig::default());
        node.tcp.listen(addr(1, PORT)).expect("room");
        node.connect(5_000, addr(2, 80), 2);
        let syn = captured(&mut node, 80).remove(0);
        assert!(options_of(&syn).contains(&(2, mss.clone())), "{syn:?}");
        // All kinds of options but timestamps, which this peer's other segments would lack.
        let everything = [1, 1, 253, 10, 0, 0, 0, 1, 0, 0, 0, 0, 4, 2, 3, 3, 7, 2, 4, 0x23, 0];
        for offered in [&[][..], &everything] {
            let peer = Peer::open(&mut node, 40_000 + offered.len() as u16, ISS, offered);
            let (mut peer, id) = peer;
            peer.send_raw(&mut node, Segment { seq: peer.iss, ack: 0, ..peer.raw(SYN) });
            peer.send(&mut node, 10);
            node.transmit(id, &mut Pattern::new(10, 10), 1);
            node.tcp.close(node.now, id, &mut node.wires);
            for captured in peer.receive_all(&mut node) {
                let announces = options_of(&captured).iter().any(|(kind, _)| *kind == 2);
                assert_eq!(announces, captured.has(SYN), "{captured:?}");
            }
        }
    }
}

/// RFC 9293 s3.7.1, MUST-15: without an announced size, segments have 536 octets. MUST-16:
/// otherwise the smaller size applies.
#[test]
fn without_an_announcement_segments_have_536_octets() {
    for (options, emss) in [
        (&[][..], 536),
        (&[2, 4, 0x03, 0xe8], 1_000),
        (&[2, 4, 0x05, 0xb4], 1_460),
        (&[2, 4, 0xff, 0xff], 1_460),
    ] {
        let (mut node, mut peer, id) = opened(options);
        node.transmit(id, &mut Pattern::new(10_000, usize::MAX), 1);
        assert_eq!(peer.receive_all(&mut node)[0].payload.len(), emss);
    }
}

/// RFC 9293 s3.5, MUST-11: in SYN-RECEIVED a reset reports REFUSED for an active open, and ends a
/// passive open silently.
#[test]
fn a_reset_in_syn_received_is_reported_for_active_opens_only() {
    let mut s = Script::new(TcpConfig::default());
    s.connect();
    s.sent();
    s.peer("S 0 win 500 <mss 1460>");
    assert_eq!(s.node.tcp.state(s.id()), State::SynReceived);
    s.peer("R. 1 ack 1 win 0");
    assert_eq!(s.events(), TcpEvents::REFUSED);
    let mut node = listening(TcpConfig::default());
    let peer = Peer::new(PORT, 40_000, ISS);
    peer.send_raw(&mut node, peer.raw(SYN));
    assert_eq!(captured(&mut node, 40_000).len(), 1);
    peer.send_raw(&mut node, Segment { seq: ISS.wrapping_add(1), ..peer.raw(RST) });
    assert!(node.events.is_empty());
    let (_, id) = Peer::open(&mut node, 40_000, ISS, &[]);
    assert_eq!(node.tcp.state(id), State::Established);
}

/// RFC 9293 s3.9.1.1, MUST-41: a second listener is refused without side effects.
#[test]
fn a_second_listener_is_refused_without_side_effects() {
    let mut s = script();
    assert_eq!(s.node.tcp.listen(addr(1, 4_420)), Err(ListenError::InUse));
    s.peer("P. 1:101(100) ack 1 win 64000");
    assert_eq!(s.read(), 100);
    s.peer_port = 50_001;
    s.peer("S 0 win 65535 <mss 1460>");
    assert_eq!(s.node.sent().len(), 1);
}

/// RFC 9293 s3.9.1.1, MUST-42: the stack listens on a port while connections from it are opened,
/// actively or passively.
#[test]
fn a_port_can_be_listened_on_while_connections_from_it_open() {
    let mut node = Node::new(1, 1_500, TcpConfig::default());
    let sent = node.connect(PORT, addr(2, 80), 2);
    let crossed = node.connect(PORT, addr(2, 81), 2);
    let syn = Segment { src_port: 81, dst_port: PORT, flags: SYN, ..Segment::default() };
    node.receive(&frame(&syn));
    assert_eq!((node.tcp.state(sent), node.tcp.state(crossed)), (State::SynSent, State::SynReceived));
    node.tcp.listen(addr(1, PORT)).expect("room");
    node.sent();
    let (_, id) = Peer::open(&mut node, 40_000, ISS, &[]);
    assert_eq!(node.tcp.state(id), State::Established);
    assert_eq!((node.tcp.state(sent), node.tcp.state(crossed)), (State::SynSent, State::SynReceived));
}

/// RFC 9293 s3.9.1.1, MUST-46: connecting to a multicast, broadcast or unspecified address is
/// refused.
#[test]
fn an_open_to_a_multicast_or_unspecified_address_is_refused() {
    let mut node = Node::new(1, 1_500, TcpConfig::default());
    for remote in
        ["224.0.0.1:80", "255.255.255.255:80", "0.0.0.0:80", "10.0.0.2:0", "[ff02::1]:80", "[::]:80"]
    {
        let flow = Flow { local: addr(1, 5_000), remote: remote.parse().expect("an address") };
        let path = node.path_to(2);
        let refused = node.tcp.connect(node.now, flow, path, &mut node.wires);
        assert_eq!(refused, Err(ConnectError::InvalidAddress), "{remote}");
    }
    assert!(node.sent().is_empty());
}

/// RFC 9293 s3.9.1.1, MUST-43: a listener for one local address, or for all; an active open from a
/// named address. RFC 1122 s3.3.4.3.
#[test]
fn the_local_address_can_be_specified() {
    let mut node = Node::new(1, 1_500, TcpConfig::default());
    node.tcp.listen(addr(3, PORT)).expect("room");
    let syn = Segment { src_port: 40_000, dst_port: PORT, flags: SYN, ..Segment::default() };
    node.receive(&frame(&syn));
    assert_eq!(captured(&mut node, 40_000)[0].flags, RST | ACK);
    node.tcp.listen("0.0.0.0:4420".parse().expect("an address")).expect("room");
    node.receive(&frame(&syn));
    assert_eq!(captured(&mut node, 40_000)[0].flags & 0x3f, SYN | ACK);
}

/// RFC 9293 s3.5.3, SHLD-2: a reset may carry an explanation.
#[test]
fn a_reset_with_payload_is_a_reset() {
    let (mut node, peer, id) = opened(&[]);
    peer.send_raw(&mut node, Segment { payload: b"why".to_vec(), ..peer.raw(RST) });
    assert_eq!(node.take_events(id), TcpEvents::RESET);
    assert_eq!(read(&mut node, id), 0);
}

/// RFC 9293 s3.8.6, MUST-66: a reset is accepted although our window is closed.
#[test]
fn a_reset_is_accepted_with_a_closed_window() {
    let mut node = listening(TcpConfig { rcv_window_bytes: 1_000, ..TcpConfig::default() });
    let (mut peer, id) = Peer::open(&mut node, 40_000, ISS, &[]);
    loop {
        let window = u32::from(peer.receive_all(&mut node).last().map_or(1_000, |captured| captured.window));
        if window == 0 {
            break;
        }
        peer.send(&mut node, window.min(1_000) as usize);
        node.flush();
        node.flush();
    }
    peer.send_raw(&mut node, peer.raw(RST));
    assert!(node.take_events(id).contains(TcpEvents::RESET));
}

/// RFC 9293 s3.8.3, MUST-22 and MUST-23: SYNs have a limit like data, which can be set to three
/// minutes.
#[test]
fn syns_can_be_retransmitted_for_three_minutes() {
    let second = Nanos::from_secs(1);
    let config = TcpConfig {
        rto_initial: second,
        rto_min: second,
        syn_retries: 7,
        user_timeout: Nanos::from_secs(600),
        ..TcpConfig::default()
    };
    let mut s = Script::new(config);
    s.connect();
    let mut syns = s.sent().len();
    let mut lasted = 0;
    while !s.events().contains(TcpEvents::TIMED_OUT) {
        s.advance(second);
        syns += s.sent().len();
        lasted += 1;
    }
    assert_eq!(syns, 8);
    assert!(lasted >= 180, "{lasted} s");
}

/// RFC 9293 s3.8.3, MUST-20 and MUST-21: the user timeout is a setting, and the connection ends
/// when it expires.
#[test]
fn the_user_timeout_is_a_setting() {
    for seconds in [1, 100] {
        let config = TcpConfig { user_timeout: Nanos::from_secs(seconds), ..TcpConfig::default() };
        let mut s = Script::accepted(config, 64_000);
        s.transmit(&mut Pattern::new(100, 100), 1);
        let mut waited = 0;
        while !s.events().contains(TcpEvents::TIMED_OUT) {
            s.advance(Nanos::from_millis(100));
            waited += 1;
        }
        assert!((seconds * 10..=seconds * 10 + 20).contains(&waited), "{waited} tenths for {seconds} s");
    }
}

/// RFC 9293 s3.8.6.3, MUST-40: no ACK waits longer than one iteration.
#[test]
fn no_ack_waits_longer_than_one_iteration() {
    let (mut node, mut peer, _) = opened(&[]);
    peer.send(&mut node, 10);
    node.flush();
    assert_eq!(captured(&mut node, peer.port).len(), 1);
    assert_eq!(node.read(Counter::TcpTxAcks), 1);
}

/// RFC 9293 s3.4.1, MUST-8, SHLD-1, MUST-9: the ISNs of one flow follow the clock and reveal
/// nothing about other flows.
#[test]
fn initial_sequence_numbers_follow_the_clock_and_depend_on_a_secret() {
    let mut node = Node::new(1, 1_500, TcpConfig::default());
    let first = |node: &mut Node, port| {
        let id = node.connect(5_000, addr(2, port), 2);
        let syn = captured(node, port).remove(0);
        node.tcp.release(id);
        syn.seq
    };
    let (a, other) = (first(&mut node, 80), first(&mut node, 81));
    node.now += Nanos::from_secs(1);
    let later = first(&mut node, 80).wrapping_sub(a);
    // A tick is about four microseconds.
    assert!((200_000..300_000).contains(&later), "{later} in a second");
    assert!(other.wrapping_sub(a) > 1_000 && a.wrapping_sub(other) > 1_000);
}

/// RFC 9293 s3.8.6: an ACK and its window apply together. The new ACK with the old window would
/// permit more than the peer ever offered.
#[test]
fn the_window_of_an_ack_applies_before_the_ack_permits_sending() {
    let (mut node, mut peer, id) = opened(&[2, 4, 0x03, 0xe8]);
    peer.send_raw(&mut node, Segment { window: 300, ..peer.raw(ACK) });
    node.transmit(id, &mut Pattern::new(1_000, 1_000), 1);
    assert_eq!(peer.receive_all(&mut node)[0].payload.len(), 300);
    peer.send_raw(&mut node, Segment { window: 0, ..peer.raw(ACK) });
    node.transmit(id, &mut Pattern::new(0, 1), 1);
    assert_eq!(peer.receive_all(&mut node), []);
}

/// RFC 9293 s3.4: a number 2^31 away is unordered and acknowledges nothing.
#[test]
fn an_ack_half_the_sequence_space_away_is_ignored() {
    for bytes in [0, 100] {
        let (mut node, mut peer, id) = opened(&[]);
        node.transmit(id, &mut Pattern::new(bytes, 100), 1);
        peer.receive_all(&mut node);
        for distance in [(1u32 << 31) - 1, 1 << 31, (1 << 31) + 1] {
            peer.send_raw(
                &mut node,
                Segment { ack: peer.ack.wrapping_add(distance), ..peer.data(peer.seq, 10) },
            );
        }
        assert_eq!(node.tcp.acked_bytes(id), 0);
        assert_eq!(read(&mut node, id), 0);
    }
}
