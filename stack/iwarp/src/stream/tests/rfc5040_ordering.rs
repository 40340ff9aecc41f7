//! The rules of RFC 5040 s5.5 on ordering and completions, one test for each rule that two sides
//! can show.
//!
//! Rules 1 and 2 promise nothing; rules 3 to 9 say what an application may not rely on. Where this
//! stack is stricter than a rule, the test shows the actual behaviour.

use super::*;
use crate::ddp::Tagged;
use ironwarp_mem::AccessScope;

/// Two sides with a target region and three receives on the second.
fn pair_with_target() -> (Endpoint, Endpoint, Region, Region) {
    let (a, mut b) = pair();
    let target = b.filled(4096, EVERYTHING);
    let inbox = b.region(256, EVERYTHING);
    (1..=3).for_each(|id| b.receive(id, &[all(&inbox)]));
    (a, b, target, inbox)
}

/// Feeds whole units and returns the units that come back.
fn deliver(from: &mut Endpoint, to: &mut Endpoint) -> Vec<Vec<u8>> {
    for unit in from.pull_all(SEGMENT_BYTES) {
        to.feed(&unit).unwrap();
    }
    to.pull_all(SEGMENT_BYTES)
}

/// Rule 2: the two directions are not ordered. A side sends while it has received a part of the
/// other's message.
#[test]
fn rule_2_the_two_directions_are_independent() {
    let (mut a, mut b, _, _inbox) = pair_with_target();
    let source = a.filled(3000, EVERYTHING);
    let sink = a.region(3000, EVERYTHING);
    a.receive(1, &[all(&sink)]);
    a.write(1, &[all(&source)], remote(&sink));
    let half = a.pull(SEGMENT_BYTES);
    assert!(!half.is_empty() && a.stream.sender.under_way);
    deliver_empty_write(&mut b);
    b.send_inline(9, b"meanwhile");
    for unit in b.pull_all(SEGMENT_BYTES) {
        a.feed(&unit).unwrap();
    }
    assert_eq!(ids(&a.log.receives), [(1, OK)]);
}

/// Delivers an empty Write, so that the responder may send.
fn deliver_empty_write(responder: &mut Endpoint) {
    let mut header = vec![0; 14];
    Tagged { last: true, ulp: 0x40, stag: STag(0), tagged_offset: 0 }.encode(&mut header);
    responder.feed(&framed(&header)).unwrap();
}

/// Rule 3 lets overlapping messages be placed in any order. TCP delivers in order, so here the last
/// one wins.
#[test]
fn rule_3_the_later_of_two_writes_to_one_place_wins() {
    let (mut a, mut b, target, _inbox) = pair_with_target();
    a.post(1, SendOpcode::Write, |wqe| {
        wqe.set_inline(&[1; 8]);
        (wqe.remote_stag, wqe.remote_to) = remote(&target);
    });
    a.post(2, SendOpcode::Write, |wqe| {
        wqe.set_inline(&[2; 8]);
        (wqe.remote_stag, wqe.remote_to) = remote(&target);
    });
    run(&mut a, &mut b);
    assert_eq!(Endpoint::bytes(&target)[..8], [2; 8]);
}

/// Rules 4 and 16: a Send is not delivered before its last segment.
/// RFC 5041 s4.1 and s5.4.
#[test]
fn rules_4_and_16_a_send_is_delivered_when_it_is_complete() {
    let (mut a, mut b) = pair();
    let (source, inbox) = (a.filled(3000, EVERYTHING), b.region(3000, EVERYTHING));
    b.receive(1, &[all(&inbox)]);
    a.send(1, &[all(&source)]);
    let units = a.pull_all(SEGMENT_BYTES);
    for unit in &units[..units.len() - 1] {
        b.feed(unit).unwrap();
        assert!(b.log.receives.is_empty());
    }
    b.feed(units.last().unwrap()).unwrap();
    assert_eq!((b.log.receives.len(), Endpoint::bytes(&inbox)), (1, pattern(3000)));
}

/// Rules 5 and 10: when a Send is delivered, all earlier Writes are placed.
/// RFC 5040 s5.1 and s5.3; RFC 5041 s4.1 and s5.3.
#[test]
fn rules_5_and_10_earlier_writes_are_placed_when_a_send_is_delivered() {
    let (mut a, mut b, target, _inbox) = pair_with_target();
    let source = a.filled(4096, EVERYTHING);
    target.fill(0, 4096, 0).unwrap();
    a.write(1, &[all(&source)], remote(&target));
    a.send_inline(2, b"written");
    a.send_inline(3, b"and again");
    let units = a.pull_all(SEGMENT_BYTES);
    for unit in units {
        b.feed(&unit).unwrap();
        assert!(b.log.receives.is_empty() || Endpoint::bytes(&target) == pattern(4096));
    }
    assert_eq!(ids(&b.log.receives), [(1, OK), (2, OK)]);
    assert_eq!(b.log.receives[1].byte_len, 9, "in the order in which they were sent");
}

