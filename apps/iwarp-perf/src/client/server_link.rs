//! The far end, seen from the near end.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::ClientError;
use crate::child::{Role, log_level};
use crate::control::{Carrier, Channel, ChannelError, Dispatch, FromServer, ToServer};
use crate::plan::{ServerPlacement, Session};
use crate::rdma::Endpoint;
use crate::server;

/// Starting a device may take long; serving the end of a slice does not.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that received the goodbye message exits by itself, after cleaning up.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Fruitless looks between two looks at the clock.
const POLLS_PER_CLOCK_READ: u32 = 1 << 12;

/// A far end and the stream to it.
pub struct ServerLink {
    channel: Channel<FromServer>,
    handle: ServerHandle,
    is_shut_down: bool,
}

enum ServerHandle {
    Process(Child),
    Thread(Option<JoinHandle<()>>),
    Remote,
}

impl ServerLink {
    /// A link to a server, and the wire that must carry what is said.
    pub fn to_remote(halt: Arc<AtomicBool>) -> (Self, Carrier) {
        let (channel, carrier) =
            Channel::over_carrier(Dispatch::Queue, move || halt.store(true, Ordering::Relaxed));
        (ServerLink { channel, handle: ServerHandle::Remote, is_shut_down: false }, carrier)
    }

    /// Whether somebody must poll for the far end's answers.
    pub fn is_remote(&self) -> bool {
        matches!(self.handle, ServerHandle::Remote)
    }

    /// Starts the far end where the session wants it; a thread gets `endpoint`. `halt` is raised when it goes.
    pub fn start(
        session: &Session,
        endpoint: Option<Endpoint>,
        halt: Arc<AtomicBool>,
    ) -> Result<Self, ClientError> {
        Self::try_start(session, endpoint, halt)
            .map_err(|source| ClientError::System { what: "starting the far end", source })
    }

    fn try_start(session: &Session, endpoint: Option<Endpoint>, halt: Arc<AtomicBool>) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let handle = match session.server_placement {
            ServerPlacement::Process => {
                let child = Role::Server.command(theirs, &log_level())?.spawn()?;
                tracing::info!("the far end is process {}", child.id());
                ServerHandle::Process(child)
            }
            ServerPlacement::Remote | ServerPlacement::RingLoopback | ServerPlacement::MemoryLoopback => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            ServerPlacement::RingThread | ServerPlacement::MemoryThread => {
                let thread = std::thread::Builder::new().name("server".into());
                ServerHandle::Thread(Some(thread.spawn(move || server::serve(theirs, endpoint))?))
            }
        };
        let channel = Channel::new(ours, Dispatch::Queue, move || halt.store(true, Ordering::Relaxed))?;
        Ok(ServerLink { channel, handle, is_shut_down: false })
    }

    /// Says something.
    pub fn send(&mut self, message: &ToServer) -> Result<(), ClientError> {
        self.channel.send(message).map_err(|_| self.exit_error())
    }

    /// Waits for the next answer.
    pub fn recv(&mut self) -> Result<FromServer, ClientError> {
        let reply = self.channel.recv_within(REPLY_TIMEOUT);
        self.check_reply(reply)
    }

    /// Waits for the next answer and does something meanwhile, again and again: polls, so that the far end gets
    /// what it still needs from this one.
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

    /// Tells the far end to leave, once it has said that its device is at rest.
    pub fn shut_down(&mut self) -> Result<(), ClientError> {
        let reply = self.request(&ToServer::Goodbye)?;
        expect_reply(reply, |reply| if matches!(reply, FromServer::Gone) { Ok(()) } else { Err(reply) })?;
        self.is_shut_down = true;
        Ok(())
    }

    /// Says something and waits for the answer.
    pub fn request(&mut self, message: &ToServer) -> Result<FromServer, ClientError> {
        self.send(message)?;
        self.recv()
    }

    fn check_reply(&mut self, reply: Result<FromServer, ChannelError>) -> Result<FromServer, ClientError> {
        match reply {
            Ok(FromServer::Failed(line)) => Err(ClientError::ServerFailed(line)),
            Ok(reply) => Ok(reply),
            Err(ChannelError::TimedOut) => Err(ClientError::ServerGone("does not answer".to_owned())),
            Err(ChannelError::Closed) => Err(self.exit_error()),
        }
    }

    /// How the far end went. What it said last may still wait to be heard.
    fn exit_error(&mut self) -> ClientError {
        while let Ok(last) = self.channel.recv() {
            if let FromServer::Failed(line) = last {
                return ClientError::ServerFailed(line);
            }
        }
        let how = match &mut self.handle {
            ServerHandle::Process(child) => match child.wait().ok().and_then(|status| status.signal()) {
                Some(signal) => match Signal::try_from(signal) {
                    Ok(signal) => format!("died of {signal}"),
                    Err(_) => format!("died of signal {signal}"),
                },
                None => "left without a word".to_owned(),
            },
            ServerHandle::Thread(_) | ServerHandle::Remote => "left without a word".to_owned(),
        };
        ClientError::ServerGone(how)
    }
}

impl Drop for ServerLink {
    /// A far end that was not told goodbye is ended; one that was leaves by itself.
    fn drop(&mut self) {
        match &mut self.handle {
            ServerHandle::Process(child) => {
                let start = Instant::now();
                while self.is_shut_down
                    && start.elapsed() < EXIT_TIMEOUT
                    && matches!(child.try_wait(), Ok(None))
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
            ServerHandle::Remote => {}
            // A thread that was not told goodbye may be busy; it ends with the process.
            ServerHandle::Thread(thread) => {
                if let Some(thread) = thread.take().filter(|_| self.is_shut_down) {
                    let _ = thread.join();
                }
            }
        }
    }
}

/// Fails unless the answer is the one that was due.
pub fn expect_reply<T>(
    reply: FromServer,
    take: impl FnOnce(FromServer) -> Result<T, FromServer>,
) -> Result<T, ClientError> {
    take(reply).map_err(|other| ClientError::UnexpectedMessage(format!("{other:?}")))
}
