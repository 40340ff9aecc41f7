//! Control messages of memif version 2.0: one datagram of 128 bytes each, in the byte order of the
//! host.
//!
//! Takes the bytes of a datagram, gives a [`Message`] whose fields are private copies; and the
//! reverse. Layout: the public header of the protocol (`memif.h` of VPP and of DPDK's net_memif). A
//! datagram of another length or of an unknown type is no message; the values of fields are judged
//! by the handshake.
#![forbid(unsafe_code)]

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of every message.
pub(super) const MESSAGE_BYTES: usize = 128;
/// Version 2.0.
pub(super) const VERSION: u16 = 0x0200;
/// The interface mode of Ethernet frames.
pub(super) const MODE_ETHERNET: u8 = 0;
/// The longest secret, which a zero follows.
pub(super) const SECRET_BYTES_MAX: usize = 23;
/// [`AddRing::flags`]: the client sends on this ring.
pub(super) const RING_C2S: u16 = 1;

const TYPE_BYTES: usize = 2;
const BODY_BYTES: usize = MESSAGE_BYTES - TYPE_BYTES;

/// A message. Names are cut to what its field holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// The receiver took the last message.
    Ack,
    /// The server's limits: its first message.
    Hello(Hello),
    /// The interface that the client wants.
    Init(Init),
    /// A memory region of the client, with its descriptor.
    AddRegion(AddRegion),
    /// A ring in a region, with its interrupt descriptor.
    AddRing(AddRing),
    /// The client has sent everything.
    Connect,
    /// The server has accepted everything.
    Connected,
    /// The sender ends the link.
    Disconnect(Disconnect),
}

/// The server's limits. All are numbers of the last one, not counts.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Hello {
    pub(super) name: [u8; 32],
    pub(super) min_version: U16,
    pub(super) max_version: U16,
    pub(super) max_region: U16,
    pub(super) max_s2c_ring: U16,
    pub(super) max_c2s_ring: U16,
    pub(super) max_log2_ring_size: u8,
}

/// The interface that the client wants.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Init {
    pub(super) version: U16,
    pub(super) id: U32,
    pub(super) mode: u8,
    pub(super) secret: [u8; 24],
    pub(super) name: [u8; 32],
}

/// A memory region.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AddRegion {
    pub(super) index: U16,
    pub(super) size: U64,
}

/// A ring.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AddRing {
    pub(super) flags: U16,
    pub(super) index: U16,
    pub(super) region: U16,
    pub(super) offset: U32,
    pub(super) log2_ring_size: u8,
    pub(super) private_hdr_size: U16,
}

/// The end of a link.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Disconnect {
    pub(super) code: U32,
    pub(super) reason: [u8; 96],
}

impl Message {
    /// Decodes a datagram. `None`: another length, or an unknown type.
    pub(super) fn decode(datagram: &[u8]) -> Option<Self> {
        let datagram: &[u8; MESSAGE_BYTES] = datagram.try_into().ok()?;
        let (kind, body) = datagram.split_at(TYPE_BYTES);
        let kind = u16::from_le_bytes(kind.try_into().ok()?);
        Some(match kind {
            1 => Message::Ack,
            2 => Message::Hello(Hello::read_from_prefix(body).ok()?.0),
            3 => Message::Init(Init::read_from_prefix(body).ok()?.0),
            4 => Message::AddRegion(AddRegion::read_from_prefix(body).ok()?.0),
            5 => Message::AddRing(AddRing::read_from_prefix(body).ok()?.0),
            6 => Message::Connect,
            7 => Message::Connected,
            8 => Message::Disconnect(Disconnect::read_from_prefix(body).ok()?.0),
            _ => return None,
        })
    }

    /// Encodes the message. `name` is sent as the interface's name, where the message has one.
    pub(super) fn encode(&self, name: &str) -> [u8; MESSAGE_BYTES] {
        let name: [u8; 32] = padded(name.as_bytes());
        let (kind, body): (u16, &[u8]) = match self {
            Message::Ack => (1, &[]),
            Message::Hello(hello) => (2, hello.as_bytes()),
            Message::Init(init) => (3, init.as_bytes()),
            Message::AddRegion(region) => (4, region.as_bytes()),
            Message::AddRing(ring) => (5, ring.as_bytes()),
            Message::Connect => (6, &name),
            Message::Connected => (7, &name),
            Message::Disconnect(end) => (8, end.as_bytes()),
        };
        let mut datagram = [0; MESSAGE_BYTES];
        let (head, room) = datagram.split_at_mut(TYPE_BYTES);
        head.copy_from_slice(&kind.to_le_bytes());
        room.iter_mut().zip(body).for_each(|(to, from)| *to = *from);
        datagram
    }
}

