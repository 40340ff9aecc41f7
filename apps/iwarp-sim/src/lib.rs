//! Simulates whole nodes on faulty links in virtual time.
//!
//! A seed defines a [`plan::Plan`]: hosts, cables, sessions and faults. A `World` runs it. Each
//! host is the whole stack from verbs to frames under an application that posts, reaps and
//! disconnects at random and checks every byte. The same seed gives the same run to the last byte;
//! [`trial`] runs each seed twice to verify that, with TCP's fast path on and off.
//!
//! [`adversary`] has hosts that keep no rule, and what their packets cost a node.
//!
//! [`sctp`] has nodes of the SCTP layer and below.
//!
//! [`tcp`] has nodes of the TCP layer and below, for throughput curves and tests.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a tool, whose names say what most items are")]

pub mod adversary;
mod app;
mod atomics;
pub mod campaign;
mod hostile;
mod kinds;
pub mod plan;
pub mod regressions;
pub mod sctp;
pub mod tcp;
pub mod trial;
mod wire;
mod world;

pub use world::Switch;

pub(crate) fn text(error: impl core::fmt::Display) -> String {
    error.to_string()
}
