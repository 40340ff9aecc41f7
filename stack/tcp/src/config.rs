//! The engine's settings and limits.
//!
//! When a limit is reached, the engine refuses and counts the request. No table grows.

use ironwarp_types::Nanos;
use ironwarp_types::limits::FPDU_BYTES_MAX;
use thiserror::Error;

use crate::{KeepAlive, TcpTimeouts};

/// The largest window that the largest window scale can announce (RFC 7323 s2.3): 2^14 times 65535
/// bytes.
pub const RCV_WINDOW_BYTES_MAX: u32 = 65_535 << 14;

/// The smallest permitted receive window: two whole FPDUs, so that a partial FPDU never stops the
/// peer.
pub const RCV_WINDOW_BYTES_MIN: u32 = 2 * FPDU_BYTES_MAX as u32;

/// The congestion control algorithm of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// RFC 5681: grows by one segment per round trip and halves the window after a loss.
    NewReno,
    /// CUBIC (draft-ietf-tcpm-rfc8312bis), the default of most production stacks. On short round
    /// trips it is as fast as NewReno or slightly faster, on long ones much faster.
    #[default]
    Cubic,
    /// DCTCP (RFC 8257): reduces the window in proportion to the share of marked bytes. Use it only
    /// where switches mark early and every sender runs DCTCP. Needs `ecn`.
    Dctcp,
}

impl Congestion {
    /// Returns whether the receiver echoes for every packet whether it was marked (RFC 8257 s3.2).
    pub(crate) fn uses_dctcp_echo(self) -> bool {
        match self {
            Congestion::NewReno | Congestion::Cubic => false,
            Congestion::Dctcp => true,
        }
    }
}

