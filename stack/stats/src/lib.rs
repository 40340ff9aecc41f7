//! Counters, declared once, with one page for each core that other processes can read.
//!
//! [`Counter`] lists all counters with layer, name and meaning; every reason for a drop has its
//! own. A [`StatsPage`] holds the values of all cores, on the heap or in a file that other
//! processes read through [`StatsReader`]. A [`CoreStats`] counts on one core. Only one thread adds
//! to a core's counters, so an increment is a plain load and store, under a nanosecond. A page in a
//! file also has a bounded table of connections, [`ConnectionRows`]. Creating a page can fail as
//! file operations do; counting cannot.
#![forbid(unsafe_code)]

mod connections;
mod core_stats;
mod counter;
mod layout;
mod page;
mod reader;
#[cfg(test)]
mod tests;

pub use connections::{CONNECTION_ROWS, ConnectionRow, ConnectionRows, ConnectionState};
pub use core_stats::CoreStats;
pub use counter::Counter;
pub use page::{PageDimensions, StatsPage};
pub use reader::{CounterInfo, ReadError, Sample, StatsReader};
