//! The server: one step handles events and completions, starts the requested work, and returns.
//!
//! The disk is a region without remote rights. A read is one RDMA Write from disk to client
//! followed by its response, in order. A write is one RDMA Read from client to disk; the response
//! follows when the Read is complete.

use core::net::SocketAddr;

use ironwarp::{
    Access, AlignedBuf, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, ConnectionRequest,
    Context, Event, PostError, ProtectionDomain, QpAttr, QpNum, QueuePair, RecvWr, Region, SendWr, Stack,
    VerbsError,
};

use crate::EmbedError;
use crate::protocol::{
    BLOCK_BYTES, Operation, Outcome, REQUEST_BYTES, RESPONSE_BYTES, Request, Response, WINDOW,
};

/// The private data of a reject.
const NO_ROOM: &[u8] = b"no slot is free";

/// The configuration of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// The address it listens on.
    pub at: SocketAddr,
    /// Blocks of its disk.
    pub blocks: u64,
    /// Clients at a time.
    pub clients: usize,
}

/// A block server on one thread.
pub struct Server {
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    disk: Region,
    /// Receives: one for each slot of each client's window.
    requests: Region,
    sessions: Vec<Option<Session>>,
    config: ServerConfig,
}

struct Session {
    qp: QueuePair,
    slots: [SlotState; WINDOW],
    /// A slot waits for room in the send queue. Requests complete in order, so those behind a slow
    /// Read hold their slots although the client already has its data.
    is_stalled: bool,
}

/// The state of a request.
#[derive(Clone, Copy)]
enum SlotState {
    /// The slot is free.
    Free,
    /// The request waits to be carried out.
    Received(Request),
    /// The Read of the client's blocks is outstanding; this is the response to send after it.
    Reading(Response),
    /// The response waits to be sent.
    Ready(Response),
}

// A slot holds a request, a receive buffer holds an arriving one. There are as many of each, and
// any buffer may serve any slot.

/// A message longer than a request must be detected, so a receive buffer has one byte more.
const RECEIVE_BYTES: usize = REQUEST_BYTES + 1;

impl Server {
    /// A listening server on a stack. Its disk is all zeros.
    pub fn open(stack: &Stack, config: ServerConfig) -> Result<Self, EmbedError> {
        let mut ctx = stack.context()?;
        let pd = ctx.alloc_pd();
        let bytes = config.blocks.saturating_mul(BLOCK_BYTES.into()) as usize;
        let disk = ctx.register(pd, pages(bytes)?, Access::LOCAL_WRITE)?;
        let buffer = pages(config.clients * WINDOW * RECEIVE_BYTES)?;
        let requests = ctx.register(pd, buffer, Access::LOCAL_WRITE)?;
        // The receive of a request, the Read or Write that carries it out, and its response.
        let cq = ctx.create_cq((config.clients * WINDOW * 4) as u32)?;
        ctx.listen(config.at)?;
        let sessions = (0..config.clients).map(|_| None).collect();
        Ok(Server { ctx, pd, cq, disk, requests, sessions, config })
    }

    /// Handles events and completions. Never waits.
    pub fn poll(&mut self) -> Result<(), EmbedError> {
        while let Some(event) = self.ctx.poll_event() {
            self.on_event(event)?;
        }
        let mut reaped = [Completion::default(); 32];
        let count = self.ctx.poll_cq(self.cq, &mut reaped)?;
        reaped.iter().take(count).try_for_each(|done| self.on_completion(done))?;
        (0..self.sessions.len()).try_for_each(|number| self.resume(number))
    }

    /// Clients that are connected or being connected.
    pub fn clients(&self) -> usize {
        self.sessions.iter().flatten().count()
    }

    /// Refuses new clients and closes the connections of the others. Call [`Server::poll`] until
    /// [`Server::clients`] is 0.
    pub fn close(&mut self, deadline: std::time::Instant) -> Result<usize, EmbedError> {
        let _ = self.ctx.unlisten(self.config.at);
        Ok(self.ctx.drain(deadline)?.open)
    }

