//! A queue of a host: command identifiers, capsules, data buffers.

use std::collections::VecDeque;
use std::time::Duration;

use ironwarp::{
    Access, AlignedBuf, Completion, CompletionFlags, CompletionOpcode, ConnectParams, Context, FastRegion,
    KeepAlive, PostError, QpAttr, QueuePair, RecvWr, Region, SendWr,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Host, Link};
use crate::NvmfError;
use crate::wire::sgl::SglDescriptor;
use crate::wire::{CQE_BYTES, CompletionQueueEntry, SQE_BYTES, SubmissionQueueEntry};

/// RDMA Reads that the target may have outstanding.
const READS: u16 = 16;
/// Work requests of a command: a binding, a capsule, an invalidation.
const SENDS_PER_ENTRY: u32 = 3;

/// TCP's probes of a silent target, given up after some 13 s. A target that has ended the
/// connection while the link was cut answers them with a reset.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(3), interval: Duration::from_secs(1), probes: 10 };

/// The data of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// None.
    None,
    /// From the host, by RDMA Read of the target.
    ToTarget(u32),
    /// From the host, in the capsule.
    InCapsule(u32),
    /// To the host, by RDMA Write of the target.
    FromTarget(u32),
    /// The command's SGL is used as it is.
    AsIs,
}

/// A command that has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCompletion {
    /// The queue.
    pub queue: usize,
    /// The command.
    pub cid: u16,
    /// Its completion queue entry.
    pub entry: CompletionQueueEntry,
    /// Whether the target invalidated the command's tag.
    pub invalidated: bool,
}

/// What is outstanding under a command identifier.
struct Command {
    is_free: bool,
    /// The tag that is bound for its data.
    bound: bool,
    fast: Option<FastRegion>,
}

pub(super) struct HostQueue {
    pub(super) qp: QueuePair,
    pub(super) link: Link,
    index: usize,
    /// Data buffers, then capsules, then responses.
    memory: Region,
    buffer_bytes: u32,
    entries: u16,
    commands: Vec<Command>,
    free: Vec<u16>,
    pub(super) completed: VecDeque<HostCompletion>,
}

/// A target that ends closes its connections while responses are still arriving. Nothing can be
/// posted then, and the event of the connection follows.
fn unless_ending(outcome: Result<(), PostError>) -> Result<(), NvmfError> {
    match outcome {
        Err(PostError::WrongState(_)) => Ok(()),
        outcome => Ok(outcome?),
    }
}

impl HostQueue {
    fn entry_offset(&self, cid: u16) -> usize {
        usize::from(self.entries) * self.buffer_bytes as usize + usize::from(cid) * SQE_BYTES
    }

    fn response_offset(&self, slot: u16) -> usize {
        usize::from(self.entries) * (self.buffer_bytes as usize + SQE_BYTES) + usize::from(slot) * CQE_BYTES
    }

    fn buffer_offset(&self, cid: u16) -> usize {
        usize::from(cid) * self.buffer_bytes as usize
    }

    fn post_receive(&self, ctx: &mut Context, slot: u16) -> Result<(), NvmfError> {
        let buffer = [self.memory.slice(self.response_offset(slot), CQE_BYTES as u32)?];
        unless_ending(ctx.post_recv(self.qp, &RecvWr::new(slot.into(), &buffer)))
    }

    /// A response has arrived.
    pub(super) fn on_completion(&mut self, ctx: &mut Context, done: &Completion) -> Result<(), NvmfError> {
        if done.opcode != CompletionOpcode::Receive {
            return Ok(());
        }
        let slot = done.wr_id as u16;
        let mut entry = CompletionQueueEntry::default();
        self.memory.read_at(self.response_offset(slot), entry.as_mut_bytes())?;
        self.post_receive(ctx, slot)?;
        let cid = entry.cid.get();
        let command = self.commands.get_mut(usize::from(cid)).filter(|command| !command.is_free);
        let command =
            command.ok_or_else(|| NvmfError::Protocol(format!("a response to nothing: {entry:?}")))?;
        let invalidated = done.flags.contains(CompletionFlags::INVALIDATED);
        if core::mem::take(&mut command.bound)
            && !invalidated
            && let Some(fast) = &command.fast
        {
            unless_ending(ctx.post_send(self.qp, &SendWr::invalidate(u64::MAX, fast.stag()).unsignaled()))?;
        }
        self.completed.push_back(HostCompletion { queue: self.index, cid, entry, invalidated });
        Ok(())
    }

    /// Returns the descriptor of a command's data, and binds its tag if each command has one.
    fn describe(
        &mut self,
        ctx: &mut Context,
        cid: u16,
        (bytes, access): (u32, Access),
    ) -> Result<SglDescriptor, NvmfError> {
        let offset = self.buffer_offset(cid);
        let piece = [self.memory.slice(offset, bytes)?];
        let address = piece[0].addr;
        let stag = self.memory.stag();
        let Some(command) = self.commands.get_mut(usize::from(cid)) else {
            return Err(NvmfError::Protocol(format!("no command {cid}")));
        };
        let Some(fast) = &mut command.fast else {
            return Ok(SglDescriptor::keyed(address, bytes, stag.0, false));
        };
        let bind = SendWr::fast_register(u64::MAX, fast, &piece, access).stream_scoped().unsignaled();
        ctx.post_send(self.qp, &bind)?;
        command.bound = true;
        Ok(SglDescriptor::keyed(address, bytes, fast.stag().0, true))
    }
}

