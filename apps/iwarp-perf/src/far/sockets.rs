//! The far end of the baselines over Linux sockets.

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;

use ironwarp_bench::baseline::tcp::{Link, accept, echo, listen_in, sink};
use ironwarp_bench::{Case, FarSlice, PathKind, StopSignal};

use crate::control::TcpAddress;

/// One stream a path, taken when it is first used.
#[derive(Default)]
pub struct Sockets {
    ends: HashMap<PathKind, End>,
}

/// A stream before and after the near end has connected.
pub enum End {
    /// Nobody has connected yet, or nobody was asked for.
    Listening(TcpListener),
    /// The near end has.
    Connected(Box<Link>),
}

impl Sockets {
    /// Listens over a path.
    pub fn listen(&mut self, path: PathKind, namespace: Option<&Path>) -> io::Result<TcpAddress> {
        let listener = listen_in(namespace)?;
        let address = TcpAddress(listener.local_addr()?);
        self.ends.insert(path, End::Listening(listener));
        Ok(address)
    }

    /// The stream over a path. The near end has connected by now, so nothing waits here.
    pub fn link(&mut self, path: PathKind) -> io::Result<&mut End> {
        let end = self.ends.get_mut(&path).ok_or(io::ErrorKind::NotConnected)?;
        if let End::Listening(listener) = end {
            *end = End::Connected(Box::new(accept(listener)?));
        }
        Ok(end)
    }
}

impl End {
    /// Serves one slice.
    pub fn serve(&mut self, case: &Case, stop: &StopSignal) -> io::Result<FarSlice> {
        match self {
            End::Connected(link) if case.test.is_latency() => echo(link, case, stop),
            End::Connected(link) => sink(link, case, stop),
            End::Listening(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
