//! The enhanced connection data of RFC 6581 s9: who speaks first, and how many Reads each side can take.
//!
//! ```text
//! |A|B| IRD: 14 bits |C|D| ORD: 14 bits |     the first four octets of the private data, when S is set
//! ```
//! A: peer-to-peer, the initiator's first FPDU is a ready-to-receive indication (RTR). B, C, D: kinds of it that the
//! frame's sender can do. Four octets in, four octets out; nothing can fail here.

/// Octets of the data, taken from those that the application may say.
pub const ENHANCED_BYTES: usize = 4;

/// RFC 6581 s9.1: this number of Reads says that the applications see to it themselves.
pub const READS_UNNEGOTIATED: u16 = 0x3fff;

const PEER_TO_PEER: u16 = 0x8000;
const SEND: u16 = 0x4000;
const WRITE: u16 = 0x8000;
const READ: u16 = 0x4000;
const DEPTH: u16 = 0x3fff;

bitflags::bitflags! {
    /// Kinds of ready-to-receive indication (RFC 6581 s9.2): an FPDU without payload, which no application sees.
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rtr {
    /// A Send of no octets. It consumes no receive.
    Send,
    /// An RDMA Write of no octets.
    Write,
    /// An RDMA Read of no octets. It counts among the Reads until it is answered.
    Read,
}

/// How many Reads a side takes and makes at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadDepths {
    /// Reads of the other side's that may be outstanding here.
    pub ird: u16,
    /// Reads of this side's that may be outstanding at the other.
    pub ord: u16,
}

/// The enhanced connection data of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Enhanced {
    /// A.
    pub peer_to_peer: bool,
    /// B, C and D; empty unless A is set.
    pub rtr: RtrKinds,
    /// The sender's numbers of Reads, [`READS_UNNEGOTIATED`] where they are not negotiated. Only 14 bits are carried.
    pub reads: ReadDepths,
}

impl Enhanced {
    /// The octets on the wire.
    pub fn encode(&self) -> [u8; ENHANCED_BYTES] {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        // RFC 6581 s9.2: without A the others are zero.
        let rtr = if self.peer_to_peer { self.rtr } else { RtrKinds::empty() };
        let ird = bit(self.peer_to_peer, PEER_TO_PEER) | bit(rtr.contains(RtrKinds::SEND), SEND);
        let ord = bit(rtr.contains(RtrKinds::WRITE), WRITE) | bit(rtr.contains(RtrKinds::READ), READ);
        // RFC 6581 s9: network byte order.
        let [a, b] = (ird | self.reads.ird.min(DEPTH)).to_be_bytes();
        let [c, d] = (ord | self.reads.ord.min(DEPTH)).to_be_bytes();
        [a, b, c, d]
    }

    /// What four octets say.
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
