//! Atomic operations from several hosts on few words of one: how many cores, which words, which connections, and how each
//! connection ends.
//!
//! Host 0 keeps the words; all others call it. Sources: RFC 7306 s5, s6 and s8.

use ironwarp::config::{AtomicsBy, Extensions};
use ironwarp::memory::QueueRule;
use ironwarp_types::{Nanos, SeededEntropy};

use super::scenario::Shape;
use super::{Change, HostPlan, Plan, Scenario, log_uniform};

/// What the hosts have to do.
#[derive(Clone, Debug)]
pub struct AtomicsPlan {
    /// Words.
    pub words: usize,
    /// Bytes from one to the next.
    pub stride: usize,
    /// What operations are made of.
    pub values: Values,
    /// What connections carry.
    pub extensions: Extensions,
    /// Connections, in order of their beginning.
    pub calls: Vec<CallPlan>,
    /// Operations of the keeper's own.
    pub locals: u32,
    /// The core that all words are pinned to.
    pub pin: Option<u16>,
    /// After how many requests of all callers the words' own region ends, and every name with it.
    pub page_ends_after: Option<u32>,
}

/// What operations are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Numbers of 64 bits and masks, so that hardly any value comes back.
    Wide,
    /// Small numbers, so that many do.
    Small,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct CallPlan {
    /// Who calls.
    pub host: usize,
    /// Whether by IPv6.
    pub by_v6: bool,
    /// When.
    pub start: Nanos,
    /// Requests of the caller.
    pub ops: u32,
    /// Messages of the host that keeps the words.
    pub messages: u32,
    /// Depth of the send queues.
    pub send_depth: u32,
    /// Reads and atomic operations outstanding.
    pub reads: u16,
    /// Receives that each side keeps posted.
    pub receives: u32,
    /// How often operations, Reads of words and messages are chosen, in relation to each other.
    pub weights: [u64; 3],
    /// Requests that tell only failure, in a million.
    pub unsignaled_ppm: u32,
    /// Requests that wait for earlier Reads, in a million.
    pub fence_ppm: u32,
    /// How it ends.
    pub ending: CallEnding,
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEnding {
    /// The caller disconnects when everything has been done.
    Graceful,
    /// A side gives its queue pair up when the caller has posted so many requests.
    Destroy {
        /// 0 the caller, 1 the keeper.
        by: usize,
        /// Requests before that.
        after: u32,
    },
    /// The keeper ends one of the names of the words when the caller has posted so many requests. Whoever goes on to use it
    /// is Terminated.
    Revoked {
        /// Requests before that.
        after: u32,
        /// Which of the connection's names.
        name: usize,
    },
    /// The caller's last request, behind so many, is one that must not be.
    Wrong {
        /// Requests before that.
        after: u32,
        /// What it does.
        wrong: Wrong,
    },
}

/// An atomic request that must not be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Of four bytes of one word and four of the next.
    Misaligned,
    /// Of a word beyond the memory.
    Beyond,
    /// By a tag without the right.
    NoRight,
    /// By a tag that nobody has.
    Unknown,
}

impl Wrong {
    /// Every one.
    pub const ALL: [Wrong; 4] = [Wrong::Misaligned, Wrong::Beyond, Wrong::NoRight, Wrong::Unknown];

    /// Layer, type and code of the Terminate in answer (RFC 7306 s8.2, RFC 5040 s4.8).
    pub fn terminate(self) -> (u8, u8, u8) {
        match self {
            Wrong::Misaligned => (0, 2, 7),
            Wrong::Beyond => (0, 1, 1),
            Wrong::NoRight => (0, 1, 2),
            Wrong::Unknown => (0, 1, 0),
        }
    }
}

impl Plan {
    /// Takes the sessions' place.
    pub(super) fn draw_calls(&mut self, dice: &mut SeededEntropy) {
        for number in 0..self.hosts.len() {
            let cores = 1 + dice.below(if number == 0 { 8 } else { 3 }) as u16;
            self.hosts[number].have_cores(cores, dice);
            self.hosts[number].sleep_ppm = 0;
        }
        let words = 1 + dice.below(6) as usize;
        let values = if dice.chance(600_000) { Values::Wide } else { Values::Small };
        let extensions = if dice.chance(800_000) { Extensions::Rfc7306 } else { Extensions::Draft03 };
        let stride = [8, 8, 64, 192][dice.below(4) as usize];
        // Where values come back there are many orders to try, so there is less to order.
        let (calls, ops) = if values == Values::Wide { (10, 500) } else { (5, 120) };
        let count = 1 + dice.below(calls) as u32;
        let per_call = (50 + dice.below(ops) as u32) / count;
        let calls = (0..count).map(|number| self.call(number, per_call.max(4), dice)).collect();
        let (locals, pin, page_ends_after) = (0, None, None);
        let mut atomics =
            AtomicsPlan { words, stride, values, extensions, calls, locals, pin, page_ends_after };
        // Chance of its own: the seeds without any of it stay as they are.
        atomics
            .draw_keeper(self.hosts[0].config.core.count, &mut SeededEntropy::new(self.seed ^ KEEPER_SALT));
        self.atomics = Some(atomics);
    }

