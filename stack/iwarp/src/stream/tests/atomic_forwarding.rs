//! Atomic operations on words of other cores, as a stream sees them: when it forwards which
//! operation, and its responses.

use super::atomic::{ATOMIC, at, request, segment, word, words};
use super::*;
use crate::rdmap::{ReadRequest, Rfc7306Profile};
use ironwarp_mem::AccessError;

/// The owner core of the words. The stream is on core 0.
const OTHER: CoreId = CoreId(1);

/// A responder on core 0 of two cores with this number of credits, and one word of each core.
pub(super) fn side(credits: usize) -> (Endpoint, Region, [u64; 2]) {
    let config = StreamConfig { extensions: Some(Rfc7306Profile::RFC_7306), ..config() };
    let mut side = Endpoint::started(config, Role::Responder, true);
    side.log.credits = credits;
    let region = words(&side, &[5; 2048], ATOMIC);
    let first_of = |owner| {
        let is_its = |index: &u64| CoreId::owner_of(region.base_to() + index * 8, 2) == owner;
        (0..2048).step_by(8).find(is_its).expect("each core has a word")
    };
    let of = [CoreId(0), OTHER].map(first_of);
    (side, region, of)
}

/// Receives requests to add 1 to these words, numbered from 1.
pub(super) fn receive_requests(side: &mut Endpoint, region: &Region, indices: &[u64]) {
    for (msn, index) in (1..).zip(indices) {
        side.feed(&framed(&request(msn, at(region, *index), AtomicOp::add(1)))).unwrap();
    }
}

fn forwarded_ops(side: &Endpoint) -> Vec<(CoreId, u32)> {
    side.log.forwarded_ops.iter().map(|&(owner, serial, ..)| (owner, serial)).collect()
}

/// Returns the original values in the next unit.
pub(super) fn sent_originals(side: &mut Endpoint) -> Vec<u64> {
    let original = |ulpdu: &Vec<u8>| u64::from_be_bytes(*ulpdu.last_chunk().unwrap());
    ulpdus(&side.pull(SEGMENT_BYTES)).iter().map(original).collect()
}

/// The owner core gets exactly the peer's requests. Its outcomes are sent in the order of the
/// requests, between those of this core.
#[test]
fn operations_are_forwarded_and_their_outcomes_sent_in_order() {
    let (mut side, region, [here, there]) = side(8);
    receive_requests(&mut side, &region, &[there, there, here, there]);
    assert_eq!(
        forwarded_ops(&side),
        [(OTHER, 1), (OTHER, 2)],
        "nothing is forwarded past a word of this core"
    );
    let (_, _, target, operation) = side.log.forwarded_ops[0];
    assert_eq!(
        (target.stag, target.to, target.need),
        (region.stag(), at(&region, there).1, Access::REMOTE_ATOMIC)
    );
    assert_eq!((operation, side.pull(SEGMENT_BYTES)), (AtomicOp::add(1), vec![]));
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(1, Ok(70), io)));
    assert_eq!(sent_originals(&mut side), [70]);
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(2, Ok(71), io)));
    assert_eq!((sent_originals(&mut side), word(&region, here as usize)), (vec![71, 5], 6));
    assert_eq!(forwarded_ops(&side)[2..], [(OTHER, 4)], "it is the next response");
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(4, Ok(72), io)));
    assert_eq!(
        (sent_originals(&mut side), word(&region, there as usize)),
        (vec![72], 5),
        "only one core changed it"
    );
    assert_eq!(side.counted(Counter::AtomicsLocalCore), 1);
}

