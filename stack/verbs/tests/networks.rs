//! Networks other than plain IPv4: IPv6, VLANs, several addresses, and a node that connects to
//! itself.

use crate::common;

use std::net::{Ipv6Addr, SocketAddr};

use common::tap::Tap;
use common::{Node, Pair, config, contents, pattern};
use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{CompletionStatus, Config, Event, QpAttr, QueuePair, RecvWr, RemoteMemory, SendWr};

/// Transfers 200 000 bytes by a Write, by a Send and by a Read; all must arrive.
#[track_caller]
fn exchange(pair: &mut Pair, near: QueuePair, far: QueuePair) {
    const BYTES: usize = 200_000;
    let sent = pattern(BYTES, 7);
    let (source, target) = (pair.near.memory(&sent), pair.far.memory(&[0; BYTES]));
    let (landing, back) = (pair.far.memory(&[0; BYTES]), pair.near.memory(&[0; BYTES]));
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let all = |region: &ironwarp::Region| [region.slice(0, BYTES as u32).expect("inside")];
    pair.far.ctx.post_recv(far, &RecvWr::new(0, &all(&landing))).expect("room");
    pair.near.ctx.post_send(near, &SendWr::write(1, &all(&source), remote)).expect("room");
    pair.near.ctx.post_send(near, &SendWr::send(2, &all(&source))).expect("room");
    pair.near.ctx.post_send(near, &SendWr::read(3, &all(&back), remote).fenced()).expect("room");
    pair.until("the exchange", |pair| pair.near.completions.len() == 3 && pair.far.completions.len() == 1);
    assert!(pair.near.completions.drain(..).all(|one| one.status == CompletionStatus::Success));
    for region in [&target, &landing, &back] {
        assert!(contents(region) == sent);
    }
}

/// A pair whose nodes `net` configures by number, with the server at `at`.
fn pair_with(port: &MemoryConfig, net: impl Fn(&mut Config, u8), at: &str) -> Pair {
    let number = |address: &str| if address.starts_with("10.0.0.1/") { 1 } else { 2 };
    let mut pair = Pair::over(port, |address| {
        let mut config = config(address);
        net(&mut config, number(address));
        config.validate().expect("a valid configuration");
        config
    });
    pair.at = at.parse().expect("an address");
    pair
}

fn with_ipv6(config: &mut Config, number: u8) {
    config.net.addresses = vec![format!("fd00::{number}/64")];
    config.net.dad_probes_ipv6 = 0;
}

/// RFC 8200: the whole stack over IPv6, with and without a device that does the checksums.
#[test]
fn a_connection_over_ipv6_sends_writes_and_reads() {
    for port in [MemoryConfig::default(), MemoryConfig::default().offloading()] {
        let mut pair = pair_with(&port, with_ipv6, "[fd00::2]:4791");
        let (near, far) = pair.connect();
        exchange(&mut pair, near, far);
        assert!(pair.near.counter("net_nd_solicitations_sent") > 0, "the neighbour was solicited");
        assert_eq!(pair.far.counter("net_drop_l4_checksum") + pair.near.counter("net_drop_l4_checksum"), 0);
    }
}

/// Full segments fill the MTU and do not exceed it: those of IPv6 have 20 bytes less than IPv4's,
/// and RFC 5044 s3 limits a ULPDU to 64 768 octets.
#[test]
fn full_segments_fit_the_mtu_of_jumbo_frames() {
    for (mtu_bytes, markers) in [(9216, false), (9216, true), (65_400, false), (65_400, true)] {
        for at in ["10.0.0.2:4791", "[fd00::2]:4791"] {
            let port = MemoryConfig { mtu_bytes, ..MemoryConfig::default() };
            let net = |config: &mut Config, number| {
                with_ipv6(config, number);
                (config.port.mtu, config.mpa.markers) = (mtu_bytes, markers);
            };
            let mut pair = pair_with(&port, net, at);
            let (near, far) = pair.connect();
            exchange(&mut pair, near, far);
            let segments = 3 * 200_000usize.div_ceil(usize::from(mtu_bytes) - 200);
            let sent = pair.near.counter("tcp_tx_segments") + pair.far.counter("tcp_tx_segments");
            assert!(sent < 2 * segments as u64 + 12, "{sent} segments for {segments} of data");
        }
    }
}

