//! A whole node under attack: a core with everything from verbs to frames, and its application.
//!
//! A [`Host`] is a node of a simulated network. A [`Victim`] is one whose link ends at an
//! adversary.

use ironwarp::memory::{self, FarEnd, MemoryConfig, MemoryPort};
use ironwarp::{Config, Nanos, ResourceUsage, Stack, Worker};
use ironwarp_port::{Burst, Frame};
use ironwarp_sim::{Node, VirtualClock};
use ironwarp_types::Clock;

use super::honest::Honest;
use crate::text;

/// A node and its application.
pub struct Host {
    worker: Worker,
    stack: Stack,
    pub app: Honest,
    polls: u64,
    fault: Option<String>,
}

/// Polls of a host between two checks of its core, which read every table.
const CHECK_EVERY: u64 = 4_096;

impl Host {
    /// The host `number` with pools of `frames` frames and the default configuration, except for
    /// what `change` changes. It connects to its partner, if it has that address, and serves
    /// otherwise.
    pub fn new(
        number: u8,
        (port, frames): (MemoryPort, usize),
        clock: VirtualClock,
        connect_to: Option<[u8; 4]>,
        change: impl FnOnce(&mut Config),
    ) -> Result<Self, String> {
        let mut config = Config::in_memory(&format!("10.0.0.{number}/24")).map_err(text)?;
        config.net.addresses = vec![format!("fd00::{number}/64")];
        config.net.dad_probes_ipv6 = 0;
        (config.port.rx_frames, config.port.tx_frames) = (frames as u32, frames as u32);
        change(&mut config);
        let built = Stack::builder(config).build_replayable(port, clock, [3, number.into()]);
        let (stack, worker) = built.map_err(text)?;
        let app = Honest::new(&stack, connect_to)?;
        Ok(Host { worker, stack, app, polls: 0, fault: None })
    }

    pub fn held(&self) -> ResourceUsage {
        self.worker.resource_usage()
    }

    /// The sum of the counters with this name; `None` if there is none.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counters = self.stack.counters();
        counters.iter().filter(|(one, _)| *one == name).map(|(_, value)| *value).reduce(|a, b| a + b)
    }

    /// Runs the application once. Returns how much it had to do.
    fn turn(&mut self) -> usize {
        self.app.turn().unwrap_or_else(|fault| {
            self.fault.get_or_insert(fault);
            0
        })
    }
}

impl Node for Host {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let polled = self.worker.poll(1);
        let handled = self.turn();
        self.polls += 1;
        if self.polls.is_multiple_of(CHECK_EVERY) {
            self.fault = self.fault.take().or(self.worker.check().err());
        }
        if polled.work + handled > 0 { Some(now) } else { polled.next_deadline }
    }

    fn check(&self) -> Result<(), String> {
        self.fault.clone().map_or(Ok(()), Err)
    }
}

pub const VICTIM: u8 = 1;

/// Frames of each pool and each ring of the victim.
const FRAMES: usize = 1_024;

/// A host in virtual time and the far end of its link.
pub struct Victim {
    clock: VirtualClock,
    far: FarEnd,
    pub host: Host,
}

impl Victim {
    pub fn new(change: impl FnOnce(&mut Config)) -> Result<Self, String> {
        let (port, far) = memory::detached(&MemoryConfig {
            rx_frames: FRAMES,
            tx_frames: FRAMES,
            rx_ring_frames: FRAMES,
            tx_ring_frames: FRAMES,
            ..MemoryConfig::default()
        });
        let clock = VirtualClock::new();
        clock.advance_to(Nanos::from_secs(1));
        let host = Host::new(VICTIM, (port, FRAMES), clock.clone(), None, |config| {
            config.port.ring_size = Some(FRAMES as u16 / 2);
            change(config);
        })?;
        let mut victim = Victim { clock, far, host };
        victim.settle();
        Ok(victim)
    }

    /// Puts frames into the receive ring. Returns how many it accepted.
    pub fn inject(&mut self, frames: &[Vec<u8>]) -> usize {
        frames.iter().filter(|frame| self.far.inject(frame)).count()
    }

    /// Polls the core until nothing is left to do at this time.
    pub fn work(&mut self) {
        for _ in 0..POLLS_MAX {
            if self.host.worker.poll(BURSTS).work == 0 {
                return;
            }
        }
    }

    pub fn advance(&mut self, time: Nanos) {
        self.clock.advance_to(self.clock.now() + time);
    }

    /// The application handles its events and completions, and the core its calls.
    pub fn settle(&mut self) {
        loop {
            self.work();
            if self.host.turn() == 0 {
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

    /// Checks the invariants of the core, and the application.
    pub fn check(&mut self) -> Result<(), String> {
        self.host.worker.check()?;
        self.host.check()
    }
}

/// Bursts in one iteration of a victim.
const BURSTS: usize = 4;

/// Iterations until a node that never rests is left alone.
const POLLS_MAX: usize = 256;
