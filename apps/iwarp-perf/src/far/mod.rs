//! The far end: does what the near end says, and serves until it says stop.

mod sockets;

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

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
    let (heard, ended) = (stop.clone(), stop.clone());
    let on_message = move |message| match message {
        ToFar::Stop { expected } => {
            heard.raise(expected);
            Hear::Handled
        }
        message => Hear::Queue(message),
    };
    // A near end that is gone expects nothing any more.
    let channel = match Channel::new(socket, on_message, move || ended.raise(0)) {
        Ok(channel) => channel,
        Err(error) => return eprintln!("far end: {error}"),
    };
    let mut far = Far {
        channel,
        stop,
        sockets: Sockets::default(),
        cases: Vec::new(),
        endpoint,
        rdma: Vec::new(),
        listen: None,
    };
    if let Err(Failure::Said(line)) = far.run() {
        let _ = far.channel.send(&FromFar::Failed(line));
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
}

impl Far {
    fn run(&mut self) -> Result<(), Failure> {
        loop {
            let answer = match self.channel.recv()? {
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
        pin(setup.core)?;
        self.listen = setup.listen;
        if self.endpoint.is_none()
            && let Some(config) = &setup.config
        {
            self.endpoint = Some(Endpoint::open(config, None)?);
        }
        Ok(FromFar::Opened)
    }

    /// Opens the group's cases, then lets the near end's queue pairs in.
    fn prepare(&mut self, cases: Vec<Case>) -> Result<FromFar, Failure> {
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
            accept(endpoint, &mut self.rdma)?;
        }
        Ok(FromFar::Connected)
    }

    fn release(&mut self) -> Result<FromFar, Failure> {
        self.cases.clear();
        let connections = self.rdma.iter().flatten().map(OpenRdma::connections).sum();
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
                let open = self.rdma[index].as_mut().ok_or(RdmaError::NoDevice)?;
                open.far(endpoint, &self.stop)?
            }
        };
        Ok(FromFar::Done(FarSlice { cpu_ns: cpu_ns().saturating_sub(before), ..found }))
    }
}