#[test]
fn a_listener_for_all_addresses_of_ipv6_takes_connections_to_each() {
    for at in ["[fd00::2]:4791", "[fd00:1::2]:4791"] {
        let net = |config: &mut Config, number: u8| {
            with_ipv6(config, number);
            config.net.addresses.push(format!("fd00:1::{number}/64"));
        };
        let mut pair = pair_with(&MemoryConfig::default(), net, at);
        pair.far.ctx.listen("[::]:4791".parse().expect("an address")).expect("room");
        let (near, far) = pair.connect();
        exchange(&mut pair, near, far);
    }
}

/// RFC 9293 s3.9.1.1 (MUST-44): a connect names no local address, so the network layer selects it
/// before the first SYN: the one on the network of the peer.
#[test]
fn the_local_address_of_a_connect_is_on_the_network_of_the_peer() {
    for (at, local) in
        [("10.0.0.2:4791", "10.0.0.1"), ("[fd00::2]:4791", "fd00::1"), ("[fd00:1::2]:4791", "fd00:1::1")]
    {
        let net = |config: &mut Config, number: u8| {
            with_ipv6(config, number);
            config.net.addresses.push(format!("fd00:1::{number}/64"));
        };
        let mut pair = pair_with(&MemoryConfig::default(), net, at);
        pair.far.ctx.listen(pair.at).expect("room");
        pair.turn();
        let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).expect("a queue pair");
        pair.near.ctx.connect(qp, pair.at, b"").expect("connect");
        let asked = |event: &Event| match event {
            Event::ConnectRequest { remote, .. } => Some(remote.ip()),
            _ => None,
        };
        pair.until("the request", |pair| pair.far.events.iter().any(|event| asked(event).is_some()));
        assert_eq!(pair.far.events.iter().find_map(asked), Some(local.parse().expect("an address")));
    }
}

/// IEEE 802.1Q s9.6: IPv4 and IPv6 in a VLAN. Every frame has the tag, with the priority in its
/// upper three bits.
#[test]
fn connections_in_a_vlan_send_write_and_read() {
    for at in ["10.0.0.2:4791", "[fd00::2]:4791"] {
        let net = |config: &mut Config, number: u8| {
            with_ipv6(config, number);
            (config.net.vlan, config.net.vlan_priority) = (Some(42), 5);
        };
        let mut pair = pair_with(&MemoryConfig::default(), net, at);
        let tap = Tap::on(&pair.near);
        let (near, far) = pair.connect();
        exchange(&mut pair, near, far);
        assert_eq!(pair.far.counter("net_drop_vlan") + pair.far.counter("net_drop_untagged"), 0);
        Tap::end(&pair.near);
        let frames = tap.frames();
        assert!(frames.len() > 3 * 20_000 / 1500, "{} frames", frames.len());
        for frame in frames {
            assert_eq!(frame[12..16], [0x81, 0x00, 0xa0, 42]);
        }
    }
}

#[test]
fn nodes_of_different_vlans_cannot_connect() {
    let net = |config: &mut Config, number: u8| config.net.vlan = Some(u16::from(number));
    let mut pair = pair_with(&MemoryConfig::default(), net, "10.0.0.2:4791");
    let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).expect("a queue pair");
    pair.near.ctx.connect(qp, pair.at, b"").expect("connect");
    pair.until("the failure", |pair| {
        pair.near.events.iter().any(|event| matches!(event, Event::ConnectFailed { .. }))
    });
    assert!(pair.far.counter("net_drop_vlan") > 0);
}