/// RFC7306-5.4-09, RFC 7306 s7: nothing is forwarded while an earlier Read Response is incomplete.
/// It is forwarded as soon as the last segment is sent.
#[test]
fn an_operation_is_forwarded_after_the_earlier_read_is_answered() {
    let (mut side, _, _) = side(8);
    let region = words(&side, &[5; 2048], ATOMIC | Access::REMOTE_READ);
    let is_there = |index: &u64| CoreId::owner_of(region.base_to() + index * 8, 2) == OTHER;
    let there = (0..2048).step_by(8).find(is_there).expect("the response is not empty");
    let (source_stag, source_to) = at(&region, 0);
    let read = ReadRequest {
        sink_stag: STag(3),
        sink_to: 4,
        bytes: 2 * SEGMENT_BYTES as u32,
        source_stag,
        source_to,
    };
    side.feed(&framed(&segment(0x41, [1, 1, 0], &read.encode()))).unwrap();
    side.feed(&framed(&request(2, at(&region, there), AtomicOp::add(1)))).unwrap();
    let begun = side.pull(SEGMENT_BYTES);
    assert!(!begun.is_empty() && forwarded_ops(&side).is_empty(), "the Read is not answered");
    while forwarded_ops(&side).is_empty() {
        assert!(!side.pull(SEGMENT_BYTES).is_empty(), "the Read is answered, and nothing was forwarded");
    }
    assert_eq!(forwarded_ops(&side), [(OTHER, 2)]);
    assert!(side.pull(SEGMENT_BYTES).is_empty());
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(2, Ok(5), io)));
    assert_eq!(sent_originals(&mut side), [5]);
}

/// A Send does not wait for an operation that another core carries out.
#[test]
fn a_send_does_not_wait_for_another_core() {
    let (mut side, region, [_, there]) = side(8);
    receive_requests(&mut side, &region, &[there]);
    side.send_inline(1, b"meanwhile");
    assert_eq!(ulpdus(&side.pull(SEGMENT_BYTES)).len(), 1);
    assert!(!side.with(|stream, io| stream.wants_tx(io)));
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(1, Ok(0), io) && stream.wants_tx(io)));
}

/// RFC7306-8.1-02, RFC7306-8.2-08: a refusal of the owner core ends the stream when it is the next
/// response. The Terminate includes the header of the refused request, and no later response is
/// sent.
#[test]
fn a_refusal_of_the_owner_core_ends_the_stream_in_order() {
    let (mut side, region, [_, there]) = side(8);
    receive_requests(&mut side, &region, &[there, there, there]);
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(1, Ok(70), io)));
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(2, Err(AccessError::Revoked.into()), io)));
    assert_eq!(side.stream.state(), StreamState::Open);
    assert_eq!(sent_originals(&mut side), [70]);
    let end = ulpdus(&side.pull(SEGMENT_BYTES)).remove(0);
    let header = &request(2, at(&region, there), AtomicOp::add(1))[..18];
    assert_eq!(end[18..24], [0x01, 0x00, 0xc0, 0, 0, 70]);
    assert_eq!(&end[24..], header);
    assert!(
        !side.with(|stream, io| stream.on_forwarded_atomic(3, Ok(71), io)),
        "no operation is outstanding"
    );
    assert!(side.pull(SEGMENT_BYTES).is_empty());
}

/// Without a credit nothing is forwarded until there is one. The peer may end the stream meanwhile.
#[test]
fn without_a_credit_a_stream_waits_for_on_forward_credit() {
    let (mut side, region, [_, there]) = side(1);
    receive_requests(&mut side, &region, &[there, there, there]);
    assert_eq!((forwarded_ops(&side).len(), side.stream.forwarded()), (1, 1));
    assert!(side.stream.awaits_forward_credit());
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(1, Ok(70), io)));
    side.log.credits = 1;
    assert_eq!(
        (sent_originals(&mut side), forwarded_ops(&side).len()),
        (vec![70], 1),
        "it is not the next response"
    );
    side.with(|stream, io| stream.on_forward_credit(io));
    assert_eq!(forwarded_ops(&side), [(OTHER, 1), (OTHER, 2)]);
    assert!(side.stream.awaits_forward_credit(), "for the third");
    side.with(|stream, io| stream.abort(io));
    side.log.credits = 8;
    side.with(|stream, io| stream.on_forward_credit(io));
    assert_eq!((forwarded_ops(&side).len(), side.stream.forwarded()), (2, 0), "the stream has ended");
    assert!(!side.with(|stream, io| stream.on_forwarded_atomic(2, Ok(71), io)));
}
