//! How long a transport waits for a silent peer.

use core::time::Duration;

use ironwarp_types::Nanos;

/// Keep-alive settings. Any reply counts; only silence ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeepAlive {
    /// Idle time before the first probe. RFC 9293 s3.8.4 requires a default of at least two hours.
    #[serde(rename = "idle_s", deserialize_with = "seconds")]
    pub idle: Duration,
    /// Time between two probes.
    #[serde(rename = "interval_s", deserialize_with = "seconds")]
    pub interval: Duration,
    /// Unanswered probes after which the connection is aborted: 2 to 255, since an ACK without
    /// payload may be lost.
    pub probes: u8,
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), probes: 9 }
    }
}

fn seconds<'de, D: serde::Deserializer<'de>>(whole: D) -> Result<Duration, D::Error> {
    serde::Deserialize::deserialize(whole).map(Duration::from_secs)
}

/// The timeouts of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// How long payload may stay unacknowledged before the connection is aborted (R2).
    /// [`Nanos::MAX`] disables the limit.
    pub user_timeout: Nanos,
    /// How long the peer may answer the probes of its closed window without accepting a byte before
    /// the connection is aborted. [`Nanos::MAX`] disables the limit, as RFC 9293 s3.8.6.1 has it.
    pub zero_window_timeout: Nanos,
    /// Keep-alive probes; `None` disables them.
    pub keep_alive: Option<KeepAlive>,
}
