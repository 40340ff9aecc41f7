//! Set-up and end of connections, from an application's view.

use super::common;

use common::{FAR, Pair, config};
use ironwarp::{
    CompletionStatus, ConnectFailure, DisconnectReason, Event, PostError, QpAttr, QpState, RecvWr,
    RemoteMemory, SendWr, VerbsError,
};

fn failure(pair: &Pair) -> Option<ConnectFailure> {
    pair.near.events.iter().find_map(|event| match event {
        Event::ConnectFailed { reason, .. } => Some(*reason),
        _ => None,
    })
}

/// RFC 5044 s7.1.2: private data is exchanged in both directions during start-up.
#[test]
fn both_sides_receive_the_peers_private_data() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let said = pair.near.events.iter().find_map(|event| match event {
        Event::Established { qp, private_data, .. } if *qp == near => Some(private_data.to_vec()),
        _ => None,
    });
    assert_eq!(said.as_deref(), Some(&b"from far"[..]));
    assert_eq!(pair.near.ctx.qp_state(near).unwrap(), QpState::Established);
    assert_eq!(pair.far.ctx.qp_state(far).unwrap(), QpState::Established);
}

/// Requests that nobody answers keep their private data. Later ones still have theirs, however many
/// there were.
#[test]
fn unanswered_requests_do_not_use_up_the_room_for_private_data() {
    const REQUESTS: usize = 200;
    let mut pair = common::joined();
    let (attr, far) = (QpAttr::new(pair.near.cq), FAR.parse().unwrap());
    pair.far.ctx.listen(far).unwrap();
    for number in 0..REQUESTS as u32 {
        let near = pair.near.ctx.create_qp(pair.near.pd, &attr).unwrap();
        pair.near.ctx.connect(near, far, &number.to_be_bytes()).unwrap();
        pair.until("the request", |pair| pair.far.events.len() > number as usize);
    }
    let arrived = pair.far.events.iter().map(|event| match event {
        Event::ConnectRequest { private_data, .. } => private_data.to_vec(),
        other => panic!("{other:?}"),
    });
    let sent = (0..REQUESTS as u32).map(|number| number.to_be_bytes().to_vec());
    assert!(arrived.eq(sent), "every request has its own private data");
}

/// RFC 5044 s7.1.2, rule 3: a rejection carries private data and ends the attempt.
#[test]
fn a_rejected_initiator_receives_the_private_data() {
    let mut pair = common::joined();
    let (near_attr, far) = (QpAttr::new(pair.near.cq), FAR.parse().unwrap());
    let near = pair.near.ctx.create_qp(pair.near.pd, &near_attr).unwrap();
    pair.far.ctx.listen(far).unwrap();
    pair.near.ctx.connect(near, far, b"").unwrap();
    pair.until("the request", |pair| !pair.far.events.is_empty());
    if let Event::ConnectRequest { request, .. } = pair.far.events.remove(0) {
        pair.far.ctx.reject(request, b"not today").unwrap();
    }
    pair.until("the rejection", |pair| !pair.near.events.is_empty());
    let Event::Rejected { qp, private_data, .. } = &pair.near.events[0] else {
        panic!("{:?}", pair.near.events)
    };
    assert_eq!((*qp, &private_data[..]), (near, &b"not today"[..]));
    assert_eq!(pair.near.ctx.qp_state(near).unwrap(), QpState::Error);
}

#[test]
fn a_port_without_listener_refuses() {
    let mut pair = common::joined();
    let attr = QpAttr::new(pair.near.cq);
    let near = pair.near.ctx.create_qp(pair.near.pd, &attr).unwrap();
    pair.near.ctx.connect(near, FAR.parse().unwrap(), b"").unwrap();
    pair.until("the failure", |pair| failure(pair).is_some());
    assert_eq!(failure(&pair), Some(ConnectFailure::Refused));
}

#[test]
fn an_address_in_another_network_without_a_gateway_is_unreachable() {
    let mut pair = common::joined();
    let attr = QpAttr::new(pair.near.cq);
    let near = pair.near.ctx.create_qp(pair.near.pd, &attr).unwrap();
    pair.near.ctx.connect(near, "192.0.2.1:4791".parse().unwrap(), b"").unwrap();
    pair.until("the failure", |pair| failure(pair).is_some());
    assert_eq!(failure(&pair), Some(ConnectFailure::Unreachable));
}

