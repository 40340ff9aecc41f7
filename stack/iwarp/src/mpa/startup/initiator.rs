//! The side that sends the Request Frame (RFC 5044 s7.1.2, rules 1 and 3; RFC 6581 s9).

use ironwarp_llp::ByteStream;

use super::frame::{self, Frame, FrameBytes, Kind};
use super::{Markers, Negotiated, StartupFault};
use crate::mpa::MpaFault;
use crate::setup::{Offer, PrivateData, PrivateDataTooLong, ReadDepths, check_private_data};

/// The terms that an initiator requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// C. False only if an administrator turned CRCs off (RFC 5044 s4.4).
    pub crc: bool,
    /// M: markers in received data.
    pub markers: bool,
    /// The rest, with the enhanced data of revision 2 if there is any.
    pub offer: Offer,
}

/// An initiator that waits for the reply to its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Initiator {
    proposal: Proposal,
}

/// The result of looking at the received bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The reply is not complete yet.
    NeedMore,
    /// The connection is accepted. Full operation begins with the next byte, which may already have
    /// arrived.
    Accepted {
        /// The private data of the peer's application.
        private_data: PrivateData,
        /// The negotiated terms.
        agreed: Negotiated,
        /// The responder accepted on terms that cannot be met: the first FPDU is a Terminate with
        /// this error.
        fault: Option<MpaFault>,
    },
    /// The peer's application rejects. MPA has ended; TCP is still open.
    Rejected {
        /// The private data of the peer's application.
        private_data: PrivateData,
        /// The depths that the peer would accept (RFC 6581 s9.1).
        peer_reads: Option<ReadDepths>,
    },
    /// The caller must close TCP.
    Fault(StartupFault),
}

impl Initiator {
    /// Creates the initiator and the request, which must be the first bytes of the connection.
    pub fn start(
        proposal: Proposal,
        private_data: &[u8],
    ) -> Result<(Initiator, FrameBytes), PrivateDataTooLong> {
        let Proposal { crc, markers, offer: Offer { enhanced, .. } } = proposal;
        check_private_data(private_data, enhanced.is_some())?;
        // RFC 6581 s6, s10: revision 2 is used only for its features.
        let revision = if enhanced.is_some() { frame::REVISION_ENHANCED } else { frame::REVISION };
        let kind = Kind::Request;
        let request = Frame { kind, markers, crc, reject: false, revision, enhanced, private_data };
        Ok((Initiator { proposal }, request.encode()))
    }

    /// Returns whether the request has the enhanced data of revision 2.
    pub fn is_enhanced(&self) -> bool {
        self.proposal.offer.enhanced.is_some()
    }

    /// Takes the reply once it is complete, and nothing after it.
    pub fn on_bytes(&self, bytes: &mut impl ByteStream) -> Progress {
        match Frame::decode(Kind::Reply, bytes) {
            Ok(None) => Progress::NeedMore,
            Ok(Some(reply)) => self.on_reply(reply),
            Err(fault) => Progress::Fault(fault),
        }
    }

    fn on_reply(&self, reply: Frame) -> Progress {
        let peer_reads = reply.enhanced.map(|enhanced| enhanced.reads);
        match (self.proposal.offer.enhanced, reply.enhanced) {
            // A rejection needs no enhanced data: its private data has the reason, and nothing is
            // negotiated.
            (Some(_), None) if reply.reject => {}
            // RFC 6581 s10: only an enhanced request has an enhanced reply.
            (Some(_), None) => return Progress::Fault(StartupFault::NotEnhanced),
            (None, Some(_)) => return Progress::Fault(StartupFault::UnexpectedEnhancedData),
            _ => {}
        }
        let private_data = reply.private_data;
        if reply.reject {
            return Progress::Rejected { private_data, peer_reads };
        }
        let Proposal { crc, markers, offer } = self.proposal;
        let (terms, fault) = offer.agree(reply.enhanced);
        let agreed = Negotiated {
            // RFC 5044 s7.1.1: C in either frame means CRCs in both directions.
            crc: reply.crc || crc,
            // RFC 5044 s7.1.1: M is set by the receiver of each direction.
            markers: Markers { sent: reply.markers, received: markers },
            revision: reply.revision,
            terms,
        };
        Progress::Accepted { private_data, agreed, fault }
    }
}
