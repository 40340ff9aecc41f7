//! The first octets of full operation, which may show that the peer never left start-up.
//!
//! A second Request or Reply Frame where the first FPDU should be would be taken for the start of an FPDU of 19 792
//! octets and waited for. No FPDU begins like that: the fourth octet would be of an RDMAP version that there is not.
//! Looked at once a stream, outside the path of every later arrival.

use ironwarp_stats::Counter;
use ironwarp_tcp::ByteStream;

use super::{CompletionSink, Io, Stream, StreamError, StreamState};
use crate::mpa::MpaFault;
use crate::mpa::startup::frame::KEY_PREFIX;
use crate::rdmap::TerminatedHeaders;
use crate::terminate::Terminate;

impl Stream {
    /// Bytes have come while FPDUs are not taken: a delivery may be held, or these may be the first.
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

    /// Whether FPDUs are taken, or will be once the first octets have come.
    pub(super) fn accepts_fpdus(&self) -> bool {
        self.receiving || (self.awaits_first_octets && self.state == StreamState::Open)
    }

    /// RFC 5044 s8, code 4: TCP is closed without a word.
    fn on_repeated_startup_frame<C: CompletionSink>(
        &mut self,
        bytes: &mut impl ByteStream,
        io: &mut Io<'_, C>,
    ) -> StreamError {
        bytes.consume(bytes.available());
        io.stats.count(Counter::IwarpStartupErrors);
        self.fail(MpaFault::Startup, TerminatedHeaders::default(), io)
    }

    /// Whether the peer may be sent a Terminate that names `error`. RFC 5044 s7.1.2: a responder that has seen no FPDU
    /// may not send one, not even a Terminate; s8: nor does who finds fault with a start-up frame.
    pub fn may_send_terminate(&self, error: Terminate) -> bool {
        self.sender.may_send() && error != MpaFault::Startup.into()
    }
}
