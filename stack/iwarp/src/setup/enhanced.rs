//! The enhanced connection data of RFC 6581 s9: the peer-to-peer model and the read depths.
//!
//! ```text
//! |A|B| IRD: 14 bits |C|D| ORD: 14 bits |     the first four octets of the private data, when S is set
//! ```
//! A: peer-to-peer model, in which the initiator's first FPDU is a ready-to-receive indication
//! (RTR). B, C, D: the kinds of RTR that the sender of the frame supports. Encoding and decoding
//! cannot fail.

/// Octets of the data. They reduce what is left for the application's private data.
pub const ENHANCED_BYTES: usize = 4;

/// RFC 6581 s9.1: this value means that the applications choose the depth themselves.
pub const READS_UNNEGOTIATED: u16 = 0x3fff;

const PEER_TO_PEER: u16 = 0x8000;
const SEND: u16 = 0x4000;
const WRITE: u16 = 0x8000;
const READ: u16 = 0x4000;
const DEPTH: u16 = 0x3fff;

bitflags::bitflags! {
    /// Kinds of ready-to-receive indication (RFC 6581 s9.2): an FPDU without payload that no
    /// application sees.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RtrKinds: u8 {
        /// Flag B: a Send, or an empty ULPDU.
        const SEND = 1;
        /// Flag C: an RDMA Write.
        const WRITE = 2;
        /// Flag D: an RDMA Read.
        const READ = 4;
    }
}

/// One kind of ready-to-receive indication.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Rtr {
    /// A Send of no octets. It consumes no receive.
    Send,
    /// An RDMA Write of no octets.
    Write,
    /// An RDMA Read of no octets. It counts as an outstanding Read until it is answered.
    Read,
}

/// The read depths of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct ReadDepths {
    /// Reads of the peer that may be outstanding here.
    pub ird: u16,
    /// Local Reads that may be outstanding at the peer.
    pub ord: u16,
}

/// The enhanced connection data of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Enhanced {
    /// A: the peer-to-peer model.
    pub peer_to_peer: bool,
    /// B, C and D: the supported kinds of RTR. Empty unless A is set.
    pub rtr: RtrKinds,
    /// The sender's depths, or [`READS_UNNEGOTIATED`]. Only 14 bits are carried.
    pub reads: ReadDepths,
}

impl Enhanced {
    /// Encodes the four octets.
    pub fn encode(&self) -> [u8; ENHANCED_BYTES] {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        // RFC 6581 s9.2: without A the other flags are zero.
        let rtr = if self.peer_to_peer { self.rtr } else { RtrKinds::empty() };
        let ird = bit(self.peer_to_peer, PEER_TO_PEER) | bit(rtr.contains(RtrKinds::SEND), SEND);
        let ord = bit(rtr.contains(RtrKinds::WRITE), WRITE) | bit(rtr.contains(RtrKinds::READ), READ);
        // RFC 6581 s9: network byte order.
        let [a, b] = (ird | self.reads.ird.min(DEPTH)).to_be_bytes();
        let [c, d] = (ord | self.reads.ord.min(DEPTH)).to_be_bytes();
        [a, b, c, d]
    }

    /// Decodes the four octets.
    pub fn decode([a, b, c, d]: [u8; ENHANCED_BYTES]) -> Self {
        let (ird, ord) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let peer_to_peer = ird & PEER_TO_PEER != 0;
        let mut rtr = RtrKinds::empty();
        // RFC 6581 s9.2: B, C and D are ignored without A.
        if peer_to_peer {
            rtr.set(RtrKinds::SEND, ird & SEND != 0);
            rtr.set(RtrKinds::WRITE, ord & WRITE != 0);
            rtr.set(RtrKinds::READ, ord & READ != 0);
        }
        Enhanced { peer_to_peer, rtr, reads: ReadDepths { ird: ird & DEPTH, ord: ord & DEPTH } }
    }
}