/// Rules 6, 11 and 19: a Read completes with the last segment of its response, and responses arrive
/// in order.
#[test]
fn rules_6_11_and_19_a_read_completes_when_its_response_is_complete() {
    let (mut a, mut b, target, _inbox) = pair_with_target();
    let (one, two) = (a.region(4096, EVERYTHING), a.region(64, EVERYTHING));
    a.read(1, all(&one), remote(&target));
    a.read(2, all(&two), remote(&target));
    let responses = deliver(&mut a, &mut b);
    for unit in &responses[..responses.len() - 1] {
        assert!(a.log.sends.is_empty());
        a.feed(unit).unwrap();
    }
    a.feed(responses.last().unwrap()).unwrap();
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK)]);
    assert_eq!((Endpoint::bytes(&one), Endpoint::bytes(&two)), (pattern(4096), pattern(64)));
}

/// Rule 9: a completed Send or Write shows that the peer's TCP has it, not that the peer's
/// application has.
#[test]
fn rule_9_a_completed_send_may_not_be_processed_by_the_peer() {
    let (mut a, _b, _, _inbox) = pair_with_target();
    a.send_inline(1, b"in flight");
    a.pull_all(SEGMENT_BYTES);
    a.ack_all();
    assert_eq!(ids(&a.log.sends), [(1, OK)], "although the application has not polled it");
}

/// Rules 12 and 17: a Read returns earlier Writes, with or without an empty Read between them.
/// RFC 5040 sB.
#[test]
fn rules_12_and_17_a_read_returns_earlier_writes() {
    for between in [false, true] {
        let (mut a, mut b, target, _inbox) = pair_with_target();
        let (source, sink) = (a.filled(4096, EVERYTHING), a.region(4096, EVERYTHING));
        target.fill(0, 4096, 0).unwrap();
        a.write(1, &[all(&source)], remote(&target));
        if between {
            a.read(2, Sge { len: 0, ..all(&sink) }, remote(&target));
        }
        a.read(3, all(&sink), remote(&target));
        run(&mut a, &mut b);
        assert_eq!(Endpoint::bytes(&sink), pattern(4096));
    }
}

/// Rule 12, last paragraph: a Read may return a later Write, unless that is fenced.
#[test]
fn rule_12_only_a_fence_hides_a_later_write_from_a_read() {
    for (flags, expected) in [(SendFlags::empty(), 9), (SendFlags::FENCE, 1)] {
        let (mut a, mut b, target, _inbox) = pair_with_target();
        let sink = a.region(64, EVERYTHING);
        a.read(1, all(&sink), remote(&target));
        a.post(2, SendOpcode::Write, |wqe| {
            wqe.set_inline(&[9; 1]);
            wqe.flags.insert(flags);
            (wqe.remote_stag, wqe.remote_to) = remote(&target);
        });
        run(&mut a, &mut b);
        assert_eq!(Endpoint::bytes(&sink)[0], expected);
        assert_eq!(Endpoint::bytes(&target)[0], 9);
        assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK)]);
    }
}

/// Rule 13: messages of every kind are sent in the order of posting.
/// RFC 5040 s5.1, s5.2.1 and s5.3; RFC 5041 s5.3.
#[test]
fn rule_13_messages_are_sent_in_the_order_of_posting() {
    let (mut a, _b, target, _inbox) = pair_with_target();
    let sink = a.region(8, EVERYTHING);
    a.send_inline(1, b"1");
    a.read(2, all(&sink), remote(&target));
    a.write(3, &[], remote(&target));
    a.send_inline(4, b"4");
    let sent: Vec<u8> =
        a.pull_all(SEGMENT_BYTES).iter().flat_map(|unit| ulpdus(unit)).map(|ulpdu| ulpdu[1]).collect();
    assert_eq!(sent, [0x43, 0x41, 0x40, 0x43]);
}

/// Rules 14 and 15: a request completes after the layer below has it, and after all earlier
/// requests.
#[test]
fn rules_14_and_15_completions_wait_for_tcp_and_earlier_requests() {
    let (mut a, mut b, target, _inbox) = pair_with_target();
    let sink = a.region(64, EVERYTHING);
    a.send_inline(1, b"first");
    a.read(2, all(&sink), remote(&target));
    a.write(3, &[], remote(&target));
    let responses = deliver(&mut a, &mut b);
    assert!(a.log.sends.is_empty(), "nothing is acknowledged");
    responses.iter().for_each(|unit| a.feed(unit).unwrap());
    assert!(a.log.sends.is_empty(), "the Read is answered and waits for the earlier Send");
    a.ack_all();
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK), (3, OK)]);
}

