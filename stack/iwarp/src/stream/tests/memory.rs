//! Steering tags in the order of a stream: invalidated by the peer or locally, bound, registered,
//! fenced.

use super::*;
use crate::completion::CompletionFlags;
use crate::ddp::Untagged;
use ironwarp_mem::{AccessScope, FastRegion, Window};

const OWN_STREAM: AccessScope = AccessScope::new(PD, QpNum(1));

impl Endpoint {
    /// A region that only this stream may use.
    fn own(&self, access: Access) -> Region {
        self.table.register_in_scope(OWN_STREAM, vec![0u8; 256], access).unwrap()
    }

    fn window(&self) -> Window {
        self.table.window(PD).unwrap()
    }

    fn bind(&mut self, wr_id: u64, window: &mut Window, over: Sge, access: Access) {
        let stag = window.next_stag();
        self.post(wr_id, SendOpcode::Bind, |wqe| {
            wqe.set_gather(&[over]);
            (wqe.remote_stag, wqe.access) = (stag, access);
        });
    }

    fn fast_register(&mut self, wr_id: u64, region: &mut FastRegion, over: Sge, flags: SendFlags) {
        let stag = region.next_stag();
        self.post(wr_id, SendOpcode::FastRegister, |wqe| {
            wqe.set_gather(&[over]);
            wqe.flags.insert(flags);
            (wqe.remote_stag, wqe.access) = (stag, Access::LOCAL_WRITE | Access::REMOTE_READ);
        });
    }

    fn invalidate(&mut self, wr_id: u64, stag: STag, flags: SendFlags) {
        self.post(wr_id, SendOpcode::Invalidate, |wqe| {
            wqe.set_gather(&[]);
            wqe.flags.insert(flags);
            wqe.remote_stag = stag;
        });
    }

    fn send_invalidating(&mut self, wr_id: u64, stag: STag) {
        self.post(wr_id, SendOpcode::SendInvalidate, |wqe| {
            wqe.set_inline(b"done");
            wqe.remote_stag = stag;
        });
    }

    fn retry_after_quiescence(&mut self) {
        self.with(|stream, io| stream.retry_after_quiescence(io));
        self.check();
    }

    fn may_be_read(&self, stag: STag, at: u64) -> bool {
        self.memory.resolve(stag, OWN_STREAM, at, 1, Access::REMOTE_READ).is_ok()
    }
}

/// A region from which windows and fast regions are made.
fn pool(side: &Endpoint) -> Region {
    side.filled(4096, Access::LOCAL_WRITE | Access::BIND)
}

/// RFC 5040 s5.3: the tag is invalidated, and the completion names it.
/// RFC 5040 s3.1 and s3.2; RFC 5041 s4.3 and s5.4.
#[test]
fn a_send_with_invalidate_invalidates_a_tag_of_the_stream() {
    for (opcode, solicited) in
        [(SendOpcode::SendInvalidate, false), (SendOpcode::SendSolicitedInvalidate, true)]
    {
        let (mut a, mut b) = pair();
        let (region, inbox) = (b.own(Access::REMOTE_READ), b.region(64, EVERYTHING));
        b.receive(1, &[all(&inbox)]);
        a.post(5, opcode, |wqe| {
            wqe.set_inline(b"done");
            wqe.remote_stag = region.stag();
        });
        run(&mut a, &mut b);
        let received = b.log.receives[0];
        assert_eq!((received.status, received.byte_len, received.invalidated), (OK, 4, region.stag()));
        assert!(received.flags.contains(CompletionFlags::INVALIDATED));
        assert_eq!(received.flags.contains(CompletionFlags::SOLICITED), solicited);
        assert!(!b.may_be_read(region.stag(), region.base_to()));
        assert_eq!(b.counted(Counter::IwarpRxInvalidates), 1);
        assert_eq!(ids(&a.log.sends), [(5, OK)]);
    }
}

