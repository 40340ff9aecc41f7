//! What a device is started with, and what it counts.

/// The settings of a device.
#[derive(Clone, Debug)]
pub struct PortSettings {
    /// The largest network-layer packet, in bytes.
    pub mtu_bytes: u16,
    /// Descriptors of each receive queue, rounded to the device's limits.
    pub rx_ring_frames: u16,
    /// Descriptors of each transmit queue.
    pub tx_ring_frames: u16,
    /// Frames in each receive pool: the ring, and the frames that TCP may hold.
    pub rx_frames: u32,
    /// Frames in each transmit pool: the ring, and the frames that TCP retains until they are
    /// acknowledged.
    pub tx_frames: u32,
    /// Bytes for a frame in each buffer. Absent: as the MTU needs, at least 2048.
    pub room_bytes: Option<u16>,
    /// Whether frames for other stations are received too.
    pub promiscuous: bool,
    /// Whether multicast frames are received: IPv6 neighbour discovery needs them. A device without
    /// such a filter is set to receive all frames; one that supports neither is assumed to filter
    /// nothing.
    pub multicast: bool,
    /// Whether segments are joined before they are sent, and received in super-segments, if the
    /// device supports it, and TCP's checksum is left out between the ends of a ring pair.
    pub fast_path: bool,
    /// What may wake a thread that waits for frames of a queue.
    pub wakes: Wakes,
}

/// What may wake a thread that waits for frames of a queue ([`crate::Port::take_wake_source`]). A
/// device of which it cannot be had runs without.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wakes {
    /// Nothing: threads poll.
    #[default]
    Nothing,
    /// The files and sockets that a driver for interfaces of the kernel opens.
    Files,
    /// The receive interrupts of a card.
    Interrupts,
}

impl Default for PortSettings {
    fn default() -> Self {
        PortSettings {
            mtu_bytes: 1500,
            rx_ring_frames: 1024,
            tx_ring_frames: 1024,
            rx_frames: 8192,
            tx_frames: 8192,
            room_bytes: None,
            promiscuous: false,
            multicast: false,
            fast_path: false,
            wakes: Wakes::Nothing,
        }
    }
}

/// The device's own counters since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounts {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Frames lost because the ring was full.
    pub rx_missed: u64,
    /// Frames that arrived damaged.
    pub rx_errors: u64,
    /// Frames lost because the receive pool was empty.
    pub rx_no_buffer: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
}
