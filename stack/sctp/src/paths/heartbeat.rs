//! HEARTBEATs: they find a peer that is gone, measure the round trip of an idle path, and confirm
//! the addresses that the peer has listed.
//!
//! ```text
//!   idle for HB.interval + RTO -> HEARTBEAT with a nonce -> HEARTBEAT ACK: errors are cleared, RTT
//!                                                       \-> nothing for an RTO: an error, RTO doubles
//! ```
//! A path that is not confirmed, or potentially failed, is probed each RTO. Only the ACK with the
//! nonce of the last HEARTBEAT of its path counts. The time it was sent is kept here, so no peer
//! can change it. The RTO of an inactive path does not double further, so that its return is found
//! after HB.interval.
//!
//! Source: RFC 9260 s5.4 (the nonce), s8.1 and s8.3; RFC 7829 s3.2. Cost: one timer; nothing for
//! each packet.

use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::{PathId, PathState};
use crate::association::Association;
use crate::message::UpperLayer;
use crate::output::Io;
use crate::packet::{ChunkType, PacketWriter, ParameterType};

/// The length of the information: a nonce and the number of the path.
const INFO_BYTES: usize = 12;

/// The longest time between HEARTBEATs to an address that does not answer.
const PROBE_INTERVAL_MAX: Nanos = Nanos::from_secs(30);

/// A HEARTBEAT that is not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    pub(super) info: [u8; INFO_BYTES],
    sent_at: Nanos,
}

impl Heartbeat {
    /// Draws the nonce of a HEARTBEAT that is sent now.
    pub(super) fn new<P: Port>(io: &mut Io<'_, P>, id: PathId) -> Self {
        let (nonce_high, nonce_low) = io.shared.secrets.draw();
        let ([a, b, c, d], [e, f, g, h]) = (nonce_high.to_be_bytes(), nonce_low.0.to_be_bytes());
        Heartbeat { info: [a, b, c, d, e, f, g, h, 0, 0, 0, id], sent_at: io.now }
    }

    /// Appends it to a packet.
    pub(super) fn write(&self, packet: &mut PacketWriter<'_>) {
        packet.chunk(ChunkType::HEARTBEAT, 0, |chunk| {
            chunk.tlv(ParameterType::HEARTBEAT_INFO.0, |value| value.put(&self.info));
        });
    }
}

impl<F: Frame> Association<F> {
    /// Has HEARTBEATs sent on all paths from now on, and looks for a larger MTU.
    pub(crate) fn start_heartbeats<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        for id in self.paths.ids() {
            self.start_heartbeat(io, id, io.now);
            self.start_mtu_search(io.now, id);
        }
    }

    /// Has the next HEARTBEAT sent when nothing is sent from `since` on.
    fn start_heartbeat<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, id: PathId, since: Nanos) {
        let path = self.paths.at_mut(id);
        // RFC 9260 s8.3: with a jitter of half an RTO on both sides.
        let rto = path.rtt.rto();
        let part = u64::from(io.shared.secrets.draw().0 >> 16);
        let jitter = Nanos((rto.0 >> 16).saturating_mul(part));
        let interval = match path.state {
            PathState::Active => io.shared.config.heartbeat_interval,
            // One that does not answer is probed also where HEARTBEATs of idle paths are off.
            _ => io.shared.config.heartbeat_interval.min(PROBE_INTERVAL_MAX),
        };
        let period = interval + Nanos(rto.0 / 2) + jitter;
        path.heartbeat_at = since + period;
    }

    /// Runs the timers of HEARTBEATs that have expired. Returns whether the peer is given up.
    pub(crate) fn on_heartbeat_timers<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        user: &mut impl UpperLayer,
    ) -> bool {
        self.paths
            .ids()
            .any(|id| self.paths.at(id).heartbeat_at <= io.now && self.on_heartbeat_timer(io, id, user))
    }

    /// A HEARTBEAT was not answered, or one is due.
    fn on_heartbeat_timer<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        id: PathId,
        user: &mut impl UpperLayer,
    ) -> bool {
        let path = self.paths.at_mut(id);
        if path.heartbeat.take().is_some() {
            if path.state != PathState::Inactive {
                path.rtt.on_timeout();
            }
            // RFC 9260 s8.1: one of a path that is not in use does not count for the association.
            let counts = id == self.paths.current_id();
            self.on_path_error(io, id, user);
            if counts && self.outbound.count_error(io.shared.config.association_retries) {
                return true;
            }
            if !self.paths.at(id).is_probed(&io.shared.config) {
                self.start_heartbeat(io, id, io.now);
                return false;
            }
        }
        let path = self.paths.at(id);
        let is_idle =
            path.state != PathState::Active || path.sent_at + io.shared.config.heartbeat_interval <= io.now;
        if !path.is_probed(&io.shared.config)
            && (!is_idle || path.flight_bytes > 0 || self.outbound.has_lost())
        {
            let since = if is_idle { io.now } else { path.sent_at };
            self.start_heartbeat(io, id, since);
            return false;
        }
        let heartbeat = Heartbeat::new(io, id);
        let is_sent = io.send(self.route_of(id), |packet| heartbeat.write(packet));
        let path = self.paths.at_mut(id);
        path.heartbeat_at = io.now + path.rtt.rto();
        if is_sent {
            io.shared.count(Counter::SctpTxHeartbeats);
            path.heartbeat = Some(heartbeat);
        }
        false
    }

    /// Processes a HEARTBEAT ACK, whose value is that of the HEARTBEAT.
    pub(crate) fn on_heartbeat_ack<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        value: &[u8],
        user: &mut impl UpperLayer,
    ) {
        let info = value.split_first_chunk::<4>().map(|(_, info)| info);
        let id = info.and_then(<[u8]>::last).copied().unwrap_or(PathId::MAX);
        if self.on_probe_answered(io.now, id, info.unwrap_or_default()) {
            return self.arm(io);
        }
        let is_answered = |sent: &mut Heartbeat| info == Some(&sent.info[..]);
        let Some(sent) = self.paths.at_mut(id).heartbeat.take_if(is_answered) else {
            return io.shared.count(Counter::SctpDropUnexpectedChunk);
        };
        self.paths.at_mut(id).rtt.sample(io.now.since(sent.sent_at), io.shared.config.rto_min);
        // RFC 9260 s8.1: it clears the errors, but not those of messages.
        if self.outbound.is_all_acked() {
            self.outbound.clear_errors();
        }
        let was_confirmed = self.paths.at(id).state != PathState::Unconfirmed;
        self.on_path_answer(io, id, user);
        if !was_confirmed {
            self.start_mtu_search(io.now, id);
        }
        self.start_heartbeat(io, id, io.now);
        self.arm(io);
    }
}
