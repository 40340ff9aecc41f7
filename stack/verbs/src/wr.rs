//! Work requests of an application.
//!
//! A request borrows its gather list or inline bytes only during the call that posts it: posting
//! copies them into the queue's slot. The memory that a gather list names must not change until the
//! completion.

use ironwarp_iwarp::{SendFlags, SendOpcode};
use ironwarp_mem::{Access, AtomicOp, FastRegion, Sge, Window};
use ironwarp_types::STag;

/// A location in the peer's memory, as the peer advertised it.
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

/// The bytes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// In registered memory.
    Gather(&'a [Sge]),
    /// In the request.
    Inline(&'a [u8]),
    /// None: the reply of an atomic operation is stored in the element.
    Atomic(&'a [Sge; 1], &'a AtomicOp),
}

impl<'a> SendWr<'a> {
    const NO_REMOTE: RemoteMemory = RemoteMemory { stag: STag(0), tagged_offset: 0 };

    fn new(wr_id: u64, opcode: SendOpcode, remote: RemoteMemory, source: Source<'a>) -> Self {
        let (flags, access) = (SendFlags::SIGNALED, Access::empty());
        SendWr { wr_id, opcode, flags, remote, access, source }
    }

    /// Sends the bytes of `gather`, in order (RFC 5040 s3.1).
    pub fn send(wr_id: u64, gather: &'a [Sge]) -> Self {
        Self::new(wr_id, SendOpcode::Send, Self::NO_REMOTE, Source::Gather(gather))
    }

    /// Sends bytes that the call copies, so that their memory is free on return.
    pub fn send_inline(wr_id: u64, bytes: &'a [u8]) -> Self {
        Self::new(wr_id, SendOpcode::Send, Self::NO_REMOTE, Source::Inline(bytes))
    }

    /// Writes the bytes of `gather` to the peer's memory (RDMA Write).
    pub fn write(wr_id: u64, gather: &'a [Sge], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::Write, remote, Source::Gather(gather))
    }

    /// Writes bytes that the call copies.
    pub fn write_inline(wr_id: u64, bytes: &'a [u8], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::Write, remote, Source::Inline(bytes))
    }

    /// Sends Immediate Data: eight bytes, copied by the call. The peer gets them in the completion
    /// of its oldest receive, whose memory is not changed (RFC 7306 s6). The connection must
    /// support it: [`Extensions`](crate::Extensions).
    pub fn immediate(wr_id: u64, octets: &'a [u8; 8]) -> Self {
        Self::new(wr_id, SendOpcode::Immediate, Self::NO_REMOTE, Source::Inline(octets))
    }

    /// Executes an atomic operation on a word of the peer, at a multiple of 8 bytes in memory with
    /// [`Access::REMOTE_ATOMIC`] (RFC 7306 s5). The word's value before is stored in `sink`, 8
    /// bytes, in this machine's order. The request counts as an outstanding Read. It is atomic
    /// among all connections of the peer's stack, but not with plain loads and stores there.
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

    /// Tests whether the peer supports atomic operations: adds 0 to a word that it advertised
    /// (RFC 7306 s1.1). A peer without support ends the connection, which raises
    /// [`Event::PeerLacksAtomics`](crate::Event::PeerLacksAtomics).
    pub fn probe_atomics(wr_id: u64, sink: &'a [Sge; 1], remote: RemoteMemory) -> Self {
        const PROBE: &AtomicOp = &AtomicOp::add(0);
        Self::atomic(wr_id, sink, remote, PROBE)
    }

    /// An RDMA Write followed by Immediate Data: two requests with one number, for
    /// [`Context::post_all`](crate::Context::post_all). They have one completion, also when they
    /// are flushed: the second one's, which reports a failure of the first.
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
        [Self::write(wr_id, gather, remote).reported_by_next(), Self::immediate(wr_id, octets)]
    }

    /// Reads the peer's memory into the one element `sink` (RDMA Read).
    pub fn read(wr_id: u64, sink: &'a [Sge; 1], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::Read, remote, Source::Gather(sink))
    }

    /// As [`SendWr::read`]; the sink's own steering tag is invalidated before the request
    /// completes.
    pub fn read_with_invalidate(wr_id: u64, sink: &'a [Sge; 1], remote: RemoteMemory) -> Self {
        Self::new(wr_id, SendOpcode::ReadInvalidate, remote, Source::Gather(sink))
    }

    /// Invalidates a local steering tag: a region's permanently, that of a window or fast region
    /// until it is bound again. Does not wait for earlier requests that may need the tag, unless it
    /// is [`SendWr::locally_fenced`]. After the completion no access by that tag takes place.
    pub fn invalidate(wr_id: u64, stag: STag) -> Self {
        let remote = RemoteMemory { stag, tagged_offset: 0 };
        Self::new(wr_id, SendOpcode::Invalidate, remote, Source::Gather(&[]))
    }

    /// Binds a window to `over`, a part of a region that has [`Access::BIND`]. From then on the
    /// peer of this queue pair may use the tag [`Window::stag`] with the rights of `access`. Later
    /// requests of the list may use it.
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

    /// As [`SendWr::bind`], with the last tag from [`Window::next_stag`], if the tag is needed
    /// before the request is created. A tag is bound only once.
    pub fn bind_with_current_stag(wr_id: u64, window: &Window, over: &'a [Sge; 1], access: Access) -> Self {
        let remote = RemoteMemory { stag: window.stag(), tagged_offset: 0 };
        SendWr { access, ..Self::new(wr_id, SendOpcode::Bind, remote, Source::Gather(over)) }
    }

    /// Makes a fast region of `over`, a part of a region that has [`Access::BIND`]. From then on
    /// [`FastRegion::stag`] is its tag, here and for the peer, in the whole protection domain.
    pub fn fast_register(wr_id: u64, region: &mut FastRegion, over: &'a [Sge; 1], access: Access) -> Self {
        region.next_stag();
        Self::fast_register_with_current_stag(wr_id, region, over, access)
    }

    /// As [`SendWr::fast_register`], with the last tag from [`FastRegion::next_stag`]; see
    /// [`SendWr::bind_with_current_stag`].
    pub fn fast_register_with_current_stag(
        wr_id: u64,
        region: &FastRegion,
        over: &'a [Sge; 1],
        access: Access,
    ) -> Self {
        let remote = RemoteMemory { stag: region.stag(), tagged_offset: 0 };
        SendWr { access, ..Self::new(wr_id, SendOpcode::FastRegister, remote, Source::Gather(over)) }
    }

    /// Limits a fast region to this queue pair, whose peer may then invalidate it (RFC 5040 s8.1.1,
    /// 7).
    #[must_use]
    pub fn stream_scoped(mut self) -> Self {
        if self.opcode == SendOpcode::FastRegister {
            self.flags.insert(SendFlags::STREAM_SCOPE);
        }
        self
    }

    /// Invalidates a steering tag of the peer when it delivers the Send: a window's, or that of a
    /// region of one stream. Any other tag ends the connection (RFC 5040 s5.3). For Sends only.
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

    /// Requests no completion on success. A failure always completes.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Makes one request of this one and the next of a list for
    /// [`Context::post_all`](crate::Context::post_all): this one never completes, and the next
    /// one's completion reports its failure.
    #[must_use]
    pub fn reported_by_next(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self.flags.insert(SendFlags::REPORTED_BY_NEXT);
        self
    }

    /// Raises an event at a peer that waits for solicited completions only. For Sends and Immediate
    /// Data only.
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

    /// Delays the request until every earlier Read of this queue has completed.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.flags.insert(SendFlags::FENCE);
        self
    }

    /// Delays the request until every earlier request of this queue has completed.
    #[must_use]
    pub fn locally_fenced(mut self) -> Self {
        self.flags.insert(SendFlags::LOCAL_FENCE);
        self
    }
}

/// A request for the receive queue: memory for one incoming Send.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    pub(crate) wr_id: u64,
    pub(crate) scatter: &'a [Sge],
}

impl<'a> RecvWr<'a> {
    /// Receives into the elements of `scatter`, in order.
    pub fn new(wr_id: u64, scatter: &'a [Sge]) -> Self {
        RecvWr { wr_id, scatter }
    }
}
