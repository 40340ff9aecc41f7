//! Named scenarios: which faults may occur, and what the hosts do.

use ironwarp::config::TransportKind;
use ironwarp_types::SeededEntropy;

use super::faults::Fault;
use crate::kinds::kinds;

kinds! {
    /// A named scenario. [`Scenario::help`] describes each.
    #[derive(Default)]
    #[allow(missing_docs)]
    pub enum Scenario {
        /// Its name on the command line, a description in one line, and its parameters where they
        /// are not the usual ones.
        fn row -> (&'static str, &'static str, Adjust);

        #[default]
        Mixed => ("mixed", "a random half of all faults, any number of connections", |_, _| ()),
        Lossy => ("lossy", "frames lost singly, in bursts and in full queues", |_, _| ()),
        Reorder => ("reorder", "frames out of order, duplicated and delayed", |_, _| ()),
        Outage => ("outage", "links that drop or hold frames for a time", |_, _| ()),
        Corrupt => ("corrupt", "frames damaged and truncated, also under a valid TCP checksum", |_, _| ()),
        Starved => ("starved", "small pools, rings and windows; buffer allocations that fail", |params, _| {
            params.small = true;
        }),
        Churn => ("churn", "many short connections with every kind of ending", |params, rng| {
            (params.sessions, params.ops, params.bytes) = (16 + rng.below(24), 200, 300_000);
            params.abrupt_percent = 60;
        }),
        ManyQps => ("many-qps", "many queue pairs between few hosts", |params, rng| {
            (params.sessions, params.ops, params.bytes) = (24 + rng.below(40), 600, 600_000);
            params.hosts = 2;
        }),
        Terminate => ("terminate",
            "bad requests of every kind, and other connections that must not be affected", |params, rng| {
            (params.sessions, params.ops, params.bytes) = (8 + rng.below(16), 500, 800_000);
            params.bad_request_percent = 60;
        }),
        Limits => ("limits", "more connections than hosts allow", |params, rng| {
            (params.sessions, params.ops, params.bytes) = (12 + rng.below(24), 400, 400_000);
            (params.abrupt_percent, params.tight_limits) = (40, true);
        }),
        Shared => ("shared", "many queue pairs on shared receive queues, which run low and empty", share),
        Memory => ("memory",
            "windows, fast regions, invalidated tags, fences and chains in random order", |params, _| {
            (params.bytes, params.bad_request_percent, params.memory_ppm) = (800_000, 15, 400_000);
        }),
        Queues => ("queues",
            "completion queues that applications sleep on and resize under load", |params, rng| {
            (params.sessions, params.bytes, params.queues_ppm) = (2 + rng.below(12), 800_000, 60_000);
        }),
        Storm => ("storm",
            "every error on every connection, by bad requests and by hostile frames; other connections must not be affected",
            |params, rng| {
            (params.sessions, params.ops, params.bytes) = (4 + rng.below(10), 600, 400_000);
            (params.abrupt_percent, params.bad_request_percent) = (10, 50);
            (params.attack_percent, params.tight_limits) = (150, false);
        }),
        Vanish => ("vanish", "hosts that disappear while their applications drop their contexts", |params, _| {
            (params.bytes, params.drops_contexts) = (800_000, true);
        }),
        // Words are few bytes, and each core has its own buffers.
        Atomics => ("atomics",
            "atomic operations, Reads and immediates of many connections on few words, hosts with 1 to 8 cores; histories must be linearizable",
            |params, _| {
            (params.sessions, params.shared_percent) = (12, 0);
            (params.small, params.tight_limits) = (true, false);
        }),
        Stalls => ("stalls", "cores that stand still for up to seconds, clocks that go back or jump ahead", |_, _| ()),
        Visitors => ("visitors",
            "peers that split SACKs, acknowledge single bytes, close windows, read nothing; other connections must not be affected",
            |params, rng| {
            (params.sessions, params.ops, params.bytes) = (2 + rng.below(6), 400, 600_000);
            (params.attack_percent, params.abuses_tcp, params.tight_limits) = (100, true, false);
        }),
        SlowStarts => ("slow-starts",
            "links down for up to 18 s, start-ups that take more than ten seconds", |params, _| {
            (params.ops, params.bytes, params.tight_limits) = (300, 400_000, false);
        }),
        SharedCores => ("shared-cores", "shared receive queues on hosts with up to three cores", share),
        SuperSegments => ("super-segments",
            "segments joined to super-segments, cut elsewhere than between FPDUs, and damaged", |_, _| ()),
        Sctp => ("sctp", "a random half of all faults, over SCTP", |_, _| ()),
        SctpAll => ("sctp-all", "what other scenarios do, over SCTP: a seed is of one of them", |_, _| ()),
        TwoLinks => ("two-links",
            "associations of SCTP over two networks: one cut or both, for a time or for longer than SCTP tries",
            |params, _| {
            (params.networks, params.tight_limits) = (2, false);
        }),
    }
}

