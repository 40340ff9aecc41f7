//! Draws hosts, cables and sessions from a seed.

use ironwarp::config::{FabricConfig, NetSettings};
use ironwarp::{Config, Extensions};
use ironwarp_port::TxOffloads;
use ironwarp_port::memory::MemoryConfig;
use ironwarp_sim::LinkConfig;
use ironwarp_types::{Entropy, MacAddr, Nanos, SeededEntropy};

use super::scenario::ScenarioParams;
use super::{
    Attack, BadRequest, Ending, Fault, HostPlan, HostilePlan, Placement, Plan, SessionPlan, SrqPlan,
    log_uniform,
};
use crate::adversary::Habit;

impl Plan {
    pub(super) fn draw_hosts(&mut self, count: usize, params: &ScenarioParams, rng: &mut SeededEntropy) {
        // RFC 8200 s5: the MTU of a link that carries IPv6 is at least 1280 bytes.
        let least = if self.common.v6 { 1280 } else { 576 };
        let mtu: u16 = match rng.below(10) {
            0..6 => 1500,
            6..8 => 9000,
            8 => least,
            _ => least + rng.below(3_000) as u16,
        };
        for number in 0..count {
            let slow = self.has(Fault::SlowReader) && rng.chance(500_000);
            let poll_interval = if slow { log_uniform(rng, 18, 22) } else { log_uniform(rng, 10, 16) };
            let mut config = self.stack_config(number, mtu, params, rng);
            let device = device(number, &config, rng);
            let (seed, secret) = (rng.next_u64(), [rng.next_u64(), rng.next_u64()]);
            // Half of the hosts that can. It changes no frame and draws no random number, so the
            // seed's traffic stays unchanged.
            config.ddp.place_out_of_order = config.mpa.markers && config.mpa.crc && secret[0] & 1 == 0;
            self.hosts.push(HostPlan {
                seed,
                secret,
                config,
                device,
                budget: 1 + rng.below(4) as usize,
                poll_interval: Nanos(poll_interval),
                batch: 1 + rng.below(8) as u32,
                completion_queues: 1 + rng.below(2) as usize,
                cq_depth: 4_096,
                sleep_ppm: event_ppm(params.queues_ppm, rng),
                resize_ppm: event_ppm(params.queues_ppm, rng),
                stall_ppm: 0,
                stall_max: Nanos(1),
                app_srq: None,
            });
        }
    }

    fn stack_config(
        &self,
        number: usize,
        mtu: u16,
        params: &ScenarioParams,
        rng: &mut SeededEntropy,
    ) -> Config {
        let addresses = self.common.addresses(0, number);
        let mut config = match Config::in_memory(&addresses[0]) {
            Ok(config) => config,
            Err(error) => unreachable!("the address is valid: {error}"),
        };
        config.net.addresses = addresses.into_iter().skip(1).collect();
        let room = (params.sessions * (100 + params.attack_percent) / 100) as u32 + 2;
        config.port.mtu = mtu;
        config.port.ring_size = Some(if params.small { 64 } else { 128 });
        let frames = if params.small { 128 + rng.below(128) as u32 } else { 512 };
        (config.port.rx_frames, config.port.tx_frames) = (frames, frames);
        config.tcp.rcv_window_bytes = if params.small { 131_072 } else { 131_072 << rng.below(4) };
        config.tcp.retransmit_queue_bytes_max = if params.small { 131_072 } else { 131_072 << rng.below(3) };
        config.tcp.rto_min = Nanos::from_micros(100 << rng.below(8));
        config.tcp.user_timeout = Nanos::from_secs(120);
        config.tcp.time_wait = self.time_wait;
        // A reject or reset may be lost, and a host may restart during an outage. Clients must have
        // time to detect that and to connect again.
        config.mpa.startup_timeout_ms = 10_000;
        config.mpa.terminate_timeout_ms = if params.abrupt_percent > 50 { 50 } else { 20_000 };
        config.mpa.first_fpdu_holdoff_us = if rng.chance(100_000) { 50 } else { 0 };
        let fewer = |rng: &mut SeededEntropy| 1 + rng.below(params.sessions) as u32;
        config.limits.queue_pairs = if params.tight_limits { fewer(rng) } else { 2 * room };
        config.limits.completion_queues = 12;
        config.limits.half_open = if params.tight_limits { fewer(rng) } else { room + 4 };
        config.limits.listeners = 2 * room;
        // A session with hundreds of requests may have as many grants at once.
        config.limits.regions = if params.tight_limits { 4 * fewer(rng) } else { 64 * room + 256 };
        config.limits.contexts = 3;
        config.limits.shared_receive_queues = 4;
        config.limits.read_depth = 32;
        // Bad requests have operations that are unknown. The atomics scenario turns them on for its
        // connections.
        config.rdmap.extensions = Extensions::Off;
        // Good and bad requests come from the same hosts.
        config.limits.protection_errors = 0;
        self.common.vary(&mut config, rng);
        config
    }

