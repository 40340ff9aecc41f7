//! How long a queue pair waits for a peer that is silent.

use std::time::Duration;

use ironwarp_tcp::TcpTimeouts;
use ironwarp_types::Nanos;

use super::attr::check_range;
use crate::error::VerbsError;

/// The longest time that may be asked for.
const DAY: Duration = Duration::from_secs(86_400);

/// Probes of an idle peer (RFC 9293 s3.8.4). Any answer counts; only silence ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Silence before each further probe.
    pub interval: Duration,
    /// Probes without an answer after which the connection is given up: 2 to 255, since one alone may be lost.
    pub probes: u8,
}

/// What a queue pair says of its own patience. `None` is what the configuration says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QpTimeouts {
    pub(crate) user_timeout: Option<Duration>,
    pub(crate) keep_alive: Option<KeepAlive>,
}

impl QpTimeouts {
    pub(crate) fn validate(&self) -> Result<(), VerbsError> {
        let time = |what, span: Option<Duration>| {
            let ms = span.map_or(1, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
            check_range(what, ms, 1, DAY.as_millis() as u64, "a millisecond to a day")
        };
        time("user timeout", self.user_timeout)?;
        time("keep-alive idle time", self.keep_alive.map(|keep_alive| keep_alive.idle))?;
        time("keep-alive interval", self.keep_alive.map(|keep_alive| keep_alive.interval))?;
        let probes = self.keep_alive.map_or(2, |keep_alive| keep_alive.probes);
        check_range("keep-alive probes", probes.into(), 2, 255, "2 to 255")
    }

    /// What holds where the configuration says `default`.
    pub(crate) fn resolve(&self, default: TcpTimeouts) -> TcpTimeouts {
        TcpTimeouts {
            user_timeout: self.user_timeout.map_or(default.user_timeout, nanos),
            keep_alive: self.keep_alive.map(ironwarp_tcp::KeepAlive::from).or(default.keep_alive),
        }
    }
}

impl From<KeepAlive> for ironwarp_tcp::KeepAlive {
    fn from(keep_alive: KeepAlive) -> Self {
        ironwarp_tcp::KeepAlive {
            idle: nanos(keep_alive.idle),
            interval: nanos(keep_alive.interval),
            probes: keep_alive.probes,
        }
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
