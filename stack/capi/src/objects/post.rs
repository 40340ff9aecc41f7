//! Posting work: lists of requests, converted a few at a time, each few with one doorbell.

use core::mem::offset_of;

use arrayvec::ArrayVec;
use verbs::{AtomicOp, Context, PostError, QueuePair, RecvWr, RemoteMemory, STag, SendWr, Sge};

use super::context::iw_ctx;
use super::memory::{iw_fast_mr, iw_mw, parse_access};
use super::queues::{iw_qp, iw_srq};
use crate::boundary::{ApiError, call, read_slice, with, write_optional, *};

/// A piece of registered memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_sge {
    /// The tagged offset of its first byte, which is its address.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The steering tag of its memory.
    pub lkey: u32,
}

// An element is the library's own.
const _: () = {
    assert!(size_of::<iw_sge>() == size_of::<Sge>() && align_of::<iw_sge>() == align_of::<Sge>());
    assert!(offset_of!(iw_sge, addr) == offset_of!(Sge, addr));
    assert!(offset_of!(iw_sge, length) == offset_of!(Sge, len));
    assert!(offset_of!(iw_sge, lkey) == offset_of!(Sge, lkey));
};

/// A Send of `sges`, or of inline data.
pub const IW_WR_SEND: u32 = 0;
/// An RDMA Write of `sges`, or of inline data, to `remote_offset` of `remote_stag`.
pub const IW_WR_WRITE: u32 = 1;
/// An RDMA Read from there into the one element.
pub const IW_WR_READ: u32 = 2;
/// Immediate Data: the eight octets reach the peer in the completion of its oldest receive. Needs IW_EXTENSIONS_*.
pub const IW_WR_IMMEDIATE: u32 = 3;
/// An RDMA Write and then Immediate Data, both or neither.
pub const IW_WR_WRITE_IMMEDIATE: u32 = 4;
/// Adds `compare_add` to the peer's 8-byte word, field by field as `compare_add_mask` says (0: one field). What it was lands
/// in the one element, of 8 bytes. Needs IW_EXTENSIONS_*, and so do the next two.
pub const IW_WR_FETCH_ADD: u32 = 5;
/// Replaces the bits of `swap_mask` by those of `swap` where the word is `compare_add` in the bits of `compare_add_mask`.
pub const IW_WR_CMP_SWAP: u32 = 6;
/// Replaces the word by `swap`.
pub const IW_WR_SWAP: u32 = 7;
/// Ends the steering tag `invalidate_stag`, one of ours: a region's for good, a window's or fast region's until it is bound
/// again. It does not wait for earlier requests, which may still need the tag, without IW_SEND_LOCAL_FENCE.
pub const IW_WR_INVALIDATE: u32 = 8;
/// Binds `window` to the one element, a piece of memory that has IW_ACCESS_BIND: from now on the window's tag is good for
/// the peer of this queue pair, at the piece's own addresses, as `access` says. Later requests find it bound.
pub const IW_WR_BIND: u32 = 9;
/// Makes `fast_mr` a region of the one element, as above: its tag is good here and, as `access` says, at the peer, for the
/// whole protection domain or with IW_SEND_STREAM_SCOPED for this queue pair alone.
pub const IW_WR_FAST_REGISTER: u32 = 10;
/// Asks whether the peer has atomic operations, by adding 0 to a word of its, which stays as it is. A peer that has none ends
/// the connection: IW_EVENT_PEER_LACKS_ATOMICS.
pub const IW_WR_PROBE_ATOMICS: u32 = 11;

/// Completes with an entry when it succeeds. What fails always does.
pub const IW_SEND_SIGNALED: u32 = 1;
/// Raises an event at a peer that waits for solicited ones only.
pub const IW_SEND_SOLICITED: u32 = 2;
/// Waits for every earlier Read and atomic operation of this queue.
pub const IW_SEND_FENCE: u32 = 4;
/// Waits for every earlier request of this queue.
pub const IW_SEND_LOCAL_FENCE: u32 = 8;
/// The bytes are `inline_data`, and are copied now.
pub const IW_SEND_INLINE: u32 = 16;
/// A Send ends `invalidate_stag` at the peer; a Read ends the tag of its own element.
pub const IW_SEND_INVALIDATE: u32 = 32;
/// A fast region is for this queue pair alone, and its peer may end the tag by a Send that invalidates it.
pub const IW_SEND_STREAM_SCOPED: u32 = 64;

const FLAGS: u32 = 127;

