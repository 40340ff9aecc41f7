//! Start-up as the two sides see it.

use ironwarp_tcp::ByteStream;
use proptest::prelude::*;

use super::frame::{Frame, HEADER_BYTES, Kind};
use super::{
    FrameSource, Initiator, PrivateData, PrivateDataTooLong, Responder, StartupFault, initiator, responder,
};
use ironwarp_tcp::UnitSource;

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

fn respond(bytes: &[u8]) -> responder::Progress {
    Responder::new(true).on_bytes(&mut Bytes(bytes.to_vec()))
}

fn initiate(bytes: &[u8]) -> initiator::Progress {
    Initiator::start(true, b"").unwrap().0.on_bytes(&mut Bytes(bytes.to_vec()))
}

fn data(bytes: &[u8]) -> PrivateData {
    PrivateData::try_from(bytes).unwrap()
}

/// RFC 5044 s7.1.1, figure 8.
#[test]
fn frames_lie_as_figure_8_draws_them() {
    let (_, request) = Initiator::start(true, b"hi").unwrap();
    assert_eq!(request[..], b"MPA ID Req Frame\x40\x01\x00\x02hi"[..]);
    let (_, request) = Initiator::start(false, b"").unwrap();
    assert_eq!(request[..], b"MPA ID Req Frame\x00\x01\x00\x00"[..]);
}

#[test]
fn a_request_is_accepted_and_both_sides_agree() {
    let (initiator, request) = Initiator::start(true, b"please").unwrap();
    let responder::Progress::Request { private_data, decision } = respond(&request) else { panic!() };
    assert_eq!((private_data, decision.crc()), (data(b"please"), true));
    let mut reply = Bytes(decision.accept(b"welcome").unwrap().to_vec());
    assert_eq!(reply.0[..], b"MPA ID Rep Frame\x40\x01\x00\x07welcome"[..]);
    let accepted = initiator::Progress::Accepted { private_data: data(b"welcome"), crc: true };
    assert_eq!(initiator.on_bytes(&mut reply), accepted);
}

#[test]
fn a_request_is_refused_with_a_reason() {
    let responder::Progress::Request { decision, .. } = respond(&REQUEST) else { panic!() };
    let reply = decision.reject(b"full").unwrap();
    assert_eq!(reply[16], 0x60);
    assert_eq!(initiate(&reply), initiator::Progress::Rejected { private_data: data(b"full") });
}

/// RFC 5044 s7.1.1: C in either frame turns CRCs on; only both without it turns them off. A reply never clears it.
#[test]
fn crc_is_on_unless_neither_side_wants_it() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let flags = if theirs { 0x40 } else { 0 };
        let mut bytes = Bytes(request_with(flags, 1, b""));
        let responder::Progress::Request { decision, .. } = Responder::new(ours).on_bytes(&mut bytes) else {
            panic!()
        };
        assert_eq!(decision.crc(), ours || theirs);
        assert_eq!(decision.accept(b"").unwrap()[16] & 0x40 != 0, ours || theirs);
        let (initiator, _) = Initiator::start(ours, b"").unwrap();
        let progress = initiator.on_bytes(&mut Bytes(reply_with(flags, 1, b"")));
        let accepted = initiator::Progress::Accepted { private_data: data(b""), crc: ours || theirs };
        assert_eq!(progress, accepted);
    }
}

/// RFC 5044 s7.1.1: the reserved bits, R in a request, and in revision 1 the S bit, are not checked.
#[test]
fn reserved_bits_are_not_checked() {
    for flags in [0x20, 0x1f, 0x10, 0x0f] {
        assert!(matches!(respond(&request_with(flags, 1, b"d")), responder::Progress::Request { .. }));
    }
    assert!(matches!(initiate(&reply_with(0x1f, 1, b"")), initiator::Progress::Accepted { .. }));
}

/// RFC 5044 s7.1.2, rule 5: found with the first octet that differs.
#[test]
fn anything_but_mpa_is_refused_at_its_first_octet() {
    assert_eq!(respond(b"G"), responder::Progress::Fault(StartupFault::Key));
    assert_eq!(respond(b"MPA ID Xxx"), responder::Progress::Fault(StartupFault::Key));
    assert_eq!(initiate(b"MPA ID Rep Fram\0"), initiator::Progress::Fault(StartupFault::Key));
}

/// RFC 5044 s7.1.2, rule 8.
#[test]
fn two_initiators_find_each_other_out() {
    assert_eq!(initiate(&REQUEST), initiator::Progress::Fault(StartupFault::SameRole));
    assert_eq!(respond(&REPLY), responder::Progress::Fault(StartupFault::SameRole));
}

/// RFC 5044 s7.1.1: a revision that we cannot work with closes the connection.
#[test]
fn other_revisions_are_refused() {
    for revision in [0, 3, 255] {
        let fault = StartupFault::Revision(revision);
        assert_eq!(respond(&request_with(0x40, revision, b"")), responder::Progress::Fault(fault));
        assert_eq!(initiate(&reply_with(0x40, revision, b"")), initiator::Progress::Fault(fault));
    }
}

