//! The cores of a host, and in which order they are polled.
//!
//! One core is polled whenever its host is. Several are polled in random order, and now and then one stands still for a
//! while, so that what another has handed to it takes its time: a hop between two cores has no fixed length. A core does not
//! see before its next poll what another has handed to it, so all are polled again when one has had work.

use ironwarp::{ResourceUsage, Worker};
use ironwarp_types::{Nanos, SeededEntropy};

use super::host::{Tenant, earlier};
use crate::plan::HostPlan;

/// The cores of a host.
pub struct Cores {
    workers: Vec<Worker>,
    /// Until when each stands still.
    still_until: Vec<Nanos>,
    /// How often a core comes to stand still, polls in a million, and for how long at most.
    still_ppm: u32,
    still_max: Nanos,
    dice: SeededEntropy,
    /// Bursts that a core takes in one iteration.
    budget: usize,
}

impl Cores {
    /// Cores that stand still as the plan says.
    pub fn new(workers: Vec<Worker>, plan: &HostPlan) -> Self {
        Cores {
            still_until: vec![Nanos::ZERO; workers.len()],
            still_ppm: plan.still_ppm,
            still_max: plan.still_max,
            dice: SeededEntropy::new(plan.seed.rotate_left(32)),
            budget: plan.budget,
            workers,
        }
    }

    /// Polls those that do not stand still; the host's application may glance at its memory after each. Answers what they
    /// did, and when they want to be polled again.
    pub fn poll(&mut self, now: Nanos, tenant: &mut dyn Tenant) -> (usize, Option<Nanos>) {
        let (mut work, mut next) = (0, None);
        for core in self.order() {
            if self.stands_still(now, core) {
                next = earlier(next, Some(self.still_until[core]));
                continue;
            }
            let polled = self.workers[core].poll(self.budget);
            tenant.glance();
            work += polled.work;
            next = earlier(next, polled.next_deadline);
        }
        let again = self.workers.len() > 1 && work > 0;
        (work, if again { Some(now) } else { next })
    }

    fn order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.workers.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.dice.below(last as u64 + 1) as usize);
        }
        order
    }

    fn stands_still(&mut self, now: Nanos, core: usize) -> bool {
        if self.workers.len() > 1 && now >= self.still_until[core] && self.dice.chance(self.still_ppm) {
            self.still_until[core] = now + Nanos(1 + self.dice.below(self.still_max.0));
        }
        now < self.still_until[core]
    }

    /// Lets every core examine itself. Answers the first fault.
    pub fn examine(&mut self) -> Option<String> {
        self.workers.iter_mut().enumerate().find_map(|(core, worker)| {
            let fault = worker.check().err()?;
            Some(format!("core {core}: {fault}"))
        })
    }

    /// What each holds.
    pub fn resource_usage(&self) -> Vec<ResourceUsage> {
        self.workers.iter().map(Worker::resource_usage).collect()
    }
}
