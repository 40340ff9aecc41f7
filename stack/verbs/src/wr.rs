//! Work requests, as an application writes them.
//!
//! A request borrows its gather list or inline bytes only for the call that posts it: posting copies them into the
//! queue's own slot. The memory that a gather list names must stay as it is until the completion.

use ironwarp_iwarp::{SendFlags, SendOpcode};
use ironwarp_mem::{Access, AtomicOp, FastRegion, Sge, Window};
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
    pub(crate) access: Access,
    pub(crate) source: Source<'a>,
}

/// Where a request's bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// In registered memory.
    Gather(&'a [Sge]),
    /// In the request itself.
    Inline(&'a [u8]),
    /// Nowhere: it is an atomic operation, whose answer goes to the element.
    Atomic(&'a [Sge; 1], &'a AtomicOp),
}

impl<'a> SendWr<'a> {
    const NO_REMOTE: RemoteMemory = RemoteMemory { stag: STag(0), tagged_offset: 0 };

    fn new(wr_id: u64, opcode: SendOpcode, remote: RemoteMemory, source: Source<'a>) -> Self {
        let (flags, access) = (SendFlags::SIGNALED, Access::empty());
        SendWr { wr_id, opcode, flags, remote, access, source }
    }

    /// A Send of the bytes that `gather` names, in order (RFC 5040 s3.1).
    pub fn send(wr_id: u64, gather: &'a [Sge]) -> Self {
        Self::new(wr_id, SendOpcode::Send, Self::NO_REMOTE, Source::Gather(gather))
    }

    /// A Send of bytes that are copied now, so that their memory is free on return.
    pub fn send_inline(wr_id: u64, bytes: &'a [u8]) -> Self {
        Self::new(wr_id, SendOpcode::Send, Self::NO_REMOTE, Source::Inline(bytes))
    }

    /// An RDMA Write of the bytes that `gather` names into the peer's memory.
    pub fn write(wr_id: u64, gather: &'a [Sge], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::Write, remote, Source::Gather(gather))
    }

    /// An RDMA Write of bytes that are copied now.
    pub fn write_inline(wr_id: u64, bytes: &'a [u8], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::Write, remote, Source::Inline(bytes))
    }

    /// Immediate Data: eight bytes, copied now, that reach the peer in the completion of its oldest receive, whose memory
    /// stays as it is (RFC 7306 s6). The connection must have it: [`Extensions`](crate::Extensions).
    pub fn immediate(wr_id: u64, octets: &'a [u8; 8]) -> Self {
        Self::new(wr_id, SendOpcode::Immediate, Self::NO_REMOTE, Source::Inline(octets))
    }

    /// An atomic operation on a word of the peer's, which must lie at a multiple of 8 bytes and in memory with
    /// [`Access::REMOTE_ATOMIC`] (RFC 7306 s5). The word's value before lands in `sink`, 8 bytes, in this machine's order.
    /// It counts as one of the Reads that may be outstanding, and is atomic among all connections of the peer's stack, not
    /// against plain loads and stores there.
    ///
    /// ```no_run
    /// # fn count(
    /// #     ctx: &mut ironwarp::Context, qp: ironwarp::QueuePair, before: &ironwarp::Region,
    /// #     counter: ironwarp::RemoteMemory,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use ironwarp::{AtomicOp, SendWr};
    /// ctx.post_send(qp, &SendWr::atomic(1, &[before.slice(0, 8)?], counter, &AtomicOp::add(1)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn atomic(wr_id: u64, sink: &'a [Sge; 1], remote: RemoteMemory, operation: &'a AtomicOp) -> Self {
        let opcode = match operation {
            AtomicOp::FetchAdd { .. } => SendOpcode::FetchAdd,
            AtomicOp::CmpSwap { .. } => SendOpcode::CmpSwap,
            AtomicOp::Swap { .. } => SendOpcode::Swap,
        };
        Self::new(wr_id, opcode, remote, Source::Atomic(sink, operation))
    }

    /// Asks whether the peer has atomic operations, by adding 0 to a word that it advertised, which stays as it is (RFC 7306
    /// s1.1). A peer that has none ends the connection, and [`Event::PeerLacksAtomics`](crate::Event::PeerLacksAtomics)
    /// tells.
    pub fn probe_atomics(wr_id: u64, sink: &'a [Sge; 1], remote: RemoteMemory) -> Self {
        const PROBE: &AtomicOp = &AtomicOp::add(0);
        Self::atomic(wr_id, sink, remote, PROBE)
    }

    /// An RDMA Write whose end the peer hears of by Immediate Data: two requests with one number, to be posted with
    /// [`Context::post_all`](crate::Context::post_all). The first completes only when it fails.
    ///
    /// ```no_run
    /// # fn tell(
    /// #     ctx: &mut ironwarp::Context, qp: ironwarp::QueuePair, filled: &[ironwarp::Sge],
    /// #     there: ironwarp::RemoteMemory,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use ironwarp::SendWr;
    /// let number = 7u64.to_be_bytes();
    /// let [write, immediate] = SendWr::write_with_immediate(1, filled, there, &number);
    /// ctx.post_all(qp, &[write, immediate.solicited()])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_with_immediate(
        wr_id: u64,
        gather: &'a [Sge],
        remote: RemoteMemory,
        octets: &'a [u8; 8],
    ) -> [Self; 2] {
        [Self::write(wr_id, gather, remote).unsignaled(), Self::immediate(wr_id, octets)]
    }

    /// An RDMA Read of the peer's memory into the one element `sink`.
    pub fn read(wr_id: u64, sink: &'a [Sge; 1], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::Read, remote, Source::Gather(sink))
    }

    /// As [`SendWr::read`], and the sink's own steering tag ends before the request completes.
    pub fn read_with_invalidate(wr_id: u64, sink: &'a [Sge; 1], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::ReadInvalidate, remote, Source::Gather(sink))
    }

    /// Ends a steering tag of ours: a region's for good, a window's or fast region's until it is bound again. It does
    /// not wait for earlier requests, which may still need the tag, unless it is [`SendWr::locally_fenced`]. When it
    /// completes nobody uses the memory by that tag any more.
    pub fn invalidate(wr_id: u64, stag: STag) -> Self {
        let remote = RemoteMemory { stag, tagged_offset: 0 };
        Self::new(wr_id, SendOpcode::Invalidate, remote, Source::Gather(&[]))
    }

    /// Binds a window to `over`, a piece of a region that has [`Access::BIND`]: from now on [`Window::stag`] is the tag
    /// that the peer of this queue pair may use as `access` says. Later requests find it bound.
    ///
    /// ```no_run
    /// # fn lend(
    /// #     ctx: &mut ironwarp::Context, qp: ironwarp::QueuePair, pool: &ironwarp::Region,
    /// #     window: &mut ironwarp::Window,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use ironwarp::{Access, SendWr};
    /// // The peer learns the tag from the Send behind the binding, and ends it by a Send with Invalidate.
    /// let piece = [pool.slice(0, 4096)?];
    /// let bind = SendWr::bind(1, window, &piece, Access::REMOTE_WRITE).unsignaled();
    /// let tag = window.stag().0.to_be_bytes();
    /// ctx.post_sends(qp, &[bind, SendWr::send_inline(2, &tag)]).map_err(|(_, error)| error)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind(wr_id: u64, window: &mut Window, over: &'a [Sge; 1], access: Access) -> Self {
        window.next_stag();
        Self::bind_with_current_stag(wr_id, window, over, access)
    }

    /// As [`SendWr::bind`], with the tag that [`Window::next_stag`] drew last, for who tells it before the request is made. A tag
    /// that has been bound is not bound again.
    pub fn bind_with_current_stag(wr_id: u64, window: &Window, over: &'a [Sge; 1], access: Access) -> Self {
        let remote = RemoteMemory { stag: window.stag(), tagged_offset: 0 };
        SendWr { access, ..Self::new(wr_id, SendOpcode::Bind, remote, Source::Gather(over)) }
    }

    /// Makes a fast region of `over`, a piece of a region that has [`Access::BIND`]: from now on [`FastRegion::stag`]
    /// is its tag, here and at the peer, for the whole protection domain.
    pub fn fast_register(wr_id: u64, region: &mut FastRegion, over: &'a [Sge; 1], access: Access) -> Self {
        region.next_stag();
        Self::fast_register_with_current_stag(wr_id, region, over, access)
    }

    /// As [`SendWr::fast_register`], with the tag that [`FastRegion::next_stag`] drew last, as [`SendWr::bind_with_current_stag`].
    pub fn fast_register_with_current_stag(
        wr_id: u64,
        region: &FastRegion,
        over: &'a [Sge; 1],
        access: Access,
    ) -> Self {
        let remote = RemoteMemory { stag: region.stag(), tagged_offset: 0 };
        SendWr { access, ..Self::new(wr_id, SendOpcode::FastRegister, remote, Source::Gather(over)) }
    }

    /// Limits a fast region to this queue pair, whose peer may then invalidate it (RFC 5040 s8.1.1, 7).
    #[must_use]
    pub fn stream_scoped(mut self) -> Self {
        if self.opcode == SendOpcode::FastRegister {
            self.flags.insert(SendFlags::STREAM_SCOPE);
        }
        self
    }

    /// Ends a steering tag at the peer when the Send is delivered there: a window's, or that of a region of one
    /// stream. Any other ends the connection (RFC 5040 s5.3). Sends alone carry this.
    #[must_use]
    pub fn with_invalidate(mut self, stag: STag) -> Self {
        self.opcode = match self.opcode {
            SendOpcode::Send => SendOpcode::SendInvalidate,
            SendOpcode::SendSolicited => SendOpcode::SendSolicitedInvalidate,
            _ => return self,
        };
        self.remote.stag = stag;
        self
    }

    /// Asks for no completion entry when the request succeeds. One that fails always gets one.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Raises an event at a peer that listens for solicited completions only. Sends and Immediate Data alone carry this.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.opcode = match self.opcode {
            SendOpcode::Send => SendOpcode::SendSolicited,
            SendOpcode::SendInvalidate => SendOpcode::SendSolicitedInvalidate,
            SendOpcode::Immediate => SendOpcode::ImmediateSolicited,
            other => other,
        };
        self
    }

    /// Holds the request until every earlier Read of this queue has completed.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.flags.insert(SendFlags::FENCE);
        self
    }

    /// Holds the request until every earlier request of this queue has completed.
    #[must_use]
    pub fn locally_fenced(mut self) -> Self {
        self.flags.insert(SendFlags::LOCAL_FENCE);
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
