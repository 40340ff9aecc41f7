//! Named scenarios: which faults may occur, and what the hosts do.

use ironwarp_types::SeededEntropy;

use super::faults::Fault;
use crate::kinds::kinds;

kinds! {
    /// A named scenario.
    #[derive(Default)]
    pub enum Scenario {
        /// Its name on the command line, and a description in one line.
        fn row -> (&'static str, &'static str);

        /// A mix of everything.
        #[default]
        Mixed => ("mixed", "a random half of all faults, any number of connections"),
        /// Links that lose frames, singly and in bursts.
        Lossy => ("lossy", "frames lost singly, in bursts and in full queues"),
        /// Links that reorder, duplicate and delay frames.
        Reorder => ("reorder", "frames out of order, duplicated and delayed"),
        /// Links that drop or hold frames for a time.
        Outage => ("outage", "links that drop or hold frames for a time"),
        /// Links that damage frames, also under a valid TCP checksum.
        Corrupt => ("corrupt", "frames damaged and truncated, also under a valid TCP checksum"),
        /// Small pools, rings and windows, and buffer allocations that fail.
        Starved => ("starved", "small pools, rings and windows; buffer allocations that fail"),
        /// Many short connections with every kind of ending.
        Churn => ("churn", "many short connections with every kind of ending"),
        /// Many queue pairs between few hosts.
        ManyQps => ("many-qps", "many queue pairs between few hosts"),
        /// Requests of every kind that end their connections.
        Terminate => ("terminate",
            "bad requests of every kind, and other connections that must not be affected"),
        /// More connections than hosts allow.
        Limits => ("limits", "more connections than hosts allow"),
        /// Many queue pairs on shared receive queues.
        Shared => ("shared", "many queue pairs on shared receive queues, which run low and empty"),
        /// Windows, fast regions, fences, chains.
        Memory => ("memory", "windows, fast regions, invalidated tags, fences and chains in random order"),
        /// Completion queues that applications sleep on and resize.
        Queues => ("queues", "completion queues that applications sleep on and resize under load"),
        /// Every error on every connection.
        Storm => ("storm",
            "every error on every connection, by bad requests and by hostile frames; other connections must not be affected"),
        /// Hosts that disappear without closing their connections.
        Vanish => ("vanish", "hosts that disappear while their applications drop their contexts"),
        /// Atomic operations of many clients on few words of a host with several cores.
        Atomics => ("atomics",
            "atomic operations, Reads and immediates of many connections on few words, hosts with 1 to 8 cores; histories must be linearizable"),
        /// Cores that stand still, and clocks that are set.
        Stalls => ("stalls", "cores that stand still for up to seconds, clocks that go back or jump ahead"),
        /// Connections whose peers abuse TCP from inside.
        Visitors => ("visitors",
            "peers that split SACKs, acknowledge single bytes, close windows, read nothing; other connections must not be affected"),
        /// Links that are down for so long that connecting takes more than ten seconds.
        SlowStarts => ("slow-starts", "links down for up to 18 s, start-ups that take more than ten seconds"),
        /// Shared receive queues on hosts with several cores.
        SharedCores => ("shared-cores", "shared receive queues on hosts with up to three cores"),
        /// An NVMe target with an honest and a hostile host.
        Storage => ("storage",
            "an NVMe target, disks that hang, and two hosts, one of them hostile: the other has its data and goes on"),
    }
}

/// The parameters of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioParams {
    /// Number of hosts.
    pub hosts: usize,
    /// Number of sessions.
    pub sessions: u64,
    /// Approximate number of requests of a run, all sides together.
    pub ops: u64,
    /// Approximate payload bytes of a run, all sides together.
    pub bytes: u64,
    /// Sessions in a hundred that end before their work is done.
    pub abrupt_percent: u64,
    /// Sessions in a hundred that end by a bad request.
    pub bad_request_percent: u64,
    /// Whether pools, rings and windows are small.
    pub small: bool,
    /// Whether hosts allow fewer connections than there are sessions.
    pub tight_limits: bool,
    /// Sides in a hundred that use a shared receive queue.
    pub shared_percent: u64,
    /// Grants and local tags, requests in a million; drawn at random where this is 0.
    pub memory_ppm: u32,
    /// How often applications sleep and resize their queues, polls in a million; drawn at random
    /// where this is 0.
    pub queues_ppm: u32,
    /// Sessions in a hundred of a hostile host, in addition to all others.
    pub attack_percent: u64,
    /// Whether the hostile host abuses TCP, and not what is above it.
    pub abuses_tcp: bool,
    /// Whether hosts disappear without closing their connections.
    pub drops_contexts: bool,
}