#[test]
fn an_address_without_a_station_times_out() {
    let mut pair = common::joined();
    let attr = QpAttr::new(pair.near.cq);
    let near = pair.near.ctx.create_qp(pair.near.pd, &attr).unwrap();
    pair.near.ctx.connect(near, "10.0.0.77:4791".parse().unwrap(), b"").unwrap();
    pair.until("the failure", |pair| failure(pair).is_some());
    assert_eq!(failure(&pair), Some(ConnectFailure::TimedOut));
}

/// semantics "Disconnect": posted requests are sent and acknowledged before the FIN.
/// RFC 5040 s6.2; RFC 5041 s6.2.1; RFC 5044 sA.1 and s7.1.2.
#[test]
fn disconnect_completes_posted_work_first() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (source, target) = (pair.near.memory(&[7; 100_000]), pair.far.memory(&[0; 100_000]));
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.near.ctx.post_send(near, &SendWr::write(1, &[source.slice(0, 100_000).unwrap()], remote)).unwrap();
    pair.near.ctx.disconnect(near).unwrap();
    pair.until("both disconnected", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    assert_eq!(pair.near.completions[0].status, CompletionStatus::Success);
    assert_eq!(common::contents(&target), vec![7; 100_000]);
    for (node, qp) in [(&pair.near, near), (&pair.far, far)] {
        assert!(node.events.iter().any(|event| matches!(event,
            Event::Disconnected { qp: one, reason: DisconnectReason::Closed } if *one == qp)));
        assert_eq!(node.ctx.qp_state(qp).unwrap(), QpState::Error);
    }
}

/// RFC 5040 s6.2.1: requests that the end of a stream interrupts complete as flushed, receives too.
#[test]
fn receives_left_at_the_end_complete_as_flushed() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let sink = pair.far.memory(&[0; 64]);
    for receive in 0..5 {
        pair.far.ctx.post_recv(far, &RecvWr::new(receive, &[sink.slice(0, 64).unwrap()])).unwrap();
    }
    pair.near.ctx.disconnect(near).unwrap();
    pair.until("the far end", |pair| pair.far.is_disconnected(far));
    let flushed: Vec<_> = pair.far.completions.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(flushed, (0..5).map(|id| (id, CompletionStatus::FlushedInError)).collect::<Vec<_>>());
    // Later requests are flushed too.
    pair.far.ctx.post_recv(far, &RecvWr::new(5, &[sink.slice(0, 64).unwrap()])).unwrap();
    pair.until("the late receive", |pair| pair.far.completions.len() == 6);
}

#[test]
fn destroying_a_queue_pair_resets_its_connection_and_frees_its_slot() {
    let mut pair = common::joined();
    for _ in 0..20 {
        let (near, far) = pair.connect();
        pair.near.ctx.destroy_qp(near).unwrap();
        pair.until("the far end", |pair| pair.far.is_disconnected(far));
        pair.far.ctx.destroy_qp(far).unwrap();
        pair.until("both gone", |pair| {
            let gone =
                |outcome: Result<QpState, VerbsError>| matches!(outcome, Err(VerbsError::UnknownQueuePair));
            gone(pair.near.ctx.qp_state(near)) && gone(pair.far.ctx.qp_state(far))
        });
        pair.near.events.clear();
        pair.far.events.clear();
    }
}

/// RFC 9293 s3.6: a queue pair that is destroyed in order, with nothing outstanding, leaves its
/// connection to close with FIN. RFC 9293 (MUST-12): the peer hears of a close.
#[test]
fn a_queue_pair_destroyed_in_order_ends_its_connection_in_order() {
    let mut pair = common::joined();
    for _ in 0..20 {
        let (near, far) = pair.connect();
        // The peer has acknowledged all, the start-up too.
        pair.far.ctx.post_recv(far, &RecvWr::new(1, &[])).unwrap();
        pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"")).unwrap();
        pair.until("the acknowledgement", |pair| pair.near.completions.len() == 1);
        pair.near.ctx.destroy_qp_in_order(near).unwrap();
        pair.until("the far end", |pair| pair.far.is_disconnected(far));
        let reasons: Vec<_> = pair.far.events.iter().filter_map(disconnect_reason).collect();
        assert_eq!(reasons, [DisconnectReason::Closed]);
        assert!(pair.near.ctx.qp_state(near).is_err());
        pair.far.ctx.destroy_qp_in_order(far).unwrap();
        pair.until("the queue pair", |pair| pair.far.ctx.qp_state(far).is_err());
        pair.near.completions.clear();
        pair.near.events.clear();
        pair.far.events.clear();
    }
    assert_eq!(pair.near.counter("tcp_tx_resets"), 0);
}

