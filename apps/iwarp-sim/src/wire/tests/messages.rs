//! Invalid messages and Terminates that the checker must detect.

use super::super::message::{RdmapSender, ReplyClaim};
use super::super::terminate;

fn tagged(opcode: u8, last: bool, to: u64, payload: &[u8]) -> Vec<u8> {
    let control = if last { 0xc1 } else { 0x81 };
    [&[control, 0x40 | opcode, 0, 0, 0, 9][..], &to.to_be_bytes(), payload].concat()
}

fn untagged(opcode: u8, last: bool, [queue, msn, mo]: [u32; 3], payload: &[u8]) -> Vec<u8> {
    let control = if last { 0x41 } else { 0x01 };
    let words = [0, queue, msn, mo].map(u32::to_be_bytes).concat();
    [&[control, 0x40 | opcode][..], &words, payload].concat()
}

fn request(bytes: u32) -> Vec<u8> {
    let sink = [&7u32.to_be_bytes()[..], &100u64.to_be_bytes()].concat();
    let source = [&8u32.to_be_bytes()[..], &200u64.to_be_bytes()].concat();
    [&sink[..], &bytes.to_be_bytes(), &source].concat()
}

fn check_all(ulpdus: &[Vec<u8>]) -> Result<Option<ReplyClaim>, String> {
    let mut rdmap_sender = RdmapSender::default();
    ulpdus.iter().try_fold(None, |_, ulpdu| rdmap_sender.on_ulpdu(ulpdu))
}

/// RFC 5041 s5.3, RFC 5040 s5: messages of a queue have consecutive numbers, and their segments are
/// contiguous.
#[test]
fn numbers_and_offsets_out_of_order_are_detected() {
    let first = untagged(3, false, [0, 1, 0], &[1; 8]);
    assert!(check_all(&[first.clone(), untagged(3, true, [0, 1, 8], &[])]).is_ok());
    assert!(check_all(&[untagged(3, true, [0, 2, 0], &[])]).is_err(), "the first message is number 1");
    assert!(check_all(&[first.clone(), untagged(3, true, [0, 1, 9], &[])]).is_err(), "a hole");
    assert!(check_all(&[first.clone(), untagged(3, true, [0, 2, 0], &[])]).is_err(), "another message");
    assert!(check_all(&[first, tagged(0, true, 0, &[1])]).is_err(), "a Write within a Send");
}

/// No tagged message may occur within another one. A Send may occur between the segments of a Read
/// Response only.
#[test]
fn messages_that_interrupt_others_are_detected() {
    let answer = tagged(2, false, 0, &[1; 4]);
    let send = untagged(3, true, [0, 1, 0], &[]);
    assert!(check_all(&[answer.clone(), send.clone(), tagged(2, true, 4, &[])]).is_ok());
    assert!(check_all(&[answer.clone(), tagged(0, true, 4, &[])]).is_err());
    assert!(check_all(&[answer, tagged(2, true, 5, &[])]).is_err());
    assert!(check_all(&[tagged(0, false, 0, &[1; 4]), send]).is_err());
}

/// RFC 5040 s5.4: the Terminate is the last message.
#[test]
fn nothing_may_follow_a_terminate() {
    let terminate = untagged(7, true, [2, 1, 0], &[0, 0, 0, 0]);
    assert!(matches!(check_all(core::slice::from_ref(&terminate)), Ok(Some(ReplyClaim::Terminate(_)))));
    assert!(check_all(&[terminate.clone(), terminate.clone()]).is_err());
    assert!(check_all(&[terminate, untagged(3, true, [0, 1, 0], &[])]).is_err());
}

/// RFC 5040 s5.2.2: a Read Response has the target and the length of the oldest Read Request.
#[test]
fn read_responses_that_match_no_request_are_detected() {
    let mut asker = RdmapSender::default();
    assert!(asker.check_read_response(7, 100, 0, true).is_err());
    asker.on_ulpdu(&untagged(1, true, [1, 1, 0], &request(10))).unwrap();
    assert!(asker.check_read_response(7, 101, 4, false).is_err());
    assert!(asker.check_read_response(6, 100, 4, false).is_err());
    assert!(asker.check_read_response(7, 100, 11, true).is_err());
    assert!(asker.check_read_response(7, 100, 10, false).is_err());
    assert_eq!(asker.check_read_response(7, 100, 4, false), Ok(()));
    assert_eq!(asker.check_read_response(7, 104, 6, true), Ok(()));
    assert!(asker.check_read_response(7, 110, 0, true).is_err());
}

