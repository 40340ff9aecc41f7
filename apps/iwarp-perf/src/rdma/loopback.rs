//! One core that runs client and server over its own queues of the device, polled by one thread.
//!
//! The client is an ordinary endpoint. Each of its polls also polls the server, so the same loops
//! measure both. During a slice the server may have a thread and a processor of its own. Workers
//! share only the two stacks.

use std::any::Any;
use std::net::SocketAddr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ironwarp::{PortVisit, ProtectionDomain, Stack, Worker};
use ironwarp_bench::baseline::frames::{Layout, one_core_transfer};
use ironwarp_bench::host::pin;
use ironwarp_bench::report::CorePolls;
use ironwarp_bench::{Case, Slice, StopCondition, Transport};
use ironwarp_port::Port;

use super::case::{RdmaCase, accept_one};
use super::endpoint::{Companion, Endpoint};
use super::open_case::{AtomicWords, words};
use super::slices::open_case;
use crate::error::{Error, Result};

/// The stack of all clients, or of all servers.
pub struct SharedStack {
    stack: Arc<Stack>,
    cores: u16,
    pd: ProtectionDomain,
}

impl SharedStack {
    pub fn new(stack: Stack, cores: usize) -> Self {
        SharedStack { pd: stack.alloc_pd(), stack: Arc::new(stack), cores: cores as u16 }
    }
}

/// Counts down the workers that still measure, also when one fails or panics.
pub struct DoneGuard<'a>(pub &'a AtomicUsize);

impl Drop for DoneGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Client and server of one core.
pub struct LoopbackWorker {
    client: Endpoint,
    /// One entry per case of the group; `None` where this core does not take part.
    open: Vec<Option<RdmaCase>>,
    peer: SocketAddr,
    /// Polls while other cores were measured.
    poll_count: u32,
}

/// The server of a core.
struct ServerHalf {
    endpoint: Endpoint,
    open: Vec<Option<RdmaCase>>,
    serving_case: Option<usize>,
    /// The case whose connection requests are accepted.
    connecting_case: Option<usize>,
    failed: Option<Error>,
}

impl Companion for ServerHalf {
    /// One iteration. A failure is reported when the slice ends.
    fn poll(&mut self) {
        if let Err(error) = self.try_poll() {
            self.failed.get_or_insert(error);
        }
    }
}

