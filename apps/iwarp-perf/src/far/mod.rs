//! The far end: does what the near end says, and serves until it says stop.

pub mod server;
mod sockets;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use ironwarp::Event;
use ironwarp_bench::host::{cpu_ns, pin};
use ironwarp_bench::{Case, FarSlice, StopSignal, Transport};

use crate::child::Role;
use crate::control::{Channel, ChannelError, FromFar, Hear, ToFar};
use crate::plan::FarSetup;
use crate::rdma::{Endpoint, OpenRdma, RdmaError, accept, frames_far, wait_for_ends};
use sockets::Sockets;

/// The far end's process: its standard input is the near end's socket.
pub fn main() -> ExitCode {
    match Role::Far.settle() {
        Ok(socket) => serve(socket, None),
        Err(error) => eprintln!("far end: {error}"),
    }
    ExitCode::SUCCESS
}

/// Serves a near end until it says goodbye or goes. A thread of the near end's process is given its endpoint; a
/// process opens its own when told to.
pub fn serve(socket: UnixStream, endpoint: Option<Endpoint>) {
    let stop = Arc::new(StopSignal::default());
    let ended = stop.clone();
    // A near end that is gone expects nothing any more.
    let channel = match Channel::new(socket, hear(stop.clone()), move || ended.raise(0)) {
        Ok(channel) => channel,
        Err(error) => return eprintln!("far end: {error}"),
    };
    let mut far = Far::new(channel, stop, endpoint);
    if let Err(Failure::Said(line)) = far.run() {
        let _ = far.channel.send(&FromFar::Failed(line));
    }
}

/// Takes the end of a slice in on the thread that hears it; everything else waits in line.
fn hear(stop: Arc<StopSignal>) -> impl FnMut(ToFar) -> Hear<ToFar> + Send {
    move |message| match message {
        ToFar::Stop { expected } => {
            stop.raise(expected);
            Hear::Handled
        }
        message => Hear::Queue(message),
    }
}

/// Why the far end stops serving.
pub enum Failure {
    /// The near end has gone: there is nobody to tell.
    Gone,
    /// Something else, in a line.
    Said(String),
}

impl From<ChannelError> for Failure {
    fn from(_: ChannelError) -> Self {
        Failure::Gone
    }
}

impl From<RdmaError> for Failure {
    fn from(error: RdmaError) -> Self {
        Failure::Said(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Said(error.to_string())
    }
}

/// Refuses what another machine may not ask for.
fn check(cases: &[Case]) -> Result<(), Failure> {
    match cases {
        [case] if case.test.transport() == Transport::Ironwarp => {
            crate::cli::check_case(case).map_err(Failure::Said)
        }
        [_] => Err(Failure::Said("raw frames and Linux sockets need both ends on one machine".to_owned())),
        _ => Err(Failure::Said("one case at a time".to_owned())),
    }
}

struct Far {
    channel: Channel<ToFar>,
    stop: Arc<StopSignal>,
    sockets: Sockets,
    cases: Vec<Case>,
    endpoint: Option<Endpoint>,
    /// The cases that run over the stack, in their places.
    rdma: Vec<Option<OpenRdma>>,
    /// The address to listen at, until it is listened at.
    listen: Option<SocketAddr>,
    /// The near end's machine, where it is another one.
    remote: Option<IpAddr>,
    /// Connections of the group that have ended already.
    ended: usize,
}

impl Far {
    fn new(channel: Channel<ToFar>, stop: Arc<StopSignal>, endpoint: Option<Endpoint>) -> Self {
        let (sockets, cases, rdma) = (Sockets::default(), Vec::new(), Vec::new());
        Far { channel, stop, sockets, cases, endpoint, rdma, listen: None, remote: None, ended: 0 }
    }

    /// The near end's next message. Over a queue pair nobody else polls for it.
    fn recv(&mut self) -> Result<ToFar, Failure> {
        let Some(endpoint) = self.endpoint.as_mut().filter(|_| self.remote.is_some()) else {
            return Ok(self.channel.recv()?);
        };
        loop {
            if let Some(message) = self.channel.try_recv()? {
                return Ok(message);
            }
            endpoint.turn();
            // The near end may disconnect before its message that it will has come; others who call are told off.
            if let Some(Event::Disconnected { .. }) = endpoint.poll_event() {
                self.ended += 1;
            }
        }
    }

