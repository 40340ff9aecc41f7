//! The messages of a core to a context, as plain data, and the events that the application gets.

use core::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use ironwarp_iwarp::Terminate;
use ironwarp_iwarp::setup::ReadDepths;
use ironwarp_types::limits::PRIVATE_DATA_BYTES_MAX;

use crate::event::{
    ConnectFailure, ConnectionRequest, DisconnectReason, Event, MpaRequestInfo, NegotiatedParams, PrivateData,
};
use crate::objects::{CompletionQueue, QueuePair, SharedReceiveQueue};
use crate::shared::{ListenAddress, SlotTable};

/// The private data in one message: no more than the largest other message.
const PRIVATE_DATA_PART: usize = 95;
const _: () = assert!(size_of::<Notification>() == 104);

/// A message of a core to a context. Without a comment: the [`Event`] of this name.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) enum Notification {
    /// Private data of the next event that has some. Longer data takes several messages.
    PrivateData {
        len: u8,
        bytes: [u8; PRIVATE_DATA_PART],
    },
    ConnectRequest {
        /// [`ConnectionRequest::to_bits`].
        request: [u64; 2],
        local: SocketAddr,
        remote: SocketAddr,
        mpa_request: MpaRequestInfo,
    },
    RequestEnded {
        /// [`ConnectionRequest::to_bits`].
        request: [u64; 2],
    },
    Established {
        qp: QueuePair,
        local: SocketAddr,
        remote: SocketAddr,
        negotiated: NegotiatedParams,
    },
    Rejected {
        qp: QueuePair,
        peer_reads: Option<ReadDepths>,
    },
    ConnectFailed {
        qp: QueuePair,
        reason: ConnectFailure,
    },
    Terminated {
        qp: QueuePair,
        sent: bool,
        terminate: Terminate,
    },
    PeerLacksAtomics {
        qp: QueuePair,
        peer: IpAddr,
    },
    /// A peer supports atomic operations, whatever was recorded.
    PeerHasAtomics(IpAddr),
    Disconnected {
        qp: QueuePair,
        reason: DisconnectReason,
    },
    CommunicationEstablished {
        qp: QueuePair,
    },
    QueuePairFatal {
        qp: QueuePair,
    },
    CompletionQueueError {
        cq: CompletionQueue,
        qp: QueuePair,
    },
    SrqLimitReached {
        srq: SharedReceiveQueue,
        /// The number of the arming that has set the limit.
        arming: u32,
    },
    SrqShareExceeded {
        srq: SharedReceiveQueue,
        qp: QueuePair,
    },
    LastWqeReached {
        qp: QueuePair,
    },
    Path {
        qp: QueuePair,
        remote: IpAddr,
        up: bool,
    },
    Link {
        port: u8,
        up: bool,
    },
    ListenFailed {
        at: ListenAddress,
    },
    /// The core's half of an object is in its place again.
    Returned {
        table: SlotTable,
        slot: u32,
    },
}

impl Notification {
    /// Returns the messages that carry private data.
    pub(crate) fn private_data(all: &[u8]) -> impl Iterator<Item = Self> + '_ {
        all.chunks(PRIVATE_DATA_PART).map(|part| {
            let mut bytes = [0; PRIVATE_DATA_PART];
            bytes.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            Notification::PrivateData { len: part.len() as u8, bytes }
        })
    }

    /// Returns whether both report the state of one path.
    pub(crate) fn is_of_same_path(&self, other: &Self) -> bool {
        let path = |one: &Self| match *one {
            Notification::Path { qp, remote, .. } => Some((qp, remote)),
            _ => None,
        };
        path(self).is_some_and(|mine| Some(mine) == path(other))
    }

    /// Returns whether the application waits for it.
    pub(crate) fn is_event(&self) -> bool {
        use Notification::{PeerHasAtomics, PrivateData, Returned};
        !matches!(self, PrivateData { .. } | PeerHasAtomics(_) | Returned { .. })
    }
}

/// Private data that has arrived for the next event that has some.
#[derive(Default)]
pub(crate) struct ArrivedData(ArrayVec<u8, PRIVATE_DATA_BYTES_MAX>);

impl ArrivedData {
    /// Returns the event of a message, if it is one.
    pub(crate) fn event(&mut self, notification: Notification) -> Option<Event> {
        Some(match notification {
            Notification::PrivateData { len, bytes } => {
                let part = bytes.get(..len.into()).unwrap_or_default();
                // More than the longest private data is left out.
                let _ = self.0.try_extend_from_slice(part);
                return None;
            }
            Notification::ConnectRequest { request, local, remote, mpa_request } => Event::ConnectRequest {
                request: ConnectionRequest::from_bits(request),
                local,
                remote,
                private_data: self.take(),
                mpa_request,
            },
            Notification::RequestEnded { request } => {
                Event::RequestEnded { request: ConnectionRequest::from_bits(request) }
            }
            Notification::Established { qp, local, remote, negotiated } => {
                Event::Established { qp, local, remote, private_data: self.take(), negotiated }
            }
            Notification::Rejected { qp, peer_reads } => {
                Event::Rejected { qp, private_data: self.take(), peer_reads }
            }
            Notification::ConnectFailed { qp, reason } => Event::ConnectFailed { qp, reason },
            Notification::Terminated { qp, sent, terminate } => Event::Terminated { qp, sent, terminate },
            Notification::PeerLacksAtomics { qp, peer } => Event::PeerLacksAtomics { qp, peer },
            Notification::Disconnected { qp, reason } => Event::Disconnected { qp, reason },
            Notification::CommunicationEstablished { qp } => Event::CommunicationEstablished { qp },
            Notification::QueuePairFatal { qp } => Event::QueuePairFatal { qp },
            Notification::CompletionQueueError { cq, qp } => Event::CompletionQueueError { cq, qp },
            Notification::SrqLimitReached { srq, .. } => Event::SrqLimitReached { srq },
            Notification::SrqShareExceeded { srq, qp } => Event::SrqShareExceeded { srq, qp },
            Notification::LastWqeReached { qp } => Event::LastWqeReached { qp },
            Notification::Path { qp, remote, up } => Event::Path { qp, remote, up },
            Notification::Link { port, up } => Event::Link { port, up },
            Notification::ListenFailed { at: ListenAddress { transport, local } } => {
                Event::ListenFailed { local, transport }
            }
            Notification::PeerHasAtomics(_) | Notification::Returned { .. } => return None,
        })
    }

    fn take(&mut self) -> PrivateData {
        let data = PrivateData::from(&self.0[..]);
        self.0.clear();
        data
    }
}
