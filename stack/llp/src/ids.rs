//! Identifiers of streams and listeners, and the errors of opening them.

use thiserror::Error;

/// A connection, or one stream of a connection if the transport has several. Valid until it is
/// released; afterwards every call with it does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnId {
    /// The slot in the transport's table.
    pub slot: u32,
    /// Counts the users of the slot.
    pub generation: u32,
}

impl ConnId {
    /// The slot on its core, below the number of slots. Callers may use it as an index into their
    /// own tables.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// A listener.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListenerId {
    /// The slot in the transport's table.
    pub slot: u32,
    /// Counts the users of the slot.
    pub generation: u32,
}

/// Why a connection cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConnectError {
    /// A connection between these endpoints exists or is in TIME-WAIT. TIME-WAIT stops blocking
    /// after one second where timestamps are in use.
    #[error("a connection between these addresses and ports exists or is in TIME-WAIT")]
    InUse,
    /// `connections_max` is reached.
    #[error("the maximum number of connections is reached; raise connections_max")]
    Full,
    /// Every local port is in use.
    #[error("every local port to this peer is in use")]
    NoPort,
    /// Packets from the peer to the requested port arrive on another core.
    #[error("the flow belongs to another core")]
    OtherCore,
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
