//! One run: builds hosts and links, applies the faults, and runs until the last buffer is returned.
//!
//! Takes a [`Plan`]; returns an [`Outcome`] or the first fault. Faults stop at the plan's
//! `heal_at`. From then on the links are healthy, and every session must end within a bounded time.
//! Then the applications destroy everything, and every buffer, table entry and timer must be free
//! again.

mod build;
mod cores;
mod host;
mod host_clock;
mod switch;

use ironwarp::ResourceUsage;
use ironwarp_port::instrument::Capture;
use ironwarp_port::memory::{MemoryControl, PoolLevels};
use ironwarp_sim::{LinkId, Node, NodeId, PortId, SimNet};
use ironwarp_types::Nanos;

pub use host::Host;
pub use switch::Switch;

use crate::app::{SharedOracle, Totals};
use crate::plan::{Change, Plan};
use crate::tcp::SharedNode;
use crate::text;

/// The result of a run that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The hash of every frame, event and completion.
    pub hash: u64,
    pub totals: Totals,
    pub frames: u64,
    /// The virtual time that passed.
    pub took: Nanos,
}

/// Everything that a plan describes.
pub struct World {
    net: SimNet<Box<dyn Node>>,
    oracle: SharedOracle,
    hosts: Vec<(NodeId, SharedNode<Host>)>,
    /// The ports of the hosts, for each network in turn.
    ports: Vec<PortId>,
    /// The queues of each host's devices, for each network in turn.
    devices: Vec<Vec<MemoryControl>>,
    /// Free buffers of each queue at the start.
    pools: Vec<Vec<PoolLevels>>,
    /// The links of each cable of the plan, one per direction.
    cables: Vec<[LinkId; 2]>,
    plan: Plan,
}

impl World {
    /// Runs the plan to its end. Writes the frames to `capture`, if given.
    pub fn run(plan: &Plan, capture: Option<&Capture>) -> Result<Outcome, String> {
        let mut world = World::build(plan)?;
        if let Some(capture) = capture {
            world.net.capture(capture).map_err(text)?;
        }
        let outcome = world.run_to_end();
        outcome.map_err(|fault| format!("at {:?}: {fault}", world.net.now()))
    }

    fn run_to_end(&mut self) -> Result<Outcome, String> {
        for (at, change) in self.plan.timeline.clone() {
            self.net.run_until(at).map_err(text)?;
            self.apply(&change)?;
        }
        self.net.run_until(self.plan.heal_at).map_err(text)?;
        self.heal();
        self.finish_sessions()?;
        let took = self.net.now();
        self.close()?;
        self.check_conservation()?;
        let oracle = self.oracle.borrow();
        let frames = self.cables.iter().flatten().map(|link| self.net.link(*link).counts().offered).sum();
        let hash = self.net.trace_hash() ^ oracle.hash.value().rotate_left(1);
        Ok(Outcome { hash, totals: oracle.totals, frames, took })
    }

