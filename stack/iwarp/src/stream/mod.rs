//! The RDMAP stream of one queue pair: DDP and RDMAP, in the frames of a lower layer ([`Framing`]).
//!
//! For each call the core loop lends the two work rings, its callbacks, its view of memory and its
//! counters ([`Io`]). In-order bytes go to [`Stream::on_readable`], TCP pulls units from
//! [`Stream::limited_source`], and acknowledgements go to [`Stream::on_acked`].
//!
//! ```text
//!            Idle ---- start ----> Open ---- local error ----> Terminating ---- Terminate pulled ---> Ended
//!                                   |                                                                   ^
//!                                   +-------- Terminate received, TCP lost, abort ----------------------+
//! ```
//! Leaving `Open` flushes every work request at once; [`Stream::flush`] flushes later ones. At most
//! one Terminate is sent: it is the last unit, after those that TCP has already pulled
//! (RFC 5040 s5.4).
//!
//! Nothing allocates after [`Stream::new`], and no input from the wire causes a panic.

mod atomic_forwarding;
mod callbacks;
mod check;
mod complete;
mod cursor;
mod extended;
mod first_octets;
mod local;
mod out_of_order;
mod receive;
mod rtr;
mod saved;
mod transmit;

#[cfg(test)]
mod tests;

use ironwarp_mem::{Access, AccessError, AccessScope, CoreMem, guard};
use ironwarp_rings::slots::{SlotConsumer, SlotProducer};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{PdId, QpNum};

pub use callbacks::{AtomicForwarder, CompletionSink, NoCredit, SharedReceives, SrqError, StreamCallbacks};
pub use transmit::StreamSource;

use crate::ddp::untagged::UntaggedQueue;
use crate::framing::Framing;
use crate::mpa::startup::{Markers, Negotiated};
use crate::mpa::{Mpa, MpaFault};
use crate::rdmap::{
    OutstandingRequest, OutstandingRequests, ResponderEntry, ResponderQueue, Rfc7306Profile,
    TerminatedHeaders,
};
use crate::setup::{ReadDepths, Rtr, RtrKinds, Terms};
use crate::terminate::Terminate;
use crate::wr::{RecvWqe, SendWqe};
use complete::SendProgress;
use cursor::SgeCursor;
use local::PendingDelivery;
use out_of_order::OutOfOrderPlacement;
use transmit::{Gate, Sender};

/// What the core loop lends to a stream for one call.
pub struct Io<'a, C> {
    /// The queue pair's send ring.
    pub sends: &'a mut SlotConsumer<SendWqe>,
    /// The queue pair's receive ring.
    pub receives: &'a mut SlotConsumer<RecvWqe>,
    /// The producer of the receive ring, if receives come from a shared receive queue.
    pub rq_producer: Option<&'a mut SlotProducer<RecvWqe>>,
    /// The core loop, as [`StreamCallbacks`].
    pub callbacks: C,
    /// The core's view of registered memory.
    pub memory: &'a CoreMem,
    /// The core's counters.
    pub stats: &'a CoreStats,
}

/// The parameters of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// The number of the queue pair, for completions.
    pub qp: QpNum,
    /// The protection domain of the queue pair.
    pub pd: PdId,
    /// The protection domain of its receives: its own, or that of the shared receive queue.
    pub recv_pd: PdId,
    /// The largest number of local Reads that may be outstanding at the peer.
    pub ord: u16,
    /// The largest number of Reads of the peer that may be outstanding here.
    pub ird: u16,
    /// Slots of the send ring.
    pub send_depth: u32,
    /// Completes Sends and Writes when their last octet is copied instead of when it is
    /// acknowledged. RFC 5040 s5.5 allows either; only an acknowledgement shows that the peer's TCP
    /// has the data.
    pub complete_on_copy: bool,
    /// Allows Sends and Read Requests between the segments of a long Read Response.
    pub interleave_untagged: bool,
    /// Places tagged segments beyond a gap out of order, if the framing can find them: MPA with
    /// markers and CRCs, or messages.
    pub place_out_of_order: bool,
    /// The variant of RFC 7306. `None` supports RFC 5040 only.
    pub extensions: Option<Rfc7306Profile>,
    /// Changes words with locked instructions on any core instead of on the owner core. The setting
    /// is the same for all streams of a process.
    pub atomic_locked: bool,
    /// Takes the fast path where it applies. Off: every message takes the general path, with the
    /// same results.
    pub fast_path: bool,
}

