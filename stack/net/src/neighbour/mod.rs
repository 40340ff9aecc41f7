//! Link addresses of neighbours: the table, and the messages of ARP and neighbour discovery that
//! fill it.

pub(crate) mod arp;
pub(crate) mod nd;
mod table;

pub(crate) use table::{LearnOutcome, Lookup, NeighbourTable, NeighbourUpdate};
