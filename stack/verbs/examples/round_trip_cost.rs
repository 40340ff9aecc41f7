//! Instructions of one 64-byte Send round trip between two stacks of one thread over memory ports.
//!
//! Each round trip posts a Send at the client, polls both stacks until the server has the message, sends it back,
//! and polls until the client has the reply. Both ends reap the receive and post the next one. The count covers both
//! ends, their applications and the memory ports.
//!
//! ```text
//! cargo build --release -p ironwarp --example round_trip_cost
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='round_trip_cost::measured*' \
//!     target/release/examples/round_trip_cost
//! ```
//! Prints the number of round trips that are counted. `scripts/round-trip-cost.sh` divides.
#![forbid(unsafe_code)]

use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{
    Access, Completion, CompletionQueue, Config, Context, Event, QpAttr, QueuePair, RecvWr, Region, SendWr,
    Stack, Worker,
};

type Failure = Box<dyn std::error::Error>;

/// Round trips that are counted; those before them warm up tables and windows.
const ROUND_TRIPS: u64 = 2000;

const MESSAGE: [u8; 64] = [0x5a; 64];

/// One end of the connection: its stack, its application's objects and its core.
struct End {
    context: Context,
    worker: Worker,
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Region,
}

fn main() -> Result<(), Failure> {
    let (client_port, server_port) = pair(&MemoryConfig::default(), &MemoryConfig::default());
    let mut client = End::new("10.0.0.1/24", client_port)?;
    let mut server = End::new("10.0.0.2/24", server_port)?;
    connect(&mut client, &mut server)?;
    round_trips(&mut client, &mut server, ROUND_TRIPS / 4)?;
    measured(&mut client, &mut server)?;
    println!("{ROUND_TRIPS}");
    Ok(())
}

#[inline(never)]
fn measured(client: &mut End, server: &mut End) -> Result<(), Failure> {
    round_trips(client, server, ROUND_TRIPS)
}

fn round_trips(client: &mut End, server: &mut End, count: u64) -> Result<(), Failure> {
    for _ in 0..count {
        client.send()?;
        server.receive(client)?;
        server.send()?;
        client.receive(server)?;
    }
    Ok(())
}

fn connect(client: &mut End, server: &mut End) -> Result<(), Failure> {
    server.context.listen("10.0.0.2:4791".parse()?)?;
    client.context.connect(client.qp, "10.0.0.2:4791".parse()?, b"")?;
    loop {
        client.worker.poll(1);
        server.worker.poll(1);
        if let Some(Event::ConnectRequest { request, .. }) = server.context.poll_event() {
            server.context.accept(request, server.qp, b"")?;
        }
        if let Some(Event::Established { .. }) = client.context.poll_event() {
            return Ok(());
        }
    }
}

impl End {
    fn new(address: &str, port: ironwarp::memory::MemoryPort) -> Result<Self, Failure> {
        let (stack, worker) = Stack::builder(Config::in_memory(address)?).memory_port(port).build_one()?;
        let mut context = stack.context()?;
        let (pd, cq) = (context.alloc_pd(), context.create_cq(64)?);
        let qp = context.create_qp(pd, &QpAttr::new(cq))?;
        let buffer = context.register(pd, vec![0u8; MESSAGE.len()], Access::LOCAL_WRITE)?;
        let mut end = End { context, worker, qp, cq, buffer };
        end.post_receive()?;
        Ok(end)
    }

    fn post_receive(&mut self) -> Result<(), Failure> {
        let sink = [self.buffer.slice(0, MESSAGE.len() as u32)?];
        Ok(self.context.post_recv(self.qp, &RecvWr::new(1, &sink))?)
    }

    fn send(&mut self) -> Result<(), Failure> {
        let request = SendWr::send_inline(2, &MESSAGE).unsignaled();
        Ok(self.context.post_send(self.qp, &request)?)
    }

    /// Polls both ends until a message is here, and posts the receive for the next one.
    fn receive(&mut self, peer: &mut End) -> Result<(), Failure> {
        let mut completions = [Completion::default(); 4];
        loop {
            peer.worker.poll(1);
            self.worker.poll(1);
            if self.context.poll_cq(self.cq, &mut completions)? > 0 {
                return self.post_receive();
            }
        }
    }
}
