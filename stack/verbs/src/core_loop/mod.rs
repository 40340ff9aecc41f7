//! The core loop: the one module that knows every layer.
//!
//! One iteration runs its stages in a fixed order: doorbells, receive, mailboxes, timers, transmit,
//! acknowledgements. A frame is handled from the device to registered memory, and its replies from
//! memory to the device, within one iteration. With several cores, the loop serves the other cores'
//! atomic operations after the receive stage and at the end.
//!
//! ```text
//!              frames, doorbells, time
//!                        |
//!                        v           outcomes
//!   CoreLoop ------> DataPath ------------------> CoreLoop ------> ConnectionManager
//!      |                 ^                                                 |
//!      |                 +----------------- borrowed for a call -----------+
//!      |                 |                                                 |
//!      +------> NetHousekeeping                                  notifications to contexts
//! ```
//!
//! [`DataPath`] carries frames and FPDUs; [`ConnectionManager`] moves queue pairs through their
//! [`lifecycle`] and talks to contexts; [`NetHousekeeping`] looks after links and paths. Each owns
//! its state and is handed what it needs for the call. The stages are in [`stages`].
//!
//! Takes frames, doorbells, control messages and time; gives frames, completions and notifications.
//! An error ends one connection and is reported to its context; the loop itself does not fail. An
//! iteration reads the clock once or twice and does a few loads for each context; its cost grows
//! with the number of active queue pairs. The established data path allocates nothing:
//! `stack/verbs/tests/no_allocation.rs` checks it.

mod build;
pub(crate) mod channel;
mod check;
mod clock;
mod connection;
mod connection_table;
mod cores;
mod data_path;
mod handover;
mod housekeeping;
mod lifecycle;
pub(crate) mod lower;
mod notification;
mod path_refresh;
mod saved;
mod stages;

use std::sync::Arc;

use ironwarp_llp::{RestoreError, SaveError, Transport};
use ironwarp_stats::Counter;
use ironwarp_types::{Clock, Nanos};

pub(crate) use build::{CoreParts, local_mac, steered_frames};
pub(crate) use cores::{LEADER, core_mesh};
pub(crate) use data_path::qp::{QpCore, QpHalf, QpSetup};
pub(crate) use data_path::queues::{CqCore, CqParts, CqRing, QpQueueSlots, SrqCore, SrqSlot};
pub(crate) use data_path::remote_atomics::remote_atomics_mesh;

use clock::CoreClock;
use connection::ConnectionManager;
use connection_table::ConnectionTable;
use data_path::DataPath;
use housekeeping::NetHousekeeping;
pub(crate) use lower::{BothTransports, DdpOverSctp, Lower, MpaOverTcp};

use crate::objects::QueuePair;
use crate::shared::StackShared;
use crate::stack::DriverPort;
use crate::worker::{PollResult, ResourceUsage};

/// What a [`Worker`](crate::Worker) drives: a loop over any port and clock. One indirect call an
/// iteration keeps the port's type out of the public interface.
pub(crate) trait PollLoop: Send {
    fn iterate(&mut self, budget: usize) -> PollResult;
    fn now(&self) -> Nanos;
    /// Returns until when the worker may sleep after an iteration without work, if nothing arrives.
    /// `None`: not at all.
    fn sleep_until(&self) -> Option<Nanos>;
    fn link_up(&mut self, port: u8) -> bool;
    /// Checks the invariants of every layer.
    fn check(&mut self) -> Result<(), String>;
    /// Counts the core's objects.
    fn resource_usage(&self) -> ResourceUsage;
    /// Saves the connection of a queue pair and forgets it.
    fn take_connection(&mut self, qp: QueuePair) -> Result<Vec<u8>, SaveError>;
    /// Restores a saved connection for a queue pair without one.
    fn restore_connection(&mut self, qp: QueuePair, saved: &[u8]) -> Result<(), RestoreError>;
    /// Returns the first port; `None` if no driver made it.
    fn driver_port(&mut self) -> Option<DriverPort<'_>>;
}

/// One core's loop over the lower layer `L` with clock `C`: three parts, each with its own state,
/// and the schedule of iterations.
///
/// The parts call in one direction: the connection manager and housekeeping borrow the data path
/// for a call; the data path returns outcomes. On cache lines of its own, since another core's loop
/// may be its neighbour in memory.
#[repr(align(64))]
pub(crate) struct CoreLoop<L: Lower, C: Clock> {
    clock: CoreClock<C>,
    /// Frames to registered memory and back.
    dp: DataPath<L>,
    /// Connections outside full operation, and the contexts that own them.
    cm: ConnectionManager<L>,
    /// Links and the paths of connections.
    housekeeping: NetHousekeeping,
    /// The connections in the page of counters; `None` if no other process can read it.
    connection_table: Option<Box<ConnectionTable>>,
    shared: Arc<StackShared>,
    lend: fn(&mut L::Port) -> Option<DriverPort<'_>>,
    /// When the next iteration is due, as last returned.
    next_due: Option<Nanos>,
    /// An iteration with work runs the timer stage from this time on.
    timers_checked_at: Nanos,
    /// Iterations by which the timer stage waits for frames that arrived while the core stood
    /// still.
    pause_iterations: u32,
    /// Until this time an iteration without work skips the later stages: zero after one with work.
    /// Code that creates work for them adds to `dp.work` or sets this to zero.
    idle_until: Nanos,
}