    fn on_event(&mut self, event: Event) -> Result<(), EmbedError> {
        match event {
            Event::ConnectRequest { request, .. } => self.on_connect_request(&request),
            Event::Disconnected { qp, .. } | Event::ConnectFailed { qp, .. } => {
                self.ctx.destroy_qp(qp)?;
                self.sessions
                    .iter_mut()
                    .filter(|session| session.as_ref().is_some_and(|s| s.qp == qp))
                    .for_each(|session| *session = None);
                Ok(())
            }
            Event::ListenFailed { local } => Err(EmbedError::Listen(local)),
            _ => Ok(()),
        }
    }

    fn on_connect_request(&mut self, request: &ConnectionRequest) -> Result<(), EmbedError> {
        let Some(number) = self.sessions.iter().position(Option::is_none) else {
            return Ok(self.ctx.reject(request, NO_ROOM)?);
        };
        let depth = WINDOW as u32;
        let attr = QpAttr {
            // A Write and a response for each request of the window.
            send_depth: 2 * depth,
            recv_depth: depth,
            max_sge: 1,
            inline_bytes: RESPONSE_BYTES,
            ..QpAttr::new(self.cq)
        };
        let qp = match self.ctx.create_qp(self.pd, &attr) {
            Err(VerbsError::LimitReached(_)) => return Ok(self.ctx.reject(request, NO_ROOM)?),
            made => made?,
        };
        for slot in 0..WINDOW {
            post_receive(&mut self.ctx, &self.requests, qp, number, slot)?;
        }
        self.ctx.accept(request, qp, &self.config.blocks.to_be_bytes())?;
        if let Some(slot) = self.sessions.get_mut(number) {
            *slot = Some(Session { qp, slots: [SlotState::Free; WINDOW], is_stalled: false });
        }
        Ok(())
    }

    fn on_completion(&mut self, done: &Completion) -> Result<(), EmbedError> {
        let Some(number) = self.session_of(done.qp) else { return Ok(()) };
        if done.status != CompletionStatus::Success {
            // The connection is ending; its event follows.
            return Ok(());
        }
        match done.opcode {
            CompletionOpcode::Receive => self.on_request(number, done.wr_id as usize, done.byte_len as usize),
            CompletionOpcode::Read => self.on_read(number, done.wr_id as usize),
            _ => Ok(()),
        }
    }

    fn session_of(&self, qp: QpNum) -> Option<usize> {
        self.sessions.iter().position(|session| session.as_ref().is_some_and(|open| open.qp.num() == qp))
    }

    fn disconnect(&mut self, number: usize) -> Result<(), EmbedError> {
        if let Some(session) = self.sessions.get_mut(number).and_then(Option::take) {
            self.ctx.destroy_qp(session.qp)?;
        }
        Ok(())
    }

    /// Copies a request from its receive buffer, posts the buffer again and begins the request.
    fn on_request(&mut self, number: usize, buffer: usize, len: usize) -> Result<(), EmbedError> {
        let mut bytes = [0; RECEIVE_BYTES];
        self.requests.read_at(receive_offset(number, buffer), &mut bytes)?;
        let Some(session) = self.sessions.get_mut(number).and_then(Option::as_mut) else { return Ok(()) };
        let free = session.slots.iter_mut().enumerate().find(|(_, state)| matches!(state, SlotState::Free));
        let Some((slot, state)) = free else {
            // The client exceeds its window: a protocol error.
            return self.disconnect(number);
        };
        *state = match bytes.get(..len).and_then(Request::decode) {
            Some(request) => match request.check(self.config.blocks) {
                Outcome::Done => SlotState::Received(request),
                outcome => SlotState::Ready(Response { tag: request.tag, outcome, first: request.first }),
            },
            None => SlotState::Ready(Response { tag: 0, outcome: Outcome::BadRequest, first: 0 }),
        };
        post_receive(&mut self.ctx, &self.requests, session.qp, number, buffer)?;
        self.advance(number, slot)
    }

