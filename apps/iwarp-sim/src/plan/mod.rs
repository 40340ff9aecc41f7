//! The plan of a seed: hosts, cables, sessions, and the faults with their times.
//!
//! Everything is drawn from the seed before the run begins. Each seed has a random half of its
//! [`Scenario`]'s faults (swarm testing), so that one fault does not mask another.

mod atomics;
mod attack;
mod bad_request;
mod faults;
mod hosts;
mod scenario;
mod session;
mod settings;

use core::ops::Range;

use ironwarp::Config;
use ironwarp_port::memory::MemoryConfig;
use ironwarp_sim::LinkConfig;
use ironwarp_types::{Entropy, Nanos, SeededEntropy};

pub(crate) use atomics::{AtomicsPlan, BadAtomic, Values};
pub(crate) use attack::{AfterAttack, Attack, BAD_TERMINATE};
pub(crate) use bad_request::BadRequest;
pub(crate) use faults::Fault;
pub use scenario::Scenario;
pub(crate) use session::{Ending, Placement, SessionPlan, WordsMix};
pub(crate) use settings::{CommonConfig, addresses_of};

/// The complete description of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub hosts: Vec<HostPlan>,
    /// Whether the hosts are connected by a switch; two hosts may have a direct cable instead.
    pub switched: bool,
    /// The networks that all hosts are on. The second one is the second fabric of each host.
    pub networks: usize,
    /// One cable per host with a switch, otherwise one in total, for each network in turn: each
    /// without faults and the same in both directions.
    pub cables: Vec<LinkConfig>,
    /// The hostile host, whose number follows that of the last host.
    pub hostile: Option<HostilePlan>,
    pub sessions: Vec<SessionPlan>,
    /// The words on which the sessions have atomic operations.
    pub atomics: Option<AtomicsPlan>,
    /// Changes during the run, in order of time.
    pub(crate) timeline: Vec<(Nanos, Change)>,
    /// When links stop being faulty.
    pub heal_at: Nanos,
    /// Time limit of the sessions after that.
    pub heal_timeout: Nanos,
    pub time_wait: Nanos,
    /// Duration of one loop iteration of a host.
    pub loop_time: Nanos,
    /// Whether payload may be damaged under a valid TCP checksum.
    pub undetected_corruption: bool,
    /// The settings that all hosts share.
    pub common: CommonConfig,
    pub faults: Vec<Fault>,
}

#[derive(Clone, Debug)]
pub struct HostPlan {
    /// The seed of its application's random generator.
    pub seed: u64,
    pub secret: [u64; 2],
    pub config: Config,
    pub device: MemoryConfig,
    /// Bursts that a core takes in one iteration.
    pub budget: usize,
    /// Longest time between two polls of its application; the average is half of it.
    pub poll_interval: Nanos,
    /// Requests posted per poll.
    pub batch: u32,
    /// Number of completion queues, which its queue pairs share.
    pub completion_queues: usize,
    /// Entries in each.
    pub cq_depth: u32,
    /// How often it arms a completion queue and sleeps, polls in a million.
    pub sleep_ppm: u32,
    /// How often it resizes a completion queue, polls in a million.
    pub resize_ppm: u32,
    /// How often one of several cores stalls, polls in a million.
    pub stall_ppm: u32,
    pub stall_max: Nanos,
    /// Its shared receive queue.
    pub app_srq: Option<SrqPlan>,
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqPlan {
    /// Receives that are kept posted.
    pub depth: u32,
    /// Bytes of each.
    pub room: usize,
    /// Elements of each.
    pub sges: usize,
}

#[derive(Clone, Debug)]
pub struct HostilePlan {
    pub device: MemoryConfig,
    pub seed: u64,
}

/// A change during a run.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// One direction of a cable gets a new configuration: 0 from its first end, 1 towards it.
    Link { cable: usize, direction: usize, config: LinkConfig },
    /// After this many buffer allocations of a host, all further ones fail.
    Allocations { host: usize, left: u64 },
    /// A host's application drops its context and restarts.
    Restart { host: usize },
    /// A core of a host is not polled until then.
    Stall { host: usize, core: usize, until: Nanos },
    /// A host's clock is set to be this far ahead of the simulation.
    Clock { host: usize, ahead: Nanos },
    /// A host's transmit ring accepts this many frames of a burst.
    TxBurst { host: usize, frames: u64 },
    /// A host loses its link to a network, and notices it, or gets it back.
    Carrier { host: usize, network: usize, up: bool },
}

impl Plan {
    /// Turns the fast paths of every host on or off. It changes no result.
    pub fn set_fast_path(&mut self, on: bool) {
        for host in &mut self.hosts {
            host.config.stack.fast_path = on;
        }
    }

