//! The stacks of a measurement, and their connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{
    Access, Completion, CompletionQueue, CompletionStatus, Config, Context, Event, ProtectionDomain, QpAttr,
    QueuePair, Region, RemoteMemory, Stack, Worker,
};

use super::AnyError;

/// Connections in set-up at a time: below the default of `limits.half_open`.
const CONNECTING_MAX: usize = 64;
/// Connecting takes microseconds each.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const SERVER_ADDR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 18_515;
/// Queue pairs for each listening port: half of the ports that a client has for one.
const QPS_PER_PORT: usize = 16_384;

/// One stack, polled by the calling thread.
pub struct End {
    pub context: Context,
    pub worker: Worker,
    pub cq: CompletionQueue,
    pub qps: Vec<QueuePair>,
    pd: ProtectionDomain,
    _stack: Stack,
}

/// Memory that a peer writes to.
pub struct Target {
    _region: Region,
    pub remote: RemoteMemory,
}

impl End {
    /// Opens stack `number`, with a table for `qps` queue pairs, and a completion queue. The server
    /// has number 0.
    fn open(number: u32, port: MemoryPort, qps: u32, cq_depth: u32) -> Result<Self, AnyError> {
        let mut config = Config::in_memory(&format!("10.0.0.{}/24", number + 1))?;
        config.limits.queue_pairs = qps;
        let (stack, worker) = Stack::builder(config).memory_port(port).build_one()?;
        let mut context = stack.context()?;
        let (pd, cq) = (context.alloc_pd(), context.create_cq(cq_depth)?);
        Ok(End { context, worker, cq, qps: Vec::new(), pd, _stack: stack })
    }

    /// Creates queue pairs, which all complete in [`End::cq`].
    fn create_qps(&mut self, count: u32, attr: &QpAttr) -> Result<(), AnyError> {
        let attr = QpAttr { send_cq: self.cq, recv_cq: self.cq, ..attr.clone() };
        for _ in 0..count {
            self.qps.push(self.context.create_qp(self.pd, &attr)?);
        }
        Ok(())
    }

    /// Registers memory for Writes of a peer.
    pub fn target(&self, bytes: u32) -> Result<Target, AnyError> {
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = self.context.register(self.pd, vec![0; bytes as usize], rights)?;
        let remote = RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() };
        Ok(Target { _region: region, remote })
    }

    /// Takes up to `N` completions. Returns the ids of their requests, or fails if one failed.
    #[inline]
    pub fn reap<const N: usize>(&mut self) -> Result<ArrayVec<u64, N>, AnyError> {
        let mut completions = [Completion::default(); N];
        let count = self.context.poll_cq(self.cq, &mut completions)?;
        let id = |completion: &Completion| match completion.status {
            CompletionStatus::Success => Ok(completion.wr_id),
            status => Err(format!("a Write failed: {status:?}").into()),
        };
        completions[..count].iter().map(id).collect()
    }

    /// Counts the connections that were established since the last call, and returns the next
    /// request for one. Fails on an event that rules out a connection.
    fn next_request(&mut self, established: &mut usize) -> Result<Option<Event>, AnyError> {
        while let Some(event) = self.context.poll_event() {
            match event {
                Event::ConnectRequest { .. } => return Ok(Some(event)),
                Event::Established { .. } => *established += 1,
                Event::ConnectFailed { reason, .. } => {
                    return Err(format!("a connection failed: {reason:?}").into());
                }
                Event::Disconnected { reason, .. } => {
                    return Err(format!("a connection ended: {reason:?}").into());
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// A client and a server, back to back.
pub struct Ends {
    pub client: End,
    pub server: End,
}

impl Ends {
    /// Opens both, with tables for `qps` queue pairs each, and a completion queue each.
    pub fn open(qps: u32, cq_depth: u32) -> Result<Self, AnyError> {
        let (client, server) = pair(&MemoryConfig::default(), &MemoryConfig::default());
        let client = End::open(1, client, qps, cq_depth)?;
        Ok(Ends { client, server: End::open(0, server, qps, cq_depth)? })
    }

    pub fn create_qps(&mut self, count: u32, attr: &QpAttr) -> Result<(), AnyError> {
        self.client.create_qps(count, attr)?;
        self.server.create_qps(count, attr)
    }

    /// Connects each queue pair of the client to one of the server.
    pub fn connect(&mut self) -> Result<(), AnyError> {
        let Ends { client, server } = self;
        let all = server.qps.len();
        for first in (0..all).step_by(QPS_PER_PORT) {
            server.context.listen(server_addr(first))?;
        }
        server.worker.poll(0);
        let (mut started, mut established, mut accepted) = (0, 0, 0);
        let start = Instant::now();
        while established < 2 * all {
            while started < all.min(accepted + CONNECTING_MAX) {
                client.context.connect(client.qps[started], server_addr(started), b"")?;
                started += 1;
            }
            client.worker.poll(1);
            server.worker.poll(1);
            client.next_request(&mut established)?;
            while let Some(event) = server.next_request(&mut established)? {
                if let Event::ConnectRequest { request, .. } = event {
                    server.context.accept(request, server.qps[accepted], b"")?;
                    accepted += 1;
                }
            }
            if start.elapsed() > CONNECT_TIMEOUT {
                return Err(format!("connecting {all} queue pairs took too long").into());
            }
        }
        Ok(())
    }
}

/// Where the server listens for a queue pair.
fn server_addr(qp: usize) -> SocketAddr {
    (SERVER_ADDR, PORT + (qp / QPS_PER_PORT) as u16).into()
}
