//! Counters declared once, one page a core, readable from outside.
//!
//! [`Counter`] is the one list of what is counted: layer, name, meaning; every reason to drop something has its own.
//! A [`StatsPage`] holds the values of all cores, on the heap or in a file that other processes read through
//! [`StatsReader`]; a [`CoreStats`] counts on one core. Only one thread adds to a core's counters, so an increment is
//! a plain load and store, under a nanosecond. Making a page can fail as file operations do; counting cannot.
#![forbid(unsafe_code)]

mod core_stats;
mod counter;
mod layout;
mod page;
mod reader;
#[cfg(test)]
mod tests;

pub use core_stats::CoreStats;
pub use counter::Counter;
pub use page::{PageDimensions, StatsPage};
pub use reader::{CounterInfo, ReadError, Sample, StatsReader};
