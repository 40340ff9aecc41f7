//! A check of the first octets of full operation, for a peer that is still in start-up.
//!
//! A second Request or Reply Frame in place of the first FPDU would look like the start of an FPDU of 19 792 octets,
//! and the stream would wait for it. No FPDU begins with these octets, because the fourth would have an unknown RDMAP
//! version. The check runs once for each stream.

use ironwarp_llp::ByteStream;
use ironwarp_stats::Counter;

use super::{CompletionSink, Io, Stream, StreamError, StreamState};
use crate::mpa::MpaFault;
use crate::mpa::startup::frame::KEY_PREFIX;
use crate::rdmap::TerminatedHeaders;
use crate::terminate::Terminate;

impl Stream {
    /// Bytes arrived while FPDUs are not accepted: a delivery may be pending, or these are the first octets.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_receiving<C: CompletionSink>(
        &mut self,
        bytes: &mut impl ByteStream,
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        if self.pending_delivery.is_some() {
            self.resume_delivery(io);
        }
        let mut first = [0; KEY_PREFIX.len()];
        if !self.awaits_first_octets || self.state != StreamState::Open || !bytes.peek(&mut first) {
            return Ok(());
        }
        self.awaits_first_octets = false;
        self.receiving = first != KEY_PREFIX;
        if self.receiving { Ok(()) } else { Err(self.on_repeated_startup_frame(bytes, io)) }
    }

    /// Returns whether FPDUs are accepted now or will be after the first octets.
    pub(super) fn accepts_fpdus(&self) -> bool {
        self.receiving || (self.awaits_first_octets && self.state == StreamState::Open)
    }

    /// RFC 5044 s8, code 4: TCP is closed without a Terminate.
    fn on_repeated_startup_frame<C: CompletionSink>(
        &mut self,
        bytes: &mut impl ByteStream,
        io: &mut Io<'_, C>,
    ) -> StreamError {
        bytes.consume(bytes.available());
        io.stats.count(Counter::IwarpStartupErrors);
        self.fail(MpaFault::Startup, TerminatedHeaders::default(), io)
    }

    /// Returns whether a Terminate with `error` may be sent. RFC 5044 s7.1.2: a responder that has received no FPDU
    /// may not send one, not even a Terminate. s8: no Terminate is sent for a wrong start-up frame.
    pub fn may_send_terminate(&self, error: Terminate) -> bool {
        self.sender.may_send() && error != MpaFault::Startup.into()
    }
}
