//! Revision 2: frames on the wire, and each rule of RFC 6581 separately.

use super::*;
use crate::mpa::MpaFault;
use crate::setup::{READS_UNNEGOTIATED, Rtr};

/// The request of an initiator of revision 2: peer-to-peer, every kind of RTR, IRD 16 and ORD 8.
fn enhanced() -> Enhanced {
    Enhanced { peer_to_peer: true, rtr: RtrKinds::all(), reads: READS }
}

fn proposal(enhanced: Enhanced) -> Proposal {
    let offer = Offer { enhanced: Some(enhanced), ..plain(true).offer };
    Proposal { offer, ..plain(true) }
}

fn request(enhanced: Enhanced) -> Vec<u8> {
    Initiator::start(proposal(enhanced), b"").unwrap().1.to_vec()
}

/// Returns what the initiator of `proposal` concludes from a reply with these four octets.
fn replied(proposal: Proposal, octets: [u8; 4]) -> (Negotiated, Option<MpaFault>) {
    let (initiator, _) = Initiator::start(proposal, b"").unwrap();
    match initiator.on_bytes(&mut Bytes(reply_with(0x50, 2, &octets))) {
        initiator::Progress::Accepted { agreed, fault, .. } => (agreed, fault),
        other => panic!("{other:?}"),
    }
}

/// RFC 6581 s6 and s9: S, revision 2, a length that includes the four octets, flags A and B above
/// the IRD, C and D above the ORD, network byte order.
#[test]
fn an_enhanced_request_has_the_layout_of_rfc_6581() {
    let (_, frame) = Initiator::start(proposal(enhanced()), b"hi").unwrap();
    assert_eq!(frame[..], b"MPA ID Req Frame\x50\x02\x00\x06\xc0\x10\xc0\x08hi"[..]);
    let only = |rtr, ird, ord| Enhanced { peer_to_peer: true, rtr, reads: ReadDepths { ird, ord } }.encode();
    assert_eq!(only(RtrKinds::SEND, 1, 2), [0xc0, 1, 0, 2]);
    assert_eq!(only(RtrKinds::WRITE, 0x3fff, 0), [0xbf, 0xff, 0x80, 0]);
    assert_eq!(only(RtrKinds::READ, 0, 0x3fff), [0x80, 0, 0x7f, 0xff]);
}

/// RFC 6581 s9.2: without A, the flags B, C and D are sent as zero and ignored on receive.
#[test]
fn the_client_server_model_has_no_indication() {
    let client = Enhanced { peer_to_peer: false, ..enhanced() };
    assert_eq!(client.encode(), [0, 16, 0, 8]);
    let decoded = Enhanced::decode([0x40, 16, 0xc0, 8]);
    assert_eq!(decoded, Enhanced { peer_to_peer: false, rtr: RtrKinds::empty(), reads: READS });
}

/// RFC 6581 s9.2, s10: the reply repeats A, names the RTR kinds that both support, and has the
/// responder's depths.
#[test]
fn an_enhanced_reply_has_the_layout_of_rfc_6581() {
    let (_, decision) = decode_request(&request(enhanced()));
    assert_eq!((decision.revision(), decision.peer_enhanced()), (2, Some(enhanced())));
    let (reply, settled) = decision.accept(PARAMS, b"ok").unwrap();
    assert_eq!(reply[..], b"MPA ID Rep Frame\x50\x02\x00\x06\xc0\x10\xc0\x08ok"[..]);
    assert_eq!((settled.terms.rtr_awaited, settled.terms.peer_reads), (RtrKinds::all(), Some(READS)));
    let client = Enhanced { peer_to_peer: false, ..enhanced() };
    let (reply, settled) = decode_request(&request(client)).1.accept(PARAMS, b"").unwrap();
    assert_eq!(reply[16..], [0x50, 2, 0, 4, 0, 16, 0, 8]);
    assert_eq!(settled.terms.rtr_awaited, RtrKinds::empty());
}

