//! Two ports of one process, linked back to back.
//!
//! Two rings of frame pointers for each queue, one in each direction. A frame is passed without a
//! copy, unless its sender still holds it; then the receiving port copies it. So frames of one
//! port's pools appear at the other port, and all parts of the pair live until both ports are gone.
//!
//! Nothing between the ends can damage a frame, and both are of this library. So TCP's checksum may
//! be left out: a frame arrives with the flag that asks a card to fill it in.

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

/// Numbers of the process's pairs: ring and device names are global.
static NEXT_PAIR: AtomicU32 = AtomicU32::new(0);

/// Creates a pair of ports: what one sends, the other receives. Each may be polled by its own
/// thread. `settings.tx_ring_frames`, rounded up to a power of two, is the length of either ring.
///
/// # Errors
/// As [`DpdkPort::open`].
pub fn ring_pair(
    eal: &Eal,
    settings: &PortSettings,
    stats: [CoreStats; 2],
) -> Result<[DpdkPort; 2], DpdkError> {
    let [first, second] = ring_pair_of_queues(eal, settings, stats.map(|stats| vec![stats]))?;
    let only =
        |ports: Vec<DpdkPort>| ports.into_iter().next().ok_or_else(|| no_device("net_ring", Errno::INVALID));
    Ok([only(first)?, only(second)?])
}

/// Creates a pair of devices with a queue for each page of counters, and gives each queue to one
/// port: frames from queue `i` of one device arrive in queue `i` of the other.
///
/// # Errors
/// As [`DpdkPort::open_queues`]; both ends have the same number of pages.
pub fn ring_pair_of_queues(
    eal: &Eal,
    settings: &PortSettings,
    stats: [Vec<CoreStats>; 2],
) -> Result<[Vec<DpdkPort>; 2], DpdkError> {
    let pair = NEXT_PAIR.fetch_add(1, Ordering::Relaxed);
    let queues = stats[0].len();
    let allowed = "as many at both ends, 1 to 16";
    let even = stats[1].len() == queues && (1..=QUEUES_MAX).contains(&queues);
    super::vdev::require(even, "queues", stats[1].len(), allowed)?;
    let rings = |end: char| -> Result<Vec<Ring>, DpdkError> {
        let name = |queue| format!("ironwarp-{pair}-{end}{queue}");
        (0..queues).map(|queue| Ring::new(&name(queue), settings.tx_ring_frames)).collect()
    };
    let rings = [rings('a')?, rings('b')?];
    let mut first = join(eal, &format!("ironwarp{pair}a"), &rings[0], &rings[1], settings)?;
    let mut second = join(eal, &format!("ironwarp{pair}b"), &rings[1], &rings[0], settings)?;
    let pools = [first.queues(), second.queues()].concat();
    let link = Arc::new(RingLink { _rings: rings, _pools: pools });
    first.keep_link(link.clone());
    second.keep_link(link);
    let [stats_first, stats_second] = stats;
    let ports = |device, stats| {
        let mut ports = DpdkPort::over_all(device, stats);
        if settings.fast_path {
            ports.iter_mut().for_each(DpdkPort::leave_checksums_out);
        }
        ports
    };
    Ok([ports(first, stats_first), ports(second, stats_second)])
}

/// The driver's own limit, RTE_PMD_RING_MAX_RX_RINGS.
const QUEUES_MAX: usize = 16;

/// Creates a device that receives from some rings and sends into the others, and starts it.
fn join(
    eal: &Eal,
    name: &str,
    rx: &[Ring],
    tx: &[Ring],
    settings: &PortSettings,
) -> Result<Device, DpdkError> {
    let text = CString::new(name).map_err(|_| no_device(name, Errno::INVALID))?;
    let raw = |rings: &[Ring]| rings.iter().map(|ring| ring.0.as_ptr()).collect::<Vec<_>>();
    let (rx, tx, queues) = (raw(rx), raw(tx), rx.len() as u32);
    // SAFETY: the name and the lists are copied, and the rings outlive the device, which keeps the
    // link.
    let made = unsafe {
        let node = dpdk_sys::rte_socket_id();
        dpdk_sys::rte_eth_from_rings(text.as_ptr(), rx.as_ptr(), queues, tx.as_ptr(), queues, node)
    };
    if made < 0 {
        return Err(no_device(name, Errno::last()));
    }
    Device::start(eal, &format!("net_ring_{name}"), settings, queues as u16)
}

#[cold]
fn no_device(name: &str, errno: Errno) -> DpdkError {
    DpdkError::Device { device: name.into(), step: "be made from rings", errno }
}

/// The shared parts of a pair of ring ports. Dropped after both devices: frames in the rings return
/// to their pools, then the pools are freed.
pub(super) struct RingLink {
    _rings: [Vec<Ring>; 2],
    _pools: Vec<QueuePools>,
}

/// A ring of frame pointers, written by one port and read by the other.
struct Ring(NonNull<rte_ring>);

// SAFETY: a DPDK ring is shared memory with atomic indices; its one writer and one reader are the
// two ports.
unsafe impl Send for Ring {}
// SAFETY: no access through a shared reference exists here.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(name: &str, frames: u16) -> Result<Self, DpdkError> {
        let failed = |errno| DpdkError::Device { device: name.into(), step: "take memory for a ring", errno };
        let text = CString::new(name).map_err(|_| failed(Errno::INVALID))?;
        let flags = dpdk_sys::DSYS_RING_F_SP_ENQ | dpdk_sys::DSYS_RING_F_SC_DEQ;
        // A ring of n slots holds n - 1 pointers.
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
            // SAFETY: room for 32 pointers; each carries one reference to a live mbuf, dropped
            // here.
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