/// RFC 6581 s6: revision 2 without enhanced data is the same frame; s10: such a request is answered unenhanced, and
/// one with enhanced data closes the connection of a responder that lacks it.
#[test]
fn revision_2_is_taken_without_enhanced_data_only() {
    let responder::Progress::Request { decision, .. } = respond(&request_with(0x40, 2, b"")) else {
        panic!()
    };
    assert_eq!(decision.accept(b"").unwrap()[16..18], [0x40, 1]);
    let enhanced = request_with(0x50, 2, &[0x80, 16, 0xc0, 16]);
    assert_eq!(respond(&enhanced), responder::Progress::Fault(StartupFault::Enhanced));
    assert_eq!(initiate(&reply_with(0x50, 2, &[0; 4])), initiator::Progress::Fault(StartupFault::Enhanced));
}

/// RFC 5044 s7.1.1: 512 octets at most, found before they have arrived.
#[test]
fn private_data_is_bounded() {
    let largest = request_with(0x40, 1, &[7; 512]);
    assert!(
        matches!(respond(&largest), responder::Progress::Request { private_data, .. } if private_data.len() == 512)
    );
    let mut header = REQUEST;
    header[18..].copy_from_slice(&513u16.to_be_bytes());
    assert_eq!(respond(&header), responder::Progress::Fault(StartupFault::PrivateDataTooLong(513)));
    assert_eq!(Initiator::start(true, &[0; 513]).unwrap_err(), PrivateDataTooLong(513));
}

/// RFC 5044 s7.1.1: private data that is longer than its length says. Only the responder can tell: behind a reply
/// FPDUs may follow in the same segment.
#[test]
fn octets_behind_a_request_are_refused_and_behind_a_reply_kept() {
    let mut request = REQUEST.to_vec();
    request.push(0);
    assert_eq!(respond(&request), responder::Progress::Fault(StartupFault::TrailingBytes));
    let mut bytes = Bytes([&REPLY[..], b"first FPDU"].concat());
    let (initiator, _) = Initiator::start(true, b"").unwrap();
    assert!(matches!(initiator.on_bytes(&mut bytes), initiator::Progress::Accepted { .. }));
    assert_eq!(bytes.0, b"first FPDU");
}

/// RFC 5044 s7.1.1 obliges whoever goes on to insert markers; we do not go on.
#[test]
fn a_peer_that_requires_markers_is_refused() {
    let fault = StartupFault::MarkersRequired;
    let responder::Progress::Refuse { reply, fault: why } = respond(&request_with(0xc0, 1, b"")) else {
        panic!()
    };
    assert_eq!((&reply[..], why), (&reply_with(0x60, 1, b"")[..], fault));
    assert_eq!(initiate(&reply_with(0xc0, 1, b"")), initiator::Progress::Fault(fault));
    assert!(matches!(initiate(&reply_with(0xe0, 1, b"")), initiator::Progress::Rejected { .. }));
}

#[test]
fn a_frame_is_waited_for_octet_by_octet() {
    let frame = request_with(0x40, 1, b"data");
    for arrived in 0..frame.len() {
        let mut bytes = Bytes(frame[..arrived].to_vec());
        assert_eq!(Responder::new(true).on_bytes(&mut bytes), responder::Progress::NeedMore);
        assert_eq!(bytes.0.len(), arrived, "nothing is taken before the frame is whole");
    }
}

#[test]
fn a_frame_is_one_unit() {
    let (_, frame) = Initiator::start(true, b"unit").unwrap();
    let mut source = FrameSource::new(frame.clone());
    let mut room = [0; 1448];
    assert_eq!((source.fill(&mut room), source.is_done()), (frame.len(), true));
    assert_eq!(room[..frame.len()], frame[..]);
    assert_eq!(source.fill(&mut room), 0);
}

proptest! {
    #[test]
    fn frames_round_trip(
        request: bool,
        markers: bool,
        crc: bool,
        reject: bool,
        private_data in proptest::collection::vec(any::<u8>(), 0..=512),
    ) {
        let kind = if request { Kind::Request } else { Kind::Reply };
        let frame = Frame { kind, markers, crc, reject, revision: 1, private_data: data(&private_data) };
        let mut bytes = Bytes(frame.encode().to_vec());
        prop_assert_eq!(bytes.0.len(), HEADER_BYTES + private_data.len());
        prop_assert_eq!(Frame::decode(kind, &mut bytes), Ok(Some(frame)));
        prop_assert!(bytes.0.is_empty());
    }

    #[test]
    fn hostile_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..64), keyed: bool) {
        let octets = if keyed { [&REQUEST[..16], &octets].concat() } else { octets };
        let _ = respond(&octets);
        let _ = initiate(&octets);
    }
}
