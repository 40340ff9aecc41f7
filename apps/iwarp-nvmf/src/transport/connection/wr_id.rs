//! Identifiers of work requests: their kind, their connection, and a slot or a data buffer.
//!
//! 8 bits of kind, 24 bits of connection, 32 bits of slot or buffer. Requests to backends have 16
//! bits of epoch above the slot.

use crate::transport::buffers::BufferId;

/// The identifier of a work request or of a request to a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::transport) struct WrId(pub(in crate::transport) u64);

/// What a work request was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::transport) enum Kind {
    Receive(u16),
    Read(u16),
    /// A response or its data. The buffer is free with the completion.
    Send(Option<BufferId>),
    /// A piece of the engine's data, in the memory of the slot's capsule.
    Piece(u16),
}

const RECEIVE: u64 = 0;
const READ: u64 = 1;
const SEND: u64 = 2;
const PIECE: u64 = 3;
const NO_BUFFER: u32 = u32::MAX;
/// The largest number of connections of a core.
pub(in crate::transport) const CONNECTIONS_MAX: usize = 1 << 24;

impl WrId {
    fn new(kind: u64, connection: u32, value: u32) -> Self {
        WrId(kind << 56 | u64::from(connection) << 32 | u64::from(value))
    }

    pub(in crate::transport) fn receive(connection: u32, slot: u16) -> Self {
        Self::new(RECEIVE, connection, slot.into())
    }

    pub(in crate::transport) fn read(connection: u32, slot: u16) -> Self {
        Self::new(READ, connection, slot.into())
    }

    /// The identifier of a request to a backend. The epoch tells it from those of ended commands.
    pub(in crate::transport) fn device(connection: u32, slot: u16, epoch: u16) -> Self {
        Self::new(READ, connection, u32::from(epoch) << 16 | u32::from(slot))
    }

    pub(in crate::transport) fn send(connection: u32, buffer: Option<BufferId>) -> Self {
        Self::new(SEND, connection, buffer.map_or(NO_BUFFER, |buffer| buffer.0))
    }

    pub(in crate::transport) fn piece(connection: u32, slot: u16) -> Self {
        Self::new(PIECE, connection, slot.into())
    }

    /// Returns the epoch of a request to a backend.
    pub(in crate::transport) fn epoch(self) -> u16 {
        (self.0 >> 16) as u16
    }

    pub(in crate::transport) fn connection(self) -> usize {
        (self.0 >> 32 & 0xff_ffff) as usize
    }

    pub(in crate::transport) fn kind(self) -> Kind {
        let value = self.0 as u32;
        match self.0 >> 56 {
            RECEIVE => Kind::Receive(value as u16),
            READ => Kind::Read(value as u16),
            PIECE => Kind::Piece(value as u16),
            _ => Kind::Send((value != NO_BUFFER).then_some(BufferId(value))),
        }
    }
}
