//! How long a connection waits for a peer that is silent.
//!
//! Source: RFC 9293 s3.8.3 (R1, R2), s3.8.4 (keep-alive: off unless asked for, never after one unanswered probe),
//! RFC 5482 s3.

use ironwarp_types::Nanos;

/// Probes of an idle connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Silence before the first probe. RFC 9293 s3.8.4 wants at least two hours unless the application knows better.
    pub idle: Nanos,
    /// Silence before each further probe.
    pub interval: Nanos,
    /// Probes that must stay unanswered before the connection is given up. At least two: an ACK without payload may
    /// be lost.
    pub probes: u8,
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive { idle: Nanos::from_secs(7_200), interval: Nanos::from_secs(75), probes: 9 }
    }
}

/// One connection's patience.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpTimeouts {
    /// How long payload may stay unacknowledged before the connection is given up (R2). [`Nanos::MAX`] waits for ever.
    pub user_timeout: Nanos,
    /// Probes of an idle peer; `None` for none.
    pub keep_alive: Option<KeepAlive>,
}

/// Where the probes of one connection stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepAliveTimer {
    settings: Option<KeepAlive>,
    probes: u8,
    probed_at: Nanos,
    /// Silence after which the timer fires; [`Nanos::MAX`] without keep-alive.
    pub(crate) wait: Nanos,
}

/// What silence asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeepAliveAction {
    /// Nothing yet.
    Wait,
    /// A probe.
    Probe,
    /// The end.
    GiveUp,
}

impl KeepAliveTimer {
    pub(crate) fn new(settings: Option<KeepAlive>) -> Self {
        let settings = settings.map(|settings| KeepAlive { probes: settings.probes.max(2), ..settings });
        let wait = settings.map_or(Nanos::MAX, |settings| settings.idle);
        KeepAliveTimer { settings, probes: 0, probed_at: Nanos::ZERO, wait }
    }

    /// The peer was heard. Answers whether it had been asked, so that the timer must be set anew.
    pub(crate) fn on_segment_received(&mut self) -> bool {
        let asked = self.probes > 0;
        if asked {
            *self = KeepAliveTimer::new(self.settings);
        }
        asked
    }

    /// The timer fired; the peer was last heard at `last_rx_at`.
    pub(crate) fn on_timer(&mut self, now: Nanos, last_rx_at: Nanos) -> KeepAliveAction {
        let Some(settings) = self.settings else { return KeepAliveAction::Wait };
        if self.probed_at <= last_rx_at {
            self.probes = 0;
            self.wait = settings.idle;
        }
        if now.since(last_rx_at) < self.wait {
            return KeepAliveAction::Wait;
        }
        if self.probes >= settings.probes {
            return KeepAliveAction::GiveUp;
        }
        self.probes += 1;
        self.probed_at = now;
        self.wait = now.since(last_rx_at) + settings.interval;
        KeepAliveAction::Probe
    }
}
