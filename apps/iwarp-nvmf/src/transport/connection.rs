//! One connection: the commands of one queue, from their capsules to their responses.
//!
//! Each entry of the queue has a slot: a receive, the capsule that arrives in it, and the state of its command. The
//! receives of a turn's responses are posted again in one list before the core sends any of them, so a host never finds
//! less room than its queue has entries.
//!
//! ```text
//! receive -> start -+-> respond
//!                   +-> RDMA Read -> (engine | backend) -> respond
//!                   +-> backend -> RDMA Write, respond
//! ```
//!
//! What finds no data buffer, no room in the send queue or a full backend waits in the core's list and is tried again in
//! order.

use std::collections::VecDeque;

use ironwarp::{Context, PostError, QueuePair, RecvWr, RemoteMemory, STag, SendWr, Sge};
use zerocopy::IntoBytes;

use super::arena::{BufferId, CoreMemory};
use super::devices::Devices;
use super::slot::{Data, Next, Slot, State, Then};
use super::wr_id::WrId;
use crate::NvmfError;
use crate::backend::BlockCompletion;
use crate::target::{CapsuleLimits, Queue, Response, Step};
use crate::wire::SQE_BYTES;
use crate::wire::sgl::DataPointer;

/// What the connections of a core share.
pub struct CoreIo {
    /// The core's context.
    pub ctx: Context,
    /// The core's memory.
    pub memory: CoreMemory,
    /// By the number in [`crate::target::NamespaceInfo::backend`].
    pub backends: Devices,
    /// Slots that wait for a buffer, room in a queue, or a backend: connection and slot.
    pub waiting: VecDeque<(u32, u16)>,
    /// Connections with receives to post at the end of this turn.
    pub reposting: Vec<u32>,
    /// Completions of backends.
    pub block_completions: Vec<BlockCompletion>,
    /// The time of this turn.
    pub now_ns: u64,
    /// The same in milliseconds.
    pub now_ms: u64,
}

/// One connection.
pub struct Connection {
    pub(super) index: u32,
    /// When it was accepted.
    pub(super) accepted_ms: u64,
    pub(super) qp: QueuePair,
    pub(super) queue: Queue,
    pub(super) capsules: Vec<u32>,
    pub(super) slots: Vec<Slot>,
    /// Slots whose receive is to be posted.
    reposts: Vec<u16>,
    /// Requests that backends have.
    pub(super) device_requests: u32,
    /// The transport's connection has ended.
    pub(super) is_ended: bool,
    /// It has to end.
    pub(super) must_end: bool,
    /// The abort was posted.
    is_ending: bool,
}

