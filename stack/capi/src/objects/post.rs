//! Posting of work requests: lists are converted a few requests at a time, with one doorbell for
//! each batch.

use core::mem::offset_of;

use arrayvec::ArrayVec;
use verbs::batch::{BATCH, post_converted};
use verbs::{AtomicOp, PostError, RecvWr, Sge};

use super::context::iw_ctx;
use super::memory::{iw_fast_mr, iw_mw};
use super::queues::{SendTarget, iw_qp, iw_srq};
use super::send_wr::elements;
use crate::boundary::{ApiError, HandleKind, call, read_list, with, write_optional};

/// A part of registered memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_sge {
    /// The tagged offset of the first byte, which is its address.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// The steering tag of the memory.
    pub lkey: u32,
}

// An element is a copy that the library made.
const _: () = {
    assert!(size_of::<iw_sge>() == size_of::<Sge>() && align_of::<iw_sge>() == align_of::<Sge>());
    assert!(offset_of!(iw_sge, addr) == offset_of!(Sge, addr));
    assert!(offset_of!(iw_sge, length) == offset_of!(Sge, len));
    assert!(offset_of!(iw_sge, lkey) == offset_of!(Sge, lkey));
};

/// Sends the bytes of `sges` or the inline data.
pub const IW_WR_SEND: u32 = 0;
/// Writes the bytes of `sges` or the inline data to `remote_offset` of `remote_stag` (RDMA Write).
pub const IW_WR_WRITE: u32 = 1;
/// Reads from `remote_offset` of `remote_stag` into the one element (RDMA Read).
pub const IW_WR_READ: u32 = 2;
/// Sends Immediate Data: the peer gets the eight octets in the completion of its oldest receive.
/// Needs IW_EXTENSIONS_*.
pub const IW_WR_IMMEDIATE: u32 = 3;
/// An RDMA Write followed by Immediate Data; both are posted or neither.
pub const IW_WR_WRITE_IMMEDIATE: u32 = 4;
/// Adds `compare_add` to the peer's 8-byte word, in the fields of `compare_add_mask` (0: one
/// field). The value before is stored in the one element, of 8 bytes. Needs IW_EXTENSIONS_*, as do
/// the next two.
pub const IW_WR_FETCH_ADD: u32 = 5;
/// Replaces the bits of `swap_mask` by those of `swap` if the word equals `compare_add` in the bits
/// of `compare_add_mask`.
pub const IW_WR_CMP_SWAP: u32 = 6;
/// Replaces the word by `swap`.
pub const IW_WR_SWAP: u32 = 7;
/// Invalidates the local steering tag `invalidate_stag`: a region's permanently, that of a window
/// or fast region until it is bound again. Does not wait for earlier requests that may need the
/// tag, unless IW_SEND_LOCAL_FENCE is set.
pub const IW_WR_INVALIDATE: u32 = 8;
/// Binds `window` to the one element, a part of memory that has IW_ACCESS_BIND. From then on the
/// peer of this queue pair may use the window's tag with the rights of `access`, at the addresses
/// of the element. Later requests of the list may use it.
pub const IW_WR_BIND: u32 = 9;
/// Makes `fast_mr` a region of the one element, as above. Its tag is valid here and, with the
/// rights of `access`, for the peer: in the whole protection domain, or with IW_SEND_STREAM_SCOPED
/// on this queue pair only.
pub const IW_WR_FAST_REGISTER: u32 = 10;
/// Tests whether the peer supports atomic operations: adds 0 to a word of the peer. A peer without
/// support ends the connection: IW_EVENT_PEER_LACKS_ATOMICS.
pub const IW_WR_PROBE_ATOMICS: u32 = 11;

