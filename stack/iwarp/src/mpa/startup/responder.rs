//! The side that sends the Reply Frame (RFC 5044 s7.1.2, rules 2 and 4; RFC 6581 s9).

use ironwarp_llp::ByteStream;

use super::enhanced::{Enhanced, READS_UNNEGOTIATED, ReadDepths, RtrKinds};
use super::frame::{self, Frame, FrameBytes, Kind, PrivateData};
use super::{Markers, Negotiated, PrivateDataTooLong, StartupFault};

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

/// The terms on which a responder accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponderParams {
    /// The local read depths, unless the negotiation changes them.
    pub reads: ReadDepths,
    /// The accepted kinds of RTR. Empty means all of them, because RFC 6581 s9.2 requires one.
    pub rtr: RtrKinds,
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
        frame::check_private_data(private_data, self.peer_enhanced.is_some())?;
        let mut agreed = Negotiated {
            crc: self.crc,
            markers: self.markers,
            revision: self.revision,
            peer_reads: self.peer_enhanced.map(|peer_enhanced| peer_enhanced.reads),
            reads: params.reads,
            rtr_to_send: None,
            rtr_awaited: RtrKinds::empty(),
        };
        let enhanced =
            self.peer_enhanced.map(|peer_enhanced| negotiate(&peer_enhanced, params.rtr, &mut agreed));
        let frame = self.reply(false, enhanced, private_data);
        Ok((frame.encode(), agreed))
    }

    /// Rejects. MPA ends when the reply is sent; the connection manager then closes TCP.
    /// RFC 6581 s9.1: an enhanced rejection may name acceptable depths in `wanted`; zeros name
    /// none.
    pub fn reject(self, wanted: ReadDepths, private_data: &[u8]) -> Result<FrameBytes, PrivateDataTooLong> {
        frame::check_private_data(private_data, self.peer_enhanced.is_some())?;
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

/// RFC 6581 s9.1 and s9.2: returns the reply to `peer_enhanced` and adjusts the local depths.
fn negotiate(peer_enhanced: &Enhanced, local_kinds: RtrKinds, agreed: &mut Negotiated) -> Enhanced {
    let mut reply_data = Enhanced { peer_to_peer: peer_enhanced.peer_to_peer, ..Enhanced::default() };
    if peer_enhanced.peer_to_peer {
        agreed.rtr_awaited = rtr_kinds(peer_enhanced, local_kinds, &mut agreed.reads);
        reply_data.rtr = agreed.rtr_awaited;
    }
    // The initiator's ORD is the IRD that it would like here. The reply has the actual IRD, and the
    // initiator stays within it.
    reply_data.reads.ird =
        if peer_enhanced.reads.ord == READS_UNNEGOTIATED { READS_UNNEGOTIATED } else { agreed.reads.ird };
    // The local ORD is at most the initiator's IRD.
    if peer_enhanced.reads.ird == READS_UNNEGOTIATED {
        reply_data.reads.ord = READS_UNNEGOTIATED;
    } else {
        agreed.reads.ord = agreed.reads.ord.min(peer_enhanced.reads.ird);
        reply_data.reads.ord = agreed.reads.ord;
    }
    reply_data
}

/// Returns the kinds of RTR to name: those of the initiator that are accepted here, or all accepted
/// ones if there are none.
///
/// A Read needs an IRD of at least 1. With an IRD of 0 a Read is not named, unless the initiator
/// supports nothing else: then the IRD is raised to 1, as RFC 6581 s9.1 allows. Toward an initiator
/// that negotiates no depths (ORD 0x3fff) s9.1 forbids to change the IRD, and s9.2 requires one
/// kind: the others that are accepted here, or a Write if there are none, since a Write of no
/// octets needs nothing here.
fn rtr_kinds(peer_enhanced: &Enhanced, local_kinds: RtrKinds, reads: &mut ReadDepths) -> RtrKinds {
    let local_kinds = if local_kinds.is_empty() { RtrKinds::all() } else { local_kinds };
    let common = peer_enhanced.rtr & local_kinds;
    let named = if common.is_empty() { local_kinds } else { common };
    if reads.ird > 0 || !named.contains(RtrKinds::READ) {
        return named;
    }
    let others = named - RtrKinds::READ;
    if !others.is_empty() {
        return others;
    }
    if peer_enhanced.reads.ord == READS_UNNEGOTIATED {
        let possible = local_kinds - RtrKinds::READ;
        return if possible.is_empty() { RtrKinds::WRITE } else { possible };
    }
    reads.ird = 1;
    named
}
