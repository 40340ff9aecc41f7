//! The block server and its clients over memory ports, on one thread: correct requests, faulty
//! requests, and many clients.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use embed_rust::protocol::{BLOCK_BYTES, Operation, Request};
use embed_rust::{Client, EmbedError, Server, ServerConfig};
use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{
    Access, Config, Context, Event, MacAddr, QpAttr, QueuePair, RemoteMemory, STag, SendWr, Stack, Worker,
};

const AT: &str = "10.0.0.2:4791";
const BLOCKS_PER_CLIENT: usize = 64;

struct TestBed {
    client_stack: Stack,
    client_worker: Worker,
    server_worker: Worker,
    server: Server,
    _server_stack: Stack,
    limit: Instant,
}

fn config(address: &str) -> Config {
    let mut config = Config::in_memory(address).expect("a valid configuration");
    config.limits.contexts = 40;
    config
}

impl TestBed {
    fn with_clients(clients: usize) -> Self {
        let port = |last| MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, last]), ..MemoryConfig::default() };
        let (client_port, server_port) = pair(&port(1), &port(2));
        let build =
            |address, port| Stack::builder(config(address)).memory_port(port).build_one().expect("a stack");
        let (client_stack, client_worker) = build("10.0.0.1/24", client_port);
        let (server_stack, mut server_worker) = build("10.0.0.2/24", server_port);
        let settings = ServerConfig { at: at(), blocks: (clients * BLOCKS_PER_CLIENT) as u64, clients };
        let server = Server::open(&server_stack, settings).expect("a server");
        server_worker.poll(1);
        TestBed {
            client_stack,
            client_worker,
            server_worker,
            server,
            _server_stack: server_stack,
            limit: Instant::now() + Duration::from_secs(60),
        }
    }

    fn poll(&mut self) {
        self.client_worker.poll(4);
        self.server_worker.poll(4);
        self.server.poll().expect("a server never fails for its clients");
        assert!(Instant::now() < self.limit, "nothing happens any more");
    }

    fn client(&self, number: usize) -> Client {
        Client::open(
            &self.client_stack,
            at(),
            ((number * BLOCKS_PER_CLIENT) as u64, BLOCKS_PER_CLIENT),
            77 + number as u64,
        )
        .expect("a client")
    }

    /// Polls the clients until each has moved this many blocks each way and every request has its
    /// response.
    fn work(&mut self, clients: &mut [Client], blocks: u64) {
        let is_done = |client: &Client| client.counts().written.min(client.counts().read) >= blocks;
        while !clients.iter().all(|client| is_done(client) && client.is_idle()) {
            self.poll();
            for client in clients.iter_mut() {
                let more = !is_done(client);
                client.poll(more).expect("every block as it was written");
            }
        }
    }
}

fn at() -> SocketAddr {
    AT.parse().expect("an address")
}

#[test]
fn many_clients_read_what_they_wrote_and_are_refused_what_is_not_there() {
    let mut bed = TestBed::with_clients(16);
    let mut clients: Vec<_> = (0..16).map(|number| bed.client(number)).collect();
    bed.work(&mut clients, 300);
    assert_eq!(bed.server.clients(), 16);
    assert!(
        clients.iter().all(|client| client.counts().refused > 0),
        "nothing was asked for that is not there"
    );
    let deadline = Instant::now() + Duration::from_secs(10);
    while clients.iter_mut().map(|client| client.close(deadline).expect("closing")).sum::<usize>() > 0 {
        bed.poll();
    }
    while bed.server.clients() > 0 {
        bed.poll();
    }
}

#[test]
fn a_client_beyond_the_limit_is_rejected_and_may_retry() {
    let mut bed = TestBed::with_clients(1);
    let mut first = [bed.client(0)];
    bed.work(&mut first, 10);
    let mut second = bed.client(0);
    let refused = loop {
        bed.poll();
        if let Err(error) = second.poll(true) {
            break error;
        }
    };
    assert!(matches!(&refused, EmbedError::Rejected(why) if why == "no slot is free"), "{refused}");
    // The first client disappears without a FIN.
    drop(first);
    while bed.server.clients() > 0 {
        bed.poll();
    }
    // The blocks keep their contents, so the next client uses blocks of its own.
    let mut third = bed.client(0);
    while !third.is_idle() {
        bed.poll();
        third.poll(false).expect("accepted");
    }
}

