//! The helper thread: runs the worker while no thread of the program does.
//!
//! It looks whether the program polls, every [`PROGRAM_POLLS`] while it does. Without work it polls on for [`SPIN`], yields
//! its processor until [`BUSY`] has passed, then sleeps, longer the longer nothing happens: an idle process takes about one percent of a processor, and a
//! peer's first message after a pause up to [`NAP_MAX`] longer.

use core::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::{ENGINE, process};

/// The pause while the program polls.
const PROGRAM_POLLS: Duration = Duration::from_micros(100);
/// The time after the last work in which it keeps its processor: the answer to what it sent arrives within it.
const SPIN: Duration = Duration::from_micros(50);
/// The time after the last work in which it does not sleep.
const BUSY: Duration = Duration::from_micros(200);
/// The shortest and the longest sleep.
const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_micros(500);

/// Starts the thread. It ends with the process.
pub(super) fn start() -> std::io::Result<()> {
    let signals = process::BlockedSignals::new();
    let started = thread::Builder::new().name("ironwarp-helper".into()).spawn(run);
    drop(signals);
    started.map(drop)
}

fn run() {
    process::sleep_precisely();
    let (mut last_polls, mut last_work) = (0, Instant::now());
    while !ENGINE.is_stopping.load(Ordering::Relaxed) {
        let polls = ENGINE.program_polls.load(Ordering::Relaxed);
        if polls != last_polls {
            last_polls = polls;
            last_work = Instant::now();
            thread::sleep(PROGRAM_POLLS);
            continue;
        }
        let idle = last_work.elapsed();
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
