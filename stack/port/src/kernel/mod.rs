//! Interfaces of the Linux kernel without DPDK: a tap that this port opens, and a packet socket on
//! an interface that exists.
//!
//! Each frame crosses the kernel together with a header of virtio-net (`IFF_VNET_HDR`,
//! `PACKET_VNET_HDR`). So checksums are left to the kernel, and a TCP super-segment of up to 64 KiB
//! crosses in one call: [`Port::tx_burst`](crate::Port::tx_burst) joins consecutive segments of a
//! flow, and a received super-segment is one frame, longer than the MTU. Other ports receive no
//! such frames.
//!
//! A received frame lies in a buffer of its own: of the link's length, or of `LONG_BYTES` for a
//! super-segment. There are fewer long buffers; a super-segment that finds none is dropped and
//! counted, and TCP at the other end repeats it in segments. Frames that are too long, and headers
//! that cannot be true, are counted drops.
//!
//! Cost: one system call for each frame or super-segment, and one for a poll that finds nothing.
#![deny(unsafe_code)]

#[cfg(any(test, fuzzing))]
mod hostile;
mod port;
mod sys;
mod vnet;

#[cfg(fuzzing)]
pub use hostile::hostile_device;
pub use port::KernelPort;

use ironwarp_types::MacAddr;

/// An Ethernet header with one VLAN tag.
const LINK_BYTES_MAX: usize = 18;
/// The longest received frame: an IP packet of 65535 bytes and the link header.
const LONG_BYTES: usize = (u16::MAX as usize + LINK_BYTES_MAX).next_multiple_of(64);

/// How the frames of a port reach the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelDevice {
    /// A tap interface. It is created, unless a persistent one has this name. The kernel's end gets
    /// the port's MTU and is set up. The stack's own address is not the interface's.
    Tap,
    /// A packet socket on an existing interface, whose address is the port's.
    Packet,
}

/// A port on an interface of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelConfig {
    /// The kind of device.
    pub device: KernelDevice,
    /// The name of the interface.
    pub interface: String,
    /// The largest network-layer packet of the link, in bytes.
    pub mtu_bytes: u16,
    /// Buffers for received frames, for each queue. An eighth as many take super-segments.
    pub rx_frames: usize,
    /// Buffers for frames to send, for each queue.
    pub tx_frames: usize,
    /// Whether segments are joined before they are sent.
    pub joins_segments: bool,
}

/// The kernel refused a step.
#[derive(Debug, thiserror::Error)]
#[error("{interface}: cannot {step}: {source}")]
pub struct KernelError {
    /// The interface.
    pub interface: String,
    /// What was tried.
    pub step: &'static str,
    /// What the kernel reports.
    pub source: std::io::Error,
}

/// The address of a tap's port, unless the stack chooses one.
const TAP_MAC: MacAddr = MacAddr([0x02, 0xfe, 0, 0, 0, 3]);
