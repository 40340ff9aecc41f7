//! The client: starts the server, measures the groups of its session, and reports to the parent.

mod group;
mod loopback;
mod results;
mod server_link;
mod sockets;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ironwarp_bench::Case;
use ironwarp_bench::baseline::namespaces::NamespaceError;
use ironwarp_bench::host::pin;

use crate::child::init_process;
use crate::control::{Channel, ChannelError, Dispatch, FromClient, ToClient};
use crate::plan::{ServerPlacement, Session};
use crate::rdma::RdmaError;
use group::Measurement;

/// Why a session ends early.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The parent exited.
    #[error("the parent exited")]
    ParentGone,
    /// The server exited or cannot be reached.
    #[error("the server {0}")]
    ServerGone(String),
    /// The server failed and reported why.
    #[error("the server: {0}")]
    ServerFailed(String),
    /// The server sent a message that the protocol does not allow here.
    #[error("unexpected message from the server: {0}")]
    UnexpectedMessage(String),
    /// A case failed.
    #[error("{title}: {source}")]
    Case { title: String, source: Box<ClientError> },
    /// The stack or its device failed.
    #[error(transparent)]
    Stack(Box<RdmaError>),
    /// There is no veth pair for the devices.
    #[error("no veth pair: {0}")]
    Veth(#[from] NamespaceError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl ClientError {
    fn in_case(self, case: &Case) -> Self {
        ClientError::Case { title: case.title(), source: Box::new(self) }
    }
}

/// Runs the client process. Its standard input is the socket to the parent.
pub fn main() -> ExitCode {
    if let Err(error) = serve_parent() {
        eprintln!("client: {error}");
    }
    ExitCode::SUCCESS
}

fn serve_parent() -> io::Result<()> {
    let (socket, _log) = init_process()?;
    let halt = Arc::new(AtomicBool::new(false));
    let (stop, close) = (halt.clone(), halt.clone());
    let on_message = move |message| match message {
        ToClient::Stop => {
            stop.store(true, Ordering::Relaxed);
            Dispatch::Handled
        }
        message => Dispatch::Queue(message),
    };
    let parent = Channel::new(socket, on_message, move || close.store(true, Ordering::Relaxed))?;
    let Ok(ToClient::Run(session)) = parent.recv() else { return Ok(()) };
    let last = match run_session(&parent, halt, &session) {
        Ok(()) => FromClient::Done,
        Err(error) => FromClient::Failed(error.to_string()),
    };
    let _ = parent.send(&last);
    Ok(())
}

/// Measures the groups of a session. A stopped session ends in order, after its results are sent.
fn run_session(
    parent: &Channel<ToClient>,
    halt: Arc<AtomicBool>,
    session: &Session,
) -> Result<(), ClientError> {
    if matches!(session.server_placement, ServerPlacement::RingLoopback | ServerPlacement::MemoryLoopback) {
        return loopback::session(parent, &halt, session);
    }
    // An application that sleeps is not pinned, unless the user named its processor.
    let is_unpinned = session.events || session.cores > 1;
    let core = session.app_core.or((!is_unpinned).then_some(session.client_core));
    core.map_or(Ok(()), pin)
        .map_err(|source| ClientError::System { what: "pinning to a processor", source })?;
    let mut measurement = Measurement::start(parent, session, halt)?;
    for group in &session.groups {
        if measurement.halted() {
            break;
        }
        measurement.group(group)?;
    }
    measurement.finish()
}

impl From<RdmaError> for ClientError {
    fn from(error: RdmaError) -> Self {
        ClientError::Stack(Box::new(error))
    }
}

impl From<ChannelError> for ClientError {
    fn from(_: ChannelError) -> Self {
        ClientError::ParentGone
    }
}
