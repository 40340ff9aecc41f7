//! One connection: the commands of one queue, from their capsules to their responses.
//!
//! Each entry of the queue has a slot: a receive, the capsule that arrives in it, and the state of
//! its command. The receives of a turn's responses are posted again in one list before the core
//! sends any of them, so a host never finds less room than its queue has entries.
//!
//! ```text
//! receive -> start -+-> respond
//!                   +-> RDMA Read -> (engine | backend) -> respond
//!                   +-> backend -> RDMA Write, respond
//! ```
//!
//! What finds no data buffer, no room in a queue or no share of the turn waits in the list of that
//! resource, and nothing else waits behind it.

mod compare;
mod engine;
pub(super) mod io;
mod reply;
pub(super) mod slot;
pub(super) mod wr_id;

use std::collections::VecDeque;
use std::sync::Arc;

use ironwarp::{Context, PostError, QueuePair, RecvWr};
use zerocopy::IntoBytes;

use super::arena::CoreMemory;
use super::buffers::BufferId;
use super::devices::Devices;
use super::disks::DiskBuffers;
use super::late::Orphans;
use super::party::{COMMAND_COST, Parties, Weight};
use super::wait::{Resource, Waits, Who};
use crate::NvmfError;
use crate::backend::BlockCompletion;
use crate::target::{CapsuleLimits, IoOperation, Queue, Step, Target, TargetCounter};
use crate::wire::SQE_BYTES;
use slot::{Next, Slot, State};
use wr_id::WrId;

/// What the connections of a core share.
pub struct CoreIo {
    /// The core's context.
    pub ctx: Context,
    /// The core's memory.
    pub memory: CoreMemory,
    /// By the number in [`crate::target::NamespaceInfo::backend`].
    pub backends: Devices,
    /// What all cores share.
    pub(super) target: Arc<Target>,
    /// The hosts of the core, and what is left of this turn.
    pub parties: Parties,
    /// Slots that wait, by what they wait for.
    pub(super) waits: Waits,
    /// Slots that waited are being tried again: they go before others.
    pub(super) is_resuming: bool,
    /// What disks still have of commands that have ended.
    pub(super) orphans: Orphans,
    /// The data buffers that disks have.
    pub(super) at_disks: DiskBuffers,
    /// What commands waited for since the last housekeeping.
    pub(super) waited: Waited,
    /// Connections with receives to post at the end of this turn.
    pub reposting: Vec<u32>,
    /// Commands whose responses leave with the next turn of the worker.
    pub(super) answered: Vec<Answered>,
    /// Completions of backends.
    pub block_completions: Vec<BlockCompletion>,
    /// The time of this turn.
    pub now_ns: u64,
    /// The same in milliseconds.
    pub now_ms: u64,
}

/// Times that commands waited. They are part of usual work, so cores do not count them in one place
/// each time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waited {
    pub(super) turn: u64,
    pub(super) buffers: u64,
    pub(super) device: u64,
}

/// A command with a posted response, for the count of its latency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    backend: usize,
    reads: bool,
    /// When its capsule arrived.
    started_ns: u64,
}

impl CoreIo {
    /// Counts the latencies of what was sent before this turn's time: what a host sees, also where
    /// one turn takes a command and posts its response.
    pub(super) fn count_latencies(&mut self) {
        for Answered { backend, reads, started_ns } in self.answered.drain(..) {
            if let Some(device) = self.backends.get(backend) {
                let counters = &device.counters;
                let latency = if reads { &counters.read_latency } else { &counters.write_latency };
                latency.record(self.now_ns.saturating_sub(started_ns));
            }
        }
    }

    /// Takes a data buffer for a connection, unless others wait for one.
    #[inline]
    pub(super) fn take_buffer(&mut self, who: Who) -> Option<BufferId> {
        if !self.is_resuming && !self.waits.buffers.is_empty() {
            return None;
        }
        self.memory.take_buffer(who)
    }

    /// Adds the waits to the counts of all cores.
    pub(super) fn publish_waits(&mut self) {
        let Waited { turn, buffers, device } = core::mem::take(&mut self.waited);
        let counters = &self.target.counters;
        counters.add_many(TargetCounter::WaitsForTurn, turn);
        counters.add_many(TargetCounter::WaitsForBuffers, buffers);
        counters.add_many(TargetCounter::WaitsForDevice, device);
    }

    #[cold]
    pub(super) fn count(&self, counter: TargetCounter) {
        self.target.counters.add(counter);
    }
}