impl Host {
    /// Opens the connection of a queue with `entries` entries. Returns the queue's number here.
    pub(super) fn open_queue(&mut self, private_data: &[u8], entries: u16) -> Result<usize, NvmfError> {
        let attr = QpAttr {
            send_depth: u32::from(entries) * SENDS_PER_ENTRY,
            recv_depth: entries.into(),
            max_sge: 2,
            inline_bytes: SQE_BYTES,
            ird: READS,
            ord: 1,
            keep_alive: Some(KEEP_ALIVE),
            ..QpAttr::new(self.cq)
        };
        let qp = self.ctx.create_qp(self.pd, &attr)?;
        let buffer_bytes = self.settings.buffer_bytes.max(8192);
        let bytes = usize::from(entries) * (buffer_bytes as usize + SQE_BYTES + CQE_BYTES);
        let memory = AlignedBuf::pages(bytes)
            .map_err(|error| NvmfError::Memory { bytes, reason: error.to_string() })?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::BIND;
        let memory = self.ctx.register(self.pd, memory, rights)?;
        let invalidate = self.settings.invalidate;
        let command = |ctx: &Context, pd| {
            let fast = if invalidate { Some(ctx.create_fast_region(pd)?) } else { None };
            Ok::<_, NvmfError>(Command { is_free: true, bound: false, fast })
        };
        let commands = (0..entries).map(|_| command(&self.ctx, self.pd)).collect::<Result<_, _>>()?;
        let free = self.queues.iter().position(|queue| queue.link == Link::Discarded);
        let index = free.unwrap_or(self.queues.len());
        let queue = HostQueue {
            qp,
            link: Link::Connecting,
            index,
            memory,
            buffer_bytes,
            entries,
            commands,
            // A queue is full with one entry less than it has (Base 1.4, 4.1.1).
            free: (0..entries.saturating_sub(1)).rev().collect(),
            completed: VecDeque::new(),
        };
        let params = ConnectParams { private_data, ..ConnectParams::default() };
        let opened = (0..entries)
            .try_for_each(|slot| queue.post_receive(&mut self.ctx, slot))
            .and_then(|()| Ok(self.ctx.connect_with(qp, self.settings.target, &params)?));
        if opened.is_err() {
            self.ctx.destroy_qp(qp)?;
        }
        opened?;
        match self.queues.get_mut(index) {
            Some(place) => *place = queue,
            None => self.queues.push(queue),
        }
        Ok(index)
    }

    /// Resets the connection of a queue and forgets the queue. The next one that is opened gets its
    /// number.
    ///
    /// # Errors
    ///
    /// The stack refuses the call.
    pub fn discard(&mut self, queue: usize) -> Result<(), NvmfError> {
        let discarded = self.queue(queue)?;
        discarded.link = Link::Discarded;
        let qp = discarded.qp;
        Ok(self.ctx.destroy_qp(qp)?)
    }

    /// Begins to open a connection with any private data, and does not wait. Returns the queue's
    /// number here.
    ///
    /// # Errors
    ///
    /// The stack refuses a call.
    pub fn begin_raw(&mut self, private_data: &[u8], entries: u16) -> Result<usize, NvmfError> {
        self.open_queue(private_data, entries)
    }

    /// Opens a connection with any private data, for tests of rejects. Returns the queue's number
    /// here.
    ///
    /// # Errors
    ///
    /// [`NvmfError::Rejected`] if the target rejects it.
    pub fn open_raw(
        &mut self,
        private_data: &[u8],
        entries: u16,
        between: &mut dyn FnMut(),
    ) -> Result<usize, NvmfError> {
        let queue = self.open_queue(private_data, entries)?;
        self.wait(queue, between, |host| host.is_up(queue).then_some(queue))
    }

    /// Reserves a command identifier with its data buffer. `None` if all are in use.
    pub fn reserve(&mut self, queue: usize) -> Option<u16> {
        let queue = self.queues.get_mut(queue)?;
        let cid = queue.free.pop()?;
        queue.commands.get_mut(usize::from(cid))?.is_free = false;
        Some(cid)
    }

    /// Returns a command identifier, after its command has completed.
    pub fn release(&mut self, queue: usize, cid: u16) {
        let Some(queue) = self.queues.get_mut(queue) else { return };
        if let Some(command) = queue.commands.get_mut(usize::from(cid)).filter(|one| !one.is_free) {
            command.is_free = true;
            queue.free.push(cid);
        }
    }

