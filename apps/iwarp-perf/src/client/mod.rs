//! The client: starts the server, measures the groups of its session, and reports to the parent.

mod group;
mod loopback;
mod results;
mod server_link;
mod sockets;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ironwarp_bench::host::pin;

use crate::control::{Channel, FromClient, ToClient};
use crate::error::{Context, Result};
use crate::plan::{ServerPlacement, Session};
use group::Measurement;

/// Measures the session that the parent sends. A failure is reported to the parent.
pub fn serve(socket: UnixStream) -> Result<()> {
    let halt = Arc::new(AtomicBool::new(false));
    let (stop, close) = (halt.clone(), halt.clone());
    let on_message = move |message| match message {
        ToClient::Stop => {
            stop.store(true, Ordering::Relaxed);
            None
        }
        message => Some(message),
    };
    let parent = Channel::new(socket, on_message, move || close.store(true, Ordering::Relaxed))?;
    let Ok(ToClient::Run(session)) = parent.recv() else { return Ok(()) };
    parent.send(&match run_session(&parent, halt, &session) {
        Ok(()) => FromClient::Done,
        Err(error) => FromClient::Failed(error.to_string()),
    })
}

/// Measures the groups of a session. A stopped session ends in order, after its results are sent.
fn run_session(parent: &Channel<ToClient>, halt: Arc<AtomicBool>, session: &Session) -> Result<()> {
    if session.server_placement == ServerPlacement::Loopback {
        return loopback::session(parent, &halt, session);
    }
    // An application that sleeps is not pinned, unless the user named its processor.
    let is_unpinned = session.events || session.cores > 1;
    let core = session.app_core.or((!is_unpinned).then_some(session.client_core));
    core.map_or(Ok(()), pin).context("pinning to a processor")?;
    let mut measurement = Measurement::start(parent, session, halt.clone())?;
    for group in &session.groups {
        if halt.load(Ordering::Relaxed) {
            break;
        }
        measurement.group(group)?;
    }
    measurement.finish()
}
