//! In-order bytes of a byte stream, in FPDUs (RFC 5044 s6).

use ironwarp_arch::checksum;
use ironwarp_arch::one_pass::{BYTES_MIN, CrcAndSum, Kernel, PrefixCrc};
use ironwarp_llp::ByteStream;
use ironwarp_stats::Counter;

use crate::framing::Framing;
use crate::mpa::{Mpa, MpaFault, fpdu};
use crate::rdmap::TerminatedHeaders;
use crate::stream::{CompletionSink, Io, Stream, StreamCallbacks, StreamError};

impl<F: Framing + AsRef<Mpa> + AsMut<Mpa>> Stream<F> {
    /// Takes every whole FPDU from `bytes` and leaves incomplete ones. An FPDU in several pieces is
    /// gathered in `scratch`, the core's buffer of `FPDU_MARKED_BYTES_MAX` octets.
    ///
    /// An error is returned once. Afterwards all bytes are taken and dropped (RFC 5041 s7.1), so
    /// TCP continues to acknowledge and the Terminate can be delivered.
    pub fn on_readable<C: StreamCallbacks>(
        &mut self,
        bytes: &mut impl ByteStream,
        scratch: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        if !self.receiving {
            self.begin_receiving(bytes, io)?;
        }
        while self.receiving {
            let Some(size) = self.framing.as_ref().whole_fpdu_bytes(bytes) else { return Ok(()) };
            if let Some(out_of_order) = &mut self.out_of_order {
                out_of_order.on_next_in_order(size);
            }
            if bytes.front().len() < size {
                io.stats.count(Counter::IwarpRxFpdusReassembled);
            }
            let outcome = match self.framing.as_mut().decode(size, bytes, scratch) {
                Ok(ulpdu) => self.on_ulpdu(ulpdu, io),
                Err(fault) => Err(self.on_bad_fpdu(fault, io)),
            };
            bytes.consume(size);
            if outcome.is_err() {
                bytes.consume(bytes.available());
                return outcome;
            }
        }
        if self.has_ended() {
            bytes.consume(bytes.available());
        }
        Ok(())
    }

    /// [`Stream::on_readable`] for bytes in one piece, of a stream that
    /// [reads lent bytes](Stream::reads_lent_bytes). `crc` is that of the first FPDU, if it was
    /// computed before. Returns how many bytes the stream took: the others are no whole FPDU, or
    /// have to wait. Then [`Stream::state`] shows whether the stream ended, and [`Stream::error`]
    /// why.
    #[inline(always)]
    pub fn on_readable_fast<C: StreamCallbacks>(
        &mut self,
        bytes: &[u8],
        mut crc: PrefixCrc,
        io: &mut Io<'_, C>,
    ) -> usize {
        let mut rest = bytes;
        while self.receiving
            && let Some((whole, after)) = fpdu::split_whole(rest)
        {
            let outcome = match fpdu::decode_with(whole, self.framing.as_ref().crc, core::mem::take(&mut crc))
            {
                Ok(ulpdu) => self.on_ulpdu(ulpdu, io),
                Err(fault) => Err(self.on_bad_fpdu(fault, io)),
            };
            debug_assert!(outcome.is_ok() || self.has_ended());
            rest = after;
        }
        if self.has_ended() {
            return bytes.len();
        }
        // `rest` is the end of `bytes`.
        bytes.len().wrapping_sub(rest.len())
    }

    /// Returns whether the stream may take bytes that are not in TCP's queue: in full operation,
    /// without markers and without out-of-order placement.
    #[inline]
    pub fn reads_lent_bytes(&self) -> bool {
        self.receiving
            && self.may_send()
            && self.framing.as_ref().rx_markers.is_none()
            && self.out_of_order.is_none()
    }

    /// Returns the CRC of the first FPDU of `payload` and the sum of all of `payload`, from one
    /// pass over both. `None` if the FPDU is short or incomplete, if CRCs are off, or if the
    /// processor needs two passes.
    pub fn sum_with_crc(&self, payload: &[u8]) -> Option<(u32, PrefixCrc)> {
        let kernel = Kernel::detect().filter(|_| self.fast.on && self.framing.as_ref().crc)?;
        // A multiple of four, so the sum behind it begins at an even offset.
        let bytes = fpdu::covered_bytes(payload);
        let (covered, rest) = payload.split_at_checked(bytes).filter(|_| bytes >= BYTES_MIN)?;
        let CrcAndSum { crc, sum } = kernel.read(0, covered);
        Some((sum + checksum::sum(rest), PrefixCrc { bytes: bytes as u32, crc }))
    }

    /// RFC 5044 s8: neither this FPDU nor anything after it is used. A responder's gate opens all
    /// the same: otherwise the Terminate could not be sent.
    #[cold]
    fn on_bad_fpdu<C: CompletionSink>(&mut self, fault: MpaFault, io: &mut Io<'_, C>) -> StreamError {
        self.sender.open_gate();
        io.stats.count(Counter::IwarpRxFpdus);
        let counter = match fault {
            MpaFault::Marker => Counter::IwarpRxMarkerErrors,
            MpaFault::Crc => Counter::IwarpRxCrcErrors,
            _ => Counter::IwarpLocalErrors,
        };
        io.stats.count(counter);
        self.fail(fault, TerminatedHeaders::default(), io)
    }
}
