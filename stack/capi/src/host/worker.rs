//! Workers: polled by the program's own loops, or on threads of the library.

use core::ffi::c_char;
use std::os::fd::AsRawFd;

use verbs::{Worker, WorkerThread};

use super::capture::iw_capture;
use super::stack::{StackObject, iw_stack};
use crate::boundary::{
    ApiError, Slot, call, close_handle, create_handle, text, with, write_out, write_sized, *,
};

/// One core of a stack.
pub struct iw_worker(Slot<Runner>);

/// The owner of the worker.
pub(crate) enum Runner {
    /// The thread that polls it.
    Polled(Worker),
    /// A thread of the library.
    Threaded(WorkerThread),
    /// None: its thread ended in a panic.
    Lost,
}

handle_kind!(iw_worker, Runner, 2, "the worker");

/// The result of one poll. Set `size` before the first call; the library leaves it as it is.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_poll_result {
    /// sizeof(struct iw_poll_result).
    pub size: u32,
    /// Not used.
    pub reserved: u32,
    /// Frames received and sent, doorbells and messages handled. 0 if there was nothing to do.
    pub work: u64,
    /// Nanoseconds until the next timer is due. Until then there is nothing to do unless a frame, a
    /// request or a message of another worker arrives. UINT64_MAX: no timer is armed.
    pub idle_ns: u64,
}

/// Takes the worker of one core, once for each core. Any thread may poll it, one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_take(stack: *mut iw_stack, core: u32, out: *mut *mut iw_worker) -> i32 {
    let take = |host: &mut StackObject| {
        let there = host.workers.get_mut(core as usize);
        let there = there.ok_or_else(|| fault!(IW_E_VALUE, "core = {core}: below iw_stack_cores"))?;
        there.take().ok_or_else(|| fault!(IW_E_STATE, "the worker of core {core} has been taken"))
    };
    // SAFETY: guaranteed by the caller.
    unsafe { create_handle(out, "out", || with(stack, take).map(Runner::Polled)) }
}

/// Runs one iteration of a worker's loop: receives at most `budget` bursts of frames and handles
/// everything that follows. Never blocks and never allocates. Its only system call wakes a thread
/// that waits at a descriptor. Returns the amount of work. `polled` may be null. A program that
/// pauses the workers of a stack until their timers are due must poll all of them again after one
/// had work, since they pass frames to each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_poll(
    worker: *mut iw_worker,
    budget: u32,
    polled: *mut iw_poll_result,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        with(worker, |runner| {
            let worker = runner.polled()?;
            let done = worker.poll(budget as usize);
            let work = i32::try_from(done.work).unwrap_or(i32::MAX);
            if polled.is_null() {
                return Ok(work);
            }
            let idle_ns = done.next_deadline.map_or(u64::MAX, |due| due.0.saturating_sub(worker.now().0));
            let result = iw_poll_result { size: 0, reserved: 0, work: done.work as u64, idle_ns };
            write_sized(polled, "polled", result)?;
            Ok(work)
        })
    })
}

/// Runs a worker on a thread of the library until `iw_worker_stop`, pinned to `processor` unless
/// that is negative. Polling it meanwhile fails with IW_E_STATE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_start(worker: *mut iw_worker, processor: i32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        with(worker, |runner| {
            runner.polled()?;
            let Runner::Polled(worker) = core::mem::replace(runner, Runner::Lost) else {
                return Err(ApiError::new(IW_E_STATE));
            };
            *runner = Runner::Threaded(worker.spawn(usize::try_from(processor).ok())?);
            Ok(())
        })
    })
}

/// Ends the thread of `iw_worker_start`; the worker can be polled again. Waits for the current
/// iteration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_stop(worker: *mut iw_worker) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        with(worker, |runner| match core::mem::replace(runner, Runner::Lost) {
            Runner::Threaded(thread) => {
                let worker =
                    thread.stop().ok_or_else(|| fault!(IW_E_INTERNAL, "the worker's thread panicked"))?;
                *runner = Runner::Polled(worker);
                Ok(())
            }
            other => {
                *runner = other;
                Err(fault!(IW_E_STATE, "the worker runs on no thread of the library's"))
            }
        })
    })
}

/// Prepares to wait for the descriptor of `iw_worker_wake_fd`, for a program that owns the loop and
/// has polled without work. Runs one iteration. Returns 1 if the program may wait now: then the
/// descriptor becomes readable as soon as the worker has to be polled. Returns 0 if there is work:
/// poll again. Needs `core.idle = "sleep"`; otherwise fails with IW_E_STATE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_arm(worker: *mut iw_worker) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        with(worker, |runner| {
            let worker = runner.polled()?;
            worker.wake_fd().ok_or_else(does_not_sleep)?;
            Ok(worker.arm())
        })
    })
}

/// Stores the descriptor that becomes readable when the worker has to be polled after
/// `iw_worker_arm` returned 1. It is an epoll descriptor: wait for it with `poll` or `epoll`, and
/// do not read or close it. The next poll of the worker resets it. Needs `core.idle = "sleep"`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_wake_fd(worker: *mut iw_worker, fd: *mut i32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let number =
            with(worker, |runner| Ok(runner.polled()?.wake_fd().ok_or_else(does_not_sleep)?.as_raw_fd()))?;
        write_out(fd, "fd", number)
    })
}

#[cold]
fn does_not_sleep() -> ApiError {
    fault!(IW_E_STATE, "core.idle is not \"sleep\"")
}

/// Records the frames of the worker's ports from now on. The interface of the capture is called
/// `name`, followed by the port's number if there are several.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_start_capture(
    worker: *mut iw_worker,
    capture: *const iw_capture,
    name: *const c_char,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let name = text(name, "name")?;
        with(worker, |runner| {
            let worker = runner.polled()?;
            with(capture, |capture| {
                worker.start_capture(capture, name).map_err(|error| ApiError::with_detail(IW_E_SYSTEM, error))
            })
        })
    })
}

/// Stops recording and writes out what is buffered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_stop_capture(worker: *mut iw_worker) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        with(worker, |runner| {
            let stopped = runner.polled()?.stop_capture();
            stopped.map_err(|error| ApiError::with_detail(IW_E_SYSTEM, error))
        })
    })
}

/// Returns 1 if the device has a link, of several devices any, else 0. May call the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_link_up(worker: *mut iw_worker) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(worker, |runner| Ok(runner.polled()?.link_up())) })
}

/// Closes a worker. Connections on its core end without a message to the peer, calls that need it
/// fail with IW_E_WORKER_CLOSED, and the last worker of a stack closes the device. Drain the
/// contexts first (`iw_drain`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_close(worker: *mut iw_worker) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(worker).map(drop) })
}

impl Runner {
    #[inline]
    fn polled(&mut self) -> Result<&mut Worker, ApiError> {
        match self {
            Runner::Polled(worker) => Ok(worker),
            Runner::Threaded(_) => Err(fault!(IW_E_STATE, "the worker runs on a thread of the library's")),
            Runner::Lost => Err(fault!(IW_E_INTERNAL, "the worker's thread panicked")),
        }
    }
}
