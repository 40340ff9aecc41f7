//! Errors of DPDK's set-up.

use core::fmt;
use std::ffi::CStr;

use thiserror::Error;

/// The error of a set-up. The data path has none.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DpdkError {
    /// The EAL starts once in a process, even after it was cleaned up.
    #[error("DPDK is already started in this process, and it starts only once")]
    EalAlreadyStarted,
    /// There is no EAL to adopt.
    #[error("DPDK is not started: rte_eal_init must run before it can be adopted")]
    EalNotStarted,
    /// `rte_eal_init` failed.
    #[error("DPDK does not start with `{arguments}`: {errno}")]
    EalInit {
        /// Its arguments.
        arguments: String,
        /// The reason.
        errno: Errno,
    },
    /// The loaded library is not the one that the program was built with. Layouts differ between
    /// releases.
    #[error("built with DPDK {built}, but the library loaded is {running}")]
    Version {
        /// Year and month of the headers.
        built: String,
        /// The version string of the library.
        running: String,
    },
    /// A setting is not valid.
    #[error("{key} = {value}: must be {allowed}")]
    Setting {
        /// Its name.
        key: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// No device of that name.
    #[error("no DPDK device `{device}`; there are: {present}")]
    UnknownDevice {
        /// The requested name.
        device: String,
        /// The names of existing devices.
        present: String,
    },
    /// The device, or its buffers, cannot carry packets of this size.
    #[error(
        "{device}: mtu = {mtu_bytes} needs frames of {frame_bytes} bytes, but {what} ends at {limit_bytes}; set \
         port.mtu = {} or less",
        .limit_bytes.saturating_sub(super::device::LINK_BYTES)
    )]
    Mtu {
        /// The device.
        device: String,
        /// The requested MTU.
        mtu_bytes: u16,
        /// The longest frame of that MTU.
        frame_bytes: u32,
        /// The limiting part.
        what: &'static str,
        /// Its size.
        limit_bytes: u32,
    },
    /// The device has fewer queues than cores.
    #[error("core.count = {cores}: {device} has at most {queues_max} queue pairs, one for each core")]
    Queues {
        /// The device.
        device: String,
        /// The requested queues, one for each core.
        cores: u16,
        /// The queues of the device.
        queues_max: u16,
    },
    /// A pool could not be created.
    #[error("{device}: no memory for a pool of {frames} frames of {room_bytes} bytes: {errno}")]
    Pool {
        /// The device of the pool.
        device: String,
        /// The requested frames.
        frames: u32,
        /// Bytes of each frame.
        room_bytes: u16,
        /// The system's reason.
        errno: Errno,
    },
    /// A virtual device that the EAL did not create. The EAL starts nevertheless and reports the
    /// reason in its log only.
    #[error(
        "DPDK could not make `{vdev}`; its messages say why: an interface that does not exist or is in use, no \
         permission, or a socket left behind"
    )]
    NotMade {
        /// The device and its arguments.
        vdev: String,
    },
    /// A step of a device's set-up failed.
    #[error("{device}: cannot {step}: {errno}")]
    Device {
        /// The device.
        device: String,
        /// The step.
        step: &'static str,
        /// The reason.
        errno: Errno,
    },
    /// The thread cannot become an lcore.
    #[error("this thread cannot be registered with DPDK: {0}")]
    Thread(Errno),
}

/// A DPDK error number; displayed as DPDK's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Text with a NUL, which C cannot represent.
    pub(super) const INVALID: Errno = Errno(22);
    /// The device is in use.
    pub(super) const BUSY: Errno = Errno(16);

    /// Returns the calling thread's `rte_errno`.
    pub(super) fn last() -> Self {
        // SAFETY: reads a thread-local integer.
        Errno(unsafe { dpdk_sys::dsys_errno() })
    }

    /// Converts DPDK's convention of negative error numbers.
    pub(super) fn check(answer: i32) -> Result<i32, Errno> {
        if answer < 0 { Err(Errno(answer.saturating_neg())) } else { Ok(answer) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the result is a NUL-terminated text in a buffer that only this thread writes,
        // copied at once.
        let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(self.0)) };
        write!(f, "{} (errno {})", text.to_string_lossy(), self.0)
    }
}
