//! A whole node in virtual time whose link ends at an adversary, and an application that accepts every connection.

use ironwarp::memory::{self, FarEnd, MemoryConfig};
use ironwarp::{Config, Nanos, ResourceUsage, Stack, Worker};
use ironwarp_port::{Burst, Frame};
use ironwarp_sim::VirtualClock;
use ironwarp_types::Clock;

use super::Place;
use super::acceptor::{Acceptor, text};

/// The number of the victim's host.
pub const VICTIM: u8 = 1;

/// Frames of each pool and each ring.
pub const FRAMES: usize = 1_024;

/// A node and its application.
pub struct Victim {
    clock: VirtualClock,
    far: FarEnd,
    worker: Worker,
    app: Acceptor,
    stack: Stack,
}

impl Victim {
    /// A node with the default configuration, except for what `change` changes.
    pub fn new(change: impl FnOnce(&mut Config)) -> Result<Self, String> {
        let device = MemoryConfig {
            rx_frames: FRAMES,
            tx_frames: FRAMES,
            rx_ring_frames: FRAMES,
            tx_ring_frames: FRAMES,
            ..MemoryConfig::default()
        };
        let (port, far) = memory::detached(&device);
        let mut config = Config::in_memory("10.0.0.1/24").map_err(text)?;
        config.net.addresses = vec!["fd00::1/64".to_owned()];
        config.net.dad_probes_ipv6 = 0;
        config.port.ring_size = FRAMES as u16 / 2;
        (config.port.rx_frames, config.port.tx_frames) = (FRAMES as u32, FRAMES as u32);
        change(&mut config);
        let clock = VirtualClock::new();
        clock.advance_to(Nanos::from_secs(1));
        let (stack, worker) =
            Stack::builder(config).build_replayable(port, clock.clone(), [3, 4]).map_err(text)?;
        let app = Acceptor::new(&stack)?;
        let mut victim = Victim { clock, far, worker, app, stack };
        victim.settle();
        Ok(victim)
    }

    /// Its memory.
    pub fn place(&self) -> Place {
        self.app.place()
    }

    /// Puts frames into the receive ring. Returns how many it accepted.
    pub fn inject(&mut self, frames: &[Vec<u8>]) -> usize {
        frames.iter().filter(|frame| self.far.inject(frame)).count()
    }

    /// Polls the core until nothing is left to do at this time.
    pub fn work(&mut self) {
        for _ in 0..POLLS_MAX {
            if self.worker.poll(BURSTS).work == 0 {
                return;
            }
        }
    }

    /// Lets time pass.
    pub fn advance(&mut self, time: Nanos) {
        self.clock.advance_to(self.now() + time);
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// The application handles its events and completions, and the core its calls.
    pub fn settle(&mut self) {
        loop {
            self.work();
            if self.app.turn() == 0 {
                return;
            }
        }
    }

    /// Takes the frames that the node has sent.
    pub fn collect(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let mut burst = Burst::new();
            self.far.collect(&mut burst);
            if burst.is_empty() {
                return all;
            }
            all.extend(burst.drain(..).map(|frame| frame.bytes().to_vec()));
        }
    }

    /// The resources that the core holds.
    pub fn held(&self) -> ResourceUsage {
        self.worker.resource_usage()
    }

    /// Checks the invariants of the core.
    pub fn check(&mut self) -> Result<(), String> {
        self.worker.check()
    }

    /// The sum of the counters with this name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counters = self.stack.counters();
        let mut of_name = counters.iter().filter(|(one, _)| *one == name).map(|(_, value)| *value).peekable();
        of_name.peek()?;
        Some(of_name.sum())
    }

    /// Receives that have completed.
    pub fn received(&self) -> u64 {
        self.app.received
    }
}

/// Bursts in one iteration.
const BURSTS: usize = 4;

/// Iterations until a node that never rests is left alone.
const POLLS_MAX: usize = 256;
