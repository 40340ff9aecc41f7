//! Several ports under one stack: each has its network, and connections of all ports share a
//! context and its queues.
//!
//! semantics "Many cores": a worker polls a list of ports, so that two fabrics work.

use crate::common;

use std::net::{IpAddr, SocketAddr};

use common::{Node, Pair, contents, pattern};
use ironwarp::memory::{MemoryConfig, MemoryControl, MemoryPort, QueueRule, pair, pair_of_queues};
use ironwarp::{
    Completion, CompletionStatus, Config, ConnectFailure, Event, MacAddr, QpAttr, QueuePair, RemoteMemory,
    SendWr, SetupError, Stack,
};

/// Node `number` of two networks, with jumbo frames in the second.
fn config(number: u8) -> Config {
    let text = format!(
        "[port]\ndevice.memory = {{}}\n[net]\naddresses = [\"10.0.0.{number}/24\", \"fd00::{number}/64\"]\ndad_probes_ipv6 = 0\n\
         [[fabrics]]\nport = {{ device.memory = {{}}, mtu = 9000 }}\n\
         net = {{ addresses = [\"10.1.0.{number}/24\", \"fd01::{number}/64\"], dad_probes_ipv6 = 0 }}\n"
    );
    let mut config = Config::from_toml(&text).expect("a valid configuration");
    let usual = common::config("10.0.0.1/24");
    (config.tcp, config.mpa) = (usual.tcp, usual.mpa);
    config
}

fn device(number: u8, mtu_bytes: u16) -> MemoryConfig {
    MemoryConfig {
        mac: MacAddr([2, 0, 0, 0, (mtu_bytes >> 8) as u8, number]),
        mtu_bytes,
        ..MemoryConfig::default()
    }
}

fn node(config: Config, first: MemoryPort, second: MemoryPort) -> Node {
    let builder = Stack::builder(config).memory_port(first).add_memory_ports(vec![second]);
    let (stack, worker) = builder.build_one().expect("a stack");
    let mut ctx = stack.context().expect("a context");
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(1024).expect("a completion queue"));
    Node { stack, worker, ctx, pd, cq, events: Vec::new(), completions: Vec::new() }
}

/// Two nodes with two links, and the client's ends of the links.
fn two_fabrics() -> (Pair, [MemoryControl; 2]) {
    let (near, far) = pair(&device(1, 1500), &device(2, 1500));
    let (near_jumbo, far_jumbo) = pair(&device(1, 9000), &device(2, 9000));
    let cables = [near.control(), near_jumbo.control()];
    let (near, far) = (node(config(1), near, near_jumbo), node(config(2), far, far_jumbo));
    (Pair { near, far, at: common::FAR.parse().expect("an address") }, cables)
}

fn connect(pair: &mut Pair, at: &str) -> QueuePair {
    pair.at = at.parse().expect("an address");
    pair.connect().0
}

/// Frames sent through each of them.
fn sent(cables: &[MemoryControl; 2]) -> [u64; 2] {
    [0, 1].map(|at| cables[at].counts().tx_frames)
}

/// Posts a Write of `bytes`, waits for it, and checks that it arrived.
#[track_caller]
fn write(pair: &mut Pair, qp: QueuePair, bytes: usize) {
    let data = pattern(bytes, 9);
    let (source, target) = (pair.near.memory(&data), pair.far.memory(&vec![0; bytes]));
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let all = [source.slice(0, bytes as u32).expect("inside")];
    pair.near.completions.clear();
    pair.near.ctx.post_send(qp, &SendWr::write(bytes as u64, &all, remote)).expect("room");
    // Writes of other queue pairs may complete before.
    let of_this =
        |pair: &Pair| pair.near.completions.iter().find(|one| one.qp == qp.num()).map(|one| one.status);
    pair.until("the Write", |pair| of_this(pair).is_some());
    assert_eq!(of_this(pair), Some(CompletionStatus::Success));
    assert!(contents(&target) == data);
}

fn port_counter(node: &Node, port: u8, name: &str) -> u64 {
    let counters = node.stack.port_counters(port);
    counters.iter().find(|(one, _)| *one == name).unwrap_or_else(|| panic!("no counter {name}")).1
}