/// RFC 6581 s9.1: a rejection may name acceptable depths, which the initiator's application
/// receives.
#[test]
fn an_enhanced_rejection_carries_read_depths() {
    let (initiator, request) = Initiator::start(proposal(enhanced()), b"").unwrap();
    let wanted = ReadDepths { ird: 0, ord: 32 };
    let reply = decode_request(&request).1.reject(wanted, b"more").unwrap();
    assert_eq!(reply[16..], *b"\x70\x02\x00\x08\xc0\x00\xc0\x20more");
    let rejected = initiator::Progress::Rejected { private_data: data(b"more"), peer_reads: Some(wanted) };
    assert_eq!(initiator.on_bytes(&mut Bytes(reply.to_vec())), rejected);
}

/// RFC 6581 s10: only an enhanced request has an enhanced reply. In revision 1 the S bit is
/// reserved.
#[test]
fn a_reply_of_the_other_kind_is_refused() {
    let (initiator, _) = Initiator::start(proposal(enhanced()), b"").unwrap();
    for (flags, revision) in [(0x40, 2), (0x40, 1), (0x50, 1)] {
        let progress = initiator.on_bytes(&mut Bytes(reply_with(flags, revision, &[0; 4])));
        assert_eq!(progress, initiator::Progress::Fault(StartupFault::NotEnhanced));
    }
    let unasked = initiator::Progress::Fault(StartupFault::UnexpectedEnhancedData);
    assert_eq!(initiate(&reply_with(0x50, 2, &[0; 4])), unasked);
    assert_eq!(initiate(&reply_with(0x50, 1, b"four")), accepted(b"four", agreed(true)));
}

/// RFC 5044 s7.1.1: R rejects. A rejection of either revision without enhanced data is accepted,
/// with its private data.
#[test]
fn a_rejection_without_enhanced_data_is_accepted() {
    let (initiator, _) = Initiator::start(proposal(enhanced()), b"").unwrap();
    for (flags, revision) in [(0x60, 2), (0x60, 1), (0x20, 1)] {
        let progress = initiator.on_bytes(&mut Bytes(reply_with(flags, revision, b"full")));
        let heard = initiator::Progress::Rejected { private_data: data(b"full"), peer_reads: None };
        assert_eq!(progress, heard);
    }
}

/// RFC 6581 s6, s10: revision 2 without S has the frame of revision 1, and its reply has no S.
#[test]
fn a_request_without_enhanced_data_has_a_reply_without_it() {
    let (said, decision) = decode_request(&request_with(0x40, 2, b"four"));
    assert_eq!((said, decision.peer_enhanced()), (data(b"four"), None));
    let (reply, settled) = decision.accept(PARAMS, b"").unwrap();
    assert_eq!((&reply[16..], settled), (&[0x40, 2, 0, 0][..], Negotiated { revision: 2, ..agreed(true) }));
    assert_eq!(initiate(&reply), accepted(b"", Negotiated { revision: 2, ..agreed(true) }));
}

/// RFC 6581 s6, RFC 5044 s7.1.2, rule 9: with S the four octets must be present.
#[test]
fn a_frame_without_its_announced_enhanced_data_is_refused() {
    for said in 0..4 {
        let fault = StartupFault::EnhancedDataMissing;
        assert_eq!(respond(&request_with(0x50, 2, &[0; 4][..said])), responder::Progress::Fault(fault));
        assert_eq!(initiate(&reply_with(0x50, 2, &[0; 4][..said])), initiator::Progress::Fault(fault));
    }
}

/// RFC 6581 s6, s9: the application's private data is at most 508 octets and does not contain the
/// enhanced data. Reserved bits are not checked.
#[test]
fn enhanced_data_reduces_the_private_data() {
    let said = [&enhanced().encode()[..], &[7; 508]].concat();
    let (private_data, decision) = decode_request(&request_with(0x5f, 2, &said));
    assert_eq!((&private_data[..], decision.peer_enhanced()), (&[7; 508][..], Some(enhanced())));
    let too_long = PrivateDataTooLong { asked: 509, allowed: 508 };
    assert_eq!(Initiator::start(proposal(enhanced()), &[0; 509]).unwrap_err(), too_long);
    assert_eq!(decision.accept(PARAMS, &[0; 509]).unwrap_err(), too_long);
    assert_eq!(decision.reject(READS, &[0; 509]).unwrap_err(), too_long);
    assert_eq!(decision.accept(PARAMS, &[0; 508]).unwrap().0.len(), 20 + 512);
}

