//! Attributes of a queue pair, and the words that its two halves share.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ironwarp_iwarp::mpa::startup::Markers;
use ironwarp_iwarp::setup::ReadDepths;
use ironwarp_rings::doorbell::DoorbellFlag;
use ironwarp_rings::state::SharedState;
use ironwarp_types::limits::{INLINE_BYTES_MAX, SGE_MAX};

use super::timeouts::QpTimeouts;
use super::{CompletionQueue, KeepAlive, QpControl, SharedReceiveQueue};
use crate::config::TransportKind;
use crate::error::VerbsError;
use crate::event::NegotiatedParams;

/// The state of a queue pair. Receives may be posted in every state, sends from
/// [`QpState::Connecting`] on. Requests that are posted in [`QpState::Error`] complete as flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum QpState {
    /// Created, not connected.
    Idle = 0,
    /// Being connected: sends are held.
    Connecting = 1,
    /// Connected.
    Established = 2,
    /// Closing: posted requests are still sent, and no more may be posted.
    Draining = 3,
    /// Ended: everything is flushed.
    Error = 4,
}

/// The attributes of a new queue pair.
#[derive(Clone, Debug)]
pub struct QpAttr {
    /// The completion queue of sends.
    pub send_cq: CompletionQueue,
    /// The completion queue of receives.
    pub recv_cq: CompletionQueue,
    /// The shared receive queue, if receives come from one.
    pub srq: Option<SharedReceiveQueue>,
    /// The share of that queue that this queue pair's peer may use. `None`: no limit.
    pub srq_share: Option<ReceiveShare>,
    /// The core that it connects from. `None`: the core with the fewest queue pairs. A queue pair
    /// that accepts uses the core of the connection.
    pub core: Option<u16>,
    /// Send requests outstanding, 1 to 65536; rounded up to a power of two.
    pub send_depth: u32,
    /// Receives outstanding, 1 to 65536; rounded up to a power of two.
    pub recv_depth: u32,
    /// Gather or scatter elements in a request, 1 to 16.
    pub max_sge: usize,
    /// Inline bytes in a request, 0 to 256.
    pub inline_bytes: usize,
    /// Reads that the peer may have outstanding here (IRD).
    pub ird: u16,
    /// Reads that this side may have outstanding at the peer (ORD).
    pub ord: u16,
    /// Completes Sends and Writes when their bytes are copied, instead of when the peer's TCP has
    /// acknowledged them. A completion then shows only that the memory is free.
    pub complete_on_copy: bool,
    /// Places tagged segments beyond a gap before the gap is filled, on connections with markers
    /// and CRCs. `None`: as configured (`ddp.place_out_of_order`), by default not.
    pub place_out_of_order: Option<bool>,
    /// The time after which unacknowledged sends, or Reads without a response, end the connection.
    /// `None`: as configured (`tcp.user_timeout_ms`).
    pub user_timeout: Option<Duration>,
    /// The time after which a peer whose window stays closed ends the connection, although it
    /// answers probes. `None`: as configured (`tcp.zero_window_timeout_ms`).
    pub zero_window_timeout: Option<Duration>,
    /// Keep-alive probes. `None`: as configured (`tcp.keep_alive`), by default none.
    pub keep_alive: Option<KeepAlive>,
}

impl QpAttr {
    /// Returns the defaults: 128 sends, 128 receives, 16 Reads each way, all completions in one
    /// queue.
    pub fn new(cq: CompletionQueue) -> Self {
        QpAttr {
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            srq_share: None,
            core: None,
            send_depth: 128,
            recv_depth: 128,
            max_sge: SGE_MAX,
            inline_bytes: INLINE_BYTES_MAX,
            ird: 16,
            ord: 16,
            complete_on_copy: false,
            place_out_of_order: None,
            user_timeout: None,
            zero_window_timeout: None,
            keep_alive: None,
        }
    }

