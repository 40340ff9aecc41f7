//! `iwarp-perf incast`: many clients write to one server core at the same time.
//!
//! Each client is a stack of its own, connected through a switch to the server, which has one core.
//! Every client keeps Writes outstanding. The switch drops frames beyond the queue of the server's
//! port, so TCP's congestion control shares it. One thread polls all stacks in turn: shares, losses
//! and fairness are those of the protocol; the throughput is that of one processor for all of them.

use std::time::{Duration, Instant};

use clap::value_parser;
use ironwarp::{QpAttr, Region, SendWr};
use ironwarp_bench::{Latency, nanos};
use serde::Serialize;

use super::ends::{Ends, Target};
use super::{AnyError, Measurement, Results};

const EXAMPLES: &str = "\
Examples:
  iwarp-perf incast                                  16 clients, 64 KiB Writes, 5 seconds
  iwarp-perf incast --clients 32 --queue-frames 64 --json out.json

Exit codes: 0 success, 1 the run failed, 2 bad arguments.";

/// Measures how clients share one server core
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = EXAMPLES)]
pub struct Incast {
    /// Clients, a stack and a queue pair each
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(1..=64))]
    clients: u32,
    /// Bytes of a Write
    #[arg(long, short = 's', default_value_t = 65_536, value_parser = value_parser!(u32).range(1..=1 << 24))]
    #[serde(rename = "bytes")]
    size: u32,
    /// Outstanding Writes of a client
    #[arg(long, short = 't', default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
    depth: u32,
    /// Frames that the switch holds for the server
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(8..=8192))]
    queue_frames: u32,
    /// Seconds that are measured
    #[arg(long, short = 'D', default_value_t = 5, value_parser = value_parser!(u32).range(1..=86_400))]
    #[serde(rename = "duration_s")]
    duration: u32,
}

/// What a run measures.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Shares {
    gbit_per_s: f64,
    messages_per_s: f64,
    /// The Gbit/s of each client.
    gbit_per_s_by_client: Vec<f64>,
    /// Jain's index of the clients' throughputs: 1 is equal, 1 / clients is one client only.
    fairness_index: f64,
    /// From the post of a Write to its completion.
    p50_ns: u64,
    p99_ns: u64,
    /// Frames that the switch dropped.
    dropped_frames: u64,
}

/// The time before the measurement, for slow start.
const WARMUP: Duration = Duration::from_millis(200);
/// Turns between two clock reads.
const TURNS_PER_CLOCK_READ: usize = 16;

impl Measurement for Incast {
    type Measured = Results<Shares>;

    fn measure(&self) -> Result<Results<Shares>, AnyError> {
        let mut network = Network::open(self)?;
        network.run_for(WARMUP)?;
        network.latency = Latency::new();
        network.ends.switch.dropped = 0;
        network.completed.fill(0);
        let start = Instant::now();
        network.run_for(Duration::from_secs(self.duration.into()))?;
        Ok(Results { results: network.shares(start.elapsed()) })
    }

    fn text(&self, Results { results }: &Results<Shares>) -> String {
        let Shares { gbit_per_s, messages_per_s, fairness_index, p50_ns, p99_ns, dropped_frames, .. } =
            results;
        let mut text = format!(
            "{} clients, Writes of {} B, {} outstanding each, one server core, all in one thread\n\
             total {gbit_per_s:.2} Gbit/s, {messages_per_s:.0} messages/s, p50 {} µs, p99 {} µs\n\
             fairness index {fairness_index:.4}, {dropped_frames} frames dropped at the switch\n\
             {:>8} {:>10} {:>8}\n",
            self.clients,
            self.size,
            self.depth,
            p50_ns / 1000,
            p99_ns / 1000,
            "client",
            "Gbit/s",
            "share"
        );
        for (client, gbit) in results.gbit_per_s_by_client.iter().enumerate() {
            text += &format!("{client:>8} {gbit:>10.3} {:>6.1} %\n", gbit * 100.0 / gbit_per_s);
        }
        text
    }
}