/// Which side may send first: over MPA, that which sent the Request Frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// This side may send FPDUs at once.
    Initiator,
    /// This side waits for the peer's first FPDU (RFC 5044 s7.1.2, rule 4).
    Responder,
}

/// The result of start-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamStart<F = Mpa> {
    /// The local role.
    pub role: Role,
    /// The frames of both directions.
    pub framing: F,
    /// The negotiated read depths, if they differ from [`StreamConfig`]. They may be lower, or 1
    /// instead of 0.
    pub reads: Option<ReadDepths>,
    /// The ready-to-receive indication that the initiator sends first (RFC 6581 s5).
    pub rtr_to_send: Option<Rtr>,
    /// The kinds of ready-to-receive indication that the responder may receive first.
    pub rtr_awaited: RtrKinds,
    /// Payload octets that TCP had pulled before the first FPDU: those of the local start-up frame.
    pub startup_bytes_sent: u64,
}

impl StreamStart {
    /// A start with or without CRCs, and nothing else negotiated or pulled.
    pub fn plain(role: Role, crc: bool) -> Self {
        StreamStart {
            role,
            framing: Mpa::new(crc, Markers::default()),
            reads: None,
            rtr_to_send: None,
            rtr_awaited: RtrKinds::empty(),
            startup_bytes_sent: 0,
        }
    }

    /// A start with the terms of start-up. The local frame had `startup_bytes_sent` octets.
    pub fn agreed(role: Role, agreed: &Negotiated, startup_bytes_sent: u64) -> Self {
        let Terms { reads, rtr_to_send, rtr_awaited, .. } = agreed.terms;
        StreamStart {
            role,
            framing: Mpa::new(agreed.crc, agreed.markers),
            reads: Some(reads),
            rtr_to_send,
            rtr_awaited,
            startup_bytes_sent,
        }
    }
}

/// The states of a stream, as in the diagram above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamState {
    /// Start-up has not finished.
    Idle,
    /// Full operation.
    Open,
    /// A local error was found; its Terminate waits to be pulled.
    Terminating,
    /// Nothing more is sent or read.
    Ended,
}

/// Why a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// An error was found here. Its Terminate waits to be pulled, if one may be sent.
    #[error("the stream ended with a local error, Terminate {0}")]
    Failed(Terminate),
    /// The peer sent a Terminate. None is sent in reply.
    #[error("the peer ended the stream with Terminate {0}")]
    PeerTerminated(Terminate),
}

/// The stream of one queue pair. First what a segment in either direction uses, then what only one
/// direction does, then the rest.
#[repr(C)]
pub struct Stream<F = Mpa> {
    state: StreamState,
    /// Segments are accepted: the stream is open, its framing is ready, and no delivery is pending.
    receiving: bool,
    fast: FastPaths,
    /// An operation has to be forwarded, but there was no credit.
    awaits_forward_credit: bool,
    /// The peer ended the stream because it does not support Atomic Requests.
    peer_lacks_atomics: bool,
    /// The peer has answered an Atomic Request.
    peer_has_atomics: bool,
    framing: F,
    /// The rights that the peer does not have here, whatever a region grants.
    withheld: Access,
    config: StreamConfig,
    responses: ResponderQueue,
    sender: Sender,
    /// The segments that were placed out of order, if that is enabled.
    out_of_order: Option<Box<OutOfOrderPlacement>>,
    send_progress: SendProgress,
    outstanding: OutstandingRequests,
    /// The receive side of queue 0, and the position in the list of the current receive.
    rx_sends: UntaggedQueue,
    recv_cursor: SgeCursor,
    /// The receive side of queue 1.
    rx_requests: UntaggedQueue,
    /// The receive side of queue 3.
    rx_atomic_responses: UntaggedQueue,
    /// A delivery that waits until no core uses the steering tag that it invalidated.
    pending_delivery: Option<PendingDelivery>,
    error: Option<StreamError>,
    /// The kinds of ready-to-receive indication that the first FPDU may be.
    rtr_awaited: RtrKinds,
    terminated_headers: TerminatedHeaders,
}

