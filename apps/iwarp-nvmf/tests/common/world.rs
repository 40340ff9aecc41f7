//! A core of a target and several hosts in virtual time, joined by a switch.
//!
//! Time passes only with what the core does: [`Costs`] says how long a turn takes for the work that
//! the reactor counts. So the core has a capacity, and a test measures rates and latencies without
//! a clock. Hosts and links cost nothing. The same steps give the same run.
#![allow(dead_code, reason = "each test uses its part")]

mod simulated;

use std::collections::BTreeMap;
use std::sync::Arc;

use ironwarp::memory::{FarEnd, Ipv4Tcp, MemoryConfig, detached};
use ironwarp::{Config, MacAddr, Stack};
use ironwarp_port::{Burst, Frame};
use ironwarp_sim::VirtualClock;
use ironwarp_types::{Clock, Nanos, SeededEntropy};
use iwarp_nvmf::backend::Arena;
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::host::{Host, HostSettings};
use iwarp_nvmf::namespaces::Namespaces;
use iwarp_nvmf::serve::Appliance;
use iwarp_nvmf::target::Target;
use iwarp_nvmf::transport::Reactor;
use simulated::SimulatedDisk;

pub use simulated::DiskPlan;

use super::{AT, NQN};

/// How long a turn takes, in picoseconds.
#[derive(Clone, Copy)]
pub struct Costs {
    /// A turn in which nothing happens.
    pub turn: u64,
    /// A frame, doorbell or message of the stack.
    pub stack: u64,
    /// A byte that the target charges.
    pub byte: u64,
}

/// About those of a core that copies 4 GB/s. An idle turn is some 140 instructions.
pub const COSTS: Costs = Costs { turn: 100_000, stack: 100_000, byte: 250 };

/// Polls of a host between two turns of the core.
const HOST_POLLS_MAX: usize = 64;

/// A target and its hosts.
pub struct World {
    pub clock: VirtualClock,
    pub core: Core,
    pub hosts: Vec<Peer>,
}

/// The target's core with the switch.
pub struct Core {
    pub reactor: Reactor,
    pub target: Arc<Target>,
    pub namespaces: Namespaces,
    /// The first disk, or all of them.
    pub disk: Arc<DiskPlan>,
    clock: VirtualClock,
    /// By the last byte of the device's address: the target's is 2.
    ports: BTreeMap<u8, FarEnd>,
    /// What happens to the frames of hosts.
    pub faults: BTreeMap<u8, Fault>,
    /// Frames that found a full ring.
    pub lost: u64,
    /// Draws the frames that [`Fault::Lossy`] loses.
    losses: SeededEntropy,
    picoseconds: u64,
    spent: (u64, u64),
}

/// How a host is not as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No frame passes either way.
    Unplugged,
    /// It acknowledges and sends no data: its RDMA Reads have no responses.
    NoData,
    /// Its window is a byte, or as little as its window scale allows.
    TinyWindow,
    /// One in eight of its frames is lost.
    Lossy,
}

/// A host.
pub struct Peer {
    pub host: Host,
    /// The last byte of its addresses.
    pub number: u8,
    /// It sends what makes no sense, and does not understand the answers.
    pub is_confused: bool,
    _stack: Stack,
}

fn device(number: u8) -> MemoryConfig {
    MemoryConfig {
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        rx_frames: 4096,
        rx_ring_frames: 1024,
        ..MemoryConfig::default()
    }
}

impl World {
    /// A target with this configuration and hosts with the addresses 10.0.0.N. All disks do the
    /// same.
    pub fn new(config: &TargetConfig, numbers: &[u8]) -> Self {
        Self::with_disks(config, numbers, &[Arc::default()])
    }

    /// The same, with a plan for each disk in turn.
    pub fn with_disks(config: &TargetConfig, numbers: &[u8], plans: &[Arc<DiskPlan>]) -> Self {
        let clock = VirtualClock::new();
        let mut ports = BTreeMap::new();
        let (port, far) = detached(&device(2));
        ports.insert(2, far);
        let builder = Stack::builder(config.stack.clone());
        let (stack, worker) = builder.build_replayable(port, clock.clone(), [2, 7]).expect("a stack");
        let appliance = Appliance::on_stack(config, stack, vec![worker]).expect("a target");
        let (namespaces, mut cores) = appliance.into_cores();
        let disks = |arena: &Arena, mut devices: Vec<iwarp_nvmf::transport::Device>| {
            // Every second namespace is a disk that needs data buffers.
            for (device, plan) in devices.iter_mut().skip(1).step_by(2).zip(plans.iter().cycle()) {
                device.backend = Box::new(SimulatedDisk::new(arena.clone(), plan.clone()));
            }
            devices
        };
        let reactor = cores.remove(0).start_with(disks).expect("a reactor");
        let target = namespaces.target().clone();
        let hosts = numbers.iter().map(|&number| {
            let (port, far) = detached(&device(number));
            ports.insert(number, far);
            let mut config = Config::in_memory(&format!("10.0.0.{number}/24")).expect("valid");
            config.tcp.rto_min = Nanos::from_millis(10);
            let builder = Stack::builder(config);
            let built = builder.build_replayable(port, clock.clone(), [number.into(), 7]);
            let (stack, worker) = built.expect("a stack");
            let mut settings = HostSettings::new(AT.parse().expect("an address"), NQN);
            settings.hostnqn = format!("nqn.2014-08.org.example:host{number}");
            settings.hostid = [number; 16];
            let host = Host::new(&stack, vec![worker], settings).expect("a host");
            Peer { host, number, is_confused: false, _stack: stack }
        });
        let hosts = hosts.collect();
        let (faults, picoseconds, spent) = (BTreeMap::new(), 0, (0, 0));
        let (disk, clock_of_core) = (plans[0].clone(), clock.clone());
        let core = Core {
            reactor,
            target,
            namespaces,
            disk,
            clock: clock_of_core,
            ports,
            faults,
            lost: 0,
            losses: SeededEntropy::new(1),
            picoseconds,
            spent,
        };
        World { clock, core, hosts }
    }

