//! The server, as the client sees it: a process, a thread or a remote machine, and the control channel to it.

use std::io;
use std::mem::discriminant;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::error::ClientError;
use crate::child::{Role, exit_text, log_level, wait_or_kill};
use crate::control::{Carrier, Channel, ChannelError, Dispatch, FromServer, ToServer};
use crate::plan::{ServerPlacement, Session};
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
    /// Creates a link to a remote server, and the carrier that must transport its messages.
    pub fn to_remote(halt: Arc<AtomicBool>) -> (Self, Option<Carrier>) {
        let on_close = move || halt.store(true, Ordering::Relaxed);
        let (channel, carrier) = Channel::over_carrier(Dispatch::Queue, on_close);
        (ServerLink { channel, handle: ServerHandle::Remote, is_shut_down: false }, Some(carrier))
    }

    /// Returns whether replies arrive only while the endpoint is polled.
    pub fn is_remote(&self) -> bool {
        matches!(self.handle, ServerHandle::Remote)
    }

    /// Starts the server as the session says. A thread gets `endpoint`. `halt` is set when the server ends.
    pub fn start(
        session: &Session,
        endpoint: Option<Endpoint>,
        halt: Arc<AtomicBool>,
    ) -> Result<Self, ClientError> {
        Self::try_start(session.server_placement, endpoint, halt)
            .map_err(|source| ClientError::System { what: "starting the server", source })
    }

    fn try_start(
        placement: ServerPlacement,
        endpoint: Option<Endpoint>,
        halt: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let handle = if placement == ServerPlacement::Process {
            let child = Role::Server.command(theirs, &log_level())?.spawn()?;
            tracing::info!("the server is process {}", child.id());
            ServerHandle::Process(child)
        } else {
            let thread = std::thread::Builder::new().name("server".into());
            ServerHandle::Thread(Some(thread.spawn(move || server::serve(theirs, endpoint))?))
        };
        let channel = Channel::new(ours, Dispatch::Queue, move || halt.store(true, Ordering::Relaxed))?;
        Ok(ServerLink { channel, handle, is_shut_down: false })
    }

    /// Sends a message.
    pub fn send(&mut self, message: &ToServer) -> Result<(), ClientError> {
        self.channel.send(message).map_err(|_| self.exit_error())
    }

    /// Waits for the next reply.
    pub fn recv(&mut self) -> Result<FromServer, ClientError> {
        let reply = self.channel.recv_within(REPLY_TIMEOUT);
        self.check_reply(reply)
    }

    /// Waits for the next reply and calls `poll` meanwhile, so that the server gets what it needs from this end.
    pub fn recv_while(
        &mut self,
        mut poll: impl FnMut() -> Result<(), ClientError>,
    ) -> Result<FromServer, ClientError> {
        let start = Instant::now();
        let mut poll_count = 0_u32;
        loop {
            match self.channel.try_recv() {
                Ok(Some(reply)) => return self.check_reply(Ok(reply)),
                Ok(None) => poll()?,
                Err(error) => return self.check_reply(Err(error)),
            }
            poll_count = poll_count.wrapping_add(1);
            if poll_count.is_multiple_of(POLLS_PER_CLOCK_READ) && start.elapsed() > REPLY_TIMEOUT {
                return self.check_reply(Err(ChannelError::TimedOut));
            }
        }
    }

    /// Sends a request and waits for the reply.
    pub fn request(&mut self, message: &ToServer) -> Result<FromServer, ClientError> {
        self.send(message)?;
        self.recv()
    }

    fn check_reply(&mut self, reply: Result<FromServer, ChannelError>) -> Result<FromServer, ClientError> {
        match reply {
            Ok(FromServer::Failed(line)) => Err(ClientError::ServerFailed(line)),
            Ok(reply) => Ok(reply),
            Err(ChannelError::TimedOut) => Err(ClientError::ServerGone("does not respond".to_owned())),
            Err(ChannelError::Closed) => Err(self.exit_error()),
        }
    }

    /// Returns why the server ended. Its last message may still be queued.
    fn exit_error(&mut self) -> ClientError {
        while let Ok(last) = self.channel.recv() {
            if let FromServer::Failed(line) = last {
                return ClientError::ServerFailed(line);
            }
        }
        let status = match &mut self.handle {
            ServerHandle::Process(child) => child.wait().ok(),
            ServerHandle::Thread(_) | ServerHandle::Remote => None,
        };
        ClientError::ServerGone(exit_text(status))
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
    pub fn expect(self, expected: &FromServer) -> Result<(), ClientError> {
        match discriminant(&self) == discriminant(expected) {
            true => Ok(()),
            false => Err(ClientError::UnexpectedMessage(format!("{self:?}"))),
        }
    }
}
