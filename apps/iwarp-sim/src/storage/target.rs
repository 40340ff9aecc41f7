//! The target: one core of `iwarp-nvmf`, whose disks are simulated.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ironwarp::{ResourceUsage, Stack, Worker};
use iwarp_nvmf::backend::Arena;
use iwarp_nvmf::backend::simulated::{DiskPlan, SimulatedDisk};
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::namespaces::Namespaces;
use iwarp_nvmf::serve::Appliance;
use iwarp_nvmf::transport::{CoreUsage, Device, Reactor};

use super::{HONEST_HOST, HONEST_NQN, HOSTILE_NQN};
use crate::plan::{DiskChange, Plan};
use crate::text;

/// Turns between two checks of who owns what. A check looks at every capsule.
const TURNS_PER_CHECK: u32 = 64;

pub struct StorageTarget {
    reactor: Reactor,
    /// The disks of both subsystems.
    disks: [Arc<DiskPlan>; 2],
    /// What it holds without hosts, and what its stack holds.
    empty: CoreUsage,
    pub alone: ResourceUsage,
    turns: u32,
    namespaces: Namespaces,
}

impl StorageTarget {
    pub fn new(plan: &Plan, at: SocketAddr, (stack, workers): (Stack, Vec<Worker>)) -> Result<Self, String> {
        let config = config(plan, at)?;
        let appliance = Appliance::on_stack(&config, stack, workers).map_err(text)?;
        let (namespaces, cores) = appliance.into_cores();
        let core = cores.into_iter().next().ok_or("a target without a core")?;
        let disks = [(); 2].map(|()| Arc::new(DiskPlan::default()));
        let replace = |arena: &Arena, mut devices: Vec<Device>| {
            // Every second namespace is on a disk.
            for (device, plan) in devices.iter_mut().skip(1).step_by(2).zip(&disks) {
                device.backend = Box::new(SimulatedDisk::new(arena.clone(), plan.clone()));
            }
            devices
        };
        let reactor = core.start_with(replace).map_err(text)?;
        let empty = reactor.usage();
        let alone = reactor.worker().resource_usage();
        Ok(StorageTarget { reactor, disks, empty, alone, turns: 0, namespaces })
    }

    pub fn poll(&mut self) -> Result<bool, String> {
        let is_busy = self.reactor.poll().map_err(|error| format!("the target: {error}"))?;
        self.reactor.worker_mut().check()?;
        self.turns = (self.turns + 1) % TURNS_PER_CHECK;
        if self.turns == 0 {
            self.reactor.check()?;
        }
        Ok(is_busy)
    }

    pub fn worker(&self) -> &Worker {
        self.reactor.worker()
    }

    pub fn stack(&self) -> &Stack {
        self.namespaces.stack()
    }

    pub fn change_disk(&self, disk: usize, change: DiskChange) {
        let Some(disk) = self.disks.get(disk) else { return };
        match change {
            DiskChange::Hangs(hangs) => disk.hangs.store(hangs, Ordering::Relaxed),
            DiskChange::Reverses(reverses) => disk.reverses.store(reverses, Ordering::Relaxed),
            DiskChange::Fails => disk.fails.store(true, Ordering::Relaxed),
        }
    }

    /// The disks do what they should.
    pub fn heal(&self) {
        for disk in &self.disks {
            disk.hangs.store(false, Ordering::Relaxed);
            disk.fails.store(false, Ordering::Relaxed);
        }
    }

    pub fn check_end(&self) -> Result<(), String> {
        self.reactor.check()?;
        let usage = self.reactor.usage();
        if usage != self.empty {
            return Err(format!("the target holds {usage:?} without hosts, and {:?} at first", self.empty));
        }
        Ok(())
    }

    pub fn describe(&self) -> String {
        let counters = &self.namespaces.target().counters;
        format!("the target holds {:?}, {:?}, {counters:?}", self.reactor.usage(), self.reactor.counters())
    }
}

fn config(plan: &Plan, at: SocketAddr) -> Result<TargetConfig, String> {
    let buffers = plan.storage.as_ref().map_or(0, |storage| storage.buffers);
    let subsystem = |number: u32, nqn: &str, hosts: &str| {
        let namespace = |nsid: u32, backend: &str| {
            format!(
                "[[subsystem.namespace]]\nnsid = {nsid}\nbackend.{backend} = {{ mib = 1 }}\n\
                 uuid = \"{:032x}\"\n",
                number << 16 | nsid
            )
        };
        format!(
            "[[subsystem]]\nnqn = \"{nqn}\"\nserial = \"{number}\"\n{hosts}\n{}{}",
            namespace(super::MEMORY, "memory"),
            namespace(super::DISK, "null")
        )
    };
    // The disk has less time than it hangs at times; a host that the links cut off has more.
    let toml = format!(
        "listeners = [\"{at}\"]\n[stack.port]\ndevice.memory = {{}}\n[stack.net]\naddress = \"{}\"\n\
         [limits]\nbuffers = {buffers}\ntransfer_kib = 8\ncapsules = 512\nconnections = 12\n\
         connections_per_address = 9\ncontrollers = 8\ncontrollers_per_host = 5\ndiscovery_controllers = 4\n\
         connect_timeout_ms = 5000\npeer_timeout_ms = 20000\ncontended_timeout_ms = 5000\n\
         disk_timeout_ms = 100\n{}{}",
        plan.common.addresses(super::TARGET)[0],
        subsystem(1, HONEST_NQN, &format!("hosts = [\"{HONEST_HOST}\"]")),
        subsystem(2, HOSTILE_NQN, "allow_any_host = true"),
    );
    let mut config = TargetConfig::from_toml(&toml).map_err(text)?;
    config.stack = plan.hosts[super::TARGET].config.clone();
    Ok(config)
}
