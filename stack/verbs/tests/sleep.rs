//! Workers that sleep (`core.idle = "sleep"`): nothing that needs a worker is left lying, and
//! nothing else wakes it.
//!
//! In virtual time no timer of the stack expires, and the timer of the sleep is set to a second, so
//! a descriptor that is readable at once was made readable by what the test did.

mod common;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use common::{Node, Pair, config};
use ironwarp::memory::{FarEnd, MemoryConfig, QueueRule, detached_queues, pair};
use ironwarp::{
    Config, IdlePolicy, MacAddr, Nanos, QpAttr, RecvWr, RemoteMemory, SendWr, Stack, Worker, WorkerThread,
};
use ironwarp_sim::VirtualClock;
use rustix::event::{PollFd, PollFlags, poll};

fn sleepy(address: &str) -> Config {
    let mut config = config(address);
    config.core.idle = IdlePolicy::Sleep;
    config.core.sleep_after_us = 0;
    config.core.sleep_poll_us = 1_000_000;
    config
}

/// Two nodes in virtual time; the near one may sleep.
fn sleepy_pair() -> (Pair, VirtualClock) {
    let clock = VirtualClock::new();
    let build = |config, port| {
        let built = Stack::builder(config).build_replayable(port, clock.clone(), [1, 2]);
        Node::of(built.expect("a stack"))
    };
    let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near, far) = pair(&MemoryConfig::default(), &far_port);
    let (near, far) = (build(sleepy("10.0.0.1/24"), near), build(config("10.0.0.2/24"), far));
    (Pair { near, far, at: common::FAR.parse().expect("an address") }, clock)
}

fn is_readable(fd: BorrowedFd<'_>, timeout_ms: i64) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout =
        rustix::event::Timespec { tv_sec: timeout_ms / 1_000, tv_nsec: timeout_ms % 1_000 * 1_000_000 };
    poll(&mut fds, Some(&timeout)).expect("a poll") == 1
}

fn wakes(worker: &Worker) -> bool {
    is_readable(worker.wake_fd().expect("it may sleep"), 0)
}

/// Polls until the worker has nothing to do and is armed.
#[track_caller]
fn arm(worker: &mut Worker, clock: &VirtualClock) {
    for _ in 0..10_000 {
        if worker.poll(1).work == 0 && worker.arm() {
            assert!(!wakes(worker), "nothing has happened");
            return;
        }
        clock.advance_to(worker.now() + Nanos::from_micros(100));
    }
    panic!("the worker always has something to do");
}

#[test]
fn a_worker_that_does_not_sleep_has_no_descriptor() {
    let mut pair = Pair::new();
    assert!(pair.near.worker.wake_fd().is_none());
    assert!(!pair.near.worker.arm());
}

/// Control calls, posts, new contexts and the end of a context: whatever a context asks of a core
/// wakes it.
#[test]
fn every_request_of_a_context_wakes_the_core() {
    let (mut pair, clock) = sleepy_pair();
    let (near, far) = pair.connect_in(&clock);
    let inbox = pair.far.memory(&[0; 64]);
    pair.far.ctx.post_recv(far, &RecvWr::new(1, &[inbox.slice(0, 64).expect("inside")])).expect("room");

    arm(&mut pair.near.worker, &clock);
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"hello")).expect("room");
    assert!(wakes(&pair.near.worker), "a posted request");
    assert!(pair.near.worker.poll(1).work > 0);
    assert!(!wakes(&pair.near.worker), "the poll has reset the descriptor");
    pair.until("the message", |pair| {
        clock.advance_to(pair.near.worker.now() + Nanos::from_micros(10));
        pair.far.completions.len() == 1 && pair.near.completions.len() == 1
    });

    arm(&mut pair.near.worker, &clock);
    pair.near.ctx.listen("10.0.0.1:1".parse().expect("an address")).expect("room");
    assert!(wakes(&pair.near.worker), "a control message");

    arm(&mut pair.near.worker, &clock);
    let other = pair.near.stack.context().expect("a context");
    assert!(wakes(&pair.near.worker), "a new context");

    arm(&mut pair.near.worker, &clock);
    drop(other);
    assert!(wakes(&pair.near.worker), "a context that is gone");
    arm(&mut pair.near.worker, &clock);
}

/// What is published before the worker is armed does not wake it: arming finds it.
#[test]
fn a_request_before_the_arming_prevents_the_sleep() {
    let (mut pair, clock) = sleepy_pair();
    let (near, _) = pair.connect_in(&clock);
    arm(&mut pair.near.worker, &clock);
    pair.near.worker.poll(1);
    let target = pair.far.memory(&[0; 8]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"hi", remote)).expect("room");
    assert!(!pair.near.worker.arm(), "the request is there");
    pair.until("the Write", |pair| {
        clock.advance_to(pair.near.worker.now() + Nanos::from_micros(10));
        pair.near.completions.len() == 1
    });
}

