//! Refused segments: the Terminate of each, and unchanged memory.

use super::*;
use crate::ddp::{Tagged, Untagged};
use crate::rdmap::ReadRequest;

/// A responder with one registered buffer and two posted receives of 64 octets.
struct ErrorFixture {
    side: Endpoint,
    buffer: Region,
    inbox: Region,
}

fn fixture() -> ErrorFixture {
    fixture_with(EVERYTHING)
}

fn fixture_with(access: Access) -> ErrorFixture {
    let mut side = Endpoint::responder();
    let (buffer, inbox) = (side.filled(4096, access), side.filled(64, EVERYTHING));
    side.receive(1, &[all(&inbox)]);
    side.receive(2, &[all(&inbox)]);
    ErrorFixture { side, buffer, inbox }
}

fn untagged(opcode: u8, qn: u32, msn: u32, mo: u32) -> Untagged {
    Untagged { last: true, ulp: 0x40 | opcode, ulp_word: 0, qn, msn, mo }
}

fn with_payload(header: Untagged, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0; 18];
    header.encode(&mut ulpdu);
    ulpdu.extend(payload);
    ulpdu
}

fn tagged(opcode: u8, stag: STag, tagged_offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0; 14];
    Tagged { last: true, ulp: 0x40 | opcode, stag, tagged_offset }.encode(&mut ulpdu);
    ulpdu.extend(payload);
    ulpdu
}

fn read_request(msn: u32, stag: STag, source_to: u64, bytes: u32) -> Vec<u8> {
    let request = ReadRequest { sink_stag: STag(3), sink_to: 4, bytes, source_stag: stag, source_to };
    with_payload(untagged(1, 1, msn, 0), &request.encode())
}

/// The headers of the offending message in a Terminate (RFC 5040 s4.8, figure 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Includes {
    Nothing,
    Segment,
    Request,
}

impl ErrorFixture {
    /// Feeds one segment and checks everything: the error, the Terminate on the wire, memory,
    /// completions, and that nothing more is sent or read.
    fn refuses(mut self, ulpdu: &[u8], layer: u8, etype: u8, code: u8, includes: Includes) {
        let error = Terminate { layer, etype, code };
        assert_eq!(self.side.feed(&framed(ulpdu)), Err(StreamError::Failed(error)));
        assert_eq!(Endpoint::bytes(&self.buffer), pattern(4096), "the buffer was changed");
        assert_eq!(Endpoint::bytes(&self.inbox), pattern(64), "the receive's memory was changed");
        assert_eq!(self.side.log.receives.len(), 2);
        assert!(self.side.log.receives.iter().all(|completion| completion.status != OK));
        let sent = ulpdus(&self.side.pull(SEGMENT_BYTES)).remove(0);
        assert_eq!(sent, terminate_ulpdu(error, ulpdu, includes));
        assert!(self.side.pull(SEGMENT_BYTES).is_empty(), "a Terminate is the last message");
        assert_eq!(
            self.side.feed(&framed(&tagged(0, self.buffer.stag(), self.buffer.base_to(), b"late"))),
            Ok(())
        );
        assert_eq!(Endpoint::bytes(&self.buffer), pattern(4096), "data after the error was placed");
        assert_eq!(self.side.arrived.available(), 0, "later octets are consumed and dropped");
    }
}

/// RFC 5040 s4.8, figure 7.
fn terminate_ulpdu(error: Terminate, terminated_headers: &[u8], includes: Includes) -> Vec<u8> {
    let bits = [0x00, 0xc0, 0xe0][includes as usize];
    let mut payload = vec![error.layer << 4 | error.etype, error.code, bits, 0];
    if includes != Includes::Nothing {
        let header = if terminated_headers[0] & 0x80 != 0 { 14 } else { 18 };
        payload.extend((terminated_headers.len() as u16).to_be_bytes());
        payload.extend(&terminated_headers[..header]);
    }
    if includes == Includes::Request {
        payload.extend(&terminated_headers[18..46]);
    }
    with_payload(untagged(7, 2, 1, 0), &payload)
}

