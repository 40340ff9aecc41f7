//! The life of a connection outside full operation: how it comes about, and how it ends.
//!
//! [`setup`] is the side that has a queue pair, [`passive`] an incoming connection that has none yet, [`teardown`]
//! every way to the end.

pub(super) mod passive;
pub(super) mod setup;
mod teardown;

use super::*;
