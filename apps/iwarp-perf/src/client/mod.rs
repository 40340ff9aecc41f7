//! The near end: starts the far end, measures the session's groups, tells the parent.

mod atomic_totals;
mod group;
mod loopback;
mod server_link;
mod sockets;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ironwarp_bench::host::pin;

use crate::child::Role;
use crate::control::{Channel, ChannelError, Dispatch, FromClient, ToClient};
use crate::plan::{ServerPlacement, Session};
use crate::rdma::RdmaError;
use group::Measurement;

/// Why a session ends early.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The parent has gone: there is nobody to tell.
    #[error("the parent has gone")]
    ParentGone,
    /// The far end has gone.
    #[error("the far end {0}")]
    ServerGone(String),
    /// The far end failed and said why.
    #[error("the far end: {0}")]
    ServerFailed(String),
    /// The far end said something else than was due.
    #[error("the far end said {0} out of turn")]
    UnexpectedMessage(String),
    /// A case failed.
    #[error("{title}: {source}")]
    Case {
        /// Which one.
        title: String,
        /// Why.
        source: Box<ClientError>,
    },
    /// The stack, or the device under it.
    #[error(transparent)]
    Stack(Box<RdmaError>),
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
}

/// The near end's process: its standard input is the parent's socket.
pub fn main() -> ExitCode {
    match Role::Client.init_process() {
        Ok(socket) => {
            let halt = Arc::new(AtomicBool::new(false));
            let (stop, end) = (halt.clone(), halt.clone());
            let on_message = move |message| match message {
                ToClient::Stop => {
                    stop.store(true, Ordering::Relaxed);
                    Dispatch::Handled
                }
                message => Dispatch::Queue(message),
            };
            match Channel::new(socket, on_message, move || end.store(true, Ordering::Relaxed)) {
                Ok(channel) => run(&channel, halt),
                Err(error) => eprintln!("near end: {error}"),
            }
        }
        Err(error) => eprintln!("near end: {error}"),
    }
    ExitCode::SUCCESS
}

fn run(parent: &Channel<ToClient>, halt: Arc<AtomicBool>) {
    let Ok(ToClient::Run(session)) = parent.recv() else { return };
    let last = match run_session(parent, halt, &session) {
        Ok(()) => FromClient::Done,
        Err(error) => FromClient::Failed(error.to_string()),
    };
    let _ = parent.send(&last);
}

/// Measures a session's groups. A halted one ends in order after its results are reported.
fn run_session(
    parent: &Channel<ToClient>,
    halt: Arc<AtomicBool>,
    session: &Session,
) -> Result<(), ClientError> {
    // An application that sleeps wakes up wherever there is room, unless a core was configured.
    if matches!(session.server_placement, ServerPlacement::RingLoopback | ServerPlacement::MemoryLoopback) {
        return loopback::session(parent, &halt, session);
    }
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
