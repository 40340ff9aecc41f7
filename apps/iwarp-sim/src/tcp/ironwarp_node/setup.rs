//! What a node of ours is like, what it does of its own accord, and what its connections leave behind.

use std::net::SocketAddr;

use ironwarp_port::memory::MemoryConfig;
use ironwarp_tcp::{ConnId, TcpConfig, TcpEvents};
use ironwarp_types::{MacAddr, Nanos};

use crate::tcp::progress::{Task, TaskProgress};

/// What a node is like.
#[derive(Clone)]
pub struct IronwarpSetup {
    /// Its number: the last byte of its addresses.
    pub host: u8,
    /// Its port.
    pub device: MemoryConfig,
    /// Its engine.
    pub tcp: TcpConfig,
    /// Keys its sequence numbers and hashes.
    pub seed: u64,
    /// The engine examines itself every so many polls; 0 is never.
    pub check_every: u64,
    /// Finished connections to make room for in advance.
    pub connections: usize,
}

/// The link address of a host.
pub fn link_address(host: u8) -> MacAddr {
    MacAddr([0x02, 0, 0, 0, 0, host])
}

/// The network address of a host, with a port.
pub fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

/// Opens connections by itself.
#[derive(Clone)]
pub struct Connector {
    /// The host to connect to.
    pub host: u8,
    /// The port to connect to.
    pub port: u16,
    /// How many connections to open in all.
    pub total: u64,
    /// How many may be open at one time.
    pub at_once: usize,
    /// From one to the next.
    pub every: Nanos,
    /// What each does.
    pub task: Task,
    /// Those opened until now.
    pub opened: u64,
    /// When the next is due.
    pub next_at: Nanos,
    /// Attempts that found no port or no place, and were made again later.
    pub deferred: u64,
}

impl Connector {
    /// Opens `total` connections from `start` on, as many as `at_once` allows.
    pub fn new(host: u8, port: u16, total: u64, at_once: usize, task: Task) -> Self {
        let start = Nanos::ZERO;
        Connector {
            host,
            port,
            total,
            at_once,
            every: Nanos::ZERO,
            task,
            opened: 0,
            next_at: start,
            deferred: 0,
        }
    }
}

/// How connections ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndCounts {
    /// Both directions were closed.
    pub closed: u64,
    /// The peer reset them.
    pub reset: u64,
    /// This end reset them.
    pub aborted: u64,
    /// The peer was silent.
    pub timed_out: u64,
    /// The peer refused.
    pub refused: u64,
}

/// What a connection leaves behind.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its name, stale by now.
    pub id: ConnId,
    /// What was done.
    pub task_progress: TaskProgress,
    /// The event that ended it; none when this end reset it.
    pub events: TcpEvents,
    /// When.
    pub at: Nanos,
}
