//! The receiving side where we asked for markers (RFC 5044 s4.3, s6).
//!
//! The same steps as without: whole FPDUs are taken, what is not whole stays with TCP. Each one's markers are checked
//! behind its CRC and taken out: into the core's scratch when it lies in one piece, in the scratch when it was gathered
//! there. Costs one more copy of an FPDU with a marker inside than a stream without markers does.

use ironwarp_stats::Counter;
use ironwarp_tcp::ByteStream;

use super::{CompletionSink, Io, Stream, StreamError, StreamState};
use crate::ddp::DdpFault;
use crate::rdmap::Offender;

impl Stream {
    /// [`Stream::on_readable`] for a stream with markers.
    pub(super) fn on_marked<C: CompletionSink>(
        &mut self,
        bytes: &mut impl ByteStream,
        scratch: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        while self.reading {
            let Some(size) = self.rx_markers.and_then(|rhythm| rhythm.arrived(bytes)) else { return Ok(()) };
            let outcome = self.on_marked_fpdu(size, bytes, scratch, io);
            bytes.consume(size);
            if outcome.is_err() {
                bytes.consume(bytes.available());
                return outcome;
            }
        }
        if matches!(self.state, StreamState::Terminating | StreamState::Ended) {
            bytes.consume(bytes.available());
        }
        Ok(())
    }

    fn on_marked_fpdu<C: CompletionSink>(
        &mut self,
        size: usize,
        bytes: &impl ByteStream,
        scratch: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        let Some(rhythm) = &mut self.rx_markers else { return Ok(()) };
        let opened = match bytes.front().get(..size) {
            Some(whole) => rhythm.open(whole, scratch, self.crc),
            None => {
                io.stats.count(Counter::IwarpRxFpdusGathered);
                match scratch.get_mut(..size).map(|whole| (bytes.peek(whole), whole)) {
                    Some((true, whole)) => rhythm.open_gathered(whole, self.crc),
                    _ => return Err(self.fail(DdpFault::LocalCatastrophic, Offender::default(), io)),
                }
            }
        };
        self.on_opened(opened, io)
    }
}
