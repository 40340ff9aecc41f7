//! What is below the queue pairs of a core loop: the ports, a transport over them, the frames of
//! its segments, and how its connections are set up.
//!
//! The core loop is built for one [`Lower`], so that no call on the data path is dynamic. It calls
//! the transport by [`Transport`] alone. `stack.transport` selects [`MpaOverTcp`],
//! [`DdpOverSctp`], or for a stack with both [`BothTransports`].
//!
//! Set-up is an exchange of one start-up message each way, with private data, before full
//! operation. The core loop sends the messages and owns their timeouts and states (`connection`); a
//! lower layer writes and reads them.

mod both;
mod mpa;
mod sctp;
mod tcp_config;

use ironwarp_iwarp::mpa::startup::FrameBytes;
use ironwarp_iwarp::setup::{Enhanced, Offer, PrivateDataTooLong, READS_UNNEGOTIATED, ReadDepths, RtrKinds};
use ironwarp_iwarp::{Framing, Io, Stream, StreamCallbacks, StreamError, StreamStart, Terminate};
use ironwarp_llp::Transport;
use ironwarp_net::{FlowHasher, IcmpError, Net, Packet, Path, TransportProtocol};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::{ConnectionState, CoreStats};

pub use both::BothTransports;
pub use mpa::MpaOverTcp;
pub use sctp::DdpOverSctp;

use crate::config::{Config, MpaConfig};
use crate::event::{MpaRequestInfo, NegotiatedParams};
use crate::objects::{Framing as FramingInfo, MpaParams};

/// The frames of a lower layer.
pub type FrameOf<L> = <<L as Lower>::Port as Port>::Frame;
/// The received data of a stream.
pub type RxOf<'a, L> = <<L as Lower>::Transport as Transport>::Rx<'a>;
/// Payload that the transport lends in its frame.
pub type LentOf<'a, L> = <<L as Lower>::Transport as Transport>::Lent<'a>;
/// The RDMAP stream of a queue pair.
pub type StreamOf<L> = Stream<<L as Lower>::Framing>;