/// Settings of one core's engine. All have defaults.
///
/// What an administrator may set has the names of the keys in a configuration, with their units;
/// sizes of pools and tables have none, since a stack derives them from others.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default = "TcpConfig::configured")]
pub struct TcpConfig {
    /// Maximum number of connections, including those in handshake and those not yet released.
    #[serde(skip)]
    pub connections_max: u32,
    /// Maximum number of listeners.
    #[serde(skip)]
    pub listeners_max: u32,
    /// Maximum number of connections in SYN-RECEIVED. Bounds the memory that a SYN flood can take.
    #[serde(skip)]
    pub half_open_max: u32,
    /// While `half_open_max` handshakes are open, sends SYN cookies (RFC 4987 s3.6) instead of
    /// dropping SYNs.
    pub syn_cookies: bool,
    /// The receive window, in bytes.
    pub rcv_window_bytes: u32,
    /// Maximum number of out-of-order frames that one connection holds.
    #[serde(skip)]
    pub ooo_frames_max: u16,
    /// Received frames reserved for every connection. The receive pool must hold the sum of all
    /// reserves.
    #[serde(skip)]
    pub rx_frames_reserve: u16,
    /// Received frames that all connections share beyond their reserves.
    #[serde(skip)]
    pub rx_frames_shared: u32,
    /// Received frames that one connection at a time may hold when all other frames are taken. They
    /// suffice for an FPDU of 64 KiB, so one connection can always make progress.
    #[serde(skip)]
    pub rx_frames_emergency_reserve: u16,
    /// Maximum unacknowledged payload that one connection retains, in bytes.
    #[serde(rename = "retransmit_queue_bytes")]
    pub retransmit_queue_bytes_max: u32,
    /// Maximum number of unacknowledged units that one connection retains.
    #[serde(skip)]
    pub retained_units_max: u16,
    /// Retained units reserved for every connection. The transmit pool must hold the sum of all
    /// reserves.
    #[serde(skip)]
    pub retained_units_reserve: u16,
    /// Retained units that all connections share beyond their reserves.
    #[serde(skip)]
    pub retained_units_shared: u32,
    /// Transmit frames reserved for the last units of sources
    /// ([`UnitSource::is_last`](crate::UnitSource::is_last)). They are used when the pool is empty.
    #[serde(skip)]
    pub terminate_reserve_frames: u16,
    /// The minimum retransmission timeout. RFC 6298 s2.4 recommends 1 s; the round trip in a data
    /// centre is 10^5 times shorter.
    #[serde(rename = "rto_min_us", deserialize_with = "ironwarp_types::unit::micros")]
    pub rto_min: Nanos,
    /// The retransmission timeout before the first round-trip sample. RFC 6298 s2.1 recommends 1 s.
    #[serde(rename = "rto_initial_us", deserialize_with = "ironwarp_types::unit::micros")]
    pub rto_initial: Nanos,
    /// The least retransmission timeout of the first data after a SYN or SYN-ACK was lost, until
    /// there is a round-trip sample. RFC 6298 s5.7 requires 3 s. [`Nanos::ZERO`]: the timeout is
    /// that of the SYN, which has doubled with each loss.
    #[serde(rename = "rto_after_syn_loss_us", deserialize_with = "ironwarp_types::unit::micros")]
    pub rto_after_syn_loss: Nanos,
    /// The maximum retransmission timeout, up to which it doubles while nothing is acknowledged. It
    /// bounds the pause of a connection after an outage. RFC 6298 s2.5 requires at least 60 s; a
    /// lower one suits a private network.
    #[serde(rename = "rto_max_us", deserialize_with = "ironwarp_types::unit::micros")]
    pub rto_max: Nanos,
    /// Retransmissions of a SYN or SYN-ACK before the attempt is aborted.
    pub syn_retries: u8,
    /// Retransmissions of a SYN before a reset by the peer ends the attempt. RFC 9293 s3.10.7.3 has
    /// none. A server that is about to listen is found by the next SYN.
    pub refused_retries: u8,
    /// How long payload may stay unacknowledged before the connection is aborted.
    #[serde(rename = "user_timeout_ms", deserialize_with = "ironwarp_types::unit::millis")]
    pub user_timeout: Nanos,
    /// How long the peer may answer the probes of its closed window without accepting a byte before
    /// the connection is aborted. [`Nanos::MAX`], 0 in a configuration, disables the limit.
    /// RFC 9293 s3.8.6.1 (MUST-37) sets none, and RFC 6429 s3 leaves it to the application.
    #[serde(rename = "zero_window_timeout_ms", deserialize_with = "ironwarp_types::unit::millis_or_never")]
    pub zero_window_timeout: Nanos,
    /// Keep-alive probes of established connections; `None`: none. The engine sends none of its own
    /// accord: its user sets [`TcpConfig::timeouts`] or others
    /// ([`Transport::set_timeouts`](crate::Transport::set_timeouts)).
    pub keep_alive: Option<KeepAlive>,
    /// How long a closed connection waits in FIN-WAIT-2 for the peer's FIN. A longer user timeout
    /// extends it. [`Nanos::MAX`] disables the limit.
    #[serde(skip)]
    pub fin_wait_2: Nanos,
    /// The duration of TIME-WAIT.
    #[serde(rename = "time_wait_ms", deserialize_with = "ironwarp_types::unit::millis")]
    pub time_wait: Nanos,
    /// Maximum number of connections in TIME-WAIT. A new one replaces the oldest.
    #[serde(skip)]
    pub time_wait_max: u32,
    /// The initial window, in segments (RFC 6928 s2).
    pub initial_window_segments: u8,
    /// Maximum number per millisecond of resets for segments without a connection, and of challenge
    /// ACKs (RFC 5961 s7). The effective limit varies from millisecond to millisecond between half
    /// of this value and all of it.
    #[serde(skip)]
    pub replies_per_ms: u16,
    /// The congestion control algorithm.
    pub congestion: Congestion,
    /// The longest delay of a peer's acknowledgement of a single segment. A tail loss probe waits
    /// this much longer (RFC 8985 s7.2, TLP.max_ack_delay). An unnecessary probe costs one segment.
    /// A value above `rto_min` has no effect.
    #[serde(rename = "ack_delay_max_us", deserialize_with = "ironwarp_types::unit::micros")]
    pub ack_delay_max: Nanos,
    /// After an idle time longer than the retransmission timeout, a connection restarts from the
    /// initial window (RFC 5681 s4.1).
    pub slow_start_after_idle: bool,
    /// Detects paths that silently drop large segments, and lowers the segment size
    /// (RFC 4821 s7.7).
    pub plpmtud: bool,
    /// Offers and accepts timestamps (RFC 7323 s3). They cost 12 bytes per segment and protect
    /// against old segments when sequence numbers wrap, which takes a third of a second at 100
    /// Gbit/s.
    pub timestamps: bool,
    /// Offers and accepts selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offers and accepts explicit congestion notification (RFC 3168). On by default: a mark costs
    /// no retransmission, and a peer without ECN declines it. A repeated SYN does not ask for ECN,
    /// since a middlebox may drop SYNs that do.
    pub ecn: bool,
    /// Takes the fast path where it applies. Off: every segment takes the general path, with the
    /// same results.
    #[serde(skip)]
    pub fast_path: bool,
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
            rto_after_syn_loss: Nanos::ZERO,
            rto_max: Nanos::from_secs(60),
            syn_retries: 6,
            refused_retries: 0,
            user_timeout: Nanos::from_secs(30),
            zero_window_timeout: Nanos::from_secs(300),
            keep_alive: None,
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
            fast_path: true,
        }
    }
}

