//! One operation between two stacks of one thread over memory ports, over TCP or SCTP. The count
//! covers both ends: applications, stacks and memory ports.

use std::time::Instant;

use ironwarp::config::TransportKind;
use ironwarp::lower::{DdpOverSctp, MpaOverTcp};
use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{
    Access, Completion, CompletionQueue, Config, Context, DisconnectReason, Event, ProtectionDomain, QpAttr,
    QueuePair, RecvWr, Region, RemoteMemory, SendWr, Sge, Stack, Worker,
};

use crate::Failure;
use crate::step_clock::StepClock;

/// The payload of a small message.
const SMALL: [u8; 64] = [0x5a; 64];

/// The payload of a large Write in bytes.
const LARGE_BYTES: u32 = 1 << 20;

/// The server's listening address.
const LISTENER: &str = "10.0.0.2:4791";

/// Requests in one list.
const LIST: usize = 16;

/// The queue pairs of [`Case::WriteSpread`] that the budget is for.
const SPREAD: u32 = 2048;

/// Requests of the send queue.
const SEND_DEPTH: u32 = 64;

/// The cases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// A 64 B Send and the 64 B Send in reply, with four polls.
    RoundTrip,
    /// A poll of an established connection without work.
    IdlePoll,
    /// A 64 B Write. Each is posted alone, when the Write before it is complete.
    WriteAlone,
    /// The same over queue pairs in turn.
    WriteSpread { queue_pairs: u32, outstanding: u32 },
    /// A 64 B Read. Each is posted alone, when the Read before it is complete.
    ReadAlone,
    /// A 64 B Write of a stream of lists of sixteen.
    WriteList,
    /// A 64 B Send of a stream of lists of sixteen, received by receives that are posted in lists.
    SendList,
    /// A 1 MiB Write of a stream, MTU 1500.
    WriteLarge,
    /// A 1 MiB Write of a stream, MTU 9000.
    WriteLargeJumbo,
    /// A connection: its queue pairs are created, connected, disconnected and destroyed.
    SetUp,
}

impl Case {
    pub fn parse(name: &str, queue_pairs: Option<u32>, outstanding: Option<u32>) -> Option<Self> {
        Some(match name {
            "round-trip" => Case::RoundTrip,
            "idle-poll" => Case::IdlePoll,
            "write-alone" => Case::WriteAlone,
            "write-spread" => Case::WriteSpread {
                queue_pairs: queue_pairs.unwrap_or(SPREAD).max(1),
                outstanding: outstanding.unwrap_or(1).clamp(1, SEND_DEPTH),
            },
            "read-alone" => Case::ReadAlone,
            "write-list" => Case::WriteList,
            "send-list" => Case::SendList,
            "write-large" => Case::WriteLarge,
            "write-large-jumbo" => Case::WriteLargeJumbo,
            "set-up" => Case::SetUp,
            _ => return None,
        })
    }

    fn mtu(self) -> u16 {
        if self == Case::WriteLargeJumbo { 9000 } else { 1500 }
    }

    /// The operations that are counted. A quarter of them runs before, to warm up tables and
    /// windows.
    fn operations(self) -> u32 {
        match self {
            Case::RoundTrip | Case::WriteAlone | Case::ReadAlone | Case::SetUp => 2000,
            Case::WriteSpread { queue_pairs, .. } => queue_pairs.saturating_mul(4).max(2000),
            Case::IdlePoll => 10_000,
            Case::WriteList | Case::SendList => 16_000,
            Case::WriteLarge | Case::WriteLargeJumbo => 16,
        }
    }
}

/// Runs a case. Returns how many operations were counted.
pub fn count(case: Case, transport: TransportKind) -> Result<u64, Failure> {
    let mut link = Link::connect(case, transport)?;
    if let Case::WriteSpread { queue_pairs, .. } = case {
        link.connect_more(queue_pairs - 1)?;
    }
    link.run(case, case.operations() / 4)?;
    let start = Instant::now();
    measured(&mut link, case)?;
    eprintln!("{:.0} ns an operation", start.elapsed().as_nanos() as f64 / f64::from(case.operations()));
    Ok(case.operations().into())
}

