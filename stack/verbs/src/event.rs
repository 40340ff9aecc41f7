//! The events that a context gets about its connections.

use core::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use ironwarp_iwarp::Terminate;
use ironwarp_iwarp::mpa::startup::ReadDepths;
use ironwarp_types::limits::PRIVATE_DATA_BYTES_MAX;

use crate::{CompletionQueue, QueuePair, SharedReceiveQueue};

/// Bytes that the peer's application put beside the connection set-up (RFC 5044 s7.1.1), at most 512.
pub type PrivateData = ArrayVec<u8, PRIVATE_DATA_BYTES_MAX>;

/// An event of a connection. Events keep the order in which they happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A peer asks for a connection. Accept or reject it before the start-up timeout ends it.
    ConnectRequest {
        /// What to accept or reject.
        request: ConnectionRequest,
        /// The address that was asked for.
        local: SocketAddr,
        /// Who asks.
        remote: SocketAddr,
        /// What it says.
        private_data: PrivateData,
        /// How it wants to be connected.
        mpa_request: MpaRequestInfo,
    },
    /// The connection is up: Sends, Writes and Reads run.
    Established {
        /// The queue pair.
        qp: QueuePair,
        /// What the accepting side said; empty on the accepting side itself.
        private_data: PrivateData,
        /// What start-up settled.
        negotiated: NegotiatedParams,
    },
    /// The peer refused the connection and said why.
    Rejected {
        /// The queue pair that asked.
        qp: QueuePair,
        /// What the peer says.
        private_data: PrivateData,
        /// The numbers of Reads that the peer names with its refusal, where it speaks revision 2; zeros say nothing.
        peer_reads: Option<ReadDepths>,
    },
    /// The connection did not come about.
    ConnectFailed {
        /// The queue pair that asked, or that was to be connected.
        qp: QueuePair,
        /// Why.
        reason: ConnectFailure,
    },
    /// A Terminate message was sent or received. [`Event::Disconnected`] follows, or [`Event::ConnectFailed`] where the
    /// connection was not up yet.
    Terminated {
        /// The queue pair.
        qp: QueuePair,
        /// Whether we sent it.
        sent: bool,
        /// The error that it names.
        terminate: Terminate,
    },
    /// The peer does not know atomic operations: it ended the connection over one. Comes before the Terminate's own event;
    /// [`Context::lacks_atomics`](crate::Context::lacks_atomics) says so of the address for a while. A new connection can
    /// be made without them.
    PeerLacksAtomics {
        /// The queue pair.
        qp: QueuePair,
        /// The peer.
        peer: IpAddr,
    },
    /// The connection has ended and every work request has its completion.
    Disconnected {
        /// The queue pair, now in the error state.
        qp: QueuePair,
        /// Why.
        reason: DisconnectReason,
    },
    /// The first message of the peer has come to the accepting side: both are in full operation (COMM_EST).
    CommunicationEstablished {
        /// The queue pair.
        qp: QueuePair,
    },
    /// A request of our own could not be carried out, and the connection ends with it (QP_FATAL). Its completion says
    /// what was wrong.
    QueuePairFatal {
        /// The queue pair.
        qp: QueuePair,
    },
    /// A message came for a shared receive, and the completion queue had no place left to promise (CQ_ERR). The
    /// queue pair's connection ends; nothing is lost or overwritten, and nobody else is touched.
    CompletionQueueError {
        /// The completion queue.
        cq: CompletionQueue,
        /// The queue pair that the message came for.
        qp: QueuePair,
    },
    /// Fewer requests are left in a shared receive queue than its limit says (SRQ_LIMIT). Told once for each arming.
    SrqLimitReached {
        /// The queue.
        srq: SharedReceiveQueue,
    },
    /// The peer of a queue pair has taken more than its share of a shared receive queue
    /// ([`ReceiveShare`](crate::ReceiveShare)). Told once for each time that it passes the share.
    SrqShareExceeded {
        /// The shared receive queue.
        srq: SharedReceiveQueue,
        /// The queue pair. It ends where its share is enforced.
        qp: QueuePair,
    },
    /// A queue pair that has ended will take no more of its shared receives (LAST_WQE_REACHED).
    LastWqeReached {
        /// The queue pair.
        qp: QueuePair,
    },
    /// The device has lost its link, or has it again. Connections live on for as long as TCP waits for their peers.
    Link {
        /// Which port, from 0.
        port: u8,
        /// Whether it is there now.
        up: bool,
    },
    /// A listening address could not be taken.
    ListenFailed {
        /// The address.
        local: SocketAddr,
    },
}