/// RFC 5041 s7.1, tagged check 1.
/// RFC 5040 s5.1, s7 and s7.1; RFC 5041 s3 and s4.2.
#[test]
fn a_write_to_an_unknown_stag_is_refused() {
    let v = fixture();
    let ulpdu = tagged(0, STag(v.buffer.stag().0 ^ 0x5555), v.buffer.base_to(), b"x");
    v.refuses(&ulpdu, 1, 1, 0, Includes::Segment);
}

/// RFC 5041 has no code for a missing right. The steering tag does not allow the placement.
#[test]
fn a_write_without_the_right_is_refused() {
    let v = fixture_with(Access::LOCAL_WRITE | Access::REMOTE_READ);
    let ulpdu = tagged(0, v.buffer.stag(), v.buffer.base_to(), b"x");
    v.refuses(&ulpdu, 1, 1, 0, Includes::Segment);
}

/// A right that the stream withholds is refused as one that the region lacks. The others remain.
#[test]
fn a_right_that_the_stream_withholds_is_refused() {
    let mut v = fixture();
    v.side.stream.set_remote_access(Access::REMOTE_READ | Access::REMOTE_ATOMIC);
    let ulpdu = tagged(0, v.buffer.stag(), v.buffer.base_to(), b"x");
    v.refuses(&ulpdu, 1, 1, 0, Includes::Segment);
    let mut v = fixture();
    v.side.stream.set_remote_access(Access::REMOTE_WRITE);
    let allowed = tagged(0, v.buffer.stag(), v.buffer.base_to(), &pattern(64));
    assert_eq!(v.side.feed(&framed(&allowed)), Ok(()));
    let ulpdu = read_request(1, v.buffer.stag(), v.buffer.base_to(), 8);
    v.refuses(&ulpdu, 0, 1, 2, Includes::Request);
}

/// A Read that was accepted gets no more of its source once the right is withdrawn.
#[test]
fn a_right_that_is_withdrawn_ends_a_response() {
    let (mut a, mut b) = pair();
    let (source, sink) = (b.filled(4096, EVERYTHING), a.region(4096, EVERYTHING));
    a.read(1, all(&sink), remote(&source));
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    assert!(!b.pull(SEGMENT_BYTES).is_empty());
    b.stream.set_remote_access(Access::empty());
    b.pull_all(SEGMENT_BYTES);
    assert_eq!(b.stream.error(), Some(StreamError::Failed(Terminate { layer: 0, etype: 1, code: 2 })));
}

/// RFC 5041 s8.2: the protection domain must be the stream's.
#[test]
fn a_write_to_another_protection_domain_is_refused() {
    let v = fixture();
    let foreign = v.side.table.register(PdId(2), vec![0u8; 64], EVERYTHING).unwrap();
    let ulpdu = tagged(0, foreign.stag(), foreign.base_to(), b"x");
    v.refuses(&ulpdu, 1, 1, 2, Includes::Segment);
}

/// RFC 5041 s7.1, tagged checks 3 and 4.
/// RFC 5040 s3.1.
#[test]
fn a_write_outside_its_buffer_is_refused() {
    for (at, bytes) in [(4096, 1), (4095, 2), (0u64.wrapping_sub(1), 1), (u64::MAX / 4, 1)] {
        let v = fixture();
        let ulpdu = tagged(0, v.buffer.stag(), v.buffer.base_to().wrapping_add(at), &pattern(bytes));
        v.refuses(&ulpdu, 1, 1, 1, Includes::Segment);
    }
}

/// RFC 5041 s7.1, tagged check 5. The code differs from RDMAP's for the same error.
#[test]
fn a_write_whose_offset_wraps_is_refused() {
    let v = fixture();
    let ulpdu = tagged(0, v.buffer.stag(), u64::MAX - 1, b"abc");
    v.refuses(&ulpdu, 1, 1, 3, Includes::Segment);
}

