//! Connections on simulated links: recovery, curves. Faults of links and throughput are tested in
//! the crate tcp.

mod curves;
mod recovery;

use ironwarp_sim::LinkConfig;
use ironwarp_tcp::Congestion;
use ironwarp_types::Nanos;

/// The congestion controls for links without ECN marks.
const CONTROLS: [(&str, Congestion); 2] = [("NewReno", Congestion::NewReno), ("CUBIC", Congestion::Cubic)];

/// A data centre link without faults: 10 Gbit/s, a round trip of 50 µs.
fn cable() -> LinkConfig {
    LinkConfig { rate_bits_per_s: 10_000_000_000, delay: Nanos::from_micros(25), ..LinkConfig::default() }
}
