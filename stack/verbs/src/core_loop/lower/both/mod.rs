//! TCP and SCTP in one stack: each connection is over one of the two.
//!
//! The value of a connection is that of its transport, which handles it: [`Either`].

mod framing;
mod transport;

use core::marker::PhantomData;

use ironwarp_arch::one_pass::PrefixCrc;
use ironwarp_iwarp::mpa::startup::FrameBytes;
use ironwarp_iwarp::setup::{PrivateDataTooLong, ReadDepths};
use ironwarp_iwarp::{Framing, Io, Stream, StreamCallbacks, StreamError, StreamStart};
use ironwarp_llp::ByteStream;
use ironwarp_net::{FlowHasher, TransportProtocol};
use ironwarp_port::Port;
use ironwarp_stats::{ConnectionState, CoreStats};

use super::{DdpOverSctp, FrameOf, Lower, MpaOverTcp, PeerRequest, Reply, Started, mpa, sctp};
use crate::config::{Config, MpaConfig, TransportKind};
use crate::event::MpaRequestInfo;
use crate::objects::MpaParams;
use framing::EitherFraming;
use transport::{EitherLent, EitherRx, TcpAndSctp};

/// MPA over TCP and DDP over SCTP on ports of type `P`.
pub struct BothTransports<P>(PhantomData<P>);

/// A value of MPA over TCP, or of DDP over SCTP.
#[derive(Clone, Copy)]
pub enum Either<T, S> {
    /// Of TCP.
    Tcp(T),
    /// Of SCTP.
    Sctp(S),
}

impl<P: Port> Lower for BothTransports<P> {
    type Port = P;
    type Transport = TcpAndSctp<P>;
    type Framing = EitherFraming;
    type Checked = PrefixCrc;
    type Initiator = Either<<MpaOverTcp<P> as Lower>::Initiator, <DdpOverSctp<P> as Lower>::Initiator>;
    /// What it waits for is in what arrives.
    type Responder = <MpaOverTcp<P> as Lower>::Responder;
    type Request = Either<<MpaOverTcp<P> as Lower>::Request, <DdpOverSctp<P> as Lower>::Request>;
    type Agreed = Either<<MpaOverTcp<P> as Lower>::Agreed, <DdpOverSctp<P> as Lower>::Agreed>;

    const PROTOCOL: TransportProtocol = TransportProtocol::TCP;
    const OTHER_PROTOCOL: Option<TransportProtocol> = Some(TransportProtocol::SCTP);
    const SCRATCH_BYTES: usize = MpaOverTcp::<P>::SCRATCH_BYTES;

    fn transport(config: &Config, hasher: FlowHasher, secret: [u64; 2], stats: CoreStats) -> TcpAndSctp<P> {
        TcpAndSctp::new(
            MpaOverTcp::transport(config, hasher, secret, stats.clone()),
            DdpOverSctp::transport(config, hasher, secret, stats),
            config.limits.listeners,
        )
    }

    fn shown_state(state: Either<ironwarp_tcp::State, ironwarp_sctp::State>) -> ConnectionState {
        match state {
            Either::Tcp(state) => MpaOverTcp::<P>::shown_state(state),
            Either::Sctp(state) => DdpOverSctp::<P>::shown_state(state),
        }
    }

    #[inline(always)]
    fn read<C: StreamCallbacks>(
        stream: &mut Stream<EitherFraming>,
        rx: EitherRx<'_, P>,
        scratch: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        match rx {
            Either::Tcp(mut rx) => stream.on_readable(&mut rx, scratch, io),
            Either::Sctp(rx) => sctp::read(stream, rx, io),
        }
    }

    #[inline(always)]
    fn reads_lent(stream: &Stream<EitherFraming>) -> bool {
        if stream.framing().is_sctp() { stream.may_send() } else { stream.reads_lent_bytes() }
    }

    #[inline(always)]
    fn read_lent<C: StreamCallbacks>(
        stream: &mut Stream<EitherFraming>,
        lent: &mut EitherLent<'_, FrameOf<Self>>,
        crc: PrefixCrc,
        io: &mut Io<'_, C>,
    ) {
        match lent {
            Either::Tcp(bytes) => {
                let taken = stream.on_readable_fast(bytes.front(), crc, io);
                bytes.consume(taken);
            }
            Either::Sctp(message) => message.is_taken = stream.on_message(message.octets, io) != Ok(false),
        }
    }

