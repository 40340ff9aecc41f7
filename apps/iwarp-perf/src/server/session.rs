//! A session with a client. It has [`Stage`]s, and each request belongs to one of them. A remote
//! client that sends another request, takes more memory than is left, or does not end a slice in
//! time, gets an error and loses its session.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironwarp::Event;
use ironwarp_bench::baseline::namespaces::enter_namespace;
use ironwarp_bench::baseline::stream;
use ironwarp_bench::baseline::tcp::{TcpConnection, accept as accept_tcp, listen_in};
use ironwarp_bench::host::pin;
use ironwarp_bench::report::CorePolls;
use ironwarp_bench::{Case, CpuClock, PathKind, ServerSlice, StopSignal, Transport, UsageMeter};

use super::limits::{ClientLimits, Reservation};
use crate::control::{Channel, ChannelError, Dispatch, FromServer, ToServer};
use crate::limits::check_case;
use crate::plan::ServerSetup;
use crate::rdma::{
    Endpoint, QueueSizes, RdmaCase, RdmaError, accept, frames_server, open_case, wait_for_disconnects,
};

/// Handles `Stop` on the reading thread; all other messages are queued.
pub fn message_handler(stop: Arc<StopSignal>) -> impl FnMut(ToServer) -> Dispatch<ToServer> + Send {
    move |message| match message {
        ToServer::Stop { expected } => {
            stop.raise(expected);
            Dispatch::Handled
        }
        message => Dispatch::Queue(message),
    }
}

/// Why a session with a client ends.
pub enum Failure {
    /// The client closed the stream.
    Gone,
    /// A remote client requested nothing for this time.
    Silent(Duration),
    /// Something failed, in one line.
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

impl From<&str> for Failure {
    fn from(line: &str) -> Self {
        Failure::Failed(line.to_owned())
    }
}

/// Returns the case of a group, unless another machine may not ask for it.
fn check(cases: &[Case]) -> Result<&Case, Failure> {
    match cases {
        [case] if case.test.transport() == Transport::Ironwarp => {
            check_case(case).map_err(Failure::Failed).map(|()| case)
        }
        [_] => Err("raw frames, smoltcp and Linux sockets need both ends on one machine".into()),
        _ => Err("one case at a time".into()),
    }
}

/// How a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The client ended it, or a request failed.
    Served(String),
    /// The client requested nothing, or sent nothing, for its time limit.
    Silent(String),
}

/// What a session has open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nothing.
    New,
    /// The device. A remote client begins here.
    Open,
    /// The device and a group of cases.
    Group,
}

impl Stage {
    /// Returns the stage after a request, if the request belongs to this one.
    fn after(self, request: &ToServer) -> Result<Stage, Failure> {
        match (self, request) {
            (Stage::New, ToServer::Open(_)) => Ok(Stage::Open),
            (Stage::Open, ToServer::Prepare { .. }) => Ok(Stage::Group),
            (Stage::Group, ToServer::Release) => Ok(Stage::Open),
            (Stage::Group, ToServer::Start { .. }) | (Stage::Open, ToServer::Listen { .. }) => Ok(self),
            // A stop that arrived after the end of a slice that failed.
            (_, ToServer::Stop { .. } | ToServer::Goodbye) => Ok(self),
            (Stage::New, _) => Err("a request before Open".into()),
            (_, ToServer::Open(_)) => Err("a second Open".into()),
            (_, ToServer::Prepare { .. }) => Err("Prepare of a second group: Release comes first".into()),
            (_, ToServer::Listen { .. }) => Err("Listen within a group".into()),
            (_, ToServer::Start { .. } | ToServer::Release) => Err("no group is open".into()),
        }
    }
}

/// The open group of a session.
#[derive(Default)]
struct Group {
    cases: Vec<Case>,
    /// The RDMA cases, indexed as `cases`.
    rdma: Vec<Option<RdmaCase>>,
    /// The memory that a remote client has reserved.
    _reserved: Option<Reservation>,
    /// Connections that have already ended.
    ended: usize,
}

pub struct ServerSession {
    channel: Channel<ToServer>,
    stop: Arc<StopSignal>,
    stage: Stage,
    /// The TCP baselines by path. A connection is accepted at its first slice.
    sockets: HashMap<PathKind, (TcpListener, Option<TcpConnection>)>,
    endpoint: Option<Endpoint>,
    group: Group,
    /// The address to listen on, until the server listens.
    listen: Option<SocketAddr>,
    /// The address of a client on another machine, and what it may take.
    remote: Option<(IpAddr, ClientLimits)>,
    /// This is a thread of the client's process.
    is_thread: bool,
}

impl ServerSession {
    /// A session that has nothing open, unless this is a thread of the client's process, which gets
    /// its endpoint.
    pub fn new(channel: Channel<ToServer>, stop: Arc<StopSignal>, endpoint: Option<Endpoint>) -> Self {
        ServerSession {
            channel,
            stop,
            stage: Stage::New,
            sockets: HashMap::new(),
            is_thread: endpoint.is_some(),
            endpoint,
            group: Group::default(),
            listen: None,
            remote: None,
        }
    }

