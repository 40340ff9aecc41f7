//! A case over the stack, open at one end: its queue pairs and the test that runs over them.

use std::net::{IpAddr, SocketAddr};

use ironwarp::{AcceptParams, ConnectParams, Event, Framing};
use ironwarp_bench::report::TestResult;
use ironwarp_bench::{Case, ServerSlice, Slice, StopCondition, StopSignal};

use super::endpoint::{Endpoint, RdmaError, Result};
use super::open_case::{AtomicWords, CM_TIMEOUT, Hello, OpenCase, extensions, hello};
use super::slices::{AtomicTest, BandwidthTest, ConnRateTest, LatencyTest};

/// Connections in setup at a time: below the default limit of half-open connections (`limits.half_open`).
const CONNECTING_MAX: usize = 64;

pub enum RdmaCase {
    Atomic(AtomicTest),
    Bandwidth(BandwidthTest),
    ConnRate(ConnRateTest),
    Latency(LatencyTest),
}

impl RdmaCase {
    /// Creates everything but the connections.
    pub fn new(endpoint: &mut Endpoint, case: &Case, client: bool) -> Result<Self> {
        Self::with_words(endpoint, case, client, None)
    }

    /// As [`RdmaCase::new`], with existing words.
    pub fn with_words(
        endpoint: &mut Endpoint,
        case: &Case,
        client: bool,
        words: Option<AtomicWords>,
    ) -> Result<Self> {
        if case.test.is_connection_setup() {
            return ConnRateTest::new(endpoint, case).map(RdmaCase::ConnRate);
        }
        let open = OpenCase::new(endpoint, case, words)?;
        Ok(match case.test {
            test if test.is_atomic() => RdmaCase::Atomic(AtomicTest::new(open)),
            test if test.is_latency() => RdmaCase::Latency(LatencyTest::new(open)),
            _ => RdmaCase::Bandwidth(BandwidthTest::new(open, client)),
        })
    }

    fn open(&self) -> &OpenCase {
        match self {
            RdmaCase::Atomic(test) => &test.open,
            RdmaCase::Bandwidth(test) => &test.open,
            RdmaCase::ConnRate(test) => &test.open,
            RdmaCase::Latency(test) => &test.open,
        }
    }

    fn open_mut(&mut self) -> &mut OpenCase {
        match self {
            RdmaCase::Atomic(test) => &mut test.open,
            RdmaCase::Bandwidth(test) => &mut test.open,
            RdmaCase::ConnRate(test) => &mut test.open,
            RdmaCase::Latency(test) => &mut test.open,
        }
    }

    /// Connects the client's queue pairs. `number` is the index of the case in its group.
    pub fn connect(&mut self, endpoint: &mut Endpoint, number: usize, peer: SocketAddr) -> Result<()> {
        if let RdmaCase::ConnRate(test) = self {
            test.peer = Some(peer);
            return Ok(());
        }
        let (mut started, mut up) = (0, 0);
        let open = self.open_mut();
        let qps = open.qps.len();
        endpoint.wait_for_events(CM_TIMEOUT, "connecting", |endpoint, event| {
            match event {
                Some(Event::Established { qp, private_data, .. }) => {
                    let hello = serde_json::from_slice::<Hello>(&private_data);
                    let qp_ctx = open.qps.iter_mut().find(|qp_ctx| qp_ctx.qp == qp);
                    if let (Some(qp_ctx), Ok(hello)) = (qp_ctx, hello) {
                        qp_ctx.remote = hello.buffers;
                        qp_ctx.framing = endpoint.ctx.query_qp(qp)?.framing;
                        up += 1;
                    }
                }
                Some(other) => check_cm_event(other)?,
                None => {}
            }
            while started < qps.min(up + CONNECTING_MAX) {
                let qp_ctx = &open.qps[started];
                let (private_data, extensions) =
                    (&hello(number, started, qp_ctx)[..], extensions(&open.case));
                let params = ConnectParams { private_data, extensions, ..ConnectParams::default() };
                endpoint.retry_while_busy(|ctx| ctx.connect_with(qp_ctx.qp, peer, &params))?;
                started += 1;
            }
            Ok((up == qps).then_some(()))
        })
    }

    /// Reports the negotiated CRC and markers, which can differ from the configuration.
    pub fn report_framing(&self, result: &mut TestResult) {
        if let RdmaCase::ConnRate(test) = self {
            return test.report(result);
        }
        let framing: Vec<Framing> = self.open().qps.iter().filter_map(|qp_ctx| qp_ctx.framing).collect();
        let markers = framing.iter().flat_map(|framing| [framing.markers.sent, framing.markers.received]);
        result.crc = (!framing.is_empty()).then(|| framing.iter().all(|framing| framing.crc));
        result.markers = (!framing.is_empty()).then(|| markers.clone().all(|on| on));
        if result.markers == Some(false) && markers.clone().any(|on| on) {
            result.notes.push("markers one way only".to_owned());
        }
    }

    pub fn connections(&self) -> usize {
        self.open().qps.len()
    }

