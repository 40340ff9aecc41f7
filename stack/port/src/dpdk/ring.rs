//! Two ports of one process, back to back.
//!
//! Two rings of frame pointers, one each way. A frame crosses without being copied, unless its sender still holds it:
//! then the receiving port copies it. So a pool's frames turn up behind the other port, and everything that
//! makes up the pair lives until both ports are gone.

use core::ptr::NonNull;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dpdk_sys::{Mbuf, rte_ring};
use ironwarp_stats::CoreStats;
use ironwarp_types::limits::BURST_FRAMES;

use super::device::{Device, QueuePools};
use super::{DpdkError, DpdkPort, Eal, Errno, MbufFrame, PortSettings};
use crate::Burst;

/// Numbers the pairs of the process: ring and device names are looked up globally.
static NEXT_PAIR: AtomicU32 = AtomicU32::new(0);

/// Makes a pair of ports: what one sends, the other receives. Each may be polled by a thread of its own.
/// `settings.tx_ring_frames`, rounded up to a power of two, is the length of either ring.
///
/// # Errors
/// As [`DpdkPort::open`].
pub fn ring_pair(
    eal: &Eal,
    settings: &PortSettings,
    stats: [CoreStats; 2],
) -> Result<[DpdkPort; 2], DpdkError> {
    let pair = NEXT_PAIR.fetch_add(1, Ordering::Relaxed);
    let frames = settings.tx_ring_frames;
    let rings = [
        Ring::new(&format!("ironwarp-{pair}-a"), frames)?,
        Ring::new(&format!("ironwarp-{pair}-b"), frames)?,
    ];
    let mut first = join(eal, &format!("ironwarp{pair}a"), &rings[0], &rings[1], settings)?;
    let mut second = join(eal, &format!("ironwarp{pair}b"), &rings[1], &rings[0], settings)?;
    let pools = [first.queues(), second.queues()].concat();
    let link = Arc::new(RingLink { _rings: rings, _pools: pools });
    first.keep_link(link.clone());
    second.keep_link(link);
    let [stats_first, stats_second] = stats;
    Ok([port_over(first, stats_first)?, port_over(second, stats_second)?])
}

fn port_over(device: Device, stats: CoreStats) -> Result<DpdkPort, DpdkError> {
    let pools = device.queues().first().cloned();
    let pools = pools.ok_or_else(|| no_device("net_ring", Errno::INVALID))?;
    Ok(DpdkPort::over(Arc::new(device), 0, pools, stats))
}

/// Makes a device that receives from one ring and sends into the other, and starts it.
fn join(eal: &Eal, name: &str, rx: &Ring, tx: &Ring, settings: &PortSettings) -> Result<Device, DpdkError> {
    let text = CString::new(name).map_err(|_| no_device(name, Errno::INVALID))?;
    let (rx, tx) = ([rx.0.as_ptr()], [tx.0.as_ptr()]);
    // SAFETY: the name is copied and the rings outlive the device, which keeps the link.
    let made = unsafe {
        let node = dpdk_sys::rte_socket_id();
        dpdk_sys::rte_eth_from_rings(text.as_ptr(), rx.as_ptr(), 1, tx.as_ptr(), 1, node)
    };
    if made < 0 {
        return Err(no_device(name, Errno::last()));
    }
    Device::start(eal, &format!("net_ring_{name}"), settings, 1)
}

#[cold]
fn no_device(name: &str, errno: Errno) -> DpdkError {
    DpdkError::Device { device: name.into(), step: "be made from rings", errno }
}

/// What a pair of ring ports shares. Dropped behind both devices: frames still on the way go back to their pools, and
/// only then the pools go.
pub(super) struct RingLink {
    _rings: [Ring; 2],
    _pools: Vec<QueuePools>,
}

/// A ring of frame pointers, written by one port and read by the other.
struct Ring(NonNull<rte_ring>);

// SAFETY: a DPDK ring is shared memory with atomic indices; its one writer and one reader are the two ports.
unsafe impl Send for Ring {}
// SAFETY: nothing reaches the ring through a shared reference here.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(name: &str, frames: u16) -> Result<Self, DpdkError> {
        let failed = |errno| DpdkError::Device { device: name.into(), step: "take memory for a ring", errno };
        let text = CString::new(name).map_err(|_| failed(Errno::INVALID))?;
        let flags = dpdk_sys::DSYS_RING_F_SP_ENQ | dpdk_sys::DSYS_RING_F_SC_DEQ;
        // A ring of n places holds n - 1.
        let places = (u32::from(frames) + 1).next_power_of_two();
        // SAFETY: the name is copied; the EAL runs, since the caller holds a handle to it.
        let raw =
            unsafe { dpdk_sys::rte_ring_create(text.as_ptr(), places, dpdk_sys::DSYS_SOCKET_ID_ANY, flags) };
        NonNull::new(raw).map(Ring).ok_or_else(|| failed(Errno::last()))
    }

    /// Frees every frame in the ring.
    fn drain(&mut self) {
        loop {
            let mut frames = Burst::<MbufFrame>::new();
            let places = frames.as_mut_ptr().cast::<*mut Mbuf>();
            // SAFETY: room for 32 pointers; each that is filled in carries one share of a live mbuf, dropped here.
            unsafe {
                let taken = dpdk_sys::dsys_ring_drain(self.0.as_ptr(), places, BURST_FRAMES as u32);
                frames.set_len(taken as usize);
            }
            if frames.is_empty() {
                return;
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
        // SAFETY: both devices are closed, and the ring is empty.
        unsafe { dpdk_sys::rte_ring_free(self.0.as_ptr()) };
    }
}
