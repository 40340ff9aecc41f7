//! A stream that moves in the middle of its traffic: it is saved, forgotten, and restored over the
//! same rings. Neither side notices.

use proptest::prelude::*;

use super::atomic_forwarding;
use super::oracle::{self, AREA, areas, ops, post_all};
use super::*;
use crate::mpa::marker::MarkerState;
use crate::mpa::startup::Markers;
use crate::setup::Rtr;
use crate::stream::saved::{SavedStream, VERSION};
use ironwarp_llp::saved::{decode, encode};
use ironwarp_llp::{RestoreError, SaveError};
use serde_json::{Value, json};

impl Endpoint {
    /// Moves the stream, and returns what was saved. What is saved at once again is the same.
    fn move_stream(&mut self) -> Vec<u8> {
        let saved = self.with(|stream, io| stream.save(io)).unwrap();
        self.with(|stream, io| stream.forget(io));
        assert_eq!(self.with(|stream, io| stream.restore(&saved, io)), Ok(()));
        assert_eq!(self.with(|stream, io| stream.save(io)).as_ref(), Ok(&saved));
        self.check();
        saved
    }
}

fn started(role: Role, crc: bool, sent: bool, received: bool) -> Endpoint {
    let mut side = Endpoint::idle(StreamConfig { interleave_untagged: true, ..config() });
    let framing = Mpa::new(crc, Markers { sent, received });
    side.stream.start(StreamStart { framing, ..StreamStart::plain(role, crc) });
    side
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Both streams move between any two steps: with messages half sent, FPDUs half arrived,
    /// Reads half answered, requests that are not acknowledged.
    #[test]
    fn two_streams_that_move_agree_with_the_model(
        ops_a in ops(),
        ops_b in ops(),
        room in 256..3000usize,
        crc: bool,
        markers: [bool; 2],
        cuts in prop::collection::vec(0..1500usize, 1..8),
        moves in prop::collection::vec(any::<[bool; 4]>(), 1..8),
    ) {
        let mut a = started(Role::Initiator, crc, markers[0], markers[1]);
        let mut b = started(Role::Responder, crc, markers[1], markers[0]);
        let (in_a, in_b) = (areas(&mut a, &ops_b, &ops_a, 1), areas(&mut b, &ops_a, &ops_b, 2));
        let (before_a, before_b) = (Endpoint::bytes(&in_a.target), Endpoint::bytes(&in_b.target));
        // The first message opens the gate of the responder.
        a.write(99, &[], (STag(7), 0));
        let first = a.pull(room);
        b.feed(&first).unwrap();
        a.ack_all();
        a.log.sends.clear();
        post_all(&mut a, &ops_a, &in_a, &in_b);
        post_all(&mut b, &ops_b, &in_b, &in_a);
        let (mut cuts, mut moves) = (cuts.iter().cycle(), moves.iter().cycle());
        loop {
            let (from_a, from_b) = (a.pull(room), b.pull(room));
            if from_a.is_empty() && from_b.is_empty() {
                break;
            }
            let &[after_pull, amid_bytes, after_bytes, acks] = moves.next().unwrap();
            let move_both = |a: &mut Endpoint, b: &mut Endpoint, moves: bool| {
                if moves {
                    a.move_stream();
                    b.move_stream();
                }
            };
            move_both(&mut a, &mut b, after_pull);
            let cut = *cuts.next().unwrap();
            let (to_b, to_a) = (from_a.split_at(cut.min(from_a.len())), from_b.split_at(cut.min(from_b.len())));
            b.feed(to_b.0).unwrap();
            a.feed(to_a.0).unwrap();
            move_both(&mut a, &mut b, amid_bytes);
            b.feed(to_b.1).unwrap();
            a.feed(to_a.1).unwrap();
            move_both(&mut a, &mut b, after_bytes);
            if acks {
                a.ack_all();
                b.ack_all();
            }
        }
        a.ack_all();
        b.ack_all();
        oracle::check(&ops_a, &in_a, &in_b, &before_b, &a, &b);
        oracle::check(&ops_b, &in_b, &in_a, &before_a, &b, &a);
    }

    /// Bytes that anyone may have written are refused, or make a stream that obeys the invariants,
    /// which are checked after each step.
    #[test]
    fn changed_bytes_are_refused_or_do_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        largest in prop::option::of(any::<prop::sample::Index>()),
        len in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut busy = busy();
        let Busy { a, b, saved, .. } = &mut busy;
        let mut bytes = saved.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(at) = largest {
            let at = at.index(bytes.len());
            bytes.splice(at..=at, [0xff; 9].into_iter().chain([1]));
        }
        if let Some(len) = len {
            bytes.truncate(len.index(bytes.len()));
        }
        a.with(|stream, io| stream.forget(io));
        if a.with(|stream, io| stream.restore(&bytes, io)).is_ok() {
            a.check();
            let responses = b.pull_all(SEGMENT_BYTES).concat();
            let _ = a.feed(&responses);
            for _ in 0..20 {
                a.pull(SEGMENT_BYTES);
                a.with(|stream, io| stream.on_acked(0, io));
                a.check();
            }
        } else {
            prop_assert_eq!(a.stream.state(), StreamState::Idle);
            prop_assert_eq!(a.with(|stream, io| stream.restore(saved, io)), Ok(()));
        }
    }
}