    /// Draws the longest retransmission timeout of half of the hosts, from 1 s on. All other draws
    /// of a seed stay unchanged.
    pub(super) fn draw_longest_timeouts(&mut self) {
        let mut rng = SeededEntropy::new(self.seed ^ LONGEST_TIMEOUTS_SALT);
        for host in &mut self.hosts {
            if rng.chance(500_000) {
                let longest = log_uniform(&mut rng, 20, 26).min(60_000_000);
                host.config.tcp.rto_max = Nanos::from_micros(longest);
            }
        }
    }

    pub(super) fn draw_cables(&mut self, rng: &mut SeededEntropy) {
        let count = if self.switched { self.hosts.len() } else { 1 };
        let delay = log_uniform(rng, 9, 21);
        let rate = [100, 1_000, 10_000, 25_000, 100_000][rng.below(5) as usize] * 1_000_000;
        for _ in 0..count {
            self.cables.push(LinkConfig {
                rate_bits_per_s: rate,
                delay: Nanos(delay / 2 + rng.below(delay)),
                queue_bytes: 1 << (19 + rng.below(3)),
                ..LinkConfig::default()
            });
        }
    }

    /// Puts all hosts on a second network, whose cables differ from those of the first.
    pub(super) fn draw_second_network(&mut self, rng: &mut SeededEntropy) {
        self.draw_cables(rng);
        for (number, host) in self.hosts.iter_mut().enumerate() {
            let config = &mut host.config;
            let (address, addresses) = (None, self.common.addresses(1, number));
            let net = NetSettings { address, addresses, ..config.net.clone() };
            config.fabrics.push(FabricConfig { port: config.port.clone(), net });
            config.sctp.multihoming = true;
            config.sctp.heartbeat_interval = Nanos::from_millis(50 + rng.below(500));
        }
    }

    pub(super) fn draw_sessions(&mut self, params: &ScenarioParams, rng: &mut SeededEntropy) {
        let per_side = (params.ops / params.sessions / 2).max(1);
        let bytes = (params.bytes / params.sessions / 2) as usize;
        for number in 0..params.sessions {
            let from = rng.below(self.hosts.len() as u64) as usize;
            // Some sessions connect a host to itself.
            let own = rng.chance(60_000);
            let step = if own { 0 } else { 1 + rng.below(self.hosts.len() as u64 - 1) as usize };
            let ops = [0, 1].map(|_| 1 + rng.below(2 * per_side) as u32);
            let hosts = [from, (from + step) % self.hosts.len()];
            let session = SessionPlan {
                key: rng.next_u64(),
                hosts,
                placement: hosts.map(|host| self.hosts[host].placement()),
                cores: hosts.map(|host| self.hosts[host].cores()),
                by_v6: self.common.use_ipv6(rng),
                port: 4_791 + rng.below(3) as u16,
                start: Nanos(rng.below(self.heal_at.0)),
                ending: ending(params, ops, rng),
                ops,
                bytes,
                bytes_max: message_bytes_max(bytes, rng),
                receives: 1 + rng.below(8) as u32,
                send_depth: 1 << rng.below(7),
                reads: [u16::from(self.common.rtr_is_read()), 1, 2, 16][rng.below(4) as usize],
                sges: [1, 3, 6, 16][rng.below(4) as usize],
                weights: [1 + rng.below(4) as u32, rng.below(4) as u32, rng.below(3) as u32],
                unsignaled_ppm: [0, 300_000, 900_000][rng.below(3) as usize],
                solicited_ppm: 200_000,
                fence_ppm: [0, 200_000][rng.below(2) as usize],
                complete_on_copy: rng.chance(150_000),
                grant_ppm: memory_ppm(params, rng),
                chain_max: [1, 4, 16][rng.below(3) as usize],
                local_tag_ppm: memory_ppm(params, rng),
                shared: [0, 1].map(|_| rng.below(100) < params.shared_percent),
                over_limits: params.tight_limits,
                ..SessionPlan::default()
            };
            // The first session starts at once, so that every run has traffic while links are
            // faulty.
            let start = if number == 0 { Nanos::ZERO } else { session.start };
            self.sessions.push(SessionPlan { start, ..session });
        }
    }
}