/// RFC 6581 s9.1: the initiator's ORD is at most the responder's IRD.
#[test]
fn the_initiators_ord_is_at_most_the_responders_ird() {
    for (said, ord) in [(0, 0), (3, 3), (8, 8), (9, 8), (0x3ffe, 8), (0x3fff, 8)] {
        let [high, low] = (0x8000 | said as u16).to_be_bytes();
        let (agreed, fault) = replied(proposal(enhanced()), [high, low, 0x80, 0]);
        assert_eq!((agreed.terms.reads, fault), (ReadDepths { ird: 16, ord }, None));
        assert_eq!(agreed.terms.peer_reads, Some(ReadDepths { ird: said as u16, ord: 0 }));
    }
}

/// RFC 6581 s9.1: the initiator's IRD is at least the responder's ORD. Without the resources it
/// ends the connection with code 6.
#[test]
fn an_initiator_without_the_resources_fails_with_code_6() {
    let offer = Offer { enhanced: Some(enhanced()), reads: ReadDepths { ird: 4, ord: 8 }, ird_max: 16 };
    let few = Proposal { offer, ..plain(true) };
    let outcome = |ord: u16| {
        let [high, low] = (0x8000 | ord).to_be_bytes();
        let (agreed, fault) = replied(few, [0x80, 8, high, low]);
        (agreed.terms.reads.ird, fault)
    };
    assert_eq!(outcome(0), (4, None));
    assert_eq!(outcome(4), (4, None));
    assert_eq!(outcome(5), (5, None), "the IRD limit is 16");
    assert_eq!(outcome(16), (16, None));
    assert_eq!(outcome(17), (4, Some(MpaFault::InsufficientIrd)));
    assert_eq!(outcome(0x3fff), (4, None), "left to the applications");
}

/// RFC 6581 s9.2: an RTR that both sides support: a Write if possible, a Read only with an IRD of
/// at least 1.
#[test]
fn an_initiator_sends_an_indication_that_both_sides_support() {
    let sent = |octets| {
        let (agreed, fault) = replied(proposal(enhanced()), octets);
        (agreed.terms.rtr_to_send, fault)
    };
    assert_eq!(sent([0xc0, 8, 0xc0, 0]), (Some(Rtr::Write), None));
    assert_eq!(sent([0x80, 8, 0x40, 0]), (Some(Rtr::Read), None));
    assert_eq!(sent([0xc0, 8, 0x40, 0]), (Some(Rtr::Read), None));
    assert_eq!(sent([0xc0, 0, 0x40, 0]), (Some(Rtr::Send), None));
    assert_eq!(sent([0xc0, 8, 0, 0]), (Some(Rtr::Send), None));
    assert_eq!(sent([0xbf, 0xff, 0x40, 0]), (Some(Rtr::Read), None), "the IRD is left to the applications");
    assert_eq!(sent([0x80, 0, 0x40, 0]), (None, Some(MpaFault::NoMatchingRtr)));
    assert_eq!(sent([0x80, 8, 0, 0]), (None, Some(MpaFault::NoMatchingRtr)));
    assert_eq!(sent([0x40, 8, 0xc0, 0]), (None, None), "without A no indication is awaited");
    let writes = Enhanced { rtr: RtrKinds::WRITE, ..enhanced() };
    let (agreed, fault) = replied(proposal(writes), [0xc0, 8, 0x40, 0]);
    assert_eq!((agreed.terms.rtr_to_send, fault), (None, Some(MpaFault::NoMatchingRtr)));
    let client = Enhanced { peer_to_peer: false, ..enhanced() };
    assert_eq!(replied(proposal(client), [0x80, 8, 0x80, 0]).0.terms.rtr_to_send, None);
}

