//! Start-up of the two sides: framing and revision 1 here, revision 2 in [`enhanced`], every
//! combination of terms in [`matrix`].

mod enhanced;
mod matrix;

use ironwarp_llp::{ByteStream, UnitSource};
use proptest::prelude::*;

use super::frame::{Frame, HEADER_BYTES, Kind};
use super::*;
use crate::setup::{Enhanced, Offer, PrivateData, PrivateDataTooLong, ReadDepths, ResponderParams, RtrKinds};

/// In-order bytes in one piece.
struct Bytes(Vec<u8>);

impl ByteStream for Bytes {
    fn available(&self) -> usize {
        self.0.len()
    }

    fn front(&self) -> &[u8] {
        &self.0
    }

    fn peek(&self, out: &mut [u8]) -> bool {
        let Some(bytes) = self.0.get(..out.len()) else { return false };
        out.copy_from_slice(bytes);
        true
    }

    fn consume(&mut self, n: usize) {
        self.0.drain(..n.min(self.0.len()));
    }
}

const REQUEST: [u8; 20] = *b"MPA ID Req Frame\x40\x01\x00\x00";
const REPLY: [u8; 20] = *b"MPA ID Rep Frame\x40\x01\x00\x00";

fn request_with(flags: u8, revision: u8, data: &[u8]) -> Vec<u8> {
    with(&REQUEST, flags, revision, data)
}

fn reply_with(flags: u8, revision: u8, data: &[u8]) -> Vec<u8> {
    with(&REPLY, flags, revision, data)
}

fn with(frame: &[u8], flags: u8, revision: u8, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes();
    [&frame[..16], &[flags, revision], &length, data].concat()
}

const READS: ReadDepths = ReadDepths { ird: 16, ord: 8 };
const PARAMS: ResponderParams = ResponderParams { reads: READS, rtr: RtrKinds::all() };

/// An initiator of revision 1.
fn plain(crc: bool) -> Proposal {
    let offer = Offer { enhanced: None, reads: READS, ird_max: 16 };
    Proposal { crc, markers: false, offer }
}

/// The terms of two sides of revision 1 without markers.
fn agreed(crc: bool) -> Negotiated {
    Negotiated {
        crc,
        markers: Markers::default(),
        revision: 1,
        terms: Terms { peer_reads: None, reads: READS, rtr_to_send: None, rtr_awaited: RtrKinds::empty() },
    }
}

fn accepted(private_data: &[u8], agreed: Negotiated) -> initiator::Progress {
    initiator::Progress::Accepted { private_data: data(private_data), agreed, fault: None }
}

fn respond(bytes: &[u8]) -> responder::Progress {
    Responder::new(true, false).on_bytes(&mut Bytes(bytes.to_vec()))
}

fn decode_request(bytes: &[u8]) -> (PrivateData, Decision) {
    match respond(bytes) {
        responder::Progress::Request { private_data, decision } => (private_data, decision),
        other => panic!("{other:?}"),
    }
}

fn initiate(bytes: &[u8]) -> initiator::Progress {
    Initiator::start(plain(true), b"").unwrap().0.on_bytes(&mut Bytes(bytes.to_vec()))
}

fn data(bytes: &[u8]) -> PrivateData {
    PrivateData::try_from(bytes).unwrap()
}

/// RFC 5044 s7.1.1, figure 8.
/// RFC 5044 s7.1 and s7.1.2.
#[test]
fn frames_have_the_layout_of_figure_8() {
    let (_, request) = Initiator::start(plain(true), b"hi").unwrap();
    assert_eq!(request[..], b"MPA ID Req Frame\x40\x01\x00\x02hi"[..]);
    let (_, request) = Initiator::start(plain(false), b"").unwrap();
    assert_eq!(request[..], b"MPA ID Req Frame\x00\x01\x00\x00"[..]);
    let (_, request) = Initiator::start(Proposal { markers: true, ..plain(true) }, b"").unwrap();
    assert_eq!(request[..], b"MPA ID Req Frame\xc0\x01\x00\x00"[..]);
}

/// RFC 5044 s7.1.2, rules 1 to 3.
/// RFC 5044 s3 and s7.1.1.
#[test]
fn a_request_is_accepted_and_both_sides_agree() {
    let (initiator, request) = Initiator::start(plain(true), b"please").unwrap();
    let (private_data, decision) = decode_request(&request);
    assert_eq!((private_data, decision.revision(), decision.peer_enhanced()), (data(b"please"), 1, None));
    let (reply, settled) = decision.accept(PARAMS, b"welcome").unwrap();
    assert_eq!(settled, agreed(true));
    assert_eq!(reply[..], b"MPA ID Rep Frame\x40\x01\x00\x07welcome"[..]);
    assert_eq!(initiator.on_bytes(&mut Bytes(reply.to_vec())), accepted(b"welcome", agreed(true)));
}

