//! Completion queues, shared receive queues, queue pairs.

mod completion;
mod qp;
mod split;
mod target;

use std::os::fd::AsRawFd;

use verbs::batch::reap;
use verbs::{Completion, CompletionQueue, CqAttr, QueuePair, SharedReceiveQueue, SrqAttr, VerbsError};

use super::context::{iw_ctx, iw_pd};
use crate::boundary::{
    ApiError, HandleKind, OutList, call, create, read_sized, with, write_init, write_out, write_sized, *,
};
pub use completion::*;
pub use qp::*;
pub use split::*;
pub(crate) use target::SendTarget;

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

/// A name of the stack's is a number here.
macro_rules! id {
    ($($c:ident = $rust:ident),*) => { $(
        impl $c {
            pub(crate) fn to_rust(self) -> $rust {
                $rust::from_bits(self.id)
            }
        }

        impl From<$rust> for $c {
            fn from(name: $rust) -> Self {
                $c { id: name.to_bits() }
            }
        }
    )* };
}

id!(iw_cq = CompletionQueue, iw_srq = SharedReceiveQueue, iw_qp = QueuePair);

/// Creates a completion queue for `depth` requests that are posted and not reaped. Allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_create(ctx: *mut iw_ctx, depth: u32, out: *mut iw_cq) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create(out, "out", iw_cq::default(), || with(ctx, |context| Ok(context.create_cq(depth)?.into())))
    }
}

/// The attributes of a new completion queue. `iw_cq_attr_init` sets the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_cq_attr {
    /// sizeof(struct iw_cq_attr).
    pub size: u32,
    /// Requests that may be posted and not reaped.
    pub depth: u32,
    /// The core whose queue pairs may use it; negative: all cores, each with a ring of this depth.
    pub core: i32,
}

/// Sets the defaults: `depth` requests, all cores. `size` is sizeof(struct iw_cq_attr): programs
/// call `iw_cq_attr_init`, which passes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_attr_init_sized(attr: *mut iw_cq_attr, size: usize, depth: u32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { write_init(attr, size, "attr", iw_cq_attr { size: 0, depth, core: -1 }) })
}

/// Creates a completion queue with attributes. Allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_create_with(
    ctx: *mut iw_ctx,
    attr: *const iw_cq_attr,
    out: *mut iw_cq,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create(out, "out", iw_cq::default(), || {
            let attr = read_sized(attr, iw_cq_attr { size: 0, depth: 0, core: -1 }, "attr")?;
            let attr = CqAttr { depth: attr.depth, core: to_core(attr.core)? };
            with(ctx, |context| Ok(context.create_cq_with(&attr)?.into()))
        })
    }
}

/// Returns the core of an attribute.
pub(super) fn to_core(core: i32) -> Result<Option<u16>, ApiError> {
    let wrong = || fault!(IW_E_VALUE, "attr.core = {core}: below iw_stack_cores");
    if core < 0 { Ok(None) } else { u16::try_from(core).map(Some).map_err(|_| wrong()) }
}

/// Changes the depth of a completion queue, with work outstanding. A larger depth takes effect when
/// the cores have processed the change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_resize(ctx: *mut iw_ctx, cq: iw_cq, depth: u32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.resize_cq(cq.to_rust(), depth)?)) })
}

/// Moves up to `count` completions into `wcs`, oldest first for each queue pair. Returns their
/// number. `size` is sizeof(struct iw_wc): programs call `iw_cq_poll`, which passes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_poll_sized(
    ctx: *mut iw_ctx,
    cq: iw_cq,
    wcs: *mut iw_wc,
    size: usize,
    count: u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { poll_into(ctx, wcs, (size, count), |context, some| context.poll_cq(cq.to_rust(), some)) }
}

/// # Safety
/// `handle` is null or a handle of this library; `wcs` is null or valid for writes of `count`
/// values of `size` bytes each.
#[inline]
unsafe fn poll_into<K: HandleKind>(
    handle: *const K,
    wcs: *mut iw_wc,
    (size, count): (usize, u32),
    mut poll: impl FnMut(&mut K::Body, &mut [Completion]) -> Result<usize, VerbsError>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let count = (count as usize).min(i32::MAX as usize);
        let mut room = OutList::new(wcs, size, count, "wcs")?;
        with(handle, |body| {
            let mut some = [Completion::default(); CHUNK];
            let reaped = reap(count, &mut some, |some| poll(body, some), |one| room.push(one.into()))?;
            Ok(reaped as i32)
        })
    })
}

/// Completions that are converted at a time, on the stack.
const CHUNK: usize = 32;

