//! `iwarp-perf incast`: many clients write to one server core at the same time.
//!
//! Each client is a stack of its own, connected through a switch to the server, which has one core. Every client keeps
//! Writes outstanding. The switch drops frames beyond the queue of the server's port, so TCP's congestion control shares
//! it. One thread polls all stacks in turn: shares, losses and fairness are those of the protocol; the throughput is that
//! of one processor for all of them.

use std::time::{Duration, Instant};

use clap::value_parser;
use ironwarp::{Event, QpAttr, QueuePair, Region, RemoteMemory, SendWr};
use ironwarp_bench::{Latency, nanos};
use serde::Serialize;

use super::ends::{CONNECT_TIMEOUT, End, Target, is_established, server_addr};
use super::switch::Switch;
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
        network.switch.dropped = 0;
        network.clients.iter_mut().for_each(|client| client.completed = 0);
        let start = Instant::now();
        network.run_for(Duration::from_secs(self.duration.into()))?;
        Ok(Results { results: network.shares(self.size, start.elapsed()) })
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

/// The server, its clients and the switch between them.
struct Network {
    server: End,
    clients: Vec<Client>,
    switch: Switch,
    turn: usize,
    latency: Latency,
    /// Of all Writes.
    _target: Target,
}

impl Network {
    /// Opens and connects all stacks. The clients have posted their Writes.
    fn open(options: &Incast) -> Result<Self, AnyError> {
        let mut switch = Switch::default();
        let port = switch.port(options.queue_frames as usize);
        let mut server = End::open(0, port, options.clients, 1)?;
        let target = server.target(options.size)?;
        server.context.listen(server_addr(0))?;
        let clients = (1..=options.clients)
            .map(|number| Client::open(&mut switch, number, options, target.remote))
            .collect::<Result<_, _>>()?;
        let mut network =
            Network { server, clients, switch, turn: 0, latency: Latency::new(), _target: target };
        network.connect()?;
        for client in &mut network.clients {
            (0..options.depth).try_for_each(|_| client.post())?;
        }
        Ok(network)
    }

    fn connect(&mut self) -> Result<(), AnyError> {
        let attr = QpAttr { send_depth: 1, recv_depth: 1, ..QpAttr::new(self.server.cq) };
        let (mut established, start) = (0, Instant::now());
        while established < 2 * self.clients.len() {
            self.poll_all();
            while let Some(event) = self.server.context.poll_event() {
                if let Event::ConnectRequest { request, .. } = event {
                    let qp = self.server.context.create_qp(self.server.pd, &attr)?;
                    self.server.context.accept(request, qp, b"")?;
                } else {
                    established += usize::from(is_established(event)?);
                }
            }
            for client in &mut self.clients {
                while let Some(event) = client.end.context.poll_event() {
                    established += usize::from(is_established(event)?);
                }
            }
            if start.elapsed() > CONNECT_TIMEOUT {
                return Err("connecting the clients took too long".into());
            }
        }
        Ok(())
    }

    /// Polls every stack once, and the switch.
    fn poll_all(&mut self) {
        self.turn += 1;
        self.clients.iter_mut().for_each(|client| {
            client.end.worker.poll(1);
        });
        self.switch.forward(self.turn);
        self.server.worker.poll(1);
    }

    fn run_for(&mut self, time: Duration) -> Result<(), AnyError> {
        let start = Instant::now();
        while start.elapsed() < time {
            for _ in 0..TURNS_PER_CLOCK_READ {
                self.poll_all();
                for client in &mut self.clients {
                    client.reap(&mut self.latency)?;
                }
            }
        }
        Ok(())
    }

    fn shares(&self, bytes: u32, elapsed: Duration) -> Shares {
        let ns = elapsed.as_nanos() as f64;
        let gbit = |client: &Client| client.completed as f64 * f64::from(bytes) * 8.0 / ns;
        let by_client: Vec<f64> = self.clients.iter().map(gbit).collect();
        let messages: u64 = self.clients.iter().map(|client| client.completed).sum();
        Shares {
            gbit_per_s: by_client.iter().sum(),
            messages_per_s: messages as f64 / elapsed.as_secs_f64(),
            fairness_index: jain(&by_client),
            gbit_per_s_by_client: by_client,
            p50_ns: self.latency.quantile(0.5).unwrap_or_default(),
            p99_ns: self.latency.quantile(0.99).unwrap_or_default(),
            dropped_frames: self.switch.dropped,
        }
    }
}

/// One client and its outstanding Writes.
struct Client {
    end: End,
    qp: QueuePair,
    source: Region,
    remote: RemoteMemory,
    bytes: u32,
    epoch: Instant,
    completed: u64,
}

impl Client {
    /// Opens a stack and starts to connect it.
    fn open(
        switch: &mut Switch,
        number: u32,
        &Incast { size, depth, .. }: &Incast,
        remote: RemoteMemory,
    ) -> Result<Self, AnyError> {
        let ring = ironwarp::memory::MemoryConfig::default().rx_ring_frames;
        let mut end = End::open(number, switch.port(ring), 1, 2 * depth)?;
        let attr = QpAttr { send_depth: depth, recv_depth: 1, ..QpAttr::new(end.cq) };
        let qp = end.context.create_qp(end.pd, &attr)?;
        let source = end.source(size)?;
        end.context.connect(qp, server_addr(0), b"")?;
        Ok(Client { end, qp, source, remote, bytes: size, epoch: Instant::now(), completed: 0 })
    }

    /// Posts a Write. Its request id is the time of the post.
    fn post(&mut self) -> Result<(), AnyError> {
        let gather = [self.source.slice(0, self.bytes)?];
        let write = SendWr::write(nanos(self.epoch.elapsed()), &gather, self.remote);
        Ok(self.end.context.post_send(self.qp, &write)?)
    }

    /// Counts completed Writes and posts others in their place.
    fn reap(&mut self, latency: &mut Latency) -> Result<(), AnyError> {
        for posted_ns in self.end.reap::<16>()? {
            self.completed += 1;
            latency.record(nanos(self.epoch.elapsed()).saturating_sub(posted_ns));
            self.post()?;
        }
        Ok(())
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
        let is_done = |network: &Network| network.clients.iter().all(|client| client.completed >= 50);
        let start = Instant::now();
        while !is_done(&network) && start.elapsed() < Duration::from_secs(60) {
            network.run_for(Duration::from_millis(1)).expect("Writes complete");
        }
        assert!(is_done(&network), "every client gets on");
        assert!(network.switch.dropped > 0, "the queue overflowed");
    }
}
