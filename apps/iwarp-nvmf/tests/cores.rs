//! A core that panics, fails or is stuck: the target ends, or its service manager learns of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use crate::common::{NQN, target_config};
use ironwarp::MacAddr;
use ironwarp::memory::{MemoryConfig, pair_of_queues};
use iwarp_nvmf::serve::Appliance;

/// A target with two cores.
fn appliance() -> Appliance {
    let config = target_config(&format!(
        "[stack.core]\ncount = 2\nidle = \"yield\"\n[limits]\nbuffers = 8\ncapsules = 512\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         allow_any_host = true\n[[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 1 }}\n"
    ));
    let near = MemoryConfig::default();
    let far = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..near.clone() };
    Appliance::open(&config, Some(pair_of_queues((&near, 1), (&far, 2)).1)).expect("a target")
}

#[test]
fn a_core_that_panics_ends_the_target() {
    let stop = AtomicBool::new(false);
    let outcome = appliance().run(&stop, || panic!("as a defect would"), |_| {});
    assert!(outcome.expect_err("it failed").to_string().contains("panicked"));
    assert!(stop.load(Ordering::Relaxed));
}

#[test]
fn a_panic_of_the_control_thread_ends_the_cores() {
    let stop = AtomicBool::new(false);
    let run = || appliance().run(&stop, || {}, |_| panic!("as a defect would"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    assert!(stop.load(Ordering::Relaxed));
}

/// The first core is stuck until the other has run a hundred times more. Only then does the target
/// live.
#[test]
fn a_core_that_is_stuck_is_no_life() {
    let stop = AtomicBool::new(false);
    let (free, stuck) = mpsc::channel::<()>();
    let (mut looks, mut free) = (0, Some(free));
    let outcome = appliance().run(
        &stop,
        move || stuck.recv().unwrap_or_default(),
        |control| {
            looks += 1;
            if looks < 5 {
                assert!(!control.all_cores_run, "the first core does not run");
            } else if let Some(free) = free.take() {
                drop(free);
            } else if control.all_cores_run {
                stop.store(true, Ordering::Relaxed);
            }
        },
    );
    outcome.expect("it ends in order");
}
