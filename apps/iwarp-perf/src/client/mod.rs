//! The client: starts the server, measures the groups of its session, and reports to the parent.

mod error;
mod group;
mod loopback;
mod results;
mod server_link;
mod sockets;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ironwarp_bench::host::pin;

use crate::child::init_process;
use crate::control::{Channel, Dispatch, FromClient, ToClient};
use crate::plan::{ServerPlacement, Session};
use error::ClientError;
use group::Measurement;

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