    #[inline(always)]
    fn sum<'a>(
        stream: impl FnOnce() -> Option<&'a Stream<EitherFraming>>,
        segment: &[u8],
        header_bytes: usize,
    ) -> Option<(u32, PrefixCrc)> {
        mpa::sum(stream, segment, header_bytes)
    }

    fn places_out_of_order(stream: &Stream<EitherFraming>) -> bool {
        stream.places_out_of_order()
    }

    fn read_out_of_order<C>(
        stream: &mut Stream<EitherFraming>,
        rx: EitherRx<'_, P>,
        scratch: &mut [u8],
        io: &Io<'_, C>,
    ) {
        match rx {
            Either::Tcp(rx) => stream.on_out_of_order(&rx, scratch, io),
            Either::Sctp(rx) => sctp::read_out_of_order(stream, rx, io),
        }
    }

    #[inline(always)]
    fn request(
        config: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(Self::Initiator, FrameBytes), PrivateDataTooLong> {
        Ok(match params.transport {
            TransportKind::Tcp => {
                let (initiator, frame) = MpaOverTcp::<P>::request(config, params, limits, private_data)?;
                (Either::Tcp(initiator), frame)
            }
            TransportKind::Sctp => {
                let (initiator, frame) = DdpOverSctp::<P>::request(config, params, limits, private_data)?;
                (Either::Sctp(initiator), frame)
            }
        })
    }

    fn may_fall_back(initiator: &Self::Initiator) -> bool {
        match initiator {
            Either::Tcp(initiator) => MpaOverTcp::<P>::may_fall_back(initiator),
            Either::Sctp(initiator) => DdpOverSctp::<P>::may_fall_back(initiator),
        }
    }

    #[inline(always)]
    fn on_reply(
        initiator: &Self::Initiator,
        rx: EitherRx<'_, P>,
        request_bytes: usize,
    ) -> Reply<EitherFraming> {
        match (initiator, rx) {
            (Either::Tcp(initiator), Either::Tcp(rx)) => {
                either_reply(MpaOverTcp::<P>::on_reply(initiator, rx, request_bytes))
            }
            (Either::Sctp(initiator), Either::Sctp(rx)) => {
                either_reply(DdpOverSctp::<P>::on_reply(initiator, rx, request_bytes))
            }
            _ => Reply::Fault { may_fall_back: false },
        }
    }

    fn responder(config: &MpaConfig) -> Self::Responder {
        MpaOverTcp::<P>::responder(config)
    }

    #[inline(always)]
    fn on_request(responder: &Self::Responder, rx: EitherRx<'_, P>) -> PeerRequest<Self::Request> {
        match rx {
            Either::Tcp(rx) => either_request(MpaOverTcp::<P>::on_request(responder, rx), Either::Tcp),
            Either::Sctp(rx) => either_request(DdpOverSctp::<P>::on_request(&(), rx), Either::Sctp),
        }
    }

    fn request_info(request: &Self::Request) -> MpaRequestInfo {
        match request {
            Either::Tcp(request) => MpaOverTcp::<P>::request_info(request),
            Either::Sctp(request) => DdpOverSctp::<P>::request_info(request),
        }
    }

    #[inline(always)]
    fn accept(
        request: Self::Request,
        config: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(FrameBytes, Self::Agreed), PrivateDataTooLong> {
        Ok(match request {
            Either::Tcp(request) => {
                let (frame, agreed) = MpaOverTcp::<P>::accept(request, config, params, limits, private_data)?;
                (frame, Either::Tcp(agreed))
            }
            Either::Sctp(request) => {
                let (frame, agreed) =
                    DdpOverSctp::<P>::accept(request, config, params, limits, private_data)?;
                (frame, Either::Sctp(agreed))
            }
        })
    }

    fn reject(request: Self::Request, params: &MpaParams, private_data: &[u8]) -> Option<FrameBytes> {
        match request {
            Either::Tcp(request) => MpaOverTcp::<P>::reject(request, params, private_data),
            Either::Sctp(request) => DdpOverSctp::<P>::reject(request, params, private_data),
        }
    }

    fn started(agreed: &Self::Agreed, reply_bytes: usize) -> Started<EitherFraming> {
        match agreed {
            Either::Tcp(agreed) => either_start(MpaOverTcp::<P>::started(agreed, reply_bytes)),
            Either::Sctp(agreed) => either_start(DdpOverSctp::<P>::started(agreed, reply_bytes)),
        }
    }
}

fn either_start<F: Framing + Into<EitherFraming>>(started: Started<F>) -> Started<EitherFraming> {
    let Started { start, negotiated, framing } = started;
    let StreamStart { role, framing: frames, reads, rtr_to_send, rtr_awaited, startup_bytes_sent } = start;
    let frames = frames.into();
    let start = StreamStart { role, framing: frames, reads, rtr_to_send, rtr_awaited, startup_bytes_sent };
    Started { start, negotiated, framing }
}

#[inline(always)]
fn either_reply<F: Framing + Into<EitherFraming>>(reply: Reply<F>) -> Reply<EitherFraming> {
    match reply {
        Reply::Incomplete => Reply::Incomplete,
        Reply::Accepted { private_data, started, fault } => {
            Reply::Accepted { private_data, started: either_start(started), fault }
        }
        Reply::Rejected { private_data, peer_reads } => Reply::Rejected { private_data, peer_reads },
        Reply::Fault { may_fall_back } => Reply::Fault { may_fall_back },
    }
}

#[inline(always)]
fn either_request<R, T>(request: PeerRequest<R>, either: impl FnOnce(R) -> T) -> PeerRequest<T> {
    match request {
        PeerRequest::Incomplete => PeerRequest::Incomplete,
        PeerRequest::Complete { private_data, request } => {
            PeerRequest::Complete { private_data, request: either(request) }
        }
        PeerRequest::Fault => PeerRequest::Fault,
    }
}
