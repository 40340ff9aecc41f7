//! Addresses as an application sees them: free ports to listen on, both ends of a connection,
//! sources of connects, ports.

use crate::common;

use std::net::SocketAddr;

use common::{Pair, config};
use ironwarp::memory::MemoryConfig;
use ironwarp::{
    Config, ConnectFailure, ConnectParams, Event, InterfaceAddress, LinkState, QpAttr, QueuePair, VerbsError,
};

/// Two nodes with two addresses each.
fn pair() -> Pair {
    Pair::over(&MemoryConfig::default(), |address| {
        let second = if address.starts_with("10.0.0.1") { "10.0.0.11/24" } else { "10.0.0.12/24" };
        let mut config: Config = config(address);
        config.net.addresses.push(second.into());
        config
    })
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Starts a connection from `source`.
fn connect_from(pair: &mut Pair, source: &str, to: SocketAddr) -> QueuePair {
    let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).expect("a queue pair");
    let params = ConnectParams { source: Some(at(source)), ..ConnectParams::default() };
    pair.near.ctx.connect_with(qp, to, &params).expect("connect");
    qp
}

fn failure_of(pair: &Pair, qp: QueuePair) -> Option<ConnectFailure> {
    pair.near.events.iter().find_map(|event| match event {
        Event::ConnectFailed { qp: failed, reason } if *failed == qp => Some(*reason),
        _ => None,
    })
}

/// Waits for a request, accepts it, and returns its addresses: local, then remote.
fn accept(pair: &mut Pair, near: QueuePair) -> (QueuePair, SocketAddr, SocketAddr) {
    let is_request = |event: &Event| matches!(event, Event::ConnectRequest { .. });
    pair.until("the request", |pair| pair.far.events.iter().any(is_request));
    let index = pair.far.events.iter().position(is_request).expect("a request");
    let Event::ConnectRequest { request, local, remote, .. } = pair.far.events.remove(index) else {
        unreachable!("found above")
    };
    let far = pair.far.ctx.create_qp(pair.far.pd, &QpAttr::new(pair.far.cq)).expect("a queue pair");
    pair.far.ctx.accept(request, far, b"").expect("accept");
    pair.until("both ends", |pair| pair.near.is_established(near) && pair.far.is_established(far));
    (far, local, remote)
}

#[test]
fn listening_on_port_0_returns_a_port_that_accepts() {
    let mut pair = pair();
    let first = pair.far.ctx.listen(at("10.0.0.2:0")).expect("a port");
    let second = pair.far.ctx.listen(at("0.0.0.0:0")).expect("a port");
    assert!(first.port() >= 49_152 && second.port() >= 49_152 && first.port() != second.port());
    assert_eq!((first.ip(), second.ip()), (at("10.0.0.2:1").ip(), at("0.0.0.0:1").ip()));
    pair.turn();
    for to in [first, at(&format!("10.0.0.12:{}", second.port()))] {
        let near = connect_from(&mut pair, "0.0.0.0:0", to);
        assert_eq!(accept(&mut pair, near).1, to);
    }
    assert!(pair.far.events.iter().all(|event| !matches!(event, Event::ListenFailed { .. })));
    pair.far.ctx.unlisten(first).expect("unlisten");
    pair.turn();
    let late = connect_from(&mut pair, "0.0.0.0:0", first);
    pair.until("the refusal", |pair| failure_of(pair, late).is_some());
    assert_eq!(failure_of(&pair, late), Some(ConnectFailure::Refused));
}