/// RFC 5040 s5.3: the tag is invalidated on delivery, so not before the last segment.
#[test]
fn the_tag_is_valid_until_the_send_is_complete() {
    let (mut a, mut b) = pair();
    let (source, inbox) = (a.filled(2000, EVERYTHING), b.region(2000, EVERYTHING));
    let region = b.own(Access::REMOTE_READ);
    b.receive(1, &[all(&inbox)]);
    a.post(1, SendOpcode::SendInvalidate, |wqe| at_remote(wqe, &[all(&source)], remote(&region)));
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    assert!(b.may_be_read(region.stag(), region.base_to()));
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    assert!(!b.may_be_read(region.stag(), region.base_to()));
    assert_eq!(Endpoint::bytes(&inbox), pattern(2000));
}

/// RFC 5040 s5.3, s7.2 (4, 5), s8.1.1 (2, 7): a tag that may not be invalidated stays valid and
/// ends the stream.
#[test]
fn a_send_with_invalidate_for_anything_else_is_refused() {
    let refused = |make: fn(&Endpoint) -> Region, code: u8| {
        let (mut a, mut b) = pair();
        let (region, inbox) = (make(&b), b.filled(64, EVERYTHING));
        b.receive(1, &[all(&inbox)]);
        a.send_invalidating(1, region.stag());
        let error = Terminate { layer: 0, etype: 1, code };
        assert_eq!(b.feed(&a.pull(SEGMENT_BYTES)), Err(StreamError::Failed(error)));
        assert_eq!(Endpoint::bytes(&inbox), pattern(64), "nothing was placed");
        // RFC 5040 s4.8, figure 10: the header of the segment is included. There is no Read Request
        // to include.
        let terminate = ulpdus(&b.pull(SEGMENT_BYTES)).remove(0);
        assert_eq!(terminate[18..24], [0x01, code, 0xc0, 0, 0, 22]);
        assert_eq!(terminate[24..26], [0x41, 0x44]);
        assert_eq!(terminate.len(), 18 + 4 + 2 + 18);
        assert_eq!(ids(&b.log.receives), [(1, FLUSHED)]);
    };
    refused(|side| side.region(64, EVERYTHING), 9);
    refused(|side| side.table.register(PdId(2), vec![0u8; 64], EVERYTHING).unwrap(), 9);
    refused(
        |side| side.table.register_in_scope(AccessScope::new(PD, QpNum(2)), vec![0; 64], EVERYTHING).unwrap(),
        9,
    );
    refused(|side| side.own(Access::LOCAL_WRITE), 2);
    refused(
        |side| {
            let region = side.own(EVERYTHING);
            let _ = region.revoke();
            region
        },
        0,
    );
}

/// `docs/semantics.md`, Memory: the completion of a Send with Invalidate waits for quiescence, and
/// so do later ones of that queue pair.
#[test]
fn the_completion_of_a_send_with_invalidate_waits_for_quiescence() {
    let (mut a, mut b) = pair();
    let mut busy = b.table.core(CoreId(1)).unwrap();
    let (region, inbox) = (b.own(Access::REMOTE_READ), b.region(64, EVERYTHING));
    (1..=3).for_each(|id| b.receive(id, &[all(&inbox)]));
    let _ = busy.resolve(region.stag(), OWN_STREAM, region.base_to(), 1, Access::REMOTE_READ).unwrap();
    a.send_inline(1, b"before");
    a.send_invalidating(2, region.stag());
    a.send_inline(3, b"behind");
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    assert!(!b.may_be_read(region.stag(), region.base_to()), "the tag is revoked at once");
    assert_eq!(ids(&b.log.receives), [(1, OK)]);
    assert!(b.stream.awaits_quiescence());
    b.feed(&[]).unwrap();
    b.retry_after_quiescence();
    assert_eq!(b.log.receives.len(), 1, "the other core has not quiesced");
    busy.quiesce();
    b.retry_after_quiescence();
    assert_eq!(ids(&b.log.receives), [(1, OK), (2, OK)]);
    b.feed(&[]).unwrap();
    assert_eq!(ids(&b.log.receives), [(1, OK), (2, OK), (3, OK)]);
    assert!(!b.stream.awaits_quiescence());
}