    fn on_read(&mut self, number: usize, slot: usize) -> Result<(), EmbedError> {
        let session = self.sessions.get_mut(number).and_then(Option::as_mut);
        if let Some(state) = session.and_then(|session| session.slots.get_mut(slot))
            && let SlotState::Reading(response) = *state
        {
            *state = SlotState::Ready(response);
        }
        self.advance(number, slot)
    }

    /// Tries again the requests that found no room in the send queue.
    fn resume(&mut self, number: usize) -> Result<(), EmbedError> {
        let is_stalled = |session: &mut Session| core::mem::take(&mut session.is_stalled);
        if !self.sessions.get_mut(number).and_then(Option::as_mut).is_some_and(is_stalled) {
            return Ok(());
        }
        (0..WINDOW).try_for_each(|slot| self.advance(number, slot))
    }

    /// Advances a request as far as possible now.
    fn advance(&mut self, number: usize, slot: usize) -> Result<(), EmbedError> {
        match self.try_advance(number, slot) {
            Err(EmbedError::Verbs(VerbsError::Post(PostError::QueueFull) | VerbsError::CqFull)) => {
                if let Some(session) = self.sessions.get_mut(number).and_then(Option::as_mut) {
                    session.is_stalled = true;
                }
                Ok(())
            }
            // The connection is ending; the request came too late.
            Err(EmbedError::Verbs(VerbsError::WrongState(_) | VerbsError::UnknownQueuePair)) => Ok(()),
            outcome => outcome,
        }
    }

    fn try_advance(&mut self, number: usize, slot: usize) -> Result<(), EmbedError> {
        let Some(session) = self.sessions.get_mut(number).and_then(Option::as_mut) else { return Ok(()) };
        let Some(state) = session.slots.get_mut(slot) else { return Ok(()) };
        let (ctx, qp, wr_id) = (&mut self.ctx, session.qp, slot as u64);
        let (write, response) = match *state {
            SlotState::Free | SlotState::Reading(_) => return Ok(()),
            SlotState::Ready(response) => (None, response),
            SlotState::Received(request) => {
                let from = request.first as usize * BLOCK_BYTES as usize;
                let blocks = [self.disk.slice(from, request.blocks * BLOCK_BYTES)?];
                let response = Response { tag: request.tag, outcome: Outcome::Done, first: request.first };
                if request.operation == Operation::Write {
                    ctx.post_send(qp, &SendWr::read(wr_id, &blocks, request.memory))?;
                    *state = SlotState::Reading(response);
                    return Ok(());
                }
                (Some((blocks, request.memory)), response)
            }
        };
        let bytes = response.encode();
        let response = SendWr::send_inline(wr_id, &bytes).unsignaled();
        match &write {
            // The response follows the Write, so it also arrives after it (RFC 5040 s5.5).
            Some((blocks, to)) => {
                ctx.post_all(qp, &[SendWr::write(wr_id, blocks, *to).unsignaled(), response])?
            }
            None => ctx.post_send(qp, &response)?,
        }
        *state = SlotState::Free;
        Ok(())
    }
}

fn post_receive(
    ctx: &mut Context,
    requests: &Region,
    qp: QueuePair,
    number: usize,
    slot: usize,
) -> Result<(), EmbedError> {
    let buffer = [requests.slice(receive_offset(number, slot), RECEIVE_BYTES as u32)?];
    Ok(ctx.post_recv(qp, &RecvWr::new(slot as u64, &buffer))?)
}

fn receive_offset(number: usize, slot: usize) -> usize {
    (number * WINDOW + slot) * RECEIVE_BYTES
}

pub(crate) fn pages(bytes: usize) -> Result<AlignedBuf, EmbedError> {
    AlignedBuf::pages(bytes).map_err(|error| EmbedError::Failed(format!("{bytes} bytes: {error}")))
}
