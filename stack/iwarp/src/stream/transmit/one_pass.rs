//! FPDUs whose payload is copied, checked and summed in one pass.
//!
//! Apart, the copy, the CRC and TCP's checksum read a long payload three times. One pass needs the headers of the FPDU
//! before its payload, and no pad behind it, which only the last segment of a message may have.

use ironwarp_arch::one_pass::{BYTES_MIN, CrcAndSum, Kernel};
use ironwarp_arch::{checksum, crc32c};

use crate::completion::CompletionStatus;
use crate::mpa::fpdu::{CRC_BYTES, LENGTH_BYTES};
use crate::stream::Stream;
use crate::stream::cursor::MemoryView;
use crate::wr::SendWqe;

/// The offsets of an FPDU's parts in a segment.
pub(super) struct OnePassFpdu<'a> {
    kernel: Kernel,
    /// Length field and headers.
    head: &'a mut [u8],
    payload: &'a mut [u8],
    crc: &'a mut [u8; CRC_BYTES],
}

/// An FPDU that is complete.
pub(super) struct Written {
    /// Its length.
    bytes: usize,
    /// The sum of its words, for TCP's checksum.
    sum: u32,
}

impl<'a> OnePassFpdu<'a> {
    /// Returns an FPDU at the front of `room`, or `None` if it takes several passes.
    #[inline(always)]
    pub(super) fn new(room: &'a mut [u8], header_bytes: usize, payload_bytes: usize) -> Option<Self> {
        if payload_bytes < BYTES_MIN { None } else { Self::of_long(room, header_bytes, payload_bytes) }
    }

    fn of_long(room: &'a mut [u8], header_bytes: usize, payload_bytes: usize) -> Option<Self> {
        let length = u16::try_from(header_bytes + payload_bytes).ok()?;
        let covered_bytes = LENGTH_BYTES + usize::from(length);
        let kernel = Kernel::detect().filter(|_| covered_bytes.is_multiple_of(CRC_BYTES))?;
        let fpdu = room.get_mut(..covered_bytes + CRC_BYTES)?;
        let (covered, crc) = fpdu.split_last_chunk_mut::<CRC_BYTES>()?;
        let (head, payload) = covered.split_at_mut_checked(LENGTH_BYTES + header_bytes)?;
        *head.first_chunk_mut()? = length.to_be_bytes();
        Some(OnePassFpdu { kernel, head, payload, crc })
    }

    /// Returns the bytes of the headers. They must be written before the payload.
    pub(super) fn header(&mut self) -> &mut [u8] {
        self.head.get_mut(LENGTH_BYTES..).unwrap_or_default()
    }

    /// Copies the payload with `copy`, which continues a CRC, and completes the FPDU.
    pub(super) fn complete<E>(
        self,
        copy: impl FnOnce(Kernel, u32, &mut [u8]) -> Result<CrcAndSum, E>,
    ) -> Result<Written, E> {
        let OnePassFpdu { kernel, head, payload, crc: field } = self;
        let CrcAndSum { crc, sum } = copy(kernel, crc32c(head), payload)?;
        *field = crc.to_le_bytes();
        // All three have even lengths.
        let sum = checksum::sum(head) + sum + checksum::sum(field);
        Ok(Written { bytes: head.len() + payload.len() + CRC_BYTES, sum })
    }
}

impl Stream {
    /// Writes a segment of a Send or Write whose payload is long. Returns its length.
    #[inline(never)]
    pub(super) fn message_in_one_pass(
        &mut self,
        mut fpdu: OnePassFpdu<'_>,
        wqe: &SendWqe,
        view: MemoryView<'_>,
        last: bool,
    ) -> Result<usize, CompletionStatus> {
        self.message_header(wqe, last, fpdu.header());
        let cursor = &mut self.sender.cursor;
        let written = fpdu.complete(|kernel, crc, payload| {
            cursor.gather_in_one_pass(wqe.gather(), view, payload, (kernel, crc))
        });
        Ok(self.on_written(written.map_err(|_| CompletionStatus::LocalProtection)?))
    }

    /// Accounts for an FPDU. Returns its length.
    pub(super) fn on_written(&mut self, written: Written) -> usize {
        self.sender.unit_sum = Some(written.sum);
        self.send_progress.on_pulled(written.bytes);
        written.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_fpdu_takes_one_pass_in_room_of_its_length() {
        let (header_bytes, payload_bytes) = (14, 1400);
        let bytes = LENGTH_BYTES + header_bytes + payload_bytes + CRC_BYTES;
        let mut room = vec![0; 3 * bytes];
        for room_bytes in [bytes, 3 * bytes] {
            let fpdu = OnePassFpdu::new(&mut room[..room_bytes], header_bytes, payload_bytes);
            assert_eq!(fpdu.is_some(), Kernel::detect().is_some());
            assert!(fpdu.is_none_or(|mut fpdu| {
                (fpdu.header().len(), fpdu.payload.len()) == (header_bytes, payload_bytes)
            }));
        }
        assert!(OnePassFpdu::new(&mut room[..bytes - 1], header_bytes, payload_bytes).is_none());
    }
}