#[inline(never)]
fn measured(link: &mut Link, case: Case) -> Result<(), Failure> {
    link.run(case, case.operations())
}

/// Two connected ends.
struct Link {
    client: End,
    server: End,
    /// The server's buffer, as the client addresses it.
    remote: RemoteMemory,
    /// The client's queue pairs besides `client.qp`, and the one that is next.
    more: Vec<QueuePair>,
    next: usize,
}

impl Link {
    fn connect(case: Case, transport: TransportKind) -> Result<Self, Failure> {
        let port = MemoryConfig { mtu_bytes: case.mtu(), ..MemoryConfig::default() };
        let (client_port, server_port) = pair(&port, &port);
        let clock = StepClock::default();
        let mut client = End::new("10.0.0.1/24", (case, transport), client_port, clock.clone())?;
        let mut server = End::new("10.0.0.2/24", (case, transport), server_port, clock)?;
        server.context.listen(LISTENER.parse()?)?;
        client.context.connect(client.qp, LISTENER.parse()?, b"")?;
        loop {
            client.worker.poll(1);
            server.worker.poll(1);
            if let Some(Event::ConnectRequest { request, .. }) = server.context.poll_event() {
                server.context.accept(request, server.qp, b"")?;
            }
            if let Some(Event::Established { .. }) = client.context.poll_event() {
                let remote =
                    RemoteMemory { stag: server.buffer.stag(), tagged_offset: server.buffer.base_to() };
                return Ok(Link { client, server, remote, more: Vec::new(), next: 0 });
            }
        }
    }

    fn run(&mut self, case: Case, operations: u32) -> Result<(), Failure> {
        match case {
            Case::RoundTrip => (0..operations).try_for_each(|_| self.round_trip()),
            Case::IdlePoll => {
                (0..operations).for_each(|_| {
                    self.client.worker.poll(1);
                });
                Ok(())
            }
            Case::WriteAlone => (0..operations).try_for_each(|_| self.write_alone()),
            Case::WriteSpread { outstanding, .. } => self.write_spread(operations, outstanding as usize),
            Case::ReadAlone => (0..operations).try_for_each(|_| self.read_alone()),
            Case::WriteList => self.write_lists(operations),
            Case::SendList => self.send_lists(operations),
            Case::WriteLarge | Case::WriteLargeJumbo => self.write_large(operations),
            Case::SetUp => (0..operations).try_for_each(|_| self.set_up()),
        }
    }

    fn round_trip(&mut self) -> Result<(), Failure> {
        self.client.send()?;
        self.server.receive(&mut self.client)?;
        self.server.send()?;
        self.client.receive(&mut self.server)
    }

    fn write_alone(&mut self) -> Result<(), Failure> {
        self.client.context.post_send(self.client.qp, &SendWr::write_inline(1, &SMALL, self.remote))?;
        while self.poll()? == 0 {}
        Ok(())
    }

    /// Writes of the queue pairs in turn. All complete in one queue.
    fn write_spread(&mut self, writes: u32, outstanding: usize) -> Result<(), Failure> {
        let mut posted = 0;
        for _ in 0..writes {
            let qp = self.more.get(self.next).copied().unwrap_or(self.client.qp);
            self.next = (self.next + 1) % (self.more.len() + 1);
            self.client.context.post_send(qp, &SendWr::write_inline(1, &SMALL, self.remote))?;
            posted += 1;
            while posted >= outstanding {
                posted -= self.poll()?;
            }
        }
        while posted > 0 {
            posted -= self.poll()?;
        }
        Ok(())
    }

    fn read_alone(&mut self) -> Result<(), Failure> {
        let sink = [self.client.buffer.slice(0, SMALL.len() as u32)?];
        self.client.context.post_send(self.client.qp, &SendWr::read(1, &sink, self.remote))?;
        while self.poll()? == 0 {}
        Ok(())
    }

