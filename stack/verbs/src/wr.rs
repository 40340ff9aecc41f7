//! Work requests, as an application writes them.
//!
//! A request borrows its gather list or inline bytes only for the call that posts it: posting copies them into the
//! queue's own slot. The memory that a gather list names must stay as it is until the completion.

use ironwarp_iwarp::{SendFlags, SendOpcode};
use ironwarp_mem::Sge;
use ironwarp_types::STag;

/// A place in the peer's memory, as the peer advertised it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteMemory {
    /// The steering tag of its region.
    pub stag: STag,
    /// The tagged offset within that region's address space (RFC 5041 s4.2).
    pub tagged_offset: u64,
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    pub(crate) wr_id: u64,
    pub(crate) opcode: SendOpcode,
    pub(crate) flags: SendFlags,
    pub(crate) remote: RemoteMemory,
    pub(crate) source: Source<'a>,
}

/// Where a request's bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// In registered memory.
    Gather(&'a [Sge]),
    /// In the request itself.
    Inline(&'a [u8]),
}

impl<'a> SendWr<'a> {
    const NOWHERE: RemoteMemory = RemoteMemory { stag: STag(0), tagged_offset: 0 };

    fn new(wr_id: u64, opcode: SendOpcode, remote: RemoteMemory, source: Source<'a>) -> Self {
        SendWr { wr_id, opcode, flags: SendFlags::SIGNALED, remote, source }
    }

    /// A Send of the bytes that `gather` names, in order (RFC 5040 s3.1).
    pub fn send(wr_id: u64, gather: &'a [Sge]) -> Self {
        Self::new(wr_id, SendOpcode::Send, Self::NOWHERE, Source::Gather(gather))
    }

    /// A Send of bytes that are copied now, so that their memory is free on return.
    pub fn send_inline(wr_id: u64, bytes: &'a [u8]) -> Self {
        Self::new(wr_id, SendOpcode::Send, Self::NOWHERE, Source::Inline(bytes))
    }

    /// An RDMA Write of the bytes that `gather` names into the peer's memory.
    pub fn write(wr_id: u64, gather: &'a [Sge], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::Write, remote, Source::Gather(gather))
    }

    /// An RDMA Write of bytes that are copied now.
    pub fn write_inline(wr_id: u64, bytes: &'a [u8], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::Write, remote, Source::Inline(bytes))
    }

    /// An RDMA Read of the peer's memory into the one element `sink`.
    pub fn read(wr_id: u64, sink: &'a [Sge; 1], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::Read, remote, Source::Gather(sink))
    }

    /// Asks for no completion entry when the request succeeds. One that fails always gets one.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Raises an event at a peer that listens for solicited completions only. Sends alone carry this.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        if self.opcode == SendOpcode::Send {
            self.opcode = SendOpcode::SendSolicited;
        }
        self
    }

    /// Holds the request until every earlier Read of this queue has completed.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.flags.insert(SendFlags::FENCE);
        self
    }
}

/// A request for the receive queue: where one incoming Send may land.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    pub(crate) wr_id: u64,
    pub(crate) scatter: &'a [Sge],
}

impl<'a> RecvWr<'a> {
    /// A receive into the elements of `scatter`, in order.
    pub fn new(wr_id: u64, scatter: &'a [Sge]) -> Self {
        RecvWr { wr_id, scatter }
    }
}
