//! One client at the server: its last message, and the next step.
//!
//! ```text
//! Source ── advertisement: Read ──▸ Reading ── it is here: Send ──▸ Sink ── advertisement: Write, Send ──▸ Writing
//!    ▴                                                                                                       │
//!    └─────────────────────────────── both are complete: one more ping ──────────────────────────────────────┘
//! ```
//!
//! The Write and the Send after it are posted together: the Send is delivered after the data of the
//! Write (RFC 5040 s5.5). A client may begin its next ping before our completions arrive; that one
//! message is kept.

use core::net::SocketAddr;
use std::time::Instant;

use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionStatus, DisconnectReason, PostError, QueuePair, Region,
    SendWr, Terminate, VerbsError,
};
use ironwarp_cli::print_stdout;

use crate::TEXT_BYTES_MAX;
use crate::endpoint::{Endpoint, PingError};
use crate::message::{
    Advertisement, EMPTY_MESSAGE, Fault, MESSAGE_BYTES, RECEIVE_BYTES, check_completion, check_text,
    disconnect_text, printable,
};
use crate::server::ServerConfig;

/// The step that a session waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The client's advertisement of its text.
    Source,
    Reading,
    /// The client's advertisement of its sink.
    Sink,
    /// The completion of the Write and the Send.
    Writing,
}

/// A client.
pub(crate) struct Session {
    config: ServerConfig,
    pub(crate) qp: QueuePair,
    pub(crate) remote: SocketAddr,
    pub(crate) pings: u64,
    pub(crate) bytes: u64,
    step: Step,
    text: u32,
    /// A message that arrived early.
    queued_message: Option<[u8; MESSAGE_BYTES]>,
    texts: Region,
    /// A text and its expected contents, when texts are printed or verified.
    text_copy: Vec<u8>,
    messages: Region,
    terminate: Option<(bool, Terminate)>,
    last_activity: Instant,
}

impl Session {
    /// Creates a client's memory and queue pair and posts its receives.
    pub(crate) fn new(
        endpoint: &mut Endpoint,
        config: ServerConfig,
        remote: SocketAddr,
    ) -> Result<Self, VerbsError> {
        let texts =
            endpoint.ctx.register(endpoint.pd, vec![0; config.bytes_max as usize], Access::LOCAL_WRITE)?;
        let (qp, messages) = endpoint.create_qp()?;
        Ok(Session {
            config,
            qp,
            remote,
            pings: 0,
            bytes: 0,
            step: Step::Source,
            text: 0,
            queued_message: None,
            texts,
            text_copy: if config.inspects_text() {
                vec![0; config.bytes_max as usize * 2]
            } else {
                Vec::new()
            },
            messages,
            terminate: None,
            last_activity: Instant::now(),
        })
    }

    pub(crate) fn on_completion(
        &mut self,
        endpoint: &mut Endpoint,
        completion: &Completion,
    ) -> Result<(), PingError> {
        self.last_activity = Instant::now();
        match (completion.status, completion.opcode) {
            (CompletionStatus::Success, CompletionOpcode::Receive) => self.on_receive(endpoint, completion),
            (CompletionStatus::Success, CompletionOpcode::Read) => self.on_read(endpoint),
            (CompletionStatus::Success, _) => self.on_write(endpoint),
            _ => Ok(check_completion(completion, self.pings)?),
        }
    }

    fn on_receive(&mut self, endpoint: &mut Endpoint, completion: &Completion) -> Result<(), PingError> {
        if completion.byte_len as usize != MESSAGE_BYTES {
            return Err(Fault::Length(completion.byte_len).into());
        }
        let slot = completion.wr_id as usize;
        let mut message = EMPTY_MESSAGE;
        self.messages.read_at(slot * RECEIVE_BYTES, &mut message)?;
        endpoint.post_receive(self.qp, &self.messages, slot)?;
        self.on_message(endpoint, &message)
    }

    fn on_message(
        &mut self,
        endpoint: &mut Endpoint,
        message: &[u8; MESSAGE_BYTES],
    ) -> Result<(), PingError> {
        match self.step {
            Step::Source => self.on_source(endpoint, message),
            Step::Sink => self.on_sink(endpoint, message),
            Step::Writing if self.queued_message.is_none() => {
                self.queued_message = Some(*message);
                Ok(())
            }
            Step::Writing | Step::Reading => Err(Fault::UnexpectedMessage.into()),
        }
    }