/// A client that speaks another protocol, names memory that it does not have, or exceeds its
/// window.
struct RawClient {
    ctx: Context,
    qp: QueuePair,
    ended: bool,
    up: bool,
}

impl RawClient {
    fn new(bed: &TestBed) -> Self {
        let mut ctx = bed.client_stack.context().expect("a context");
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(256).expect("a queue"));
        let qp = ctx.create_qp(pd, &QpAttr::new(cq)).expect("a queue pair");
        // Buffers for the responses.
        let room = ctx.register(pd, vec![0; 64], Access::LOCAL_WRITE).expect("a region");
        for _ in 0..64 {
            let all = [room.slice(0, 64).expect("inside")];
            ctx.post_recv(qp, &ironwarp::RecvWr::new(0, &all)).expect("posted");
        }
        core::mem::forget(room);
        ctx.connect(qp, at(), b"").expect("asked");
        RawClient { ctx, qp, ended: false, up: false }
    }

    fn poll_events(&mut self) {
        while let Some(event) = self.ctx.poll_event() {
            self.up |= matches!(event, Event::Established { .. });
            self.ended |= matches!(event, Event::Disconnected { .. });
        }
    }

    fn up(bed: &mut TestBed) -> Self {
        let mut raw = Self::new(bed);
        while !raw.up {
            bed.poll();
            raw.poll_events();
        }
        raw
    }

    fn send(&mut self, bytes: &[u8]) {
        self.ctx.post_send(self.qp, &SendWr::send_inline(1, bytes)).expect("posted");
    }

    fn until_ended(&mut self, bed: &mut TestBed, others: &mut [Client]) {
        while !self.ended {
            bed.poll();
            self.poll_events();
            others.iter_mut().for_each(|client| client.poll(true).expect("others go on"));
        }
    }
}

#[test]
fn what_is_no_request_is_answered_and_the_connection_goes_on() {
    let mut bed = TestBed::with_clients(2);
    let mut raw = RawClient::up(&mut bed);
    for bytes in [&b""[..], b"GET / HTTP/1.1", &[0xff; 32], &[1; 33]] {
        raw.send(bytes);
        for _ in 0..200 {
            bed.poll();
            raw.poll_events();
        }
    }
    assert!(!raw.ended);
    let mut clients = [bed.client(1)];
    bed.work(&mut clients, 20);
}

/// RFC 5041 s7: an invalid tag ends the connection that used it, and no other.
#[test]
fn memory_that_a_client_does_not_have_ends_its_connection_alone() {
    let mut bed = TestBed::with_clients(3);
    let mut clients = [bed.client(0)];
    bed.work(&mut clients, 10);
    for operation in [Operation::Read, Operation::Write] {
        let mut raw = RawClient::up(&mut bed);
        let memory = RemoteMemory { stag: STag(0xdead_beef), tagged_offset: 0 };
        raw.send(&Request { operation, blocks: 1, first: 1, memory, tag: 3 }.encode());
        raw.until_ended(&mut bed, &mut clients);
    }
    bed.work(&mut clients, 100);
}

/// More requests than the window has slots, or a request longer than any: no receive fits it, and
/// iWARP has no receiver-not-ready.
#[test]
fn a_client_that_exceeds_the_window_is_disconnected_alone() {
    let mut bed = TestBed::with_clients(2);
    let mut clients = [bed.client(0)];
    bed.work(&mut clients, 10);
    let mut raw = RawClient::up(&mut bed);
    raw.send(&[1; 200]);
    raw.until_ended(&mut bed, &mut clients);
    let mut raw = RawClient::up(&mut bed);
    let memory = RemoteMemory { stag: STag(1), tagged_offset: u64::from(BLOCK_BYTES) };
    let request = Request { operation: Operation::Read, blocks: 0, first: 0, memory, tag: 0 }.encode();
    let burst: Vec<_> = (0..100).map(|number| SendWr::send_inline(number, &request).unsignaled()).collect();
    raw.ctx.post_sends(raw.qp, &burst).expect("posted");
    raw.until_ended(&mut bed, &mut clients);
    bed.work(&mut clients, 100);
}
