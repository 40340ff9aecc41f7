//! A case over the stack, open at one end: its queue pairs, and the test that runs over them.

use std::net::{IpAddr, SocketAddr};

use ironwarp::{AcceptParams, ConnectParams, Event, Framing};
use ironwarp_bench::report::TestResult;
use ironwarp_bench::{ServerSlice, Slice, StopCondition, StopSignal};

use super::endpoint::Endpoint;
use super::open_case::{CM_TIMEOUT, Hello, OpenCase, extensions, hello};
use crate::error::{Error, Result};

/// Connections in setup at a time: below the default limit of half-open connections
/// (`limits.half_open`).
const CONNECTING_MAX: usize = 64;

/// An open case with its test.
pub type RdmaCase = Box<dyn RdmaTest>;

/// One end of a test.
pub trait RdmaTest: Send {
    fn open(&mut self) -> &mut OpenCase;

    /// The client's part of a slice. Also returns what the server must wait for, or check.
    fn run_client(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<(Slice, u64)>;

    fn run_server(&mut self, endpoint: &mut Endpoint, stop: &StopSignal) -> Result<ServerSlice>;

    /// Polls once after this end's part of a slice, so that the peer can finish.
    fn poll(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        endpoint.poll();
        Ok(())
    }

    /// One iteration of a server without a limit: answers all received requests.
    fn serve(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        self.poll(endpoint)
    }

    /// Connects the client's queue pairs. `number` is the index of the case in its group.
    fn connect(&mut self, endpoint: &mut Endpoint, number: usize, peer: SocketAddr) -> Result<()> {
        let open = self.open();
        let (mut started, mut up, qps) = (0, 0, open.qps.len());
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
                endpoint.ctx.connect_with(qp_ctx.qp, peer, &params)?;
                started += 1;
            }
            Ok((up == qps).then_some(()))
        })
    }

    /// Names the only host that may connect during a slice.
    fn accept_from(&mut self, _from: Option<IpAddr>) {}

    /// Reports the negotiated CRC and markers, which can differ from the configuration.
    fn report(&mut self, result: &mut TestResult) {
        let framing: Vec<Framing> = self.open().qps.iter().filter_map(|qp_ctx| qp_ctx.framing).collect();
        let markers = framing.iter().flat_map(|framing| [framing.markers.sent, framing.markers.received]);
        result.crc = (!framing.is_empty()).then(|| framing.iter().all(|framing| framing.crc));
        result.markers = (!framing.is_empty()).then(|| markers.clone().all(|on| on));
        if result.markers == Some(false) && markers.clone().any(|on| on) {
            result.notes.push("markers one way only".to_owned());
        }
    }

    /// Closes the client's connections and waits for the end of all.
    fn disconnect(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        let qps = &self.open().qps;
        qps.iter().try_for_each(|qp_ctx| endpoint.ctx.disconnect(qp_ctx.qp))?;
        wait_for_disconnects(endpoint, qps.len())
    }

    fn destroy(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        self.open().destroy(endpoint)
    }
}

/// Accepts the connections of all cases of a group, only those of `from` where it is given.
pub fn accept(endpoint: &mut Endpoint, cases: &mut [Option<RdmaCase>], from: Option<IpAddr>) -> Result<()> {
    cases.iter_mut().flatten().for_each(|case| case.accept_from(from));
    let mut missing: usize = cases.iter_mut().flatten().map(|case| case.open().qps.len()).sum();
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

/// Accepts a connection request of this case. Returns whether the event reports an established
/// connection.
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
        let open = cases.get_mut(theirs.case)?.as_mut()?.open();
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
        Event::ListenFailed { local, .. } => format!("{local} is taken"),
        _ => return Ok(()),
    };
    Err(Error::Failed(format!("the connection ended: {why}")))
}
