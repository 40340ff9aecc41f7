//! The slices of each kind of test.

mod atomic;
mod bandwidth;
mod conn_rate;
mod latency;
mod ready_queue;
mod timer;

use ironwarp_bench::Case;

pub use atomic::sum_of;

use super::case::RdmaCase;
use super::endpoint::Endpoint;
use super::open_case::{AtomicWords, OpenCase};
use crate::error::Result;
use atomic::AtomicTest;
use bandwidth::BandwidthTest;
use conn_rate::ConnRateTest;
use latency::LatencyTest;

/// Creates everything of a case but the connections. The words of an atomic test are `words`, or
/// new ones.
pub fn open_case(
    endpoint: &mut Endpoint,
    case: &Case,
    client: bool,
    words: Option<AtomicWords>,
) -> Result<RdmaCase> {
    if case.test.is_connection_setup() {
        return Ok(Box::new(ConnRateTest::new(endpoint, case)?));
    }
    let open = OpenCase::new(endpoint, case, words)?;
    Ok(match case.test {
        test if test.is_atomic() => Box::new(AtomicTest::new(open)),
        test if test.is_latency() => Box::new(LatencyTest::new(open)),
        _ => Box::new(BandwidthTest::new(open, client)),
    })
}
