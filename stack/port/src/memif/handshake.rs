//! The start and the end of a link: the messages of both roles, over the socket.
//!
//! The server says hello; the client asks for an interface, passes its memory and its rings one
//! message at a time, each acknowledged, and connects. The link is up once the server has said
//! `connected`. It ends with a message, with a closed socket (a killed peer is no more than that),
//! or with a [`RingFault`](super::ring::RingFault) of a queue.
//!
//! [`Control::poll`] does what is there to do and never blocks. Its work is bounded:
//! [`MESSAGES_MAX`] messages a call, and [`START_LIMIT`] for a start; `limits.rs` bounds starts and
//! memory by user. A client's memory is new for each link, so an earlier peer has no access to a
//! later link. Rings of an ended link are dropped here, since that removes mappings: a polled core
//! hands them over ([`Shared::retire`]).
#![forbid(unsafe_code)]

mod client;
mod limits;
mod report;
mod server;
mod thread;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironwarp_stats::{CoreStats, Counter};
use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::ring::{RxRing, TxRing};
use super::socket::{Channel, Listener, Received};
use super::wire::{Disconnect, Message};
use super::{MemifConfig, MemifError, MemifRole};
use crate::pool::Pool;
use client::ClientStart;
use limits::Limits;
use report::Reports;
use server::ServerStart;
pub(super) use thread::ControlThread;

/// Messages handled in one call.
const MESSAGES_MAX: usize = 64;
/// Peers accepted in one call.
const ACCEPTS_MAX: usize = 4;
/// How long the start of a link may take.
const START_LIMIT: Duration = Duration::from_secs(2);
/// The interval between two attempts of a client to connect. It doubles with each that is refused,
/// up to the longest.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(2);
/// Rings of ended links whose memory may still be used when the next link gets buffers for frames
/// in place. Beyond that its frames are copied, so a peer that comes and goes, and acknowledges
/// nothing, makes no memory pile up.
const RINGS_IN_USE_MAX: usize = 4;
/// Acknowledgements that may come after the start.
const LATE_ACKS_MAX: u32 = 1024;

/// The rings of one queue pair.
pub(super) struct QueueRings {
    pub(super) rx: RxRing,
    pub(super) tx: TxRing,
    /// Buffers of the client's memory that its long frames are built in.
    pub(super) in_place: Option<Pool>,
}

impl QueueRings {
    /// Of an ended link: returns whether a frame still has a buffer of its memory.
    fn is_in_use(&mut self) -> bool {
        self.tx.release_all();
        self.in_place.as_ref().is_some_and(|pool| !pool.is_free())
    }
}

/// What the queues of a device share.
pub(super) struct Shared {
    /// Changes with every link that comes up or ends.
    pub(super) generation: AtomicU64,
    pub(super) up: AtomicBool,
    /// TCP checksums are left out on the link that is up.
    pub(super) partial_checksums: AtomicBool,
    /// The generation of the link that a queue found broken; 0: none.
    pub(super) broken: AtomicU64,
    /// Rings that the queues have not taken yet.
    rings: Mutex<Vec<Option<QueueRings>>>,
    /// Rings of ended links that the control side has to drop.
    retired: Mutex<Vec<QueueRings>>,
}

impl Shared {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Shared {
            generation: AtomicU64::new(1),
            up: AtomicBool::new(false),
            partial_checksums: AtomicBool::new(false),
            broken: AtomicU64::new(0),
            rings: Mutex::new(Vec::new()),
            retired: Mutex::new(Vec::new()),
        })
    }

    /// Takes the rings of a queue and the generation that they belong to.
    pub(super) fn take(&self, queue: usize) -> (u64, Option<QueueRings>) {
        let mut rings = self.rings.lock();
        (self.generation.load(Ordering::Acquire), rings.get_mut(queue).and_then(Option::take))
    }

    /// Hands over rings of an ended link: their last user removes the mappings, which takes too
    /// long for a polled core.
    pub(super) fn retire(&self, rings: QueueRings) {
        self.retired.lock().push(rings);
    }

    /// Drops rings of ended links, unless a frame that waits for its acknowledgement has a buffer
    /// of theirs. Returns how many are left.
    fn drop_retired(&self) -> usize {
        let mut retired = core::mem::take(&mut *self.retired.lock());
        // Without the lock, for which a core may wait.
        retired.retain_mut(QueueRings::is_in_use);
        let left = retired.len();
        self.retired.lock().append(&mut retired);
        left
    }

    fn publish(&self, rings: Vec<QueueRings>) {
        let up = !rings.is_empty();
        let partial_checksums = rings.first().is_some_and(|rings| rings.tx.has_partial_checksums());
        let mut rings: Vec<_> = rings.into_iter().map(Some).collect();
        let mut published = self.rings.lock();
        core::mem::swap(&mut *published, &mut rings);
        self.generation.fetch_add(1, Ordering::Release);
        self.partial_checksums.store(partial_checksums, Ordering::Release);
        // Last: a thread that reads `up` finds the rings of that state.
        self.up.store(up, Ordering::Release);
        drop(published);
        // What no queue has taken, without the lock.
        drop(rings);
    }
}

