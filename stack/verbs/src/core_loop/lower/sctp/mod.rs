//! DDP over SCTP (RFC 5043): a session of an association for each queue pair, and the session
//! control messages of its set-up (s6, RFC 6581 s7).
//!
//! Either side may send as soon as the session is accepted, unless a ready-to-receive indication is
//! negotiated.

mod config;
mod table;
mod transport;

use core::marker::PhantomData;

use ironwarp_iwarp::mpa::startup::FrameBytes;
use ironwarp_iwarp::mpa::startup::Markers;
use ironwarp_iwarp::sctp::{Chunk, Initiator, Reply as Outcome, Request, SegmentChunk};
use ironwarp_iwarp::setup::{PrivateDataTooLong, ReadDepths, ResponderParams, Terms};
use ironwarp_iwarp::{Framing, Io, Stream, StreamCallbacks, StreamError, StreamStart, Terminate};
use ironwarp_llp::LentMessage;
use ironwarp_net::{FlowHasher, TransportProtocol};
use ironwarp_port::Port;
use ironwarp_sctp::State;
use ironwarp_stats::{ConnectionState, CoreStats};

use super::{Lower, PeerRequest, Reply, Started, StreamOf, offer};
use crate::config::{Config, MpaConfig, TransportKind};
use crate::event::{MpaRequestInfo, NegotiatedParams};
use crate::objects::{Framing as FramingInfo, MpaParams};
pub(super) use transport::{SctpSessions, SessionRx};

/// DDP over SCTP on ports of type `P`.
pub struct DdpOverSctp<P>(PhantomData<P>);

impl<P: Port> Lower for DdpOverSctp<P> {
    type Port = P;
    type Transport = SctpSessions<P>;
    type Framing = SegmentChunk;
    type Checked = ();
    type Initiator = Initiator;
    type Responder = ();
    type Request = Request;
    type Agreed = Terms;

    const PROTOCOL: TransportProtocol = TransportProtocol::SCTP;
    const SCRATCH_BYTES: usize = 0;

    fn transport(config: &Config, hasher: FlowHasher, secret: [u64; 2], stats: CoreStats) -> SctpSessions<P> {
        let sessions_max = config.limits.queue_pairs + 2 * config.limits.half_open;
        SctpSessions::new(
            (sessions_max, config.limits.half_open),
            config.mpa.startup_timeout(),
            config::sctp_config(config, sessions_max),
            hasher,
            secret,
            stats,
        )
    }

    fn shown_state(state: State) -> ConnectionState {
        match state {
            State::CookieWait | State::CookieEchoed => ConnectionState::SynSent,
            State::Established => ConnectionState::Established,
            State::ShutdownPending | State::ShutdownSent => ConnectionState::FinWait1,
            State::ShutdownReceived => ConnectionState::CloseWait,
            State::ShutdownAckSent => ConnectionState::LastAck,
            State::Closed => ConnectionState::Closed,
        }
    }

    fn read<C: StreamCallbacks>(
        stream: &mut StreamOf<Self>,
        rx: SessionRx<'_, P>,
        _: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        read(stream, rx, io)
    }

    #[inline(always)]
    fn reads_lent(stream: &StreamOf<Self>) -> bool {
        stream.may_send()
    }

    #[inline(always)]
    fn read_lent<C: StreamCallbacks>(
        stream: &mut StreamOf<Self>,
        lent: &mut LentMessage<'_>,
        (): (),
        io: &mut Io<'_, C>,
    ) {
        // An error stays in the stream, and what follows the segment is dropped.
        lent.is_taken = stream.on_message(lent.octets, io) != Ok(false);
    }

    fn places_out_of_order(stream: &StreamOf<Self>) -> bool {
        stream.places_out_of_order()
    }

    fn read_out_of_order<C>(stream: &mut StreamOf<Self>, rx: SessionRx<'_, P>, _: &mut [u8], io: &Io<'_, C>) {
        read_out_of_order(stream, rx, io);
    }

