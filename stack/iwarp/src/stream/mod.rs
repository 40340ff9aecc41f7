//! One queue pair's RDMAP stream: MPA, DDP and RDMAP assembled over one TCP connection.
//!
//! The core loop lends everything for the length of a call ([`Io`]): the two work rings, the completion sink, the
//! core's view of memory, its counters. In-order bytes go into [`Stream::on_readable`]; TCP pulls units from
//! [`Stream::unit_source`]; acknowledgements go into [`Stream::on_acked`].
//!
//! ```text
//!            Idle ---- start ----> Open ---- error found here ----> Terminating ---- Terminate pulled ---> Ended
//!                                   |                                                                       ^
//!                                   +-------- Terminate received, TCP lost, abort --------------------------+
//! ```
//! Leaving `Open` flushes every work request at once; what is posted later is flushed by [`Stream::flush`]. One
//! Terminate at most is sent: it is the unit after those TCP has pulled already, and the last (RFC 5040 s5.4).
//!
//! Nothing allocates after [`Stream::new`], and no octet from the wire can make anything here panic.

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
mod transmit;

#[cfg(test)]
mod tests;

use ironwarp_mem::{AccessScope, CoreMem};
use ironwarp_rings::slots::{SlotConsumer, SlotProducer};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{PdId, QpNum};

pub use callbacks::{AtomicForwarder, CompletionSink, NoCredit, SharedReceives, SrqError, StreamCallbacks};
pub use transmit::StreamSource;

use crate::ddp::untagged::UntaggedQueue;
use crate::mpa::marker::MarkerState;
use crate::mpa::startup::{Markers, Negotiated, ReadDepths, Rtr, RtrKinds};
use crate::rdmap::{
    OutstandingRequest, OutstandingRequests, ResponderEntry, ResponderQueue, Rfc7306Profile,
    TerminatedHeaders,
};
use crate::terminate::Terminate;
use crate::wr::{RecvWqe, SendWqe};
use complete::SendProgress;
use cursor::SgeCursor;
use local::PendingDelivery;
use out_of_order::OutOfOrderPlacement;
use transmit::Sender;

/// What the core loop lends for one call.
pub struct Io<'a, C> {
    /// The queue pair's send ring.
    pub sends: &'a mut SlotConsumer<SendWqe>,
    /// The queue pair's receive ring.
    pub receives: &'a mut SlotConsumer<RecvWqe>,
    /// Its other end, where receives come from a shared queue.
    pub rq_producer: Option<&'a mut SlotProducer<RecvWqe>>,
    /// The core loop, as [`StreamCallbacks`].
    pub callbacks: &'a mut C,
    /// The core's view of registered memory.
    pub memory: &'a CoreMem,
    /// The core's counters.
    pub stats: &'a CoreStats,
}

/// What a stream is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// The queue pair, as completions name it.
    pub qp: QpNum,
    /// The protection domain whose memory it may reach.
    pub pd: PdId,
    /// That of its receives: its own, or that of the shared receive queue which they come from.
    pub recv_pd: PdId,
    /// Reads of ours that may be outstanding at the peer.
    pub ord: u16,
    /// Reads of the peer's that may be outstanding here.
    pub ird: u16,
    /// Slots of the send ring.
    pub send_depth: u32,
    /// Complete Sends and Writes when their last octet is copied out instead of when it is acknowledged. RFC 5040
    /// s5.5 allows either; only an acknowledgement says that the peer's TCP has it.
    pub complete_on_copy: bool,
    /// Let Sends and Read Requests go between the segments of a long Read Response.
    pub interleave_untagged: bool,
    /// Place tagged segments that lie beyond a gap before their turn, where markers and CRCs are in use.
    pub place_out_of_order: bool,
    /// The operations of RFC 7306, and by which text; `None` is RFC 5040 alone, to which they do not exist.
    pub extensions: Option<Rfc7306Profile>,
    /// Change words with locked instructions, from whichever core a request arrives at, instead of asking the one core
    /// that owns it. All streams of a process do the one, or all the other.
    pub atomic_locked: bool,
}

