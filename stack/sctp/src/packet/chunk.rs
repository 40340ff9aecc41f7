//! Chunks: the list in a packet, and a typed view of each.

use bitflags::bitflags;
use ironwarp_types::Seq;

use crate::message::MessageHeader;

use super::{FLAG_REFLECTED, IfUnrecognized, Tlvs, split_padded};

/// The length of a chunk's header in bytes.
pub(super) const CHUNK_HEADER_BYTES: usize = 4;

/// The length of the fixed part of a DATA chunk's value in bytes.
pub const DATA_FIXED_BYTES: usize = 12;

/// The same with the header of the chunk: the payload follows.
pub const DATA_HEADER_BYTES: u16 = (CHUNK_HEADER_BYTES + DATA_FIXED_BYTES) as u16;

/// The same of INIT and INIT ACK.
pub const INIT_FIXED_BYTES: usize = 16;

/// The same of SACK.
pub const SACK_FIXED_BYTES: usize = 12;

/// The type of a chunk (RFC 9260 s3.2, table 1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChunkType(pub u8);

#[allow(missing_docs, reason = "the names of the RFC")]
impl ChunkType {
    pub const DATA: Self = ChunkType(0);
    pub const INIT: Self = ChunkType(1);
    pub const INIT_ACK: Self = ChunkType(2);
    pub const SACK: Self = ChunkType(3);
    pub const HEARTBEAT: Self = ChunkType(4);
    pub const HEARTBEAT_ACK: Self = ChunkType(5);
    pub const ABORT: Self = ChunkType(6);
    pub const SHUTDOWN: Self = ChunkType(7);
    pub const SHUTDOWN_ACK: Self = ChunkType(8);
    pub const ERROR: Self = ChunkType(9);
    pub const COOKIE_ECHO: Self = ChunkType(10);
    pub const COOKIE_ACK: Self = ChunkType(11);
    pub const SHUTDOWN_COMPLETE: Self = ChunkType(14);
    /// RFC 4820 s3.
    pub const PAD: Self = ChunkType(0x84);
}

/// A chunk as it lies in its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawChunk<'a> {
    /// The type.
    pub kind: ChunkType,
    /// The flags.
    pub flags: u8,
    /// The value, without padding.
    pub value: &'a [u8],
    /// Header and value: what a report of an unrecognised chunk quotes.
    pub octets: &'a [u8],
}

impl<'a> RawChunk<'a> {
    /// Returns the typed view. `None` if the value is shorter than its fixed part, or than the
    /// lists of a SACK.
    #[inline(always)]
    pub fn parse(self) -> Option<Chunk<'a>> {
        let reflected = self.flags & FLAG_REFLECTED != 0;
        Some(match self.kind {
            ChunkType::DATA => Chunk::Data(Data::parse(self.flags, self.value)?),
            ChunkType::INIT => Chunk::Init(Init::parse(self.value)?),
            ChunkType::INIT_ACK => Chunk::InitAck(Init::parse(self.value)?),
            ChunkType::SACK => Chunk::Sack(Sack::parse(self.value)?),
            ChunkType::HEARTBEAT => Chunk::Heartbeat(self.value),
            ChunkType::HEARTBEAT_ACK => Chunk::HeartbeatAck(self.value),
            ChunkType::ABORT => Chunk::Abort { reflected, causes: Tlvs::new(self.value) },
            ChunkType::SHUTDOWN => {
                let cum_tsn_ack = Seq(u32::from_be_bytes(*self.value.first_chunk()?));
                Chunk::Shutdown { cum_tsn_ack }
            }
            ChunkType::SHUTDOWN_ACK => Chunk::ShutdownAck,
            ChunkType::ERROR => Chunk::Error(Tlvs::new(self.value)),
            ChunkType::COOKIE_ECHO => Chunk::CookieEcho(self.value),
            ChunkType::COOKIE_ACK => Chunk::CookieAck,
            ChunkType::SHUTDOWN_COMPLETE => Chunk::ShutdownComplete { reflected },
            ChunkType(upper) => Chunk::Unrecognized(self.octets, IfUnrecognized::of(upper)),
        })
    }
}

/// The chunks of a packet, up to one with an impossible length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chunks<'a>(&'a [u8]);

impl<'a> Chunks<'a> {
    pub(super) const fn new(list: &'a [u8]) -> Self {
        Chunks(list)
    }

