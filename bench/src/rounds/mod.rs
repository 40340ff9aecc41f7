//! Rounds: several cases measured in turn, so that all of them meet the same machine.
//!
//! A virtual machine's processors move while a benchmark runs, and the floor under every
//! figure moves with them by a factor of seven. So the cases of a group alternate in short slices,
//! every figure is compared within its round, and the result is the median of the per-round ratios.
//! The group's floor is measured at the beginning of every round and once more at the end; a round
//! under which it moved by more than a fifth is dropped and counted.

mod case_totals;
mod engine;

pub use case_totals::CaseTotals;
pub use engine::{CaseRounds, CaseRunner, EndedEarly, Round, RoundPlan, Rounds, alternate};
