//! Connections that keep nodes from others without progress.
//!
//! While connections are refused nodes because all shared ones are in use, every second all
//! connections that hold some are examined. One that in ten seconds has not made the progress that
//! frees what it held at their start, or 64 KiB of it, has to give its nodes back, the largest
//! holder first. Without a refusal no connection is judged: a slow peer that is in nobody's way may
//! be as slow as it likes.
//!
//! Used for retained units, whose holder is aborted, and for out-of-order frames, which are
//! discarded.
//!
//! Source: RFC 6429 s3 permits ending a connection for its resources, although the peer answers
//! probes; RFC 2018 s8 permits discarding data that was selectively acknowledged. Cost: nothing
//! until a node is refused; then a pass over all connections a second.

use ironwarp_types::limits::FPDU_BYTES_MAX;
use ironwarp_types::{Nanos, Seq};

/// How long a connection may hold nodes of others without progress. 64 KiB in this time are 52
/// kbit/s.
const HOLD_MAX_MS: u32 = 10_000;

/// The interval of examinations, and the time without a refusal after which the shortage is over.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// The shortage of one kind of nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shortage {
    /// Distinguishes this shortage from earlier ones. 0: there was none.
    id: u32,
    refused_at: Nanos,
    examine_at: Nanos,
}

/// The progress of a connection during a shortage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    shortage: u32,
    /// In milliseconds, modulo 2^32.
    since_ms: u32,
    /// Where the connection was then, and the bytes after which its clock starts again.
    start: Seq,
    due: u32,
}

impl Shortage {
    /// A connection was refused a node. Returns whether to examine the holders.
    pub(crate) fn on_refused(&mut self, now: Nanos) -> bool {
        if self.id == 0 || now.since(self.refused_at) > INTERVAL {
            self.id = self.id.wrapping_add(1).max(1);
            self.examine_at = now;
        }
        self.refused_at = now;
        now >= self.examine_at
    }

    /// Returns whether an examination is due, and plans the next.
    pub(crate) fn take_due(&mut self, now: Nanos) -> bool {
        let due = self.id != 0 && self.refused_at >= self.examine_at && now >= self.examine_at;
        if due {
            self.examine_at = now + INTERVAL;
        }
        due
    }

    /// Examines a connection that holds `held` bytes which progress from `at` on would free.
    /// Returns whether it had no progress for too long.
    pub(crate) fn is_over_quota(&self, now: Nanos, progress: &mut Progress, at: Seq, held: u32) -> bool {
        let now_ms = (now.0 / 1_000_000) as u32;
        if progress.shortage != self.id || at.since(progress.start) >= progress.due {
            let due = held.clamp(1, FPDU_BYTES_MAX as u32);
            *progress = Progress { shortage: self.id, since_ms: now_ms, start: at, due };
        }
        now_ms.wrapping_sub(progress.since_ms) >= HOLD_MAX_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn holders_are_examined_once_an_interval_while_nodes_are_refused() {
        let mut shortage = Shortage::default();
        assert!(!shortage.take_due(at(5_000)), "nothing was refused");
        assert!(shortage.on_refused(at(5_000)));
        assert!(shortage.take_due(at(5_001)) && !shortage.take_due(at(5_002)));
        assert!(!shortage.on_refused(at(5_500)) && !shortage.take_due(at(6_100)), "no refusal since");
        assert!(shortage.on_refused(at(6_100)) && shortage.take_due(at(6_100)));
    }

    #[test]
    fn a_holder_has_ten_seconds_for_what_it_held() {
        let mut shortage = Shortage::default();
        let mut progress = Progress::default();
        let start = Seq(u32::MAX - 100);
        shortage.on_refused(at(1_000));
        assert!(!shortage.is_over_quota(at(1_000), &mut progress, start, 300));
        assert!(!shortage.is_over_quota(at(10_999), &mut progress, start.plus(299), 300));
        let mut faster = progress;
        assert!(!shortage.is_over_quota(at(11_000), &mut faster, start.plus(300), 300), "all of it");
        assert!(!shortage.is_over_quota(at(20_999), &mut faster, start.plus(300), 300));
        assert!(shortage.is_over_quota(at(11_000), &mut progress, start.plus(299), 300));
    }

    #[test]
    fn the_clock_starts_again_with_a_new_shortage() {
        let mut shortage = Shortage::default();
        let mut progress = Progress::default();
        shortage.on_refused(at(1_000));
        assert!(!shortage.is_over_quota(at(1_000), &mut progress, Seq(0), 300));
        shortage.on_refused(at(12_000));
        assert!(!shortage.is_over_quota(at(12_000), &mut progress, Seq(0), 300));
    }

    #[test]
    fn a_large_holder_needs_64_kib() {
        let mut shortage = Shortage::default();
        let mut progress = Progress::default();
        shortage.on_refused(at(1_000));
        assert!(!shortage.is_over_quota(at(1_000), &mut progress, Seq(0), 1 << 20));
        assert!(!shortage.is_over_quota(at(11_000), &mut progress, Seq(FPDU_BYTES_MAX as u32), 1 << 20));
    }
}
