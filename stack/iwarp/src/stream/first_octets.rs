//! A check of the first octets of full operation, for a peer that is still in start-up.
//!
//! A second Request or Reply Frame in place of the first FPDU would look like the start of an FPDU
//! of 19 792 octets, and the stream would wait for it. No FPDU begins with these octets, because
//! the fourth would have an unknown RDMAP version. The check runs once for each stream.

use ironwarp_llp::ByteStream;
use ironwarp_stats::Counter;

use super::{CompletionSink, Io, Stream, StreamError, StreamState};
use crate::framing::Framing;
use crate::mpa::startup::frame::KEY_PREFIX;
use crate::mpa::{Mpa, MpaFault};
use crate::rdmap::TerminatedHeaders;

impl<F: Framing + AsRef<Mpa> + AsMut<Mpa>> Stream<F> {
    /// Bytes arrived while FPDUs are not accepted: a delivery may be pending, or these are the
    /// first octets.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_receiving<C: CompletionSink>(
        &mut self,
        bytes: &mut impl ByteStream,
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        self.resume_delivery(io);
        let mut first = [0; KEY_PREFIX.len()];
        if !self.framing.as_ref().awaits_first_octets
            || self.state != StreamState::Open
            || !bytes.peek(&mut first)
        {
            return Ok(());
        }
        self.framing.as_mut().awaits_first_octets = false;
        self.receiving = first != KEY_PREFIX;
        if self.receiving {
            return Ok(());
        }
        // RFC 5044 s8, code 4: TCP is closed without a Terminate.
        bytes.consume(bytes.available());
        io.stats.count(Counter::IwarpStartupErrors);
        Err(self.fail(MpaFault::Startup, TerminatedHeaders::default(), io))
    }

    /// Returns whether FPDUs are accepted now or will be after the first octets.
    pub(super) fn accepts_fpdus(&self) -> bool {
        self.receiving || (self.framing.as_ref().awaits_first_octets && self.state == StreamState::Open)
    }
}
