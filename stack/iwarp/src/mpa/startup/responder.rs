//! The side that sends the Reply Frame (RFC 5044 s7.1.2, rules 2 and 4; RFC 6581 s9).

use ironwarp_llp::ByteStream;

use super::frame::{Frame, FrameBytes, Kind};
use super::{Markers, Negotiated, StartupFault};
use crate::setup::{
    Enhanced, PrivateData, PrivateDataTooLong, ReadDepths, ResponderParams, check_private_data,
};

/// A responder that waits for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Responder {
    crc_wanted: bool,
    markers_wanted: bool,
}

/// A request that waits for the application's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a request must be accepted or rejected"]
pub struct Decision {
    crc: bool,
    markers: Markers,
    revision: u8,
    peer_enhanced: Option<Enhanced>,
}

/// The result of looking at the received bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would be allocated on the core")]
pub enum Progress {
    /// The request is not complete yet.
    NeedMore,
    /// The peer's application requests a connection.
    Request {
        /// The private data of the peer's application.
        private_data: PrivateData,
        /// Accepts or rejects the request.
        decision: Decision,
    },
    /// The caller must close TCP.
    Fault(StartupFault),
}

impl Responder {
    /// Creates a responder. `crc` is false only if an administrator turned CRCs off
    /// (RFC 5044 s4.4). `markers` asks for markers in received data.
    pub fn new(crc: bool, markers: bool) -> Self {
        Responder { crc_wanted: crc, markers_wanted: markers }
    }

    /// Takes the request once it is complete.
    pub fn on_bytes(&self, bytes: &mut impl ByteStream) -> Progress {
        match Frame::decode(Kind::Request, bytes) {
            Ok(None) => Progress::NeedMore,
            // RFC 5044 s7.1.1: the private data does not match its length. No initiator may send
            // FPDUs before the reply, so the bytes after the request can be nothing else.
            Ok(Some(_)) if bytes.available() > 0 => Progress::Fault(StartupFault::TrailingBytes),
            Ok(Some(request)) => self.on_request(request),
            Err(fault) => Progress::Fault(fault),
        }
    }

    fn on_request(&self, request: Frame) -> Progress {
        let decision = Decision {
            crc: request.crc || self.crc_wanted,
            // RFC 5044 s7.1.1: M is set by the receiver of each direction.
            markers: Markers { sent: request.markers, received: self.markers_wanted },
            revision: request.revision,
            peer_enhanced: request.enhanced,
        };
        Progress::Request { private_data: request.private_data, decision }
    }
}

impl Decision {
    /// Returns the initiator's revision, which RFC 5044 s7.1.1 makes available to the application.
    pub fn revision(&self) -> u8 {
        self.revision
    }

    /// Returns the initiator's enhanced data, if it sent any.
    pub fn peer_enhanced(&self) -> Option<Enhanced> {
        self.peer_enhanced
    }

    /// Accepts. Full operation begins when the reply is sent. Nothing may follow the reply before
    /// the initiator's first FPDU has arrived (RFC 5044 s7.1.2, rule 4).
    pub fn accept(
        self,
        params: ResponderParams,
        private_data: &[u8],
    ) -> Result<(FrameBytes, Negotiated), PrivateDataTooLong> {
        check_private_data(private_data, self.peer_enhanced.is_some())?;
        let (terms, enhanced) = params.agree(self.peer_enhanced);
        let agreed = Negotiated { crc: self.crc, markers: self.markers, revision: self.revision, terms };
        Ok((self.reply(false, enhanced, private_data).encode(), agreed))
    }

    /// Rejects. MPA ends when the reply is sent; the connection manager then closes TCP.
    /// RFC 6581 s9.1: an enhanced rejection may name acceptable depths in `wanted`; zeros name
    /// none.
    pub fn reject(self, wanted: ReadDepths, private_data: &[u8]) -> Result<FrameBytes, PrivateDataTooLong> {
        check_private_data(private_data, self.peer_enhanced.is_some())?;
        let enhanced = self.peer_enhanced.map(|peer_enhanced| Enhanced { reads: wanted, ..peer_enhanced });
        Ok(self.reply(true, enhanced, private_data).encode())
    }

    /// RFC 6581 s10: the reply is enhanced if and only if the request is. It has the revision of
    /// the request, which is the one that initiators expect.
    fn reply(self, reject: bool, enhanced: Option<Enhanced>, private_data: &[u8]) -> Frame<&[u8]> {
        let Decision { crc, revision, .. } = self;
        let markers = self.markers.received && !reject;
        Frame { kind: Kind::Reply, markers, crc, reject, revision, enhanced, private_data }
    }
}
