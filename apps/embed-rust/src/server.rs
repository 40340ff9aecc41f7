//! The server: one step takes what has come, starts what it asks for, and returns.
//!
//! The disk is a region without remote rights. A read goes disk → client in one RDMA Write and its answer behind it, in
//! order; a write goes client → disk in one RDMA Read, and is answered when the Read is complete.

use core::net::SocketAddr;

use ironwarp::{
    Access, AlignedBuf, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, ConnectionRequest,
    Context, Event, ProtectionDomain, QpAttr, QpNum, QueuePair, RecvWr, Region, SendWr, Stack, VerbsError,
};

use crate::EmbedError;
use crate::protocol::{ANSWER_BYTES, Answer, BLOCK_BYTES, Order, Outcome, REQUEST_BYTES, Request, WINDOW};

/// What a server is started with.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// Where it listens.
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
    /// Receives: one request for each place in each client's window.
    requests: Region,
    sessions: Vec<Option<Session>>,
    config: ServerConfig,
}

struct Session {
    qp: QueuePair,
    places: [Place; WINDOW],
    /// A place waits for room in the send queue: requests complete in their order, so what is behind a slow Read keeps its
    /// place there although the client has it long since.
    waits: bool,
}

/// How far a request has come.
#[derive(Clone, Copy)]
enum Place {
    /// There is none.
    Free,
    /// It is to be carried out.
    Asked(Request),
    /// The client's blocks are being read, and this is the answer then.
    Reading(Answer),
    /// It is to be answered.
    Over(Answer),
}

// A place is a request under way, a room where one may land: there are as many of both, and any may meet any.

/// A message longer than a request is an error of its own, so a receive has room for one byte more.
const ROOM_BYTES: usize = REQUEST_BYTES + 1;

impl Server {
    /// A server on a stack, listening. Its disk is all zeros.
    pub fn open(stack: &Stack, config: ServerConfig) -> Result<Self, EmbedError> {
        let mut ctx = stack.context()?;
        let pd = ctx.alloc_pd();
        let bytes = config.blocks.saturating_mul(BLOCK_BYTES.into()) as usize;
        let disk = ctx.register(pd, pages(bytes)?, Access::LOCAL_WRITE)?;
        let room = pages(config.clients * WINDOW * ROOM_BYTES)?;
        let requests = ctx.register(pd, room, Access::LOCAL_WRITE)?;
        // A request, the Read or Write that carries it out, and its answer.
        let cq = ctx.create_cq((config.clients * WINDOW * 4) as u32)?;
        ctx.listen(config.at)?;
        let sessions = (0..config.clients).map(|_| None).collect();
        Ok(Server { ctx, pd, cq, disk, requests, sessions, config })
    }

    /// Takes what has come. Never waits.
    pub fn step(&mut self) -> Result<(), EmbedError> {
        while let Some(event) = self.ctx.poll_event() {
            self.on_event(event)?;
        }
        let mut reaped = [Completion::default(); 32];
        let count = self.ctx.poll_cq(self.cq, &mut reaped)?;
        reaped.iter().take(count).try_for_each(|done| self.on_completion(done))?;
        (0..self.sessions.len()).try_for_each(|number| self.go_on(number))
    }

    /// Clients that are connected, or about to be.
    pub fn clients(&self) -> usize {
        self.sessions.iter().flatten().count()
    }

    /// Takes no more clients and closes the connections of those that are there; step on until [`Server::clients`] is 0.
    pub fn close(&mut self, deadline: std::time::Instant) -> Result<usize, EmbedError> {
        let _ = self.ctx.unlisten(self.config.at);
        Ok(self.ctx.drain(deadline)?.open)
    }

    fn on_event(&mut self, event: Event) -> Result<(), EmbedError> {
        match event {
            Event::ConnectRequest { request, .. } => self.welcome(&request),
            Event::Disconnected { qp, .. } | Event::ConnectFailed { qp, .. } => {
                self.ctx.destroy_qp(qp)?;
                self.sessions
                    .iter_mut()
                    .filter(|slot| slot.as_ref().is_some_and(|s| s.qp == qp))
                    .for_each(|slot| *slot = None);
                Ok(())
            }
            Event::ListenFailed { local } => Err(EmbedError::Listen(local)),
            _ => Ok(()),
        }
    }

    fn welcome(&mut self, request: &ConnectionRequest) -> Result<(), EmbedError> {
        let Some(number) = self.sessions.iter().position(Option::is_none) else {
            return Ok(self.ctx.reject(request, b"no place is free")?);
        };
        let depth = WINDOW as u32;
        let attr = QpAttr {
            // A Write and its answer for each request of the window.
            send_depth: 2 * depth,
            recv_depth: depth,
            max_sge: 1,
            inline_bytes: ANSWER_BYTES,
            ..QpAttr::new(self.cq)
        };
        let qp = match self.ctx.create_qp(self.pd, &attr) {
            Err(VerbsError::LimitReached(_)) => return Ok(self.ctx.reject(request, b"no place is free")?),
            made => made?,
        };
        for place in 0..WINDOW {
            post_receive(&mut self.ctx, &self.requests, qp, number, place)?;
        }
        self.ctx.accept(request, qp, &self.config.blocks.to_be_bytes())?;
        if let Some(slot) = self.sessions.get_mut(number) {
            *slot = Some(Session { qp, places: [Place::Free; WINDOW], waits: false });
        }
        Ok(())
    }

