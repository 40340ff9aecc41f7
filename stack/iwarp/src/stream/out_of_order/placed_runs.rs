//! The record of octets that were placed out of order.
//!
//! ```text
//!   next FPDU in order      placed out of order                 placed out of order
//!   |                       |=======|=======|            |=======|
//!   0 . . . . . . . . . .  from            to . . . . . from     to        distances in the stream
//! ```
//! A run is a sequence of adjacent whole FPDUs that were placed. Its position is a distance from
//! the next FPDU in order, so it shrinks as FPDUs are consumed. A run also has the range of memory
//! that was written. The record says whether the next FPDU in order was already placed. The number
//! of runs is limited, so no peer can use much memory; an FPDU without space is placed in order.
//!
//! A run is valid only while nothing else writes to its memory. A placement in order to the same
//! memory, by a Send too, removes the run, and its FPDUs are copied again in order. So the last
//! message sent to an address is the last one written, as without out-of-order placement, although
//! RFC 5040 s5.5, rule 3 does not require it.

use core::ops::Range;

use arrayvec::ArrayVec;
use ironwarp_stats::Counter;

/// The largest number of runs of one stream. A loss ends a run, and so does the last segment of a
/// message: this covers a few losses in one window, or a few messages after one loss.
pub(in crate::stream) const PLACED_RUNS_MAX: usize = 8;

/// A run of FPDUs that were placed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PlacedRun {
    /// The octets of the stream, as distances.
    octets: Range<u32>,
    /// The addresses from the lowest to the highest that were written.
    memory: Range<usize>,
}

/// The FPDUs of one stream that were placed and not delivered.
#[derive(Clone, Debug, Default)]
pub(super) struct PlacedRuns {
    /// Sorted, and not adjacent.
    runs: ArrayVec<PlacedRun, PLACED_RUNS_MAX>,
    /// The memory of the run to which the current FPDU belongs.
    current: Option<Range<usize>>,
}

impl PlacedRuns {
    /// Returns whether an FPDU was placed.
    pub(super) fn covers(&self, fpdu: &Range<u32>) -> bool {
        self.runs.iter().any(|run| contains(&run.octets, fpdu))
    }

    /// Checks that the placement of an FPDU can be recorded. Returns the counter of why not: it
    /// overlaps an earlier placement, and the order of the two would be lost, or there are already
    /// as many runs as allowed.
    pub(super) fn check(&self, fpdu: &Range<u32>, memory: &Range<usize>) -> Result<(), Counter> {
        if self.runs.iter().any(|run| overlap(&run.memory, memory)) {
            return Err(Counter::IwarpOutOfOrderSkippedOverlap);
        }
        let extends = |run: &PlacedRun| run.octets.end == fpdu.start || run.octets.start == fpdu.end;
        if self.runs.is_full() && !self.runs.iter().any(extends) {
            return Err(Counter::IwarpOutOfOrderSkippedFull);
        }
        Ok(())
    }

    /// Records a placement that [`PlacedRuns::check`] allowed.
    pub(super) fn add(&mut self, fpdu: Range<u32>, memory: Range<usize>) {
        let at = self.runs.iter().take_while(|run| run.octets.start < fpdu.start).count();
        let mut run = PlacedRun { octets: fpdu, memory };
        if let Some(after) = self.runs.get(at).filter(|after| after.octets.start == run.octets.end) {
            run.merge(after);
            self.runs.remove(at);
        }
        let before = at.checked_sub(1).and_then(|before| self.runs.get_mut(before));
        match before.filter(|before| before.octets.end == run.octets.start) {
            Some(before) => before.merge(&run),
            // There is space: the caller has checked.
            None => {
                let _ = self.runs.try_insert(at, run);
            }
        }
    }

    /// The next FPDU in order has `bytes` octets. It becomes the current FPDU.
    pub(super) fn on_next_in_order(&mut self, bytes: usize) {
        self.current = None;
        if self.runs.is_empty() {
            return;
        }
        // An FPDU is far shorter than 2^32 octets.
        let bytes = bytes as u32;
        if let Some(first) = self.runs.first()
            && contains(&first.octets, &(0..bytes))
        {
            self.current = Some(first.memory.clone());
        }
        self.runs.retain(|run| run.shift(bytes));
    }

    /// Returns whether the current FPDU was placed in `memory`.
    pub(super) fn is_placed(&self, memory: &Range<usize>) -> bool {
        self.current.as_ref().is_some_and(|written| contains(written, memory))
    }