    /// Returns what is left. After the last chunk: empty, or a partial chunk, which RFC 9260 s6.10
    /// has dropped.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = RawChunk<'a>;

    fn next(&mut self) -> Option<RawChunk<'a>> {
        let &[kind, flags, l0, l1] = self.0.first_chunk::<CHUNK_HEADER_BYTES>()?;
        let bytes = usize::from(u16::from_be_bytes([l0, l1]));
        let (octets, rest) = split_padded(self.0, bytes)?;
        let value = octets.get(CHUNK_HEADER_BYTES..)?;
        self.0 = rest;
        Some(RawChunk { kind: ChunkType(kind), flags, value, octets })
    }
}

/// A chunk by its type. See RFC 9260 s3.3.
#[derive(Clone, Copy, Debug)]
pub enum Chunk<'a> {
    /// User data.
    Data(Data<'a>),
    /// Begins an association.
    Init(Init<'a>),
    /// Replies to INIT.
    InitAck(Init<'a>),
    /// Acknowledges DATA.
    Sack(Sack<'a>),
    /// Probes a path. The value returns in the HEARTBEAT ACK as it is.
    Heartbeat(&'a [u8]),
    /// Replies to HEARTBEAT.
    HeartbeatAck(&'a [u8]),
    /// Ends the association at once.
    Abort {
        /// The verification tag of the packet is the receiver's own, reflected (T bit).
        reflected: bool,
        /// Error causes.
        causes: Tlvs<'a>,
    },
    /// Ends the association in order.
    Shutdown {
        /// The last TSN received in sequence.
        cum_tsn_ack: Seq,
    },
    /// Replies to SHUTDOWN.
    ShutdownAck,
    /// Reports errors that are not fatal.
    Error(Tlvs<'a>),
    /// Returns the state cookie.
    CookieEcho(&'a [u8]),
    /// Replies to COOKIE ECHO.
    CookieAck,
    /// Replies to SHUTDOWN ACK.
    ShutdownComplete {
        /// As in ABORT.
        reflected: bool,
    },
    /// A type that RFC 9260 does not define: the whole chunk, and what to do.
    Unrecognized(&'a [u8], IfUnrecognized),
}

bitflags! {
    /// The flags of a DATA chunk (RFC 9260 s3.3.1).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct DataFlags: u8 {
        /// The last fragment of a message.
        const END = 1;
        /// The first fragment of a message.
        const BEGINNING = 2;
        /// Not ordered within its stream.
        const UNORDERED = 4;
        /// The sender asks for a SACK without delay (RFC 7053).
        const IMMEDIATE = 8;
        /// A whole message.
        const WHOLE = Self::BEGINNING.bits() | Self::END.bits();
    }
}

/// A DATA chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data<'a> {
    /// The flags. Reserved bits are cleared.
    pub flags: DataFlags,
    /// The transmission sequence number.
    pub tsn: Seq,
    /// The stream identifier.
    pub stream: u16,
    /// The stream sequence number; meaningless for unordered data.
    pub ssn: u16,
    /// The payload protocol identifier: opaque to SCTP, in network order.
    pub ppid: u32,
    /// The user data. RFC 9260 s6.2: without any, the association is aborted.
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    #[inline]
    pub(crate) fn parse(flags: u8, value: &'a [u8]) -> Option<Self> {
        let (fixed, payload) = value.split_first_chunk::<DATA_FIXED_BYTES>()?;
        let [t0, t1, t2, t3, s0, s1, n0, n1, ppid @ ..] = *fixed;
        Some(Data {
            flags: DataFlags::from_bits_truncate(flags),
            tsn: Seq(u32::from_be_bytes([t0, t1, t2, t3])),
            stream: u16::from_be_bytes([s0, s1]),
            ssn: u16::from_be_bytes([n0, n1]),
            ppid: u32::from_be_bytes(ppid),
            payload,
        })
    }

    /// A whole message without its payload.
    pub(crate) fn whole(header: MessageHeader, tsn: Seq, ssn: u16) -> Data<'static> {
        let MessageHeader { stream, ppid, is_unordered } = header;
        let unordered = if is_unordered { DataFlags::UNORDERED } else { DataFlags::empty() };
        Data { flags: DataFlags::WHOLE | unordered, tsn, stream, ssn, ppid, payload: &[] }
    }

    /// The message after this one in its stream.
    pub(crate) fn next(self) -> Self {
        let is_unordered = self.flags.contains(DataFlags::UNORDERED);
        Data { tsn: self.tsn.plus(1), ssn: self.ssn.wrapping_add(u16::from(!is_unordered)), ..self }
    }

    /// Returns the octets of the fixed part.
    pub fn fixed(&self) -> [u8; DATA_FIXED_BYTES] {
        let ([a, b, c, d], [e, f]) = (self.tsn.0.to_be_bytes(), self.stream.to_be_bytes());
        let ([g, h], [i, j, k, l]) = (self.ssn.to_be_bytes(), self.ppid.to_be_bytes());
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }
}

/// The value of INIT or INIT ACK.
#[derive(Clone, Copy, Debug)]
pub struct Init<'a> {
    /// The fixed part, as received and not checked.
    pub fixed: InitFixed,
    /// The parameters behind it.
    pub parameters: Tlvs<'a>,
}

impl<'a> Init<'a> {
    fn parse(value: &'a [u8]) -> Option<Self> {
        let (fixed, parameters) = value.split_first_chunk()?;
        Some(Init { fixed: InitFixed::parse(*fixed), parameters: Tlvs::new(parameters) })
    }
}

/// The fixed part of INIT and INIT ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InitFixed {
    /// The tag that packets to the sender carry.
    pub tag: u32,
    /// The sender's receive window in bytes.
    pub a_rwnd: u32,
    /// The number of streams that the sender wants to send on.
    pub outbound_streams: u16,
    /// The number of streams that the sender accepts.
    pub inbound_streams: u16,
    /// The TSN of the sender's first DATA chunk.
    pub initial_tsn: Seq,
}

impl InitFixed {
    /// Parses the fixed part. Any octets are one.
    pub fn parse(octets: [u8; INIT_FIXED_BYTES]) -> Self {
        let [t0, t1, t2, t3, w0, w1, w2, w3, o0, o1, i0, i1, tsn @ ..] = octets;
        InitFixed {
            tag: u32::from_be_bytes([t0, t1, t2, t3]),
            a_rwnd: u32::from_be_bytes([w0, w1, w2, w3]),
            outbound_streams: u16::from_be_bytes([o0, o1]),
            inbound_streams: u16::from_be_bytes([i0, i1]),
            initial_tsn: Seq(u32::from_be_bytes(tsn)),
        }
    }

    /// Returns the octets of the fixed part.
    pub fn octets(&self) -> [u8; INIT_FIXED_BYTES] {
        let ([a, b, c, d], [e, f, g, h]) = (self.tag.to_be_bytes(), self.a_rwnd.to_be_bytes());
        let ([i, j], [k, l]) = (self.outbound_streams.to_be_bytes(), self.inbound_streams.to_be_bytes());
        let [m, n, o, p] = self.initial_tsn.0.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }
}

/// A SACK chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sack<'a> {
    /// The last TSN received in sequence.
    pub cum_tsn_ack: Seq,
    /// The sender's receive window in bytes.
    pub a_rwnd: u32,
    blocks: &'a [[u8; 4]],
    duplicates: &'a [[u8; 4]],
}

impl<'a> Sack<'a> {
    #[inline]
    pub(crate) fn parse(value: &'a [u8]) -> Option<Self> {
        let (fixed, lists) = value.split_first_chunk::<SACK_FIXED_BYTES>()?;
        let [c0, c1, c2, c3, w0, w1, w2, w3, b0, b1, d0, d1] = *fixed;
        let (words, _) = lists.as_chunks::<4>();
        let (blocks, rest) = words.split_at_checked(u16::from_be_bytes([b0, b1]).into())?;
        Some(Sack {
            cum_tsn_ack: Seq(u32::from_be_bytes([c0, c1, c2, c3])),
            a_rwnd: u32::from_be_bytes([w0, w1, w2, w3]),
            blocks,
            duplicates: rest.get(..u16::from_be_bytes([d0, d1]).into())?,
        })
    }

    /// Returns the Gap Ack Blocks as first and last distance from the cumulative TSN. They are as
    /// received: in any order, and perhaps with the last before the first.
    pub fn gap_blocks(&self) -> impl Iterator<Item = (u16, u16)> + use<'a> {
        self.blocks.iter().map(|&[a, b, c, d]| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Returns the TSNs that were received twice.
    pub fn duplicates(&self) -> impl Iterator<Item = Seq> + use<'a> {
        self.duplicates.iter().map(|&tsn| Seq(u32::from_be_bytes(tsn)))
    }
}
