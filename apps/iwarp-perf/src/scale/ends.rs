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
use super::switch::Switch;

/// Connections in set-up at a time: below the default of `limits.half_open`.
const CONNECTING_MAX: usize = 64;
/// Connecting takes microseconds each.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const SERVER_ADDR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The first listening port.
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
    pub fn open(number: u32, port: MemoryPort, qps: u32, cq_depth: u32) -> Result<Self, AnyError> {
        let mut config = Config::in_memory(&format!("10.0.0.{}/24", number + 1))?;
        config.limits.queue_pairs = qps;
        let (stack, worker) = Stack::builder(config).memory_port(port).build_one()?;
        let mut context = stack.context()?;
        let (pd, cq) = (context.alloc_pd(), context.create_cq(cq_depth)?);
        Ok(End { context, worker, cq, qps: Vec::new(), pd, _stack: stack })
    }

    /// Creates queue pairs, which all complete in [`End::cq`].
    pub fn create_qps(&mut self, count: u32, attr: &QpAttr) -> Result<(), AnyError> {
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

/// A server and its clients.
pub struct Ends {
    pub server: End,
    pub clients: Vec<End>,
    /// Between several clients and the server.
    pub switch: Switch,
    turn: usize,
}

impl Ends {
    /// One client, back to back with the server, with tables for `qps` queue pairs each, and a
    /// completion queue each.
    pub fn pair(qps: u32, cq_depth: u32) -> Result<Self, AnyError> {
        let (client, server) = pair(&MemoryConfig::default(), &MemoryConfig::default());
        let client = End::open(1, client, qps, cq_depth)?;
        let server = End::open(0, server, qps, cq_depth)?;
        Ok(Ends { server, clients: vec![client], switch: Switch::default(), turn: 0 })
    }

    /// Several clients with a queue pair each, through a switch that holds `queue_frames` for the
    /// server.
    pub fn switched(clients: u32, queue_frames: u32, cq_depth: u32) -> Result<Self, AnyError> {
        let mut switch = Switch::default();
        let server = End::open(0, switch.port(queue_frames as usize), clients, 1)?;
        let ring = MemoryConfig::default().rx_ring_frames;
        let clients = (1..=clients).map(|number| End::open(number, switch.port(ring), 1, cq_depth));
        Ok(Ends { server, clients: clients.collect::<Result<_, _>>()?, switch, turn: 0 })
    }

    /// Creates queue pairs at each client, and as many at the server.
    pub fn create_qps(&mut self, of_client: u32, attr: &QpAttr) -> Result<(), AnyError> {
        for client in &mut self.clients {
            client.create_qps(of_client, attr)?;
            self.server.create_qps(of_client, attr)?;
        }
        Ok(())
    }

    /// Connects each queue pair of the clients to one of the server.
    pub fn connect(&mut self) -> Result<(), AnyError> {
        let all = self.server.qps.len();
        for first in (0..all).step_by(QPS_PER_PORT) {
            self.server.context.listen(server_addr(first))?;
        }
        self.server.worker.poll(0);
        let of_client = all / self.clients.len();
        let (mut started, mut established, mut accepted) = (0, 0, 0);
        let start = Instant::now();
        while established < 2 * all {
            while started < all.min(accepted + CONNECTING_MAX) {
                let client = &mut self.clients[started / of_client];
                client.context.connect(client.qps[started % of_client], server_addr(started), b"")?;
                started += 1;
            }
            self.poll();
            for client in &mut self.clients {
                client.next_request(&mut established)?;
            }
            while let Some(event) = self.server.next_request(&mut established)? {
                if let Event::ConnectRequest { request, .. } = event {
                    self.server.context.accept(request, self.server.qps[accepted], b"")?;
                    accepted += 1;
                }
            }
            if start.elapsed() > CONNECT_TIMEOUT {
                return Err(format!("connecting {all} queue pairs took too long").into());
            }
        }
        Ok(())
    }

    /// The first client, and the server.
    pub fn split(mut self) -> Result<(End, End), AnyError> {
        Ok((self.clients.pop().ok_or("no client")?, self.server))
    }

    /// Polls every stack once, and the switch.
    pub fn poll(&mut self) {
        self.turn += 1;
        self.clients.iter_mut().for_each(|client| {
            client.worker.poll(1);
        });
        self.switch.forward(self.turn);
        self.server.worker.poll(1);
    }
}

/// Where the server listens for a queue pair.
fn server_addr(qp: usize) -> SocketAddr {
    (SERVER_ADDR, PORT + (qp / QPS_PER_PORT) as u16).into()
}
