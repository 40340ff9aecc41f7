//! A clock that goes back, as after the restore of a virtual machine: connections and timers go on.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use common::Pair;
use ironwarp::{CompletionStatus, Event, Nanos, QpAttr, RecvWr, SendWr, Stack};
use ironwarp_types::Clock;

/// The time since a start that a test can move.
#[derive(Clone)]
struct MovableClock {
    start: Instant,
    ahead: Arc<AtomicU64>,
}

impl Clock for MovableClock {
    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64 + self.ahead.load(Ordering::Relaxed))
    }
}

/// RFC 7323 s5.4: time stamps that went back would make the peer drop every segment.
#[test]
fn connections_and_timers_go_on_when_the_clock_goes_back() {
    let hour = 3_600_000_000_000;
    let ahead = Arc::new(AtomicU64::new(hour));
    let clock = MovableClock { start: Instant::now(), ahead: ahead.clone() };
    let mut pair = Pair::of(|config, port| {
        Stack::builder(config).build_replayable(port, clock, [1, 2]).expect("a stack")
    });
    let (near, far) = pair.connect();
    let (here, there) = (pair.near.memory(b"a message"), pair.far.memory(&[0; 9]));
    for (number, moved) in [(1, hour / 2), (2, 0)] {
        ahead.store(moved, Ordering::Relaxed);
        let sink = there.slice(0, 9).expect("inside");
        pair.far.ctx.post_recv(far, &RecvWr::new(number, &[sink])).expect("room");
        let source = here.slice(0, 9).expect("inside");
        pair.near.ctx.post_send(near, &SendWr::send(number, &[source])).expect("room");
        pair.until("both completions", |pair| {
            pair.near.completions.len() as u64 == number && pair.far.completions.len() as u64 == number
        });
        assert_eq!(pair.near.counter("cores_clock_steps"), number);
    }
    assert!(pair.near.completions.iter().all(|one| one.status == CompletionStatus::Success));
    // A timer: nobody answers at this address.
    let attr = QpAttr::new(pair.near.cq);
    let qp = pair.near.ctx.create_qp(pair.near.pd, &attr).expect("a queue pair");
    pair.near.ctx.connect(qp, "10.0.0.9:1".parse().expect("an address"), b"").expect("connect");
    pair.until("the end of the attempt", |pair| {
        pair.near.events.iter().any(|event| matches!(event, Event::ConnectFailed { .. }))
    });
}
