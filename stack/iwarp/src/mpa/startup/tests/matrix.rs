//! Every combination of the terms of two sides, against tables written from RFC 6581 s9.1 and s9.2
//! alone.

use super::*;
use crate::mpa::MpaFault;
use crate::setup::{READS_UNNEGOTIATED, Rtr};

/// Read depths to test: none, one, a few, many, the maximum, one more, not negotiated.
const DEPTHS: [u16; 7] = [0, 1, 4, 15, 16, 17, READS_UNNEGOTIATED];
/// The largest IRD of either side.
const PLACES: u16 = 16;
/// The depth of a side that leaves it to the application.
const OWN: u16 = 12;

/// Returns the local depth of a side that offers `said`.
fn local(said: u16) -> u16 {
    if said == READS_UNNEGOTIATED { OWN } else { said }
}

/// The depths in the two frames, and those that each side then uses.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    reply: ReadDepths,
    initiator: ReadDepths,
    responder: ReadDepths,
    fault: Option<MpaFault>,
}

/// RFC 6581 s9.1, sentence by sentence. The initiator offers `offer`; the responder has `own`.
fn oracle(offer: ReadDepths, own: ReadDepths) -> Outcome {
    // "respond to an initiator ORD value of 0x3FFF by leaving its local endpoint IRD unchanged",
    // "setting the IRD to 0x3FFF in its reply"; otherwise the reply holds the value that it set.
    let reply_ird = match offer.ord {
        READS_UNNEGOTIATED => READS_UNNEGOTIATED,
        _ => own.ird,
    };
    // The same for its ORD, which it sets "at most to the initiator IRD".
    let (responder_ord, reply_ord) = match offer.ird {
        READS_UNNEGOTIATED => (own.ord, READS_UNNEGOTIATED),
        ird if own.ord > ird => (ird, ird),
        _ => (own.ord, own.ord),
    };
    // The initiator sets "its ORD at most to the responder IRD", unless that is 0x3FFF.
    let initiator_ord = match reply_ird {
        READS_UNNEGOTIATED => local(offer.ord),
        ird => local(offer.ord).min(ird),
    };
    // "its IRD at least to the responder ORD", unless that is 0x3FFF; code 6 without the resources.
    let (initiator_ird, fault) = match reply_ord {
        READS_UNNEGOTIATED => (local(offer.ird), None),
        ord if ord > PLACES.max(local(offer.ird)) => (local(offer.ird), Some(MpaFault::InsufficientIrd)),
        ord => (local(offer.ird).max(ord), None),
    };
    Outcome {
        reply: ReadDepths { ird: reply_ird, ord: reply_ord },
        initiator: ReadDepths { ird: initiator_ird, ord: initiator_ord },
        responder: ReadDepths { ird: own.ird, ord: responder_ord },
        fault,
    }
}

/// Runs the two sides of the implementation.
fn implementation(offer: ReadDepths, own: ReadDepths) -> Outcome {
    let enhanced = Enhanced { peer_to_peer: false, rtr: RtrKinds::empty(), reads: offer };
    let reads = ReadDepths { ird: local(offer.ird), ord: local(offer.ord) };
    let proposal =
        Proposal { offer: Offer { enhanced: Some(enhanced), reads, ird_max: PLACES }, ..plain(true) };
    let (initiator, request) = Initiator::start(proposal, b"").unwrap();
    let params = ResponderParams { reads: own, rtr: RtrKinds::all() };
    let (reply, responder) = decode_request(&request).1.accept(params, b"").unwrap();
    let said = Enhanced::decode(*reply[20..].first_chunk().unwrap()).reads;
    let progress = initiator.on_bytes(&mut Bytes(reply.to_vec()));
    let initiator::Progress::Accepted { agreed, fault, .. } = progress else { panic!("{progress:?}") };
    assert_eq!(agreed.terms.peer_reads, Some(said));
    assert_eq!(responder.terms.peer_reads, Some(offer));
    Outcome { reply: said, initiator: agreed.terms.reads, responder: responder.terms.reads, fault }
}

fn depths() -> impl Iterator<Item = ReadDepths> {
    DEPTHS.into_iter().flat_map(|ird| DEPTHS.into_iter().map(move |ord| ReadDepths { ird, ord }))
}

