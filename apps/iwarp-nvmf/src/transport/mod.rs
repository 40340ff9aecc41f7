//! The RDMA transport: a reactor for each core, a connection for each queue.
//!
//! A [`Reactor`] owns a core's worker, context, memory and backends. [`Reactor::poll`] runs one
//! turn: the worker, the connection events, the completions of RDMA and of the backends, and what
//! waits. No data passes between threads: a queue lives on the core at which its connection
//! arrived. A connection request passes to that core once.
//!
//! Hosts do not trust each other. Everything that a core has is bounded by connection and by host:
//!
//! | resource | who gets it | where |
//! | --- | --- | --- |
//! | time of a turn | each host its share, then the host that spent least | [`party`] |
//! | connections, capsules | a newcomer, from the host with the most | `admission` |
//! | connection requests | each host in turn, one now and then | `requests` |
//! | data buffers | a reserve for each connection, then a share of what is left | `buffers` |
//! | what a command waits for | a list for each resource, in turn by host and connection | `wait` |
//! | a disk's answers | a deadline, after which the command ends without its buffer | `late` |
//! | buffers that disks have | a part for each disk, then a share of the other half | `disks` |
//! | a host's answers | a deadline, which is shorter while others wait for what it holds | [`CoreLimits`] |
//!
//! The time is that of the worker's clock; nothing here reads another one.
//!
//! Source: NVM Express over Fabrics 1.1, 2; NVMe RDMA transport, RDMA_CM format 0.

mod admission;
pub mod arena;
mod buffers;
mod check;
mod connection;
mod devices;
mod disks;
mod late;
mod listener;
pub mod party;
mod requests;
mod turn;
mod wait;

use core::net::SocketAddr;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use ironwarp::{
    Completion, CompletionQueue, CompletionStatus, Context, Event, ProtectionDomain, QueuePair, VerbsError,
    Worker,
};

pub use connection::CoreIo;
use connection::Waited;
pub use devices::{CoreDevices, Device, DeviceChange, DeviceChanges, Devices, device_changes};
pub use listener::{Arrival, Arrivals, arrivals, entries_reserved};

use crate::NvmfError;
use crate::target::Target;
use admission::Deferred;
use arena::{ArenaLimits, CoreMemory};
use connection::Connection;
use connection::wr_id::{Kind, WrId};
use disks::DiskBuffers;
use late::{NO_CAPSULE, Orphans};
use party::Parties;
use requests::Requests;
use wait::Waits;

/// Completions taken from the queue at once.
const COMPLETIONS: usize = 64;
/// Rounds of sending that a turn adds while commands wait for the next one.
const ROUNDS_WHILE_WAITING: usize = 2;
/// Events of connections that are handled in a turn. The others stay with the stack.
const EVENTS_PER_TURN: usize = 16;

/// Limits of a core.
#[derive(Clone, Copy, Debug)]
pub struct CoreLimits {
    /// Its memory.
    pub arena: ArenaLimits,
    /// Connections.
    pub connections: usize,
    /// Connections of one address.
    pub connections_per_address: usize,
    /// RDMA Reads that a connection may have outstanding.
    pub reads: u16,
    /// The depth of the completion queue.
    pub completions: u32,
    /// The time from the accept of a connection to its Connect command. Hosts that send none hold
    /// resources.
    pub connect_timeout_ms: u64,
    /// The time that a host has to answer an RDMA Read, or to take the data of a command.
    pub peer_timeout_ms: u64,
    /// The same while others wait for a data buffer that it holds.
    pub contended_timeout_ms: u64,
    /// The time that a disk has to answer a request.
    pub disk_timeout_ms: u64,
}

/// What a core has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoreCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections rejected.
    pub rejected: u64,
    /// Connections that have ended.
    pub ended: u64,
    /// Command capsules.
    pub commands: u64,
}

/// What a core holds. All of it is free when no host is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreUsage {
    /// Connections.
    pub connections: usize,
    /// Free data buffers.
    pub free_buffers: usize,
    /// Free capsules.
    pub free_capsules: usize,
    /// Requests that disks still have of commands that have ended.
    pub orphaned: usize,
    /// Commands that wait for a buffer, a queue or a backend, and connection requests without an
    /// answer.
    pub waiting: usize,
}