/// RFC 5044 s7.1.2, rule 4 holds back FPDUs only: a responder may pass its tags in the MPA reply.
#[test]
fn a_responder_binds_before_the_peers_first_fpdu() {
    let mut b = Endpoint::responder();
    let pool = pool(&b);
    let mut window = b.window();
    b.bind(1, &mut window, all(&pool), Access::REMOTE_READ);
    b.send_inline(2, b"held");
    assert!(b.with(|stream, io| stream.wants_tx(io)));
    assert!(b.pull(SEGMENT_BYTES).is_empty());
    assert!(b.may_be_read(window.stag(), pool.base_to()));
    assert_eq!(ids(&b.log.sends), [(1, OK)]);
    assert!(!b.with(|stream, io| stream.wants_tx(io)));
}

/// A stream that ends while a delivery waits flushes that receive like the others, once.
#[test]
fn a_pending_delivery_is_flushed_with_its_stream() {
    let (mut a, mut b) = pair();
    let mut busy = b.table.core(CoreId(1)).unwrap();
    let (region, inbox) = (b.own(Access::REMOTE_READ), b.region(64, EVERYTHING));
    b.receive(1, &[all(&inbox)]);
    let _ = busy.resolve(region.stag(), OWN_STREAM, region.base_to(), 1, Access::REMOTE_READ).unwrap();
    a.send_invalidating(2, region.stag());
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    b.with(|stream, io| stream.abort(io));
    busy.quiesce();
    b.retry_after_quiescence();
    assert_eq!(ids(&b.log.receives), [(1, FLUSHED)]);
}

/// RDMAC verbs s8: bound, used by the peer, invalidated by the peer, bound again with another tag.
#[test]
fn a_window_is_bound_used_invalidated_and_bound_again() {
    let (mut a, mut b) = pair();
    let (pool, inbox) = (pool(&b), b.region(64, EVERYTHING));
    let mut window = b.window();
    for round in 0..3 {
        let over = pool.slice(round * 512, 512).unwrap();
        b.bind(round as u64, &mut window, over, Access::REMOTE_READ);
        run(&mut a, &mut b);
        let sink = a.region(512, Access::LOCAL_WRITE);
        a.read(7, all(&sink), (window.stag(), over.addr));
        // RFC 5040 s5.5 (18): without the fence the tag could be invalidated before the Read is
        // answered.
        a.post(8, SendOpcode::SendInvalidate, |wqe| {
            wqe.set_inline(b"done");
            wqe.flags.insert(SendFlags::FENCE);
            wqe.remote_stag = window.stag();
        });
        b.receive(9, &[all(&inbox)]);
        run(&mut a, &mut b);
        assert_eq!(Endpoint::bytes(&sink), pattern(4096)[round * 512..][..512]);
        assert!(!b.may_be_read(window.stag(), over.addr));
    }
    assert_eq!(ids(&b.log.sends), [(0, OK), (1, OK), (2, OK)]);
    assert!(b.log.sends.iter().all(|done| done.opcode == CompletionOpcode::Bind && done.byte_len == 0));
    assert_eq!(b.log.receives.len(), 3);
}

/// RFC 5040 s8.1.1 (3): a peer has no access outside its window.
#[test]
fn an_access_outside_the_window_ends_the_stream() {
    let (mut a, mut b) = pair();
    let (pool, source) = (pool(&b), a.filled(16, EVERYTHING));
    let mut window = b.window();
    b.bind(1, &mut window, pool.slice(512, 512).unwrap(), Access::REMOTE_WRITE);
    run(&mut a, &mut b);
    a.write(1, &[all(&source)], (window.stag(), pool.base_to() + 1020));
    let error = Terminate { layer: 1, etype: 1, code: 1 };
    assert_eq!(b.feed(&a.pull(SEGMENT_BYTES)), Err(StreamError::Failed(error)));
    assert_eq!(Endpoint::bytes(&pool), pattern(4096));
}

/// RDMAC verbs s8.2.2 (9): a binding takes effect before any later request, so the next Send may
/// pass the tag.
#[test]
fn a_binding_takes_effect_before_the_next_send() {
    let mut b = Endpoint::initiator();
    let pool = pool(&b);
    let mut window = b.window();
    b.bind(1, &mut window, all(&pool), Access::REMOTE_READ);
    b.send_inline(2, b"use it");
    assert!(!b.pull(SEGMENT_BYTES).is_empty());
    assert!(b.may_be_read(window.stag(), pool.base_to()));
    assert_eq!(ids(&b.log.sends), [(1, OK)], "it does not wait");
}

