//! Workers that prepare to wait, captures, the log, counters of a part, and what needs no handle.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;

use crate::Input;
use capi::*;

use super::program::{Program, good, must, pick, pointer};

pub fn call(input: &mut Input<'_>, program: &mut Program, end: usize) {
    match input.u8() % 16 {
        0..=3 => wait(input, program, end),
        4..=8 => capture(input, program, end),
        9 | 10 => log(input),
        11..=13 => counters(input, program, end),
        _ => constants(),
    }
}

fn wait(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(worker) = pick(input, &program.ends, end, |end| &end.workers) else { return };
    let mut descriptor = -1;
    // SAFETY: a handle of this library, and memory for the value.
    unsafe {
        if input.flag() {
            good(iw_worker_wake_fd(worker, pointer(input, &mut descriptor)));
        } else {
            let armed = iw_worker_arm(worker);
            assert!(!good(armed) || armed <= 1);
        }
    }
}

fn capture(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(worker) = pick(input, &program.ends, end, |end| &end.workers) else { return };
    let known = pick(input, &program.ends, end, |end| &end.captures);
    // SAFETY: handles of this library, texts, and memory for a handle.
    unsafe {
        match (input.u8() % 8, known) {
            (0 | 1, _) | (_, None) => create_capture(input, program, end),
            (2, Some(capture)) => _ = good(iw_capture_flush(capture)),
            (3, Some(capture)) => _ = good(iw_capture_close(capture)),
            (4 | 5, _) => _ = good(iw_worker_stop_capture(worker)),
            (_, Some(capture)) => {
                let name = text(input);
                good(iw_worker_start_capture(worker, capture, pointer(input, name.as_ptr().cast_mut())));
            }
        }
    }
}

/// A file that nobody else opens, or one that cannot be created.
fn create_capture(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let file = std::env::temp_dir().join(format!("ironwarp-fuzz-{}.pcapng", std::process::id()));
    let path = match input.u8() {
        0..200 => CString::new(file.as_os_str().as_encoded_bytes()).expect("no NUL"),
        200..220 => c"/nonexistent/folder/file".into(),
        _ => c"".into(),
    };
    let mut capture = null_mut();
    // SAFETY: a text, and memory for a handle.
    if good(unsafe {
        iw_capture_create(pointer(input, path.as_ptr().cast_mut()), pointer(input, &mut capture))
    }) {
        program.ends[end].captures.push(capture);
    }
    // The next one is a new file, and none is left behind.
    let _ = std::fs::remove_file(file);
}

/// Receives a line of the log.
unsafe extern "C" fn hear(user: *mut c_void, level: u32, text: *const c_char) {
    // SAFETY: the library passes a NUL-terminated text.
    let text = unsafe { CStr::from_ptr(text) };
    assert!(user.is_null() && (IW_LOG_ERROR..=IW_LOG_DEBUG).contains(&level));
    assert!(!text.to_bytes().contains(&b'\n'));
}

fn log(input: &mut Input<'_>) {
    let function: iw_log_fn = if input.flag() { Some(hear) } else { None };
    // SAFETY: the function uses no pointer of the program.
    good(unsafe { iw_set_log(function, null_mut(), u32::from(input.u8() % 7)) });
}

/// Ends the log of a run, which the next one does not know of.
pub fn end_log() {
    // SAFETY: there is no function any more.
    must(unsafe { iw_set_log(None, null_mut(), IW_LOG_ERROR) });
}

fn counters(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let (stack, mut value, mut room) = (program.ends[end].stack, 0, [0; 64]);
    let part = if input.u8() < 200 { u32::from(input.u8() % 3) } else { input.u32() };
    // SAFETY: a handle of this library, texts, and memory for values.
    unsafe {
        let all = iw_stack_counters(stack);
        assert!(good(all) && all > 0);
        let number = u32::from(input.u16()) % all as u32;
        must(iw_stack_counter_at(stack, number, room.as_mut_ptr(), room.len(), &mut value));
        let own = text(input);
        let name = if input.u8() < 200 { room.as_mut_ptr() } else { own.as_ptr().cast_mut() };
        if input.flag() {
            good(iw_stack_core_counter(stack, part, pointer(input, name), pointer(input, &mut value)));
        } else {
            good(iw_stack_port_counter(stack, part, pointer(input, name), pointer(input, &mut value)));
        }
    }
}

fn constants() {
    // SAFETY: the text is NUL-terminated.
    assert!(!unsafe { CStr::from_ptr(iw_version()) }.is_empty());
    assert!(iw_abi_version() == IW_ABI_VERSION && iw_now_ns() > 0);
    must(iw_dpdk_cleanup());
}

/// A short text of any bytes but NUL.
fn text(input: &mut Input<'_>) -> CString {
    let bytes = input.short_bytes().split(|byte| *byte == 0).next().unwrap_or_default();
    CString::new(bytes).expect("no NUL")
}
