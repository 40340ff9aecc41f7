//! A made-up outcome for the tests of tables and pages.

use super::Outcome;
use crate::host::{Activity, Build, Machine};
use crate::report::{Report, SCHEMA};
use crate::rounds::{CaseTotals, Round, Rounds};
use crate::{Case, Latency, PathKind, Slice, Test, Wait};

/// Raw frames, Sends and blocking TCP at 64 bytes, raw frames and Writes one way, over two rounds.
pub(crate) fn outcome() -> Outcome {
    let mut blocking = Case::new(Test::TcpLat, 64, 1500, PathKind::Veth);
    blocking.wait = Wait::Block;
    let cases = [
        Case::new(Test::FrameLat, 64, 1500, PathKind::Memif),
        Case::new(Test::SendLat, 64, 1500, PathKind::Memif),
        blocking,
        Case::new(Test::FrameBw, 1 << 20, 9000, PathKind::Memif),
        Case::new(Test::WriteBw, 1 << 20, 9000, PathKind::Memif),
    ];
    let round = || Round {
        slices: vec![lat(310), lat(930), lat(47_000), bw(30_000_000), bw(9_000_000)],
        hop_ns: Some(81.0),
        activity: Activity { steal_ns: Some(0), context_switches: Some(3) },
        floor_moved: Some(0.05),
    };
    outcome_of(&cases, &Rounds { rounds: vec![round(), round()] })
}

fn outcome_of(cases: &[Case], rounds: &Rounds) -> Outcome {
    let mut outcome = Outcome {
        report: Report {
            schema: SCHEMA,
            command: None,
            machine: Machine::local(),
            build: Build::current(&["dpdk"]),
            results: vec![],
        },
        latencies: vec![],
    };
    for (index, case) in cases.iter().enumerate() {
        let floor = if case.test.is_latency() { 0 } else { 3 };
        let baselines: Vec<_> =
            (index != floor).then(|| (&cases[floor], rounds.case(floor))).into_iter().collect();
        let totals = CaseTotals::of(&rounds.case(index));
        let result = totals.result(case, Some("net_memif0".into()), &rounds.case(index), &baselines);
        outcome.report.results.push(result);
        outcome.latencies.push(totals.latency);
    }
    outcome
}

fn lat(typical_ns: u64) -> Slice {
    let mut latency = Latency::new();
    (1..=10_000_u64).for_each(|n| latency.record(typical_ns + typical_ns * n / (10_001 - n) / 10));
    Slice { latency: Some(latency), messages: 10_000, elapsed_ns: 10_000 * typical_ns, ..Slice::default() }
}

fn bw(bytes: u64) -> Slice {
    Slice { bytes, messages: bytes >> 20, elapsed_ns: 1_000_000, cpu_ns: Some(2_000_000), ..Slice::default() }
}