/// Which side sent the MPA Request Frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// We did: we may send at once.
    Initiator,
    /// The peer did: we wait for its first FPDU (RFC 5044 s7.1.2, rule 4).
    Responder,
}

/// What start-up settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamStart {
    /// Our side in it.
    pub role: Role,
    /// Whether CRCs are in use.
    pub crc: bool,
    /// In which directions markers are.
    pub markers: Markers,
    /// The numbers of Reads, when they are not those that the stream was made with. Fewer, or one where there was none.
    pub reads: Option<ReadDepths>,
    /// The indication that goes before everything else, from the initiator (RFC 6581 s5).
    pub rtr_to_send: Option<Rtr>,
    /// The indications that may come first, to the responder.
    pub rtr_awaited: RtrKinds,
    /// Payload octets that TCP had pulled before the first FPDU: those of our start-up frame.
    pub startup_bytes_sent: u64,
}

impl StreamStart {
    /// Nothing but CRCs was agreed on, and nothing was pulled before.
    pub fn plain(role: Role, crc: bool) -> Self {
        StreamStart {
            role,
            crc,
            markers: Markers::default(),
            reads: None,
            rtr_to_send: None,
            rtr_awaited: RtrKinds::empty(),
            startup_bytes_sent: 0,
        }
    }

    /// What the start-up frames settled; ours had `startup_bytes_sent` octets.
    pub fn agreed(role: Role, agreed: &Negotiated, startup_bytes_sent: u64) -> Self {
        StreamStart {
            role,
            crc: agreed.crc,
            markers: agreed.markers,
            reads: Some(agreed.reads),
            rtr_to_send: agreed.rtr_to_send,
            rtr_awaited: agreed.rtr_awaited,
            startup_bytes_sent,
        }
    }
}

/// Where a stream is in its life; see the picture above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamState {
    /// Start-up is not over.
    Idle,
    /// Full operation.
    Open,
    /// An error was found; the Terminate waits to be pulled.
    Terminating,
    /// Nothing more is sent or read.
    Ended,
}

/// Why a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// We found an error. Its Terminate waits to be pulled, if one may be sent.
    #[error("ended here with Terminate {0}")]
    Failed(Terminate),
    /// The peer sent a Terminate. None is sent in answer.
    #[error("ended by the peer with Terminate {0}")]
    PeerTerminated(Terminate),
}

/// One queue pair's stream.
pub struct Stream {
    config: StreamConfig,
    state: StreamState,
    /// FPDUs are taken: the stream is open, its first octets are no start-up frame, and no delivery is held.
    receiving: bool,
    /// Nothing has come yet.
    awaits_first_octets: bool,
    /// A delivery that waits until nobody uses the steering tag that it ended.
    pending_delivery: Option<PendingDelivery>,
    crc: bool,
    /// Where the next marker comes, in what we send and in what we receive, when they are in use.
    tx_markers: Option<MarkerState>,
    rx_markers: Option<MarkerState>,
    /// What is in memory before its turn, where that is wanted.
    out_of_order: Option<Box<OutOfOrderPlacement>>,
    /// The indications that the first FPDU may be.
    rtr_awaited: RtrKinds,
    error: Option<StreamError>,
    terminated_headers: TerminatedHeaders,
    /// The peer ended it over an Atomic Request, which it does not know.
    peer_lacks_atomics: bool,
    /// The peer has answered one.
    peer_has_atomics: bool,
    /// A word's owner is to be asked for something and there was no credit.
    awaits_forward_credit: bool,
    /// Queue 0 as its receiver, and where in the waiting receive's list it stands.
    rx_sends: UntaggedQueue,
    recv_cursor: SgeCursor,
    /// Queue 1 as its receiver.
    rx_requests: UntaggedQueue,
    /// Queue 3 as its receiver.
    rx_atomic_responses: UntaggedQueue,
    outstanding: OutstandingRequests,
    responses: ResponderQueue,
    sender: Sender,
    send_progress: SendProgress,
}

