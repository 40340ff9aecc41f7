//! Goodput against loss, round-trip time, bandwidth, buffer and segment size, for each congestion
//! control.
//!
//! Each point carries a fixed number of bytes over a fresh connection in virtual time, so every
//! figure is an exact integer that depends only on the code. `tests/golden/curves.csv` holds the
//! figures. A change that alters a figure must explain why and regenerate the file with
//! `iwarp-sim curves --write FILE`.
//!
//! A figure is the receiver's goodput in kilobits per second, rounded down, from the sender's first
//! byte to the receiver's last, slow start included. Loss affects both directions; the switch sets
//! ECN marks for DCTCP alone. 0 means that the transfer did not end within [`TRANSFER_TIMEOUT`].

use std::fmt::Write;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread;

use clap::builder::TypedValueParser;
use ironwarp_sim::{LinkConfig, SimError};
use ironwarp_tcp::{Congestion, TcpConfig};
use ironwarp_types::Nanos;

use super::two_hosts::TwoHostRun;
use crate::campaign::on_threads;

/// One link and the hosts at its ends.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// The round-trip time of the empty link, in microseconds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rtt_us: u64,
    /// Its rate
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=400))]
    pub gbit_s: u64,
    /// Buffers and windows at both ends, in KiB; `tcp.rcv_window_bytes` is 1024 KiB unless
    /// configured
    #[arg(long = "window-kib", value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(4..=65_536).map(|kib| kib << 10))]
    pub window_bytes: u32,
    /// The largest IP packet, in bytes
    #[arg(long = "mtu", value_name = "N", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..=9600))]
    pub mtu_bytes: u16,
    /// Frames lost in a million, in both directions
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=200_000))]
    pub loss_ppm: u32,
}

/// In column order.
pub const CONTROLS: [(&str, Congestion); 3] =
    [("newreno", Congestion::NewReno), ("cubic", Congestion::Cubic), ("dctcp", Congestion::Dctcp)];

/// The points of the golden file, in its order.
pub fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for (mtu_bytes, window_bytes) in [(1_500, 256 << 10), (1_500, 2 << 20), (9_000, 2 << 20)] {
        for gbit_s in [1, 10, 100] {
            for rtt_us in [10, 50, 1_000, 20_000] {
                for loss_ppm in [0, 100, 1_000, 10_000, 50_000] {
                    points.push(Point { loss_ppm, rtt_us, gbit_s, window_bytes, mtu_bytes });
                }
            }
        }
    }
    points
}

impl Point {
    /// Bytes that a run carries: two thousand segments.
    pub fn bytes(&self) -> u64 {
        SEGMENTS * (u64::from(self.mtu_bytes) - HEADERS_BYTES)
    }

    pub fn two_host_run(&self, congestion: Congestion, seed: u64) -> TwoHostRun {
        let link = LinkConfig {
            rate_bits_per_s: self.gbit_s * 1_000_000_000,
            delay: Nanos(self.rtt_us * 500),
            loss_ppm: self.loss_ppm,
            mark_above_bytes: ecn_mark_threshold(congestion),
            ..LinkConfig::default()
        };
        TwoHostRun {
            seed,
            mtus: [self.mtu_bytes; 2],
            windows: [self.window_bytes; 2],
            tcp: lossy_link_config(),
            until: TRANSFER_TIMEOUT,
            ..TwoHostRun::new([congestion; 2], link, self.bytes())
        }
    }

    /// The goodput in kilobits per second, the mean of a few seeds. Without losses nothing depends
    /// on the seed.
    pub fn goodput_kbit_s(&self, congestion: Congestion) -> Result<u64, SimError> {
        let seeds = if self.loss_ppm > 0 { &SEEDS[..] } else { &SEEDS[..1] };
        let mut total = 0;
        for &seed in seeds {
            total += self.two_host_run(congestion, seed).run()?.goodput_bits_per_s();
        }
        Ok(total / seeds.len() as u64 / 1_000)
    }

    /// The point and every figure, as a row of the table.
    fn row(&self) -> Row {
        let Point { loss_ppm, rtt_us, gbit_s, window_bytes, mtu_bytes } = self;
        let mut row = format!("{mtu_bytes},{window_bytes},{gbit_s},{rtt_us},{loss_ppm}");
        for (_, congestion) in CONTROLS {
            // Writing to a string cannot fail.
            let _ = write!(row, ",{}", self.goodput_kbit_s(congestion)?);
        }
        row.push('\n');
        Ok(row)
    }
}

/// Returns the whole table as CSV, computed on one thread per core. Calls `progress` after every
/// point.
pub fn table(progress: impl Fn() + Sync) -> Result<String, SimError> {
    let points = points();
    let rows = points.iter().map(|_| OnceLock::new()).collect::<Vec<OnceLock<Row>>>();
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    on_threads(threads, points.len(), &AtomicBool::new(false), |at| {
        rows[at].get_or_init(|| points[at].row());
        progress();
    });
    let names = CONTROLS.map(|(name, _)| name).join(",");
    let mut csv = format!("mtu_bytes,window_bytes,gbit_s,rtt_us,loss_ppm,{names}\n");
    for row in rows.into_iter().filter_map(OnceLock::into_inner) {
        csv.push_str(&row?);
    }
    Ok(csv)
}

type Row = Result<String, SimError>;

/// The queue length above which the switch sets ECN marks: short for DCTCP, never for the others.
fn ecn_mark_threshold(congestion: Congestion) -> u64 {
    match congestion {
        Congestion::Dctcp => DCTCP_QUEUE_BYTES,
        _ => LinkConfig::default().mark_above_bytes,
    }
}

/// RFC 8257 s4.1: some dozens of full segments at 10 Gbit/s.
const DCTCP_QUEUE_BYTES: u64 = 100_000;

/// The default engine, with retry limits for links that lose one frame in twenty.
fn lossy_link_config() -> TcpConfig {
    TcpConfig { syn_retries: 20, user_timeout: Nanos::from_secs(120), ..TcpConfig::default() }
}

/// Seeds per point: the result depends on chance where losses are few.
const SEEDS: [u64; 2] = [3, 4];

const SEGMENTS: u64 = 2_000;

/// Headers of IP and TCP without options.
const HEADERS_BYTES: u64 = 40;

/// Time limit of a transfer, in virtual time.
pub const TRANSFER_TIMEOUT: Nanos = Nanos::from_secs(600);
