//! A received TCP segment in its frame.

use ironwarp_port::Frame;
use ironwarp_types::{Ecn, Flow, MacAddr};

/// A received TCP segment with correct link, IP and TCP checksums.
///
/// The TCP header is not parsed, but the segment has at least 20 bytes, and the data offset is
/// within the segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpSegment<F> {
    /// The whole frame, from the link header on.
    pub frame: F,
    /// The flow of the segment; `local` is our side.
    pub flow: Flow,
    /// [`FlowHasher::hash`](crate::FlowHasher::hash) of the flow.
    pub hash: u32,
    /// Offset of the TCP header in the frame, in bytes.
    pub l4_offset: u16,
    /// Offset of the end of the segment in the frame, in bytes. Link padding may follow.
    pub l4_end: u16,
    /// The link address of the sender.
    pub remote_mac: MacAddr,
    /// The ECN bits of the IP header.
    pub ecn: Ecn,
}

impl<F: Frame> TcpSegment<F> {
    /// Returns the segment: TCP header, options and payload.
    pub fn l4(&self) -> &[u8] {
        self.frame.bytes().get(usize::from(self.l4_offset)..usize::from(self.l4_end)).unwrap_or_default()
    }
}
