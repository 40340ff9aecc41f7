//! What a seed means: hosts, cables, sessions, and what goes wrong when.
//!
//! Everything is drawn from the seed before the run begins. Each seed has a random half of the faults that its
//! [`Scenario`] knows (swarm testing), so that no fault hides what another one would show.

mod atomics;
mod attack;
mod bad_request;
mod faults;
mod hosts;
mod scenario;
mod session;
mod settings;

use ironwarp::Config;
use ironwarp_port::memory::MemoryConfig;
use ironwarp_sim::LinkConfig;
use ironwarp_types::{Entropy, Nanos, SeededEntropy};

pub use atomics::{AtomicsConnEnding, AtomicsConnPlan, AtomicsPlan, BadAtomic, Values};
pub use attack::{AfterAttack, Attack, BAD_TERMINATE};
pub use bad_request::BadRequest;
pub use faults::Fault;
pub use scenario::Scenario;
pub use session::{Ending, Placement, SessionPlan};
pub use settings::{CommonConfig, addresses_of};

/// Everything that a run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where chance starts.
    pub seed: u64,
    /// Hosts, by number.
    pub hosts: Vec<HostPlan>,
    /// Whether there is a switch between the hosts; two may do without.
    pub switched: bool,
    /// One cable a host with a switch, else one.
    pub cables: Vec<CablePlan>,
    /// The hostile host, whose number follows that of the last host.
    pub hostile: Option<HostilePlan>,
    /// What passes between the hosts.
    pub sessions: Vec<SessionPlan>,
    /// Calls for atomic operations, which take the sessions' place.
    pub atomics: Option<AtomicsPlan>,
    /// What changes while they run, in order of time.
    pub timeline: Vec<(Nanos, Change)>,
    /// When links stop doing harm.
    pub heal_at: Nanos,
    /// How long the sessions may take from then on.
    pub heal_timeout: Nanos,
    /// How long closed connections' ports stay taken.
    pub time_wait: Nanos,
    /// One turn of a host's loop.
    pub loop_time: Nanos,
    /// Whether payload may be damaged so that TCP does not notice.
    pub undetected_corruption: bool,
    /// What the hosts agree on.
    pub common: CommonConfig,
    /// The faults that this seed has.
    pub faults: Vec<Fault>,
}

/// One host.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Chance of its application.
    pub seed: u64,
    /// Secret of its stack.
    pub secret: [u64; 2],
    /// Its stack.
    pub config: Config,
    /// Its device.
    pub device: MemoryConfig,
    /// Bursts that a core takes in one iteration.
    pub budget: usize,
    /// How long its application looks away, on average half of it.
    pub poll_interval: Nanos,
    /// Requests posted at one look.
    pub batch: u32,
    /// Completion queues, shared by its queue pairs.
    pub completion_queues: usize,
    /// Places in each.
    pub cq_depth: u32,
    /// How often it goes to sleep over a completion queue, looks in a million.
    pub sleep_ppm: u32,
    /// How often it gives a queue another depth, looks in a million.
    pub resize_ppm: u32,
    /// How often one of several cores stands still, polls in a million.
    pub stall_ppm: u32,
    /// For how long at most.
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

/// A host that keeps no rules but TCP's.
#[derive(Clone, Debug)]
pub struct HostilePlan {
    /// Its device.
    pub device: MemoryConfig,
    /// Chance, and the secret of its TCP.
    pub seed: u64,
}

/// One cable, both ways alike when nothing goes wrong.
#[derive(Clone, Debug)]
pub struct CablePlan {
    /// What it is like without faults.
    pub healthy: LinkConfig,
}

/// Something that changes during a run.
#[derive(Clone, Debug)]
pub enum Change {
    /// One way of a cable becomes as `config` says.
    Link {
        /// Which cable.
        cable: usize,
        /// 0 away from its first end, 1 towards it.
        direction: usize,
        /// What it is like from now on.
        config: LinkConfig,
    },
    /// So many of a host's buffer allocations succeed, and none after them.
    Allocations {
        /// Which host.
        host: usize,
        /// How many.
        left: u64,
    },
    /// A host's application drops its context and begins anew.
    Restart {
        /// Which host.
        host: usize,
    },
    /// A host's transmit ring takes so many frames of a burst.
    TxBurst {
        /// Which host.
        host: usize,
        /// How many.
        frames: u64,
    },
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64, scenario: Scenario) -> Plan {
        let mut rng = SeededEntropy::new(seed ^ scenario.salt());
        let params = scenario.params(&mut rng);
        let count = params.hosts;
        let switched = count > 2 || params.attack_percent > 0 || rng.chance(300_000);
        let faults = scenario.faults(&mut rng);
        let mut plan = Plan {
            seed: rng.next_u64(),
            hosts: Vec::new(),
            switched,
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
            common: CommonConfig::draw(faults.contains(&Fault::UndetectedCorruption), &mut rng),
            faults,
        };
        if params.attack_percent > 0 {
            plan.common.restrict_for_hostile();
        }
        plan.draw_hosts(count, &params, &mut rng);
        plan.draw_cores(scenario, &params);
        plan.draw_cables(&mut rng);
        if scenario == Scenario::Atomics {
            plan.draw_conns(&mut rng);
        } else {
            plan.draw_sessions(&params, &mut rng);
        }
        plan.draw_srqs(&params, &mut rng);
        plan.draw_attacks(&params, &mut rng);
        plan.draw_faults(&mut rng);
        if scenario == Scenario::Atomics {
            plan.exempt_server_from_restart();
        }
        if params.drops_contexts {
            plan.draw_context_drops(&mut rng);
        }
        plan.timeline.sort_by_key(|(at, _)| *at);
        plan
    }

    /// The largest packet that any host sends.
    pub fn mtu_max(&self) -> u16 {
        self.hosts.iter().map(|host| host.device.mtu_bytes).max().unwrap_or(1500)
    }

    /// What it is, in words.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "{} hosts{}, MTU {}, harm until {:?}, faults {:?}\n{:?}",
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

    /// Whether this seed has a fault.
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

/// How long sessions may take once nothing does harm: a retransmission timer that has backed off during the faults, a
/// neighbour that counts as absent, and the work that is left.
const HEAL_TIMEOUT: Nanos = Nanos::from_secs(60);

/// A number of about `2^low` to `2^high`, every order of magnitude as likely.
pub(crate) fn log_uniform(rng: &mut SeededEntropy, low: u32, high: u32) -> u64 {
    let bits = low + rng.below(u64::from(high - low)) as u32;
    (1 << bits) + rng.below(1 << bits)
}
