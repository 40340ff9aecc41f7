//! What is said of an atomic test's words when it is over.

use ironwarp_bench::Case;
use ironwarp_bench::report::TestResult;

/// What became of a case's operations, over all slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtomicTotals {
    /// Operations that changed a word, as the near end has counted them.
    pub changed: u64,
    /// Operations that were done by the core that they came to, and those that it mailed to another; where that is known.
    pub executed: Option<[u64; 2]>,
}

impl AtomicTotals {
    /// Says in a result that the sums were exact, and how many operations went by mail. Where a sum was wrong, its errors
    /// have been counted.
    pub fn add_notes(&self, case: &Case, result: &mut TestResult) {
        if !case.test.is_atomic() || result.errors != Some(0) {
            return;
        }
        let (changed, words) = (self.changed, case.words);
        let sets = if words == 1 { "the word".to_owned() } else { format!("the {words} words") };
        result.notes.push(format!("{changed} operations changed {sets}, and the sum is exactly that"));
        if let Some([local, forwarded]) = self.executed.filter(|executed| executed.iter().sum::<u64>() > 0) {
            let percent = forwarded as f64 * 100.0 / (local + forwarded) as f64;
            result.notes.push(format!("of them {percent:.0} % were mailed to another core"));
        }
    }
}