/// The bits of an opcode that say which way its data goes.
const DIRECTION_MASK: u8 = 0b11;
/// The data goes to the host.
const TO_HOST: u8 = 0b10;

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
        index: u32,
        qp: QueuePair,
        queue: Queue,
        capsules: Vec<u32>,
    ) -> Result<Self, NvmfError> {
        let memory = &io.memory;
        let slot = |&capsule: &u32| {
            let receive = [
                memory.slice(memory.entry_offset(capsule), SQE_BYTES as u32)?,
                memory.slice(memory.capsule_offset(capsule), memory.limits().capsule_bytes)?,
            ];
            Ok(Slot::new(receive))
        };
        let slots = capsules.iter().map(slot).collect::<Result<Vec<_>, NvmfError>>()?;
        let count = slots.len() as u16;
        let mut connection = Connection {
            index,
            accepted_ms: io.now_ms,
            qp,
            queue,
            capsules,
            slots,
            reposts: (0..count).collect(),
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
                *receive = RecvWr::new(WrId::receive(self.index, number).0, &slot.receive);
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
            io.reposting.push(self.index);
        }
        self.reposts.push(slot);
    }

    /// A capsule has arrived.
    #[inline]
    pub(super) fn on_receive(&mut self, io: &mut CoreIo, slot: u16, byte_len: u32) -> Result<(), NvmfError> {
        let Some(capsule_bytes) = byte_len.checked_sub(SQE_BYTES as u32) else {
            // Fabrics 1.1, 2.1: a capsule holds at least the entry. Without a command identifier there is no response.
            tracing::warn!("a capsule of {byte_len} bytes ends its connection");
            return self.end(io);
        };
        let index = usize::from(slot);
        let (Some(&capsule), Some(place)) = (self.capsules.get(index), self.slots.get_mut(index)) else {
            return Ok(());
        };
        io.memory.read_at(io.memory.entry_offset(capsule), place.entry.as_mut_bytes())?;
        place.started_ns = io.now_ns;
        let limits = CapsuleLimits { bytes: capsule_bytes, now_ms: io.now_ms };
        let step = self.queue.start(slot.into(), &place.entry, limits);
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
            Step::ToHost { data, pointer } => self.send_data(io, slot, data, pointer),
            Step::FromHost { pointer, bytes } => self.take_data(io, slot, pointer, bytes),
        }
    }

    pub(super) fn set(&mut self, slot: u16, state: State) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            place.state = state;
        }
    }

    /// Lets a slot wait in the core's list.
    #[cold]
    pub(super) fn wait(&mut self, io: &mut CoreIo, slot: u16, next: Next) {
        self.set(slot, State::Waiting(next));
        io.waiting.push_back((self.index, slot));
    }

    /// Sends data of the engine.
    #[cold]
    fn send_data(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        data: Vec<u8>,
        pointer: DataPointer,
    ) -> Result<(), NvmfError> {
        let Some(buffer) = io.memory.take_buffer() else {
            self.wait(io, slot, Next::Run(Step::ToHost { data, pointer }));
            return Ok(());
        };
        io.memory.write_at(io.memory.buffer_offset(buffer), &data)?;
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            (place.data, place.pointer) = (Data::Buffer(buffer), Some(pointer));
        }
        self.reply(io, slot, crate::wire::Status::SUCCESS.into())
    }

    /// Fetches data for the engine.
    #[cold]
    fn take_data(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        pointer: DataPointer,
        bytes: u32,
    ) -> Result<(), NvmfError> {
        let index = usize::from(slot);
        if let DataPointer::Capsule { offset, .. } = pointer {
            let capsule = self.capsules.get(index).copied().unwrap_or_default();
            let at = io.memory.capsule_offset(capsule) + offset as usize;
            return self.pass_to_engine(io, slot, at, bytes);
        }
        let Some(buffer) = io.memory.take_buffer() else {
            self.wait(io, slot, Next::Run(Step::FromHost { pointer, bytes }));
            return Ok(());
        };
        if let Some(place) = self.slots.get_mut(index) {
            (place.data, place.pointer) = (Data::Buffer(buffer), Some(pointer));
        }
        self.fetch(io, slot, Then::Engine(bytes))
    }

    #[cold]
    fn pass_to_engine(&mut self, io: &mut CoreIo, slot: u16, at: usize, bytes: u32) -> Result<(), NvmfError> {
        let mut data = vec![0; bytes as usize];
        io.memory.read_at(at, &mut data)?;
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        if let Data::Buffer(buffer) = core::mem::replace(&mut place.data, Data::None) {
            io.memory.free_buffer(buffer);
        }
        let step = self.queue.received(&place.entry, &data, io.now_ms);
        self.run(io, slot, step)
    }

    /// Posts the RDMA Read of the host's data into the data buffer or the medium.
    #[inline]
    pub(super) fn fetch(&mut self, io: &mut CoreIo, slot: u16, then: Then) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some(DataPointer::Keyed { address, length, key, .. }) = place.pointer else { return Ok(()) };
        let bytes = if let Then::Engine(bytes) = then { bytes } else { length };
        let sink = match place.data {
            Data::Buffer(buffer) => io.memory.slice(io.memory.buffer_offset(buffer), bytes)?,
            Data::Mapped(sge) => sge,
            Data::None | Data::Capsule(_) => return Ok(()),
        };
        let from = RemoteMemory { stag: STag(key), tagged_offset: address };
        let wr_id = WrId::read(self.index, slot).0;
        match io.ctx.post_send(self.qp, &SendWr::read(wr_id, &[sink], from)) {
            Ok(()) => place.state = State::Fetching(then),
            Err(error) if is_full(&error) => self.wait(io, slot, Next::Fetch(then)),
            // The connection is ending; the slot is released with it.
            Err(_) => {}
        }
        Ok(())
    }

    /// The data of the host has arrived.
    #[inline]
    pub(super) fn on_fetched(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get(usize::from(slot)) else { return Ok(()) };
        match (&place.state, place.data) {
            (State::Fetching(Then::Io), _) => self.continue_io(io, slot),
            (State::Fetching(Then::Engine(bytes)), Data::Buffer(buffer)) => {
                let bytes = *bytes;
                self.pass_to_engine(io, slot, io.memory.buffer_offset(buffer), bytes)
            }
            _ => Ok(()),
        }
    }

    /// Ends a command: moves data to the host if the command reads, sends the response, posts the receive again.
    #[inline]
    pub(super) fn reply(&mut self, io: &mut CoreIo, slot: u16, response: Response) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let cqe = self.queue.completion(place.entry.cid.get(), response);
        let source = if response.status.is_success() { source(place, &io.memory)? } else { None };
        let buffer = match place.data {
            Data::Buffer(buffer) => Some(buffer),
            _ => None,
        };
        let key = place.pointer.and_then(|pointer| pointer.key_to_invalidate());
        // A buffer is free when its bytes are copied into frames, which the completion of the response shows.
        let held = buffer.filter(|_| source.is_some());
        match post_reply(&mut io.ctx, (self.qp, self.index), cqe.as_bytes(), (source, key, held)) {
            Ok(()) => {
                self.queue.record(&place.entry, response.status);
                self.queue.advance();
                if let Some(buffer) = buffer.filter(|_| held.is_none()) {
                    io.memory.free_buffer(buffer);
                }
                if let Some(second) = place.second.take() {
                    io.memory.free_buffer(second);
                }
                let backend = place.command.as_ref().map(|command| command.backend);
                if let Some(device) = backend.and_then(|at| io.backends.get(at)) {
                    device.counters.latency.record(io.now_ns.saturating_sub(place.started_ns));
                }
                (place.data, place.pointer, place.command) = (Data::None, None, None);
                place.state = State::Receiving;
                self.repost(io, slot);
                Ok(())
            }
            Err(error) if is_full(&error) => {
                self.wait(io, slot, Next::Reply(response));
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// Tries again what a slot waits for. Returns whether it got on.
    #[cold]
    pub(super) fn resume(&mut self, io: &mut CoreIo, slot: u16) -> Result<bool, NvmfError> {
        let waiting = io.waiting.len();
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(true) };
        let state = core::mem::replace(&mut place.state, State::Receiving);
        match state {
            State::Waiting(Next::Run(step)) => self.run(io, slot, step)?,
            State::Waiting(Next::Fetch(then)) => self.fetch(io, slot, then)?,
            State::Waiting(Next::Device) => self.submit(io, slot)?,
            State::Waiting(Next::Reply(response)) => self.reply(io, slot, response)?,
            other => self.set(slot, other),
        }
        Ok(io.waiting.len() == waiting)
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
            // The next housekeeping tries again.
            Err(ironwarp::VerbsError::Busy) => {}
            Ok(()) | Err(ironwarp::VerbsError::WrongState(_)) => self.is_ending = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
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
        for slot in self.slots.iter_mut().filter(|slot| !matches!(slot.state, State::Device)) {
            slot.release(&mut io.memory);
        }
    }
}

