//! Each way to end a connection, against a peer that sends only what the test specifies. The tests
//! check what the peer receives, and the events of our application.

use crate::common;

use std::time::{Duration, Instant};

use common::messages::{EMPTY_WRITE, REQUEST, TAKES_WRITES, fpdu, reply, request, send, tagged, terminate};
use common::peer::{PEER, Scene};
use ironwarp::{
    CompletionStatus, ConnectFailure, ConnectParams, DisconnectReason, Event, Nanos, PostError, QpAttr,
    QpState, QueuePair, RecvWr, RemoteMemory, STag, SendWr, Terminate, VerbsError,
};
use ironwarp_tcp::TcpEvents;

const OK: CompletionStatus = CompletionStatus::Success;
const FLUSHED: CompletionStatus = CompletionStatus::FlushedInError;
/// A steering tag that is not registered.
const NOBODYS: STag = STag(0x1234_5678);

/// A connection that the peer requested in revision 1, with one receive of 64 bytes.
fn connected() -> (Scene, QueuePair, ironwarp::Region) {
    let mut scene = Scene::new(|_| {});
    let (qp, inbox, _) = scene.answers(&request(0x40, 1, b""), 20);
    scene.negotiated();
    scene.peer.say(&fpdu(&EMPTY_WRITE));
    scene.event("the first message", |event| {
        matches!(event, Event::CommunicationEstablished { .. }).then_some(())
    });
    (scene, qp, inbox)
}

/// The names of our application's events, in order.
fn told(scene: &Scene) -> Vec<&'static str> {
    let name = |event: &Event| match event {
        Event::Established { .. } => "established",
        Event::CommunicationEstablished { .. } => "communicating",
        Event::ConnectFailed { .. } => "failed",
        Event::Terminated { sent: true, .. } => "terminate sent",
        Event::Terminated { .. } => "terminate received",
        Event::Disconnected { .. } => "disconnected",
        Event::QueuePairFatal { .. } => "fatal",
        _ => "something else",
    };
    scene.node.events.iter().map(name).collect()
}

fn ended(event: &Event) -> Option<DisconnectReason> {
    if let Event::Disconnected { reason, .. } = event { Some(*reason) } else { None }
}

fn failed(event: &Event) -> Option<ConnectFailure> {
    if let Event::ConnectFailed { reason, .. } = event { Some(*reason) } else { None }
}

fn statuses(scene: &Scene) -> Vec<(u64, CompletionStatus)> {
    scene.node.completions.iter().map(|one| (one.wr_id, one.status)).collect()
}

fn closes(scene: &mut Scene) {
    scene.until("FIN", |scene| scene.peer.events.contains(TcpEvents::PEER_CLOSED));
}

fn resets(scene: &mut Scene) {
    scene.until("RST", |scene| scene.peer.events.contains(TcpEvents::RESET));
}

/// RFC 6581 s9.2: the indication is sent although the application disconnects first. If it is a
/// Read, FIN follows the response.
#[test]
fn disconnecting_during_the_hold_off_sends_the_rtr_first() {
    for (takes, bytes) in [([0xc0, 16, 0, 16], 24), (TAKES_WRITES, 20), ([0x80, 16, 0x40, 16], 52)] {
        let mut scene = Scene::new(|_| {});
        let qp = scene.qp();
        let holdoff = Some(Nanos::from_millis(30));
        let params = ConnectParams { first_fpdu_holdoff: holdoff, ..Default::default() };
        scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
        scene.hear("the request", REQUEST.len());
        scene.peer.say(&reply(0x50, 2, &takes));
        scene.negotiated();
        scene.node.ctx.disconnect(qp).unwrap();
        scene.hear("the indication", bytes);
        if bytes == 52 {
            scene.turns(500);
            assert!(!scene.peer.events.contains(TcpEvents::PEER_CLOSED), "FIN before the Read Response");
            scene.peer.say(&fpdu(&tagged(2, 1, 0, b"")));
        }
        closes(&mut scene);
        assert!(scene.peer.heard.is_empty());
        scene.peer.close();
        assert_eq!(scene.event("the end", ended), DisconnectReason::Closed);
    }
}

