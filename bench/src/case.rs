//! What a run measures: the test, its sizes, and how its ends post and wait.
//!
//! The client sends each [`Case`] to the server as JSON. The names of tests and options on the
//! command line, in tables and in JSON are the same: they derive from the variants.

use core::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A test, named as users type it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// Round trip of a Send and the Send that answers it.
    #[default]
    SendLat,
    /// Round trip of an RDMA Write and the Write that answers it; both ends poll the last byte.
    WriteLat,
    /// Latency of an RDMA Read.
    ReadLat,
    /// Bandwidth of Sends in one direction.
    SendBw,
    /// Bandwidth of RDMA Writes in one direction.
    WriteBw,
    /// Bandwidth of RDMA Reads in one direction.
    ReadBw,
    /// Bandwidth of RDMA Writes and RDMA Reads that alternate on each queue pair: data flows in
    /// both directions.
    ReadWriteBw,
    /// Latency of an atomic operation on a word of the server.
    AtomicLat,
    /// Rate of atomic operations on words of the server; their sum is checked.
    AtomicBw,
    /// Bandwidth of RDMA Writes with Immediate Data in one direction.
    WriteImmBw,
    /// Round trip of Immediate Data.
    ImmLat,
    /// Round trip of an RDMA Write with Immediate Data.
    WriteImmLat,
    /// Round trip of a Send with the STag of a window bound for it and the Send with Invalidate
    /// that answers it.
    SendInvLat,
    /// Rate and latency of connection set-up: connect, MPA start-up, disconnect.
    ConnRate,
    /// Round trip of a raw frame: the floor of every latency.
    FrameLat,
    /// Bandwidth of raw frames in one direction.
    FrameBw,
    /// Round trip over Linux sockets.
    TcpLat,
    /// Bandwidth of Linux sockets in one direction.
    TcpBw,
    /// Round trip over stock smoltcp on the same device.
    SmoltcpLat,
    /// Bandwidth of stock smoltcp in one direction.
    SmoltcpBw,
}

/// The operation of an atomic test.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum AtomicKind {
    /// Adds 1.
    FetchAdd,
    /// Replaces the value read last by that value plus 1. Fails if another queue pair changed the
    /// word since.
    CmpSwap,
}

/// The server core that owns the words of an atomic test.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum WordOwner {
    /// The core that the address of the word selects.
    #[default]
    Spread,
    /// The core that the request arrives at. Each core has words of its own.
    Local,
    /// The core after the one that the request arrives at. Each core has words of its own.
    Remote,
}

/// The protocol that carries the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    #[default]
    Ironwarp,
    /// None: raw frames.
    Frames,
    KernelTcp,
    /// Stock smoltcp, another TCP in user space.
    Smoltcp,
}

/// How an end waits for data or for a completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Polls.
    Spin,
    /// Sleeps in the kernel.
    Block,
}

/// What connects the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathKind {
    /// Shared memory between two processes.
    Memif,
    /// Two ports of one process, connected back to back.
    Ring,
    /// Buffers of one process, without DPDK.
    Memory,
    /// A veth pair between two network namespaces.
    Veth,
    Lo,
    Tap,
    /// A raw socket on an interface.
    AfPacket,
    AfXdp,
    Pci,
    /// Any other device.
    Wire,
}

/// One thing to measure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    pub test: Test,
    pub bytes: u64,
    /// The largest network-layer packet, in bytes.
    pub mtu: u16,
    pub path: PathKind,
    pub wait: Wait,
    /// Queue pairs, used round robin.
    pub qps: u32,
    /// Outstanding messages for each queue pair.
    pub depth: u32,
    /// Work requests posted together.
    pub post_list: u32,
    /// One work request in this many is signalled.
    pub signal_every: u32,
    /// The largest message that is posted inline, in bytes.
    pub inline: u32,
    /// Both ends send.
    pub bidirectional: bool,
    /// Messages a second in open loop; latency then counts from the intended start. `None`: as fast
    /// as possible.
    pub rate: Option<f64>,
    /// The receiver checks every byte.
    pub validate: bool,
    /// The receives of all queue pairs of an end come from one shared receive queue.
    #[serde(default)]
    pub srq: bool,
    /// The operation of an atomic test. `None` for other tests.
    pub operation: Option<AtomicKind>,
    /// The core that receives a request changes the word, with locked instructions. Otherwise the
    /// owner core does.
    #[serde(default)]
    pub locked: bool,
    /// Words that the queue pairs of an atomic test share, each in its own cache line.
    #[serde(default = "one")]
    pub words: u32,
    /// The core that owns the words of an atomic test.
    #[serde(default)]
    pub owner: WordOwner,
    /// Polled cores at each end. Queue pairs are assigned to them round robin.
    #[serde(default = "one")]
    pub cores: u32,
}

fn one() -> u32 {
    1
}

impl Test {
    /// Returns whether the test measures a round trip. The other tests measure a bandwidth or a
    /// rate.
    pub const fn is_latency(self) -> bool {
        use Test::*;
        !matches!(
            self,
            SendBw
                | WriteBw
                | WriteImmBw
                | ReadBw
                | ReadWriteBw
                | AtomicBw
                | ConnRate
                | FrameBw
                | TcpBw
                | SmoltcpBw
        )
    }

