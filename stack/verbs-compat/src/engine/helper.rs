//! The helper thread: runs the worker while no thread of the program does.
//!
//! While the program polls, the helper only looks whether it still does, more rarely the longer the
//! polls have been dense: each look takes the processor from a program that has only one. When the
//! polls end, the helper runs the worker from its next look on, and at once if the program waits in
//! a call of the library. A program that requests events has no dense polls: it may wait for a
//! descriptor at any time.
//!
//! Without work it polls on for [`SPIN`], yields its processor until [`BUSY`] has passed, then
//! sleeps, longer the longer nothing happens: an idle process takes about one percent of a
//! processor, and a peer's first message after a pause up to [`NAP_MAX`] longer.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::{ENGINE, process};

/// The shortest and the longest time between two looks while the program polls. The longest is that
/// of the scheduler's own interruptions.
const LOOK_MIN: Duration = Duration::from_micros(100);
const LOOK_MAX: Duration = Duration::from_millis(4);
/// What the time between two looks is of the time for which the polls have been dense: so much
/// longer may a peer's message take when they end.
const LOOK_FRACTION: u32 = 16;
/// Polls are dense if they follow each other within this time on average. A program with fewer may
/// be waiting for memory in between, where only the helper serves it.
const DENSE_POLLS: Duration = Duration::from_micros(20);
/// The time after the last work in which it keeps its processor: the answer to what it sent arrives
/// within it.
const SPIN: Duration = Duration::from_micros(50);
/// The time after the last work in which it does not sleep.
const BUSY: Duration = Duration::from_micros(200);
/// The shortest and the longest sleep.
const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_micros(500);

/// The thread, to wake it from a look. Never freed: there is one for each process.
static THREAD: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());
/// Whether this process has the thread, or is starting it.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Says that the calling thread of the program stops polling: the helper runs the worker from now
/// on. A system call if the helper sleeps between two looks.
pub(super) fn take_over() {
    ENGINE.program_waits.store(true, Ordering::Relaxed);
    // SAFETY: the pointer is null, or to a value that is never freed.
    if let Some(helper) = unsafe { THREAD.load(Ordering::Acquire).as_ref() } {
        helper.unpark();
    }
}

/// Starts the thread, unless it runs, and waits until it has begun. It ends with the process.
///
/// A thread that begins calls `munmap` for its heap. libfabric's memory monitor overwrites the
/// first instructions of `munmap` while other threads run, soon after it has opened the device: a
/// thread that is in the call then ends the process.
pub(super) fn start() -> std::io::Result<()> {
    if IS_RUNNING.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let begun = Arc::new(Barrier::new(2));
    let here = Arc::clone(&begun);
    let signals = process::BlockedSignals::new();
    let started =
        thread::Builder::new().name("ironwarp-helper".into()).spawn(move || or_abort(move || run(&here)));
    drop(signals);
    IS_RUNNING.store(started.is_ok(), Ordering::Relaxed);
    started.map(|_| _ = begun.wait())
}

pub(super) fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Relaxed)
}

/// In a child process: the thread is the parent's.
pub(super) fn forget() {
    THREAD.store(ptr::null_mut(), Ordering::Relaxed);
    IS_RUNNING.store(false, Ordering::Relaxed);
}

/// Calls `body`. A panic ends the process, as one in a call of the program does: without the helper
/// no peer would be served.
fn or_abort(body: impl FnOnce()) {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::process::abort();
        }
    }
    let bomb = Bomb;
    body();
    core::mem::forget(bomb);
}

fn run(begun: &Barrier) {
    process::sleep_precisely();
    THREAD.store(Box::into_raw(Box::new(thread::current())), Ordering::Release);
    begun.wait();
    let (mut last_polls, mut last_work) = (0, Instant::now());
    let mut dense_since = last_work;
    while !ENGINE.is_stopping.load(Ordering::Relaxed) {
        let (polls, now) = (ENGINE.program_polls.load(Ordering::Relaxed), Instant::now());
        let made = polls.wrapping_sub(last_polls);
        let (waits, expects_event) = (take(&ENGINE.program_waits), take(&ENGINE.program_expects_event));
        if waits || expects_event || !are_dense(made, now - last_work) {
            dense_since = now;
        }
        if made > 0 {
            (last_polls, last_work) = (polls, now);
        }
        if made > 0 && !waits {
            thread::park_timeout(look_interval(now - dense_since));
            continue;
        }
        let idle = now - last_work;
        if run_worker() {
            last_work = Instant::now();
        } else if idle < SPIN {
            core::hint::spin_loop();
        } else if idle < BUSY {
            thread::yield_now();
        } else {
            nap(idle);
        }
    }
    process::drain();
}

/// Resets a flag of the program. Returns whether it was set.
fn take(flag: &AtomicBool) -> bool {
    let is_set = flag.load(Ordering::Relaxed);
    if is_set {
        flag.store(false, Ordering::Relaxed);
    }
    is_set
}

fn are_dense(polls: u32, within: Duration) -> bool {
    polls > 0 && DENSE_POLLS.saturating_mul(polls) >= within
}

/// Returns the time until the next look at a program whose polls have been dense for some time.
fn look_interval(dense_for: Duration) -> Duration {
    (dense_for / LOOK_FRACTION).clamp(LOOK_MIN, LOOK_MAX)
}

/// Runs the worker once unless the program uses it. Returns whether there was work.
fn run_worker() -> bool {
    if ENGINE.waiting.load(Ordering::Relaxed) > 0 {
        thread::yield_now();
        return true;
    }
    ENGINE.state.try_lock().map_or(true, |mut state| state.advance() > 0)
}

fn nap(idle: Duration) {
    ENGINE.is_napping.store(true, Ordering::Relaxed);
    thread::sleep((idle / 8).clamp(NAP_MIN, NAP_MAX));
    ENGINE.is_napping.store(false, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_rarer_the_longer_the_polls_have_been_dense() {
        let after_ms = |ms| look_interval(Duration::from_millis(ms)).as_micros();
        assert_eq!([0, 1, 16, 48, 64, 1000].map(after_ms), [100, 100, 1000, 3000, 4000, 4000]);
    }

    #[test]
    fn the_thread_has_begun_when_it_is_started() {
        start().expect("a thread");
        assert!(!THREAD.load(Ordering::Acquire).is_null());
    }

    #[test]
    fn a_panic_of_the_thread_ends_the_process() {
        // SAFETY: the child calls only what follows, and ends in it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::panic::set_hook(Box::new(|_| {}));
            or_abort(|| panic!("on purpose"));
            // SAFETY: the call has no preconditions.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: the memory lives through the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT);
    }

    #[test]
    fn polls_are_dense_unless_the_program_may_wait_for_memory_between_them() {
        let within = Duration::from_micros(100);
        assert!(are_dense(5, within) && !are_dense(4, within) && are_dense(u32::MAX, within));
        assert!(!are_dense(0, Duration::ZERO), "the helper runs the worker");
    }
}
