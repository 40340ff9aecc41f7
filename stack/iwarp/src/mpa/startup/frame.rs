//! Request and Reply Frames (RFC 5044 s7.1.1, RFC 6581 s6).
//!
//! ```text
//! | key, 16 octets | M C R S res:4 | revision:u8 | private data length:u16 | private data, 0..512 octets |
//! ```

use arrayvec::ArrayVec;
use ironwarp_tcp::ByteStream;
use ironwarp_types::limits::PRIVATE_DATA_BYTES_MAX;

use super::{PrivateDataTooLong, StartupFault};

/// What an application puts beside the set-up of a connection.
///
/// Up to 512 octets may be sent; Linux siw keeps the length in 8 bits and reads at most 255 right.
pub type PrivateData = ArrayVec<u8, PRIVATE_DATA_BYTES_MAX>;

/// A frame as it goes on the wire.
pub type FrameBytes = ArrayVec<u8, { HEADER_BYTES + PRIVATE_DATA_BYTES_MAX }>;

/// Octets before the private data.
pub const HEADER_BYTES: usize = KEY_BYTES + 4;

const KEY_BYTES: usize = 16;
const REQUEST_KEY: &[u8; KEY_BYTES] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; KEY_BYTES] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// The revision that we send.
const REVISION: u8 = 1;
/// The revision of RFC 6581.
const REVISION_ENHANCED: u8 = 2;

/// Which of the two frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The initiator's.
    Request,
    /// The responder's.
    Reply,
}

/// A start-up frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Which of the two.
    pub kind: Kind,
    /// M: its sender wants markers in what it receives.
    pub markers: bool,
    /// C: its sender wants CRCs, in both directions.
    pub crc: bool,
    /// R: its sender refuses the connection. Has no meaning in a request.
    pub reject: bool,
    /// The revision of MPA.
    pub revision: u8,
    /// What the application says.
    pub private_data: PrivateData,
}

impl Frame {
    /// A frame of ours: revision 1, no markers.
    pub fn new(kind: Kind, crc: bool, reject: bool, private_data: &[u8]) -> Result<Self, PrivateDataTooLong> {
        let private_data =
            PrivateData::try_from(private_data).map_err(|_| PrivateDataTooLong(private_data.len()))?;
        Ok(Frame { kind, markers: false, crc, reject, revision: REVISION, private_data })
    }

    /// The frame's octets. The reserved bits are zero (RFC 5044 s7.1.1).
    pub fn encode(&self) -> FrameBytes {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.markers, MARKERS) | flag(self.crc, CRC) | flag(self.reject, REJECT);
        let length = self.private_data.len() as u16;
        let [high, low] = length.to_be_bytes();
        let mut bytes = FrameBytes::new();
        bytes.extend(self.kind.key().iter().chain(&[flags, self.revision, high, low]).copied());
        bytes.extend(self.private_data.iter().copied());
        bytes
    }

    /// Takes the frame at the front of `bytes`, once all of it has arrived.
    ///
    /// A fault is found with the first octet that shows it: a peer that speaks something else is not waited for.
    pub fn decode(kind: Kind, bytes: &mut impl ByteStream) -> Result<Option<Frame>, StartupFault> {
        check_key(kind, bytes)?;
        let mut header = [0; HEADER_BYTES];
        if !bytes.peek(&mut header) {
            return Ok(None);
        }
        let [.., flags, revision, high, low] = header;
        check_revision(revision, flags)?;
        let length = u16::from_be_bytes([high, low]);
        let mut whole = FrameBytes::from([0; HEADER_BYTES + PRIVATE_DATA_BYTES_MAX]);
        let end = HEADER_BYTES + usize::from(length);
        let Some(frame) = whole.get_mut(..end) else { return Err(StartupFault::PrivateDataTooLong(length)) };
        if !bytes.peek(frame) {
            return Ok(None);
        }
        bytes.consume(end);
        let private_data = frame.iter().skip(HEADER_BYTES).copied().collect();
        let (markers, crc, reject) = (flags & MARKERS != 0, flags & CRC != 0, flags & REJECT != 0);
        Ok(Some(Frame { kind, markers, crc, reject, revision, private_data }))
    }
}

impl Kind {
    fn key(self) -> &'static [u8; KEY_BYTES] {
        match self {
            Kind::Request => REQUEST_KEY,
            Kind::Reply => REPLY_KEY,
        }
    }

    fn other(self) -> Kind {
        match self {
            Kind::Request => Kind::Reply,
            Kind::Reply => Kind::Request,
        }
    }
}

/// RFC 5044 s7.1.2, rules 5 and 8: the key must be the other side's.
fn check_key(kind: Kind, bytes: &impl ByteStream) -> Result<(), StartupFault> {
    let mut key = [0; KEY_BYTES];
    let Some(arrived) = key.get_mut(..bytes.available().min(KEY_BYTES)) else { return Ok(()) };
    bytes.peek(arrived);
    if kind.key().starts_with(arrived) {
        Ok(())
    } else if kind.other().key().starts_with(arrived) {
        Err(StartupFault::SameRole)
    } else {
        Err(StartupFault::Key)
    }
}

/// RFC 5044 s7.1.1: a revision that we cannot work with closes the connection. The S bit has its meaning from
/// revision 2 on; in revision 1 it is a reserved bit, which is not checked.
fn check_revision(revision: u8, flags: u8) -> Result<(), StartupFault> {
    match revision {
        REVISION => Ok(()),
        // RFC 6581 s6: without S the frame is that of revision 1.
        REVISION_ENHANCED if flags & ENHANCED == 0 => Ok(()),
        // RFC 6581 s10, "enhanced MPA initiator only": close TCP and exit MPA.
        REVISION_ENHANCED => Err(StartupFault::Enhanced),
        revision => Err(StartupFault::Revision(revision)),
    }
}
