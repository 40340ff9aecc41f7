//! Calls that wait for an event: they run the worker themselves for a moment, then sleep on the descriptor.

use core::ffi::c_int;
use std::time::{Duration, Instant};

use super::{EAGAIN, Outcome, State, last_errno, lock};

/// How long a waiting call runs the worker itself. An answer of a peer in the same network arrives within this time, and a
/// thread that sleeps instead takes longer to wake.
const SPIN: Duration = Duration::from_micros(50);

/// Calls `take` until it returns something. Fails with EAGAIN if the descriptor is non-blocking, and with EINTR when a
/// signal arrives.
pub(crate) fn wait_for<T>(fd: c_int, mut take: impl FnMut(&mut State) -> Outcome<Option<T>>) -> Outcome<T> {
    let nonblocking = is_nonblocking(fd)?;
    let begun = Instant::now();
    loop {
        {
            let mut state = lock()?;
            if let Some(taken) = take(&mut state)? {
                return Ok(taken);
            }
            state.advance_for_program();
            if let Some(taken) = take(&mut state)? {
                return Ok(taken);
            }
        }
        if nonblocking {
            return Err(EAGAIN);
        }
        if begun.elapsed() > SPIN {
            wait_readable(fd)?;
        }
    }
}

/// Returns whether the program made a descriptor non-blocking.
fn is_nonblocking(fd: c_int) -> Outcome<bool> {
    // SAFETY: the call has no preconditions.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 { Err(last_errno()) } else { Ok(flags & libc::O_NONBLOCK != 0) }
}

fn wait_readable(fd: c_int) -> Outcome {
    let mut ready = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure lives through the call.
    if unsafe { libc::poll(&raw mut ready, 1, -1) } < 0 { Err(last_errno()) } else { Ok(()) }
}
