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
use ironwarp_bench::{Case, PathKind, ServerSlice, StopSignal, Transport};

use crate::control::{Channel, FromServer, ToServer};
use crate::error::{Error, Result};
use crate::limits::check_case;
use crate::plan::Session;
use crate::rdma::{
    Endpoint, RdmaCase, accept, frames_server, open_case, polls_of, start_meter, wait_for_disconnects,
};

/// Handles `Stop` on the reading thread; all other messages are queued.
pub fn message_handler(stop: Arc<StopSignal>) -> impl FnMut(ToServer) -> Option<ToServer> + Send {
    move |message| match message {
        ToServer::Stop { expected } => {
            stop.raise(expected);
            None
        }
        message => Some(message),
    }
}

/// What a client on another machine may take.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// The time without a message, or without a request.
    pub timeout: Duration,
    /// The time of a slice.
    pub slice: Duration,
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
    New,
    /// The device. A remote client begins here.
    Open,
    Group,
}

impl Stage {
    /// The stage after a request, if the request belongs to this one.
    fn after(self, request: &ToServer) -> Result<Stage> {
        match (self, request) {
            (Stage::New, ToServer::Open(_)) => Ok(Stage::Open),
            (Stage::Open, ToServer::Prepare { .. }) => Ok(Stage::Group),
            (Stage::Group, ToServer::Release) => Ok(Stage::Open),
            (Stage::Group, ToServer::Start { .. }) | (Stage::Open, ToServer::Listen { .. }) => Ok(self),
            // A stop that arrived after the end of a slice that failed.
            (_, ToServer::Stop { .. } | ToServer::Goodbye) => Ok(self),
            (Stage::New, _) => Err(Error::failed("a request before Open")),
            (_, ToServer::Open(_)) => Err(Error::failed("a second Open")),
            (_, ToServer::Prepare { .. }) => {
                Err(Error::failed("Prepare of a second group: Release comes first"))
            }
            (_, ToServer::Listen { .. }) => Err(Error::failed("Listen within a group")),
            (_, ToServer::Start { .. } | ToServer::Release) => Err(Error::failed("no group is open")),
        }
    }
}

/// The open group of a session.
#[derive(Default)]
struct Group {
    cases: Vec<Case>,
    /// The RDMA cases, indexed as `cases`.
    rdma: Vec<Option<RdmaCase>>,
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
    /// The client is in another process.
    is_alone: bool,
}

impl ServerSession {
    /// A session that has nothing open. A thread of the client's process gets its endpoint, and so
    /// does a session with a client on another machine, `remote`.
    pub fn new(
        channel: Channel<ToServer>,
        stop: Arc<StopSignal>,
        endpoint: Option<Endpoint>,
        remote: Option<(IpAddr, ClientLimits)>,
    ) -> Self {
        ServerSession {
            channel,
            stop,
            stage: if remote.is_some() { Stage::Open } else { Stage::New },
            sockets: HashMap::new(),
            is_alone: endpoint.is_none() || remote.is_some(),
            endpoint,
            group: Group::default(),
            listen: None,
            remote,
        }
    }

    /// Waits for the next message of the client. A remote client is reached by polling the
    /// endpoint.
    fn recv(&mut self) -> Result<ToServer> {
        let (Some(endpoint), Some((_, limits))) = (&mut self.endpoint, &self.remote) else {
            return self.channel.recv();
        };
        let start = Instant::now();
        loop {
            if let Some(message) = self.channel.try_recv()? {
                return Ok(message);
            }
            if start.elapsed() > limits.timeout {
                return Err(Error::Silent(limits.timeout));
            }
            endpoint.poll();
            // The client may disconnect before its `Release` arrives.
            if let Some(Event::Disconnected { .. }) = endpoint.poll_event() {
                self.group.ended += 1;
            }
        }
    }

    /// Sends the client why its session ends, if it is still there.
    pub fn report(&self, error: &Error) {
        let line = match error {
            Error::Gone => return,
            Error::Silent(limit) => format!("dropped: no request for {} s", limit.as_secs()),
            error => error.to_string(),
        };
        let _ = self.channel.send(&FromServer::Failed(line));
    }

    pub fn run(&mut self) -> Result<()> {
        loop {
            let request = self.recv()?;
            self.stage = self.stage.after(&request)?;
            let reply = match request {
                ToServer::Listen { .. } if self.remote.is_some() => {
                    return Err(Error::failed("Linux sockets need both ends on one machine"));
                }
                ToServer::Open(session) => self.open(&session)?,
                ToServer::Listen { path, namespace } => {
                    let listener = listen_in(namespace.as_deref())?;
                    let address = listener.local_addr()?;
                    self.sockets.insert(path, (listener, None));
                    FromServer::Listening(address)
                }
                ToServer::Prepare { cases } => self.prepare(cases)?,
                ToServer::Start { case } => self.slice(case)?,
                ToServer::Release => self.release()?,
                ToServer::Goodbye => return self.channel.send(&FromServer::Gone),
                ToServer::Stop { .. } => continue,
            };
            self.channel.send(&reply)?;
        }
    }

