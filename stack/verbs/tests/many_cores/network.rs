//! The network sees a stack of several cores as one host.

use crate::many_cores::bench::{Bench, Plan, far_addr};
use ironwarp::memory::QueueRule;
use ironwarp::{
    ConnectFailure, ConnectParams, DisconnectReason, Event, Nanos, QpAttr, RemoteMemory, SendWr, VerbsError,
};
use ironwarp_testkit::{ICMP, Route, Segment};

const HOST_UNREACHABLE: u8 = 1;
const FRAGMENTATION_NEEDED: u8 = 4;

/// The number of ARP frames that the near node sent.
fn arp_frames(bench: &Bench) -> usize {
    bench.sent.iter().filter(|frame| frame.get(12..14) == Some(&[8, 6])).count()
}

/// RFC 1122 s2.3.2.1: four cores that need one neighbour cause one ARP request, and all receive the
/// result, whichever queue the reply arrives on.
#[test]
fn one_core_resolves_a_neighbour_for_all() {
    for queue in 0..4 {
        let mut bench = Plan::one_queue(4, queue).bench();
        (0..4).for_each(|_| bench.turn());
        bench.sent.clear();
        let qps = bench.connect([Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(arp_frames(&bench), 1, "the reply arrived on queue {queue}");
        assert_eq!(
            bench.near.core_counter(0, "net_arp_requests_sent"),
            bench.near.counter("net_arp_requests_sent")
        );
        bench.exchange(&qps, 3_000);
    }
}

/// RFC 826: the leader core replies to a request once, whichever core received it.
#[test]
fn a_request_is_answered_once_whichever_core_it_reaches() {
    for queue in 0..4 {
        let mut bench = Plan::one_queue(4, queue).bench();
        bench.sent.clear();
        let mut request = Route::v4(9, 1).arp(1, [2, 0, 0, 0, 0, 9]);
        request[..6].fill(0xff);
        bench.inject_near(&request);
        (0..4).for_each(|_| bench.turn());
        assert_eq!(arp_frames(&bench), 1);
        assert_eq!(bench.near.core_counter(0, "net_arp_replies_sent"), 1);
    }
}

/// An ICMP error about a packet of ours, from a router: destination unreachable with this code,
/// quoting the packet.
fn unreachable(packet: &[u8], code: u8, mtu_bytes: u16) -> Vec<u8> {
    let (sent, _) = Segment::read(packet).expect("a segment");
    let from_router = Route { macs: Route::v4(254, 1).macs, ips: [Route::v4(254, 1).ips[0], sent.ips[0]] };
    let head = [&[3, code, 0, 0, 0, 0][..], &mtu_bytes.to_be_bytes()].concat();
    from_router.packet(ICMP, &[&head, &packet[14..42]].concat())
}

/// semantics "Many cores": an ICMP error is steered by the flow that it quotes, not by its own
/// addresses.
#[test]
fn an_icmp_error_reaches_the_core_of_the_flow_that_it_quotes() {
    let mut bench = Plan::one_queue(2, 0).bench();
    for core in [1, 0] {
        let qps = bench.connect([Some(core)]);
        let target = bench.far.memory(&[0; 4000]);
        let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
        let source = bench.near.memory(&[7; 4000]);
        bench.plugged = false;
        bench.sent.clear();
        let all = [source.slice(0, 4000).expect("inside")];
        bench.near.ctx.post_send(qps[0], &SendWr::write(1, &all, remote)).expect("room");
        bench.until("a full packet", |bench| bench.sent.iter().any(|frame| frame.len() > 1_000));
        let packet = bench.sent.iter().find(|frame| frame.len() > 1_000).expect("a full packet").clone();
        bench.inject_near(&unreachable(&packet, FRAGMENTATION_NEEDED, 1_000));
        (0..2).for_each(|_| bench.turn());
        assert_eq!(bench.near.core_counter(core.into(), "tcp_rx_icmp"), 1, "{:?}", bench.near.counted());
        bench.plugged = true;
        bench.until("the Write", |bench| !bench.near.completions.is_empty());
        bench.near.completions.clear();
    }
    assert_eq!(bench.near.counter("tcp_drop_icmp"), 0);
}

/// RFC 9293 s3.9.2.2 (MUST-47, SHLD-25), RFC 1122 s4.2.3.9: a soft error ends no connection, and
/// the application is informed of it when the connection fails, open or not yet.
#[test]
fn a_soft_error_is_reported_to_the_application_when_the_connection_fails() {
    let impatient = |config: &mut ironwarp::Config| config.tcp.user_timeout = Nanos::from_millis(50);
    for reported in [true, false] {
        let mut bench = Plan { cores: 2, rule: Some(QueueRule::All(0)), tune: impatient }.bench();
        let open = bench.connect([Some(1)])[0];
        bench.plugged = false;
        bench.sent.clear();
        bench.near.ctx.post_send(open, &SendWr::send_inline(1, b"hello")).expect("room");
        let opening = bench.near.dial(Some(0), far_addr());
        let is_ipv4 = |frame: &&Vec<u8>| frame[12..14] == [8, 0];
        bench.until("a segment of each", |bench| bench.sent.iter().filter(is_ipv4).count() >= 2);
        let frames = std::mem::take(&mut bench.sent);
        for packet in frames.iter().filter(is_ipv4).filter(|_| reported) {
            bench.inject_near(&unreachable(packet, HOST_UNREACHABLE, 0));
        }
        (0..4).for_each(|_| bench.turn());
        assert!(bench.near.is_up(open));
        let opened = |event: &Event| matches!(event, Event::ConnectFailed { qp, .. } if *qp == opening);
        bench.until("both ends", |bench| bench.near.is_down(open) && bench.near.events.iter().any(opened));
        let disconnected = bench.near.events.iter().find_map(|event| match event {
            Event::Disconnected { qp, reason } if *qp == open => Some(*reason),
            _ => None,
        });
        let failed = bench.near.events.iter().find_map(|event| match event {
            Event::ConnectFailed { qp, reason, .. } if *qp == opening => Some(*reason),
            _ => None,
        });
        let want = if reported {
            (DisconnectReason::Unreachable, ConnectFailure::Unreachable)
        } else {
            (DisconnectReason::TimedOut, ConnectFailure::TimedOut)
        };
        assert_eq!((disconnected, failed), (Some(want.0), Some(want.1)));
    }
}

/// RFC 4862 s5.4: the leader core probes for an address; the other cores use it after that.
#[test]
fn a_connection_from_another_core_waits_until_the_address_is_ours() {
    let with_ipv6 = |config: &mut ironwarp::Config| {
        let number = if config.net.address.as_deref() == Some("10.0.0.1/24") { 1 } else { 2 };
        config.net.addresses = vec![format!("fd00::{number}/64")];
        config.net.dad_probes_ipv6 = 1;
        config.validate().expect("a valid configuration");
    };
    let mut bench = Plan { cores: 2, rule: Some(QueueRule::All(1)), tune: with_ipv6 }.bench();
    let at = "[fd00::2]:4791".parse().expect("an address");
    bench.far.ctx.listen(at).expect("room");
    bench.turn();
    let qp = bench.near.dial(Some(1), at);
    (0..50).for_each(|_| bench.turn());
    assert_eq!(bench.near.workers[1].resource_usage().resolving, 1);
    for _ in 0..300 {
        bench.advance(Nanos::from_millis(10));
        bench.turn();
    }
    bench.until("the connection", |bench| bench.near.is_up(qp));
    bench.exchange(&[qp], 5_000);
}

/// A connection to an absent host fails on each core. The stack sends no more ARP requests than one
/// host may.
#[test]
fn an_unresolved_neighbour_fails_on_every_core() {
    let mut bench = Plan::one_queue(2, 1).bench();
    let nobody = ([10, 0, 0, 77], far_addr().port()).into();
    bench.sent.clear();
    let qps = [bench.near.dial(Some(0), nobody), bench.near.dial(Some(1), nobody)];
    for _ in 0..1_200 {
        bench.advance(Nanos::from_millis(10));
        bench.turn();
    }
    for qp in qps {
        let failed = bench.near.events.iter();
        assert!(
            failed
                .into_iter()
                .any(|event| matches!(event, Event::ConnectFailed { qp: one, .. } if *one == qp))
        );
    }
    assert!(arp_frames(&bench) <= 13, "{} requests in twelve seconds", arp_frames(&bench));
}

/// The flow of a requested source port determines the core, whichever the context would select.
#[test]
fn a_source_port_selects_the_core_of_its_flow() {
    let mut bench = Plan { cores: 4, rule: None, tune: |_| () }.bench();
    let mut cores = std::collections::BTreeSet::new();
    for port in 5_000..5_016 {
        let source = Some(([10, 0, 0, 1], port).into());
        let qp = bench.near.ctx.create_qp(bench.near.pd, &QpAttr::new(bench.near.cq)).expect("a queue pair");
        let params = ConnectParams { source, ..ConnectParams::default() };
        bench.near.ctx.connect_with(qp, far_addr(), &params).expect("connect");
        bench.until("the connection", |bench| bench.near.is_up(qp));
        let info = bench.near.ctx.query_qp(qp).expect("there");
        assert_eq!(info.local, source);
        cores.extend(info.core);
    }
    assert_eq!(cores.len(), 4, "sixteen flows are on all cores");
    assert_eq!(bench.near.counter("cores_steered_out"), 0, "the peer's segments arrive at the right core");
}

#[test]
fn a_source_port_needs_an_address_and_its_own_core_if_there_are_several() {
    let mut bench = Plan { cores: 2, rule: None, tune: |_| () }.bench();
    let mut refused = 0;
    for core in [0, 1] {
        let attr = QpAttr { core: Some(core), ..QpAttr::new(bench.near.cq) };
        let qp = bench.near.ctx.create_qp(bench.near.pd, &attr).expect("a queue pair");
        let mut connect = |source: ([u8; 4], u16)| {
            let params = ConnectParams { source: Some(source.into()), ..ConnectParams::default() };
            bench.near.ctx.connect_with(qp, far_addr(), &params)
        };
        let wildcard = connect(([0; 4], 5_000));
        assert!(matches!(wildcard, Err(VerbsError::OutOfRange { what: "source port", value: 5_000, .. })));
        let other = connect(([10, 0, 0, 1], 5_000));
        refused += usize::from(matches!(other, Err(VerbsError::OutOfRange { what: "core", .. })));
    }
    assert_eq!(refused, 1, "the flow is on one of the two cores");
}
