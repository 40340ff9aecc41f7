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
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const SERVER_ADDR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The first listening port.
const PORT: u16 = 18_515;
/// Queue pairs for each listening port: half of the ports that a client has for one.
const QPS_PER_PORT: usize = 16_384;

/// One stack, polled by the calling thread.
pub struct End {
    pub context: Context,
    pub worker: Worker,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
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
    pub fn open(number: u32, port: MemoryPort, qps: u32, cq_depth: u32) -> Result<Self, AnyError> {
        let mut config = Config::in_memory(&format!("10.0.0.{}/24", number + 1))?;
        config.limits.queue_pairs = qps;
        let (stack, worker) = Stack::builder(config).memory_port(port).build_one()?;
        let mut context = stack.context()?;
        let (pd, cq) = (context.alloc_pd(), context.create_cq(cq_depth)?);
        Ok(End { context, worker, pd, cq, _stack: stack })
    }

    /// Creates queue pairs, which all complete in [`End::cq`].
    pub fn create_qps(&mut self, count: u32, attr: &QpAttr) -> Result<Vec<QueuePair>, AnyError> {
        (0..count).map(|_| Ok(self.context.create_qp(self.pd, attr)?)).collect()
    }

    /// Registers memory for Writes of a peer.
    pub fn target(&self, bytes: u32) -> Result<Target, AnyError> {
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = self.context.register(self.pd, vec![0; bytes as usize], rights)?;
        let remote = RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() };
        Ok(Target { _region: region, remote })
    }

    /// Registers memory that Writes are sent from.
    pub fn source(&self, bytes: u32) -> Result<Region, AnyError> {
        Ok(self.context.register(self.pd, vec![0x5a; bytes as usize], Access::empty())?)
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
}

/// A client and a server.
pub struct Ends {
    pub client: End,
    pub server: End,
}

impl Ends {
    /// Opens two stacks with tables for `qps` queue pairs each, and a completion queue each.
    pub fn open(qps: u32, cq_depth: u32) -> Result<Self, AnyError> {
        let (client, server) = pair(&MemoryConfig::default(), &MemoryConfig::default());
        let client = End::open(1, client, qps, cq_depth)?;
        Ok(Ends { client, server: End::open(0, server, qps, cq_depth)? })
    }

    /// Creates `qps` queue pairs at each end.
    pub fn create_qps(
        &mut self,
        qps: u32,
        attr: impl Fn(CompletionQueue) -> QpAttr,
    ) -> Result<[Vec<QueuePair>; 2], AnyError> {
        let client = self.client.create_qps(qps, &attr(self.client.cq))?;
        Ok([client, self.server.create_qps(qps, &attr(self.server.cq))?])
    }

    /// Connects each queue pair of the client to the one of the server with the same index.
    pub fn connect(&mut self, [client, server]: &[Vec<QueuePair>; 2]) -> Result<(), AnyError> {
        for first in (0..client.len()).step_by(QPS_PER_PORT) {
            self.server.context.listen(server_addr(first))?;
        }
        self.server.worker.poll(0);
        let (mut started, mut established, mut accepted) = (0, 0, 0);
        let start = Instant::now();
        while established < client.len() + server.len() {
            while started < client.len().min(accepted + CONNECTING_MAX) {
                self.client.context.connect(client[started], server_addr(started), b"")?;
                started += 1;
            }
            self.client.worker.poll(1);
            self.server.worker.poll(1);
            while let Some(event) = self.client.context.poll_event() {
                established += usize::from(is_established(event)?);
            }
            while let Some(event) = self.server.context.poll_event() {
                match event {
                    Event::ConnectRequest { request, .. } => {
                        self.server.context.accept(request, server[accepted], b"")?;
                        accepted += 1;
                    }
                    event => established += usize::from(is_established(event)?),
                }
            }
            if start.elapsed() > CONNECT_TIMEOUT {
                return Err(format!("connecting {} queue pairs took too long", client.len()).into());
            }
        }
        Ok(())
    }

    /// Creates and connects queue pairs. Returns those of the client.
    pub fn connected_qps(
        &mut self,
        qps: u32,
        attr: impl Fn(CompletionQueue) -> QpAttr,
    ) -> Result<Vec<QueuePair>, AnyError> {
        let qps = self.create_qps(qps, attr)?;
        self.connect(&qps)?;
        let [client, _] = qps;
        Ok(client)
    }
}

/// Returns where the server listens for a queue pair of the client.
pub fn server_addr(qp: usize) -> SocketAddr {
    (SERVER_ADDR, PORT + (qp / QPS_PER_PORT) as u16).into()
}

/// Returns whether a connection is established. Fails on an event that rules one out.
pub fn is_established(event: Event) -> Result<bool, AnyError> {
    match event {
        Event::Established { .. } => Ok(true),
        Event::ConnectFailed { reason, .. } => Err(format!("a connection failed: {reason:?}").into()),
        Event::Disconnected { reason, .. } => Err(format!("a connection ended: {reason:?}").into()),
        _ => Ok(false),
    }
}