fn links(node: &Node) -> Vec<(u8, bool)> {
    let link = |event: &Event| if let Event::Link { port, up } = event { Some((*port, *up)) } else { None };
    node.events.iter().filter_map(link).collect()
}

/// Connections of both ports and both families, of one context, complete in one queue. Each uses
/// the port whose network contains its peer, with that port's segment size.
#[test]
fn connections_of_both_fabrics_complete_in_one_queue() {
    let (mut pair, cables) = two_fabrics();
    pair.far.ctx.listen("0.0.0.0:4791".parse().unwrap()).expect("room");
    pair.far.ctx.listen("[::]:4791".parse().unwrap()).expect("room");
    let at = ["10.0.0.2:4791", "10.1.0.2:4791", "[fd00::2]:4791", "[fd01::2]:4791"];
    let qps = at.map(|at| connect(&mut pair, at));
    for (port, qp) in qps.into_iter().enumerate().map(|(at, qp)| (at % 2, qp)) {
        let before = sent(&cables);
        write(&mut pair, qp, 200_000);
        let after = sent(&cables);
        let frames = if port == 0 { 130 } else { 20 };
        assert!(
            after[port] - before[port] >= frames && after[port] - before[port] < 2 * frames,
            "port {port}"
        );
        assert!(after[1 - port] - before[1 - port] <= 2, "the other port is quiet");
    }
    // All at once, with one message each.
    pair.near.completions.clear();
    let target = pair.far.memory(&[0; 64]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    for (id, qp) in (0..).zip(qps) {
        pair.near.ctx.post_send(qp, &SendWr::write_inline(id, b"together", remote)).expect("room");
    }
    pair.until("all Writes", |pair| pair.near.completions.len() == 4);
    let done = |one: &Completion| one.status == CompletionStatus::Success;
    assert!(pair.near.completions.iter().all(done));
    pair.near.worker.check().expect("all holds");
    pair.far.worker.check().expect("all holds");
    assert_eq!(pair.far.counter("tcp_drop_no_connection") + pair.near.counter("tcp_drop_no_connection"), 0);
}

/// Neighbour solicitations are sent on their own link only, and each port has its own counters.
#[test]
fn each_port_resolves_its_neighbours_and_has_its_counters() {
    let (mut pair, _) = two_fabrics();
    let asked = |pair: &Pair| [0, 1].map(|port| port_counter(&pair.near, port, "net_arp_requests_sent"));
    pair.turn();
    // RFC 5227 s2.3: the announcements of local addresses.
    let announced = asked(&pair);
    assert!(announced.iter().all(|&frames| frames > 0));
    connect(&mut pair, "10.1.0.2:4791");
    assert_eq!(asked(&pair), [announced[0], announced[1] + 1]);
    let all = asked(&pair).iter().sum::<u64>();
    assert_eq!(pair.near.counter("net_arp_requests_sent"), all);
    assert_eq!(pair.near.stack.core_counters(0), pair.near.stack.counters());
}

/// A port accepts no frame for an address of another port (RFC 1122 s3.3.4.2, the strong model), so
/// a flow has one port.
#[test]
fn a_port_ignores_frames_for_another_ports_address() {
    let (near, far) = pair(&device(1, 1500), &device(2, 1500));
    let (unplugged, _there) = pair(&device(2, 9000), &device(3, 9000));
    let mut lone = common::config("10.0.0.1/24");
    lone.net.gateway = Some("10.0.0.2".parse().unwrap());
    let (near, far) = (Node::new(lone, near), node(config(2), far, unplugged));
    let mut pair = Pair { near, far, at: "10.1.0.2:4791".parse().unwrap() };
    let _ = pair.far.ctx.listen(pair.at);
    let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).expect("a queue pair");
    pair.near.ctx.connect(qp, pair.at, b"").expect("connect");
    pair.until("the failure", |pair| failure(&pair.near).is_some());
    assert!(port_counter(&pair.far, 0, "net_drop_ip_not_ours") > 0);
    assert_eq!(pair.far.counter("tcp_rx_segments"), 0);
}

fn failure(node: &Node) -> Option<ConnectFailure> {
    let failed =
        |event: &Event| if let Event::ConnectFailed { reason, .. } = event { Some(*reason) } else { None };
    node.events.iter().find_map(failed)
}

