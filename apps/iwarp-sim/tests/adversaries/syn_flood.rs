//! Two million forged SYNs per second: connections keep their throughput, new ones are established,
//! and memory does not grow.
//!
//! The model has three hosts on a switch: a client with a cable of 4 Gbit/s, a server with 10
//! Gbit/s, and a forger. The server is busy for 100 ns with every frame that it receives or sends,
//! so it can handle ten million frames per second. Four connections fill the client's cable in both
//! directions: about a million frames per second with their acknowledgements. Two million SYNs per
//! second and the replies to them need up to four million more. Without the flood, everything else
//! is the same.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use ironwarp_sim::Node;
use ironwarp_stats::Counter;
use ironwarp_tcp::{TcpConfig, Transport};
use ironwarp_types::Nanos;
use iwarp_sim::adversary::{Adversary, PORT, Place};
use iwarp_sim::tcp::{Connector, EndCounts, IronwarpNode, IronwarpSetup, SharedNode, Task};

use super::flood::{Schedule, Visitors};
use super::star::{ATTACKER, CLIENT, FRAME_COST, SERVER, StarNet, device, star};

struct Counting;

thread_local! {
    /// The thread runs a node whose allocations are counted. The other tests' threads never do.
    static WATCHING: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHING.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A node whose allocations are counted.
struct Watched(SharedNode<IronwarpNode>);

impl Node for Watched {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        WATCHING.set(true);
        let next = self.0.poll(now);
        WATCHING.set(false);
        next
    }

    fn check(&self) -> Result<(), String> {
        self.0.check()
    }
}

const BULK_PORT: u16 = 4_420;
/// The port that the forged SYNs name.
const CALL_PORT: u16 = PORT;
const SYNS: u64 = 250_000;
const SYN_EVERY: Nanos = Nanos(500);
/// The connections have reached their steady rate by then.
const START: Nanos = Nanos::from_millis(20);
const CALLS: u64 = 200;

fn host(host: u8, port: ironwarp_port::memory::MemoryPort) -> SharedNode<IronwarpNode> {
    let tcp = TcpConfig { connections_max: 512, rcv_window_bytes: 256 << 10, ..TcpConfig::default() };
    let setup =
        IronwarpSetup { host, device: device(host), tcp, seed: 3, check_every: 10_000, connections: 1_000 };
    SharedNode::new(IronwarpNode::new(setup, port))
}

struct Run {
    /// Bytes that both ends of the connections read during the flood.
    bytes: u64,
    /// How the client's short connections ended during the flood.
    calls: EndCounts,
    opened: u64,
    /// The server's allocations during the flood.
    allocations: u64,
    server: SharedNode<IronwarpNode>,
    answers: u64,
    refused: u64,
}

fn run(syns: u64) -> Run {
    let (mut net, [c, s, f]) = star(11);
    let (client, server) = (host(CLIENT, c.1), host(SERVER, s.1));
    let bulk = Task { sends: 1 << 40, expects: 1 << 40, ..Task::default() };
    let call = Task { sends: 2_000, expects: 1_000, ..Task::default() };
    server.borrow_mut().listen(BULK_PORT, bulk.mirrored()).expect("room for a listener");
    server.borrow_mut().listen(CALL_PORT, call.mirrored()).expect("room for a listener");
    for _ in 0..4 {
        client.borrow_mut().connect(Nanos::ZERO, None, (SERVER, BULK_PORT), bulk.clone()).expect("a place");
    }
    let calls = Connector {
        every: Nanos::from_micros(500),
        next_at: START,
        ..Connector::new(SERVER, CALL_PORT, CALLS, 200, call)
    };
    client.borrow_mut().connector = Some(calls);
    // Without a flood, the first SYN comes after the end.
    let start = if syns > 0 { START } else { Nanos::from_secs(3_600) };
    let schedule = Schedule { kind: Adversary::Syns, start, every: SYN_EVERY, conns: 0 };
    let nowhere = Place { stag: 0, to: 0, bytes: 0 };
    let forger = SharedNode::new(Visitors::new(f.1, [ATTACKER, SERVER], nowhere, schedule));
    net.add_node(Box::new(client.clone()), &[c.0]);
    let watched = net.add_node(Box::new(Watched(server.clone())), &[s.0]);
    net.set_frame_cost(watched, FRAME_COST);
    net.add_node(Box::new(forger.clone()), &[f.0]);
    let until = |net: &mut StarNet, at| net.run_until(at).unwrap_or_else(|error| panic!("{error}"));
    until(&mut net, START);
    let before = taken(&client) + taken(&server);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    until(&mut net, START + SYN_EVERY.times(SYNS));
    let bytes = taken(&client) + taken(&server) - before;
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
    assert!(forger.borrow().sent.abs_diff(syns) <= 1);
    let (calls, opened) =
        (client.borrow().ends, client.borrow().connector.as_ref().map_or(0, |connector| connector.opened));
    let (answers, refused) = (forger.borrow().arrived, net.refused_frames(s.0));
    Run { bytes, calls, opened, allocations, server, answers, refused }
}

/// Bytes that the bulk connections have read.
fn taken(host: &SharedNode<IronwarpNode>) -> u64 {
    host.borrow()
        .connections()
        .filter(|(_, task_progress)| task_progress.task.expects > 1 << 30)
        .map(|(_, task_progress)| task_progress.taken)
        .sum()
}

/// RFC 4987: the resources of a flood are bounded, and cookies answer the rest.
#[test]
fn a_flood_of_syns_costs_neither_throughput_nor_entries_nor_memory() {
    let (calm, flood) = (run(0), run(SYNS));
    let share = flood.bytes * 1_000 / calm.bytes;
    let held = flood.server.borrow().tcp.resource_usage();
    println!(
        "{} of {} bytes ({share} per mille), short connections {:?} of {}, {} replies to the forger, {} frames refused, {held:?}",
        flood.bytes, calm.bytes, flood.calls, flood.opened, flood.answers, flood.refused
    );
    assert!(share >= 900, "{share} per mille");
    assert_eq!((calm.opened, flood.opened), (CALLS, CALLS));
    assert_eq!(calm.calls, EndCounts { closed: CALLS, ..EndCounts::default() });
    assert_eq!(flood.calls, calm.calls);
    assert_eq!((calm.allocations, flood.allocations), (0, 0));
    assert!(held.half_open <= 256 && held.connections <= 4 + 256, "{held:?}");
    assert_eq!(flood.server.borrow().read(Counter::TcpTimeoutAborts), 0);
}