    /// The last Write of each list is signaled.
    fn write_lists(&mut self, writes: u32) -> Result<(), Failure> {
        let write = || SendWr::write_inline(1, &SMALL, self.remote);
        let list: [SendWr<'_>; LIST] =
            core::array::from_fn(|at| if at + 1 == LIST { write() } else { write().unsignaled() });
        let (mut to_post, mut to_complete) = (writes as usize / LIST, writes as usize / LIST);
        while to_complete > 0 {
            if to_post > 0 && to_complete - to_post < SEND_DEPTH as usize / LIST {
                self.client.context.post_sends(self.client.qp, &list).map_err(|(_, error)| error)?;
                to_post -= 1;
            }
            self.client.worker.poll(1);
            self.server.worker.poll(1);
            to_complete -= self.client.reap()?;
        }
        Ok(())
    }

    /// A list is sent when the receives of the one before are posted again.
    fn send_lists(&mut self, sends: u32) -> Result<(), Failure> {
        let list: [SendWr<'_>; LIST] = core::array::from_fn(|at| {
            let send = SendWr::send_inline(1, &SMALL);
            if at + 1 == LIST { send } else { send.unsignaled() }
        });
        let receives = self.server.sinks()?;
        for _ in 0..sends as usize / LIST {
            self.server
                .context
                .post_recvs(self.server.qp, &receives.each_ref().map(|sink| RecvWr::new(1, sink)))
                .map_err(|(_, error)| error)?;
            self.client.context.post_sends(self.client.qp, &list).map_err(|(_, error)| error)?;
            let (mut sent, mut received) = (0, 0);
            while sent == 0 || received < LIST {
                sent += self.poll()?;
                received += self.server.reap_up_to::<LIST>()?;
            }
        }
        Ok(())
    }

    /// Two Writes are outstanding, so that the sender always has data.
    fn write_large(&mut self, writes: u32) -> Result<(), Failure> {
        let gather = [self.client.buffer.slice(0, LARGE_BYTES)?];
        let (mut to_post, mut to_complete) = (writes as usize, writes as usize);
        while to_complete > 0 {
            if to_post > 0 && to_complete - to_post < 2 {
                self.client.context.post_send(self.client.qp, &SendWr::write(1, &gather, self.remote))?;
                to_post -= 1;
            }
            to_complete -= self.poll()?;
        }
        Ok(())
    }

    /// Connects more queue pairs, one at a time.
    fn connect_more(&mut self, count: u32) -> Result<(), Failure> {
        for _ in 0..count {
            let (client, server) = (self.client.create_qp(1)?, self.server.create_qp(1)?);
            self.client.context.connect(client, LISTENER.parse()?, b"")?;
            let mut established = 0;
            while established < 2 {
                self.client.worker.poll(1);
                self.server.worker.poll(1);
                while let Some(event) = self.client.context.poll_event() {
                    established += usize::from(matches!(event, Event::Established { .. }));
                }
                while let Some(event) = self.server.context.poll_event() {
                    match event {
                        Event::ConnectRequest { request, .. } => {
                            self.server.context.accept(request, server, b"")?
                        }
                        event => established += usize::from(matches!(event, Event::Established { .. })),
                    }
                }
            }
            self.more.push(client);
        }
        Ok(())
    }

    /// The client disconnects as soon as it is connected.
    fn set_up(&mut self) -> Result<(), Failure> {
        let (client, server) = (self.client.create_qp(1)?, self.server.create_qp(1)?);
        self.client.context.connect(client, LISTENER.parse()?, b"")?;
        let mut ended = 0;
        while ended < 2 {
            self.client.worker.poll(1);
            self.server.worker.poll(1);
            while let Some(event) = self.client.context.poll_event() {
                match event {
                    Event::Established { qp, .. } => self.client.context.disconnect(qp)?,
                    event => ended += closed(event)?,
                }
            }
            while let Some(event) = self.server.context.poll_event() {
                match event {
                    Event::ConnectRequest { request, .. } => {
                        self.server.context.accept(request, server, b"")?
                    }
                    event => ended += closed(event)?,
                }
            }
        }
        self.client.context.destroy_qp(client)?;
        Ok(self.server.context.destroy_qp(server)?)
    }