    /// Returns the number of free command identifiers.
    pub fn free_commands(&self, queue: usize) -> usize {
        self.queues.get(queue).map_or(0, |queue| queue.free.len())
    }

    /// Copies data into the buffer of a command.
    ///
    /// # Errors
    ///
    /// The data is longer than the buffer.
    pub fn write_buffer(&mut self, queue: usize, cid: u16, data: &[u8]) -> Result<(), NvmfError> {
        let queue = self.queue(queue)?;
        Ok(queue.memory.write_at(queue.buffer_offset(cid), data)?)
    }

    /// Copies data from the buffer of a command.
    ///
    /// # Errors
    ///
    /// The data is longer than the buffer.
    pub fn read_buffer(&mut self, queue: usize, cid: u16, data: &mut [u8]) -> Result<(), NvmfError> {
        let queue = self.queue(queue)?;
        Ok(queue.memory.read_at(queue.buffer_offset(cid), data)?)
    }

    fn queue(&mut self, queue: usize) -> Result<&mut HostQueue, NvmfError> {
        let none = NvmfError::Protocol(format!("there is no queue {queue}"));
        self.queues.get_mut(queue).ok_or(none)
    }

    /// Sends a command under a reserved identifier.
    ///
    /// # Errors
    ///
    /// The stack refuses a post, or the data does not fit the buffer.
    pub fn send(
        &mut self,
        queue: usize,
        cid: u16,
        mut entry: SubmissionQueueEntry,
        transfer: Transfer,
    ) -> Result<(), NvmfError> {
        let none = NvmfError::Protocol(format!("there is no queue {queue}"));
        let ctx = &mut self.ctx;
        let queue = self.queues.get_mut(queue).ok_or(none)?;
        entry.cid = cid.into();
        match transfer {
            Transfer::None => entry.sgl1 = SglDescriptor::keyed(0, 0, 0, false),
            Transfer::AsIs => {}
            Transfer::ToTarget(bytes) => {
                entry.sgl1 = queue.describe(ctx, cid, (bytes, Access::REMOTE_READ))?;
            }
            Transfer::FromTarget(bytes) => {
                entry.sgl1 = queue.describe(ctx, cid, (bytes, Access::REMOTE_WRITE | Access::LOCAL_WRITE))?;
            }
            Transfer::InCapsule(bytes) => {
                entry.sgl1 = SglDescriptor::in_capsule(0, bytes);
                queue.memory.write_at(queue.entry_offset(cid), entry.as_bytes())?;
                let capsule = [
                    queue.memory.slice(queue.entry_offset(cid), SQE_BYTES as u32)?,
                    queue.memory.slice(queue.buffer_offset(cid), bytes)?,
                ];
                return Ok(ctx.post_send(queue.qp, &SendWr::send(cid.into(), &capsule).unsignaled())?);
            }
        }
        Ok(ctx.post_send(queue.qp, &SendWr::send_inline(cid.into(), entry.as_bytes()).unsignaled())?)
    }

    /// Sends bytes that need not be a capsule, for tests.
    ///
    /// # Errors
    ///
    /// The stack refuses the post.
    pub fn send_bytes(&mut self, queue: usize, bytes: &[u8]) -> Result<(), NvmfError> {
        let qp = self.queue(queue)?.qp;
        Ok(self.ctx.post_send(qp, &SendWr::send_inline(0, bytes).unsignaled())?)
    }

    /// Returns the next command that has completed on a queue.
    pub fn next_completion(&mut self, queue: usize) -> Option<HostCompletion> {
        self.queues.get_mut(queue)?.completed.pop_front()
    }

    /// Executes one command and waits for its response. The data that the target returns is in
    /// `data`, and data for the target is taken from there.
    ///
    /// # Errors
    ///
    /// [`NvmfError::Ended`] if the connection ends or no response comes.
    pub fn execute(
        &mut self,
        queue: usize,
        entry: SubmissionQueueEntry,
        transfer: Transfer,
        data: &mut [u8],
        between: &mut dyn FnMut(),
    ) -> Result<CompletionQueueEntry, NvmfError> {
        let full = NvmfError::Protocol("every command identifier is in use".to_owned());
        let cid = self.reserve(queue).ok_or(full)?;
        if matches!(transfer, Transfer::ToTarget(_) | Transfer::InCapsule(_)) {
            self.write_buffer(queue, cid, data)?;
        }
        self.send(queue, cid, entry, transfer)?;
        let done = self.wait(queue, between, |host| {
            let queue = host.queues.get_mut(queue)?;
            let at = queue.completed.iter().position(|done| done.cid == cid)?;
            queue.completed.remove(at)
        })?;
        if matches!(transfer, Transfer::FromTarget(_)) && done.entry.status().is_success() {
            self.read_buffer(queue, cid, data)?;
        }
        self.release(queue, cid);
        Ok(done.entry)
    }

    /// Returns a value of zeros that a target's bytes fill.
    pub(super) fn zeroed<T: FromZeros + FromBytes>() -> Box<T> {
        Box::new(T::new_zeroed())
    }
}
