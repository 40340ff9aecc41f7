//! Keep-alive probes and the timeouts of a connection whose peer is silent.
//!
//! Source: RFC 9293 s3.8.3 (R1, R2), s3.8.4 (keep-alive is off by default, and one unanswered probe
//! never ends a connection), RFC 5482 s3.

use ironwarp_types::Nanos;
use serde::{Deserialize, Serialize};

use crate::KeepAlive;
use crate::saved::Rebase;

/// The keep-alive state of one connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[repr(C)]
pub(crate) struct KeepAliveTimer {
    /// Idle time after which the timer fires; [`Nanos::MAX`] without keep-alive.
    pub(crate) wait: Nanos,
    /// Idle time before the first probe; [`Nanos::MAX`] without keep-alive.
    idle: Nanos,
    interval: Nanos,
    probed_at: Nanos,
    probes_max: u8,
    probes: u8,
}

/// The action that the keep-alive timer requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeepAliveAction {
    /// No action.
    Wait,
    /// Send a probe.
    Probe,
    /// Abort the connection.
    GiveUp,
}

impl KeepAliveTimer {
    pub(crate) fn new(settings: Option<KeepAlive>) -> Self {
        let (idle, interval, probes) = settings.map_or((Nanos::MAX, Nanos::MAX, 0), |settings| {
            (settings.idle.into(), settings.interval.into(), settings.probes)
        });
        KeepAliveTimer {
            idle,
            interval,
            probed_at: Nanos::ZERO,
            wait: idle,
            probes_max: probes.max(2),
            probes: 0,
        }
    }

    pub(crate) fn rebase(&mut self, clock: Rebase) {
        clock.time(&mut self.probed_at);
    }

    /// A segment of the peer arrived. Returns whether probes were outstanding, in which case the
    /// caller must set the timer again.
    pub(crate) fn on_segment_received(&mut self) -> bool {
        let asked = self.probes > 0;
        if asked {
            (self.probes, self.probed_at, self.wait) = (0, Nanos::ZERO, self.idle);
        }
        asked
    }

    /// The timer fired. The peer's last segment arrived at `last_rx_at`.
    pub(crate) fn on_timer(&mut self, now: Nanos, last_rx_at: Nanos) -> KeepAliveAction {
        if self.idle == Nanos::MAX {
            return KeepAliveAction::Wait;
        }
        if self.probed_at <= last_rx_at {
            self.probes = 0;
            self.wait = self.idle;
        }
        if now.since(last_rx_at) < self.wait {
            return KeepAliveAction::Wait;
        }
        if self.probes >= self.probes_max {
            return KeepAliveAction::GiveUp;
        }
        self.probes += 1;
        self.probed_at = now;
        self.wait = now.since(last_rx_at) + self.interval;
        KeepAliveAction::Probe
    }
}
