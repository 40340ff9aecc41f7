//! Packets that are sent: one frame, the chunks that `write` appends, the headers.
//!
//! If no frame is free or the device is full, the packet is lost and counted: a timer of either
//! side repeats what matters.

use core::net::IpAddr;

use ironwarp_llp::Arena;
use ironwarp_net::{Path, RateLimiter};
use ironwarp_port::{Frame, Port, Wires};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_timers::Wheel;
use ironwarp_types::Nanos;

use crate::SctpConfig;
use crate::inbound::HeldMessages;
use crate::outbound::SentChunk;
use crate::packet::{
    CauseCode, ChunkType, ChunkWriter, FLAG_REFLECTED, InitFixed, PacketWriter, Parameter, ParameterType,
    Tlvs,
};
use crate::secrets::Secrets;
use crate::slot_queue::SlotQueue;
use crate::streams::Streams;

/// A port's sealed frame.
type SealedOf<P> = <<P as Port>::Frame as Frame>::Sealed;

/// The state that all associations of a core share.
pub(crate) struct Shared<F: Frame> {
    pub(crate) config: SctpConfig,
    pub(crate) stats: CoreStats,
    pub(crate) wheel: Wheel,
    pub(crate) secrets: Secrets,
    pub(crate) streams: Streams,
    /// Received messages that wait.
    pub(crate) held: HeldMessages<F>,
    /// Associations with a SACK that is due.
    pub(crate) acks: SlotQueue,
    /// Associations that ask for routes.
    pub(crate) unrouted: SlotQueue,
    /// Sent chunks that are not acknowledged.
    pub(crate) retained: Arena<SentChunk<F::Sealed>>,
    /// Limits replies that anybody can trigger.
    reply_limiter: RateLimiter,
    /// The next IP identification. Any value is valid (RFC 6864 s4.1).
    ident: u16,
}

impl<F: Frame> Shared<F> {
    pub(crate) fn new(config: SctpConfig, secret: [u64; 2], stats: CoreStats) -> Self {
        Shared {
            wheel: Wheel::new(config.associations_max, Nanos::ZERO),
            secrets: Secrets::new(secret),
            streams: Streams::new(&config),
            held: HeldMessages::new(
                config.associations_max.saturating_mul(config.held_messages_reserve.into()),
                config.held_messages_shared,
            ),
            acks: SlotQueue::new(config.associations_max),
            unrouted: SlotQueue::new(config.associations_max),
            retained: Arena::new(
                config.associations_max.saturating_mul(config.retained_chunks_reserve.into()),
                config.retained_chunks_shared,
            ),
            reply_limiter: RateLimiter::new(config.replies_per_second, config.replies_burst),
            ident: 0,
            config,
            stats,
        }
    }

    /// Returns whether a reply that anybody can trigger may be sent now.
    pub(crate) fn may_reply(&mut self, now: Nanos) -> bool {
        let allowed = self.reply_limiter.allows(now);
        if !allowed {
            self.count(Counter::SctpTxRepliesRateLimited);
        }
        allowed
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.stats.count(counter);
    }
}

/// The I/O context of one call: the time, the wires and the shared state.
pub(crate) struct Io<'a, P: Port> {
    pub(crate) now: Nanos,
    pub(crate) wires: &'a mut Wires<P>,
    pub(crate) shared: &'a mut Shared<P::Frame>,
}

/// Where a packet goes.
#[derive(Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) path: &'a Path,
    /// The largest IP packet, in bytes. No more than that of `path`.
    pub(crate) mtu_bytes: u16,
    /// Routers may fragment the packet.
    pub(crate) may_fragment: bool,
    /// The local and the remote port.
    pub(crate) ports: [u16; 2],
    pub(crate) tag: u32,
}

impl<'a> Route<'a> {
    pub(crate) fn new(path: &'a Path, ports: [u16; 2], tag: u32) -> Self {
        Route { path, mtu_bytes: path.mtu_bytes(), may_fragment: false, ports, tag }
    }

    /// Returns the length of the largest frame.
    fn frame_bytes_max(&self) -> usize {
        let unused = self.path.mtu_bytes().saturating_sub(self.mtu_bytes);
        self.path.frame_bytes_max() - usize::from(unused)
    }
}

