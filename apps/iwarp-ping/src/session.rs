//! One client at the server: what it said last, and what is due.
//!
//! ```text
//! Source ── advertisement: Read ──▸ Reading ── it is here: Send ──▸ Sink ── advertisement: Write, Send ──▸ Writing
//!    ▴                                                                                                       │
//!    └─────────────────────────────── both are complete: one more ping ──────────────────────────────────────┘
//! ```
//!
//! The Write and the Send behind it are posted together: the Send is delivered after what the Write placed (RFC 5040
//! s5.5). A client may then begin its next ping before our completions are here; that one message is kept.

use core::net::SocketAddr;
use std::time::{Duration, Instant};

use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionStatus, DisconnectReason, QpAttr, QueuePair, RecvWr,
    Region, SendWr, Sge, Terminate, VerbsError,
};
use ironwarp_cli::say;

use crate::TEXT_BYTES_MAX;
use crate::end::{End, PingError};
use crate::message::{
    Advertisement, Fault, MESSAGE_BYTES, NOTHING, RECEIVE_BYTES, check_text, ended, failed, shown,
};
use crate::server::Offer;

/// Receives posted: a client has one message on its way at a time.
const RECEIVES: usize = 2;
/// Sends outstanding: a Read, a Write, a Send behind each.
const SENDS: u32 = 8;

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The client says where its text is.
    Source,
    /// The text is being read.
    Reading,
    /// The client says where it wants the text.
    Sink,
    /// The text is being written.
    Writing,
}

/// A client.
pub(crate) struct Session {
    pub(crate) qp: QueuePair,
    pub(crate) remote: SocketAddr,
    /// Pings that were answered.
    pub(crate) pings: u64,
    /// Bytes of their texts.
    pub(crate) bytes: u64,
    step: Step,
    /// Bytes of the text that is here.
    text: u32,
    /// A message that came early.
    early: Option<[u8; MESSAGE_BYTES]>,
    texts: Region,
    /// Room for a text and for what it should be, where texts are looked at.
    looked_at: Vec<u8>,
    messages: Region,
    terminate: Option<(bool, Terminate)>,
    heard: Instant,
}

impl Session {
    /// A client's memory and queue pair, its receives posted.
    pub(crate) fn new(end: &mut End, offer: &Offer, remote: SocketAddr) -> Result<Self, VerbsError> {
        let texts = end.ctx.register(end.pd, vec![0; offer.bytes_max as usize], Access::LOCAL_WRITE)?;
        let messages = end.ctx.register(end.pd, vec![0; RECEIVES * RECEIVE_BYTES], Access::LOCAL_WRITE)?;
        let attr =
            QpAttr { send_depth: SENDS, recv_depth: RECEIVES as u32, ird: 1, ord: 1, ..QpAttr::new(end.cq) };
        let qp = end.ctx.create_qp(end.pd, &attr)?;
        let session = Session {
            qp,
            remote,
            pings: 0,
            bytes: 0,
            step: Step::Source,
            text: 0,
            early: None,
            texts,
            looked_at: if offer.looks() { vec![0; offer.bytes_max as usize * 2] } else { Vec::new() },
            messages,
            terminate: None,
            heard: Instant::now(),
        };
        match (0..RECEIVES).try_for_each(|slot| session.post_receive(end, slot)) {
            Ok(()) => Ok(session),
            Err(error) => end.ctx.destroy_qp(qp).and(Err(error)),
        }
    }

    pub(crate) fn on_completion(
        &mut self,
        end: &mut End,
        offer: &Offer,
        completion: &Completion,
    ) -> Result<(), PingError> {
        self.heard = Instant::now();
        match (completion.status, completion.opcode) {
            (CompletionStatus::Success, CompletionOpcode::Receive) => self.on_receive(end, offer, completion),
            (CompletionStatus::Success, CompletionOpcode::Read) => self.on_read(end, offer),
            (CompletionStatus::Success, _) => self.on_written(end, offer),
            _ => Ok(failed(completion, self.pings)?),
        }
    }

    fn on_receive(&mut self, end: &mut End, offer: &Offer, completion: &Completion) -> Result<(), PingError> {
        if completion.byte_len as usize != MESSAGE_BYTES {
            return Err(Fault::Length(completion.byte_len).into());
        }
        let slot = completion.wr_id as usize;
        let mut message = NOTHING;
        self.messages.read_at(slot * RECEIVE_BYTES, &mut message)?;
        self.post_receive(end, slot)?;
        self.on_message(end, offer, &message)
    }

