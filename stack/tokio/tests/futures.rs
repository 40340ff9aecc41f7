//! Events, completions and workers as futures: nothing is lost when a future is dropped, and errors
//! are errors.

use std::time::Duration;

use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionStatus, Config, ConnectionRequest, Event, IdlePolicy,
    MacAddr, QpAttr, QueuePair, RecvWr, SendWr, Stack, Worker,
};
use ironwarp_tokio::{AsyncContext, AsyncCq, run_worker};
use tokio::time::timeout;

/// After this an expected event counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);

struct Side {
    _stack: Stack,
    ctx: AsyncContext,
    cq: AsyncCq,
    qp: QueuePair,
    buffer: ironwarp::Region,
}

fn stack(address: &str, port: MemoryPort) -> (Stack, Worker) {
    let mut config = Config::in_memory(address).expect("a configuration");
    config.core.idle = IdlePolicy::Sleep;
    config.core.sleep_poll_us = 50;
    Stack::builder(config).memory_port(port).build_one().expect("a stack")
}

fn side(address: &str, port: MemoryPort) -> Side {
    let (stack, worker) = stack(address, port);
    tokio::spawn(run_worker(worker));
    let mut ctx = AsyncContext::new(stack.context().expect("a context")).expect("a descriptor");
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(64).expect("a queue"));
    let cq = AsyncCq::new(&ctx, cq).expect("a descriptor");
    let qp = ctx.create_qp(pd, &QpAttr::new(cq.queue())).expect("a queue pair");
    let buffer = ctx.register(pd, vec![0; 64], Access::LOCAL_WRITE).expect("memory");
    Side { _stack: stack, ctx, cq, qp, buffer }
}

/// Two connected sides.
async fn connected() -> (Side, Side) {
    let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near, far) = pair(&MemoryConfig::default(), &far_port);
    let (mut near, mut far) = (side("10.0.0.1/24", near), side("10.0.0.2/24", far));
    let at = far.ctx.listen("10.0.0.2:0".parse().expect("an address")).expect("a port");
    near.ctx.connect(near.qp, at, b"").expect("connect");
    let request = timeout(PATIENCE, far.ctx.event()).await.expect("in time").expect("an event");
    let Event::ConnectRequest { request, .. } = request else { panic!("{request:?}") };
    far.ctx.accept(request, far.qp, b"").expect("accept");
    for side in [&mut near, &mut far] {
        until(side, |event| matches!(event, Event::Established { .. })).await;
    }
    (near, far)
}

/// Waits for an event. The first message of the peer is an event of its own.
async fn until(side: &mut Side, wanted: impl Fn(&Event) -> bool) {
    loop {
        let event = timeout(PATIENCE, side.ctx.event()).await.expect("in time").expect("an event");
        if wanted(&event) {
            return;
        }
        assert!(matches!(event, Event::CommunicationEstablished { .. }), "{event:?}");
    }
}

#[tokio::test]
async fn messages_wake_the_tasks_that_wait_for_them() {
    let (mut near, mut far) = connected().await;
    let server = tokio::spawn(async move {
        let mut received = Vec::new();
        for _ in 0..20 {
            far.ctx
                .post_recv(far.qp, &RecvWr::new(1, &[far.buffer.slice(0, 64).expect("inside")]))
                .expect("room");
            far.ctx.post_send(far.qp, &SendWr::send_inline(2, b"go on").unsignaled()).expect("room");
            let mut done = [Completion::default(); 4];
            let count = far.ctx.completions(&far.cq, &mut done).await.expect("a completion");
            received.extend(done[..count].iter().map(|one| (one.opcode, one.status, one.byte_len)));
        }
        received
    });
    for number in 1..=20 {
        near.ctx
            .post_recv(near.qp, &RecvWr::new(1, &[near.buffer.slice(0, 64).expect("inside")]))
            .expect("room");
        let mut done = [Completion::default(); 1];
        let reaped = timeout(PATIENCE, near.ctx.completions(&near.cq, &mut done)).await;
        assert_eq!(reaped.expect("in time").expect("a completion"), 1);
        let bytes = vec![7; number];
        near.ctx.post_send(near.qp, &SendWr::send_inline(3, &bytes).unsignaled()).expect("room");
    }
    let received = timeout(PATIENCE, server).await.expect("in time").expect("no panic");
    let expected = (1..=20).map(|bytes| (CompletionOpcode::Receive, CompletionStatus::Success, bytes));
    assert!(received.into_iter().eq(expected));
}

/// A future that is dropped while it waits has taken nothing: the next one gets what arrives
/// meanwhile.
#[tokio::test]
async fn a_dropped_future_loses_nothing() {
    let (mut near, mut far) = connected().await;
    let receive = RecvWr::new(9, &[]);
    far.ctx.post_recv(far.qp, &receive).expect("room");
    let mut done = [Completion::default(); 1];
    for _ in 0..3 {
        let nothing = timeout(Duration::from_millis(1), far.ctx.completions(&far.cq, &mut done)).await;
        assert!(nothing.is_err(), "nothing was sent");
        assert!(timeout(Duration::from_millis(1), far.ctx.event()).await.is_err(), "nothing has happened");
    }
    near.ctx.post_send(near.qp, &SendWr::send_inline(1, b"")).expect("room");
    let reaped = timeout(PATIENCE, far.ctx.completions(&far.cq, &mut done)).await.expect("in time");
    assert_eq!((reaped.expect("a completion"), done[0].wr_id), (1, 9));
    near.ctx.disconnect(near.qp).expect("open");
    until(&mut far, |event| matches!(event, Event::Disconnected { .. })).await;
}