/// RFC 5041 s7.2: the version error has a code of its own for each kind of segment.
/// RFC 5040 s7.2; RFC 5041 s6.2.2.
#[test]
fn a_segment_of_another_ddp_version_is_refused() {
    let v = fixture();
    let mut ulpdu = tagged(0, v.buffer.stag(), v.buffer.base_to(), b"x");
    ulpdu[0] ^= 3;
    v.refuses(&ulpdu, 1, 1, 4, Includes::Segment);
    let mut ulpdu = with_payload(untagged(3, 0, 1, 0), b"x");
    ulpdu[0] = 0x40;
    fixture().refuses(&ulpdu, 1, 2, 6, Includes::Segment);
}

/// RFC 5041 s7.1, untagged check 1.
/// RFC 5040 s6.2.1.
#[test]
fn a_message_to_an_unknown_queue_is_refused() {
    for qn in [3, 4, u32::MAX] {
        fixture().refuses(&with_payload(untagged(3, qn, 1, 0), b"x"), 1, 2, 1, Includes::Segment);
    }
}

/// RFC 5041 s7.1, untagged check 5.
#[test]
fn a_send_that_is_not_the_next_message_is_refused() {
    for msn in [0, 2, 3, u32::MAX] {
        fixture().refuses(&with_payload(untagged(3, 0, msn, 0), b"x"), 1, 2, 3, Includes::Segment);
    }
}

/// RFC 5041 s7.1, untagged check 3.
#[test]
fn a_send_whose_offset_does_not_continue_the_message_is_refused() {
    for mo in [1, 64, 65, u32::MAX] {
        fixture().refuses(&with_payload(untagged(3, 0, 1, mo), b"x"), 1, 2, 4, Includes::Segment);
    }
}

/// RFC 5041 s7.1, untagged check 2. iWARP has no receiver-not-ready.
/// RFC 5040 s5.4.
#[test]
fn a_send_without_a_posted_receive_is_refused() {
    let mut side = Endpoint::responder();
    let ulpdu = with_payload(untagged(3, 0, 1, 0), b"x");
    let error = Terminate { layer: 1, etype: 2, code: 2 };
    assert_eq!(side.feed(&framed(&ulpdu)), Err(StreamError::Failed(error)));
    assert_eq!(ulpdus(&side.pull(SEGMENT_BYTES)), [terminate_ulpdu(error, &ulpdu, Includes::Segment)]);
}

/// RFC 5041 s7.1, untagged check 4. The receive completes with the reason.
/// RFC 5040 s5.3; RFC 5041 s6.2.2.
#[test]
fn a_send_longer_than_its_receive_is_refused() {
    let v = fixture();
    let mut seen = fixture();
    let ulpdu = with_payload(untagged(3, 0, 1, 0), &pattern(65));
    v.refuses(&ulpdu, 1, 2, 5, Includes::Segment);
    let _ = seen.side.feed(&framed(&ulpdu));
    assert_eq!(ids(&seen.side.log.receives), [(1, CompletionStatus::LocalLength), (2, FLUSHED)]);
}

/// RFC 5040 s7.2: unknown operations, and known ones where they are not allowed.
#[test]
fn an_operation_that_is_not_allowed_is_refused() {
    for opcode in [0, 1, 2, 7, 8, 9, 15] {
        fixture().refuses(&with_payload(untagged(opcode, 0, 1, 0), b"x"), 0, 2, 6, Includes::Segment);
    }
    for opcode in [0, 2, 3, 7, 10] {
        let ulpdu = with_payload(untagged(opcode, 1, 1, 0), &[0; 28]);
        fixture().refuses(&ulpdu, 0, 2, 6, Includes::Segment);
    }
    for opcode in [1, 3, 6, 7, 11] {
        let v = fixture();
        let ulpdu = tagged(opcode, v.buffer.stag(), v.buffer.base_to(), b"x");
        v.refuses(&ulpdu, 0, 2, 6, Includes::Segment);
    }
    fixture().refuses(&with_payload(untagged(3, 2, 1, 0), &[0; 4]), 0, 2, 6, Includes::Segment);
}

