//! The tests that need no process of their own, as one program: each program is compiled and linked
//! with the whole stack.

mod common;
#[path = "common/world.rs"]
mod world;

mod any_entry;
mod authentication;
mod bad_hosts;
mod block_device;
mod cores;
mod disk_faults;
mod engine;
mod fairness;
mod full_disk;
mod hostile_hosts;
mod hung_disk;
mod hung_disks;
mod in_process;
mod latency;
#[cfg(feature = "dpdk")]
mod program;
mod reload;
mod requests;
mod service;

use common::{AT, NQN};
