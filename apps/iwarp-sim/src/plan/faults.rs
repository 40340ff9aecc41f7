//! Draws the faults and their times.

use core::ops::Range;

use ironwarp_sim::{Bursts, LinkConfig};
use ironwarp_types::{Nanos, SeededEntropy};

use super::{Change, Plan, log_uniform};
use crate::kinds::kinds;

kinds! {
    pub enum Fault {
        Loss,
        Bursts,
        Duplicate,
        Reorder,
        Corrupt,
        /// Corrupted payload under a valid checksum.
        UndetectedCorruption,
        Truncate,
        Jitter,
        SmallQueue,
        EcnMark,
        /// Links with a smaller MTU than the hosts.
        Mtu,
        /// Links that drop everything for a time.
        Outage,
        /// Links that hold frames back for a time.
        Pause,
        /// Transmit rings that accept few frames, or none for a time.
        TxRing,
        /// Buffer allocations that fail for a time.
        Allocation,
        /// Applications that poll rarely.
        SlowReader,
        /// Applications that drop their context and restart.
        Restart,
        /// Links that join segments and cut them elsewhere. In its own scenario alone: seeds of the
        /// others stay as they are.
        Regroup,
    }
}

/// Longer than SCTP tries with eleven timeouts of 400 ms at most.
const CUT_OFF_TIME: Nanos = Nanos::from_secs(6);

impl Plan {
    pub(super) fn draw_faults(&mut self, rng: &mut SeededEntropy) {
        for cable in 0..self.cables.len() {
            for direction in [0, 1] {
                // Link conditions change a few times.
                let changes = 1 + rng.below(3);
                for change in 0..changes {
                    let at = if change == 0 { Nanos::ZERO } else { Nanos(rng.below(self.heal_at.0)) };
                    let config = self.bad_link(cable, rng);
                    self.timeline.push((at, Change::Link { cable, direction, config }));
                }
            }
        }
        if self.has(Fault::Outage) {
            self.draw_gaps(rng, |link, _| link.is_down = true);
        }
        if self.has(Fault::Pause) {
            self.draw_gaps(rng, |link, end| link.paused_until = end);
        }
        for host in 0..self.hosts.len() {
            self.draw_shortages(host, rng);
        }
        // It relaxes the checks of its host's sessions, so most runs go without it.
        if self.has(Fault::Restart) && rng.chance(400_000) {
            for _ in 0..1 + rng.below(3) {
                let host = rng.below(self.hosts.len() as u64) as usize;
                self.timeline.push((Nanos(rng.below(self.heal_at.0)), Change::Restart { host }));
            }
        }
    }

    /// Hosts lose their links, and their applications drop the context during the outage: no peer
    /// gets an event.
    pub(super) fn draw_context_drops(&mut self, rng: &mut SeededEntropy) {
        for _ in 0..1 + rng.below(2) {
            let host = rng.below(self.hosts.len() as u64) as usize;
            let cable = host.min(self.cables.len() - 1);
            let start = Nanos(rng.below(self.heal_at.0));
            let end = (start + Nanos(log_uniform(rng, 16, 27))).min(self.heal_at);
            let when = start + Nanos(rng.below((end - start).0 + 1));
            self.change_for(cable, 0..2, (start, end), |link| link.is_down = true, rng);
            self.timeline.push((when, Change::Restart { host }));
        }
    }

    /// Every cable is down for most of the time until the links heal, and hosts wait longer than
    /// that for a start-up.
    pub(super) fn draw_slow_starts(&mut self, rng: &mut SeededEntropy) {
        // Shorter than the time in which an application gives up: sixty attempts.
        let outage = Nanos::from_millis(10_000 + rng.below(8_000));
        self.heal_at = outage + Nanos::from_millis(rng.below(2_000));
        for host in &mut self.hosts {
            host.config.mpa.startup_timeout_ms = (outage.0 / 1_000_000) * (1 + rng.below(2));
        }
        for cable in 0..self.cables.len() {
            let start = Nanos(rng.below(20_000_000));
            let directions = [0..1, 1..2, 0..2][rng.below(3) as usize].clone();
            self.change_for(cable, directions, (start, outage), |link| link.is_down = true, rng);
        }
        for session in &mut self.sessions {
            session.start = Nanos(rng.below(outage.0 / 4));
        }
    }

