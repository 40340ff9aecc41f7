//! Workers: polled by the program's own loops, or on threads of the library's.

use verbs::{Worker, WorkerThread};

use super::stack::iw_stack;
use crate::boundary::{ApiError, Slot, alloc_handle, call, close_handle, with, write_optional, write_out, *};

/// One core of a stack.
pub struct iw_worker(Slot<Runner>);

/// Where the worker is.
pub(crate) enum Runner {
    /// Owned by the thread that polls it.
    Polled(Worker),
    /// On a thread of the library's.
    Threaded(WorkerThread),
    /// Nowhere: its thread ended in a panic.
    Lost,
}

handle_kind!(iw_worker, Runner, 2, "the worker");

/// What one poll did.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_poll_result {
    /// Frames received and sent, doorbells and messages handled. 0 when there was nothing to do.
    pub work: u64,
    /// Nanoseconds until the next timer is due: until then there is nothing to do unless a frame, a request or another
    /// worker's message comes. UINT64_MAX when no timer is armed.
    pub idle_ns: u64,
}

/// Takes the worker of one core, each once. It may be polled by any thread, by one at a time.
///
/// # Safety
/// `stack` is null or a handle that this library gave out; `out` is null or good for one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_take(stack: *mut iw_stack, core: u32, out: *mut *mut iw_worker) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        write_out(out, "out", core::ptr::null_mut())?;
        let worker = with(stack, |host| {
            let there = host.workers.get_mut(core as usize);
            let there = there.ok_or_else(|| {
                ApiError::with_detail(IW_E_VALUE, format_args!("core = {core}: below iw_stack_cores"))
            })?;
            there.take().ok_or_else(|| {
                ApiError::with_detail(IW_E_STATE, format_args!("the worker of core {core} has been taken"))
            })
        })?;
        write_out(out, "out", alloc_handle(Runner::Polled(worker)))?;
        Ok(IW_OK)
    })
}

/// Runs one iteration of a worker's loop: at most `budget` bursts of frames in, then all that follows from them. Never
/// blocks, never allocates, never calls the system, save to wake somebody who waits at a descriptor. Answers how much
/// there was to do. `polled` may be null. A program that lets the workers of one stack rest until their timers are due
/// polls all of them once more when one has had work: they hand frames to each other.
///
/// # Safety
/// `worker` is null or a handle that this library gave out; `polled` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_poll(
    worker: *mut iw_worker,
    budget: u32,
    polled: *mut iw_poll_result,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        with(worker, |runner| {
            let worker = runner.polled()?;
            let done = worker.poll(budget as usize);
            let work = i32::try_from(done.work).unwrap_or(i32::MAX);
            if polled.is_null() {
                return Ok(work);
            }
            let idle_ns = done.next_deadline.map_or(u64::MAX, |due| due.0.saturating_sub(worker.now().0));
            write_optional(polled, "polled", iw_poll_result { work: done.work as u64, idle_ns })?;
            Ok(work)
        })
    })
}

/// Runs a worker on a thread of the library's until `iw_worker_stop`, pinned to `processor` unless that is negative. Who
/// polls it meanwhile gets IW_E_STATE.
///
/// # Safety
/// `worker` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_start(worker: *mut iw_worker, processor: i32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        with(worker, |runner| {
            runner.polled()?;
            let Runner::Polled(worker) = core::mem::replace(runner, Runner::Lost) else {
                return Err(ApiError::new(IW_E_STATE));
            };
            *runner = Runner::Threaded(worker.spawn(usize::try_from(processor).ok())?);
            Ok(IW_OK)
        })
    })
}

/// Ends the thread that `iw_worker_start` began; the worker can be polled again. Waits for the iteration under way.
///
/// # Safety
/// As for `iw_worker_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_stop(worker: *mut iw_worker) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        with(worker, |runner| match core::mem::replace(runner, Runner::Lost) {
            Runner::Threaded(thread) => {
                let worker = thread
                    .stop()
                    .ok_or_else(|| ApiError::with_detail(IW_E_INTERNAL, "the worker's thread panicked"))?;
                *runner = Runner::Polled(worker);
                Ok(IW_OK)
            }
            other => {
                *runner = other;
                Err(ApiError::with_detail(IW_E_STATE, "the worker runs on no thread of the library's"))
            }
        })
    })
}

/// Whether the device has its link, of several whether any has: 1 or 0. May ask the kernel.
///
/// # Safety
/// As for `iw_worker_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_link_up(worker: *mut iw_worker) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(worker, |runner| Ok(runner.polled()?.link_up().into())) })
}

/// Closes a worker: connections that live on its core end without a word, calls that need it say IW_E_WORKER_CLOSED, and
/// with the last worker of a stack the device is closed. Drain the contexts first (`iw_drain`).
///
/// # Safety
/// As for `iw_worker_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_worker_close(worker: *mut iw_worker) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { close_handle(worker).map(|_| IW_OK) })
}

impl Runner {
    #[inline]
    fn polled(&mut self) -> Result<&mut Worker, ApiError> {
        match self {
            Runner::Polled(worker) => Ok(worker),
            Runner::Threaded(_) => {
                Err(ApiError::with_detail(IW_E_STATE, "the worker runs on a thread of the library's"))
            }
            Runner::Lost => Err(ApiError::with_detail(IW_E_INTERNAL, "the worker's thread panicked")),
        }
    }
}