    /// The client advertised its text: reads it.
    fn on_source(&mut self, endpoint: &mut Endpoint, message: &[u8; MESSAGE_BYTES]) -> Result<(), PingError> {
        let source = Advertisement::decode(message, self.config.bytes_max)?;
        if let Some(wanted) = self.config.count.filter(|count| self.pings >= *count) {
            return Err(Fault::Count { came: self.pings + 1, wanted }.into());
        }
        self.text = source.bytes;
        self.step = Step::Reading;
        let sink = [self.texts.slice(0, self.text)?];
        self.post(endpoint, &[SendWr::read(0, &sink, source.at)])
    }

    /// The text has arrived: notifies the client.
    fn on_read(&mut self, endpoint: &mut Endpoint) -> Result<(), PingError> {
        self.inspect_text()?;
        self.step = Step::Sink;
        self.post(endpoint, &[SendWr::send_inline(0, &EMPTY_MESSAGE).unsignaled()])
    }

    fn inspect_text(&mut self) -> Result<(), PingError> {
        if !self.config.inspects_text() {
            return Ok(());
        }
        let (text, wanted) = self.text_copy.split_at_mut(self.text as usize);
        self.texts.read_at(0, text)?;
        if self.config.verbose {
            print_stdout(format_args!("server ping data: {}\n", printable(text)));
        }
        if self.config.verify {
            check_text(self.pings, text, &mut wanted[..self.text as usize])?;
        }
        Ok(())
    }

    /// Writes the text to the advertised sink and notifies the client.
    fn on_sink(&mut self, endpoint: &mut Endpoint, message: &[u8; MESSAGE_BYTES]) -> Result<(), PingError> {
        let sink = Advertisement::decode(message, TEXT_BYTES_MAX)?;
        if sink.bytes < self.text {
            return Err(Fault::SinkTooSmall { sink_bytes: sink.bytes, text: self.text }.into());
        }
        self.step = Step::Writing;
        let source = [self.texts.slice(0, self.text)?];
        // Requests complete in order, so the Send's completion covers the Write.
        self.post(
            endpoint,
            &[SendWr::write(0, &source, sink.at).unsignaled(), SendWr::send_inline(0, &EMPTY_MESSAGE)],
        )
    }

    /// The client has its text back.
    fn on_write(&mut self, endpoint: &mut Endpoint) -> Result<(), PingError> {
        self.pings += 1;
        self.bytes += u64::from(self.text);
        self.step = Step::Source;
        match self.queued_message.take() {
            Some(message) => self.on_message(endpoint, &message),
            None => Ok(()),
        }
    }

    fn post(&self, endpoint: &mut Endpoint, wrs: &[SendWr<'_>]) -> Result<(), PingError> {
        match endpoint.ctx.post_sends(self.qp, wrs) {
            // The client is leaving; the event of the connection's end says how.
            Ok(()) | Err((_, PostError::WrongState(_))) => Ok(()),
            Err((_, error)) => Err(error.into()),
        }
    }

    pub(crate) fn on_terminate(&mut self, sent: bool, terminate: Terminate) {
        self.terminate = Some((sent, terminate));
    }

    /// The result of a client when its connection ends: good between two pings, if it made the
    /// expected number.
    pub(crate) fn on_disconnect(&self, reason: DisconnectReason) -> Result<(), Fault> {
        let between = self.queued_message.is_none() && matches!(self.step, Step::Source);
        if reason != DisconnectReason::Closed || self.terminate.is_some() || !between {
            return Err(Fault::Disconnected {
                ping: self.pings,
                how: disconnect_text(reason, self.terminate),
            });
        }
        match self.config.count.filter(|wanted| self.pings < *wanted) {
            Some(wanted) => Err(Fault::Count { came: self.pings, wanted }),
            None => Ok(()),
        }
    }

    /// Fails if the client has been silent for too long.
    pub(crate) fn check_timeout(&self) -> Result<(), Fault> {
        let timeout = self.config.timeout;
        if self.last_activity.elapsed() <= timeout {
            return Ok(());
        }
        Err(Fault::Timeout { ping: self.pings, seconds: timeout.as_secs() })
    }
}
