//! Set-up of a session: what the two sides say in Initiate, Accept and Reject (RFC 5043 s6,
//! RFC 6581 s7).
//!
//! The terms are those of MPA's start-up without CRC and markers ([`crate::setup`]). Either side
//! may send first, so only the peer-to-peer model has a ready-to-receive indication.
//!
//! A set-up that is enhanced is accepted with the enhanced function. It is rejected with the
//! enhanced one only if the same request without enhanced data would have been accepted. A peer
//! without RFC 6581 ends the session with a Terminate; the initiator may then request a plain one.

use super::chunk::{Control, ControlBytes, Function};
use crate::mpa::MpaFault;
use crate::setup::{
    Enhanced, Offer, PrivateData, PrivateDataTooLong, ReadDepths, ResponderParams, Terms, check_private_data,
};

/// The active side, which waits for the reply to its Initiate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Initiator {
    offer: Offer,
}

/// The reply to an Initiate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The session is accepted: segments may be sent.
    Accepted {
        /// The private data of the peer's application.
        private_data: PrivateData,
        /// The negotiated terms.
        terms: Terms,
        /// This side cannot meet them: its first segment is a Terminate with this error.
        fault: Option<MpaFault>,
    },
    /// The peer's application rejects.
    Rejected {
        /// The private data of the peer's application.
        private_data: PrivateData,
        /// The depths that it would accept, if they are the reason.
        peer_reads: Option<ReadDepths>,
    },
    /// The peer ended the session without its application: it has no room for another request, or
    /// does not know the function.
    Refused {
        /// A request without enhanced data may succeed.
        may_fall_back: bool,
    },
}

/// A request of the passive side's peer, which waits for the application's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a request must be accepted or rejected"]
pub struct Request {
    peer_enhanced: Option<Enhanced>,
}

impl Initiator {
    /// Creates the initiator and its Initiate, the first chunk of the session.
    pub fn start(offer: Offer, private_data: &[u8]) -> Result<(Initiator, ControlBytes), PrivateDataTooLong> {
        // RFC 6581 s10: the enhanced function is used only for its features.
        let initiate =
            encode([Function::Initiate, Function::EnhancedInitiate], offer.enhanced, private_data)?;
        Ok((Initiator { offer }, initiate))
    }

    /// Returns whether the Initiate has enhanced data.
    pub fn is_enhanced(&self) -> bool {
        self.offer.enhanced.is_some()
    }

    /// Returns what the reply says. The session has checked that its function is a reply to the
    /// Initiate.
    pub fn on_reply(&self, reply: &Control<'_>) -> Reply {
        let private_data = copied(reply.private_data);
        match reply.function {
            Function::Accept | Function::EnhancedAccept => {
                let (terms, fault) = self.offer.agree(reply.enhanced);
                Reply::Accepted { private_data, terms, fault }
            }
            Function::Reject | Function::EnhancedReject => {
                Reply::Rejected { private_data, peer_reads: reply.enhanced.map(|enhanced| enhanced.reads) }
            }
            _ => Reply::Refused { may_fall_back: self.is_enhanced() },
        }
    }
}

impl Request {
    /// Returns the request in an Initiate, and the private data of the peer's application.
    pub fn new(initiate: &Control<'_>) -> (Request, PrivateData) {
        (Request { peer_enhanced: initiate.enhanced }, copied(initiate.private_data))
    }

    /// Returns the initiator's enhanced data, if it sent any.
    pub fn peer_enhanced(&self) -> Option<Enhanced> {
        self.peer_enhanced
    }

    /// Accepts. Segments may follow at once (RFC 5043 s6.2).
    pub fn accept(
        self,
        params: ResponderParams,
        private_data: &[u8],
    ) -> Result<(ControlBytes, Terms), PrivateDataTooLong> {
        let (terms, enhanced) = params.agree(self.peer_enhanced);
        Ok((encode([Function::Accept, Function::EnhancedAccept], enhanced, private_data)?, terms))
    }

    /// Rejects. With `wanted`, the enhanced terms are the reason: without them the request would
    /// have been accepted, with these depths it would be (RFC 6581 s7, s9.1; zeros name none).
    pub fn reject(
        self,
        wanted: Option<ReadDepths>,
        private_data: &[u8],
    ) -> Result<ControlBytes, PrivateDataTooLong> {
        let enhanced = self.peer_enhanced.zip(wanted).map(|(peer, reads)| Enhanced { reads, ..peer });
        encode([Function::Reject, Function::EnhancedReject], enhanced, private_data)
    }
}

