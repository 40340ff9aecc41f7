//! A worker that is dropped, or panics, leaves nothing behind that waits: every work request is
//! flushed, every context gets an event, and every peer sees a reset.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::{Node, Pair};
use ironwarp::{
    Completion, CompletionQueue, CompletionStatus, ConnectFailure, Context, DisconnectReason, Event, Nanos,
    PostError, QpAttr, QpState, QueuePair, RecvWr, Region, SendWr, Sge, Stack, VerbsError,
};
use ironwarp_types::Clock;

/// A context whose worker is gone.
struct OrphanedContext {
    ctx: Context,
    cq: CompletionQueue,
}

impl OrphanedContext {
    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.ctx.poll_event()).collect()
    }

    /// Reaps all completions, which are flushed, and returns their requests in order.
    fn flushed(&mut self) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut reaped = [Completion::default(); 8];
        loop {
            let count = self.ctx.poll_cq(self.cq, &mut reaped).expect("the queue exists");
            if count == 0 {
                ids.sort_unstable();
                return ids;
            }
            let reaped = &reaped[..count];
            assert!(reaped.iter().all(|one| one.status == CompletionStatus::FlushedInError), "{reaped:?}");
            ids.extend(reaped.iter().map(|one| one.wr_id));
        }
    }
}

/// Drops the worker of the near node.
fn drop_worker(pair: Pair) -> (OrphanedContext, Node) {
    let Pair { near, far, .. } = pair;
    let Node { worker, ctx, cq, .. } = near;
    drop(worker);
    (OrphanedContext { ctx, cq }, far)
}

/// Connects, and posts three receives and two Sends that have not left.
fn with_work(mut pair: Pair) -> (Pair, QueuePair, QueuePair, Region) {
    let (near, far) = pair.connect();
    let region = pair.near.memory(&[7; 64]);
    for wr_id in 0..3 {
        pair.near.ctx.post_recv(near, &RecvWr::new(wr_id, &[eight(&region)])).expect("room");
    }
    for wr_id in 10..12 {
        pair.near.ctx.post_send(near, &SendWr::send(wr_id, &[eight(&region)])).expect("room");
    }
    pair.near.events.clear();
    (pair, near, far, region)
}

fn eight(region: &Region) -> Sge {
    region.slice(0, 8).expect("inside")
}

fn disconnected(events: &[Event], of: QueuePair) -> Option<DisconnectReason> {
    events.iter().find_map(|event| match event {
        Event::Disconnected { qp, reason } if *qp == of => Some(*reason),
        _ => None,
    })
}

fn failed(events: &[Event], of: QueuePair) -> Option<ConnectFailure> {
    events.iter().find_map(|event| match event {
        Event::ConnectFailed { qp, reason } if *qp == of => Some(*reason),
        _ => None,
    })
}

#[test]
fn a_dropped_worker_flushes_its_queue_pairs_and_resets_their_peers() {
    let (pair, near_qp, far_qp, region) = with_work(Pair::new());
    let (mut near, mut far) = drop_worker(pair);
    assert_eq!(near.flushed(), [0, 1, 2, 10, 11]);
    assert_eq!(disconnected(&near.events(), near_qp), Some(DisconnectReason::WorkerDropped));
    assert_eq!(near.ctx.qp_state(near_qp).expect("it exists"), QpState::Error);
    // Nobody would flush what is posted now.
    let send = near.ctx.post_send(near_qp, &SendWr::send(1, &[eight(&region)]));
    assert_eq!(send, Err(PostError::WorkerDropped));
    let receive = near.ctx.post_recv(near_qp, &RecvWr::new(1, &[eight(&region)]));
    assert_eq!(receive, Err(PostError::WorkerDropped));
    assert!(matches!(near.ctx.disconnect(near_qp), Err(VerbsError::WorkerDropped)));
    assert_eq!(near.flushed(), []);
    for _ in 0..1_000 {
        far.turn();
    }
    assert_eq!(disconnected(&far.events, far_qp), Some(DisconnectReason::Reset));
}

