//! Settings of TCP: the table `[tcp]`.

pub use ironwarp_tcp::{Congestion, KeepAlive};
use ironwarp_tcp::{TcpConfig, TcpTimeouts};
use ironwarp_types::Nanos;
use serde::Deserialize;

use super::{ConfigError, in_range};

/// TCP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpSettings {
    /// The receive window in bytes. At least two FPDUs of the largest size.
    pub rcv_window_bytes: u32,
    /// Bytes that a connection may retain for retransmission.
    pub retransmit_queue_bytes: u32,
    /// The minimum retransmission timeout. RFC 6298 s2.4 requires one second, far longer than a data centre's round
    /// trip.
    pub rto_min_us: u64,
    /// The retransmission timeout before the first round-trip measurement: that of the first SYN.
    pub rto_initial_us: u64,
    /// The least retransmission timeout of the first data after a SYN was lost. RFC 6298 s5.7 requires 3 s, for paths whose round
    /// trip is longer than the first timeout. 0: the timeout of the SYN, doubled with each loss, which is hundreds of round trips
    /// in a data centre.
    pub rto_after_syn_loss_us: u64,
    /// The largest retransmission timeout; the timeout doubles up to it while nothing is acknowledged. It bounds the pause of
    /// a connection after an outage of the network. RFC 6298 s2.5 allows a limit of 60 s or more; a lower one suits a private
    /// network, where a needless retransmission costs little.
    pub rto_max_us: u64,
    /// How long the peer may delay the acknowledgement of a single segment before a tail loss probe.
    pub ack_delay_max_us: u64,
    /// The number of SYN retransmissions before the connection attempt fails.
    pub syn_retries: u8,
    /// The number of SYN retransmissions before a peer that refuses the connection ends the attempt.
    pub refused_retries: u8,
    /// The time after which unacknowledged data ends the connection.
    pub user_timeout_ms: u64,
    /// The time after which a peer whose window stays closed ends the connection, although it answers probes. 0: never
    /// (RFC 9293 s3.8.6.1).
    pub zero_window_timeout_ms: u64,
    /// Keep-alive probes. Absent: none.
    pub keep_alive: Option<KeepAlive>,
    /// The duration of TIME-WAIT.
    pub time_wait_ms: u64,
    /// The congestion control.
    pub congestion: Congestion,
    /// The initial window in segments.
    pub initial_window_segments: u8,
    /// Negotiates time stamps (RFC 7323): 12 bytes in each segment, which protect against old segments when sequence
    /// numbers wrap.
    pub timestamps: bool,
    /// Negotiates selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Negotiates explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Answers SYNs with cookies while too many handshakes are open, instead of dropping them (RFC 4987).
    pub syn_cookies: bool,
    /// Detects paths that drop large segments, and lowers the segment size (RFC 4821).
    pub plpmtud: bool,
    /// Returns to the initial window after an idle time (RFC 5681 s4.1).
    pub slow_start_after_idle: bool,
    /// Processes the usual segment on the fast path. `false` processes all on the general path, with the same results
    /// and more instructions: to compare, and to find faults.
    pub fast_path: bool,
}

impl Default for TcpSettings {
    fn default() -> Self {
        TcpSettings {
            rcv_window_bytes: 1 << 20,
            retransmit_queue_bytes: 1 << 20,
            rto_min_us: 5_000,
            rto_initial_us: 200_000,
            rto_after_syn_loss_us: 0,
            rto_max_us: 60_000_000,
            ack_delay_max_us: 1_000,
            syn_retries: 6,
            refused_retries: 0,
            user_timeout_ms: 30_000,
            zero_window_timeout_ms: 300_000,
            keep_alive: None,
            time_wait_ms: 60_000,
            congestion: Congestion::Cubic,
            initial_window_segments: 10,
            timestamps: true,
            sack: true,
            ecn: true,
            syn_cookies: true,
            plpmtud: true,
            slow_start_after_idle: true,
            fast_path: true,
        }
    }
}