/// Adds a completion on success. A failure always adds one.
pub const IW_SEND_SIGNALED: u32 = 1;
/// Raises a solicited event at the peer.
pub const IW_SEND_SOLICITED: u32 = 2;
/// Waits for every earlier Read and atomic operation of this queue.
pub const IW_SEND_FENCE: u32 = 4;
/// Waits for every earlier request of this queue.
pub const IW_SEND_LOCAL_FENCE: u32 = 8;
/// The bytes are in `inline_data`, and the call copies them.
pub const IW_SEND_INLINE: u32 = 16;
/// A Send invalidates `invalidate_stag` at the peer; a Read invalidates the tag of its own element.
pub const IW_SEND_INVALIDATE: u32 = 32;
/// The fast region is for this queue pair only, and its peer may invalidate the tag by a Send.
pub const IW_SEND_STREAM_SCOPED: u32 = 64;

pub(super) const FLAGS: u32 = 127;

/// A request for the send queue. Fields that its opcode does not use are ignored.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_send_wr {
    /// Returned in the completion.
    pub wr_id: u64,
    /// IW_WR_*.
    pub opcode: u32,
    /// IW_SEND_*.
    pub flags: u32,
    /// Elements. The call copies them; the memory that they name must not change until the
    /// completion.
    pub sges: *const iw_sge,
    /// The number of elements.
    pub sge_count: u32,
    /// The peer's steering tag.
    pub remote_stag: u32,
    /// The tagged offset within that memory.
    pub remote_offset: u64,
    /// The bytes, with IW_SEND_INLINE.
    pub inline_data: *const u8,
    /// The number of inline bytes.
    pub inline_bytes: u32,
    /// The tag to invalidate.
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
    /// The window of IW_WR_BIND. It gets the tag of `iw_stag_info.next_stag`.
    pub window: *mut iw_mw,
    /// The fast region of IW_WR_FAST_REGISTER, in the same way.
    pub fast_mr: *mut iw_fast_mr,
    /// The rights of the peer by either tag, and of this side by a fast region's: IW_ACCESS_*.
    pub access: u32,
    /// Not used.
    pub reserved: u32,
}

/// A request for a receive queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_recv_wr {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Elements. The call copies them; the program must not access the memory that they name until
    /// the completion.
    pub sges: *const iw_sge,
    /// The number of elements.
    pub sge_count: u32,
    /// Not used.
    pub reserved: u32,
}

/// Posts requests to a send queue in order. If one is refused, those before it are posted, and it
/// and the rest are not. `posted`, which may be null, gets the number of posted requests. `size` is
/// sizeof(struct iw_send_wr): programs call `iw_post_send`, which passes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_post_send_sized(
    ctx: *mut iw_ctx,
    qp: iw_qp,
    wrs: *const iw_send_wr,
    size: usize,
    count: u32,
    posted: *mut u32,
) -> i32 {
    let qp = qp.to_rust();
    // SAFETY: guaranteed by the caller.
    unsafe {
        post_list(ctx, wrs, (size, count), iw_send_wr::EMPTY, posted, |context, some, done| {
            post_sends(&mut (context, qp), some, done)
        })
    }
}

/// Posts receives in order, as `iw_post_send_sized` posts sends. `size` is sizeof(struct
/// iw_recv_wr): programs call `iw_post_recv`, which passes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_post_recv_sized(
    ctx: *mut iw_ctx,
    qp: iw_qp,
    wrs: *const iw_recv_wr,
    size: usize,
    count: u32,
    posted: *mut u32,
) -> i32 {
    let qp = qp.to_rust();
    // SAFETY: guaranteed by the caller.
    unsafe { post_recvs(ctx, wrs, (size, count), posted, |context, wrs| context.post_recvs(qp, wrs)) }
}

/// Posts receives to a shared queue in order, as `iw_post_send_sized` posts sends. Programs call
/// `iw_srq_post_recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_post_recv_sized(
    ctx: *mut iw_ctx,
    srq: iw_srq,
    wrs: *const iw_recv_wr,
    size: usize,
    count: u32,
    posted: *mut u32,
) -> i32 {
    let srq = srq.to_rust();
    // SAFETY: guaranteed by the caller.
    unsafe {
        post_recvs(ctx, wrs, (size, count), posted, |context, wrs| {
            post_each_srq(wrs, |wr| context.post_srq_recv(srq, wr))
        })
    }
}

