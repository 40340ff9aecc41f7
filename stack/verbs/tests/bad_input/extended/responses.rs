//! Invalid Atomic Responses: unsolicited, for another request, out of order, of another length
//! (RFC 7306 s5.2.2).

use ironwarp::{Access, AtomicOp, CompletionStatus, DisconnectReason, Region, RemoteMemory, STag, SendWr};
use proptest::prelude::*;

use super::{begins, bench};
use crate::bad_input::bench::{Begins, Bench, Victim};
use crate::bad_input::cases;
use crate::common::contents;
use crate::common::messages::{atomic_response, place, tagged};

const REMOTE: RemoteMemory = RemoteMemory { stag: STag(1), tagged_offset: 0 };
/// The first work request that waits for a response.
const ASKED: u64 = 9;

/// A victim with `count` Atomics outstanding, whose identifiers begin at 0, and their sinks.
fn asking(bench: &mut Bench, count: usize) -> (Victim, Region) {
    let victim = bench.victim(Begins::Node);
    let node = &mut bench.scene.node;
    let sinks = node.ctx.register(node.pd, vec![0x51; 64], Access::LOCAL_WRITE).unwrap();
    let add = AtomicOp::add(1);
    for at in 0..count {
        let sink = [sinks.slice(at * 8, 8).unwrap()];
        node.ctx.post_send(victim.qp, &SendWr::atomic(ASKED + at as u64, &sink, REMOTE, &add)).unwrap();
    }
    (0..count).for_each(|_| assert_eq!(bench.scene.segment("the request")[1], 0x4a));
    (victim, sinks)
}

/// The last of `segments` is refused; the request that it belongs to fails with `status`.
#[track_caller]
fn answered(segments: &[Vec<u8>], name: &str, status: CompletionStatus) {
    let mut bench = bench();
    let (victim, sinks) = asking(&mut bench, 2);
    bench.says(segments);
    let offender = segments.last().unwrap();
    bench.scene.until("the completions", |scene| scene.node.completions.len() >= 2);
    let answered = segments.len() - 1;
    let told = bench.scene.node.completions.iter().filter(|done| done.wr_id >= ASKED);
    let told: Vec<_> = told.map(|done| done.status).collect();
    let want = [CompletionStatus::Success].repeat(answered);
    assert_eq!(told[..=answered], [&want[..], &[status]].concat(), "{name}, of {offender:02x?}");
    assert_eq!(contents(&sinks)[8 * answered..], vec![0x51; 64 - 8 * answered], "a sink was touched");
    bench.ends_with(victim, name, offender);
}

const BAD: CompletionStatus = CompletionStatus::BadResponse;
const FLUSHED: CompletionStatus = CompletionStatus::FlushedInError;

proptest! {
    #![proptest_config(cases(24))]

    /// RFC 7306 s5.2.2, RFC 5041 s7.1: without a request, queue 3 has no buffer.
    #[test]
    fn unsolicited_responses(begins in begins(), id: u32, original: u64, bytes in 0..40usize) {
        bench().refuses(begins, "DDP: no buffer", |_| {
            let mut segment = atomic_response(1, id, original);
            segment.resize(18 + bytes, 0);
            segment
        });
    }

    /// RFC 7306 s5.2.1, s5.2.2: an identifier that is not the oldest request's, that of the later
    /// request included.
    #[test]
    fn identifiers_of_other_requests(id in prop_oneof![Just(1u32), 1..=u32::MAX], original: u64) {
        answered(&[atomic_response(1, id, original)], "RDMAP: catastrophic, this stream", BAD);
        let right = atomic_response(1, 0, original);
        answered(&[right, atomic_response(2, id.wrapping_add(1), 1)], "RDMAP: catastrophic, this stream", BAD);
    }

    /// RFC 5041 s7.1: the number on queue 3 must be the next one.
    #[test]
    fn numbers_of_other_responses(msn in prop_oneof![Just(0u32), 2..9u32, 2..=u32::MAX]) {
        answered(&[atomic_response(msn, 0, 7)], "DDP: MSN range", BAD);
    }
}

/// RFC 7306 s5.2.2, figure 6: a response is 12 octets.
#[test]
fn responses_of_every_length() {
    for bytes in (0..24).filter(|bytes| *bytes != 12) {
        let mut segment = atomic_response(1, 0, 7);
        segment.resize(18 + bytes, 0);
        let name = if bytes < 12 { "RDMAP: unspecified operation error" } else { "DDP: message too long" };
        answered(&[segment], name, BAD);
    }
}

/// RFC 7306 s4.2, s8.2: one segment, the version of RFC 5040, no offset.
#[test]
fn responses_of_another_layout() {
    let changed = |at: usize, to: u8| {
        let mut segment = atomic_response(1, 0, 7);
        segment[at] = to;
        segment
    };
    answered(&[changed(0, 0x01)], "RDMAP: catastrophic, this stream", BAD);
    answered(&[changed(17, 1)], "DDP: invalid MO", BAD);
    answered(&[changed(1, 0x0b)], "RDMAP: version", FLUSHED);
    answered(&[changed(0, 0x40)], "DDP: version, untagged", FLUSHED);
    // A Send on the queue of responses.
    answered(&[changed(1, 0x43)], "RDMAP: unexpected OpCode", FLUSHED);
}

/// RFC 7306 s5.2: Reads and Atomics get their responses in the order of the requests. A Read
/// Response in place of an Atomic Response, and the reverse, is not placed.
#[test]
fn responses_of_the_other_kind() {
    let mut bench = bench();
    let (victim, sinks) = asking(&mut bench, 1);
    let (stag, to) = place(&sinks);
    let answer = tagged(2, stag, to, &[7; 8]);
    bench.says(std::slice::from_ref(&answer));
    bench.ends_with(victim, "RDMAP: unexpected OpCode", &answer);
    assert_eq!(contents(&sinks), vec![0x51; 64]);

    let victim = bench.victim(Begins::Node);
    let node = &mut bench.scene.node;
    let (read, add) = ([sinks.slice(0, 8).unwrap()], AtomicOp::add(1));
    let atomic = [sinks.slice(8, 8).unwrap()];
    let wrs = [SendWr::read(ASKED, &read, REMOTE), SendWr::atomic(ASKED + 1, &atomic, REMOTE, &add)];
    node.ctx.post_sends(victim.qp, &wrs).unwrap();
    assert_eq!(["the Read", "the Atomic"].map(|what| bench.scene.segment(what)[1]), [0x41, 0x4a]);
    let answer = atomic_response(1, 1, 7);
    bench.says(std::slice::from_ref(&answer));
    bench.ends_with(victim, "RDMAP: catastrophic, this stream", &answer);
    assert_eq!(contents(&sinks), vec![0x51; 64]);
}

/// A repeated response finds no waiting request.
#[test]
fn a_response_that_comes_twice() {
    let mut bench = bench();
    let (victim, sinks) = asking(&mut bench, 1);
    let again = atomic_response(2, 0, 8);
    bench.says(&[atomic_response(1, 0, 7), again.clone()]);
    bench.reports(victim.qp, "DDP: no buffer", &again);
    bench.is_over(victim, DisconnectReason::Terminated);
    assert_eq!(contents(&sinks), [&7u64.to_ne_bytes()[..], &[0x51; 56]].concat());
}