/// A lower layer: the types that a core loop is built of, and what it does with received data and
/// start-up messages.
pub trait Lower: 'static {
    /// The ports.
    type Port: Port;
    /// The transport over them.
    type Transport: Transport<
            Wires = Wires<Self::Port>,
            Frame = FrameOf<Self>,
            Network = Net,
            Packet = Packet<FrameOf<Self>>,
            Path = Path,
            PathError = IcmpError,
        >;
    /// The frames around segments.
    type Framing: Framing + Send;
    /// What [`Lower::sum`] found out about the payload that is lent next.
    type Checked: Default;
    /// This side has sent its request.
    type Initiator: Send;
    /// This side waits for the peer's request.
    type Responder: Send;
    /// A request that waits for the application's decision.
    type Request: Copy + Send;
    /// The terms of a request that was accepted.
    type Agreed: Send;

    /// The protocol of the transport.
    const PROTOCOL: TransportProtocol;
    /// The second one of a transport of two.
    const OTHER_PROTOCOL: Option<TransportProtocol> = None;
    /// Octets that a core needs to assemble a segment.
    const SCRATCH_BYTES: usize;

    /// Creates the transport of a core, with a stream for each queue pair and for each incoming
    /// connection. `hasher` is the network's, and `secret` keys what a peer must not guess.
    fn transport(config: &Config, hasher: FlowHasher, secret: [u64; 2], stats: CoreStats) -> Self::Transport;

    /// The state of a connection as the page of counters shows it.
    fn shown_state(state: <Self::Transport as Transport>::State) -> ConnectionState;

    /// Passes all that has arrived in order to a stream.
    fn read<C: StreamCallbacks>(
        stream: &mut StreamOf<Self>,
        rx: RxOf<'_, Self>,
        scratch: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError>;

    /// Returns whether a stream may read payload that is lent.
    #[inline(always)]
    fn reads_lent(stream: &StreamOf<Self>) -> bool {
        let _ = stream;
        false
    }

    /// Passes lent payload to a stream that may read it, and consumes what the stream takes.
    #[inline(always)]
    fn read_lent<C: StreamCallbacks>(
        stream: &mut StreamOf<Self>,
        bytes: &mut LentOf<'_, Self>,
        checked: Self::Checked,
        io: &mut Io<'_, C>,
    ) {
        let _ = (stream, bytes, checked, io);
    }

    /// Returns the sum of a segment that may be lent next, with what else was found in the same
    /// pass, if that is cheaper.
    #[inline(always)]
    fn sum<'a>(
        stream: impl FnOnce() -> Option<&'a StreamOf<Self>>,
        segment: &[u8],
        header_bytes: usize,
    ) -> Option<(u32, Self::Checked)> {
        let _ = (stream, segment, header_bytes);
        None
    }

    /// Returns whether a stream places data beyond a gap.
    fn places_out_of_order(stream: &StreamOf<Self>) -> bool {
        let _ = stream;
        false
    }

    /// Places data beyond a gap.
    fn read_out_of_order<C>(
        stream: &mut StreamOf<Self>,
        rx: RxOf<'_, Self>,
        scratch: &mut [u8],
        io: &Io<'_, C>,
    ) {
        let _ = (stream, rx, scratch, io);
    }

    /// Writes the request of this side. `limits` are the read depths of the queue pair.
    fn request(
        config: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(Self::Initiator, FrameBytes), PrivateDataTooLong>;

    /// Returns whether a peer that closes instead of a reply may accept a simpler request.
    fn may_fall_back(initiator: &Self::Initiator) -> bool;

    /// Reads the reply to a request of `request_bytes` octets.
    fn on_reply(
        initiator: &Self::Initiator,
        rx: RxOf<'_, Self>,
        request_bytes: usize,
    ) -> Reply<Self::Framing>;

    /// Waits for a request.
    fn responder(config: &MpaConfig) -> Self::Responder;

    /// Reads the request of a peer.
    fn on_request(responder: &Self::Responder, rx: RxOf<'_, Self>) -> PeerRequest<Self::Request>;

    /// Returns a request as the application sees it.
    fn request_info(request: &Self::Request) -> MpaRequestInfo;

    /// Writes the reply that accepts a request, with read depths of at most `limits`.
    fn accept(
        request: Self::Request,
        config: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(FrameBytes, Self::Agreed), PrivateDataTooLong>;

    /// Writes the reply that rejects a request.
    fn reject(request: Self::Request, params: &MpaParams, private_data: &[u8]) -> Option<FrameBytes>;

    /// Returns the start of full operation after a reply of `reply_bytes` octets that accepts.
    fn started(agreed: &Self::Agreed, reply_bytes: usize) -> Started<Self::Framing>;
}

/// Private data of a peer.
pub type PeerData = ironwarp_iwarp::setup::PrivateData;

/// The reply of a peer.
pub enum Reply<F> {
    /// It is not complete yet.
    Incomplete,
    /// The peer accepts. With a fault, this side cannot meet the terms: it ends the stream with a
    /// Terminate.
    Accepted {
        /// The private data of the peer's application.
        private_data: PeerData,
        /// The terms.
        started: Started<F>,
        /// Why this side cannot meet them.
        fault: Option<Terminate>,
    },
    /// The peer rejects, and may say which read depths it would accept.
    Rejected {
        /// The private data of the peer's application.
        private_data: PeerData,
        /// The depths.
        peer_reads: Option<ReadDepths>,
    },
    /// It breaks the protocol. The peer may know a simpler request only.
    Fault {
        /// A simpler request may succeed.
        may_fall_back: bool,
    },
}

/// The request of a peer.
#[expect(clippy::large_enum_variant, reason = "a box would be allocated on the core")]
pub enum PeerRequest<R> {
    /// It is not complete yet.
    Incomplete,
    /// It is complete.
    Complete {
        /// The private data of the peer's application.
        private_data: PeerData,
        /// The request.
        request: R,
    },
    /// It breaks the protocol.
    Fault,
}

/// A completed start-up.
pub struct Started<F> {
    /// The start of the stream. An initiator may send at once.
    pub start: StreamStart<F>,
    /// The terms, as the application sees them.
    pub negotiated: NegotiatedParams,
    /// The frames, as the application sees them.
    pub framing: FramingInfo,
}

/// The terms that a request offers: the application's, else those of the configuration and of the
/// queue pair, whose depths are `limits`.
#[inline(always)]
fn offer(config: &MpaConfig, params: &MpaParams, limits: ReadDepths) -> Offer {
    let offer = params.reads.unwrap_or(limits);
    // A depth that is not negotiated stays that of the queue pair.
    let own = |offer, limits| if offer == READS_UNNEGOTIATED { limits } else { offer };
    let reads = ReadDepths { ird: own(offer.ird, limits.ird), ord: own(offer.ord, limits.ord) };
    let peer_to_peer = params.peer_to_peer.unwrap_or(config.peer_to_peer);
    let rtr = if peer_to_peer { params.rtr.unwrap_or(config.rtr()) } else { RtrKinds::empty() };
    let enhanced = (params.revision > 1).then_some(Enhanced { peer_to_peer, rtr, reads: offer });
    Offer { enhanced, reads, ird_max: limits.ird }
}
