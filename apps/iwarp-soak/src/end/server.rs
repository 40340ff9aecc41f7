//! The server: gives each connection memory, checks its messages and answers them.
//!
//! Every second queue pair takes its receives from a queue that all of them share.

use core::net::SocketAddr;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionStatus, ConnectionRequest, DisconnectReason, Event,
    PostError, QpNum, QueuePair, Region, RemoteMemory, SendWr, SharedReceiveQueue, VerbsError,
};
use serde_json::{Value, json};

use super::message::{ARENA_BYTES, Advertisement, Header, MESSAGE_BYTES_MAX, WINDOW, WORDS, immediate};
use super::node::{Node, RECEIVES, receive, receive_at};
use super::session::ANSWER;
use super::{Application, Counts, EndError, report};

/// Answers of a session that are sent and not complete, at most.
const ANSWERS: usize = 2 * WINDOW;
const SHARED_RECEIVES: usize = 4096;
/// Added to the number of a shared receive.
const SHARED: u64 = 1 << 32;
/// How long before its deadline the server closes what its clients did not.
const CLOSE_DELAY: Duration = Duration::from_secs(5);

/// An answer that is due.
enum Answer {
    Message(Header),
    Immediate(u64),
}

/// A connection.
struct Session {
    qp: QueuePair,
    is_shared: bool,
    /// Kept registered while the client may reach them.
    _arena: Region,
    _words: Region,
    messages: Region,
    answers: Region,
    is_free: [bool; ANSWERS],
    due: VecDeque<Answer>,
    received: u64,
    answered: u64,
}

/// All connections of an end.
pub(super) struct Server {
    at: SocketAddr,
    shared: Option<(SharedReceiveQueue, Region)>,
    sessions: HashMap<QpNum, Session>,
    /// Queue pairs to destroy when the core has room for the request.
    ended: Vec<QueuePair>,
    accepted: u64,
    is_finishing: bool,
    counts: Counts,
}

impl Server {
    pub(super) fn new(at: SocketAddr) -> Self {
        Server {
            at,
            shared: None,
            sessions: HashMap::new(),
            ended: Vec::new(),
            accepted: 0,
            is_finishing: false,
            counts: Counts::default(),
        }
    }

    fn on_request(&mut self, node: &mut Node, request: &ConnectionRequest) -> Result<(), EndError> {
        self.accepted += 1;
        let shared = self.shared.as_ref().filter(|_| self.accepted.is_multiple_of(2)).map(|(srq, _)| *srq);
        let qp = match node.ctx.create_qp(node.pd, &node.attr(shared)) {
            Err(VerbsError::LimitReached(_)) => return self.reject(node, request),
            made => made?,
        };
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let session = Session {
            qp,
            is_shared: shared.is_some(),
            _arena: node.register(ARENA_BYTES, all)?,
            _words: node.register(WORDS * 8, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?,
            messages: node.register(RECEIVES * MESSAGE_BYTES_MAX, Access::LOCAL_WRITE)?,
            answers: node.register(ANSWERS * MESSAGE_BYTES_MAX, Access::LOCAL_WRITE)?,
            is_free: [true; ANSWERS],
            due: VecDeque::new(),
            received: 0,
            answered: 0,
        };
        for slot in (0..RECEIVES).filter(|_| !session.is_shared) {
            node.ctx.post_recv(qp, &receive(slot, &receive_at(&session.messages, slot)?))?;
        }
        let place = |region: &Region| RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() };
        let advertisement = Advertisement { arena: place(&session._arena), words: place(&session._words) };
        node.ctx.accept(request, qp, &advertisement.encode())?;
        self.sessions.insert(qp.num(), session);
        Ok(())
    }

    fn reject(&mut self, node: &mut Node, request: &ConnectionRequest) -> Result<(), EndError> {
        self.counts.add("rejected", 1);
        Ok(node.ctx.reject(request, b"no room")?)
    }

    fn end(&mut self, qp: QueuePair) {
        self.sessions.remove(&qp.num());
        self.ended.push(qp);
    }