/// A connection attempt ends after 300 ms: the worker sleeps until then, and not for the second
/// after which it polls.
#[test]
fn a_sleep_ends_at_the_next_deadline() {
    let (mut pair, clock) = sleepy_pair();
    let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).expect("a queue pair");
    pair.near.ctx.connect(qp, "10.0.0.77:1".parse().expect("an address"), b"").expect("connect");
    arm(&mut pair.near.worker, &clock);
    let fd = pair.near.worker.wake_fd().expect("it may sleep");
    assert!(is_readable(fd, 900), "the timer of the sleep is that of the attempt");
}

/// A frame for another core, and a request for a word of another core: the core that has it wakes
/// the other.
#[test]
fn a_core_that_gets_something_from_another_core_is_woken() {
    let clock = VirtualClock::new();
    let device = MemoryConfig { queue_rule: QueueRule::All(0), ..MemoryConfig::default() };
    let (ports, _cable): (_, FarEnd) = detached_queues(&device, 2);
    let mut config = sleepy("10.0.0.1/24");
    config.core.count = 2;
    let built = Stack::builder(config).build_replayable_cores(ports, clock.clone(), [1, 2]);
    let (stack, mut workers) = built.expect("a stack");
    let mut ctx = stack.context().expect("a context");
    for worker in &mut workers {
        arm(worker, &clock);
    }
    // The leader tells the other core about the listener.
    ctx.listen("10.0.0.1:1".parse().expect("an address")).expect("room");
    assert_eq!([0, 1].map(|core| wakes(&workers[core])), [true, false]);
    assert!(!wakes(&workers[1]));
    workers[0].poll(1);
    assert!(wakes(&workers[1]), "a message of the leader");
}

/// Threads of the library that sleep, over ports that cannot wake them: messages arrive, and the
/// threads end when told to.
#[test]
fn threads_that_sleep_exchange_messages_and_stop() {
    let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near, far) = pair(&MemoryConfig::default(), &far_port);
    let node = |address: &str, port| {
        let mut config = Config::in_memory(address).expect("a configuration");
        config.core.idle = IdlePolicy::Sleep;
        Stack::builder(config).memory_port(port).build_one().expect("a stack")
    };
    let ((near, near_worker), (far, far_worker)) = (node("10.0.0.1/24", near), node("10.0.0.2/24", far));
    let spawn = |worker: Worker| worker.spawn(None).expect("a thread");
    let threads = [spawn(near_worker), spawn(far_worker)];
    let mut client = near.context().expect("a context");
    let mut server = far.context().expect("a context");
    let at = server.listen("10.0.0.2:0".parse().expect("an address")).expect("a port");
    let cq = client.create_cq(16).expect("a queue");
    let pd = client.alloc_pd();
    let qp = client.create_qp(pd, &QpAttr::new(cq)).expect("a queue pair");
    client.connect(qp, at, b"").expect("connect");
    let deadline = Instant::now() + Duration::from_secs(30);
    let wait = |ctx: &mut ironwarp::Context| loop {
        ctx.arm_events();
        if let Some(event) = ctx.poll_event() {
            return event;
        }
        assert!(Instant::now() < deadline, "timed out");
        is_readable(ctx.event_fd().as_fd(), 1_000);
    };
    let ironwarp::Event::ConnectRequest { request, .. } = wait(&mut server) else { panic!("a request") };
    let (server_pd, server_cq) = (server.alloc_pd(), server.create_cq(16).expect("a queue"));
    let accepted = server.create_qp(server_pd, &QpAttr::new(server_cq)).expect("a queue pair");
    server.accept(request, accepted, b"").expect("accept");
    assert!(matches!(wait(&mut client), ironwarp::Event::Established { .. }));
    client.disconnect(qp).expect("open");
    while !matches!(wait(&mut client), ironwarp::Event::Disconnected { .. }) {}
    let workers: Vec<_> = threads.into_iter().map(WorkerThread::stop).collect();
    assert!(workers.iter().all(Option::is_some), "no thread panicked");
}

impl Pair {
    /// As [`Pair::connect`], in virtual time.
    fn connect_in(&mut self, clock: &VirtualClock) -> (ironwarp::QueuePair, ironwarp::QueuePair) {
        clock.advance_to(Nanos::from_millis(1));
        self.connect()
    }
}