/// The shortcuts that a stream may try, decided when it starts. None of them without
/// [`StreamConfig::fast_path`].
#[derive(Clone, Copy)]
struct FastPaths {
    /// [`Stream::complete_fast`] may complete this many requests: 1, or [`FastPaths::NEVER`].
    completes: i8,
    /// [`Stream::fill_fast`], and one pass over a long payload for its copy, CRC and sum.
    on: bool,
    /// [`Stream::place_fast`]: nothing is placed out of order.
    places: bool,
}

impl FastPaths {
    /// As an unsigned number, more requests than a queue has.
    const NEVER: i8 = -1;
    const OFF: Self = FastPaths { completes: Self::NEVER, on: false, places: false };
}

impl<F: Framing> Stream<F> {
    /// The part that a message uses, for prefetches.
    pub const TRAFFIC_BYTES: usize = core::mem::offset_of!(Self, rx_requests);

    /// Creates a stream that has not started. Allocates all memory that it will need, except for
    /// its first outstanding Read of each direction.
    pub fn new(config: StreamConfig) -> Self {
        Stream {
            config,
            withheld: Access::empty(),
            state: StreamState::Idle,
            receiving: false,
            pending_delivery: None,
            framing: F::default(),
            out_of_order: config.place_out_of_order.then(Box::default),
            rtr_awaited: RtrKinds::empty(),
            error: None,
            terminated_headers: TerminatedHeaders::default(),
            peer_lacks_atomics: false,
            peer_has_atomics: false,
            awaits_forward_credit: false,
            rx_sends: UntaggedQueue::new(),
            recv_cursor: SgeCursor::default(),
            rx_requests: UntaggedQueue::new(),
            rx_atomic_responses: UntaggedQueue::new(),
            outstanding: OutstandingRequests::new(config.ord),
            responses: ResponderQueue::new(config.ird),
            sender: Sender::new(),
            send_progress: SendProgress::new(config.send_depth),
            fast: FastPaths::OFF,
        }
    }

    /// Enters full operation: both directions carry only FPDUs from now on.
    pub fn start(&mut self, start: StreamStart<F>) {
        if self.state == StreamState::Idle {
            self.enter_full_operation(start.framing);
            self.rtr_awaited = start.rtr_awaited;
            if let Some(ReadDepths { ird, ord }) = start.reads {
                self.responses.set_ird(ird);
                self.outstanding.set_ord(ord);
            }
            self.sender.start(start.role, start.rtr_to_send);
            self.send_progress.start(start.startup_bytes_sent);
        }
    }

    fn enter_full_operation(&mut self, framing: F) {
        self.state = StreamState::Open;
        self.framing = framing;
        self.receiving = self.framing.is_ready();
        self.start_out_of_order();
        if self.config.fast_path {
            self.fast =
                FastPaths { completes: 1, on: self.framing.is_fast(), places: self.out_of_order.is_none() };
        }
    }

    /// Returns whether FPDUs may be sent: always on an initiator, on a responder after the first
    /// FPDU has arrived (RFC 5044 s7.1.2, rule 4).
    pub fn may_send(&self) -> bool {
        self.sender.gate != Gate::Closed
    }

    /// Returns whether a Terminate with `error` may be sent. RFC 5044 s7.1.2: a responder that has
    /// received no FPDU may not send one, not even a Terminate. s8: no Terminate is sent for a
    /// wrong start-up frame.
    pub fn may_send_terminate(&self, error: Terminate) -> bool {
        self.may_send() && error != MpaFault::Startup.into()
    }

    /// Returns the framing.
    pub fn framing(&self) -> &F {
        &self.framing
    }

    /// Returns the depths of Reads of its [`StreamConfig`].
    pub fn depths_at_creation(&self) -> ReadDepths {
        ReadDepths { ird: self.config.ird, ord: self.config.ord }
    }

    /// Returns the state.
    pub fn state(&self) -> StreamState {
        self.state
    }