/// RFC 4862 s5.4.2: an address is probed first, by a solicitation from no address; a connect
/// meanwhile waits.
#[test]
fn a_connection_waits_until_its_address_may_be_used() {
    let net = |config: &mut Config, number: u8| {
        with_ipv6(config, number);
        config.net.dad_probes_ipv6 = 1;
        config.mpa.startup_timeout_ms = 20_000;
    };
    let mut pair = pair_with(&MemoryConfig::default(), net, "[fd00::2]:4791");
    let tap = Tap::on(&pair.near);
    let (near, far) = pair.connect();
    exchange(&mut pair, near, far);
    Tap::end(&pair.near);
    let frames = tap.frames();
    let own = "fd00::1".parse::<Ipv6Addr>().expect("an address").octets();
    // IPv6 with the next header 58 (ICMPv6) from `::`; type 135 is a solicitation, for the address
    // 8 bytes on.
    let is_probe = |frame: &Vec<u8>| {
        frame[12..14] == [0x86, 0xdd]
            && (frame[20], frame[54]) == (58, 135)
            && frame[22..38] == [0; 16]
            && frame[62..78] == own
    };
    let probes: Vec<usize> = (0..frames.len()).filter(|&at| is_probe(&frames[at])).collect();
    let from_own = |frame: &Vec<u8>| frame[12..14] == [0x86, 0xdd] && frame[22..38] == own;
    let used = frames.iter().position(from_own).expect("the address is used");
    assert!(probes.len() == 1 && probes[0] < used, "probed at {probes:?}, used at {used}");
}

/// Frames to a local address are looped back: two queue pairs of one stack connect.
#[test]
fn a_node_connects_to_itself() {
    for at in ["10.0.0.1:4791", "[fd00::1]:4791"] {
        for port in [MemoryConfig::default(), MemoryConfig::default().offloading()] {
            connect_to_self(&port, at.parse().expect("an address"));
        }
    }
}

fn connect_to_self(port: &MemoryConfig, at: SocketAddr) {
    let (near, far) = pair(port, port);
    let mut own = config("10.0.0.1/24");
    with_ipv6(&mut own, 1);
    let mut node = Node::new(own, near);
    let client = node.ctx.create_qp(node.pd, &QpAttr::new(node.cq)).expect("a queue pair");
    let server = node.ctx.create_qp(node.pd, &QpAttr::new(node.cq)).expect("a queue pair");
    node.ctx.listen(at).expect("room");
    node.turn();
    node.ctx.connect(client, at, b"to myself").expect("connect");
    for _ in 0..common::TURNS_MAX {
        node.turn();
        let asked = node.events.iter().position(|event| matches!(event, Event::ConnectRequest { .. }));
        if let Some(asked) = asked
            && let Event::ConnectRequest { request, remote, .. } = node.events.remove(asked)
        {
            assert_eq!(remote.ip(), at.ip());
            node.ctx.accept(request, server, b"welcome").expect("accept");
        }
        if node.is_established(client) && node.is_established(server) {
            break;
        }
    }
    const BYTES: usize = 100_000;
    let sent = pattern(BYTES, 3);
    let (source, target, back) = (node.memory(&sent), node.memory(&[0; BYTES]), node.memory(&[0; BYTES]));
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let all = |region: &ironwarp::Region| [region.slice(0, BYTES as u32).expect("inside")];
    node.ctx.post_send(client, &SendWr::write(1, &all(&source), remote)).expect("room");
    node.ctx.post_send(client, &SendWr::read(2, &all(&back), remote).fenced()).expect("room");
    for _ in 0..common::TURNS_MAX {
        if node.completions.len() == 2 {
            break;
        }
        node.turn();
    }
    assert!(node.completions.iter().all(|one| one.status == CompletionStatus::Success));
    assert_eq!(node.completions.len(), 2);
    assert!(contents(&target) == sent && contents(&back) == sent);
    // Announcements are sent, but no frame of the connection is.
    let announced = node.counter("net_arp_requests_sent") + node.counter("net_nd_unsolicited_sent");
    assert_eq!(far.control().counts().rx_frames, announced);
}
