//! Captures of frames in a file, in the format pcapng.

use core::ffi::c_char;

use verbs::instrument::{Capture, CaptureLimits};

use crate::boundary::{ApiError, Slot, alloc_handle, call, close_handle, text, with, write_out, *};

/// A capture file. Workers of any stack record into it (`iw_worker_start_capture`).
pub struct iw_capture(Slot<Capture>);

handle_kind!(iw_capture, Capture, 7, "the capture");

/// Creates a capture file, readable for its owner only. Frames contain the data of the peers.
///
/// # Safety
/// `path` is null or a NUL-terminated text; `out` is null or valid for writes of one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_capture_create(path: *const c_char, out: *mut *mut iw_capture) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        write_out(out, "out", core::ptr::null_mut())?;
        let path = text(path, "path")?;
        let created = Capture::create(path.as_ref(), CaptureLimits::default());
        let capture = created.map_err(|error| fault!(IW_E_SYSTEM, "{path}: {error}"))?;
        write_out(out, "out", alloc_handle(capture))
    })
}

/// Writes out what is buffered.
///
/// # Safety
/// `capture` is null or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_capture_flush(capture: *const iw_capture) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let flushed = with(capture, |capture| Ok(capture.flush()))?;
        flushed.map_err(|error| ApiError::with_detail(IW_E_SYSTEM, error))
    })
}

/// Closes the handle. Workers that record continue until `iw_worker_stop_capture`.
///
/// # Safety
/// As for `iw_capture_flush`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_capture_close(capture: *mut iw_capture) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(capture).map(drop) })
}
