//! One side of a DDP stream session: the order of its chunks, and which of them are legal
//! (RFC 5043 s6, RFC 6581 s7).
//!
//! ```text
//!          send Initiate              receive Accept                  both Terminates
//!   Free ----------------> Initiated -----------------+--------> Open ----------------> Free
//!    |                         |                      |            |
//!    | receive Initiate        | receive Reject       |            | a rule is broken
//!    v                         |   or Terminate       |            v
//!   Requested -----------------|----------------------+         Broken ---------------> Free
//!    |                         |        send Accept                     send Terminate
//!    | send Reject             v
//!    +---------------------> Free
//!        or Terminate
//! ```
//! A chunk is judged by its DDP-SSN, whatever the order of arrival. One that fits in none of the
//! legal sequences breaks the session: this side sends a Terminate and drops what follows. So does
//! one that begins no session, unless it is a Terminate, or may be a late one of a session that the
//! peer has not ended.
//!
//! Both sides send a Terminate here, although RFC 5043 s6.2 asks one of them only: so each learns
//! that nothing of the other is outstanding, and may use the stream again. After a peer that sends
//! none, only the peer can begin the next session.
//!
//! RFC 5043 does not say what two Initiates mean that cross on one stream. Here they break both
//! sessions. [`Sessions::free_stream`] avoids it: each side begins sessions on streams of its own.

mod sessions;
#[cfg(test)]
mod tests;

pub use sessions::Sessions;

use super::chunk::{Chunk, ChunkFault, Control, ControlBytes, Function, PPID_SEGMENT};
use super::order::{ReceiveOrder, SsnFault};
use crate::mpa::MpaFault;
use crate::terminate::Terminate;

/// One side of the sessions of a stream. `M` names a message that the lower layer holds.
#[derive(Debug)]
pub struct Session<M> {
    state: State,
    /// Our Initiate, Accept or Reject was sent.
    begun: bool,
    /// The peer has received it.
    begin_received: bool,
    /// Our Terminate was sent.
    terminated: bool,
    /// The peer's Terminate was delivered.
    peer_terminated: bool,
    /// Nothing more of the last session can arrive.
    reusable: bool,
    /// The chunks of the peer, each with its function if it is a control message.
    order: ReceiveOrder<(Option<Function>, M)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No session, or an Initiate of the peer is not delivered yet.
    Free,
    /// Our Initiate was sent.
    Initiated { enhanced: bool },
    /// The peer's Initiate was delivered.
    Requested { enhanced: bool },
    /// The session was accepted.
    Open,
    /// A rule was broken. What arrives is dropped.
    Broken,
}

/// Why a message is dropped. The session is broken, except for [`SessionFault::NoSession`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionFault {
    /// There is no session on the stream, and the message begins none.
    #[error("no session on the stream")]
    NoSession,
    /// It is no message of DDP over SCTP.
    #[error(transparent)]
    Chunk(#[from] ChunkFault),
    /// RFC 5043 s10: all chunks are unordered.
    #[error("an ordered chunk")]
    Ordered,
    /// Its DDP-SSN is wrong.
    #[error(transparent)]
    Ssn(#[from] SsnFault),
    /// Its function is not legal in this state.
    #[error("out of turn")]
    OutOfTurn,
    /// As many requests as allowed wait for a decision.
    #[error("too many requests wait for a decision")]
    TooManyRequests,
}

impl From<SessionFault> for Terminate {
    /// RFC 5043 defines no codes. RFC 6581 s9.3: an error without a code of its own is 2/0/5.
    fn from(_: SessionFault) -> Self {
        MpaFault::LocalCatastrophic.into()
    }
}

/// A control message may not be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotNow {
    /// The sequence does not have it.
    #[error("the message is not legal in this state")]
    OutOfTurn,
    /// It could overtake an earlier message: wait for the acknowledgement.
    #[error("an earlier message is not acknowledged")]
    Unacknowledged,
}

impl<M: PartialEq> Session<M> {
    /// Creates the side of an unused stream. `held_max` is the number of messages that the lower
    /// layer holds at most.
    pub fn new(held_max: usize) -> Self {
        Session {
            state: State::Free,
            begun: false,
            begin_received: false,
            terminated: false,
            peer_terminated: false,
            reusable: true,
            order: ReceiveOrder::new(held_max),
        }
    }

