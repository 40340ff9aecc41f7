//! The header of virtio-net before each frame, and super-segments: several TCP segments that cross
//! the kernel as one frame.
//!
//! Takes frames to send, gives the header and the slices of one write. Takes the header of a
//! received frame, gives what is known of its checksums or the reason to drop it. The kernel is the
//! end of the link: it computes checksums where the data leaves the host, if it does.
//!
//! [`SuperSegment`] decides which segments join.
//!
//! Source: Virtio 1.2 s5.1.6 (`struct virtio_net_hdr`, in the byte order of the host).
#![forbid(unsafe_code)]

use arrayvec::ArrayVec;
use ironwarp_stats::Counter;
use ironwarp_types::limits::BURST_FRAMES;
use std::io::IoSlice;

use super::LINK_BYTES_MAX;
use crate::pool::PoolSealed;
use crate::super_segment::{SEGMENT_HEADERS_MAX, SuperSegment, TCP_CHECKSUM_AT, leaves_checksum};
use crate::{Checksum, RxMeta, Sealed, TxMeta};

/// The length of the header. There is no field for the number of buffers.
pub(super) const HEADER_BYTES: usize = 10;

/// [`Vnet::flags`]: the checksum at `csum_start` + `csum_offset` is the sum of the pseudo-header.
const NEEDS_CSUM: u8 = 1;
/// [`Vnet::flags`]: the sender or a card has verified the checksum.
const DATA_VALID: u8 = 2;
/// [`Vnet::gso_type`]: not a super-segment.
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// A bit of [`Vnet::gso_type`]: the first segment reports a reduced window.
const GSO_ECN: u8 = 0x80;

/// `struct virtio_net_hdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Vnet {
    pub(super) flags: u8,
    pub(super) gso_type: u8,
    pub(super) hdr_len: u16,
    pub(super) gso_size: u16,
    pub(super) csum_start: u16,
    pub(super) csum_offset: u16,
}

impl Vnet {
    pub(super) fn decode(&[flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1]: &[u8; HEADER_BYTES]) -> Self {
        Vnet {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// Returns the header of a frame that is sent alone.
    fn of(tx: TxMeta) -> Self {
        if !leaves_checksum(tx) {
            return Vnet::default();
        }
        Vnet {
            flags: NEEDS_CSUM,
            csum_start: u16::from(tx.l2_bytes) + u16::from(tx.l3_bytes),
            csum_offset: TCP_CHECKSUM_AT as u16,
            ..Vnet::default()
        }
    }

    /// Returns whether a received frame consists of several segments.
    pub(super) fn is_super_segment(&self) -> bool {
        self.gso_type != GSO_NONE
    }

    /// Returns what is known of the checksums of a received frame of `frame_bytes`.
    ///
    /// # Errors
    /// The reason to drop it: it is longer than the link's frames and no super-segment, or its
    /// header cannot be true.
    pub(super) fn verdict(&self, frame_bytes: usize, mtu_bytes: u16) -> Result<RxMeta, Counter> {
        match self.gso_type & !GSO_ECN {
            _ if self.gso_type == GSO_NONE => {
                if frame_bytes > usize::from(mtu_bytes) + LINK_BYTES_MAX {
                    return Err(Counter::PortRxTooLong);
                }
            }
            GSO_TCPV4 | GSO_TCPV6 => {
                let is_segment = (1..=mtu_bytes).contains(&self.gso_size);
                if !is_segment || usize::from(self.hdr_len) > frame_bytes {
                    return Err(Counter::PortRxBadOffload);
                }
            }
            _ => return Err(Counter::PortRxBadOffload),
        }
        let l4_checksum = match self.flags & (NEEDS_CSUM | DATA_VALID) {
            0 => Checksum::Unknown,
            DATA_VALID => Checksum::Good,
            _ => {
                let end = usize::from(self.csum_start) + usize::from(self.csum_offset) + 2;
                if end > frame_bytes {
                    return Err(Counter::PortRxBadOffload);
                }
                // A sum at another place is not TCP's, which is verified then.
                let is_tcp = usize::from(self.csum_offset) == TCP_CHECKSUM_AT;
                if is_tcp { Checksum::Good } else { Checksum::Unknown }
            }
        };
        Ok(RxMeta { l4_checksum, ..RxMeta::default() })
    }
}

/// What one write takes from the front of a burst.
pub(super) struct Write {
    /// The frames that it consists of.
    pub(super) frames: usize,
    /// The header of virtio-net, and of a super-segment those of its segment.
    front: ArrayVec<u8, { HEADER_BYTES + SEGMENT_HEADERS_MAX }>,
    /// Where the payload of each frame begins.
    payload_at: usize,
}

impl Write {
    /// Plans the next write. `joins`: segments become super-segments.
    #[inline]
    pub(super) fn next(frames: &[PoolSealed], joins: bool) -> Option<Self> {
        let vnet = Vnet::of(frames.first()?.tx());
        let Some(joined) = joins.then(|| SuperSegment::join(frames)).flatten() else {
            return Some(Write { frames: 1, front: vnet.encode().into_iter().collect(), payload_at: 0 });
        };
        let vnet = Vnet {
            gso_type: if joined.is_v6 { GSO_TCPV6 } else { GSO_TCPV4 },
            hdr_len: joined.headers.len() as u16,
            gso_size: joined.segment_bytes,
            ..vnet
        };
        let front = vnet.encode().into_iter().chain(joined.headers.iter().copied()).collect();
        Some(Write { frames: joined.frames, front, payload_at: joined.headers.len() })
    }

    /// Returns the slices of the write.
    #[inline]
    pub(super) fn slices<'a>(
        &'a self,
        frames: &'a [PoolSealed],
    ) -> ArrayVec<IoSlice<'a>, { BURST_FRAMES + 1 }> {
        let payloads = frames.iter().take(self.frames);
        let payloads = payloads.map(|frame| frame.bytes().get(self.payload_at..).unwrap_or_default());
        core::iter::once(&self.front[..]).chain(payloads).map(IoSlice::new).collect()
    }
}

#[cfg(test)]
#[path = "vnet_tests.rs"]
mod tests;
