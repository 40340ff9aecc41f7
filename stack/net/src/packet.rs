//! A received packet of the transport in its frame.

use ironwarp_port::Frame;
use ironwarp_types::{Ecn, Flow, MacAddr};

/// A received packet of the transport with correct link and IP headers, and with the checksum that
/// its [`TransportProtocol`](crate::TransportProtocol) has.
///
/// Ports are read, the rest of the transport's header is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<F> {
    /// The whole frame, from the link header on.
    pub frame: F,
    /// The flow of the packet; `local` is our side.
    pub flow: Flow,
    /// [`FlowHasher::hash`](crate::FlowHasher::hash) of the flow.
    pub hash: u32,
    /// Offset of the transport's header in the frame, in bytes.
    pub l4_offset: u16,
    /// Offset of the end of the packet in the frame, in bytes. Link padding may follow.
    pub l4_end: u16,
    /// The link address of the sender.
    pub remote_mac: MacAddr,
    /// The ECN bits of the IP header.
    pub ecn: Ecn,
    /// The number of the transport's protocol.
    pub protocol: u8,
    /// The UDP port of the sender, if the packet was encapsulated in UDP (RFC 6951); else 0.
    pub udp_port: u16,
}

impl<F: Frame> Packet<F> {
    /// Returns the transport's header and payload.
    pub fn l4(&self) -> &[u8] {
        self.frame.bytes().get(usize::from(self.l4_offset)..usize::from(self.l4_end)).unwrap_or_default()
    }
}
