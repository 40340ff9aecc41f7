//! Scripted clients at a server of ours.

use super::*;

/// A server on its thread.
struct Running {
    thread: JoinHandle<(Result<(), PingError>, ServerStats)>,
    stop: Arc<AtomicBool>,
    reported_errors: Arc<Mutex<Vec<String>>>,
}

fn serve(port: MemoryPort, server_config: ServerConfig) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let reported_errors = Arc::new(Mutex::new(Vec::new()));
    let (seen, errors) = (stop.clone(), reported_errors.clone());
    let thread = std::thread::spawn(move || {
        let on_error = move |_: SocketAddr, error: &PingError| {
            errors.lock().expect("unpoisoned").push(error.to_string())
        };
        let mut server = Server::new(endpoint(port), server_config, Box::new(on_error)).expect("a server");
        (server.run(&seen), server.stats())
    });
    Running { thread, stop, reported_errors }
}

fn server_config() -> ServerConfig {
    ServerConfig {
        local: at(TESTED),
        bytes_max: 100,
        count: None,
        verify: true,
        verbose: false,
        persistent: false,
        timeout: DEADLINE,
    }
}

/// Clients that break the protocol, each with the expected fault.
const CLIENT_VIOLATIONS: [(Violation, &str); 13] = [
    (|it, qp| it.send(qp, &[]), "a message of 0 bytes, where each has 16"),
    (|it, qp| it.send(qp, &[1; 15]), "a message of 15 bytes"),
    (|it, qp| it.send(qp, &[1; 17]), "a message of 17 bytes"),
    (|it, qp| it.send(qp, &[1; 65]), "a message of more than 64 bytes, where each has 16"),
    (|it, qp| advertise(it, qp, |advertisement| advertisement.at.stag = STag(0)), "steering tag 0"),
    (
        |it, qp| advertise(it, qp, |advertisement| advertisement.bytes = 0),
        "an advertisement of 0 bytes, where 1 to 100 are taken",
    ),
    (|it, qp| advertise(it, qp, |advertisement| advertisement.bytes = 101), "an advertisement of 101 bytes"),
    (
        |it, qp| advertise(it, qp, |advertisement| advertisement.bytes = u32::MAX),
        "an advertisement of 4294967295 bytes",
    ),
    (
        |it, qp| advertise(it, qp, |advertisement| advertisement.at.stag.0 ^= 0xf0f0),
        "the peer sent a Terminate of layer 0, type 1",
    ),
    (
        |it, qp| advertise(it, qp, |advertisement| advertisement.at.tagged_offset += 1 << 40),
        "the peer sent a Terminate of layer 0, type 1, code 1",
    ),
    (
        |it, qp| {
            let advertisement = it.advertisement(SOURCE, TEXT as u32).encode();
            let wr = SendWr::send_inline(0, &advertisement);
            it.ctx.post_sends(qp, &[wr, wr]).expect("posted");
        },
        "a message out of turn",
    ),
    (
        |it, qp| {
            write_source(it, 0);
            advertise(it, qp, |_| {});
            it.await_message(1);
            it.send(qp, &it.advertisement(SINK, TEXT as u32 - 1).encode());
        },
        "63 bytes of room advertised for a text of 64",
    ),
    (
        |it, qp| {
            it.memory.fill(SOURCE, TEXT, b'x').expect("inside");
            advertise(it, qp, |_| {});
        },
        "byte 0 of ping 0 is 0x78, not 0x72",
    ),
];

fn write_source(it: &ScriptedPeer, ping: u64) {
    let mut text = [0; TEXT];
    write_text(ping, &mut text);
    it.memory.write_at(SOURCE, &text).expect("inside");
}

fn advertise(it: &mut ScriptedPeer, qp: QueuePair, spoil: fn(&mut Advertisement)) {
    let mut advertisement = it.advertisement(SOURCE, TEXT as u32);
    spoil(&mut advertisement);
    it.send(qp, &advertisement.encode());
}

#[test]
fn a_client_that_sends_garbage_is_a_named_error_and_ends_a_server_for_one() {
    for (violation, fault) in CLIENT_VIOLATIONS {
        let (port, mut peer) = connected_ports();
        let server = serve(port, server_config());
        let qp = peer.connect();
        violation(&mut peer, qp);
        peer.await_end(qp);
        let (outcome, stats) = server.thread.join().expect("the server's thread");
        let error = outcome.expect_err(fault).to_string();
        assert!(error.contains(fault), "{error}, not: {fault}");
        assert_eq!((stats.served, stats.failed, stats.pings), (0, 1, 0), "{fault}");
    }
}

