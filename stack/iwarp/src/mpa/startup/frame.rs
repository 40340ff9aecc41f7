//! Request and Reply Frames (RFC 5044 s7.1.1, RFC 6581 s6).
//!
//! ```text
//! | key, 16 octets | M C R S res:4 | revision:u8 | private data length:u16 | private data, 0..512 octets |
//! ```
//! With S, in revision 2, the private data begins with the four octets of [`Enhanced`]; the rest is
//! the application's. Decodes a frame from the front of the in-order bytes once it is complete. A
//! fault closes the connection.

use arrayvec::ArrayVec;
use ironwarp_llp::ByteStream;
use ironwarp_types::limits::PRIVATE_DATA_BYTES_MAX;

use super::StartupFault;
use crate::setup::{ENHANCED_BYTES, Enhanced, PrivateData};

/// An encoded frame.
pub type FrameBytes = ArrayVec<u8, { HEADER_BYTES + PRIVATE_DATA_BYTES_MAX }>;

/// Octets before the private data.
pub const HEADER_BYTES: usize = KEY_BYTES + 4;

/// The first octets of both keys.
pub const KEY_PREFIX: [u8; 4] = *b"MPA ";

const KEY_BYTES: usize = 16;
const REQUEST_KEY: &[u8; KEY_BYTES] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; KEY_BYTES] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// The revision of RFC 5044.
pub const REVISION: u8 = 1;
/// The revision of RFC 6581.
pub const REVISION_ENHANCED: u8 = 2;

/// The kind of frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The initiator's frame.
    Request,
    /// The responder's frame.
    Reply,
}

/// A start-up frame. `D` are the octets of the private data: borrowed for a frame to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<D = PrivateData> {
    /// The kind of frame.
    pub kind: Kind,
    /// M: the sender wants to receive markers.
    pub markers: bool,
    /// C: the sender wants CRCs in both directions.
    pub crc: bool,
    /// R: the sender rejects the connection. It has no meaning in a request.
    pub reject: bool,
    /// The MPA revision.
    pub revision: u8,
    /// The enhanced data that S announces. Revision 2 only.
    pub enhanced: Option<Enhanced>,
    /// The application's private data.
    pub private_data: D,
}

impl Frame<&[u8]> {
    /// Encodes the frame. The reserved bits are zero (RFC 5044 s7.1.1, RFC 6581 s6).
    // Tuning: inlined, so that the frame is moved once less.
    #[inline(always)]
    pub fn encode(&self) -> FrameBytes {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.markers, MARKERS)
            | flag(self.crc, CRC)
            | flag(self.reject, REJECT)
            | flag(self.enhanced.is_some(), ENHANCED);
        let enhanced = self.enhanced.map(|enhanced| enhanced.encode());
        // RFC 6581 s6: the length counts the enhanced data.
        let length = enhanced.map_or(0, |octets| octets.len()) + self.private_data.len();
        let [high, low] = (length as u16).to_be_bytes();
        let mut bytes = FrameBytes::new();
        let enhanced = enhanced.as_ref().map_or(&[][..], |octets| octets);
        let most = PRIVATE_DATA_BYTES_MAX - enhanced.len();
        let data = self.private_data.get(..most).unwrap_or(self.private_data);
        for part in [self.kind.key(), &[flags, self.revision, high, low][..], enhanced, data] {
            // The four parts have the octets of a frame at most.
            let _ = bytes.try_extend_from_slice(part);
        }
        bytes
    }
}

impl Frame {
    /// Takes the frame at the front of `bytes` once all of it has arrived.
    ///
    /// A fault is reported with the first octet that shows it, without waiting for the rest of the
    /// frame.
    pub fn decode(kind: Kind, bytes: &mut impl ByteStream) -> Result<Option<Frame>, StartupFault> {
        check_key(kind, bytes)?;
        let mut header = [0; HEADER_BYTES];
        if !bytes.peek(&mut header) {
            return Ok(None);
        }
        let [.., flags, revision, high, low] = header;
        let is_enhanced = check_revision(revision)? && flags & ENHANCED != 0;
        let length = u16::from_be_bytes([high, low]);
        let mut whole = FrameBytes::from([0; HEADER_BYTES + PRIVATE_DATA_BYTES_MAX]);
        let end = HEADER_BYTES + usize::from(length);
        let Some(frame) = whole.get_mut(..end) else { return Err(StartupFault::PrivateDataTooLong(length)) };
        let data = frame.get(HEADER_BYTES..).unwrap_or_default();
        if is_enhanced && data.len() < ENHANCED_BYTES {
            return Err(StartupFault::EnhancedDataMissing);
        }
        if !bytes.peek(frame) {
            return Ok(None);
        }
        bytes.consume(end);
        let data = frame.get(HEADER_BYTES..).unwrap_or_default();
        let (enhanced, data) = match data.split_first_chunk() {
            Some((octets, rest)) if is_enhanced => (Some(Enhanced::decode(*octets)), rest),
            _ => (None, data),
        };
        let mut private_data = PrivateData::new();
        // Its length was checked with that of the frame.
        let _ = private_data.try_extend_from_slice(data);
        let (markers, crc, reject) = (flags & MARKERS != 0, flags & CRC != 0, flags & REJECT != 0);
        Ok(Some(Frame { kind, markers, crc, reject, revision, enhanced, private_data }))
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

/// RFC 5044 s7.1.2, rules 5 and 8: the key must be that of the other side.
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

/// RFC 5044 s7.1.1: an unsupported revision closes the connection. Returns whether S is defined: in
/// revision 1 it is a reserved bit, which is not checked (RFC 6581 s6).
fn check_revision(revision: u8) -> Result<bool, StartupFault> {
    match revision {
        REVISION => Ok(false),
        REVISION_ENHANCED => Ok(true),
        revision => Err(StartupFault::Revision(revision)),
    }
}
