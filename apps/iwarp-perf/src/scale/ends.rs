//! The two ends of a measurement, and their connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{CompletionQueue, Config, Context, Event, ProtectionDomain, QpAttr, QueuePair, Stack, Worker};

use super::AnyError;

/// Connections in set-up at a time: below the default of `limits.half_open`.
const CONNECTING_MAX: usize = 64;
/// Connecting takes microseconds each.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const CLIENT: &str = "10.0.0.1/24";
const SERVER: &str = "10.0.0.2/24";
const SERVER_ADDR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The first listening port.
pub const PORT: u16 = 18_515;
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

impl End {
    /// Opens a stack with a table for `qps` queue pairs, and a completion queue.
    pub fn open(address: &str, port: MemoryPort, qps: u32, cq_depth: u32) -> Result<Self, AnyError> {
        let mut config = Config::in_memory(address)?;
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
}

/// Both ends.
pub struct Ends {
    pub client: End,
    pub server: End,
}

impl Ends {
    /// Opens two stacks with tables for `qps` queue pairs each, and a completion queue each.
    pub fn open(qps: u32, cq_depth: u32) -> Result<Self, AnyError> {
        let (client, server) = pair(&MemoryConfig::default(), &MemoryConfig::default());
        let client = End::open(CLIENT, client, qps, cq_depth)?;
        Ok(Ends { client, server: End::open(SERVER, server, qps, cq_depth)? })
    }

    /// Connects each queue pair of `client` to the one of `server` with the same index.
    pub fn connect(&mut self, client: &[QueuePair], server: &[QueuePair]) -> Result<(), AnyError> {
        let port_of = |index: usize| SocketAddr::from((SERVER_ADDR, PORT + (index / QPS_PER_PORT) as u16));
        for first in (0..client.len()).step_by(QPS_PER_PORT) {
            self.server.context.listen(port_of(first))?;
        }
        self.server.worker.poll(0);
        let (mut started, mut established, mut accepted) = (0, 0, 0);
        let start = Instant::now();
        while established < client.len() + server.len() {
            while started < client.len().min(accepted + CONNECTING_MAX) {
                self.client.context.connect(client[started], port_of(started), b"")?;
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