    fn on_message(
        &mut self,
        end: &mut End,
        offer: &Offer,
        message: &[u8; MESSAGE_BYTES],
    ) -> Result<(), PingError> {
        match self.step {
            Step::Source => self.on_source(end, offer, message),
            Step::Sink => self.on_sink(end, message),
            Step::Writing if self.early.is_none() => {
                self.early = Some(*message);
                Ok(())
            }
            Step::Writing | Step::Reading => Err(Fault::OutOfTurn.into()),
        }
    }

    /// The client's text is there: it is read.
    fn on_source(
        &mut self,
        end: &mut End,
        offer: &Offer,
        message: &[u8; MESSAGE_BYTES],
    ) -> Result<(), PingError> {
        let source = Advertisement::decode(message, offer.bytes_max)?;
        if let Some(wanted) = offer.count.filter(|count| self.pings >= *count) {
            return Err(Fault::Count { came: self.pings + 1, wanted }.into());
        }
        self.text = source.bytes;
        self.step = Step::Reading;
        let sink = [self.texts.slice(0, self.text)?];
        self.post(end, &[SendWr::read(0, &sink, source.at)])
    }

    /// The text is here: the client is told.
    fn on_read(&mut self, end: &mut End, offer: &Offer) -> Result<(), PingError> {
        self.look_at_text(offer)?;
        self.step = Step::Sink;
        self.post(end, &[SendWr::send_inline(0, &NOTHING).unsignaled()])
    }

    fn look_at_text(&mut self, offer: &Offer) -> Result<(), PingError> {
        if !offer.looks() {
            return Ok(());
        }
        let (text, wanted) = self.looked_at.split_at_mut(self.text as usize);
        self.texts.read_at(0, text)?;
        if offer.verbose {
            say(format_args!("server ping data: {}\n", shown(text)));
        }
        if offer.verify {
            check_text(self.pings, text, &mut wanted[..self.text as usize])?;
        }
        Ok(())
    }

    /// The client has room: the text is written there, and the client told.
    fn on_sink(&mut self, end: &mut End, message: &[u8; MESSAGE_BYTES]) -> Result<(), PingError> {
        let sink = Advertisement::decode(message, TEXT_BYTES_MAX)?;
        if sink.bytes < self.text {
            return Err(Fault::Room { room: sink.bytes, text: self.text }.into());
        }
        self.step = Step::Writing;
        let source = [self.texts.slice(0, self.text)?];
        // The Send's completion stands for the Write's, since requests complete in order.
        self.post(end, &[SendWr::write(0, &source, sink.at).unsignaled(), SendWr::send_inline(0, &NOTHING)])
    }

    /// The client has its text back.
    fn on_written(&mut self, end: &mut End, offer: &Offer) -> Result<(), PingError> {
        self.pings += 1;
        self.bytes += u64::from(self.text);
        self.step = Step::Source;
        match self.early.take() {
            Some(message) => self.on_message(end, offer, &message),
            None => Ok(()),
        }
    }

    fn post(&self, end: &mut End, wrs: &[SendWr<'_>]) -> Result<(), PingError> {
        match end.ctx.post_sends(self.qp, wrs) {
            // The client is leaving: how, its end will say.
            Ok(()) | Err((_, VerbsError::WrongState(_))) => Ok(()),
            Err((_, error)) => Err(error.into()),
        }
    }

    fn post_receive(&self, end: &mut End, slot: usize) -> Result<(), VerbsError> {
        let addr = self.messages.base_to() + (slot * RECEIVE_BYTES) as u64;
        let place = Sge { addr, len: RECEIVE_BYTES as u32, lkey: self.messages.stag() };
        end.ctx.post_recv(self.qp, &RecvWr::new(slot as u64, &[place]))
    }

    pub(crate) fn on_terminate(&mut self, sent: bool, terminate: Terminate) {
        self.terminate = Some((sent, terminate));
    }

    /// How the client's part ends with its connection: well between two pings, if it made as many as were to come.
    pub(crate) fn part(&self, offer: &Offer, reason: DisconnectReason) -> Result<(), Fault> {
        let between = self.early.is_none() && matches!(self.step, Step::Source);
        if reason != DisconnectReason::Closed || self.terminate.is_some() || !between {
            return Err(Fault::Left { ping: self.pings, how: ended(reason, self.terminate) });
        }
        match offer.count.filter(|wanted| self.pings < *wanted) {
            Some(wanted) => Err(Fault::Count { came: self.pings, wanted }),
            None => Ok(()),
        }
    }

    /// Fails when the client has been silent for too long.
    pub(crate) fn check_silence(&self, patience: Duration) -> Result<(), Fault> {
        if self.heard.elapsed() <= patience {
            return Ok(());
        }
        Err(Fault::Silent { ping: self.pings, seconds: patience.as_secs() })
    }
}