/// A request for the send queue. What its kind does not use is not looked at.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_send_wr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// IW_WR_*.
    pub opcode: u32,
    /// IW_SEND_*.
    pub flags: u32,
    /// Elements; copied by the call, the memory they name stays as it is until the completion.
    pub sges: *const iw_sge,
    /// Their number.
    pub sge_count: u32,
    /// The peer's steering tag.
    pub remote_stag: u32,
    /// The offset within its memory.
    pub remote_offset: u64,
    /// With IW_SEND_INLINE, the bytes.
    pub inline_data: *const u8,
    /// And their number.
    pub inline_bytes: u32,
    /// The tag to end.
    pub invalidate_stag: u32,
    /// The octets of Immediate Data.
    pub immediate: [u8; 8],
    /// Operands of the atomic operations.
    pub compare_add: u64,
    /// As above.
    pub compare_add_mask: u64,
    /// As above.
    pub swap: u64,
    /// As above.
    pub swap_mask: u64,
    /// What IW_WR_BIND binds, with the tag that its `iw_stag_info.next_stag` says.
    pub window: *mut iw_mw,
    /// What IW_WR_FAST_REGISTER registers, alike.
    pub fast_mr: *mut iw_fast_mr,
    /// What the peer may do by either's tag, and we by a fast region's: IW_ACCESS_*.
    pub access: u32,
    /// Not used.
    pub reserved: u32,
}

/// A request for a receive queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_recv_wr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Elements; copied by the call, the memory they name is not touched until the completion.
    pub sges: *const iw_sge,
    /// Their number.
    pub sge_count: u32,
    /// Not used.
    pub reserved: u32,
}

/// Posts requests to a send queue in order. Where one is refused, those before it are posted and it and the rest are not:
/// `posted`, which may be null, tells how many.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `wrs` is null or leads to `count` requests, their pointers to as much
/// as they say, and their handles are as `ctx` is; `posted` is null or good for one number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_post_send(
    ctx: *mut iw_ctx,
    qp: iw_qp,
    wrs: *const iw_send_wr,
    count: u32,
    posted: *mut u32,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let wrs = read_slice(wrs, count as usize, "wrs")?;
        let mut done = 0;
        let outcome = with(ctx, |context| post_sends(context, qp.to_rust(), wrs, &mut done));
        write_optional(posted, "posted", done as u32)?;
        outcome.map(|()| IW_OK)
    })
}

/// Posts receives in order, as `iw_post_send` posts sends.
///
/// # Safety
/// As for `iw_post_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_post_recv(
    ctx: *mut iw_ctx,
    qp: iw_qp,
    wrs: *const iw_recv_wr,
    count: u32,
    posted: *mut u32,
) -> i32 {
    let qp = qp.to_rust();
    // SAFETY: the caller's promise, handed on.
    unsafe { post_recvs(ctx, wrs, count, posted, |context, wr| context.post_recv(qp, wr)) }
}

/// Posts receives to a shared queue in order, as `iw_post_send` posts sends.
///
/// # Safety
/// As for `iw_post_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_post_recv(
    ctx: *mut iw_ctx,
    srq: iw_srq,
    wrs: *const iw_recv_wr,
    count: u32,
    posted: *mut u32,
) -> i32 {
    let srq = srq.to_rust();
    // SAFETY: the caller's promise, handed on.
    unsafe { post_recvs(ctx, wrs, count, posted, |context, wr| context.post_srq_recv(srq, wr)) }
}

/// Requests that are converted and posted with one doorbell.
const CHUNK: usize = 16;
/// More than any request may have; what the queue pair allows is looked at later.
const SGES_MAX: u32 = 16;
/// As above.
const INLINE_BYTES_MAX: u32 = 256;

/// # Safety
/// The requests' pointers are null or lead to as much as they say.
unsafe fn post_sends(
    context: &mut Context,
    qp: QueuePair,
    wrs: &[iw_send_wr],
    done: &mut usize,
) -> Result<(), ApiError> {
    // A list of nothing still asks whether there is such a queue pair.
    if wrs.is_empty() {
        context.post_sends(qp, &[]).map_err(|(_, error)| error)?;
    }
    for run in wrs.chunk_by(|one, next| !one.is_alone() && !next.is_alone()) {
        for chunk in run.chunks(CHUNK) {
            // SAFETY: the caller's promise.
            unsafe { post_chunk(context, qp, chunk, done) }?;
        }
    }
    Ok(())
}