/// How often a busy core runs the timer stage: once in a tick of the timer wheels, which is their
/// precision.
const TIMER_CHECK_INTERVAL: Nanos = Nanos(1 << 14);

/// A core that is later than this with a timer stood still, or had much to do: it reads the frames
/// that wait before it judges a peer by its timers.
const PAUSE_MIN: Nanos = Nanos::from_millis(10);

/// The most iterations that it reads them in. Together they read the largest ring; frames that
/// never end hold timers back no longer.
const PAUSE_ITERATIONS: u32 = 64;

/// How often a sleeping core tries work again that no timer announces, such as to announce
/// addresses on a link.
const RETRY_INTERVAL: Nanos = Nanos::from_millis(1);

impl<L: Lower, C: Clock> PollLoop for CoreLoop<L, C>
where
    CoreLoop<L, C>: Send,
{
    /// One iteration: receives at most `budget` bursts and handles everything that follows from
    /// them. Requests of contexts that arrive after the check for them wait for the next iteration.
    fn iterate(&mut self, budget: usize) -> PollResult {
        let read = self.clock.read();
        self.dp.work = 0;
        let requests = self.cm.requests();
        // Most iterations of a polled core find nothing to do. Only a core with one port and no
        // other cores is checked for that; any other runs its stages. Frames that arrive during the
        // check wait for the receive stage.
        let may_be_quiet = !(requests.doorbells | requests.messages)
            && read < self.idle_until
            && !self.clock.is_behind(read);
        if may_be_quiet && self.dp.may_be_quiet && !self.dp.has_frames(0) {
            self.report_idle();
            return PollResult { work: 0, next_deadline: self.next_due };
        }
        let mut now = self.clock.checked(read);
        if requests.doorbells {
            now = self.send_posted(now);
        }
        self.dp.doorbell_stage_work = self.dp.work;
        self.receive(now, budget);
        self.serve_mailboxes(now, requests.messages);
        if self.dp.work > 0 || now >= self.idle_until {
            self.run_later_stages(now);
        } else {
            debug_assert!(self.is_idle(now));
            if self.dp.other_cores.is_some() {
                self.dp.serve_remote_atomics();
            }
        }
        if self.dp.other_cores.is_some() {
            self.wake_other_cores();
        }
        self.report_memory_quiescent();
        PollResult { work: self.dp.work, next_deadline: self.next_due }
    }

    fn now(&self) -> Nanos {
        self.clock.peek()
    }

    fn sleep_until(&self) -> Option<Nanos> {
        self.first_due()
    }

    fn link_up(&mut self, port: u8) -> bool {
        self.housekeeping.is_link_up(&mut self.dp, port)
    }

    fn check(&mut self) -> Result<(), String> {
        self.check_invariants()
    }

    fn resource_usage(&self) -> ResourceUsage {
        self.count_holdings()
    }

    fn take_connection(&mut self, qp: QueuePair) -> Result<Vec<u8>, SaveError> {
        self.save_and_forget(qp)
    }

    fn restore_connection(&mut self, qp: QueuePair, saved: &[u8]) -> Result<(), RestoreError> {
        self.restore_saved(qp, saved)
    }

    fn driver_port(&mut self) -> Option<DriverPort<'_>> {
        self.dp.wires.flush();
        (self.lend)(self.dp.wires.first_mut().port_mut())
    }
}

impl<L: Lower, C: Clock> CoreLoop<L, C> {
    /// The stages after the mailboxes. A timer that is armed in this iteration expires in the next
    /// one at the earliest.
    fn run_later_stages(&mut self, now: Nanos) {
        if self.dp.work == 0 || now >= self.timers_checked_at {
            let is_late = now.since(self.timers_checked_at) >= PAUSE_MIN;
            if !(is_late && self.reads_after_pause(now)) {
                self.timers_checked_at = now + TIMER_CHECK_INTERVAL;
                self.run_timers(now);
            }
        }
        if !self.dp.quiescence_waiters.is_empty() {
            self.poll_quiescence_waiters(now);
        }
        if !self.dp.tx_ready.is_empty() {
            self.transmit(now);
        }
        self.dp.llp.flush_acks(now, &mut self.dp.wires);
        self.dp.wires.flush();
        self.dp.queues.notify();
        if self.dp.queues.has_events() {
            self.cm.report_queue_events(&mut self.dp);
        }
        if self.dp.other_cores.is_some() {
            self.dp.send_net_messages();
            self.dp.serve_remote_atomics();
        }
        if self.dp.work == 0 {
            self.plan_next_iteration(now);
        } else {
            // More work often follows: the deadlines are read once there is none.
            (self.next_due, self.idle_until) = (Some(now), Nanos::ZERO);
        }
    }

