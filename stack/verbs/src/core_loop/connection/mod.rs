//! The connection manager: connections outside full operation, and the contexts that own them.
//!
//! [`setup`] brings a queue pair to a TCP connection, [`startup`] from there to full operation;
//! [`passive`] is an incoming connection without a queue pair, [`teardown`] every path to the end;
//! [`events`] handles the data path's outcomes and the timers; [`contexts`] the applications'
//! messages, doorbells and notifications; [`log`] writes for the operator.
//!
//! Takes control messages, the data path's outcomes and time; gives notifications, and work to the
//! data path, which it borrows for each call. An error ends one connection and is reported to its
//! context.

mod contexts;
mod events;
mod half_open_by_host;
mod log;
pub(super) mod passive;
mod passive_table;
mod protection_backoff;
pub(super) mod setup;
mod startup;
mod teardown;

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use ironwarp_llp::Timeouts;
use ironwarp_stats::CoreStats;
use ironwarp_timers::Wheel;
use ironwarp_types::Nanos;

pub(super) use contexts::CONTROL_BUDGET;
use log::log_event;
use passive_table::PassiveTable;
use protection_backoff::ProtectionBackoff;

use crate::config::MpaConfig;
use crate::core_loop::channel::ContextChannel;
use crate::core_loop::lower::Lower;
use crate::log_limit::LogLimit;
use crate::shared::{CoreShared, StackShared};

/// The connection manager of one core.
pub(super) struct ConnectionManager<L: Lower> {
    core: u16,
    shared: Arc<StackShared>,
    stats: CoreStats,
    /// Incoming connections without a queue pair, and the listeners.
    pub(super) passives: PassiveTable<L>,
    /// What this core shares with every context.
    core_shared: Arc<CachePadded<CoreShared>>,
    /// The rings of each context, by its number.
    contexts: Vec<Option<ContextChannel>>,
    /// Queue pairs that wait for a route.
    pub(super) resolving: Vec<u32>,
    /// One deadline for each queue pair, then for each incoming connection, then for the links and
    /// for the connections that the page shows.
    wheel: Wheel,
    /// Queue pairs that the core can have: the first identifier of an incoming connection on the
    /// wheel.
    qps_max: u32,
    mpa: MpaConfig,
    /// TCP's timeouts for queue pairs that set none.
    timeouts: Timeouts,
    log_limit: LogLimit,
    protection_backoff: ProtectionBackoff,
}

/// The owner of a deadline.
pub(super) enum TimerOwner {
    /// A queue pair, by slot.
    Qp(u32),
    /// An incoming connection, by slot.
    Passive(u32),
    /// The links.
    Link,
    /// The table of connections in the page.
    ConnectionTable,
}

impl<L: Lower> ConnectionManager<L> {
    pub(super) fn new(core: u16, shared: &Arc<StackShared>, stats: CoreStats, now: Nanos) -> Self {
        let (config, limits) = (&shared.config, &shared.config.limits);
        ConnectionManager {
            core,
            shared: shared.clone(),
            core_shared: shared.cores[usize::from(core)].clone(),
            stats,
            passives: PassiveTable::new(limits.half_open, limits.listeners),
            contexts: Vec::with_capacity(limits.contexts as usize),
            resolving: Vec::with_capacity(limits.queue_pairs as usize),
            wheel: Wheel::new(limits.queue_pairs + limits.half_open + 2, now),
            qps_max: limits.queue_pairs,
            mpa: config.mpa.clone(),
            timeouts: config.tcp.timeouts(),
            protection_backoff: ProtectionBackoff::new(limits.protection_errors),
            log_limit: LogLimit::new(now),
        }
    }

    /// The timer stage: what happens by the second.
    #[inline]
    pub(super) fn on_timer_stage(&mut self, now: Nanos) {
        self.log_limit.refill(self.core, now);
    }

    /// When the first deadline is due; [`Nanos::MAX`]: none is armed.
    #[inline]
    pub(super) fn next_deadline(&self) -> Nanos {
        self.wheel.next_deadline().unwrap_or(Nanos::MAX)
    }

    /// Disarms the next deadline that is due and returns its owner.
    #[inline]
    pub(super) fn pop_expired(&mut self, now: Nanos) -> Option<TimerOwner> {
        let id = self.wheel.pop_expired(now)?;
        Some(match id.checked_sub(self.qps_max) {
            None => TimerOwner::Qp(id),
            Some(slot) if slot == self.passives.capacity() => TimerOwner::Link,
            Some(slot) if slot > self.passives.capacity() => TimerOwner::ConnectionTable,
            Some(slot) => TimerOwner::Passive(slot),
        })
    }

    /// The deadline of a queue pair; [`Nanos::MAX`]: none is armed.
    pub(super) fn deadline_of(&self, slot: u32) -> Nanos {
        self.wheel.deadline(slot)
    }

    /// Deadlines of queue pairs and incoming connections that are armed.
    pub(super) fn armed_timers(&self) -> usize {
        let ids = self.qps_max + self.passives.capacity();
        (0..ids).filter(|id| self.wheel.deadline(*id) != Nanos::MAX).count()
    }

    /// Arms the check of the links.
    pub(super) fn arm_link(&mut self, deadline: Nanos) {
        self.wheel.arm(self.qps_max + self.passives.capacity(), deadline);
    }

    /// Arms the next step of the table of connections.
    pub(super) fn arm_connection_table(&mut self, deadline: Nanos) {
        self.wheel.arm(self.qps_max + self.passives.capacity() + 1, deadline);
    }
}