/// Rule 18: a Send after a Read Request may be delivered before the Read is answered.
#[test]
fn rule_18_a_send_is_delivered_before_an_earlier_read_is_answered() {
    let (mut a, mut b, target, _inbox) = pair_with_target();
    let sink = a.region(4096, EVERYTHING);
    a.read(1, all(&sink), remote(&target));
    a.send_inline(2, b"overtakes");
    for unit in a.pull_all(SEGMENT_BYTES) {
        b.feed(&unit).unwrap();
    }
    assert_eq!(ids(&b.log.receives), [(1, OK)]);
    assert!(!b.stream.responses.is_empty(), "the response is still pending");
}

/// Rule 20: responses are sent in the order of the requests.
/// RFC 5040 s5.2.1 and s5.2.2.
#[test]
fn rule_20_responses_keep_the_order_of_their_requests() {
    let (mut a, mut b, target, _inbox) = pair_with_target();
    let sinks: Vec<Region> = (0..4).map(|_| a.region(2000, EVERYTHING)).collect();
    for (id, sink) in sinks.iter().enumerate() {
        a.read(id as u64, all(sink), remote(&target));
    }
    let responses = deliver(&mut a, &mut b);
    let order: Vec<STag> = responses
        .iter()
        .flat_map(|unit| ulpdus(unit))
        .filter(|ulpdu| ulpdu[0] & 0x40 != 0)
        .map(|ulpdu| STag(u32::from_be_bytes(ulpdu[2..6].try_into().unwrap())))
        .collect();
    assert_eq!(order, sinks.iter().map(Region::stag).collect::<Vec<_>>());
}

/// RFC 5040 appendix B: a Read is answered after the Send before it completes. Here that completion
/// waits until no core uses the invalidated tag.
#[test]
fn a_read_is_answered_after_the_earlier_send_completes() {
    let (mut a, mut b, source, _inbox) = pair_with_target();
    let mut busy = b.table.core(CoreId(1)).unwrap();
    let (near, sink) = (AccessScope::new(PD, QpNum(1)), a.region(4096, EVERYTHING));
    let own = b.table.register_in_scope(near, vec![0u8; 8], Access::REMOTE_READ).unwrap();
    let _ = busy.resolve(own.stag(), near, own.base_to(), 1, Access::REMOTE_READ).unwrap();
    a.post(1, SendOpcode::SendInvalidate, |wqe| {
        wqe.set_inline(b"done");
        wqe.remote_stag = own.stag();
    });
    a.read(2, all(&sink), remote(&source));
    assert!(deliver(&mut a, &mut b).is_empty(), "no response is sent");
    assert!(b.log.receives.is_empty() && b.stream.awaits_quiescence());
    busy.quiesce();
    b.with(|stream, io| stream.retry_after_quiescence(io));
    assert_eq!(ids(&b.log.receives), [(1, OK)]);
    b.feed(&[]).unwrap();
    deliver(&mut b, &mut a);
    a.ack_all();
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK)]);
    assert_eq!(Endpoint::bytes(&sink), pattern(4096));
}

/// RFC 5040 s6.1: with IRD Reads pending the next one is refused, and with ORD outstanding the next
/// one waits. So two streams of this stack never cause that refusal.
#[test]
fn reads_within_ord_are_never_refused() {
    let limits = StreamConfig { ord: 2, ird: 2, ..config() };
    let (mut a, mut b) =
        (Endpoint::started(limits, Role::Initiator, true), Endpoint::started(limits, Role::Responder, true));
    let (sink, source) = (a.region(100, EVERYTHING), b.filled(100, EVERYTHING));
    (0..20).for_each(|id| a.read(id, all(&sink), remote(&source)));
    run(&mut a, &mut b);
    assert_eq!(a.log.sends.len(), 20);
    assert!(a.log.sends.iter().all(|read| read.status == OK));
}

/// Every operation that carries bytes, with no bytes, in one stream.
#[test]
fn empty_messages_complete_like_others() {
    let (mut a, mut b) = pair();
    (1..=4).for_each(|id| b.receive(id, &[]));
    let window_like =
        b.table.register_in_scope(AccessScope::new(PD, QpNum(1)), vec![0u8; 8], EVERYTHING).unwrap();
    for (id, opcode) in
        [SendOpcode::Send, SendOpcode::SendSolicited, SendOpcode::Write, SendOpcode::SendInvalidate]
            .into_iter()
            .enumerate()
    {
        a.post(id as u64, opcode, |wqe| {
            wqe.set_gather(&[]);
            wqe.remote_stag = window_like.stag();
        });
    }
    a.read(4, Sge::default(), (STag(0), 0));
    run(&mut a, &mut b);
    assert_eq!(a.log.sends.iter().filter(|done| done.status == OK).count(), 5);
    assert_eq!(b.log.receives.iter().filter(|done| done.byte_len == 0 && done.status == OK).count(), 3);
    assert_eq!(b.log.receives[2].invalidated, window_like.stag());
}
