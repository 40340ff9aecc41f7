//! The suite: RDMA, raw frames, kernel TCP and stock smoltcp side by side.
//!
//! It measures latencies at 64 B, 1 KiB and 4 KiB and an MTU of 1500, bandwidths at 64 KiB and 1
//! MiB and MTUs of 1500 and 9000, and each RDMA test once with every byte checked. Cases that are
//! compared alternate in one group.

use std::time::Duration;

use ironwarp_bench::{Budget, Case, PathKind, Test, Wait};

use super::{Group, PairKind, Plan, Session};

const LATENCY_BYTES: [u64; 3] = [64, 1 << 10, 4 << 10];
const BANDWIDTH_BYTES: [u64; 2] = [64 << 10, 1 << 20];
const ORDINARY_MTU: u16 = 1500;
const JUMBO_MTU: u16 = 9000;
/// Rounds: the median of ten ratios is stable if a few of them are disturbed.
const ROUNDS: u32 = 10;
/// Rounds that may replace dropped ones.
const SPARE_ROUNDS: u32 = 5;

/// The lengths of slices.
struct SuiteBudgets {
    latency: Budget,
    bandwidth: Budget,
}

/// Returns the suite, with a session for each MTU. `quick` takes about a fifth of the time;
/// `iterations` limits slices by messages in place of time.
///
/// A pair that cannot carry jumbo frames has no session with them.
pub fn suite(session: impl Fn(u16) -> Session, pair: PairKind, quick: bool, iterations: Option<u64>) -> Plan {
    let path = pair.path();
    let budget = |ms, warmup| match iterations {
        Some(iterations) => Budget::iterations(iterations, warmup),
        None => Budget::duration(Duration::from_millis(ms), warmup),
    };
    let (latency_ms, warmup, bandwidth_ms) = if quick { (25, 100, 40) } else { (200, 1000, 300) };
    let budgets = SuiteBudgets { latency: budget(latency_ms, warmup), bandwidth: budget(bandwidth_ms, 0) };
    let mut ordinary = session(ORDINARY_MTU);
    ordinary.groups.extend(LATENCY_BYTES.map(|bytes| latency(bytes, path, &budgets)));
    ordinary.groups.extend(BANDWIDTH_BYTES.map(|bytes| bandwidth(bytes, ORDINARY_MTU, path, &budgets)));
    ordinary.groups.push(loopback(&budgets));
    ordinary.groups.push(validated(path));
    if pair.mtu_max() < JUMBO_MTU {
        return Plan { sessions: vec![ordinary] };
    }
    let mut jumbo = session(JUMBO_MTU);
    jumbo.groups.extend(BANDWIDTH_BYTES.map(|bytes| bandwidth(bytes, JUMBO_MTU, path, &budgets)));
    Plan { sessions: vec![ordinary, jumbo] }
}

/// Raw frames, polling and blocking TCP, smoltcp, and the three RDMA latencies.
fn latency(bytes: u64, path: PathKind, budgets: &SuiteBudgets) -> Group {
    let mut group = group();
    let mut add = |test, path, wait, against: &[usize]| {
        let case = Case { wait, ..Case::new(test, bytes, ORDINARY_MTU, path) };
        group.add(case, budgets.latency, against)
    };
    let floor = add(Test::FrameLat, path, Wait::Spin, &[]);
    let tcp = add(Test::TcpLat, PathKind::Veth, Wait::Spin, &[]);
    let blocking = add(Test::TcpLat, PathKind::Veth, Wait::Block, &[]);
    let smoltcp = add(Test::SmoltcpLat, path, Wait::Spin, &[]);
    for test in [Test::SendLat, Test::WriteLat, Test::ReadLat] {
        add(test, path, Wait::Spin, &[floor, tcp, blocking, smoltcp]);
    }
    group.floor = Some(floor);
    group
}

/// Raw frames, TCP, smoltcp and Writes.
fn bandwidth(bytes: u64, mtu: u16, path: PathKind, budgets: &SuiteBudgets) -> Group {
    let mut group = group();
    let floor = group.add(Case::new(Test::FrameBw, bytes, mtu, path), budgets.bandwidth, &[]);
    let tcp = Case::new(Test::TcpBw, bytes, mtu, PathKind::Veth);
    let blocking = Case { wait: Wait::Block, ..tcp.clone() };
    let tcp = group.add(tcp, budgets.bandwidth, &[]);
    group.add(blocking, budgets.bandwidth, &[]);
    let smoltcp = group.add(Case::new(Test::SmoltcpBw, bytes, mtu, path), budgets.bandwidth, &[]);
    group.add(streaming(Test::WriteBw, bytes, mtu, path), budgets.bandwidth, &[floor, tcp, smoltcp]);
    group.floor = Some(floor);
    group
}

/// TCP over loopback, which is no baseline: no network of a data centre is like it.
fn loopback(budgets: &SuiteBudgets) -> Group {
    let mut group = group();
    group.add(Case::new(Test::TcpLat, LATENCY_BYTES[0], ORDINARY_MTU, PathKind::Lo), budgets.latency, &[]);
    group.add(Case::new(Test::TcpBw, BANDWIDTH_BYTES[1], ORDINARY_MTU, PathKind::Lo), budgets.bandwidth, &[]);
    group
}

