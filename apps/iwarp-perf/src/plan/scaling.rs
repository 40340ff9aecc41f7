//! Runs with a client and a server on each core: one core against several, and owner cores against
//! locked instructions.

use ironwarp_bench::{AtomicKind, Budget, Case, PathKind, Test, WordOwner};

use super::{Group, Plan, ServerPlacement, Session};

const ROUNDS: u32 = 10;
/// The tests of `scaling`, with raw frames as the reference.
const TESTS: [Test; 5] = [Test::FrameBw, Test::SendBw, Test::WriteBw, Test::ReadBw, Test::AtomicBw];
/// Outstanding messages for each queue pair: enough to hide the latency between the ends.
const DEPTH: u32 = 64;

/// Returns a plan that alternates every test on one core and on all cores. A test on all cores has
/// a queue pair on each, and words that the same core owns. `has_core_each` says that every core
/// has a processor of its own.
pub fn scaling(session: Session, path: PathKind, bytes: u64, total: Budget, has_core_each: bool) -> Plan {
    let (mut group, mtu, all_cores) = (Group::default(), session.mtu, u32::from(session.cores));
    let budget = Budget { warmup: 0, ..per_round(total) };
    for test in TESTS {
        let case = |cores: u32| Case {
            depth: if test == Test::FrameBw { 1 } else { DEPTH },
            qps: cores,
            cores,
            owner: if test.is_atomic() { WordOwner::Local } else { WordOwner::Spread },
            operation: test.is_atomic().then_some(AtomicKind::FetchAdd),
            ..Case::new(test, test.fixed_bytes().unwrap_or(bytes), mtu, path)
        };
        let one = group.add(case(1), budget, &[]);
        group.add(case(all_cores), budget, &[one]);
    }
    loopback_plan(session, group, has_core_each)
}

/// Queue pairs on each core, and outstanding operations of each queue pair: enough that a core is
/// never idle.
const QPS_PER_CORE: u32 = 4;
const ATOMICS_DEPTH: u32 = 16;
/// More words than outstanding operations.
const MANY_WORDS: u32 = 1024;
/// The measured rates: operation, number of words, owner of the words.
const RATES: [(AtomicKind, u32, WordOwner); 6] = [
    (AtomicKind::FetchAdd, 1, WordOwner::Spread),
    (AtomicKind::FetchAdd, 16, WordOwner::Spread),
    (AtomicKind::FetchAdd, MANY_WORDS, WordOwner::Spread),
    (AtomicKind::FetchAdd, MANY_WORDS, WordOwner::Local),
    (AtomicKind::CmpSwap, 1, WordOwner::Spread),
    (AtomicKind::CmpSwap, MANY_WORDS, WordOwner::Spread),
];

/// Returns a plan that compares owner cores with locked instructions. It measures the latency of
/// one core to a word with locked instructions, to a word of the same core and to a word of another
/// core; then the rates of all cores together.
pub fn atomics(session: Session, path: PathKind, total: Budget, has_core_each: bool) -> Plan {
    let (mut group, mtu, cores) = (Group::default(), session.mtu, u32::from(session.cores));
    let budget = per_round(total);
    let case = |test: Test, operation: AtomicKind| Case {
        operation: Some(operation),
        ..Case::new(test, test.fixed_bytes().unwrap_or(0), mtu, path)
    };
    let lat = |owner, locked| Case { owner, locked, ..case(Test::AtomicLat, AtomicKind::FetchAdd) };
    let locked = group.add(lat(WordOwner::Local, true), budget, &[]);
    let local = group.add(lat(WordOwner::Local, false), budget, &[locked]);
    group.add(lat(WordOwner::Remote, false), budget, &[local]);
    for (operation, words, owner) in RATES {
        let (qps, depth) = (cores * QPS_PER_CORE, ATOMICS_DEPTH);
        let bw = |locked| Case { words, owner, locked, cores, qps, depth, ..case(Test::AtomicBw, operation) };
        let locked = group.add(bw(true), budget, &[]);
        group.add(bw(false), budget, &[locked]);
    }
    loopback_plan(session, group, has_core_each)
}

fn per_round(total: Budget) -> Budget {
    Budget { duration: total.duration.map(|all| all / ROUNDS), ..total }
}

/// Returns a plan with both ends on every core.
fn loopback_plan(mut session: Session, group: Group, has_core_each: bool) -> Plan {
    if has_core_each {
        session.configs().for_each(|config| *config = config.replace("\"yield\"", "\"spin\""));
    }
    session.server_placement = ServerPlacement::Loopback;
    session.groups.push(Group { rounds: ROUNDS, ..group });
    Plan { sessions: vec![session] }
}
