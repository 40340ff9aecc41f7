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
mod owners;
mod ports;
mod qp;
mod queues;
mod receive;
mod timers;
mod transmit;

use std::collections::VecDeque;
use std::sync::Arc;

use ironwarp_mem::CoreMem;
use ironwarp_net::{Net, Steering};
use ironwarp_port::{Burst, PerPort, Port, Wire};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::wheel::Wheel;
use ironwarp_tcp::{ConnId, Patience, Tcp, TcpEvents};
use ironwarp_types::limits::FPDU_MARKED_BYTES_MAX;
use ironwarp_types::{Clock, Nanos};

pub(crate) use build::{CoreParts, steered_frames};
use connection::passive::PassiveTable;
pub(crate) use cores::{LEADER, Peers, mesh};
pub(crate) use owners::{Owners, owners};
use qp::QpTable;
pub(crate) use qp::{QpCore, QpSetup};
use queues::Queues;
pub(crate) use queues::{CqCore, CqParts, CqRing, Selected, SrqCore, SrqPlace};

use crate::config::MpaConfig;
use crate::link::ContextLink;
use crate::shared::Shared;
use crate::worker::{Holdings, Polled};

/// What a [`Worker`](crate::Worker) drives: one loop, whatever its port and clock. The one indirect call an
/// iteration keeps the port's type out of the public interface.
pub(crate) trait PollLoop: Send {
    fn poll(&mut self, budget: usize) -> Polled;
    fn now(&self) -> Nanos;
    fn link_up(&mut self, port: u8) -> bool;
    /// Whether everything that must always hold does.
    fn check(&mut self) -> Result<(), String>;
    /// What the core holds.
    fn holdings(&self) -> Holdings;
    /// The port, for whoever knows its type.
    fn port_any(&mut self) -> &mut dyn core::any::Any;
}

/// Who a TCP connection belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Nobody,
    /// A queue pair, by place.
    Qp(u32),
    /// An incoming connection that has no queue pair yet, by place.
    Passive(u32),
}

/// Something that may have bytes to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sender {
    Qp(u32),
    Passive(u32),
}

