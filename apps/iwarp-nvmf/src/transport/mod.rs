//! The RDMA transport: a reactor for each core, a connection for each queue.
//!
//! A [`Reactor`] owns a core's worker, context, memory and backends. [`Reactor::poll`] runs one turn: the worker, the
//! connection events, the completions of RDMA and of the backends, and what waits. No data passes between threads: a
//! queue lives on the core at which its connection arrived. A connection request passes to that core once.
//!
//! Source: NVM Express over Fabrics 1.1, 2; NVMe RDMA transport, RDMA_CM format 0.

pub mod arena;
mod connection;
mod devices;
mod io;
mod listener;
mod slot;
mod wr_id;

use core::net::SocketAddr;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use ironwarp::{
    Completion, CompletionQueue, CompletionStatus, Context, Event, ProtectionDomain, QueuePair, VerbsError,
    Worker,
};

pub use connection::CoreIo;
pub use devices::{Device, DeviceChange, Devices, OpenDevice};
pub use listener::{Arrival, Arrivals, arrivals, entries_reserved};

use crate::NvmfError;
use crate::target::Target;
use arena::{ArenaLimits, CoreMemory};
use connection::Connection;
use devices::Changes;
use wr_id::{Kind, WrId};

/// Completions taken from the queue at once.
const COMPLETIONS: usize = 64;
/// The interval of housekeeping: keep-alive timers, ended controllers, events.
const HOUSEKEEPING_MS: u64 = 20;

/// Limits of a core.
#[derive(Clone, Copy, Debug)]
pub struct CoreLimits {
    /// Its memory.
    pub arena: ArenaLimits,
    /// Connections.
    pub connections: usize,
    /// RDMA Reads that a connection may have outstanding.
    pub reads: u16,
    /// The depth of the completion queue.
    pub completions: u32,
    /// The time from the accept of a connection to its Connect command. Hosts that send none hold resources.
    pub connect_timeout_ms: u64,
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
    /// Commands that wait for a buffer, a queue or a backend.
    pub waiting: usize,
}

/// A core's part of the target.
pub struct Reactor {
    // Dropped before the context and the worker: a backend waits for the kernel, which uses the core's memory.
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
    /// Queue pairs that a full control queue kept from being destroyed.
    pending_destroy: Vec<QueuePair>,
    arrivals: Arrivals,
    next_housekeeping_ms: u64,
    /// Indices of backends that have to be polled.
    polled_backends: Vec<usize>,
    changes: Changes,
    counters: CoreCounters,
}

impl Reactor {
    /// A reactor for a worker. `open` makes the backends, in the order of their numbers; `changes` adds and removes
    /// others later.
    ///
    /// # Errors
    ///
    /// The stack or the system refuses memory, a queue, or io_uring.
    pub fn new(
        target: Arc<Target>,
        (worker, mut ctx): (Worker, Context),
        pd: ProtectionDomain,
        limits: CoreLimits,
        (arrivals, changes): (Arrivals, Receiver<DeviceChange>),
        open: impl FnOnce(&CoreMemory) -> Result<Vec<Device>, NvmfError>,
    ) -> Result<Self, NvmfError> {
        let cq = ctx.create_cq(limits.completions)?;
        let memory = CoreMemory::new(&ctx, pd, limits.arena)?;
        let backends: Devices = open(&memory)?.into_iter().collect();
        let polled_backends = backends.polled();
        let now_ns = worker.now().0;
        let now_ms = now_ns / 1_000_000;
        // A slot waits once, and has one request to a backend.
        let slots = limits.arena.capsules as usize;
        let io = CoreIo {
            ctx,
            memory,
            backends,
            waiting: VecDeque::with_capacity(slots),
            reposting: Vec::with_capacity(limits.connections),
            block_completions: Vec::with_capacity(slots),
            now_ns,
            now_ms,
        };
        Ok(Reactor {
            io,
            target,
            worker,
            pd,
            cq,
            limits,
            connections: Vec::new(),
            by_qp: HashMap::new(),
            reserved: 0,
            pending_destroy: Vec::new(),
            arrivals,
            next_housekeeping_ms: now_ms,
            polled_backends,
            changes: Changes::new(changes),
            counters: CoreCounters::default(),
        })
    }

    /// Listens. One core does, for all.
    pub fn listen(&mut self, at: SocketAddr) -> Result<(), NvmfError> {
        self.io.ctx.listen(at)?;
        self.worker.poll(0);
        Ok(())
    }