/// RFC 5040 s5.5 (15): completions keep the order of posting, also for requests that send nothing.
#[test]
fn a_binding_completes_after_the_earlier_send() {
    let mut b = Endpoint::initiator();
    let pool = pool(&b);
    let mut window = b.window();
    b.send_inline(1, b"first");
    b.bind(2, &mut window, all(&pool), Access::REMOTE_READ);
    b.pull_all(SEGMENT_BYTES);
    assert!(b.log.sends.is_empty());
    assert!(b.may_be_read(window.stag(), pool.base_to()), "done, but not yet completed");
    b.ack_all();
    assert_eq!(ids(&b.log.sends), [(1, OK), (2, OK)]);
}

/// RDMAC verbs s7.10: a binding that is not allowed completes with an error and ends the stream.
#[test]
fn a_binding_that_is_not_allowed_ends_the_stream_with_a_local_error() {
    let refused = |over: fn(&Endpoint) -> Region, access| {
        let mut b = Endpoint::initiator();
        let region = over(&b);
        let mut window = b.window();
        b.bind(4, &mut window, all(&region), access);
        b.send_inline(5, b"behind");
        let sent = ulpdus(&b.pull(SEGMENT_BYTES));
        assert_eq!(sent, Vec::<Vec<u8>>::new(), "a Terminate replaces the later messages");
        assert_eq!(
            ulpdus(&b.pull(SEGMENT_BYTES)).remove(0)[18..],
            [0, 0, 0, 0],
            "RFC 5040 s7.1: a local error includes no header"
        );
        assert_eq!(ids(&b.log.sends), [(4, CompletionStatus::MemoryBind), (5, FLUSHED)]);
    };
    refused(|side| side.region(64, Access::LOCAL_WRITE), Access::REMOTE_READ);
    refused(|side| side.region(64, Access::BIND), Access::REMOTE_WRITE);
    refused(|side| side.table.register(PdId(2), vec![0u8; 64], EVERYTHING).unwrap(), Access::REMOTE_READ);
    refused(pool, Access::empty());
    refused(pool, Access::LOCAL_WRITE);
}

/// A window is for the peer: a local request that names it fails.
#[test]
fn a_window_cannot_be_used_by_local_requests() {
    let mut b = Endpoint::initiator();
    let pool = pool(&b);
    let mut window = b.window();
    b.bind(1, &mut window, all(&pool), Access::REMOTE_READ | Access::REMOTE_WRITE);
    b.send(2, &[Sge { lkey: window.stag(), ..all(&pool) }]);
    b.pull_all(SEGMENT_BYTES);
    assert_eq!(ids(&b.log.sends), [(1, OK), (2, CompletionStatus::LocalProtection)]);
}

#[test]
fn a_fast_region_is_registered_used_and_invalidated_in_order() {
    let (mut a, mut b) = pair();
    let (pool, source) = (pool(&a), b.filled(512, Access::REMOTE_READ));
    let mut region = a.table.fast_region(PD).unwrap();
    let over = pool.slice(1024, 512).unwrap();
    for round in 0..2 {
        a.fast_register(1, &mut region, over, SendFlags::empty());
        a.read(2, Sge { lkey: region.stag(), ..over }, remote(&source));
        a.invalidate(3, region.stag(), SendFlags::LOCAL_FENCE);
        run(&mut a, &mut b);
        assert_eq!(ids(&a.log.sends[round * 3..]), [(1, OK), (2, OK), (3, OK)]);
        assert_eq!(Endpoint::bytes(&pool)[1024..1536], pattern(512));
    }
    assert_eq!(a.log.sends[0].opcode, CompletionOpcode::FastRegister);
    assert_eq!(a.log.sends[2].opcode, CompletionOpcode::Invalidate);
}

