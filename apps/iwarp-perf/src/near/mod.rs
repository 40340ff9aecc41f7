//! The near end: starts the far end, measures the session's groups, tells the parent.

mod group;
mod link;
mod sockets;
mod stations;
mod words;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ironwarp_bench::host::pin;

use crate::child::Role;
use crate::control::{Channel, ChannelError, FromNear, Hear, ToNear};
use crate::plan::{FarPlace, Session};
use crate::rdma::RdmaError;
use group::Measuring;

/// Why a session ends early.
#[derive(Debug, thiserror::Error)]
pub enum NearError {
    /// The parent has gone: there is nobody to tell.
    #[error("the parent has gone")]
    ParentGone,
    /// The far end has gone.
    #[error("the far end {0}")]
    FarGone(String),
    /// The far end failed and said why.
    #[error("the far end: {0}")]
    FarFailed(String),
    /// The far end said something else than was due.
    #[error("the far end said {0} out of turn")]
    OutOfTurn(String),
    /// A case failed.
    #[error("{title}: {source}")]
    Case {
        /// Which one.
        title: String,
        /// Why.
        source: Box<NearError>,
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
    match Role::Near.settle() {
        Ok(socket) => {
            let halt = Arc::new(AtomicBool::new(false));
            let (stop, end) = (halt.clone(), halt.clone());
            let on_message = move |message| match message {
                ToNear::Stop => {
                    stop.store(true, Ordering::Relaxed);
                    Hear::Handled
                }
                message => Hear::Queue(message),
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

fn run(parent: &Channel<ToNear>, halt: Arc<AtomicBool>) {
    let Ok(ToNear::Run(session)) = parent.recv() else { return };
    let last = match session_with(parent, halt, &session) {
        Ok(()) => FromNear::Done,
        Err(error) => FromNear::Failed(error.to_string()),
    };
    let _ = parent.send(&last);
}

/// Measures a session's groups. A halted one ends in good order after what was measured is told.
fn session_with(parent: &Channel<ToNear>, halt: Arc<AtomicBool>, session: &Session) -> Result<(), NearError> {
    // An application that sleeps wakes up wherever there is room, unless it was told where.
    if matches!(session.far, FarPlace::RingStations | FarPlace::MemoryStations) {
        return stations::session(parent, &halt, session);
    }
    let anywhere = session.events || session.cores > 1;
    let core = session.app_core.or((!anywhere).then_some(session.near_core));
    core.map_or(Ok(()), pin)
        .map_err(|source| NearError::System { what: "pinning to a processor", source })?;
    let mut measuring = Measuring::start(parent, session, halt)?;
    for group in &session.groups {
        if measuring.halted() {
            break;
        }
        measuring.group(group)?;
    }
    measuring.goodbye()
}

impl From<RdmaError> for NearError {
    fn from(error: RdmaError) -> Self {
        NearError::Stack(Box::new(error))
    }
}

impl From<ChannelError> for NearError {
    fn from(_: ChannelError) -> Self {
        NearError::ParentGone
    }
}
