//! The line to another machine, as an end of the stack has it: calling, being called, noticing that the other end has gone.
//!
//! A near end calls a server over the device that is measured; the line is a queue pair of its own ([`Line`]). Whatever
//! ends it cuts this end off, and says why; nothing that goes over it waits for ever.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp::{ConnectFailure, ConnectionRequest, Event, QueuePair, Worker};

use super::super::line::{Line, check_greeting, greeting, is_greeting};
use super::{Endpoint, RdmaError};
use crate::control::Wire;

/// Calling the server: the stack's own limits on each step are shorter.
const CALL_WITHIN: Duration = Duration::from_secs(30);
/// Ending the line in order.
const HANG_UP_WITHIN: Duration = Duration::from_secs(2);
/// Turns between two looks at what is not urgent.
const TURNS_A_GLANCE: u32 = 1 << 10;

/// What came of waiting for a call.
pub enum Call {
    /// A near end, and where it is.
    From(ConnectionRequest, SocketAddr),
    /// The user said halt.
    Halted,
    /// The device lost its link: it must not be polled until it has one.
    NoLink,
}

impl Endpoint {
    /// Looks whether the other end of the line is still there.
    pub(super) fn look_after_line(&mut self) {
        if self.watch_link && self.turns.is_multiple_of(TURNS_A_GLANCE) {
            let up = self.with_worker(Worker::link_up).unwrap_or(false);
            if !up {
                return self.cut("its link went down".to_owned());
            }
        }
        if let (Some(line), None) = (&mut self.line, &self.cut_off)
            && let Err(why) = line.look_after(&mut self.ctx)
        {
            self.cut(why);
        }
    }

    fn cut(&mut self, why: String) {
        if let Some(line) = &mut self.line {
            line.cut();
        }
        self.cut_off.get_or_insert(why);
    }

    /// Why the other machine can no longer be talked to.
    pub fn cut_off(&self) -> Option<&str> {
        self.cut_off.as_deref()
    }

    /// Whether the other machine can no longer be talked to.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.is_some()
    }

    /// The next news of a test's connections. What concerns the line is dealt with here.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.ctx.poll_event()? {
                Event::ConnectRequest { request, private_data, .. } if is_greeting(&private_data) => {
                    self.reject(request, b"busy with another near end");
                }
                Event::Disconnected { qp, reason } if self.is_line(qp) => {
                    self.cut(format!("its connection ended: {reason:?}"));
                }
                Event::Terminated { qp, terminate, .. } if self.is_line(qp) => {
                    self.cut(format!("its connection ended: {terminate:?}"));
                }
                other => return Some(other),
            }
        }
    }

    fn is_line(&self, qp: QueuePair) -> bool {
        self.line.as_ref().is_some_and(|line| line.qp == qp)
    }

    /// Refuses a request. One that has timed out meanwhile needs no answer.
    pub fn reject(&mut self, request: ConnectionRequest, why: &[u8]) {
        let _ = self.ctx.reject(request, why);
    }

    /// Calls the server: makes the line.
    pub fn call(&mut self, peer: SocketAddr, wire: Wire) -> Result<(), RdmaError> {
        let line = self.line.insert(Line::new(&mut self.ctx, self.pd, wire, None)?);
        self.ctx.connect(line.qp, peer, &greeting())?;
        let start = Instant::now();
        let failed = |why: String| Err(RdmaError::Call(peer, why));
        loop {
            self.turn();
            match self.ctx.poll_event() {
                Some(Event::Established { private_data, .. }) => {
                    return check_greeting(&private_data).or_else(failed);
                }
                Some(Event::Rejected { private_data, .. }) => return failed(rejected(&private_data)),
                Some(Event::ConnectFailed { reason, .. }) => return failed(unanswered(reason).to_owned()),
                Some(Event::Disconnected { reason, .. }) => return failed(format!("hung up: {reason:?}")),
                None if start.elapsed() > CALL_WITHIN => return failed("timed out".to_owned()),
                _ => {}
            }
        }
    }

    /// Ends a wait, or the line, when the device loses its link.
    pub fn watch_link(&mut self) {
        self.watch_link = true;
    }

    /// Waits for a near end's call. Strangers are turned away with a line on standard error.
    pub fn await_call(&mut self, halt: &AtomicBool) -> Result<Call, RdmaError> {
        while !halt.load(Ordering::Relaxed) {
            self.turn();
            if self.watch_link
                && self.turns.is_multiple_of(TURNS_A_GLANCE)
                && !self.with_worker(Worker::link_up)?
            {
                return Ok(Call::NoLink);
            }
            let Some(Event::ConnectRequest { request, remote, private_data, .. }) = self.ctx.poll_event()
            else {
                continue;
            };
            match check_greeting(&private_data) {
                Ok(()) => return Ok(Call::From(request, remote)),
                Err(why) => {
                    eprintln!("iwarp-perf: {remote} was turned away: {why}");
                    self.reject(request, why.as_bytes());
                }
            }
        }
        Ok(Call::Halted)
    }

    /// Takes a call: makes the line. `halt` ends it.
    pub fn take_call(
        &mut self,
        request: ConnectionRequest,
        wire: Wire,
        halt: Arc<AtomicBool>,
    ) -> Result<(), RdmaError> {
        let line = self.line.insert(Line::new(&mut self.ctx, self.pd, wire, Some(halt))?);
        let qp = line.qp;
        self.ctx.accept(request, qp, &greeting())?;
        let start = Instant::now();
        loop {
            self.turn();
            match self.ctx.poll_event() {
                Some(Event::Established { qp: up, .. }) if up == qp => return Ok(()),
                Some(Event::ConnectFailed { qp: down, reason }) if down == qp => {
                    return Err(RdmaError::Disconnected(unanswered(reason).to_owned()));
                }
                None if start.elapsed() > CALL_WITHIN => return Err(RdmaError::Timeout("taking the call")),
                _ => {}
            }
        }
    }

    /// Says nothing more over the line and waits until it has ended; a line that was cut is dropped.
    pub fn hang_up(&mut self, first: bool) {
        if first && let Some(line) = &self.line {
            let _ = self.ctx.disconnect(line.qp);
        }
        let start = Instant::now();
        while !self.is_cut_off() && start.elapsed() < HANG_UP_WITHIN {
            self.turn();
            let _ = self.poll_event();
        }
        self.drop_line();
    }

    /// Gives the line's queues back.
    pub fn drop_line(&mut self) {
        let Some(line) = self.line.take() else { return };
        self.cut_off = None;
        let (start, _) = (Instant::now(), self.ctx.destroy_qp(line.qp));
        while self.ctx.destroy_cq(line.cq).is_err() && start.elapsed() < HANG_UP_WITHIN {
            self.turn();
            while self.poll_event().is_some() {}
        }
    }
}

/// Why a call came to nothing, in words.
fn unanswered(reason: ConnectFailure) -> &'static str {
    match reason {
        ConnectFailure::Unreachable => "unreachable: nobody answers for the address",
        ConnectFailure::Refused => "refused: is a server there?",
        ConnectFailure::TimedOut => "timed out",
        ConnectFailure::Closed => {
            "closed during start-up: another protocol at this port, or MPA settings that it refuses"
        }
        ConnectFailure::Protocol => "speaks another protocol: name the port of an iwarp-perf server",
        _ => "no connection was free",
    }
}

fn rejected(why: &[u8]) -> String {
    match String::from_utf8_lossy(why) {
        why if why.is_empty() => "rejected without a reason".to_owned(),
        why => format!("rejected: {why}"),
    }
}