impl Scenario {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// A description in one line.
    pub fn help(self) -> &'static str {
        self.row().1
    }

    /// Returns the scenario with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scenario| scenario.name() == name)
    }

    /// Returns whether some of its seeds have hosts with several cores.
    pub(super) fn allows_multicore(self) -> bool {
        matches!(
            self,
            Scenario::Mixed
                | Scenario::Queues
                | Scenario::Storm
                | Scenario::Vanish
                | Scenario::Stalls
                | Scenario::Visitors
        )
    }

    /// Makes the seeds of one scenario differ from those of another.
    pub(super) fn salt(self) -> u64 {
        (self as u64).wrapping_mul(0x5851_f42d_4c95_7f2d)
    }

    pub(super) fn params(self, rng: &mut SeededEntropy) -> ScenarioParams {
        let hosts = match rng.below(10) {
            0..6 => 2,
            6..9 => 3,
            _ => 4,
        };
        let usual = ScenarioParams {
            hosts,
            sessions: 1 + rng.below(8),
            ops: 200 + rng.below(1_000),
            bytes: 200_000 + rng.below(4_000_000),
            abrupt_percent: 20,
            bad_request_percent: if rng.chance(200_000) { 30 } else { 0 },
            small: rng.chance(250_000),
            tight_limits: rng.chance(50_000),
            shared_percent: [0, 0, 30][rng.below(3) as usize],
            memory_ppm: 0,
            queues_ppm: 0,
            attack_percent: 0,
            abuses_tcp: false,
            drops_contexts: false,
        };
        match self {
            Scenario::Starved => ScenarioParams { small: true, ..usual },
            Scenario::Churn => ScenarioParams {
                sessions: 16 + rng.below(24),
                ops: 200,
                bytes: 300_000,
                abrupt_percent: 60,
                ..usual
            },
            Scenario::ManyQps => {
                ScenarioParams { hosts: 2, sessions: 24 + rng.below(40), ops: 600, bytes: 600_000, ..usual }
            }
            Scenario::Terminate => ScenarioParams {
                sessions: 8 + rng.below(16),
                ops: 500,
                bytes: 800_000,
                bad_request_percent: 60,
                ..usual
            },
            Scenario::Limits => ScenarioParams {
                sessions: 12 + rng.below(24),
                ops: 400,
                bytes: 400_000,
                abrupt_percent: 40,
                tight_limits: true,
                ..usual
            },
            Scenario::Shared | Scenario::SharedCores => ScenarioParams {
                sessions: 3 + rng.below(14),
                shared_percent: 80,
                bad_request_percent: 25,
                bytes: 800_000,
                ..usual
            },
            Scenario::Memory => {
                ScenarioParams { memory_ppm: 400_000, bad_request_percent: 15, bytes: 800_000, ..usual }
            }
            Scenario::Queues => {
                ScenarioParams { queues_ppm: 60_000, sessions: 2 + rng.below(12), bytes: 800_000, ..usual }
            }
            Scenario::Storm => ScenarioParams {
                sessions: 4 + rng.below(10),
                ops: 600,
                bytes: 400_000,
                abrupt_percent: 10,
                bad_request_percent: 50,
                attack_percent: 150,
                tight_limits: false,
                ..usual
            },
            Scenario::Visitors => ScenarioParams {
                sessions: 2 + rng.below(6),
                ops: 400,
                bytes: 600_000,
                attack_percent: 100,
                abuses_tcp: true,
                tight_limits: false,
                ..usual
            },
            Scenario::SlowStarts => ScenarioParams { bytes: 400_000, ops: 300, tight_limits: false, ..usual },
            Scenario::Vanish => ScenarioParams { bytes: 800_000, drops_contexts: true, ..usual },
            // Words are few bytes, and each core has its own buffers.
            Scenario::Atomics => {
                ScenarioParams { sessions: 12, small: true, tight_limits: false, shared_percent: 0, ..usual }
            }
            // Each session is the room of a connection.
            Scenario::Storage => ScenarioParams {
                hosts: 3,
                sessions: 16,
                small: false,
                tight_limits: false,
                shared_percent: 0,
                ..usual
            },
            _ => usual,
        }
    }

    /// A random half of the scenario's faults.
    pub(super) fn faults(self, rng: &mut SeededEntropy) -> Vec<Fault> {
        let mut known = match self {
            Scenario::Lossy => {
                vec![Fault::Loss, Fault::Bursts, Fault::SmallQueue, Fault::Jitter, Fault::EcnMark]
            }
            Scenario::Reorder => vec![Fault::Reorder, Fault::Duplicate, Fault::Jitter, Fault::Loss],
            Scenario::Outage => vec![Fault::Outage, Fault::Pause, Fault::Mtu, Fault::Loss, Fault::Jitter],
            Scenario::SlowStarts => vec![Fault::Loss, Fault::Jitter, Fault::Duplicate, Fault::Reorder],
            Scenario::Stalls => vec![Fault::Loss, Fault::Jitter, Fault::SlowReader, Fault::Allocation],
            // Damage under a valid checksum may change a Connect, and a host that restarts forgets
            // what it has written.
            Scenario::Storage => {
                let never = [Fault::UndetectedCorruption, Fault::Restart, Fault::SlowReader];
                Fault::ALL.iter().copied().filter(|fault| !never.contains(fault)).collect()
            }
            Scenario::Corrupt => {
                vec![Fault::Corrupt, Fault::UndetectedCorruption, Fault::Truncate, Fault::Loss]
            }
            Scenario::Starved => {
                vec![Fault::TxRing, Fault::Allocation, Fault::SlowReader, Fault::SmallQueue, Fault::Loss]
            }
            _ => Fault::ALL.to_vec(),
        };
        let keep = known.len().div_ceil(2);
        while known.len() > keep {
            known.remove(rng.below(known.len() as u64) as usize);
        }
        // It relaxes the checks of every stream that it ends, so most runs go without it.
        let never = matches!(
            self,
            Scenario::Storm
                | Scenario::Memory
                | Scenario::Shared
                | Scenario::SharedCores
                | Scenario::Visitors
        );
        let keeps_damage = match self {
            Scenario::Corrupt => true,
            Scenario::Atomics => ahead(rng).chance(300_000),
            _ => !never && rng.chance(250_000),
        };
        if !keeps_damage {
            known.retain(|fault| *fault != Fault::UndetectedCorruption);
        }
        known
    }
}

/// A generator of its own, so that seeds without what it decides stay unchanged.
fn ahead(rng: &SeededEntropy) -> SeededEntropy {
    let mut ahead = rng.clone();
    for _ in 0..1_000 {
        ahead.below(2);
    }
    ahead
}