    /// Posts a receive again, whatever became of it.
    fn post_receive(&mut self, node: &mut Node, done: &Completion) -> Result<(), EndError> {
        let slot = (done.wr_id % SHARED) as usize;
        let outcome = match (&self.shared, self.sessions.get(&done.qp)) {
            (Some((srq, region)), _) if done.wr_id >= SHARED => {
                post_shared(node, *srq, region, slot)?;
                return Ok(());
            }
            (_, Some(session)) if done.status == CompletionStatus::Success => {
                node.ctx.post_recv(session.qp, &receive(slot, &receive_at(&session.messages, slot)?))
            }
            _ => return Ok(()),
        };
        match outcome {
            Err(PostError::WrongState(_)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}

fn post_shared(
    node: &mut Node,
    srq: SharedReceiveQueue,
    region: &Region,
    slot: usize,
) -> Result<(), EndError> {
    let place = receive_at(region, slot)?;
    Ok(node.ctx.post_srq_recv(srq, &ironwarp::RecvWr::new(SHARED + slot as u64, &place))?)
}

impl Session {
    /// Checks a message and notes its answer.
    fn on_message(
        &mut self,
        shared: Option<&(SharedReceiveQueue, Region)>,
        done: &Completion,
    ) -> Result<(), EndError> {
        let (slot, seq) = ((done.wr_id % SHARED) as usize, self.received);
        self.received += 1;
        if done.opcode == CompletionOpcode::ReceiveImmediate {
            if done.immediate != immediate(seq) {
                return Err(EndError(format!("immediate {seq} is {:?}", done.immediate)));
            }
            self.due.push_back(Answer::Immediate(seq));
            return Ok(());
        }
        let mut message = [0; MESSAGE_BYTES_MAX];
        let message = &mut message[..done.byte_len as usize];
        shared.map_or(&self.messages, |(_, region)| region).read_at(slot * MESSAGE_BYTES_MAX, message)?;
        let header = Header::check(message, seq).map_err(EndError)?;
        self.due.push_back(Answer::Message(header));
        if self.due.len() > WINDOW {
            return Err(EndError(format!("{} messages without an answer", self.due.len())));
        }
        Ok(())
    }

    /// Sends the answers that are due, as far as there is memory for them.
    fn answer(&mut self, node: &mut Node) -> Result<(), EndError> {
        while let Some(slot) = self.is_free.iter().position(|free| *free) {
            let Some(answer) = self.due.pop_front() else { return Ok(()) };
            let posted = match answer {
                Answer::Immediate(seq) => {
                    node.ctx.post_send(self.qp, &SendWr::immediate(slot as u64, &immediate(seq)))
                }
                Answer::Message(Header { seed, len, .. }) => {
                    let mut message = [0; MESSAGE_BYTES_MAX];
                    let bytes = Header { seq: self.answered, seed: seed ^ ANSWER, len }.write(&mut message);
                    self.answers.write_at(slot * MESSAGE_BYTES_MAX, &message[..bytes])?;
                    let gather = [self.answers.slice(slot * MESSAGE_BYTES_MAX, bytes as u32)?];
                    node.ctx.post_send(self.qp, &SendWr::send(slot as u64, &gather))
                }
            };
            self.answered += 1;
            self.is_free[slot] = false;
            match posted {
                // The connection ends; its event follows.
                Err(PostError::WrongState(_)) => return Ok(()),
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

impl Application for Server {
    const NAME: &'static str = "server";

    fn go(&mut self, node: &mut Node) -> Result<(), EndError> {
        let region = node.register(SHARED_RECEIVES * MESSAGE_BYTES_MAX, Access::LOCAL_WRITE)?;
        let srq = node.ctx.create_srq(node.pd, SHARED_RECEIVES as u32, 1)?;
        (0..SHARED_RECEIVES).try_for_each(|slot| post_shared(node, srq, &region, slot))?;
        self.shared = Some((srq, region));
        node.ctx.listen(self.at)?;
        Ok(())
    }

    fn on_completion(&mut self, node: &mut Node, done: &Completion) -> Result<(), EndError> {
        let is_receive =
            matches!(done.opcode, CompletionOpcode::Receive | CompletionOpcode::ReceiveImmediate);
        let is_good = done.status == CompletionStatus::Success;
        if let Some(session) = self.sessions.get_mut(&done.qp) {
            if is_receive && is_good {
                session.on_message(self.shared.as_ref().filter(|_| done.wr_id >= SHARED), done)?;
            } else if !is_receive {
                session.is_free[done.wr_id as usize] = true;
            }
            if !is_good && done.status != CompletionStatus::FlushedInError {
                return Err(EndError(format!("{done:?}")));
            }
            session.answer(node)?;
        }
        if is_receive {
            self.post_receive(node, done)?;
            self.counts.add("messages", u64::from(is_good));
        }
        Ok(())
    }

    fn on_event(&mut self, node: &mut Node, event: Event) -> Result<(), EndError> {
        match event {
            Event::ConnectRequest { request, .. } if self.is_finishing => self.reject(node, &request),
            Event::ConnectRequest { request, .. } => self.on_request(node, &request),
            Event::Established { .. } => {
                self.counts.add("connects", 1);
                Ok(())
            }
            Event::Disconnected { qp, reason } => {
                self.counts.add(&format!("{reason:?}"), 1);
                // A client aborts some of its connections, and one that was killed resets those
                // that it does not know.
                if !matches!(
                    reason,
                    DisconnectReason::Closed | DisconnectReason::Reset | DisconnectReason::Aborted
                ) {
                    report(Self::NAME, "lost", json!({ "reason": format!("{reason:?}") }));
                }
                self.end(qp);
                Ok(())
            }
            Event::ConnectFailed { qp, .. } => {
                self.counts.add("connects that failed", 1);
                self.end(qp);
                Ok(())
            }
            Event::Terminated { sent, terminate, .. } => {
                Err(EndError(format!("a Terminate, sent by us: {sent}: {terminate:?}")))
            }
            Event::ListenFailed { local } => Err(EndError(format!("cannot listen on {local}"))),
            _ => Ok(()),
        }
    }

    fn advance(&mut self, node: &mut Node) -> Result<(), EndError> {
        std::mem::take(&mut self.ended).into_iter().try_for_each(|qp| Ok(node.ctx.destroy_qp(qp)?))
    }

    fn finish(&mut self, node: &mut Node, deadline: Instant) -> Result<usize, EndError> {
        if !self.is_finishing {
            self.is_finishing = true;
            node.ctx.unlisten(self.at)?;
        }
        // The clients close first.
        if Instant::now() + CLOSE_DELAY > deadline {
            node.ctx.drain(deadline)?;
        }
        let open = self.sessions.len() + self.ended.len();
        if open == 0
            && let Some((srq, _)) = &self.shared
        {
            match node.ctx.destroy_srq(*srq) {
                // The core returns the last queue pairs.
                Err(VerbsError::SharedReceiveQueueInUse) => return Ok(1),
                outcome => outcome?,
            }
            self.shared = None;
        }
        Ok(open)
    }

    fn counts(&self) -> Value {
        self.counts.json(Some(self.sessions.len()))
    }
}