    pub(crate) fn timeouts(&self) -> QpTimeouts {
        QpTimeouts {
            user_timeout: self.user_timeout,
            zero_window_timeout: self.zero_window_timeout,
            keep_alive: self.keep_alive,
        }
    }

    /// Returns the read depths.
    pub(crate) fn reads(&self) -> ReadDepths {
        ReadDepths { ird: self.ird, ord: self.ord }
    }

    pub(crate) fn validate(&self, reads_max: u16, cores: usize) -> Result<(), VerbsError> {
        let last = cores.saturating_sub(1) as u64;
        check_range("core", self.core.unwrap_or_default().into(), 0, last, "below core.count")?;
        let (most, depth) = (WORK_DEPTH_MAX.into(), "1 to 65536");
        check_range("send depth", self.send_depth.into(), 1, most, depth)?;
        check_range("receive depth", self.recv_depth.into(), 1, most, depth)?;
        check_range("elements", self.max_sge as u64, 1, SGE_MAX as u64, "1 to 16")?;
        check_range("inline bytes", self.inline_bytes as u64, 0, INLINE_BYTES_MAX as u64, "0 to 256")?;
        let share = self.srq_share.map_or(1, |share| share.receives);
        check_range("receive share", share.into(), 1, most, depth)?;
        let reads = "0 to limits.read_depth";
        check_range("ird", self.ird.into(), 0, reads_max.into(), reads)?;
        check_range("ord", self.ord.into(), 0, reads_max.into(), reads)?;
        self.timeouts().validate()
    }
}

/// The attributes of a new completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqAttr {
    /// Requests that may be posted and not reaped, 1 to 1048576.
    pub depth: u32,
    /// The core whose queue pairs may use it. `None`: all cores, each with a ring of this depth.
    pub core: Option<u16>,
}

/// The attributes of a new shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqAttr {
    /// Receives on each core, 1 to 65536; rounded up to a power of two.
    pub depth: u32,
    /// Scatter elements of a receive, 1 to 16.
    pub max_sge: usize,
    /// The core whose queue pairs may use it. `None`: all cores, each with a ring of this depth.
    pub core: Option<u16>,
}

/// How the messages of a connection are carried, as start-up negotiated it (RFC 5044 s7.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    /// The transport. SCTP has CRCs and no markers.
    pub transport: TransportKind,
    /// Whether CRCs are in use, in both directions.
    pub crc: bool,
    /// The directions in which markers are in use.
    pub markers: Markers,
}

/// The share of a shared receive queue for the peer of one queue pair (RFC 5042 s6.4.3.1).
///
/// It counts the receives that the peer's messages consumed and that no post has credited yet. A
/// post credits the oldest consumed receive, whichever queue pair consumed it. A queue pair that
/// exceeds its share raises [`Event::SrqShareExceeded`](crate::Event::SrqShareExceeded).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveShare {
    /// The limit in receives, 1 to 65536.
    pub receives: u32,
    /// Whether a message beyond the share gets no receive, which ends its connection. Otherwise the
    /// application gets the event and decides.
    pub enforced: bool,
}

/// The largest depth of a send or receive queue.
pub(crate) const WORK_DEPTH_MAX: u32 = 1 << 16;

pub(crate) fn check_range(
    what: &'static str,
    value: u64,
    least: u64,
    most: u64,
    allowed: &'static str,
) -> Result<(), VerbsError> {
    let ok = (least..=most).contains(&value);
    if ok { Ok(()) } else { Err(VerbsError::OutOfRange { what, value, allowed }) }
}

/// What the core and the application share of a queue pair, in a block of its own. On a cache line
/// of its own, since both write it.
#[repr(C, align(64))]
pub(crate) struct QpShared {
    /// The doorbell's flag.
    pub(crate) bell: DoorbellFlag,
    /// Written by the core, read by the application.
    state: SharedState,
    /// The result of start-up, packed into one word; 0 before.
    negotiated: AtomicU64,
    /// A [`QpControl`], written by the context.
    control: AtomicU64,
}

