//! MPA over TCP (RFC 5044): FPDUs in a byte stream, and its start-up frames (s7.1, RFC 6581).
//!
//! A responder may not send before the initiator's first FPDU. The initiator may have to end an
//! accepted connection whose terms it cannot meet: its first FPDU is then a Terminate
//! (RFC 6581 s9).

use core::marker::PhantomData;

use ironwarp_arch::checksum;
use ironwarp_arch::one_pass::{BYTES_MIN, PrefixCrc};
use ironwarp_iwarp::mpa::startup::{
    Decision, FrameBytes, Initiator, Negotiated, Proposal, Responder, StartupFault, initiator, responder,
};
use ironwarp_iwarp::mpa::{Mpa, fpdu};
use ironwarp_iwarp::setup::{PrivateDataTooLong, ReadDepths, ResponderParams, Terms};
use ironwarp_iwarp::{Framing, Io, Role, Stream, StreamCallbacks, StreamError, StreamStart, Terminate};
use ironwarp_llp::ByteStream;
use ironwarp_net::{FlowHasher, TransportProtocol};
use ironwarp_port::Port;
use ironwarp_stats::{ConnectionState, CoreStats};
use ironwarp_tcp::{LentBytes, RxStream, State, Tcp};
use ironwarp_types::limits::FPDU_MARKED_BYTES_MAX;

use super::tcp_config::tcp_config;
use super::{Lower, PeerRequest, Reply, Started, offer};
use crate::config::{Config, MpaConfig, TransportKind};
use crate::event::{MpaRequestInfo, NegotiatedParams};
use crate::objects::{Framing as FramingInfo, MpaParams};

/// MPA over TCP on ports of type `P`.
pub struct MpaOverTcp<P>(PhantomData<P>);

// Tuning: start-up messages are of half a kilobyte: what returns them is inlined, so that they are
// not moved once more.
impl<P: Port> Lower for MpaOverTcp<P> {
    type Port = P;
    type Transport = Tcp<P>;
    type Framing = Mpa;
    type Checked = PrefixCrc;
    type Initiator = Initiator;
    type Responder = Responder;
    type Request = Decision;
    type Agreed = Negotiated;

    /// An FPDU of several segments is assembled before its CRC is checked.
    const PROTOCOL: TransportProtocol = TransportProtocol::TCP;
    const SCRATCH_BYTES: usize = FPDU_MARKED_BYTES_MAX;

    fn transport(config: &Config, hasher: FlowHasher, secret: [u64; 2], stats: CoreStats) -> Tcp<P> {
        Tcp::new(tcp_config(config), hasher, secret, stats)
    }

    fn shown_state(state: State) -> ConnectionState {
        match state {
            State::Closed | State::Listen => ConnectionState::Closed,
            State::SynSent => ConnectionState::SynSent,
            State::SynReceived => ConnectionState::SynReceived,
            State::Established => ConnectionState::Established,
            State::FinWait1 => ConnectionState::FinWait1,
            State::FinWait2 => ConnectionState::FinWait2,
            State::CloseWait => ConnectionState::CloseWait,
            State::Closing => ConnectionState::Closing,
            State::LastAck => ConnectionState::LastAck,
            State::TimeWait => ConnectionState::TimeWait,
        }
    }

    #[inline(always)]
    fn read<C: StreamCallbacks>(
        stream: &mut Stream,
        mut rx: RxStream<'_, P>,
        scratch: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        stream.on_readable(&mut rx, scratch, io)
    }

    #[inline(always)]
    fn reads_lent(stream: &Stream) -> bool {
        stream.reads_lent_bytes()
    }

    #[inline(always)]
    fn read_lent<C: StreamCallbacks>(
        stream: &mut Stream,
        lent: &mut LentBytes<P::Frame>,
        crc: PrefixCrc,
        io: &mut Io<'_, C>,
    ) {
        let taken = stream.on_readable_fast(lent.front(), crc, io);
        lent.consume(taken);
    }

