//! HEARTBEATs on an idle path: they find a peer that is gone, and measure the round trip.
//!
//! ```text
//!   idle for HB.interval + RTO -> HEARTBEAT with a nonce -> HEARTBEAT ACK: errors are cleared, RTT
//!                                                       \-> nothing for an RTO: an error, RTO doubles
//! ```
//! Only the ACK with the nonce of the last HEARTBEAT counts. The time it was sent is kept here, so
//! no peer can change it.
//!
//! Source: RFC 9260 s5.4 (the nonce), s8.1 and s8.3. Cost: one timer; nothing for each packet.

use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::association::Association;
use crate::output::Io;
use crate::packet::{ChunkType, ParameterType};

/// The length of the information: a nonce and the number of the path.
const INFO_BYTES: usize = 12;

/// A HEARTBEAT that is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heartbeat {
    info: [u8; INFO_BYTES],
    sent_at: Nanos,
}

impl<F: Frame> Association<F> {
    /// Has the next HEARTBEAT sent when nothing is sent from `since` on.
    pub(crate) fn start_heartbeat<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, since: Nanos) {
        // RFC 9260 s8.3: with a jitter of half an RTO on both sides.
        let rto = self.outbound.rtt.rto();
        let part = u64::from(io.shared.secrets.draw().0 >> 16);
        let jitter = Nanos((rto.0 >> 16).saturating_mul(part));
        let period = io.shared.config.heartbeat_interval + Nanos(rto.0 / 2) + jitter;
        self.timers.heartbeat = since + period;
    }

    /// The timer expired: a HEARTBEAT was not answered, or one is due. Returns whether the peer is
    /// given up.
    pub(crate) fn on_heartbeat_timer<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) -> bool {
        if self.heartbeat.take().is_some() {
            self.outbound.rtt.on_timeout();
            self.start_heartbeat(io, io.now);
            return self.outbound.count_error(io.shared.config.association_retries);
        }
        let idle_since = self.outbound.sent_at();
        let is_idle = idle_since + io.shared.config.heartbeat_interval <= io.now;
        if !is_idle || !self.outbound.is_all_acked() {
            self.start_heartbeat(io, if is_idle { io.now } else { idle_since });
            return false;
        }
        let (nonce_high, nonce_low) = io.shared.secrets.draw();
        let ([a, b, c, d], [e, f, g, h]) = (nonce_high.to_be_bytes(), nonce_low.0.to_be_bytes());
        let info = [a, b, c, d, e, f, g, h, 0, 0, 0, 0];
        io.send(self.route(), |packet| {
            packet.chunk(ChunkType::HEARTBEAT, 0, |chunk| {
                chunk.tlv(ParameterType::HEARTBEAT_INFO.0, |value| value.put(&info));
            });
        });
        io.shared.count(Counter::SctpTxHeartbeats);
        self.heartbeat = Some(Heartbeat { info, sent_at: io.now });
        self.timers.heartbeat = io.now + self.outbound.rtt.rto();
        false
    }

    /// Processes a HEARTBEAT ACK, whose value is that of the HEARTBEAT.
    pub(crate) fn on_heartbeat_ack<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, value: &[u8]) {
        let info = value.split_first_chunk::<4>().map(|(_, info)| info);
        let Some(sent) = self.heartbeat.take_if(|sent| info == Some(&sent.info[..])) else {
            return io.shared.count(Counter::SctpDropUnexpectedChunk);
        };
        self.outbound.on_heartbeat_ack(io.now.since(sent.sent_at), io.shared.config.rto_min);
        self.start_heartbeat(io, io.now);
        self.arm(io);
    }
}
