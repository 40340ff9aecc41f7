//! The near end of the baselines over Linux sockets.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use ironwarp_bench::PathKind;
use ironwarp_bench::baseline::namespaces::VethPair;
use ironwarp_bench::baseline::tcp::TcpConnection;

use super::ClientError;
use super::server_link::{ServerLink, expect_reply};
use crate::control::{FromServer, TcpAddress, ToServer};

/// One stream a path, connected when first asked for.
#[derive(Default)]
pub struct Sockets {
    connections: HashMap<PathKind, TcpConnection>,
    veth: Option<VethPair>,
    /// Why there is no veth pair, when it was tried and refused.
    veth_error: Option<String>,
}

impl Sockets {
    /// The path that a case runs over in the end, and why when it is another one than was asked for.
    pub fn open(
        &mut self,
        server: &mut ServerLink,
        path: PathKind,
        mtu: u16,
    ) -> Result<(PathKind, Option<String>), ClientError> {
        let (path, note) = self.resolve_path(path, mtu);
        if !self.connections.contains_key(&path) {
            let namespace = self.namespace(path);
            let reply = server.request(&ToServer::Listen { path, namespace })?;
            let TcpAddress(address) = expect_reply(reply, |reply| match reply {
                FromServer::Listening(address) => Ok(address),
                other => Err(other),
            })?;
            let veth = self.veth.as_ref().filter(|_| path == PathKind::Veth);
            let connection = TcpConnection::connect(address, veth)
                .map_err(|source| ClientError::System { what: "connecting the Linux sockets", source })?;
            self.connections.insert(path, connection);
        }
        Ok((path, note))
    }

    /// The stream over a path.
    pub fn connection(&mut self, path: PathKind) -> Result<&mut TcpConnection, ClientError> {
        let missing =
            || ClientError::System { what: "the Linux sockets", source: io::ErrorKind::NotConnected.into() };
        self.connections.get_mut(&path).ok_or_else(missing)
    }

    fn resolve_path(&mut self, path: PathKind, mtu: u16) -> (PathKind, Option<String>) {
        if path == PathKind::Veth && self.veth.is_none() && self.veth_error.is_none() {
            match VethPair::new(mtu) {
                Ok(veth) => self.veth = Some(veth),
                Err(error) => self.veth_error = Some(error.to_string()),
            }
        }
        match (&self.veth_error, path) {
            (Some(why), PathKind::Veth) => {
                (PathKind::Lo, Some(format!("over loopback, since there is no veth pair: {why}")))
            }
            _ => (path, None),
        }
    }

    fn namespace(&self, path: PathKind) -> Option<PathBuf> {
        self.veth.as_ref().filter(|_| path == PathKind::Veth).map(VethPair::server_path)
    }
}
