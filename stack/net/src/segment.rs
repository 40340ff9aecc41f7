//! A TCP segment that arrived, still in its frame.

use ironwarp_port::Frame;
use ironwarp_types::{Ecn, Flow, MacAddr};

/// A received TCP segment whose link, IP and TCP checksums hold.
///
/// The TCP header is not parsed, but twenty bytes of it are there, and its data offset lies within the segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpSegment<F> {
    /// The frame, from the link header.
    pub frame: F,
    /// The connection it belongs to, seen from here.
    pub flow: Flow,
    /// [`FlowHasher::hash`](crate::FlowHasher::hash) of the flow.
    pub hash: u32,
    /// Where the TCP header begins in the frame, in bytes.
    pub l4_offset: u16,
    /// Where the segment ends in the frame, in bytes. Link padding lies beyond it.
    pub l4_end: u16,
    /// Where the frame came from on the link.
    pub remote_mac: MacAddr,
    /// The congestion bits of the IP header.
    pub ecn: Ecn,
}

impl<F: Frame> TcpSegment<F> {
    /// The segment: TCP header, options and payload.
    pub fn l4(&self) -> &[u8] {
        self.frame.bytes().get(usize::from(self.l4_offset)..usize::from(self.l4_end)).unwrap_or_default()
    }
}
