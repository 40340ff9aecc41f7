//! Measuring: histograms, rounds, baselines, tables and reports.
//!
//! A [`Case`] says what is measured; a slice of time spent on it gives a [`Slice`]; [`rounds::alternate`] runs the
//! slices of several cases in turn, so that all of them meet the same machine, and compares them round by round.
//! [`report::Report`] is what programs print, as a table, as JSON and as a page.
//!
//! The library knows nothing of RDMA: the tests that need it live with `iwarp-perf`, and so does the way the two
//! ends of a test talk to each other. What lives here are the baselines, which need no stack at all.
#![forbid(unsafe_code)]

pub mod baseline;
mod case;
pub mod host;
pub mod output;
pub mod pattern;
mod record;
pub mod report;
pub mod results;
mod round_trips;
pub mod rounds;
mod slice;

pub use case::{AtomicKind, Case, PathKind, Test, Transport, Wait, WordOwner};
pub use record::{Latency, LogEntry, RttNs, write_hdr_log};
pub use round_trips::{RoundTrip, measure_round_trips};
pub use slice::{Budget, ServerSlice, Slice, StopCondition, StopSignal, nanos};