impl ServerHalf {
    fn try_poll(&mut self) -> Result<()> {
        if let Some(open) = self.serving_case.and_then(|case| self.open.get_mut(case)?.as_mut()) {
            return open.serve(&mut self.endpoint);
        }
        self.endpoint.poll();
        if let Some(open) = self.connecting_case.and_then(|case| self.open.get_mut(case))
            && let Some(event) = self.endpoint.poll_event()
        {
            accept_one(&mut self.endpoint, slice::from_mut(open), None, event)?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl LoopbackWorker {
    /// One core of two stacks that are connected back to back. The server listens at `peer`, which
    /// no other core uses.
    pub fn new(
        client: (&SharedStack, Worker),
        server: (&SharedStack, Worker),
        peer: SocketAddr,
    ) -> Result<Self> {
        let of = |(shared, worker): (&SharedStack, Worker)| {
            Endpoint::of_core(&shared.stack, worker, (shared.cores, shared.pd))
        };
        let (mut client, mut endpoint) = (of(client)?, of(server)?);
        endpoint.listen(peer)?;
        let server_half = ServerHalf {
            endpoint,
            open: Vec::new(),
            serving_case: None,
            connecting_case: None,
            failed: None,
        };
        *client.companion() = Some(Box::new(server_half));
        Ok(LoopbackWorker { client, open: Vec::new(), peer, poll_count: 0 })
    }

    /// Polls both ends once.
    pub fn poll(&mut self) {
        self.client.poll();
    }

    /// Polls while other cores are measured, since this core can own words that they use. The
    /// client is idle and would delay them, so it is polled rarely.
    pub fn poll_mostly_server(&mut self) {
        /// Polls of the server per poll of both ends.
        const SERVER_POLLS_PER_POLL: u32 = 64;
        self.poll_count = self.poll_count.wrapping_add(1);
        match self.client.companion() {
            Some(server_half) if !self.poll_count.is_multiple_of(SERVER_POLLS_PER_POLL) => server_half.poll(),
            _ => self.poll(),
        }
    }

    pub fn apply_control_requests(&mut self) -> Result<()> {
        self.server_half()?.endpoint.apply_control_requests()
    }

    /// Opens and connects the next case, or adds an empty entry where this core does not take part.
    /// `words` are the server's, where cores share them.
    pub fn open(&mut self, case: &Case, participates: bool, words: Option<AtomicWords>) -> Result<()> {
        let participates = participates && case.test.transport() == Transport::Ironwarp;
        let own_case = || Case { qps: case.qps / case.cores, cores: 1, ..case.clone() };
        let number = self.open.len();
        let client =
            participates.then(|| open_case(&mut self.client, &own_case(), true, None)).transpose()?;
        let server_half = self.server_half()?;
        let server = || open_case(&mut server_half.endpoint, &own_case(), false, words);
        let server = participates.then(server).transpose()?;
        server_half.open.push(server);
        server_half.connecting_case = Some(number);
        let (peer, endpoint) = (self.peer, &mut self.client);
        // One case at a time is connected, so its index is 0 in what the server offers.
        let connected = client.map(|mut open| open.connect(endpoint, 0, peer).map(|()| open)).transpose()?;
        self.open.push(connected);
        let server_half = self.server_half()?;
        server_half.connecting_case = None;
        server_half.check()
    }

    /// The server's atomic operations so far, as [`Endpoint::atomics`].
    pub fn atomics(&mut self) -> [u64; 3] {
        self.server_half().map_or([0; 3], |server_half| server_half.endpoint.atomics())
    }

    /// Registers words for the servers of all cores.
    pub fn words(&mut self, case: &Case) -> Result<AtomicWords> {
        words(&mut self.server_half()?.endpoint, case)
    }

    /// The words of a case at the server, if this core takes part in it.
    pub fn words_of(&mut self, number: usize) -> Result<Option<AtomicWords>> {
        let open = self.server_half()?.open.get_mut(number).and_then(Option::as_mut);
        Ok(open.map(|open| open.open().words.clone()))
    }

    /// Runs this core's part of a slice, with a thread for the server if that has a processor of
    /// its own. Also returns its contribution to the sum of the server's words, over all slices.
    pub fn slice(
        &mut self,
        number: usize,
        case: &Case,
        until: StopCondition<'_>,
        server_processor: Option<usize>,
    ) -> Result<(Slice, u64)> {
        if case.test.transport() == Transport::Frames {
            return Ok((self.frames(Layout::new(case.bytes, case.mtu), until)?, 0));
        }
        self.server_half()?.serving_case = Some(number);
        let open = self.open.get_mut(number).and_then(Option::as_mut).ok_or(Error::NoDevice)?;
        let outcome = match server_processor {
            Some(processor) => run_apart(open, &mut self.client, until, processor)?,
            None => open.run_client(&mut self.client, until)?,
        };
        let server_half = self.server_half()?;
        server_half.serving_case = None;
        server_half.check()?;
        Ok(outcome)
    }

    /// Sends raw frames over the same two queues while the stacks are not polled.
    fn frames(&mut self, layout: Layout, until: StopCondition<'_>) -> Result<Slice> {
        let mut companion = self.client.companion().take().ok_or(Error::NoDevice)?;
        let server = &mut server_half_of(&mut *companion)?.endpoint;
        let outcome =
            self.client.with_worker(|worker| worker.with_port(ClientPort { server, layout, until }));
        *self.client.companion() = Some(companion);
        outcome?.ok_or(Error::NoDevice)?
    }

    /// Frames of both ends so far that were dropped between cores.
    pub fn steering_drops(&mut self) -> u64 {
        let server = self.server_half().map_or(0, |server_half| server_half.endpoint.steering_drops());
        self.client.steering_drops() + server
    }

    pub fn polls(&self) -> Vec<CorePolls> {
        self.client.polls()
    }

    /// The polls of the client and of the server.
    pub fn polls_of_ends(&mut self) -> [Vec<CorePolls>; 2] {
        let server = self.server_half().map(|server_half| server_half.endpoint.polls()).unwrap_or_default();
        [self.client.polls(), server]
    }

    fn server_half(&mut self) -> Result<&mut ServerHalf> {
        server_half_of(self.client.companion().as_deref_mut().ok_or(Error::NoDevice)?)
    }
}

/// Runs the client's part of a slice while another thread polls the server.
fn run_apart(
    open: &mut RdmaCase,
    client: &mut Endpoint,
    until: StopCondition<'_>,
    processor: usize,
) -> Result<(Slice, u64)> {
    let mut companion = client.companion().take().ok_or(Error::NoDevice)?;
    let measuring = &AtomicUsize::new(1);
    let (outcome, companion) = thread::scope(|scope| {
        let guard = DoneGuard(measuring);
        let server = scope.spawn(move || {
            pin(processor)?;
            while measuring.load(Ordering::Relaxed) > 0 {
                companion.poll();
            }
            Ok::<_, Error>(companion)
        });
        let outcome = open.run_client(client, until);
        drop(guard);
        (outcome, server.join().unwrap_or(Err(Error::NoDevice)))
    });
    *client.companion() = Some(companion?);
    outcome
}

fn server_half_of(companion: &mut dyn Companion) -> Result<&mut ServerHalf> {
    let companion: &mut dyn Any = companion;
    companion.downcast_mut().ok_or(Error::NoDevice)
}

struct ClientPort<'a> {
    server: &'a mut Endpoint,
    layout: Layout,
    until: StopCondition<'a>,
}

struct ServerPort<'a, N> {
    client: &'a mut N,
    layout: Layout,
    until: StopCondition<'a>,
}

impl PortVisit for ClientPort<'_> {
    type Output = Result<Slice>;

    fn visit<P: Port>(self, client: &mut P) -> Self::Output {
        let ClientPort { server, layout, until } = self;
        let outcome = server.with_worker(|worker| worker.with_port(ServerPort { client, layout, until }))?;
        outcome.ok_or(Error::NoDevice)
    }
}

impl<N: Port> PortVisit for ServerPort<'_, N> {
    type Output = Slice;

    fn visit<P: Port>(self, server: &mut P) -> Slice {
        one_core_transfer(self.client, server, self.layout, self.until)
    }
}
