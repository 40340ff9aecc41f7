//! Servers that are scripted peers, called by a client of ours.

use super::*;

/// A client on its thread: how it ends, and how many pings came back.
fn call(port: MemoryPort, call: Call) -> JoinHandle<(Result<(), PingError>, u64)> {
    std::thread::spawn(move || {
        let mut client = Client::new(end(port), call).expect("a client");
        let outcome = client.run(&AtomicBool::new(false));
        (outcome, client.tally().pings())
    })
}

fn wanted() -> Call {
    Call {
        server: SocketAddr::new(PEER.parse().expect("an address"), PORT),
        count: Some(2),
        bytes: TEXT as u32,
        verify: true,
        verbose: false,
        patience: DEADLINE,
        hold_off: None,
    }
}

/// `rping`'s server, step by step: it reads the text, and writes what comes before the first zero, and that one.
#[test]
fn a_server_like_rpings_sends_every_text_back_whole() {
    let (port, mut peer) = stage();
    peer.listen();
    let client = call(port, wanted());
    let qp = peer.accept();
    for ping in 0..2 {
        peer.await_message(ping * 2 + 1);
        let source = peer.advertised(ping as usize * 2);
        let text = [peer.memory.slice(SOURCE, source.bytes).expect("inside")];
        peer.ctx.post_send(qp, &SendWr::read(1, &text, source.at)).expect("posted");
        peer.until("the text", |it, _| (it.read > ping).then_some(()));
        peer.send(qp, &NOTHING);
        peer.await_message(ping * 2 + 2);
        let sink = peer.advertised(ping as usize * 2 + 1);
        let mut bytes = [0; TEXT];
        peer.memory.read_at(SOURCE, &mut bytes).expect("inside");
        let zero = bytes.iter().position(|byte| *byte == 0).expect("an end");
        let text = [peer.memory.slice(SOURCE, zero as u32 + 1).expect("inside")];
        peer.ctx.post_send(qp, &SendWr::write(2, &text, sink.at)).expect("posted");
        peer.send(qp, &NOTHING);
    }
    peer.await_end(qp);
    let (outcome, pings) = client.join().expect("the client's thread");
    outcome.expect("every byte was right");
    assert_eq!(pings, 2);
}

/// What a server does instead of answering, and the fault that it is.
const MISTAKES: [(Misdeed, &str); 5] = [
    (|it, qp| it.send(qp, &[0; 15]), "a message of 15 bytes, where each has 16"),
    (
        |it, qp| it.ctx.disconnect(qp).expect("connected"),
        "the connection ended in ping 0: the peer closed it",
    ),
    (|it, qp| it.ctx.destroy_qp(qp).expect("connected"), "the connection ended in ping 0: the peer reset it"),
    // It says that it wrote, and did not.
    (
        |it, qp| {
            it.send(qp, &NOTHING);
            it.await_message(2);
            it.send(qp, &NOTHING);
        },
        "byte 0 of ping 0 is 0xff, not 0x72",
    ),
    (answer_twice, "a message out of turn"),
];

/// Answers what was said, and at once what was not said yet.
fn answer_twice(it: &mut ScriptedPeer, qp: QueuePair) {
    let answer = SendWr::send_inline(0, &NOTHING);
    it.ctx.post_sends(qp, &[answer, answer]).expect("posted");
}

/// Nobody compares bytes, and still this is no ping.
#[test]
fn two_answers_at_once_are_no_ping_though_nothing_is_compared() {
    let (port, mut peer) = stage();
    peer.listen();
    let client = call(port, Call { verify: false, count: Some(1), ..wanted() });
    let qp = peer.accept();
    peer.await_message(1);
    answer_twice(&mut peer, qp);
    peer.await_end(qp);
    let (outcome, pings) = client.join().expect("the client's thread");
    let Err(PingError::Far(fault)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((fault, pings), (Fault::OutOfTurn, 0));
}

/// The one who wrote to both ends at once hears of no failure: pings without number end well, though the server is gone.
#[test]
fn ctrl_c_at_both_ends_is_no_failure_of_either() {
    for (count, well) in [(None, true), (Some(1_000_000), false)] {
        let (port, mut peer) = stage();
        peer.listen();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let client = std::thread::spawn(move || {
            let mut client = Client::new(end(port), Call { count, ..wanted() }).expect("a client");
            client.run(&seen)
        });
        let qp = peer.accept();
        peer.await_message(1);
        stop.store(true, Ordering::Relaxed);
        peer.ctx.destroy_qp(qp).expect("connected");
        let start = Instant::now();
        while !client.is_finished() && start.elapsed() < DEADLINE {
            peer.turn();
        }
        match client.join().expect("the client's thread") {
            Ok(()) => assert!(well),
            Err(PingError::Stopped { came: 0, wanted: 1_000_000 }) => assert!(!well),
            outcome => panic!("{outcome:?}"),
        }
    }
}

#[test]
fn a_server_that_speaks_garbage_ends_the_client_with_what_was_wrong() {
    for (mistake, fault) in MISTAKES {
        let (port, mut peer) = stage();
        peer.listen();
        let client = call(port, wanted());
        let qp = peer.accept();
        peer.await_message(1);
        mistake(&mut peer, qp);
        let start = Instant::now();
        while !client.is_finished() && start.elapsed() < DEADLINE {
            peer.turn();
        }
        let (outcome, pings) = client.join().expect("the client's thread");
        let error = outcome.expect_err(fault).to_string();
        assert!(error.contains(fault), "{error}, not: {fault}");
        assert_eq!(pings, 0, "{fault}");
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let (port, mut peer) = stage();
    peer.listen();
    let client = call(port, Call { patience: Duration::from_secs(1), ..wanted() });
    let qp = peer.accept();
    peer.await_end(qp);
    let (outcome, _) = client.join().expect("the client's thread");
    let Err(PingError::Far(fault)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(fault, Fault::Silent { ping: 0, seconds: 1 });
}

/// Ctrl-C before anybody has answered: pings without number end well by it, a number of them is cut short.
#[test]
fn ctrl_c_ends_a_call_that_nobody_has_answered() {
    for count in [None, Some(2)] {
        let (port, _stranger) = stage();
        let mut client = Client::new(end(port), Call { count, ..wanted() }).expect("a client");
        match (client.run(&AtomicBool::new(true)), count) {
            (Ok(()), None) | (Err(PingError::Stopped { came: 0, wanted: 2 }), Some(2)) => {}
            (outcome, _) => panic!("{count:?} pings ended with {outcome:?}"),
        }
    }
}

#[test]
fn a_refusal_is_told_with_its_reason() {
    let (port, mut peer) = stage();
    peer.listen();
    let client = call(port, wanted());
    peer.until("a request", |this, event| match event {
        Some(Event::ConnectRequest { request, .. }) => this.ctx.reject(request, b"closed for lunch").ok(),
        _ => None,
    });
    let start = Instant::now();
    while !client.is_finished() && start.elapsed() < DEADLINE {
        peer.turn();
    }
    let (outcome, _) = client.join().expect("the client's thread");
    assert_eq!(outcome.expect_err("refused").to_string(), "rejected: closed for lunch");
}
