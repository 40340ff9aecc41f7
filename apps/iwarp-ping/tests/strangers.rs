//! Far ends that break the protocol: each is told apart, ends alone, and a persistent server goes on.
//!
//! The end under test runs on a thread of its own; the test plays the other one by hand over memory.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Config, Context, Event, MacAddr,
    ProtectionDomain, QpAttr, QueuePair, RecvWr, Region, RemoteMemory, STag, SendWr, Stack, Worker,
};
use iwarp_ping::message::{Advertisement, NOTHING, write_text};
use iwarp_ping::{Call, Client, End, Fault, Offer, PORT, PingError, Server, ServerTally};

/// Ends a test that hangs.
const DEADLINE: Duration = Duration::from_secs(20);
/// Bytes of the texts here.
const TEXT: usize = 64;

const TESTED: &str = "10.0.0.1";
const STRANGER: &str = "10.0.0.2";

/// The end that the test plays by hand.
struct Stranger {
    worker: Worker,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// What it sends, is read and written, and receives; 128 bytes each.
    memory: Region,
    received: u32,
    /// Reads that are done.
    read: u32,
    _stack: Stack,
}

const SOURCE: usize = 0;
const SINK: usize = 128;
const RECEIVES: usize = 256;

fn config(address: &str) -> Config {
    let mut config = Config::in_memory(&format!("{address}/24")).expect("a valid configuration");
    config.core.idle = ironwarp::IdlePolicy::Yield;
    config
}

fn end(port: MemoryPort) -> End {
    let config = config(TESTED);
    let (stack, worker) = Stack::builder(config.clone()).memory_port(port).build_one().expect("a stack");
    End::over(&config, stack, worker).expect("an end")
}

/// The port of the end under test, and the stranger.
fn stage() -> (MemoryPort, Stranger) {
    let port = |last| MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, last]), ..MemoryConfig::default() };
    let (tested, port) = pair(&port(1), &port(2));
    let (stack, worker) = Stack::builder(config(STRANGER)).memory_port(port).build_one().expect("a stack");
    let mut ctx = stack.context().expect("a context");
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(256).expect("a queue"));
    let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let memory = ctx.register(pd, vec![0; 1024], all).expect("a region");
    (tested, Stranger { worker, ctx, pd, cq, memory, received: 0, read: 0, _stack: stack })
}

impl Stranger {
    fn qp(&mut self) -> QueuePair {
        let qp = self.ctx.create_qp(self.pd, &QpAttr::new(self.cq)).expect("a queue pair");
        for slot in 0..4 {
            let place = [self.memory.slice(RECEIVES + slot * 64, 64).expect("inside")];
            self.ctx.post_recv(qp, &RecvWr::new(slot as u64, &place)).expect("posted");
        }
        self.received = 0;
        qp
    }

    fn turn(&mut self) -> Option<Event> {
        if self.worker.poll(1).work == 0 {
            std::thread::yield_now();
        }
        let mut reaped = [Completion::default(); 16];
        let count = self.ctx.poll_cq(self.cq, &mut reaped).expect("a queue");
        let done = |opcode| {
            let well = |done: &&Completion| done.opcode == opcode && done.status == CompletionStatus::Success;
            reaped[..count].iter().filter(well).count() as u32
        };
        self.received += done(CompletionOpcode::Receive);
        self.read += done(CompletionOpcode::Read);
        self.ctx.poll_event()
    }

    /// Turns until something is so.
    #[track_caller]
    fn until<T>(&mut self, what: &str, mut is_so: impl FnMut(&mut Self, Option<Event>) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            let event = self.turn();
            if let Some(found) = is_so(self, event) {
                return found;
            }
            assert!(start.elapsed() < DEADLINE, "never happened: {what}");
        }
    }

    /// A connection. Whatever went before it has reached the server then.
    #[track_caller]
    fn connect(&mut self) -> QueuePair {
        let qp = self.qp();
        let at = SocketAddr::new(TESTED.parse().expect("an address"), PORT);
        self.ctx.connect(qp, at, b"").expect("a free queue pair");
        self.until("the connection", |_, event| {
            matches!(event, Some(Event::Established { .. })).then_some(qp)
        })
    }

    #[track_caller]
    fn accept(&mut self) -> QueuePair {
        let qp = self.qp();
        self.until("a request", |this, event| match event {
            Some(Event::ConnectRequest { request, .. }) => this.ctx.accept(request, qp, b"").ok(),
            _ => None,
        });
        self.until("the connection", |_, event| {
            matches!(event, Some(Event::Established { .. })).then_some(qp)
        })
    }

    fn listen(&mut self) {
        let at = SocketAddr::new(STRANGER.parse().expect("an address"), PORT);
        self.ctx.listen(at).expect("a free address");
    }

    fn send(&mut self, qp: QueuePair, message: &[u8]) {
        self.ctx.post_send(qp, &SendWr::send_inline(0, message).unsignaled()).expect("posted");
    }

    #[track_caller]
    fn await_message(&mut self, number: u32) {
        self.until("a message", |this, _| (this.received >= number).then_some(()));
    }

    #[track_caller]
    fn await_end(&mut self, qp: QueuePair) {
        self.until("the end", |_, event| matches!(event, Some(Event::Disconnected { .. })).then_some(()));
        self.ctx.destroy_qp(qp).expect("a queue pair");
    }

    /// A piece of our memory as it should be advertised.
    fn place(&self, offset: usize, bytes: u32) -> Advertisement {
        let tagged_offset = self.memory.base_to() + offset as u64;
        Advertisement { at: RemoteMemory { stag: self.memory.stag(), tagged_offset }, bytes }
    }

    /// What a message says that came into a receive.
    fn advertised(&self, slot: usize) -> Advertisement {
        let mut message = NOTHING;
        self.memory.read_at(RECEIVES + slot * 64, &mut message).expect("inside");
        Advertisement::decode(&message, 100).expect("what a client should say")
    }

    /// One ping as a client should make it.
    #[track_caller]
    fn ping(&mut self, qp: QueuePair, number: u64) {
        let (mut text, mut came) = ([0; TEXT], [0; TEXT]);
        write_text(number, &mut text);
        self.memory.write_at(SOURCE, &text).expect("inside");
        let before = self.received;
        self.send(qp, &self.place(SOURCE, TEXT as u32).encode());
        self.await_message(before + 1);
        self.send(qp, &self.place(SINK, TEXT as u32).encode());
        self.await_message(before + 2);
        self.memory.read_at(SINK, &mut came).expect("inside");
        assert_eq!(came, text);
    }
}

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