/// What is outstanding can neither complete nor be taken back: the connection is reset.
/// RFC 9293 (MUST-12): the peer hears of an abort, not of a close.
#[test]
fn a_queue_pair_destroyed_with_work_outstanding_resets_its_connection() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    pair.far.ctx.post_recv(far, &RecvWr::new(1, &[])).unwrap();
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"")).unwrap();
    pair.near.ctx.destroy_qp_in_order(near).unwrap();
    pair.until("the far end", |pair| pair.far.is_disconnected(far));
    let reasons: Vec<_> = pair.far.events.iter().filter_map(disconnect_reason).collect();
    assert_eq!(reasons, [DisconnectReason::Reset]);
}

fn disconnect_reason(event: &Event) -> Option<DisconnectReason> {
    if let Event::Disconnected { reason, .. } = event { Some(*reason) } else { None }
}

/// A program that keeps requests learns which of them it need not answer any more.
#[test]
fn the_end_of_an_unanswered_request_is_reported_once() {
    let mut pair = common::joined();
    let near = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
    pair.far.ctx.listen(pair.at).unwrap();
    pair.far.turn();
    pair.near.ctx.connect(near, pair.at, b"").unwrap();
    pair.until("the request", |pair| !pair.far.events.is_empty());
    pair.near.ctx.destroy_qp(near).unwrap();
    pair.until("its end", |pair| pair.far.events.len() > 1);
    (0..100).for_each(|_| pair.turn());
    match &pair.far.events[..] {
        [Event::ConnectRequest { request, .. }, Event::RequestEnded { request: ended }] => {
            assert_eq!(request, ended);
        }
        other => panic!("{other:?}"),
    }
}

/// RFC 9293 s3.10.5: a reset acknowledges what arrived before it. The Send is delivered, and the
/// receiver destroys its queue pair before its ACK has left.
#[test]
fn a_delivered_send_completes_although_the_peer_aborts() {
    for fast_path in [true, false] {
        let mut pair = common::joined_with(|address| {
            let mut config = config(address);
            config.stack.fast_path = fast_path;
            config
        });
        let (near, far) = pair.connect();
        let sink = pair.far.memory(&[0; 64]);
        pair.far.ctx.post_recv(far, &RecvWr::new(1, &[sink.slice(0, 64).unwrap()])).unwrap();
        pair.near.ctx.post_send(near, &SendWr::send_inline(2, b"the last")).unwrap();
        pair.until("the delivery", |pair| !pair.far.completions.is_empty());
        assert!(pair.near.completions.is_empty(), "the ACK has left already");
        pair.far.ctx.destroy_qp(far).unwrap();
        pair.until("the end", |pair| pair.near.is_disconnected(near));
        let done: Vec<_> = pair.near.completions.iter().map(|one| (one.wr_id, one.status)).collect();
        assert_eq!(done, [(2, CompletionStatus::Success)], "fast path: {fast_path}");
    }
}

/// What the peer has not received before its end is flushed, as before.
#[test]
fn a_send_that_no_one_received_is_flushed_when_the_peer_aborts() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    pair.far.ctx.destroy_qp(far).unwrap();
    pair.far.turn();
    pair.near.ctx.post_send(near, &SendWr::send_inline(2, b"too late")).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    let done: Vec<_> = pair.near.completions.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(done, [(2, CompletionStatus::FlushedInError)]);
}

#[test]
fn dropping_a_context_resets_its_connections() {
    let mut pair = common::joined();
    let (_, far) = pair.connect();
    pair.near.restart();
    pair.until("the far end", |pair| pair.far.is_disconnected(far));
    // The stack continues for other connections.
    pair.far.events.clear();
    pair.connect();
}

/// RFC 5042 s6.4.1: a request without an answer does not occupy its slot for ever.
#[test]
fn an_unanswered_request_is_dropped_at_the_start_up_timeout() {
    let patient_near = |address: &str| {
        let mut config = config(address);
        config.mpa.startup_timeout_ms = if address.starts_with("10.0.0.1/") { 10_000 } else { 100 };
        config.mpa.revision_fallback = false;
        config
    };
    let mut pair = common::joined_with(patient_near);
    let (attr, far) = (QpAttr::new(pair.near.cq), FAR.parse().unwrap());
    let near = pair.near.ctx.create_qp(pair.near.pd, &attr).unwrap();
    pair.far.ctx.listen(far).unwrap();
    pair.near.ctx.connect(near, far, b"").unwrap();
    pair.until("the failure", |pair| failure(pair).is_some());
    assert_eq!(failure(&pair), Some(ConnectFailure::Closed));
    assert_eq!(pair.far.counter("verbs_startup_timeouts"), 1);
    // The late accept gets an event that the request is gone.
    let Event::ConnectRequest { request, .. } = pair.far.events.remove(0) else { panic!("no request") };
    let late_attr = QpAttr::new(pair.far.cq);
    let late = pair.far.ctx.create_qp(pair.far.pd, &late_attr).unwrap();
    pair.far.ctx.accept(request, late, b"").unwrap();
    pair.until("the late failure", |pair| {
        pair.far.events.iter().any(|event| matches!(event, Event::ConnectFailed { qp, .. } if *qp == late))
    });
}

