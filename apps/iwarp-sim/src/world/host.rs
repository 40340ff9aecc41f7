//! A whole host: its cores, from verbs to frames, and the application on it.
//!
//! A stack has one core today, so a host holds one worker; the list is there for more.

use ironwarp::{Holdings, Stack, Worker};
use ironwarp_sim::Node;
use ironwarp_types::Nanos;

use crate::app::{App, SharedLedger};

/// A host.
pub struct Host {
    number: usize,
    /// Kept for its counters.
    stack: Stack,
    workers: Vec<Worker>,
    app: App,
    ledger: SharedLedger,
    /// Bursts that a core takes in one iteration.
    budget: usize,
    fault: Option<String>,
}

impl Host {
    /// A host over its stack.
    pub fn new(
        number: usize,
        stack: Stack,
        workers: Vec<Worker>,
        app: App,
        ledger: &SharedLedger,
        budget: usize,
    ) -> Self {
        Host { number, stack, workers, app, ledger: ledger.clone(), budget, fault: None }
    }

    /// The application gives up everything that it still has.
    pub fn close(&mut self) -> Result<(), String> {
        self.app.close().map_err(|error| format!("host {}: closing failed: {error}", self.number))
    }

    /// The application drops its context and begins anew.
    pub fn restart(&mut self, now: Nanos) -> Result<(), String> {
        let outcome = self.app.restart(&self.stack, now);
        outcome.map_err(|error| format!("host {}: beginning anew failed: {error}", self.number))
    }

    /// What the cores hold.
    pub fn holdings(&self) -> Vec<Holdings> {
        self.workers.iter().map(Worker::holdings).collect()
    }

    /// Counters that are not zero.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.stack.counters().into_iter().filter(|(_, value)| *value > 0).collect()
    }

    fn examine(&mut self) {
        let cores = self.workers.iter_mut().enumerate();
        let fault = cores.into_iter().find_map(|(core, worker)| {
            let fault = worker.check().err()?;
            Some(format!("core {core}: {fault}"))
        });
        self.fault = fault;
    }
}

impl Node for Host {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let (mut work, mut next) = (0, None);
        for worker in &mut self.workers {
            let polled = worker.poll(self.budget);
            work += polled.work;
            next = earlier(next, polled.next_deadline);
        }
        self.examine();
        if work > 0 {
            self.app.stir(now);
        }
        // What the application asks for is carried out when the loop comes round.
        if self.app.is_due(now) && self.app.look(now) {
            return Some(now);
        }
        earlier(next, self.app.next_look())
    }

    fn check(&self) -> Result<(), String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.ledger.borrow().fault.clone().map_or(Ok(()), Err)
    }
}

fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
