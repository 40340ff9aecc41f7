//! A panic of a thread sets the flag that ends the program, and makes its exit code a failure. One
//! test: the hook is the process's.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use ironwarp_cli::{exit_code, on_interrupt};

#[test]
fn a_panic_of_any_thread_ends_the_program() {
    let stop = on_interrupt().expect("a handler");
    let code = |code| format!("{:?}", exit_code(code));
    assert_eq!(code(ExitCode::SUCCESS), format!("{:?}", ExitCode::SUCCESS));
    assert!(!stop.load(Ordering::Relaxed));
    let thread = std::thread::spawn(|| panic!("as a defect would"));
    assert!(thread.join().is_err());
    assert!(stop.load(Ordering::Relaxed));
    assert_eq!(code(ExitCode::SUCCESS), format!("{:?}", ExitCode::FAILURE));
    assert_eq!(code(ExitCode::from(2)), format!("{:?}", ExitCode::FAILURE));
}
