//! The parameters that two stacks of ours negotiate at start-up, and data transfer with all of
//! them. Also how our initiator ends a connection when a fake peer replies wrongly or never.

use crate::common;

use common::peer::{PEER, Scene};
use common::{FAR, Pair, config, contents, pattern};
use ironwarp::config::TransportKind;
use ironwarp::memory::MemoryConfig;
use ironwarp::{
    AcceptParams, CompletionStatus, Config, ConnectFailure, ConnectParams, Event, Framing, Markers,
    MpaRevision, NegotiatedParams, QpAttr, QpState, QueuePair, READS_UNNEGOTIATED, ReadDepths, RejectParams,
    RemoteMemory, RtrKinds, SendWr, VerbsError,
};
use ironwarp_tcp::TcpEvents;

/// The near node, which connects, with its configuration changed by `near`; and the far node,
/// changed by `far`.
fn pair_of(near: impl Fn(&mut Config), far: impl Fn(&mut Config)) -> Pair {
    Pair::over(&MemoryConfig::default(), |address| {
        let mut config = config(address);
        if address.starts_with("10.0.0.1/") {
            near(&mut config)
        } else {
            far(&mut config)
        }
        config
    })
}

fn depths(ird: u16, ord: u16) -> ReadDepths {
    ReadDepths { ird, ord }
}

fn made_for(pair: &Pair, reads: ReadDepths) -> (QpAttr, QpAttr) {
    let attr = |cq| QpAttr { ird: reads.ird, ord: reads.ord, ..QpAttr::new(cq) };
    (attr(pair.near.cq), attr(pair.far.cq))
}

/// Connects with `connect` and accepts with `accept`. Returns the negotiated parameters of each
/// side.
#[track_caller]
fn settle(
    pair: &mut Pair,
    connect: &ConnectParams<'_>,
    accept: &AcceptParams<'_>,
) -> (QueuePair, QueuePair, [NegotiatedParams; 2]) {
    let (near_attr, far_attr) = made_for(pair, depths(16, 16));
    let near = pair.near.ctx.create_qp(pair.near.pd, &near_attr).unwrap();
    let far = pair.far.ctx.create_qp(pair.far.pd, &far_attr).unwrap();
    let _ = pair.far.ctx.listen(FAR.parse().unwrap());
    pair.far.turn();
    pair.near.ctx.connect_with(near, FAR.parse().unwrap(), connect).unwrap();
    pair.until("the request", |pair| !pair.far.events.is_empty());
    let Event::ConnectRequest { request, mpa_request, .. } = pair.far.events.remove(0) else { panic!() };
    let revision = if connect.revision == Some(MpaRevision::One) { 1 } else { 2 };
    assert_eq!((mpa_request.revision, mpa_request.peer_reads.is_some()), (revision, revision == 2));
    pair.far.ctx.accept_with(request, far, accept).unwrap();
    pair.until("both established", |pair| pair.near.is_established(near) && pair.far.is_established(far));
    let negotiated = |node: &common::Node, qp| node.ctx.qp_negotiated(qp).unwrap().unwrap();
    let both = [negotiated(&pair.near, near), negotiated(&pair.far, far)];
    (near, far, both)
}