/// How a peer wants to be connected (RFC 5044 s7.1.1, RFC 6581 s9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MpaRequestInfo {
    /// The revision of MPA that it speaks.
    pub revision: u8,
    /// The numbers of Reads that it takes (IRD) and would like to make (ORD), where it speaks revision 2.
    /// [`READS_UNNEGOTIATED`](crate::READS_UNNEGOTIATED) leaves a number to the applications.
    pub peer_reads: Option<ReadDepths>,
    /// Either side may speak first. Otherwise the peer does.
    pub peer_to_peer: bool,
}

/// What start-up settled (RFC 5044 s7.1.1, RFC 6581 s9.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NegotiatedParams {
    /// The revision of MPA that was spoken.
    pub revision: u8,
    /// The numbers of Reads that the peer named, where revision 2 was spoken.
    pub peer_reads: Option<ReadDepths>,
    /// The numbers of Reads that hold on this side: inbound (IRD) and outbound (ORD).
    pub reads: ReadDepths,
}

/// A peer that waits for an answer. Answer it with [`Context::accept`](crate::Context::accept) or
/// [`Context::reject`](crate::Context::reject); one that is dropped is closed when the start-up timeout ends.
#[derive(Debug)]
#[must_use = "a peer waits for an answer"]
pub struct ConnectionRequest {
    pub(crate) core: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    /// Revision 2 takes a little of the room for private data.
    pub(crate) enhanced: bool,
}

impl ConnectionRequest {
    /// The request as two numbers, for callers in another language.
    pub fn to_bits(&self) -> [u64; 2] {
        let place = u64::from(self.core) << 1 | u64::from(self.enhanced);
        [u64::from(self.slot) << 32 | u64::from(self.generation), place]
    }

    /// What [`ConnectionRequest::to_bits`] made numbers of. Others are those of no peer: an answer to them fails.
    pub fn from_bits([peer, place]: [u64; 2]) -> Self {
        let core = (place >> 1).try_into().unwrap_or(u16::MAX);
        ConnectionRequest {
            core,
            slot: (peer >> 32) as u32,
            generation: peer as u32,
            enhanced: place & 1 != 0,
        }
    }
}

/// Why a connection did not come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// Nobody answers for the address on the link, or no route leads there.
    Unreachable,
    /// The peer's host refused the TCP connection.
    Refused,
    /// No answer in time.
    TimedOut,
    /// The peer closed or reset the connection during start-up.
    Closed,
    /// The peer's start-up frame breaks RFC 5044, or asks for what we do not have.
    Protocol,
    /// No local port, connection or buffer was free.
    NoResources,
    /// A Terminate ended it, sent or received, before it was up: [`Event::Terminated`] said which.
    Terminated,
    /// An error of our own ended it before it was up, and before the peer could be told.
    LocalError,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// Both sides closed in order.
    Closed,
    /// A Terminate ended it.
    Terminated,
    /// An error was found here, the one that this Terminate would name, and none could be sent: the peer had not sent
    /// its first message yet, or sent a start-up frame where that should have been, or our side was closed already.
    LocalError(Terminate),
    /// The peer reset the TCP connection.
    Reset,
    /// The peer no longer acknowledges.
    TimedOut,
}