    fn request(
        config: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(Initiator, FrameBytes), PrivateDataTooLong> {
        let (initiator, initiate) = Initiator::start(offer(config, params, limits), private_data)?;
        Ok((initiator, initiate.iter().copied().collect()))
    }

    fn may_fall_back(initiator: &Initiator) -> bool {
        initiator.is_enhanced()
    }

    fn on_reply(
        initiator: &Initiator,
        mut rx: SessionRx<'_, P>,
        request_bytes: usize,
    ) -> Reply<SegmentChunk> {
        let Some(Chunk::Control(control)) = rx.front() else { return Reply::Incomplete };
        let outcome = initiator.on_reply(&control);
        rx.pop();
        match outcome {
            Outcome::Accepted { private_data, terms, fault } => Reply::Accepted {
                private_data,
                started: started(&terms, request_bytes),
                fault: fault.map(Terminate::from),
            },
            Outcome::Rejected { private_data, peer_reads } => Reply::Rejected { private_data, peer_reads },
            Outcome::Refused { may_fall_back } => Reply::Fault { may_fall_back },
        }
    }

    fn responder(_: &MpaConfig) {}

    fn on_request((): &(), mut rx: SessionRx<'_, P>) -> PeerRequest<Request> {
        let Some(Chunk::Control(initiate)) = rx.front() else { return PeerRequest::Incomplete };
        let (request, private_data) = Request::new(&initiate);
        rx.pop();
        PeerRequest::Complete { private_data, request }
    }

    fn request_info(request: &Request) -> MpaRequestInfo {
        let enhanced = request.peer_enhanced();
        MpaRequestInfo {
            transport: TransportKind::Sctp,
            revision: if enhanced.is_some() { 2 } else { 1 },
            peer_reads: enhanced.map(|enhanced| enhanced.reads),
            peer_to_peer: enhanced.is_some_and(|enhanced| enhanced.peer_to_peer),
        }
    }

    fn accept(
        request: Request,
        config: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(FrameBytes, Terms), PrivateDataTooLong> {
        let (reads, rtr) = (params.reads.unwrap_or(limits), params.rtr.unwrap_or(config.rtr()));
        let (accept, terms) = request.accept(ResponderParams { reads, rtr }, private_data)?;
        Ok((accept.iter().copied().collect(), terms))
    }

    fn reject(request: Request, params: &MpaParams, private_data: &[u8]) -> Option<FrameBytes> {
        let reject = request.reject(params.reads, private_data).ok()?;
        Some(reject.iter().copied().collect())
    }

    fn started(terms: &Terms, reply_bytes: usize) -> Started<SegmentChunk> {
        started(terms, reply_bytes)
    }
}

/// [`Lower::read`] of a stream over SCTP.
pub(super) fn read<F: Framing, C: StreamCallbacks, P: Port>(
    stream: &mut Stream<F>,
    mut rx: SessionRx<'_, P>,
    io: &mut Io<'_, C>,
) -> Result<(), StreamError> {
    while let Some(Chunk::Segment(segment)) = rx.front() {
        match stream.on_message(segment, io) {
            Ok(true) => rx.pop(),
            Ok(false) => break,
            Err(error) => {
                rx.clear();
                return Err(error);
            }
        }
    }
    Ok(())
}

/// [`Lower::read_out_of_order`] of a stream over SCTP.
pub(super) fn read_out_of_order<F: Framing, C, P: Port>(
    stream: &mut Stream<F>,
    mut rx: SessionRx<'_, P>,
    io: &Io<'_, C>,
) {
    if let Some((distance, segment)) = rx.early() {
        stream.on_message_out_of_order(distance.into(), segment, io);
    }
}

/// SCTP has a CRC-32C of its own, and no markers.
fn started(terms: &Terms, sent_bytes: usize) -> Started<SegmentChunk> {
    let Terms { peer_reads, reads, .. } = *terms;
    let revision = if peer_reads.is_some() { 2 } else { 1 };
    Started {
        start: StreamStart::over_sctp(terms, sent_bytes as u64),
        negotiated: NegotiatedParams { revision, peer_reads, reads },
        framing: FramingInfo { transport: TransportKind::Sctp, crc: true, markers: Markers::default() },
    }
}
