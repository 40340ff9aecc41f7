//! The terms of a connection: what both sides conclude from the enhanced data that they exchange
//! (RFC 6581 s9.1, s9.2).

use super::enhanced::{Enhanced, READS_UNNEGOTIATED, ReadDepths, Rtr, RtrKinds};
use crate::mpa::MpaFault;

/// What an initiator offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The enhanced data of the request. `None` means that the set-up is not enhanced.
    pub enhanced: Option<Enhanced>,
    /// The local read depths, unless the negotiation changes them. `enhanced` offers these or
    /// [`READS_UNNEGOTIATED`].
    pub reads: ReadDepths,
    /// The largest IRD that there are resources for.
    pub ird_max: u16,
}

/// The terms on which a responder accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponderParams {
    /// The local read depths, unless the negotiation changes them.
    pub reads: ReadDepths,
    /// The accepted kinds of RTR. Empty means all of them, because RFC 6581 s9.2 requires one.
    pub rtr: RtrKinds,
}

/// The negotiated terms, as seen from one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The depths in the peer's enhanced data.
    pub peer_reads: Option<ReadDepths>,
    /// The read depths of this side.
    pub reads: ReadDepths,
    /// The RTR that this side, as initiator, must send before anything else.
    pub rtr_to_send: Option<Rtr>,
    /// The kinds of RTR of which this side, as responder, must receive one before the connection is
    /// up. Empty if none will be sent.
    pub rtr_awaited: RtrKinds,
}

impl Terms {
    /// The terms before anything is negotiated.
    fn new(peer_enhanced: Option<Enhanced>, reads: ReadDepths) -> Self {
        let peer_reads = peer_enhanced.map(|enhanced| enhanced.reads);
        Terms { peer_reads, reads, rtr_to_send: None, rtr_awaited: RtrKinds::empty() }
    }
}

impl Offer {
    /// Returns the terms after a reply that accepts, and why this side cannot meet them.
    pub fn agree(&self, reply: Option<Enhanced>) -> (Terms, Option<MpaFault>) {
        let mut terms = Terms::new(reply, self.reads);
        let agreed = reply.map_or(Ok(()), |reply| self.negotiate(&reply, &mut terms));
        (terms, agreed.err())
    }

    fn negotiate(&self, reply: &Enhanced, terms: &mut Terms) -> Result<(), MpaFault> {
        let offered = self.enhanced.unwrap_or_default();
        // The local ORD is at most the responder's IRD, unless the responder leaves that to the
        // applications.
        if reply.reads.ird != READS_UNNEGOTIATED {
            terms.reads.ord = terms.reads.ord.min(reply.reads.ird);
        }
        // The local IRD is at least the responder's ORD.
        if reply.reads.ord != READS_UNNEGOTIATED && reply.reads.ord > terms.reads.ird {
            if reply.reads.ord > self.ird_max {
                return Err(MpaFault::InsufficientIrd);
            }
            terms.reads.ird = reply.reads.ord;
        }
        // A responder that leaves out A, against s9.2, wants no RTR.
        if offered.peer_to_peer && reply.peer_to_peer {
            terms.rtr_to_send = Some(choose_rtr(offered.rtr & reply.rtr, reply.reads)?);
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

impl ResponderParams {
    /// Returns the terms on which a request is accepted, and the enhanced data of the reply.
    pub fn agree(self, request: Option<Enhanced>) -> (Terms, Option<Enhanced>) {
        let mut terms = Terms::new(request, self.reads);
        let reply = request.map(|request| self.negotiate(&request, &mut terms));
        (terms, reply)
    }

    fn negotiate(self, request: &Enhanced, terms: &mut Terms) -> Enhanced {
        let mut reply = Enhanced { peer_to_peer: request.peer_to_peer, ..Enhanced::default() };
        if request.peer_to_peer {
            terms.rtr_awaited = rtr_kinds(request, self.rtr, &mut terms.reads);
            reply.rtr = terms.rtr_awaited;
        }
        // The initiator's ORD is the IRD that it would like here. The reply has the actual IRD, and
        // the initiator stays within it.
        reply.reads.ird =
            if request.reads.ord == READS_UNNEGOTIATED { READS_UNNEGOTIATED } else { terms.reads.ird };
        // The local ORD is at most the initiator's IRD.
        if request.reads.ird == READS_UNNEGOTIATED {
            reply.reads.ord = READS_UNNEGOTIATED;
        } else {
            terms.reads.ord = terms.reads.ord.min(request.reads.ird);
            reply.reads.ord = terms.reads.ord;
        }
        reply
    }
}

/// Returns the kinds of RTR to name: those of the initiator that are accepted here, or all accepted
/// ones if there are none.
///
/// A Read needs an IRD of at least 1. With an IRD of 0 a Read is not named, unless the initiator
/// supports nothing else: then the IRD is raised to 1, as RFC 6581 s9.1 allows. Toward an initiator
/// that negotiates no depths (ORD 0x3fff) s9.1 forbids to change the IRD, and s9.2 requires one
/// kind: the others that are accepted here, or a Write if there are none, since a Write of no
/// octets needs nothing here.
fn rtr_kinds(request: &Enhanced, local_kinds: RtrKinds, reads: &mut ReadDepths) -> RtrKinds {
    let local_kinds = if local_kinds.is_empty() { RtrKinds::all() } else { local_kinds };
    let common = request.rtr & local_kinds;
    let named = if common.is_empty() { local_kinds } else { common };
    if reads.ird > 0 || !named.contains(RtrKinds::READ) {
        return named;
    }
    let others = named - RtrKinds::READ;
    if !others.is_empty() {
        return others;
    }
    if request.reads.ord == READS_UNNEGOTIATED {
        let possible = local_kinds - RtrKinds::READ;
        return if possible.is_empty() { RtrKinds::WRITE } else { possible };
    }
    reads.ird = 1;
    named
}
