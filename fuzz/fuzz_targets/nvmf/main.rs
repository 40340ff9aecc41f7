//! The NVMe target's transport: two hosts in virtual time, one of which sends anything in any
//! order, and disks that hang, fail and answer in any order.
//!
//! After each step everything of the core has one owner, and the honest host's connections stand.
//! In the end each of its commands has one response, its data is there, and nothing is left of the
//! other host. `apps/iwarp-nvmf/tests/any_steps.rs` runs the same steps from random inputs.
#![no_main]

/// What the world takes from the tests of iwarp-nvmf.
mod common {
    pub const AT: &str = "10.0.0.2:4420";
    pub const NQN: &str = "nqn.2014-08.org.example:honest";
}
mod honest;
mod hostile;
mod steps;
#[path = "../../../apps/iwarp-nvmf/tests/common/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| steps::run(bytes));