    fn apply(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Link { cable, direction, config } => {
                self.net.link_mut(self.cables[*cable][*direction]).config = config.clone();
            }
            Change::Allocations { host, left } => {
                self.on_queues(*host, |queue| queue.allow_allocations(*left))
            }
            Change::Carrier { host, network, up } => {
                let cores = self.plan.hosts[*host].cores();
                let queues = self.devices[*host].iter().skip(network * cores).take(cores);
                queues.for_each(|queue| queue.set_link(*up));
                self.net.wake(self.hosts[*host].0);
            }
            Change::TxBurst { host, frames } => self.on_queues(*host, |queue| queue.limit_tx_burst(*frames)),
            Change::Stall { host, core, until } => {
                self.hosts[*host].1.borrow_mut().cores.stall(*core, *until)
            }
            Change::Clock { host, ahead } => {
                let (id, node) = &self.hosts[*host];
                node.borrow().clock.set_ahead(*ahead);
                self.net.wake(*id);
            }
            Change::Restart { host } => {
                let (id, node) = &self.hosts[*host];
                node.borrow_mut().restart(self.net.now())?;
                self.net.wake(*id);
            }
        }
        Ok(())
    }

    fn heal(&mut self) {
        for (cable, links) in self.cables.iter().enumerate() {
            for link in links {
                self.net.link_mut(*link).config = self.plan.cables[cable].clone();
            }
        }
        for device in self.devices.iter().flatten() {
            device.allow_allocations(u64::MAX);
            device.limit_tx_burst(u64::MAX);
            device.set_link(true);
        }
        let mut oracle = self.oracle.borrow_mut();
        (oracle.faulty, oracle.healed_at) = (false, self.net.now());
        drop(oracle);
        self.wake_all();
    }

    /// Checks progress after the faults: every session must end.
    fn finish_sessions(&mut self) -> Result<(), String> {
        let until = self.plan.heal_at + self.plan.heal_timeout;
        let oracle = self.oracle.clone();
        let done = self.net.run_until_done(until, |_| oracle.borrow().open == 0);
        if done.map_err(text)? {
            return Ok(());
        }
        let open = oracle.borrow().describe_open();
        Err(format!("no end {:?} after the last fault: {open}", self.plan.heal_timeout))
    }

    /// The applications destroy everything, and all resources must be free again.
    fn close(&mut self) -> Result<(), String> {
        // Objects that were destroyed last are still being released.
        self.net.run_until(self.net.now() + QUIET_TIME).map_err(text)?;
        self.hosts.iter().try_for_each(|(_, host)| host.borrow_mut().close())?;
        self.wake_all();
        let until = self.net.now() + self.plan.time_wait + CLOSE_TIME;
        self.net.run_until(until).map_err(text)?;
        self.wake_all();
        self.net.run_until(until + Nanos::from_millis(1)).map_err(text)?;
        for (number, (_, host)) in self.hosts.iter().enumerate() {
            let host = host.borrow();
            let held = host.cores.resource_usage();
            if let Some(held) = held.into_iter().find(|held| *held != ResourceUsage::default()) {
                return Err(format!("host {number} still holds {held:?}"));
            }
            let lost = host.stack.counters();
            let lost = lost.into_iter().find(|(name, lost)| *name == "verbs_cq_overruns" && *lost > 0);
            if let Some((_, lost)) = lost {
                return Err(format!("host {number}: {lost} completions overran a queue"));
            }
            for (core, (queue, start)) in self.devices[number].iter().zip(&self.pools[number]).enumerate() {
                let now = queue.free_frames();
                // TCP keeps one transmit frame for the next unit, and eight for Terminates.
                if now.rx != start.rx || now.tx + 1 + 8 < start.tx {
                    return Err(format!("host {number}, core {core}, has {now:?} of {start:?} buffers"));
                }
            }
        }
        Ok(())
    }

    /// Checks that every sent frame is accounted for.
    fn check_conservation(&self) -> Result<(), String> {
        if self.net.frames_in_flight() > 0 {
            return Err(format!("{} frames are still in flight", self.net.frames_in_flight()));
        }
        let hosts = self.hosts.len();
        for (place, port) in self.ports.iter().take(hosts * self.plan.networks).enumerate() {
            let (network, number) = (place / hosts, place % hosts);
            let cores = self.plan.hosts[number].cores();
            let device = self.devices[number].iter().skip(network * cores).take(cores);
            let counts = device.map(MemoryControl::counts);
            let cables = self.plan.cables_of(network);
            let [there, back] =
                self.cables[cables.start + number % cables.len()].map(|link| self.net.link(link).counts());
            // A cable starts at its host; a direct cable ends at the second host.
            let (sent, came) = if number < cables.len() { (there, back) } else { (back, there) };
            let left: u64 = counts.clone().map(|one| one.tx_delivered).sum();
            let received: u64 = counts.map(|one| one.rx_frames).sum();
            let entered = received + self.net.refused_frames(*port);
            let offered = sent.offered + sent.regrouped_from - sent.regrouped_to;
            if left != offered || entered != came.sent + sent.answered {
                return Err(format!("host {number}: {left} left, {entered} entered, {sent:?} {came:?}"));
            }
        }
        Ok(())
    }

    fn on_queues(&self, host: usize, change: impl Fn(&MemoryControl)) {
        self.devices[host].iter().for_each(change);
    }

    fn wake_all(&mut self) {
        for (id, _) in &self.hosts {
            self.net.wake(*id);
        }
    }
}

/// Idle time of the applications before they close: several times their longest sleep.
const QUIET_TIME: Nanos = Nanos::from_millis(100);

/// Frames in flight arrive, and peers whose reset was lost time out: longer than the start-up
/// timeout.
const CLOSE_TIME: Nanos = Nanos::from_secs(65);