    fn open(&mut self, session: &Session) -> Result<FromServer> {
        if !session.events && session.cores <= 1 {
            pin(session.server_core)?;
        }
        if let Some(namespace) = &session.server_namespace {
            enter_namespace(namespace)?;
        }
        self.listen = session.peer;
        if self.endpoint.is_none()
            && let Some(config) = &session.server_config
        {
            self.endpoint = Some(Endpoint::open(config, session.server_worker(), session.events)?);
        }
        Ok(FromServer::Opened)
    }

    /// Opens the cases of a group, then accepts the queue pairs of the client. Another machine may
    /// ask for one RDMA case at a time.
    fn prepare(&mut self, cases: Vec<Case>) -> Result<FromServer> {
        let group = &mut self.group;
        if self.remote.is_some() {
            let [case] = &cases[..] else { return Err(Error::failed("one case at a time")) };
            if case.test.transport() != Transport::Ironwarp {
                let line = "raw frames, smoltcp and Linux sockets need both ends on one machine";
                return Err(Error::failed(line));
            }
            check_case(case).map_err(Error::Failed)?;
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
    fn release(&mut self) -> Result<FromServer> {
        let open: usize = self.group.rdma.iter_mut().flatten().map(|open| open.open().qps.len()).sum();
        if let Some(endpoint) = &mut self.endpoint {
            wait_for_disconnects(endpoint, open.saturating_sub(self.group.ended))?;
        }
        self.destroy_group()?;
        Ok(FromServer::Released)
    }

    fn destroy_group(&mut self) -> Result<()> {
        let mut group = std::mem::take(&mut self.group);
        match &mut self.endpoint {
            Some(endpoint) => group.rdma.iter_mut().flatten().try_for_each(|open| open.destroy(endpoint)),
            None => Ok(()),
        }
    }

    /// Serves one case until `Stop`, and returns its counts.
    fn slice(&mut self, index: usize) -> Result<FromServer> {
        let Some(case) = self.group.cases.get(index).cloned() else {
            return Err(Error::Failed(format!("no case {index} in this group")));
        };
        self.stop.reset();
        if let (Some(endpoint), Some((_, limits))) = (&mut self.endpoint, &self.remote) {
            endpoint.limit_slice(Some(limits.slice));
        }
        let meter = start_meter(self.endpoint.as_ref(), self.is_alone);
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
            let endpoint = self.endpoint.as_mut().ok_or(Error::NoDevice)?;
            let counts = match self.group.rdma.get_mut(index).and_then(Option::as_mut) {
                Some(open) => open.run_server(endpoint, &self.stop)?,
                None => frames_server(endpoint, &case, &self.stop)?,
            };
            endpoint.limit_slice(None);
            counts
        };
        let usage = meter.stop(&polls_of(self.endpoint.as_ref()));
        Ok(FromServer::Done(ServerSlice { usage, ..counts }))
    }

    /// Closes the control channel to a remote client. Returns how the session ended, and the
    /// endpoint.
    pub fn finish(mut self, outcome: Result<()>) -> Result<(Ended, Endpoint)> {
        if let Err(error) = &outcome {
            self.report(error);
        }
        let mut endpoint = self.endpoint.take().ok_or(Error::NoDevice)?;
        let (why, is_silent) = (endpoint.control_loss().map(str::to_owned), endpoint.is_peer_silent());
        // The last message is still to be carried; the client disconnects after it.
        endpoint.close_control(false);
        let ended = match (outcome, why) {
            (Ok(()), _) => Ended::Served("the client closed the session".to_owned()),
            (Err(_), Some(why)) if is_silent => Ended::Silent(why),
            (Err(_), Some(why)) => Ended::Served(format!("the client was dropped: {why}")),
            (Err(Error::Silent(limit)), None) => {
                Ended::Silent(format!("the client requested nothing for {} s", limit.as_secs()))
            }
            (Err(Error::Gone), None) => Ended::Served("the client exited".to_owned()),
            (Err(error), None) => Ended::Served(format!("failed: {error}")),
        };
        Ok((ended, endpoint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare() -> ToServer {
        ToServer::Prepare { cases: Vec::new() }
    }

    fn after(stage: Stage, request: &ToServer) -> Result<Stage, String> {
        stage.after(request).map_err(|error| error.to_string())
    }

    #[test]
    fn each_request_belongs_to_its_stages() {
        let setup = || ToServer::Open(Box::default());
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