    /// Returns the segment in this user data, if it is next in order, no chunk is held, and the
    /// session may deliver it: then [`Session::pass`] is as good as [`Session::on_message`] and
    /// [`Session::pop`].
    pub fn next_segment<'a>(&self, (ppid, unordered, user_data): (u32, bool, &'a [u8])) -> Option<&'a [u8]> {
        let may_deliver = self.state == State::Open && !self.peer_terminated;
        if !may_deliver || !unordered || ppid != PPID_SEGMENT {
            return None;
        }
        let (ssn, segment) = user_data.split_first_chunk()?;
        self.order.is_next(u16::from_be_bytes(*ssn)).then_some(segment)
    }

    /// The segment that [`Session::next_segment`] returned is delivered.
    pub fn pass(&mut self) {
        self.order.pass();
        self.begin_received = true;
    }

    /// Takes a message of the stream with this user data, which the lower layer holds as `message`
    /// until [`Session::pop`]. Returns its distance from the next one in order if it is a segment
    /// that may be placed before its predecessors arrive.
    pub fn on_message(
        &mut self,
        (ppid, unordered, user_data): (u32, bool, &[u8]),
        message: M,
    ) -> Result<Option<u16>, SessionFault> {
        let decoded = Chunk::decode(ppid, user_data);
        if decoded.is_ok_and(|(ssn, chunk)| ssn == 0 && is_initiate(function_of(&chunk)))
            && self.may_be_followed()
        {
            self.restart();
        } else if self.is_free() {
            let is_terminate =
                decoded.is_ok_and(|(_, chunk)| function_of(&chunk) == Some(Function::Terminate));
            if is_terminate || !self.reusable {
                return Err(SessionFault::NoSession);
            }
            self.break_off();
            return Err(decoded.map_or_else(SessionFault::from, |_| SessionFault::OutOfTurn));
        } else if self.state == State::Broken {
            return Ok(None);
        }
        let inserted = match decoded {
            _ if !unordered => Err(SessionFault::Ordered),
            Ok((ssn, chunk)) => {
                self.order.insert(ssn, (function_of(&chunk), message)).map_err(SessionFault::from)
            }
            Err(fault) => Err(fault.into()),
        };
        let distance = inserted.inspect_err(|_| self.break_off())?;
        Ok(distance.filter(|_| ppid == PPID_SEGMENT && self.state == State::Open && !self.peer_terminated))
    }

    /// The lower layer has dropped a message, which arrives once more.
    pub fn forget(&mut self, message: &M) {
        self.order.remove(|(_, held)| held == message);
    }

    /// Returns the distance of a message from the next one in order, if it is a segment that may be
    /// placed before its predecessors arrive.
    pub fn distance_of(&self, message: &M) -> Option<u16> {
        let may_be_placed = self.state == State::Open && !self.peer_terminated;
        self.order
            .distance_of(|(function, held)| function.is_none() && held == message)
            .filter(|_| may_be_placed)
    }

    /// Returns the next chunk in order, if it has arrived and is legal: its function if it is a
    /// control message, and its message. It stays until [`Session::pop`].
    pub fn front(&mut self) -> Result<Option<(Option<Function>, &M)>, SessionFault> {
        if self.order.front().is_some_and(|(function, _)| !self.is_legal(*function)) {
            self.break_off();
            return Err(SessionFault::OutOfTurn);
        }
        Ok(self.order.front().map(|(function, message)| (*function, message)))
    }

    /// Gives up the session: what arrives for it is dropped.
    pub fn abandon(&mut self) {
        self.break_off();
    }

    /// Removes the chunk that [`Session::front`] returned, and takes its effect on the session.
    pub fn pop(&mut self) {
        let Some((function, _)) = self.order.pop() else { return };
        // A reply, or a segment, shows that the peer has our first message.
        self.begin_received = true;
        match function {
            Some(Function::Initiate) => self.state = State::Requested { enhanced: false },
            Some(Function::EnhancedInitiate) => self.state = State::Requested { enhanced: true },
            Some(Function::Accept | Function::EnhancedAccept) => self.state = State::Open,
            Some(Function::Reject | Function::EnhancedReject) => self.end(true),
            // RFC 5043 s6.4: in reply to an Initiate it is the only message of the peer.
            Some(Function::Terminate) if self.terminated || matches!(self.state, State::Initiated { .. }) => {
                self.end(true);
            }
            Some(Function::Terminate) => self.peer_terminated = true,
            None => {}
        }
    }

    /// Takes an Initiate, Accept or Reject as sent, if it may be sent now, with number 0.
    /// `all_acked`: the peer has acknowledged every chunk of this side on the stream.
    pub fn send(&mut self, function: Function, all_acked: bool) -> Result<(), NotNow> {
        use Function::*;
        match (self.state, function) {
            (State::Free, Initiate | EnhancedInitiate) if self.is_reusable() => {
                // RFC 5043 s6.6: no chunk of the last session may be outstanding.
                if !all_acked {
                    return Err(NotNow::Unacknowledged);
                }
                self.restart();
                self.state = State::Initiated { enhanced: function == EnhancedInitiate };
            }
            (State::Requested { enhanced }, Accept | EnhancedAccept)
                if enhanced == (function == EnhancedAccept) && !self.peer_terminated =>
            {
                self.state = State::Open;
            }
            // RFC 6581 s7: only an enhanced request is rejected with enhanced data.
            (State::Requested { enhanced }, Reject | EnhancedReject) if enhanced || function == Reject => {
                self.end(true);
                return Ok(());
            }
            _ => return Err(NotNow::OutOfTurn),
        }
        (self.begun, self.begin_received) = (true, false);
        Ok(())
    }

    /// Returns whether the first control message of this side may be sent now. See
    /// [`Session::send`].
    pub fn may_begin(&self, all_acked: bool) -> bool {
        match self.state {
            State::Free => self.is_reusable() && all_acked,
            State::Requested { .. } => true,
            State::Initiated { .. } | State::Open | State::Broken => false,
        }
    }

    /// Returns whether the first control message of this side was sent.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns whether this side has a Terminate to send.
    pub fn may_terminate(&self) -> bool {
        self.state != State::Free && !self.terminated
    }

    /// Ends this side of the session: returns the user data of its last chunk. `next_ssn` is that
    /// of the stream's framing, 1 before the stream has started. `begin_acked`: the peer has
    /// acknowledged our Initiate or Accept.
    pub fn terminate(&mut self, next_ssn: u16, begin_acked: bool) -> Result<ControlBytes, NotNow> {
        if self.state == State::Free || self.terminated {
            return Err(NotNow::OutOfTurn);
        }
        // RFC 5043 s6.6: it must not overtake an earlier control message.
        if self.begun && !self.begin_received && !begin_acked {
            return Err(NotNow::Unacknowledged);
        }
        let ssn = if self.begun { next_ssn } else { 0 };
        self.terminated = true;
        match self.state {
            // RFC 5043 s6.4: the only message of this side.
            State::Requested { .. } => self.end(true),
            State::Broken => self.end(self.peer_terminated),
            _ if self.peer_terminated => self.end(true),
            _ => {}
        }
        Ok(Control::TERMINATE.encode(ssn))
    }

    /// Returns whether segments may be sent: between the Accept and our Terminate.
    pub fn may_send_segments(&self) -> bool {
        self.state == State::Open && !self.terminated
    }

    /// Returns whether the peer has ended its side, so that this side should end its own.
    pub fn peer_has_ended(&self) -> bool {
        self.peer_terminated
    }

    /// Returns whether a rule was broken, so that this side has to end the session.
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Returns whether there is no session.
    pub fn is_free(&self) -> bool {
        self.state == State::Free && self.order.is_empty()
    }

    /// Returns whether a session may be begun here once all chunks are acknowledged.
    pub fn is_reusable(&self) -> bool {
        self.is_free() && self.reusable
    }

    /// Returns whether a request waits for a decision.
    fn is_requested(&self) -> bool {
        (self.state == State::Free && !self.order.is_empty()) || matches!(self.state, State::Requested { .. })
    }

    /// Returns whether the peer may begin another session: it has our Terminate, or there is none
    /// to wait for, and nothing of it is missing.
    fn may_be_followed(&self) -> bool {
        self.order.is_empty() && (self.state == State::Free || self.terminated)
    }

    fn restart(&mut self) {
        self.order.restart();
        self.state = State::Free;
        (self.begun, self.begin_received) = (false, false);
        (self.terminated, self.peer_terminated) = (false, false);
    }

    fn end(&mut self, reusable: bool) {
        self.restart();
        self.reusable = reusable;
    }

    /// RFC 5043 s6.1: a chunk that conforms to no legal sequence terminates the session.
    fn break_off(&mut self) {
        self.order.restart();
        self.state = State::Broken;
        if self.terminated {
            self.end(false);
        }
    }

    /// Returns whether a chunk is legal as the next one: a control message, or a segment.
    fn is_legal(&self, function: Option<Function>) -> bool {
        use Function::*;
        match (self.state, function) {
            (State::Free, function) => is_initiate(function),
            (State::Initiated { .. }, Some(Reject | Terminate)) => true,
            (State::Initiated { enhanced }, Some(Accept)) => !enhanced,
            (State::Initiated { enhanced }, Some(EnhancedAccept | EnhancedReject)) => enhanced,
            (State::Requested { .. }, Some(Terminate)) => !self.peer_terminated,
            (State::Open, None | Some(Terminate)) => !self.peer_terminated,
            (State::Initiated { .. } | State::Requested { .. } | State::Open | State::Broken, _) => false,
        }
    }
}

/// Returns the function of a control message.
fn function_of(chunk: &Chunk<'_>) -> Option<Function> {
    match chunk {
        Chunk::Control(control) => Some(control.function),
        Chunk::Segment(_) => None,
    }
}

fn is_initiate(function: Option<Function>) -> bool {
    matches!(function, Some(Function::Initiate | Function::EnhancedInitiate))
}
