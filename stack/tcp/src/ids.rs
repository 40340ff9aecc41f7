//! Identifiers of connections and listeners, and the errors of opening them.

use thiserror::Error;

/// A connection. Valid until it is released; afterwards every call with it does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// The connection's slot on its core, below `connections_max`. Callers may use it as an index into their own
    /// tables.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// A listener.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListenerId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Why a connection cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConnectError {
    /// A connection between these endpoints exists or is in TIME-WAIT. TIME-WAIT stops blocking after one second where
    /// timestamps are in use.
    #[error("a connection between these addresses and ports exists or is in TIME-WAIT")]
    InUse,
    /// `connections_max` is reached.
    #[error("the maximum number of connections is reached; raise connections_max")]
    Full,
    /// An address or port is not a valid endpoint: unspecified, multicast, broadcast, or port 0.
    #[error("an address or port is unspecified, multicast or broadcast and cannot be connected")]
    InvalidAddress,
}

/// Why a listener cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ListenError {
    /// A listener on this address and port exists.
    #[error("a listener on this address and port exists")]
    InUse,
    /// `listeners_max` is reached.
    #[error("the maximum number of listeners is reached; raise listeners_max")]
    Full,
    /// Port 0 is not a valid port.
    #[error("cannot listen on port 0; choose a port from 1 to 65535")]
    InvalidAddress,
}
