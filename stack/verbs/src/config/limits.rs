//! Settings of the protocol layers, and the sizes of all tables.

use ironwarp_iwarp::rdmap::Rfc7306Profile;
use ironwarp_iwarp::setup::{RtrKinds, private_data_bytes_max};
use ironwarp_mem::SHARE_AFTER_MAX;
use ironwarp_types::Nanos;
use ironwarp_types::limits::PRIVATE_DATA_BYTES_MAX;
use serde::Deserialize;

use super::{ConfigError, TransportKind, Transports, in_range};

/// What a worker does after an idle poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdlePolicy {
    /// Polls again at once: the shortest latency, at the cost of a whole processor.
    Spin,
    /// Polls again after the processor's pause instruction: leaves more to a sibling thread.
    #[default]
    Pause,
    /// Yields the processor: for more loops than processors.
    Yield,
    /// Polls again for `core.sleep_after_us`, then sleeps until a timer is due, a frame arrives or
    /// a context has a request. For programs that are idle most of the time: the first message
    /// after a pause takes longer.
    Sleep,
}

/// The longest private data that every peer reads correctly: some keep its length in 8 bits.
const PRIVATE_DATA_BYTES_IN_8_BITS: usize = 255;

/// MPA start-up and teardown.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MpaConfig {
    /// The time limit for a start-up frame (RFC 5044 s7.1.1 requires a limit without a value).
    pub startup_timeout_ms: u64,
    /// The time after a Terminate in which the peer must close; then the connection is reset.
    pub terminate_timeout_ms: u64,
    /// The initiator's delay before its first FPDU, for responders that lose their own first
    /// message if it arrives at once. 0: no delay.
    pub first_fpdu_holdoff_us: u64,
    /// Requests CRCs. They are in use unless neither side requests them. An administrator may turn
    /// them off only if TCP's path is protected otherwise (RFC 5044 s4.4).
    pub crc: bool,
    /// Requests markers in received FPDUs. Sent FPDUs have them if the peer requests them
    /// (RFC 5044 s4.3).
    pub markers: bool,
    /// The revision of MPA Request Frames: 1, or 2 with the enhanced data of RFC 6581. Both are
    /// accepted.
    pub revision: u8,
    /// Retries with revision 1 if a peer closes on revision 2 (RFC 6581 s10).
    pub revision_fallback: bool,
    /// Requests the peer-to-peer model, in which the accepting side may send first (RFC 6581 s9.2).
    pub peer_to_peer: bool,
    /// Ready-to-receive indications that are offered and accepted.
    pub rtr_kinds: Vec<RtrKind>,
    /// Allows as much private data as the RFCs. Linux siw and cxgb4 keep the length of a start-up
    /// frame's data in 8 bits, so they cut off or misread more.
    pub long_private_data: bool,
}

/// A kind of ready-to-receive indication (RFC 6581 s9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RtrKind {
    /// A Send without data.
    Send,
    /// An RDMA Write without data.
    Write,
    /// An RDMA Read without data.
    Read,
}

impl Default for MpaConfig {
    fn default() -> Self {
        MpaConfig {
            startup_timeout_ms: 10_000,
            terminate_timeout_ms: 2_000,
            first_fpdu_holdoff_us: 0,
            crc: true,
            markers: false,
            revision: 2,
            revision_fallback: true,
            peer_to_peer: true,
            rtr_kinds: vec![RtrKind::Send, RtrKind::Write, RtrKind::Read],
            long_private_data: false,
        }
    }
}

