//! Connection set-up: queue pairs are created, connected, closed and destroyed, `depth` of them at
//! a time.
//!
//! Set-up is timed from the connect call to the event of the established connection: the TCP
//! handshake and the MPA exchange. The rate counts a connection when both ends have closed it in
//! order, so it includes the creation of the queue pair, one Send if the case has bytes, the
//! disconnect and the destruction.
//!
//! The client closes first, so TIME-WAIT is on its side. The stack keeps a table of fixed size for
//! it and replaces the oldest entry (`docs/semantics.md`), so one core does not run out of ports.
//! With several cores each core can use only the ports whose flows it receives. A connect that
//! finds no free port is tried again after [`PORT_PAUSE`].

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ironwarp::{
    Access, AlignedBuf, Completion, CompletionOpcode, CompletionStatus, ConnectFailure, ConnectionRequest,
    DisconnectReason, Event, Framing, QpAttr, QueuePair, RecvWr, Region, SendWr, Sge,
};
use ironwarp_bench::report::TestResult;
use ironwarp_bench::{Case, Latency, ServerSlice, Slice, StopCondition, StopSignal, nanos};

use super::super::case::RdmaTest;
use super::super::endpoint::Endpoint;
use super::super::open_case::{CM_TIMEOUT, OpenCase};
use super::timer::{Timer, linger};
use crate::error::{Error, Result};

/// The private data of a connection request of this test.
const GREETING: &[u8] = b"iwarp-perf conn-rate";
/// Completion queue entries for each connection: its Send and its receive, and as many of
/// connections just destroyed.
const CQES_PER_CONNECTION: u32 = 4;
/// Failures in a row after which the slice fails: no later set-up can succeed either.
const CONSECUTIVE_FAILURES_MAX: u32 = 64;
/// The time before a connect is tried again when no local port is free.
const PORT_PAUSE: Duration = Duration::from_millis(1);
/// After a halt, connections that are being closed may take this time.
const HALT_TIMEOUT: Duration = Duration::from_secs(2);

/// One end of a case of connection set-up.
pub struct ConnRateTest {
    /// Without queue pairs: they come and go during a slice.
    open: OpenCase,
    /// The address of the server, at the client.
    peer: Option<SocketAddr>,
    /// The only host that may connect, at the server of another machine.
    from: Option<IpAddr>,
    /// The bytes that are sent or received. They are the same for all connections.
    message: Region,
    /// Connections that have not ended, with the start of their set-up.
    connections: HashMap<QueuePair, Instant>,
    counts: Counts,
    /// Cores are used round robin.
    next_core: u32,
    framing: Option<Framing>,
    /// Connects that found no free port, over all slices.
    port_waits: u64,
    /// No connect before this time.
    paused_until: Option<Instant>,
}

/// Counts of one slice.
#[derive(Default)]
struct Counts {
    /// Connects that were started and did not lack a port.
    started: u64,
    established: u64,
    /// Established connections that both ends closed in order.
    closed: u64,
    failed: u64,
    failed_in_a_row: u32,
    /// Messages that arrived whole.
    received: u64,
}

impl ConnRateTest {
    /// Creates everything but the queue pairs.
    pub fn new(endpoint: &mut Endpoint, case: &Case) -> Result<Self> {
        let bytes = AlignedBuf::pages((case.bytes as usize).max(1))?;
        let message = endpoint.ctx.register(endpoint.pd, bytes, Access::LOCAL_WRITE)?;
        let cq = endpoint.ctx.create_cq(case.depth * CQES_PER_CONNECTION)?;
        Ok(ConnRateTest {
            open: OpenCase::without_qps(case, cq),
            peer: None,
            from: None,
            message,
            connections: HashMap::with_capacity(case.depth as usize),
            counts: Counts::default(),
            next_core: 0,
            framing: None,
            port_waits: 0,
            paused_until: None,
        })
    }

