//! Completion queues, shared receive queues, queue pairs.

mod completion;
mod qp;

use std::os::fd::AsRawFd;

use verbs::{Completion, CompletionQueue, QueuePair, SharedReceiveQueue};

use super::context::{iw_ctx, iw_pd};
use crate::boundary::{call, out_slice, with, write_out, *};
use completion::iw_wc;

/// A completion queue. 0 is none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_cq {
    /// The library's.
    pub id: u64,
}

/// A shared receive queue. 0 is none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_srq {
    /// The library's.
    pub id: u64,
}

/// A queue pair. 0 is none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_qp {
    /// The library's.
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

/// Makes a completion queue with places for `depth` requests that were posted and not reaped. Allocates.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_create(ctx: *mut iw_ctx, depth: u32, out: *mut iw_cq) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        write_out(out, "out", iw_cq { id: 0 })?;
        let cq = with(ctx, |context| Ok(context.create_cq(depth)?))?;
        write_out(out, "out", iw_cq { id: cq.to_bits() })?;
        Ok(IW_OK)
    })
}

/// Gives a completion queue another depth, with work outstanding. A larger one holds once the cores have heard of it.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_resize(ctx: *mut iw_ctx, cq: iw_cq, depth: u32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.resize_cq(cq.to_rust(), depth).map(|()| IW_OK)?)) })
}

/// Moves up to `count` completions into `wcs`, oldest first per queue pair, and answers how many.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `wcs` is null or good for `count` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_poll(ctx: *mut iw_ctx, cq: iw_cq, wcs: *mut iw_wc, count: u32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let room = out_slice(wcs, (count as usize).min(i32::MAX as usize), "wcs")?;
        with(ctx, |context| {
            let mut reaped = 0;
            for chunk in room.chunks_mut(CHUNK) {
                let mut some = [Completion::default(); CHUNK];
                let (some, _) = some.split_at_mut(chunk.len());
                let found = context.poll_cq(cq.to_rust(), some)?;
                for (out, one) in chunk.iter_mut().zip(some.iter()).take(found) {
                    out.write(iw_wc::from(one));
                }
                reaped += found;
                if found < chunk.len() {
                    break;
                }
            }
            Ok(reaped as i32)
        })
    })
}

/// Completions that are converted at a time, on the stack.
const CHUNK: usize = 32;

/// Asks for one event at the queue's descriptor with its next completion, or its next solicited or failed one. Arm, then
/// poll once more: earlier completions raise no event.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_arm(ctx: *mut iw_ctx, cq: iw_cq, solicited_only: i32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        with(ctx, |context| Ok(context.arm_cq(cq.to_rust(), solicited_only != 0).map(|()| IW_OK)?))
    })
}

/// The queue's descriptor, an eventfd that becomes readable once for each arming: read its eight bytes. It belongs to the
/// queue; do not close it. `fd` may then be waited for by any thread.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `fd` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_fd(ctx: *const iw_ctx, cq: iw_cq, fd: *mut i32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let number = with(ctx, |context| Ok(context.cq_fd(cq.to_rust())?.as_raw_fd()))?;
        write_out(fd, "fd", number)?;
        Ok(IW_OK)
    })
}

/// A completion queue as it is now.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_cq_info {
    /// Places for work requests that were posted and not reaped. A larger depth that was asked for shows once it holds.
    pub depth: u32,
    /// Places promised to work requests: posted and not reaped, and not known to have ended without an entry.
    pub reserved_cqes: u32,
    /// Uses by queue pairs: one that sends and receives into it counts twice.
    pub users: u32,
}

/// A completion queue as it is now.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_query(ctx: *const iw_ctx, cq: iw_cq, out: *mut iw_cq_info) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_cq(cq.to_rust())?))?;
        write_out(
            out,
            "out",
            iw_cq_info { depth: info.depth, reserved_cqes: info.reserved_cqes, users: info.users },
        )?;
        Ok(IW_OK)
    })
}

/// Destroys a completion queue that no queue pair uses any more; IW_E_STILL_USED otherwise. A queue pair that was destroyed
/// uses it until the core has given it up, of which `iw_event_poll` hears: poll workers and events, and call again.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_destroy(ctx: *mut iw_ctx, cq: iw_cq) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_cq(cq.to_rust()).map(|()| IW_OK)?)) })
}

/// Makes a shared receive queue for `depth` receives a core of at most `max_sge` elements. Allocates.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_create(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    depth: u32,
    max_sge: u32,
    out: *mut iw_srq,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        write_out(out, "out", iw_srq { id: 0 })?;
        let srq = with(ctx, |context| Ok(context.create_srq(pd.to_rust(), depth, max_sge as usize)?))?;
        write_out(out, "out", iw_srq { id: srq.to_bits() })?;
        Ok(IW_OK)
    })
}

/// Asks for one IW_EVENT_SRQ_LIMIT_REACHED when fewer than `limit` receives are left on a core. 0 asks for none.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_arm(ctx: *mut iw_ctx, srq: iw_srq, limit: u32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.arm_srq(srq.to_rust(), limit).map(|()| IW_OK)?)) })
}

/// A shared receive queue as it is now.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_srq_info {
    /// Receives that fit, on all cores together, at least as many as were asked for.
    pub depth: u32,
    /// Receives posted and not yet taken by a message.
    pub posted: u32,
    /// Elements in a receive.
    pub max_sge: u32,
    /// Queue pairs that take receives from it.
    pub users: u32,
}

/// A shared receive queue as it is now.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_query(ctx: *mut iw_ctx, srq: iw_srq, out: *mut iw_srq_info) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_srq(srq.to_rust())?))?;
        let (depth, posted, max_sge, users) = (info.depth, info.posted, info.max_sge as u32, info.users);
        write_out(out, "out", iw_srq_info { depth, posted, max_sge, users })?;
        Ok(IW_OK)
    })
}

/// Destroys a shared receive queue, as `iw_cq_destroy` does a completion queue. Receives that are posted to it are forgotten.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_destroy(ctx: *mut iw_ctx, srq: iw_srq) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_srq(srq.to_rust()).map(|()| IW_OK)?)) })
}