/// A core's part of the target.
pub struct Reactor {
    // Dropped before the context and the worker: a backend waits for the kernel, which uses the
    // core's memory.
    io: CoreIo,
    target: Arc<Target>,
    worker: Worker,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    limits: CoreLimits,
    connections: Vec<Option<Box<Connection>>>,
    by_qp: HashMap<u32, u32>,
    /// Completion queue entries that the queue pairs may need.
    reserved: u64,
    arrivals: Arrivals,
    /// Where it listens.
    listening: Vec<SocketAddr>,
    /// The reactor ends: it takes no connection any more.
    is_draining: bool,
    requests: Requests,
    deferred: Deferred,
    next_housekeeping_ms: u64,
    next_disk_check_ms: u64,
    /// The core was paused, and reads the frames that waited until this time at the latest.
    catching_up_until_ms: Option<u64>,
    /// Indices of backends that have to be polled.
    polled_backends: Vec<usize>,
    changes: DeviceChanges,
    counters: CoreCounters,
    /// Frames, doorbells and messages of all turns.
    stack_work: u64,
}

impl Reactor {
    /// A reactor for a worker. `open` makes the backends, in the order of their numbers; `changes`
    /// adds and removes others later.
    ///
    /// # Errors
    ///
    /// The stack or the system refuses memory, a queue, or io_uring.
    pub fn new(
        target: Arc<Target>,
        (worker, mut ctx): (Worker, Context),
        pd: ProtectionDomain,
        limits: CoreLimits,
        (arrivals, changes): (Arrivals, DeviceChanges),
        open: impl FnOnce(&CoreMemory) -> Result<Vec<Device>, NvmfError>,
    ) -> Result<Self, NvmfError> {
        let cq = ctx.create_cq(limits.completions)?;
        let memory = CoreMemory::new(&ctx, pd, limits.arena)?;
        changes.publish(memory.arena());
        let backends: Devices = open(&memory)?.into_iter().collect();
        let now_ns = worker.now().0;
        let now_ms = now_ns / 1_000_000;
        // A slot waits once, and has one request to a backend.
        let slots = limits.arena.capsules as usize;
        let io = CoreIo {
            ctx,
            memory,
            backends,
            target: target.clone(),
            parties: Parties::default(),
            waits: Waits::default(),
            is_resuming: false,
            orphans: Orphans::default(),
            at_disks: DiskBuffers::default(),
            waited: Waited::default(),
            reposting: Vec::with_capacity(limits.connections),
            answered: Vec::with_capacity(slots),
            block_completions: Vec::with_capacity(slots),
            now_ns,
            now_ms,
        };
        let mut reactor = Reactor {
            io,
            target,
            worker,
            pd,
            cq,
            limits,
            connections: Vec::new(),
            by_qp: HashMap::new(),
            reserved: 0,
            arrivals,
            listening: Vec::new(),
            is_draining: false,
            requests: Requests::default(),
            deferred: Deferred::new(),
            next_housekeeping_ms: now_ms,
            next_disk_check_ms: now_ms,
            catching_up_until_ms: None,
            polled_backends: Vec::new(),
            changes,
            counters: CoreCounters::default(),
            stack_work: 0,
        };
        reactor.find_disks();
        Ok(reactor)
    }

    /// Listens. One core does, for all.
    pub fn listen(&mut self, at: SocketAddr) -> Result<(), NvmfError> {
        self.io.ctx.listen(at)?;
        self.listening.push(at);
        self.worker.poll(0);
        Ok(())
    }

    /// Returns the worker.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Returns what the core has done.
    pub fn counters(&self) -> CoreCounters {
        self.counters
    }

    /// Returns what the core holds.
    pub fn usage(&self) -> CoreUsage {
        CoreUsage {
            connections: self.connections.iter().flatten().count(),
            free_buffers: self.io.memory.free_buffers(),
            free_capsules: self.io.memory.free_capsule_count(),
            orphaned: self.io.orphans.len(),
            waiting: self.io.waits.len() + self.requests.len() + self.deferred.len(),
        }
    }