/// RFC 5040 s4.8 and figure 10.
#[test]
fn a_terminate_with_wrong_headers_is_detected() {
    let mut culprit = RdmapSender::default();
    let ask = untagged(1, true, [1, 1, 0], &request(10));
    culprit.on_ulpdu(&ask).unwrap();
    let shown = |bits: u8, length: u16, rest: &[u8]| {
        [&[0x01, 0x01, bits, 0][..], &length.to_be_bytes(), &ask[..18], rest].concat()
    };
    assert_eq!(terminate::check(&shown(0xe0, 46, &ask[18..]), &culprit), Ok(()));
    let mut advanced = request(6);
    (advanced[11], advanced[27]) = (104, 204);
    assert_eq!(terminate::check(&shown(0xe0, 46, &advanced), &culprit), Ok(()));
    for wrong in [
        shown(0xe0, 47, &ask[18..]),
        shown(0xc0, 46, &[]),
        shown(0xe0, 46, &request(6)),
        shown(0xe1, 46, &ask[18..]),
        [&[0x20, 0x02, 0xc0, 0][..], &46u16.to_be_bytes(), &ask[..18]].concat(),
        vec![0x01, 0x05, 0, 0],
        vec![0x30, 0x00, 0, 0],
        vec![0x20, 0x02, 0, 1],
        vec![0x20, 0x02],
    ] {
        assert!(terminate::check(&wrong, &culprit).is_err(), "{wrong:02x?}");
    }
    assert_eq!(terminate::check(&[0x20, 0x02, 0, 0], &culprit), Ok(()));
    // Figure 10: a header is included unless the segment is too short for one.
    assert_eq!(terminate::check(&[0x10, 0, 0, 0], &culprit), Ok(()));
    for silent in [[0x01, 0, 0, 0], [0x02, 6, 0, 0], [0x11, 0, 0, 0], [0x12, 2, 0, 0]] {
        assert!(terminate::check(&silent, &culprit).is_err(), "{silent:02x?}");
    }
}

fn atomic_request(identifier: u32) -> Vec<u8> {
    [&[0; 4][..], &identifier.to_be_bytes(), &[0; 44]].concat()
}

fn atomic_response(identifier: u32) -> Vec<u8> {
    [&identifier.to_be_bytes()[..], &[0; 8]].concat()
}

/// RFC 7306 s5.2: atomic requests share the numbers of Reads; Atomic Responses have their own.
#[test]
fn atomic_messages_out_of_order_are_detected() {
    let read = untagged(1, true, [1, 1, 0], &request(8));
    let second = |msn| untagged(10, true, [1, msn, 0], &atomic_request(5));
    assert!(check_all(&[read.clone(), second(2)]).is_ok());
    assert!(check_all(&[read.clone(), second(1)]).is_err(), "the Read's number");
    assert!(check_all(&[read, untagged(10, true, [1, 2, 0], &[0; 51])]).is_err(), "too short");
    assert!(check_all(&[untagged(11, true, [3, 1, 0], &atomic_response(1))]).is_ok());
    assert!(
        check_all(&[untagged(11, true, [3, 2, 0], &atomic_response(1))]).is_err(),
        "the first is number 1"
    );
    assert!(check_all(&[untagged(11, true, [1, 1, 0], &atomic_response(1))]).is_err(), "another queue");
}

/// RFC 7306 s5.4: responses come in the order of the requests, Reads included.
#[test]
fn an_atomic_response_out_of_order_is_detected() {
    let mut rdmap_sender = RdmapSender::default();
    let requests = [
        untagged(10, true, [1, 1, 0], &atomic_request(5)),
        untagged(1, true, [1, 2, 0], &request(8)),
        untagged(10, true, [1, 3, 0], &atomic_request(6)),
    ];
    requests.iter().for_each(|one| assert_eq!(rdmap_sender.on_ulpdu(one), Ok(None)));
    assert!(rdmap_sender.check_atomic_response(6).is_err(), "5 is older");
    assert!(rdmap_sender.check_read_response(7, 100, 8, true).is_err(), "an atomic request is older");
    assert_eq!(rdmap_sender.check_atomic_response(5), Ok(()));
    assert!(rdmap_sender.check_atomic_response(6).is_err(), "a Read is older");
    assert_eq!(rdmap_sender.check_read_response(7, 100, 8, true), Ok(()));
    assert_eq!(rdmap_sender.check_atomic_response(6), Ok(()));
    assert!(rdmap_sender.check_atomic_response(6).is_err(), "no request is left");
}

/// RFC 7306 s6: Immediate Data is eight octets in one segment, numbered with Sends.
#[test]
fn immediates_with_a_wrong_length_or_number_are_detected() {
    let send = untagged(3, true, [0, 1, 0], &[1; 4]);
    assert!(check_all(&[send.clone(), untagged(9, true, [0, 2, 0], &[7; 8])]).is_ok());
    assert!(check_all(&[send.clone(), untagged(8, true, [0, 1, 0], &[7; 8])]).is_err(), "the Send's number");
    assert!(check_all(&[send.clone(), untagged(8, true, [0, 2, 0], &[7; 9])]).is_err(), "nine octets");
    assert!(check_all(&[send, untagged(8, false, [0, 2, 0], &[7; 8])]).is_err(), "more to come");
}
