//! Measuring: histograms, rounds, baselines, tables and reports.
//!
//! A [`Case`] is what is measured; one short measurement of it is a [`Slice`].
//! [`rounds::alternate`] alternates the slices of several cases, so that all meet the same
//! conditions, and compares them round by round. Programs print a [`report::Report`] as a table, as
//! JSON and as a page.
//!
//! RDMA tests and the control protocol are in `iwarp-perf`. The baselines here need no stack.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a tool, whose names say what most items are")]

pub mod baseline;
mod case;
pub mod host;
pub mod output;
pub mod pattern;
mod record;
pub mod report;
mod round_trips;
pub mod rounds;
mod slice;
mod usage;

pub use case::{AtomicKind, Case, PathKind, Test, Transport, Wait, WordOwner};
pub use record::{Latency, LogEntry, RttNs, write_hdr_log};
pub use round_trips::{RoundTrip, measure_round_trips};
pub use slice::{Budget, ServerSlice, Slice, StopCondition, StopSignal, nanos};
pub use usage::{CpuClock, EndPercent, EndUsage, UsageMeter};
