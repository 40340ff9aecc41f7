//! The server: does what the client requests, and serves each slice until the client stops it.

mod session;
pub mod standalone;

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use ironwarp_bench::StopSignal;

use crate::control::Channel;
use crate::error::Result;
use crate::rdma::Endpoint;
use session::{ServerSession, message_handler};

/// Serves a client until `Goodbye` or the end of the stream. A thread of the client process gets
/// its endpoint; a process opens its own.
pub fn serve(socket: UnixStream, endpoint: Option<Endpoint>) -> Result<()> {
    let stop = Arc::new(StopSignal::default());
    let closed = stop.clone();
    let channel = Channel::new(socket, message_handler(stop.clone()), move || closed.close())?;
    let mut server = ServerSession::new(channel, stop, endpoint, None);
    if let Err(error) = server.run() {
        server.report(&error);
    }
    Ok(())
}
