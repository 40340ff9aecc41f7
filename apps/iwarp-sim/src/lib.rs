//! Whole nodes on bad links in virtual time.
//!
//! A seed means a [`plan::Plan`]: hosts, cables, sessions and faults. A [`world::World`] runs it: each host is the whole
//! stack from verbs to frames under an [`app`] that posts, reaps and disconnects at random and checks every byte. The
//! same seed gives the same run to the last byte; [`trial`] runs each twice to show it.
//!
//! [`tcp`] has nodes that end at TCP, for curves and for peers that nobody here wrote.
#![forbid(unsafe_code)]

pub mod app;
mod atomics;
pub mod campaign;
mod hostile;
pub mod plan;
pub mod regressions;
pub mod tcp;
pub mod trial;
pub mod wire;
pub mod world;
