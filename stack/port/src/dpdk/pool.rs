//! Pools of mbufs.
//!
//! Each port has one for receiving and one for sending, so that neither direction starves the
//! other. A frame knows its pool, not the reverse. So a pool that is dropped while frames are in
//! use stays mapped.

use core::ptr::NonNull;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dpdk_sys::rte_mempool;

use super::{DpdkError, Errno};

/// The headroom that DPDK reserves before a frame, for headers of a driver.
pub(super) const HEADROOM_BYTES: u16 = dpdk_sys::DSYS_PKTMBUF_HEADROOM as u16;

/// Frames in each thread's cache; at most 1.5 times as many, by DPDK's rule.
const CACHE_FRAMES: u32 = 256;
/// Below this size the caches would hold a large part of the pool.
const CACHED_FROM_FRAMES: u32 = 8 * CACHE_FRAMES;

/// Numbers of the process's pools: their names are global.
static NEXT_POOL: AtomicU32 = AtomicU32::new(0);

/// Whether a pool was leaked because frames of it were in use.
static KEPT: AtomicBool = AtomicBool::new(false);

pub(super) fn any_kept() -> bool {
    KEPT.load(Ordering::Acquire)
}

/// A fixed number of mbufs of one size.
pub(super) struct Pool {
    raw: NonNull<rte_mempool>,
    frames: u32,
}

// SAFETY: DPDK's mempools may be called from any thread; no state here belongs to the creating
// thread.
unsafe impl Send for Pool {}
// SAFETY: as above: the only calls through a shared reference are counting and the pool's own
// thread-safe operations.
unsafe impl Sync for Pool {}

/// The dimensions of a pool.
#[derive(Clone, Copy)]
pub(super) struct PoolShape {
    pub frames: u32,
    /// Bytes of each frame, headroom included.
    pub room_bytes: u16,
    /// The memory node, or any.
    pub numa_node: Option<u16>,
    /// Whether each frame fills a page, if pages are ordinary ones.
    pub page_each: bool,
}

impl Pool {
    /// Allocates the memory. `device` is only for the error.
    pub(super) fn new(device: &str, shape: PoolShape) -> Result<Self, DpdkError> {
        let PoolShape { frames, room_bytes, numa_node, page_each } = shape;
        let failed = |errno| DpdkError::Pool { device: device.into(), frames, room_bytes, errno };
        let name = CString::new(format!("ironwarp-{}", NEXT_POOL.fetch_add(1, Ordering::Relaxed)))
            .map_err(|_| failed(Errno::INVALID))?;
        let cache_frames = if frames < CACHED_FROM_FRAMES { frames / 8 } else { CACHE_FRAMES };
        let shape = dpdk_sys::dsys_pool_shape {
            frames,
            cache_frames,
            room_bytes,
            page_each: page_each.into(),
            numa_node: numa_node.map_or(dpdk_sys::DSYS_SOCKET_ID_ANY, i32::from),
        };
        // SAFETY: the name and the shape are copied; the EAL runs, since the caller holds a handle
        // to it.
        let raw = unsafe { dpdk_sys::dsys_pool_create(name.as_ptr(), &shape) };
        NonNull::new(raw).map(|raw| Pool { raw, frames }).ok_or_else(|| failed(Errno::last()))
    }

    /// Returns the pointer for DPDK's calls.
    pub(super) fn as_ptr(&self) -> *mut rte_mempool {
        self.raw.as_ptr()
    }

    /// Returns the frames in the pool, thread caches included. Walks the caches: not for the data
    /// path.
    pub(super) fn available(&self) -> u32 {
        // SAFETY: the pool lives as long as `self`.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.as_ptr()) }
    }

    /// Returns the total number of frames.
    pub(super) fn frames(&self) -> u32 {
        self.frames
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.available() == self.frames {
            // SAFETY: every frame is back, so no pointer into the pool exists; its device was
            // closed before.
            unsafe { dpdk_sys::rte_mempool_free(self.as_ptr()) };
        } else {
            KEPT.store(true, Ordering::Release);
        }
    }
}