    /// Starts connections up to the depth, or as many as the open loop allows.
    fn start_connections(
        &mut self,
        endpoint: &mut Endpoint,
        peer: SocketAddr,
        timer: &Timer<'_>,
    ) -> Result<()> {
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        self.paused_until = None;
        let mut allowed = timer.allowance(self.counts.started);
        while allowed > 0 && self.connections.len() < self.open.case.depth as usize {
            let qp = self.create_qp(endpoint)?;
            let start = timer.intended_start(self.counts.started).unwrap_or_else(Instant::now);
            endpoint.ctx.connect(qp, peer, GREETING)?;
            self.connections.insert(qp, start);
            self.counts.started += 1;
            allowed -= 1;
        }
        Ok(())
    }

    /// Polls once and handles all events. Set-ups are recorded in `latency` if there is one.
    fn poll_client(&mut self, endpoint: &mut Endpoint, mut latency: Option<&mut Latency>) -> Result<()> {
        endpoint.poll();
        self.reap(endpoint)?;
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Established { qp, .. } => {
                    if let (Some(start), Some(latency)) = (self.connections.get(&qp), &mut latency) {
                        latency.record(nanos(start.elapsed()));
                    }
                    self.use_and_close(endpoint, qp)?;
                }
                Event::Disconnected { qp, reason: DisconnectReason::Closed } => {
                    self.destroy(endpoint, qp)?;
                    self.counts.closed += 1;
                    self.counts.failed_in_a_row = 0;
                }
                Event::Disconnected { qp, reason } => self.on_failed(endpoint, qp, &format!("{reason:?}"))?,
                Event::ConnectFailed { qp, reason: ConnectFailure::NoResources } => {
                    self.destroy(endpoint, qp)?;
                    self.counts.started -= 1;
                    self.port_waits += 1;
                    self.paused_until = Some(Instant::now() + PORT_PAUSE);
                }
                Event::ConnectFailed { qp, reason } => {
                    self.on_failed(endpoint, qp, &format!("{reason:?}"))?
                }
                Event::Rejected { qp, private_data, .. } => {
                    self.on_failed(endpoint, qp, &String::from_utf8_lossy(&private_data))?;
                }
                _ => {}
            }
        }
        if endpoint.is_control_lost() { Err(Error::Halted) } else { Ok(()) }
    }

    /// Sends the message, if the case has one, and disconnects. The stack closes when the peer has
    /// acknowledged it.
    fn use_and_close(&mut self, endpoint: &mut Endpoint, qp: QueuePair) -> Result<()> {
        self.counts.established += 1;
        if self.framing.is_none() {
            self.framing = endpoint.ctx.query_qp(qp)?.framing;
        }
        let Case { bytes, inline, .. } = self.open.case;
        if bytes > u64::from(inline) {
            endpoint.ctx.post_send(qp, &SendWr::send(0, &self.scatter()?))?;
        } else if bytes > 0 {
            let mut message = vec![0; bytes as usize];
            self.message.read_at(0, &mut message)?;
            endpoint.ctx.post_send(qp, &SendWr::send_inline(0, &message))?;
        }
        Ok(endpoint.ctx.disconnect(qp)?)
    }

    fn scatter(&self) -> Result<[Sge; 1]> {
        Ok([self.message.slice(0, self.open.case.bytes as u32)?])
    }

    #[cold]
    fn on_failed(&mut self, endpoint: &mut Endpoint, qp: QueuePair, why: &str) -> Result<()> {
        tracing::info!("a connection failed: {why}");
        self.destroy(endpoint, qp)?;
        self.counts.failed += 1;
        self.counts.failed_in_a_row += 1;
        match self.counts.failed_in_a_row {
            CONSECUTIVE_FAILURES_MAX.. => Err(Error::Failed(format!(
                "the connection ended: {CONSECUTIVE_FAILURES_MAX} connections in a row failed, the last one: {why}"
            ))),
            _ => Ok(()),
        }
    }

    /// Waits for the end of all connections. After a halt those that do not end soon are reset: the
    /// server may be gone.
    fn finish_connections(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<()> {
        let start = Instant::now();
        while !self.connections.is_empty() {
            self.poll_client(endpoint, None)?;
            if until.halted() && start.elapsed() > HALT_TIMEOUT {
                return self.destroy_connections(endpoint);
            }
            if start.elapsed() > CM_TIMEOUT {
                return Err(Error::too_long("closing connections"));
            }
        }
        Ok(())
    }

    fn poll_server(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        endpoint.poll();
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::ConnectRequest { request, remote, private_data, .. } => {
                    let known = self.from.is_none_or(|from| from == remote.ip());
                    match known && *private_data == *GREETING {
                        true => self.accept(endpoint, request)?,
                        false => endpoint.reject(request, b"not a test of this run"),
                    }
                }
                Event::Established { .. } => self.counts.established += 1,
                // A receive completes before the end of its connection is reported.
                Event::Disconnected { qp, .. } | Event::ConnectFailed { qp, .. } => {
                    self.reap(endpoint)?;
                    self.destroy(endpoint, qp)?;
                }
                _ => {}
            }
        }
        self.reap(endpoint)
    }

    fn accept(&mut self, endpoint: &mut Endpoint, request: ConnectionRequest) -> Result<()> {
        let qp = self.create_qp(endpoint)?;
        if self.open.case.bytes > 0 {
            endpoint.ctx.post_recv(qp, &RecvWr::new(0, &self.scatter()?))?;
        }
        endpoint.ctx.accept(&request, qp, &[])?;
        self.connections.insert(qp, Instant::now());
        Ok(())
    }

    /// Counts the messages that arrived. A failed request is reported by the event of its
    /// connection.
    fn reap(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        let bytes = self.open.case.bytes;
        let is_whole = |completion: &&Completion| {
            completion.opcode == CompletionOpcode::Receive
                && completion.status == CompletionStatus::Success
                && u64::from(completion.byte_len) == bytes
        };
        if bytes == 0 {
            return Ok(());
        }
        loop {
            let count = endpoint.ctx.poll_cq(self.open.cq, &mut *self.open.reaped)?;
            self.counts.received += self.open.reaped[..count].iter().filter(is_whole).count() as u64;
            if count < self.open.reaped.len() {
                return Ok(());
            }
        }
    }

    fn create_qp(&mut self, endpoint: &mut Endpoint) -> Result<QueuePair> {
        let attr = QpAttr {
            send_depth: 1,
            recv_depth: 1,
            max_sge: 1,
            inline_bytes: self.open.case.inline as usize,
            ird: 1,
            ord: 1,
            core: endpoint.core_of(self.next_core),
            ..QpAttr::new(self.open.cq)
        };
        self.next_core = self.next_core.wrapping_add(1);
        Ok(endpoint.ctx.create_qp(endpoint.pd, &attr)?)
    }

    fn destroy(&mut self, endpoint: &mut Endpoint, qp: QueuePair) -> Result<()> {
        match self.connections.remove(&qp) {
            Some(_) => Ok(endpoint.ctx.destroy_qp(qp)?),
            None => Ok(()),
        }
    }

    /// Destroys the queue pairs of connections that have not ended, which resets them.
    fn destroy_connections(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        let qps: Vec<QueuePair> = self.connections.keys().copied().collect();
        qps.into_iter().try_for_each(|qp| self.destroy(endpoint, qp))
    }
}

