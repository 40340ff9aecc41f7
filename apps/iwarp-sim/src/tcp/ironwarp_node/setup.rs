//! The setup of a node with our stack, its connector, and the results of its connections.

use std::net::SocketAddr;

use ironwarp_port::memory::MemoryConfig;
use ironwarp_tcp::TcpConfig;
use ironwarp_types::{MacAddr, Nanos};

use crate::tcp::progress::Task;

/// The setup of a node.
#[derive(Clone)]
pub struct IronwarpSetup {
    /// Its number: the last byte of its addresses.
    pub host: u8,
    pub device: MemoryConfig,
    pub tcp: TcpConfig,
    /// The key of its sequence numbers and hashes.
    pub seed: u64,
    /// The engine checks its invariants every this many polls; 0 is never.
    pub check_every: u64,
    /// Number of finished connections to allocate room for in advance.
    pub connections: usize,
}

pub fn link_address(host: u8) -> MacAddr {
    MacAddr([0x02, 0, 0, 0, 0, host])
}

pub fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

/// Opens connections on its own.
#[derive(Clone, Default)]
pub struct Connector {
    pub host: u8,
    pub port: u16,
    /// How many connections to open in all.
    pub total: u64,
    /// How many may be open at one time.
    pub at_once: usize,
    /// Interval between two connections.
    pub every: Nanos,
    pub task: Task,
    pub opened: u64,
    pub next_at: Nanos,
}

impl Connector {
    /// Opens `total` connections, at most `at_once` at a time.
    pub fn new(host: u8, port: u16, total: u64, at_once: usize, task: Task) -> Self {
        Connector { host, port, total, at_once, task, ..Connector::default() }
    }
}

/// How connections ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndCounts {
    /// Both directions were closed.
    pub closed: u64,
    /// The peer reset them.
    pub reset: u64,
    pub timed_out: u64,
    pub refused: u64,
}
