//! The far end: does what the near end says, and serves until it says stop.

mod sockets;
pub mod standalone;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use ironwarp::Event;
use ironwarp_bench::host::{cpu_ns, pin};
use ironwarp_bench::{Case, ServerSlice, StopSignal, Transport};

use crate::child::Role;
use crate::control::{Channel, ChannelError, Dispatch, FromServer, ToServer};
use crate::plan::ServerSetup;
use crate::rdma::{Endpoint, RdmaCase, RdmaError, accept, frames_server, wait_for_disconnects};
use sockets::Sockets;

/// The far end's process: its standard input is the near end's socket.
pub fn main() -> ExitCode {
    match Role::Server.init_process() {
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
    let channel = match Channel::new(socket, message_handler(stop.clone()), move || ended.raise(0)) {
        Ok(channel) => channel,
        Err(error) => return eprintln!("far end: {error}"),
    };
    let mut server = ServerSession::new(channel, stop, endpoint);
    if let Err(Failure::Failed(line)) = server.run() {
        let _ = server.channel.send(&FromServer::Failed(line));
    }
}

/// Takes the end of a slice in on the thread that hears it; everything else waits in line.
fn message_handler(stop: Arc<StopSignal>) -> impl FnMut(ToServer) -> Dispatch<ToServer> + Send {
    move |message| match message {
        ToServer::Stop { expected } => {
            stop.raise(expected);
            Dispatch::Handled
        }
        message => Dispatch::Queue(message),
    }
}

/// Why the far end stops serving.
pub enum Failure {
    /// The near end has gone: there is nobody to tell.
    Gone,
    /// Something else, in a line.
    Failed(String),
}

impl From<ChannelError> for Failure {
    fn from(_: ChannelError) -> Self {
        Failure::Gone
    }
}

impl From<RdmaError> for Failure {
    fn from(error: RdmaError) -> Self {
        Failure::Failed(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

/// Refuses what another machine may not ask for.
fn check(cases: &[Case]) -> Result<(), Failure> {
    match cases {
        [case] if case.test.transport() == Transport::Ironwarp => {
            crate::cli::check_case(case).map_err(Failure::Failed)
        }
        [_] => Err(Failure::Failed("raw frames and Linux sockets need both ends on one machine".to_owned())),
        _ => Err(Failure::Failed("one case at a time".to_owned())),
    }
}

struct ServerSession {
    channel: Channel<ToServer>,
    stop: Arc<StopSignal>,
    sockets: Sockets,
    cases: Vec<Case>,
    endpoint: Option<Endpoint>,
    /// The cases that run over the stack, in their places.
    rdma: Vec<Option<RdmaCase>>,
    /// The address to listen at, until it is listened at.
    listen: Option<SocketAddr>,
    /// The near end's machine, where it is another one.
    remote: Option<IpAddr>,
    /// Connections of the group that have ended already.
    ended: usize,
}

impl ServerSession {
    fn new(channel: Channel<ToServer>, stop: Arc<StopSignal>, endpoint: Option<Endpoint>) -> Self {
        let (sockets, cases, rdma) = (Sockets::default(), Vec::new(), Vec::new());
        ServerSession { channel, stop, sockets, cases, endpoint, rdma, listen: None, remote: None, ended: 0 }
    }

    /// The near end's next message. Over a queue pair nobody else polls for it.
    fn recv(&mut self) -> Result<ToServer, Failure> {
        let Some(endpoint) = self.endpoint.as_mut().filter(|_| self.remote.is_some()) else {
            return Ok(self.channel.recv()?);
        };
        loop {
            if let Some(message) = self.channel.try_recv()? {
                return Ok(message);
            }
            endpoint.poll();
            // The near end may disconnect before its message that it will has come; others who call are told off.
            if let Some(Event::Disconnected { .. }) = endpoint.poll_event() {
                self.ended += 1;
            }
        }
    }

    fn run(&mut self) -> Result<(), Failure> {
        loop {
            let reply = match self.recv()? {
                ToServer::Listen { .. } if self.remote.is_some() => {
                    return Err(Failure::Failed("Linux sockets need both ends on one machine".to_owned()));
                }
                // The device is the server's own.
                ToServer::Open(_) if self.remote.is_some() => FromServer::Opened,
                ToServer::Open(setup) => self.open(&setup)?,
                ToServer::Listen { path, namespace } => {
                    FromServer::Listening(self.sockets.listen(path, namespace.as_deref())?)
                }
                ToServer::Prepare { cases } => self.prepare(cases)?,
                ToServer::Start { case } => self.slice(case)?,
                ToServer::Release => self.release()?,
                ToServer::Goodbye => {
                    self.channel.send(&FromServer::Gone)?;
                    return Ok(());
                }
                // It raced with the end of a slice that had failed; the next one starts anew.
                ToServer::Stop { .. } => continue,
            };
            self.channel.send(&reply)?;
        }
    }

    fn open(&mut self, setup: &ServerSetup) -> Result<FromServer, Failure> {
        if !setup.events && setup.cores <= 1 {
            pin(setup.core)?;
        }
        self.listen = setup.listen;
        if self.endpoint.is_none()
            && let Some(config) = &setup.config
        {
            self.endpoint = Some(Endpoint::open(config, setup.worker_processor(), setup.events)?);
        }
        Ok(FromServer::Opened)
    }

    /// Opens the group's cases, then lets the near end's queue pairs in.
    fn prepare(&mut self, cases: Vec<Case>) -> Result<FromServer, Failure> {
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
                (Transport::Ironwarp, Some(endpoint)) => Some(RdmaCase::new(endpoint, case, false)?),
                _ => None,
            });
        }
        self.channel.send(&FromServer::Prepared)?;
        if let Some(endpoint) = &mut self.endpoint {
            accept(endpoint, &mut self.rdma, self.remote)?;
        }
        Ok(FromServer::Connected)
    }

    fn release(&mut self) -> Result<FromServer, Failure> {
        self.cases.clear();
        let open: usize = self.rdma.iter().flatten().map(RdmaCase::connections).sum();
        let connections = open.saturating_sub(std::mem::take(&mut self.ended));
        if let Some(endpoint) = &mut self.endpoint {
            wait_for_disconnects(endpoint, connections)?;
            self.rdma.drain(..).flatten().try_for_each(|open| open.destroy(endpoint))?;
        }
        self.rdma.clear();
        Ok(FromServer::Released)
    }

    /// Serves one case until the stop, and tells what it found.
    fn slice(&mut self, index: usize) -> Result<FromServer, Failure> {
        let Some(case) = self.cases.get(index).cloned() else {
            return Err(Failure::Failed(format!("no case {index} in this group")));
        };
        let before = cpu_ns();
        self.stop.reset();
        let found = match case.test.transport() {
            Transport::KernelTcp => {
                let connection = self.sockets.connection(case.path)?;
                self.channel.send(&FromServer::Ready)?;
                connection.serve(&case, &self.stop)?
            }
            Transport::Frames => {
                self.channel.send(&FromServer::Ready)?;
                frames_server(self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?, &case, &self.stop)?
            }
            Transport::Ironwarp => {
                self.channel.send(&FromServer::Ready)?;
                let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
                let open = self.rdma.get_mut(index).and_then(Option::as_mut).ok_or(RdmaError::NoDevice)?;
                open.run_server(endpoint, &self.stop)?
            }
        };
        Ok(FromServer::Done(ServerSlice { cpu_ns: cpu_ns().saturating_sub(before), ..found }))
    }
}
