//! The far end of the baselines over Linux sockets.

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;

use ironwarp_bench::baseline::tcp::{TcpConnection, accept, echo, listen_in, sink};
use ironwarp_bench::{Case, PathKind, ServerSlice, StopSignal};

use crate::control::TcpAddress;

/// One stream a path, taken when it is first used.
#[derive(Default)]
pub struct Sockets {
    sockets: HashMap<PathKind, ServerSocket>,
}

/// A stream before and after the near end has connected.
pub enum ServerSocket {
    /// Nobody has connected yet, or nobody was asked for.
    Listening(TcpListener),
    /// The near end has.
    Connected(Box<TcpConnection>),
}

impl Sockets {
    /// Listens over a path.
    pub fn listen(&mut self, path: PathKind, namespace: Option<&Path>) -> io::Result<TcpAddress> {
        let listener = listen_in(namespace)?;
        let address = TcpAddress(listener.local_addr()?);
        self.sockets.insert(path, ServerSocket::Listening(listener));
        Ok(address)
    }

    /// The stream over a path. The near end has connected by now, so nothing waits here.
    pub fn connection(&mut self, path: PathKind) -> io::Result<&mut ServerSocket> {
        let socket = self.sockets.get_mut(&path).ok_or(io::ErrorKind::NotConnected)?;
        if let ServerSocket::Listening(listener) = socket {
            *socket = ServerSocket::Connected(Box::new(accept(listener)?));
        }
        Ok(socket)
    }
}

impl ServerSocket {
    /// Serves one slice.
    pub fn serve(&mut self, case: &Case, stop: &StopSignal) -> io::Result<ServerSlice> {
        match self {
            ServerSocket::Connected(connection) if case.test.is_latency() => echo(connection, case, stop),
            ServerSocket::Connected(connection) => sink(connection, case, stop),
            ServerSocket::Listening(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
