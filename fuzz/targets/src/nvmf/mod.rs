//! The NVMe target's transport: two hosts in virtual time, one of which sends anything in any
//! order, disks that hang, fail and answer in any order, and lost frames.
//!
//! After each step everything of the core has one owner, and the honest host's connections stand.
//! In the end each of its commands has one response, its data is there, and nothing is left of the
//! other host.

mod honest;
mod hostile;
mod steps;
/// The core and the hosts, which iwarp-nvmf tests with.
#[path = "../../../../apps/iwarp-nvmf/tests/common/world.rs"]
mod world;

pub use steps::run;

/// Address and name of the target.
const AT: &str = "10.0.0.2:4420";
const NQN: &str = "nqn.2014-08.org.example:honest";
