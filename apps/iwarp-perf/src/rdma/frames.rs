//! Raw frames and stock smoltcp over the device of the stack, while the stack is not polled.

use ironwarp::PortVisit;
use ironwarp_bench::baseline::frames::{Layout, echo, latency, receive_frames, send_frames};
use ironwarp_bench::baseline::smoltcp;
use ironwarp_bench::{Case, ServerSlice, Slice, StopCondition, StopSignal, Transport};
use ironwarp_port::Port;

use super::endpoint::Endpoint;
use crate::error::{Error, Result};

/// The client's part of a slice. Also returns the frames, or bytes, that the server must wait for.
pub fn frames_client(
    endpoint: &mut Endpoint,
    case: &Case,
    until: StopCondition<'_>,
    sequence: &mut u64,
) -> Result<(Slice, u64)> {
    let outcome = endpoint.with_worker(|worker| worker.with_port(FramesClient { case, until, sequence }))?;
    outcome.ok_or(Error::NoDevice)
}

pub fn frames_server(endpoint: &mut Endpoint, case: &Case, stop: &StopSignal) -> Result<ServerSlice> {
    endpoint.with_worker(|worker| worker.with_port(FramesServer { case, stop }))?.ok_or(Error::NoDevice)
}

struct FramesClient<'a> {
    case: &'a Case,
    until: StopCondition<'a>,
    sequence: &'a mut u64,
}

impl PortVisit for FramesClient<'_> {
    type Output = (Slice, u64);

    fn visit<P: Port>(self, port: &mut P) -> (Slice, u64) {
        if self.case.test.transport() == Transport::Smoltcp {
            return smoltcp::client(port, self.case, self.until, self.sequence);
        }
        let layout = Layout::new(self.case.bytes, self.case.mtu);
        if self.case.test.is_latency() {
            return (latency(port, layout, self.until, self.sequence), 0);
        }
        send_frames(port, layout, self.until)
    }
}

struct FramesServer<'a> {
    case: &'a Case,
    stop: &'a StopSignal,
}

impl PortVisit for FramesServer<'_> {
    type Output = ServerSlice;

    fn visit<P: Port>(self, port: &mut P) -> ServerSlice {
        if self.case.test.transport() == Transport::Smoltcp {
            return smoltcp::server(port, self.case, self.stop);
        }
        if self.case.test.is_latency() {
            return echo(port, self.stop);
        }
        receive_frames(port, Layout::new(self.case.bytes, self.case.mtu), self.stop)
    }
}
