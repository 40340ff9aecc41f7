//! Clients that are scripted peers, at a server of ours.

use super::*;

/// A server on its thread.
struct Running {
    thread: JoinHandle<(Result<(), PingError>, ServerTally)>,
    stop: Arc<AtomicBool>,
    given_up: Arc<Mutex<Vec<String>>>,
}

fn serve(port: MemoryPort, offer: Offer) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let (seen, told) = (stop.clone(), given_up.clone());
    let thread = std::thread::spawn(move || {
        let tell =
            move |_: SocketAddr, error: &PingError| told.lock().expect("unpoisoned").push(error.to_string());
        let mut server = Server::new(end(port), offer, Box::new(tell)).expect("a server");
        (server.run(&seen), server.tally())
    });
    Running { thread, stop, given_up }
}

fn offer() -> Offer {
    Offer {
        local: SocketAddr::new(TESTED.parse().expect("an address"), PORT),
        bytes_max: 100,
        count: None,
        verify: true,
        verbose: false,
        persistent: false,
        patience: DEADLINE,
    }
}

/// Each with the fault that it is.
const MISDEEDS: [(Misdeed, &str); 13] = [
    (|it, qp| it.send(qp, &[]), "a message of 0 bytes, where each has 16"),
    (|it, qp| it.send(qp, &[1; 15]), "a message of 15 bytes"),
    (|it, qp| it.send(qp, &[1; 17]), "a message of 17 bytes"),
    (|it, qp| it.send(qp, &[1; 65]), "a message of more than 64 bytes, where each has 16"),
    (|it, qp| advertise(it, qp, |place| place.at.stag = STag(0)), "steering tag 0"),
    (
        |it, qp| advertise(it, qp, |place| place.bytes = 0),
        "an advertisement of 0 bytes, where 1 to 100 are taken",
    ),
    (|it, qp| advertise(it, qp, |place| place.bytes = 101), "an advertisement of 101 bytes"),
    (|it, qp| advertise(it, qp, |place| place.bytes = u32::MAX), "an advertisement of 4294967295 bytes"),
    (
        |it, qp| advertise(it, qp, |place| place.at.stag.0 ^= 0xf0f0),
        "the peer sent a Terminate of layer 0, type 1",
    ),
    (
        |it, qp| advertise(it, qp, |place| place.at.tagged_offset += 1 << 40),
        "the peer sent a Terminate of layer 0, type 1, code 1",
    ),
    (
        |it, qp| {
            let place = it.place(SOURCE, TEXT as u32).encode();
            it.ctx
                .post_sends(qp, &[SendWr::send_inline(0, &place), SendWr::send_inline(0, &place)])
                .expect("posted");
        },
        "a message out of turn",
    ),
    (
        |it, qp| {
            write_source(it, 0);
            advertise(it, qp, |_| {});
            it.await_message(1);
            it.send(qp, &it.place(SINK, TEXT as u32 - 1).encode());
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
    let mut place = it.place(SOURCE, TEXT as u32);
    spoil(&mut place);
    it.send(qp, &place.encode());
}

#[test]
fn a_client_that_speaks_garbage_is_told_apart_and_ends_a_server_for_one() {
    for (misdeed, fault) in MISDEEDS {
        let (port, mut peer) = stage();
        let server = serve(port, offer());
        let qp = peer.connect();
        misdeed(&mut peer, qp);
        peer.await_end(qp);
        let (outcome, tally) = server.thread.join().expect("the server's thread");
        let error = outcome.expect_err(fault).to_string();
        assert!(error.contains(fault), "{error}, not: {fault}");
        assert_eq!((tally.served, tally.failed, tally.pings), (0, 1, 0), "{fault}");
    }
}

#[test]
fn a_persistent_server_goes_on_after_every_kind_of_garbage() {
    let (port, mut peer) = stage();
    let server = serve(port, Offer { persistent: true, ..offer() });
    for (misdeed, fault) in MISDEEDS {
        let well = peer.connect();
        peer.ping(well, 0);
        let qp = peer.connect();
        misdeed(&mut peer, qp);
        peer.await_end(qp);
        // Whoever was connected beside it goes on.
        peer.ping(well, 1);
        peer.ctx.disconnect(well).expect("connected");
        peer.await_end(well);
        let given_up = server.given_up.lock().expect("unpoisoned").last().cloned();
        assert!(given_up.as_ref().is_some_and(|line| line.contains(fault)), "{given_up:?}, not: {fault}");
    }
    peer.connect();
    server.stop.store(true, Ordering::Relaxed);
    let (outcome, tally) = server.thread.join().expect("the server's thread");
    outcome.expect("a persistent server does not fail with its clients");
    let all = MISDEEDS.len() as u64;
    assert_eq!((tally.served, tally.failed, tally.pings), (all, all, 2 * all));
    assert_eq!(tally.bytes, 2 * all * TEXT as u64);
}

/// What a client has of a ping when it goes, and how it goes.
#[test]
fn a_client_that_goes_away_midway_is_told_apart_from_one_that_leaves() {
    let (port, mut peer) = stage();
    let server = serve(port, Offer { persistent: true, ..offer() });
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
    let (_, tally) = server.thread.join().expect("the server's thread");
    let given_up = server.given_up.lock().expect("unpoisoned").clone();
    let left = |how| format!("the connection ended in ping 1: the peer {how} it");
    assert_eq!(given_up, [left("closed"), left("reset")]);
    assert_eq!((tally.served, tally.failed, tally.pings), (1, 2, 2));
}

#[test]
fn clients_that_make_fewer_or_more_pings_than_were_to_come_have_failed() {
    for (pings, served) in [(1, false), (2, true), (3, false)] {
        let (port, mut peer) = stage();
        let server = serve(port, Offer { count: Some(2), ..offer() });
        let qp = peer.connect();
        (0..pings.min(2)).for_each(|number| peer.ping(qp, number));
        if pings > 2 {
            advertise(&mut peer, qp, |_| {});
        } else {
            peer.ctx.disconnect(qp).expect("connected");
        }
        peer.await_end(qp);
        let (outcome, tally) = server.thread.join().expect("the server's thread");
        match outcome {
            Ok(()) => assert!(served, "{pings}"),
            Err(PingError::Far(fault)) => {
                assert_eq!((served, fault), (false, Fault::Count { came: pings, wanted: 2 }));
            }
            Err(error) => panic!("{pings}: {error}"),
        }
        assert_eq!(tally.pings, pings.min(2), "{pings}");
    }
}

#[test]
fn a_silent_client_is_given_up() {
    let (port, mut peer) = stage();
    let server = serve(port, Offer { patience: Duration::from_secs(1), ..offer() });
    let qp = peer.connect();
    peer.ping(qp, 0);
    peer.await_end(qp);
    let (outcome, _) = server.thread.join().expect("the server's thread");
    let Err(PingError::Far(fault)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(fault, Fault::Silent { ping: 1, seconds: 1 });
}

/// Persistence is asked for: a server for one client has no time for two.
#[test]
fn a_second_client_is_turned_away_by_a_server_for_one() {
    let (port, mut peer) = stage();
    let server = serve(port, offer());
    let qp = peer.connect();
    let late = peer.qp();
    let at = SocketAddr::new(TESTED.parse().expect("an address"), PORT);
    peer.ctx.connect(late, at, b"").expect("a free queue pair");
    let why = peer.until("the refusal", |_, event| match event {
        Some(Event::Rejected { private_data, .. }) => Some(private_data),
        _ => None,
    });
    assert_eq!(&why[..], b"busy with another client");
    peer.received = 0;
    peer.ping(qp, 0);
    peer.ctx.disconnect(qp).expect("connected");
    peer.await_end(qp);
    let (outcome, tally) = server.thread.join().expect("the server's thread");
    outcome.expect("the first one was served");
    assert_eq!(tally.served, 1);
}
