//! The latency of a command is what its host sees, for every backend: in virtual time, where a turn
//! of the target takes 50 µs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{AT, NQN, target_config};
use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{Config, MacAddr, Nanos, Stack};
use iwarp_nvmf::host::{BlockRange, Host, HostSettings};
use iwarp_nvmf::serve::{Appliance, Surroundings};

/// The time of a turn.
const TURN_NS: u64 = 50_000;
/// The histogram's buckets are up to a quarter wide.
const TURN_IN_BUCKETS: core::ops::RangeInclusive<u64> = TURN_NS..=TURN_NS * 5 / 4;

#[test]
fn a_command_that_one_turn_takes_and_answers_has_the_latency_of_the_turn() {
    for backend in ["memory = { mib = 1 }", "null = { mib = 1 }"] {
        let now = Arc::new(AtomicU64::new(1_000_000_000));
        let clock = {
            let now = now.clone();
            move || Nanos(now.load(Ordering::Relaxed))
        };
        let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
        let (near, far) = pair(&MemoryConfig::default(), &far_port);
        let host_config = Config::in_memory("10.0.0.1/24").expect("valid");
        let (host_stack, worker) =
            Stack::builder(host_config).build_replayable(near, clock.clone(), [1, 2]).expect("a stack");
        let config = target_config(&format!(
            "[limits]\nbuffers = 8\ncapsules = 512\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[subsystem.namespace]]\nnsid = 1\nbackend.{backend}\n"
        ));
        let (stack, workers) =
            Stack::builder(config.stack.clone()).build_replayable(far, clock, [3, 4]).expect("a stack");
        let surroundings = Surroundings { stack: Some((stack, vec![workers])), ..Surroundings::default() };
        let appliance = Appliance::open_in(&config, surroundings).expect("a target");
        let (namespaces, mut cores) = appliance.into_cores();
        let mut reactor = cores.remove(0).start().expect("a reactor");
        let mut turn = || {
            now.fetch_add(TURN_NS, Ordering::Relaxed);
            reactor.poll().expect("the target runs");
        };
        let settings = HostSettings::new(AT.parse().expect("an address"), NQN);
        let mut host = Host::new(&host_stack, vec![worker], settings).expect("a host");
        host.connect(&mut turn).expect("connected");
        host.connect_io_queues(1, &mut turn).expect("an I/O queue");

        let mut data = vec![7; 512];
        let range = BlockRange { nsid: 1, slba: 3, blocks: 1 };
        for _ in 0..8 {
            host.read(range, &mut data, &mut turn).expect("read");
        }
        for _ in 0..4 {
            host.write(range, &mut data, &mut turn).expect("written");
        }
        turn();
        let counters = namespaces.target().subsystems()[0].namespaces()[&1].counters.clone();
        let (reads, writes) = (counters.read_latency.snapshot(), counters.write_latency.snapshot());
        for (latency, count) in [(&reads, 8), (&writes, 4)] {
            assert_eq!(latency.buckets().map(|(_, count)| count).sum::<u64>(), count, "{backend}");
            for percent in [0.1, 50.0, 100.0] {
                let found = latency.percentile_ns(percent);
                assert!(TURN_IN_BUCKETS.contains(&found), "{backend}: p{percent} of {count}: {found} ns");
            }
        }
        // A Write whose data the target fetches takes a round trip more.
        host.settings_mut().in_capsule = false;
        host.write(range, &mut data, &mut turn).expect("written");
        turn();
        let all = counters.write_latency.snapshot();
        assert!(all.since(&writes).percentile_ns(50.0) >= 2 * TURN_NS, "{backend}");
    }
}
