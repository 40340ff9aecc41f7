//! Settings of the protocol layers, and how many of everything there may be.

use ironwarp_iwarp::mpa::startup::{RtrKinds, private_data_bytes_max};
use ironwarp_iwarp::rdmap::Rfc7306Profile;
use ironwarp_types::Nanos;
use ironwarp_types::limits::PRIVATE_DATA_BYTES_MAX;
use serde::Deserialize;

use super::{ConfigError, in_range};

/// What a worker does when it found nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdlePolicy {
    /// Look again at once: the shortest latency, a whole processor.
    Spin,
    /// Look again after the processor's pause instruction: kinder to a sibling thread.
    #[default]
    Pause,
    /// Yield the processor: for more loops than processors.
    Yield,
}

/// What every peer reads right: the length of a start-up frame's data that some of them keep in 8 bits.
const PRIVATE_DATA_BYTES_IN_8_BITS: usize = 255;

/// MPA start-up and teardown.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MpaConfig {
    /// How long a start-up frame may be waited for (RFC 5044 s7.1.1 asks for a limit and names none).
    pub startup_timeout_ms: u64,
    /// How long the peer may take to close after a Terminate before it is reset.
    pub terminate_timeout_ms: u64,
    /// How long the initiator waits before its first FPDU, for responders that lose their own first message when
    /// it arrives at once. 0 does not wait.
    pub first_fpdu_holdoff_us: u64,
    /// Ask for CRCs. They are in use unless neither side asks. Only where TCP's path is protected otherwise may an
    /// administrator turn them off (RFC 5044 s4.4).
    pub crc: bool,
    /// Ask for markers in what we receive. In what we send they are whenever the peer asks (RFC 5044 s4.3).
    pub markers: bool,
    /// The revision that connections are begun with: 1, or 2 with the enhanced data of RFC 6581. Both are answered.
    pub revision: u8,
    /// Begin again with revision 1 when a peer closes on revision 2 (RFC 6581 s10).
    pub revision_fallback: bool,
    /// Begin connections in the peer-to-peer model, where the accepting side may speak first (RFC 6581 s9.2).
    pub peer_to_peer: bool,
    /// Ready-to-receive indications that are offered and taken.
    pub rtr_kinds: Vec<RtrKind>,
    /// Let applications send as much private data as the RFCs allow. Linux siw and cxgb4 keep the length of a start-up
    /// frame's data in 8 bits, so that more is cut off or misread there.
    pub long_private_data: bool,
}

/// A kind of ready-to-receive indication (RFC 6581 s9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RtrKind {
    /// A Send of no bytes.
    Send,
    /// An RDMA Write of no bytes.
    Write,
    /// An RDMA Read of no bytes.
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
        // RFC 6581 s9.2: a responder takes one kind at least.
        let some = "one kind at least, of \"send\", \"write\" and \"read\"";
        in_range("mpa.rtr_kinds", self.rtr_kinds.len(), 1..=usize::MAX, some)
    }

    pub(crate) fn startup_timeout(&self) -> Nanos {
        Nanos::from_millis(self.startup_timeout_ms)
    }

    pub(crate) fn terminate_timeout(&self) -> Nanos {
        Nanos::from_millis(self.terminate_timeout_ms)
    }

    /// The indications as a set.
    pub(crate) fn rtr(&self) -> RtrKinds {
        let kind = |one: &RtrKind| match one {
            RtrKind::Send => RtrKinds::SEND,
            RtrKind::Write => RtrKinds::WRITE,
            RtrKind::Read => RtrKinds::READ,
        };
        self.rtr_kinds.iter().map(kind).collect()
    }

    /// The most that an application may say in a start-up frame, in bytes; `enhanced` is revision 2 with numbers of Reads,
    /// which take some of it.
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
    /// Place tagged segments that arrive out of order before what comes before them. The start of an FPDU beyond a gap is
    /// known by markers only (RFC 5044 s6), so `mpa.markers` and `mpa.crc` must be on.
    pub place_out_of_order: bool,
}

impl DdpConfig {
    pub(super) fn validate(&self, mpa: &MpaConfig) -> Result<(), ConfigError> {
        if self.place_out_of_order && !(mpa.markers && mpa.crc) {
            let allowed = "false unless mpa.markers and mpa.crc are true";
            return Err(ConfigError::Value { key: "ddp.place_out_of_order", value: "true".into(), allowed });
        }
        Ok(())
    }
}

/// What connections carry beside the operations of RFC 5040.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RdmapConfig {
    /// What a connection carries unless its application says otherwise. By default nothing: a peer that does not have an
    /// operation ends the connection when one comes (RFC 7306 s1.1).
    pub extensions: Extensions,
    /// How long a peer that turned out to lack atomic operations is remembered, in seconds. 0 remembers nobody.
    pub lacks_atomics_cache_s: u64,
    /// Who changes the words that atomic operations name.
    pub atomic_execution: AtomicExecution,
}

impl Default for RdmapConfig {
    fn default() -> Self {
        RdmapConfig {
            extensions: Extensions::Off,
            lacks_atomics_cache_s: 3600,
            atomic_execution: AtomicExecution::OwnerCore,
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
        )
    }
}

/// Who changes the words that atomic operations name. The two do not go together, so all of a stack does the one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtomicExecution {
    /// The one core that owns the word, without locked instructions; others ask it.
    #[default]
    OwnerCore,
    /// The core that a request arrives at, with locked instructions. It is there to be measured beside the other.
    Locked,
}

/// The operations of RFC 7306, and by which text. Nothing about them is negotiated on the wire: both applications have to
/// know (s1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extensions {
    /// None. Such a message ends the connection like any other that does not exist.
    #[default]
    Off,
    /// RFC 7306.
    Rfc7306,
    /// Draft -03, and -01 by its text: the RFC, and Swap.
    Draft03,
    /// Draft -01 by its figure 2: Swap, and Atomic Responses and solicited immediates on queue 1.
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

/// How many of everything. Tables are sized from these at start and never grow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Queue pairs a core.
    pub queue_pairs: u32,
    /// Completion queues a core.
    pub completion_queues: u32,
    /// Shared receive queues a core.
    pub shared_receive_queues: u32,
    /// Incoming connections a core that have not been accepted or rejected yet.
    pub half_open: u32,
    /// Listening addresses a core.
    pub listeners: u32,
    /// Memory regions, windows and fast regions in the process.
    pub regions: u32,
    /// Application contexts.
    pub contexts: u32,
    /// How much of the queue pairs, completion queues, shared receive queues and regions one context may have, in percent.
    /// 100 keeps nothing for the others.
    pub context_quota_percent: u8,
    /// Reads that a peer may have outstanding at one queue pair (IRD), and we at the peer (ORD), at most.
    pub read_depth: u16,
    /// Private data bytes accepted with a connection.
    pub private_data_bytes: u16,
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
        }
    }
}

impl LimitsConfig {
    /// One context's share of `total`: one at least.
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
        // RFC 6581 s9.1: 16383 says that the number is not negotiated.
        in_range("limits.read_depth", self.read_depth, 1..=16_382, "1 to 16382")?;
        in_range("limits.private_data_bytes", self.private_data_bytes, 0..=512, "0 to 512 bytes")
    }
}