    /// Returns what all turns have cost: work of the stack, in frames, doorbells and messages; and
    /// bytes of commands.
    pub fn spent(&self) -> (u64, u64) {
        (self.stack_work, self.io.parties.total())
    }

    /// Runs one turn. Never waits. Returns whether there was work.
    pub fn poll(&mut self) -> Result<bool, NvmfError> {
        let mut work = self.worker.poll(1).work;
        if !self.io.waits.turn.is_empty() {
            // The stack sends a quantum of each queue pair in a turn, and these turns are as long
            // as their commands.
            for _ in 0..ROUNDS_WHILE_WAITING {
                work += self.worker.poll(0).work;
            }
        }
        self.stack_work += work as u64;
        let mut busy = work > 0;
        self.begin_turn(busy);
        busy |= self.on_completions()? > 0;
        busy |= self.on_block_completions()?;
        for handled in 0..EVENTS_PER_TURN {
            // The end of a connection costs, too.
            if handled > 0 && self.io.parties.left() == 0 {
                busy = true;
                break;
            }
            let Some(event) = self.io.ctx.poll_event() else { break };
            busy = true;
            self.on_event(event)?;
        }
        busy |= self.resume_waiting()?;
        busy |= self.answer_requests()?;
        if self.io.now_ms >= self.next_housekeeping_ms {
            self.housekeeping()?;
        }
        self.post_receives();
        Ok(busy)
    }

    /// Posts the receives of this turn's responses. Their next commands may arrive once the worker
    /// has sent the responses.
    fn post_receives(&mut self) {
        while let Some(index) = self.io.reposting.pop() {
            let connection = self.connections.get_mut(index as usize).and_then(Option::as_mut);
            if let Some(connection) = connection.filter(|one| !one.is_ended) {
                // It fails only while the connection ends.
                let _ = connection.post_receives(&mut self.io.ctx);
            }
        }
    }

    /// One step of the end: stops listening, rejects requests, and closes the connections. Resets
    /// those that are open at the deadline. Returns how many connections there are, with those that
    /// only wait for a disk.
    pub fn drain(&mut self, deadline: Instant) -> Result<usize, NvmfError> {
        self.is_draining = true;
        while let Some(at) = self.listening.pop() {
            self.io.ctx.unlisten(at)?;
        }
        if Instant::now() < deadline {
            self.io.ctx.drain(deadline)?;
        } else {
            let open = self.connections.iter_mut().flatten();
            open.map(Box::as_mut).try_for_each(|one| one.end(&mut self.io))?;
        }
        Ok(self.connections.iter().flatten().count())
    }

    /// Takes all completions. A capsule whose host has had its share of the turn only joins a list,
    /// so one host's many do not delay another's.
    fn on_completions(&mut self) -> Result<usize, NvmfError> {
        let mut completions = [Completion::default(); COMPLETIONS];
        let mut all = 0;
        loop {
            let reaped = self.io.ctx.poll_cq(self.cq, &mut completions)?;
            for completion in completions.iter().take(reaped) {
                self.on_completion(completion)?;
            }
            all += reaped;
            if reaped < COMPLETIONS || all >= self.limits.completions as usize {
                return Ok(all);
            }
        }
    }

    #[inline]
    fn on_completion(&mut self, done: &Completion) -> Result<(), NvmfError> {
        let wr_id = WrId(done.wr_id);
        let kind = wr_id.kind();
        if let Kind::Send(Some(buffer)) = kind {
            self.io.memory.free_buffer(buffer);
        }
        let connection = self.connections.get_mut(wr_id.connection()).and_then(Option::as_mut);
        let Some(connection) = connection.filter(|one| one.qp.num() == done.qp) else { return Ok(()) };
        match kind {
            Kind::Read(_) => drop(connection.reads_since.pop_front()),
            Kind::Send(Some(_)) => drop(connection.sends_since.pop_front()),
            Kind::Receive(_) | Kind::Send(None) | Kind::Piece(_) => {}
        }
        // Failures end the connection; its event follows.
        if done.status != CompletionStatus::Success || connection.is_ended {
            return Ok(());
        }
        match kind {
            Kind::Receive(slot) => {
                self.counters.commands += 1;
                connection.on_receive(&mut self.io, slot, done.byte_len)
            }
            Kind::Read(slot) => connection.on_fetched(&mut self.io, slot),
            Kind::Piece(slot) => connection.on_piece(&mut self.io, slot),
            Kind::Send(_) => Ok(()),
        }
    }