/// Requests one event at the queue's descriptor for its next completion, or its next solicited or
/// failed one. Poll once more after this call: earlier completions raise no event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_arm(ctx: *mut iw_ctx, cq: iw_cq, solicited_only: i32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.arm_cq(cq.to_rust(), solicited_only != 0)?)) })
}

/// Stores the queue's descriptor, an eventfd that becomes readable once for each arming; read its
/// eight bytes. The queue owns it; do not close it. Any thread may wait for `fd`.
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
    /// Reserved entries: for requests that are posted and not reaped, and not known to have ended
    /// without a completion.
    pub reserved_cqes: u32,
    /// Uses by queue pairs: one that sends and receives into it counts twice.
    pub users: u32,
    /// The core that it is bound to; -1: none.
    pub core: i32,
}

/// Returns the state of a completion queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_query(ctx: *const iw_ctx, cq: iw_cq, out: *mut iw_cq_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_cq(cq.to_rust())?))?;
        let (depth, reserved_cqes, users) = (info.depth, info.reserved_cqes, info.users);
        write_sized(
            out,
            "out",
            iw_cq_info { size: 0, depth, reserved_cqes, users, core: from_core(info.core) },
        )
    })
}

/// Destroys a completion queue. Fails with IW_E_STILL_USED while a queue pair uses it. A destroyed
/// queue pair uses it until the core has released it, which `iw_event_poll` processes: poll workers
/// and events, and call again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_destroy(ctx: *mut iw_ctx, cq: iw_cq) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_cq(cq.to_rust())?)) })
}

/// Creates a shared receive queue for `depth` receives on each core, of at most `max_sge` elements.
/// Allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_create(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    depth: u32,
    max_sge: u32,
    out: *mut iw_srq,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create(out, "out", iw_srq::default(), || {
            with(ctx, |context| Ok(context.create_srq(pd.to_rust(), depth, max_sge as usize)?.into()))
        })
    }
}

/// The attributes of a new shared receive queue. `iw_srq_attr_init` sets the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_srq_attr {
    /// sizeof(struct iw_srq_attr).
    pub size: u32,
    /// Receives on each core.
    pub depth: u32,
    /// Elements of a receive.
    pub max_sge: u32,
    /// The core whose queue pairs may use it; negative: all cores, each with a ring of this depth.
    pub core: i32,
}

/// Sets the defaults: `depth` receives of `max_sge` elements, all cores. `size` is sizeof(struct
/// iw_srq_attr): programs call `iw_srq_attr_init`, which passes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_attr_init_sized(
    attr: *mut iw_srq_attr,
    size: usize,
    depth: u32,
    max_sge: u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { write_init(attr, size, "attr", iw_srq_attr { size: 0, depth, max_sge, core: -1 }) })
}

/// Creates a shared receive queue with attributes. Allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_create_with(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    attr: *const iw_srq_attr,
    out: *mut iw_srq,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create(out, "out", iw_srq::default(), || {
            let attr = read_sized(attr, iw_srq_attr { size: 0, depth: 0, max_sge: 1, core: -1 }, "attr")?;
            let (depth, max_sge) = (attr.depth, attr.max_sge as usize);
            let attr = SrqAttr { depth, max_sge, core: to_core(attr.core)? };
            with(ctx, |context| Ok(context.create_srq_with(pd.to_rust(), &attr)?.into()))
        })
    }
}

/// Returns a core as a result has it.
fn from_core(core: Option<u16>) -> i32 {
    core.map_or(-1, i32::from)
}

/// Requests one IW_EVENT_SRQ_LIMIT_REACHED when fewer than `limit` receives are left on a core;
/// immediately if fewer are left already. 0 cancels. A call replaces the one before: an event of
/// that one which `iw_event_poll` has not returned is not returned any more.
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
    /// The core that it is bound to; -1: none.
    pub core: i32,
}

/// Returns the state of a shared receive queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_query(ctx: *mut iw_ctx, srq: iw_srq, out: *mut iw_srq_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_srq(srq.to_rust())?))?;
        let (depth, posted, max_sge, users) = (info.depth, info.posted, info.max_sge as u32, info.users);
        write_sized(
            out,
            "out",
            iw_srq_info { size: 0, depth, posted, max_sge, users, core: from_core(info.core) },
        )
    })
}

/// Destroys a shared receive queue, as `iw_cq_destroy` does a completion queue. Receives posted to
/// it are dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_destroy(ctx: *mut iw_ctx, srq: iw_srq) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_srq(srq.to_rust())?)) })
}