/// One connection.
pub struct Connection {
    pub(super) who: Who,
    /// When it was accepted.
    pub(super) accepted_ms: u64,
    pub(super) qp: QueuePair,
    pub(super) queue: Queue,
    pub(super) capsules: Vec<u32>,
    pub(super) slots: Vec<Slot>,
    /// Slots whose receive is to be posted.
    reposts: Vec<u16>,
    /// RDMA Reads that the host lets it have outstanding.
    pub(super) ord: u16,
    /// When each outstanding RDMA Read was sent. They complete in order (RFC 5040 s5.5).
    pub(super) reads_since: VecDeque<u64>,
    /// When each response was posted whose data is in a buffer. They complete in order.
    pub(super) sends_since: VecDeque<u64>,
    /// Requests that backends have.
    pub(super) device_requests: u32,
    /// The transport's connection has ended.
    pub(super) is_ended: bool,
    /// It has to end.
    pub(super) must_end: bool,
    /// The abort was posted.
    is_ending: bool,
}

/// Receives of a list.
const RECEIVES: usize = 16;

/// A post found no room now.
pub(super) fn is_full(error: &PostError) -> bool {
    matches!(error, PostError::QueueFull | PostError::CqFull)
}

impl Connection {
    /// A connection with its receives posted.
    pub(super) fn new(
        io: &mut CoreIo,
        who: Who,
        qp: QueuePair,
        queue: Queue,
        capsules: Vec<u32>,
    ) -> Result<Self, NvmfError> {
        let memory = &io.memory;
        let slot = |&capsule: &u32| Ok(Slot::new(memory.receive(capsule)?));
        let slots = capsules.iter().map(slot).collect::<Result<Vec<_>, NvmfError>>()?;
        let count = slots.len() as u16;
        let mut connection = Connection {
            who,
            accepted_ms: io.now_ms,
            qp,
            queue,
            capsules,
            slots,
            reposts: (0..count).collect(),
            // Until the event of the connection says what was agreed.
            ord: 1,
            reads_since: VecDeque::with_capacity(count.into()),
            sends_since: VecDeque::with_capacity(count.into()),
            device_requests: 0,
            is_ended: false,
            must_end: false,
            is_ending: false,
        };
        connection.post_receives(&mut io.ctx)?;
        Ok(connection)
    }

    /// Posts the receives of the slots that have sent their response.
    pub(super) fn post_receives(&mut self, ctx: &mut Context) -> Result<(), PostError> {
        let mut outcome = Ok(());
        for slots in self.reposts.chunks(RECEIVES) {
            let mut list = [RecvWr::new(0, &[]); RECEIVES];
            for (receive, &number) in list.iter_mut().zip(slots) {
                let Some(slot) = self.slots.get(usize::from(number)) else { continue };
                *receive = RecvWr::new(WrId::receive(self.who.connection, number).0, &slot.receive);
            }
            let list = list.get(..slots.len()).unwrap_or_default();
            outcome = outcome.and(ctx.post_recvs(self.qp, list).map_err(|(_, error)| error));
        }
        self.reposts.clear();
        outcome
    }

    /// Lets a slot's receive be posted at the end of the turn.
    #[inline]
    fn repost(&mut self, io: &mut CoreIo, slot: u16) {
        if self.reposts.is_empty() {
            io.reposting.push(self.who.connection);
        }
        self.reposts.push(slot);
    }

    /// A capsule has arrived. Its command starts now, or when it is its host's turn.
    #[inline]
    pub(super) fn on_receive(&mut self, io: &mut CoreIo, slot: u16, byte_len: u32) -> Result<(), NvmfError> {
        let Some(capsule_bytes) = byte_len.checked_sub(SQE_BYTES as u32) else {
            return self.end_for_short_capsule(io, byte_len);
        };
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        place.started_ns = io.now_ns;
        if !io.parties.admits(self.who.party) || io.waits.turn.has_party(self.who.party) {
            io.waited.turn += 1;
            self.wait_for_turn(io, slot, Next::Start(capsule_bytes));
            return Ok(());
        }
        self.start(io, slot, capsule_bytes)
    }

    /// Fabrics 1.1, 2.1: a capsule holds at least the entry. Without a command identifier there is
    /// no response.
    #[cold]
    fn end_for_short_capsule(&mut self, io: &mut CoreIo, byte_len: u32) -> Result<(), NvmfError> {
        io.count(TargetCounter::CapsulesShort);
        if io.target.may_log(io.now_ms) {
            tracing::warn!("a capsule of {byte_len} bytes ends its connection");
        }
        self.end(io)
    }

    /// Starts the command of a capsule.
    #[inline]
    fn start(&mut self, io: &mut CoreIo, slot: u16, capsule_bytes: u32) -> Result<(), NvmfError> {
        let index = usize::from(slot);
        let (Some(&capsule), Some(place)) = (self.capsules.get(index), self.slots.get_mut(index)) else {
            return Ok(());
        };
        io.memory.read_at(io.memory.entry_offset(capsule), place.entry.as_mut_bytes())?;
        let limits = CapsuleLimits { bytes: capsule_bytes, now_ms: io.now_ms };
        let step = self.queue.start(slot.into(), &place.entry, limits);
        let is_io = self.queue.qid() > 0 && self.queue.controller().is_some();
        let weight = if is_io { Weight::Io } else { Weight::Background };
        io.parties.charge(self.who.party, cost(&step), weight);
        self.run(io, slot, step)
    }

