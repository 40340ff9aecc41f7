//! Golden octets of each message and each draft, ignored fields, and refused messages.

use ironwarp_mem::AccessError;
use proptest::prelude::*;

use super::*;
use crate::ddp::{Header, Untagged};
use crate::rdmap::{Opcode, TerminatedHeaders, terminate::TERMINATE_BYTES_MAX};
use crate::terminate::Terminate;

/// The request of the golden octets, with this operation.
fn request(operation: AtomicOp) -> AtomicRequest {
    let (stag, tagged_offset) = (STag(0x5ead_1234), 0x0000_7f00_1122_3340);
    AtomicRequest { identifier: 0xcafe_0007, stag, tagged_offset, operation }
}

const ADD: AtomicOp = AtomicOp::FetchAdd { add: 0x0102_0304_0506_0708, mask: 0x8000_0000_8000_0000 };
const COMPARE: AtomicOp = AtomicOp::CmpSwap {
    compare: 0x2122_2324_2526_2728,
    compare_mask: 0x3132_3334_3536_3738,
    swap: 0x0102_0304_0506_0708,
    swap_mask: 0x1112_1314_1516_1718,
};
const SWAP: AtomicOp = AtomicOp::Swap { swap: 0x0102_0304_0506_0708 };

/// Appendix A.1 of RFC 7306 with a FetchAdd.
const FETCH_ADD_SEGMENT: [u8; 70] = [
    0x41, 0x4a, 0, 0, 0, 0, // untagged, last, DDP 1; RDMAP 1, operation 10; no tag to invalidate
    0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, // queue 1, message 9, offset 0
    0, 0, 0, 0, // AOpCode 0
    0xca, 0xfe, 0x00, 0x07, // identifier
    0x5e, 0xad, 0x12, 0x34, // remote STag
    0x00, 0x00, 0x7f, 0x00, 0x11, 0x22, 0x33, 0x40, // remote TO
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // add data
    0x80, 0x00, 0x00, 0x00, 0x80, 0x00, 0x00, 0x00, // add mask
    0, 0, 0, 0, 0, 0, 0, 0, // compare data: zero
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // compare mask: all ones
];

/// Offsets of the fields of a request in a segment.
const CODE: usize = 21;
const DATA: usize = 38;
const MASK: usize = 46;

/// The same with a CmpSwap.
fn cmp_swap_segment() -> [u8; 70] {
    let mut octets = FETCH_ADD_SEGMENT;
    octets[CODE] = 2;
    octets[MASK..].copy_from_slice(&[
        0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, // swap mask
        0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, // compare data
        0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, // compare mask
    ]);
    octets
}

/// The same with a Swap, as in figure 5 of drafts -01 and -03.
fn swap_segment() -> [u8; 70] {
    let mut octets = FETCH_ADD_SEGMENT;
    octets[CODE] = 1;
    octets[MASK..MASK + 8].fill(0xff);
    octets
}

/// Appendix A.2 of RFC 7306.
const RESPONSE_SEGMENT: [u8; 30] = [
    0x41, 0x4b, 0, 0, 0, 0, // untagged, last, DDP 1; RDMAP 1, operation 11; no tag to invalidate
    0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0, // queue 3, message 5, offset 0
    0xca, 0xfe, 0x00, 0x07, // identifier
    0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, // original value
];

const RESPONSE: AtomicResponse = AtomicResponse { identifier: 0xcafe_0007, original: 0xa1a2_a3a4_a5a6_a7a8 };

fn segment(profile: Rfc7306Profile, opcode: Opcode, msn: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0xee; 18];
    Untagged::whole(opcode.control(), profile.queue(opcode).unwrap(), msn).encode(&mut out);
    out.extend(payload);
    out
}

fn split(profile: Rfc7306Profile, ulpdu: &[u8]) -> (Opcode, &[u8]) {
    let Ok((Header::Untagged(header), payload)) = Header::decode(ulpdu) else { panic!("untagged") };
    Opcode::check_version(header.ulp).unwrap();
    (profile.expected(&header).unwrap(), payload)
}

fn requested(profile: Rfc7306Profile, ulpdu: &[u8]) -> Result<AtomicRequest, RdmapFault> {
    let (opcode, payload) = split(profile, ulpdu);
    assert_eq!(opcode, Opcode::AtomicRequest);
    AtomicRequest::decode(payload, profile)
}

/// RFC7306-4-01, RFC7306-4.1-03, RFC7306-5.2.1-01, RFC7306-5.2.1-07 and RFC7306-5.2.1-14.
#[test]
fn a_fetch_add_has_the_layout_of_appendix_a() {
    let profile = Rfc7306Profile::RFC_7306;
    let sent = segment(profile, Opcode::AtomicRequest, 9, &request(ADD).encode());
    assert_eq!(sent, FETCH_ADD_SEGMENT);
    assert_eq!(requested(profile, &FETCH_ADD_SEGMENT), Ok(request(ADD)));
}

