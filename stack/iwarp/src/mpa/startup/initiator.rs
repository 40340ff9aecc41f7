//! The side that sends the Request Frame (RFC 5044 s7.1.2, rules 1 and 3; RFC 6581 s9).

use ironwarp_tcp::ByteStream;

use super::enhanced::{Enhanced, READS_UNNEGOTIATED, ReadDepths, Rtr, RtrKinds};
use super::frame::{self, Frame, FrameBytes, Kind, PrivateData};
use super::{Markers, Negotiated, PrivateDataTooLong, StartupFault};
use crate::mpa::MpaFault;

/// What an initiator asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// C. False only where an administrator turned CRCs off (RFC 5044 s4.4).
    pub crc: bool,
    /// M: markers in what we receive.
    pub markers: bool,
    /// The enhanced data of revision 2; revision 1 without.
    pub enhanced: Option<Enhanced>,
    /// The numbers of Reads that hold here unless the negotiation changes them. What is offered in `enhanced` is these,
    /// or [`READS_UNNEGOTIATED`].
    pub reads: ReadDepths,
    /// The most inbound Reads that there are resources for.
    pub ird_max: u16,
}

/// An initiator that waits for the reply to its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Initiator {
    proposal: Proposal,
}

/// What the bytes so far mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The reply is not whole yet.
    NeedMore,
    /// The connection is accepted: full operation begins with the next byte, which may have arrived already.
    Accepted {
        /// What the far application says.
        private_data: PrivateData,
        /// What was settled.
        agreed: Negotiated,
        /// The responder accepted on terms that we cannot keep: the first FPDU is a Terminate with this error.
        fault: Option<MpaFault>,
    },
    /// The far application refuses. MPA is over; TCP is still open.
    Rejected {
        /// What it says.
        private_data: PrivateData,
        /// The numbers of Reads that it would want (RFC 6581 s9.1).
        peer_reads: Option<ReadDepths>,
    },
    /// Close TCP.
    Fault(StartupFault),
}

impl Initiator {
    /// Starts: the request goes out as the connection's first bytes.
    pub fn start(
        proposal: Proposal,
        private_data: &[u8],
    ) -> Result<(Initiator, FrameBytes), PrivateDataTooLong> {
        let Proposal { crc, markers, enhanced, .. } = proposal;
        let private_data = frame::private_data(private_data, enhanced.is_some())?;
        // RFC 6581 s6, s10: revision 2 is for those who want something of it.
        let revision = if enhanced.is_some() { frame::REVISION_ENHANCED } else { frame::REVISION };
        let kind = Kind::Request;
        let request = Frame { kind, markers, crc, reject: false, revision, enhanced, private_data };
        Ok((Initiator { proposal }, request.encode()))
    }

    /// Whether the request had the enhanced data of revision 2.
    pub fn is_enhanced(&self) -> bool {
        self.proposal.enhanced.is_some()
    }

    /// Looks at what has arrived and takes the reply when it is whole, and nothing behind it.
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
            // A refusal is one whatever else it lacks: its private data says why, and nothing is to be negotiated.
            (Some(_), None) if reply.reject => {}
            // RFC 6581 s10: an enhanced request has an enhanced reply, and no other has.
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
            // RFC 5044 s7.1.1: M binds the other side, each direction by itself.
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

    /// RFC 6581 s9.1 and s9.2, on an accepting reply.
    fn negotiate(&self, reply: &Enhanced, agreed: &mut Negotiated) -> Result<(), MpaFault> {
        let offered = self.proposal.enhanced.unwrap_or_default();
        // Our ORD is at most the responder's IRD, unless it leaves that to the applications.
        if reply.reads.ird != READS_UNNEGOTIATED {
            agreed.reads.ord = agreed.reads.ord.min(reply.reads.ird);
        }
        // Our IRD is at least the responder's ORD.
        if reply.reads.ord != READS_UNNEGOTIATED && reply.reads.ord > agreed.reads.ird {
            if reply.reads.ord > self.proposal.ird_max {
                return Err(MpaFault::InsufficientIrd);
            }
            agreed.reads.ird = reply.reads.ord;
        }
        // A responder that leaves out A, against s9.2, wants no indication.
        if offered.peer_to_peer && reply.peer_to_peer {
            agreed.rtr_to_send = Some(choose_rtr(offered.rtr & reply.rtr, reply.reads)?);
        }
        Ok(())
    }
}

/// The indication to send, of those that both sides can do: a Write costs the responder least, and hardware knows Write
/// and Read alone. A Read takes one of the responder's places for Reads.
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