impl Disconnect {
    /// Returns the end of a link for this reason.
    pub(super) fn new(reason: &str) -> Self {
        Disconnect { code: U32::new(0), reason: padded(reason.as_bytes()) }
    }
}

impl Hello {
    /// Returns the limits of a server with `rings` rings in each direction.
    pub(super) fn new(name: &str, rings: u16, regions_max: u16, log2_ring_size_max: u8) -> Self {
        let last = U16::new(rings.saturating_sub(1));
        Hello {
            name: padded(name.as_bytes()),
            min_version: U16::new(VERSION),
            max_version: U16::new(VERSION),
            max_region: U16::new(regions_max.saturating_sub(1)),
            max_s2c_ring: last,
            max_c2s_ring: last,
            max_log2_ring_size: log2_ring_size_max,
        }
    }
}

/// Returns the text, cut so that a zero follows it, in a field of zeros.
pub(super) fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field.iter_mut().take(N - 1).zip(text).for_each(|(to, from)| *to = *from);
    field
}

/// Compares two secrets in a time that does not depend on where they differ.
pub(super) fn same_secret(ours: &[u8; 24], theirs: &[u8; 24]) -> bool {
    ours.iter().zip(theirs).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

const _: () = {
    assert!(size_of::<Hello>() == 43 && size_of::<Init>() == 63 && size_of::<AddRegion>() == 10);
    assert!(size_of::<AddRing>() == 13 && size_of::<Disconnect>() == 100 && size_of::<Hello>() <= BODY_BYTES);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_layout_of_the_protocol() {
        let ring = AddRing {
            flags: U16::new(RING_C2S),
            index: U16::new(2),
            region: U16::new(3),
            offset: U32::new(0x0405_0607),
            log2_ring_size: 10,
            private_hdr_size: U16::new(0),
        };
        let bytes = Message::AddRing(ring).encode("");
        assert_eq!(bytes[..15], [5, 0, 1, 0, 2, 0, 3, 0, 7, 6, 5, 4, 10, 0, 0]);
        assert!(bytes[15..].iter().all(|byte| *byte == 0));
        let region = AddRegion { index: U16::new(1), size: U64::new(0x1_0000) };
        assert_eq!(Message::AddRegion(region).encode("")[..12], [4, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        let hello = Message::Hello(Hello::new("x", 3, 16, 14)).encode("");
        assert_eq!(hello[34..45], [0, 2, 0, 2, 15, 0, 2, 0, 2, 0, 14]);
        let init = Init {
            version: U16::new(VERSION),
            id: U32::new(7),
            mode: 0,
            secret: padded(b"s"),
            name: [0; 32],
        };
        assert_eq!(Message::Init(init).encode("")[..10], [3, 0, 0, 2, 7, 0, 0, 0, 0, b's']);
        assert_eq!(Message::Connect.encode("port")[..7], [6, 0, b'p', b'o', b'r', b't', 0]);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for length in [0, 1, 127, 129, 4096] {
            assert!(Message::decode(&vec![1; length]).is_none());
        }
        for kind in [0u8, 9, 255] {
            let mut bytes = [0; MESSAGE_BYTES];
            bytes[0] = kind;
            assert!(Message::decode(&bytes).is_none());
        }
        let mut wide = Message::Ack.encode("");
        wide[1] = 1;
        assert!(Message::decode(&wide).is_none());
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let end = Message::Disconnect(Disconnect::new(&"long ".repeat(40)));
        let Some(Message::Disconnect(seen)) = Message::decode(&end.encode("")) else {
            panic!("another message")
        };
        assert!(seen.reason.starts_with(b"long long ") && seen.reason[94] != 0 && seen.reason[95] == 0);
        assert!(
            same_secret(&padded(b"abc"), &padded(b"abc")) && !same_secret(&padded(b"abc"), &padded(b"abcd"))
        );
    }
}