#[test]
fn a_persistent_server_goes_on_after_every_kind_of_garbage() {
    let (port, mut peer) = connected_ports();
    let server = serve(port, ServerConfig { persistent: true, ..server_config() });
    for (violation, fault) in CLIENT_VIOLATIONS {
        let well = peer.connect();
        peer.ping(well, 0);
        let qp = peer.connect();
        violation(&mut peer, qp);
        peer.await_end(qp);
        // The other connection continues.
        peer.ping(well, 1);
        peer.ctx.disconnect(well).expect("connected");
        peer.await_end(well);
        let reported_errors = server.reported_errors.lock().expect("unpoisoned").last().cloned();
        assert!(
            reported_errors.as_ref().is_some_and(|line| line.contains(fault)),
            "{reported_errors:?}, not: {fault}"
        );
    }
    peer.connect();
    server.stop.store(true, Ordering::Relaxed);
    let (outcome, stats) = server.thread.join().expect("the server's thread");
    outcome.expect("a persistent server does not fail with its clients");
    let all = CLIENT_VIOLATIONS.len() as u64;
    assert_eq!((stats.served, stats.failed, stats.pings), (all, all, 2 * all));
    assert_eq!(stats.bytes, 2 * all * TEXT as u64);
}

/// The progress of a client when it leaves, and the way it leaves.
#[test]
fn a_client_that_disconnects_midway_differs_from_one_that_finishes() {
    let (port, mut peer) = connected_ports();
    let server = serve(port, ServerConfig { persistent: true, ..server_config() });
    for abrupt in [false, true] {
        let qp = peer.connect();
        peer.ping(qp, 0);
        write_source(&peer, 1);
        advertise(&mut peer, qp, |_| {});
        peer.await_message(3);
        if abrupt {
            peer.ctx.destroy_qp(qp).expect("connected");
            let next = peer.connect();
            peer.ctx.disconnect(next).expect("connected");
            peer.await_end(next);
        } else {
            peer.ctx.disconnect(qp).expect("connected");
            peer.await_end(qp);
        }
    }
    peer.connect();
    server.stop.store(true, Ordering::Relaxed);
    let (_, stats) = server.thread.join().expect("the server's thread");
    let reported_errors = server.reported_errors.lock().expect("unpoisoned").clone();
    let left = |how| format!("the connection ended in ping 1: the peer {how} it");
    assert_eq!(reported_errors, [left("closed"), left("reset")]);
    assert_eq!((stats.served, stats.failed, stats.pings), (1, 2, 2));
}

#[test]
fn clients_that_make_fewer_or_more_pings_than_were_to_come_have_failed() {
    for (pings, served) in [(1, false), (2, true), (3, false)] {
        let (port, mut peer) = connected_ports();
        let server = serve(port, ServerConfig { count: Some(2), ..server_config() });
        let qp = peer.connect();
        (0..pings.min(2)).for_each(|number| peer.ping(qp, number));
        if pings > 2 {
            advertise(&mut peer, qp, |_| {});
        } else {
            peer.ctx.disconnect(qp).expect("connected");
        }
        peer.await_end(qp);
        let (outcome, stats) = server.thread.join().expect("the server's thread");
        match outcome {
            Ok(()) => assert!(served, "{pings}"),
            Err(PingError::Peer(fault)) => {
                assert_eq!((served, fault), (false, Fault::Count { came: pings, wanted: 2 }));
            }
            Err(error) => panic!("{pings}: {error}"),
        }
        assert_eq!(stats.pings, pings.min(2), "{pings}");
    }
}

#[test]
fn a_silent_client_is_given_up() {
    let (port, mut peer) = connected_ports();
    let server = serve(port, ServerConfig { timeout: Duration::from_secs(1), ..server_config() });
    let qp = peer.connect();
    peer.ping(qp, 0);
    peer.await_end(qp);
    let (outcome, _) = server.thread.join().expect("the server's thread");
    let Err(PingError::Peer(fault)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(fault, Fault::Timeout { ping: 1, seconds: 1 });
}

/// A server that is not persistent refuses the second client.
#[test]
fn a_second_client_is_turned_away_by_a_server_for_one() {
    let (port, mut peer) = connected_ports();
    let server = serve(port, server_config());
    let qp = peer.connect();
    let late = peer.qp();
    peer.ctx.connect(late, at(TESTED), b"").expect("a free queue pair");
    let why = peer.until("the refusal", |_, event| match event {
        Some(Event::Rejected { private_data, .. }) => Some(private_data),
        _ => None,
    });
    assert_eq!(&why[..], b"busy with another client");
    peer.received = 0;
    peer.ping(qp, 0);
    peer.ctx.disconnect(qp).expect("connected");
    peer.await_end(qp);
    let (outcome, stats) = server.thread.join().expect("the server's thread");
    outcome.expect("the first one was served");
    assert_eq!(stats.served, 1);
}
