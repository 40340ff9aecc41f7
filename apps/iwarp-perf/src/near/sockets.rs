//! The near end of the baselines over Linux sockets.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use ironwarp_bench::PathKind;
use ironwarp_bench::baseline::namespaces::VethPair;
use ironwarp_bench::baseline::tcp::Link;

use super::NearError;
use super::link::{FarLink, due};
use crate::control::{FromFar, TcpAddress, ToFar};

/// One stream a path, connected when first asked for.
#[derive(Default)]
pub struct Sockets {
    links: HashMap<PathKind, Link>,
    veth: Option<VethPair>,
    /// Why there is no veth pair, when it was tried and refused.
    refused: Option<String>,
}

impl Sockets {
    /// The path that a case runs over in the end, and why when it is another one than was asked for.
    pub fn open(
        &mut self,
        far: &mut FarLink,
        path: PathKind,
        mtu: u16,
    ) -> Result<(PathKind, Option<String>), NearError> {
        let (path, note) = self.possible(path, mtu);
        if !self.links.contains_key(&path) {
            let namespace = self.namespace(path);
            let answer = far.ask(&ToFar::Listen { path, namespace })?;
            let TcpAddress(address) = due(answer, |answer| match answer {
                FromFar::Listening(address) => Ok(address),
                other => Err(other),
            })?;
            let veth = self.veth.as_ref().filter(|_| path == PathKind::Veth);
            let link = Link::connect(address, veth)
                .map_err(|source| NearError::System { what: "connecting the Linux sockets", source })?;
            self.links.insert(path, link);
        }
        Ok((path, note))
    }

    /// The stream over a path.
    pub fn link(&mut self, path: PathKind) -> Result<&mut Link, NearError> {
        let missing =
            || NearError::System { what: "the Linux sockets", source: io::ErrorKind::NotConnected.into() };
        self.links.get_mut(&path).ok_or_else(missing)
    }

    fn possible(&mut self, path: PathKind, mtu: u16) -> (PathKind, Option<String>) {
        if path == PathKind::Veth && self.veth.is_none() && self.refused.is_none() {
            match VethPair::new(mtu) {
                Ok(veth) => self.veth = Some(veth),
                Err(error) => self.refused = Some(error.to_string()),
            }
        }
        match (&self.refused, path) {
            (Some(why), PathKind::Veth) => {
                (PathKind::Lo, Some(format!("over loopback, since there is no veth pair: {why}")))
            }
            _ => (path, None),
        }
    }

    fn namespace(&self, path: PathKind) -> Option<PathBuf> {
        self.veth.as_ref().filter(|_| path == PathKind::Veth).map(VethPair::far_path)
    }
}
