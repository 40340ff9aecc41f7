//! The cores of a host, and the order in which they are polled.
//!
//! A single core is polled whenever its host is. Several cores are polled in random order, and some
//! stall for a while, so that the delay of a message between two cores varies. A core sees messages
//! of other cores only at its next poll, so all cores are polled again when one has had work.

use ironwarp::{ResourceUsage, Worker};
use ironwarp_types::{Nanos, SeededEntropy};

use super::host_clock::HostClock;
use crate::app::App;
use crate::plan::HostPlan;

/// The cores of a host.
pub struct Cores {
    workers: Vec<Worker>,
    /// The end of each core's stall.
    stalled_until: Vec<Nanos>,
    /// How often a core stalls, polls in a million, and the longest stall.
    stall_ppm: u32,
    stall_max: Nanos,
    rng: SeededEntropy,
    /// Bursts that a core takes in one iteration.
    budget: usize,
}

impl Cores {
    /// Cores that stall as the plan says.
    pub fn new(workers: Vec<Worker>, plan: &HostPlan) -> Self {
        Cores {
            stalled_until: vec![Nanos::ZERO; workers.len()],
            stall_ppm: plan.stall_ppm,
            stall_max: plan.stall_max,
            rng: SeededEntropy::new(plan.seed.rotate_left(32)),
            budget: plan.budget,
            workers,
        }
    }

    /// Stops a core until `until`.
    pub fn stall(&mut self, core: usize, until: Nanos) {
        if let Some(stalled_until) = self.stalled_until.get_mut(core) {
            *stalled_until = until.max(*stalled_until);
        }
    }

    /// Polls the cores that are not stalled; the application may inspect its memory after each.
    /// Returns the amount of work, and when the cores want to be polled again.
    pub fn poll(&mut self, now: Nanos, clock: &HostClock, app: &mut App) -> (usize, Option<Nanos>) {
        let (mut work, mut next) = (0, None);
        for core in self.order() {
            if self.is_stalled(now, core) {
                next = next.into_iter().chain([self.stalled_until[core]]).min();
                continue;
            }
            let polled = self.workers[core].poll(self.budget);
            app.on_core_polled();
            work += polled.work;
            let deadline = polled.next_deadline.map(|deadline| clock.to_simulation(now, deadline));
            next = next.into_iter().chain(deadline).min();
        }
        let again = self.workers.len() > 1 && work > 0;
        (work, if again { Some(now) } else { next })
    }

    fn order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.workers.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.rng.below(last as u64 + 1) as usize);
        }
        order
    }

    fn is_stalled(&mut self, now: Nanos, core: usize) -> bool {
        if self.workers.len() > 1 && now >= self.stalled_until[core] && self.rng.chance(self.stall_ppm) {
            self.stalled_until[core] = now + Nanos(1 + self.rng.below(self.stall_max.0));
        }
        now < self.stalled_until[core]
    }

    /// Checks the invariants of every core. Returns the first fault.
    pub fn check_invariants(&mut self) -> Option<String> {
        self.workers.iter_mut().enumerate().find_map(|(core, worker)| {
            let fault = worker.check().err()?;
            Some(format!("core {core}: {fault}"))
        })
    }

    pub fn resource_usage(&self) -> Vec<ResourceUsage> {
        self.workers.iter().map(Worker::resource_usage).collect()
    }
}