/// Returns where data for the host is, and where it goes.
#[inline]
fn source(slot: &Slot, memory: &CoreMemory) -> Result<Option<(Sge, RemoteMemory)>, NvmfError> {
    use crate::target::IoOperation;
    let sends = match &slot.command {
        Some(command) => command.operation == IoOperation::Read,
        // Data of the engine. The lowest bits of an opcode are the direction (Base 1.4, 5).
        None => slot.entry.opcode & DIRECTION_MASK == TO_HOST,
    };
    let Some(DataPointer::Keyed { address, length, key, .. }) = slot.pointer.filter(|_| sends) else {
        return Ok(None);
    };
    let sge = match slot.data {
        Data::Buffer(buffer) => memory.slice(memory.buffer_offset(buffer), length)?,
        Data::Mapped(sge) => sge,
        Data::None | Data::Capsule(_) => return Ok(None),
    };
    Ok(Some((sge, RemoteMemory { stag: STag(key), tagged_offset: address })))
}

/// Posts the RDMA Write of data and the response, both or none. The response arrives after the data (RFC 5040 s5.5).
#[inline]
fn post_reply(
    ctx: &mut Context,
    (qp, index): (QueuePair, u32),
    cqe: &[u8],
    (source, key, held): (Option<(Sge, RemoteMemory)>, Option<u32>, Option<BufferId>),
) -> Result<(), PostError> {
    let mut response = SendWr::send_inline(WrId::send(index, held).0, cqe);
    if let Some(key) = key {
        response = response.with_invalidate(STag(key));
    }
    if held.is_none() {
        response = response.unsignaled();
    }
    match source {
        Some((sge, to)) => {
            let write =
                SendWr::write(WrId::send(index, None).0, core::slice::from_ref(&sge), to).unsignaled();
            ctx.post_all(qp, &[write, response])
        }
        None => ctx.post_send(qp, &response),
    }
}
