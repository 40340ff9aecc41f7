//! A panic of any thread ends the program.
//!
//! Rust ends the thread that panics and no other. A service whose core, client or log thread has
//! ended so would go on without it, and its service manager would see a healthy process.
//! [`end_on_panic`] sets the flag with which the program ends in order, so that peers get resets,
//! and aborts a program that has not ended soon after. [`exit_code`] makes the exit code a failure.

use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The time that a program has to end in order after a panic.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a thread has panicked since [`end_on_panic`].
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Sets `stop` when a thread panics. Panics that are caught count too: each is a defect.
pub fn end_on_panic(stop: Arc<AtomicBool>) {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print(info);
        stop.store(true, Ordering::Relaxed);
        if PANICKED.swap(true, Ordering::AcqRel) {
            return;
        }
        // The thread that panics may be the one that would end the program.
        let abort = || {
            std::thread::sleep(END_TIMEOUT);
            eprintln!("a thread has panicked, and the program has not ended within {END_TIMEOUT:?}");
            std::process::abort()
        };
        if std::thread::Builder::new().name("abort".into()).spawn(abort).is_err() {
            std::process::abort();
        }
    }));
}

/// Returns the exit code of a program that would end with `code`: a failure if one of its threads
/// has panicked.
pub fn exit_code(code: ExitCode) -> ExitCode {
    if PANICKED.load(Ordering::Acquire) { ExitCode::FAILURE } else { code }
}
