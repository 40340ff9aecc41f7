//! Scripted servers, called by a client of ours.

use super::*;

/// A client on its thread: its result, and the number of completed pings.
fn run_client(port: MemoryPort, client_config: ClientConfig) -> JoinHandle<(Result<(), PingError>, u64)> {
    std::thread::spawn(move || {
        let mut client = Client::new(endpoint(port), client_config).expect("a client");
        let outcome = client.run(&AtomicBool::new(false));
        (outcome, client.stats().pings())
    })
}

fn client_config() -> ClientConfig {
    ClientConfig {
        server: at(PEER),
        count: Some(2),
        bytes: TEXT as u32,
        verify: true,
        verbose: false,
        timeout: DEADLINE,
        hold_off: None,
    }
}

/// A step of `rping`'s server: it reads the text and writes back the bytes up to and including the
/// first zero.
#[test]
fn a_server_like_rpings_sends_every_text_back_whole() {
    let (port, mut peer) = connected_ports();
    peer.listen();
    let client = run_client(port, client_config());
    let qp = peer.accept();
    for ping in 0..2 {
        peer.await_message(ping * 2 + 1);
        let source = peer.advertised(ping as usize * 2);
        let text = [peer.memory.slice(SOURCE, source.bytes).expect("inside")];
        peer.ctx.post_send(qp, &SendWr::read(1, &text, source.at)).expect("posted");
        peer.until("the text", |it, _| (it.read > ping).then_some(()));
        peer.send(qp, &EMPTY_MESSAGE);
        peer.await_message(ping * 2 + 2);
        let sink = peer.advertised(ping as usize * 2 + 1);
        let mut bytes = [0; TEXT];
        peer.memory.read_at(SOURCE, &mut bytes).expect("inside");
        let zero = bytes.iter().position(|byte| *byte == 0).expect("an end");
        let text = [peer.memory.slice(SOURCE, zero as u32 + 1).expect("inside")];
        peer.ctx.post_send(qp, &SendWr::write(2, &text, sink.at)).expect("posted");
        peer.send(qp, &EMPTY_MESSAGE);
    }
    peer.await_end(qp);
    let (outcome, pings) = client.join().expect("the client's thread");
    outcome.expect("every byte was right");
    assert_eq!(pings, 2);
}

/// Faults of a server, and the error that the client reports.
const SERVER_VIOLATIONS: [(Violation, &str); 5] = [
    (|it, qp| it.send(qp, &[0; 15]), "a message of 15 bytes, where each has 16"),
    (
        |it, qp| it.ctx.disconnect(qp).expect("connected"),
        "the connection ended in ping 0: the peer closed it",
    ),
    (|it, qp| it.ctx.destroy_qp(qp).expect("connected"), "the connection ended in ping 0: the peer reset it"),
    // It reports a Write that it did not send.
    (
        |it, qp| {
            it.send(qp, &EMPTY_MESSAGE);
            it.await_message(2);
            it.send(qp, &EMPTY_MESSAGE);
        },
        "byte 0 of ping 0 is 0xff, not 0x72",
    ),
    (reply_twice, "a message out of turn"),
];

/// Replies twice to one message.
fn reply_twice(it: &mut ScriptedPeer, qp: QueuePair) {
    let answer = SendWr::send_inline(0, &EMPTY_MESSAGE);
    it.ctx.post_sends(qp, &[answer, answer]).expect("posted");
}

/// The order of messages is checked even without `verify`.
#[test]
fn two_replies_at_once_are_a_fault_without_verification() {
    let (port, mut peer) = connected_ports();
    peer.listen();
    let client = run_client(port, ClientConfig { verify: false, count: Some(1), ..client_config() });
    let qp = peer.accept();
    peer.await_message(1);
    reply_twice(&mut peer, qp);
    peer.await_end(qp);
    let (outcome, pings) = client.join().expect("the client's thread");
    let Err(PingError::Peer(fault)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((fault, pings), (Fault::UnexpectedMessage, 0));
}

/// Ctrl-C may reach both ends. Unlimited pings then end well, although the server is gone.
#[test]
fn ctrl_c_at_both_ends_is_no_failure_of_either() {
    for (count, well) in [(None, true), (Some(1_000_000), false)] {
        let (port, mut peer) = connected_ports();
        peer.listen();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let client = std::thread::spawn(move || {
            let mut client =
                Client::new(endpoint(port), ClientConfig { count, ..client_config() }).expect("a client");
            client.run(&seen)
        });
        let qp = peer.accept();
        peer.await_message(1);
        stop.store(true, Ordering::Relaxed);
        peer.ctx.destroy_qp(qp).expect("connected");
        match peer.join(client) {
            Ok(()) => assert!(well),
            Err(PingError::Stopped { came: 0, wanted: 1_000_000 }) => assert!(!well),
            outcome => panic!("{outcome:?}"),
        }
    }
}

#[test]
fn a_server_that_speaks_garbage_ends_the_client_with_what_was_wrong() {
    for (violation, fault) in SERVER_VIOLATIONS {
        let (port, mut peer) = connected_ports();
        peer.listen();
        let client = run_client(port, client_config());
        let qp = peer.accept();
        peer.await_message(1);
        violation(&mut peer, qp);
        let (outcome, pings) = peer.join(client);
        let error = outcome.expect_err(fault).to_string();
        assert!(error.contains(fault), "{error}, not: {fault}");
        assert_eq!(pings, 0, "{fault}");
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let (port, mut peer) = connected_ports();
    peer.listen();
    let client = run_client(port, ClientConfig { timeout: Duration::from_secs(1), ..client_config() });
    let qp = peer.accept();
    peer.await_end(qp);
    let (outcome, _) = client.join().expect("the client's thread");
    let Err(PingError::Peer(fault)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(fault, Fault::Timeout { ping: 0, seconds: 1 });
}

/// Ctrl-C before the server replied: unlimited pings end well, a limited number fails.
#[test]
fn ctrl_c_ends_a_call_that_nobody_has_answered() {
    for count in [None, Some(2)] {
        let (port, _peer_port) = connected_ports();
        let mut client =
            Client::new(endpoint(port), ClientConfig { count, ..client_config() }).expect("a client");
        match (client.run(&AtomicBool::new(true)), count) {
            (Ok(()), None) | (Err(PingError::Stopped { came: 0, wanted: 2 }), Some(2)) => {}
            (outcome, _) => panic!("{count:?} pings ended with {outcome:?}"),
        }
    }
}

#[test]
fn a_reject_is_reported_with_its_reason() {
    let (port, mut peer) = connected_ports();
    peer.listen();
    let client = run_client(port, client_config());
    peer.until("a request", |this, event| match event {
        Some(Event::ConnectRequest { request, .. }) => this.ctx.reject(request, b"closed for lunch").ok(),
        _ => None,
    });
    let (outcome, _) = peer.join(client);
    assert_eq!(outcome.expect_err("refused").to_string(), "rejected: closed for lunch");
}
