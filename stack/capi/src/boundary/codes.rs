//! Error numbers, and a text for each.

use core::ffi::{CStr, c_char};

/// Success.
pub const IW_OK: i32 = 0;
/// A pointer is null that must not be, or is misaligned for its type.
pub const IW_E_POINTER: i32 = -1;
/// The handle is not of this kind, or is closed.
pub const IW_E_HANDLE: i32 = -2;
/// Another call with the same handle is in progress: on another thread, or on this one.
pub const IW_E_CONCURRENT_CALL: i32 = -3;
/// The library panicked, which is a bug. The object can only be closed.
pub const IW_E_INTERNAL: i32 = -4;
/// An argument or a field is out of range; `iw_last_error` names it.
pub const IW_E_VALUE: i32 = -5;
/// The configuration is not valid; `iw_last_error` names key, value and what is allowed.
pub const IW_E_CONFIG: i32 = -6;
/// The device, or the stack over it, could not be started.
pub const IW_E_DEVICE: i32 = -7;
/// Not available in this build of the library.
pub const IW_E_UNSUPPORTED: i32 = -8;
/// No such queue pair in this context: destroyed, or another context's.
pub const IW_E_NO_QP: i32 = -9;
/// No such completion queue in this context.
pub const IW_E_NO_CQ: i32 = -10;
/// No such shared receive queue in this context.
pub const IW_E_NO_SRQ: i32 = -11;
/// No such protection domain in this stack.
pub const IW_E_NO_PD: i32 = -12;
/// A queue pair still uses the object.
pub const IW_E_STILL_USED: i32 = -13;
/// The object is in a state that does not allow the call.
pub const IW_E_STATE: i32 = -14;
/// The work queue is full. Reap completions and post again.
pub const IW_E_QUEUE_FULL: i32 = -15;
/// The completion queue has no free entry to reserve. Reap completions and post again.
pub const IW_E_CQ_FULL: i32 = -16;
/// Too many elements, inline bytes, private data or message bytes.
pub const IW_E_TOO_LONG: i32 = -17;
/// The connection does not support the operation: `IW_EXTENSIONS_*`.
pub const IW_E_NO_OPERATION: i32 = -18;
/// The configured number of objects is reached.
pub const IW_E_LIMIT: i32 = -19;
/// The core's control queue is full, and the call may be repeated without limit: a listen, or an
/// operation on local memory. Or the completion queue is being resized. Poll the worker and call
/// again. No other call fails with this code: the context keeps what the queue has no room for.
pub const IW_E_BUSY: i32 = -20;
/// The worker that executes the call is closed.
pub const IW_E_WORKER_CLOSED: i32 = -21;
/// The memory cannot be registered in this way, or contains no word there for an atomic operation.
pub const IW_E_MEMORY: i32 = -22;
/// The operating system reported an error.
pub const IW_E_SYSTEM: i32 = -23;
/// The queue is split from the context: `iw_qp_split`, `iw_cq_split`, `iw_srq_split`. Close its end
/// first.
pub const IW_E_SPLIT: i32 = -24;

/// Returns a text for an error number. Any thread; never freed, never null.
#[unsafe(no_mangle)]
pub extern "C" fn iw_error_text(code: i32) -> *const c_char {
    text_of(code).as_ptr()
}

/// Returns the text, one line.
pub(super) fn text_of(code: i32) -> &'static CStr {
    match code {
        0.. => c"no error",
        IW_E_POINTER => c"a pointer is null, or not aligned for what it points to",
        IW_E_HANDLE => c"the handle is not, or no longer, one of this kind",
        IW_E_CONCURRENT_CALL => c"another call with this handle is not over",
        IW_E_INTERNAL => c"a fault in the library; the object can only be closed",
        IW_E_VALUE => c"an argument or a field is out of range",
        IW_E_CONFIG => c"the configuration cannot be used",
        IW_E_DEVICE => c"the device could not be started",
        IW_E_UNSUPPORTED => c"not in this build of the library",
        IW_E_NO_QP => c"no such queue pair in this context",
        IW_E_NO_CQ => c"no such completion queue in this context",
        IW_E_NO_SRQ => c"no such shared receive queue in this context",
        IW_E_NO_PD => c"no such protection domain in this stack",
        IW_E_STILL_USED => c"a queue pair still uses the object",
        IW_E_STATE => c"the object is in a state that does not allow this",
        IW_E_QUEUE_FULL => c"the work queue is full",
        IW_E_CQ_FULL => c"the completion queue has no free entry to reserve",
        IW_E_TOO_LONG => c"more elements, inline bytes, private data or message bytes than fit",
        IW_E_NO_OPERATION => c"the connection's extensions do not have this operation",
        IW_E_LIMIT => c"as many exist as the configuration allows",
        IW_E_BUSY => c"the core has not caught up with earlier calls",
        IW_E_WORKER_CLOSED => c"the worker has been closed",
        IW_E_MEMORY => c"the memory cannot be registered so, or has no word there",
        IW_E_SYSTEM => c"the operating system refused",
        IW_E_SPLIT => c"the queue is split from the context; use its own end, or close that first",
        _ => c"an unknown error number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_text_of_its_own() {
        let mut texts: Vec<_> = (IW_E_SPLIT..=IW_OK).map(text_of).collect();
        texts.push(text_of(i32::MIN));
        let count = texts.len();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), count, "two numbers have one text");
    }
}
