//! What is left of the throughput of others while a host attacks: at least 90 %.
//!
//! Three hosts are on a switch: a client with a cable of 4 Gbit/s, a server and an attacker with 10 Gbit/s each. The
//! server is busy for 100 ns with every frame that it receives or sends. Four connections fill the client's cable in
//! both directions. The attacker sends a million hostile packets per second, or two million where they belong to no
//! connection, and whatever its connections reply. Without the attacker, everything else is the same.

use std::sync::OnceLock;

use ironwarp_port::memory::{MemoryConfig, MemoryPort};
use ironwarp_sim::{LinkConfig, Node, SimNet};
use ironwarp_tcp::{ResourceUsage, TcpConfig};
use ironwarp_types::Nanos;
use iwarp_sim::adversary::{Adversary, Habit, Schedule, Visitors, Way};
use iwarp_sim::tcp::network::UnicastSwitch;
use iwarp_sim::tcp::{IronwarpNode, IronwarpSetup, SharedNode, Task, link_address};

const CLIENT: u8 = 1;
const SERVER: u8 = 2;
const ATTACKER: u8 = 3;
const BULK_PORT: u16 = 4_420;
/// Connections to the first get data without end, those to the second none.
const READ_PORT: u16 = 4_421;
const QUIET_PORT: u16 = 4_422;
const FRAME_COST: Nanos = Nanos(100);
/// The connections have reached their steady rate by then.
const START: Nanos = Nanos::from_millis(20);
const ATTACK: Nanos = Nanos::from_millis(30);
/// Connections of the attacker.
const CONNS: u16 = 8;

fn device(host: u8) -> MemoryConfig {
    let mac = link_address(host);
    MemoryConfig { mac, rx_frames: 8_192, tx_frames: 8_192, rx_ring_frames: 1_024, ..MemoryConfig::default() }
}

fn host(host: u8, port: MemoryPort) -> SharedNode<IronwarpNode> {
    let tcp = TcpConfig { connections_max: 512, rcv_window_bytes: 256 << 10, ..TcpConfig::default() };
    let setup =
        IronwarpSetup { host, device: device(host), tcp, seed: 3, check_every: 1_000, connections: 64 };
    SharedNode::new(IronwarpNode::new(setup, port))
}

fn cable(gbit_s: u64) -> LinkConfig {
    let rate_bits_per_s = gbit_s * 1_000_000_000;
    LinkConfig { rate_bits_per_s, delay: Nanos::from_micros(5), ..LinkConfig::default() }
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Bytes that both ends of the client's connections read during the attack.
    bytes: u64,
    /// Hostile packets, those in reply included, and the attacker's established connections.
    hostile: u64,
    conns: usize,
    /// What the server held at the end.
    held: ResourceUsage,
}

