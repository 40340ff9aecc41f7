//! The engine's settings and limits.
//!
//! Every limit is met by a counted refusal, never by growth.

use ironwarp_types::Nanos;
use ironwarp_types::limits::FPDU_BYTES_MAX;
use thiserror::Error;

/// The largest window that the largest scale can announce (RFC 7323 s2.3): 2^14 times 65535.
pub const RCV_WINDOW_BYTES_MAX: u32 = 65_535 << 14;

/// The smallest receive window that a deployment may ask for: two whole FPDUs, so that a partial one never stops
/// the peer.
pub const RCV_WINDOW_BYTES_MIN: u32 = 2 * FPDU_BYTES_MAX as u32;

/// Which congestion control a connection runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Congestion {
    /// RFC 5681: one segment a round trip, half the window at a loss.
    NewReno,
    /// CUBIC (draft-ietf-tcpm-rfc8312bis): what production stacks run. The same as NewReno, or a little faster, on short
    /// round trips, and much faster on long ones.
    #[default]
    Cubic,
    /// DCTCP (RFC 8257): the window comes down in proportion to congestion marks. Only for networks whose switches mark
    /// early and whose every sender is as polite; needs `ecn`.
    Dctcp,
}

impl Congestion {
    /// Whether the receiver tells of every packet whether it was marked (RFC 8257 s3.2).
    pub(crate) fn uses_dctcp_echo(self) -> bool {
        match self {
            Congestion::NewReno | Congestion::Cubic => false,
            Congestion::Dctcp => true,
        }
    }
}

/// Settings of one core's engine. Every one has a default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpConfig {
    /// Connections at one time, those in hand-shake and those not released yet included.
    pub connections_max: u32,
    /// Listeners at one time.
    pub listeners_max: u32,
    /// Connections in SYN-RECEIVED at one time: what a SYN flood may take.
    pub half_open_max: u32,
    /// Answers SYNs with cookies (RFC 4987 s3.6) while as many handshakes as that are open, in place of dropping them.
    pub syn_cookies: bool,
    /// The receive window, in bytes.
    pub rcv_window_bytes: u32,
    /// Out-of-order frames that one connection may hold.
    pub ooo_frames_max: u16,
    /// Received frames that every connection may hold whatever the others do. The receive pool must cover these.
    pub rx_frames_reserve: u16,
    /// Received frames that connections may hold beyond their reserve, all together.
    pub rx_frames_shared: u32,
    /// Received frames that one connection at a time may hold when all others are taken: enough for an FPDU of 64 KiB,
    /// so that something always moves on.
    pub rx_frames_emergency_reserve: u16,
    /// Unacknowledged payload that one connection may retain, in bytes.
    pub retransmit_queue_bytes_max: u32,
    /// Unacknowledged units that one connection may retain.
    pub retained_units_max: u16,
    /// Units that every connection may retain whatever the others do. The transmit pool must cover these.
    pub retained_units_reserve: u16,
    /// Units that connections may retain beyond their reserve, all together.
    pub retained_units_shared: u32,
    /// Transmit frames that are kept for the last units of sources ([`UnitSource::is_last`](crate::UnitSource::is_last)),
    /// for when the pool is empty.
    pub terminate_reserve_frames: u16,
    /// The smallest retransmission timeout. RFC 6298 s2.4 recommends 1 s; a data centre's round trip is 10^5 times
    /// shorter.
    pub rto_min: Nanos,
    /// The retransmission timeout before a round trip was measured. RFC 6298 s2.1 recommends 1 s.
    pub rto_initial: Nanos,
    /// The largest retransmission timeout (RFC 6298 s2.5 asks for at least 60 s).
    pub rto_max: Nanos,
    /// How often a SYN or SYN-ACK is sent again before the attempt is given up.
    pub syn_retries: u8,
    /// How long payload may stay unacknowledged before the connection is given up.
    pub user_timeout: Nanos,
    /// How long a closed connection waits for the peer's FIN (FIN-WAIT-2), where its user timeout is no shorter.
    /// [`Nanos::MAX`] waits for ever.
    pub fin_wait_2: Nanos,
    /// How long TIME-WAIT lasts.
    pub time_wait: Nanos,
    /// Connections in TIME-WAIT at one time; the oldest gives way.
    pub time_wait_max: u32,
    /// Segments in the first flight (RFC 6928 s2).
    pub initial_window_segments: u8,
    /// Resets that strangers can draw from this core in a millisecond, and as many challenge ACKs (RFC 5961 s7). In each
    /// millisecond the limit is another, down to half of this.
    pub replies_per_ms: u16,
    /// The congestion control.
    pub congestion: Congestion,
    /// How long a peer may hold back the acknowledgement of a lone segment, before a tail loss probe asks for it (RFC
    /// 8985 s7.2, TLP.max_ack_delay). A probe too many costs one segment; what is above `rto_min` has no effect.
    pub ack_delay_max: Nanos,
    /// After an idle time longer than the retransmission timeout a connection begins again with the first flight (RFC
    /// 5681 s4.1).
    pub slow_start_after_idle: bool,
    /// Looks out for paths that swallow large segments without a word and lowers the segment size (RFC 4821 s7.7).
    pub plpmtud: bool,
    /// Offers and accepts time stamps (RFC 7323 s3): 12 bytes a segment, which keep old segments apart from new ones
    /// when numbers wrap, in a third of a second at 100 Gbit/s.
    pub timestamps: bool,
    /// Offers and accepts selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offers and accepts explicit congestion notification (RFC 3168). On by default: a mark costs no retransmission, a
    /// peer that knows nothing of it declines, and a SYN that something on the way swallows for it goes without when
    /// repeated.
    pub ecn: bool,
}

