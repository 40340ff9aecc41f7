//! Raw frames over the stack's own device, while the stack stands still.

use ironwarp::PortVisit;
use ironwarp_bench::baseline::frames::{Layout, blast, echo, latency, sink};
use ironwarp_bench::{Case, FarSlice, Pace, Slice, StopSignal};
use ironwarp_port::Port;

use super::endpoint::{Endpoint, RdmaError};

/// The near end of a slice. Answers it, and the frames that the far end must wait for.
pub fn frames_near(
    endpoint: &mut Endpoint,
    case: &Case,
    pace: Pace<'_>,
    sequence: &mut u64,
) -> Result<(Slice, u64), RdmaError> {
    let outcome = endpoint.with_worker(|worker| worker.with_port(Near { case, pace, sequence }))?;
    outcome.ok_or(RdmaError::NoDevice)
}

/// The far end of a slice.
pub fn frames_far(endpoint: &mut Endpoint, case: &Case, stop: &StopSignal) -> Result<FarSlice, RdmaError> {
    endpoint.with_worker(|worker| worker.with_port(Far { case, stop }))?.ok_or(RdmaError::NoDevice)
}

struct Near<'a> {
    case: &'a Case,
    pace: Pace<'a>,
    sequence: &'a mut u64,
}

impl PortVisit for Near<'_> {
    type Output = (Slice, u64);

    fn visit<P: Port>(self, port: &mut P) -> (Slice, u64) {
        let layout = Layout::new(self.case.bytes, self.case.mtu);
        if self.case.test.is_latency() {
            return (latency(port, layout, self.pace, self.sequence), 0);
        }
        let sent = blast(port, layout, self.pace);
        (Slice { elapsed_ns: sent.elapsed_ns, ..Slice::default() }, sent.frames)
    }
}

struct Far<'a> {
    case: &'a Case,
    stop: &'a StopSignal,
}

impl PortVisit for Far<'_> {
    type Output = FarSlice;

    fn visit<P: Port>(self, port: &mut P) -> FarSlice {
        if self.case.test.is_latency() {
            return echo(port, self.stop);
        }
        sink(port, Layout::new(self.case.bytes, self.case.mtu), self.stop)
    }
}