/// Jain's fairness index of values that are not negative. 1 if all are zero.
fn jain(values: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) = (values.iter().sum(), values.iter().map(|value| value * value).sum());
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// The server, its clients and their outstanding Writes.
struct Network {
    ends: Ends,
    bytes: u32,
    /// The memory of each client.
    sources: Vec<Region>,
    /// The memory of the server.
    target: Target,
    /// The completed Writes of each client.
    completed: Vec<u64>,
    epoch: Instant,
    latency: Latency,
}

impl Network {
    /// Opens and connects all stacks, and posts the Writes of the clients.
    fn open(&Incast { clients, size: bytes, depth, queue_frames, .. }: &Incast) -> Result<Self, AnyError> {
        let mut ends = Ends::switched(clients, queue_frames, 2 * depth)?;
        let default = QpAttr::new(ends.server.cq);
        ends.create_qps(1, &QpAttr { send_depth: depth, recv_depth: 1, ..default })?;
        ends.connect()?;
        let sources = ends.clients.iter().map(|client| client.source(bytes)).collect::<Result<_, _>>()?;
        let (target, completed) = (ends.server.target(bytes)?, vec![0; clients as usize]);
        let (epoch, latency) = (Instant::now(), Latency::new());
        let mut network = Network { ends, bytes, sources, target, completed, epoch, latency };
        for client in 0..clients as usize {
            (0..depth).try_for_each(|_| network.post(client))?;
        }
        Ok(network)
    }

    /// Posts a Write. Its request id is the time of the post.
    fn post(&mut self, client: usize) -> Result<(), AnyError> {
        let gather = [self.sources[client].slice(0, self.bytes)?];
        let write = SendWr::write(nanos(self.epoch.elapsed()), &gather, self.target.remote);
        let client = &mut self.ends.clients[client];
        Ok(client.context.post_send(client.qps[0], &write)?)
    }

    /// Polls all stacks, counts completed Writes and posts others in their place.
    fn run_for(&mut self, time: Duration) -> Result<(), AnyError> {
        let start = Instant::now();
        while start.elapsed() < time {
            for _ in 0..TURNS_PER_CLOCK_READ {
                self.ends.poll();
                for client in 0..self.completed.len() {
                    for posted_ns in self.ends.clients[client].reap::<16>()? {
                        self.completed[client] += 1;
                        self.latency.record(nanos(self.epoch.elapsed()).saturating_sub(posted_ns));
                        self.post(client)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn shares(&self, elapsed: Duration) -> Shares {
        let ns = elapsed.as_nanos() as f64;
        let gbit = |&completed: &u64| completed as f64 * f64::from(self.bytes) * 8.0 / ns;
        let by_client: Vec<f64> = self.completed.iter().map(gbit).collect();
        Shares {
            gbit_per_s: by_client.iter().sum(),
            messages_per_s: self.completed.iter().sum::<u64>() as f64 / elapsed.as_secs_f64(),
            fairness_index: jain(&by_client),
            gbit_per_s_by_client: by_client,
            p50_ns: self.latency.quantile(0.5).unwrap_or_default(),
            p99_ns: self.latency.quantile(0.99).unwrap_or_default(),
            dropped_frames: self.ends.switch.dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;

    #[test]
    fn the_index_is_one_for_equal_shares_and_a_fraction_for_a_single_one() {
        assert_eq!(jain(&[3.0, 3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
    }

    /// A queue that is far too small for all of them loses frames, and nobody starves.
    #[test]
    fn clients_share_a_queue_that_overflows() {
        let args = options("--clients 4 --queue-frames 32 --size 16384");
        let mut network = Network::open(&args).expect("stacks that connect");
        let is_done = |network: &Network| network.completed.iter().all(|&completed| completed >= 50);
        let start = Instant::now();
        while !is_done(&network) && start.elapsed() < Duration::from_secs(60) {
            network.run_for(Duration::from_millis(1)).expect("Writes complete");
        }
        assert!(is_done(&network), "every client gets on");
        assert!(network.ends.switch.dropped > 0, "the queue overflowed");
    }
}
