//! The core loop: the one place that knows every layer.
//!
//! One iteration runs its stages in a fixed order: doorbells and what was posted, receive, mailboxes, timers, transmit,
//! acknowledgements. A frame is carried from the device to registered memory, and the answers from memory to the device,
//! before the next iteration starts. Where there are several cores, each looks behind the receive stage and last of all
//! whether others ask for words of its own. Each layer owns its state and is handed what it needs for the call; none holds
//! a reference to another.
//!
//! Takes frames, doorbells, control messages and time; gives frames, completions and notices. Errors end one
//! connection and are told to its context; nothing here fails as a whole. Costs a clock read or two, a few loads for
//! every context and O(active) for queue pairs. Nothing is allocated after construction except boxes that arrive
//! from contexts and go back to them.

mod build;
mod check;
mod connection;
mod control;
mod cores;
mod ports;
mod qp;
mod queues;
mod receive;
mod remote_atomics;
mod timers;
mod transmit;

use std::collections::VecDeque;
use std::sync::Arc;

use ironwarp_mem::CoreMem;
use ironwarp_net::{Net, Steering};
use ironwarp_port::{Burst, PerPort, Port, Wire};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::wheel::Wheel;
use ironwarp_tcp::{ConnId, Tcp, TcpEvents, TcpTimeouts};
use ironwarp_types::limits::FPDU_MARKED_BYTES_MAX;
use ironwarp_types::{Clock, Nanos};

pub(crate) use build::{CoreParts, steered_frames};
use connection::passive::PassiveTable;
pub(crate) use cores::{LEADER, OtherCores, core_mesh};
use qp::QpTable;
pub(crate) use qp::{QpCore, QpSetup};
use queues::QueueTable;
pub(crate) use queues::{CqCore, CqParts, CqRing, SelectedQueues, SrqCore, SrqSlot};
pub(crate) use remote_atomics::{RemoteAtomics, remote_atomics_mesh};

use crate::channel::ContextChannel;
use crate::config::MpaConfig;
use crate::shared::StackShared;
use crate::worker::{PollResult, ResourceUsage};

/// What a [`Worker`](crate::Worker) drives: one loop, whatever its port and clock. The one indirect call an
/// iteration keeps the port's type out of the public interface.
pub(crate) trait PollLoop: Send {
    fn poll(&mut self, budget: usize) -> PollResult;
    fn now(&self) -> Nanos;
    fn link_up(&mut self, port: u8) -> bool;
    /// Whether everything that must always hold does.
    fn check(&mut self) -> Result<(), String>;
    /// What the core holds.
    fn resource_usage(&self) -> ResourceUsage;
    /// The port, for whoever knows its type.
    fn port_any(&mut self) -> &mut dyn core::any::Any;
}

/// Who a TCP connection belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnOwner {
    Unowned,
    /// A queue pair, by place.
    Qp(u32),
    /// An incoming connection that has no queue pair yet, by place.
    Passive(u32),
}

/// Something that may have bytes to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TxSource {
    Qp(u32),
    Passive(u32),
}