#[test]
fn both_ends_know_the_addresses_of_a_connection() {
    let mut pair = pair();
    let to = pair.far.ctx.listen(at("0.0.0.0:4791")).map(|_| at("10.0.0.12:4791")).expect("room");
    pair.turn();
    let near = connect_from(&mut pair, "0.0.0.0:0", to);
    let before = pair.near.ctx.query_qp(near).expect("there");
    assert_eq!((before.local, before.remote, before.core), (None, None, Some(0)));
    let (far, local, remote) = accept(&mut pair, near);
    // RFC 6724 s5, rule 8: the source shares the longest prefix.
    assert_eq!((local, remote.ip()), (to, at("10.0.0.11:1").ip()));
    let near_info = pair.near.ctx.query_qp(near).expect("there");
    let far_info = pair.far.ctx.query_qp(far).expect("there");
    assert_eq!((near_info.local, near_info.remote), (Some(remote), Some(to)));
    assert_eq!((far_info.local, far_info.remote), (Some(to), Some(remote)));
    pair.near.ctx.disconnect(near).expect("open");
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    assert_eq!(pair.near.ctx.query_qp(near).expect("there").local, Some(remote), "also after the end");
}

#[test]
fn a_connect_from_a_source_address_and_port_uses_both() {
    let mut pair = pair();
    pair.far.ctx.listen(pair.at).expect("room");
    pair.turn();
    let to = pair.at;
    for (source, expected) in [
        ("10.0.0.11:5000", "10.0.0.11:5000"),
        ("0.0.0.0:5001", "10.0.0.1:5001"),
        ("[::ffff:10.0.0.11]:5002", "10.0.0.11:5002"),
    ] {
        let near = connect_from(&mut pair, source, to);
        assert_eq!(accept(&mut pair, near).2, at(expected), "{source}");
    }
    let near = connect_from(&mut pair, "10.0.0.11:0", to);
    let remote = accept(&mut pair, near).2;
    assert!(remote.ip() == at("10.0.0.11:1").ip() && remote.port() != 0);
}

#[test]
fn a_source_that_is_foreign_or_in_use_fails_the_connect() {
    let mut pair = pair();
    pair.far.ctx.listen(pair.at).expect("room");
    pair.turn();
    let to = pair.at;
    let first = connect_from(&mut pair, "10.0.0.11:5000", to);
    accept(&mut pair, first);
    for (source, expected) in [
        ("10.0.0.11:5000", ConnectFailure::SourceNotAvailable),
        ("10.0.0.77:0", ConnectFailure::SourceNotAvailable),
        ("[fd00::1]:5000", ConnectFailure::SourceNotAvailable),
        ("224.0.0.1:5000", ConnectFailure::SourceNotAvailable),
    ] {
        let qp = connect_from(&mut pair, source, to);
        pair.until("the failure", |pair| failure_of(pair, qp).is_some());
        assert_eq!(failure_of(&pair, qp), Some(expected), "{source}");
    }
}

#[test]
fn a_port_reports_its_device_its_link_and_its_addresses() {
    let mut pair = pair();
    let info = pair.near.ctx.query_port(0).expect("a port");
    let address =
        |text: &str| InterfaceAddress { address: text.parse().expect("an address"), prefix_len: 24 };
    assert_eq!((info.device, info.mtu_bytes, info.memory_node), ("memory", 1500, None));
    assert_eq!(info.mac, MemoryConfig::default().mac);
    assert_eq!(info.addresses, [address("10.0.0.1"), address("10.0.0.11")]);
    assert_eq!(info.link, LinkState { up: true, speed_mbps: None });
    assert_eq!((pair.near.ctx.ports(), pair.near.stack.query_port(0).ok()), (1, Some(info)));
    assert!(matches!(
        pair.near.ctx.query_port(1),
        Err(VerbsError::OutOfRange { what: "port", value: 1, .. })
    ));
    pair.turn();
}

/// The link is read when the stack starts and whenever the core checks it.
#[test]
fn a_link_that_goes_down_is_seen_by_the_query() {
    let far_port = MemoryConfig { mac: ironwarp::MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near, far) = ironwarp::memory::pair(&MemoryConfig::default(), &far_port);
    let cable = near.control();
    let near = common::Node::new(config("10.0.0.1/24"), near);
    let far = common::Node::new(config("10.0.0.2/24"), far);
    let mut pair = Pair { near, far, at: at(common::FAR) };
    cable.set_link(false);
    pair.until("the loss", |pair| !pair.near.ctx.query_port(0).expect("a port").link.up);
    cable.set_link(true);
    pair.until("the link", |pair| pair.near.ctx.query_port(0).expect("a port").link.up);
}