/// RFC 5040 s8.1.1 (7): a peer may invalidate a fast region of this stream, but not one of the
/// protection domain.
#[test]
fn a_fast_region_has_the_requested_scope() {
    for (flags, ends) in [(SendFlags::empty(), false), (SendFlags::STREAM_SCOPE, true)] {
        let (mut a, mut b) = pair();
        let (pool, inbox) = (pool(&b), b.region(64, EVERYTHING));
        let mut region = b.table.fast_region(PD).unwrap();
        b.fast_register(1, &mut region, all(&pool), flags);
        b.receive(2, &[all(&inbox)]);
        run(&mut a, &mut b);
        a.send_invalidating(1, region.stag());
        assert_eq!(b.feed(&a.pull(SEGMENT_BYTES)).is_ok(), ends);
    }
}

/// RDMAC verbs s8.2.2 (9, 10): an invalidation does not wait for earlier requests, unless a local
/// fence is set.
#[test]
fn a_local_fence_holds_an_invalidation_until_all_earlier_requests_complete() {
    let mut a = Endpoint::initiator();
    let source = a.filled(64, EVERYTHING);
    a.send(1, &[all(&source)]);
    a.invalidate(2, source.stag(), SendFlags::LOCAL_FENCE);
    a.send_inline(3, b"behind");
    assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES)).len(), 1, "requests after a fenced one wait too");
    assert!(a.may_be_read(source.stag(), source.base_to()));
    assert!(a.pull(SEGMENT_BYTES).is_empty());
    a.ack_all();
    assert!(a.with(|stream, io| stream.wants_tx(io)));
    assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES)).len(), 1);
    assert!(!a.may_be_read(source.stag(), source.base_to()));
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK)]);
}

/// Without a fence the memory of an earlier Send may be invalidated before the Send. This is an
/// error of the application, and affects nothing else.
#[test]
fn an_invalidation_without_a_fence_takes_effect_at_once() {
    let mut a = Endpoint::initiator();
    let source = a.filled(4000, EVERYTHING);
    a.send(1, &[all(&source)]);
    a.invalidate(2, source.stag(), SendFlags::empty());
    a.pull_all(SEGMENT_BYTES);
    assert!(
        !a.may_be_read(source.stag(), source.base_to()),
        "completely sent, not acknowledged, and the tag is invalid"
    );
    assert!(a.log.sends.is_empty());
    a.ack_all();
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK)]);
}

/// RDMAC verbs s8.2.2 (10): a read fence waits for earlier Reads, not for earlier Sends.
#[test]
fn a_read_fence_waits_for_reads_only() {
    let (mut a, mut b) = pair();
    let (sink, source) = (a.region(64, EVERYTHING), b.filled(64, EVERYTHING));
    a.send_inline(1, b"in flight");
    a.post(2, SendOpcode::Send, |wqe| {
        wqe.set_inline(b"fenced, with nothing to wait for");
        wqe.flags.insert(SendFlags::FENCE);
    });
    a.read(3, all(&sink), remote(&source));
    a.post(4, SendOpcode::Send, |wqe| {
        wqe.set_inline(b"fenced by the Read");
        wqe.flags.insert(SendFlags::FENCE);
    });
    let inbox = b.region(64, EVERYTHING);
    (1..=3).for_each(|id| b.receive(id, &[all(&inbox)]));
    let first = a.pull(SEGMENT_BYTES);
    assert_eq!(ulpdus(&first).len(), 3);
    assert!(a.pull(SEGMENT_BYTES).is_empty());
    b.feed(&first).unwrap();
    a.feed(&b.pull(SEGMENT_BYTES)).unwrap();
    assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES)).len(), 1, "the Read is answered; no Send is acknowledged yet");
}

/// RDMAC verbs s8.2.2 (8): the tag of the sink is invalidated after the response is placed and
/// before the Read completes.
#[test]
fn a_read_with_invalidate_invalidates_the_tag_of_its_sink() {
    let (mut a, mut b) = pair();
    let (sink, source) = (a.region(3000, EVERYTHING), b.filled(3000, EVERYTHING));
    a.post(1, SendOpcode::ReadInvalidate, |wqe| at_remote(wqe, &[all(&sink)], remote(&source)));
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    let responses = b.pull_all(SEGMENT_BYTES);
    a.feed(&responses[0]).unwrap();
    assert!(a.may_be_read(sink.stag(), sink.base_to()));
    responses[1..].iter().for_each(|unit| a.feed(unit).unwrap());
    assert!(!a.may_be_read(sink.stag(), sink.base_to()));
    assert_eq!(Endpoint::bytes(&sink), pattern(3000));
    let read = a.log.sends[0];
    assert_eq!((read.opcode, read.status, read.byte_len), (CompletionOpcode::Read, OK, 3000));
}

