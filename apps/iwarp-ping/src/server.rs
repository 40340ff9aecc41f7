//! The server: accepts clients, reads their texts and writes them back.
//!
//! An error of one client ends its own connection and is reported on one line. A server that is not
//! persistent serves one client and ends with its result.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::time::Duration;

use ironwarp::{Completion, ConnectionRequest, Event};

use crate::endpoint::{Endpoint, PingError};
use crate::message::Fault;
use crate::session::Session;
use crate::stats::ServerStats;

const REAP: usize = 32;
/// The time to poll after the last client's end, so that the last acknowledgement is sent.
const LINGER: Duration = Duration::from_millis(5);

/// The parameters of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    pub local: SocketAddr,
    /// Bytes of the longest accepted text, 1 to [`TEXT_BYTES_MAX`](crate::TEXT_BYTES_MAX).
    pub bytes_max: u32,
    /// Pings that each client must make; `None`: any number.
    pub count: Option<u64>,
    /// Compare every text with what `rping`'s clients send.
    pub verify: bool,
    pub verbose: bool,
    /// Serve any number of clients, several at once.
    pub persistent: bool,
    /// The time that a client may be silent.
    pub timeout: Duration,
}

impl ServerConfig {
    pub(crate) fn inspects_text(&self) -> bool {
        self.verify || self.verbose
    }
}

/// A server that listens.
pub struct Server {
    endpoint: Endpoint,
    server_config: ServerConfig,
    sessions: HashMap<u32, Session>,
    stats: ServerStats,
    /// The error that ended the last client, if it ended with one.
    last_error: Option<PingError>,
    finished: bool,
    on_error: ErrorHandler,
}

/// Called for each client that is given up.
pub type ErrorHandler = Box<dyn FnMut(SocketAddr, &PingError) + Send>;

impl Server {
    pub fn new(
        mut endpoint: Endpoint,
        server_config: ServerConfig,
        on_error: ErrorHandler,
    ) -> Result<Self, PingError> {
        endpoint.listen(server_config.local)?;
        let (sessions, stats) = (HashMap::new(), ServerStats::default());
        Ok(Server { endpoint, server_config, sessions, stats, last_error: None, finished: false, on_error })
    }

    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// Serves until `stop` is set or, if the server is not persistent, until the first client has
    /// left. Fails with the error of that client.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), PingError> {
        while !stop.load(Ordering::Relaxed) && !self.finished {
            let is_check_due = self.endpoint.poll();
            self.on_completions()?;
            while let Some(event) = self.endpoint.ctx.poll_event() {
                self.on_event(event)?;
            }
            if is_check_due {
                self.check_sessions()?;
            }
        }
        self.close()
    }

    /// Closes the remaining connections and ends the run.
    fn close(&mut self) -> Result<(), PingError> {
        for session in self.sessions.values() {
            // One that is closing already is left alone.
            let _ = self.endpoint.ctx.disconnect(session.qp);
        }
        for (_, session) in self.sessions.drain() {
            self.stats.pings += session.pings;
            self.stats.bytes += session.bytes;
        }
        if self.endpoint.is_linked() {
            self.endpoint.poll_for(LINGER);
        }
        match self.last_error.take() {
            Some(error) if !self.server_config.persistent => Err(error),
            _ => Ok(()),
        }
    }

    fn on_completions(&mut self) -> Result<usize, PingError> {
        let mut reaped = [Completion::default(); REAP];
        let count = self.endpoint.ctx.poll_cq(self.endpoint.cq, &mut reaped)?;
        for completion in reaped.iter().take(count) {
            let num = completion.qp.0;
            // Completions of a client that was given up are dropped.
            let Some(session) = self.sessions.get_mut(&num) else { continue };
            if let Err(error) = session.on_completion(&mut self.endpoint, completion) {
                self.end_session(num, Err(error))?;
            }
        }
        Ok(count)
    }

    fn on_event(&mut self, event: Event) -> Result<(), PingError> {
        match event {
            Event::ConnectRequest { request, remote, .. } => self.on_request(request, remote)?,
            Event::Terminated { qp, sent, terminate } => {
                if let Some(session) = self.sessions.get_mut(&qp.num().0) {
                    session.on_terminate(sent, terminate);
                }
            }
            Event::Disconnected { qp, reason } => {
                // Pings before the end count.
                while self.on_completions()? > 0 {}
                let num = qp.num().0;
                if let Some(session) = self.sessions.get(&num) {
                    let outcome = session.on_disconnect(reason).map_err(PingError::from);
                    self.end_session(num, outcome)?;
                }
            }
            Event::ConnectFailed { qp, reason } => {
                self.end_session(qp.num().0, Err(Fault::ConnectFailed(reason).into()))?;
            }
            Event::ListenFailed { local, .. } => return Err(PingError::Listen(local)),
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, request: ConnectionRequest, remote: SocketAddr) -> Result<(), PingError> {
        let most = if self.server_config.persistent { self.endpoint.connections_max } else { 1 };
        if self.sessions.len() >= most || self.finished {
            tracing::warn!("{remote} was turned away: busy");
            return Ok(self.endpoint.ctx.reject(request, b"busy with another client")?);
        }
        let session = match Session::new(&mut self.endpoint, self.server_config, remote) {
            Ok(session) => session,
            Err(error) => {
                tracing::warn!("{remote} was turned away: {error}");
                return Ok(self.endpoint.ctx.reject(request, b"no resources")?);
            }
        };
        if let Err(error) = self.endpoint.ctx.accept(request, session.qp, &[]) {
            // The limit of queue pairs is reached, or a queue pair that was destroyed is still
            // being returned.
            tracing::warn!("{remote} was not accepted: {error}");
            return Ok(self.endpoint.ctx.destroy_qp(session.qp)?);
        }
        tracing::info!("{remote} is connected");
        self.sessions.insert(session.qp.num().0, session);
        Ok(())
    }

    /// Ends the service of a client. A connection that is still up is reset.
    fn end_session(&mut self, num: u32, outcome: Result<(), PingError>) -> Result<(), PingError> {
        let Some(session) = self.sessions.remove(&num) else { return Ok(()) };
        self.stats.pings += session.pings;
        self.stats.bytes += session.bytes;
        match outcome {
            Ok(()) => {
                self.stats.served += 1;
                tracing::info!("{} was served: {} pings", session.remote, session.pings);
            }
            Err(error) => {
                self.stats.failed += 1;
                (self.on_error)(session.remote, &error);
                self.last_error = Some(error);
            }
        }
        self.finished = !self.server_config.persistent;
        Ok(self.endpoint.ctx.destroy_qp(session.qp)?)
    }

    /// Drops clients that are silent or gone.
    fn check_sessions(&mut self) -> Result<(), PingError> {
        if !self.endpoint.is_linked() {
            self.end_failed_sessions(|session| Err(Fault::LinkDown(session.pings)))?;
        }
        self.end_failed_sessions(Session::check_timeout)
    }

    fn end_failed_sessions(
        &mut self,
        check: impl Fn(&Session) -> Result<(), Fault>,
    ) -> Result<(), PingError> {
        let failed_sessions =
            self.sessions.iter().filter_map(|(num, session)| Some((*num, check(session).err()?)));
        let failed_sessions: Vec<(u32, Fault)> = failed_sessions.collect();
        failed_sessions.into_iter().try_for_each(|(num, fault)| self.end_session(num, Err(fault.into())))
    }
}