/// Without a matching network, route or gateway no solicitation is sent. A gateway of either port
/// matches.
#[test]
fn a_peer_without_a_route_is_unreachable() {
    let (mut pair, _) = two_fabrics();
    (0..10).for_each(|_| pair.turn());
    let asked = pair.near.counter("net_arp_requests_sent");
    let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).expect("a queue pair");
    pair.near.ctx.connect(qp, "192.0.2.1:4791".parse().unwrap(), b"").expect("connect");
    pair.until("the failure", |pair| failure(&pair.near).is_some());
    assert_eq!(failure(&pair.near), Some(ConnectFailure::Unreachable));
    assert_eq!(pair.near.counter("net_arp_requests_sent"), asked);
}

#[test]
fn the_second_ports_gateway_is_resolved_on_that_port() {
    let (near, _far) = pair(&device(1, 1500), &device(2, 1500));
    let (near_jumbo, _far_jumbo) = pair(&device(1, 9000), &device(2, 9000));
    let mut config = config(1);
    config.fabrics[0].net.gateway = Some("10.1.0.254".parse().unwrap());
    config.validate().expect("a valid configuration");
    let mut node = node(config, near, near_jumbo);
    (0..10).for_each(|_| node.turn());
    let before = [0, 1].map(|port| port_counter(&node, port, "net_arp_requests_sent"));
    let qp = node.ctx.create_qp(node.pd, &QpAttr::new(node.cq)).expect("a queue pair");
    node.ctx.connect(qp, "192.0.2.1:4791".parse().unwrap(), b"").expect("connect");
    (0..10).for_each(|_| node.turn());
    let after = [0, 1].map(|port| port_counter(&node, port, "net_arp_requests_sent"));
    assert_eq!((after[0], after[1]), (before[0], before[1] + 1));
}

