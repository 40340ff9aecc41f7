//! Link addresses of the stations next to us: the table, and the two protocols that fill it.

pub(crate) mod arp;
pub(crate) mod nd;
mod table;

pub(crate) use table::{LearnOutcome, Lookup, NeighbourUpdate, Neighbours};