/// One core's loop over port `P` with clock `C`. On cache lines of its own: other cores' loops may lie beside it.
#[repr(align(64))]
pub(crate) struct CoreLoop<P: Port, C: Clock> {
    core: u16,
    /// The other cores of the stack, where there are any.
    peers: Option<Box<Peers<P::Frame>>>,
    /// Whose a flow is, where there are others; known also while their rings are read, which takes `peers` away.
    steering: Option<Steering>,
    clock: C,
    /// What is known of the network of each port.
    nets: PerPort<Net>,
    tcp: Tcp<P>,
    mem: CoreMem,
    /// Where bursts arrive. Taken while its frames are worked on, by its box: a burst moved is a copy of all its places.
    received: Option<Box<Burst<P::Frame>>>,
    /// Where an FPDU that came in pieces is put together before its CRC is checked.
    scratch: Box<[u8]>,
    qps: QpTable,
    passives: PassiveTable,
    cqs: Queues,
    owners: Box<[Owner]>,
    /// What TCP's timers told, until it is passed on: at most one entry a connection.
    fired: Vec<(ConnId, TcpEvents)>,
    contexts: Vec<Option<ContextLink>>,
    /// Who has something to send, in turn, each at most once.
    ready: VecDeque<Sender>,
    /// Queue pairs with something that waits until no core uses a steering tag, each at most once.
    waiting: Vec<u32>,
    /// Queue pairs that wait for a link address.
    resolving: Vec<u32>,
    /// [`Self::route_changes`] when they were last looked at.
    routes_seen: u32,
    /// Which connection's path is looked at next, while that goes on.
    paths_at: Option<u32>,
    /// When all paths are looked at again.
    paths_due: Nanos,
    wheel: Wheel,
    mpa: MpaConfig,
    /// How long queue pairs that do not say otherwise wait for a silent peer.
    patience: Patience,
    link_up: fn(&mut P) -> bool,
    link_every: Nanos,
    /// Ports whose link was there and is not, or has not been there, one bit each.
    links_lost: u8,
    /// Whether an address that another station claims has been told of.
    conflict_told: bool,
    /// Whether a link has been told our address.
    announced: bool,
    shared: Arc<Shared>,
    stats: CoreStats,
    work: usize,
    /// How much of that was what applications have posted, and its sending.
    posted: usize,
    /// When the next iteration is due, as it was told last.
    next: Option<Nanos>,
    /// When the first timer is due, of those that were armed when something was last done.
    timers_due: Nanos,
    /// Until when an iteration that nothing has come to is over behind the mailboxes. Anything that changes something else
    /// counts as work, or moves this.
    quiet_until: Nanos,
    /// Let go of last: the frames that others here hold must be back in the ports' pools.
    wire: Wire<P>,
}

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// One iteration: at most `budget` bursts in, then everything that follows from them.
    pub(crate) fn iterate(&mut self, budget: usize) -> Polled {
        let now = self.send_posted();
        self.receive(now, budget);
        self.mailboxes(now);
        if self.work > 0 || now >= self.quiet_until {
            self.follow(now);
        } else {
            debug_assert!(self.is_quiet(now));
            if self.peers.is_some() {
                self.answer_words();
            }
        }
        self.rest();
        Polled { work: self.work, next_deadline: self.next }
    }

    /// What applications have posted leaves before frames are looked for: who has just posted often waits for the answer, and has
    /// looked for frames in the iteration before. Where others have waited for a turn already, it takes its turn behind them later.
    /// Answers the time, read again when more than one frame has left: what arrives meanwhile is not older than what was sent.
    fn send_posted(&mut self) -> Nanos {
        let (mut now, nobody_waits) = (self.clock.now(), self.ready.is_empty());
        self.work = 0;
        self.doorbells();
        let rung = self.work;
        if rung > 0 && nobody_waits {
            self.transmit(now);
            self.wire.flush();
            if self.work > rung + 1 {
                now = self.clock.now();
            }
        }
        self.posted = self.work;
        now
    }

    /// What follows from what has come, and from the time. A timer that was armed in this iteration is due in the next at the
    /// earliest, which comes at once.
    fn follow(&mut self, now: Nanos) {
        if now >= self.timers_due || !self.is_settled() {
            self.timers(now);
        }
        if !self.waiting.is_empty() {
            self.look_at_memory(now);
        }
        self.transmit(now);
        self.tcp.flush_acks(now, &mut self.wire);
        self.wire.flush();
        self.cqs.notify();
        if self.cqs.has_news() {
            self.tell_limits();
        }
        if self.peers.is_some() {
            self.post_news();
            self.answer_words();
        }
        let first = self.first_timer();
        self.timers_due = first.min(self.paths_due);
        let goes_on = self.goes_on();
        self.next = if goes_on { Some(now) } else { (first != Nanos::MAX).then_some(first) };
        self.quiet_until = if goes_on || !self.is_settled() { Nanos::ZERO } else { self.timers_due };
    }

    /// Whether the next iteration is due at once: while an ACK is held or somebody waits for a turn.
    #[inline]
    fn goes_on(&self) -> bool {
        self.tcp.owes_acks()
            || !self.ready.is_empty()
            || !self.waiting.is_empty()
            || self.wire.waiting_frames() > 0
            || self.paths_at.is_some()
            || self.peers.as_ref().is_some_and(|peers| peers.is_busy() || self.cqs.waits_for_owners())
    }

    /// When the first timer is due that is armed; [`Nanos::MAX`]: none is.
    #[inline]
    fn first_timer(&self) -> Nanos {
        let tcp = self.tcp.next_deadline().unwrap_or(Nanos::MAX);
        let own = self.wheel.next_deadline().unwrap_or(Nanos::MAX);
        tcp.min(own).min(self.nets_deadline())
    }

    /// Whether nothing is left that every iteration tries anew and that has no deadline.
    #[inline]
    fn is_settled(&self) -> bool {
        let has_news = self.cqs.has_news() || self.routes_seen != self.route_changes();
        self.announced && !has_news && self.paths_at.is_none() && !self.tcp.lacks_frames()
    }

    /// Whether the rest of an iteration that nothing has come to would indeed do nothing.
    fn is_quiet(&self, now: Nanos) -> bool {
        now < self.first_timer().min(self.paths_due) && self.is_settled() && !self.goes_on()
    }

    /// Says that nothing of registered memory is in use. A core that found nothing to do counts as resting until it
    /// has, so that memory can be released though nobody polls; and it releases what waits for that, a little at a time:
    /// the application that dropped it may never call again.
    fn rest(&mut self) {
        self.stats.add(Counter::CoresPolls, 1);
        if self.work == 0 {
            self.stats.add(Counter::CoresPollsIdle, 1);
            self.mem.park();
            self.shared.mem.collect();
        } else {
            self.mem.quiesce();
        }
    }

    fn owner(&self, conn: ConnId) -> Owner {
        self.owners.get(conn.index()).copied().unwrap_or(Owner::Nobody)
    }

    fn set_owner(&mut self, conn: ConnId, owner: Owner) {
        if let Some(place) = self.owners.get_mut(conn.index()) {
            *place = owner;
        }
    }
}