/// RFC 5044 s7.1.2: a responder must not send even a Terminate before the first FPDU, so it reports
/// none.
#[test]
fn a_local_error_before_the_first_fpdu_reports_no_terminate() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.answers(&request(0x40, 1, b""), 20);
    scene.negotiated();
    scene.node.ctx.post_send(qp, &SendWr::invalidate(2, NOBODYS)).unwrap();
    closes(&mut scene);
    scene.peer.close();
    scene.until("the end", |scene| scene.node.is_disconnected(qp));
    assert_eq!((told(&scene), scene.peer.heard.len()), (vec!["fatal", "disconnected"], 0));
    let error = Terminate { layer: 0, etype: 0, code: 0 };
    assert_eq!(scene.event("the end", ended), DisconnectReason::LocalError(error));
    assert_eq!(statuses(&scene), [(2, CompletionStatus::LocalProtection), (1, FLUSHED)]);
}

/// semantics "Vanished peers": a client that never sends its first FPDU delays the server's Sends
/// until the user timeout.
#[test]
fn sends_that_wait_for_a_silent_initiator_time_out() {
    let mut scene = Scene::new(|config| config.tcp.user_timeout = Nanos::from_millis(20));
    let (qp, ..) = scene.answers(&request(0x40, 1, b""), 20);
    scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"hello")).unwrap();
    resets(&mut scene);
    assert_eq!(scene.event("the end", ended), DisconnectReason::TimedOut);
    assert_eq!(statuses(&scene), [(2, FLUSHED), (1, FLUSHED)]);
}

/// RFC 5044 s7.1.2: the same error on a connection that only the indication establishes. The
/// connection fails.
#[test]
fn a_local_error_before_the_rtr_arrives_fails_the_connection() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.answers(&request(0x50, 2, &[0x80, 16, 0xc0, 16]), 24);
    scene.node.ctx.post_send(qp, &SendWr::invalidate(2, NOBODYS)).unwrap();
    closes(&mut scene);
    scene.peer.close();
    scene.until("the end", |scene| scene.node.events.iter().any(|event| failed(event).is_some()));
    assert_eq!((told(&scene), scene.peer.heard.len()), (vec!["fatal", "failed"], 0));
    assert_eq!(scene.event("the failure", failed), ConnectFailure::LocalError);
}

/// RFC 6581 s9.3: a local error before the indication is sent is reported with code 5.
#[test]
fn a_local_error_before_our_rtr_is_terminated_with_code_5() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.calls(REQUEST.len());
    scene.node.ctx.post_send(qp, &SendWr::invalidate(2, NOBODYS)).unwrap();
    scene.turn();
    scene.peer.say(&reply(0x50, 2, &TAKES_WRITES));
    scene.negotiated();
    assert_eq!(scene.terminated(), (true, Terminate { layer: 2, etype: 0, code: 5 }));
    let want = fpdu(&terminate(&[0x20, 5, 0, 0]));
    assert_eq!(scene.hear("the Terminate", want.len()), want);
    closes(&mut scene);
    scene.peer.close();
    assert_eq!(scene.event("the end", ended), DisconnectReason::Terminated);
}

/// RFC 6581 s9.2: the connection fails if the initiator's first FPDU is invalid or a Terminate.
#[test]
fn an_invalid_first_fpdu_fails_the_connection() {
    let mut bad = fpdu(&EMPTY_WRITE);
    bad[8] ^= 1;
    let cases = [
        (bad, "terminate sent"),
        (fpdu(&tagged(0, NOBODYS.0, 0, b"x")), "terminate sent"),
        (fpdu(&terminate(&[0x20, 7, 0, 0])), "terminate received"),
    ];
    for (octets, how) in cases {
        let mut scene = Scene::new(|_| {});
        scene.answers(&request(0x50, 2, &[0x80, 16, 0xc0, 16]), 24);
        scene.peer.say(&octets);
        closes(&mut scene);
        scene.peer.close();
        scene.until("the failure", |scene| scene.node.events.iter().any(|event| failed(event).is_some()));
        assert_eq!(told(&scene), [how, "failed"]);
        assert_eq!(scene.event("the failure", failed), ConnectFailure::Terminated);
        assert_eq!(statuses(&scene), [(1, FLUSHED)]);
    }
}

/// RFC 5041 s6.2.1: our FIN closes our direction only. Data that the peer sends before its own FIN
/// is acknowledged, placed and delivered.
#[test]
fn data_that_crosses_our_fin_is_delivered() {
    let (mut scene, qp, inbox) = connected();
    let target = scene.node.memory(&[0; 8]);
    scene.node.ctx.disconnect(qp).unwrap();
    closes(&mut scene);
    scene.peer.say(&fpdu(&tagged(0, target.stag().0, target.base_to(), b"crossing")));
    scene.peer.say(&fpdu(&send(1, b"crossing too")));
    scene.received(&inbox, b"crossing too");
    assert_eq!((common::contents(&target), told(&scene)), (b"crossing".to_vec(), vec![]));
    scene.peer.close();
    assert_eq!(scene.event("the end", ended), DisconnectReason::Closed);
    assert_eq!(statuses(&scene), [(1, OK)]);
}

