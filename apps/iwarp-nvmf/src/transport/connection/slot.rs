//! The state of one command of a queue.

use ironwarp::Sge;
use zerocopy::FromZeros;

use super::wr_id::WrId;
use crate::target::{IoCommand, Response, Step};
use crate::transport::arena::CoreMemory;
use crate::transport::buffers::BufferId;
use crate::wire::SubmissionQueueEntry;
use crate::wire::sgl::DataPointer;

/// What a command does next.
#[derive(Debug)]
pub(in crate::transport) enum State {
    /// The receive is posted.
    Receiving,
    /// An Asynchronous Event Request.
    Held,
    /// Tried again later.
    Waiting(Next),
    /// An RDMA Read is outstanding.
    Fetching(Then),
    /// The backend has it, under this identifier, since this time in milliseconds.
    Device(WrId, u64),
    /// A piece of the engine's data is on its way out of the capsule's memory.
    Sending,
}

/// What is tried again.
#[derive(Debug)]
pub(in crate::transport) enum Next {
    /// The command, whose capsule has this many bytes of data.
    Start(u32),
    Run(Step),
    Fetch(Then),
    /// The authentication whose computation is on its way.
    Authenticate,
    /// The request to the backend, or the rest of it.
    Submit,
    /// The rest of a Compare.
    Compare,
    /// The piece that found no room.
    Piece,
    /// The piece after the last one.
    FollowingPiece,
    Reply(Response),
}

/// What follows an RDMA Read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::transport) enum Then {
    /// The engine takes the first bytes.
    Engine(u32),
    /// The I/O command continues.
    Io,
}

/// Where the data of a command is on this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::transport) enum Data {
    None,
    /// In the capsule's memory, at this offset of the arena.
    Capsule(usize),
    /// In a data buffer.
    Buffer(BufferId),
    /// In the medium.
    Mapped(Sge),
}

/// Where the engine's data for the host is: the bytes that have arrived, those of the current
/// piece, and all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::transport) struct Pieces {
    pub(in crate::transport) sent: u32,
    pub(in crate::transport) bytes: u32,
    pub(in crate::transport) total: u32,
}

impl Pieces {
    pub(in crate::transport) fn is_last(&self) -> bool {
        self.sent + self.bytes >= self.total
    }
}

/// An entry of the queue.
pub(in crate::transport) struct Slot {
    pub(in crate::transport) state: State,
    /// The receive: the entry and the data of its capsule have separate memory, so that the data is
    /// aligned as a disk needs it.
    pub(in crate::transport) receive: [Sge; 2],
    pub(in crate::transport) entry: SubmissionQueueEntry,
    /// When the capsule arrived.
    pub(in crate::transport) started_ns: u64,
    pub(in crate::transport) pointer: Option<DataPointer>,
    pub(in crate::transport) command: Option<IoCommand>,
    pub(in crate::transport) data: Data,
    /// What Compare reads from the medium.
    pub(in crate::transport) second: Option<BufferId>,
    /// The range that Dataset Management is at.
    pub(in crate::transport) range: usize,
    /// Bytes of the current range, or of a Compare, that are done.
    pub(in crate::transport) progress: u64,
    pub(in crate::transport) pieces: Option<Pieces>,
}

impl Slot {
    pub(in crate::transport) fn new(receive: [Sge; 2]) -> Self {
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
            progress: 0,
            pieces: None,
        }
    }

    /// Returns the number of data buffers that it has.
    #[inline]
    pub(in crate::transport) fn buffers(&self) -> usize {
        usize::from(matches!(self.data, Data::Buffer(_))) + usize::from(self.second.is_some())
    }

    /// Gives its buffers back and forgets its command.
    pub(in crate::transport) fn release(&mut self, memory: &mut CoreMemory) {
        if let Data::Buffer(buffer) = core::mem::replace(&mut self.data, Data::None) {
            memory.free_buffer(buffer);
        }
        if let Some(second) = self.second.take() {
            memory.free_buffer(second);
        }
        (self.range, self.progress, self.pieces) = (0, 0, None);
        self.state = State::Receiving;
    }
}