/// Two sides with everything in progress at the first: sent and unsent requests, Reads and atomic
/// operations of both sides, half a Send received.
struct Busy {
    a: Endpoint,
    b: Endpoint,
    in_a: Region,
    in_b: Region,
    /// The saved state of the first side.
    saved: Vec<u8>,
}

/// Octets before the word that the peer adds to, and before the sink of its old value.
fn word_of(area: &Region) -> [u64; 2] {
    let aligned = 7_000u64.next_multiple_of(8) + (8 - area.base_to() % 8) % 8;
    [aligned, aligned + 8]
}

fn value_at(area: &Region, at: u64) -> u64 {
    u64::from_ne_bytes(*Endpoint::bytes(area)[at as usize..].first_chunk().unwrap())
}

fn busy() -> Busy {
    let extensions = Some(Rfc7306Profile::DRAFT_03);
    let config = StreamConfig { extensions, atomic_locked: true, interleave_untagged: true, ..config() };
    let mut a = Endpoint::started(config, Role::Initiator, true);
    let mut b = Endpoint::started(config, Role::Responder, true);
    let (in_a, in_b) = (a.filled(AREA, EVERYTHING), b.filled(AREA, EVERYTHING));
    a.receive(1, &[all(&in_a)]);
    b.receive(1, &[all(&in_b)]);
    a.send_inline(1, b"opens the gate");
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    let post_requests = |side: &mut Endpoint, local: &Region, peer: &Region| {
        side.read(2, local.slice(0, 6000).unwrap(), remote(peer));
        side.post(3, SendOpcode::FetchAdd, |wqe| {
            wqe.set_atomic(&AtomicOp::add(5), local.slice(word_of(local)[1] as usize, 8).unwrap());
            (wqe.remote_stag, wqe.remote_to) = (peer.stag(), peer.base_to() + word_of(peer)[0]);
        });
    };
    post_requests(&mut b, &in_b, &in_a);
    b.send(4, &[in_b.slice(0, 4000).unwrap()]);
    a.feed(&b.pull(SEGMENT_BYTES)).unwrap();
    post_requests(&mut a, &in_a, &in_b);
    a.write(4, &[in_a.slice(0, 2000).unwrap()], remote(&in_b));
    for _ in 0..3 {
        b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    }
    a.feed(&b.pull(SEGMENT_BYTES)).unwrap();
    let saved = a.move_stream();
    Busy { a, b, in_a, in_b, saved }
}

