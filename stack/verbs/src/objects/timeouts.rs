//! Timeouts of a queue pair.

use std::time::Duration;

pub use ironwarp_llp::KeepAlive;
use ironwarp_llp::Timeouts;
use ironwarp_types::Nanos;

use super::attr::check_range;
use crate::error::VerbsError;

/// The largest timeout.
const DAY: Duration = Duration::from_secs(86_400);

/// The timeouts that a queue pair sets. `None`: as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QpTimeouts {
    pub(crate) user_timeout: Option<Duration>,
    pub(crate) zero_window_timeout: Option<Duration>,
    pub(crate) keep_alive: Option<KeepAlive>,
}

impl QpTimeouts {
    pub(crate) fn validate(&self) -> Result<(), VerbsError> {
        let time = |what, span: Option<Duration>| {
            let ms = span.map_or(1, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
            check_range(what, ms, 1, DAY.as_millis() as u64, "a millisecond to a day")
        };
        time("user timeout", self.user_timeout)?;
        time("zero-window timeout", self.zero_window_timeout)?;
        time("keep-alive idle time", self.keep_alive.map(|keep_alive| keep_alive.idle))?;
        time("keep-alive interval", self.keep_alive.map(|keep_alive| keep_alive.interval))?;
        let probes = self.keep_alive.map_or(2, |keep_alive| keep_alive.probes);
        check_range("keep-alive probes", probes.into(), 2, 255, "2 to 255")
    }

    /// Returns the timeouts in effect with the configured `default`.
    pub(crate) fn resolve(&self, default: Timeouts) -> Timeouts {
        Timeouts {
            user_timeout: self.user_timeout.map_or(default.user_timeout, Nanos::from),
            zero_window_timeout: self.zero_window_timeout.map_or(default.zero_window_timeout, Nanos::from),
            keep_alive: self.keep_alive.or(default.keep_alive),
        }
    }
}
