//! What is measured: the test, the sizes, the ways of posting and waiting.
//!
//! Both ends of a test hold the same case, so it travels between them as JSON.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The tests by the names that users type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// A Send goes over, a Send comes back.
    SendLat,
    /// An RDMA Write goes over, one comes back; both ends poll the last byte.
    WriteLat,
    /// An RDMA Read of the far memory completes.
    ReadLat,
    /// Sends one way.
    SendBw,
    /// RDMA Writes one way.
    WriteBw,
    /// RDMA Reads one way.
    ReadBw,
    /// An atomic operation on a word of the far memory completes.
    AtomicLat,
    /// Atomic operations on words of the far memory, many on their way.
    AtomicBw,
    /// RDMA Writes one way, Immediate Data behind each.
    WriteImmBw,
    /// Immediate Data goes over, Immediate Data comes back.
    ImmLat,
    /// An RDMA Write with Immediate Data behind it goes over, the same comes back.
    WriteImmLat,
    /// Raw frames there and back: the floor of every latency.
    FrameLat,
    /// Raw frames one way.
    FrameBw,
    /// Linux sockets there and back.
    TcpLat,
    /// Linux sockets one way.
    TcpBw,
}

/// What an atomic test does to its words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtomicKind {
    /// Adds 1.
    FetchAdd,
    /// Replaces what was seen last by one more; fails where another queue pair was there meanwhile.
    CmpSwap,
}

/// Which of the far end's cores the words of an atomic test belong to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WordOwner {
    /// Whichever their addresses say.
    #[default]
    Spread,
    /// The core that their queue pairs are on: each core has words of its own.
    Local,
    /// The next core after the one that their queue pairs are on: each core has words of its own.
    Remote,
}

/// Whose protocol carries the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// This stack.
    Ironwarp,
    /// None: frames as they are.
    Frames,
    /// Linux.
    KernelTcp,
}

/// How an end waits for what comes next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// It looks again at once.
    Spin,
    /// It sleeps in the kernel until woken.
    Block,
}

/// What lies between the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathKind {
    /// Shared memory between two processes.
    Memif,
    /// Two ports of one process joined back to back.
    Ring,
    /// Buffers of one process, without DPDK.
    Memory,
    /// A veth pair between two network namespaces.
    Veth,
    /// The loopback interface.
    Lo,
    /// A tap interface.
    Tap,
    /// A raw socket on an interface.
    AfPacket,
    /// An XDP socket on an interface.
    AfXdp,
    /// A network card.
    Pci,
    /// Whatever the configured device reaches.
    Wire,
}

/// One thing to measure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// The test.
    pub test: Test,
    /// Bytes of one message.
    pub bytes: u64,
    /// The largest network-layer packet, in bytes.
    pub mtu: u16,
    /// What lies between the ends.
    pub path: PathKind,
    /// How both ends wait.
    pub wait: Wait,
    /// Queue pairs used in turn.
    pub qps: u32,
    /// Messages outstanding a queue pair.
    pub depth: u32,
    /// Work requests posted together.
    pub post_list: u32,
    /// Every how many work requests a completion is asked for.
    pub signal_every: u32,
    /// Messages up to this many bytes are posted inline.
    pub inline: u32,
    /// Both ends send.
    pub bidirectional: bool,
    /// Messages a second in open loop; latency then counts from the intended start. Absent: as fast as possible.
    pub rate: Option<f64>,
    /// Every byte is checked at the end that receives it.
    pub validate: bool,
    /// What an atomic test does. Absent: it is none.
    #[serde(default)]
    pub operation: Option<AtomicKind>,
    /// The far end's cores change words with locked instructions, wherever a request arrives; their owners do otherwise.
    #[serde(default)]
    pub locked: bool,
    /// Words that an atomic test's queue pairs share, each in a cache line of its own.
    #[serde(default = "one")]
    pub words: u32,
    /// Whose the words of an atomic test are.
    #[serde(default)]
    pub owner: WordOwner,
    /// Polled cores an end; queue pairs are dealt out to them in turn.
    #[serde(default = "one")]
    pub cores: u32,
}

fn one() -> u32 {
    1
}

impl Test {
    /// Every test.
    pub const ALL: [Test; 15] = [
        Test::SendLat,
        Test::WriteLat,
        Test::ReadLat,
        Test::SendBw,
        Test::WriteBw,
        Test::ReadBw,
        Test::AtomicLat,
        Test::AtomicBw,
        Test::WriteImmBw,
        Test::ImmLat,
        Test::WriteImmLat,
        Test::FrameLat,
        Test::FrameBw,
        Test::TcpLat,
        Test::TcpBw,
    ];