/// The near node writes to the far node and reads back; the test compares every byte.
#[track_caller]
fn data_runs(pair: &mut Pair, near: QueuePair) {
    const BYTES: usize = 100_003;
    let (source, target) = (pair.near.memory(&pattern(BYTES, 3)), pair.far.memory(&vec![0; BYTES]));
    let home = pair.near.memory(&vec![0; BYTES]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let (out, back) = ([source.slice(0, BYTES as u32).unwrap()], [home.slice(0, BYTES as u32).unwrap()]);
    pair.near.ctx.post_send(near, &SendWr::write(1, &out, remote)).unwrap();
    pair.near.ctx.post_send(near, &SendWr::read(2, &back, remote)).unwrap();
    pair.until("two completions", |pair| pair.near.completions.len() == 2);
    assert!(pair.near.completions.iter().all(|done| done.status == CompletionStatus::Success));
    assert_eq!(contents(&home), pattern(BYTES, 3));
}

/// RFC 6581 s9.1: both sides use the smaller number, and each side reports what the other
/// requested. RFC 5040 s6.1; RFC 5044 s7.1.1.
#[test]
fn ird_and_ord_are_negotiated_and_reported() {
    let mut pair = Pair::new();
    let connect = ConnectParams { reads: Some(depths(4, 12)), ..Default::default() };
    let accept = AcceptParams { reads: Some(depths(8, 16)), ..Default::default() };
    let (near, _, [ours, theirs]) = settle(&mut pair, &connect, &accept);
    assert_eq!(ours, NegotiatedParams { revision: 2, peer_reads: Some(depths(8, 4)), reads: depths(4, 8) });
    assert_eq!(
        theirs,
        NegotiatedParams { revision: 2, peer_reads: Some(depths(4, 12)), reads: depths(8, 4) }
    );
    data_runs(&mut pair, near);
}

/// RFC 6581 s9.1: 0x3FFF leaves both sides unchanged.
#[test]
fn ird_and_ord_can_be_left_to_the_applications() {
    let mut pair = Pair::new();
    let connect =
        ConnectParams { reads: Some(depths(READS_UNNEGOTIATED, READS_UNNEGOTIATED)), ..Default::default() };
    let accept = AcceptParams { reads: Some(depths(3, 5)), ..Default::default() };
    let (_, _, [ours, theirs]) = settle(&mut pair, &connect, &accept);
    let unsaid = Some(depths(READS_UNNEGOTIATED, READS_UNNEGOTIATED));
    assert_eq!(ours, NegotiatedParams { revision: 2, peer_reads: unsaid, reads: depths(16, 16) });
    assert_eq!(theirs, NegotiatedParams { revision: 2, peer_reads: unsaid, reads: depths(3, 5) });
}

/// RFC 6581 s9.2: both models, every kind of indication, and revision 1.
/// RFC 5044 s7.1; RFC 6581 s5 and s6.
#[test]
fn data_runs_in_every_model() {
    let one = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
    let client_server = ConnectParams { peer_to_peer: Some(false), ..Default::default() };
    let by = |rtr| ConnectParams { rtr: Some(rtr), ..Default::default() };
    let indications = [RtrKinds::SEND, RtrKinds::WRITE, RtrKinds::READ].map(by);
    for connect in [one, client_server].iter().chain(&indications) {
        let mut pair = Pair::new();
        let (near, _, [ours, _]) = settle(&mut pair, connect, &AcceptParams::default());
        assert_eq!(ours.reads, depths(16, 16));
        data_runs(&mut pair, near);
        let sent = u64::from(connect.rtr.is_some());
        assert_eq!((pair.near.counter("iwarp_tx_rtrs"), pair.far.counter("iwarp_rx_rtrs")), (sent, sent));
        assert_eq!(pair.near.counter("iwarp_enhanced_startups"), u64::from(ours.revision == 2));
    }
}

/// RFC 5044 s4.3, s7.1.1: markers in either direction and in both; with and without CRCs.
#[test]
fn data_runs_with_markers_in_any_direction() {
    for (near_asks, far_asks) in [(true, false), (false, true), (true, true)] {
        for crc in [true, false] {
            let set = |markers: bool| {
                move |config: &mut Config| (config.mpa.markers, config.mpa.crc) = (markers, crc)
            };
            let mut pair = pair_of(set(near_asks), set(far_asks));
            let (near, ..) = settle(&mut pair, &ConnectParams::default(), &AcceptParams::default());
            data_runs(&mut pair, near);
            assert_eq!(pair.near.counter("iwarp_streams_with_markers"), 1);
        }
    }
}

/// RFC 5044 s4.4: CRCs are in use if one side asks for them.
#[test]
fn data_runs_with_crc_when_one_side_asks() {
    for (near_asks, far_asks) in [(true, false), (false, true), (false, false)] {
        let set = |crc: bool| move |config: &mut Config| config.mpa.crc = crc;
        let mut pair = pair_of(set(near_asks), set(far_asks));
        let (near, ..) = settle(&mut pair, &ConnectParams::default(), &AcceptParams::default());
        data_runs(&mut pair, near);
    }
}

/// RFC 6581 s9.1: a reject names the read depths that the responder would accept.
#[test]
fn a_reject_carries_ird_and_ord() {
    let mut pair = Pair::new();
    let near = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
    pair.far.ctx.listen(FAR.parse().unwrap()).unwrap();
    pair.near.ctx.connect(near, FAR.parse().unwrap(), b"").unwrap();
    pair.until("the request", |pair| !pair.far.events.is_empty());
    let Event::ConnectRequest { request, .. } = pair.far.events.remove(0) else { panic!() };
    let params =
        RejectParams { private_data: b"more", reads: Some(depths(0, 64)), ..RejectParams::default() };
    pair.far.ctx.reject_with(request, &params).unwrap();
    pair.until("the refusal", |pair| !pair.near.events.is_empty());
    let Event::Rejected { private_data, peer_reads, .. } = &pair.near.events[0] else { panic!() };
    assert_eq!((&private_data[..], *peer_reads), (&b"more"[..], Some(depths(0, 64))));
}

/// `connect` returns an error for parameters beyond the limits of the queue pair, and the queue
/// pair remains usable.
#[test]
fn parameters_beyond_the_queue_pairs_limits_are_refused_at_the_call() {
    let mut pair = Pair::new();
    let near = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
    let mut connect =
        |params: &ConnectParams<'_>| pair.near.ctx.connect_with(near, FAR.parse().unwrap(), params);
    let too_many = ConnectParams { reads: Some(depths(17, 1)), ..Default::default() };
    assert!(matches!(connect(&too_many), Err(VerbsError::OutOfRange { what: "ird", .. })));
    let too_many = ConnectParams { reads: Some(depths(1, 17)), ..Default::default() };
    assert!(matches!(connect(&too_many), Err(VerbsError::OutOfRange { what: "ord", .. })));
}

/// Q8, RFC 5044 s7.1.1, RFC 6581 s9: some peers read the length of private data as 8 bits. So the
/// stack sends no more than they can read, unless the configuration allows the limit of the RFCs.
/// In revision 2 the limit is four octets less.
#[test]
fn private_data_that_some_peers_misread_is_sent_only_where_that_is_allowed() {
    for (long, bytes) in [(false, [255, 251]), (true, [512, 508])] {
        let mut pair = pair_of(|config| config.mpa.long_private_data = long, |_| {});
        let limits = pair.near.ctx.limits();
        assert_eq!([limits.private_data_bytes, limits.private_data_bytes_enhanced], bytes);
        pair.far.ctx.listen(FAR.parse().unwrap()).unwrap();
        pair.far.turn();
        for (revision, most) in [MpaRevision::One, MpaRevision::Two].into_iter().zip(bytes) {
            let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
            let said = pattern(most + 1, 8);
            let by =
                |said| ConnectParams { private_data: said, revision: Some(revision), ..Default::default() };
            let refused = pair.near.ctx.connect_with(qp, FAR.parse().unwrap(), &by(&said));
            assert!(matches!(refused, Err(VerbsError::PrivateDataTooLong(bytes)) if bytes == most + 1));
            pair.near.ctx.connect_with(qp, FAR.parse().unwrap(), &by(&said[..most])).unwrap();
            pair.until("the request", |pair| !pair.far.events.is_empty());
            let Event::ConnectRequest { request, private_data, .. } = pair.far.events.remove(0) else {
                panic!()
            };
            assert_eq!(private_data[..], said[..most], "our send limit does not apply to received data");
            let refused = pair.far.ctx.reject(&request, &[0; 256]);
            assert!(
                matches!(refused, Err(VerbsError::PrivateDataTooLong(256))),
                "a reject has the same limit"
            );
            pair.far.ctx.reject(&request, b"").unwrap();
        }
    }
}

/// Why a connection request failed.
fn failure(event: &Event) -> Option<ConnectFailure> {
    if let Event::ConnectFailed { reason, .. } = event { Some(*reason) } else { None }
}

/// A node that has sent its request to a peer which sends only what the test specifies.
fn calls_a_silent_peer(params: &ConnectParams<'_>, bytes: usize) -> (Scene, QueuePair) {
    let mut scene = Scene::new(|_| {});
    let attr = QpAttr::new(scene.node.cq);
    let qp = scene.node.ctx.create_qp(scene.node.pd, &attr).unwrap();
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), params).unwrap();
    scene.hear("the request", bytes);
    (scene, qp)
}