impl TcpSettings {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let window = "131072 to 1073725440 bytes";
        in_range("tcp.rcv_window_bytes", self.rcv_window_bytes, 131_072..=1_073_725_440, window)?;
        let retained = "131072 to 1073741824 bytes";
        in_range("tcp.retransmit_queue_bytes", self.retransmit_queue_bytes, 131_072..=1 << 30, retained)?;
        self.validate_times()?;
        in_range("tcp.syn_retries", self.syn_retries, 0..=16, "0 to 16")?;
        in_range("tcp.refused_retries", self.refused_retries, 0..=16, "0 to 16")?;
        in_range("tcp.initial_window_segments", self.initial_window_segments, 1..=64, "1 to 64 segments")?;
        if self.congestion == Congestion::Dctcp && !self.ecn {
            let value = "dctcp".to_owned();
            let allowed = "only with tcp.ecn = true, since it goes by marks";
            return Err(ConfigError::Value { key: "tcp.congestion", value, allowed });
        }
        Ok(())
    }

    fn validate_times(&self) -> Result<(), ConfigError> {
        let minute = "100 to 60000000 microseconds";
        in_range("tcp.rto_min_us", self.rto_min_us, 100..=60_000_000, minute)?;
        in_range("tcp.rto_initial_us", self.rto_initial_us, 100..=60_000_000, minute)?;
        let or_none = "0 (that of the SYN) to 60000000 microseconds";
        in_range("tcp.rto_after_syn_loss_us", self.rto_after_syn_loss_us, 0..=60_000_000, or_none)?;
        let least = self.rto_min_us.max(self.rto_initial_us);
        let above = "at most 120000000 microseconds, and not below tcp.rto_min_us and tcp.rto_initial_us";
        in_range("tcp.rto_max_us", self.rto_max_us, least..=120_000_000, above)?;
        in_range("tcp.ack_delay_max_us", self.ack_delay_max_us, 0..=1_000_000, "0 to 1000000 microseconds")?;
        let timeout = "1 to 86400000 milliseconds";
        in_range("tcp.user_timeout_ms", self.user_timeout_ms, 1..=86_400_000, timeout)?;
        let or_never = "0 (never) to 86400000 milliseconds";
        in_range("tcp.zero_window_timeout_ms", self.zero_window_timeout_ms, 0..=86_400_000, or_never)?;
        in_range("tcp.time_wait_ms", self.time_wait_ms, 0..=240_000, "0 to 240000 milliseconds")?;
        self.keep_alive.as_ref().map_or(Ok(()), validate_keep_alive)
    }

    /// Returns the timeouts of connections whose queue pair sets none.
    pub(crate) fn timeouts(&self) -> TcpTimeouts {
        TcpTimeouts {
            user_timeout: Nanos::from_millis(self.user_timeout_ms),
            zero_window_timeout: self.zero_window_timeout(),
            keep_alive: self.keep_alive,
        }
    }

    fn zero_window_timeout(&self) -> Nanos {
        match self.zero_window_timeout_ms {
            0 => Nanos::MAX,
            ms => Nanos::from_millis(ms),
        }
    }

    /// Returns the engine's settings: those of this table, and the rest from `base`.
    pub(crate) fn to_tcp_config(&self, base: TcpConfig) -> TcpConfig {
        TcpConfig {
            rcv_window_bytes: self.rcv_window_bytes,
            retransmit_queue_bytes_max: self.retransmit_queue_bytes,
            rto_min: Nanos::from_micros(self.rto_min_us),
            rto_initial: Nanos::from_micros(self.rto_initial_us),
            rto_after_syn_loss: Nanos::from_micros(self.rto_after_syn_loss_us),
            rto_max: Nanos::from_micros(self.rto_max_us),
            ack_delay_max: Nanos::from_micros(self.ack_delay_max_us),
            syn_retries: self.syn_retries,
            refused_retries: self.refused_retries,
            user_timeout: Nanos::from_millis(self.user_timeout_ms),
            zero_window_timeout: self.zero_window_timeout(),
            time_wait: Nanos::from_millis(self.time_wait_ms),
            congestion: self.congestion,
            initial_window_segments: self.initial_window_segments,
            timestamps: self.timestamps,
            sack: self.sack,
            ecn: self.ecn,
            syn_cookies: self.syn_cookies,
            plpmtud: self.plpmtud,
            slow_start_after_idle: self.slow_start_after_idle,
            fast_path: self.fast_path,
            ..base
        }
    }
}

fn validate_keep_alive(keep_alive: &KeepAlive) -> Result<(), ConfigError> {
    let day = "1 to 86400 seconds";
    in_range("tcp.keep_alive.idle_s", keep_alive.idle.as_secs(), 1..=86_400, day)?;
    in_range("tcp.keep_alive.interval_s", keep_alive.interval.as_secs(), 1..=86_400, day)?;
    in_range("tcp.keep_alive.probes", keep_alive.probes, 2..=255, "2 to 255: one probe alone may be lost")
}