/// `docs/semantics.md`, Memory: completions that report an invalidation wait for quiescence, and so
/// do later ones.
#[test]
fn local_invalidations_complete_after_quiescence() {
    for by_read in [false, true] {
        let (mut a, mut b) = pair();
        let mut busy = a.table.core(CoreId(1)).unwrap();
        let (sink, source) = (a.region(64, EVERYTHING), b.filled(64, EVERYTHING));
        let _ = busy.resolve(sink.stag(), PD, sink.base_to(), 1, Access::REMOTE_READ).unwrap();
        if by_read {
            a.post(1, SendOpcode::ReadInvalidate, |wqe| at_remote(wqe, &[all(&sink)], remote(&source)));
        } else {
            a.invalidate(1, sink.stag(), SendFlags::empty());
        }
        a.post(2, SendOpcode::Write, |wqe| at_remote(wqe, &[], (STag(0), 0)));
        run(&mut a, &mut b);
        assert!(!a.may_be_read(sink.stag(), sink.base_to()));
        assert!(a.log.sends.is_empty() && a.stream.awaits_quiescence());
        busy.go_offline();
        a.retry_after_quiescence();
        assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK)]);
        assert!(!a.stream.awaits_quiescence());
    }
}

/// A window that the peer has just invalidated is bound when no core uses its old tag. Later
/// requests wait; responses to the peer do not.
#[test]
fn a_binding_waits_for_quiescence_and_delays_only_the_send_queue() {
    let (mut a, mut b) = pair();
    let mut busy = b.table.core(CoreId(1)).unwrap();
    let (pool, source) = (pool(&b), b.filled(64, EVERYTHING));
    let mut window = b.window();
    b.bind(1, &mut window, all(&pool), Access::REMOTE_READ);
    run(&mut a, &mut b);
    let _ = busy.resolve(window.stag(), OWN_STREAM, pool.base_to(), 1, Access::REMOTE_READ).unwrap();
    let _ = window.invalidate();
    b.bind(2, &mut window, all(&pool), Access::REMOTE_READ);
    b.send_inline(3, b"behind");
    let sink = a.region(64, EVERYTHING);
    a.read(9, all(&sink), remote(&source));
    run(&mut a, &mut b);
    assert_eq!(ids(&b.log.sends), [(1, OK)]);
    assert_eq!(ids(&a.log.sends), [(9, OK)], "the peer's Read is answered in the meantime");
    assert!(b.stream.awaits_quiescence());
    busy.quiesce();
    b.retry_after_quiescence();
    a.receive(1, &[all(&sink)]);
    run(&mut a, &mut b);
    assert_eq!(ids(&b.log.sends), [(1, OK), (2, OK), (3, OK)]);
}

/// RFC 5040 s4.1: the field is zero in every message that invalidates nothing, whatever the request
/// contains. RFC 5040 s3.1 and s5.3.
#[test]
fn only_two_messages_carry_a_tag_to_invalidate() {
    for (opcode, control, word) in [
        (SendOpcode::Send, 0x43, 0),
        (SendOpcode::SendInvalidate, 0x44, 0xabcd),
        (SendOpcode::SendSolicited, 0x45, 0),
        (SendOpcode::SendSolicitedInvalidate, 0x46, 0xabcd),
    ] {
        let mut a = Endpoint::initiator();
        a.post(1, opcode, |wqe| {
            wqe.set_inline(b"x");
            wqe.remote_stag = STag(0xabcd);
        });
        let mut header = [0; 18];
        Untagged { last: true, ulp: control, ulp_word: word, qn: 0, msn: 1, mo: 0 }.encode(&mut header);
        assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES)).remove(0)[..18], header);
    }
}
