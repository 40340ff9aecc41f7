//! A whole honest host on a simulated link: a core with everything from verbs to frames, and its applications.

use ironwarp::{Config, ResourceUsage, Stack, Worker};
use ironwarp_port::memory::MemoryPort;
use ironwarp_sim::{Node, VirtualClock};
use ironwarp_types::Nanos;

use super::bulk::Bulk;
use super::star::{FRAMES, RING_FRAMES, SERVER};
use crate::adversary::Place;
use crate::adversary::acceptor::{Acceptor, text};

/// A host.
pub struct WholeHost {
    worker: Worker,
    stack: Stack,
    /// Its end of the honest traffic.
    pub bulk: Bulk,
    /// Accepts everybody else, on the server.
    acceptor: Option<Acceptor>,
    polls: u64,
    fault: Option<String>,
}

/// Polls between two checks of the core, which read every table.
const CHECK_EVERY: u64 = 4_096;

/// Bursts in one iteration.
const BURSTS: usize = 1;

impl WholeHost {
    /// The host `number`, with the default configuration except for what `change` changes. It is the server or a client.
    pub fn new(
        number: u8,
        port: MemoryPort,
        clock: VirtualClock,
        change: impl FnOnce(&mut Config),
    ) -> Result<Self, String> {
        let mut config = Config::in_memory(&format!("10.0.0.{number}/24")).map_err(text)?;
        config.net.addresses = vec![format!("fd00::{number}/64")];
        config.net.dad_probes_ipv6 = 0;
        config.port.ring_size = RING_FRAMES as u16;
        (config.port.rx_frames, config.port.tx_frames) = (FRAMES as u32, FRAMES as u32);
        change(&mut config);
        let built = Stack::builder(config).build_replayable(port, clock, [3, number.into()]);
        let (stack, worker) = built.map_err(text)?;
        let (bulk, acceptor) = match number {
            SERVER => (Bulk::server(&stack)?, Some(Acceptor::new(&stack)?)),
            _ => (Bulk::client(&stack, [10, 0, 0, SERVER])?, None),
        };
        Ok(WholeHost { worker, stack, bulk, acceptor, polls: 0, fault: None })
    }

    /// The memory that everybody may use.
    pub fn place(&self) -> Option<Place> {
        self.acceptor.as_ref().map(Acceptor::place)
    }

    /// The resources that the core holds.
    pub fn held(&self) -> ResourceUsage {
        self.worker.resource_usage()
    }

    /// The sum of the counters with this name.
    pub fn counter(&self, name: &str) -> u64 {
        self.stack.counters().iter().filter(|(one, _)| *one == name).map(|(_, value)| *value).sum()
    }

    fn turn(&mut self) -> Result<usize, String> {
        let others = self.acceptor.as_mut().map_or(0, Acceptor::turn);
        Ok(others + self.bulk.turn()?)
    }
}

impl Node for WholeHost {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let polled = self.worker.poll(BURSTS);
        let handled = match self.turn() {
            Ok(handled) => handled,
            Err(fault) => {
                self.fault = Some(fault);
                0
            }
        };
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
