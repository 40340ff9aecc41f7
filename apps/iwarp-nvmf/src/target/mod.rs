//! The target without its network: subsystems, controllers, queues and the commands that they
//! execute.
//!
//! A [`Target`] is shared by all cores. A [`Queue`] belongs to one connection: it takes submission
//! queue entries and returns a [`Step`] that says what the transport does next. Nothing here waits
//! or moves data. The path of an I/O command takes no lock; Connect and admin commands do.
//!
//! Source: NVM Express Base 1.4, NVM Express over Fabrics 1.1.

mod admin;
mod authenticate;
mod connect;
mod controller;
mod counters;
mod identify;
mod io;
mod late;
mod logs;
mod membership;
mod queue;
mod registry;
mod subsystem;

use core::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ironwarp::{LogLimit, Nanos};

use crate::auth::AuthPolicy;
use crate::auth::jobs::Jobs;
pub use controller::{Controller, Registers};
pub use counters::{TargetCounter, TargetCounters};
pub use identify::NSID_MAX;
pub use io::{IoCommand, IoOperation};
pub use late::LateRequests;
pub use queue::{CapsuleLimits, HeldEvent, PIECE_BYTES, Queue, Response, Step};
use registry::Registry;
pub use subsystem::{IoCounters, Namespace, NamespaceInfo, Subsystem, SubsystemInfo};

/// Entries of an admin queue, as Fabrics requires (Fabrics 1.1, 5.4: ASQSZ).
pub const ADMIN_QUEUE_ENTRIES: u16 = 32;
/// Asynchronous Event Requests that a controller holds.
pub const ASYNC_EVENTS_MAX: usize = 4;
/// Limits of a target.
#[derive(Clone, Copy, Debug)]
pub struct TargetLimits {
    /// Controllers of all hosts, without those for discovery.
    pub controllers: usize,
    /// Controllers of one host, by its NQN and by its address; of each kind.
    pub controllers_per_host: usize,
    /// Discovery controllers of all hosts.
    pub discovery_controllers: usize,
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

impl Default for TargetLimits {
    fn default() -> Self {
        TargetLimits {
            controllers: 64,
            controllers_per_host: 16,
            discovery_controllers: 16,
            io_queues: 16,
            queue_entries: 128,
            transfer_bytes: 128 << 10,
            capsule_bytes: 4096,
            keep_alive_default_ms: 0,
        }
    }
}

/// A target: what all cores share.
#[derive(Debug)]
pub struct Target {
    /// Its limits.
    pub limits: TargetLimits,
    /// What it refused or ended.
    pub counters: TargetCounters,
    /// What a thread that is no polled core computes for authentications.
    pub jobs: Jobs,
    subsystems: Vec<Arc<Subsystem>>,
    /// The discovery subsystem.
    discovery: Arc<Subsystem>,
    listeners: Vec<SocketAddr>,
    controllers: Mutex<Registry>,
    /// Changes of the discovery log.
    generation: AtomicU64,
    /// Keep-alive timers are judged from this time on, in milliseconds.
    judge_from_ms: AtomicU64,
    log_limit: Mutex<LogLimit>,
    auth_policy: RwLock<Arc<AuthPolicy>>,
}

impl Target {
    /// A target of these subsystems. `listeners` are the addresses that the discovery log names.
    pub fn new(limits: TargetLimits, subsystems: Vec<Subsystem>, listeners: Vec<SocketAddr>) -> Self {
        Target {
            limits,
            subsystems: subsystems.into_iter().map(Arc::new).collect(),
            discovery: Arc::new(Subsystem::discovery()),
            listeners,
            counters: TargetCounters::default(),
            controllers: Mutex::default(),
            generation: AtomicU64::new(1),
            judge_from_ms: AtomicU64::new(0),
            log_limit: Mutex::new(LogLimit::new(Nanos::ZERO)),
            jobs: Jobs::default(),
            auth_policy: RwLock::default(),
        }
    }

    /// Returns the subsystems.
    pub fn subsystems(&self) -> &[Arc<Subsystem>] {
        &self.subsystems
    }

    /// Returns the controllers.
    pub fn controllers(&self) -> Vec<Arc<Controller>> {
        self.lock().all().cloned().collect()
    }

    /// Ends the controllers whose keep-alive timer has expired (Base 1.4, 7.12). Their queues end
    /// when they notice.
    pub fn expire_keep_alive(&self, now_ms: u64) {
        if now_ms < self.judge_from_ms.load(Ordering::Relaxed) {
            return;
        }
        let is_expired = |one: &&Arc<Controller>| one.keep_alive_expired(now_ms);
        let expired: Vec<_> = self.lock().all().filter(is_expired).cloned().collect();
        for controller in expired {
            self.counters.add(TargetCounter::KeepAliveExpired);
            if self.may_log(now_ms) {
                tracing::warn!(
                    "{controller}: the keep-alive timer of {} ms expired",
                    controller.timeout_ms()
                );
            }
            controller.fail();
            self.remove(&controller);
        }
    }

    /// Judges no keep-alive timer before `from_ms`. A core that was paused says so until it has
    /// read the frames that waited: the commands of live hosts are among them.
    pub fn judge_keep_alive_from(&self, from_ms: u64) {
        self.judge_from_ms.fetch_max(from_ms, Ordering::Relaxed);
    }

    /// Returns whether a line that a peer causes may be written to the log now.
    #[cold]
    pub fn may_log(&self, now_ms: u64) -> bool {
        let mut limit = self.log_limit.lock().unwrap_or_else(PoisonError::into_inner);
        limit.refill(0, Nanos::from_millis(now_ms));
        limit.take()
    }

    /// Says whom to authenticate, from the next Connect and exchange on.
    pub fn set_auth_policy(&self, policy: AuthPolicy) {
        *self.auth_policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    fn auth_policy(&self) -> Arc<AuthPolicy> {
        self.auth_policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks that every controller is owned by an admin queue. For housekeeping and tests.
    pub fn check(&self) {
        debug_assert!(self.lock().all_have_owners(), "a controller has no admin queue");
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subsystem(&self, nqn: &str) -> Option<&Arc<Subsystem>> {
        if nqn == self.discovery.nqn() {
            return Some(&self.discovery);
        }
        self.subsystems.iter().find(|subsystem| subsystem.nqn() == nqn)
    }

    fn controller(&self, cntlid: u16) -> Option<Arc<Controller>> {
        self.lock().get(cntlid).cloned()
    }

    fn remove(&self, controller: &Arc<Controller>) {
        self.lock().remove(controller);
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