    /// Stops listening.
    pub fn unlisten(&mut self, at: SocketAddr) -> Result<(), NvmfError> {
        Ok(self.io.ctx.unlisten(at)?)
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
            waiting: self.io.waiting.len(),
        }
    }

    /// Runs one turn. Never waits. Returns whether there was work.
    pub fn poll(&mut self) -> Result<bool, NvmfError> {
        let mut busy = self.worker.poll(1).work > 0;
        self.io.now_ns = self.worker.now().0;
        self.io.now_ms = self.io.now_ns / 1_000_000;
        busy |= self.on_completions()? > 0;
        busy |= self.on_block_completions()?;
        while let Some(event) = self.io.ctx.poll_event() {
            busy = true;
            self.on_event(event)?;
        }
        if !self.io.waiting.is_empty() {
            self.resume_waiting()?;
        }
        self.accept_arrivals()?;
        if self.io.now_ms >= self.next_housekeeping_ms {
            self.housekeeping()?;
        }
        self.post_receives();
        Ok(busy)
    }

    /// Posts the receives of this turn's responses. Their next commands may arrive once the worker has sent the responses.
    fn post_receives(&mut self) {
        while let Some(index) = self.io.reposting.pop() {
            let connection = self.connections.get_mut(index as usize).and_then(Option::as_mut);
            if let Some(connection) = connection.filter(|one| !one.is_ended) {
                // It fails only while the connection ends.
                let _ = connection.post_receives(&mut self.io.ctx);
            }
        }
    }

    /// One step of the end: closes the connections, resets those that are open at the deadline. Returns how many are
    /// open.
    pub fn drain(&mut self, deadline: Instant) -> Result<usize, NvmfError> {
        let open = self.io.ctx.drain(deadline)?.open;
        let kept = self.connections.iter().flatten().filter(|one| one.device_requests > 0).count();
        Ok(open + kept)
    }

    fn on_completions(&mut self) -> Result<usize, NvmfError> {
        let mut completions = [Completion::default(); COMPLETIONS];
        let reaped = self.io.ctx.poll_cq(self.cq, &mut completions)?;
        for completion in completions.iter().take(reaped) {
            self.on_completion(completion)?;
        }
        Ok(reaped)
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

    /// Tries again what waits, in order, until one has to wait again.
    #[cold]
    fn resume_waiting(&mut self) -> Result<(), NvmfError> {
        for _ in 0..self.io.waiting.len() {
            let Some((index, slot)) = self.io.waiting.pop_front() else { break };
            let connection = self.connections.get_mut(index as usize).and_then(Option::as_mut);
            let Some(connection) = connection.filter(|one| !one.is_ended) else { continue };
            if !connection.resume(&mut self.io, slot)? {
                // It keeps its place in the order.
                if let Some(back) = self.io.waiting.pop_back() {
                    self.io.waiting.push_front(back);
                }
                break;
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Result<(), NvmfError> {
        match event {
            Event::ConnectRequest { request, remote, private_data, mpa_request, .. } => {
                let arrival = Arrival::new(request, remote, &private_data, mpa_request.peer_reads);
                self.on_arrival(arrival)
            }
            Event::Disconnected { qp, .. } | Event::ConnectFailed { qp, .. } => self.on_ended(qp),
            Event::Terminated { sent, terminate, .. } => {
                tracing::warn!(
                    "a connection is terminated by {}: {terminate:?}",
                    if sent { "us" } else { "the host" }
                );
                Ok(())
            }
            Event::ListenFailed { local } => Err(NvmfError::Listen(local)),
            _ => Ok(()),
        }
    }

    /// A connection has ended: all of its work requests have completions.
    fn on_ended(&mut self, qp: QueuePair) -> Result<(), NvmfError> {
        while self.on_completions()? > 0 {}
        let Some(index) = self.by_qp.remove(&qp.num().0) else { return self.destroy(qp) };
        if let Some(connection) = self.connections.get_mut(index as usize).and_then(Option::as_mut) {
            connection.is_ended = true;
            connection.queue.close();
            connection.release_slots(&mut self.io);
            self.reserved -= u64::from(listener::entries_reserved(connection.slots.len()));
            self.counters.ended += 1;
            // What the backend still has keeps its memory.
            if connection.device_requests == 0 {
                self.remove(index as usize);
            }
        }
        self.io.waiting.retain(|(one, _)| *one != index);
        self.destroy(qp)
    }

    fn remove(&mut self, index: usize) {
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::take) {
            self.io.memory.free_capsules(&connection.capsules);
        }
    }

    fn destroy(&mut self, qp: QueuePair) -> Result<(), NvmfError> {
        match self.io.ctx.destroy_qp(qp) {
            Err(VerbsError::Busy) => self.pending_destroy.push(qp),
            Err(VerbsError::UnknownQueuePair) => {}
            outcome => outcome?,
        }
        Ok(())
    }

    #[cold]
    fn housekeeping(&mut self) -> Result<(), NvmfError> {
        self.next_housekeeping_ms = self.io.now_ms + HOUSEKEEPING_MS;
        let pending = std::mem::take(&mut self.pending_destroy);
        pending.into_iter().try_for_each(|qp| self.destroy(qp))?;
        self.target.expire_keep_alive(self.io.now_ms);
        self.apply_changes();
        for connection in self.connections.iter_mut().flatten() {
            if connection.is_ended {
                continue;
            }
            let age_ms = self.io.now_ms.saturating_sub(connection.accepted_ms);
            let is_late = connection.queue.controller().is_none() && age_ms > self.limits.connect_timeout_ms;
            if connection.must_end || is_late || connection.queue.is_ended() {
                connection.end(&mut self.io)?;
            } else if connection.queue.qid() == 0 {
                connection.send_events(&mut self.io)?;
            }
        }
        Ok(())
    }
}