impl QpShared {
    pub(crate) fn new() -> Self {
        QpShared {
            bell: DoorbellFlag::default(),
            state: SharedState::new(QpState::Idle as u8),
            negotiated: AtomicU64::new(0),
            control: AtomicU64::new(0),
        }
    }

    /// Publishes what the context decided. A thread that sees a later state sees it.
    pub(crate) fn set_control(&self, control: QpControl) {
        self.control.store(control.to_bits(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn control(&self) -> QpControl {
        QpControl::from_bits(self.control.load(Ordering::Acquire))
    }

    pub(crate) fn state(&self) -> QpState {
        match self.state.load() {
            0 => QpState::Idle,
            1 => QpState::Connecting,
            2 => QpState::Established,
            3 => QpState::Draining,
            _ => QpState::Error,
        }
    }

    /// Returns whether the connection has ended, after the caller has published requests.
    #[inline]
    pub(crate) fn has_ended_after_publish(&self) -> bool {
        self.state.load_after_publish() >= QpState::Error as u8
    }

    /// Enters a state. A core that reads a queue after this call has the requests of every post
    /// that does not see it.
    pub(crate) fn set(&self, state: QpState) {
        self.state.set(state as u8);
    }

    /// RFC 6581 s9: the read depths have 14 bits each. The revision is in the lowest byte, so the
    /// word is not 0.
    pub(crate) fn set_negotiated(&self, negotiated: NegotiatedParams, framing: Framing) {
        let [own, peer] = [negotiated.reads, negotiated.peer_reads.unwrap_or_default()];
        let depths = [own.ird, own.ord, peer.ird, peer.ord];
        let flags = u64::from(negotiated.revision)
            | u64::from(framing.crc) << HAS_CRC
            | u64::from(framing.markers.sent) << SENDS_MARKERS
            | u64::from(framing.markers.received) << RECEIVES_MARKERS
            | u64::from(framing.transport == TransportKind::Sctp) << IS_SCTP
            | u64::from(negotiated.peer_reads.is_some()) << HAS_PEER_READS;
        let word = depths.iter().fold(0, |word, &depth| word << DEPTH_BITS | u64::from(depth) & DEPTH_MASK);
        self.negotiated.store(word << FLAG_BITS | flags, Ordering::Release);
    }

    pub(crate) fn negotiated(&self) -> Option<NegotiatedParams> {
        let word = self.negotiated.load(Ordering::Acquire);
        let depth = |place: u32| (word >> (FLAG_BITS + DEPTH_BITS * place) & DEPTH_MASK) as u16;
        let peer_reads = ReadDepths { ird: depth(1), ord: depth(0) };
        (word != 0).then_some(NegotiatedParams {
            revision: (word & 0x7) as u8,
            peer_reads: (word >> HAS_PEER_READS & 1 != 0).then_some(peer_reads),
            reads: ReadDepths { ird: depth(3), ord: depth(2) },
        })
    }

    pub(crate) fn framing(&self) -> Option<Framing> {
        let word = self.negotiated.load(Ordering::Acquire);
        let has = |flag: u32| word >> flag & 1 != 0;
        let markers = Markers { sent: has(SENDS_MARKERS), received: has(RECEIVES_MARKERS) };
        let transport = if has(IS_SCTP) { TransportKind::Sctp } else { TransportKind::Tcp };
        (word != 0).then_some(Framing { transport, crc: has(HAS_CRC), markers })
    }
}

const DEPTH_BITS: u32 = 14;
const DEPTH_MASK: u64 = (1 << DEPTH_BITS) - 1;
const FLAG_BITS: u32 = 8;
/// Above the three bits of the revision.
const HAS_CRC: u32 = 3;
const SENDS_MARKERS: u32 = 4;
const RECEIVES_MARKERS: u32 = 5;
const IS_SCTP: u32 = 6;
const HAS_PEER_READS: u32 = 7;
const _: () = assert!(FLAG_BITS + 4 * DEPTH_BITS == u64::BITS);
