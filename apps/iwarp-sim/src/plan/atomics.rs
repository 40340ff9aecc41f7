//! Draws the plan of atomic operations from several hosts on few words of one host: the number of
//! cores, the words, the sessions, and how each session ends.
//!
//! Host 0 is the server of the words; all others are clients. Sources: RFC 7306 s5, s6 and s8.

use ironwarp::config::{AtomicExecution, Extensions};
use ironwarp::memory::QueueRule;
use ironwarp_types::{Nanos, SeededEntropy};

use super::scenario::ScenarioParams;
use super::{BadRequest, Change, Ending, HostPlan, Plan, Scenario, SessionPlan, WordsMix, log_uniform};
use crate::kinds::kinds;

/// The plan of the words.
#[derive(Clone, Debug)]
pub struct AtomicsPlan {
    pub words: usize,
    /// Distance between adjacent words, in bytes.
    pub stride: usize,
    /// The operands of operations.
    pub values: Values,
    /// What connections carry.
    pub extensions: Extensions,
    /// Number of the server's own operations.
    pub local_ops: u32,
    /// The core that owns all words.
    pub pin: Option<u16>,
    /// After how many requests of all clients the words' own region is invalidated, and every tag
    /// with it.
    pub page_revoked_after: Option<u32>,
}

/// The operands of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Numbers and masks of 64 bits: hardly any value recurs.
    Wide,
    /// Small numbers: many values recur.
    Small,
}

kinds! {
    /// A bad atomic request.
    pub enum BadAtomic {
        /// Layer, type and code of the expected Terminate (RFC 7306 s8.2, RFC 5040 s4.8).
        pub fn terminate -> (u8, u8, u8);

        /// On four bytes of one word and four of the next.
        Misaligned => (0, 2, 7),
        /// On a word after the end of the memory.
        Beyond => (0, 1, 1),
        /// By a tag without the access right.
        NoRight => (0, 1, 2),
        /// By an unknown tag.
        Unknown => (0, 1, 0),
    }
}

impl Plan {
    pub(super) fn draw_sessions_on_words(&mut self, rng: &mut SeededEntropy) {
        for number in 0..self.hosts.len() {
            let cores = 1 + rng.below(if number == 0 { 8 } else { 3 }) as u16;
            self.hosts[number].set_cores(cores, rng);
            self.hosts[number].sleep_ppm = 0;
        }
        let words = 1 + rng.below(6) as usize;
        let values = if rng.chance(600_000) { Values::Wide } else { Values::Small };
        let extensions = if rng.chance(800_000) { Extensions::Rfc7306 } else { Extensions::Draft03 };
        let stride = [8, 8, 64, 192][rng.below(4) as usize];
        // Recurring values allow many orders, so these histories are shorter.
        let (conns, ops) = if values == Values::Wide { (10, 500) } else { (5, 120) };
        let count = 1 + rng.below(conns) as u32;
        let per_conn = (50 + rng.below(ops) as u32) / count;
        for number in 0..count {
            let session = self.session_on_words(number, per_conn.max(4), extensions, rng);
            self.sessions.push(session);
        }
        let (local_ops, pin, page_revoked_after) = (0, None, None);
        let mut atomics =
            AtomicsPlan { words, stride, values, extensions, local_ops, pin, page_revoked_after };
        // A separate random generator: seeds without these features stay unchanged.
        let mut server_rng = SeededEntropy::new(self.seed ^ SERVER_SALT);
        atomics.draw_server(&mut self.sessions, self.hosts[0].config.core.count, &mut server_rng);
        let mut sharing_rng = SeededEntropy::new(self.seed ^ SHARING_SALT);
        self.hosts[0].config.rdmap.atomic_share_after = [0, 1, 4, 16][sharing_rng.below(4) as usize];
        self.atomics = Some(atomics);
    }

    /// Draws hosts of up to four cores, in a quarter of the seeds of scenarios that allow them. All
    /// other seeds stay unchanged. [`Plan::draw_shared_cores`] does so for shared receive queues.
    pub(super) fn draw_cores(&mut self, scenario: Scenario, params: &ScenarioParams) {
        let mut rng = SeededEntropy::new(self.seed ^ CORES_SALT);
        if scenario.allows_multicore() && params.shared_percent == 0 && rng.chance(250_000) {
            self.hosts.iter_mut().for_each(|host| host.set_cores(1 + rng.below(4) as u16, &mut rng));
        }
    }

    /// Draws hosts of up to three cores for shared receive queues, where a queue has receives for
    /// each core. No message finds it empty on purpose, since the receives of other cores cannot be
    /// used up.
    pub(super) fn draw_shared_cores(&mut self) {
        let mut rng = SeededEntropy::new(self.seed ^ CORES_SALT);
        for host in &mut self.hosts {
            host.set_cores(1 + rng.below(3) as u16, &mut rng);
            let cores = u32::from(host.config.core.count);
            host.app_srq.iter_mut().for_each(|srq| srq.depth *= cores);
        }
        for session in &mut self.sessions {
            session.cores = session.hosts.map(|host| self.hosts[host].cores());
            if matches!(session.ending, Ending::BadRequest { bad_request: BadRequest::SendUnexpected, .. }) {
                session.ending = Ending::Graceful { by: 0 };
            }
        }
    }