/// Why a peer is dropped: what is counted, and the reason that is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal(pub(super) Counter, pub(super) &'static str);

/// A message that does not belong here.
pub(super) const UNEXPECTED: Refusal = Refusal(Counter::PortMemifBadMessage, "Unexpected message");

/// The socket of this end.
enum Role {
    Server(Listener),
    Client(PathBuf),
}

/// How far the link is.
enum Stage {
    Server(Box<ServerStart>),
    Client(Box<ClientStart>),
    Up { late_acks: u32 },
}

/// A connected peer.
struct Peer {
    channel: Channel,
    since: Instant,
    stage: Stage,
}

/// What follows a message.
pub(super) enum Step {
    /// The start goes on.
    Continue,
    /// The link is up with these rings.
    Up(Vec<QueueRings>),
    /// The peer has said that it ends, and why.
    End(Disconnect),
    /// The channel is broken.
    Closed,
}

/// The control side of a device.
pub(super) struct Control {
    config: MemifConfig,
    shared: Arc<Shared>,
    role: Role,
    peer: Option<Peer>,
    retry_at: Instant,
    /// The interval to the next attempt of a client.
    retry_interval: Duration,
    limits: Limits,
    /// Readable when a peer waits, or a message.
    events: OwnedFd,
    /// The thread should pause. No peer could be accepted, for example without a free descriptor,
    /// and the socket stays readable; or a user has made too many starts.
    pause: bool,
    /// Rings of ended links whose memory frames still use.
    rings_in_use: usize,
    reports: Reports,
}