    /// Hosts of up to four cores, in a quarter of the seeds of scenarios that know them. All other seeds stay as they are.
    /// A shared receive queue has a part on each core and a limit for each, of which its model knows nothing.
    pub(super) fn draw_cores(&mut self, scenario: Scenario, shape: &Shape) {
        let mut dice = SeededEntropy::new(self.seed ^ CORES_SALT);
        if scenario.knows_cores() && shape.shared_percent == 0 && dice.chance(250_000) {
            self.hosts.iter_mut().for_each(|host| host.have_cores(1 + dice.below(4) as u16, &mut dice));
        }
    }

    /// The host that keeps the words never begins anew.
    pub(super) fn spare_keeper(&mut self) {
        self.timeline.retain(|(_, change)| !matches!(change, Change::Restart { host: 0 }));
    }

    fn call(&self, number: u32, ops: u32, dice: &mut SeededEntropy) -> CallPlan {
        let ops = 1 + dice.below(2 * u64::from(ops)) as u32;
        let after = dice.below(u64::from(ops) + 1) as u32;
        let wrong = Wrong::ALL[dice.below(4) as usize];
        let ending = match dice.below(10) {
            0..6 => CallEnding::Graceful,
            6..8 => CallEnding::Wrong { after, wrong },
            _ => CallEnding::Destroy { by: dice.below(2) as usize, after },
        };
        let start = if number == 0 { Nanos::ZERO } else { Nanos(dice.below(self.heal_at.0)) };
        CallPlan {
            host: 1 + dice.below(self.hosts.len() as u64 - 1) as usize,
            by_v6: self.common.family(dice),
            start,
            ops,
            messages: dice.below(30) as u32,
            send_depth: 4 << dice.below(5),
            reads: [1, 2, 4, 16][dice.below(4) as usize],
            receives: 1 + dice.below(8) as u32,
            weights: [2 + dice.below(6), dice.below(3), dice.below(3)],
            unsignaled_ppm: [0, 300_000, 900_000][dice.below(3) as usize],
            fence_ppm: [0, 0, 200_000][dice.below(3) as usize],
            ending,
        }
    }
}

/// Sets the chance that hosts have several cores apart from everything else that is drawn.
const CORES_SALT: u64 = 0x636f_7265_732e_2e32;

/// Sets the keeper's chance apart from everybody else's.
const KEEPER_SALT: u64 = 0x6b65_6570_6572_2e31;

impl AtomicsPlan {
    /// What the keeper does beside keeping, in half of the seeds: operations of its own, names that end while requests fly.
    fn draw_keeper(&mut self, cores: u16, dice: &mut SeededEntropy) {
        if dice.chance(500_000) {
            return;
        }
        self.locals = if dice.chance(600_000) { 1 + dice.below(60) as u32 } else { 0 };
        self.pin = dice.chance(200_000).then(|| dice.below(cores.into()) as u16);
        for call in self.calls.iter_mut().filter(|call| call.ending == CallEnding::Graceful) {
            if dice.chance(500_000) {
                let (after, name) = (dice.below(u64::from(call.ops) + 1) as u32, 1 + dice.below(2) as usize);
                call.ending = CallEnding::Revoked { after, name };
            }
        }
        if dice.chance(250_000) {
            let asked: u32 = self.calls.iter().map(|call| call.ops).sum();
            self.page_ends_after = Some(1 + dice.below(asked.into()) as u32);
            // It ends under connections that are up, so they begin together.
            self.calls.iter_mut().for_each(|call| call.start = Nanos(dice.below(20_000)));
        }
    }
}

impl HostPlan {
    /// Cores of its stack.
    pub fn cores(&self) -> usize {
        self.config.core.count.into()
    }

    fn have_cores(&mut self, cores: u16, dice: &mut SeededEntropy) {
        self.config.core.count = cores;
        let locked = dice.chance(150_000);
        self.config.rdmap.atomics = if locked { AtomicsBy::Locked } else { AtomicsBy::Owner };
        // Words are small; each core's buffers need not be large.
        self.config.port.mtu = self.config.port.mtu.min(1500);
        self.device.mtu_bytes = self.config.port.mtu;
        let ring = self.config.port.ring;
        // What is handed from core to core stays in the buffers of the queue that it came by.
        let frames = u32::from(ring) + 512 * u32::from(cores);
        self.config.port.rx_frames = self.config.port.rx_frames.max(frames);
        self.device.rx_frames = self.config.port.rx_frames as usize;
        self.device.queue_rule = match dice.below(3) {
            0 => QueueRule::Toeplitz,
            1 => QueueRule::All(dice.below(cores.into()) as u16),
            _ => QueueRule::AsSent,
        };
        self.still_ppm = [0, 20_000, 300_000][dice.below(3) as usize];
        self.still_max = Nanos(log_uniform(dice, 8, 17));
    }
}
