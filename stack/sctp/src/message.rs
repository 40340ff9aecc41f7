//! Messages, and what the layer above does with them.
//!
//! A message is one DATA chunk. Its stream, its order and its PPID travel with it; the octets are
//! opaque.

use core::net::IpAddr;

use ironwarp_llp::{ConnId, Events};
use ironwarp_types::Seq;

use crate::PathState;

/// How a message is sent, and how it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageHeader {
    /// The stream identifier.
    pub stream: u16,
    /// The payload protocol identifier.
    pub ppid: u32,
    /// It is delivered as soon as it arrives, and not in the order of its stream.
    pub is_unordered: bool,
}

/// A received message, in its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// How it was sent.
    pub header: MessageHeader,
    /// Its number in the association: that of its chunk.
    pub tsn: Seq,
    /// The octets. Never empty.
    pub payload: &'a [u8],
}

/// The layer above. An `FnMut(ConnId, Events)` is one that reads messages later.
pub trait UpperLayer {
    /// Events of an association.
    fn event(&mut self, id: ConnId, events: Events);

    /// Offers a message that may be delivered now. Returns whether it is taken. Otherwise it is
    /// held, its event is READABLE, and [`Sctp::message`](crate::Sctp::message) returns it.
    fn message(&mut self, id: ConnId, message: Message<'_>) -> bool {
        let _ = (id, message);
        false
    }

    /// A message that was offered and not taken is dropped: there is no room for it. The peer sends
    /// it again.
    fn dropped(&mut self, id: ConnId, stream: u16, tsn: Seq) {
        let _ = (id, stream, tsn);
    }

    /// RFC 9260 s8.2: an address of the peer became reachable, or does not answer any more.
    fn path(&mut self, id: ConnId, remote: IpAddr, state: PathState) {
        let _ = (id, remote, state);
    }

    /// The peer has acknowledged messages of a stream for good, with so many bytes in all.
    fn acked(&mut self, id: ConnId, stream: u16, bytes: u32) {
        let _ = (id, stream, bytes);
    }
}

impl<T: FnMut(ConnId, Events)> UpperLayer for T {
    fn event(&mut self, id: ConnId, events: Events) {
        self(id, events);
    }
}
