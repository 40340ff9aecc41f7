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

use super::NearError;
use crate::child::{Role, log_level};
use crate::control::{Channel, ChannelError, FromFar, Hear, ToFar, Wire};
use crate::far;
use crate::plan::{FarPlace, Session};
use crate::rdma::Endpoint;

/// Starting a device may take long; serving the end of a slice does not.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A far end that was told goodbye leaves by itself, after cleaning up.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);
/// Fruitless looks between two looks at the clock.
const LOOKS_A_CLOCK: u32 = 1 << 12;

/// A far end and the stream to it.
pub struct FarLink {
    channel: Channel<FromFar>,
    place: Place,
    dismissed: bool,
}

enum Place {
    Process(Child),
    Thread(Option<JoinHandle<()>>),
    Server,
}

impl FarLink {
    /// A link to a server, and the wire that must carry what is said.
    pub fn to_server(halt: Arc<AtomicBool>) -> (Self, Wire) {
        let (channel, wire) = Channel::over_wire(Hear::Queue, move || halt.store(true, Ordering::Relaxed));
        (FarLink { channel, place: Place::Server, dismissed: false }, wire)
    }

    /// Whether somebody must poll for the far end's answers.
    pub fn is_server(&self) -> bool {
        matches!(self.place, Place::Server)
    }

    /// Starts the far end where the session wants it; a thread gets `endpoint`. `halt` is raised when it goes.
    pub fn start(
        session: &Session,
        endpoint: Option<Endpoint>,
        halt: Arc<AtomicBool>,
    ) -> Result<Self, NearError> {
        Self::start_io(session, endpoint, halt)
            .map_err(|source| NearError::System { what: "starting the far end", source })
    }

    fn start_io(session: &Session, endpoint: Option<Endpoint>, halt: Arc<AtomicBool>) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let place = match session.far {
            FarPlace::Process => {
                let child = Role::Far.command(theirs, &log_level())?.spawn()?;
                tracing::info!("the far end is process {}", child.id());
                Place::Process(child)
            }
            FarPlace::Server | FarPlace::RingStations | FarPlace::MemoryStations => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            FarPlace::RingThread | FarPlace::MemoryThread => {
                let thread = std::thread::Builder::new().name("far-end".into());
                Place::Thread(Some(thread.spawn(move || far::serve(theirs, endpoint))?))
            }
        };
        let channel = Channel::new(ours, Hear::Queue, move || halt.store(true, Ordering::Relaxed))?;
        Ok(FarLink { channel, place, dismissed: false })
    }

    /// Says something.
    pub fn send(&mut self, message: &ToFar) -> Result<(), NearError> {
        self.channel.send(message).map_err(|_| self.death())
    }

    /// Waits for the next answer.
    pub fn recv(&mut self) -> Result<FromFar, NearError> {
        let answer = self.channel.recv_within(ANSWER_WITHIN);
        self.understood(answer)
    }

    /// Waits for the next answer and does something meanwhile, again and again: polls, so that the far end gets
    /// what it still needs from this one.
    pub fn recv_while(
        &mut self,
        mut meanwhile: impl FnMut() -> Result<(), NearError>,
    ) -> Result<FromFar, NearError> {
        let start = Instant::now();
        let mut looks = 0_u32;
        loop {
            match self.channel.try_recv() {
                Ok(Some(answer)) => return self.understood(Ok(answer)),
                Ok(None) => meanwhile()?,
                Err(error) => return self.understood(Err(error)),
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_A_CLOCK) && start.elapsed() > ANSWER_WITHIN {
                return self.understood(Err(ChannelError::Silent));
            }
        }
    }

    /// Tells the far end to leave, once it has said that its device is at rest.
    pub fn dismiss(&mut self) -> Result<(), NearError> {
        let answer = self.ask(&ToFar::Goodbye)?;
        due(answer, |answer| if matches!(answer, FromFar::Gone) { Ok(()) } else { Err(answer) })?;
        self.dismissed = true;
        Ok(())
    }

    /// Says something and waits for the answer.
    pub fn ask(&mut self, message: &ToFar) -> Result<FromFar, NearError> {
        self.send(message)?;
        self.recv()
    }

    fn understood(&mut self, answer: Result<FromFar, ChannelError>) -> Result<FromFar, NearError> {
        match answer {
            Ok(FromFar::Failed(line)) => Err(NearError::FarFailed(line)),
            Ok(answer) => Ok(answer),
            Err(ChannelError::Silent) => Err(NearError::FarGone("does not answer".to_owned())),
            Err(ChannelError::Gone) => Err(self.death()),
        }
    }

    /// How the far end went. What it said last may still wait to be heard.
    fn death(&mut self) -> NearError {
        while let Ok(last) = self.channel.recv() {
            if let FromFar::Failed(line) = last {
                return NearError::FarFailed(line);
            }
        }
        let how = match &mut self.place {
            Place::Process(child) => match child.wait().ok().and_then(|status| status.signal()) {
                Some(signal) => match Signal::try_from(signal) {
                    Ok(signal) => format!("died of {signal}"),
                    Err(_) => format!("died of signal {signal}"),
                },
                None => "left without a word".to_owned(),
            },
            Place::Thread(_) | Place::Server => "left without a word".to_owned(),
        };
        NearError::FarGone(how)
    }
}

impl Drop for FarLink {
    /// A far end that was not told goodbye is ended; one that was leaves by itself.
    fn drop(&mut self) {
        match &mut self.place {
            Place::Process(child) => {
                let start = Instant::now();
                while self.dismissed && start.elapsed() < LEAVE_WITHIN && matches!(child.try_wait(), Ok(None))
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
            Place::Server => {}
            // A thread that was not told goodbye may be busy; it ends with the process.
            Place::Thread(thread) => {
                if let Some(thread) = thread.take().filter(|_| self.dismissed) {
                    let _ = thread.join();
                }
            }
        }
    }
}

/// Fails unless the answer is the one that was due.
pub fn due<T>(answer: FromFar, take: impl FnOnce(FromFar) -> Result<T, FromFar>) -> Result<T, NearError> {
    take(answer).map_err(|other| NearError::OutOfTurn(format!("{other:?}")))
}
