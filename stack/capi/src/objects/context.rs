//! Contexts, protection domains, limits, and orderly shutdown.

use std::time::{Duration, Instant};

use verbs::{Context, ProtectionDomain};

use crate::boundary::{Slot, call, close_handle, create_handle, with, write_out, write_sized};
use crate::host::iw_stack;

/// One application thread's side of a stack. Used by one thread at a time.
pub struct iw_ctx(Slot<Context>);

handle_kind!(iw_ctx, Context, 3, "the context");

/// A protection domain: a queue pair reaches the memory of its own domain only. Valid in every
/// context of its stack.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_pd {
    /// Internal.
    pub id: u64,
}

impl iw_pd {
    pub(crate) fn to_rust(self) -> ProtectionDomain {
        ProtectionDomain::from_bits(self.id)
    }
}

/// The progress of `iw_drain`. Set `size` before the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_drain_progress {
    /// sizeof(struct iw_drain_progress).
    pub size: u32,
    /// Queue pairs whose connections have not ended yet.
    pub open: u32,
    /// Queue pairs that this call destroyed, because the deadline has passed.
    pub aborted: u32,
}

/// The limits of a stack. Set `size` before the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_limits {
    /// sizeof(struct iw_limits).
    pub size: u32,
    /// Cores that carry connections.
    pub cores: u32,
    /// Queue pairs on each core.
    pub queue_pairs: u32,
    /// Completion queues on each core.
    pub completion_queues: u32,
    /// Shared receive queues on each core.
    pub shared_receive_queues: u32,
    /// Memory regions in the stack.
    pub regions: u32,
    /// Contexts.
    pub contexts: u32,
    /// Requests of a send or receive queue.
    pub wq_depth: u32,
    /// Entries of a completion queue.
    pub cq_depth: u32,
    /// Gather or scatter elements of a request.
    pub max_sge: u32,
    /// Inline bytes of a request.
    pub inline_bytes: u32,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Reads and atomic operations outstanding in either direction of a queue pair.
    pub read_depth: u32,
    /// Bytes of private data that always fit, with any MPA revision of the peer.
    pub private_data_bytes: u32,
    /// Receives of a shared receive queue, on each core.
    pub srq_depth: u32,
    /// Bytes of private data that are accepted from a peer.
    pub private_data_bytes_accepted: u32,
    /// Incoming connections on each core that are neither accepted nor rejected.
    pub half_open: u32,
    /// Listening addresses on each core.
    pub listeners: u32,
}

/// Opens a context. Allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_ctx_open(stack: *const iw_stack, out: *mut *mut iw_ctx) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { create_handle(out, "out", || with(stack, |host| Ok(host.stack.context()?))) }
}

/// Closes a context with all its queue pairs and queues. Open connections are reset: drain first
/// (`iw_drain`). Its memory is revoked with it: no peer and no other context reaches it. Deregister
/// it as ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_ctx_close(ctx: *mut iw_ctx) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(ctx).map(drop) })
}

/// Creates a protection domain. It needs no memory and is not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_pd_alloc(ctx: *const iw_ctx, out: *mut iw_pd) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let pd = with(ctx, |context| Ok(context.alloc_shared_pd()))?;
        write_out(out, "out", iw_pd { id: pd.to_bits() })
    })
}

/// Returns the limits of the context's stack.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_limits_query(ctx: *const iw_ctx, out: *mut iw_limits) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let all = with(ctx, |context| Ok(context.limits()))?;
        let limits = iw_limits {
            size: 0,
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
            srq_depth: all.srq_depth,
            private_data_bytes_accepted: all.private_data_bytes_accepted as u32,
            half_open: all.half_open,
            listeners: all.listeners,
        };
        write_sized(out, "out", limits)
    })
}

/// One step of an orderly shutdown. Closes every connection of the context as `iw_disconnect` does,
/// and destroys the remaining queue pairs after the deadline, in nanoseconds of `iw_now_ns`. Never
/// waits. Returns the number of open connections: call it again until it returns 0, and poll
/// workers, events and completions in between. Does not stop listening. `drained` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_drain(
    ctx: *mut iw_ctx,
    deadline_ns: u64,
    drained: *mut iw_drain_progress,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let left = Duration::from_nanos(deadline_ns.saturating_sub(crate::iw_now_ns()));
        let now = Instant::now();
        // A deadline beyond the range of the clock never passes.
        let deadline = now.checked_add(left).or_else(|| now.checked_add(YEAR)).unwrap_or(now);
        let done = with(ctx, |context| Ok(context.drain(deadline)?))?;
        if !drained.is_null() {
            let progress =
                iw_drain_progress { size: 0, open: done.open as u32, aborted: done.aborted as u32 };
            write_sized(drained, "drained", progress)?;
        }
        Ok(i32::try_from(done.open).unwrap_or(i32::MAX))
    })
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
