//! The operator's log of connections: one line when a connection comes up, when a Terminate names an error, and when
//! it ends. Written from the contexts' events; it contains no application data.
//!
//! The core writes the lines itself, and peers cause them, so their rate is limited.

use ironwarp_types::Nanos;

use crate::event::{DisconnectReason, Event};

/// Logs an event that concerns the operator.
#[cold]
#[inline(never)]
pub(crate) fn log_event(core: u16, event: &Event) {
    match event {
        Event::Established { qp, negotiated, .. } => {
            let (qp, reads, revision) = (qp.num().0, negotiated.reads, negotiated.revision);
            let (ird, ord) = (reads.ird, reads.ord);
            tracing::info!(core, qp, "connected; MPA revision {revision}, IRD {ird}, ORD {ord}");
        }
        Event::Rejected { qp, .. } => {
            tracing::info!(core, qp = qp.num().0, "the peer refused the connection")
        }
        Event::ConnectFailed { qp, reason } => {
            tracing::info!(core, qp = qp.num().0, "no connection: {reason:?}");
        }
        Event::Terminated { qp, sent, terminate } => {
            let verb = if *sent { "sent" } else { "received" };
            tracing::info!(core, qp = qp.num().0, "Terminate {verb}: {terminate}");
        }
        Event::Disconnected { qp, reason: DisconnectReason::Closed } => {
            tracing::info!(core, qp = qp.num().0, "closed");
        }
        Event::Disconnected { qp, reason } => tracing::info!(core, qp = qp.num().0, "ended: {reason:?}"),
        Event::ListenFailed { local } => tracing::warn!(core, "{local} cannot be listened at"),
        _ => {}
    }
}

/// Lines that a core writes in a second. A line takes some microseconds.
const LINES_PER_SECOND: u32 = 1_000;

/// The limit of a core's lines.
pub(super) struct LogLimit {
    left: u32,
    suppressed: u64,
    refill_at: Nanos,
}

impl LogLimit {
    pub(super) fn new(now: Nanos) -> Self {
        LogLimit { left: LINES_PER_SECOND, suppressed: 0, refill_at: now + Nanos::from_secs(1) }
    }

    /// Returns whether a line may be written, or else counts it.
    pub(super) fn take(&mut self) -> bool {
        let allowed = self.left > 0;
        self.left -= u32::from(allowed);
        self.suppressed += u64::from(!allowed);
        allowed
    }

    /// Begins the next second when this one is over, and says how many lines are missing.
    #[inline]
    pub(super) fn refill(&mut self, core: u16, now: Nanos) {
        if now >= self.refill_at {
            self.refill_cold(core, now);
        }
    }

    #[cold]
    fn refill_cold(&mut self, core: u16, now: Nanos) {
        let suppressed = core::mem::replace(self, LogLimit::new(now)).suppressed;
        if suppressed > 0 {
            tracing::warn!(
                core,
                "{suppressed} lines about connections were left out, more than {LINES_PER_SECOND} in a second"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_of_a_second_are_counted_and_not_written() {
        let mut limit = LogLimit::new(Nanos::ZERO);
        let written = (0..LINES_PER_SECOND + 50).filter(|_| limit.take()).count();
        assert_eq!((written, limit.suppressed), (LINES_PER_SECOND as usize, 50));
        limit.refill(0, Nanos::from_millis(999));
        assert!(!limit.take());
        limit.refill(0, Nanos::from_millis(1_000));
        assert!(limit.take());
        assert_eq!(limit.suppressed, 0);
    }
}
