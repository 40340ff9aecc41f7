//! The target without its network: subsystems, controllers, queues and the commands that they execute.
//!
//! A [`Target`] is shared by all cores. A [`Queue`] belongs to one connection: it takes submission queue entries and
//! returns a [`Step`] that says what the transport does next. Nothing here waits or moves data. The path of an I/O command
//! takes no lock; Connect and admin commands do.
//!
//! Source: NVM Express Base 1.4, NVM Express over Fabrics 1.1.

mod admin;
mod connect;
mod controller;
mod identify;
mod io;
mod logs;
mod queue;
mod subsystem;

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use controller::{Controller, Registers};
pub use identify::NSID_MAX;
pub use io::{IoCommand, IoOperation};
pub use queue::{CapsuleLimits, HeldEvent, Queue, Response, Step};
pub use subsystem::{IoCounters, Namespace, NamespaceInfo, Subsystem, SubsystemInfo};

/// Entries of an admin queue, as Fabrics requires (Fabrics 1.1, 5.4: ASQSZ).
pub const ADMIN_QUEUE_ENTRIES: u16 = 32;
/// Asynchronous Event Requests that a controller holds.
pub const ASYNC_EVENTS_MAX: usize = 4;
/// The largest CNTLID of a dynamic controller.
const CNTLID_MAX: u16 = 0xffef;

/// Limits of a target.
#[derive(Clone, Copy, Debug)]
pub struct TargetLimits {
    /// Controllers.
    pub controllers: usize,
    /// I/O queues of a controller.
    pub io_queues: u16,
    /// Entries of an I/O queue.
    pub queue_entries: u16,
    /// Bytes of data of a command: a power of two, from 4096.
    pub transfer_bytes: u32,
    /// Bytes of data in an I/O command capsule.
    pub capsule_bytes: u32,
    /// The keep-alive timeout of hosts that request none, in milliseconds. 0: none.
    pub keep_alive_default_ms: u32,
}

/// A target: what all cores share.
pub struct Target {
    /// Its limits.
    pub limits: TargetLimits,
    subsystems: Vec<Arc<Subsystem>>,
    /// The discovery subsystem.
    discovery: Arc<Subsystem>,
    listeners: Vec<SocketAddr>,
    controllers: Mutex<Controllers>,
    /// Changes of the discovery log.
    generation: AtomicU64,
}

#[derive(Default)]
struct Controllers {
    by_cntlid: BTreeMap<u16, Arc<Controller>>,
    last: u16,
}

impl Target {
    /// A target of these subsystems. `listeners` are the addresses that the discovery log names.
    pub fn new(limits: TargetLimits, subsystems: Vec<Subsystem>, listeners: Vec<SocketAddr>) -> Self {
        Target {
            limits,
            subsystems: subsystems.into_iter().map(Arc::new).collect(),
            discovery: Arc::new(Subsystem::discovery()),
            listeners,
            controllers: Mutex::default(),
            generation: AtomicU64::new(1),
        }
    }

    /// Returns the subsystems.
    pub fn subsystems(&self) -> &[Arc<Subsystem>] {
        &self.subsystems
    }

    /// Returns the controllers.
    pub fn controllers(&self) -> Vec<Arc<Controller>> {
        self.lock().by_cntlid.values().cloned().collect()
    }

    /// Ends the controllers whose keep-alive timer has expired (Base 1.4, 7.12). Their queues end when they notice.
    pub fn expire_keep_alive(&self, now_ms: u64) {
        let is_expired = |one: &&Arc<Controller>| one.keep_alive_expired(now_ms);
        let expired: Vec<_> = self.lock().by_cntlid.values().filter(is_expired).cloned().collect();
        for controller in expired {
            tracing::warn!("{controller}: the keep-alive timer of {} ms expired", controller.kato_ms());
            controller.fail();
            self.remove(&controller);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Controllers> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subsystem(&self, nqn: &str) -> Option<&Arc<Subsystem>> {
        if nqn == self.discovery.nqn() {
            return Some(&self.discovery);
        }
        self.subsystems.iter().find(|subsystem| subsystem.nqn() == nqn)
    }

    fn controller(&self, cntlid: u16) -> Option<Arc<Controller>> {
        self.lock().by_cntlid.get(&cntlid).cloned()
    }

    /// Adds a controller with a free CNTLID. `None` if the limit is reached.
    fn add(&self, make: impl FnOnce(u16) -> Controller) -> Option<Arc<Controller>> {
        let mut all = self.lock();
        if all.by_cntlid.len() >= self.limits.controllers {
            return None;
        }
        // A number that was used a moment ago is not used again: a late queue of its host must not find another's.
        let after = |last: u16| if last >= CNTLID_MAX { 1 } else { last + 1 };
        let mut cntlid = after(all.last);
        while all.by_cntlid.contains_key(&cntlid) {
            cntlid = after(cntlid);
        }
        all.last = cntlid;
        let controller = Arc::new(make(cntlid));
        all.by_cntlid.insert(cntlid, controller.clone());
        Some(controller)
    }

    fn remove(&self, controller: &Arc<Controller>) {
        let mut all = self.lock();
        if all.by_cntlid.get(&controller.cntlid()).is_some_and(|one| Arc::ptr_eq(one, controller)) {
            all.by_cntlid.remove(&controller.cntlid());
        }
    }

    /// Adds or replaces a namespace, or removes it, and notifies the controllers of its subsystem.
    pub fn change_namespace(&self, nqn: &str, nsid: u32, namespace: Option<Namespace>) -> bool {
        let Some(subsystem) = self.subsystems.iter().find(|one| one.nqn() == nqn) else { return false };
        subsystem.set_namespace(nsid, namespace);
        self.generation.fetch_add(1, Ordering::Relaxed);
        let same = |one: &Arc<Controller>| Arc::ptr_eq(one.subsystem(), subsystem);
        self.controllers().iter().filter(|one| same(one)).for_each(|one| one.namespace_changed(nsid));
        true
    }
}
