//! The control connection of an endpoint: connect, accept, and loss detection.
//!
//! A client connects to a server over the measured device, with a separate queue pair
//! ([`ControlChannel`]). Its loss is recorded with the reason. No wait on it is unbounded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ironwarp::{
    CompletionQueue, ConnectFailure, ConnectionRequest, Context, Event, QueuePair, SharedReceiveQueue,
    VerbsError,
};

use super::super::control_channel::{ControlChannel, PEER_TIMEOUT, check_greeting, greeting, is_greeting};
use super::Endpoint;
use crate::control::Carrier;
use crate::error::{Context as _, Result};

/// Longer than the stack's own limits on each step.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

impl Endpoint {
    /// Polls the control connection and detects its loss.
    pub(super) fn poll_control(&mut self) {
        if let (Some(control), None) = (&mut self.control, &self.control_loss)
            && let Err(why) = control.poll(&mut self.ctx)
        {
            self.on_control_lost(why.to_string());
        }
    }

    fn on_control_lost(&mut self, why: String) {
        if let Some(control) = &mut self.control {
            control.close();
        }
        self.control_loss.get_or_insert(why);
    }

    /// Why the control connection was lost.
    pub fn control_loss(&self) -> Option<&str> {
        self.control_loss.as_deref()
    }

    /// Whether the control connection was lost because the peer sent nothing.
    pub fn is_peer_silent(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.is_peer_silent)
    }

    pub fn is_control_lost(&self) -> bool {
        self.control_loss.is_some()
    }

    /// Returns the next event of a test's connections. Events of the control connection are handled
    /// here.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            let listener = self.listener.as_mut();
            match self.ctx.poll_event().or_else(|| listener.and_then(Context::poll_event))? {
                Event::ConnectRequest { request, private_data, .. } if is_greeting(&private_data) => {
                    self.busy += 1;
                    self.reject(request, b"busy: serves another client");
                }
                Event::Disconnected { qp, reason } if self.is_control_qp(qp) => {
                    self.on_control_lost(format!("its connection ended: {reason:?}"));
                }
                Event::Terminated { qp, terminate, .. } if self.is_control_qp(qp) => {
                    self.on_control_lost(format!("its connection ended: {terminate:?}"));
                }
                other => return Some(other),
            }
        }
    }

    fn is_control_qp(&self, qp: QueuePair) -> bool {
        self.control.as_ref().is_some_and(|control| control.qp == qp)
    }

    /// Rejects a request. One that has timed out needs no reply.
    pub fn reject(&mut self, request: ConnectionRequest, why: &[u8]) {
        let _ = self.ctx.reject(request, why);
    }

    /// Returns the next client that asks to be served, or a line about one that was rejected.
    pub fn next_client(&mut self) -> Option<Result<(ConnectionRequest, SocketAddr), String>> {
        let event = self.listener.as_mut()?.poll_event()?;
        let Event::ConnectRequest { request, remote, private_data, .. } = event else { return None };
        Some(match check_greeting(&private_data) {
            Ok(()) => Ok((request, remote)),
            Err(why) => {
                self.reject(request, why.as_bytes());
                Err(format!("{remote} was turned away: {why}"))
            }
        })
    }

    /// Returns how many clients were rejected since the last call because another one was served.
    pub fn take_busy(&mut self) -> u64 {
        std::mem::take(&mut self.busy)
    }

    pub fn connect_control(&mut self, peer: SocketAddr, carrier: Carrier) -> Result<()> {
        let control = ControlChannel::new(&mut self.ctx, self.pd, carrier, None, PEER_TIMEOUT)?;
        self.ctx.connect(self.control.insert(control).qp, peer, &greeting())?;
        let connected = self.wait_for_control(|event| {
            Some(match event {
                Event::Established { private_data, .. } => check_greeting(&private_data),
                Event::Rejected { private_data, .. } => match String::from_utf8_lossy(&private_data) {
                    why if why.is_empty() => Err("rejected without a reason".to_owned()),
                    why => Err(format!("rejected: {why}")),
                },
                Event::ConnectFailed { reason, .. } => Err(connect_failure_text(reason).to_owned()),
                Event::Disconnected { reason, .. } => Err(format!("hung up: {reason:?}")),
                _ => return None,
            })
        });
        connected.context(peer)
    }

    /// Accepts a client. The connection ends when `halt` is set, or when the client was silent for
    /// `timeout`.
    pub fn accept_client(
        &mut self,
        request: ConnectionRequest,
        carrier: Carrier,
        halt: Arc<AtomicBool>,
        timeout: Duration,
    ) -> Result<()> {
        let control = ControlChannel::new(&mut self.ctx, self.pd, carrier, Some(halt), timeout)?;
        let qp = self.control.insert(control).qp;
        self.ctx.accept(request, qp, &greeting())?;
        let accepted = self.wait_for_control(|event| match event {
            Event::Established { qp: up, .. } if up == qp => Some(Ok(())),
            Event::ConnectFailed { qp: down, reason } if down == qp => {
                Some(Err(connect_failure_text(reason).to_owned()))
            }
            _ => None,
        });
        accepted.context("the connection ended")
    }

    /// Polls until an event says how the set-up of the control connection ended.
    fn wait_for_control(
        &mut self,
        on_event: impl Fn(Event) -> Option<Result<(), String>>,
    ) -> Result<(), String> {
        let start = Instant::now();
        loop {
            self.poll();
            match self.ctx.poll_event() {
                Some(event) => {
                    if let Some(outcome) = on_event(event) {
                        return outcome;
                    }
                }
                None if start.elapsed() > CONNECT_TIMEOUT => return Err("timed out".to_owned()),
                None => {}
            }
        }
    }

    /// Ends the control connection unless a slice that begins now is over within `limit`. `None`:
    /// it is over.
    pub fn limit_slice(&mut self, limit: Option<Duration>) {
        if let Some(control) = &mut self.control {
            control.limit_slice(limit);
        }
    }

    /// Waits for the end of the control connection, which this end closes where it is to
    /// `initiate`.
    pub fn close_control(&mut self, initiate: bool) {
        if initiate && let Some(control) = &self.control {
            let _ = self.ctx.disconnect(control.qp);
        }
        let start = Instant::now();
        while !self.is_control_lost() && start.elapsed() < DISCONNECT_TIMEOUT {
            self.poll();
            let _ = self.poll_event();
        }
        let Some(control) = self.control.take() else { return };
        self.control_loss = None;
        let _ = self.ctx.destroy_qp(control.qp);
        self.destroy_cq(control.cq, DISCONNECT_TIMEOUT);
    }

    /// Destroys a completion queue once its queue pairs are gone. Returns whether that was within
    /// `timeout`.
    pub fn destroy_cq(&mut self, cq: CompletionQueue, timeout: Duration) -> bool {
        self.retry_until(timeout, |ctx| ctx.destroy_cq(cq))
    }

    pub fn destroy_srq(&mut self, srq: SharedReceiveQueue, timeout: Duration) -> bool {
        self.retry_until(timeout, |ctx| ctx.destroy_srq(srq))
    }

    /// Polls until `step` succeeds. Returns whether that was within `timeout`.
    fn retry_until(
        &mut self,
        timeout: Duration,
        step: impl Fn(&mut Context) -> Result<(), VerbsError>,
    ) -> bool {
        let start = Instant::now();
        while step(&mut self.ctx).is_err() {
            self.poll();
            while self.poll_event().is_some() {}
            if start.elapsed() > timeout {
                return false;
            }
        }
        true
    }
}

fn connect_failure_text(reason: ConnectFailure) -> &'static str {
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
