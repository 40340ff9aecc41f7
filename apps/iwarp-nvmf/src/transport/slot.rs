//! The state of one command of a queue.

use ironwarp::Sge;
use zerocopy::FromZeros;

use super::arena::{BufferId, CoreMemory};
use crate::target::{IoCommand, Response, Step};
use crate::wire::SubmissionQueueEntry;
use crate::wire::sgl::DataPointer;

/// What a command does next.
#[derive(Debug)]
pub(super) enum State {
    /// The receive is posted.
    Receiving,
    /// An Asynchronous Event Request.
    Held,
    /// Tried again later.
    Waiting(Next),
    /// An RDMA Read is outstanding.
    Fetching(Then),
    /// The backend has it.
    Device,
}

/// What is tried again.
#[derive(Debug)]
pub(super) enum Next {
    Run(Step),
    Fetch(Then),
    Device,
    Reply(Response),
}

/// What follows an RDMA Read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    /// The engine takes the first bytes.
    Engine(u32),
    /// The I/O command continues.
    Io,
}

/// Where the data of a command is on this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Data {
    None,
    /// In the capsule, at this place of the arena.
    Capsule(usize),
    /// In a data buffer.
    Buffer(BufferId),
    /// In the medium.
    Mapped(Sge),
}

/// An entry of the queue.
pub(super) struct Slot {
    pub(super) state: State,
    /// The receive: the entry and the data of its capsule have separate places, so that the data is aligned as a disk
    /// needs it.
    pub(super) receive: [Sge; 2],
    pub(super) entry: SubmissionQueueEntry,
    /// When the capsule arrived.
    pub(super) started_ns: u64,
    pub(super) pointer: Option<DataPointer>,
    pub(super) command: Option<IoCommand>,
    pub(super) data: Data,
    /// What Compare reads from the medium.
    pub(super) second: Option<BufferId>,
    /// The range that Dataset Management is at.
    pub(super) range: usize,
}

impl Slot {
    pub(super) fn new(receive: [Sge; 2]) -> Self {
        Slot {
            state: State::Receiving,
            receive,
            entry: SubmissionQueueEntry::new_zeroed(),
            started_ns: 0,
            pointer: None,
            command: None,
            data: Data::None,
            second: None,
            range: 0,
        }
    }

    pub(super) fn release(&mut self, memory: &mut CoreMemory) {
        if let Data::Buffer(buffer) = core::mem::replace(&mut self.data, Data::None) {
            memory.free_buffer(buffer);
        }
        if let Some(second) = self.second.take() {
            memory.free_buffer(second);
        }
        self.state = State::Receiving;
    }
}