    fn on_completion(&mut self, done: &Completion) -> Result<(), EmbedError> {
        let Some(number) = self.session_of(done.qp) else { return Ok(()) };
        if done.status != CompletionStatus::Success {
            // The connection is ending, which its event tells.
            return Ok(());
        }
        match done.opcode {
            CompletionOpcode::Receive => self.on_request(number, done.wr_id as usize, done.byte_len as usize),
            CompletionOpcode::Read => self.on_read(number, done.wr_id as usize),
            _ => Ok(()),
        }
    }

    fn session_of(&self, qp: QpNum) -> Option<usize> {
        self.sessions.iter().position(|slot| slot.as_ref().is_some_and(|session| session.qp.num() == qp))
    }

    fn expel(&mut self, number: usize) -> Result<(), EmbedError> {
        if let Some(session) = self.sessions.get_mut(number).and_then(Option::take) {
            self.ctx.destroy_qp(session.qp)?;
        }
        Ok(())
    }

    /// Takes a request out of its room, which is posted again at once, and begins with it.
    fn on_request(&mut self, number: usize, room: usize, len: usize) -> Result<(), EmbedError> {
        let mut bytes = [0; ROOM_BYTES];
        self.requests.read_at(room_of(number, room), &mut bytes)?;
        let Some(session) = self.sessions.get_mut(number).and_then(Option::as_mut) else { return Ok(()) };
        let free = session.places.iter_mut().enumerate().find(|(_, state)| matches!(state, Place::Free));
        let Some((place, state)) = free else {
            // More than the window allows: whoever does so is no client of ours.
            return self.expel(number);
        };
        *state = match bytes.get(..len).and_then(Request::decode) {
            Some(request) => match request.check(self.config.blocks) {
                Outcome::Done => Place::Asked(request),
                outcome => Place::Over(Answer { tag: request.tag, outcome, first: request.first }),
            },
            None => Place::Over(Answer { tag: 0, outcome: Outcome::BadRequest, first: 0 }),
        };
        post_receive(&mut self.ctx, &self.requests, session.qp, number, room)?;
        self.advance(number, place)
    }

    fn on_read(&mut self, number: usize, place: usize) -> Result<(), EmbedError> {
        let session = self.sessions.get_mut(number).and_then(Option::as_mut);
        if let Some(state) = session.and_then(|session| session.places.get_mut(place))
            && let Place::Reading(answer) = *state
        {
            *state = Place::Over(answer);
        }
        self.advance(number, place)
    }

    /// Tries again what had no room in the send queue.
    fn go_on(&mut self, number: usize) -> Result<(), EmbedError> {
        let waits = |session: &mut Session| core::mem::take(&mut session.waits);
        if !self.sessions.get_mut(number).and_then(Option::as_mut).is_some_and(waits) {
            return Ok(());
        }
        (0..WINDOW).try_for_each(|place| self.advance(number, place))
    }

    /// Does for a request what can be done now.
    fn advance(&mut self, number: usize, place: usize) -> Result<(), EmbedError> {
        match self.try_advance(number, place) {
            Err(EmbedError::Verbs(VerbsError::QueueFull | VerbsError::CqFull)) => {
                if let Some(session) = self.sessions.get_mut(number).and_then(Option::as_mut) {
                    session.waits = true;
                }
                Ok(())
            }
            // The connection is ending, and this was too late.
            Err(EmbedError::Verbs(VerbsError::WrongState(_) | VerbsError::UnknownQueuePair)) => Ok(()),
            outcome => outcome,
        }
    }

    fn try_advance(&mut self, number: usize, place: usize) -> Result<(), EmbedError> {
        let Some(session) = self.sessions.get_mut(number).and_then(Option::as_mut) else { return Ok(()) };
        let Some(state) = session.places.get_mut(place) else { return Ok(()) };
        let (ctx, qp, wr_id) = (&mut self.ctx, session.qp, place as u64);
        let (moved, answer) = match *state {
            Place::Free | Place::Reading(_) => return Ok(()),
            Place::Over(answer) => (None, answer),
            Place::Asked(request) => {
                let from = request.first as usize * BLOCK_BYTES as usize;
                let blocks = [self.disk.slice(from, request.blocks * BLOCK_BYTES)?];
                let answer = Answer { tag: request.tag, outcome: Outcome::Done, first: request.first };
                if request.order == Order::Write {
                    ctx.post_send(qp, &SendWr::read(wr_id, &blocks, request.memory))?;
                    *state = Place::Reading(answer);
                    return Ok(());
                }
                (Some((blocks, request.memory)), answer)
            }
        };
        let bytes = answer.encode();
        let answer = SendWr::send_inline(wr_id, &bytes).unsignaled();
        match &moved {
            // The answer is behind the Write, so it arrives behind it (RFC 5040 s5.5).
            Some((blocks, to)) => {
                ctx.post_all(qp, &[SendWr::write(wr_id, blocks, *to).unsignaled(), answer])?
            }
            None => ctx.post_send(qp, &answer)?,
        }
        *state = Place::Free;
        Ok(())
    }
}

fn post_receive(
    ctx: &mut Context,
    requests: &Region,
    qp: QueuePair,
    number: usize,
    place: usize,
) -> Result<(), EmbedError> {
    let room = [requests.slice(room_of(number, place), ROOM_BYTES as u32)?];
    Ok(ctx.post_recv(qp, &RecvWr::new(place as u64, &room))?)
}

fn room_of(number: usize, place: usize) -> usize {
    (number * WINDOW + place) * ROOM_BYTES
}

pub(crate) fn pages(bytes: usize) -> Result<AlignedBuf, EmbedError> {
    AlignedBuf::pages(bytes).map_err(|error| EmbedError::Wrong(format!("{bytes} bytes: {error}")))
}