    /// Returns whether an error, a Terminate or the core loop has ended the stream.
    #[inline(always)]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, StreamState::Terminating | StreamState::Ended)
    }

    /// Returns why the stream ended. `None` before the end, and if the core loop ended it.
    pub fn error(&self) -> Option<StreamError> {
        self.error
    }

    /// Returns whether every posted send has completed and every Read of the peer is answered, so
    /// that a graceful disconnect may send its FIN. RFC 6581 s9.2: the ready-to-receive indication
    /// must be sent, and answered if it is a Read.
    pub fn is_drained<C>(&self, io: &mut Io<'_, C>) -> bool {
        let indicated = self.sender.rtr().is_none() && !self.send_progress.rtr_read;
        io.sends.head() == io.sends.refresh() && self.responses.is_empty() && indicated
    }

    /// Ends the stream without a Terminate, because TCP is lost or will be closed. Flushes every
    /// request.
    pub fn abort<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        self.state = StreamState::Ended;
        self.receiving = false;
        self.clear_and_flush(io);
    }

    /// Ends the stream with a Terminate for an error of the connection manager (RFC 6581 s8).
    pub fn terminate<C: CompletionSink>(&mut self, error: Terminate, io: &mut Io<'_, C>) {
        if self.state == StreamState::Open {
            self.fail(error, TerminatedHeaders::default(), io);
        }
    }

    /// Ends the stream with a local error. The next unit is its Terminate.
    #[cold]
    fn fail<C: CompletionSink>(
        &mut self,
        error: impl Into<Terminate>,
        terminated_headers: TerminatedHeaders,
        io: &mut Io<'_, C>,
    ) -> StreamError {
        let end = self.enter_error(error.into(), terminated_headers, io.stats);
        self.clear_and_flush(io);
        end
    }

    /// The part of [`Stream::fail`] that does not change the work rings.
    fn enter_error(
        &mut self,
        error: Terminate,
        terminated_headers: TerminatedHeaders,
        stats: &CoreStats,
    ) -> StreamError {
        self.state =
            if self.may_send_terminate(error) { StreamState::Terminating } else { StreamState::Ended };
        self.receiving = false;
        self.terminated_headers = terminated_headers;
        let end = StreamError::Failed(error);
        self.error = Some(end);
        stats.count(Counter::IwarpStreamsFailed);
        if guard::take_faults() > 0 {
            stats.count(Counter::IwarpMemoryFaults);
        }
        end
    }

    /// Ends the stream because of the peer's Terminate.
    #[cold]
    fn peer_terminated<C: CompletionSink>(&mut self, error: Terminate, io: &mut Io<'_, C>) -> StreamError {
        self.state = StreamState::Ended;
        self.receiving = false;
        let end = StreamError::PeerTerminated(error);
        self.error = Some(end);
        io.stats.count(Counter::IwarpRxTerminates);
        self.clear_and_flush(io);
        end
    }

    /// Removes all operations in progress and flushes.
    fn clear_and_flush<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        self.outstanding.clear();
        self.responses.clear();
        self.pending_delivery = None;
        if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.stop();
        }
        self.flush(io);
    }

    /// Sets what the peer may do through this stream with regions that grant it: `REMOTE_READ`,
    /// `REMOTE_WRITE`, `REMOTE_ATOMIC`. All of them until then. Also an operation that has begun is
    /// refused its next octets.
    pub fn set_remote_access(&mut self, granted: Access) {
        let all = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        self.withheld = all.difference(granted);
    }

    /// Checks a right of the peer against those of the stream.
    #[inline(always)]
    fn check_withheld(&self, need: Access) -> Result<(), AccessError> {
        if self.withheld.intersects(need) { Err(AccessError::NoRight) } else { Ok(()) }
    }

    /// Returns the scope of memory that this stream may access.
    #[inline]
    fn access_scope(&self) -> AccessScope {
        AccessScope::new(self.config.pd, self.config.qp)
    }
}

impl<F> core::fmt::Debug for Stream<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Stream")
            .field("qp", &self.config.qp)
            .field("state", &self.state)
            .field("end", &self.error)
            .finish_non_exhaustive()
    }
}

/// The default IRD and ORD of a queue pair.
const DEFAULT_READ_DEPTH: usize = 16;

/// The stream of a queue pair, with the queues of its Reads, takes at most 2 KiB. Not counted is
/// what the application sizes: 16 octets for each slot of the send ring
/// ([`DoneWhen`](complete::DoneWhen)).
const _: () = assert!(
    size_of::<Stream>()
        + DEFAULT_READ_DEPTH * (size_of::<OutstandingRequest>() + size_of::<ResponderEntry>())
        <= 2048
);