/// RFC 5041 s6.2.1: the peer's FIN does not cancel what was posted before our disconnect. Both
/// sides may disconnect at once.
#[test]
fn posted_work_is_sent_after_the_peers_fin() {
    const POSTED: u32 = 1 << 20;
    let (mut scene, qp, _inbox) = connected();
    let source = scene.node.memory(&vec![7; POSTED as usize]);
    let remote = RemoteMemory { stag: STag(1), tagged_offset: 0 };
    let all = [source.slice(0, POSTED).unwrap()];
    scene.node.ctx.post_send(qp, &SendWr::write(2, &all, remote)).unwrap();
    scene.node.ctx.disconnect(qp).unwrap();
    scene.peer.close();
    assert_eq!(scene.event("the end", ended), DisconnectReason::Closed);
    assert!(scene.peer.heard.len() > POSTED as usize, "the peer received the whole Write");
    assert_eq!(statuses(&scene), [(2, OK), (1, FLUSHED)]);
}

/// A Read without a response at the peer's FIN never gets one, so that FIN ends the connection.
#[test]
fn a_draining_read_ends_at_the_peers_fin() {
    let (mut scene, qp, _inbox) = connected();
    let sink = scene.node.memory(&[0; 8]);
    let remote = RemoteMemory { stag: STag(1), tagged_offset: 0 };
    scene.node.ctx.post_send(qp, &SendWr::read(2, &[sink.slice(0, 8).unwrap()], remote)).unwrap();
    scene.node.ctx.disconnect(qp).unwrap();
    scene.hear("the Read Request", 52);
    scene.peer.close();
    assert_eq!(scene.event("the end", ended), DisconnectReason::Closed);
    assert_eq!(statuses(&scene), [(2, FLUSHED), (1, FLUSHED)]);
}

/// The user timeout applies to a silent peer: a drain as a whole may take longer.
#[test]
fn a_drain_that_progresses_may_exceed_the_user_timeout() {
    const PIECES: u64 = 40;
    let mut scene = Scene::new(|config| config.tcp.user_timeout = Nanos::from_millis(40));
    let (qp, ..) = scene.answers(&request(0x40, 1, b""), 20);
    scene.peer.say(&fpdu(&EMPTY_WRITE));
    let sink = scene.node.memory(&[0; PIECES as usize]);
    let remote = RemoteMemory { stag: STag(1), tagged_offset: 0 };
    scene.node.ctx.post_send(qp, &SendWr::read(2, &[sink.slice(0, PIECES as u32).unwrap()], remote)).unwrap();
    scene.node.ctx.disconnect(qp).unwrap();
    scene.hear("the Read Request", 52);
    let begun = Instant::now();
    for piece in 0..PIECES {
        let due = Duration::from_millis(4 * piece);
        scene.until("time for the next piece", |_| begun.elapsed() >= due);
        let mut segment = tagged(2, sink.stag().0, sink.base_to() + piece, b"x");
        if piece + 1 < PIECES {
            // Every segment but the last has L = 0.
            segment[0] &= !0x40;
        }
        scene.peer.say(&fpdu(&segment));
    }
    closes(&mut scene);
    assert_eq!(statuses(&scene), [(2, OK)]);
}

/// RFC 5041 s6.2.1: a peer that continues to send after our FIN has the user timeout, and no
/// longer.
#[test]
fn a_peer_that_sends_after_our_fin_has_the_user_timeout() {
    const PATIENCE: Duration = Duration::from_millis(200);
    let mut scene = Scene::new(|config| {
        config.mpa.terminate_timeout_ms = 10;
        config.tcp.user_timeout = Nanos(PATIENCE.as_nanos() as u64);
    });
    let (qp, ..) = scene.answers(&request(0x40, 1, b""), 20);
    scene.peer.say(&fpdu(&EMPTY_WRITE));
    scene.negotiated();
    let begun = Instant::now();
    scene.node.ctx.disconnect(qp).unwrap();
    closes(&mut scene);
    scene.until("RST", |scene| {
        if scene.peer.has_said_all() {
            scene.peer.say(&fpdu(&EMPTY_WRITE));
        }
        scene.peer.events.contains(TcpEvents::RESET)
    });
    assert!(begun.elapsed() >= PATIENCE, "the user timeout had not expired");
    assert_eq!(scene.event("the end", ended), DisconnectReason::TimedOut);
}