impl Stream {
    /// A stream that has not started. Allocates all that it will ever need.
    pub fn new(config: StreamConfig) -> Self {
        Stream {
            config,
            state: StreamState::Idle,
            receiving: false,
            awaits_first_octets: true,
            pending_delivery: None,
            crc: true,
            tx_markers: None,
            rx_markers: None,
            out_of_order: OutOfOrderPlacement::new_if_enabled(config.place_out_of_order),
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
        }
    }

    /// Enters full operation: from now on both directions carry FPDUs only.
    pub fn start(&mut self, start: StreamStart) {
        if self.state == StreamState::Idle {
            self.state = StreamState::Open;
            self.crc = start.crc;
            self.tx_markers = start.markers.sent.then(MarkerState::new);
            self.rx_markers = start.markers.received.then(MarkerState::new);
            self.start_out_of_order();
            self.rtr_awaited = start.rtr_awaited;
            if let Some(ReadDepths { ird, ord }) = start.reads {
                self.responses.set_ird(ird);
                self.outstanding.set_ord(ord);
            }
            self.sender.start(start.role, start.rtr_to_send);
            self.send_progress.start(start.startup_bytes_sent);
        }
    }

    /// Whether FPDUs may be sent: always for an initiator, for a responder once one has come (RFC 5044 s7.1.2, rule 4).
    pub fn may_send(&self) -> bool {
        self.sender.may_send()
    }

    /// Where the stream is in its life.
    pub fn state(&self) -> StreamState {
        self.state
    }

    /// Why it ended, once it has, unless the core loop ended it.
    pub fn error(&self) -> Option<StreamError> {
        self.error
    }

    /// Whether every posted send has completed and every Read of the peer's is answered, so that a graceful
    /// disconnect may send its FIN. RFC 6581 s9.2: the indication has to go whatever the application wants, and one by
    /// Read is answered.
    pub fn is_drained<C>(&self, io: &mut Io<'_, C>) -> bool {
        let indicated = self.sender.rtr().is_none() && !self.send_progress.awaits_rtr_read();
        io.sends.head() == io.sends.refresh() && self.responses.is_empty() && indicated
    }

    /// Ends the stream without a Terminate, because TCP is gone or is about to be, and flushes every request.
    pub fn abort<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        self.state = StreamState::Ended;
        self.receiving = false;
        self.clear_and_flush(io);
    }

    /// Ends the stream with a Terminate that names `error`: for the connection manager's own errors (RFC 6581 s8).
    pub fn terminate<C: CompletionSink>(&mut self, error: Terminate, io: &mut Io<'_, C>) {
        if self.state == StreamState::Open {
            self.fail(error, TerminatedHeaders::default(), io);
        }
    }

    /// Ends the stream with an error found here, which the next unit tells the peer.
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

    /// The part of failing that leaves the work rings alone.
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
        end
    }

    /// Ends the stream because the peer said so.
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

    /// Forgets what is under way and flushes.
    fn clear_and_flush<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        self.outstanding.clear();
        self.responses.clear();
        self.pending_delivery = None;
        if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.stop();
        }
        self.flush(io);
    }

    /// Whose memory it reaches.
    #[inline]
    fn access_scope(&self) -> AccessScope {
        AccessScope::new(self.config.pd, self.config.qp)
    }
}

impl core::fmt::Debug for Stream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Stream")
            .field("qp", &self.config.qp)
            .field("state", &self.state)
            .field("end", &self.error)
            .finish_non_exhaustive()
    }
}

/// Reads each way that a queue pair is made for unless its application says otherwise.
const DEFAULT_READ_DEPTH: usize = 16;

/// The stream of an idle queue pair takes at most 2 KiB. Not counted is what the application sizes: 16 octets for each
/// slot of the send ring ([`DoneWhen`](complete::DoneWhen)).
const _: () = assert!(
    size_of::<Stream>()
        + DEFAULT_READ_DEPTH * (size_of::<OutstandingRequest>() + size_of::<ResponderEntry>())
        <= 2048
);