/// An invalid combination of settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TcpConfigError {
    /// The number of connections is zero or too large.
    #[error("connections_max must be from 1 to 2^28")]
    Connections,
    /// The window is too small for two FPDUs, or larger than TCP can announce.
    #[error("rcv_window_bytes must be from {RCV_WINDOW_BYTES_MIN} to {RCV_WINDOW_BYTES_MAX}")]
    RcvWindow,
    /// A setting must not be zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// The timeouts contradict each other.
    #[error("rto_min and rto_initial must not be above rto_max")]
    Rto,
}

impl TcpConfig {
    /// Returns what a configuration starts from: the defaults, and a window that as many retained
    /// bytes match.
    pub fn configured() -> Self {
        let bytes = 1 << 20;
        TcpConfig { rcv_window_bytes: bytes, retransmit_queue_bytes_max: bytes, ..TcpConfig::default() }
    }

    /// Returns the timeouts of connections whose user sets none.
    pub fn timeouts(&self) -> TcpTimeouts {
        let TcpConfig { user_timeout, zero_window_timeout, keep_alive, .. } = *self;
        TcpTimeouts { user_timeout, zero_window_timeout, keep_alive }
    }

    /// Checks that the settings are consistent. The engine does not panic with any settings.
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
            ("the sum of rx_frames_reserve and rx_frames_shared", rx_frames),
            ("the sum of retained_units_reserve and retained_units_shared", units),
            ("retained_units_max", u64::from(self.retained_units_max)),
            ("retransmit_queue_bytes_max", u64::from(self.retransmit_queue_bytes_max)),
            ("initial_window_segments", u64::from(self.initial_window_segments)),
            ("rto_min", self.rto_min.0),
            ("rto_initial", self.rto_initial.0),
            ("user_timeout", self.user_timeout.0),
            ("zero_window_timeout", self.zero_window_timeout.0),
        ];
        settings.into_iter().find(|&(_, value)| value == 0).map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_settings_are_valid() {
        assert_eq!(TcpConfig::default().validate(), Ok(()));
    }

    #[test]
    fn a_window_below_two_fpdus_is_refused() {
        let config = TcpConfig { rcv_window_bytes: 65_535, ..TcpConfig::default() };
        assert_eq!(config.validate(), Err(TcpConfigError::RcvWindow));
    }

    #[test]
    fn the_error_names_the_setting_that_is_zero() {
        let config = TcpConfig { retained_units_max: 0, ..TcpConfig::default() };
        assert_eq!(config.validate(), Err(TcpConfigError::Zero("retained_units_max")));
    }
}
