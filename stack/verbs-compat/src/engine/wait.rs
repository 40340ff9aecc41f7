//! Calls that wait for an event: they run the worker themselves for a moment, then sleep on the
//! descriptor.

use core::ffi::c_int;
use std::time::{Duration, Instant};

use super::cancel::end_if_cancelled;
use super::{EAGAIN, Outcome, State, helper, last_errno, lock};

/// How long a waiting call runs the worker itself. An answer of a peer in the same network arrives
/// within this time, and a thread that sleeps instead takes longer to wake.
const SPIN: Duration = Duration::from_micros(50);

/// Calls `take` until it returns something. Fails with EAGAIN if the descriptor is non-blocking,
/// and with EINTR when a signal arrives. The thread may be cancelled before something is taken, and
/// not after: `take` hands over what it takes.
pub(crate) fn wait_for<T>(fd: c_int, mut take: impl FnMut(&mut State) -> Outcome<Option<T>>) -> Outcome<T> {
    end_if_cancelled();
    let nonblocking = is_nonblocking(fd)?;
    let begun = Instant::now();
    let mut has_waited = false;
    loop {
        match take_once(&mut take) {
            Ok(Some(taken)) => return Ok(taken),
            Ok(None) if nonblocking => return Err(EAGAIN),
            Ok(None) => {}
            Err(_) if has_waited => return wait_for_ever(),
            Err(error) => return Err(error),
        }
        has_waited = true;
        if begun.elapsed() > SPIN {
            helper::take_over();
            wait_readable(fd)?;
        }
    }
}

/// Looks for an event, and again after the worker has run.
fn take_once<T>(take: &mut impl FnMut(&mut State) -> Outcome<Option<T>>) -> Outcome<Option<T>> {
    let mut state = lock()?;
    if let Some(taken) = take(&mut state)? {
        return Ok(Some(taken));
    }
    state.advance_for_program();
    take(&mut state)
}

/// Returns whether the program made a descriptor non-blocking.
fn is_nonblocking(fd: c_int) -> Outcome<bool> {
    // SAFETY: the call has no preconditions.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 { Err(last_errno()) } else { Ok(flags & libc::O_NONBLOCK != 0) }
}

/// Another thread has destroyed the channel. With the kernel's device the call would not return
/// either, and programs such as rping leave such a thread behind when they end.
pub(crate) fn wait_for_ever<T>() -> Outcome<T> {
    // SAFETY: the call returns when a signal was handled.
    unsafe { pause() };
    Err(last_errno())
}

// A thread may be cancelled here, which unwinds its stack. No value of these frames needs to be
// dropped.
unsafe extern "C-unwind" {
    fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int;
    fn pause() -> c_int;
}

fn wait_readable(fd: c_int) -> Outcome {
    let mut ready = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure lives through the call.
    if unsafe { poll(&raw mut ready, 1, -1) } >= 0 {
        return Ok(());
    }
    let error = last_errno();
    if error.0 == libc::EINTR && !program_interrupts() { Ok(()) } else { Err(error) }
}

/// Returns whether a handler of the program may end its waiting calls: one without SA_RESTART, as
/// with rdma-core's `read`. DPDK's tap driver has a handler for a real-time signal of each received
/// frame, which must not.
fn program_interrupts() -> bool {
    (1..libc::SIGRTMIN()).any(|signal| {
        // SAFETY: zeros are a valid value, which the call replaces.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: the structure lives through the call, which changes no handler.
        let known = unsafe { libc::sigaction(signal, core::ptr::null(), &raw mut action) } == 0;
        let has_handler = !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        known && has_handler && action.sa_flags & libc::SA_RESTART == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn on_signal(_signal: c_int) {}

    fn handle(signal: c_int, flags: c_int) {
        // SAFETY: zeros are a valid value; the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &raw const action, core::ptr::null_mut()), 0);
        }
    }

    #[test]
    fn only_a_handler_of_the_program_without_restart_ends_a_wait() {
        let before = program_interrupts();
        handle(libc::SIGRTMIN() + 1, 0);
        handle(libc::SIGUSR1, libc::SA_RESTART);
        assert_eq!(program_interrupts(), before);
        handle(libc::SIGUSR2, 0);
        assert!(program_interrupts());
    }
}
