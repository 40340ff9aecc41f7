//! Atomic operations: requests, their effect on the word, and responses.

mod request_errors;
mod responses;

use super::*;
use crate::rdmap::{AtomicRequest, AtomicResponse, Rfc7306Profile};
use ironwarp_mem::{AlignedBuf, AtomicOp};

/// The rights on a word that a peer may change.
pub(super) const ATOMIC: Access = Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC);

/// A side with this profile, on a stack of one core.
fn side_by(profile: Rfc7306Profile, role: Role, change: impl FnOnce(&mut StreamConfig)) -> Endpoint {
    let mut config = StreamConfig { extensions: Some(profile), ..config() };
    change(&mut config);
    let mut side = Endpoint::started(config, role, true);
    let limits = MemLimits { regions_max: 64, cores_max: 1 };
    side.table = MemTable::with_secret(limits, [1, 2]).unwrap();
    side.memory = side.table.core(CoreId(0)).unwrap();
    side
}

fn pair_by(profile: Rfc7306Profile) -> (Endpoint, Endpoint) {
    (side_by(profile, Role::Initiator, |_| {}), side_by(profile, Role::Responder, |_| {}))
}

fn pair() -> (Endpoint, Endpoint) {
    pair_by(Rfc7306Profile::RFC_7306)
}

/// Words in memory that is aligned to eight bytes, in the machine's byte order.
pub(super) fn words<F: Framing>(side: &Endpoint<F>, values: &[u64], access: Access) -> Region {
    let region = side.table.register(PD, lines(8 * values.len() + 8), access).unwrap();
    for (at, value) in values.iter().enumerate() {
        region.write_at(at * 8, &value.to_ne_bytes()).unwrap();
    }
    region
}

/// Memory that is aligned to eight bytes.
fn lines(bytes: usize) -> AlignedBuf {
    AlignedBuf::zeroed(bytes, 64).unwrap()
}

pub(super) fn word(region: &Region, at: usize) -> u64 {
    let mut octets = [0; 8];
    region.read_at(at * 8, &mut octets).unwrap();
    u64::from_ne_bytes(octets)
}

pub(super) fn at(region: &Region, index: u64) -> (STag, u64) {
    (region.stag(), region.base_to() + index * 8)
}

pub(super) fn atomic<F: Framing>(
    side: &mut Endpoint<F>,
    wr_id: u64,
    operation: AtomicOp,
    sink: Sge,
    (stag, to): (STag, u64),
) {
    side.post(wr_id, SendOpcode::Send, |wqe| {
        wqe.set_atomic(&operation, sink);
        (wqe.remote_stag, wqe.remote_to) = (stag, to);
    });
}

fn sink(region: &Region, index: usize) -> Sge {
    region.slice(index * 8, 8).unwrap()
}

/// A whole untagged message in one segment.
pub(super) fn segment(ulp: u8, [qn, msn, mo]: [u8; 3], payload: &[u8]) -> Vec<u8> {
    [&[0x41, ulp, 0, 0, 0, 0, 0, 0, 0, qn, 0, 0, 0, msn, 0, 0, 0, mo], payload].concat()
}

pub(super) fn request(msn: u8, (stag, tagged_offset): (STag, u64), operation: AtomicOp) -> Vec<u8> {
    let request = AtomicRequest { identifier: 77, stag, tagged_offset, operation };
    segment(0x4a, [1, msn, 0], &request.encode())
}

fn response(msn: u8, identifier: u32, original: u64) -> Vec<u8> {
    segment(0x4b, [3, msn, 0], &AtomicResponse { identifier, original }.encode())
}

fn failed([layer, etype, code]: [u8; 3]) -> Result<(), StreamError> {
    Err(StreamError::Failed(Terminate { layer, etype, code }))
}