/// RFC 5040 s7.2: the version is checked in Sends and in Read Requests.
#[test]
fn a_message_of_another_rdmap_version_is_refused() {
    for version in [0x00, 0x80, 0xc0] {
        let mut header = untagged(3, 0, 1, 0);
        header.ulp = version | 3;
        fixture().refuses(&with_payload(header, b"x"), 0, 2, 5, Includes::Segment);
        // A Read Request is an untagged segment: the Terminate includes its header, not its
        // payload.
        let v = fixture();
        let mut request = read_request(1, v.buffer.stag(), v.buffer.base_to(), 64);
        request[1] = version | 1;
        v.refuses(&request, 0, 2, 5, Includes::Segment);
    }
}

/// RFC 5040 s5.3: a steering tag that may not be invalidated is found before the payload is placed.
#[test]
fn a_send_with_a_tag_that_may_not_be_invalidated_is_refused() {
    for opcode in [4, 6] {
        let v = fixture();
        let mut header = untagged(opcode, 0, 1, 0);
        header.ulp_word = v.buffer.stag().0;
        v.refuses(&with_payload(header, b"x"), 0, 1, 9, Includes::Segment);
    }
}

/// RFC 5040 s7.2, check 4: each error has its code, and the Terminate includes the request.
/// RFC 5040 s5.2.1 and s7.1.
#[test]
fn a_read_of_memory_that_may_not_be_read_is_refused() {
    let ask = |v: &ErrorFixture, to: u64, bytes| read_request(1, v.buffer.stag(), to, bytes);
    let v = fixture();
    v.refuses(&read_request(1, STag(0), 0, 1), 0, 1, 0, Includes::Request);
    let v = fixture();
    let ulpdu = ask(&v, v.buffer.base_to() + 4090, 7);
    v.refuses(&ulpdu, 0, 1, 1, Includes::Request);
    let v = fixture_with(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let ulpdu = ask(&v, v.buffer.base_to(), 1);
    v.refuses(&ulpdu, 0, 1, 2, Includes::Request);
    let v = fixture();
    let foreign = v.side.table.register(PdId(2), vec![0u8; 64], EVERYTHING).unwrap();
    v.refuses(&read_request(1, foreign.stag(), foreign.base_to(), 1), 0, 1, 3, Includes::Request);
    let v = fixture();
    let ulpdu = ask(&v, u64::MAX, 2);
    v.refuses(&ulpdu, 0, 1, 4, Includes::Request);
}

/// RFC 5040 s5.2.2: one Read more than the IRD finds no buffer on queue 1.
/// RFC 5040 s5.2.1 and s6.1.
#[test]
fn one_read_more_than_ird_is_refused() {
    let mut v = fixture();
    for msn in 1..=4 {
        v.side.feed(&framed(&read_request(msn, v.buffer.stag(), v.buffer.base_to(), 4096))).unwrap();
    }
    let ulpdu = read_request(5, v.buffer.stag(), v.buffer.base_to(), 1);
    v.refuses(&ulpdu, 1, 2, 2, Includes::Segment);
}

/// A queue-1 buffer holds exactly one Read Request header.
/// RFC 5040 s7.2.
#[test]
fn a_read_request_of_another_size_is_refused() {
    fixture().refuses(&with_payload(untagged(1, 1, 1, 0), &[0; 29]), 1, 2, 5, Includes::Segment);
    fixture().refuses(&with_payload(untagged(1, 1, 1, 0), &[0; 27]), 0, 2, 0xff, Includes::Segment);
    let mut header = untagged(1, 1, 1, 0);
    header.last = false;
    fixture().refuses(&with_payload(header, &[0; 28]), 0, 2, 7, Includes::Segment);
    fixture().refuses(&with_payload(untagged(1, 1, 2, 0), &[0; 28]), 1, 2, 3, Includes::Segment);
    fixture().refuses(&with_payload(untagged(1, 1, 1, 4), &[0; 24]), 1, 2, 4, Includes::Segment);
}

/// A response without a Read is refused, even to memory that may be written.
#[test]
fn a_response_without_a_read_is_refused() {
    let v = fixture();
    let ulpdu = tagged(2, v.buffer.stag(), v.buffer.base_to(), b"x");
    v.refuses(&ulpdu, 0, 2, 6, Includes::Segment);
}

/// The sink of a Read needs only the local write right, so a Write to it is refused.
#[test]
fn a_write_to_the_sink_of_a_read_is_refused() {
    let mut v = fixture_with(Access::LOCAL_WRITE);
    v.side.feed(&framed(&tagged(0, STag(0), 0, b""))).unwrap();
    v.side.read(1, all(&v.buffer), (STag(1), 0));
    assert!(!v.side.pull(SEGMENT_BYTES).is_empty());
    let ulpdu = tagged(0, v.buffer.stag(), v.buffer.base_to(), b"x");
    v.refuses(&ulpdu, 1, 1, 0, Includes::Segment);
}

/// The sink is deregistered before the response arrives. The Read reports that, and later requests
/// are flushed.
#[test]
fn a_read_whose_sink_was_deregistered_fails() {
    let (mut a, mut b) = pair();
    let (sink, source) = (a.region(8, EVERYTHING), b.filled(8, EVERYTHING));
    a.read(1, all(&sink), remote(&source));
    a.write(2, &[], (STag(1), 0));
    for unit in a.pull_all(SEGMENT_BYTES) {
        b.feed(&unit).unwrap();
    }
    drop(sink);
    let response = b.pull(SEGMENT_BYTES);
    let error = Terminate { layer: 1, etype: 1, code: 0 };
    assert_eq!(a.feed(&response), Err(StreamError::Failed(error)));
    assert_eq!(ids(&a.log.sends), [(1, CompletionStatus::LocalProtection), (2, FLUSHED)]);
}

/// The source of a long response is resolved for every segment. RFC 5040 s4.8: the request in the
/// Terminate shows what was not sent.
#[test]
fn a_read_whose_source_is_revoked_during_the_response_ends_the_stream() {
    let mut v = fixture();
    let ulpdu = read_request(1, v.buffer.stag(), v.buffer.base_to(), 4096);
    v.side.feed(&framed(&ulpdu)).unwrap();
    let sent = ulpdus(&v.side.pull(SEGMENT_BYTES)).remove(0).len() as u32 - 14;
    let ErrorFixture { mut side, buffer, .. } = v;
    drop(buffer);
    assert!(side.pull(SEGMENT_BYTES).is_empty());
    let error = Terminate { layer: 0, etype: 1, code: 0 };
    assert_eq!(side.stream.error(), Some(StreamError::Failed(error)));
    let mut terminated_headers = ulpdu;
    let left = ReadRequest::decode(&terminated_headers[18..]).unwrap().advanced(sent).encode();
    terminated_headers[18..].copy_from_slice(&left);
    assert_eq!(
        ulpdus(&side.pull(SEGMENT_BYTES)),
        [terminate_ulpdu(error, &terminated_headers, Includes::Request)]
    );
}

/// RFC 5044 s8, code 2: nothing of the FPDU is used or delivered. The Terminate includes no header.
/// RFC 5041 s6.2.2; RFC 5044 s4.4 and s6.
#[test]
fn a_wrong_crc_ends_the_stream() {
    let mut v = fixture();
    let mut fpdu = framed(&tagged(0, v.buffer.stag(), v.buffer.base_to(), b"x"));
    fpdu[16] ^= 1;
    let error = Terminate { layer: 2, etype: 0, code: 2 };
    assert_eq!(v.side.feed(&fpdu), Err(StreamError::Failed(error)));
    assert_eq!(Endpoint::bytes(&v.buffer), pattern(4096));
    assert_eq!(ulpdus(&v.side.pull(SEGMENT_BYTES)), [terminate_ulpdu(error, &[], Includes::Nothing)]);
    assert_eq!(v.side.counted(Counter::IwarpRxCrcErrors), 1);
}

/// RFC 5041 s7.1: segments after the refused one are dropped, also those that arrived with it.
#[test]
fn segments_that_arrive_with_the_error_are_dropped() {
    let mut v = fixture();
    let bad = framed(&tagged(0, STag(0), 0, b"x"));
    let good = framed(&tagged(0, v.buffer.stag(), v.buffer.base_to(), b"\xff"));
    assert!(v.side.feed(&[bad, good].concat()).is_err());
    assert_eq!(v.side.arrived.available(), 0);
    assert_eq!(Endpoint::bytes(&v.buffer), pattern(4096));
}

#[test]
fn a_ulpdu_too_short_for_a_header_is_refused() {
    fixture().refuses(&[], 1, 0, 0, Includes::Nothing);
    fixture().refuses(&[0x41; 10], 1, 0, 0, Includes::Nothing);
}

/// RFC 5040 s7.1, case 1: for a local error a Terminate replaces the message and includes no
/// headers.
#[test]
fn a_send_that_cannot_be_carried_out_ends_the_stream() {
    let mut a = Endpoint::initiator();
    let source = a.filled(8, EVERYTHING);
    let mut bad = all(&source);
    bad.len = 9;
    a.send(1, &[all(&source)]);
    a.send(2, &[bad]);
    a.send(3, &[all(&source)]);
    let good = a.pull(SEGMENT_BYTES);
    assert_eq!(ulpdus(&good).len(), 1);
    let error = Terminate { layer: 0, etype: 0, code: 0 };
    assert_eq!(a.stream.error(), Some(StreamError::Failed(error)));
    assert_eq!(ids(&a.log.sends), [(1, FLUSHED), (2, CompletionStatus::LocalProtection), (3, FLUSHED)]);
    assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES)), [terminate_ulpdu(error, &[], Includes::Nothing)]);
    assert_eq!(a.counted(Counter::IwarpLocalErrors), 1);
}