    /// Returns whether the test measures the set-up of connections.
    pub const fn is_connection_setup(self) -> bool {
        matches!(self, Test::ConnRate)
    }

    /// Returns whether the messages are atomic operations.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Test::AtomicLat | Test::AtomicBw)
    }

    /// Returns whether the messages carry Immediate Data.
    pub const fn is_immediate(self) -> bool {
        matches!(self, Test::ImmLat | Test::WriteImmLat | Test::WriteImmBw)
    }

    /// Returns whether each message of a bandwidth test consumes a receive of the server.
    pub const fn consumes_receives(self) -> bool {
        matches!(self, Test::SendBw | Test::WriteImmBw)
    }

    /// Returns whether the messages consume receives, which a shared receive queue may hold.
    pub const fn has_receives(self) -> bool {
        self.consumes_receives()
            || matches!(self, Test::SendLat | Test::SendInvLat | Test::ImmLat | Test::WriteImmLat)
    }

    /// Returns whether the connections need the operations of RFC 7306.
    pub const fn needs_rfc7306(self) -> bool {
        self.is_atomic() || self.is_immediate()
    }

    /// Returns the message size of a test that has only one: a word, or the eight octets of
    /// Immediate Data.
    pub const fn fixed_bytes(self) -> Option<u64> {
        match self {
            Test::AtomicLat | Test::AtomicBw | Test::ImmLat => Some(8),
            _ => None,
        }
    }

    /// Returns the smallest message, in bytes: a Send with Invalidate answers one that holds an
    /// STag.
    pub const fn bytes_min(self) -> u64 {
        if matches!(self, Test::SendInvLat) { 4 } else { 1 }
    }

    /// Returns the protocol that carries the bytes.
    pub const fn transport(self) -> Transport {
        match self {
            Test::FrameLat | Test::FrameBw => Transport::Frames,
            Test::TcpLat | Test::TcpBw => Transport::KernelTcp,
            Test::SmoltcpLat | Test::SmoltcpBw => Transport::Smoltcp,
            _ => Transport::Ironwarp,
        }
    }

    /// Returns whether half a round trip is a one-way latency. It is none for Reads and atomic
    /// operations, which need both directions.
    pub const fn is_symmetric(self) -> bool {
        self.is_latency() && !matches!(self, Test::ReadLat | Test::AtomicLat)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Case {
    /// Creates a case with one queue pair, one outstanding message, and a completion for each
    /// message.
    pub fn new(test: Test, bytes: u64, mtu: u16, path: PathKind) -> Self {
        Case {
            test,
            bytes,
            mtu,
            path,
            wait: Wait::Spin,
            qps: 1,
            depth: 1,
            post_list: 1,
            signal_every: 1,
            inline: 0,
            bidirectional: false,
            rate: None,
            validate: false,
            srq: false,
            operation: None,
            locked: false,
            words: 1,
            owner: WordOwner::Spread,
            cores: 1,
        }
    }

    /// Returns the depth that keeps a link busy in a bandwidth test: 4 MiB of messages, at least 2
    /// and at most 64.
    pub fn streaming_depth(bytes: u64) -> u32 {
        const BYTES_OUTSTANDING: u64 = 4 << 20;
        (BYTES_OUTSTANDING / bytes).clamp(2, 64) as u32
    }

    /// Returns the name of this case as a baseline of other cases.
    pub fn baseline_name(&self) -> String {
        let locked = if self.locked { "-locked" } else { "" };
        let blocking = if self.wait == Wait::Block { "-blocking" } else { "" };
        format!("{}{locked}{blocking}", self.test)
    }

    /// Returns a line for progress bars and errors.
    pub fn title(&self) -> String {
        let Case { bytes, path, mtu, .. } = self;
        let cores = if self.cores > 1 { format!(", {} cores", self.cores) } else { String::new() };
        format!("{} {bytes} B over {path}, MTU {mtu}{cores}", self.baseline_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_the_same_name_on_the_command_line_and_in_json() {
        for test in Test::value_variants() {
            let value = test.to_possible_value().expect("no variant is skipped");
            assert_eq!(value.get_name(), test.to_string());
            assert_eq!(serde_json::to_value(test).expect("a plain enum"), test.to_string());
        }
    }

    #[test]
    fn transports_have_the_names_of_the_json_schema() {
        let names = [Test::SendLat, Test::FrameLat, Test::TcpBw, Test::SmoltcpLat]
            .map(|test| serde_json::to_value(test.transport()).expect("a plain enum"));
        assert_eq!(names, ["ironwarp", "frames", "kernel_tcp", "smoltcp"]);
    }

    #[test]
    fn a_case_survives_serialization() {
        let mut case = Case::new(Test::WriteBw, 1 << 20, 9000, PathKind::Memif);
        case.rate = Some(1.5e6);
        let json = serde_json::to_string(&case).expect("plain data");
        assert_eq!(serde_json::from_str::<Case>(&json).expect("valid JSON"), case);
    }
}
