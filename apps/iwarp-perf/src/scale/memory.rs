//! `iwarp-perf qp-memory`: the resident memory of an idle queue pair.
//!
//! Two stacks of this process, joined by in-memory ports, create queue pairs and connect them.
//! After each step the growth of the process's anonymous resident memory is divided by the queue
//! pairs of both ends. Memory that was allocated and never written is not resident and is not
//! counted. Completion queues, regions and the buffers of the device are not included: queue pairs
//! share them, or the application sizes them. The memory of the whole process is printed too: it
//! has both ends, so a process with one end takes about half of it.

use clap::value_parser;
use ironwarp::QpAttr;
use serde::Serialize;

use super::ends::Ends;
use super::{AnyError, Measurement};

const EXAMPLES: &str = "\
Examples:
  iwarp-perf qp-memory                                      2000 queue pairs at each end, depth 128
  iwarp-perf qp-memory --qps 30000 --send-depth 16 --recv-depth 16 --json out.json
  iwarp-perf qp-memory --qps 100000 --send-depth 1 --recv-depth 1    both ends in one process
  iwarp-perf qp-memory --send-depth 1 --recv-depth 1 --reads 1       without room for many Reads

Exit codes: 0 success, 1 the memory could not be measured, 2 bad arguments.";

/// Measures the resident memory of an idle queue pair, in bytes
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = EXAMPLES)]
pub struct QpMemory {
    /// Queue pairs at each end
    #[arg(long, short = 'q', default_value_t = 2000, value_parser = value_parser!(u32).range(100..=131_072))]
    #[serde(rename = "queue_pairs")]
    qps: u32,
    /// Outstanding sends of a queue pair
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u32).range(1..=65_536))]
    send_depth: u32,
    /// Outstanding receives of a queue pair
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u32).range(1..=65_536))]
    recv_depth: u32,
    /// Outstanding Reads of a queue pair in each direction, its IRD and ORD
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u16).range(0..=64))]
    reads: u16,
}

/// Resident bytes of one queue pair.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Figures {
    /// An entry of the stack's tables, which `limits.queue_pairs` sizes. It is there from the
    /// start, used or not.
    tables: f64,
    /// Its queues and state, after it was created.
    queues: f64,
    /// Its connection, after it was connected.
    connection: f64,
    total: f64,
}

/// What a run measures.
#[derive(Serialize)]
pub struct Measured {
    #[serde(rename = "resident_bytes_per_qp")]
    per_qp: Figures,
    /// Of the whole process: both ends, with what they have once.
    #[serde(rename = "resident_bytes_both_ends")]
    both_ends: f64,
}

impl Measurement for QpMemory {
    type Measured = Measured;

    fn measure(&self) -> Result<Measured, AnyError> {
        let &QpMemory { qps, send_depth, recv_depth, reads } = self;
        let both_ends = f64::from(qps) * 2.0;
        // The first stacks also allocate what a process has once.
        let _first = Ends::open(1, 1)?;
        let (_smallest, fixed_bytes) = growth(|| Ends::open(1, 1))?;
        let (mut ends, all_bytes) = growth(|| Ends::open(qps, 1))?;
        let default = QpAttr::new(ends.server.cq);
        let attr = QpAttr { send_depth, recv_depth, ird: reads, ord: reads, ..default };
        let ((), created_bytes) = growth(|| ends.create_qps(qps, &attr))?;
        let ((), connected_bytes) = growth(|| ends.connect())?;
        let tables = (all_bytes - fixed_bytes) / both_ends;
        let (queues, connection) = (created_bytes / both_ends, connected_bytes / both_ends);
        let per_qp = Figures { tables, queues, connection, total: tables + queues + connection };
        Ok(Measured { per_qp, both_ends: resident_bytes()? })
    }

    fn text(&self, Measured { per_qp, both_ends }: &Measured) -> String {
        let QpMemory { qps, send_depth, recv_depth, reads } = self;
        let Figures { tables, queues, connection, total } = per_qp;
        format!(
            "{qps} idle queue pairs at each end, send depth {send_depth}, receive depth {recv_depth}, IRD and ORD \
             {reads}\n\
             resident bytes of one queue pair:\n\
             {tables:>12.0}  tables, for each of limits.queue_pairs\n\
             {queues:>12.0}  queues, when it is created\n\
             {connection:>12.0}  connection, when it is connected\n\
             {total:>12.0}  total\n\
             resident MiB of this process with both ends:\n\
             {:>12.1}\n",
            both_ends / f64::from(1 << 20)
        )
    }
}

/// Runs `step`. Returns its result and the growth of resident memory, in bytes.
fn growth<T>(step: impl FnOnce() -> Result<T, AnyError>) -> Result<(T, f64), AnyError> {
    let before = resident_bytes()?;
    let value = step()?;
    Ok((value, resident_bytes()? - before))
}

/// Returns the anonymous resident memory of this process, in bytes.
fn resident_bytes() -> Result<f64, AnyError> {
    const FILE: &str = "/proc/self/status";
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    resident_of(&text).ok_or_else(|| format!("{FILE} has no RssAnon").into())
}

/// Returns the bytes of the line `RssAnon`, which has KiB.
fn resident_of(status: &str) -> Option<f64> {
    let rest = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: f64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_that_of_the_kernel_in_bytes() {
        let status = "VmRSS:\t    4096 kB\nRssAnon:\t     120 kB\nRssFile:\t    3976 kB\n";
        assert_eq!(resident_of(status), Some(120.0 * 1024.0));
        assert_eq!(resident_of("VmRSS:\t 4096 kB\n"), None);
        assert_eq!(resident_of("RssAnon:\t many kB\n"), None);
    }
}