    /// A session with a client on another machine.
    pub fn of_remote(
        channel: Channel<ToServer>,
        stop: Arc<StopSignal>,
        endpoint: Endpoint,
        remote: IpAddr,
        limits: ClientLimits,
    ) -> Self {
        let session = Self::new(channel, stop, Some(endpoint));
        ServerSession { remote: Some((remote, limits)), stage: Stage::Open, ..session }
    }

    /// Waits for the next message of the client. A remote client is reached by polling the
    /// endpoint.
    fn recv(&mut self) -> Result<ToServer, Failure> {
        let (Some(endpoint), Some((_, limits))) = (&mut self.endpoint, &self.remote) else {
            return Ok(self.channel.recv()?);
        };
        let (start, timeout) = (Instant::now(), limits.timeout);
        loop {
            if let Some(message) = self.channel.try_recv()? {
                return Ok(message);
            }
            if start.elapsed() > timeout {
                return Err(Failure::Silent(timeout));
            }
            endpoint.poll();
            // The client may disconnect before its `Release` arrives.
            if let Some(Event::Disconnected { .. }) = endpoint.poll_event() {
                self.group.ended += 1;
            }
        }
    }

    /// Sends the client why its session ends, if it is still there.
    pub fn report(&self, failure: &Failure) {
        let line = match failure {
            Failure::Gone => return,
            Failure::Silent(limit) => format!("dropped: no request for {} s", limit.as_secs()),
            Failure::Failed(line) => line.clone(),
        };
        let _ = self.channel.send(&FromServer::Failed(line));
    }

    pub fn run(&mut self) -> Result<(), Failure> {
        loop {
            let request = self.recv()?;
            self.stage = self.stage.after(&request)?;
            let reply = match request {
                ToServer::Listen { .. } if self.remote.is_some() => {
                    return Err("Linux sockets need both ends on one machine".into());
                }
                ToServer::Open(setup) => self.open(&setup)?,
                ToServer::Listen { path, namespace } => {
                    let listener = listen_in(namespace.as_deref())?;
                    let address = listener.local_addr()?;
                    self.sockets.insert(path, (listener, None));
                    FromServer::Listening(address)
                }
                ToServer::Prepare { cases } => self.prepare(cases)?,
                ToServer::Start { case } => self.slice(case)?,
                ToServer::Release => self.release()?,
                ToServer::Goodbye => {
                    self.channel.send(&FromServer::Gone)?;
                    return Ok(());
                }
                ToServer::Stop { .. } => continue,
            };
            self.channel.send(&reply)?;
        }
    }

    fn open(&mut self, setup: &ServerSetup) -> Result<FromServer, Failure> {
        if !setup.events && setup.cores <= 1 {
            pin(setup.core)?;
        }
        if let Some(namespace) = &setup.namespace {
            enter_namespace(namespace).map_err(|error| Failure::Failed(error.to_string()))?;
        }
        self.listen = setup.listen;
        if self.endpoint.is_none()
            && let Some(config) = &setup.config
        {
            self.endpoint = Some(Endpoint::open(config, setup.worker_processor(), setup.events)?);
        }
        Ok(FromServer::Opened)
    }

    /// Opens the cases of a group, then accepts the queue pairs of the client.
    fn prepare(&mut self, cases: Vec<Case>) -> Result<FromServer, Failure> {
        let group = &mut self.group;
        if let Some((_, limits)) = &self.remote {
            let case = check(&cases)?;
            let bytes = QueueSizes::of(case).memory_bytes(case, 1);
            group._reserved = Some(limits.memory.reserve(bytes).map_err(Failure::Failed)?);
        }
        group.cases = cases;
        if let (Some(endpoint), Some(address)) = (&mut self.endpoint, self.listen.take()) {
            endpoint.wait_for_link()?;
            endpoint.listen(address)?;
        }
        for case in &group.cases {
            group.rdma.push(match (case.test.transport(), &mut self.endpoint) {
                (Transport::Ironwarp, Some(endpoint)) => Some(open_case(endpoint, case, false, None)?),
                _ => None,
            });
        }
        self.channel.send(&FromServer::Prepared)?;
        if let Some(endpoint) = &mut self.endpoint {
            accept(endpoint, &mut group.rdma, self.remote.as_ref().map(|(remote, _)| *remote))?;
        }
        Ok(FromServer::Connected)
    }

    /// Destroys what the group has, once the client has disconnected.
    fn release(&mut self) -> Result<FromServer, Failure> {
        let open: usize = self.group.rdma.iter().flatten().map(|open| open.open().qps.len()).sum();
        if let Some(endpoint) = &mut self.endpoint {
            wait_for_disconnects(endpoint, open.saturating_sub(self.group.ended))?;
        }
        self.destroy_group()?;
        Ok(FromServer::Released)
    }

    fn destroy_group(&mut self) -> Result<(), RdmaError> {
        let mut group = std::mem::take(&mut self.group);
        match &mut self.endpoint {
            Some(endpoint) => group.rdma.iter_mut().flatten().try_for_each(|open| open.destroy(endpoint)),
            None => Ok(()),
        }
    }