/// A clock of which one reading panics when told to: a fault in the loop.
#[derive(Clone)]
struct FaultyClock {
    start: Instant,
    fault: Arc<AtomicBool>,
}

impl Clock for FaultyClock {
    fn now(&self) -> Nanos {
        assert!(!self.fault.swap(false, Ordering::Relaxed), "a fault in the loop");
        Nanos(self.start.elapsed().as_nanos() as u64)
    }
}

#[test]
fn a_worker_that_panics_flushes_its_queue_pairs() {
    let fault = Arc::new(AtomicBool::new(false));
    let clock = FaultyClock { start: Instant::now(), fault: fault.clone() };
    let (pair, near_qp, far_qp, region) = with_work(Pair::of(|config, port| {
        Stack::builder(config).build_replayable(port, clock, [1, 2]).expect("a stack")
    }));
    let Pair { near: Node { worker, ctx, cq, .. }, mut far, .. } = pair;
    // The first iteration of the thread panics, before it sends what is posted.
    fault.store(true, Ordering::Relaxed);
    let thread = worker.spawn(None).expect("a thread");
    while !ctx.qp_state(near_qp).is_ok_and(|state| state == QpState::Error) {
        std::thread::yield_now();
    }
    assert!(thread.stop().is_none(), "the worker is gone");
    let mut near = OrphanedContext { ctx, cq };
    assert_eq!(disconnected(&near.events(), near_qp), Some(DisconnectReason::WorkerDropped));
    near.flushed();
    let send = near.ctx.post_send(near_qp, &SendWr::send(1, &[eight(&region)]));
    assert_eq!(send, Err(PostError::WorkerDropped));
    for _ in 0..1_000 {
        far.turn();
    }
    assert_eq!(disconnected(&far.events, far_qp), Some(DisconnectReason::Reset));
}

/// A queue pair in set-up and one without a connection.
#[test]
fn a_dropped_worker_ends_set_ups_and_flushes_idle_queue_pairs() {
    let mut pair = Pair::new();
    let attr = QpAttr::new(pair.near.cq);
    let idle = pair.near.ctx.create_qp(pair.near.pd, &attr).expect("a queue pair");
    let connecting = pair.near.ctx.create_qp(pair.near.pd, &attr).expect("a queue pair");
    let region = pair.near.memory(&[0; 64]);
    pair.near.ctx.connect(connecting, pair.at, b"").expect("connect");
    pair.near.ctx.post_recv(connecting, &RecvWr::new(5, &[eight(&region)])).expect("room");
    let (mut near, _) = drop_worker(pair);
    assert_eq!(near.flushed(), [5]);
    assert_eq!(failed(&near.events(), connecting), Some(ConnectFailure::WorkerDropped));
    // It was never assigned to a core: it may be destroyed.
    assert_eq!(near.ctx.qp_state(idle).expect("it exists"), QpState::Idle);
    near.ctx.destroy_qp(idle).expect("no worker is needed");
}

/// More events than the ring of a context holds.
#[test]
fn no_event_of_a_dropped_worker_is_lost() {
    const QUEUE_PAIRS: usize = 1_500;
    let mut pair = Pair::over(&Default::default(), |address| {
        let mut config = common::config(address);
        config.limits.queue_pairs = QUEUE_PAIRS as u32;
        config
    });
    let attr = QpAttr { send_depth: 1, recv_depth: 1, ..QpAttr::new(pair.near.cq) };
    for _ in 0..QUEUE_PAIRS {
        let qp = pair.near.ctx.create_qp(pair.near.pd, &attr).expect("a queue pair");
        pair.near.ctx.connect(qp, pair.at, b"").expect("the context keeps what the ring has no room for");
    }
    let (mut near, _) = drop_worker(pair);
    let dropped =
        |event: &&Event| matches!(event, Event::ConnectFailed { reason: ConnectFailure::WorkerDropped, .. });
    assert_eq!(near.events().iter().filter(dropped).count(), QUEUE_PAIRS);
}
