//! Opens, uses and closes a hundred thousand connections: all resources must be free afterwards.

use ironwarp_port::memory::MemoryConfig;
use ironwarp_sim::{LinkConfig, Node, SimNet};
use ironwarp_stats::Counter;
use ironwarp_tcp::{ResourceUsage, TcpConfig, Transport};
use ironwarp_types::Nanos;
use iwarp_sim::tcp::{Connector, EndAction, IronwarpNode, IronwarpSetup, SharedNode, Task, link_address};

const CONNECTIONS: u64 = 100_000;
const AT_ONCE: usize = 400;
const PORT: u16 = 4_420;

fn setup(host: u8) -> IronwarpSetup {
    let device = MemoryConfig {
        mac: link_address(host),
        rx_frames: 4_096,
        tx_frames: 4_096,
        ..MemoryConfig::default()
    };
    let tcp = TcpConfig {
        connections_max: 1_024,
        half_open_max: 1_024,
        rx_frames_reserve: 1,
        rx_frames_shared: 1_024,
        retained_units_reserve: 1,
        retained_units_shared: 1_024,
        time_wait_max: 16_384,
        ..TcpConfig::default()
    };
    IronwarpSetup { host, device, tcp, seed: 5, check_every: 10_000, connections: 0 }
}

/// Runs all connections; `answers` is the task of the host that accepts them.
fn run(task: Task, answers: Task, link: LinkConfig) -> [SharedNode<IronwarpNode>; 2] {
    let mut net = SimNet::new(7);
    let setups = [setup(1), setup(2)];
    let [(a, a_port), (b, b_port)] = [net.add_port(&setups[0].device), net.add_port(&setups[1].device)];
    net.connect(a, b, link);
    let [client, server] = setups;
    let hosts = [
        SharedNode::new(IronwarpNode::new(client, a_port)),
        SharedNode::new(IronwarpNode::new(server, b_port)),
    ];
    hosts[1].borrow_mut().listen(PORT, answers).expect("room for a listener");
    hosts[0].borrow_mut().connector = Some(Connector::new(2, PORT, CONNECTIONS, AT_ONCE, task));
    for (host, port) in hosts.iter().zip([a, b]) {
        host.borrow_mut().keeps_finished = false;
        net.add_node(Box::new(host.clone()) as Box<dyn Node>, &[port]);
    }
    let done = |host: &SharedNode<IronwarpNode>| host.borrow().ends.closed == CONNECTIONS;
    let finished = net.run_until_done(Nanos::from_secs(600), |_| hosts.iter().all(done));
    let finished = finished.unwrap_or_else(|error| panic!("{error}"));
    assert!(finished, "{:?} {:?}", hosts[0].borrow().ends, hosts[1].borrow().ends);
    println!("{CONNECTIONS} connections in {:?} of virtual time", net.now());
    // TIME-WAIT is bounded, and then it ends.
    for host in &hosts {
        assert!(host.borrow().tcp.resource_usage().time_wait <= 16_384);
    }
    net.run_until(net.now() + Nanos::from_secs(61)).unwrap_or_else(|error| panic!("{error}"));
    hosts
}

/// Checks that every table entry, timer and buffer is free.
fn assert_nothing_is_held(host: &SharedNode<IronwarpNode>) {
    let host = host.borrow();
    host.tcp.check().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(host.tcp.resource_usage(), ResourceUsage::default());
    assert_eq!(host.tcp.next_deadline(), None);
    let free = host.control().free_frames();
    // The engine keeps at most one transmit frame, for the next segment.
    assert_eq!(free.rx, 4_096);
    assert!(free.tx >= 4_095, "{free:?}");
    assert_eq!(host.open(), 0);
}

fn task() -> Task {
    Task { sends: 700, expects: 300, ..Task::default() }
}

#[test]
fn connections_that_the_client_closes_release_all_resources() {
    let answers = Task { end: EndAction::Stay, ..task().mirrored() };
    let hosts = run(task(), answers, LinkConfig::default());
    hosts.iter().for_each(assert_nothing_is_held);
    assert_eq!(hosts[1].borrow().read(Counter::TcpEstablished), CONNECTIONS);
}

#[test]
fn connections_that_the_server_closes_release_all_resources() {
    let hosts = run(Task { end: EndAction::Stay, ..task() }, task().mirrored(), LinkConfig::default());
    hosts.iter().for_each(assert_nothing_is_held);
}

/// The same over a link that loses, duplicates and reorders, where handshakes and closes are
/// repeated.
#[test]
fn connections_over_a_faulty_link_release_all_resources() {
    let link = LinkConfig {
        loss_ppm: 5_000,
        duplicate_ppm: 5_000,
        reorder_ppm: 5_000,
        reorder_by: Nanos::from_micros(30),
        ..LinkConfig::default()
    };
    let answers = Task { end: EndAction::Stay, ..task().mirrored() };
    let hosts = run(task(), answers, link);
    hosts.iter().for_each(assert_nothing_is_held);
}
