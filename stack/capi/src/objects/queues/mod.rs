//! Completion queues, shared receive queues, queue pairs.

mod completion;
mod qp;

use std::os::fd::AsRawFd;

use verbs::{Completion, CompletionQueue, QueuePair, SharedReceiveQueue};

use super::context::{iw_ctx, iw_pd};
use crate::boundary::{OutList, call, with, write_out, write_sized};
pub use completion::*;
pub use qp::*;

/// A completion queue. 0 means none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_cq {
    /// Internal.
    pub id: u64,
}

/// A shared receive queue. 0 means none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_srq {
    /// Internal.
    pub id: u64,
}

/// A queue pair. 0 means none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_qp {
    /// Internal.
    pub id: u64,
}

impl iw_cq {
    pub(crate) fn to_rust(self) -> CompletionQueue {
        CompletionQueue::from_bits(self.id)
    }
}

impl iw_srq {
    pub(crate) fn to_rust(self) -> SharedReceiveQueue {
        SharedReceiveQueue::from_bits(self.id)
    }
}

impl iw_qp {
    pub(crate) fn to_rust(self) -> QueuePair {
        QueuePair::from_bits(self.id)
    }
}

/// Creates a completion queue for `depth` requests that are posted and not reaped. Allocates.
///
/// # Safety
/// `ctx` is null or a handle of this library; `out` is null or valid for writes of one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_create(ctx: *mut iw_ctx, depth: u32, out: *mut iw_cq) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        write_out(out, "out", iw_cq { id: 0 })?;
        let cq = with(ctx, |context| Ok(context.create_cq(depth)?))?;
        write_out(out, "out", iw_cq { id: cq.to_bits() })
    })
}

/// Changes the depth of a completion queue, with work outstanding. A larger depth takes effect when the cores have
/// processed the change.
///
/// # Safety
/// `ctx` is null or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_resize(ctx: *mut iw_ctx, cq: iw_cq, depth: u32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.resize_cq(cq.to_rust(), depth)?)) })
}

/// Moves up to `count` completions into `wcs`, oldest first for each queue pair. Returns their number. `size` is
/// sizeof(struct iw_wc): programs call `iw_cq_poll`, which passes it.
///
/// # Safety
/// `ctx` is null or a handle of this library; `wcs` is null or valid for writes of `count` values of `size` bytes each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_poll_sized(
    ctx: *mut iw_ctx,
    cq: iw_cq,
    wcs: *mut iw_wc,
    size: usize,
    count: u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let count = (count as usize).min(i32::MAX as usize);
        let mut room = OutList::new(wcs, size, count, "wcs")?;
        with(ctx, |context| {
            let mut reaped = 0;
            while reaped < count {
                let mut some = [Completion::default(); CHUNK];
                let (some, _) = some.split_at_mut((count - reaped).min(CHUNK));
                let found = context.poll_cq(cq.to_rust(), some)?;
                some.iter().take(found).for_each(|one| room.push(iw_wc::from(one)));
                reaped += found;
                if found < some.len() {
                    break;
                }
            }
            Ok(reaped as i32)
        })
    })
}

/// Completions that are converted at a time, on the stack.
const CHUNK: usize = 32;

/// Requests one event at the queue's descriptor for its next completion, or its next solicited or failed one. Poll
/// once more after this call: earlier completions raise no event.
///
/// # Safety
/// `ctx` is null or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_arm(ctx: *mut iw_ctx, cq: iw_cq, solicited_only: i32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.arm_cq(cq.to_rust(), solicited_only != 0)?)) })
}

/// Stores the queue's descriptor, an eventfd that becomes readable once for each arming; read its eight bytes. The
/// queue owns it; do not close it. Any thread may wait for `fd`.
///
/// # Safety
/// `ctx` is null or a handle of this library; `fd` is null or valid for writes of one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_fd(ctx: *const iw_ctx, cq: iw_cq, fd: *mut i32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let number = with(ctx, |context| Ok(context.cq_fd(cq.to_rust())?.as_raw_fd()))?;
        write_out(fd, "fd", number)
    })
}

/// The state of a completion queue. Set `size` before the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_cq_info {
    /// sizeof(struct iw_cq_info).
    pub size: u32,
    /// Requests that may be posted and not reaped. A larger depth is shown once it is in effect.
    pub depth: u32,
    /// Reserved entries: for requests that are posted and not reaped, and not known to have ended without a
    /// completion.
    pub reserved_cqes: u32,
    /// Uses by queue pairs: one that sends and receives into it counts twice.
    pub users: u32,
}

/// Returns the state of a completion queue.
///
/// # Safety
/// `ctx` is null or a handle of this library; `out` is null or valid for writes of as many bytes as its `size` states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_query(ctx: *const iw_ctx, cq: iw_cq, out: *mut iw_cq_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_cq(cq.to_rust())?))?;
        let (depth, reserved_cqes, users) = (info.depth, info.reserved_cqes, info.users);
        write_sized(out, "out", iw_cq_info { size: 0, depth, reserved_cqes, users })
    })
}

/// Destroys a completion queue. Fails with IW_E_STILL_USED while a queue pair uses it. A destroyed queue pair uses
/// it until the core has released it, which `iw_event_poll` processes: poll workers and events, and call again.
///
/// # Safety
/// `ctx` is null or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_destroy(ctx: *mut iw_ctx, cq: iw_cq) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_cq(cq.to_rust())?)) })
}

/// Creates a shared receive queue for `depth` receives on each core, of at most `max_sge` elements. Allocates.
///
/// # Safety
/// `ctx` is null or a handle of this library; `out` is null or valid for writes of one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_create(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    depth: u32,
    max_sge: u32,
    out: *mut iw_srq,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        write_out(out, "out", iw_srq { id: 0 })?;
        let srq = with(ctx, |context| Ok(context.create_srq(pd.to_rust(), depth, max_sge as usize)?))?;
        write_out(out, "out", iw_srq { id: srq.to_bits() })
    })
}

/// Requests one IW_EVENT_SRQ_LIMIT_REACHED when fewer than `limit` receives are left on a core. 0 cancels.
///
/// # Safety
/// `ctx` is null or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_arm(ctx: *mut iw_ctx, srq: iw_srq, limit: u32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.arm_srq(srq.to_rust(), limit)?)) })
}

/// The state of a shared receive queue. Set `size` before the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_srq_info {
    /// sizeof(struct iw_srq_info).
    pub size: u32,
    /// The capacity in receives, on all cores together; at least the requested number.
    pub depth: u32,
    /// Receives that are posted and not consumed by a message.
    pub posted: u32,
    /// Elements of a receive.
    pub max_sge: u32,
    /// Queue pairs that use it.
    pub users: u32,
}

/// Returns the state of a shared receive queue.
///
/// # Safety
/// `ctx` is null or a handle of this library; `out` is null or valid for writes of as many bytes as its `size` states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_query(ctx: *mut iw_ctx, srq: iw_srq, out: *mut iw_srq_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_srq(srq.to_rust())?))?;
        let (depth, posted, max_sge, users) = (info.depth, info.posted, info.max_sge as u32, info.users);
        write_sized(out, "out", iw_srq_info { size: 0, depth, posted, max_sge, users })
    })
}

/// Destroys a shared receive queue, as `iw_cq_destroy` does a completion queue. Receives posted to it are dropped.
///
/// # Safety
/// `ctx` is null or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_destroy(ctx: *mut iw_ctx, srq: iw_srq) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_srq(srq.to_rust())?)) })
}
