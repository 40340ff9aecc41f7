//! Two hosts in virtual time, one of which sends anything in any order, and disks that hang, fail
//! and answer in any order: the steps of the fuzz target `nvmf`, from its seeds and from random
//! inputs.

// The target's modules name the crate of the fuzzers.
extern crate self as ironwarp_fuzz;

/// What the world takes from the other tests.
mod common {
    pub const AT: &str = "10.0.0.2:4420";
    pub const NQN: &str = "nqn.2014-08.org.example:honest";
}
#[path = "../../../fuzz/fuzz_targets/nvmf/honest.rs"]
mod honest;
#[path = "../../../fuzz/fuzz_targets/nvmf/hostile.rs"]
mod hostile;
#[path = "../../../fuzz/src/input.rs"]
#[allow(dead_code, missing_docs, reason = "it belongs to the fuzz targets, which use all of it")]
mod input;
#[path = "../../../fuzz/fuzz_targets/nvmf/steps.rs"]
mod steps;
#[path = "common/world.rs"]
mod world;

pub use input::Input;
use proptest::prelude::*;

#[test]
fn the_seeds_of_the_fuzzer() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/nvmf");
    let mut names: Vec<_> =
        std::fs::read_dir(seeds).expect("a folder").flatten().map(|one| one.path()).collect();
    names.sort();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        println!("{}", name.display());
        steps::run(&std::fs::read(&name).expect("a seed"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn any_steps_leave_the_honest_host_its_data(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        steps::run(&bytes);
    }
}