/// RFC 5041 s6.2.1, s6.2.2: an error after our FIN resets the connection, because no Terminate
/// follows a FIN.
#[test]
fn an_error_after_our_fin_resets() {
    let (mut scene, qp, _inbox) = connected();
    scene.node.ctx.disconnect(qp).unwrap();
    closes(&mut scene);
    let mut bad = fpdu(&send(1, b"damaged"));
    bad[20] ^= 1;
    scene.peer.say(&bad);
    resets(&mut scene);
    let error = Terminate { layer: 2, etype: 0, code: 2 };
    assert_eq!(scene.event("the end", ended), DisconnectReason::LocalError(error));
    assert_eq!((told(&scene), statuses(&scene)), (vec![], vec![(1, FLUSHED)]));
}

/// RFC 5040 s5.4: the peer's Terminate is received after our FIN too.
#[test]
fn a_terminate_after_our_fin_is_received() {
    let (mut scene, qp, _inbox) = connected();
    scene.node.ctx.disconnect(qp).unwrap();
    closes(&mut scene);
    scene.peer.say(&fpdu(&terminate(&[0x12, 2, 0, 0])));
    assert_eq!(scene.terminated(), (false, Terminate { layer: 1, etype: 2, code: 2 }));
    scene.peer.close();
    assert_eq!(scene.event("the end", ended), DisconnectReason::Terminated);
}

/// semantics "Terminate": the peer has `terminate_timeout` to close, even if it continues to send.
#[test]
fn a_peer_that_never_closes_after_a_terminate_is_reset() {
    for talks in [false, true] {
        let (mut scene, _qp, _inbox) = connected();
        scene.peer.say(&fpdu(&tagged(0, NOBODYS.0, 0, b"x")));
        assert_eq!(scene.terminated(), (true, Terminate { layer: 1, etype: 1, code: 0 }));
        scene.hear("the Terminate", 44);
        closes(&mut scene);
        scene.until("RST", |scene| {
            if talks {
                scene.peer.say(&fpdu(&EMPTY_WRITE));
            }
            scene.peer.events.contains(TcpEvents::RESET)
        });
        assert_eq!(scene.event("the end", ended), DisconnectReason::Terminated);
        assert_eq!(scene.node.worker.resource_usage().connections, 0);
    }
}

/// semantics "Terminate": a Terminate that the peer's window blocks times out like one without a
/// reaction of the peer.
#[test]
fn a_terminate_blocked_by_a_zero_window_ends_with_a_reset() {
    let (mut scene, qp, _inbox) = connected();
    scene.peer.deaf = true;
    let source = scene.node.memory(&vec![7; 8 << 20]);
    let remote = RemoteMemory { stag: STag(1), tagged_offset: 0 };
    let all = [source.slice(0, 8 << 20).unwrap()];
    scene.node.ctx.post_send(qp, &SendWr::write(2, &all, remote)).unwrap();
    scene.turns(3000);
    assert!(scene.node.completions.is_empty(), "the window is closed");
    scene.peer.say(&fpdu(&tagged(0, NOBODYS.0, 0, b"x")));
    assert_eq!(scene.terminated(), (true, Terminate { layer: 1, etype: 1, code: 0 }));
    resets(&mut scene);
    assert_eq!(scene.event("the end", ended), DisconnectReason::Terminated);
    assert_eq!(statuses(&scene), [(2, FLUSHED), (1, FLUSHED)]);
    assert_eq!(scene.node.worker.resource_usage().connections, 0);
}

/// The same timeout applies to a peer that does not react to our FIN, and to a peer that we
/// rejected.
#[test]
fn a_peer_that_never_acknowledges_our_fin_is_reset() {
    let (mut scene, qp, _inbox) = connected();
    scene.node.ctx.disconnect(qp).unwrap();
    closes(&mut scene);
    resets(&mut scene);
    assert_eq!(scene.event("the end", ended), DisconnectReason::TimedOut);
    let mut scene = Scene::new(|_| {});
    let (asked, _) = scene.is_asked(&request(0x40, 1, b""));
    scene.node.ctx.reject(asked, b"no").unwrap();
    scene.hear("the refusal", 22);
    closes(&mut scene);
    resets(&mut scene);
    assert_eq!(scene.node.worker.resource_usage().connections, 0);
}

