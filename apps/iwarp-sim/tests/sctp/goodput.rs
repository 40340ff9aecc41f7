//! Goodput over a link that loses packets, beside our TCP with NewReno.

use ironwarp_sim::LinkConfig;
use ironwarp_tcp::Congestion;
use ironwarp_types::Nanos;
use iwarp_sim::sctp::{Flow, SctpRun};
use iwarp_sim::tcp::curves::{Point, TRANSFER_TIMEOUT};

const SEEDS: core::ops::Range<u64> = 3..7;
/// As many that slow start does not matter.
const PACKETS: u64 = 20_000;

fn sctp_bits_per_s(point: Point, seed: u64) -> u64 {
    let link = LinkConfig {
        rate_bits_per_s: point.gbit_s * 1_000_000_000,
        delay: Nanos(point.rtt_us * 500),
        loss_ppm: point.loss_ppm,
        ..LinkConfig::default()
    };
    let run = SctpRun {
        seed,
        link,
        mtu_bytes: point.mtu_bytes,
        window_bytes: point.window_bytes,
        flows: vec![Flow::bulk(PACKETS)],
        until: TRANSFER_TIMEOUT,
    };
    run.run(None).unwrap_or_else(|fault| panic!("{point:?}: {fault}")).goodput_bits_per_s()
}

fn tcp_bits_per_s(point: Point, seed: u64) -> u64 {
    let mut run = point.two_host_run(Congestion::NewReno, seed);
    let bytes = PACKETS * (u64::from(point.mtu_bytes) - 40);
    (run.tasks[0].sends, run.tasks[1].expects) = (bytes, bytes);
    run.run().unwrap_or_else(|fault| panic!("{point:?}: {fault}")).goodput_bits_per_s()
}

#[test]
fn sctp_carries_as_much_as_newreno_over_a_lossy_link() {
    for mtu_bytes in [1_500, 9_000] {
        for loss_ppm in [1_000, 10_000] {
            let point = Point { loss_ppm, rtt_us: 50, gbit_s: 10, window_bytes: 1 << 20, mtu_bytes };
            let sum = |of: fn(Point, u64) -> u64| SEEDS.map(|seed| of(point, seed)).sum::<u64>();
            let [sctp, tcp] = [sum(sctp_bits_per_s), sum(tcp_bits_per_s)].map(|sum| sum / 4_000_000);
            println!("MTU {mtu_bytes}, {loss_ppm} ppm: SCTP {sctp} Mbit/s, TCP {tcp} Mbit/s");
            assert!(sctp >= tcp, "{point:?}: SCTP {sctp} Mbit/s, TCP {tcp} Mbit/s");
        }
    }
}
