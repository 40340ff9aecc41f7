//! The block server and its clients over memory, on one thread: everything right, everything wrong, and many of them.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use embed_rust::protocol::{BLOCK_BYTES, Order, Request};
use embed_rust::{Client, EmbedError, Server, ServerConfig};
use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{
    Access, Config, Context, Event, MacAddr, QpAttr, QueuePair, RemoteMemory, STag, SendWr, Stack, Worker,
};

const AT: &str = "10.0.0.2:4791";
const OWN: usize = 64;

struct Stage {
    near: Stack,
    near_worker: Worker,
    far_worker: Worker,
    server: Server,
    _far: Stack,
    limit: Instant,
}

fn config(address: &str) -> Config {
    let mut config = Config::in_memory(address).expect("a valid configuration");
    config.limits.contexts = 40;
    config
}

impl Stage {
    fn with_places(clients: usize) -> Self {
        let port = |last| MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, last]), ..MemoryConfig::default() };
        let (near_port, far_port) = pair(&port(1), &port(2));
        let build =
            |address, port| Stack::builder(config(address)).memory_port(port).build_one().expect("a stack");
        let (near, near_worker) = build("10.0.0.1/24", near_port);
        let (far, mut far_worker) = build("10.0.0.2/24", far_port);
        let settings = ServerConfig { at: at(), blocks: (clients * OWN) as u64, clients };
        let server = Server::open(&far, settings).expect("a server");
        far_worker.poll(1);
        Stage {
            near,
            near_worker,
            far_worker,
            server,
            _far: far,
            limit: Instant::now() + Duration::from_secs(60),
        }
    }

    fn turn(&mut self) {
        self.near_worker.poll(4);
        self.far_worker.poll(4);
        self.server.step().expect("a server never fails for its clients");
        assert!(Instant::now() < self.limit, "nothing happens any more");
    }

    fn client(&self, number: usize) -> Client {
        Client::open(&self.near, at(), ((number * OWN) as u64, OWN), 77 + number as u64).expect("a client")
    }

    /// Lets clients work until each has moved so many blocks each way, and everything asked for is answered.
    fn work(&mut self, clients: &mut [Client], blocks: u64) {
        let is_done = |client: &Client| client.tally().written.min(client.tally().read) >= blocks;
        while !clients.iter().all(|client| is_done(client) && client.is_idle()) {
            self.turn();
            for client in clients.iter_mut() {
                let more = !is_done(client);
                client.step(more).expect("every block as it was written");
            }
        }
    }
}

fn at() -> SocketAddr {
    AT.parse().expect("an address")
}

#[test]
fn many_clients_read_what_they_wrote_and_are_refused_what_is_not_there() {
    let mut stage = Stage::with_places(16);
    let mut clients: Vec<_> = (0..16).map(|number| stage.client(number)).collect();
    stage.work(&mut clients, 300);
    assert_eq!(stage.server.clients(), 16);
    assert!(
        clients.iter().all(|client| client.tally().refused > 0),
        "nothing was asked for that is not there"
    );
    let deadline = Instant::now() + Duration::from_secs(10);
    while clients.iter_mut().map(|client| client.close(deadline).expect("closing")).sum::<usize>() > 0 {
        stage.turn();
    }
    while stage.server.clients() > 0 {
        stage.turn();
    }
}

#[test]
fn a_client_too_many_is_told_so_and_may_come_back() {
    let mut stage = Stage::with_places(1);
    let mut first = [stage.client(0)];
    stage.work(&mut first, 10);
    let mut second = stage.client(0);
    let refused = loop {
        stage.turn();
        if let Err(error) = second.step(true) {
            break error;
        }
    };
    assert!(matches!(&refused, EmbedError::Refused(why) if why == "no place is free"), "{refused}");
    // The first one goes, without a word.
    drop(first);
    while stage.server.clients() > 0 {
        stage.turn();
    }
    // Its blocks stay as they were written, so the next client starts with blocks of its own.
    let mut third = stage.client(0);
    while !third.is_idle() {
        stage.turn();
        third.step(false).expect("accepted");
    }
}