/// RFC 5041 s5.2.
#[test]
fn each_local_error_has_its_completion_status() {
    fn outcome(post: impl FnOnce(&mut Endpoint)) -> CompletionStatus {
        let mut a = Endpoint::started(StreamConfig { ord: 0, ..config() }, Role::Initiator, true);
        post(&mut a);
        assert!(a.pull(SEGMENT_BYTES).is_empty());
        a.log.sends[0].status
    }
    let nowhere = Sge { addr: 0, len: 1, lkey: STag(0) };
    let huge = Sge { addr: 0, len: u32::MAX, lkey: STag(0) };
    assert_eq!(outcome(|a| a.send(1, &[nowhere])), CompletionStatus::LocalProtection);
    assert_eq!(outcome(|a| a.write(1, &[huge], (STag(1), 0))), CompletionStatus::LocalLength);
    // RFC5041-5.2-02: the lengths of a list are added without wrapping.
    let half = Sge { addr: 0, len: 1 << 31, lkey: STag(0) };
    for list in [vec![half; 2], vec![half, half, Sge { len: 1, ..half }]] {
        assert_eq!(outcome(|a| a.write(1, &list, (STag(1), 0))), CompletionStatus::LocalLength);
        assert_eq!(outcome(|a| a.send(1, &list)), CompletionStatus::LocalLength);
    }
    assert_eq!(outcome(|a| a.send_inline(1, &[0; 257])), CompletionStatus::LocalLength);
    assert_eq!(outcome(|a| a.read(1, nowhere, (STag(1), 0))), CompletionStatus::LocalOperation);
}

