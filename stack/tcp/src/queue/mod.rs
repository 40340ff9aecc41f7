//! Frames that connections hold: received and not read, received out of order, sent and not acknowledged.
//!
//! One arena of nodes a kind and core serves all connections, so that an idle connection costs a list head, and one
//! number bounds what TCP can withhold from the frame pools. Nothing is allocated after construction.

mod arena;
mod piece;
mod retained;
mod rx;
mod rx_pressure;
#[cfg(test)]
mod rx_tests;

pub(crate) use arena::{Arena, List, NIL};
pub(crate) use piece::Piece;
pub(crate) use retained::{Unit, UnitState};
pub(crate) use rx::RxQueues;
pub(crate) use rx_pressure::RxPressure;
