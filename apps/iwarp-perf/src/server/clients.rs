//! One client of a standalone server, on a thread of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

use ironwarp_bench::StopSignal;

use super::memory::ClientMemory;
use super::{Failure, ServerSession, Stage, message_handler};
use crate::control::Channel;
use crate::rdma::{Endpoint, Newcomer, RdmaError};

/// A client that is being served.
pub struct Client {
    pub remote: SocketAddr,
    thread: JoinHandle<Result<Ended, RdmaError>>,
}

/// What a client may take.
#[derive(Clone)]
pub struct ClientLimits {
    /// The time without a message, or without a request.
    pub timeout: Duration,
    /// The time of a slice.
    pub slice: Duration,
    /// The memory of all clients.
    pub memory: Arc<ClientMemory>,
}

/// How a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The client ended it, or a request failed.
    Served(String),
    /// The client requested nothing, or sent nothing, for its time limit.
    Silent(String),
}

impl Client {
    /// Starts the thread of a client. `halt` ends it.
    pub fn start(
        endpoint: Endpoint,
        newcomer: Newcomer,
        limits: ClientLimits,
        halt: Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let remote = newcomer.remote;
        let thread = std::thread::Builder::new().name(format!("client {}", remote.ip()));
        let thread = thread.spawn(move || serve(endpoint, newcomer, limits, halt))?;
        Ok(Client { remote, thread })
    }

    /// Returns whether the session has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the session.
    pub fn join(self) -> Ended {
        match self.thread.join() {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => Ended::Served(format!("failed: {error}")),
            Err(_) => Ended::Served("failed: its thread panicked".to_owned()),
        }
    }
}

/// Serves one client.
fn serve(
    mut endpoint: Endpoint,
    Newcomer { request, remote }: Newcomer,
    limits: ClientLimits,
    halt: Arc<AtomicBool>,
) -> Result<Ended, RdmaError> {
    let stop = Arc::new(StopSignal::default());
    let closed = stop.clone();
    let (channel, carrier) = Channel::over_carrier(message_handler(stop.clone()), move || closed.close());
    let accepted = endpoint.accept_client(request, carrier, halt, limits.timeout);
    let mut server = ServerSession::new(channel, stop, Some(endpoint));
    server.remote = Some(remote.ip());
    server.limits = Some(limits);
    server.stage = Stage::Open;
    let outcome = accepted.map_err(Failure::from).and_then(|()| server.run());
    server.finish(outcome)
}

impl ServerSession {
    /// Closes the control channel to a remote client and destroys its queue pairs. Returns how the session ended.
    fn finish(&mut self, outcome: Result<(), Failure>) -> Result<Ended, RdmaError> {
        if let Err(failure) = &outcome {
            self.report(failure);
        }
        let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
        let (why, is_silent) = (endpoint.control_loss().map(str::to_owned), endpoint.is_peer_silent());
        // The last message is still to be carried; the client disconnects after it.
        endpoint.close_control(false);
        self.rdma.drain(..).flatten().try_for_each(|mut open| open.destroy(endpoint))?;
        self.reserved = None;
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
