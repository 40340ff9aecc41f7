//! The client's connections of the TCP baselines.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;

use ironwarp_bench::PathKind;
use ironwarp_bench::baseline::namespaces::{VethPair, in_namespace};
use ironwarp_bench::baseline::tcp::TcpConnection;

use super::server_link::ServerLink;
use crate::control::{FromServer, ToServer};
use crate::error::{Context, Error, Result};

/// One connection for each path, opened when a case needs it.
#[derive(Default)]
pub struct Sockets {
    connections: HashMap<PathKind, TcpConnection>,
    /// The veth pair, or why it cannot be created. `None` before the first case needs it.
    veth: Option<Result<VethPair, String>>,
    /// The namespace of the server, whose loopback interface is used, if it is not that of this
    /// thread.
    server_namespace: Option<PathBuf>,
}

impl Sockets {
    /// Creates no connection yet.
    pub fn new(server_namespace: Option<PathBuf>) -> Self {
        Sockets { server_namespace, ..Sockets::default() }
    }

    /// Connects over a path. Returns the path in use, and a note if it is not the planned one:
    /// loopback replaces veth if this process may not create a veth pair.
    pub fn open(
        &mut self,
        server: &mut ServerLink,
        path: PathKind,
        mtu: u16,
    ) -> Result<(PathKind, Option<String>)> {
        let new_pair = || VethPair::new(mtu).map_err(|error| error.to_string());
        let (path, veth, note) = match path {
            PathKind::Veth => match self.veth.get_or_insert_with(new_pair) {
                Ok(veth) => (path, Some(&*veth), None),
                Err(why) => (PathKind::Lo, None, Some(format!("over loopback: no veth pair: {why}"))),
            },
            _ => (path, None, None),
        };
        if let Entry::Vacant(entry) = self.connections.entry(path) {
            let namespace = veth.map(VethPair::server_path);
            let address = match server.request(&ToServer::Listen { path, namespace })? {
                FromServer::Listening(address) => address,
                other => return Err(other.unexpected()),
            };
            let connect = || TcpConnection::connect(address, veth);
            let connection = match &self.server_namespace {
                Some(namespace) => in_namespace(namespace, connect)?,
                None => connect(),
            };
            entry.insert(connection.context("connecting the Linux sockets")?);
        }
        Ok((path, note))
    }

    pub fn connection(&mut self, path: PathKind) -> Result<&mut TcpConnection> {
        self.connections.get_mut(&path).ok_or_else(|| Error::failed("the Linux sockets: not connected"))
    }
}
