//! Linux sockets: the baseline of an application without RDMA.
//!
//! One stream without Nagle's algorithm, over a veth pair between two namespaces, or over loopback.
//! Each end either retries at once or blocks in the kernel.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::namespaces::{SERVER_ADDR, VethPair, in_namespace};
use super::stream::ByteStream;
use crate::Wait;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A blocked end checks at this interval whether the slice is over.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// One end of a connected stream.
#[derive(Debug)]
pub struct TcpConnection {
    socket: TcpStream,
    wait: Wait,
}

/// A listener of the server, in the namespace that `path` names, or on loopback without one.
pub fn listen_in(path: Option<&Path>) -> io::Result<TcpListener> {
    let bind = |address: Ipv4Addr| TcpListener::bind(SocketAddr::from((address, 0)));
    match path {
        Some(path) => in_namespace(path, || bind(SERVER_ADDR)).map_err(io::Error::other)?,
        None => bind(Ipv4Addr::LOCALHOST),
    }
}

/// Accepts the one connection that a server serves.
pub fn accept(listener: &TcpListener) -> io::Result<TcpConnection> {
    let (socket, _) = listener.accept()?;
    TcpConnection::new(socket)
}

impl TcpConnection {
    /// Connects the client, from the client namespace of `veth` or over loopback without one.
    pub fn connect(remote: SocketAddr, veth: Option<&VethPair>) -> io::Result<Self> {
        let connect = || TcpStream::connect_timeout(&remote, CONNECT_TIMEOUT);
        let socket = match veth {
            Some(veth) => veth.in_client_namespace(connect).map_err(io::Error::other)??,
            None => connect()?,
        };
        Self::new(socket)
    }

    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        socket.set_read_timeout(Some(SLEEP_MAX))?;
        socket.set_write_timeout(Some(SLEEP_MAX))?;
        Ok(TcpConnection { socket, wait: Wait::Spin })
    }
}

impl ByteStream for TcpConnection {
    type Error = io::Error;

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_none(self.socket.write(bytes))
    }

    fn recv(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.socket.read(into) {
            Ok(0) if !into.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            outcome => or_none(outcome),
        }
    }

    fn set_wait(&mut self, wait: Wait) -> io::Result<()> {
        if self.wait != wait {
            self.socket.set_nonblocking(wait == Wait::Spin)?;
            self.wait = wait;
        }
        Ok(())
    }
}

/// The bytes that were moved: none where the socket would block, or was interrupted.
fn or_none(outcome: io::Result<usize>) -> io::Result<usize> {
    outcome.or_else(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests;