/// RFC 5041 s6.2.2 and s7.
#[test]
fn a_vanished_peer_ends_the_connection_at_the_user_timeout() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    let target = pair.far.memory(&[0; 8]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"anybody?", remote)).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !pair.near.is_disconnected(near) {
        pair.near.turn();
        assert!(std::time::Instant::now() < deadline, "the connection never ended");
    }
    assert_eq!(pair.near.completions[0].status, CompletionStatus::FlushedInError);
    assert!(
        pair.near
            .events
            .iter()
            .any(|event| matches!(event, Event::Disconnected { reason: DisconnectReason::TimedOut, .. }))
    );
}

/// RFC 5040 s8.1.1; RFC 5041 s8.3.2; RFC 5042 s2.1 and s7.1.
#[test]
fn handles_of_another_context_are_refused() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    let mut other = pair.near.stack.context().unwrap();
    assert!(matches!(other.disconnect(near), Err(VerbsError::UnknownQueuePair)));
    assert!(matches!(other.poll_cq(pair.near.cq, &mut []), Err(VerbsError::UnknownCompletionQueue)));
    assert!(matches!(pair.near.ctx.destroy_cq(pair.near.cq), Err(VerbsError::CompletionQueueInUse)));
}

#[test]
fn the_configured_number_of_queue_pairs_is_kept() {
    let limited = |address: &str| {
        let mut config = config(address);
        config.limits.queue_pairs = 2;
        config
    };
    let mut pair = common::joined_with(limited);
    pair.connect();
    pair.connect();
    let attr = QpAttr::new(pair.near.cq);
    let third = pair.near.ctx.create_qp(pair.near.pd, &attr).unwrap();
    let refused = pair.near.ctx.connect(third, FAR.parse().unwrap(), b"");
    assert!(matches!(refused, Err(VerbsError::LimitReached("queue pairs"))));
}

/// A request that waits for a context is closed when the context is dropped, and never reaches the
/// next context.
#[test]
fn a_request_to_a_dropped_context_reaches_no_other() {
    let once = |address: &str| {
        let mut config = config(address);
        config.mpa.revision_fallback = false;
        config
    };
    let mut pair = common::joined_with(once);
    let (attr, far) = (QpAttr::new(pair.near.cq), FAR.parse().unwrap());
    let near = pair.near.ctx.create_qp(pair.near.pd, &attr).unwrap();
    pair.far.ctx.listen(far).unwrap();
    pair.near.ctx.connect(near, far, b"").unwrap();
    pair.until("the request", |pair| !pair.far.events.is_empty());
    pair.far.events.clear();
    pair.far.restart();
    pair.until("the failure", |pair| failure(pair).is_some());
    assert_eq!(failure(&pair), Some(ConnectFailure::Closed));
    assert!(pair.far.events.is_empty());
    // The new context can use the address.
    pair.connect();
}

#[test]
fn a_call_with_a_handle_that_does_not_exist_leaves_nothing_behind() {
    let mut pair = common::joined();
    let foreign = pair.far.cq;
    let own = pair.near.ctx.create_cq(4).unwrap();
    let attr = QpAttr { recv_cq: foreign, ..QpAttr::new(own) };
    assert!(matches!(pair.near.ctx.create_qp(pair.near.pd, &attr), Err(VerbsError::UnknownCompletionQueue)));
    // No user of the queue is left.
    pair.near.ctx.destroy_cq(own).unwrap();
}

/// Receives posted to a queue pair that was never connected release their completion entries with
/// it.
#[test]
fn a_queue_pair_never_connected_releases_its_completion_slots() {
    let mut pair = common::joined();
    let small = pair.near.ctx.create_cq(4).unwrap();
    let sink = pair.near.memory(&[0; 8]);
    for _ in 0..3 {
        let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(small)).unwrap();
        for receive in 0..4 {
            pair.near.ctx.post_recv(qp, &RecvWr::new(receive, &[sink.slice(0, 8).unwrap()])).unwrap();
        }
        let fifth = pair.near.ctx.post_recv(qp, &RecvWr::new(4, &[sink.slice(0, 8).unwrap()]));
        assert!(matches!(fifth, Err(PostError::CqFull)));
        pair.near.ctx.destroy_qp(qp).unwrap();
    }
}

