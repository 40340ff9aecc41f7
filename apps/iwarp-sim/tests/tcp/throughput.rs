//! A connection's share of a link: 10 Gbit/s and a round trip of 50 µs, with and without loss.

use ironwarp_sim::LinkConfig;
use ironwarp_tcp::Congestion;
use ironwarp_types::Nanos;
use iwarp_sim::tcp::TwoHostRun;

use super::{CONTROLS, cable};

const LINK_BITS_PER_S: u64 = 10_000_000_000;
const RTT: Nanos = Nanos::from_micros(50);

/// Steady throughput in bits per second: the first quarter of `bytes` does not count.
fn steady(congestion: Congestion, mtu_bytes: u16, loss_ppm: u32, seed: u64, bytes: u64) -> u64 {
    let link = LinkConfig { loss_ppm, ..cable() };
    let mut two_host_run = TwoHostRun::new([congestion; 2], link, bytes);
    two_host_run.seed = seed;
    two_host_run.mtus = [mtu_bytes; 2];
    two_host_run.windows = [1 << 20; 2];
    two_host_run.tasks[1].warm_up = bytes / 4;
    let outcome = two_host_run.run().unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.finished, "{congestion:?}");
    outcome.goodput_bits_per_s()
}

/// The mean over seeds, because the result depends on chance.
fn mean(congestion: Congestion, mtu_bytes: u16, loss_ppm: u32) -> u64 {
    const SEEDS: u64 = 4;
    let bytes = 20_000_000;
    (1..=SEEDS).map(|seed| steady(congestion, mtu_bytes, loss_ppm, seed, bytes)).sum::<u64>() / SEEDS
}

/// RFC 3649 s4 and Mathis' formula: min(link, MSS/RTT * sqrt(1.5/p)), in bits a second.
fn expected(mtu_bytes: u16, loss_ppm: u32) -> u64 {
    let mss_bits = f64::from(mtu_bytes - 40) * 8.0;
    let rate = mss_bits / (RTT.0 as f64 * 1e-9) * (1.5 / (f64::from(loss_ppm) * 1e-6)).sqrt();
    LINK_BITS_PER_S.min(rate as u64)
}

#[test]
fn throughput_without_loss_is_nine_tenths_of_the_link_rate() {
    for (name, congestion) in CONTROLS {
        for mtu_bytes in [1_500, 9_000] {
            let ours = mean(congestion, mtu_bytes, 0);
            assert!(ours * 10 >= LINK_BITS_PER_S * 9, "{name} MTU {mtu_bytes}: {ours} bit/s");
        }
    }
}

#[test]
fn throughput_under_random_loss_matches_the_formula() {
    let mut missed = Vec::new();
    for (name, congestion) in CONTROLS {
        for mtu_bytes in [1_500, 9_000] {
            for loss_ppm in [1_000, 10_000] {
                let ours = mean(congestion, mtu_bytes, loss_ppm);
                if ours * 10 < expected(mtu_bytes, loss_ppm) * 8 {
                    missed.push((name, mtu_bytes, loss_ppm, ours));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
