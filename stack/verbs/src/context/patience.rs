//! How long a queue pair waits for a peer that is silent.

use std::time::Duration;

use ironwarp_tcp::TcpTimeouts;
use ironwarp_types::Nanos;

use super::attr::within;
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
pub(crate) struct OwnPatience {
    pub(crate) user_timeout: Option<Duration>,
    pub(crate) keep_alive: Option<KeepAlive>,
}

impl OwnPatience {
    pub(super) fn validate(&self) -> Result<(), VerbsError> {
        let time = |what, span: Option<Duration>| {
            let ms = span.map_or(1, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
            within(what, ms, 1, DAY.as_millis() as u64, "a millisecond to a day")
        };
        time("user timeout", self.user_timeout)?;
        time("keep-alive idle time", self.keep_alive.map(|probing| probing.idle))?;
        time("keep-alive interval", self.keep_alive.map(|probing| probing.interval))?;
        let probes = self.keep_alive.map_or(2, |probing| probing.probes);
        within("keep-alive probes", probes.into(), 2, 255, "2 to 255")
    }

    /// What holds where the configuration says `usual`.
    pub(crate) fn over(&self, usual: TcpTimeouts) -> TcpTimeouts {
        TcpTimeouts {
            user_timeout: self.user_timeout.map_or(usual.user_timeout, nanos),
            keep_alive: self.keep_alive.map(ironwarp_tcp::KeepAlive::from).or(usual.keep_alive),
        }
    }
}

impl From<KeepAlive> for ironwarp_tcp::KeepAlive {
    fn from(probing: KeepAlive) -> Self {
        ironwarp_tcp::KeepAlive {
            idle: nanos(probing.idle),
            interval: nanos(probing.interval),
            probes: probing.probes,
        }
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