    /// Cuts the networks of hosts that are on two. In a third of the seeds one or both are cut for
    /// a time. In the others the cut is longer than SCTP tries: associations survive if it is of
    /// one network, and may end if it is of both.
    pub(super) fn draw_cuts(&mut self, rng: &mut SeededEntropy) {
        let (begin, kind) = (self.heal_at, rng.below(3));
        if kind == 0 {
            self.heal_at += Nanos(log_uniform(rng, 26, 30));
            for network in [0, 1, rng.below(2) as usize] {
                let start = Nanos(rng.below(self.heal_at.0));
                let end = start + Nanos(log_uniform(rng, 20, 29));
                self.cut(network, (start, end), rng);
            }
            let start = Nanos(rng.below(begin.0));
            let end = start + Nanos(log_uniform(rng, 20, 29));
            (0..self.networks).for_each(|network| self.cut(network, (start, end), rng));
        } else {
            self.heal_at += CUT_OFF_TIME;
            let (start, one) = (Nanos(rng.below(begin.0)), rng.below(2) as usize);
            let cut = if kind == 1 { one..one + 1 } else { 0..self.networks };
            cut.for_each(|network| self.cut(network, (start, self.heal_at), rng));
            self.sessions.iter_mut().for_each(|session| session.may_be_cut_off = kind == 2);
        }
        for host in &mut self.hosts {
            let sctp = &mut host.config.sctp;
            (sctp.rto_initial, sctp.rto_max) = (Nanos::from_millis(50), Nanos::from_millis(400));
            sctp.association_retries = if kind == 0 { 30 } else { 10 };
        }
    }

    /// Cuts a network for one host or all. One host may notice that its link is down.
    fn cut(&mut self, network: usize, (start, end): (Nanos, Nanos), rng: &mut SeededEntropy) {
        let end = end.min(self.heal_at);
        if rng.chance(300_000) {
            let host = rng.below(self.hosts.len() as u64) as usize;
            self.timeline.push((start, Change::Carrier { host, network, up: false }));
            self.timeline.push((end, Change::Carrier { host, network, up: true }));
            return;
        }
        let all = self.cables_of(network);
        let one = all.start + rng.below(all.len() as u64) as usize;
        let cables = if rng.chance(500_000) { all } else { one..one + 1 };
        for changed in cables {
            // Nothing else changes the cable meanwhile.
            self.timeline.retain(|(at, change)| {
                !matches!(change, Change::Link { cable, .. } if *cable == changed && start < *at && *at < end)
            });
            self.change_for(changed, 0..2, (start, end), |link| link.is_down = true, rng);
        }
    }

    /// Cores stand still, up to some seconds: suspended machines, threads without a processor.
    pub(super) fn draw_stalls(&mut self, rng: &mut SeededEntropy) {
        self.heal_at += Nanos(log_uniform(rng, 24, 32));
        for host in 0..self.hosts.len() {
            let cores = u64::from(self.hosts[host].config.core.count);
            for _ in 0..rng.below(4) {
                let start = Nanos(rng.below(self.heal_at.0));
                let until = (start + Nanos(log_uniform(rng, 16, 31))).min(self.heal_at);
                let all = rng.chance(500_000);
                for core in 0..cores {
                    if all || rng.below(cores) == 0 {
                        let core = core as usize;
                        self.timeline.push((start, Change::Stall { host, core, until }));
                    }
                }
            }
        }
    }

    /// Clocks that are set: far back, or forward by less than the shortest time-outs that end a
    /// connection.
    pub(super) fn draw_clock_steps(&mut self, rng: &mut SeededEntropy) {
        for host in 0..self.hosts.len() {
            let mut ahead = Nanos(1 << 42);
            self.timeline.push((Nanos::ZERO, Change::Clock { host, ahead }));
            let mut times: Vec<u64> = (0..rng.below(4)).map(|_| rng.below(self.heal_at.0)).collect();
            times.sort_unstable();
            for at in times {
                ahead = if rng.chance(500_000) {
                    Nanos(ahead.0.saturating_sub(log_uniform(rng, 10, 41)))
                } else {
                    ahead + Nanos(log_uniform(rng, 10, 30))
                };
                self.timeline.push((Nanos(at), Change::Clock { host, ahead }));
            }
        }
    }

