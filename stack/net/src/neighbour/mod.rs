//! Link addresses of the stations next to us: the table, and the protocol that fills it.

mod arp;
mod table;

pub(crate) use arp::{ArpIn, request};
pub(crate) use table::{Answer, Learnt, Neighbours};
