//! The side that sends the Request Frame (RFC 5044 s7.1.2, rules 1 and 3; RFC 6581 s9).

use ironwarp_llp::ByteStream;

use super::enhanced::{Enhanced, READS_UNNEGOTIATED, ReadDepths, Rtr, RtrKinds};
use super::frame::{self, Frame, FrameBytes, Kind, PrivateData};
use super::{Markers, Negotiated, PrivateDataTooLong, StartupFault};
use crate::mpa::MpaFault;

/// The terms that an initiator requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// C. False only if an administrator turned CRCs off (RFC 5044 s4.4).
    pub crc: bool,
    /// M: markers in received data.
    pub markers: bool,
    /// The enhanced data of revision 2. `None` means revision 1.
    pub enhanced: Option<Enhanced>,
    /// The local read depths, unless the negotiation changes them. `enhanced` offers these or
    /// [`READS_UNNEGOTIATED`].
    pub reads: ReadDepths,
    /// The largest IRD that there are resources for.
    pub ird_max: u16,
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
        let Proposal { crc, markers, enhanced, .. } = proposal;
        frame::check_private_data(private_data, enhanced.is_some())?;
        // RFC 6581 s6, s10: revision 2 is used only for its features.
        let revision = if enhanced.is_some() { frame::REVISION_ENHANCED } else { frame::REVISION };
        let kind = Kind::Request;
        let request = Frame { kind, markers, crc, reject: false, revision, enhanced, private_data };
        Ok((Initiator { proposal }, request.encode()))
    }

    /// Returns whether the request has the enhanced data of revision 2.
    pub fn is_enhanced(&self) -> bool {
        self.proposal.enhanced.is_some()
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
        match (self.proposal.enhanced, reply.enhanced) {
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
        let Proposal { crc, markers, reads, .. } = self.proposal;
        let mut agreed = Negotiated {
            // RFC 5044 s7.1.1: C in either frame means CRCs in both directions.
            crc: reply.crc || crc,
            // RFC 5044 s7.1.1: M is set by the receiver of each direction.
            markers: Markers { sent: reply.markers, received: markers },
            revision: reply.revision,
            peer_reads,
            reads,
            rtr_to_send: None,
            rtr_awaited: RtrKinds::empty(),
        };
        let negotiated = reply.enhanced.map_or(Ok(()), |enhanced| self.negotiate(&enhanced, &mut agreed));
        Progress::Accepted { private_data, agreed, fault: negotiated.err() }
    }

    /// RFC 6581 s9.1 and s9.2, for an accepting reply.
    fn negotiate(&self, reply: &Enhanced, agreed: &mut Negotiated) -> Result<(), MpaFault> {
        let offered = self.proposal.enhanced.unwrap_or_default();
        // The local ORD is at most the responder's IRD, unless the responder leaves that to the
        // applications.
        if reply.reads.ird != READS_UNNEGOTIATED {
            agreed.reads.ord = agreed.reads.ord.min(reply.reads.ird);
        }
        // The local IRD is at least the responder's ORD.
        if reply.reads.ord != READS_UNNEGOTIATED && reply.reads.ord > agreed.reads.ird {
            if reply.reads.ord > self.proposal.ird_max {
                return Err(MpaFault::InsufficientIrd);
            }
            agreed.reads.ird = reply.reads.ord;
        }
        // A responder that leaves out A, against s9.2, wants no RTR.
        if offered.peer_to_peer && reply.peer_to_peer {
            agreed.rtr_to_send = Some(choose_rtr(offered.rtr & reply.rtr, reply.reads)?);
        }
        Ok(())
    }
}

/// Chooses the RTR among those that both sides support. A Write costs the responder least, and
/// hardware supports Write and Read only. A Read counts against the responder's IRD.
fn choose_rtr(kinds: RtrKinds, responder: ReadDepths) -> Result<Rtr, MpaFault> {
    if kinds.contains(RtrKinds::WRITE) {
        Ok(Rtr::Write)
    } else if kinds.contains(RtrKinds::READ) && responder.ird > 0 {
        Ok(Rtr::Read)
    } else if kinds.contains(RtrKinds::SEND) {
        Ok(Rtr::Send)
    } else {
        Err(MpaFault::NoMatchingRtr)
    }
}