/// What a client does wrong.
type Misdeed = fn(&mut Stranger, QueuePair);

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

fn write_source(it: &Stranger, ping: u64) {
    let mut text = [0; TEXT];
    write_text(ping, &mut text);
    it.memory.write_at(SOURCE, &text).expect("inside");
}

fn advertise(it: &mut Stranger, qp: QueuePair, spoil: fn(&mut Advertisement)) {
    let mut place = it.place(SOURCE, TEXT as u32);
    spoil(&mut place);
    it.send(qp, &place.encode());
}

#[test]
fn a_client_that_speaks_garbage_is_told_apart_and_ends_a_server_for_one() {
    for (misdeed, fault) in MISDEEDS {
        let (port, mut stranger) = stage();
        let server = serve(port, offer());
        let qp = stranger.connect();
        misdeed(&mut stranger, qp);
        stranger.await_end(qp);
        let (outcome, tally) = server.thread.join().expect("the server's thread");
        let error = outcome.expect_err(fault).to_string();
        assert!(error.contains(fault), "{error}, not: {fault}");
        assert_eq!((tally.served, tally.failed, tally.pings), (0, 1, 0), "{fault}");
    }
}

#[test]
fn a_persistent_server_goes_on_after_every_kind_of_garbage() {
    let (port, mut stranger) = stage();
    let server = serve(port, Offer { persistent: true, ..offer() });
    for (misdeed, fault) in MISDEEDS {
        let well = stranger.connect();
        stranger.ping(well, 0);
        let qp = stranger.connect();
        misdeed(&mut stranger, qp);
        stranger.await_end(qp);
        // Whoever was connected beside it goes on.
        stranger.ping(well, 1);
        stranger.ctx.disconnect(well).expect("connected");
        stranger.await_end(well);
        let given_up = server.given_up.lock().expect("unpoisoned").last().cloned();
        assert!(given_up.as_ref().is_some_and(|line| line.contains(fault)), "{given_up:?}, not: {fault}");
    }
    stranger.connect();
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
    let (port, mut stranger) = stage();
    let server = serve(port, Offer { persistent: true, ..offer() });
    for abrupt in [false, true] {
        let qp = stranger.connect();
        stranger.ping(qp, 0);
        write_source(&stranger, 1);
        advertise(&mut stranger, qp, |_| {});
        stranger.await_message(3);
        if abrupt {
            stranger.ctx.destroy_qp(qp).expect("connected");
            let next = stranger.connect();
            stranger.ctx.disconnect(next).expect("connected");
            stranger.await_end(next);
        } else {
            stranger.ctx.disconnect(qp).expect("connected");
            stranger.await_end(qp);
        }
    }
    stranger.connect();
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
        let (port, mut stranger) = stage();
        let server = serve(port, Offer { count: Some(2), ..offer() });
        let qp = stranger.connect();
        (0..pings.min(2)).for_each(|number| stranger.ping(qp, number));
        if pings > 2 {
            advertise(&mut stranger, qp, |_| {});
        } else {
            stranger.ctx.disconnect(qp).expect("connected");
        }
        stranger.await_end(qp);
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
    let (port, mut stranger) = stage();
    let server = serve(port, Offer { patience: Duration::from_secs(1), ..offer() });
    let qp = stranger.connect();
    stranger.ping(qp, 0);
    stranger.await_end(qp);
    let (outcome, _) = server.thread.join().expect("the server's thread");
    let Err(PingError::Far(fault)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(fault, Fault::Silent { ping: 1, seconds: 1 });
}

/// Persistence is asked for: a server for one client has no time for two.
#[test]
fn a_second_client_is_turned_away_by_a_server_for_one() {
    let (port, mut stranger) = stage();
    let server = serve(port, offer());
    let qp = stranger.connect();
    let late = stranger.qp();
    let at = SocketAddr::new(TESTED.parse().expect("an address"), PORT);
    stranger.ctx.connect(late, at, b"").expect("a free queue pair");
    let why = stranger.until("the refusal", |_, event| match event {
        Some(Event::Rejected { private_data, .. }) => Some(private_data),
        _ => None,
    });
    assert_eq!(&why[..], b"busy with another client");
    stranger.received = 0;
    stranger.ping(qp, 0);
    stranger.ctx.disconnect(qp).expect("connected");
    stranger.await_end(qp);
    let (outcome, tally) = server.thread.join().expect("the server's thread");
    outcome.expect("the first one was served");
    assert_eq!(tally.served, 1);
}

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
        server: SocketAddr::new(STRANGER.parse().expect("an address"), PORT),
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
    let (port, mut stranger) = stage();
    stranger.listen();
    let client = call(port, wanted());
    let qp = stranger.accept();
    for ping in 0..2 {
        stranger.await_message(ping * 2 + 1);
        let source = stranger.advertised(ping as usize * 2);
        let text = [stranger.memory.slice(SOURCE, source.bytes).expect("inside")];
        stranger.ctx.post_send(qp, &SendWr::read(1, &text, source.at)).expect("posted");
        stranger.until("the text", |it, _| (it.read > ping).then_some(()));
        stranger.send(qp, &NOTHING);
        stranger.await_message(ping * 2 + 2);
        let sink = stranger.advertised(ping as usize * 2 + 1);
        let mut bytes = [0; TEXT];
        stranger.memory.read_at(SOURCE, &mut bytes).expect("inside");
        let zero = bytes.iter().position(|byte| *byte == 0).expect("an end");
        let text = [stranger.memory.slice(SOURCE, zero as u32 + 1).expect("inside")];
        stranger.ctx.post_send(qp, &SendWr::write(2, &text, sink.at)).expect("posted");
        stranger.send(qp, &NOTHING);
    }
    stranger.await_end(qp);
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
fn answer_twice(it: &mut Stranger, qp: QueuePair) {
    let answer = SendWr::send_inline(0, &NOTHING);
    it.ctx.post_sends(qp, &[answer, answer]).expect("posted");
}

/// Nobody compares bytes, and still this is no ping.
#[test]
fn two_answers_at_once_are_no_ping_though_nothing_is_compared() {
    let (port, mut stranger) = stage();
    stranger.listen();
    let client = call(port, Call { verify: false, count: Some(1), ..wanted() });
    let qp = stranger.accept();
    stranger.await_message(1);
    answer_twice(&mut stranger, qp);
    stranger.await_end(qp);
    let (outcome, pings) = client.join().expect("the client's thread");
    let Err(PingError::Far(fault)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((fault, pings), (Fault::OutOfTurn, 0));
}

/// The one who wrote to both ends at once hears of no failure: pings without number end well, though the server is gone.
#[test]
fn ctrl_c_at_both_ends_is_no_failure_of_either() {
    for (count, well) in [(None, true), (Some(1_000_000), false)] {
        let (port, mut stranger) = stage();
        stranger.listen();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let client = std::thread::spawn(move || {
            let mut client = Client::new(end(port), Call { count, ..wanted() }).expect("a client");
            client.run(&seen)
        });
        let qp = stranger.accept();
        stranger.await_message(1);
        stop.store(true, Ordering::Relaxed);
        stranger.ctx.destroy_qp(qp).expect("connected");
        let start = Instant::now();
        while !client.is_finished() && start.elapsed() < DEADLINE {
            stranger.turn();
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
        let (port, mut stranger) = stage();
        stranger.listen();
        let client = call(port, wanted());
        let qp = stranger.accept();
        stranger.await_message(1);
        mistake(&mut stranger, qp);
        let start = Instant::now();
        while !client.is_finished() && start.elapsed() < DEADLINE {
            stranger.turn();
        }
        let (outcome, pings) = client.join().expect("the client's thread");
        let error = outcome.expect_err(fault).to_string();
        assert!(error.contains(fault), "{error}, not: {fault}");
        assert_eq!(pings, 0, "{fault}");
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let (port, mut stranger) = stage();
    stranger.listen();
    let client = call(port, Call { patience: Duration::from_secs(1), ..wanted() });
    let qp = stranger.accept();
    stranger.await_end(qp);
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
    let (port, mut stranger) = stage();
    stranger.listen();
    let client = call(port, wanted());
    stranger.until("a request", |this, event| match event {
        Some(Event::ConnectRequest { request, .. }) => this.ctx.reject(request, b"closed for lunch").ok(),
        _ => None,
    });
    let start = Instant::now();
    while !client.is_finished() && start.elapsed() < DEADLINE {
        stranger.turn();
    }
    let (outcome, _) = client.join().expect("the client's thread");
    assert_eq!(outcome.expect_err("refused").to_string(), "rejected: closed for lunch");
}
