//! The side that answers with the Reply Frame (RFC 5044 s7.1.2, rules 2 and 4; RFC 6581 s9).

use ironwarp_tcp::ByteStream;

use super::enhanced::{Enhanced, READS_UNNEGOTIATED, ReadDepths, RtrKinds};
use super::frame::{self, Frame, FrameBytes, Kind, PrivateData};
use super::{Markers, Negotiated, PrivateDataTooLong, StartupFault};

/// A responder that waits for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Responder {
    crc_wanted: bool,
    markers_wanted: bool,
}

/// A request that waits for the application's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a request wants an answer"]
pub struct Decision {
    crc: bool,
    markers: Markers,
    revision: u8,
    peer_enhanced: Option<Enhanced>,
}

/// What a responder accepts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponderParams {
    /// The numbers of Reads that hold here unless the negotiation changes them.
    pub reads: ReadDepths,
    /// Kinds of ready-to-receive indication that are taken. None at all means all of them (RFC 6581 s9.2 wants one).
    pub rtr: RtrKinds,
}

/// What the bytes so far mean.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would be allocated on the core")]
pub enum Progress {
    /// The request is not whole yet.
    NeedMore,
    /// The far application asks for a connection.
    Request {
        /// What it says.
        private_data: PrivateData,
        /// How to answer.
        decision: Decision,
    },
    /// Close TCP.
    Fault(StartupFault),
}

impl Responder {
    /// Waits for a request. `crc` is false only where an administrator turned CRCs off (RFC 5044 s4.4); `markers` asks
    /// for markers in what we receive.
    pub fn new(crc: bool, markers: bool) -> Self {
        Responder { crc_wanted: crc, markers_wanted: markers }
    }

    /// Looks at what has arrived and takes the request when it is whole.
    pub fn on_bytes(&self, bytes: &mut impl ByteStream) -> Progress {
        match Frame::decode(Kind::Request, bytes) {
            Ok(None) => Progress::NeedMore,
            // RFC 5044 s7.1.1: private data that does not match its length. No initiator may send FPDUs before the
            // reply, so what follows the request can be nothing else.
            Ok(Some(_)) if bytes.available() > 0 => Progress::Fault(StartupFault::TrailingBytes),
            Ok(Some(request)) => self.on_request(request),
            Err(fault) => Progress::Fault(fault),
        }
    }

    fn on_request(&self, request: Frame) -> Progress {
        let decision = Decision {
            crc: request.crc || self.crc_wanted,
            // RFC 5044 s7.1.1: M binds the other side, each direction by itself.
            markers: Markers { sent: request.markers, received: self.markers_wanted },
            revision: request.revision,
            peer_enhanced: request.enhanced,
        };
        Progress::Request { private_data: request.private_data, decision }
    }
}

impl Decision {
    /// The revision that the initiator speaks (RFC 5044 s7.1.1 has it told to the application).
    pub fn revision(&self) -> u8 {
        self.revision
    }

    /// The initiator's enhanced data, when it sent any.
    pub fn peer_enhanced(&self) -> Option<Enhanced> {
        self.peer_enhanced
    }

    /// Accepts. Once the reply is sent the stream is in full operation; nothing may follow the reply until the
    /// initiator's first FPDU has come (RFC 5044 s7.1.2, rule 4).
    pub fn accept(
        self,
        answer: ResponderParams,
        private_data: &[u8],
    ) -> Result<(FrameBytes, Negotiated), PrivateDataTooLong> {
        let private_data = frame::private_data(private_data, self.peer_enhanced.is_some())?;
        let mut agreed = Negotiated {
            crc: self.crc,
            markers: self.markers,
            revision: self.revision,
            peer_reads: self.peer_enhanced.map(|peer_enhanced| peer_enhanced.reads),
            reads: answer.reads,
            rtr_to_send: None,
            rtr_awaited: RtrKinds::empty(),
        };
        let enhanced =
            self.peer_enhanced.map(|peer_enhanced| negotiate(&peer_enhanced, answer.rtr, &mut agreed));
        let frame = self.reply(false, enhanced, private_data);
        Ok((frame.encode(), agreed))
    }

    /// Refuses. MPA is over once the reply is sent; TCP stays open until the connection manager closes it. RFC 6581
    /// s9.1: an enhanced refusal can say in `wanted` which numbers of Reads would do; zeros say nothing.
    pub fn reject(self, wanted: ReadDepths, private_data: &[u8]) -> Result<FrameBytes, PrivateDataTooLong> {
        let private_data = frame::private_data(private_data, self.peer_enhanced.is_some())?;
        let enhanced = self.peer_enhanced.map(|peer_enhanced| Enhanced { reads: wanted, ..peer_enhanced });
        Ok(self.reply(true, enhanced, private_data).encode())
    }

    /// RFC 6581 s10: an enhanced request has an enhanced reply, an unenhanced one an unenhanced reply. The revision is
    /// the request's: initiators look for their own.
    fn reply(self, reject: bool, enhanced: Option<Enhanced>, private_data: PrivateData) -> Frame {
        let Decision { crc, revision, .. } = self;
        let markers = self.markers.received && !reject;
        Frame { kind: Kind::Reply, markers, crc, reject, revision, enhanced, private_data }
    }
}

/// RFC 6581 s9.1 and s9.2: what is answered to `peer_enhanced`, and what it makes of our own numbers.
fn negotiate(peer_enhanced: &Enhanced, ours: RtrKinds, agreed: &mut Negotiated) -> Enhanced {
    let mut reply_data = Enhanced { peer_to_peer: peer_enhanced.peer_to_peer, ..Enhanced::default() };
    if peer_enhanced.peer_to_peer {
        agreed.rtr_awaited = rtr_kinds(peer_enhanced, ours, &mut agreed.reads);
        reply_data.rtr = agreed.rtr_awaited;
    }
    // The initiator's ORD is what it would like our IRD to be. We say what our IRD is; the initiator keeps within it.
    reply_data.reads.ird =
        if peer_enhanced.reads.ord == READS_UNNEGOTIATED { READS_UNNEGOTIATED } else { agreed.reads.ird };
    // Our ORD is at most the initiator's IRD.
    if peer_enhanced.reads.ird == READS_UNNEGOTIATED {
        reply_data.reads.ord = READS_UNNEGOTIATED;
    } else {
        agreed.reads.ord = agreed.reads.ord.min(peer_enhanced.reads.ird);
        reply_data.reads.ord = agreed.reads.ord;
    }
    reply_data
}

/// The kinds of indication to name: those of the initiator's that we take or, when there are none, ours.
///
/// A Read needs a place among the inbound Reads. Where there is none it is not named, unless it is all that the
/// initiator can do: then there is one (RFC 6581 s9.1 allows to raise the IRD for it).
fn rtr_kinds(peer_enhanced: &Enhanced, ours: RtrKinds, reads: &mut ReadDepths) -> RtrKinds {
    let ours = if ours.is_empty() { RtrKinds::all() } else { ours };
    let common = peer_enhanced.rtr & ours;
    let named = if common.is_empty() { ours } else { common };
    if reads.ird > 0 || !named.contains(RtrKinds::READ) {
        return named;
    }
    let others = named - RtrKinds::READ;
    if !others.is_empty() || peer_enhanced.reads.ord == READS_UNNEGOTIATED {
        return if others.is_empty() { RtrKinds::WRITE } else { others };
    }
    reads.ird = 1;
    named
}