    /// The name that users type.
    pub const fn name(self) -> &'static str {
        match self {
            Test::SendLat => "send-lat",
            Test::WriteLat => "write-lat",
            Test::ReadLat => "read-lat",
            Test::SendBw => "send-bw",
            Test::WriteBw => "write-bw",
            Test::ReadBw => "read-bw",
            Test::AtomicLat => "atomic-lat",
            Test::AtomicBw => "atomic-bw",
            Test::WriteImmBw => "write-imm-bw",
            Test::ImmLat => "imm-lat",
            Test::WriteImmLat => "write-imm-lat",
            Test::FrameLat => "frame-lat",
            Test::FrameBw => "frame-bw",
            Test::TcpLat => "tcp-lat",
            Test::TcpBw => "tcp-bw",
        }
    }

    /// Whether the figure is a round trip; it is a bandwidth otherwise.
    pub const fn is_latency(self) -> bool {
        match self {
            Test::SendLat | Test::WriteLat | Test::ReadLat | Test::FrameLat | Test::TcpLat => true,
            Test::AtomicLat | Test::ImmLat | Test::WriteImmLat => true,
            Test::SendBw | Test::WriteBw | Test::WriteImmBw | Test::ReadBw => false,
            Test::AtomicBw | Test::FrameBw | Test::TcpBw => false,
        }
    }

    /// Whether it consists of atomic operations.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Test::AtomicLat | Test::AtomicBw)
    }

    /// Whether its messages arrive with Immediate Data.
    pub const fn is_immediate(self) -> bool {
        matches!(self, Test::ImmLat | Test::WriteImmLat | Test::WriteImmBw)
    }

    /// Whether each of many messages one way uses up a receive of the far end's.
    pub const fn consumes_receives(self) -> bool {
        matches!(self, Test::SendBw | Test::WriteImmBw)
    }

    /// Whether its connections need the operations of RFC 7306.
    pub const fn needs_rfc7306(self) -> bool {
        self.is_atomic() || self.is_immediate()
    }

    /// The bytes that a message of this test always has: a word, or the eight octets of Immediate Data.
    pub const fn fixed_bytes(self) -> Option<u64> {
        match self {
            Test::AtomicLat | Test::AtomicBw | Test::ImmLat => Some(8),
            _ => None,
        }
    }

    /// Whose protocol carries the bytes.
    pub const fn transport(self) -> Transport {
        match self {
            Test::FrameLat | Test::FrameBw => Transport::Frames,
            Test::TcpLat | Test::TcpBw => Transport::KernelTcp,
            _ => Transport::Ironwarp,
        }
    }

    /// Whether half a round trip is a meaningful one-way figure: a Read crosses the link twice by nature, and so does an
    /// atomic operation.
    pub const fn is_symmetric(self) -> bool {
        self.is_latency() && !matches!(self, Test::ReadLat | Test::AtomicLat)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl PathKind {
    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            PathKind::Memif => "memif",
            PathKind::Ring => "ring",
            PathKind::Memory => "memory",
            PathKind::Veth => "veth",
            PathKind::Lo => "lo",
            PathKind::Tap => "tap",
            PathKind::AfPacket => "af_packet",
            PathKind::AfXdp => "af_xdp",
            PathKind::Pci => "pci",
            PathKind::Wire => "wire",
        }
    }
}

impl Case {
    /// A case with one queue pair, one message at a time, a completion for each.
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
            operation: None,
            locked: false,
            words: 1,
            owner: WordOwner::Spread,
            cores: 1,
        }
    }

    /// The name under which others compare themselves with this case.
    pub fn baseline_name(&self) -> String {
        let locked = if self.locked { "-locked" } else { "" };
        match self.wait {
            Wait::Spin => format!("{}{locked}", self.test.name()),
            Wait::Block => format!("{}{locked}-blocking", self.test.name()),
        }
    }

    /// A line for progress bars and errors.
    pub fn title(&self) -> String {
        let (bytes, path, mtu) = (self.bytes, self.path.name(), self.mtu);
        let cores = if self.cores > 1 { format!(", {} cores", self.cores) } else { String::new() };
        format!("{} {bytes} B over {path}, MTU {mtu}{cores}", self.baseline_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_one_name_for_users_and_for_json() {
        for test in Test::ALL {
            let json = serde_json::to_string(&test).expect("a plain enum");
            assert_eq!(json, format!("\"{}\"", test.name()));
        }
    }

    #[test]
    fn transports_are_named_as_the_contract_says() {
        let names: Vec<String> = [Test::SendLat, Test::FrameLat, Test::TcpBw]
            .map(|test| serde_json::to_string(&test.transport()).expect("a plain enum"))
            .into();
        assert_eq!(names, ["\"ironwarp\"", "\"frames\"", "\"kernel_tcp\""]);
    }

    #[test]
    fn a_case_survives_the_way_to_the_far_end() {
        let mut case = Case::new(Test::WriteBw, 1 << 20, 9000, PathKind::Memif);
        case.rate = Some(1.5e6);
        let json = serde_json::to_string(&case).expect("plain data");
        assert_eq!(serde_json::from_str::<Case>(&json).expect("what was written"), case);
    }
}
