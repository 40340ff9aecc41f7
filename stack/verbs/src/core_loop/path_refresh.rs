//! When the paths of connections are refreshed: all of them in slices, at an interval and after
//! route changes.
//!
//! Neighbours on the link cause route changes, as many as they like. A change during a pass
//! therefore neither begins it again, which would leave the later connections without their turn,
//! nor makes its slices follow each other faster.

use ironwarp_types::Nanos;

/// The interval between two refreshes of all paths: half the lifetime of a neighbour entry, so that
/// entries in use are confirmed before they expire.
const INTERVAL: Nanos = Nanos::from_secs(30);

/// Connections whose paths are refreshed in one iteration: a few microseconds.
const SLICE: u32 = 256;

/// The least time between two slices, so that they take a small part of the core. 100 000
/// connections take 20 ms.
const SLICE_INTERVAL: Nanos = Nanos::from_micros(50);

/// The progress of a refresh.
pub(super) struct PathRefresh {
    /// The number of route changes when the last pass was requested.
    changes_seen: u32,
    /// The connection that is next, while a pass is in progress.
    next: Option<u32>,
    /// Routes changed during the pass: another follows.
    again: bool,
    /// When the next pass begins without a change.
    due: Nanos,
    /// When the next slice may be refreshed.
    slice_due: Nanos,
}

impl PathRefresh {
    pub(super) fn new(now: Nanos) -> Self {
        PathRefresh { changes_seen: 0, next: None, again: false, due: now, slice_due: now }
    }

    /// Returns whether routes changed since [`PathRefresh::request`]. `changes` counts them, modulo
    /// 2^32.
    #[inline]
    pub(super) fn is_outdated(&self, changes: u32) -> bool {
        changes != self.changes_seen
    }

    /// Returns whether a pass is in progress.
    #[inline]
    pub(super) fn is_in_progress(&self) -> bool {
        self.next.is_some()
    }

    /// When the next pass begins if no route changes.
    #[inline]
    pub(super) fn due(&self) -> Nanos {
        self.due
    }

    /// Begins a pass if routes changed or the interval is over. One that is in progress is
    /// completed before.
    pub(super) fn request(&mut self, now: Nanos, changes: u32) {
        let is_outdated = self.is_outdated(changes);
        if !is_outdated && now < self.due {
            return;
        }
        self.changes_seen = changes;
        self.due = now + INTERVAL;
        if self.is_in_progress() {
            self.again |= is_outdated;
        } else {
            self.next = Some(0);
        }
    }

    /// Refreshes the next slice if it is time. `refresh` gets the number of the first connection
    /// and the number of connections of the slice, and returns the first of the next slice, if
    /// there is one.
    pub(super) fn run(&mut self, now: Nanos, refresh: impl FnOnce(u32, u32) -> Option<u32>) {
        let Some(from) = self.next.filter(|_| now >= self.slice_due) else { return };
        self.slice_due = now + SLICE_INTERVAL;
        self.next = refresh(from, SLICE);
        if self.next.is_none() && core::mem::take(&mut self.again) {
            self.next = Some(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTIONS: u32 = 1_000;

    /// Runs a slice over `CONNECTIONS` connections and returns its first one.
    fn slice(refresh: &mut PathRefresh, now: Nanos) -> Option<u32> {
        let mut ran = None;
        refresh.run(now, |from, count| {
            ran = Some(from);
            (from + count < CONNECTIONS).then_some(from + count)
        });
        ran
    }

    /// A neighbour that changes its hardware address with each frame costs a slice per interval,
    /// and every connection has its turn.
    #[test]
    fn constant_changes_neither_restart_a_pass_nor_speed_it_up() {
        let mut refresh = PathRefresh::new(Nanos::ZERO);
        let mut slices = Vec::new();
        for microsecond in 0..1_000u32 {
            let now = Nanos::from_micros(microsecond.into());
            refresh.request(now, microsecond + 1);
            slices.extend(slice(&mut refresh, now));
        }
        let pass = [0, 256, 512, 768];
        assert_eq!(slices, pass.repeat(5), "20 slices in a millisecond");
    }

    #[test]
    fn a_change_during_a_pass_is_followed_by_one_pass() {
        let mut refresh = PathRefresh::new(Nanos::ZERO);
        let mut slices = Vec::new();
        for step in 0..100u32 {
            let now = Nanos::from_millis(step.into());
            refresh.request(now, u32::from(step >= 2));
            slices.extend(slice(&mut refresh, now));
        }
        assert_eq!(slices, [0, 256, 512, 768].repeat(2));
        assert!(!refresh.is_in_progress());
    }

    #[test]
    fn without_changes_a_pass_begins_every_interval() {
        let mut refresh = PathRefresh::new(Nanos::ZERO);
        let starts = (0..=90).filter(|second| {
            let now = Nanos::from_secs(*second);
            refresh.request(now, 0);
            let first = slice(&mut refresh, now);
            while refresh.is_in_progress() {
                let due = refresh.slice_due;
                slice(&mut refresh, due);
            }
            first == Some(0)
        });
        assert_eq!(starts.collect::<Vec<_>>(), [0, 30, 60, 90]);
    }
}
