//! What can go wrong while DPDK is being set up.

use core::fmt;
use std::ffi::CStr;

use thiserror::Error;

/// A set-up that failed. Nothing on the data path answers with one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DpdkError {
    /// The EAL starts once per process, even after it was cleaned up.
    #[error("DPDK is already started in this process, and it starts only once")]
    EalAlreadyStarted,
    /// There is no EAL to adopt.
    #[error("DPDK is not started: rte_eal_init must run before it can be adopted")]
    EalNotStarted,
    /// `rte_eal_init` refused.
    #[error("DPDK does not start with `{arguments}`: {errno}")]
    EalInit {
        /// The arguments it was given.
        arguments: String,
        /// Its reason.
        errno: Errno,
    },
    /// The library that was loaded is not the one that the program was built with. Layouts differ between releases.
    #[error("built with DPDK {built}, but the library loaded is {running}")]
    Version {
        /// Year and month of the headers.
        built: String,
        /// What the library says of itself.
        running: String,
    },
    /// A setting that cannot be used.
    #[error("{key} = {value}: must be {allowed}")]
    Setting {
        /// Its name.
        key: &'static str,
        /// What was asked for.
        value: String,
        /// What would do.
        allowed: &'static str,
    },
    /// No device of that name.
    #[error("no DPDK device `{device}`; there are: {present}")]
    UnknownDevice {
        /// The name asked for.
        device: String,
        /// The names of those that exist.
        present: String,
    },
    /// The device, or its buffers, cannot carry packets that long.
    #[error(
        "{device}: mtu = {mtu_bytes} needs frames of {frame_bytes} bytes, but {what} ends at {limit_bytes}; set \
         port.mtu = {} or less",
        .limit_bytes.saturating_sub(super::device::LINK_BYTES)
    )]
    Mtu {
        /// The device.
        device: String,
        /// The MTU asked for.
        mtu_bytes: u16,
        /// The longest frame that goes with it.
        frame_bytes: u32,
        /// What is too small.
        what: &'static str,
        /// Its size.
        limit_bytes: u32,
    },
    /// The device has fewer queues than cores.
    #[error("core.count = {cores}: {device} has at most {queues_max} queue pairs, one for each core")]
    Queues {
        /// The device.
        device: String,
        /// Queue pairs asked for, one a core.
        cores: u16,
        /// What it has.
        queues_max: u16,
    },
    /// A pool could not be made.
    #[error("{device}: no memory for a pool of {frames} frames of {room_bytes} bytes: {errno}")]
    Pool {
        /// The device that it was for.
        device: String,
        /// Frames asked for.
        frames: u32,
        /// Bytes in each.
        room_bytes: u16,
        /// The system's reason.
        errno: Errno,
    },
    /// A virtual device that the EAL was asked for and did not make. The EAL starts all the same, and says why only in
    /// its own messages.
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
        /// What was being done.
        step: &'static str,
        /// Its reason.
        errno: Errno,
    },
    /// The thread cannot become an lcore.
    #[error("this thread cannot be registered with DPDK: {0}")]
    Thread(Errno),
}

/// An error number as DPDK gives it; prints as DPDK's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Text that C cannot hold.
    pub(super) const INVALID: Errno = Errno(22);
    /// A device that is in use.
    pub(super) const BUSY: Errno = Errno(16);

    /// The calling thread's `rte_errno`.
    pub(super) fn last() -> Self {
        // SAFETY: reads a thread-local integer.
        Errno(unsafe { dpdk_sys::dsys_errno() })
    }

    /// Splits DPDK's convention of answering with a negative error number.
    pub(super) fn check(answer: i32) -> Result<i32, Errno> {
        if answer < 0 { Err(Errno(answer.saturating_neg())) } else { Ok(answer) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the answer is a NUL-terminated text in a buffer that only this thread writes, copied at once.
        let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(self.0)) };
        write!(f, "{} (errno {})", text.to_string_lossy(), self.0)
    }
}