/// RFC7306-5.2.1-03.
#[test]
fn a_cmp_swap_has_the_layout_of_appendix_a() {
    let profile = Rfc7306Profile::RFC_7306;
    let sent = segment(profile, Opcode::AtomicRequest, 9, &request(COMPARE).encode());
    assert_eq!(sent, cmp_swap_segment());
    assert_eq!(requested(profile, &cmp_swap_segment()), Ok(request(COMPARE)));
}

/// RFC7306-4-02, RFC7306-5.2.2-01 and RFC7306-5.2.2-04.
#[test]
fn an_atomic_response_has_the_layout_of_appendix_a() {
    let profile = Rfc7306Profile::RFC_7306;
    assert_eq!(segment(profile, Opcode::AtomicResponse, 5, &RESPONSE.encode()), RESPONSE_SEGMENT);
    let (opcode, payload) = split(profile, &RESPONSE_SEGMENT);
    assert_eq!(opcode, Opcode::AtomicResponse);
    assert_eq!(AtomicResponse::decode_for(payload, 0xcafe_0007), Ok(RESPONSE));
}

/// Drafts -01 and -03, figure 5: code 1 is Swap. The RFC reserves it.
#[test]
fn only_the_drafts_have_swap() {
    for profile in [Rfc7306Profile::DRAFT_03, Rfc7306Profile::DRAFT_01_FIGURE_2] {
        let sent = segment(profile, Opcode::AtomicRequest, 9, &request(SWAP).encode());
        assert_eq!(sent, swap_segment());
        assert_eq!(requested(profile, &swap_segment()), Ok(request(SWAP)));
    }
    assert_eq!(requested(Rfc7306Profile::RFC_7306, &swap_segment()), Err(RdmapFault::Opcode));
}

/// Draft -01, figure 2: the response uses queue 1. The request is unchanged.
#[test]
fn a_response_uses_queue_1_with_figure_2_of_draft_01() {
    let profile = Rfc7306Profile::DRAFT_01_FIGURE_2;
    let mut expected = RESPONSE_SEGMENT;
    expected[9] = 1;
    assert_eq!(segment(profile, Opcode::AtomicResponse, 5, &RESPONSE.encode()), expected);
    assert_eq!(split(profile, &expected).0, Opcode::AtomicResponse);
    let request = segment(profile, Opcode::AtomicRequest, 9, &request(ADD).encode());
    assert_eq!(request, FETCH_ADD_SEGMENT);
}

/// RFC7306-5.2.1-02 and RFC7306-5.2.1-08. The drafts say the same of Swap.
#[test]
fn reserved_bits_and_unused_fields_are_ignored() {
    let mut octets = FETCH_ADD_SEGMENT;
    octets[18..CODE].fill(0xff);
    octets[CODE] |= 0xf0;
    octets[54..].fill(0x5a);
    assert_eq!(requested(Rfc7306Profile::RFC_7306, &octets), Ok(request(ADD)));
    let mut octets = swap_segment();
    octets[MASK..].fill(0x5a);
    assert_eq!(requested(Rfc7306Profile::DRAFT_03, &octets), Ok(request(SWAP)));
}

/// RFC7306-5.2.1-13: an unsupported operation is reported as an unexpected opcode (s1.1).
#[test]
fn a_reserved_operation_code_is_refused() {
    for code in 3..16 {
        let mut octets = FETCH_ADD_SEGMENT;
        octets[CODE] = code;
        for profile in [Rfc7306Profile::RFC_7306, Rfc7306Profile::DRAFT_03, Rfc7306Profile::DRAFT_01_FIGURE_2]
        {
            assert_eq!(requested(profile, &octets), Err(RdmapFault::Opcode), "{code}");
        }
    }
}

/// RFC 7306 s4.2: these messages consist of their header only.
#[test]
fn a_payload_of_any_other_size_is_refused() {
    for bytes in [0, 12, 28, 51, 53, 1000] {
        let refused = AtomicRequest::decode(&vec![0; bytes], Rfc7306Profile::RFC_7306);
        assert_eq!(refused, Err(RdmapFault::Unspecified));
    }
    for bytes in [0, 8, 11, 13, 32, 52] {
        assert_eq!(AtomicResponse::decode(&vec![0; bytes]), Err(RdmapFault::Unspecified));
    }
}

/// RFC7306-5.2.2-08.
#[test]
fn a_response_with_another_identifier_is_refused() {
    assert_eq!(AtomicResponse::decode_for(&RESPONSE.encode(), 8), Err(RdmapFault::StreamCatastrophic));
}