/// The same timeout applies to a peer that rejects our request and then does not close.
#[test]
fn a_peer_that_rejects_and_never_closes_is_released() {
    let mut scene = Scene::new(|_| {});
    scene.calls(REQUEST.len());
    let mut refusal = reply(0x40, 1, b"");
    refusal[16] |= 0x20;
    scene.peer.say(&refusal);
    closes(&mut scene);
    scene.until("the end", |scene| scene.node.worker.resource_usage().connections == 0);
    assert!(scene.node.events.iter().any(|event| matches!(event, Event::Rejected { .. })));
}

/// semantics "Terminate": the Terminate is sent although every frame of the pool is taken. The FIN
/// waits for a free frame.
#[test]
fn a_terminate_is_sent_when_the_pool_is_empty() {
    let (mut scene, ..) = connected();
    scene.control.allow_allocations(0);
    scene.peer.say(&fpdu(&tagged(0, NOBODYS.0, 0, b"x")));
    let heard = scene.hear("the Terminate", 44);
    assert_eq!(heard[20..22], [0x11, 0]);
    scene.turns(100);
    assert!(!scene.peer.events.contains(TcpEvents::PEER_CLOSED));
    scene.control.allow_allocations(u64::MAX);
    closes(&mut scene);
    scene.peer.close();
    assert_eq!(scene.event("the end", ended), DisconnectReason::Terminated);
}

/// RDMAC verbs s6.2.4: in the error state every request is flushed, those that were posted before
/// and those that follow. No connection ended, so no event says so.
#[test]
fn aborting_an_idle_queue_pair_flushes_its_receives_and_what_is_posted_later() {
    let mut scene = Scene::new(|_| {});
    let qp = scene.qp();
    let node = &mut scene.node;
    node.ctx.post_recvs(qp, &[RecvWr::new(1, &[]), RecvWr::new(2, &[])]).unwrap();
    let early = node.ctx.post_send(qp, &SendWr::send_inline(9, b"early"));
    assert_eq!(early, Err(PostError::WrongState(QpState::Idle)));
    node.ctx.abort(qp).unwrap();
    scene.until("two completions", |scene| scene.node.completions.len() == 2);
    let node = &mut scene.node;
    assert_eq!(node.ctx.qp_state(qp).unwrap(), QpState::Error);
    node.ctx.post_send(qp, &SendWr::send_inline(3, b"late")).unwrap();
    scene.until("the send", |scene| scene.node.completions.len() == 3);
    scene.node.ctx.post_recv(qp, &RecvWr::new(4, &[])).unwrap();
    scene.until("the receive", |scene| scene.node.completions.len() == 4);
    assert_eq!(statuses(&scene), [(1, FLUSHED), (2, FLUSHED), (3, FLUSHED), (4, FLUSHED)]);
    assert_eq!(told(&scene), Vec::<&str>::new());
    let node = &mut scene.node;
    let connected = node.ctx.connect(qp, PEER.parse().unwrap(), b"");
    assert!(matches!(connected, Err(VerbsError::WrongState(QpState::Error))), "{connected:?}");
    node.ctx.abort(qp).unwrap();
    scene.turns(10);
    assert_eq!(scene.node.completions.len(), 4, "a second abort changes nothing");
    scene.node.ctx.destroy_qp(qp).unwrap();
    scene.until("the destruction", |scene| scene.node.ctx.query_cq(scene.node.cq).unwrap().users == 0);
}

/// Receives of a shared queue stay for its other queue pairs; the event says that this one takes
/// none any more.
#[test]
fn aborting_an_idle_queue_pair_takes_no_shared_receive() {
    let mut scene = Scene::new(|_| {});
    let node = &mut scene.node;
    let srq = node.ctx.create_srq(node.pd, 4, 1).unwrap();
    node.ctx.post_srq_recv(srq, &RecvWr::new(1, &[])).unwrap();
    let attr = QpAttr { srq: Some(srq), ..QpAttr::new(node.cq) };
    let qp = node.ctx.create_qp(node.pd, &attr).unwrap();
    node.ctx.abort(qp).unwrap();
    let last = |event: &Event| matches!(event, Event::LastWqeReached { qp: one } if *one == qp).then_some(());
    scene.event("the last receive", last);
    scene.turns(10);
    assert_eq!(statuses(&scene), []);
    assert_eq!(scene.node.ctx.query_srq(srq).unwrap().posted, 1);
}
