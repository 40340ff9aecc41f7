//! Split queues on threads of their own: nothing is lost, and order is kept, while objects come and
//! go.

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Pair, config};
use ironwarp::{
    Completion, CompletionStatus, Config, CqPoller, IdlePolicy, Nanos, PostError, QpAttr, QpNum, RecvWr,
    SendPoster, SendWr,
};

/// Messages of each queue pair.
const MESSAGES: u64 = 3000;

/// When a test that waits for other threads fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn yielding(address: &str) -> Config {
    with_idle(address, IdlePolicy::Yield)
}

fn with_idle(address: &str, idle: IdlePolicy) -> Config {
    let mut config = config(address);
    config.core.idle = idle;
    config.tcp.user_timeout = Nanos::from_secs(60);
    config
}

/// Posts as many Sends as half of the receives that the peer has posted allow, and again while a
/// queue is full.
fn post_all(send: &mut SendPoster, receives_posted: &AtomicU64) {
    let give_up = Instant::now() + PATIENCE;
    for id in 0..MESSAGES {
        while id >= receives_posted.load(Ordering::Acquire) / 2 {
            assert!(Instant::now() < give_up, "no receive in {PATIENCE:?}");
            thread::yield_now();
        }
        let send_wr = SendWr::send_inline(id, &[]);
        let wr = if id % 3 == 0 { send_wr } else { send_wr.unsignaled() };
        loop {
            match send.post_send(&wr) {
                Ok(()) => break,
                Err(PostError::CqFull | PostError::QueueFull) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
            assert!(Instant::now() < give_up, "no room in {PATIENCE:?}");
        }
    }
}

/// Reaps until every queue pair has `count` completions, and returns their numbers by queue pair.
fn reap_all_of(poller: &mut CqPoller, qps: usize, count: u64) -> HashMap<QpNum, Vec<u64>> {
    let give_up = Instant::now() + PATIENCE;
    let (mut reaped, mut total) = (HashMap::<_, Vec<u64>>::new(), 0);
    while total < qps as u64 * count {
        let mut some = [Completion::default(); 16];
        let found = poller.poll(&mut some).expect("the queue exists");
        for completion in &some[..found] {
            assert_eq!(completion.status, CompletionStatus::Success);
            reaped.entry(completion.qp).or_default().push(completion.wr_id);
        }
        total += found as u64;
        thread::yield_now();
        assert!(Instant::now() < give_up, "{total} completions in {PATIENCE:?}");
    }
    reaped
}

/// Two threads post to two queue pairs, a third polls their completions; at the other end one posts
/// receives and one polls. The completion queue has room for a few requests, so the threads wait
/// for each other's entries.
#[test]
fn two_threads_post_and_a_third_polls() {
    post_from_two_threads(IdlePolicy::Yield);
}

/// The same with workers that sleep when they have nothing to do: a post of any thread wakes them.
#[test]
fn posts_of_two_threads_wake_a_worker_that_sleeps() {
    post_from_two_threads(IdlePolicy::Sleep);
}

fn post_from_two_threads(idle: IdlePolicy) {
    let mut pair = Pair::over(&Default::default(), |address| with_idle(address, idle));
    let cq = pair.near.ctx.create_cq(8).unwrap();
    let far_cq = pair.far.ctx.create_cq(256).unwrap();
    let srq = pair.far.ctx.create_srq(pair.far.pd, 128, 1).unwrap();
    let mut receives = pair.far.ctx.split_srq(srq).unwrap();
    (0..128).for_each(|id| receives.post_recv(&RecvWr::new(id, &[])).unwrap());
    let receives_posted = AtomicU64::new(128);
    let near_attr = QpAttr { send_cq: cq, ..QpAttr::new(pair.near.cq) };
    let far_attr = QpAttr { recv_cq: far_cq, srq: Some(srq), ..QpAttr::new(pair.far.cq) };
    let qps = [(); 2].map(|()| {
        pair.near.events.clear();
        pair.far.events.clear();
        pair.connect_with(&near_attr, &far_attr).0
    });
    let mut sends = qps.map(|qp| pair.near.ctx.split_qp(qp).unwrap().0);
    let mut poller = pair.near.ctx.split_cq(cq).unwrap();
    let mut far_poller = pair.far.ctx.split_cq(far_cq).unwrap();
    let workers = [pair.near.worker, pair.far.worker].map(|worker| worker.spawn(None).unwrap());
    let (replace, replaced) = std::sync::mpsc::channel();
    let (sent, received) = thread::scope(|threads| {
        let [one, other] = &mut sends;
        threads.spawn(|| post_all(one, &receives_posted));
        threads.spawn(|| post_all(other, &receives_posted));
        let posted = &receives_posted;
        threads.spawn(move || {
            for id in replaced {
                while receives.post_recv(&RecvWr::new(id, &[])).is_err() {
                    thread::yield_now();
                }
                posted.fetch_add(1, Ordering::Release);
            }
        });
        let receiving = threads.spawn(move || {
            let give_up = Instant::now() + PATIENCE;
            let mut received = 0;
            while received < 2 * MESSAGES {
                let mut some = [Completion::default(); 16];
                let found = far_poller.poll(&mut some).expect("the queue exists") as u64;
                (0..found).for_each(|more| replace.send(received + more).unwrap());
                received += found;
                assert!(Instant::now() < give_up, "{received} messages in {PATIENCE:?}");
                thread::yield_now();
            }
            received
        });
        let sent = reap_all_of(&mut poller, 2, MESSAGES / 3);
        (sent, receiving.join().unwrap())
    });
    let in_order: Vec<u64> = (0..MESSAGES).step_by(3).collect();
    assert_eq!((sent.len(), received), (2, 2 * MESSAGES));
    assert!(sent.values().all(|ids| *ids == in_order), "the order of a queue pair's posts");
    assert!(workers.into_iter().all(|worker| worker.stop().is_some()));
    assert_eq!(pair.near.ctx.query_cq(cq).unwrap().depth, 8);
}

/// The context destroys the queue pair while another thread posts: every post that succeeds has its
/// completion, and the ends may be dropped in any order.
#[test]
fn every_request_that_was_posted_while_its_queue_pair_is_destroyed_completes() {
    let mut pair = Pair::over(&Default::default(), yielding);
    for round in 0..30 {
        let cq = pair.near.ctx.create_cq(64).unwrap();
        pair.near.events.clear();
        pair.far.events.clear();
        let (near_attr, far_attr) = (QpAttr::new(cq), QpAttr::new(pair.far.cq));
        let (near, far) = pair.connect_with(&near_attr, &far_attr);
        let (mut send, mut recv) = pair.near.ctx.split_qp(near).unwrap();
        let mut poller = pair.near.ctx.split_cq(cq).unwrap();
        let (started, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        let target = pair.far.memory(&[0; 8]);
        let place = ironwarp::RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
        let (posted, completed) = thread::scope(|threads| {
            let posting = threads.spawn(|| {
                let mut posted = 0;
                loop {
                    let outcomes = [
                        send.post_send(&SendWr::write_inline(1, b"x", place)),
                        recv.post_recv(&RecvWr::new(2, &[])),
                    ];
                    posted += outcomes.iter().filter(|outcome| outcome.is_ok()).count();
                    started.store(true, Ordering::Relaxed);
                    if outcomes.contains(&Err(PostError::UnknownQueuePair)) {
                        stopped.store(true, Ordering::Release);
                        if round % 2 == 0 {
                            drop(send);
                            drop(recv);
                        } else {
                            drop(recv);
                            drop(send);
                        }
                        return posted;
                    }
                    thread::yield_now();
                }
            });
            let polling = threads.spawn(|| {
                let mut completed = 0;
                loop {
                    match poller.poll(&mut [Completion::default(); 16]) {
                        Ok(found) => completed += found,
                        Err(_) => return completed,
                    }
                    thread::yield_now();
                }
            });
            pair.until("a post", |_| started.load(Ordering::Relaxed));
            (0..round % 7).for_each(|_| pair.turn());
            pair.near.ctx.destroy_qp(near).unwrap();
            pair.until("the end of posting", |_| stopped.load(Ordering::Acquire));
            pair.until("the queue to be free", |pair| pair.near.ctx.destroy_cq(cq).is_ok());
            pair.until("the poller's end", |_| polling.is_finished());
            (posting.join().unwrap(), polling.join().unwrap())
        });
        assert_eq!(completed, posted, "round {round}");
        pair.far.ctx.destroy_qp(far).unwrap();
    }
    pair.until("every place to be free", |pair| {
        pair.near.worker.resource_usage().queue_pairs + pair.far.worker.resource_usage().queue_pairs == 0
    });
}