impl Control {
    /// Creates the server's socket. A client connects later.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub(super) fn new(config: MemifConfig, shared: Arc<Shared>) -> Result<Self, MemifError> {
        let role = match config.role {
            MemifRole::Server => Role::Server(Listener::bind(&config.socket)?),
            MemifRole::Client => Role::Client(config.socket.clone()),
        };
        let events = epoll::create(CreateFlags::CLOEXEC).map_err(MemifError::system)?;
        if let Role::Server(listener) = &role {
            epoll::add(&events, listener, EventData::new_u64(0), EventFlags::IN)
                .map_err(MemifError::system)?;
        }
        let retry_at = Instant::now();
        let reports = Reports::default();
        let (retry_interval, limits) = (RETRY_INTERVAL, Limits::default());
        Ok(Control {
            config,
            shared,
            role,
            peer: None,
            retry_at,
            retry_interval,
            limits,
            events,
            pause: false,
            rings_in_use: 0,
            reports,
        })
    }

    /// Returns the control side of a connected peer, without a socket to find others.
    #[cfg(any(test, fuzzing))]
    pub(super) fn with_peer(
        config: MemifConfig,
        shared: Arc<Shared>,
        channel: Channel,
        (now, stats): (Instant, &CoreStats),
    ) -> Self {
        let events = epoll::create(CreateFlags::CLOEXEC).expect("a descriptor");
        let (role, retry_at) = (Role::Client(PathBuf::new()), now + Duration::from_secs(1 << 32));
        let mut control = Control {
            config,
            shared,
            role,
            peer: None,
            retry_at,
            retry_interval: RETRY_INTERVAL,
            limits: Limits::default(),
            events,
            pause: false,
            rings_in_use: 0,
            reports: Reports::default(),
        };
        control.set_peer(channel, (now, stats));
        control
    }

    /// Connects a peer in place of the last one, which is gone.
    #[cfg(any(test, fuzzing))]
    pub(super) fn set_peer(&mut self, channel: Channel, (now, stats): (Instant, &CoreStats)) {
        self.drop_peer(None, stats);
        let stage = match self.config.role {
            MemifRole::Server if ServerStart::hello(&channel, &self.config) => Stage::Server(Box::default()),
            MemifRole::Server => return,
            MemifRole::Client => Stage::Client(Box::new(ClientStart::new(true))),
        };
        self.peer = Some(Peer { channel, since: now, stage });
    }

    /// Returns the descriptor that is readable when there is something to handle.
    pub(super) fn events(&self) -> &OwnedFd {
        &self.events
    }

    /// Returns how long there is nothing to do unless something arrives. `None`: no limit.
    pub(super) fn wait_limit(&self) -> Option<Duration> {
        match (&self.peer, &self.role) {
            (None, Role::Client(_)) => Some(RETRY_INTERVAL),
            (Some(Peer { stage: Stage::Up { .. }, .. }), _) | (None, Role::Server(_)) => {
                (self.rings_in_use > 0).then_some(START_LIMIT / 4)
            }
            (Some(_), _) => Some(START_LIMIT / 4),
        }
    }

    /// Returns how long the thread has to pause although there is something to handle.
    pub(super) fn take_pause(&mut self) -> Option<Duration> {
        core::mem::take(&mut self.pause).then_some(RETRY_INTERVAL)
    }

    /// Handles what has arrived.
    pub(super) fn poll(&mut self, now: Instant, stats: &CoreStats) {
        self.rings_in_use = self.shared.drop_retired();
        self.end_broken_link(stats);
        self.find_peer(now, stats);
        for _ in 0..MESSAGES_MAX {
            let Some(peer) = &mut self.peer else { return };
            let result = match peer.channel.receive() {
                Received::Nothing => break,
                Received::Closed => Ok(Step::Closed),
                Received::Malformed => Err(Refusal(Counter::PortMemifBadMessage, "Invalid message")),
                Received::Message(message, fd) => {
                    peer.on_message(message, fd, (&self.config, &mut self.limits))
                }
            };
            self.on_step(result, now, stats);
        }
        let late = |peer: &Peer| {
            !matches!(peer.stage, Stage::Up { .. }) && now.duration_since(peer.since) > START_LIMIT
        };
        if self.peer.as_ref().is_some_and(late) {
            self.on_step(Err(Refusal(Counter::PortMemifTimeouts, "Start took too long")), now, stats);
        }
    }

    /// Ends the link that a queue found broken.
    fn end_broken_link(&mut self, stats: &CoreStats) {
        let broken = self.shared.broken.swap(0, Ordering::AcqRel);
        if broken != 0 && broken == self.shared.generation.load(Ordering::Acquire) {
            // The queue has counted the reason.
            self.drop_peer(Some("Broken ring"), stats);
        }
    }

    fn find_peer(&mut self, now: Instant, stats: &CoreStats) {
        match &self.role {
            Role::Server(_) => {
                for _ in 0..ACCEPTS_MAX {
                    let Some(channel) = self.accept(stats) else { break };
                    self.on_peer(channel, now, stats);
                }
            }
            Role::Client(path) if self.peer.is_none() && now >= self.retry_at => {
                self.retry_at = now + RETRY_INTERVAL;
                let in_place = self.rings_in_use < RINGS_IN_USE_MAX;
                let stage = Stage::Client(Box::new(ClientStart::new(in_place)));
                let channel = Channel::connect(path).filter(|channel| self.watch(channel));
                self.peer = channel.map(|channel| Peer { channel, since: now, stage });
            }
            Role::Client(_) => {}
        }
    }

    /// Returns the next peer that waits at the server's socket.
    fn accept(&mut self, stats: &CoreStats) -> Option<Channel> {
        let Role::Server(listener) = &self.role else { return None };
        listener.accept().unwrap_or_else(|_| {
            stats.count(Counter::PortMemifAcceptErrors);
            self.pause = true;
            None
        })
    }

    /// Begins with a peer that has connected to the server, or tells it why not.
    fn on_peer(&mut self, channel: Channel, now: Instant, stats: &CoreStats) {
        if let Err(Refusal(counter, reason)) = self.admit(&channel, now) {
            stats.count(counter);
            let _ = channel.send(&Message::Disconnect(Disconnect::new(reason)), "", None);
        } else if self.watch(&channel) && ServerStart::hello(&channel, &self.config) {
            self.peer = Some(Peer { channel, since: now, stage: Stage::Server(Box::default()) });
        }
    }

    /// Has the thread woken when the peer has sent something or is gone.
    fn watch(&self, channel: &Channel) -> bool {
        epoll::add(&self.events, channel, EventData::new_u64(0), EventFlags::IN).is_ok()
    }

    /// Returns why a server does not begin with a peer that has connected.
    fn admit(&mut self, channel: &Channel, now: Instant) -> Result<(), Refusal> {
        if !channel.peer_user().is_some_and(|user| self.limits.may_start(user, now)) {
            self.pause = true;
            return Err(Refusal(Counter::PortMemifRateLimited, "Too many starts: one a second is allowed"));
        }
        if self.peer.is_some() {
            return Err(Refusal(Counter::PortMemifRefused, "Already connected"));
        }
        Ok(())
    }

    /// A start of this end was refused, by either end: the next one waits longer.
    fn back_off(&mut self, now: Instant) {
        self.retry_at = now + self.retry_interval;
        self.retry_interval = (self.retry_interval * 2).min(RETRY_INTERVAL_MAX);
    }

    fn on_step(&mut self, result: Result<Step, Refusal>, now: Instant, stats: &CoreStats) {
        let starting = self.peer.as_ref().is_some_and(|peer| !matches!(peer.stage, Stage::Up { .. }));
        match result {
            Ok(Step::Continue) => {}
            Ok(Step::Up(rings)) => {
                stats.count(Counter::PortMemifConnects);
                if let Some(peer) = &mut self.peer {
                    peer.stage = Stage::Up { late_acks: 0 };
                }
                self.reports.link_up();
                self.retry_interval = RETRY_INTERVAL;
                self.shared.publish(rings);
            }
            Ok(Step::End(end)) => {
                if starting {
                    self.reports.refused_by_peer(&self.config, &end, now);
                    self.back_off(now);
                }
                self.drop_peer(None, stats);
            }
            Ok(Step::Closed) => self.drop_peer(None, stats),
            Err(Refusal(counter, reason)) => {
                stats.count(counter);
                if starting {
                    self.reports.refused(&self.config, reason, now);
                    self.back_off(now);
                }
                self.drop_peer(Some(reason), stats);
            }
        }
    }

    /// Closes the channel. If the link was up, the queues lose their rings.
    fn drop_peer(&mut self, reason: Option<&str>, stats: &CoreStats) {
        let Some(peer) = self.peer.take() else { return };
        if let Some(reason) = reason {
            let _ = peer.channel.send(&Message::Disconnect(Disconnect::new(reason)), "", None);
        }
        if matches!(peer.stage, Stage::Up { .. }) {
            stats.count(Counter::PortMemifDisconnects);
            self.shared.publish(Vec::new());
        }
    }
}

impl Drop for Control {
    /// Tells the peer, and takes the rings from queues that are still polled.
    fn drop(&mut self) {
        if let Some(peer) = &self.peer {
            let _ = peer.channel.send(&Message::Disconnect(Disconnect::new("Device closed")), "", None);
        }
        self.shared.publish(Vec::new());
    }
}

impl Peer {
    fn on_message(
        &mut self,
        message: Message,
        fd: Option<OwnedFd>,
        (config, limits): (&MemifConfig, &mut Limits),
    ) -> Result<Step, Refusal> {
        match (&mut self.stage, message) {
            (_, Message::Disconnect(end)) => Ok(Step::End(end)),
            (Stage::Server(start), message) => start.on_message(message, fd, &self.channel, (config, limits)),
            (Stage::Client(start), message) => start.on_message(message, &self.channel, config),
            // A late acknowledgement changes nothing. Without an end they would keep the thread
            // busy.
            (Stage::Up { late_acks }, Message::Ack) if *late_acks < LATE_ACKS_MAX => {
                *late_acks += 1;
                Ok(Step::Continue)
            }
            (Stage::Up { .. }, _) => Err(UNEXPECTED),
        }
    }
}