impl RdmaTest for ConnRateTest {
    fn open(&mut self) -> &mut OpenCase {
        &mut self.open
    }

    /// The client's part of a slice. Also returns the established connections, which the server
    /// waits for.
    fn run_client(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<(Slice, u64)> {
        let peer = self.peer.ok_or(Error::NoDevice)?;
        self.counts = Counts::default();
        let mut latency = Latency::new();
        let mut timer = Timer::new(until, self.open.case.rate);
        while !timer.is_over(self.counts.closed) {
            self.start_connections(endpoint, peer, &timer)?;
            self.poll_client(endpoint, timer.is_measuring().then_some(&mut latency))?;
        }
        let slice = timer.slice(self.counts.closed, self.open.case.bytes);
        self.finish_connections(endpoint, until)?;
        let slice = Slice { latency: Some(latency), errors: self.counts.failed, ..slice };
        Ok((slice, self.counts.established))
    }

    /// The server's part of a slice: accepts, receives and lets the client close.
    fn run_server(&mut self, endpoint: &mut Endpoint, stop: &StopSignal) -> Result<ServerSlice> {
        self.counts = Counts::default();
        while stop.raised().is_none() {
            self.poll_server(endpoint)?;
        }
        let (expected, start) = (stop.raised().unwrap_or(0), Instant::now());
        while (!self.connections.is_empty() || self.counts.established < expected)
            && start.elapsed() < CM_TIMEOUT
            && !endpoint.is_control_lost()
        {
            self.poll_server(endpoint)?;
        }
        self.destroy_connections(endpoint)?;
        linger(|| self.poll_server(endpoint))?;
        let Counts { established, received, .. } = self.counts;
        let lost = if self.open.case.bytes > 0 { expected.saturating_sub(received) } else { 0 };
        Ok(ServerSlice {
            messages: received,
            bytes: received * self.open.case.bytes,
            errors: lost.max(expected.saturating_sub(established)),
            ..ServerSlice::default()
        })
    }

    /// Adds the framing, and how often a port was missing.
    fn report(&mut self, result: &mut TestResult) {
        result.crc = self.framing.map(|framing| framing.crc);
        result.markers = self.framing.map(|framing| framing.markers.sent && framing.markers.received);
        if self.port_waits > 0 {
            result.notes.push(format!(
                "{} connects waited because no local port was free: the others are in use or in TIME-WAIT \
                 (tcp.time_wait_ms)",
                self.port_waits
            ));
        }
    }

    /// Connections come and go during a slice.
    fn connect(&mut self, _: &mut Endpoint, _: usize, peer: SocketAddr) -> Result<()> {
        self.peer = Some(peer);
        Ok(())
    }

    fn accept_from(&mut self, from: Option<IpAddr>) {
        self.from = from;
    }

    fn destroy(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        self.destroy_connections(endpoint)?;
        self.open.destroy(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use ironwarp::memory::{MemoryConfig, pair};
    use ironwarp::{Config, IdlePolicy, Stack};
    use ironwarp_bench::{Budget, PathKind, Test};

    use super::*;

    fn endpoints() -> (Endpoint, Endpoint) {
        let (client, server) = pair(&MemoryConfig::default(), &MemoryConfig::default());
        let open = |address, port| {
            let mut config = Config::in_memory(address).expect("a valid configuration");
            config.core.idle = IdlePolicy::Yield;
            let (stack, worker) = Stack::builder(config).memory_port(port).build_one().expect("a stack");
            Endpoint::new(stack, vec![worker], None, false).expect("an end")
        };
        (open("10.0.0.1/24", client), open("10.0.0.2/24", server))
    }

    /// Without the limit a slice with only failures would not end.
    #[test]
    fn a_slice_fails_if_all_connections_are_refused() {
        let (mut client, mut server) = endpoints();
        let is_over = AtomicBool::new(false);
        let case = Case { depth: 8, ..Case::new(Test::ConnRate, 0, 1500, PathKind::Memory) };
        let mut test = ConnRateTest::new(&mut client, &case).expect("a case");
        test.peer = Some("10.0.0.2:18515".parse().expect("an address"));
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    server.poll();
                }
            });
            let outcome = test.run_client(&mut client, StopCondition::unhalted(Budget::iterations(1, 0)));
            is_over.store(true, Ordering::Relaxed);
            outcome
        });
        let error = outcome.expect_err("no server listens").to_string();
        assert!(error.contains("64 connections in a row failed, the last one: Refused"), "{error}");
        test.destroy_connections(&mut client).expect("a stack");
        assert!(client.destroy_cq(test.open.cq, CM_TIMEOUT), "no queue pair is left");
    }
}