impl<P: Port> Io<'_, P> {
    /// Sends a packet with the chunks that `write` appends. Returns whether there was a buffer, and
    /// a chunk that fits.
    pub(crate) fn send(&mut self, route: Route<'_>, write: impl FnOnce(&mut PacketWriter<'_>)) -> bool {
        let built = self.build(route, |packet, _| {
            write(packet);
            packet.has_chunks()
        });
        let Some((sealed, true)) = built else { return false };
        self.push(route.path.port(), sealed);
        true
    }

    /// Builds a packet with the chunks that `write` appends. `None` without a buffer.
    pub(crate) fn build<R>(
        &mut self,
        route: Route<'_>,
        write: impl FnOnce(&mut PacketWriter<'_>, &mut Shared<P::Frame>) -> R,
    ) -> Option<(SealedOf<P>, R)> {
        let Route { path, ports, tag, may_fragment, .. } = route;
        let Some(mut frame) = self.wires.at_mut(path.port()).alloc() else {
            self.shared.count(Counter::SctpTxNoBuffer);
            return None;
        };
        frame.resize(frame.capacity().min(route.frame_bytes_max()));
        let room = frame.bytes_mut().get_mut(path.transport_offset()..).unwrap_or_default();
        let mut packet = PacketWriter::new(room, ports, tag)?;
        let result = write(&mut packet, self.shared);
        let packet_bytes = packet.finish();
        frame.resize(path.transport_offset() + packet_bytes);
        self.shared.ident = self.shared.ident.wrapping_add(1);
        let meta = path.write_ip(frame.bytes_mut(), self.shared.ident, self.shared.config.udp_local_port);
        if may_fragment {
            path.allow_fragments(frame.bytes_mut());
        }
        Some((frame.seal(meta), result))
    }

    /// Hands a packet to the device.
    pub(crate) fn push(&mut self, port: u8, sealed: SealedOf<P>) {
        let pushed = self.wires.at_mut(port).push(sealed);
        self.shared.count(if pushed { Counter::SctpTxPackets } else { Counter::SctpTxRingFull });
    }

    /// Returns whether a reply that anybody can trigger may be sent now.
    pub(crate) fn may_reply(&mut self) -> bool {
        self.shared.may_reply(self.now)
    }

    /// Sends an ABORT. The tag is the peer's, or the one of the peer's packet if `reflected`.
    pub(crate) fn send_abort(&mut self, route: Route<'_>, reflected: bool, cause: Option<CauseCode>) {
        let value: &[u8] = match cause {
            // RFC 9260 s3.3.10.2: the number of missing parameters, and their types: a cookie.
            Some(CauseCode::MISSING_MANDATORY_PARAMETER) => &[0, 0, 0, 1, 0, 7],
            _ => &[],
        };
        self.send_abort_with(route, reflected, cause.map(|code| (code, value)));
    }

    /// Sends an INIT or INIT ACK with what `more` appends.
    pub(crate) fn send_init(
        &mut self,
        route: Route<'_>,
        kind: ChunkType,
        fixed: &InitFixed,
        more: impl FnOnce(&mut ChunkWriter<'_>),
    ) {
        let built = self.build(route, |packet, shared| {
            packet.chunk(kind, 0, |chunk| {
                chunk.put(&fixed.octets());
                shared.config.addresses.iter().for_each(|&addr| write_address(chunk, addr));
                if let Some(code_point) = shared.config.adaptation_code_point {
                    chunk.tlv(ParameterType::ADAPTATION_LAYER_INDICATION.0, |value| {
                        value.put(&code_point.to_be_bytes());
                    });
                }
                more(chunk);
            });
        });
        if let Some((sealed, ())) = built {
            self.push(route.path.port(), sealed);
        }
    }

    /// Refuses an INIT that adds addresses to an association (RFC 9260 s5.2.2 and s3.3.10.11).
    pub(crate) fn send_new_addresses(&mut self, route: Route<'_>, added: &[IpAddr]) {
        self.shared.count(Counter::SctpTxAborts);
        self.send(route, |packet| {
            packet.chunk(ChunkType::ABORT, 0, |chunk| {
                chunk.tlv(CauseCode::RESTART_WITH_NEW_ADDRESSES.0, |cause| {
                    added.iter().for_each(|&addr| write_address(cause, addr));
                });
            });
        });
    }

    /// Sends an ABORT with the value of its cause.
    pub(crate) fn send_abort_with(
        &mut self,
        route: Route<'_>,
        reflected: bool,
        cause: Option<(CauseCode, &[u8])>,
    ) {
        self.shared.count(Counter::SctpTxAborts);
        self.send(route, |packet| {
            packet.chunk(ChunkType::ABORT, if reflected { FLAG_REFLECTED } else { 0 }, |chunk| {
                if let Some((code, value)) = cause {
                    chunk.tlv(code.0, |cause| cause.put(value));
                }
            });
        });
    }

    /// Sends a SHUTDOWN COMPLETE, which is never bundled (RFC 9260 s6.10).
    pub(crate) fn send_shutdown_complete(&mut self, route: Route<'_>, reflected: bool) {
        self.send(route, |packet| {
            packet.chunk(ChunkType::SHUTDOWN_COMPLETE, if reflected { FLAG_REFLECTED } else { 0 }, |_| {});
        });
    }
}

/// Appends an address parameter.
fn write_address(chunk: &mut ChunkWriter<'_>, addr: IpAddr) {
    match addr {
        IpAddr::V4(addr) => chunk.tlv(ParameterType::IPV4_ADDRESS.0, |value| value.put(&addr.octets())),
        IpAddr::V6(addr) => chunk.tlv(ParameterType::IPV6_ADDRESS.0, |value| value.put(&addr.octets())),
    }
}

/// Appends a report for each parameter that asks for one, while there is room. `kind` is the type
/// of a report: a parameter in INIT ACK, an error cause in ERROR.
pub(crate) fn write_unrecognized(chunk: &mut ChunkWriter<'_>, kind: u16, parameters: Tlvs<'_>) {
    for parameter in parameters.recognized().flatten() {
        if let Parameter::Unrecognized(octets, action) = parameter
            && action.reports
            && chunk.has_room(octets.len())
        {
            chunk.tlv(kind, |report| report.put(octets));
        }
    }
}

/// What a received packet has to be answered with, in one packet. One HEARTBEAT and one error of a
/// packet are answered: a peer cannot ask for more than it sends.
#[derive(Clone, Copy, Default)]
pub(crate) struct Replies<'a> {
    pub(crate) cookie_ack: bool,
    pub(crate) heartbeat: Option<&'a [u8]>,
    /// An error cause and its information.
    pub(crate) error: Option<(CauseCode, &'a [u8])>,
    /// A stream that does not exist (RFC 9260 s3.3.10.1).
    pub(crate) invalid_stream: Option<u16>,
    pub(crate) shutdown_ack: bool,
}

impl Replies<'_> {
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        let Replies { cookie_ack, heartbeat, error, invalid_stream, shutdown_ack } = self;
        *cookie_ack || *shutdown_ack || heartbeat.is_some() || error.is_some() || invalid_stream.is_some()
    }

    pub(crate) fn send<P: Port>(self, io: &mut Io<'_, P>, route: Route<'_>) {
        if !self.are_any() {
            return;
        }
        let Replies { cookie_ack, heartbeat, error, invalid_stream, shutdown_ack } = self;
        io.send(route, |packet| {
            // RFC 9260 s3.3.12: COOKIE ACK comes first.
            if cookie_ack {
                packet.chunk(ChunkType::COOKIE_ACK, 0, |_| {});
            }
            if let Some(value) = heartbeat {
                packet.chunk(ChunkType::HEARTBEAT_ACK, 0, |chunk| chunk.put(value));
            }
            if error.is_some() || invalid_stream.is_some() {
                packet.chunk(ChunkType::ERROR, 0, |chunk| {
                    if let Some(stream) = invalid_stream {
                        let [high, low] = stream.to_be_bytes();
                        let code = CauseCode::INVALID_STREAM_IDENTIFIER;
                        chunk.tlv(code.0, |cause| cause.put(&[high, low, 0, 0]));
                    }
                    if let Some((code, information)) = error {
                        chunk.tlv(code.0, |cause| cause.put(information));
                    }
                });
            }
            if shutdown_ack {
                packet.chunk(ChunkType::SHUTDOWN_ACK, 0, |_| {});
            }
        });
    }
}