/// TCP is closed, no further octets are sent, and the node does not connect again.
fn is_given_up(mut scene: Scene, qp: QueuePair) {
    let ends = TcpEvents::PEER_CLOSED | TcpEvents::RESET;
    scene.until("the end of TCP", |scene| scene.peer.events.intersects(ends));
    scene.turns(200);
    assert_eq!((&scene.peer.heard[..], scene.peer.connections), (&[][..], 1));
    assert!(scene.node.events.is_empty(), "more than one event: {:?}", scene.node.events);
    assert_eq!(scene.node.ctx.qp_state(qp).unwrap(), QpState::Error);
}

/// RFC 5044 s7.1.1, s7.1.2 and RFC 6581 s6: a reply with another key, our own request sent back,
/// unknown revisions, private data beyond the maximum, and missing enhanced data. Each closes TCP
/// and raises an event.
#[test]
fn a_malformed_reply_closes_tcp_and_raises_an_event() {
    const BAD: [&[u8]; 9] = [
        b"HTTP/1.1 400 Bad Request",
        b"MPA ID Rep Fram\0\x50\x02\x00\x04\x00\x10\x00\x10",
        b"X",
        b"MPA ID Req Frame\x50\x02\x00\x04\xc0\x10\xc0\x10",
        b"MPA ID Rep Frame\x40\x00\x00\x00",
        b"MPA ID Rep Frame\x50\x03\x00\x04\x00\x10\x00\x10",
        b"MPA ID Rep Frame\x50\x02\x02\x01",
        b"MPA ID Rep Frame\x50\x02\x00\x00",
        b"MPA ID Rep Frame\x50\x02\x00\x03\x00\x10\x00",
    ];
    for octets in BAD {
        let (mut scene, qp) = calls_a_silent_peer(&ConnectParams::default(), 24);
        scene.peer.say(octets);
        assert_eq!(scene.event("the failure", failure), ConnectFailure::Protocol, "{octets:02x?}");
        assert_eq!(scene.node.counter("iwarp_startup_errors"), 1);
        is_given_up(scene, qp);
    }
}

