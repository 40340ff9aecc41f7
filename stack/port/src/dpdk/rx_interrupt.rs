//! The receive interrupt of a queue, for a thread that waits for frames at a descriptor.
//!
//! The thread enables the interrupt, polls the queue once more, and waits only if there was no
//! frame: a frame that arrived before the interrupt was enabled raises none. Each interrupt is one
//! edge of the descriptor, so an edge-triggered epoll descriptor needs no read. Source: DPDK's
//! guide of the L3 forwarding application with power management.
//!
//! Some drivers accept the configuration and deliver nothing: net_e1000 does not assign the vectors
//! of an 82574L in MSI-X mode. Poll such a device by a timer until its first interrupt.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use super::Errno;
use super::device::Device;
use crate::RxInterrupt;

/// The receive interrupt of one queue of a device that was started with
/// [`super::Wakes::Interrupts`]. Keeps the device open.
pub(super) struct QueueInterrupt {
    device: Arc<Device>,
    queue: u16,
    /// Duplicated: the driver keeps its own.
    descriptor: OwnedFd,
}

impl QueueInterrupt {
    /// Returns the interrupt of a queue, if the device has interrupts and the driver returns a
    /// descriptor.
    pub(super) fn of(device: &Arc<Device>, queue: u16) -> Option<Self> {
        device.rx_interrupts()?;
        // SAFETY: a started port; the callee checks the queue.
        let number = unsafe { dpdk_sys::rte_eth_dev_rx_intr_ctl_q_get_fd(device.port(), queue) };
        if number < 0 {
            tracing::info!("queue {queue}: no receive interrupts: the driver has no descriptor of them");
            return None;
        }
        // SAFETY: the driver keeps the descriptor open while the device runs.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().ok()?;
        Some(QueueInterrupt { device: device.clone(), queue, descriptor })
    }

    /// Queues of a device share registers, which drivers read and write without a lock.
    fn exclusively<T>(&self, change: impl FnOnce(u16, u16) -> T) -> T {
        let lock = self.device.rx_interrupts();
        let _guard = lock.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        change(self.device.port(), self.queue)
    }
}

impl RxInterrupt for QueueInterrupt {
    fn enable(&self) -> bool {
        self.exclusively(|port, queue| {
            // SAFETY: a started port and one of its queues.
            Errno::check(unsafe { dpdk_sys::rte_eth_dev_rx_intr_enable(port, queue) }).is_ok()
        })
    }

    fn disable(&self) {
        // A driver that refuses leaves the interrupt enabled: the thread wakes in vain.
        self.exclusively(|port, queue| {
            // SAFETY: a started port and one of its queues.
            unsafe { dpdk_sys::rte_eth_dev_rx_intr_disable(port, queue) };
        });
    }
}

impl AsFd for QueueInterrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
