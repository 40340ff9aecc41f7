//! The process around the library: signals, the environment, and its end. `fork` is in
//! [`fork`](super::fork).

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use super::{ENGINE, Outcome, fork, helper, last_errno};

/// Blocks the signals of the calling thread, and so of threads that it starts, until it is dropped:
/// handlers of the program run on threads of the program. A fault is of the thread that made it,
/// and the system ends a process that has blocked its signal.
pub(crate) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(crate) fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
        // SAFETY: the calls fill the sets.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            BlockedSignals(before.assume_init())
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is that of the calling thread before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

thread_local! {
    /// Whether the thread has been made to take faults.
    static TAKES_FAULTS: Cell<bool> = const { Cell::new(false) };
}

/// Unblocks SIGSEGV and SIGBUS of the calling thread, the first time that it runs the worker.
/// Programs block all signals of their threads but one, and the system ends a process whose thread
/// faults while the signal is blocked: so an access of a peer to memory that the program has
/// unmapped would. What POSIX leaves undefined, no program depends on.
#[inline]
pub(super) fn take_faults() {
    if !TAKES_FAULTS.get() {
        unblock_faults();
    }
}

/// The same, also if the thread has blocked them since: the handlers are renewed at the same calls.
#[cold]
pub(crate) fn unblock_faults() {
    TAKES_FAULTS.set(true);
    let mut faults = MaybeUninit::uninit();
    // SAFETY: the calls fill the set and read it.
    unsafe {
        libc::sigemptyset(faults.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaddset(faults.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, faults.as_ptr(), ptr::null_mut());
    }
}

/// Lets the calling thread wake on time. The system's default delays it by up to 50 microseconds.
pub(super) fn sleep_precisely() {
    // SAFETY: the call changes a setting of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000u64) };
}

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// Returns a variable of the environment, unless it is empty. A program with more rights than its
/// caller does not trust the caller's environment: for it there are none.
pub(crate) fn variable(name: &CStr) -> Option<OsString> {
    // SAFETY: the name ends with a zero, and the value is copied at once.
    let value = unsafe {
        let value = secure_getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        OsStr::from_bytes(CStr::from_ptr(value).to_bytes()).to_owned()
    };
    (!value.is_empty()).then_some(value)
}

/// Prepares the process for an open device: the helper thread, and what happens after `fork` and at
/// exit.
pub(crate) fn start() -> Outcome {
    /// A child process inherits what was registered.
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        fork::register();
        // SAFETY: the function exists as long as the library, which is never unloaded while its
        // threads run.
        unsafe { libc::atexit(on_exit) };
    }
    helper::start().map_err(|_| last_errno())
}

/// How long the end of a process waits for its connections to close.
const DRAIN: Duration = Duration::from_millis(500);

/// At the end of the process: lets the helper close the connections, so that peers see it, and a
/// device that the process's end would leave behind. This thread may not: its thread-local values
/// are gone. A thread that ended inside a call may hold the lock for ever, so the wait is bounded.
extern "C" fn on_exit() {
    if ENGINE.is_forked.load(Ordering::Relaxed) || !helper::is_running() {
        return;
    }
    ENGINE.is_stopping.store(true, Ordering::Relaxed);
    let deadline = Instant::now() + 2 * DRAIN;
    while !ENGINE.is_drained.load(Ordering::Acquire) && Instant::now() < deadline {
        // SAFETY: the call has no preconditions.
        unsafe { libc::usleep(100) };
    }
}

/// The helper's part.
pub(super) fn drain() {
    let deadline = Instant::now() + DRAIN;
    while Instant::now() < deadline + DRAIN {
        let Ok(mut state) = ENGINE.state.try_lock() else {
            std::thread::yield_now();
            continue;
        };
        let Some(device) = &mut state.device else { break };
        let is_closed = device.context.drain(deadline).is_ok_and(|progress| progress.open == 0);
        state.advance();
        if is_closed {
            // What ends the last connections is sent.
            for _ in 0..8 {
                state.advance();
            }
            if state.device.as_ref().is_some_and(|device| device.outlives_process) {
                // Threads of the program that still run must not open it again.
                state.is_broken = true;
                state.device = None;
            }
            break;
        }
    }
    ENGINE.is_drained.store(true, Ordering::Release);
}