/// RFC 5044 s7.1.1, s7.1.2: the same in revision 1, where a reply with enhanced data is an error
/// too.
#[test]
fn a_malformed_reply_ends_a_revision_1_initiator_too() {
    const BAD: [&[u8]; 5] = [
        b"MPA ID Rep Fram\0\x40\x01\x00\x00",
        b"MPA ID Req Frame\x40\x01\x00\x00",
        b"MPA ID Rep Frame\x40\x00\x00\x00",
        b"MPA ID Rep Frame\x40\x01\x02\x01",
        b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x10\x00\x10",
    ];
    let params = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
    for octets in BAD {
        let (mut scene, qp) = calls_a_silent_peer(&params, 20);
        scene.peer.say(octets);
        assert_eq!(scene.event("the failure", failure), ConnectFailure::Protocol, "{octets:02x?}");
        assert_eq!(scene.node.counter("iwarp_startup_errors"), 1);
        is_given_up(scene, qp);
    }
}

/// RFC 5044 s7.1.2: a responder accepts the TCP connection and never replies, or never completes
/// its reply. The initiator waits no longer than the start-up timeout.
#[test]
fn a_missing_reply_times_out_start_up() {
    for begun in [&b""[..], b"MPA ID Rep", b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x10\x00"] {
        let (mut scene, qp) = calls_a_silent_peer(&ConnectParams::default(), 24);
        if !begun.is_empty() {
            scene.peer.say(begun);
        }
        assert_eq!(scene.event("the failure", failure), ConnectFailure::TimedOut, "{begun:02x?}");
        assert_eq!(scene.node.counter("iwarp_startup_errors"), 0, "a timeout is not a start-up error");
        is_given_up(scene, qp);
    }
}

/// RFC 5044 s7.1.1: CRCs are in use unless neither side asks for them; the receiver of a direction
/// asks for its markers. Both sides report the result.
#[test]
fn query_returns_the_negotiated_crc_and_markers() {
    let choices = [(false, false), (false, true), (true, false), (true, true)];
    for (crcs, markers) in choices.iter().flat_map(|crcs| choices.map(|markers| (*crcs, markers))) {
        let chosen =
            |crc, markers| move |config: &mut Config| (config.mpa.crc, config.mpa.markers) = (crc, markers);
        let mut pair = pair_of(chosen(crcs.0, markers.0), chosen(crcs.1, markers.1));
        let (near, far, _) = settle(&mut pair, &ConnectParams::default(), &AcceptParams::default());
        let crc = crcs.0 || crcs.1;
        let transport = TransportKind::Tcp;
        let ours = Framing { transport, crc, markers: Markers { sent: markers.1, received: markers.0 } };
        let theirs = Framing { transport, crc, markers: Markers { sent: markers.0, received: markers.1 } };
        assert_eq!(pair.near.ctx.query_qp(near).unwrap().framing, Some(ours), "{crcs:?} {markers:?}");
        assert_eq!(pair.far.ctx.query_qp(far).unwrap().framing, Some(theirs), "{crcs:?} {markers:?}");
        data_runs(&mut pair, near);
    }
}