    /// The CRC of the first FPDU comes with the sum.
    #[inline(always)]
    fn sum<'a>(
        stream: impl FnOnce() -> Option<&'a Stream>,
        segment: &[u8],
        header_bytes: usize,
    ) -> Option<(u32, PrefixCrc)> {
        sum(stream, segment, header_bytes)
    }

    fn places_out_of_order(stream: &Stream) -> bool {
        stream.places_out_of_order()
    }

    fn read_out_of_order<C>(stream: &mut Stream, rx: RxStream<'_, P>, scratch: &mut [u8], io: &Io<'_, C>) {
        stream.on_out_of_order(&rx, scratch, io);
    }

    #[inline(always)]
    fn request(
        config: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(Initiator, FrameBytes), PrivateDataTooLong> {
        let offer = offer(config, params, limits);
        Initiator::start(Proposal { crc: config.crc, markers: config.markers, offer }, private_data)
    }

    /// RFC 6581 s10: to a peer without enhanced set-up an enhanced request is improperly formatted,
    /// and it closes TCP.
    fn may_fall_back(initiator: &Initiator) -> bool {
        initiator.is_enhanced()
    }

    #[inline(always)]
    fn on_reply(initiator: &Initiator, mut rx: RxStream<'_, P>, request_bytes: usize) -> Reply<Mpa> {
        use initiator::Progress;
        match initiator.on_bytes(&mut rx) {
            Progress::NeedMore => Reply::Incomplete,
            Progress::Accepted { private_data, agreed, fault } => {
                let started = started(Role::Initiator, &agreed, request_bytes);
                Reply::Accepted { private_data, started, fault: fault.map(Terminate::from) }
            }
            Progress::Rejected { private_data, peer_reads } => Reply::Rejected { private_data, peer_reads },
            // A peer that replies to an enhanced request without enhanced data does not support
            // revision 2.
            Progress::Fault(fault) => Reply::Fault { may_fall_back: fault == StartupFault::NotEnhanced },
        }
    }

    fn responder(config: &MpaConfig) -> Responder {
        Responder::new(config.crc, config.markers)
    }

    #[inline(always)]
    fn on_request(responder: &Responder, mut rx: RxStream<'_, P>) -> PeerRequest<Decision> {
        use responder::Progress;
        match responder.on_bytes(&mut rx) {
            Progress::NeedMore => PeerRequest::Incomplete,
            Progress::Request { private_data, decision } => {
                PeerRequest::Complete { private_data, request: decision }
            }
            Progress::Fault(_) => PeerRequest::Fault,
        }
    }

    fn request_info(request: &Decision) -> MpaRequestInfo {
        let enhanced = request.peer_enhanced();
        MpaRequestInfo {
            transport: TransportKind::Tcp,
            revision: request.revision(),
            peer_reads: enhanced.map(|enhanced| enhanced.reads),
            peer_to_peer: enhanced.is_some_and(|enhanced| enhanced.peer_to_peer),
        }
    }

    #[inline(always)]
    fn accept(
        request: Decision,
        config: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(FrameBytes, Negotiated), PrivateDataTooLong> {
        let (reads, rtr) = (params.reads.unwrap_or(limits), params.rtr.unwrap_or(config.rtr()));
        request.accept(ResponderParams { reads, rtr }, private_data)
    }

    fn reject(request: Decision, params: &MpaParams, private_data: &[u8]) -> Option<FrameBytes> {
        request.reject(params.reads.unwrap_or_default(), private_data).ok()
    }

    fn started(agreed: &Negotiated, reply_bytes: usize) -> Started<Mpa> {
        started(Role::Responder, agreed, reply_bytes)
    }
}

fn started(role: Role, agreed: &Negotiated, sent_bytes: usize) -> Started<Mpa> {
    let Negotiated { revision, crc, markers, terms: Terms { peer_reads, reads, .. } } = *agreed;
    Started {
        start: StreamStart::agreed(role, agreed, sent_bytes as u64),
        negotiated: NegotiatedParams { revision, peer_reads, reads },
        framing: FramingInfo { transport: TransportKind::Tcp, crc, markers },
    }
}

/// [`Lower::sum`] of a stream over MPA.
#[inline(always)]
pub(super) fn sum<'a, F: Framing + AsRef<Mpa> + AsMut<Mpa> + 'a>(
    stream: impl FnOnce() -> Option<&'a Stream<F>>,
    segment: &[u8],
    header_bytes: usize,
) -> Option<(u32, PrefixCrc)> {
    if segment.len() < BYTES_MIN {
        return fpdu::sum_and_crc(segment, header_bytes);
    }
    sum_long(stream()?, segment, header_bytes)
}

/// Sums a long segment in the pass that gives the CRC of its first FPDU.
#[inline(never)]
fn sum_long<F: Framing + AsRef<Mpa> + AsMut<Mpa>>(
    stream: &Stream<F>,
    segment: &[u8],
    header_bytes: usize,
) -> Option<(u32, PrefixCrc)> {
    let (header, payload) = segment.split_at_checked(header_bytes)?;
    let (sum, crc) = stream.sum_with_crc(payload)?;
    Some((checksum::sum(header) + sum, crc))
}
