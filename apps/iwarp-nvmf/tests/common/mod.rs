//! A target and a host in one process, joined by memory ports and polled by one thread.
#![allow(dead_code, reason = "each test uses its part")]

use ironwarp::memory::{MemoryConfig, pair_of_queues};
use ironwarp::{Config, MacAddr, Nanos, Stack};
use iwarp_nvmf::backend::faults::FaultPlan;
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::host::{Host, HostSettings};
use iwarp_nvmf::namespaces::Namespaces;
use iwarp_nvmf::serve::{Appliance, Surroundings};
use iwarp_nvmf::target::Target;
use iwarp_nvmf::transport::{CoreUsage, Reactor};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const AT: &str = "10.0.0.2:4420";
pub const NQN: &str = "nqn.2014-08.org.example:disk";
pub const HOST_NQN: &str = "nqn.2014-08.org.example:allowed";

/// A target's configuration with these subsystems.
pub fn target_config(rest: &str) -> TargetConfig {
    let text = format!(
        "listeners = [\"{AT}\"]\n[stack.port]\ndevice.memory = {{}}\n[stack.net]\naddress = \"10.0.0.2/24\"\n\
         [stack.tcp]\nrto_min_us = 500\nuser_timeout_ms = 500\n{rest}"
    );
    let mut config = TargetConfig::from_toml(&text).unwrap_or_else(|error| panic!("{error}"));
    // Namespaces in files need names that stay; these targets have no folder for random ones.
    for (number, subsystem) in config.subsystems.iter_mut().enumerate() {
        subsystem.serial.get_or_insert_with(|| format!("test-{number}"));
        for namespace in &mut subsystem.namespaces {
            let uuid = || format!("{:032x}", (number + 1) << 16 | namespace.nsid as usize);
            namespace.uuid.get_or_insert_with(uuid);
        }
    }
    config
}

/// A subsystem for any host with one namespace in memory.
pub fn memory_subsystem() -> TargetConfig {
    target_config(&format!(
        "[limits]\nbuffers = 8\ncapsules = 512\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 4 }}\n"
    ))
}

/// A target and a host.
pub struct Pair {
    pub host: Host,
    pub side: TargetSide,
    _host_stack: Stack,
}

/// The target's reactor, in a cell of its own so that a host's call can turn it.
pub struct TargetSide {
    /// One for each core.
    pub reactors: Vec<Reactor>,
    pub target: Arc<Target>,
    pub namespaces: Namespaces,
}

impl TargetSide {
    pub fn turn(&mut self) {
        for reactor in &mut self.reactors {
            reactor.poll().expect("the target runs");
        }
        while self.target.jobs.run_next(Duration::ZERO) {}
    }
}

impl Pair {
    pub fn new(config: &TargetConfig) -> Self {
        Self::with(config, HostSettings::new(AT.parse().expect("an address"), NQN))
    }

    pub fn with(config: &TargetConfig, settings: HostSettings) -> Self {
        Self::with_faults(config, settings, None)
    }

    pub fn with_faults(
        config: &TargetConfig,
        settings: HostSettings,
        faults: Option<Arc<FaultPlan>>,
    ) -> Self {
        let near = MemoryConfig::default();
        let far = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..near.clone() };
        let (mut near, far) = pair_of_queues((&near, 1), (&far, config.stack.core.count.into()));
        let mut host_config = Config::in_memory("10.0.0.1/24").expect("valid");
        host_config.tcp.rto_min = Nanos::from_micros(500);
        host_config.tcp.user_timeout = Nanos::from_millis(500);
        let (host_stack, workers) =
            Stack::builder(host_config).memory_port(near.remove(0)).build().expect("a stack");
        let host = Host::new(&host_stack, workers, settings).expect("a host");
        let surroundings = Surroundings { ports: Some(far), faults, ..Surroundings::default() };
        let appliance = Appliance::open_in(config, surroundings).expect("a target");
        let (namespaces, cores) = appliance.into_cores();
        let target = namespaces.target().clone();
        let reactors = cores.into_iter().map(|core| core.start().expect("a reactor")).collect();
        Pair { host, side: TargetSide { reactors, target, namespaces }, _host_stack: host_stack }
    }

    /// A pair whose host is connected with this many I/O queues.
    pub fn connected(config: &TargetConfig, queues: u16) -> Self {
        let mut pair = Pair::new(config);
        pair.connect(queues);
        pair
    }

    pub fn connect(&mut self, queues: u16) {
        let Pair { host, side, .. } = self;
        host.connect(&mut || side.turn()).expect("connected");
        host.connect_io_queues(queues, &mut || side.turn()).expect("I/O queues");
    }

    /// Polls both until `done`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Pair) -> bool) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            self.host.poll().expect("the host runs");
            self.side.turn();
            assert!(Instant::now() < limit, "timed out waiting for: {what}");
        }
    }

    /// What the target holds when nobody is connected.
    pub fn usage(&self) -> CoreUsage {
        let all = self.side.reactors.iter().map(Reactor::usage);
        all.reduce(|sum, one| CoreUsage {
            connections: sum.connections + one.connections,
            free_buffers: sum.free_buffers + one.free_buffers,
            free_capsules: sum.free_capsules + one.free_capsules,
            orphaned: sum.orphaned + one.orphaned,
            waiting: sum.waiting + one.waiting,
        })
        .expect("a core")
    }
}