    /// Serves one case until `Stop`, and returns its counts.
    fn slice(&mut self, index: usize) -> Result<FromServer, Failure> {
        let Some(case) = self.group.cases.get(index).cloned() else {
            return Err(Failure::Failed(format!("no case {index} in this group")));
        };
        self.stop.reset();
        let limit = self.remote.as_ref().map(|(_, limits)| limits.slice);
        self.limit_slice(limit);
        let meter = UsageMeter::start(self.cpu_clock(), self.polls());
        let counts = if case.test.transport() == Transport::KernelTcp {
            // The client has connected, so accept does not wait.
            let (listener, connection) =
                self.sockets.get_mut(&case.path).ok_or(io::Error::from(io::ErrorKind::NotConnected))?;
            let connection = match connection {
                Some(connection) => connection,
                None => connection.insert(accept_tcp(listener)?),
            };
            self.channel.send(&FromServer::Ready)?;
            stream::server(connection, &case, &self.stop)?
        } else {
            self.channel.send(&FromServer::Ready)?;
            let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
            match self.group.rdma.get_mut(index).and_then(Option::as_mut) {
                Some(open) => open.run_server(endpoint, &self.stop)?,
                None => frames_server(endpoint, &case, &self.stop)?,
            }
        };
        self.limit_slice(None);
        Ok(FromServer::Done(ServerSlice { usage: meter.stop(&self.polls()), ..counts }))
    }

    /// Limits the slice that begins now, or says that it is over.
    fn limit_slice(&mut self, limit: Option<Duration>) {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.limit_slice(limit);
        }
    }

    fn cpu_clock(&self) -> CpuClock {
        let is_alone = !self.is_thread || self.remote.is_some();
        self.endpoint.as_ref().map_or(CpuClock::Process, |endpoint| endpoint.cpu_clock(is_alone))
    }

    fn polls(&self) -> Vec<CorePolls> {
        self.endpoint.as_ref().map(Endpoint::polls).unwrap_or_default()
    }

    /// Closes the control channel to a remote client and destroys its queue pairs. Returns how the
    /// session ended.
    pub fn finish(&mut self, outcome: Result<(), Failure>) -> Result<Ended, RdmaError> {
        if let Err(failure) = &outcome {
            self.report(failure);
        }
        let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
        let (why, is_silent) = (endpoint.control_loss().map(str::to_owned), endpoint.is_peer_silent());
        // The last message is still to be carried; the client disconnects after it.
        endpoint.close_control(false);
        self.destroy_group()?;
        Ok(match (outcome, why) {
            (Ok(()), _) => Ended::Served("the client closed the session".to_owned()),
            (Err(Failure::Failed(line)), None) => Ended::Served(format!("failed: {line}")),
            (Err(Failure::Silent(limit)), None) => {
                Ended::Silent(format!("the client requested nothing for {} s", limit.as_secs()))
            }
            (Err(_), Some(why)) if is_silent => Ended::Silent(why),
            (Err(_), Some(why)) => Ended::Served(format!("the client was dropped: {why}")),
            (Err(Failure::Gone), None) => Ended::Served("the client exited".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare() -> ToServer {
        ToServer::Prepare { cases: Vec::new() }
    }

    fn after(stage: Stage, request: &ToServer) -> Result<Stage, String> {
        stage.after(request).map_err(|failure| match failure {
            Failure::Failed(line) => line,
            Failure::Gone | Failure::Silent(_) => "no line".to_owned(),
        })
    }

    #[test]
    fn each_request_belongs_to_its_stages() {
        let setup = || {
            ToServer::Open(Box::new(ServerSetup {
                config: None,
                core: 0,
                namespace: None,
                listen: None,
                events: false,
                cores: 1,
            }))
        };
        let listen = ToServer::Listen { path: PathKind::Veth, namespace: None };
        let start = ToServer::Start { case: 0 };
        let allowed = [
            (Stage::New, setup(), Stage::Open),
            (Stage::Open, prepare(), Stage::Group),
            (Stage::Open, listen, Stage::Open),
            (Stage::Group, start, Stage::Group),
            (Stage::Group, ToServer::Release, Stage::Open),
            (Stage::Group, ToServer::Stop { expected: 0 }, Stage::Group),
            (Stage::Open, ToServer::Goodbye, Stage::Open),
        ];
        for (stage, request, next) in &allowed {
            assert_eq!(after(*stage, request), Ok(*next), "{request:?}");
        }
        let refused = [
            (Stage::New, prepare()),
            (Stage::New, ToServer::Start { case: 0 }),
            (Stage::New, ToServer::Release),
            (Stage::Open, setup()),
            (Stage::Group, setup()),
            (Stage::Open, ToServer::Start { case: 0 }),
            (Stage::Open, ToServer::Release),
            (Stage::Group, prepare()),
            (Stage::Group, ToServer::Listen { path: PathKind::Veth, namespace: None }),
        ];
        for (stage, request) in &refused {
            assert!(after(*stage, request).is_err(), "{stage:?}, {request:?}");
        }
        let twice = after(Stage::Group, &prepare()).expect_err("a group is open");
        assert!(twice.contains("Release comes first"), "{twice}");
    }
}
