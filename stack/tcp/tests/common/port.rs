//! The in-memory port of a node, whose sent frames the test inspects and whose pool it can exhaust.

use ironwarp_port::memory::{self, FarEnd, MemoryConfig, MemoryControl, MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame};
use ironwarp_types::MacAddr;

/// Frames of each pool and ring: more than the window of a long path holds.
const FRAMES: usize = 8_192;

/// The test's handle of a port that the engine owns.
pub struct PortHandle {
    control: MemoryControl,
    far: FarEnd,
}

/// Returns a port without offloads, and its handle.
pub fn port(mac: MacAddr, mtu_bytes: u16) -> (MemoryPort, PortHandle) {
    let config = MemoryConfig {
        mac,
        mtu_bytes,
        rx_frames: FRAMES,
        tx_frames: FRAMES,
        rx_ring_frames: FRAMES,
        ..MemoryConfig::default()
    };
    let (port, far) = memory::detached(&config);
    let control = port.control();
    (port, PortHandle { control, far })
}

/// Returns an arriving frame, in a buffer of the usual size or larger if needed.
pub fn arrived(bytes: &[u8]) -> MemoryFrame {
    MemoryFrame::unpooled(bytes, 2_048)
}

impl PortHandle {
    pub fn set_may_alloc(&self, may: bool) {
        self.control.allow_allocations(if may { u64::MAX } else { 0 });
    }

    pub fn set_may_send(&self, may: bool) {
        self.control.limit_tx_burst(if may { u64::MAX } else { 0 });
    }

    /// Returns the number of transmit frames in use.
    pub fn in_use(&self) -> usize {
        FRAMES - self.control.free_frames().tx
    }

    /// Removes the frames that the port has sent, up to a burst.
    pub fn collect(&mut self) -> Vec<Vec<u8>> {
        let mut burst = Burst::new();
        self.far.collect(&mut burst);
        burst.iter().map(|frame| frame.bytes().to_vec()).collect()
    }
}