impl MpaConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let minute = "1 to 60000 milliseconds";
        in_range("mpa.startup_timeout_ms", self.startup_timeout_ms, 1..=60_000, minute)?;
        in_range("mpa.terminate_timeout_ms", self.terminate_timeout_ms, 1..=60_000, minute)?;
        let holdoff = "0 to 1000000 microseconds";
        in_range("mpa.first_fpdu_holdoff_us", self.first_fpdu_holdoff_us, 0..=1_000_000, holdoff)?;
        in_range("mpa.revision", self.revision, 1..=2, "1 or 2")?;
        // RFC 6581 s9.2: a responder accepts at least one kind.
        let some = "one kind at least, of \"send\", \"write\" and \"read\"";
        in_range("mpa.rtr_kinds", self.rtr_kinds.len(), 1..=usize::MAX, some)
    }

    pub(crate) fn startup_timeout(&self) -> Nanos {
        Nanos::from_millis(self.startup_timeout_ms)
    }

    pub(crate) fn terminate_timeout(&self) -> Nanos {
        Nanos::from_millis(self.terminate_timeout_ms)
    }

    /// Returns the indications as a set.
    pub(crate) fn rtr(&self) -> RtrKinds {
        let kind = |one: &RtrKind| match one {
            RtrKind::Send => RtrKinds::SEND,
            RtrKind::Write => RtrKinds::WRITE,
            RtrKind::Read => RtrKinds::READ,
        };
        self.rtr_kinds.iter().map(kind).collect()
    }

    /// Returns the largest private data of a start-up frame, in bytes. `enhanced` is revision 2
    /// with read depths, which use some of the room.
    pub(crate) fn private_data_bytes(&self, enhanced: bool) -> usize {
        let most = private_data_bytes_max(enhanced);
        let in_8_bits = PRIVATE_DATA_BYTES_IN_8_BITS - (PRIVATE_DATA_BYTES_MAX - most);
        if self.long_private_data { most } else { in_8_bits }
    }

    pub(crate) fn first_fpdu_holdoff(&self) -> Nanos {
        Nanos::from_micros(self.first_fpdu_holdoff_us)
    }
}

/// Placement in memory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DdpConfig {
    /// Places tagged segments that arrive out of order at once. Over TCP only markers show where an
    /// FPDU beyond a gap starts (RFC 5044 s6), so `mpa.markers` and `mpa.crc` must be on.
    pub place_out_of_order: bool,
    /// Ends a connection, and not the process, if registered memory is gone or protected when it is
    /// accessed. Sets handlers for SIGSEGV and SIGBUS, which pass on every other fault. By default
    /// off, and on in the replacement libraries.
    pub catch_memory_faults: Option<bool>,
}

impl DdpConfig {
    pub(super) fn validate(&self, mpa: &MpaConfig, transports: Transports) -> Result<(), ConfigError> {
        let finds_segments = transports.has(TransportKind::Sctp) || (mpa.markers && mpa.crc);
        if self.place_out_of_order && !finds_segments {
            let allowed = "false unless mpa.markers and mpa.crc are true, or a transport is SCTP";
            return Err(ConfigError::Value { key: "ddp.place_out_of_order", value: "true".into(), allowed });
        }
        Ok(())
    }
}

/// The operations of connections besides those of RFC 5040.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RdmapConfig {
    /// The extensions of a connection unless its application sets them, by default RFC 7306: the
    /// rights of a region decide whether a peer may use atomic operations on it. A peer without an
    /// operation ends the connection when it receives one (s1.1).
    pub extensions: Extensions,
    /// How long a peer is recorded as lacking atomic operations, in seconds. 0: not recorded.
    pub lacks_atomics_cache_s: u64,
    /// How atomic operations change words.
    pub atomic_execution: AtomicExecution,
    /// Calls of other cores after which the owner core shares a cache line of words: every core
    /// then changes them with locked instructions. 0: never. Words that are pinned to a core are
    /// not shared.
    pub atomic_share_after: u8,
}

impl Default for RdmapConfig {
    fn default() -> Self {
        RdmapConfig {
            extensions: Extensions::default(),
            lacks_atomics_cache_s: 3600,
            atomic_execution: AtomicExecution::OwnerCore,
            atomic_share_after: 16,
        }
    }
}

impl RdmapConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        in_range(
            "rdmap.lacks_atomics_cache_s",
            self.lacks_atomics_cache_s,
            0..=604_800,
            "0 to 604800 seconds",
        )?;
        in_range("rdmap.atomic_share_after", self.atomic_share_after, 0..=SHARE_AFTER_MAX, "0 to 254 calls")
    }
}

