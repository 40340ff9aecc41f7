//! The boundary to C: nothing unwinds across it, no pointer is used unchecked, no error is without a number and a text.

mod codes;
mod fault;
#[macro_use]
mod handle;
mod log;
mod pointer;

pub(crate) use codes::*;
pub(crate) use fault::{Fault, call};
pub(crate) use handle::{Kind, Resting, Slot, bury, give_out, with};
pub(crate) use pointer::{give, give_text, list, list_mut, optional, read, room, sized, text};
