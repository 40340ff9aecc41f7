//! Shared receive queues: each core holds a part of the receives.

use ironwarp::{CompletionStatus, Event, RecvWr, Region, SendWr, SharedReceiveQueue};

use crate::many_cores::bench::{Bench, Plan};

/// SRQ_LIMIT is one event for an arming, however many cores have a part below the limit.
#[test]
fn the_srq_limit_event_is_raised_once_for_all_cores() {
    let mut bench = Plan { cores: 3, rule: None, tune: |_| () }.bench();
    let pd = bench.far.pd;
    let srq = bench.far.ctx.create_srq(pd, 4, 1).unwrap();
    let told = |bench: &Bench| {
        let is_low = |event: &&Event| matches!(event, Event::SrqLimitReached { srq: low } if *low == srq);
        bench.far.events.iter().filter(is_low).count()
    };
    for armings in 1..=3 {
        bench.far.ctx.arm_srq(srq, 1).unwrap();
        (0..8).for_each(|_| bench.turn());
        assert_eq!(told(&bench), armings, "nothing is posted: every part is below the limit when armed");
    }
    bench.far.ctx.arm_srq(srq, 0).unwrap();
    (0..8).for_each(|_| bench.turn());
    assert_eq!(told(&bench), 3, "a limit of 0 arms nothing");
}

fn post(bench: &mut Bench, srq: SharedReceiveQueue, inbox: &Region) {
    let room = [inbox.slice(0, 8).unwrap()];
    bench.far.ctx.post_srq_recv(srq, &RecvWr::new(1, &room)).unwrap();
}

/// RFC 5041 s7.2: a message that finds no receive ends its stream. If the application reposts each
/// consumed receive, no message lacks one, whichever core it arrives on.
#[test]
fn a_post_refills_the_core_that_consumed_the_receive() {
    for core in 0..2 {
        let mut bench = Plan { cores: 2, rule: None, tune: |_| () }.bench();
        let srq = bench.far.ctx.create_srq(bench.far.pd, 16, 1).unwrap();
        bench.far.srq = Some(srq);
        let inbox = bench.far.memory(&[0; 8]);
        (0..16).for_each(|_| post(&mut bench, srq, &inbox));
        let qp = bench.connect([Some(core)])[0];
        for message in 0..200 {
            bench.near.ctx.post_send(qp, &SendWr::send_inline(message, b"a word").unsignaled()).unwrap();
            bench.until("a message", |bench| !bench.far.completions.is_empty());
            let came = bench.far.completions.remove(0);
            assert_eq!(came.status, CompletionStatus::Success, "message {message} to core {core}");
            post(&mut bench, srq, &inbox);
        }
    }
}

/// RFC 5041 s7.2, semantics "Completions and threads": a core uses its own ring. A message that
/// finds it empty ends its stream with "no buffer", also if another core's ring has receives. The
/// limit event comes before, and names no core.
#[test]
fn a_core_whose_ring_is_empty_takes_no_receive_of_another_core() {
    let mut bench = Plan { cores: 2, rule: None, tune: |_| () }.bench();
    let srq = bench.far.ctx.create_srq(bench.far.pd, 16, 1).unwrap();
    bench.far.srq = Some(srq);
    let inbox = bench.far.memory(&[0; 8]);
    (0..8).for_each(|_| post(&mut bench, srq, &inbox));
    bench.far.ctx.arm_srq(srq, 2).unwrap();
    let qp = bench.connect([Some(0)])[0];
    let is_low = |event: &Event| matches!(event, Event::SrqLimitReached { srq: low } if *low == srq);
    for message in 0..4u32 {
        let send = SendWr::send_inline(message.into(), b"a word").unsignaled();
        bench.near.ctx.post_send(qp, &send).unwrap();
        bench.until("a message", |bench| !bench.far.completions.is_empty());
        assert_eq!(bench.far.completions.remove(0).status, CompletionStatus::Success);
        (0..4).for_each(|_| bench.turn());
        assert_eq!(bench.far.events.iter().any(is_low), message >= 2, "message {message}");
    }
    assert_eq!(bench.far.ctx.query_srq(srq).unwrap().posted, 4, "the other core's ring is full");
    bench.near.ctx.post_send(qp, &SendWr::send_inline(9, b"none").unsignaled()).unwrap();
    let told = |event: &Event| {
        matches!(event, Event::Terminated { sent: false, terminate, .. }
            if (terminate.layer, terminate.etype, terminate.code) == (1, 2, 2))
    };
    bench.until("the end", |bench| bench.near.events.iter().any(told));
    assert_eq!(bench.far.counter("verbs_srq_empty_disconnects"), 1);
    assert_eq!(bench.far.ctx.query_srq(srq).unwrap().posted, 4);
}
