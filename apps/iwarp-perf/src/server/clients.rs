//! One client of a standalone server, on a thread of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use ironwarp_bench::StopSignal;

use super::limits::ClientLimits;
use super::session::{Ended, Failure, ServerSession, message_handler};
use crate::control::Channel;
use crate::rdma::{Endpoint, Newcomer, RdmaError};

/// A client that is being served.
pub struct Client {
    pub remote: SocketAddr,
    thread: JoinHandle<Result<Ended, RdmaError>>,
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
    let mut server = ServerSession::of_remote(channel, stop, endpoint, remote.ip(), limits);
    let outcome = accepted.map_err(Failure::from).and_then(|()| server.run());
    server.finish(outcome)
}