/// A client that speaks another protocol, or names memory that it does not have, or breaks its window.
struct Rogue {
    ctx: Context,
    qp: QueuePair,
    ended: bool,
    up: bool,
}

impl Rogue {
    fn new(stage: &Stage) -> Self {
        let mut ctx = stage.near.context().expect("a context");
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(256).expect("a queue"));
        let qp = ctx.create_qp(pd, &QpAttr::new(cq)).expect("a queue pair");
        // Answers have somewhere to land.
        let room = ctx.register(pd, vec![0; 64], Access::LOCAL_WRITE).expect("a region");
        for _ in 0..64 {
            let all = [room.slice(0, 64).expect("inside")];
            ctx.post_recv(qp, &ironwarp::RecvWr::new(0, &all)).expect("posted");
        }
        core::mem::forget(room);
        ctx.connect(qp, at(), b"").expect("asked");
        Rogue { ctx, qp, ended: false, up: false }
    }

    fn hear(&mut self) {
        while let Some(event) = self.ctx.poll_event() {
            self.up |= matches!(event, Event::Established { .. });
            self.ended |= matches!(event, Event::Disconnected { .. });
        }
    }

    fn up(stage: &mut Stage) -> Self {
        let mut rogue = Self::new(stage);
        while !rogue.up {
            stage.turn();
            rogue.hear();
        }
        rogue
    }

    fn send(&mut self, bytes: &[u8]) {
        self.ctx.post_send(self.qp, &SendWr::send_inline(1, bytes)).expect("posted");
    }

    fn until_ended(&mut self, stage: &mut Stage, others: &mut [Client]) {
        while !self.ended {
            stage.turn();
            self.hear();
            others.iter_mut().for_each(|client| client.step(true).expect("others go on"));
        }
    }
}

#[test]
fn what_is_no_request_is_answered_and_the_connection_goes_on() {
    let mut stage = Stage::with_places(2);
    let mut rogue = Rogue::up(&mut stage);
    for bytes in [&b""[..], b"GET / HTTP/1.1", &[0xff; 32], &[1; 33]] {
        rogue.send(bytes);
        for _ in 0..200 {
            stage.turn();
            rogue.hear();
        }
    }
    assert!(!rogue.ended);
    let mut clients = [stage.client(1)];
    stage.work(&mut clients, 20);
}

/// RFC 5041 s7: a made-up tag ends the connection of whoever made it up, and nobody else's.
#[test]
fn memory_that_a_client_does_not_have_ends_its_connection_alone() {
    let mut stage = Stage::with_places(3);
    let mut clients = [stage.client(0)];
    stage.work(&mut clients, 10);
    for order in [Order::Read, Order::Write] {
        let mut rogue = Rogue::up(&mut stage);
        let memory = RemoteMemory { stag: STag(0xdead_beef), tagged_offset: 0 };
        rogue.send(&Request { order, blocks: 1, first: 1, memory, tag: 3 }.encode());
        rogue.until_ended(&mut stage, &mut clients);
    }
    stage.work(&mut clients, 100);
}

/// More requests than the window has places, or a request longer than any: there is no receive for it, and iWARP has no
/// receiver-not-ready.
#[test]
fn whoever_breaks_the_window_is_gone_alone() {
    let mut stage = Stage::with_places(2);
    let mut clients = [stage.client(0)];
    stage.work(&mut clients, 10);
    let mut rogue = Rogue::up(&mut stage);
    rogue.send(&[1; 200]);
    rogue.until_ended(&mut stage, &mut clients);
    let mut rogue = Rogue::up(&mut stage);
    let memory = RemoteMemory { stag: STag(1), tagged_offset: u64::from(BLOCK_BYTES) };
    let request = Request { order: Order::Read, blocks: 0, first: 0, memory, tag: 0 }.encode();
    let burst: Vec<_> = (0..100).map(|number| SendWr::send_inline(number, &request).unsignaled()).collect();
    rogue.ctx.post_sends(rogue.qp, &burst).expect("posted");
    rogue.until_ended(&mut stage, &mut clients);
    stage.work(&mut clients, 100);
}