/// RFC 5044 s7.1.2, rules 2 and 3.
#[test]
fn a_request_is_rejected_with_private_data() {
    let reply = decode_request(&REQUEST).1.reject(ReadDepths::default(), b"full").unwrap();
    assert_eq!(reply[..], b"MPA ID Rep Frame\x60\x01\x00\x04full"[..]);
    let rejected = initiator::Progress::Rejected { private_data: data(b"full"), peer_reads: None };
    assert_eq!(initiate(&reply), rejected);
}

/// RFC 5044 s7.1.1: C in either frame turns CRCs on. They are off only without C in both. A reply
/// never clears C. RFC 5044 sC.1 and s4.4.
#[test]
fn crcs_are_on_unless_both_sides_decline_them() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let flags = if theirs { 0x40 } else { 0 };
        let mut bytes = Bytes(request_with(flags, 1, b""));
        let progress = Responder::new(ours, false).on_bytes(&mut bytes);
        let responder::Progress::Request { decision, .. } = progress else { panic!() };
        let (reply, settled) = decision.accept(PARAMS, b"").unwrap();
        assert_eq!((reply[16] & 0x40 != 0, settled), (ours || theirs, agreed(ours || theirs)));
        let (initiator, _) = Initiator::start(plain(ours), b"").unwrap();
        let progress = initiator.on_bytes(&mut Bytes(reply_with(flags, 1, b"")));
        assert_eq!(progress, accepted(b"", agreed(ours || theirs)));
    }
}

/// RFC 5044 s7.1.1: M asks the other side for markers, each direction separately.
#[test]
fn each_side_requests_markers_for_its_own_direction() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let flags = if theirs { 0xc0 } else { 0x40 };
        let mut bytes = Bytes(request_with(flags, 1, b""));
        let progress = Responder::new(true, ours).on_bytes(&mut bytes);
        let responder::Progress::Request { decision, .. } = progress else { panic!() };
        let (reply, settled) = decision.accept(PARAMS, b"").unwrap();
        let markers = Markers { sent: theirs, received: ours };
        assert_eq!((reply[16] & 0x80 != 0, settled.markers), (ours, markers));
        assert_eq!(decision.reject(ReadDepths::default(), b"").unwrap()[16] & 0x80, 0);
        let (initiator, request) = Initiator::start(Proposal { markers: ours, ..plain(true) }, b"").unwrap();
        assert_eq!(request[16] & 0x80 != 0, ours);
        let progress = initiator.on_bytes(&mut Bytes(reply_with(flags, 1, b"")));
        assert_eq!(progress, accepted(b"", Negotiated { markers, ..agreed(true) }));
    }
}

/// RFC 5044 s7.1.1: the reserved bits, R in a request, and S in revision 1 are not checked.
#[test]
fn reserved_bits_are_not_checked() {
    for flags in [0x20, 0x1f, 0x10, 0x0f] {
        assert!(matches!(respond(&request_with(flags, 1, b"d")), responder::Progress::Request { .. }));
    }
    assert!(matches!(initiate(&reply_with(0x1f, 1, b"")), initiator::Progress::Accepted { .. }));
}

/// RFC 5044 s7.1.2, rule 5: found with the first octet that differs.
/// RFC 5044 s7.1.1.
#[test]
fn anything_but_mpa_is_refused_at_its_first_octet() {
    assert_eq!(respond(b"G"), responder::Progress::Fault(StartupFault::Key));
    assert_eq!(respond(b"MPA ID Xxx"), responder::Progress::Fault(StartupFault::Key));
    assert_eq!(initiate(b"MPA ID Rep Fram\0"), initiator::Progress::Fault(StartupFault::Key));
}

/// RFC 5044 s7.1.2, rule 8.
#[test]
fn two_initiators_refuse_each_other() {
    assert_eq!(initiate(&REQUEST), initiator::Progress::Fault(StartupFault::SameRole));
    assert_eq!(respond(&REPLY), responder::Progress::Fault(StartupFault::SameRole));
}

/// RFC 5044 s7.1.1: an unsupported revision closes the connection.
#[test]
fn other_revisions_are_refused() {
    for revision in [0, 3, 255] {
        let fault = StartupFault::Revision(revision);
        assert_eq!(respond(&request_with(0x40, revision, b"")), responder::Progress::Fault(fault));
        assert_eq!(initiate(&reply_with(0x40, revision, b"")), initiator::Progress::Fault(fault));
    }
}

/// RFC 5044 s7.1.1: 512 octets at most. A longer length is found before the data arrives.
/// RFC 5044 s7.1.2.
#[test]
fn private_data_is_bounded() {
    let largest = request_with(0x40, 1, &[7; 512]);
    assert!(
        matches!(respond(&largest), responder::Progress::Request { private_data, .. } if private_data.len() == 512)
    );
    let mut header = REQUEST;
    header[18..].copy_from_slice(&513u16.to_be_bytes());
    assert_eq!(respond(&header), responder::Progress::Fault(StartupFault::PrivateDataTooLong(513)));
    let too_long = PrivateDataTooLong { asked: 513, allowed: 512 };
    assert_eq!(Initiator::start(plain(true), &[0; 513]).unwrap_err(), too_long);
    assert_eq!(decode_request(&REQUEST).1.accept(PARAMS, &[0; 513]).unwrap_err(), too_long);
}