/// Three requests of a peer that leaves before any is answered.
async fn requests() -> (Side, Side, Vec<QueuePair>, Vec<ConnectionRequest>) {
    let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near, far) = pair(&MemoryConfig::default(), &far_port);
    let (mut near, mut far) = (side("10.0.0.1/24", near), side("10.0.0.2/24", far));
    let at = far.ctx.listen("10.0.0.2:0".parse().expect("an address")).expect("a port");
    let (mut asked, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let pd = near.ctx.alloc_pd();
        let qp = near.ctx.create_qp(pd, &QpAttr::new(near.cq.queue())).expect("a queue pair");
        near.ctx.connect(qp, at, b"").expect("connect");
        asked.push(qp);
        let event = timeout(PATIENCE, far.ctx.event()).await.expect("in time").expect("an event");
        let Event::ConnectRequest { request, .. } = event else { panic!("{event:?}") };
        requests.push(request);
    }
    (near, far, asked, requests)
}

/// Nobody waits for the answer any more: the decision is given up, and what else has happened is
/// reported in its order.
#[tokio::test]
async fn a_decision_ends_with_its_request() {
    let (mut near, mut far, asked, requests) = requests().await;
    for qp in asked {
        near.ctx.destroy_qp(qp).expect("a queue pair");
    }
    let [first, second, third] = &requests[..] else { panic!("{requests:?}") };
    let never = timeout(PATIENCE, far.ctx.decide(third, std::future::pending::<()>()));
    assert_eq!(never.await.expect("in time").expect("an event"), None);
    // Their ends came before that of the third.
    assert_eq!(far.ctx.decide(second, std::future::ready(7)).await.expect("no error"), None);
    let event = timeout(PATIENCE, far.ctx.event()).await.expect("in time").expect("an event");
    assert!(matches!(&event, Event::RequestEnded { request } if request == first), "{event:?}");
}

#[tokio::test]
async fn a_decision_in_time_is_the_answer() {
    let (mut near, mut far, asked, mut requests) = requests().await;
    near.ctx.destroy_qp(asked[0]).expect("a queue pair");
    let last = requests.pop().expect("three");
    let decided = far.ctx.decide(&last, async {
        tokio::task::yield_now().await;
        "welcome"
    });
    let answer = timeout(PATIENCE, decided).await.expect("in time").expect("no error").expect("it waits");
    far.ctx.accept(last, far.qp, answer.as_bytes()).expect("accept");
    let established = timeout(PATIENCE, near.ctx.event()).await.expect("in time").expect("an event");
    let Event::Established { qp, private_data, .. } = established else { panic!("{established:?}") };
    assert_eq!((qp, &private_data[..]), (asked[2], &b"welcome"[..]));
    // What ended meanwhile is reported, whether it arrived before the decision or after it.
    let is_first =
        |event: &Event| matches!(event, Event::RequestEnded { request } if *request == requests[0]);
    let (mut has_ended, mut is_established) = (false, false);
    while !has_ended || !is_established {
        let event = timeout(PATIENCE, far.ctx.event()).await.expect("in time").expect("an event");
        has_ended |= is_first(&event);
        is_established |= matches!(event, Event::Established { .. });
    }
}

#[tokio::test]
async fn what_cannot_be_waited_for_is_an_error() {
    let (mut near, mut far) = connected().await;
    let mut done = [Completion::default(); 1];
    let foreign = near.ctx.completions(&far.cq, &mut done).await;
    assert_eq!(foreign.expect_err("a queue of another context").kind(), std::io::ErrorKind::InvalidInput);
    assert!(AsyncCq::new(&near.ctx, far.cq.queue()).is_err());
    assert_eq!(far.ctx.completions(&far.cq, &mut []).await.expect("no room is no error"), 0);
    let config = Config::in_memory("10.0.0.3/24").expect("a configuration");
    let (port, _far) = pair(&MemoryConfig::default(), &MemoryConfig::default());
    let (_stack, worker) = Stack::builder(config).memory_port(port).build_one().expect("a stack");
    let Err(error) = run_worker(worker).await;
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}

/// A worker whose task is aborted ends as one that is dropped: its contexts hear of it.
#[tokio::test]
async fn a_worker_whose_task_is_aborted_ends_its_connections() {
    let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near, _far) = pair(&MemoryConfig::default(), &far_port);
    let (stack, worker) = stack("10.0.0.1/24", near);
    let task = tokio::spawn(run_worker(worker));
    let mut ctx = AsyncContext::new(stack.context().expect("a context")).expect("a descriptor");
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(4).expect("a queue"));
    let qp = ctx.create_qp(pd, &QpAttr::new(cq)).expect("a queue pair");
    ctx.connect(qp, "10.0.0.2:1".parse().expect("an address"), b"").expect("connect");
    tokio::task::yield_now().await;
    task.abort();
    assert!(task.await.is_err(), "aborted");
    let event = timeout(PATIENCE, ctx.event()).await.expect("in time").expect("an event");
    assert!(matches!(event, Event::ConnectFailed { .. }), "{event:?}");
}