/// RFC7306-8.2-07 and RFC7306-8.2-08: the error code of each refusal.
#[test]
fn every_refusal_has_its_error_code() {
    let named = |fault: RdmapFault| {
        let Terminate { layer, etype, code } = fault.into();
        (layer, etype, code)
    };
    let refused = |error: WordError| named(error.into());
    assert_eq!(refused(WordError::Misaligned), (0, 2, 7));
    assert_eq!(refused(AccessError::UnknownStag.into()), (0, 1, 0));
    assert_eq!(refused(AccessError::Revoked.into()), (0, 1, 0));
    assert_eq!(refused(AccessError::Bounds.into()), (0, 1, 1));
    assert_eq!(refused(AccessError::NoRight.into()), (0, 1, 2));
    assert_eq!(refused(AccessError::WrongPd.into()), (0, 1, 3));
    assert_eq!(refused(AccessError::WrongStream.into()), (0, 1, 3));
    assert_eq!(refused(AccessError::Wrap.into()), (0, 1, 4));
    assert_eq!(named(requested(Rfc7306Profile::RFC_7306, &swap_segment()).unwrap_err()), (0, 2, 6));
    assert_eq!(named(AtomicResponse::decode(&[]).unwrap_err()), (0, 2, 0xff));
}

/// RFC7306-8.1-02: the header of the segment is included, and the header of an Atomic Request never
/// is.
#[test]
fn a_terminate_for_an_atomic_includes_only_its_ddp_header() {
    for fault in [WordError::Misaligned, AccessError::NoRight.into()] {
        let error = Terminate::from(RdmapFault::from(fault));
        let mut out = [0xee; TERMINATE_BYTES_MAX];
        let bytes = TerminatedHeaders::segment(&FETCH_ADD_SEGMENT).encode(error, &mut out);
        assert_eq!(out[..6], [error.etype, error.code, 0xc0, 0, 0, 70]);
        assert_eq!(out[6..bytes], FETCH_ADD_SEGMENT[..18]);
    }
}

/// The offsets that the tests change are those of figure 4.
#[test]
fn the_offsets_are_those_of_figure_4() {
    assert_eq!((FETCH_ADD_SEGMENT[CODE], &FETCH_ADD_SEGMENT[DATA..DATA + 2]), (0, &[1, 2][..]));
    assert_eq!(FETCH_ADD_SEGMENT[MASK..MASK + 4], [0x80, 0, 0, 0]);
}

fn operations() -> impl Strategy<Value = AtomicOp> {
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(add, mask)| AtomicOp::FetchAdd { add, mask }),
        any::<(u64, u64, u64, u64)>().prop_map(|(compare, compare_mask, swap, swap_mask)| {
            AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask }
        }),
        any::<u64>().prop_map(|swap| AtomicOp::Swap { swap }),
    ]
}

fn profiles() -> impl Strategy<Value = Rfc7306Profile> {
    any::<(bool, bool)>().prop_map(|(swap, figure_2_queues)| Rfc7306Profile { swap, figure_2_queues })
}

proptest! {
    #[test]
    fn requests_round_trip(identifier: u32, stag: u32, tagged_offset: u64, operation in operations()) {
        let request = AtomicRequest { identifier, stag: STag(stag), tagged_offset, operation };
        prop_assert_eq!(AtomicRequest::decode(&request.encode(), Rfc7306Profile::DRAFT_03), Ok(request));
        let is_swap = matches!(operation, AtomicOp::Swap { .. });
        prop_assert_eq!(AtomicRequest::decode(&request.encode(), Rfc7306Profile::RFC_7306).is_err(), is_swap);
    }

    #[test]
    fn responses_round_trip(identifier: u32, original: u64) {
        let response = AtomicResponse { identifier, original };
        prop_assert_eq!(AtomicResponse::decode_for(&response.encode(), identifier), Ok(response));
    }

    /// A decoded request stays the same when it is encoded and decoded again.
    #[test]
    fn any_octets_are_decoded_or_refused(
        octets in prop_oneof![
            proptest::collection::vec(any::<u8>(), 52..=52),
            proptest::collection::vec(any::<u8>(), 0..80),
        ],
        profile in profiles(),
    ) {
        let read = AtomicRequest::decode(&octets, profile);
        prop_assert!(read.is_err() || octets.len() == 52);
        if let Ok(request) = read {
            prop_assert_eq!(AtomicRequest::decode(&request.encode(), profile), Ok(request));
        }
        prop_assert_eq!(AtomicResponse::decode(&octets).is_ok(), octets.len() == 12);
    }

    /// The operation of any header is allowed on its queue, or the header is refused.
    #[test]
    fn any_untagged_header_is_valid_on_its_queue_or_refused(octets: [u8; 18], queue in 0..5u8, profile in profiles()) {
        let mut octets = octets;
        octets[0] &= 0x7f;
        octets[6..10].copy_from_slice(&u32::from(queue).to_be_bytes());
        if let Ok((Header::Untagged(header), _)) = Header::decode(&octets)
            && let Some(opcode) = profile.expected(&header)
        {
            prop_assert_eq!(profile.queue(opcode), Some(header.qn));
        }
    }
}