impl Default for TcpConfig {
    fn default() -> Self {
        TcpConfig {
            connections_max: 1024,
            listeners_max: 64,
            half_open_max: 256,
            syn_cookies: true,
            rcv_window_bytes: 512 * 1024,
            ooo_frames_max: 512,
            rx_frames_reserve: 2,
            rx_frames_shared: 4096,
            rx_frames_emergency_reserve: 48,
            retransmit_queue_bytes_max: 4 << 20,
            retained_units_max: 1024,
            retained_units_reserve: 4,
            retained_units_shared: 8192,
            terminate_reserve_frames: 0,
            rto_min: Nanos::from_millis(5),
            rto_initial: Nanos::from_millis(200),
            rto_max: Nanos::from_secs(60),
            syn_retries: 6,
            user_timeout: Nanos::from_secs(30),
            fin_wait_2: Nanos::from_secs(60),
            time_wait: Nanos::from_secs(60),
            time_wait_max: 16_384,
            initial_window_segments: 10,
            replies_per_ms: 64,
            congestion: Congestion::Cubic,
            ack_delay_max: Nanos::from_millis(1),
            slow_start_after_idle: true,
            plpmtud: true,
            timestamps: true,
            sack: true,
            ecn: true,
        }
    }
}

/// A setting that cannot work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TcpConfigError {
    /// No connection could ever exist.
    #[error("connections_max must be between 1 and 2^28")]
    Connections,
    /// The window is too small for two FPDUs or larger than TCP can announce.
    #[error("rcv_window_bytes must be between {RCV_WINDOW_BYTES_MIN} and {RCV_WINDOW_BYTES_MAX}")]
    RcvWindow,
    /// Nothing could be received or sent.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// The timeouts contradict each other.
    #[error("rto_min must not be above rto_max, nor rto_initial")]
    Rto,
}

impl TcpConfig {
    /// Whether the settings can work together. The engine itself survives any settings.
    pub fn validate(&self) -> Result<(), TcpConfigError> {
        if self.connections_max == 0 || self.connections_max > 1 << 28 {
            return Err(TcpConfigError::Connections);
        }
        if !(RCV_WINDOW_BYTES_MIN..=RCV_WINDOW_BYTES_MAX).contains(&self.rcv_window_bytes) {
            return Err(TcpConfigError::RcvWindow);
        }
        if self.rto_min > self.rto_max || self.rto_initial > self.rto_max {
            return Err(TcpConfigError::Rto);
        }
        match self.first_zero() {
            Some(name) => Err(TcpConfigError::Zero(name)),
            None => Ok(()),
        }
    }

    fn first_zero(&self) -> Option<&'static str> {
        let rx_frames = u64::from(self.rx_frames_reserve) + u64::from(self.rx_frames_shared);
        let units = u64::from(self.retained_units_reserve) + u64::from(self.retained_units_shared);
        let settings = [
            ("rx_frames_reserve and rx_frames_shared together", rx_frames),
            ("retained_units_reserve and retained_units_shared together", units),
            ("retained_units_max", u64::from(self.retained_units_max)),
            ("retransmit_queue_bytes_max", u64::from(self.retransmit_queue_bytes_max)),
            ("initial_window_segments", u64::from(self.initial_window_segments)),
            ("rto_min", self.rto_min.0),
            ("rto_initial", self.rto_initial.0),
            ("user_timeout", self.user_timeout.0),
        ];
        settings.into_iter().find(|&(_, value)| value == 0).map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_can_work() {
        assert_eq!(TcpConfig::default().validate(), Ok(()));
    }

    #[test]
    fn a_window_below_two_fpdus_is_refused() {
        let config = TcpConfig { rcv_window_bytes: 65_535, ..TcpConfig::default() };
        assert_eq!(config.validate(), Err(TcpConfigError::RcvWindow));
    }

    #[test]
    fn a_setting_of_zero_is_named() {
        let config = TcpConfig { retained_units_max: 0, ..TcpConfig::default() };
        assert_eq!(config.validate(), Err(TcpConfigError::Zero("retained_units_max")));
    }
}
