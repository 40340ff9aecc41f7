//! Cancellation of threads (`pthread_cancel`).
//!
//! The program may cancel a thread in any call of the library. Cancellation unwinds the stack at
//! the next system call that allows it, and many that the worker makes do: `read`, `write`, `poll`.
//! It must not leave the lock held, or an object half changed. So it is disabled while the lock is
//! held, and takes effect only where a call waits with nothing in its hands
//! ([`wait`](super::wait)). Costs two calls without a system call.

use core::ffi::c_int;

/// Of `pthread.h`.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

// The thread may be cancelled here, which unwinds its stack.
unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// Disables cancellation of the calling thread until it is dropped.
pub(crate) struct CancelDisabled {
    before: c_int,
}

impl CancelDisabled {
    #[inline]
    pub(crate) fn new() -> Self {
        let mut before = 0;
        // SAFETY: the memory lives through the call.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        CancelDisabled { before }
    }
}

impl Drop for CancelDisabled {
    #[inline]
    fn drop(&mut self) {
        let mut ignored = 0;
        // SAFETY: the memory lives through the call, and the state is that of the thread before.
        unsafe { pthread_setcancelstate(self.before, &raw mut ignored) };
    }
}

/// Ends the thread if it was cancelled: every call that may wait does so before it takes anything,
/// as the manual pages of the system calls say. No frame above this one holds a value that must be
/// dropped.
pub(super) fn end_if_cancelled() {
    // SAFETY: the call has no preconditions.
    unsafe { pthread_testcancel() };
}