    /// Returns whether the timers wait for the next iteration, since frames that arrived while the
    /// core stood still may show that a peer is alive whose time is over (RFC 9293 s3.8.3). They do
    /// while iterations find work, up to a bound.
    #[cold]
    #[inline(never)]
    fn reads_after_pause(&mut self, now: Nanos) -> bool {
        let reads =
            self.dp.work > 0 && self.pause_iterations < PAUSE_ITERATIONS && self.first_deadline() <= now;
        self.pause_iterations = if reads { self.pause_iterations + 1 } else { 0 };
        reads
    }

    /// Decides when the next iteration is due and until when the later stages have nothing to do.
    #[inline(never)]
    fn plan_next_iteration(&mut self, now: Nanos) {
        let first = self.first_deadline();
        let has_immediate_work = self.has_immediate_work();
        self.next_due = if has_immediate_work { Some(now) } else { (first != Nanos::MAX).then_some(first) };
        let is_idle = !has_immediate_work && self.has_nothing_to_poll_for();
        self.idle_until = if is_idle { first.min(self.housekeeping.path_refresh_due()) } else { Nanos::ZERO };
    }

    /// Returns whether the next iteration is due at once, for example because an ACK or a sender
    /// waits.
    #[inline]
    fn has_immediate_work(&self) -> bool {
        self.dp.llp.has_pending_acks()
            || !self.dp.tx_ready.is_empty()
            || !self.dp.quiescence_waiters.is_empty()
            || self.dp.wires.waiting_frames() > 0
            || self.housekeeping.is_refreshing()
            || self.dp.other_cores.as_ref().is_some_and(|other_cores| {
                other_cores.has_pending_work() || self.dp.queues.has_outstanding_remote_atomics()
            })
    }

    /// When the first armed timer is due; [`Nanos::MAX`]: none is armed.
    #[inline]
    fn first_deadline(&self) -> Nanos {
        let tcp = self.dp.llp.next_deadline().unwrap_or(Nanos::MAX);
        let own = self.cm.next_deadline();
        tcp.min(own).min(self.dp.nets_next_deadline())
    }

    /// Returns whether nothing has to be tried again in every iteration. Such work has no timer.
    #[inline]
    fn has_nothing_to_poll_for(&self) -> bool {
        let has_events = self.dp.queues.has_events() || self.housekeeping.routes_changed(&self.dp);
        self.housekeeping.announced()
            && !has_events
            && !self.housekeeping.is_refreshing()
            && !self.dp.llp.has_retries()
    }

    /// Returns until when nothing is due. Work without a timer is tried again after
    /// [`RETRY_INTERVAL`].
    fn first_due(&self) -> Option<Nanos> {
        let now = self.clock.peek();
        let due = self.next_due.unwrap_or(Nanos::MAX);
        if due <= now || self.has_immediate_work() {
            return None;
        }
        Some(if self.idle_until > now { self.idle_until } else { due.min(now + RETRY_INTERVAL) })
    }

    /// Wakes the cores that this one has sent frames, messages or requests to.
    #[inline(never)]
    fn wake_other_cores(&mut self) {
        let mut cores = self.dp.take_cores_to_wake();
        while cores != 0 {
            let core = cores.trailing_zeros();
            cores &= cores - 1;
            if let Some(wake) = self.shared.cores.get(core as usize).and_then(|core| core.wake.as_ref()) {
                wake.fire();
            }
        }
    }

    /// Returns whether the later stages may be skipped. For assertions.
    fn is_idle(&self, now: Nanos) -> bool {
        now < self.first_deadline().min(self.housekeeping.path_refresh_due())
            && self.has_nothing_to_poll_for()
            && !self.has_immediate_work()
    }

    /// Reports that this core uses no registered memory between two iterations. An idle core goes
    /// offline until it has work, so that memory can be released even if the core is not polled.
    fn report_memory_quiescent(&mut self) {
        if self.dp.work == 0 {
            self.report_idle();
        } else {
            self.dp.stats.count(Counter::CoresPolls);
            self.dp.mem.quiesce();
        }
    }

    #[inline(always)]
    fn report_idle(&mut self) {
        self.dp.stats.count(Counter::CoresPolls);
        self.dp.stats.count(Counter::CoresPollsIdle);
        self.dp.mem.go_offline();
    }
}