/// The scenarios of [`Scenario::SctpAll`]. The hostile host and super-segments are of TCP. SCTP
/// gives up after a number of timeouts, and so before the outages of slow starts end.
const OVER_SCTP: [Scenario; 16] = {
    use Scenario::*;
    [
        ManyQps,
        Churn,
        Shared,
        Terminate,
        Limits,
        Memory,
        Queues,
        Vanish,
        Atomics,
        Stalls,
        SharedCores,
        Lossy,
        Reorder,
        Outage,
        Corrupt,
        Starved,
    ]
};

/// Sets the parameters of a scenario that differ from the usual ones.
type Adjust = fn(&mut ScenarioParams, &mut SeededEntropy);

fn share(params: &mut ScenarioParams, rng: &mut SeededEntropy) {
    (params.sessions, params.bytes) = (3 + rng.below(14), 800_000);
    (params.shared_percent, params.bad_request_percent) = (80, 25);
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ScenarioParams {
    pub hosts: usize,
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
    /// The networks that all hosts are on, each with cables of its own.
    pub networks: usize,
}

impl Scenario {
    pub fn name(self) -> &'static str {
        self.row().0
    }

    pub fn help(self) -> &'static str {
        self.row().1
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scenario| scenario.name() == name)
    }

    /// Returns the scenario of a seed, the seed that it has there, and the transport.
    pub(super) fn of_seed(self, seed: u64) -> (Self, u64, TransportKind) {
        let (count, at) = (OVER_SCTP.len() as u64, seed % OVER_SCTP.len() as u64);
        match self {
            Scenario::SctpAll => (OVER_SCTP[at as usize], seed / count, TransportKind::Sctp),
            Scenario::Sctp | Scenario::TwoLinks => (self, seed, TransportKind::Sctp),
            _ => (self, seed, TransportKind::Tcp),
        }
    }

    /// Returns whether some of its seeds have hosts with several cores.
    pub(super) fn allows_multicore(self) -> bool {
        use Scenario::*;
        matches!(self, Mixed | Queues | Storm | Vanish | Stalls | Visitors)
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
        let mut params = ScenarioParams {
            hosts,
            networks: 1,
            sessions: 1 + rng.below(8),
            ops: 200 + rng.below(1_000),
            bytes: 200_000 + rng.below(4_000_000),
            abrupt_percent: 20,
            bad_request_percent: if rng.chance(200_000) { 30 } else { 0 },
            small: rng.chance(250_000),
            tight_limits: rng.chance(50_000),
            shared_percent: [0, 0, 30][rng.below(3) as usize],
            ..ScenarioParams::default()
        };
        (self.row().2)(&mut params, rng);
        params
    }

    /// A random half of the scenario's faults.
    pub(super) fn faults(self, rng: &mut SeededEntropy) -> Vec<Fault> {
        use Fault::*;
        let mut known = match self {
            Scenario::Lossy => vec![Loss, Bursts, SmallQueue, Jitter, EcnMark],
            Scenario::Reorder => vec![Reorder, Duplicate, Jitter, Loss],
            Scenario::Outage => vec![Outage, Pause, Mtu, Loss, Jitter],
            Scenario::SlowStarts => vec![Loss, Jitter, Duplicate, Reorder],
            Scenario::TwoLinks => vec![Loss, Jitter, Duplicate, Reorder, Corrupt],
            Scenario::Stalls => vec![Loss, Jitter, SlowReader, Allocation],
            Scenario::Corrupt => vec![Corrupt, UndetectedCorruption, Truncate, Loss],
            Scenario::Starved => vec![TxRing, Allocation, SlowReader, SmallQueue, Loss],
            Scenario::SuperSegments => {
                vec![
                    Loss,
                    Reorder,
                    Duplicate,
                    Corrupt,
                    UndetectedCorruption,
                    Truncate,
                    SmallQueue,
                    Allocation,
                ]
            }
            _ => Fault::ALL.iter().copied().filter(|fault| *fault != Regroup).collect(),
        };
        let keep = known.len().div_ceil(2);
        while known.len() > keep {
            known.remove(rng.below(known.len() as u64) as usize);
        }
        // It relaxes the checks of every stream that it ends, so most runs go without it.
        let never =
            matches!(self, Self::Storm | Self::Memory | Self::Shared | Self::SharedCores | Self::Visitors);
        let keeps_damage = match self {
            Scenario::Corrupt | Scenario::SuperSegments => true,
            Scenario::Atomics => ahead(rng).chance(300_000),
            _ => !never && rng.chance(250_000),
        };
        if !keeps_damage {
            known.retain(|fault| *fault != UndetectedCorruption);
        }
        if self == Scenario::SuperSegments {
            known.push(Regroup);
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