    /// Removes the runs that overlap `memory`, and returns their number.
    pub(super) fn remove_overlapping(&mut self, memory: &Range<usize>) -> usize {
        let before = self.runs.len();
        self.runs.retain(|run| !overlap(&run.memory, memory));
        before - self.runs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Removes all runs.
    pub(super) fn clear(&mut self) {
        *self = PlacedRuns::default();
    }

    /// Returns whether the runs are sorted, apart and not empty.
    pub(super) fn are_consistent(&self) -> bool {
        let apart = self.runs.windows(2).all(|two| match two {
            [one, next] => one.octets.end < next.octets.start,
            _ => true,
        });
        apart && self.runs.iter().all(|run| !run.octets.is_empty() && !run.memory.is_empty())
    }
}

impl PlacedRun {
    /// Merges an adjacent run into this one.
    fn merge(&mut self, other: &PlacedRun) {
        self.octets = self.octets.start.min(other.octets.start)..self.octets.end.max(other.octets.end);
        self.memory = self.memory.start.min(other.memory.start)..self.memory.end.max(other.memory.end);
    }

    /// Moves `bytes` octets on. Returns whether the run is still valid. A run that would be cut
    /// does not match the FPDUs in order.
    fn shift(&mut self, bytes: u32) -> bool {
        let inside = self.octets.start == 0;
        let Some(end) = self.octets.end.checked_sub(bytes).filter(|&end| end > 0) else { return false };
        let start = if inside { Some(0) } else { self.octets.start.checked_sub(bytes) };
        let Some(start) = start else { return false };
        self.octets = start..end;
        true
    }
}

fn contains<T: PartialOrd>(outer: &Range<T>, inner: &Range<T>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn overlap<T: PartialOrd>(one: &Range<T>, other: &Range<T>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(runs: &PlacedRuns) -> Vec<(u32, u32)> {
        runs.runs.iter().map(|run| (run.octets.start, run.octets.end)).collect()
    }

    /// Records FPDUs of 100 octets at these distances, each in memory at ten times its distance.
    fn runs_at(at: &[u32]) -> PlacedRuns {
        let mut runs = PlacedRuns::default();
        for &at in at {
            let memory = at as usize * 10..at as usize * 10 + 80;
            assert_eq!(runs.check(&(at..at + 100), &memory), Ok(()));
            runs.add(at..at + 100, memory);
            assert!(runs.are_consistent());
        }
        runs
    }

    #[test]
    fn adjacent_fpdus_form_one_run_in_any_order() {
        for at in [[100, 200, 300], [300, 200, 100], [100, 300, 200], [200, 300, 100]] {
            assert_eq!(octets(&runs_at(&at)), [(100, 400)]);
        }
        assert_eq!(octets(&runs_at(&[500, 100, 300])), [(100, 200), (300, 400), (500, 600)]);
    }

    #[test]
    fn an_fpdu_is_reported_as_placed_only_when_it_is_next() {
        let mut runs = runs_at(&[100, 200]);
        assert!(runs.covers(&(100..300)) && !runs.covers(&(50..200)) && !runs.covers(&(200..301)));
        runs.on_next_in_order(100);
        assert!(!runs.is_placed(&(1000..1080)));
        runs.on_next_in_order(100);
        assert!(runs.is_placed(&(1000..1080)) && !runs.is_placed(&(900..1080)));
        runs.on_next_in_order(100);
        assert!(runs.is_placed(&(2000..2080)));
        runs.on_next_in_order(100);
        assert!(!runs.is_placed(&(2000..2080)) && runs.runs.is_empty());
    }

    #[test]
    fn runs_that_do_not_match_the_fpdus_in_order_are_removed() {
        for wrong in [50, 150, 250] {
            let mut runs = runs_at(&[100, 400]);
            runs.on_next_in_order(wrong);
            runs.on_next_in_order(100);
            assert!(!runs.is_placed(&(1000..1080)), "{wrong}");
            assert!(runs.are_consistent());
        }
        // An FPDU that reaches beyond its run was not placed as a whole.
        let mut runs = runs_at(&[100]);
        runs.on_next_in_order(100);
        runs.on_next_in_order(104);
        assert!(!runs.is_placed(&(1000..1080)));
    }

    #[test]
    fn the_number_of_runs_is_limited() {
        let at: Vec<u32> = (1..=PLACED_RUNS_MAX as u32).map(|at| at * 200).collect();
        let runs = runs_at(&at);
        assert_eq!(runs.check(&(5000..5100), &(0..80)), Err(Counter::IwarpOutOfOrderSkippedFull));
        // An FPDU adjacent to a run needs no space.
        assert_eq!(runs.check(&(300..400), &(3000..3080)), Ok(()));
        assert_eq!(runs.check(&(100..200), &(0..80)), Ok(()));
    }

    #[test]
    fn a_run_whose_memory_is_written_again_is_removed() {
        let mut runs = runs_at(&[100, 300]);
        assert_eq!(runs.check(&(500..600), &(1079..1100)), Err(Counter::IwarpOutOfOrderSkippedOverlap));
        assert_eq!(runs.check(&(500..600), &(1080..1100)), Ok(()));
        assert_eq!((runs.remove_overlapping(&(900..1000)), runs.remove_overlapping(&(1000..1001))), (0, 1));
        assert_eq!(octets(&runs), [(300, 400)]);
    }
}