/// One core's loop over port `P` with clock `C`. On cache lines of its own: other cores' loops may lie beside it.
#[repr(align(64))]
pub(crate) struct CoreLoop<P: Port, C: Clock> {
    core: u16,
    /// The other cores of the stack, where there are any.
    other_cores: Option<Box<OtherCores<P::Frame>>>,
    /// Whose a flow is, where there are others; known also while their rings are read, which takes `other_cores` away.
    steering: Option<Steering>,
    clock: C,
    /// What is known of the network of each port.
    nets: PerPort<Net>,
    tcp: Tcp<P>,
    mem: CoreMem,
    /// Where bursts arrive. Taken while its frames are worked on, by its box: a burst moved is a copy of all its places.
    rx_burst: Option<Box<Burst<P::Frame>>>,
    /// Where an FPDU that came in pieces is put together before its CRC is checked.
    scratch: Box<[u8]>,
    qps: QpTable,
    passives: PassiveTable,
    queues: QueueTable,
    conn_owners: Box<[ConnOwner]>,
    /// What TCP's timers told, until it is passed on: at most one entry a connection.
    timer_events: Vec<(ConnId, TcpEvents)>,
    contexts: Vec<Option<ContextChannel>>,
    /// Who has something to send, in turn, each at most once.
    tx_ready: VecDeque<TxSource>,
    /// Queue pairs with something that waits until no core uses a steering tag, each at most once.
    memory_waiters: Vec<u32>,
    /// Queue pairs that wait for a link address.
    resolving: Vec<u32>,
    /// [`Self::route_changes`] when they were last looked at.
    route_changes_seen: u32,
    /// Which connection's path is looked at next, while that goes on.
    path_refresh_next: Option<u32>,
    /// When all paths are looked at again.
    path_refresh_due: Nanos,
    wheel: Wheel,
    mpa: MpaConfig,
    /// How long queue pairs that do not say otherwise wait for a silent peer.
    timeouts: TcpTimeouts,
    link_up: fn(&mut P) -> bool,
    link_poll_interval: Nanos,
    /// Ports whose link was there and is not, or has not been there, one bit each.
    links_down: u8,
    /// Whether an address that another station claims has been told of.
    conflict_reported: bool,
    /// Whether a link has been told our address.
    announced: bool,
    shared: Arc<StackShared>,
    stats: CoreStats,
    work: usize,
    /// How much of that was what applications have posted, and its sending.
    posted_work: usize,
    /// When the next iteration is due, as it was told last.
    next_due: Option<Nanos>,
    /// When the first timer is due, of those that were armed when something was last done.
    timers_due: Nanos,
    /// Until when an iteration that nothing has come to is over behind the mailboxes. Anything that changes something else
    /// counts as work, or moves this.
    idle_until: Nanos,
    /// Let go of last: the frames that others here hold must be back in the ports' pools.
    wire: Wire<P>,
}

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// One iteration: at most `budget` bursts in, then everything that follows from them.
    pub(crate) fn iterate(&mut self, budget: usize) -> PollResult {
        let now = self.send_posted();
        self.receive(now, budget);
        self.serve_mailboxes(now);
        if self.work > 0 || now >= self.idle_until {
            self.run_later_stages(now);
        } else {
            debug_assert!(self.is_idle(now));
            if self.other_cores.is_some() {
                self.serve_remote_atomics();
            }
        }
        self.report_quiescent();
        PollResult { work: self.work, next_deadline: self.next_due }
    }

    /// What applications have posted leaves before frames are looked for: who has just posted often waits for the answer, and has
    /// looked for frames in the iteration before. Where others have waited for a turn already, it takes its turn behind them later.
    /// Answers the time, read again when more than one frame has left: what arrives meanwhile is not older than what was sent.
    fn send_posted(&mut self) -> Nanos {
        let (mut now, queue_was_empty) = (self.clock.now(), self.tx_ready.is_empty());
        self.work = 0;
        self.serve_doorbells();
        let doorbell_work = self.work;
        if doorbell_work > 0 && queue_was_empty {
            self.transmit(now);
            self.wire.flush();
            if self.work > doorbell_work + 1 {
                now = self.clock.now();
            }
        }
        self.posted_work = self.work;
        now
    }

    /// What follows from what has come, and from the time. A timer that was armed in this iteration is due in the next at the
    /// earliest, which comes at once.
    fn run_later_stages(&mut self, now: Nanos) {
        if now >= self.timers_due || !self.has_no_retries() {
            self.run_timers(now);
        }
        if !self.memory_waiters.is_empty() {
            self.poll_memory_waiters(now);
        }
        self.transmit(now);
        self.tcp.flush_acks(now, &mut self.wire);
        self.wire.flush();
        self.queues.notify();
        if self.queues.has_events() {
            self.report_queue_events();
        }
        if self.other_cores.is_some() {
            self.send_net_messages();
            self.serve_remote_atomics();
        }
        let first = self.first_deadline();
        self.timers_due = first.min(self.path_refresh_due);
        let has_immediate_work = self.has_immediate_work();
        self.next_due = if has_immediate_work { Some(now) } else { (first != Nanos::MAX).then_some(first) };
        self.idle_until =
            if has_immediate_work || !self.has_no_retries() { Nanos::ZERO } else { self.timers_due };
    }

    /// Whether the next iteration is due at once: while an ACK is held or somebody waits for a turn.
    #[inline]
    fn has_immediate_work(&self) -> bool {
        self.tcp.has_pending_acks()
            || !self.tx_ready.is_empty()
            || !self.memory_waiters.is_empty()
            || self.wire.waiting_frames() > 0
            || self.path_refresh_next.is_some()
            || self.other_cores.as_ref().is_some_and(|other_cores| {
                other_cores.has_pending_work() || self.queues.has_outstanding_remote_atomics()
            })
    }

    /// When the first timer is due that is armed; [`Nanos::MAX`]: none is.
    #[inline]
    fn first_deadline(&self) -> Nanos {
        let tcp = self.tcp.next_deadline().unwrap_or(Nanos::MAX);
        let own = self.wheel.next_deadline().unwrap_or(Nanos::MAX);
        tcp.min(own).min(self.nets_next_deadline())
    }

    /// Whether nothing is left that every iteration tries anew and that has no deadline.
    #[inline]
    fn has_no_retries(&self) -> bool {
        let has_events = self.queues.has_events() || self.route_changes_seen != self.route_changes();
        self.announced
            && !has_events
            && self.path_refresh_next.is_none()
            && !self.tcp.needs_terminate_reserve()
    }

    /// Whether the rest of an iteration that nothing has come to would indeed do nothing.
    fn is_idle(&self, now: Nanos) -> bool {
        now < self.first_deadline().min(self.path_refresh_due)
            && self.has_no_retries()
            && !self.has_immediate_work()
    }

    /// Says that nothing of registered memory is in use. A core that found nothing to do counts as resting until it
    /// has, so that memory can be released though nobody polls; and it releases what waits for that, a little at a time:
    /// the application that dropped it may never call again.
    fn report_quiescent(&mut self) {
        self.stats.add(Counter::CoresPolls, 1);
        if self.work == 0 {
            self.stats.add(Counter::CoresPollsIdle, 1);
            self.mem.go_offline();
            self.shared.mem.reclaim();
        } else {
            self.mem.quiesce();
        }
    }

    fn owner(&self, conn: ConnId) -> ConnOwner {
        self.conn_owners.get(conn.index()).copied().unwrap_or(ConnOwner::Unowned)
    }

    fn set_owner(&mut self, conn: ConnId, owner: ConnOwner) {
        if let Some(entry) = self.conn_owners.get_mut(conn.index()) {
            *entry = owner;
        }
    }
}
