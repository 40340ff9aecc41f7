//! How a lower layer carries DDP segments: the frame around each.
//!
//! [`Mpa`](crate::mpa::Mpa) frames them for a byte stream: length, pad, CRC and markers (RFC 5044).
//! [`SegmentChunk`](crate::sctp::SegmentChunk) numbers them for messages that arrive in any order
//! (RFC 5043). A lower layer whose messages have boundaries, an order and a digest needs no frame.
//! A [`Stream`](crate::Stream) is generic over it, so no call is dynamic.

use ironwarp_arch::one_pass::{CrcAndSum, Kernel};
use ironwarp_arch::{checksum, crc32c};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The frame around the segments of a stream, in both directions.
pub trait Framing: Default + Serialize + DeserializeOwned {
    /// Returns the octets of a frame in front of its ULPDU, the DDP segment.
    fn head_bytes(&self) -> usize;

    /// Returns the octets of a frame beside its ULPDU, at least.
    fn overhead_bytes(&self) -> usize;

    /// Returns whether a unit of the lower layer may have several frames. Otherwise each is a
    /// message of its own.
    fn shares_units(&self) -> bool;

    /// Returns whether frames are accepted from the start. MPA checks the first octets.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns how many of `room` octets frames may use: all that no marker may take, or none while
    /// no frame may be sent.
    fn usable(&self, room: usize) -> usize {
        room
    }

    /// Returns MULPDU, the longest ULPDU of a frame in `usable` octets (RFC 5041 s3, requirement
    /// 1).
    fn mulpdu(&self, usable: usize) -> usize;

    /// Returns whether a frame with a ULPDU of `ulpdu_bytes` octets fits in `usable` octets.
    #[inline(always)]
    fn fits(&self, ulpdu_bytes: usize, usable: usize) -> bool {
        ulpdu_bytes <= self.mulpdu(usable)
    }

    /// Completes the frame whose ULPDU of `ulpdu_bytes` octets is behind its head in `room`.
    /// Returns its length, or 0 if `room` is too short; then nothing has changed.
    fn complete(&mut self, room: &mut [u8], ulpdu_bytes: usize) -> usize;

    /// Returns whether the fast path may write frames, with [`Framing::complete_fast`].
    fn is_fast(&self) -> bool;

    /// [`Framing::complete`] of a framing that [is fast](Framing::is_fast), or 0 while no frame may
    /// be sent. With `SUMMED` it may also return the sum of the words of a short frame (RFC 1071),
    /// if one pass gives both.
    fn complete_fast<const SUMMED: bool>(
        &mut self,
        room: &mut [u8],
        ulpdu_bytes: usize,
    ) -> (usize, Option<u32>);

    /// The peer has acknowledged `total_bytes` of the stream, in the order in which they were sent.
    #[inline(always)]
    fn on_acked(&mut self, total_bytes: u64) {
        let _ = total_bytes;
    }

    /// Returns a frame at the front of `room` whose payload is copied, checked and summed in one
    /// pass; `None` if it takes several passes. The ULPDU is `header_bytes` of headers and
    /// `payload_bytes` of payload.
    fn in_one_pass<'a>(
        &self,
        room: &'a mut [u8],
        header_bytes: usize,
        payload_bytes: usize,
    ) -> Option<OnePassFrame<'a>>;

    /// Returns whether frames that arrive out of order can be told apart, so that their payload may
    /// be placed before their predecessors arrive (RFC 5041 s3, requirement 5).
    fn finds_frames_out_of_order(&self) -> bool;
}

/// The most octets in front of a payload: those of the longest DDP header and of a length.
const HEAD_BYTES_MAX: usize = 32;

/// A frame that ends in a CRC-32C, before its headers and its payload are written.
pub struct OnePassFrame<'a> {
    kernel: Kernel,
    /// What is in front of the ULPDU, and the headers: here until the frame is complete, since to
    /// read them back from the frame would wait for its cache line.
    head: [u8; HEAD_BYTES_MAX],
    headers_at: usize,
    /// Where they go.
    place: &'a mut [u8],
    payload: &'a mut [u8],
    crc: &'a mut [u8; size_of::<u32>()],
}

impl<'a> OnePassFrame<'a> {
    /// Returns the frame in `frame`, all of it: `front`, headers of `header_bytes`, the payload,
    /// the CRC. All lengths are even. `None` if the processor needs several passes, or the headers
    /// are longer than any.
    pub fn new(frame: &'a mut [u8], front: &[u8], header_bytes: usize) -> Option<Self> {
        let kernel = Kernel::detect()?;
        let (covered, crc) = frame.split_last_chunk_mut()?;
        let headers_at = front.len();
        let (place, payload) = covered.split_at_mut_checked(headers_at + header_bytes)?;
        let mut head = [0; HEAD_BYTES_MAX];
        head.get_mut(..place.len())?.get_mut(..headers_at)?.copy_from_slice(front);
        Some(OnePassFrame { kernel, head, headers_at, place, payload, crc })
    }

    /// Returns the octets of the headers. They must be written before the payload.
    pub fn headers(&mut self) -> &mut [u8] {
        self.head.get_mut(self.headers_at..self.place.len()).unwrap_or_default()
    }

    /// Copies the payload with `copy`, which continues a CRC, and completes the frame. Returns its
    /// length and the sum of its words.
    pub fn complete<E>(
        self,
        copy: impl FnOnce(Kernel, u32, &mut [u8]) -> Result<CrcAndSum, E>,
    ) -> Result<(usize, u32), E> {
        let OnePassFrame { kernel, head, place, payload, crc: field, .. } = self;
        let head = head.get(..place.len()).unwrap_or_default();
        place.copy_from_slice(head);
        let CrcAndSum { crc, sum } = copy(kernel, crc32c(head), payload)?;
        *field = crc.to_le_bytes();
        // All three have even lengths.
        let sum = checksum::sum(head) + sum + checksum::sum(&crc.to_le_bytes());
        Ok((place.len() + payload.len() + field.len(), sum))
    }
}