/// RFC 6581 s9.1: 49 offers, each to 36 responders.
#[test]
fn every_pair_of_read_depths_matches_the_table() {
    for offer in depths() {
        for own in depths().filter(|own| own.ird != READS_UNNEGOTIATED && own.ord != READS_UNNEGOTIATED) {
            let outcome = implementation(offer, own);
            assert_eq!(outcome, oracle(offer, own), "offered {offer:?}, replied with {own:?}");
            // "The relationships between these parameters after a successful negotiation".
            let negotiated = ![offer.ird, offer.ord].contains(&READS_UNNEGOTIATED);
            if negotiated && outcome.fault.is_none() {
                assert!(outcome.initiator.ord <= outcome.responder.ird);
                assert!(outcome.responder.ord <= outcome.initiator.ird);
            }
        }
    }
}

/// RFC 6581 s9.1: any depths in a reply, allowed or not, to an initiator with any offer.
/// RFC 6581 s12.
#[test]
fn every_reply_matches_the_table() {
    for offer in depths() {
        for reply in depths() {
            let enhanced = Enhanced { peer_to_peer: false, rtr: RtrKinds::empty(), reads: offer };
            let reads = ReadDepths { ird: local(offer.ird), ord: local(offer.ord) };
            let proposal =
                Proposal { offer: Offer { enhanced: Some(enhanced), reads, ird_max: PLACES }, ..plain(true) };
            let (initiator, _) = Initiator::start(proposal, b"").unwrap();
            let said = Enhanced { reads: reply, ..enhanced }.encode();
            let progress = initiator.on_bytes(&mut Bytes(reply_with(0x50, 2, &said)));
            let initiator::Progress::Accepted { agreed, fault, .. } = progress else { panic!() };
            assert!(
                agreed.terms.reads.ord <= reads.ord
                    && (reply.ird == READS_UNNEGOTIATED || agreed.terms.reads.ord <= reply.ird)
            );
            let lacking = reply.ord != READS_UNNEGOTIATED && reply.ord > reads.ird.max(PLACES);
            assert_eq!(fault, lacking.then_some(MpaFault::InsufficientIrd));
            if fault.is_none() && reply.ord != READS_UNNEGOTIATED {
                assert!(agreed.terms.reads.ird >= reply.ord);
            }
        }
    }
}

/// RFC 6581 s9.2: both models, every set of RTR kinds on either side, with and without an IRD for a
/// Read.
#[test]
fn every_pair_of_indications_matches_the_table() {
    let sets = || (0..8).map(RtrKinds::from_bits_truncate);
    for (peer_to_peer, ird) in [(false, 4), (true, 4), (true, 0)] {
        for (offered, accepted) in sets().flat_map(|offered| sets().map(move |accepted| (offered, accepted)))
        {
            let enhanced = Enhanced { peer_to_peer, rtr: offered, reads: READS };
            let offer = Offer { enhanced: Some(enhanced), ..plain(true).offer };
            let proposal = Proposal { offer, ..plain(true) };
            let (initiator, request) = Initiator::start(proposal, b"").unwrap();
            let params = ResponderParams { reads: ReadDepths { ird, ord: 4 }, rtr: accepted };
            let (reply, responder) = decode_request(&request).1.accept(params, b"").unwrap();
            let said = Enhanced::decode(*reply[20..].first_chunk().unwrap());
            // "the responder MUST set Control Flag A" as the request has it.
            assert_eq!(said.peer_to_peer, peer_to_peer);
            assert_eq!(said.rtr.is_empty(), !peer_to_peer, "at least one kind");
            assert_eq!(responder.terms.rtr_awaited, said.rtr);
            let progress = initiator.on_bytes(&mut Bytes(reply.to_vec()));
            let initiator::Progress::Accepted { agreed, fault, .. } = progress else { panic!() };
            let able = if accepted.is_empty() { RtrKinds::all() } else { accepted };
            let may = peer_to_peer && able.intersects(offered);
            assert_eq!(agreed.terms.rtr_to_send.is_some(), may, "{offered:?} and {accepted:?}, IRD {ird}");
            assert_eq!(fault, (peer_to_peer && !may).then_some(MpaFault::NoMatchingRtr));
            if let Some(rtr) = agreed.terms.rtr_to_send {
                let kind = match rtr {
                    Rtr::Send => RtrKinds::SEND,
                    Rtr::Write => RtrKinds::WRITE,
                    Rtr::Read => RtrKinds::READ,
                };
                assert!(said.rtr.contains(kind) && offered.contains(kind) && able.contains(kind));
                assert!(rtr != Rtr::Read || responder.terms.reads.ird > 0, "the IRD allows the Read");
            }
        }
    }
}
