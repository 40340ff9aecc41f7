//! Captures of frames in a file, in the format pcapng.

use core::ffi::c_char;

use verbs::instrument::{Capture, CaptureLimits};

use crate::boundary::{ApiError, Slot, call, close_handle, create_handle, text, with, *};

/// A capture file. Workers of any stack record into it (`iw_worker_start_capture`).
pub struct iw_capture(Slot<Capture>);

handle_kind!(iw_capture, Capture, 7, "the capture");

/// Creates a capture file, readable for its owner only. Frames contain the data of the peers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_capture_create(path: *const c_char, out: *mut *mut iw_capture) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create_handle(out, "out", || {
            let path = text(path, "path")?;
            let created = Capture::create(path.as_ref(), CaptureLimits::default());
            created.map_err(|error| fault!(IW_E_SYSTEM, "{path}: {error}"))
        })
    }
}

/// Writes out what is buffered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_capture_flush(capture: *const iw_capture) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let flushed = with(capture, |capture| Ok(capture.flush()))?;
        flushed.map_err(|error| ApiError::with_detail(IW_E_SYSTEM, error))
    })
}

/// Closes the handle. Workers that record continue until `iw_worker_stop_capture`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_capture_close(capture: *mut iw_capture) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(capture).map(drop) })
}
