//! One atomic operation between two stacks of two cores each. One thread polls all four cores in
//! turn.
//!
//! Each case posts FetchAdds in lists of sixteen on one queue pair of core 0 and counts both ends,
//! as for other operations. The cases differ in the core that changes
//! the words:
//!
//! - `atomic-local`: core 0 owns them. `atomic-locked`: core 0 changes them, with locked
//!   instructions.
//! - `atomic-shared`: both cores own some, and share all.
//! - `atomic-forwarded`: core 1 owns them and shares none. `atomic-alternating`: as before, and
//!   every second word is core 0's, so that each operation waits for the one before.

use ironwarp::config::{AtomicExecution, Extensions};
use ironwarp::lower::MpaOverTcp;
use ironwarp::memory::{MemoryConfig, MemoryPort, pair_of_queues};
use ironwarp::{
    Access, AlignedBuf, AtomicOp, Completion, CompletionQueue, Config, Context, Event, MacAddr, QpAttr,
    QueuePair, Region, RemoteMemory, SendWr, Stack, Worker,
};

use crate::Failure;
use crate::step_clock::StepClock;

/// Operations of one list.
const LIST: usize = 16;
/// Lists that are counted. A quarter of them runs before: enough calls that every line is shared.
const LISTS: usize = 1000;
/// Bytes of the words, one in each cache line.
const WORDS_BYTES: usize = 64 * 64;

/// Runs a case. Returns how many operations were counted.
pub fn count(case: &str) -> Result<u64, Failure> {
    let mut nodes = Nodes::new(case)?;
    let words = nodes.words_of(case)?;
    nodes.run(&words, LISTS / 4)?;
    measured(&mut nodes, &words)?;
    Ok((LISTS * LIST) as u64)
}

#[inline(never)]
fn measured(nodes: &mut Nodes, words: &[RemoteMemory]) -> Result<(), Failure> {
    nodes.run(words, LISTS)
}

/// A client and a server, connected on core 0 of both.
struct Nodes {
    client: Context,
    server: Context,
    workers: Vec<Worker>,
    qp: QueuePair,
    cq: CompletionQueue,
    /// The previous values, in the client's memory.
    before: Region,
    /// The server's words.
    words: Region,
}

impl Nodes {
    fn new(case: &str) -> Result<Self, Failure> {
        let device =
            |number| MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, number]), ..MemoryConfig::default() };
        let (client_ports, server_ports) = pair_of_queues((&device(1), 2), (&device(2), 2));
        let clock = StepClock::default();
        let (client, mut workers) = stack(1, case, client_ports, clock.clone())?;
        let (server, server_workers) = stack(2, case, server_ports, clock)?;
        workers.extend(server_workers);
        let (mut client, mut server) = (client.context()?, server.context()?);
        let (pd, cq) = (client.alloc_pd(), client.create_cq(64)?);
        let qp = client.create_qp(pd, &attr(cq))?;
        let before = client.register(pd, vec![0; LIST * 8], Access::LOCAL_WRITE)?;
        let (server_pd, server_cq) = (server.alloc_pd(), server.create_cq(64)?);
        let server_qp = server.create_qp(server_pd, &attr(server_cq))?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        let words = server.register(server_pd, AlignedBuf::pages(WORDS_BYTES)?, rights)?;
        server.listen("10.0.0.2:4791".parse()?)?;
        client.connect(qp, "10.0.0.2:4791".parse()?, b"")?;
        let mut nodes = Nodes { client, server, workers, qp, cq, before, words };
        nodes.connect(server_qp)?;
        Ok(nodes)
    }

    fn connect(&mut self, server_qp: QueuePair) -> Result<(), Failure> {
        loop {
            self.poll();
            if let Some(Event::ConnectRequest { request, .. }) = self.server.poll_event() {
                self.server.accept(request, server_qp, b"")?;
            }
            if let Some(Event::Established { .. }) = self.client.poll_event() {
                return Ok(());
            }
        }
    }

    /// The words of a list, in the order of the operations.
    fn words_of(&self, case: &str) -> Result<Vec<RemoteMemory>, Failure> {
        let owners = match case {
            "atomic-local" | "atomic-locked" => [0, 0],
            "atomic-forwarded" => [1, 1],
            "atomic-shared" | "atomic-alternating" => [0, 1],
            other => return Err(format!("unknown case: {other}").into()),
        };
        let mut lists = [vec![], vec![]];
        for at in (0..WORDS_BYTES).step_by(64) {
            let owner = self.server.owner_core(&self.words, at)?;
            let tagged_offset = self.words.base_to() + at as u64;
            lists[usize::from(owner)].push(RemoteMemory { stag: self.words.stag(), tagged_offset });
        }
        let word = |at: usize| lists[owners[at % 2]].get(at / 2).copied();
        (0..LIST).map(word).collect::<Option<_>>().ok_or_else(|| "too few words of a core".into())
    }

    fn run(&mut self, words: &[RemoteMemory], lists: usize) -> Result<(), Failure> {
        for _ in 0..lists {
            for (at, word) in words.iter().enumerate() {
                let sink = [self.before.slice(at * 8, 8)?];
                self.client.post_send(self.qp, &SendWr::atomic(1, &sink, *word, &AtomicOp::add(1)))?;
            }
            let mut done = 0;
            while done < words.len() {
                self.poll();
                let mut reaped = [Completion::default(); LIST];
                done += self.client.poll_cq(self.cq, &mut reaped)?;
            }
        }
        Ok(())
    }

    fn poll(&mut self) {
        self.workers.iter_mut().for_each(|worker| _ = worker.poll(1));
    }
}

fn attr(cq: CompletionQueue) -> QpAttr {
    let (depth, requests) = (LIST as u32, LIST as u16);
    QpAttr { core: Some(0), send_depth: depth, ord: requests, ird: requests, ..QpAttr::new(cq) }
}

fn stack(
    number: u8,
    case: &str,
    ports: Vec<MemoryPort>,
    clock: StepClock,
) -> Result<(Stack, Vec<Worker>), Failure> {
    let mut config = Config::in_memory(&format!("10.0.0.{number}/24"))?;
    config.core.count = 2;
    config.rdmap.extensions = Extensions::Rfc7306;
    if case != "atomic-shared" {
        config.rdmap.atomic_share_after = 0;
    }
    if case == "atomic-locked" {
        config.rdmap.atomic_execution = AtomicExecution::Locked;
    }
    Ok(Stack::builder(config).build_over::<MpaOverTcp<_>, _, _>(vec![ports], clock, [1, 2])?)
}
