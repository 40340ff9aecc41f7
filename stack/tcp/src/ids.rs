//! Names of connections and listeners, and the errors of making them.

use thiserror::Error;

/// A connection. Stays valid until released; afterwards every call with it does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// Its place among the connections of its core, below `connections_max`: an index for tables beside the engine.
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
    /// A connection between these two ends exists, or is in TIME-WAIT: for less than a second, or without time stamps.
    #[error("a connection between these addresses and ports exists or is in TIME-WAIT")]
    InUse,
    /// `connections_max` is reached.
    #[error("no room for another connection")]
    Full,
    /// One of the addresses or ports names nobody: unspecified, or port 0.
    #[error("the address or port cannot be connected")]
    InvalidAddress,
}

/// Why a listener cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ListenError {
    /// Somebody listens there already.
    #[error("the address and port are being listened on already")]
    InUse,
    /// `listeners_max` is reached.
    #[error("no room for another listener")]
    Full,
    /// Port 0 names nobody.
    #[error("port 0 cannot be listened on")]
    InvalidAddress,
}