/// # Safety
/// As for [`post_sends`].
unsafe fn post_chunk(
    context: &mut Context,
    qp: QueuePair,
    chunk: &[iw_send_wr],
    done: &mut usize,
) -> Result<(), ApiError> {
    if let [one] = chunk
        && one.is_alone()
    {
        // SAFETY: the caller's promise.
        unsafe { one.post_alone(context, qp) }?;
        *done += 1;
        return Ok(());
    }
    let atomics: ArrayVec<AtomicOp, CHUNK> = chunk.iter().map(iw_send_wr::operation).collect();
    let mut requests = ArrayVec::<SendWr<'_>, CHUNK>::new();
    let mut refused = Ok(());
    for (wr, operation) in chunk.iter().zip(&atomics) {
        // SAFETY: the caller's promise.
        match unsafe { wr.request(operation) } {
            Ok(request) => requests.push(request),
            Err(fault) => {
                refused = Err(fault);
                break;
            }
        }
    }
    match context.post_sends(qp, &requests) {
        Ok(()) => *done += requests.len(),
        Err((posted, error)) => {
            *done += posted;
            return Err(error.into());
        }
    }
    refused
}

/// # Safety
/// As for `iw_post_send`.
unsafe fn post_recvs(
    ctx: *mut iw_ctx,
    wrs: *const iw_recv_wr,
    count: u32,
    posted: *mut u32,
    post: impl Fn(&mut Context, &RecvWr<'_>) -> Result<(), PostError>,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let wrs = read_slice(wrs, count as usize, "wrs")?;
        let mut done = 0;
        let outcome = with(ctx, |context| {
            for wr in wrs {
                let scatter = elements(wr.sges, wr.sge_count)?;
                post(context, &RecvWr::new(wr.wr_id, scatter))?;
                done += 1;
            }
            Ok(IW_OK)
        });
        write_optional(posted, "posted", done)?;
        outcome
    })
}

/// # Safety
/// The pointer is null or leads to as many elements.
unsafe fn elements<'a>(sges: *const iw_sge, count: u32) -> Result<&'a [Sge], ApiError> {
    if count > SGES_MAX {
        return Err(ApiError::with_detail(
            IW_E_TOO_LONG,
            format_args!("sge_count = {count}: at most {SGES_MAX}"),
        ));
    }
    // SAFETY: the caller's promise; an element has the layout of ours, and any numbers make one.
    unsafe { read_slice(sges.cast(), count as usize, "sges") }
}

impl iw_send_wr {
    /// Whether it is posted without others, since it is two requests or draws a tag.
    fn is_alone(&self) -> bool {
        matches!(self.opcode, IW_WR_WRITE_IMMEDIATE | IW_WR_BIND | IW_WR_FAST_REGISTER)
    }

    /// # Safety
    /// As for [`iw_send_wr::request`]; the handles are null or ones that this library gave out.
    unsafe fn post_alone(&self, context: &mut Context, qp: QueuePair) -> Result<(), ApiError> {
        if self.opcode == IW_WR_WRITE_IMMEDIATE {
            // SAFETY: the caller's promise, handed on.
            return Ok(context.post_all(qp, &unsafe { self.write_and_immediate() }?)?);
        }
        // SAFETY: as above.
        let over = unsafe { self.sink() }?;
        let access = parse_access(self.access)?;
        let bind =
            |window: &_| self.flagged(SendWr::bind_with_current_stag(self.wr_id, window, over, access));
        let register = |region: &_| {
            self.flagged(SendWr::fast_register_with_current_stag(self.wr_id, region, over, access))
        };
        // SAFETY: as above.
        unsafe {
            match self.opcode {
                IW_WR_BIND => with(self.window, |window| window.post(context, qp, bind)),
                _ => with(self.fast_mr, |region| region.post(context, qp, register)),
            }
        }
    }

    fn operation(&self) -> AtomicOp {
        match self.opcode {
            IW_WR_CMP_SWAP => AtomicOp::CmpSwap {
                compare: self.compare_add,
                compare_mask: self.compare_add_mask,
                swap: self.swap,
                swap_mask: self.swap_mask,
            },
            IW_WR_SWAP => AtomicOp::Swap { swap: self.swap },
            _ => AtomicOp::FetchAdd { add: self.compare_add, mask: self.compare_add_mask },
        }
    }

    fn remote(&self) -> RemoteMemory {
        RemoteMemory { stag: STag(self.remote_stag), tagged_offset: self.remote_offset }
    }

