//! Which octets of the stream are in memory before their turn.
//!
//! ```text
//!   next FPDU in order      placed out_of_order                 placed out_of_order
//!   |                       |=======|=======|            |=======|
//!   0 . . . . . . . . . .  from            to . . . . . from     to        distances in the stream
//! ```
//! A note is a run of whole FPDUs that were placed one behind the other. Takes distances from the next FPDU in order,
//! which move with it, and the memory that was written; answers whether the FPDU whose turn it is lies there already.
//! There are few notes, so that no peer can make us keep many; an FPDU that finds no room is placed in order.
//!
//! What a note stands for holds only while nobody else writes there: a placement in order over the same memory, a Send's too, ends
//! the note, and what it covered is copied when its turn comes. So the last of two messages in one place is the last one
//! sent, as without early placement, though RFC 5040 s5.5, rule 3 does not promise it.

use core::ops::Range;

use arrayvec::ArrayVec;

/// Runs of FPDUs that one stream may have placed early. The last segment of a message ends a run, and so does a loss: this
/// covers a few losses in one window, or a few messages behind one.
pub(in crate::stream) const PLACED_RUNS_MAX: usize = 8;

/// One run.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PlacedRun {
    /// Its octets, as distances.
    octets: Range<u32>,
    /// The addresses from the lowest to the highest that were written.
    memory: Range<usize>,
}

/// Why a placement cannot be noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotRecorded {
    /// Something that was placed early lies there, and which of the two is the later one would be forgotten.
    Overlap,
    /// There are as many notes as there may be.
    Full,
}

/// Everything that one stream has placed early and not delivered.
#[derive(Clone, Debug, Default)]
pub(super) struct PlacedRuns {
    /// Sorted, apart.
    runs: ArrayVec<PlacedRun, PLACED_RUNS_MAX>,
    /// What the note of the FPDU whose turn it is says of memory.
    current: Option<Range<usize>>,
}

impl PlacedRuns {
    /// Whether an FPDU lies in memory already.
    pub(super) fn covers(&self, fpdu: &Range<u32>) -> bool {
        self.runs.iter().any(|run| contains(&run.octets, fpdu))
    }

    /// Whether the placement of an FPDU can be noted.
    pub(super) fn check(&self, fpdu: &Range<u32>, memory: &Range<usize>) -> Result<(), NotRecorded> {
        if self.runs.iter().any(|run| overlap(&run.memory, memory)) {
            return Err(NotRecorded::Overlap);
        }
        let extends = |run: &PlacedRun| run.octets.end == fpdu.start || run.octets.start == fpdu.end;
        if self.runs.is_full() && !self.runs.iter().any(extends) {
            return Err(NotRecorded::Full);
        }
        Ok(())
    }

    /// Notes a placement that [`PlacedRuns::check`] allowed.
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
            // There is room: the caller has checked.
            None => {
                let _ = self.runs.try_insert(at, run);
            }
        }
    }

    /// The turn of the next FPDU in order, of `bytes` octets, has come.
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

    /// Whether the FPDU whose turn it is was placed early, and there.
    pub(super) fn is_placed(&self, memory: &Range<usize>) -> bool {
        self.current.as_ref().is_some_and(|written| contains(written, memory))
    }

    /// Something was placed in its turn. Answers how many notes that ends.
    pub(super) fn remove_overlapping(&mut self, memory: &Range<usize>) -> usize {
        let before = self.runs.len();
        self.runs.retain(|run| !overlap(&run.memory, memory));
        before - self.runs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = PlacedRuns::default();
    }

    /// Whether the notes are sorted, apart and none of them is empty.
    pub(super) fn are_consistent(&self) -> bool {
        let apart = self.runs.windows(2).all(|two| match two {
            [one, next] => one.octets.end < next.octets.start,
            _ => true,
        });
        apart && self.runs.iter().all(|run| !run.octets.is_empty() && !run.memory.is_empty())
    }
}

impl PlacedRun {
    /// Takes in a run that touches this one.
    fn merge(&mut self, other: &PlacedRun) {
        self.octets = self.octets.start.min(other.octets.start)..self.octets.end.max(other.octets.end);
        self.memory = self.memory.start.min(other.memory.start)..self.memory.end.max(other.memory.end);
    }

    /// Moves `bytes` octets on. Answers whether anything of the note is left. One that would be cut does not fit the
    /// FPDUs in order, and is given up.
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

    /// Notes of FPDUs of 100 octets at these distances, each in memory at ten times its distance.
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
    fn fpdus_that_touch_are_one_run_in_whatever_order_they_come() {
        for at in [[100, 200, 300], [300, 200, 100], [100, 300, 200], [200, 300, 100]] {
            assert_eq!(octets(&runs_at(&at)), [(100, 400)]);
        }
        assert_eq!(octets(&runs_at(&[500, 100, 300])), [(100, 200), (300, 400), (500, 600)]);
    }

    #[test]
    fn an_fpdu_is_placed_when_its_turn_comes_and_only_then() {
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
    fn notes_that_do_not_fit_the_fpdus_in_order_are_given_up() {
        for wrong in [50, 150, 250] {
            let mut runs = runs_at(&[100, 400]);
            runs.on_next_in_order(wrong);
            runs.on_next_in_order(100);
            assert!(!runs.is_placed(&(1000..1080)), "{wrong}");
            assert!(runs.are_consistent());
        }
        // One that reaches beyond its run is not in memory as a whole.
        let mut runs = runs_at(&[100]);
        runs.on_next_in_order(100);
        runs.on_next_in_order(104);
        assert!(!runs.is_placed(&(1000..1080)));
    }

    #[test]
    fn no_more_runs_are_noted_than_there_is_room_for() {
        let at: Vec<u32> = (1..=PLACED_RUNS_MAX as u32).map(|at| at * 200).collect();
        let runs = runs_at(&at);
        assert_eq!(runs.check(&(5000..5100), &(0..80)), Err(NotRecorded::Full));
        // One that touches a run needs no room.
        assert_eq!(runs.check(&(300..400), &(3000..3080)), Ok(()));
        assert_eq!(runs.check(&(100..200), &(0..80)), Ok(()));
    }

    #[test]
    fn memory_that_is_written_again_ends_the_note() {
        let mut runs = runs_at(&[100, 300]);
        assert_eq!(runs.check(&(500..600), &(1079..1100)), Err(NotRecorded::Overlap));
        assert_eq!(runs.check(&(500..600), &(1080..1100)), Ok(()));
        assert_eq!((runs.remove_overlapping(&(900..1000)), runs.remove_overlapping(&(1000..1001))), (0, 1));
        assert_eq!(octets(&runs), [(300, 400)]);
    }
}
