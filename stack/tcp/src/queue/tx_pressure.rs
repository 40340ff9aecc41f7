//! Connections that keep units from others without progress.
//!
//! While a connection is refused a unit because all shared ones are retained, every second all connections that hold
//! more than their reserve are examined. One that in ten seconds has not acknowledged what it held at their start, or
//! 64 KiB of it, is aborted, the largest first. Without a refusal no connection is judged: a slow peer that is in
//! nobody's way may be as slow as it likes.
//!
//! Source: RFC 6429 s3 permits ending a connection for its resources, although the peer answers probes; RFC 9293 s3.8.3
//! permits it without progress. Cost: nothing until a unit is refused; then a pass over all connections a second.

use ironwarp_types::Nanos;
use ironwarp_types::limits::FPDU_BYTES_MAX;

/// How long a connection may hold units of others without progress. 64 KiB in this time are 52 kbit/s.
const HOLD_MAX: Nanos = Nanos::from_secs(10);

/// The interval of examinations, and the time without a refusal after which the shortage is over.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// The shortage of units of a core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TxPressure {
    /// Distinguishes this shortage from earlier ones. 0: there was none.
    shortage: u32,
    refused_at: Nanos,
    examine_at: Nanos,
}

/// The progress of a connection during a shortage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TxProgress {
    shortage: u32,
    since: Nanos,
    /// The acknowledged bytes at which the clock starts again.
    acked_bytes: u64,
}

impl TxPressure {
    /// A connection was refused a unit. Returns whether to examine the holders.
    pub(crate) fn on_refused(&mut self, now: Nanos) -> bool {
        if self.shortage == 0 || now.since(self.refused_at) > INTERVAL {
            self.shortage = self.shortage.wrapping_add(1).max(1);
            self.examine_at = now;
        }
        self.refused_at = now;
        now >= self.examine_at
    }

    /// Returns whether an examination is due, and plans the next.
    pub(crate) fn take_due(&mut self, now: Nanos) -> bool {
        let due = self.shortage != 0 && self.refused_at >= self.examine_at && now >= self.examine_at;
        if due {
            self.examine_at = now + INTERVAL;
        }
        due
    }

    /// Examines a connection that holds more than its reserve: `acked_bytes` in total, and `retained_bytes` not yet.
    /// Returns whether it had no progress for too long.
    pub(crate) fn is_hoarder(
        &self,
        now: Nanos,
        progress: &mut TxProgress,
        acked_bytes: u64,
        retained_bytes: u32,
    ) -> bool {
        if progress.shortage != self.shortage || acked_bytes >= progress.acked_bytes {
            let due = retained_bytes.min(FPDU_BYTES_MAX as u32);
            *progress =
                TxProgress { shortage: self.shortage, since: now, acked_bytes: acked_bytes + u64::from(due) };
        }
        now.since(progress.since) >= HOLD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn holders_are_examined_once_an_interval_while_units_are_refused() {
        let mut pressure = TxPressure::default();
        assert!(!pressure.take_due(at(5_000)), "nothing was refused");
        assert!(pressure.on_refused(at(5_000)));
        assert!(pressure.take_due(at(5_001)) && !pressure.take_due(at(5_002)));
        assert!(!pressure.on_refused(at(5_500)) && !pressure.take_due(at(6_100)), "no refusal since");
        assert!(pressure.on_refused(at(6_100)) && pressure.take_due(at(6_100)));
    }

    #[test]
    fn a_holder_has_ten_seconds_for_what_it_held() {
        let mut pressure = TxPressure::default();
        let mut progress = TxProgress::default();
        pressure.on_refused(at(1_000));
        assert!(!pressure.is_hoarder(at(1_000), &mut progress, 500, 300));
        assert!(!pressure.is_hoarder(at(10_999), &mut progress, 799, 300));
        let mut faster = progress;
        assert!(!pressure.is_hoarder(at(11_000), &mut faster, 800, 300), "it acknowledged all of it");
        assert!(!pressure.is_hoarder(at(20_999), &mut faster, 800, 300));
        assert!(pressure.is_hoarder(at(11_000), &mut progress, 799, 300));
    }

    #[test]
    fn the_clock_starts_again_with_a_new_shortage() {
        let mut pressure = TxPressure::default();
        let mut progress = TxProgress::default();
        pressure.on_refused(at(1_000));
        assert!(!pressure.is_hoarder(at(1_000), &mut progress, 0, 300));
        pressure.on_refused(at(12_000));
        assert!(!pressure.is_hoarder(at(12_000), &mut progress, 0, 300));
    }

    #[test]
    fn a_large_holder_needs_64_kib() {
        let mut pressure = TxPressure::default();
        let mut progress = TxProgress::default();
        pressure.on_refused(at(1_000));
        assert!(!pressure.is_hoarder(at(1_000), &mut progress, 0, 1 << 20));
        assert!(!pressure.is_hoarder(at(11_000), &mut progress, FPDU_BYTES_MAX as u64, 1 << 20));
    }
}
