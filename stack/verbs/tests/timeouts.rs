//! How long a queue pair waits for a silent peer: its own settings take precedence over those of
//! the stack.

use crate::common;

use std::time::Duration;

use common::Pair;
use ironwarp::instrument::{FaultRates, Faults};
use ironwarp::{DisconnectReason, Event, KeepAlive, Nanos, QpAttr, QueuePair, SendWr, VerbsError};

/// From now on no frame from the far node reaches the near node.
fn silence(pair: &mut Pair) {
    let everything = FaultRates { drop_ppm: 1_000_000, ..FaultRates::default() };
    pair.near.worker.port_control().set_faults(Faults { seed: 1, rx: everything, tx: FaultRates::default() });
}

fn timed_out(pair: &Pair, ours: QueuePair) -> bool {
    pair.near.events.iter().any(
        |event| matches!(event, Event::Disconnected { qp, reason: DisconnectReason::TimedOut } if *qp == ours),
    )
}

/// RFC 9293 s3.8.4 (MUST-24 to MUST-29): keep-alive runs only for queue pairs that enable it.
/// Without it an idle connection does not detect that the peer is gone.
#[test]
fn keep_alive_ends_only_the_queue_pair_that_enables_it() {
    let mut pair = Pair::new();
    let probing = KeepAlive { idle: Duration::from_millis(5), interval: Duration::from_millis(2), probes: 2 };
    let near = QpAttr { keep_alive: Some(probing), ..QpAttr::new(pair.near.cq) };
    let (watched, _) = pair.connect_with(&near, &QpAttr::new(pair.far.cq));
    pair.near.events.clear();
    pair.far.events.clear();
    let (plain, _) = pair.connect();
    assert!(pair.near.counter("tcp_keep_alive_probes") == 0 || pair.near.is_established(watched));
    silence(&mut pair);
    pair.until("the end of the queue pair with keep-alive", |pair| timed_out(pair, watched));
    assert!(pair.near.is_established(plain));
}

/// semantics "Vanished peers": each queue pair has its own user timeout.
#[test]
fn a_queue_pair_ends_after_its_own_user_timeout() {
    let mut pair = Pair::over(&ironwarp::memory::MemoryConfig::default(), |address| {
        let mut config = common::config(address);
        config.tcp.user_timeout = Nanos::from_secs(3_600);
        config
    });
    let short = QpAttr { user_timeout: Some(Duration::from_millis(20)), ..QpAttr::new(pair.near.cq) };
    let (hasty, _) = pair.connect_with(&short, &QpAttr::new(pair.far.cq));
    pair.near.events.clear();
    pair.far.events.clear();
    let (patient, _) = pair.connect();
    silence(&mut pair);
    for qp in [hasty, patient] {
        pair.near.ctx.post_send(qp, &SendWr::send(1, &[])).expect("room");
    }
    pair.until("the end of the queue pair with the short timeout", |pair| timed_out(pair, hasty));
    assert!(pair.near.is_established(patient));
}

#[test]
fn invalid_timeouts_are_named_errors() {
    let mut pair = Pair::new();
    let usual = QpAttr::new(pair.near.cq);
    let probing = KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(5), probes: 3 };
    for (attr, named) in [
        (QpAttr { user_timeout: Some(Duration::ZERO), ..usual.clone() }, "user timeout"),
        (QpAttr { user_timeout: Some(Duration::MAX), ..usual.clone() }, "user timeout"),
        (
            QpAttr { keep_alive: Some(KeepAlive { idle: Duration::ZERO, ..probing }), ..usual.clone() },
            "keep-alive idle time",
        ),
        (
            QpAttr { keep_alive: Some(KeepAlive { probes: 1, ..probing }), ..usual.clone() },
            "keep-alive probes",
        ),
    ] {
        let refused = pair.near.ctx.create_qp(pair.near.pd, &attr);
        assert!(matches!(refused, Err(VerbsError::OutOfRange { what, .. }) if what == named), "{refused:?}");
    }
}
