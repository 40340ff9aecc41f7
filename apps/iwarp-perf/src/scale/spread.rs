//! `iwarp-perf qp-scale`: the cost of a message when messages are spread over many queue pairs.
//!
//! Writes go round robin over N queue pairs, at most a window of them outstanding. The client is
//! polled before a queue pair gets another Write, so each Write leaves in its own segment, and
//! after each window. One thread runs both ends and both applications, so a message costs the sum
//! of both, and the state of both ends shares one cache. The numbers of queue pairs alternate,
//! round by round.

use std::time::Instant;

use clap::value_parser;
use ironwarp::{PostError, QpAttr, SendWr};
use serde::Serialize;

use super::ends::{End, Ends, Target};
use super::{AnyError, Measurement, Results, median};

const EXAMPLES: &str = "\
Examples:
  iwarp-perf qp-scale                                          1 to 10 000 queue pairs, 16 Writes outstanding
  iwarp-perf qp-scale --qps 1,100000 --window 1 --json out.json

Exit codes: 0 success, 1 the run failed, 2 bad arguments.";

/// Measures the cost of a small Write over few and many queue pairs
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = EXAMPLES)]
pub struct QpScale {
    /// Numbers of queue pairs. The others are compared with the first
    #[arg(long, short = 'q', value_delimiter = ',', default_value = "1,10,100,1000,10000",
          value_parser = value_parser!(u32).range(1..=131_072))]
    #[serde(skip)]
    qps: Vec<u32>,
    /// Bytes of a Write
    #[arg(long, short = 's', default_value_t = 64, value_parser = value_parser!(u32).range(1..=256))]
    #[serde(rename = "bytes")]
    size: u32,
    /// Writes outstanding on all queue pairs together
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(1..=64))]
    window: u32,
    /// Writes of a round, at least the number of queue pairs
    #[arg(long, short = 'n', default_value_t = 100_000, value_parser = value_parser!(u32).range(1..=100_000_000))]
    iterations: u32,
    /// Rounds
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// The figures of one number of queue pairs: medians of the rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Figures {
    queue_pairs: u32,
    /// Both ends together.
    ns_per_message: f64,
    /// To the first number of queue pairs, of the same round.
    ratio: f64,
}

impl Measurement for QpScale {
    type Measured = Results<Vec<Figures>>;

    fn measure(&self) -> Result<Results<Vec<Figures>>, AnyError> {
        let spreads: Result<Vec<_>, AnyError> = self.qps.iter().map(|&qps| Spread::open(qps, self)).collect();
        let mut spreads = spreads?;
        let mut ns: Vec<Vec<f64>> = vec![Vec::new(); spreads.len()];
        for _ in 0..self.rounds {
            for (spread, ns) in spreads.iter_mut().zip(&mut ns) {
                ns.push(spread.round(self.iterations)?);
            }
        }
        let first = ns.first().cloned().unwrap_or_default();
        let figures = |(&queue_pairs, ns): (&u32, &Vec<f64>)| Figures {
            queue_pairs,
            ns_per_message: median(ns.iter().copied()),
            ratio: median(ns.iter().zip(&first).map(|(ns, first)| ns / first)),
        };
        Ok(Results { results: self.qps.iter().zip(&ns).map(figures).collect() })
    }

    fn text(&self, Results { results }: &Results<Vec<Figures>>) -> String {
        let mut text = format!(
            "Writes of {} B, {} outstanding, both ends in one thread, medians of {} rounds\n{:>12} {:>12} {:>8}\n",
            self.size, self.window, self.rounds, "queue pairs", "ns/message", "ratio"
        );
        for Figures { queue_pairs, ns_per_message, ratio } in results {
            text += &format!("{queue_pairs:>12} {ns_per_message:>12.0} {ratio:>8.2}\n");
        }
        text
    }
}

/// Connected queue pairs, and the Writes over them.
struct Spread {
    client: End,
    server: End,
    payload: Vec<u8>,
    target: Target,
    window: u32,
    /// The queue pair of the next Write.
    next: usize,
    outstanding: u32,
}

impl Spread {
    fn open(qps: u32, options: &QpScale) -> Result<Self, AnyError> {
        let &QpScale { size, window, iterations, .. } = options;
        let mut ends = Ends::open(qps, 2 * window)?;
        let (send_depth, inline_bytes) = (window.div_ceil(qps), size as usize);
        let default = QpAttr::new(ends.server.cq);
        ends.create_qps(qps, &QpAttr { send_depth, recv_depth: 1, max_sge: 1, inline_bytes, ..default })?;
        ends.connect()?;
        let Ends { client, server } = ends;
        let (payload, target) = (vec![0x5a; size as usize], server.target(size)?);
        let mut spread = Spread { client, server, payload, target, window, next: 0, outstanding: 0 };
        // The first round warms up.
        spread.writes(qps.max(iterations / 4))?;
        Ok(spread)
    }

    fn round(&mut self, iterations: u32) -> Result<f64, AnyError> {
        let writes = iterations.max(self.client.qps.len() as u32);
        let start = Instant::now();
        self.writes(writes)?;
        Ok(start.elapsed().as_nanos() as f64 / f64::from(writes))
    }

    #[inline(never)]
    fn writes(&mut self, writes: u32) -> Result<(), AnyError> {
        let mut left = writes;
        while left > 0 || self.outstanding > 0 {
            while left > 0 && self.outstanding < self.window && self.post()? {
                left -= 1;
            }
            self.client.worker.poll(1);
            self.server.worker.poll(1);
            self.client.worker.poll(1);
            self.outstanding -= self.client.reap::<64>()?.len() as u32;
        }
        Ok(())
    }

    /// Posts a Write to the next queue pair. Polls the client when every queue pair had one.
    /// Returns whether the queue pair had room.
    fn post(&mut self) -> Result<bool, AnyError> {
        let write = SendWr::write_inline(1, &self.payload, self.target.remote);
        match self.client.context.post_send(self.client.qps[self.next], &write) {
            Err(PostError::QueueFull) => return Ok(false),
            posted => posted?,
        }
        self.outstanding += 1;
        self.next += 1;
        if self.next == self.client.qps.len() {
            self.next = 0;
            self.client.worker.poll(1);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;

    #[test]
    fn writes_go_round_robin_and_all_complete() {
        let args = options("--qps 3 --window 8 --iterations 100");
        let mut spread = Spread::open(3, &args).expect("two stacks");
        spread.writes(100).expect("they complete");
        assert_eq!((spread.outstanding, spread.next), (0, (25 + 100) % 3));
    }
}