/// RFC7306-5.1.1-07, RFC7306-5.1.2-02, RFC7306-5-03, RFC7306-5.2.1-03, RFC7306-5.2.1-11 and
/// RFC7306-5.2.1-17: each operation changes the word correctly and returns its previous value,
/// whether the comparison matches or not.
#[test]
fn each_operation_changes_the_word_and_returns_its_previous_value() {
    let (mut a, mut b) = pair();
    let target = words(&b, &[40, 0x00ff_00ff_00ff_00ff, 5], ATOMIC);
    let sinks = words(&a, &[0; 5], EVERYTHING);
    let masked = AtomicOp::FetchAdd { add: 0x0001_0001_0001_0001, mask: 0x8080_8080_8080_8080 };
    let all = [
        (AtomicOp::add(2), 0, 40),
        (masked, 1, 0x00ff_00ff_00ff_00ff),
        (AtomicOp::compare_and_swap(5, 6), 2, 5),
        (AtomicOp::compare_and_swap(5, 7), 2, 6),
        (AtomicOp::CmpSwap { compare: 0xf6, compare_mask: 0x0f, swap: 0xa0, swap_mask: 0xf0 }, 2, 6),
    ];
    for (id, (operation, index, _)) in all.into_iter().enumerate() {
        atomic(&mut a, id as u64, operation, sink(&sinks, id), at(&target, index));
    }
    run(&mut a, &mut b);
    assert_eq!(ids(&a.log.sends), [(0, OK), (1, OK), (2, OK), (3, OK), (4, OK)]);
    let originals: Vec<u64> = (0..5).map(|id| word(&sinks, id)).collect();
    assert_eq!(originals, all.map(|(_, _, original)| original));
    assert_eq!([0, 1, 2].map(|index| word(&target, index)), [42, 0, 0xa6]);
    let opcodes: Vec<_> = a.log.sends.iter().map(|one| (one.opcode, one.byte_len)).collect();
    assert_eq!((opcodes[0], opcodes[2]), ((CompletionOpcode::FetchAdd, 8), (CompletionOpcode::CmpSwap, 8)));
    assert!(b.log.receives.is_empty(), "RFC7306-5.2.1-12: the application gets no completion");
    assert_eq!(b.counted(Counter::IwarpRxAtomicRequests), 5);
}