/// A link that goes down raises an event with the port's number and does not affect the other
/// port's connections. Its own connection ends at TCP's user timeout.
#[test]
fn a_failed_link_does_not_affect_the_other_fabric() {
    let (mut pair, cables) = two_fabrics();
    let (first, second) = (connect(&mut pair, "10.0.0.2:4791"), connect(&mut pair, "10.1.0.2:4791"));
    cables[1].set_link(false);
    pair.until("the loss", |pair| !links(&pair.near).is_empty());
    let worker = &mut pair.near.worker;
    assert_eq!([0, 1, 2].map(|port| worker.port_link_up(port)), [true, false, false]);
    assert!(worker.link_up(), "one of them is enough");
    let target = pair.far.memory(&[0; 8]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.near.ctx.post_send(second, &SendWr::write_inline(1, b"lost", remote)).expect("room");
    write(&mut pair, first, 300_000);
    pair.until("the end", |pair| pair.near.is_disconnected(second));
    write(&mut pair, first, 300_000);
    assert!(!pair.near.is_disconnected(first));
    cables[1].set_link(true);
    pair.until("the return", |pair| links(&pair.near).len() == 2);
    assert_eq!(links(&pair.near), [(1, false), (1, true)]);
    assert_eq!(links(&pair.far), []);
    let again = connect(&mut pair, "10.1.0.2:4791");
    write(&mut pair, again, 300_000);
}

/// A link that comes up later raises an event and gets announcements.
#[test]
fn a_link_that_comes_up_later_raises_an_event() {
    let (near, _far) = pair(&device(1, 1500), &device(2, 1500));
    let (near_jumbo, _far_jumbo) = pair(&device(1, 9000), &device(2, 9000));
    let cable = near.control();
    cable.set_link(false);
    let mut node = node(config(1), near, near_jumbo);
    (0..100).for_each(|_| node.turn());
    let announced = |node: &Node| [0, 1].map(|port| port_counter(node, port, "net_arp_requests_sent") > 0);
    assert_eq!((announced(&node), links(&node)), ([false, true], vec![]));
    cable.set_link(true);
    while links(&node).is_empty() {
        node.turn();
    }
    node.turn();
    assert_eq!((announced(&node), links(&node)), ([true, true], vec![(0, true)]));
}

/// A device that accepts no frames stops its own connections and no others, however much they send.
#[test]
fn a_device_that_is_full_stops_only_its_own_connections() {
    let (mut pair, cables) = two_fabrics();
    let (first, second) = (connect(&mut pair, "10.0.0.2:4791"), connect(&mut pair, "10.1.0.2:4791"));
    cables[1].limit_tx_burst(0);
    let data = pattern(400_000, 1);
    let (source, target) = (pair.near.memory(&data), pair.far.memory(&[0; 400_000]));
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let all = [source.slice(0, 400_000).expect("inside")];
    pair.near.ctx.post_send(second, &SendWr::write(1, &all, remote)).expect("room");
    (0..5).for_each(|_| pair.turn());
    // The other port's connection.
    write(&mut pair, first, 100_000);
    cables[1].limit_tx_burst(u64::MAX);
    pair.until("the held Write", |pair| pair.near.completions.len() == 2);
    assert!(contents(&target) == data);
}

/// An address of the other port is local too, and frames to it are looped back.
#[test]
fn a_node_connects_to_its_own_address_on_either_fabric() {
    let (mut pair, cables) = two_fabrics();
    for (round, at) in ["10.0.0.1:4791", "10.1.0.1:4791"].into_iter().enumerate() {
        let at: SocketAddr = at.parse().unwrap();
        let node = &mut pair.near;
        let make =
            |node: &mut Node| node.ctx.create_qp(node.pd, &QpAttr::new(node.cq)).expect("a queue pair");
        let (client, server) = (make(node), make(node));
        node.ctx.listen(at).expect("room");
        node.turn();
        let before = sent(&cables);
        node.ctx.connect(client, at, b"to myself").expect("connect");
        for _ in 0..common::TURNS_MAX {
            node.turn();
            let asked = node.events.iter().position(|event| matches!(event, Event::ConnectRequest { .. }));
            if let Some(asked) = asked
                && let Event::ConnectRequest { request, .. } = node.events.remove(asked)
            {
                node.ctx.accept(request, server, b"").expect("accept");
            }
            if node.is_established(client) && node.is_established(server) {
                break;
            }
        }
        assert!(node.is_established(client) && node.is_established(server), "round {round}");
        assert_eq!(sent(&cables), before);
    }
}

/// Several cores, each with a queue of every port, behind devices that put all frames into one
/// queue. Steered frames keep their port, ARP and neighbour discovery reach the leader core, and
/// all cores get its results.
#[test]
fn several_cores_steer_frames_of_both_ports() {
    let queues = |mtu| {
        let wrong = |number| MemoryConfig { queue_rule: QueueRule::All(1), ..device(number, mtu) };
        pair_of_queues((&wrong(1), 2), (&wrong(2), 2))
    };
    let ((near, far), (near_jumbo, far_jumbo)) = (queues(1500), queues(9000));
    let stack = |number, first, second| {
        let mut config = config(number);
        config.core.count = 2;
        Stack::builder(config).memory_ports(first).add_memory_ports(second).build().expect("a stack")
    };
    let ((near, mut near_workers), (far, mut far_workers)) =
        (stack(1, near, near_jumbo), stack(2, far, far_jumbo));
    let (mut client, mut server) = (near.context().unwrap(), far.context().unwrap());
    let (near_cq, far_cq) = (client.create_cq(64).unwrap(), server.create_cq(64).unwrap());
    let (near_pd, far_pd) = (client.alloc_pd(), server.alloc_pd());
    let peers: [IpAddr; 4] = ["10.0.0.2", "10.1.0.2", "fd00::2", "fd01::2"].map(|addr| addr.parse().unwrap());
    for peer in peers {
        server.listen((peer, 4791).into()).expect("room");
    }
    let mut up = Vec::new();
    let mut poll =
        |up: &mut Vec<QueuePair>, client: &mut ironwarp::Context, server: &mut ironwarp::Context| {
            near_workers.iter_mut().chain(&mut far_workers).for_each(|worker| {
                worker.poll(4);
                worker.check().expect("all holds");
            });
            while let Some(event) = client.poll_event() {
                match event {
                    Event::Established { qp, .. } => up.push(qp),
                    Event::ConnectFailed { reason, .. } => panic!("refused: {reason:?}"),
                    _ => {}
                }
            }
            while let Some(event) = server.poll_event() {
                if let Event::ConnectRequest { request, .. } = event {
                    let qp = server.create_qp(far_pd, &QpAttr::new(far_cq)).expect("a queue pair");
                    server.accept(request, qp, b"").expect("accept");
                }
            }
        };
    (0..10).for_each(|_| poll(&mut up, &mut client, &mut server));
    for (peer, core) in peers.into_iter().flat_map(|peer| [(peer, 0), (peer, 1)]) {
        let attr = QpAttr { core: Some(core), ..QpAttr::new(near_cq) };
        let qp = client.create_qp(near_pd, &attr).expect("a queue pair");
        client.connect(qp, (peer, 4791).into(), b"").expect("connect");
    }
    for _ in 0..common::TURNS_MAX {
        if up.len() == 8 {
            break;
        }
        poll(&mut up, &mut client, &mut server);
    }
    assert_eq!(up.len(), 8);
    let counted = |stack: &Stack, name| stack.counters().into_iter().find(|(one, _)| *one == name).unwrap().1;
    assert!(counted(&near, "cores_steered_out") > 8 && counted(&far, "cores_steered_out") > 8);
    assert_eq!(counted(&near, "cores_steered_dropped") + counted(&near, "tcp_drop_no_connection"), 0);
}

/// Frames of a port with a small MTU are not used for a port with a larger one, in any order of
/// sends.
#[test]
fn frames_of_the_small_mtu_port_are_not_used_for_the_large_one() {
    let (mut pair, _) = two_fabrics();
    let (small, large) = (connect(&mut pair, "10.0.0.2:4791"), connect(&mut pair, "10.1.0.2:4791"));
    let target = pair.far.memory(&[0; 8]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    for round in 0..20 {
        // The small port's connection has no work left, the large one's has.
        pair.near.ctx.post_send(small, &SendWr::write_inline(round, b"small", remote)).expect("room");
        pair.turn();
        write(&mut pair, large, 20_000);
    }
    assert_eq!(pair.near.counter("tcp_tx_no_buffer") + pair.far.counter("tcp_tx_no_buffer"), 0);
}

/// A missing device is named with its port before any is opened.
#[cfg(feature = "dpdk")]
#[test]
fn a_missing_second_device_is_reported_with_its_number() {
    let text = "[port]\ndevice.af_packet = { interface = \"lo\" }\n[net]\naddress = \"10.0.0.1/24\"\n\
                [[fabrics]]\nport.device.af_packet = { interface = \"nosuch7\" }\nnet.address = \"10.1.0.1/24\"\n\
                [[fabrics]]\nport.device.af_packet = { interface = \"nosuch8\" }\nnet.address = \"10.2.0.1/24\"\n";
    let config = Config::from_toml(text).expect("a valid configuration");
    let findings = ironwarp::host::Host::local().examine(&config);
    for interface in ["nosuch7", "nosuch8"] {
        assert!(findings.iter().any(|finding| finding.to_string().contains(interface)), "{findings:?}");
    }
    let said = Stack::builder(config).build().err().expect("refused").to_string();
    // Without the privilege for raw sockets the first port reports the error.
    assert!(
        said.starts_with("fabrics, entry 1: ") && said.contains("nosuch7") || said.contains("CAP_NET_RAW"),
        "{said}"
    );
}

/// There must be as many ports as in the configuration, with a queue for each core.
#[test]
fn ports_and_configuration_must_agree() {
    let fails = |config: Config, ports: Vec<usize>| -> String {
        let (first, others) = ports.split_first().expect("a port");
        let queues =
            |count: usize| (0..count).map(|_| pair(&device(1, 9000), &device(2, 9000)).0).collect::<Vec<_>>();
        let builder = Stack::builder(config).memory_ports(queues(*first));
        let builder = others.iter().fold(builder, |builder, count| builder.add_memory_ports(queues(*count)));
        let error: SetupError = builder.build().err().expect("refused");
        error.to_string()
    };
    assert!(fails(config(1), vec![1]).contains("fabrics = 2: as many ports as are given"));
    assert!(fails(common::config("10.0.0.1/24"), vec![1, 1]).contains("fabrics = 1: as many"));
    assert!(fails(config(1), vec![1, 2]).contains("core.count = 1: as many"));
}