impl Plan {
    /// Draws shared receive queues. Sessions with small messages may use them.
    pub(super) fn draw_srqs(&mut self, params: &ScenarioParams, rng: &mut SeededEntropy) {
        for session in &mut self.sessions {
            let small = session.bytes_max <= SRQ_RECEIVE_BYTES_MAX && !params.tight_limits;
            session.shared = session.shared.map(|shared| shared && small);
        }
        for (number, host) in self.hosts.iter_mut().enumerate() {
            let uses = |session: &&SessionPlan| {
                [0, 1].into_iter().any(|side| session.shared[side] && session.hosts[side] == number)
            };
            let users = self.sessions.iter().filter(uses);
            let Some(room) = users.map(|session| session.bytes_max).max() else { continue };
            let (depth, sges) = (2 + rng.below(30) as u32, [1, 3, 16][rng.below(3) as usize]);
            host.app_srq = Some(SrqPlan { depth, room, sges });
        }
    }

    /// Draws a hostile host with sessions of its own, in addition to all others.
    pub(super) fn draw_attacks(&mut self, params: &ScenarioParams, rng: &mut SeededEntropy) {
        let Some(first) = self.hosts.first().filter(|_| params.attack_percent > 0) else { return };
        let hostile = self.hosts.len();
        let device = MemoryConfig {
            mac: MacAddr([2, 0, 0, 0, 0, hostile as u8 + 1]),
            mtu_bytes: first.device.mtu_bytes,
            ..MemoryConfig::default()
        };
        self.hostile = Some(HostilePlan { device, seed: rng.next_u64() });
        let cable = self.cables[0].clone();
        self.cables.push(cable);
        for _ in 0..params.sessions * params.attack_percent / 100 {
            let host = rng.below(hostile as u64) as usize;
            let mut attack = self.attack(hostile, host, rng);
            if params.abuses_tcp {
                let habit = Habit::ALL[rng.below(Habit::ALL.len() as u64) as usize];
                attack.ending = Ending::Attack { after: 0, attack: Attack::Habit(habit) };
            }
            self.sessions.push(attack);
        }
    }

    fn attack(&self, hostile: usize, host: usize, rng: &mut SeededEntropy) -> SessionPlan {
        let attack = Attack::ALL[rng.below(Attack::ALL.len() as u64) as usize];
        let usual = &self.sessions[rng.below(self.sessions.len() as u64) as usize];
        SessionPlan {
            key: rng.next_u64(),
            hosts: [hostile, host],
            placement: [Placement::InOrder, self.hosts[host].placement()],
            cores: [1, self.hosts[host].cores()],
            by_v6: false,
            start: Nanos(rng.below(self.heal_at.0)),
            ending: Ending::Attack { after: rng.below(12), attack },
            ops: [0, 1 + rng.below(20) as u32],
            bytes_max: 16 + rng.below(400) as usize,
            reads: 1 + rng.below(3) as u16,
            grant_ppm: 0,
            shared: [false; 2],
            over_limits: false,
            ..usual.clone()
        }
    }
}

impl HostPlan {
    /// Its device on a network.
    pub fn device_on(&self, network: usize) -> MemoryConfig {
        let mut device = self.device.clone();
        device.mac.0[4] = network as u8;
        device
    }