/// RFC7306-5.2.1-09, RFC7306-5.2.1-14, RFC7306-5.2-01 and RFC7306-4.1-05: requests use queue 1,
/// numbered with Reads. RFC7306-5.2-02, RFC7306-5.2.2-02, RFC7306-5.2.2-04, RFC7306-5.2.1-04 and
/// RFC7306-5.2.2-01: responses use queue 3 and repeat the identifier of the request.
/// RFC7306-4.2-01: there is no payload after the header.
#[test]
fn requests_and_responses_have_the_specified_octets() {
    let (mut a, mut b) = pair();
    let (target, sinks) = (words(&b, &[0x0102_0304_0506_0708], EVERYTHING), words(&a, &[0; 3], EVERYTHING));
    a.read(1, sink(&sinks, 0), at(&target, 0));
    atomic(&mut a, 2, AtomicOp::add(1), sink(&sinks, 1), at(&target, 0));
    atomic(&mut a, 3, AtomicOp::add(1), sink(&sinks, 2), at(&target, 0));
    let unit = a.pull(SEGMENT_BYTES);
    let sent = ulpdus(&unit);
    let (stag, to) = at(&target, 0);
    let header =
        |seq: u8| [&[0, 0, 0, 0, 0, 0, 0, seq][..], &stag.0.to_be_bytes(), &to.to_be_bytes()].concat();
    let operands = [[0, 0, 0, 0, 0, 0, 0, 1], [0; 8], [0; 8], [0xff; 8]].concat();
    assert_eq!((sent[0][9], sent[0][13]), (1, 1), "the Read is the first message of queue 1");
    assert_eq!(sent[1], segment(0x4a, [1, 2, 0], &[header(1), operands.clone()].concat()));
    assert_eq!(sent[2], segment(0x4a, [1, 3, 0], &[header(2), operands].concat()));
    b.feed(&unit).unwrap();
    let responses = ulpdus(&b.pull(SEGMENT_BYTES));
    assert_eq!(responses[1], segment(0x4b, [3, 1, 0], &[0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(responses[2], segment(0x4b, [3, 2, 0], &[0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 9]));
}

/// RFC7306-5.4-01 and RFC7306-5.4-08: a request completes with its response, not with its
/// acknowledgement. RFC7306-5.2.2-07: the value in the response reaches the application.
#[test]
fn an_atomic_completes_with_its_response() {
    let (mut a, mut b) = pair();
    let (target, sinks) = (words(&b, &[9], ATOMIC), words(&a, &[0], EVERYTHING));
    atomic(&mut a, 1, AtomicOp::add(1), sink(&sinks, 0), at(&target, 0));
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    a.ack_all();
    assert!(a.log.sends.is_empty());
    a.feed(&b.pull(SEGMENT_BYTES)).unwrap();
    assert_eq!((ids(&a.log.sends), word(&sinks, 0)), (vec![(1, OK)], 9));
}

/// RFC7306-7-03, RFC7306-7-04, RFC7306-5.4-09, RFC7306-5.4-10, RFC7306-5.2.1-15, RFC7306-5.2.1-16
/// and RFC7306-5.2.2-09: four Reads and atomics of one word, in every order, take effect and are
/// answered in the order sent.
#[test]
fn reads_and_atomics_are_carried_out_and_answered_in_the_order_sent() {
    for kinds in 0u32..16 {
        let (mut a, mut b) = pair();
        let (target, sinks) = (words(&b, &[0], EVERYTHING), words(&a, &[77; 4], EVERYTHING));
        let mut sum = 0;
        let mut expected = Vec::new();
        for id in 0..4 {
            expected.push(sum);
            if kinds & (1 << id) == 0 {
                a.read(id, sink(&sinks, id as usize), at(&target, 0));
            } else {
                atomic(&mut a, id, AtomicOp::add(1), sink(&sinks, id as usize), at(&target, 0));
                sum += 1;
            }
        }
        b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
        // Each response in a unit of its own: no later operation has been done when it is sent.
        let responses = b.pull_all(64);
        let kind: Vec<u8> = responses.iter().flat_map(|unit| ulpdus(unit)).map(|ulpdu| ulpdu[1]).collect();
        let want: Vec<u8> = (0..4).map(|id| if kinds & (1 << id) == 0 { 0x42 } else { 0x4b }).collect();
        assert_eq!(kind, want);
        for unit in responses {
            a.feed(&unit).unwrap();
        }
        assert_eq!((0..4).map(|id| word(&sinks, id)).collect::<Vec<_>>(), expected, "{kinds:04b}");
        assert_eq!(ids(&a.log.sends), [(0, OK), (1, OK), (2, OK), (3, OK)]);
        assert_eq!(word(&target, 0), sum);
    }
}

/// RFC7306-5.4-04, RFC7306-5.4-06 and RFC7306-7-04: an atomic after a Read does not begin while the
/// Read is being answered.
#[test]
fn an_atomic_waits_for_the_whole_response_to_an_earlier_read() {
    let (mut a, mut b) = pair();
    let (target, sinks) = (words(&b, &[1; 500], EVERYTHING), words(&a, &[0; 501], EVERYTHING));
    a.read(1, sinks.slice(0, 4000).unwrap(), remote(&target));
    atomic(&mut a, 2, AtomicOp::add(5), sink(&sinks, 500), at(&target, 499));
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    let mut units = vec![b.pull(SEGMENT_BYTES), b.pull(SEGMENT_BYTES)];
    assert_eq!(word(&target, 499), 1);
    units.extend(b.pull_all(SEGMENT_BYTES));
    assert_eq!(word(&target, 499), 6);
    for unit in units {
        a.feed(&unit).unwrap();
    }
    assert_eq!((word(&sinks, 499), word(&sinks, 500)), (1, 1));
}

/// RFC7306-5.4-05, RFC7306-5.4-07, RFC7306-7-06, RFC7306-7-07 and RFC7306-7-08: messages after an
/// atomic may be placed and completed before it is answered.
#[test]
fn later_messages_may_complete_before_an_unanswered_atomic() {
    let (mut a, mut b) = pair();
    let (target, sinks) = (words(&b, &[1, 2], EVERYTHING), words(&a, &[3], EVERYTHING));
    b.receive(1, &[]);
    b.receive(2, &[]);
    atomic(&mut a, 1, AtomicOp::add(1), sink(&sinks, 0), at(&target, 0));
    a.write(2, &[sink(&sinks, 0)], at(&target, 1));
    a.send_inline(3, b"");
    a.post(4, SendOpcode::Immediate, |wqe| wqe.set_inline(&[8; 8]));
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    assert_eq!((word(&target, 0), word(&target, 1)), (1, 3));
    assert_eq!(ids(&b.log.receives), [(1, OK), (2, OK)]);
    run(&mut a, &mut b);
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK), (3, OK), (4, OK)]);
}