    /// Connects a host with this many I/O queues. The others stand still meanwhile.
    pub fn connect(&mut self, at: usize, queues: u16) {
        let World { core, hosts, .. } = self;
        let host = &mut hosts[at].host;
        host.connect(&mut || core.turn()).expect("connected");
        host.connect_io_queues(queues, &mut || core.turn()).expect("I/O queues");
    }

    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// One turn of the core, and what the hosts do meanwhile.
    pub fn turn(&mut self) {
        (0..self.hosts.len()).for_each(|at| self.run_host(at));
        self.core.turn();
    }

    /// Lets a host do everything that it has to do. Its frames are on their way to the target then.
    pub fn run_host(&mut self, at: usize) {
        for _ in 0..HOST_POLLS_MAX {
            let Peer { host, is_confused, .. } = &mut self.hosts[at];
            let busy = match host.poll() {
                Err(_) if *is_confused => false,
                outcome => outcome.expect("the host runs"),
            };
            self.core.carry();
            if !busy {
                break;
            }
        }
    }

    /// Turns until `done`, at most for this virtual time.
    #[track_caller]
    pub fn until(&mut self, what: &str, limit: Nanos, mut done: impl FnMut(&mut World) -> bool) {
        let end = self.now() + limit;
        while !done(self) {
            self.turn();
            assert!(self.now() < end, "not within {limit:?}: {what}");
        }
    }
}

impl Core {
    /// One turn: the reactor, the frames, and the time that it took.
    pub fn turn(&mut self) {
        self.carry();
        self.reactor.poll().expect("the target runs");
        while self.target.jobs.run_next(std::time::Duration::ZERO) {}
        let (stack, bytes) = self.reactor.spent();
        let (before_stack, before_bytes) = core::mem::replace(&mut self.spent, (stack, bytes));
        let took = COSTS.turn + (stack - before_stack) * COSTS.stack + (bytes - before_bytes) * COSTS.byte;
        self.picoseconds += took;
        self.clock.advance_to(Nanos(self.picoseconds / 1000));
        self.carry();
    }

    /// Advances the clock without a turn, as a pause of the process does.
    pub fn pause(&mut self, span: Nanos) {
        self.picoseconds += span.0 * 1000;
        self.clock.advance_to(Nanos(self.picoseconds / 1000));
    }

    /// Carries all frames to the device with their destination, or to all others.
    pub fn carry(&mut self) {
        let mut all = Vec::new();
        for (&number, port) in &mut self.ports {
            loop {
                let mut burst = Burst::new();
                port.collect(&mut burst);
                if burst.is_empty() {
                    break;
                }
                all.extend(burst.iter().map(|frame| (number, frame.bytes().to_vec())));
            }
        }
        for (from, mut frame) in all {
            let (is_group, to) = (frame[0] & 1 != 0, frame[5]);
            if !self.passes(from, &mut frame) {
                continue;
            }
            for (&number, port) in &mut self.ports {
                let is_for = if is_group { number != from } else { number == to };
                if is_for && self.faults.get(&number) != Some(&Fault::Unplugged) {
                    // A frame that finds the ring full is lost, as on a wire.
                    self.lost += u64::from(!port.inject(&frame));
                }
            }
        }
    }

    /// Applies the fault of a host to a frame that it sends. Returns whether the frame passes.
    fn passes(&mut self, from: u8, frame: &mut Vec<u8>) -> bool {
        let (Some(fault), Some(at)) = (self.faults.get(&from), Ipv4Tcp::locate(frame)) else {
            return self.faults.get(&from) != Some(&Fault::Unplugged);
        };
        match fault {
            Fault::Unplugged => false,
            Fault::Lossy => !self.losses.chance(125_000),
            Fault::NoData => {
                frame.truncate(at.payload);
                let length = (at.payload - at.l3) as u16;
                frame[at.l3 + 2..at.l3 + 4].copy_from_slice(&length.to_be_bytes());
                set_checksum(frame, (at.l3, at.l4), 10, 0);
                // The pseudo-header: both addresses, the protocol and the length (RFC 9293 s3.1).
                let pseudo = sum(&frame[at.l3 + 12..at.l4]) + 6 + (at.payload - at.l4) as u32;
                set_checksum(frame, (at.l4, at.payload), 16, pseudo);
                frame.resize(frame.len().max(60), 0);
                true
            }
            Fault::TinyWindow => {
                frame[at.l4 + 14..at.l4 + 16].copy_from_slice(&1u16.to_be_bytes());
                let pseudo = sum(&frame[at.l3 + 12..at.l4]) + 6 + (at.end - at.l4) as u32;
                set_checksum(frame, (at.l4, at.end), 16, pseudo);
                true
            }
        }
    }
}

/// The sum of words of RFC 1071.
fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&byte| byte.into());
    bytes.chunks(2).map(word).sum()
}

/// Sets the checksum at an offset of a header or segment.
fn set_checksum(frame: &mut [u8], (from, to): (usize, usize), at: usize, start: u32) {
    frame[from + at..from + at + 2].fill(0);
    let mut total = start + sum(&frame[from..to]);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    frame[from + at..from + at + 2].copy_from_slice(&(!(total as u16)).to_be_bytes());
}