/// How atomic operations change words. The two ways are not atomic with each other, so a stack uses
/// one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtomicExecution {
    /// The owner core of the word, without locked instructions; other cores send it requests. The
    /// owner shares a line that other cores want often ([`RdmapConfig::atomic_share_after`]).
    #[default]
    OwnerCore,
    /// The core that receives a request, with locked instructions. For comparison.
    Locked,
}

/// The operations of RFC 7306, and the text that defines them. They are not negotiated on the wire:
/// both applications must use the same value (s1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extensions {
    /// None. Such a message ends the connection, as any unknown one does.
    Off,
    /// RFC 7306.
    #[default]
    Rfc7306,
    /// Draft -03, and the text of -01: the RFC, and Swap.
    Draft03,
    /// Figure 2 of draft -01: Swap, and Atomic Responses and solicited immediates on queue 1.
    Draft01,
}

impl Extensions {
    pub(crate) fn profile(self) -> Option<Rfc7306Profile> {
        match self {
            Extensions::Off => None,
            Extensions::Rfc7306 => Some(Rfc7306Profile::RFC_7306),
            Extensions::Draft03 => Some(Rfc7306Profile::DRAFT_03),
            Extensions::Draft01 => Some(Rfc7306Profile::DRAFT_01_FIGURE_2),
        }
    }
}

/// The numbers of objects. Tables have these sizes from the start and never grow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Queue pairs on each core.
    pub queue_pairs: u32,
    /// Completion queues on each core.
    pub completion_queues: u32,
    /// Shared receive queues on each core.
    pub shared_receive_queues: u32,
    /// Incoming connections on each core that are neither accepted nor rejected.
    pub half_open: u32,
    /// Listening addresses on each core.
    pub listeners: u32,
    /// Memory regions, windows and fast regions in the process.
    pub regions: u32,
    /// Application contexts.
    pub contexts: u32,
    /// The share of one context in queue pairs, completion queues, shared receive queues and
    /// regions, in percent. 100 reserves nothing for other contexts.
    pub context_quota_percent: u8,
    /// The largest number of outstanding Reads of a queue pair in either direction (IRD, ORD).
    pub read_depth: u16,
    /// Private data bytes accepted with a connection.
    pub private_data_bytes: u16,
    /// Protection errors that a host may cause at once on each core, such as wrong steering tags.
    /// It regains one each second; without any left, its new connections are reset. 0: no limit.
    pub protection_errors: u32,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        LimitsConfig {
            queue_pairs: 1024,
            completion_queues: 1024,
            shared_receive_queues: 64,
            half_open: 256,
            listeners: 64,
            regions: 4096,
            contexts: 16,
            context_quota_percent: 100,
            read_depth: 128,
            private_data_bytes: PRIVATE_DATA_BYTES_MAX as u16,
            protection_errors: 64,
        }
    }
}

impl LimitsConfig {
    /// Returns one context's share of `total`, at least one.
    pub(crate) fn quota_of(&self, total: u32) -> u32 {
        (u64::from(total) * u64::from(self.context_quota_percent) / 100).max(1) as u32
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        in_range("limits.queue_pairs", self.queue_pairs, 1..=1 << 17, "1 to 131072")?;
        in_range("limits.completion_queues", self.completion_queues, 1..=1 << 17, "1 to 131072")?;
        let shared = "1 to 65536";
        in_range("limits.shared_receive_queues", self.shared_receive_queues, 1..=65_536, shared)?;
        in_range("limits.half_open", self.half_open, 1..=65_536, "1 to 65536")?;
        in_range("limits.listeners", self.listeners, 1..=1024, "1 to 1024")?;
        in_range("limits.regions", self.regions, 1..=1 << 20, "1 to 1048576")?;
        in_range("limits.contexts", self.contexts, 1..=1024, "1 to 1024")?;
        in_range("limits.context_quota_percent", self.context_quota_percent, 1..=100, "1 to 100 percent")?;
        // RFC 6581 s9.1: 16383 means that the depth is not negotiated.
        in_range("limits.read_depth", self.read_depth, 1..=16_382, "1 to 16382")?;
        in_range("limits.protection_errors", self.protection_errors, 0..=65_536, "0 to 65536")?;
        in_range("limits.private_data_bytes", self.private_data_bytes, 0..=512, "0 to 512 bytes")
    }
}