    /// The client's part of a slice. Also returns the messages that the server must wait for.
    pub fn run_client(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<(Slice, u64)> {
        match self {
            RdmaCase::Atomic(test) => test.run_client(endpoint, until),
            RdmaCase::Bandwidth(test) => test.run_client(endpoint, until),
            RdmaCase::ConnRate(test) => test.run_client(endpoint, until),
            RdmaCase::Latency(test) => test.run_client(endpoint, until).map(|slice| (slice, 0)),
        }
    }

    /// The server's part of a slice.
    pub fn run_server(&mut self, endpoint: &mut Endpoint, stop: &StopSignal) -> Result<ServerSlice> {
        match self {
            RdmaCase::Atomic(test) => test.run_server(endpoint, stop),
            RdmaCase::Bandwidth(test) => test.run_server(endpoint, stop),
            RdmaCase::ConnRate(test) => test.run_server(endpoint, stop),
            RdmaCase::Latency(test) => test.run_server(endpoint, stop),
        }
    }

    /// Polls once after this end's part of a slice, so that the peer can finish.
    pub fn poll(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        match self {
            RdmaCase::Atomic(test) => test.poll(endpoint),
            RdmaCase::Bandwidth(test) => test.poll(endpoint),
            RdmaCase::ConnRate(_) | RdmaCase::Latency(_) => {
                endpoint.poll();
                Ok(())
            }
        }
    }

    /// One iteration of a server without a limit: answers all received requests.
    pub fn serve(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        match self {
            RdmaCase::Latency(test) => test.serve(endpoint, &mut ServerSlice::default()),
            _ => self.poll(endpoint),
        }
    }

    pub fn words(&self) -> &AtomicWords {
        &self.open().words
    }

    /// Closes the client's connections and waits for the end of all.
    pub fn disconnect(&self, endpoint: &mut Endpoint) -> Result<()> {
        let qps = &self.open().qps;
        qps.iter().try_for_each(|qp_ctx| endpoint.retry_while_busy(|ctx| ctx.disconnect(qp_ctx.qp)))?;
        wait_for_disconnects(endpoint, qps.len())
    }

    pub fn destroy(mut self, endpoint: &mut Endpoint) -> Result<()> {
        if let RdmaCase::ConnRate(test) = &mut self {
            test.destroy_connections(endpoint)?;
        }
        self.open().destroy(endpoint)
    }
}

/// Accepts the connections of all cases of a group, only those of `from` where it is given.
pub fn accept(endpoint: &mut Endpoint, cases: &mut [Option<RdmaCase>], from: Option<IpAddr>) -> Result<()> {
    for case in cases.iter_mut().flatten() {
        if let RdmaCase::ConnRate(test) = case {
            test.from = from;
        }
    }
    let mut missing: usize = cases.iter().flatten().map(RdmaCase::connections).sum();
    if missing == 0 {
        return Ok(());
    }
    endpoint.wait_for_events(CM_TIMEOUT, "accepting", |endpoint, event| {
        if let Some(event) = event {
            missing -= usize::from(accept_one(endpoint, cases, from, event)?);
        }
        Ok((missing == 0).then_some(()))
    })
}

/// Accepts a connection request of this case. Returns whether the event reports an established connection.
pub fn accept_one(
    endpoint: &mut Endpoint,
    cases: &mut [Option<RdmaCase>],
    from: Option<IpAddr>,
    event: Event,
) -> Result<bool> {
    let (request, remote, private_data) = match event {
        Event::ConnectRequest { request, remote, private_data, .. } => (request, remote, private_data),
        Event::Established { .. } => return Ok(true),
        other => return check_cm_event(other).map(|()| false),
    };
    let known = from.is_none_or(|from| from == remote.ip());
    let theirs = serde_json::from_slice::<Hello>(&private_data).ok().filter(|_| known);
    let qp_ctx = theirs.and_then(|theirs| {
        let open = cases.get_mut(theirs.case)?.as_mut()?.open_mut();
        let extensions = extensions(&open.case);
        Some((theirs, extensions, open.qps.get_mut(theirs.qp_index)?))
    });
    match qp_ctx {
        Some((theirs, extensions, qp_ctx)) => {
            qp_ctx.remote = theirs.buffers;
            let private_data = &hello(theirs.case, theirs.qp_index, qp_ctx)[..];
            let params = AcceptParams { private_data, extensions, ..AcceptParams::default() };
            endpoint.ctx.accept_with(request, qp_ctx.qp, &params)?;
        }
        // Not a client of this run.
        None => endpoint.reject(request, b"not a test of this run"),
    }
    Ok(false)
}

/// Waits until `connections` connections have ended.
pub fn wait_for_disconnects(endpoint: &mut Endpoint, mut connections: usize) -> Result<()> {
    if connections == 0 {
        return Ok(());
    }
    endpoint.wait_for_events(CM_TIMEOUT, "disconnecting", |_, event| {
        connections -= usize::from(matches!(event, Some(Event::Disconnected { .. })));
        Ok((connections == 0).then_some(()))
    })
}

/// Fails on an event that rules out a connection.
fn check_cm_event(event: Event) -> Result<()> {
    let why = match event {
        Event::ConnectFailed { reason, .. } => format!("{reason:?}"),
        Event::Disconnected { reason, .. } => format!("{reason:?}"),
        Event::Rejected { private_data, .. } => String::from_utf8_lossy(&private_data).into_owned(),
        Event::ListenFailed { local } => format!("{local} is taken"),
        _ => return Ok(()),
    };
    Err(RdmaError::Disconnected(why))
}