    /// The server of the words never restarts.
    pub(super) fn exempt_server_from_restart(&mut self) {
        self.timeline.retain(|(_, change)| !matches!(change, Change::Restart { host: 0 }));
    }

    fn session_on_words(
        &self,
        number: u32,
        ops: u32,
        extensions: Extensions,
        rng: &mut SeededEntropy,
    ) -> SessionPlan {
        let ops = 1 + rng.below(2 * u64::from(ops)) as u32;
        let after = rng.below(u64::from(ops) + 1);
        let bad_atomic = BadAtomic::ALL[rng.below(4) as usize];
        let ending = match rng.below(10) {
            0..6 => Ending::Graceful { by: 0 },
            6..8 => Ending::BadRequest { by: 0, after, bad_request: BadRequest::Atomic(bad_atomic) },
            _ => Ending::Destroy { by: rng.below(2) as usize, after },
        };
        let start = if number == 0 { Nanos::ZERO } else { Nanos(rng.below(self.heal_at.0)) };
        let hosts = [1 + rng.below(self.hosts.len() as u64 - 1) as usize, 0];
        let mut session = SessionPlan {
            key: self.seed ^ u64::from(number) << 32,
            hosts,
            by_v6: self.common.use_ipv6(rng),
            port: 4_791,
            start,
            ending,
            ops: [ops, rng.below(30) as u32],
            bytes_max: 512,
            send_depth: 4 << rng.below(5),
            reads: [1, 2, 4, 16][rng.below(4) as usize],
            receives: 1 + rng.below(8) as u32,
            sges: 1 + number as usize % 3,
            weights: [1, 0, 0],
            words: Some(WordsMix { weights: [2 + rng.below(6), rng.below(3), rng.below(3)], revoked: None }),
            unsignaled_ppm: [0, 300_000, 900_000][rng.below(3) as usize],
            solicited_ppm: 300_000,
            fence_ppm: [0, 0, 200_000][rng.below(3) as usize],
            chain_max: 1 + u64::from(number) % 4,
            placement: hosts.map(|host| self.hosts[host].placement()),
            cores: hosts.map(|host| self.hosts[host].cores()),
            extensions: Some(extensions),
            ..SessionPlan::default()
        };
        // The server posts no more requests than its messages.
        let messages = u64::from(session.ops[1]);
        if let Ending::Destroy { by: 1, after } = &mut session.ending {
            *after = messages.min(*after);
        }
        session
    }
}

/// Separates the random generator of the core count from all others.
const CORES_SALT: u64 = 0x636f_7265_732e_2e32;

/// Separates the random generator of shared lines from all others.
const SHARING_SALT: u64 = 0x7368_6172_6564_2e33;

/// Separates the random generator of the server's own operations from all others.
const SERVER_SALT: u64 = 0x6b65_6570_6572_2e31;

impl AtomicsPlan {
    /// Draws the server's own work, in half of the seeds: local operations, and invalidations while
    /// requests are in flight.
    fn draw_server(&mut self, sessions: &mut [SessionPlan], cores: u16, rng: &mut SeededEntropy) {
        if rng.chance(500_000) {
            return;
        }
        self.local_ops = if rng.chance(600_000) { 1 + rng.below(60) as u32 } else { 0 };
        self.pin = rng.chance(200_000).then(|| rng.below(cores.into()) as u16);
        let graceful = |session: &&mut SessionPlan| matches!(session.ending, Ending::Graceful { .. });
        for session in sessions.iter_mut().filter(graceful) {
            let revoked = rng
                .chance(500_000)
                .then(|| (rng.below(u64::from(session.ops[0]) + 1), 1 + rng.below(2) as usize));
            session.words.iter_mut().for_each(|mix| mix.revoked = revoked);
        }
        if rng.chance(250_000) {
            let asked: u32 = sessions.iter().map(|session| session.ops[0]).sum();
            self.page_revoked_after = Some(1 + rng.below(asked.into()) as u32);
            // The invalidation needs established sessions, so all of them start together.
            sessions.iter_mut().for_each(|session| session.start = Nanos(rng.below(20_000)));
        }
    }
}

impl HostPlan {
    pub fn cores(&self) -> usize {
        self.config.core.count.into()
    }

    fn set_cores(&mut self, cores: u16, rng: &mut SeededEntropy) {
        self.config.core.count = cores;
        let locked = rng.chance(150_000);
        self.config.rdmap.atomic_execution =
            if locked { AtomicExecution::Locked } else { AtomicExecution::OwnerCore };
        // Words are small, so each core needs few buffers.
        self.config.port.mtu = self.config.port.mtu.min(1500);
        self.device.mtu_bytes = self.config.port.mtu;
        let ring = self.config.port.ring_size();
        // Data that one core passes to another stays in the buffers of the queue that received it.
        let frames = u32::from(ring) + 512 * u32::from(cores);
        self.config.port.rx_frames = self.config.port.rx_frames.max(frames);
        self.device.rx_frames = self.config.port.rx_frames as usize;
        self.device.queue_rule = match rng.below(3) {
            0 => QueueRule::Toeplitz,
            1 => QueueRule::All(rng.below(cores.into()) as u16),
            _ => QueueRule::AsSent,
        };
        self.stall_ppm = [0, 20_000, 300_000][rng.below(3) as usize];
        self.stall_max = Nanos(log_uniform(rng, 8, 17));
    }
}