    #[inline]
    pub(super) fn run(&mut self, io: &mut CoreIo, slot: u16, step: Step) -> Result<(), NvmfError> {
        match step {
            Step::Io { command, pointer } => self.begin_io(io, slot, command, pointer),
            Step::Respond(response) => self.reply(io, slot, response),
            Step::Held => {
                self.set(slot, State::Held);
                Ok(())
            }
            Step::End => self.end(io),
            Step::Authenticating => {
                self.wait(io, slot, (Resource::Job, Next::Authenticate));
                Ok(())
            }
            Step::ToHost { data, pointer } => self.send_data(io, slot, &data, pointer),
            Step::FromHost { pointer, bytes } => self.take_data(io, slot, pointer, bytes),
        }
    }

    pub(super) fn set(&mut self, slot: u16, state: State) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            place.state = state;
        }
    }

    /// Lets a slot wait for a resource.
    #[cold]
    pub(super) fn wait(&mut self, io: &mut CoreIo, slot: u16, (resource, next): (Resource, Next)) {
        self.set(slot, State::Waiting(next));
        if resource == Resource::Buffers && !io.is_resuming {
            io.waited.buffers += 1;
        }
        io.waits.list(resource).push(self.who, slot);
    }

    /// Tries again what a slot waits for.
    #[cold]
    pub(super) fn resume(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let state = core::mem::replace(&mut place.state, State::Receiving);
        match state {
            State::Waiting(Next::Start(capsule_bytes)) => self.start(io, slot, capsule_bytes),
            State::Waiting(Next::Run(step)) => self.run(io, slot, step),
            State::Waiting(Next::Fetch(then)) => self.fetch(io, slot, then),
            State::Waiting(Next::Authenticate) => {
                let step = self.queue.authenticating(io.now_ms);
                self.run(io, slot, step)
            }
            State::Waiting(Next::Submit) => self.submit(io, slot),
            State::Waiting(Next::Compare) => self.continue_compare(io, slot),
            State::Waiting(Next::Piece) => self.send_piece(io, slot),
            State::Waiting(Next::FollowingPiece) => self.next_piece(io, slot),
            State::Waiting(Next::Reply(response)) => self.reply(io, slot, response),
            other => {
                self.set(slot, other);
                Ok(())
            }
        }
    }

    /// Completes Asynchronous Event Requests whose event has happened.
    pub(super) fn send_events(&mut self, io: &mut CoreIo) -> Result<(), NvmfError> {
        while let Some(event) = self.queue.take_event() {
            self.reply(io, event.token as u16, event.response)?;
        }
        Ok(())
    }

    /// Ends the connection.
    pub(super) fn end(&mut self, io: &mut CoreIo) -> Result<(), NvmfError> {
        self.must_end = true;
        if self.is_ending || self.is_ended {
            return Ok(());
        }
        match io.ctx.abort(self.qp) {
            Ok(()) | Err(ironwarp::VerbsError::WrongState(_)) => self.is_ending = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Returns whether it belongs to a controller that serves namespaces.
    pub(super) fn serves_storage(&self) -> bool {
        self.queue.controller().is_some_and(|controller| !controller.subsystem().is_discovery())
    }

    /// Returns since when its host has owed an answer to an RDMA Read, or room for data.
    pub(super) fn waits_since(&self) -> Option<u64> {
        self.reads_since.front().into_iter().chain(self.sends_since.front()).copied().min()
    }

    /// Returns whether a command uses a device, or waits to.
    pub(super) fn uses_device(&self, at: usize) -> bool {
        self.slots.iter().any(|slot| {
            let command = match &slot.state {
                State::Waiting(Next::Run(Step::Io { command, .. })) => Some(command),
                _ => slot.command.as_ref(),
            };
            command.is_some_and(|command| command.backend == at)
        })
    }

    /// Releases what the slots hold, except what backends still use.
    pub(super) fn release_slots(&mut self, io: &mut CoreIo) {
        for slot in self.slots.iter_mut().filter(|slot| !matches!(slot.state, State::Device(..))) {
            slot.release(&mut io.memory);
        }
    }
}

/// Returns what a command costs, apart from what the core does with its bytes itself.
#[inline]
fn cost(step: &Step) -> u64 {
    let bytes = match step {
        Step::Io { command, .. } => match command.operation {
            IoOperation::Read | IoOperation::Write | IoOperation::Compare => command.bytes,
            // The backend charges for what it touches.
            IoOperation::Flush | IoOperation::WriteZeroes | IoOperation::Deallocate => 0,
        },
        Step::ToHost { data, .. } => data.len() as u64,
        Step::FromHost { bytes, .. } => (*bytes).into(),
        Step::Respond(_) | Step::Held | Step::Authenticating | Step::End => 0,
    };
    COMMAND_COST + bytes
}
