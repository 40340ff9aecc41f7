//! Frames held by connections: received and unread, received out of order, sent and unacknowledged.
//!
//! Each core has one arena of nodes per kind of frame, which all its connections share. An idle
//! connection costs a list head, and one number bounds the frames that TCP withholds from the
//! pools. Nothing is allocated after construction.

mod piece;
mod retained;
mod rx;
mod rx_pressure;
#[cfg(test)]
mod rx_tests;
mod shortage;

pub(crate) use ironwarp_llp::{Arena, List, NIL};

pub(crate) use piece::Piece;
pub(crate) use retained::{Unit, UnitState};
pub(crate) use rx::RxQueues;
pub(crate) use rx_pressure::RxPressure;
pub(crate) use shortage::{Progress, Shortage};