    fn on_block_completions(&mut self) -> Result<bool, NvmfError> {
        let mut completions = std::mem::take(&mut self.io.block_completions);
        for &at in &self.polled_backends {
            if let Some(device) = self.io.backends.get_mut(at) {
                device.backend.poll(&mut completions);
            }
        }
        let busy = !completions.is_empty();
        for (token, outcome) in completions.drain(..) {
            let wr_id = WrId(token);
            if !self.io.orphans.is_empty() && self.io.on_late_answer(wr_id) {
                continue;
            }
            let connection = self.connections.get_mut(wr_id.connection()).and_then(Option::as_mut);
            if let (Some(connection), Kind::Read(slot)) = (connection, wr_id.kind()) {
                connection.on_device(&mut self.io, slot, outcome)?;
                if connection.is_ended && connection.device_requests == 0 {
                    self.remove(wr_id.connection());
                }
            }
        }
        self.io.block_completions = completions;
        Ok(busy)
    }

    fn on_event(&mut self, event: Event) -> Result<(), NvmfError> {
        match event {
            Event::ConnectRequest { request, remote, private_data, mpa_request, .. } => {
                let arrival = Arrival::new(request, remote, &private_data, mpa_request.peer_reads);
                self.on_arrival(arrival)
            }
            Event::RequestEnded { request } => {
                self.on_request_ended(request);
                Ok(())
            }
            Event::Disconnected { qp, .. } | Event::ConnectFailed { qp, .. } => self.on_ended(qp),
            Event::Established { qp, negotiated, .. } => {
                let index = self.by_qp.get(&qp.num().0).copied();
                let connection = index.and_then(|index| self.connections.get_mut(index as usize)?.as_mut());
                if let Some(connection) = connection {
                    connection.ord = negotiated.reads.ord.clamp(1, self.limits.reads);
                }
                Ok(())
            }
            // The stack writes a line of its own, with a rate limit, for a Terminate.
            Event::ListenFailed { local, .. } => Err(NvmfError::Listen(local)),
            _ => Ok(()),
        }
    }

    /// A connection has ended: all of its work requests have completions.
    fn on_ended(&mut self, qp: QueuePair) -> Result<(), NvmfError> {
        while self.on_completions()? > 0 {}
        let Some(index) = self.by_qp.remove(&qp.num().0) else { return self.destroy(qp) };
        if let Some(connection) = self.connections.get_mut(index as usize).and_then(Option::as_mut) {
            connection.is_ended = true;
            let controller = connection.queue.controller().filter(|_| connection.queue.qid() == 0).cloned();
            connection.queue.close();
            if let Some(controller) = controller.filter(|_| self.target.may_log(self.io.now_ms)) {
                tracing::info!("{controller} ended");
            }
            self.io.waits.remove(connection.who);
            connection.release_slots(&mut self.io);
            self.reserved -= u64::from(listener::entries_reserved(connection.slots.len()));
            self.counters.ended += 1;
            // What the backend still has keeps its memory.
            if connection.device_requests == 0 {
                self.remove(index as usize);
            }
        }
        self.destroy(qp)
    }

    fn remove(&mut self, index: usize) {
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::take) {
            let mut capsules = connection.capsules;
            capsules.retain(|&capsule| capsule != NO_CAPSULE);
            self.io.memory.return_capsules(&capsules);
            self.io.memory.buffers().leave(connection.who);
            self.io.parties.leave(connection.who.party);
        }
    }

    fn destroy(&mut self, qp: QueuePair) -> Result<(), NvmfError> {
        match self.io.ctx.destroy_qp(qp) {
            Err(VerbsError::UnknownQueuePair) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}