/// Atomic operations and Reads in both directions go on, and each has its effect once.
#[test]
fn requests_and_responses_of_every_kind_go_on() {
    let Busy { mut a, mut b, in_a, in_b, .. } = busy();
    loop {
        let (from_a, from_b) = (a.pull(SEGMENT_BYTES), b.pull(SEGMENT_BYTES));
        if from_a.is_empty() && from_b.is_empty() {
            break;
        }
        b.feed(&from_a).unwrap();
        b.move_stream();
        a.feed(&from_b).unwrap();
        a.move_stream();
    }
    a.ack_all();
    b.ack_all();
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK), (3, OK), (4, OK)]);
    assert_eq!(ids(&b.log.sends), [(2, OK), (3, OK), (4, OK)]);
    assert_eq!((ids(&a.log.receives), a.log.receives[0].byte_len), (vec![(1, OK)], 4000));
    for (one, other) in [(&in_a, &in_b), (&in_b, &in_a)] {
        let before = value_at(other, word_of(other)[1]);
        assert_eq!(value_at(one, word_of(one)[0]), before.wrapping_add(5));
    }
}

/// RFC 6581 s9.2: a Read as the indication is answered after a move, and completes no request.
#[test]
fn an_indication_that_is_not_answered_goes_on() {
    let (mut a, mut b) = (Endpoint::idle(config()), Endpoint::responder());
    a.stream.start(StreamStart { rtr_to_send: Some(Rtr::Read), ..StreamStart::plain(Role::Initiator, true) });
    a.move_stream();
    let sink = a.region(8, EVERYTHING);
    let source = b.filled(8, EVERYTHING);
    a.read(1, all(&sink), remote(&source));
    let indication = a.pull(SEGMENT_BYTES);
    a.move_stream();
    b.feed(&indication).unwrap();
    run(&mut a, &mut b);
    assert_eq!(ids(&a.log.sends), [(1, OK)]);
    assert_eq!(Endpoint::bytes(&sink), Endpoint::bytes(&source));
}

/// The ring of a queue pair with shared receives belongs to the core: the receive in use moves with
/// the stream.
#[test]
fn a_receive_of_a_shared_queue_moves() {
    let mut a = Endpoint::initiator();
    let mut b = Endpoint::responder();
    let (source, sink) = (a.filled(4000, EVERYTHING), b.region(4000, EVERYTHING));
    b.receive(7, &[sink.slice(0, 1000).unwrap(), sink.slice(1000, 3000).unwrap()]);
    a.send(1, &[all(&source)]);
    let units = a.pull_all(SEGMENT_BYTES);
    b.feed(&units[0]).unwrap();
    let Endpoint { stream, sends, receives, memory, stats, log, rq, .. } = &mut b;
    let (rq_producer, callbacks) = (Some(rq), log);
    let io = &mut Io { sends, receives, rq_producer, callbacks, memory, stats };
    let saved = stream.save(io).unwrap();
    stream.forget(io);
    assert_eq!(io.receives.head(), io.receives.refresh(), "the ring is empty");
    assert_eq!(stream.restore(&saved, io), Ok(()));
    assert_eq!(stream.save(io), Ok(saved));
    units[1..].iter().for_each(|unit| b.feed(unit).unwrap());
    assert_eq!(ids(&b.log.receives), [(7, OK)]);
    assert_eq!(Endpoint::bytes(&sink), Endpoint::bytes(&source));
}

#[test]
fn only_an_open_stream_that_waits_for_no_core_is_saved() {
    let mut side = Endpoint::idle(config());
    assert_eq!(side.with(|stream, io| stream.save(io)), Err(SaveError::NotEstablished));
    side.with(|stream, io| stream.abort(io));
    assert_eq!(side.with(|stream, io| stream.save(io)), Err(SaveError::NotEstablished));
}

/// An operation that is with another core is waited for. One that is not goes there after the move,
/// and outcomes that have arrived are sent.
#[test]
fn operations_of_other_cores_words_go_on() {
    let (mut side, region, [here, there]) = atomic_forwarding::side(1);
    atomic_forwarding::receive_requests(&mut side, &region, &[there, there, here]);
    let busy = side.with(|stream, io| stream.save(io));
    assert!(matches!(busy, Err(SaveError::Busy(_))), "{busy:?}");
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(1, Ok(70), io)));
    side.move_stream();
    assert_eq!(atomic_forwarding::sent_originals(&mut side), [70]);
    side.move_stream();
    side.log.credits = 1;
    side.with(|stream, io| stream.on_forward_credit(io));
    assert_eq!(side.log.forwarded_ops.len(), 2, "each operation is forwarded once");
    assert!(side.with(|stream, io| stream.on_forwarded_atomic(2, Ok(71), io)));
    assert_eq!(atomic_forwarding::sent_originals(&mut side), [71, 5]);
}