/// RFC 6581 s9.2: the initiator's kinds that the responder accepts, or the responder's own if there
/// are none.
#[test]
fn a_responder_names_the_indications_that_both_sides_support() {
    let named = |theirs, ours| {
        let request = request(Enhanced { rtr: theirs, ..enhanced() });
        let (reply, settled) =
            decode_request(&request).1.accept(ResponderParams { rtr: ours, ..PARAMS }, b"").unwrap();
        let said = Enhanced::decode(*reply[20..].first_chunk().unwrap());
        assert_eq!(said.rtr, settled.terms.rtr_awaited);
        said.rtr
    };
    let (send, write, read) = (RtrKinds::SEND, RtrKinds::WRITE, RtrKinds::READ);
    assert_eq!(named(RtrKinds::all(), RtrKinds::all()), RtrKinds::all());
    assert_eq!(named(read, RtrKinds::all()), read);
    assert_eq!(named(write | read, read | send), read);
    assert_eq!(named(send, write | read), write | read);
    assert_eq!(named(RtrKinds::empty(), write), write);
    assert_eq!(named(read, RtrKinds::empty()), read, "a responder accepts at least one kind");
}

/// RFC 6581 s9.1: the responder raises its IRD for a Read indication if the initiator supports no
/// other.
#[test]
fn a_responder_raises_its_ird_for_the_only_possible_indication() {
    let none = ResponderParams { reads: ReadDepths { ird: 0, ord: 0 }, ..PARAMS };
    let answered = |rtr| {
        let request = request(Enhanced { rtr, reads: ReadDepths::default(), ..enhanced() });
        let (reply, settled) = decode_request(&request).1.accept(none, b"").unwrap();
        (Enhanced::decode(*reply[20..].first_chunk().unwrap()).rtr, settled.terms.reads.ird)
    };
    assert_eq!(answered(RtrKinds::READ), (RtrKinds::READ, 1));
    assert_eq!(answered(RtrKinds::READ | RtrKinds::WRITE), (RtrKinds::WRITE, 0));
}

/// RFC 6581 s9.2: a kind that the responder excludes is not named, except a Write where the Read
/// that it asks for has no room and s9.1 forbids to make one (ORD 0x3fff: no negotiation).
#[test]
fn a_responder_names_an_indication_that_it_excludes_only_if_no_other_is_possible() {
    let depths = [0, 1, 16, READS_UNNEGOTIATED];
    for theirs in (0..8).map(RtrKinds::from_bits_truncate) {
        for ours in (1..8).map(RtrKinds::from_bits_truncate).filter(|kinds| !kinds.is_empty()) {
            for (ord, ird) in depths.iter().flat_map(|&ord| [0, 4].map(|ird| (ord, ird))) {
                let reads = ReadDepths { ird: 0, ord };
                let request = request(Enhanced { rtr: theirs, reads, ..enhanced() });
                let params = ResponderParams { rtr: ours, reads: ReadDepths { ird, ord: 0 } };
                let (reply, settled) = decode_request(&request).1.accept(params, b"").unwrap();
                let named = Enhanced::decode(*reply[20..].first_chunk().unwrap()).rtr;
                let context = format!("{theirs:?} {ours:?} {reads:?} IRD {ird}: {named:?}");
                let impossible = ours == RtrKinds::READ && ird == 0 && ord == READS_UNNEGOTIATED;
                match impossible {
                    true => assert_eq!((named, settled.terms.reads.ird), (RtrKinds::WRITE, 0), "{context}"),
                    false => assert!(!named.is_empty() && ours.contains(named), "{context}"),
                }
                assert!(
                    settled.terms.reads.ird > 0 || !named.contains(RtrKinds::READ),
                    "a Read has its place"
                );
            }
        }
    }
}

/// An enhanced request and its reply, split at every octet.
#[test]
fn enhanced_frames_may_arrive_octet_by_octet() {
    let (initiator, request) = Initiator::start(proposal(enhanced()), b"data").unwrap();
    let reply = decode_request(&request).1.accept(PARAMS, b"said").unwrap().0;
    for arrived in 0..request.len() {
        assert_eq!(respond(&request[..arrived]), responder::Progress::NeedMore);
    }
    for arrived in 0..reply.len() {
        let mut bytes = Bytes(reply[..arrived].to_vec());
        assert_eq!(initiator.on_bytes(&mut bytes), initiator::Progress::NeedMore);
        assert_eq!(bytes.0.len(), arrived);
    }
}