    /// # Safety
    /// The pointers are null or lead to as much as they say.
    unsafe fn request<'a>(&'a self, operation: &'a AtomicOp) -> Result<SendWr<'a>, ApiError> {
        // SAFETY: the caller's promise, handed on.
        let request = unsafe {
            match self.opcode {
                IW_WR_SEND => self.send()?,
                IW_WR_WRITE if self.has(IW_SEND_INLINE) => {
                    SendWr::write_inline(self.wr_id, self.inlined()?, self.remote())
                }
                IW_WR_WRITE => SendWr::write(self.wr_id, elements(self.sges, self.sge_count)?, self.remote()),
                IW_WR_READ if self.has(IW_SEND_INVALIDATE) => {
                    SendWr::read_with_invalidate(self.wr_id, self.sink()?, self.remote())
                }
                IW_WR_READ => SendWr::read(self.wr_id, self.sink()?, self.remote()),
                IW_WR_IMMEDIATE => SendWr::immediate(self.wr_id, &self.immediate),
                IW_WR_FETCH_ADD | IW_WR_CMP_SWAP | IW_WR_SWAP => {
                    SendWr::atomic(self.wr_id, self.sink()?, self.remote(), operation)
                }
                IW_WR_PROBE_ATOMICS => SendWr::probe_atomics(self.wr_id, self.sink()?, self.remote()),
                IW_WR_INVALIDATE => SendWr::invalidate(self.wr_id, STag(self.invalidate_stag)),
                other => {
                    return Err(ApiError::with_detail(IW_E_VALUE, format_args!("opcode = {other}: IW_WR_*")));
                }
            }
        };
        self.flagged(request)
    }

    /// # Safety
    /// As for [`iw_send_wr::request`].
    unsafe fn send(&self) -> Result<SendWr<'_>, ApiError> {
        // SAFETY: the caller's promise, handed on.
        let request = unsafe {
            if self.has(IW_SEND_INLINE) {
                SendWr::send_inline(self.wr_id, self.inlined()?)
            } else {
                SendWr::send(self.wr_id, elements(self.sges, self.sge_count)?)
            }
        };
        let ends = self.has(IW_SEND_INVALIDATE);
        Ok(if ends { request.with_invalidate(STag(self.invalidate_stag)) } else { request })
    }

    /// # Safety
    /// As for [`iw_send_wr::request`].
    unsafe fn write_and_immediate(&self) -> Result<[SendWr<'_>; 2], ApiError> {
        // SAFETY: the caller's promise, handed on.
        let write = unsafe {
            if self.has(IW_SEND_INLINE) {
                SendWr::write_inline(self.wr_id, self.inlined()?, self.remote())
            } else {
                SendWr::write(self.wr_id, elements(self.sges, self.sge_count)?, self.remote())
            }
        };
        let immediate = self.flagged(SendWr::immediate(self.wr_id, &self.immediate))?;
        let mut first = write.unsignaled();
        if self.has(IW_SEND_FENCE) {
            first = first.fenced();
        }
        Ok([first, immediate])
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn flagged<'a>(&self, mut request: SendWr<'a>) -> Result<SendWr<'a>, ApiError> {
        if self.flags & !FLAGS != 0 {
            return Err(ApiError::with_detail(IW_E_VALUE, format_args!("flags = {}: IW_SEND_*", self.flags)));
        }
        if !self.has(IW_SEND_SIGNALED) {
            request = request.unsignaled();
        }
        if self.has(IW_SEND_SOLICITED) {
            request = request.solicited();
        }
        if self.has(IW_SEND_FENCE) {
            request = request.fenced();
        }
        if self.has(IW_SEND_LOCAL_FENCE) {
            request = request.locally_fenced();
        }
        if self.has(IW_SEND_STREAM_SCOPED) {
            request = request.stream_scoped();
        }
        Ok(request)
    }

    /// # Safety
    /// As for [`iw_send_wr::request`].
    unsafe fn sink(&self) -> Result<&[Sge; 1], ApiError> {
        // SAFETY: the caller's promise, handed on.
        let sges = unsafe { elements(self.sges, self.sge_count) }?;
        let one = "a Read, an atomic operation and a binding have exactly one element";
        sges.try_into().map_err(|_| ApiError::with_detail(IW_E_VALUE, one))
    }

    /// # Safety
    /// As for [`iw_send_wr::request`].
    unsafe fn inlined(&self) -> Result<&[u8], ApiError> {
        let bytes = self.inline_bytes;
        if bytes > INLINE_BYTES_MAX {
            return Err(ApiError::with_detail(
                IW_E_TOO_LONG,
                format_args!("inline_bytes = {bytes}: at most {INLINE_BYTES_MAX}"),
            ));
        }
        // SAFETY: the caller's promise, handed on.
        unsafe { read_slice(self.inline_data, bytes as usize, "inline_data") }
    }
}
