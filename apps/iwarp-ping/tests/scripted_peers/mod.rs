//! Peers that break the protocol: each gets a named error, ends alone, and a persistent server
//! continues.
//!
//! The side under test runs on a thread of its own. The test drives the other side step by step
//! over memory ports.

mod clients;
mod servers;

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
use iwarp_ping::message::{Advertisement, EMPTY_MESSAGE, write_text};
use iwarp_ping::{Client, ClientConfig, Endpoint, Fault, PORT, PingError, Server, ServerConfig, ServerStats};

/// Ends a test that hangs.
const DEADLINE: Duration = Duration::from_secs(20);
/// Bytes of the texts here.
const TEXT: usize = 64;

const TESTED: &str = "10.0.0.1";
const PEER: &str = "10.0.0.2";

/// A fault of the peer.
type Violation = fn(&mut ScriptedPeer, QueuePair);

/// The side that the test drives.
struct ScriptedPeer {
    worker: Worker,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// The buffer that it sends from, that is read and written, and that it receives into; 128
    /// bytes each.
    memory: Region,
    received: u32,
    /// Completed Reads.
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

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), PORT)
}

fn endpoint(port: MemoryPort) -> Endpoint {
    let config = config(TESTED);
    let (stack, worker) = Stack::builder(config.clone()).memory_port(port).build_one().expect("a stack");
    Endpoint::with_stack(&config, stack, worker).expect("an end")
}

/// The port of the side under test, and the peer.
fn connected_ports() -> (MemoryPort, ScriptedPeer) {
    let port = |last| MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, last]), ..MemoryConfig::default() };
    let (tested, port) = pair(&port(1), &port(2));
    let (stack, worker) = Stack::builder(config(PEER)).memory_port(port).build_one().expect("a stack");
    let mut ctx = stack.context().expect("a context");
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(256).expect("a queue"));
    let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let memory = ctx.register(pd, vec![0; 1024], all).expect("a region");
    (tested, ScriptedPeer { worker, ctx, pd, cq, memory, received: 0, read: 0, _stack: stack })
}

impl ScriptedPeer {
    fn qp(&mut self) -> QueuePair {
        let qp = self.ctx.create_qp(self.pd, &QpAttr::new(self.cq)).expect("a queue pair");
        for slot in 0..4 {
            let place = [self.memory.slice(RECEIVES + slot * 64, 64).expect("inside")];
            self.ctx.post_recv(qp, &RecvWr::new(slot as u64, &place)).expect("posted");
        }
        self.received = 0;
        qp
    }

    fn poll(&mut self) -> Option<Event> {
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

    /// Polls until a condition holds.
    #[track_caller]
    fn until<T>(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&mut Self, Option<Event>) -> Option<T>,
    ) -> T {
        let start = Instant::now();
        loop {
            let event = self.poll();
            if let Some(found) = condition(self, event) {
                return found;
            }
            assert!(start.elapsed() < DEADLINE, "never happened: {what}");
        }
    }

    /// Connects. Everything that was sent before has then reached the server.
    #[track_caller]
    fn connect(&mut self) -> QueuePair {
        let qp = self.qp();
        self.ctx.connect(qp, at(TESTED), b"").expect("a free queue pair");
        self.await_connection(qp)
    }

    #[track_caller]
    fn await_connection(&mut self, qp: QueuePair) -> QueuePair {
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
        self.await_connection(qp)
    }

    fn listen(&mut self) {
        self.ctx.listen(at(PEER)).expect("a free address");
    }

    /// Polls until the side under test has ended, and returns its result.
    fn join<T>(&mut self, tested: JoinHandle<T>) -> T {
        let start = Instant::now();
        while !tested.is_finished() && start.elapsed() < DEADLINE {
            self.poll();
        }
        tested.join().expect("the thread of the tested end")
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

    /// A piece of our memory in the form of an advertisement.
    fn advertisement(&self, offset: usize, bytes: u32) -> Advertisement {
        let tagged_offset = self.memory.base_to() + offset as u64;
        Advertisement { at: RemoteMemory { stag: self.memory.stag(), tagged_offset }, bytes }
    }

    /// The contents of a message in a receive buffer.
    fn advertised(&self, slot: usize) -> Advertisement {
        let mut message = EMPTY_MESSAGE;
        self.memory.read_at(RECEIVES + slot * 64, &mut message).expect("inside");
        Advertisement::decode(&message, 100).expect("what a client should say")
    }

    /// One ping of a correct client.
    #[track_caller]
    fn ping(&mut self, qp: QueuePair, number: u64) {
        let (mut text, mut received_text) = ([0; TEXT], [0; TEXT]);
        write_text(number, &mut text);
        self.memory.write_at(SOURCE, &text).expect("inside");
        let before = self.received;
        self.send(qp, &self.advertisement(SOURCE, TEXT as u32).encode());
        self.await_message(before + 1);
        self.send(qp, &self.advertisement(SINK, TEXT as u32).encode());
        self.await_message(before + 2);
        self.memory.read_at(SINK, &mut received_text).expect("inside");
        assert_eq!(received_text, text);
    }
}
