//! Contexts, protection domains, limits, and the orderly end.

use std::time::{Duration, Instant};

use verbs::{Context, ProtectionDomain};

use crate::boundary::{Slot, alloc_handle, call, close_handle, with, write_optional, write_out, *};
use crate::host::iw_stack;

/// One application thread's side of a stack: used by one thread at a time, whichever.
pub struct iw_ctx(Slot<Context>);

handle_kind!(iw_ctx, Context, 3, "the context");

/// A protection domain: a queue pair reaches the memory of its own domain only. Good in every context of its stack.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_pd {
    /// The library's.
    pub id: u64,
}

impl iw_pd {
    pub(crate) fn to_rust(self) -> ProtectionDomain {
        ProtectionDomain::from_bits(self.id)
    }
}

/// How far a context has come with `iw_drain`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_drain_progress {
    /// Queue pairs whose connections have not ended yet.
    pub open: u32,
    /// Queue pairs that this call destroyed, because the deadline is past.
    pub aborted: u32,
}

/// How many of everything there may be.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_limits {
    /// Cores that carry connections.
    pub cores: u32,
    /// Queue pairs a core.
    pub queue_pairs: u32,
    /// Completion queues a core.
    pub completion_queues: u32,
    /// Shared receive queues a core.
    pub shared_receive_queues: u32,
    /// Memory regions in the stack.
    pub regions: u32,
    /// Contexts.
    pub contexts: u32,
    /// Requests in a send or receive queue.
    pub wq_depth: u32,
    /// Places in a completion queue.
    pub cq_depth: u32,
    /// Gather or scatter elements in a request.
    pub max_sge: u32,
    /// Inline bytes in a request.
    pub inline_bytes: u32,
    /// Bytes in a message.
    pub message_bytes: u32,
    /// Reads and atomic operations outstanding in either direction of a queue pair.
    pub read_depth: u32,
    /// Private data bytes that a connection can be begun or answered with, whatever revision of MPA the peer speaks.
    pub private_data_bytes: u32,
}

/// Opens a context. Allocates.
///
/// # Safety
/// `stack` is null or a handle that this library gave out; `out` is null or good for one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_ctx_open(stack: *const iw_stack, out: *mut *mut iw_ctx) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        write_out(out, "out", core::ptr::null_mut())?;
        let context = with(stack, |host| Ok(host.stack.context()?))?;
        write_out(out, "out", alloc_handle(context))?;
        Ok(IW_OK)
    })
}

/// Closes a context with all its queue pairs and queues. What is still connected is reset: drain first (`iw_drain`). Memory
/// stays registered until it is released.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_ctx_close(ctx: *mut iw_ctx) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { close_handle(ctx).map(|_| IW_OK) })
}

/// Makes a protection domain. It takes no room and needs no end.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_pd_alloc(ctx: *const iw_ctx, out: *mut iw_pd) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let pd = with(ctx, |context| Ok(context.alloc_pd()))?;
        write_out(out, "out", iw_pd { id: pd.to_bits() })?;
        Ok(IW_OK)
    })
}

/// What the stack of a context allows.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_limits_query(ctx: *const iw_ctx, out: *mut iw_limits) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let all = with(ctx, |context| Ok(context.limits()))?;
        let limits = iw_limits {
            cores: all.cores as u32,
            queue_pairs: all.queue_pairs,
            completion_queues: all.completion_queues,
            shared_receive_queues: all.shared_receive_queues,
            regions: all.regions,
            contexts: all.contexts,
            wq_depth: all.wq_depth,
            cq_depth: all.cq_depth,
            max_sge: all.max_sge as u32,
            inline_bytes: all.inline_bytes as u32,
            message_bytes: all.message_bytes,
            read_depth: all.read_depth.into(),
            private_data_bytes: all.private_data_bytes_enhanced as u32,
        };
        write_out(out, "out", limits)?;
        Ok(IW_OK)
    })
}

/// One step of the orderly end: closes every connection of the context as `iw_disconnect` does, and once the deadline, in
/// nanoseconds of `iw_now_ns`, is past destroys the queue pairs that are not done. Never waits: call it again, polling
/// workers, events and completions in between, until it answers 0, the number of connections that are still open. It does
/// not end listening. `drained` may be null.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `drained` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_drain(
    ctx: *mut iw_ctx,
    deadline_ns: u64,
    drained: *mut iw_drain_progress,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let left = Duration::from_nanos(deadline_ns.saturating_sub(crate::iw_now_ns()));
        let now = Instant::now();
        // A deadline beyond what the clock can say is none for as long as anybody lives.
        let deadline = now.checked_add(left).or_else(|| now.checked_add(YEAR)).unwrap_or(now);
        let done = with(ctx, |context| Ok(context.drain(deadline)?))?;
        write_optional(
            drained,
            "drained",
            iw_drain_progress { open: done.open as u32, aborted: done.aborted as u32 },
        )?;
        Ok(i32::try_from(done.open).unwrap_or(i32::MAX))
    })
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