/// Every RDMA test once with every byte checked.
fn validated(path: PathKind) -> Group {
    const MESSAGES: u64 = 200;
    let mut group = Group { rounds: 1, note: Some("every byte was checked".to_owned()), ..Group::default() };
    for test in [Test::SendLat, Test::WriteLat, Test::ReadLat] {
        let case = Case { validate: true, ..Case::new(test, LATENCY_BYTES[2], ORDINARY_MTU, path) };
        group.add(case, Budget::iterations(MESSAGES, 0), &[]);
    }
    for test in [Test::SendBw, Test::WriteBw, Test::ReadBw] {
        let case = Case { validate: true, ..streaming(test, BANDWIDTH_BYTES[0], ORDINARY_MTU, path) };
        group.add(case, Budget::iterations(MESSAGES, 0), &[]);
    }
    group
}

fn group() -> Group {
    Group { rounds: ROUNDS, spare_rounds: SPARE_ROUNDS, ..Group::default() }
}

/// A bandwidth case with enough outstanding messages to keep the link busy.
fn streaming(test: Test, bytes: u64, mtu: u16, path: PathKind) -> Case {
    Case { depth: Case::streaming_depth(bytes), ..Case::new(test, bytes, mtu, path) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::ValueEnum;
    use ironwarp_bench::Transport;

    use super::*;
    use crate::plan::tests::session;

    fn plan(quick: bool) -> Plan {
        let session = |mtu| PairKind::Memif.connect(session(mtu), Path::new("/run/x"));
        suite(session, PairKind::Memif, quick, None)
    }

    fn cases(plan: &Plan) -> Vec<(&Group, &crate::plan::GroupCase)> {
        let groups = plan.sessions.iter().flat_map(|session| &session.groups);
        let cases: Vec<_> =
            groups.flat_map(|group| group.cases.iter().map(move |case| (group, case))).collect();
        assert!(!cases.is_empty());
        cases
    }

    #[test]
    fn the_suite_has_every_documented_row_once() {
        let plan = plan(true);
        let count = |test, bytes, mtu| {
            let wanted =
                |case: &Case| case.test == test && case.bytes == bytes && case.mtu == mtu && !case.validate;
            cases(&plan).iter().filter(|(_, case)| wanted(&case.case)).count()
        };
        for bytes in [64, 1024, 4096] {
            for test in [Test::FrameLat, Test::SmoltcpLat, Test::SendLat, Test::WriteLat, Test::ReadLat] {
                assert_eq!(count(test, bytes, 1500), 1, "{test} {bytes}");
            }
            assert!(count(Test::TcpLat, bytes, 1500) >= 2, "polling and blocking");
        }
        for (bytes, mtu) in [(65_536, 1500), (1 << 20, 1500), (65_536, 9000), (1 << 20, 9000)] {
            for test in [Test::FrameBw, Test::SmoltcpBw, Test::WriteBw] {
                assert_eq!(count(test, bytes, mtu), 1, "{test} {bytes} {mtu}");
            }
        }
    }

    #[test]
    fn every_rdma_test_is_validated_once() {
        let plan = plan(false);
        let all = cases(&plan);
        let validated = all.iter().filter(|(_, case)| case.case.validate).map(|(_, case)| case.case.test);
        assert_eq!(validated.collect::<Vec<_>>(), Test::value_variants()[..6]);
    }

    #[test]
    fn rdma_tests_are_compared_over_ten_rounds_with_frames_and_tcp_over_veth() {
        for (group, case) in cases(&plan(false)) {
            for &other in &case.against {
                assert_ne!(group.cases[other].case.path, PathKind::Lo);
                assert_eq!(group.cases[other].case.bytes, case.case.bytes);
                assert!(group.rounds >= 10);
            }
            if matches!(case.case.test, Test::SendLat | Test::WriteBw) && !case.case.validate {
                let baselines = case.against.iter().map(|&other| group.cases[other].case.test.transport());
                let baselines: Vec<_> = baselines.collect();
                for transport in [Transport::Frames, Transport::KernelTcp, Transport::Smoltcp] {
                    assert!(baselines.contains(&transport), "{transport:?}");
                }
            }
        }
    }

    #[test]
    fn every_case_has_the_mtu_of_its_session() {
        for session in plan(true).sessions {
            let mtus: Vec<_> =
                session.groups.iter().flat_map(|group| &group.cases).map(|case| case.case.mtu).collect();
            assert!(!mtus.is_empty() && mtus.iter().all(|mtu| *mtu == session.mtu), "{mtus:?}");
        }
    }

    #[test]
    fn a_pair_without_jumbo_frames_has_one_session() {
        let session = |mtu| PairKind::VethAfXdp.connect(session(mtu), Path::new("/run/x"));
        let plan = suite(session, PairKind::VethAfXdp, true, None);
        assert_eq!(plan.sessions.iter().map(|session| session.mtu).collect::<Vec<_>>(), [ORDINARY_MTU]);
    }

    #[test]
    fn a_quick_suite_takes_at_most_half_a_minute_and_a_full_one_three_minutes() {
        assert!(
            plan(true).expected_duration() < Duration::from_secs(30),
            "{:?}",
            plan(true).expected_duration()
        );
        let full = plan(false).expected_duration();
        assert!((60..180).contains(&full.as_secs()), "{full:?}");
    }
}