    fn run(&mut self) -> Result<(), Failure> {
        loop {
            let answer = match self.recv()? {
                ToFar::Listen { .. } if self.remote.is_some() => {
                    return Err(Failure::Said("Linux sockets need both ends on one machine".to_owned()));
                }
                // The device is the server's own.
                ToFar::Open(_) if self.remote.is_some() => FromFar::Opened,
                ToFar::Open(setup) => self.open(&setup)?,
                ToFar::Listen { path, namespace } => {
                    FromFar::Listening(self.sockets.listen(path, namespace.as_deref())?)
                }
                ToFar::Prepare { cases } => self.prepare(cases)?,
                ToFar::Start { case } => self.slice(case)?,
                ToFar::Release => self.release()?,
                ToFar::Goodbye => {
                    self.channel.send(&FromFar::Gone)?;
                    return Ok(());
                }
                // It raced with the end of a slice that had failed; the next one starts anew.
                ToFar::Stop { .. } => continue,
            };
            self.channel.send(&answer)?;
        }
    }

    fn open(&mut self, setup: &FarSetup) -> Result<FromFar, Failure> {
        if !setup.events && setup.cores <= 1 {
            pin(setup.core)?;
        }
        self.listen = setup.listen;
        if self.endpoint.is_none()
            && let Some(config) = &setup.config
        {
            self.endpoint = Some(Endpoint::open(config, setup.apart(), setup.events)?);
        }
        Ok(FromFar::Opened)
    }

    /// Opens the group's cases, then lets the near end's queue pairs in.
    fn prepare(&mut self, cases: Vec<Case>) -> Result<FromFar, Failure> {
        if self.remote.is_some() {
            check(&cases)?;
        }
        self.cases = cases;
        if let (Some(endpoint), Some(address)) = (&mut self.endpoint, self.listen.take()) {
            endpoint.wait_for_link()?;
            endpoint.listen(address)?;
        }
        for case in &self.cases {
            self.rdma.push(match (case.test.transport(), &mut self.endpoint) {
                (Transport::Ironwarp, Some(endpoint)) => Some(OpenRdma::new(endpoint, case, false)?),
                _ => None,
            });
        }
        self.channel.send(&FromFar::Prepared)?;
        if let Some(endpoint) = &mut self.endpoint {
            accept(endpoint, &mut self.rdma, self.remote)?;
        }
        Ok(FromFar::Connected)
    }

    fn release(&mut self) -> Result<FromFar, Failure> {
        self.cases.clear();
        let open: usize = self.rdma.iter().flatten().map(OpenRdma::connections).sum();
        let connections = open.saturating_sub(std::mem::take(&mut self.ended));
        if let Some(endpoint) = &mut self.endpoint {
            wait_for_ends(endpoint, connections)?;
            self.rdma.drain(..).flatten().try_for_each(|open| open.destroy(endpoint))?;
        }
        self.rdma.clear();
        Ok(FromFar::Released)
    }

    /// Serves one case until the stop, and tells what it found.
    fn slice(&mut self, index: usize) -> Result<FromFar, Failure> {
        let Some(case) = self.cases.get(index).cloned() else {
            return Err(Failure::Said(format!("no case {index} in this group")));
        };
        let before = cpu_ns();
        self.stop.lower();
        let found = match case.test.transport() {
            Transport::KernelTcp => {
                let link = self.sockets.link(case.path)?;
                self.channel.send(&FromFar::Ready)?;
                link.serve(&case, &self.stop)?
            }
            Transport::Frames => {
                self.channel.send(&FromFar::Ready)?;
                frames_far(self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?, &case, &self.stop)?
            }
            Transport::Ironwarp => {
                self.channel.send(&FromFar::Ready)?;
                let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
                let open = self.rdma.get_mut(index).and_then(Option::as_mut).ok_or(RdmaError::NoDevice)?;
                open.far(endpoint, &self.stop)?
            }
        };
        Ok(FromFar::Done(FarSlice { cpu_ns: cpu_ns().saturating_sub(before), ..found }))
    }
}