/// RFC7306-5.2-01: at most ORD Reads and atomics together are outstanding, and a fence waits for
/// both.
#[test]
fn reads_and_atomics_share_ord() {
    let mut a = side_by(Rfc7306Profile::RFC_7306, Role::Initiator, |config| config.ord = 2);
    let mut b = side_by(Rfc7306Profile::RFC_7306, Role::Responder, |config| config.ird = 2);
    let (target, sinks) = (words(&b, &[0], EVERYTHING), words(&a, &[0; 3], EVERYTHING));
    a.read(1, sink(&sinks, 0), at(&target, 0));
    atomic(&mut a, 2, AtomicOp::add(1), sink(&sinks, 1), at(&target, 0));
    atomic(&mut a, 3, AtomicOp::add(1), sink(&sinks, 2), at(&target, 0));
    a.post(4, SendOpcode::Send, |wqe| {
        wqe.set_inline(b"");
        wqe.flags.insert(SendFlags::FENCE);
    });
    assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES)).len(), 2, "two are outstanding");
    assert!(a.pull(SEGMENT_BYTES).is_empty());
    // The responses make room for the third. The fence holds until that is answered too.
    let (mut again, _) = (Endpoint::initiator(), ());
    let _ = again.pull(SEGMENT_BYTES);
    let (stag, to) = at(&target, 0);
    let read = crate::rdmap::ReadRequest {
        sink_stag: sinks.stag(),
        sink_to: sinks.base_to(),
        bytes: 8,
        source_stag: stag,
        source_to: to,
    };
    b.feed(&framed(&segment(0x41, [1, 1, 0], &read.encode()))).unwrap();
    a.feed(&b.pull(SEGMENT_BYTES)).unwrap();
    assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES))[0][1], 0x4a, "the third");
    assert!(a.pull(SEGMENT_BYTES).is_empty(), "fenced");
    a.feed(&framed(&response(1, 1, 5))).unwrap();
    assert!(a.pull(SEGMENT_BYTES).is_empty(), "still fenced");
    a.feed(&framed(&response(2, 2, 6))).unwrap();
    assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES))[0][1], 0x43);
}

/// RFC7306-5.2.2-05 and RFC7306-5.2.1-10: each request takes one of IRD buffers of queue 1.
#[test]
fn more_requests_than_ird_find_no_buffer() {
    let mut b = side_by(Rfc7306Profile::RFC_7306, Role::Responder, |config| config.ird = 2);
    let target = words(&b, &[0], ATOMIC);
    for msn in 1..3 {
        b.feed(&framed(&request(msn, at(&target, 0), AtomicOp::add(1)))).unwrap();
    }
    assert_eq!(b.feed(&framed(&request(3, at(&target, 0), AtomicOp::add(1)))), failed([1, 2, 2]));
    assert_eq!(word(&target, 0), 0);
}

/// Drafts -01 and -03 have Swap. With figure 2 of -01, responses are messages of queue 1, numbered
/// with the requests of their sender.
#[test]
fn swap_and_the_queues_of_figure_2_follow_the_drafts() {
    for (profile, qn) in [(Rfc7306Profile::DRAFT_03, 3), (Rfc7306Profile::DRAFT_01_FIGURE_2, 1)] {
        let (mut a, mut b) = pair_by(profile);
        let (target, sinks) = (words(&b, &[7], EVERYTHING), words(&a, &[0; 2], EVERYTHING));
        let (local, peer) = (words(&a, &[1], EVERYTHING), words(&b, &[0], EVERYTHING));
        atomic(&mut a, 1, AtomicOp::Swap { swap: 8 }, sink(&sinks, 0), at(&target, 0));
        let unit = a.pull(SEGMENT_BYTES);
        b.feed(&unit).unwrap();
        let unit = b.pull(SEGMENT_BYTES);
        assert_eq!(ulpdus(&unit)[0][1..14], segment(0x4b, [qn, 1, 0], &[])[1..14]);
        a.feed(&unit).unwrap();
        assert_eq!((word(&target, 0), word(&sinks, 0)), (8, 7));
        assert_eq!(a.log.sends[0].opcode, CompletionOpcode::Swap);
        // Both sides send requests and responses at once.
        atomic(&mut a, 2, AtomicOp::add(1), sink(&sinks, 1), at(&target, 0));
        atomic(&mut b, 3, AtomicOp::add(1), sink(&peer, 0), at(&local, 0));
        run(&mut a, &mut b);
        assert_eq!((word(&sinks, 1), word(&peer, 0)), (8, 1));
        assert_eq!((ids(&a.log.sends).len(), ids(&b.log.sends)), (2, vec![(3, OK)]));
    }
}