/// Encodes the first chunk of a side: the second function if there is enhanced data.
fn encode(
    [plain, with_data]: [Function; 2],
    enhanced: Option<Enhanced>,
    private_data: &[u8],
) -> Result<ControlBytes, PrivateDataTooLong> {
    check_private_data(private_data, enhanced.is_some())?;
    let function = if enhanced.is_some() { with_data } else { plain };
    Ok(Control { function, enhanced, private_data }.encode(0))
}

/// Decoding has checked the length.
fn copied(private_data: &[u8]) -> PrivateData {
    PrivateData::try_from(private_data).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sctp::{Chunk, PPID_CONTROL};
    use crate::setup::{Rtr, RtrKinds};

    const READS: ReadDepths = ReadDepths { ird: 16, ord: 8 };
    const PARAMS: ResponderParams = ResponderParams { reads: READS, rtr: RtrKinds::all() };

    fn enhanced(peer_to_peer: bool) -> Option<Enhanced> {
        let rtr = if peer_to_peer { RtrKinds::all() } else { RtrKinds::empty() };
        Some(Enhanced { peer_to_peer, rtr, reads: READS })
    }

    fn offer(enhanced: Option<Enhanced>) -> Offer {
        Offer { enhanced, reads: READS, ird_max: 16 }
    }

    fn control(octets: &[u8]) -> Control<'_> {
        match Chunk::decode(PPID_CONTROL, octets) {
            Ok((0, Chunk::Control(control))) => control,
            other => panic!("{other:?}"),
        }
    }

    fn requested(octets: &[u8]) -> (Request, Vec<u8>) {
        let (request, private_data) = Request::new(&control(octets));
        (request, private_data.to_vec())
    }

    /// RFC 5043 s5.2.3, s6.2: both applications see the other's private data.
    #[test]
    fn a_plain_request_is_accepted() {
        let (initiator, initiate) = Initiator::start(offer(None), b"please").unwrap();
        assert_eq!(initiate[..], *b"\0\0\0\x01please");
        let (request, private_data) = requested(&initiate);
        assert_eq!((request.peer_enhanced(), &private_data[..]), (None, &b"please"[..]));
        let (accept, terms) = request.accept(PARAMS, b"welcome").unwrap();
        assert_eq!(accept[..], *b"\0\0\0\x02welcome");
        assert_eq!((terms.reads, terms.rtr_awaited, terms.peer_reads), (READS, RtrKinds::empty(), None));
        let private_data = PrivateData::try_from(&b"welcome"[..]).unwrap();
        let accepted = Reply::Accepted { private_data, terms, fault: None };
        assert_eq!(initiator.on_reply(&control(&accept)), accepted);
    }

    /// RFC 6581 s7, s9.1: the depths are negotiated as over MPA.
    /// RFC 6581 s7: private data follows the enhanced data in Initiate and Accept.
    #[test]
    fn an_enhanced_request_negotiates_depths() {
        let (initiator, initiate) = Initiator::start(offer(enhanced(false)), b"hi").unwrap();
        assert_eq!(initiate[..], *b"\0\0\0\x05\0\x10\0\x08hi");
        let (request, private_data) = requested(&initiate);
        assert_eq!((request.peer_enhanced(), &private_data[..]), (enhanced(false), &b"hi"[..]));
        let params = ResponderParams { reads: ReadDepths { ird: 4, ord: 32 }, rtr: RtrKinds::all() };
        let (accept, terms) = request.accept(params, b"ok").unwrap();
        assert_eq!(accept[..], *b"\0\0\0\x06\0\x04\0\x10ok");
        assert_eq!((terms.reads, terms.peer_reads), (ReadDepths { ird: 4, ord: 16 }, Some(READS)));
        let Reply::Accepted { terms, fault: None, .. } = initiator.on_reply(&control(&accept)) else {
            panic!()
        };
        assert_eq!(terms.reads, ReadDepths { ird: 16, ord: 4 });
    }

    /// RFC 6581 s9.2: the peer-to-peer model has the same indications as over MPA.
    #[test]
    fn the_peer_to_peer_model_has_an_indication() {
        let (initiator, initiate) = Initiator::start(offer(enhanced(true)), b"").unwrap();
        let (accept, terms) = requested(&initiate).0.accept(PARAMS, b"").unwrap();
        assert_eq!(terms.rtr_awaited, RtrKinds::all());
        let reply = initiator.on_reply(&control(&accept));
        assert!(matches!(reply, Reply::Accepted { terms, .. } if terms.rtr_to_send == Some(Rtr::Write)));
    }

    /// RFC 6581 s9.1 and s9.2: an initiator that cannot meet the terms ends the session.
    #[test]
    fn terms_that_cannot_be_met_are_a_fault() {
        let rejects = |mine: Enhanced, reply: Enhanced| {
            let (initiator, _) = Initiator::start(offer(Some(mine)), b"").unwrap();
            let accept = encode([Function::Accept, Function::EnhancedAccept], Some(reply), b"").unwrap();
            match initiator.on_reply(&control(&accept)) {
                Reply::Accepted { fault, .. } => fault,
                other => panic!("{other:?}"),
            }
        };
        let client = Enhanced { peer_to_peer: false, rtr: RtrKinds::empty(), reads: READS };
        let more = Enhanced { reads: ReadDepths { ird: 8, ord: 17 }, ..client };
        assert_eq!(rejects(client, more), Some(MpaFault::InsufficientIrd));
        let sends = Enhanced { peer_to_peer: true, rtr: RtrKinds::SEND, reads: READS };
        let writes = Enhanced { rtr: RtrKinds::WRITE, ..sends };
        assert_eq!(rejects(sends, writes), Some(MpaFault::NoMatchingRtr));
    }

    /// RFC 6581 s7: Enhanced Reject is for a request that would have been accepted without enhanced
    /// data. Its depths reach the initiator's application (s9.1).
    #[test]
    fn only_the_enhanced_terms_are_a_reason_for_an_enhanced_reject() {
        let wanted = ReadDepths { ird: 0, ord: 32 };
        for (enhanced, wanted, function) in [
            (None, None, Function::Reject),
            (None, Some(wanted), Function::Reject),
            (enhanced(true), None, Function::Reject),
            (enhanced(true), Some(wanted), Function::EnhancedReject),
        ] {
            let (initiator, initiate) = Initiator::start(offer(enhanced), b"").unwrap();
            let reject = requested(&initiate).0.reject(wanted, b"full").unwrap();
            assert_eq!(control(&reject).function, function);
            let private_data = PrivateData::try_from(&b"full"[..]).unwrap();
            let peer_reads = wanted.filter(|_| function == Function::EnhancedReject);
            assert_eq!(initiator.on_reply(&control(&reject)), Reply::Rejected { private_data, peer_reads });
        }
    }

    /// RFC 5043 s6.4, RFC 6581 s10: a Terminate refuses. A peer without RFC 6581 may accept a plain
    /// request.
    #[test]
    fn a_terminate_refuses_a_request() {
        for enhanced in [None, enhanced(true)] {
            let (initiator, _) = Initiator::start(offer(enhanced), b"").unwrap();
            let refused = Reply::Refused { may_fall_back: enhanced.is_some() };
            assert_eq!(initiator.on_reply(&Control::TERMINATE), refused);
        }
    }

    /// RFC 5043 s5.2.3, RFC 6581 s7: private data has at most 512 octets, enhanced data included,
    /// and may be empty.
    #[test]
    fn private_data_to_send_is_bounded() {
        for (enhanced, allowed) in [(None, 512), (enhanced(true), 508)] {
            let too_long = PrivateDataTooLong { asked: allowed + 1, allowed };
            let data = vec![7; allowed + 1];
            assert_eq!(Initiator::start(offer(enhanced), &data).unwrap_err(), too_long);
            let (_, initiate) = Initiator::start(offer(enhanced), &data[1..]).unwrap();
            let (request, private_data) = requested(&initiate);
            assert_eq!((initiate.len(), private_data), (516, data[1..].to_vec()));
            assert_eq!(request.accept(PARAMS, &data).unwrap_err(), too_long);
            assert_eq!(request.reject(Some(READS), &data).unwrap_err(), too_long);
            assert_eq!(request.accept(PARAMS, &data[1..]).unwrap().0.len(), 516);
            assert_eq!(request.reject(Some(READS), &data[1..]).unwrap().len(), 516);
        }
    }
}