#[test]
fn a_read_needs_one_writable_sink() {
    fn outcome(sinks: impl FnOnce(&Endpoint) -> Vec<Sge>) -> CompletionStatus {
        let mut a = Endpoint::initiator();
        let list = sinks(&a);
        a.post(1, SendOpcode::Read, |wqe| wqe.set_gather(&list));
        assert!(a.pull(SEGMENT_BYTES).is_empty());
        a.log.sends[0].status
    }
    let read_only = |a: &Endpoint| {
        let region = a.region(8, Access::REMOTE_READ);
        let sge = all(&region);
        std::mem::forget(region);
        vec![sge]
    };
    assert_eq!(outcome(read_only), CompletionStatus::LocalProtection);
    assert_eq!(outcome(|_| vec![]), CompletionStatus::LocalOperation);
    assert_eq!(outcome(|_| vec![Sge::default(); 2]), CompletionStatus::LocalOperation);
}

/// The receive names memory that it may not use. The Terminate reports a local error only.
#[test]
fn a_receive_with_invalid_memory_ends_the_stream() {
    let mut side = Endpoint::responder();
    side.receive(1, &[Sge { addr: 0, len: 64, lkey: STag(0) }]);
    let error = Terminate { layer: 0, etype: 0, code: 0 };
    let fpdu = framed(&with_payload(untagged(3, 0, 1, 0), b"x"));
    assert_eq!(side.feed(&fpdu), Err(StreamError::Failed(error)));
    assert_eq!(ids(&side.log.receives), [(1, CompletionStatus::LocalProtection)]);
}