    pub fn new(seed: u64, scenario: Scenario) -> Plan {
        let (scenario, seed, transport) = scenario.of_seed(seed);
        let mut rng = SeededEntropy::new(seed ^ scenario.salt());
        let params = scenario.params(&mut rng);
        let count = params.hosts;
        let switched = count > 2 || params.attack_percent > 0 || rng.chance(300_000);
        let faults = scenario.faults(&mut rng);
        let mut plan = Plan {
            seed: rng.next_u64(),
            hosts: Vec::new(),
            switched,
            networks: params.networks,
            cables: Vec::new(),
            hostile: None,
            sessions: Vec::new(),
            atomics: None,
            timeline: Vec::new(),
            heal_at: Nanos::from_micros(2_000 + log_uniform(&mut rng, 8, 19)),
            heal_timeout: HEAL_TIMEOUT,
            time_wait: Nanos::from_millis(50),
            loop_time: Nanos(200 + rng.below(1_800)),
            undetected_corruption: faults.contains(&Fault::UndetectedCorruption),
            common: CommonConfig::random(faults.contains(&Fault::UndetectedCorruption), &mut rng),
            faults,
        };
        if params.attack_percent > 0 {
            plan.common.restrict_for_hostile();
        }
        plan.draw_hosts(count, &params, &mut rng);
        plan.draw_cores(scenario, &params);
        plan.hosts.iter_mut().for_each(|host| host.config.stack.transport = transport.into());
        if plan.has(Fault::Regroup) {
            plan.draw_super_segments(&mut rng);
        }
        plan.draw_longest_timeouts();
        plan.draw_cables(&mut rng);
        if plan.networks > 1 {
            plan.draw_second_network(&mut rng);
        }
        match scenario {
            Scenario::Atomics => plan.draw_sessions_on_words(&mut rng),
            _ => plan.draw_sessions(&params, &mut rng),
        }
        plan.draw_srqs(&params, &mut rng);
        if scenario == Scenario::SharedCores {
            plan.draw_shared_cores();
        }
        plan.draw_attacks(&params, &mut rng);
        plan.draw_faults(&mut rng);
        if scenario == Scenario::Atomics {
            plan.exempt_server_from_restart();
        }
        if scenario == Scenario::TwoLinks {
            plan.draw_cuts(&mut rng);
        }
        if scenario == Scenario::Stalls {
            plan.draw_stalls(&mut rng);
            plan.draw_clock_steps(&mut rng);
        }
        if scenario == Scenario::SlowStarts {
            plan.draw_slow_starts(&mut rng);
        }
        if params.drops_contexts {
            plan.draw_context_drops(&mut rng);
        }
        plan.timeline.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Most hosts receive frames that are longer than those of the link.
    fn draw_super_segments(&mut self, rng: &mut SeededEntropy) {
        for host in &mut self.hosts {
            let longest = usize::from(host.device.mtu_bytes) * rng.below(17) as usize;
            host.device.rx_frame_bytes = longest.min(SUPER_SEGMENT_BYTES_MAX);
        }
    }

    /// The cables of a network.
    pub fn cables_of(&self, network: usize) -> Range<usize> {
        let count = self.cables.len() / self.networks;
        network * count..(network + 1) * count
    }

    /// The largest packet that any host sends.
    pub fn mtu_max(&self) -> u16 {
        self.hosts.iter().map(|host| host.device.mtu_bytes).max().unwrap_or(1500)
    }

    pub fn describe(&self) -> String {
        let mut text = format!(
            "{} hosts{}, MTU {}, faults until {:?}, faults {:?}\n{:?}",
            self.hosts.len(),
            if self.switched { " at a switch" } else { "" },
            self.mtu_max(),
            self.heal_at.as_duration(),
            self.faults,
            self.common
        );
        for (number, host) in self.hosts.iter().enumerate() {
            text += &format!(
                "\nhost {number}: {:?} {:?} {:?}",
                host.config.net, host.config.tcp, host.config.mpa
            );
        }
        for (number, session) in self.sessions.iter().enumerate() {
            text += &format!(
                "\nsession {number}: hosts {:?} by {} from {:?}, requests {:?}, messages to {} bytes, {:?}",
                session.hosts,
                if session.by_v6 { "IPv6" } else { "IPv4" },
                session.start.as_duration(),
                session.ops,
                session.bytes_max,
                session.ending
            );
        }
        for host in self.hosts.iter().filter(|host| self.atomics.is_some() || host.cores() > 1) {
            text += &format!("\n{} cores, {:?}", host.cores(), host.device.queue_rule);
        }
        if let Some(atomics) = &self.atomics {
            text += &format!("\n{atomics:?}");
        }
        for (at, change) in &self.timeline {
            text += &format!("\n{:?}: {change:?}", at.as_duration());
        }
        text
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

/// An IP packet of 65535 bytes and a link header with a tag.
const SUPER_SEGMENT_BYTES_MAX: usize = 65_553;

/// Time limit of sessions after the links have healed: covers a retransmission timer that backed
/// off during the faults, a neighbour entry that failed, and the remaining work.
const HEAL_TIMEOUT: Nanos = Nanos::from_secs(60);

/// A random number from about `2^low` to `2^high`, uniform on a logarithmic scale.
pub(crate) fn log_uniform(rng: &mut SeededEntropy, low: u32, high: u32) -> u64 {
    let bits = low + rng.below(u64::from(high - low)) as u32;
    (1 << bits) + rng.below(1 << bits)
}
