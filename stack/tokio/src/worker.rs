//! A worker as a task.

use std::convert::Infallible;
use std::io;

use ironwarp::Worker;
use tokio::task::yield_now;

use crate::descriptor::watch;

/// Polls a worker as long as it has work, and waits for its descriptor when it has none. Other
/// tasks of the thread run between two polls. The worker needs `core.idle = "sleep"`. Ends only
/// with an error; drop the future, or abort its task, to end the worker, as dropping a [`Worker`]
/// does.
///
/// A worker that always has work shares its thread with the other tasks. A device without a receive
/// descriptor is polled every `core.sleep_poll_us`.
///
/// # Errors
///
/// - An error of kind [`io::ErrorKind::Unsupported`] unless `core.idle = "sleep"`.
/// - The system's error if it refuses the descriptor.
///
/// # Panics
///
/// Outside a tokio runtime with its I/O driver enabled.
pub async fn run_worker(mut worker: Worker) -> io::Result<Infallible> {
    let Some(fd) = worker.wake_fd() else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "core.idle is not \"sleep\""));
    };
    let wake = watch(fd)?;
    loop {
        if worker.poll(1).work > 0 || !worker.arm() {
            yield_now().await;
            continue;
        }
        // An edge after this is seen by the next wait. An earlier one is handled by the next poll.
        wake.readable().await?.clear_ready();
    }
}
