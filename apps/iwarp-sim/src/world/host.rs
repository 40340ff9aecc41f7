//! A whole host: its cores, from verbs to frames, and the application on it.

use ironwarp::{Stack, Worker};
use ironwarp_sim::Node;
use ironwarp_types::Nanos;

use super::cores::Cores;
use super::host_clock::HostClock;
use crate::app::{App, SharedOracle};
use crate::plan::HostPlan;

pub struct Host {
    number: usize,
    pub(super) clock: HostClock,
    pub(super) stack: Stack,
    pub(super) cores: Cores,
    app: App,
    oracle: SharedOracle,
    fault: Option<String>,
}

impl Host {
    /// A host with its stack and application.
    pub fn new(
        number: usize,
        clock: HostClock,
        (stack, workers): (Stack, Vec<Worker>),
        app: App,
        oracle: &SharedOracle,
        plan: &HostPlan,
    ) -> Self {
        let cores = Cores::new(workers, plan);
        Host { number, clock, stack, cores, app, oracle: oracle.clone(), fault: None }
    }

    /// The application destroys everything that it still has.
    pub fn close(&mut self) -> Result<(), String> {
        self.app.close().map_err(|error| format!("host {}: closing failed: {error}", self.number))
    }

    /// The application drops its context and restarts.
    pub fn restart(&mut self, now: Nanos) -> Result<(), String> {
        let outcome = self.app.restart(&self.stack, now);
        outcome.map_err(|error| format!("host {}: restarting failed: {error}", self.number))
    }
}

impl Node for Host {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let (work, next) = self.cores.poll(now, &self.clock, &mut self.app);
        self.fault = self.cores.check_invariants();
        if work > 0 {
            self.app.on_core_work(now);
        }
        // The cores execute the application's calls in the next iteration.
        if self.app.is_due(now) && self.app.poll(now) {
            return Some(now);
        }
        next.into_iter().chain(self.app.next_poll()).min()
    }

    fn check(&self) -> Result<(), String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.oracle.borrow().fault.clone().map_or(Ok(()), Err)
    }
}
