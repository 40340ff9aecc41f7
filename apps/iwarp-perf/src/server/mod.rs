//! The server: does what the client requests, and serves each slice until the client stops it.

mod clients;
mod limits;
mod session;
pub mod standalone;

use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use ironwarp_bench::StopSignal;

use crate::child::init_process;
use crate::control::Channel;
use crate::rdma::Endpoint;
use session::{ServerSession, message_handler};

/// Runs the server process. Its standard input is the socket to the client.
pub fn main() -> ExitCode {
    match init_process() {
        Ok((socket, _log)) => serve(socket, None),
        Err(error) => eprintln!("server: {error}"),
    }
    ExitCode::SUCCESS
}

/// Serves a client until `Goodbye` or the end of the stream. A thread of the client process gets its endpoint; a process
/// opens its own.
pub fn serve(socket: UnixStream, endpoint: Option<Endpoint>) {
    let stop = Arc::new(StopSignal::default());
    let closed = stop.clone();
    let channel = match Channel::new(socket, message_handler(stop.clone()), move || closed.close()) {
        Ok(channel) => channel,
        Err(error) => return eprintln!("server: {error}"),
    };
    let mut server = ServerSession::new(channel, stop, endpoint);
    if let Err(failure) = server.run() {
        server.report(&failure);
    }
}