/// RFC7306-5.3-01: concurrent additions of many streams to one word are all counted.
#[test]
fn additions_of_many_streams_to_one_word_are_all_counted() {
    let mut b = side_by(Rfc7306Profile::RFC_7306, Role::Responder, |_| {});
    let target = words(&b, &[0], ATOMIC);
    let mut streams = Vec::new();
    for _ in 0..8 {
        let config = StreamConfig { extensions: Some(Rfc7306Profile::RFC_7306), ird: 8, ..config() };
        let mut stream = Stream::new(config);
        stream.start(StreamStart::plain(Role::Responder, true));
        streams.push(stream);
    }
    for msn in 1..9 {
        for stream in &mut streams {
            core::mem::swap(stream, &mut b.stream);
            b.feed(&framed(&request(msn, at(&target, 0), AtomicOp::add(3)))).unwrap();
            core::mem::swap(stream, &mut b.stream);
        }
    }
    for stream in &mut streams {
        core::mem::swap(stream, &mut b.stream);
        assert_eq!(b.pull_all(40).len(), 8);
        core::mem::swap(stream, &mut b.stream);
    }
    assert_eq!(word(&target, 0), 8 * 8 * 3);
}

/// Returns whether a side with one request of `operation`, and optionally a later immediate,
/// concludes from a Terminate that the peer has no atomics.
fn concludes_no_atomics(operation: AtomicOp, immediate: bool, terminate: &[u8]) -> bool {
    let mut side = side_by(Rfc7306Profile::DRAFT_03, Role::Initiator, |_| {});
    let sinks = words(&side, &[1], EVERYTHING);
    atomic(&mut side, 1, operation, sink(&sinks, 0), (STag(1), 0));
    if immediate {
        side.post(2, SendOpcode::Immediate, |wqe| wqe.set_inline(&[0; 8]));
    }
    let _ = side.pull(SEGMENT_BYTES);
    assert!(side.feed(&framed(&segment(0x47, [2, 1, 0], terminate))).is_err());
    side.stream.peer_lacks_atomics()
}

/// RFC 7306 s1.1: an unexpected opcode means that the peer has no atomics, if no other message can
/// be the cause. Errors of tag, bounds and right mean that it has them.
#[test]
fn only_an_unexpected_opcode_means_that_the_peer_lacks_atomics() {
    let (probe, swap) = (AtomicOp::add(0), AtomicOp::Swap { swap: 0 });
    let including = |control: u8| [&[0x02, 0x06, 0xc0, 0, 0, 70, 0x41, control][..], &[0; 16]].concat();
    assert!(
        concludes_no_atomics(probe, false, &including(0x4a))
            && concludes_no_atomics(probe, true, &including(0x4a))
    );
    assert!(concludes_no_atomics(AtomicOp::compare_and_swap(0, 0), false, &including(0x4a)));
    assert!(!concludes_no_atomics(probe, true, &including(0x48)), "caused by the immediate");
    // No header is included.
    let bare = [0x02, 0x06, 0, 0];
    assert!(concludes_no_atomics(probe, false, &bare) && !concludes_no_atomics(probe, true, &bare));
    assert!(concludes_no_atomics(probe, false, &[0x20, 0x06, 0, 0]), "in the octet order of Linux siw");
    assert!(
        !concludes_no_atomics(swap, false, &bare) && !concludes_no_atomics(swap, false, &including(0x4a)),
        "the drafts' own"
    );
    for other in
        [[0x01, 0x00, 0, 0], [0x01, 0x01, 0, 0], [0x01, 0x02, 0, 0], [0x02, 0x07, 0, 0], [0x12, 0x06, 0, 0]]
    {
        assert!(!concludes_no_atomics(probe, false, &other), "{other:02x?}");
    }
}

/// RFC7306-1.1-04: a FetchAdd of 0 returns the value and does not change it.
#[test]
fn a_fetch_add_of_0_changes_nothing() {
    let (mut a, mut b) = pair();
    let (target, sinks) = (words(&b, &[9], ATOMIC), words(&a, &[0], EVERYTHING));
    atomic(&mut a, 1, AtomicOp::add(0), sink(&sinks, 0), at(&target, 0));
    run(&mut a, &mut b);
    assert_eq!((ids(&a.log.sends), word(&sinks, 0), word(&target, 0)), (vec![(1, OK)], 9, 9));
}