    fn bad_link(&self, cable: usize, rng: &mut SeededEntropy) -> LinkConfig {
        let mut link = self.cables[cable].clone();
        let mut rate = |fault: Fault, high: u32| {
            if self.has(fault) && rng.chance(700_000) { log_uniform(rng, 6, high) as u32 } else { 0 }
        };
        link.loss_ppm = rate(Fault::Loss, 16);
        link.duplicate_ppm = rate(Fault::Duplicate, 17);
        link.reorder_ppm = rate(Fault::Reorder, 17);
        link.corrupt_ppm = rate(Fault::Corrupt, 15);
        link.corrupt_unseen_ppm = rate(Fault::UndetectedCorruption, 13);
        link.truncate_ppm = rate(Fault::Truncate, 15);
        link.mark_ppm = rate(Fault::EcnMark, 17);
        let begin_ppm = rate(Fault::Bursts, 14);
        if begin_ppm > 0 {
            let end_ppm = log_uniform(rng, 14, 19) as u32;
            link.bursts = Bursts { begin_ppm, end_ppm, loss_ppm: 500_000 + rng.below(500_001) as u32 };
        }
        if self.has(Fault::EcnMark) && rng.chance(500_000) {
            link.mark_above_bytes = u64::from(self.mtu_max()) * (1 + rng.below(20));
        }
        if self.has(Fault::Mtu) && rng.chance(300_000) {
            let least = if self.common.v6 { 1280 } else { 576 };
            link.mtu_bytes = least + rng.below(u64::from(self.mtu_max() - least) + 1) as u16;
            link.answers_too_big = rng.chance(700_000);
        }
        link.reorder_by = Nanos(log_uniform(rng, 10, 20));
        if self.has(Fault::Regroup) {
            link.regroup_ppm = rng.below(1_000_001) as u32;
        }
        if self.has(Fault::Jitter) {
            link.jitter = Nanos(rng.below(2 * link.delay.0 + 2));
        }
        if self.has(Fault::SmallQueue) {
            link.queue_bytes = u64::from(self.mtu_max()) * (2 + rng.below(30));
        }
        link
    }

    /// One direction of a cable, or both, drop or hold frames for a time.
    fn draw_gaps(&mut self, rng: &mut SeededEntropy, gap: impl Fn(&mut LinkConfig, Nanos)) {
        for cable in 0..self.cables.len() {
            let start = Nanos(rng.below(self.heal_at.0));
            let end = (start + Nanos(log_uniform(rng, 14, 26))).min(self.heal_at);
            let directions = [0..1, 1..2, 0..2][rng.below(3) as usize].clone();
            self.change_for(cable, directions, (start, end), |link| gap(link, end), rng);
        }
    }

    /// Changes directions of a cable for a time.
    fn change_for(
        &mut self,
        cable: usize,
        directions: Range<usize>,
        (start, end): (Nanos, Nanos),
        change: impl Fn(&mut LinkConfig),
        rng: &mut SeededEntropy,
    ) {
        for direction in directions {
            let after = self.bad_link(cable, rng);
            let mut config = after.clone();
            change(&mut config);
            self.timeline.push((start, Change::Link { cable, direction, config }));
            self.timeline.push((end, Change::Link { cable, direction, config: after }));
        }
    }

    /// Limits a device's transmit ring or its buffers for some periods.
    fn draw_shortages(&mut self, host: usize, rng: &mut SeededEntropy) {
        for _ in 0..rng.below(4) {
            let start = Nanos(rng.below(self.heal_at.0));
            let end = (start + Nanos(log_uniform(rng, 12, 23))).min(self.heal_at);
            if self.has(Fault::TxRing) {
                self.timeline.push((start, Change::TxBurst { host, frames: rng.below(5) }));
                self.timeline.push((end, Change::TxBurst { host, frames: u64::MAX }));
            }
            if self.has(Fault::Allocation) {
                self.timeline.push((start, Change::Allocations { host, left: rng.below(8) }));
                self.timeline.push((end, Change::Allocations { host, left: u64::MAX }));
            }
        }
    }
}