/// A saved state with another value at `path` of its fields.
fn with(saved: &[u8], path: &str, value: &Value) -> Vec<u8> {
    let state: SavedStream<Mpa> = decode(VERSION, saved).unwrap();
    let mut json = serde_json::to_value(state).unwrap();
    *json.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value.clone();
    encode(VERSION, &serde_json::from_value::<SavedStream<Mpa>>(json).unwrap())
}

/// Each part that contradicts another, the ring or a limit is refused by itself.
#[test]
fn a_state_that_contradicts_itself_is_refused() {
    let Busy { mut a, saved, .. } = busy();
    let state: SavedStream<Mpa> = decode(VERSION, &saved).unwrap();
    let json = serde_json::to_value(state).unwrap();
    let number = |path: &str| json.pointer(path).and_then(Value::as_u64).unwrap();
    let responses = json.pointer("/responses").and_then(Value::as_array).unwrap();
    assert!(responses.len() > 1, "a Read and an atomic operation are to be answered");
    let completed = json!({ "Completed": { "identifier": 1, "msn": 1, "original": 1 } });
    a.with(|stream, io| stream.forget(io));
    for (path, value) in [
        ("/head", json!(number("/head") + 1)),
        ("/sender/next", json!(number("/sender/next") + 1)),
        ("/sender/gate", json!({ "Rtr": "Send" })),
        ("/progress/acked_at/0", json!(number("/progress/pulled_bytes") + 1)),
        ("/progress/acked_bytes", json!(number("/progress/pulled_bytes") + 1)),
        ("/progress/acked_at", json!([])),
        ("/progress/reads_done", json!(100)),
        ("/placed", json!(6_001)),
        ("/reads/ord", json!(5)),
        ("/reads/ord", json!(1)),
        ("/reads/ird", json!(5)),
        ("/reads/ird", json!(1)),
        ("/responses", json!([responses[0], completed])),
        ("/responses/0", json!({ "Atomic": [[0], 1] })),
        ("/extensions", Value::Null),
        ("/shared_receives", json!([{ "wr_id": 1, "list": [] }])),
    ] {
        let outcome = a.with(|stream, io| stream.restore(&with(&saved, path, &value), io));
        assert!(matches!(outcome, Err(RestoreError::Inconsistent(_))), "{path} {value}: {outcome:?}");
        assert_eq!(a.stream.state(), StreamState::Idle);
    }
    assert_eq!(a.with(|stream, io| stream.restore(&saved, io)), Ok(()));
    let again = a.with(|stream, io| stream.restore(&saved, io));
    assert!(matches!(again, Err(RestoreError::Inconsistent(_))), "it has a connection: {again:?}");
}

/// RFC 5044 s4.3: a marker's position is a multiple of four below 512.
#[test]
fn the_position_of_a_marker_is_checked() {
    for (since, is_valid) in [(0, true), (4, true), (508, true), (512, false), (2, false), (u16::MAX, false)]
    {
        let read = serde_json::from_value::<MarkerState>(json!(since));
        assert_eq!(read.is_ok(), is_valid, "{since}");
        assert!(read.is_ok_and(|state| u16::from(state) == since) || !is_valid);
    }
}

/// The requests of another ring are not those that were begun.
#[test]
fn a_stream_goes_on_with_its_own_ring_only() {
    let Busy { saved, .. } = busy();
    let mut other = Endpoint::idle(config());
    other.send_inline(1, b"");
    let outcome = other.with(|stream, io| stream.restore(&saved, io));
    assert!(matches!(outcome, Err(RestoreError::Inconsistent(_))), "{outcome:?}");
}
