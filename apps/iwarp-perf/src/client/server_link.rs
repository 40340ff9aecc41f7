//! The server, as the client sees it: a process, a thread or a remote machine, and the control
//! channel to it.

use std::mem::discriminant;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::child::{Role, exit_text, log_level, wait_or_kill};
use crate::control::{Carrier, Channel, FromServer, ToServer};
use crate::error::{Context, Error, Result};
use crate::plan::ServerPlacement;
use crate::rdma::Endpoint;
use crate::server;

/// The time that the server has to reply. Only the start of a device takes long.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that the server process has to exit after `Goodbye`.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Polls without a reply between two clock reads.
const POLLS_PER_CLOCK_READ: u32 = 1 << 12;

/// A server and the control channel to it.
pub struct ServerLink {
    channel: Channel<FromServer>,
    handle: ServerHandle,
    /// The server has confirmed `Goodbye` and exits by itself.
    pub is_shut_down: bool,
}

enum ServerHandle {
    Process(Child),
    Thread(Option<JoinHandle<()>>),
    Remote,
}

impl ServerLink {
    /// Starts a server on this machine, where a thread gets `endpoint`. For a remote one returns
    /// the carrier that must transport its messages. `halt` is set when the server ends.
    pub fn start(
        placement: ServerPlacement,
        endpoint: Option<Endpoint>,
        halt: Arc<AtomicBool>,
    ) -> Result<(Self, Option<Carrier>)> {
        let on_close = move || halt.store(true, Ordering::Relaxed);
        let link = |channel, handle| ServerLink { channel, handle, is_shut_down: false };
        if placement == ServerPlacement::Remote {
            let (channel, carrier) = Channel::over_carrier(Some, on_close);
            return Ok((link(channel, ServerHandle::Remote), Some(carrier)));
        }
        let (ours, theirs) = UnixStream::pair()?;
        let handle = if placement == ServerPlacement::Process {
            let child = Role::Server.command(theirs, &log_level())?.spawn().context("starting the server")?;
            tracing::info!("the server is process {}", child.id());
            ServerHandle::Process(child)
        } else {
            let thread = std::thread::Builder::new().name("server".into());
            let serve = move || server::serve(theirs, endpoint).unwrap_or_else(|error| eprintln!("{error}"));
            ServerHandle::Thread(Some(thread.spawn(serve)?))
        };
        Ok((link(Channel::new(ours, Some, on_close)?, handle), None))
    }

    /// Whether replies arrive only while the endpoint is polled.
    pub fn is_remote(&self) -> bool {
        matches!(self.handle, ServerHandle::Remote)
    }

    pub fn send(&mut self, message: &ToServer) -> Result<()> {
        self.channel.send(message).map_err(|_| self.exit_error())
    }

    /// Waits for the next reply.
    pub fn recv(&mut self) -> Result<FromServer> {
        let reply = self.channel.recv_within(REPLY_TIMEOUT);
        self.check_reply(reply)
    }

    /// Waits for the next reply and calls `poll` meanwhile, so that the server gets what it needs
    /// from this end.
    pub fn recv_while(&mut self, mut poll: impl FnMut() -> Result<()>) -> Result<FromServer> {
        let start = Instant::now();
        let mut poll_count = 0_u32;
        let reply = loop {
            match self.channel.try_recv() {
                Ok(Some(reply)) => break Ok(reply),
                Ok(None) => poll()?,
                Err(error) => break Err(error),
            }
            poll_count = poll_count.wrapping_add(1);
            if poll_count.is_multiple_of(POLLS_PER_CLOCK_READ) && start.elapsed() > REPLY_TIMEOUT {
                break Err(Error::Silent(REPLY_TIMEOUT));
            }
        };
        self.check_reply(reply)
    }

    /// Sends a request and waits for the reply.
    pub fn request(&mut self, message: &ToServer) -> Result<FromServer> {
        self.send(message)?;
        self.recv()
    }

    fn check_reply(&mut self, reply: Result<FromServer>) -> Result<FromServer> {
        match reply {
            Ok(FromServer::Failed(line)) => Err(Error::Failed(format!("the server: {line}"))),
            Err(Error::Silent(_)) => Err(Error::failed("the server does not respond")),
            Err(Error::Gone) => Err(self.exit_error()),
            reply => reply,
        }
    }

    /// Returns why the server ended. Its last message may still be queued.
    fn exit_error(&mut self) -> Error {
        while let Ok(last) = self.channel.recv() {
            if let FromServer::Failed(line) = last {
                return Error::Failed(format!("the server: {line}"));
            }
        }
        let status = match &mut self.handle {
            ServerHandle::Process(child) => child.wait().ok(),
            ServerHandle::Thread(_) | ServerHandle::Remote => None,
        };
        Error::Failed(format!("the server {}", exit_text(status)))
    }
}

impl Drop for ServerLink {
    /// Waits for a server that was shut down, and kills a process that was not.
    fn drop(&mut self) {
        match &mut self.handle {
            ServerHandle::Process(child) => {
                wait_or_kill(child, if self.is_shut_down { EXIT_TIMEOUT } else { Duration::ZERO });
            }
            ServerHandle::Remote => {}
            // A thread that was not shut down may be busy; it ends with the process.
            ServerHandle::Thread(thread) => {
                if let Some(thread) = thread.take().filter(|_| self.is_shut_down) {
                    let _ = thread.join();
                }
            }
        }
    }
}

impl FromServer {
    /// Fails unless this reply is of the same kind as `expected`.
    pub fn expect(self, expected: &FromServer) -> Result<()> {
        match discriminant(&self) == discriminant(expected) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    /// The failure of a session whose server sent this instead of what the protocol allows.
    pub fn unexpected(&self) -> Error {
        Error::Failed(format!("unexpected message from the server: {self:?}"))
    }
}
