//! An NVMe target in virtual time, with an honest and a hostile host on faulty links.
//!
//! Host 0 is a core of the target, the reactor of `iwarp-nvmf` without its thread. Host 1 writes
//! and reads extents of its own, and host 2 does what the plan's habits say. What must hold:
//!
//! - Each block that the honest host reads is what it last wrote there. Each of its commands has
//!   one response, and one fails only where its own disk hangs or fails.
//! - Its connections stand, and while the links are healthy each command is answered within
//!   [`honest::ANSWER_LIMIT`], whatever the other host does.
//! - The hostile host gets nothing of the honest host's subsystem.
//! - Everything of the core has one owner at any time, and nothing is left when both hosts have
//!   gone.
//!
//! Time passes with turns of the same length, so a core has no capacity here; `tests/fairness.rs`
//! of `iwarp-nvmf` has one.
//!
//! Sources: NVM Express Base 1.4, NVM Express over Fabrics 1.1.

mod honest;
mod hostile;
mod target;

use core::net::SocketAddr;

use ironwarp::{ResourceUsage, Stack, Worker};
use ironwarp_sim::Node;
use ironwarp_types::Nanos;
use iwarp_nvmf::host::{Host, HostSettings};

use crate::app::SharedOracle;
use crate::plan::{DiskChange, Plan, addresses_of};
use crate::text;
use honest::Honest;
use hostile::Hostile;
use target::StorageTarget;

const TARGET: usize = 0;
const HONEST: usize = 1;
/// The subsystems of the honest and the hostile host, and their names.
const HONEST_NQN: &str = "nqn.2014-08.org.example:honest";
const HOSTILE_NQN: &str = "nqn.2014-08.org.example:hostile";
const HONEST_HOST: &str = "nqn.2014-08.org.example:host1";
const HOSTILE_HOST: &str = "nqn.2014-08.org.example:host2";
/// The namespaces of both.
const MEMORY: u32 = 1;
const DISK: u32 = 2;

/// The sleep of a host without work, which doubles from the first to the last.
const SLEEP: [Nanos; 2] = [Nanos::from_micros(10), Nanos::from_millis(5)];

/// One of the three.
pub struct StorageHost {
    role: Role,
    /// From when until when it is not polled.
    pauses: Vec<(Nanos, Nanos)>,
    sleep: Nanos,
    fault: Option<String>,
    oracle: SharedOracle,
}

enum Role {
    Target(Box<StorageTarget>),
    Honest(Box<Honest>, Stack),
    Hostile(Box<Hostile>, Stack),
}

impl StorageHost {
    /// A host of the plan on its stack.
    pub fn new(
        plan: &Plan,
        number: usize,
        (stack, workers): (Stack, Vec<Worker>),
        oracle: &SharedOracle,
    ) -> Result<Self, String> {
        let storage = plan.storage.as_ref().ok_or("a plan without storage")?;
        let [v4, v6] = addresses_of(TARGET);
        let mut at = if plan.common.v4 { v4 } else { v6 };
        at.set_port(iwarp_nvmf::config::PORT_IO);
        let oracle = oracle.clone();
        let role = match number {
            TARGET => Role::Target(Box::new(StorageTarget::new(plan, at, (stack, workers))?)),
            HONEST => {
                let host = host(number, (&stack, workers), at, (HONEST_NQN, HONEST_HOST))?;
                Role::Honest(Box::new(Honest::new(host, storage, plan.heal_at, &oracle)), stack)
            }
            _ => {
                let host = host(number, (&stack, workers), at, (HOSTILE_NQN, HOSTILE_HOST))?;
                Role::Hostile(Box::new(Hostile::new(host, storage, &oracle)), stack)
            }
        };
        let pauses = storage.pauses.iter().filter(|(host, ..)| *host == number);
        let pauses = pauses.map(|&(_, from, until)| (from, until)).collect();
        Ok(StorageHost { role, pauses, sleep: SLEEP[0], fault: None, oracle })
    }

    pub fn change_disk(&mut self, disk: usize, change: DiskChange) {
        if let Role::Target(target) = &self.role {
            target.change_disk(disk, change);
        }
    }

    /// The hosts leave: their connections are reset.
    pub fn close(&mut self) -> Result<(), String> {
        match &mut self.role {
            Role::Target(target) => target.heal(),
            Role::Honest(honest, _) => honest.leave()?,
            Role::Hostile(hostile, _) => hostile.leave(),
        }
        Ok(())
    }

    /// Checks that both hosts have left nothing.
    pub fn check_end(&mut self) -> Result<(), String> {
        match &mut self.role {
            Role::Target(target) => target.check_end(),
            Role::Honest(..) | Role::Hostile(..) => Ok(()),
        }
    }

    /// The resources that its core holds, and those that it holds without a connection.
    pub fn resource_usage(&self) -> (Vec<ResourceUsage>, ResourceUsage) {
        // A host keeps the memory of a queue that it has left until another one takes its place.
        let of_host = |host: &Host| {
            let held: Vec<_> = host.workers().iter().map(Worker::resource_usage).collect();
            let regions = held.iter().map(|one| one.regions).sum();
            (held, ResourceUsage { completion_queues: 1, regions, ..ResourceUsage::default() })
        };
        match &self.role {
            Role::Target(target) => (vec![target.worker().resource_usage()], target.alone),
            Role::Honest(honest, _) => of_host(&honest.host),
            Role::Hostile(hostile, _) => of_host(&hostile.host),
        }
    }

    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let stack = match &self.role {
            Role::Target(target) => target.stack(),
            Role::Honest(_, stack) | Role::Hostile(_, stack) => stack,
        };
        stack.counters()
    }

    pub fn describe(&self) -> Option<String> {
        match &self.role {
            Role::Honest(honest, _) => Some(honest.describe()),
            Role::Target(target) => Some(target.describe()),
            Role::Hostile(..) => None,
        }
    }

    fn turn(&mut self, now: Nanos) -> Result<bool, String> {
        match &mut self.role {
            Role::Target(target) => target.poll(),
            Role::Honest(honest, _) => honest.poll(now),
            Role::Hostile(hostile, _) => hostile.poll(now),
        }
    }
}

impl Node for StorageHost {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let pause = self.pauses.iter().find(|(from, until)| *from <= now && now < *until);
        if let Some((_, until)) = pause {
            return Some(*until);
        }
        let is_busy = self.turn(now).unwrap_or_else(|fault| {
            self.fault.get_or_insert(fault);
            false
        });
        let [first, last] = SLEEP;
        self.sleep = if is_busy { first } else { self.sleep.times(2).min(last) };
        Some(if is_busy { now } else { now + self.sleep })
    }

    fn check(&self) -> Result<(), String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.oracle.borrow().fault.clone().map_or(Ok(()), Err)
    }
}

fn host(
    number: usize,
    (stack, workers): (&Stack, Vec<Worker>),
    at: SocketAddr,
    (subnqn, hostnqn): (&str, &str),
) -> Result<Host, String> {
    let mut settings = HostSettings { hostnqn: hostnqn.to_owned(), ..HostSettings::new(at, subnqn) };
    settings.hostid = [number as u8; 16];
    Host::new(stack, workers, settings).map_err(text)
}