/// # Safety
/// The requests' pointers are null or point to as much as they say.
pub(super) unsafe fn post_sends(
    target: &mut impl SendTarget,
    wrs: &[iw_send_wr],
    done: &mut usize,
) -> Result<(), ApiError> {
    // An empty list still checks whether the queue pair exists.
    if wrs.is_empty() {
        target.post_sends(&[]).map_err(|(_, error)| error)?;
    }
    for run in wrs.chunk_by(|one, next| !one.is_alone() && !next.is_alone()) {
        for chunk in run.chunks(BATCH) {
            // SAFETY: guaranteed by the caller.
            unsafe { post_chunk(target, chunk, done) }?;
        }
    }
    Ok(())
}

/// # Safety
/// As for [`post_sends`].
unsafe fn post_chunk(
    target: &mut impl SendTarget,
    chunk: &[iw_send_wr],
    done: &mut usize,
) -> Result<(), ApiError> {
    if let [one] = chunk
        && one.is_alone()
    {
        // SAFETY: guaranteed by the caller.
        unsafe { one.post_alone(target) }?;
        *done += 1;
        return Ok(());
    }
    let atomics: ArrayVec<AtomicOp, BATCH> = chunk.iter().map(iw_send_wr::operation).collect();
    let (posted, outcome) = post_converted(
        chunk.iter().zip(&atomics),
        // SAFETY: guaranteed by the caller.
        |(wr, operation)| unsafe { wr.request(operation) },
        |requests| target.post_sends(requests).map_err(|(posted, error)| (posted, error.into())),
    );
    *done += posted;
    outcome
}

/// # Safety
/// As for every call of the library.
pub(super) unsafe fn post_recvs<K: HandleKind>(
    handle: *const K,
    wrs: *const iw_recv_wr,
    (size, count): (usize, u32),
    posted: *mut u32,
    post: impl Fn(&mut K::Body, &[RecvWr<'_>]) -> Result<(), (usize, PostError)>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        post_list(handle, wrs, (size, count), iw_recv_wr::EMPTY, posted, |body, some, done| {
            some.chunks(BATCH).try_for_each(|chunk| {
                let (count, outcome) = post_converted(
                    chunk,
                    |wr| elements(wr.sges, wr.sge_count).map(|scatter| RecvWr::new(wr.wr_id, scatter)),
                    |requests| post(body, requests).map_err(|(posted, error)| (posted, error.into())),
                );
                *done += count;
                outcome
            })
        })
    }
}

/// Runs an exported function that posts a list. `post` counts the requests that it posts.
///
/// # Safety
/// As for every call of the library.
pub(super) unsafe fn post_list<K: HandleKind, W: Copy>(
    handle: *const K,
    wrs: *const W,
    (size, count): (usize, u32),
    empty: W,
    posted: *mut u32,
    mut post: impl FnMut(&mut K::Body, &[W], &mut usize) -> Result<(), ApiError>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let mut done = 0;
        let outcome = with(handle, |body| {
            read_list(wrs, (size, count as usize), empty, "wrs", |some| post(body, some, &mut done))
        });
        write_optional(posted, "posted", done as u32)?;
        outcome
    })
}

/// Posts receives one by one.
pub(super) fn post_each_srq(
    wrs: &[RecvWr<'_>],
    mut post: impl FnMut(&RecvWr<'_>) -> Result<(), PostError>,
) -> Result<(), (usize, PostError)> {
    wrs.iter().enumerate().try_for_each(|(at, wr)| post(wr).map_err(|error| (at, error)))
}

impl iw_recv_wr {
    const EMPTY: Self = iw_recv_wr { wr_id: 0, sges: core::ptr::null(), sge_count: 0, reserved: 0 };
}