    pub(super) fn placement(&self) -> Placement {
        if self.config.ddp.place_out_of_order { Placement::OutOfOrder } else { Placement::InOrder }
    }
}

const SRQ_RECEIVE_BYTES_MAX: usize = 16_384;

fn device(number: usize, config: &Config, rng: &mut SeededEntropy) -> MemoryConfig {
    let ring = usize::from(config.port.ring_size());
    let tx_offloads = match rng.below(4) {
        0 => TxOffloads::all(),
        1 => TxOffloads::TCP_CHECKSUM,
        _ => TxOffloads::empty(),
    };
    MemoryConfig {
        mac: MacAddr([2, 0, 0, 0, 0, number as u8 + 1]),
        mtu_bytes: config.port.mtu,
        rx_frames: config.port.rx_frames as usize,
        tx_frames: config.port.tx_frames as usize,
        rx_ring_frames: ring,
        tx_ring_frames: ring,
        rx_checksum: rng.chance(500_000),
        tx_offloads,
        rss_hash: rng.chance(500_000),
        ..MemoryConfig::default()
    }
}

/// Grants and local tags, requests in a million.
fn memory_ppm(params: &ScenarioParams, rng: &mut SeededEntropy) -> u32 {
    let usual = [0, 0, 100_000, 400_000][rng.below(4) as usize];
    usual.max(params.memory_ppm / (1 + rng.below(4) as u32))
}

/// Polls in a million: few unless the scenario asks for many.
fn event_ppm(wanted_ppm: u32, rng: &mut SeededEntropy) -> u32 {
    let usual = [0, 0, 5_000][rng.below(3) as usize];
    usual.max(wanted_ppm / (1 + rng.below(4) as u32))
}

/// Bytes of the largest message: from a few to the session's total, at most 1 MiB.
fn message_bytes_max(bytes: usize, rng: &mut SeededEntropy) -> usize {
    let most = bytes.clamp(64, 1 << 20);
    match rng.below(4) {
        0 => (log_uniform(rng, 3, 12) as usize).min(most),
        1 => most,
        _ => (log_uniform(rng, 10, 18) as usize).min(most),
    }
}

fn ending(params: &ScenarioParams, ops: [u32; 2], rng: &mut SeededEntropy) -> Ending {
    let by = rng.below(2) as usize;
    if rng.below(100) < params.bad_request_percent {
        let after = rng.below(u64::from(ops[by]) + 1);
        let bad_request = BadRequest::ALL[rng.below(BadRequest::ALL.len() as u64) as usize];
        return Ending::BadRequest { by, after, bad_request };
    }
    if rng.below(100) >= params.abrupt_percent {
        return Ending::Graceful { by };
    }
    let after = rng.below(u64::from(ops[by]) + 1);
    match rng.below(10) {
        0 => Ending::Reject,
        1..6 => Ending::Early { by, after },
        _ => Ending::Destroy { by, after },
    }
}

/// Separates the random generator of the longest retransmission timeouts from all others.
const LONGEST_TIMEOUTS_SALT: u64 = 0x7274_6f5f_6d61_7831;

#[cfg(test)]
mod tests {
    use crate::plan::{Plan, Scenario};

    /// RFC 6298 s2.5: an upper limit of the timeout is allowed if it is 60 seconds at least.
    /// Shorter ones are for networks whose paths are known.
    #[test]
    fn the_longest_timeouts_of_hosts_differ_and_are_valid() {
        let plans = (0..50).map(|seed| Plan::new(seed, Scenario::Mixed));
        let timeouts: Vec<_> = plans
            .flat_map(|plan| plan.hosts)
            .map(|host| (host.config.validate(), host.config.tcp.rto_max.0 / 1_000))
            .collect();
        assert!(timeouts.iter().all(|(valid, us)| valid.is_ok() && (1_000_000..=60_000_000).contains(us)));
        assert!(
            timeouts.iter().any(|(_, us)| *us < 3_000_000)
                && timeouts.iter().any(|(_, us)| *us == 60_000_000)
        );
    }
}