/// RFC 5044 s7.1.1: private data longer than its length field. Only the responder can detect it,
/// because FPDUs may follow a reply in the same segment. RFC 5044 s7.1.
#[test]
fn octets_after_a_request_are_refused_and_after_a_reply_kept() {
    let mut request = REQUEST.to_vec();
    request.push(0);
    assert_eq!(respond(&request), responder::Progress::Fault(StartupFault::TrailingBytes));
    let mut bytes = Bytes([&REPLY[..], b"first FPDU"].concat());
    let (initiator, _) = Initiator::start(plain(true), b"").unwrap();
    assert!(matches!(initiator.on_bytes(&mut bytes), initiator::Progress::Accepted { .. }));
    assert_eq!(bytes.0, b"first FPDU");
}

#[test]
fn a_frame_may_arrive_octet_by_octet() {
    let frame = request_with(0x40, 1, b"data");
    for arrived in 0..frame.len() {
        let mut bytes = Bytes(frame[..arrived].to_vec());
        assert_eq!(Responder::new(true, false).on_bytes(&mut bytes), responder::Progress::NeedMore);
        assert_eq!(bytes.0.len(), arrived, "nothing is consumed before the frame is complete");
    }
}

#[test]
fn a_frame_is_one_unit() {
    let (_, frame) = Initiator::start(plain(true), b"unit").unwrap();
    let mut source = StartupFrameSource::new(frame.clone());
    let mut room = [0; 1448];
    assert_eq!((source.fill(&mut room), source.is_done()), (frame.len(), true));
    assert_eq!(room[..frame.len()], frame[..]);
    assert_eq!(source.fill(&mut room), 0);
}

/// RFC 5044 s7.1.1: private data that has not arrived is waited for, and no octets beyond the
/// received ones are read. RFC 5044 s7.1.2.
#[test]
fn a_reply_may_arrive_octet_by_octet_and_keeps_what_follows() {
    let frame = reply_with(0x40, 1, b"data");
    for arrived in 0..frame.len() {
        let mut bytes = Bytes(frame[..arrived].to_vec());
        let (initiator, _) = Initiator::start(plain(true), b"").unwrap();
        assert_eq!(initiator.on_bytes(&mut bytes), initiator::Progress::NeedMore);
        bytes.0.extend(&frame[arrived..]);
        bytes.0.extend(b"next");
        assert_eq!(initiator.on_bytes(&mut bytes), accepted(b"data", agreed(true)));
        assert_eq!(bytes.0, b"next");
    }
}

proptest! {
    #[test]
    fn frames_round_trip(
        request: bool,
        markers: bool,
        crc: bool,
        reject: bool,
        enhanced in proptest::option::of((any::<bool>(), 0..8u8, 0..0x4000u16, 0..0x4000u16)),
        private_data in proptest::collection::vec(any::<u8>(), 0..=508),
    ) {
        let kind = if request { Kind::Request } else { Kind::Reply };
        let enhanced = enhanced.map(|(peer_to_peer, rtr, ird, ord)| Enhanced {
            peer_to_peer,
            rtr: if peer_to_peer { RtrKinds::from_bits_truncate(rtr) } else { RtrKinds::empty() },
            reads: ReadDepths { ird, ord },
        });
        let revision = if enhanced.is_some() { 2 } else { 1 };
        let sent = Frame { kind, markers, crc, reject, revision, enhanced, private_data: &private_data[..] };
        let mut bytes = Bytes(sent.encode().to_vec());
        prop_assert_eq!(bytes.0.len(), HEADER_BYTES + private_data.len() + if enhanced.is_some() { 4 } else { 0 });
        let private_data = data(&private_data);
        let received = Frame { kind, markers, crc, reject, revision, enhanced, private_data };
        prop_assert_eq!(Frame::decode(kind, &mut bytes), Ok(Some(received)));
        prop_assert!(bytes.0.is_empty());
    }

    /// Nothing is taken for a frame that is shorter than a frame's header, or has another key.
    #[test]
    fn hostile_octets_are_taken_only_behind_the_key(
        octets in proptest::collection::vec(any::<u8>(), 0..64), keyed: bool,
    ) {
        for key in [&REQUEST, &REPLY] {
            let octets = if keyed { [&key[..16], &octets].concat() } else { octets.clone() };
            let is_whole = |key: &[u8; 20]| octets.len() >= HEADER_BYTES && octets[..16] == key[..16];
            if let responder::Progress::Request { private_data, .. } = respond(&octets) {
                prop_assert!(is_whole(&REQUEST) && HEADER_BYTES + private_data.len() <= octets.len());
            }
            match initiate(&octets) {
                initiator::Progress::Accepted { private_data, .. }
                | initiator::Progress::Rejected { private_data, .. } => {
                    prop_assert!(is_whole(&REPLY) && HEADER_BYTES + private_data.len() <= octets.len());
                }
                initiator::Progress::NeedMore => prop_assert!(octets.len() < HEADER_BYTES + 512 + 4),
                initiator::Progress::Fault(_) => {}
            }
        }
    }
}