fn run(kind: Option<Adversary>) -> Run {
    let mut net: SimNet<Box<dyn Node>> = SimNet::new(11);
    let [c, s, a] = [CLIENT, SERVER, ATTACKER].map(|host| net.add_port(&device(host)));
    let behind = [CLIENT, SERVER, ATTACKER].map(|host| (host, net.add_port(&device(100 + host))));
    for ((port, gbit_s), (_, (switch_port, _))) in [(c.0, 4), (s.0, 10), (a.0, 10)].into_iter().zip(&behind) {
        net.connect(port, *switch_port, cable(gbit_s));
    }
    let switch_ids = [behind[0].1.0, behind[1].1.0, behind[2].1.0];
    let switch = UnicastSwitch::new(behind.into_iter().map(|(host, (_, port))| (host, port)).collect());
    net.add_node(Box::new(switch), &switch_ids);
    let (client, server) = (host(CLIENT, c.1), host(SERVER, s.1));
    let bulk = Task { sends: 1 << 40, expects: 1 << 40, ..Task::default() };
    server.borrow_mut().listen(BULK_PORT, bulk.mirrored()).expect("room for a listener");
    for (port, sends) in [(READ_PORT, 1 << 40), (QUIET_PORT, 0)] {
        let task = Task { sends, expects: 1 << 40, ..Task::default() };
        server.borrow_mut().listen(port, task).expect("room for a listener");
    }
    for _ in 0..4 {
        client.borrow_mut().connect(Nanos::ZERO, None, (SERVER, BULK_PORT), bulk.clone()).expect("a place");
    }
    net.add_node(Box::new(client.clone()), &[c.0]);
    let id = net.add_node(Box::new(server.clone()), &[s.0]);
    net.set_frame_cost(id, FRAME_COST);
    let attacker = kind.map(|kind| {
        let every = if matches!(kind, Adversary::Habit(_)) { Nanos(1_000) } else { Nanos(500) };
        let way = Way { from: ATTACKER, to: SERVER };
        let schedule = Schedule { kind, start: START, every };
        let reads = matches!(kind, Adversary::Habit(habit) if habit.is_about_acknowledgements());
        let port = if reads { READ_PORT } else { QUIET_PORT };
        let node = SharedNode::new(Visitors::new(a.1, way, port, schedule, CONNS));
        net.add_node(Box::new(node.clone()), &[a.0]);
        node
    });
    net.run_until(START).unwrap_or_else(|error| panic!("{error}"));
    let before = taken(&client) + taken(&server);
    net.run_until(START + ATTACK).unwrap_or_else(|error| panic!("{error}"));
    let bytes = taken(&client) + taken(&server) - before;
    let (hostile, conns) = attacker.map_or((0, 0), |attacker| {
        let attacker = attacker.borrow();
        (attacker.sent + attacker.replies, attacker.open_conns())
    });
    let held = server.borrow().tcp.resource_usage();
    Run { bytes, hostile, conns, held }
}

/// Bytes that the bulk connections have read. The attacker's connections deliver none: their bytes are beyond a gap.
fn taken(host: &SharedNode<IronwarpNode>) -> u64 {
    let host = host.borrow();
    host.connections().map(|(_, task_progress)| task_progress.taken).sum()
}

/// Bytes without an attacker.
fn calm() -> u64 {
    static CALM: OnceLock<u64> = OnceLock::new();
    *CALM.get_or_init(|| run(None).bytes)
}

#[track_caller]
fn others_keep_their_throughput(kind: Adversary) {
    let (calm, attacked) = (calm(), run(Some(kind)));
    let per_mille = attacked.bytes * 1_000 / calm;
    println!("{}: {per_mille} per mille of {calm} bytes, {attacked:?}", kind.name());
    assert!(attacked.hostile >= 10_000, "{attacked:?}");
    let conns = if matches!(kind, Adversary::Habit(_)) { CONNS.into() } else { 0 };
    assert_eq!(attacked.conns, conns, "{attacked:?}");
    // Half of the receive frames at most may hold data beyond gaps.
    assert!(attacked.held.rx_frames <= 4_096 && attacked.held.half_open <= 256, "{attacked:?}");
    assert!(per_mille >= 900, "{per_mille} per mille: {attacked:?}");
}

macro_rules! kinds {
    ($($name:ident $adversary:expr;)*) => {
        $(#[test]
        fn $name() {
            others_keep_their_throughput($adversary);
        })*
    };
}

kinds! {
    others_keep_their_throughput_beside_garbage Adversary::Garbage;
    others_keep_their_throughput_beside_arp_requests Adversary::ArpRequests;
    others_keep_their_throughput_beside_arp_flaps Adversary::ArpFlaps;
    others_keep_their_throughput_beside_echoes Adversary::Echoes;
    others_keep_their_throughput_beside_icmp_errors Adversary::IcmpErrors;
    others_keep_their_throughput_beside_unknown_segments Adversary::Unknown;
    others_keep_their_throughput_beside_syns Adversary::Syns;
    others_keep_their_throughput_beside_sack_split Adversary::Habit(Habit::SackSplit);
    others_keep_their_throughput_beside_one_byte_acks Adversary::Habit(Habit::OneByteAcks);
    others_keep_their_throughput_beside_zero_windows Adversary::Habit(Habit::ZeroWindow);
    others_keep_their_throughput_beside_no_reading Adversary::Habit(Habit::NoReading);
    others_keep_their_throughput_beside_gaps Adversary::Habit(Habit::Gaps);
    others_keep_their_throughput_beside_probes Adversary::Habit(Habit::Probes);
    others_keep_their_throughput_beside_repeats Adversary::Habit(Habit::Repeats);
}
