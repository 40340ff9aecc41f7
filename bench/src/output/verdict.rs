//! What the figures say: how far the processors are from each other, and whether kernel TCP would
//! do.

use super::units::size;
use crate::report::TestResult;
use crate::{PathKind, Test};

/// From here on a cache line takes so long from one processor to the other, in nanoseconds, that
/// waiting for it is most of a round trip.
const FAR_NS: f64 = 100.0;

/// Says in a word how far processors are from each other.
pub(super) fn distance(hop_ns: f64) -> &'static str {
    if hop_ns < FAR_NS { "near" } else { "far" }
}

/// Compares the results with kernel TCP between two namespaces whose ends poll, in one line.
/// Returns `None` if no result has that baseline.
pub(super) fn beside_kernel_tcp(results: &[TestResult]) -> Option<String> {
    let factors: Vec<_> = results.iter().filter_map(|result| Some((result, factor(result)?))).collect();
    let range = |is_latency: bool, what: &str, than: &str| {
        let of_kind = factors.iter().filter(|(result, _)| result.test.is_latency() == is_latency);
        let (min, max) = of_kind
            .fold((f64::INFINITY, 0.0_f64), |(min, max), (_, factor)| (min.min(*factor), max.max(*factor)));
        (max > 0.0).then(|| format!("{what} {min:.2} to {max:.2} times{than}"))
    };
    let ranges: Vec<_> = [(true, "round trips", " as short"), (false, "bandwidth", "")]
        .into_iter()
        .filter_map(|(is_latency, what, than)| range(is_latency, what, than))
        .collect();
    let slower: Vec<_> = factors
        .iter()
        .filter(|(_, factor)| *factor < 1.0)
        .map(|(result, factor)| {
            let mtu = result.mtu.map_or_else(String::new, |mtu| format!(" at MTU {mtu}"));
            format!("{} of {}{mtu} ({factor:.2})", result.name(), size(result.bytes))
        })
        .collect();
    let verdict = match slower.is_empty() {
        true => "RDMA is faster in every test of this run".to_owned(),
        false => format!("kernel TCP is faster than {}", slower.join(", ")),
    };
    (!factors.is_empty()).then(|| format!("beside kernel TCP over veth: {}: {verdict}", ranges.join(", ")))
}

/// Returns by which factor a result is better than kernel TCP.
fn factor(result: &TestResult) -> Option<f64> {
    let baseline = if result.test.is_latency() { Test::TcpLat } else { Test::TcpBw }.to_string();
    let mut all = result.against.iter().flatten();
    let tcp = all.find(|one| one.baseline == baseline && one.path == Some(PathKind::Veth))?;
    match result.test.is_latency() {
        true => tcp.ratio_p50.map(|ratio| ratio.median.recip()),
        false => tcp.ratio_gbit.map(|ratio| ratio.median),
    }
}