    /// Polls both ends once and returns the number of the client's completions.
    fn poll(&mut self) -> Result<usize, Failure> {
        self.client.worker.poll(1);
        self.server.worker.poll(1);
        self.client.reap()
    }
}

/// Returns 1 for the end of a connection in order, 0 for an event on the way to it.
fn closed(event: Event) -> Result<usize, Failure> {
    match event {
        Event::Disconnected { reason: DisconnectReason::Closed, .. } => Ok(1),
        Event::Established { .. } | Event::CommunicationEstablished { .. } => Ok(0),
        event => Err(format!("{event:?}").into()),
    }
}

/// One end of the connection: its stack, its application's objects and its core.
struct End {
    context: Context,
    worker: Worker,
    pd: ProtectionDomain,
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Region,
}

impl End {
    fn new(
        address: &str,
        (case, transport): (Case, TransportKind),
        port: MemoryPort,
        clock: StepClock,
    ) -> Result<Self, Failure> {
        let mut config = Config::in_memory(address)?;
        config.port.mtu = case.mtu();
        config.stack.transport = transport.into();
        if let Case::WriteSpread { queue_pairs, .. } = case {
            config.limits.queue_pairs = queue_pairs;
        }
        let (builder, ports, secret) = (Stack::builder(config), vec![vec![port]], [1, 2]);
        let (stack, mut workers) = match transport {
            TransportKind::Tcp => builder.build_over::<MpaOverTcp<_>, _, _>(ports, clock, secret)?,
            TransportKind::Sctp => builder.build_over::<DdpOverSctp<_>, _, _>(ports, clock, secret)?,
        };
        let worker = workers.remove(0);
        let mut context = stack.context()?;
        let (pd, cq) = (context.alloc_pd(), context.create_cq(4 * SEND_DEPTH)?);
        let qp = context.create_qp(pd, &QpAttr { send_depth: SEND_DEPTH, ..QpAttr::new(cq) })?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let buffer = context.register(pd, vec![0u8; LARGE_BYTES as usize], access)?;
        let mut end = End { context, worker, pd, qp, cq, buffer };
        end.post_receive()?;
        Ok(end)
    }

    /// Creates a queue pair beside that of the warm connection.
    fn create_qp(&mut self, depth: u32) -> Result<QueuePair, Failure> {
        let attr = QpAttr {
            send_depth: depth,
            recv_depth: depth,
            ird: 1,
            ord: 1,
            max_sge: 1,
            ..QpAttr::new(self.cq)
        };
        Ok(self.context.create_qp(self.pd, &attr)?)
    }

    fn post_receive(&mut self) -> Result<(), Failure> {
        let sink = [self.buffer.slice(0, SMALL.len() as u32)?];
        Ok(self.context.post_recv(self.qp, &RecvWr::new(1, &sink))?)
    }

    fn sinks(&self) -> Result<[[Sge; 1]; LIST], Failure> {
        let sink = [self.buffer.slice(0, SMALL.len() as u32)?];
        Ok([sink; LIST])
    }

    fn send(&mut self) -> Result<(), Failure> {
        let request = SendWr::send_inline(2, &SMALL).unsignaled();
        Ok(self.context.post_send(self.qp, &request)?)
    }

    /// Polls both ends until a message has arrived, and posts the receive for the next one.
    fn receive(&mut self, peer: &mut End) -> Result<(), Failure> {
        loop {
            peer.worker.poll(1);
            self.worker.poll(1);
            if self.reap()? > 0 {
                return self.post_receive();
            }
        }
    }

    fn reap(&mut self) -> Result<usize, Failure> {
        self.reap_up_to::<4>()
    }

    /// Returns the number of completions that were waiting, at most `N`.
    fn reap_up_to<const N: usize>(&mut self) -> Result<usize, Failure> {
        let mut completions = [Completion::default(); N];
        Ok(self.context.poll_cq(self.cq, &mut completions)?)
    }
}