/// Many queue pairs are connected and posted to before the core processes any: no doorbell is lost.
#[test]
fn work_posted_before_the_core_has_the_queue_pair_is_kept() {
    let mut pair = common::joined();
    let target = pair.far.memory(&[0; 8]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.far.ctx.listen(FAR.parse().unwrap()).unwrap();
    pair.far.turn();
    let (near_attr, far_attr) = (QpAttr::new(pair.near.cq), QpAttr::new(pair.far.cq));
    let qps: Vec<_> = (0..40)
        .map(|_| {
            let qp = pair.near.ctx.create_qp(pair.near.pd, &near_attr).unwrap();
            pair.near.ctx.connect(qp, FAR.parse().unwrap(), b"").unwrap();
            pair.near.ctx.post_send(qp, &SendWr::write_inline(1, b"early", remote)).unwrap();
            qp
        })
        .collect();
    pair.until("every early Write", |pair| {
        while let Some(event) = pair.far.events.pop() {
            if let Event::ConnectRequest { request, .. } = event {
                let qp = pair.far.ctx.create_qp(pair.far.pd, &far_attr).unwrap();
                pair.far.ctx.accept(request, qp, b"").unwrap();
            }
        }
        pair.near.completions.len() == 40
    });
    // Each doorbell can be rung again.
    for qp in &qps {
        pair.near.ctx.post_send(*qp, &SendWr::write_inline(2, b"later", remote)).unwrap();
    }
    pair.until("every later Write", |pair| pair.near.completions.len() == 80);
}

/// semantics "Disconnect": an outstanding Read completes before the FIN is sent.
#[test]
fn disconnect_after_a_read_waits_for_it() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (sink, source) = (pair.near.memory(&[0; 50_000]), pair.far.memory(&[9; 50_000]));
    let remote = RemoteMemory { stag: source.stag(), tagged_offset: source.base_to() };
    let into = [sink.slice(0, 50_000).unwrap()];
    pair.near.ctx.post_send(near, &SendWr::read(1, &into, remote)).unwrap();
    pair.near.ctx.disconnect(near).unwrap();
    pair.until("both disconnected", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    assert_eq!(pair.near.completions[0].status, CompletionStatus::Success);
    assert_eq!(common::contents(&sink), vec![9; 50_000]);
}

/// Slots in the core's tables are released however their object ends.
#[test]
fn dropped_contexts_release_all_their_slots() {
    let limited = |address: &str| {
        let mut config = config(address);
        (config.limits.queue_pairs, config.limits.completion_queues, config.limits.contexts) = (2, 2, 2);
        config
    };
    let mut pair = common::joined_with(limited);
    for round in 0..10 {
        let (near, _) = pair.connect();
        if round % 2 == 0 {
            pair.near.ctx.destroy_qp(near).unwrap();
        }
        for node in [&mut pair.near, &mut pair.far] {
            node.restart();
            // The core frees the old context's slots at its next iteration.
            for _ in 0..4 {
                node.worker.poll(1);
            }
            node.events.clear();
            node.completions.clear();
        }
    }
}

#[test]
fn a_destroyed_queue_pair_refuses_posts() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    pair.near.ctx.destroy_qp(near).unwrap();
    let post = pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"x"));
    assert!(matches!(post, Err(PostError::UnknownQueuePair)));
    assert!(matches!(pair.near.ctx.destroy_qp(near), Err(VerbsError::UnknownQueuePair)));
}

/// A call that sends a core two messages finds room for both after the core has read any number of
/// earlier ones.
#[test]
fn calls_use_the_ring_slots_that_a_core_has_freed() {
    let nobody = "10.0.0.99:4791".parse().unwrap();
    // A round is three messages, so before one of these calls the ring is almost full.
    for before in 0..3 {
        let mut pair = common::joined();
        let attr = QpAttr::new(pair.near.cq);
        for _ in 0..before {
            pair.near.ctx.create_cq(1).unwrap();
        }
        for round in 0..400 {
            let qp = pair.near.ctx.create_qp(pair.near.pd, &attr).unwrap();
            let outcome = pair.near.ctx.connect(qp, nobody, b"");
            assert!(outcome.is_ok(), "round {round} after {before}: {outcome:?}");
            pair.near.ctx.destroy_qp(qp).unwrap();
            (0..2).for_each(|_| pair.turn());
        }
    }
}