/// RFC 5040 s5.4: a received Terminate flushes everything, and nothing is sent in reply.
/// RFC 5040 s6.2.1.
#[test]
fn a_received_terminate_is_not_answered() {
    for octets in [[0x12, 0x02, 0x00, 0x00], [0x21, 0x02, 0x03, 0x00]] {
        let mut v = fixture();
        v.side.send_inline(5, b"lost");
        let fpdu = framed(&with_payload(untagged(7, 2, 1, 0), &octets));
        let error = Terminate { layer: 1, etype: 2, code: 2 };
        assert_eq!(v.side.feed(&fpdu), Err(StreamError::PeerTerminated(error)));
        assert_eq!(ids(&v.side.log.sends), [(5, FLUSHED)]);
        assert_eq!(ids(&v.side.log.receives), [(1, FLUSHED), (2, FLUSHED)]);
        assert!(v.side.pull(SEGMENT_BYTES).is_empty());
        assert_eq!(v.side.stream.state(), StreamState::Ended);
    }
}

#[test]
fn a_terminate_without_an_error_code_is_refused() {
    fixture().refuses(&with_payload(untagged(7, 2, 1, 0), &[0x12]), 0, 2, 0xff, Includes::Segment);
    fixture().refuses(&with_payload(untagged(7, 2, 2, 0), &[0; 4]), 1, 2, 3, Includes::Segment);
}

/// RFC 5044 s7.1.2, rule 4 applies to the Terminate too.
#[test]
fn a_responder_that_received_no_fpdu_ends_without_a_terminate() {
    let mut v = fixture();
    v.side.with(|stream, io| stream.terminate(Terminate { layer: 2, etype: 0, code: 5 }, io));
    assert!(v.side.pull(SEGMENT_BYTES).is_empty());
    assert_eq!(v.side.stream.state(), StreamState::Ended);
    assert_eq!(ids(&v.side.log.receives), [(1, FLUSHED), (2, FLUSHED)]);
}

/// Requests posted after the end are flushed. Unsignalled ones get a completion too.
#[test]
fn requests_posted_after_the_end_are_flushed() {
    let mut a = Endpoint::initiator();
    a.with(|stream, io| stream.abort(io));
    a.post(1, SendOpcode::Send, |wqe| wqe.flags = SendFlags::empty());
    a.receive(2, &[]);
    a.with(|stream, io| stream.flush(io));
    assert_eq!((ids(&a.log.sends), ids(&a.log.receives)), (vec![(1, FLUSHED)], vec![(2, FLUSHED)]));
    assert!(a.pull(SEGMENT_BYTES).is_empty());
}

/// A Terminate is the next unit after those that TCP has pulled. Sends that were not pulled are
/// never sent. RFC 5040 s7.1; RFC 5041 s6.2.2.
#[test]
fn a_terminate_is_sent_before_all_waiting_messages() {
    let mut v = fixture();
    v.side.send_inline(1, b"waits");
    v.side.feed(&framed(&read_request(1, v.buffer.stag(), v.buffer.base_to(), 4096))).unwrap();
    let _ = v.side.feed(&framed(&tagged(0, STag(0), 0, b"x")));
    let units = v.side.pull_all(SEGMENT_BYTES);
    assert_eq!(units.len(), 1);
    assert_eq!(ulpdus(&units[0])[0][1] & 0x0f, 7);
}
