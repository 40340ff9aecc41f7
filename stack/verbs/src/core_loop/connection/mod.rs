//! The life of a connection outside full operation: how it comes about, and how it ends.
//!
//! [`setup`] brings a queue pair to a TCP connection, [`startup`] from there to full operation; [`passive`] is an incoming
//! connection that has no queue pair yet, [`teardown`] every way to the end; [`log`] tells an operator of both.

mod half_open_by_host;
mod log;
pub(super) mod passive;
pub(super) mod setup;
pub(super) mod startup;
mod teardown;

use super::*;
pub(super) use log::log_event;
