//! What more cores bring: the same tests on one core and on all, each core playing both ends over its own queues. And who
//! should change a word: its owner, or the receiving core, with locked instructions.

use ironwarp_bench::{AtomicKind, Budget, Case, PathKind, Test, WordOwner};

use super::{Group, Plan, ServerPlacement, Session};

/// Rounds that count.
const ROUNDS: u32 = 10;
/// What is measured, each beside raw frames. The words of atomic operations are at hand: no core waits for another.
const TESTS: [Test; 5] = [Test::FrameBw, Test::SendBw, Test::WriteBw, Test::ReadBw, Test::AtomicBw];
/// Messages on their way, a queue pair: as many as hide how far the ends of a round trip are apart.
const DEPTH: u32 = 64;

/// Every test on one core, then on all; what is compared alternates. A test on all cores has a queue pair on each.
/// `has_core_each` says that every core has a processor of its own.
pub fn scaling(mut session: Session, path: PathKind, bytes: u64, total: Budget, has_core_each: bool) -> Plan {
    to_loopback(&mut session, has_core_each);
    let budget = Budget { duration: total.duration.map(|all| all / ROUNDS), warmup: 0, ..total };
    let mut group = Group { rounds: ROUNDS, ..Group::default() };
    for test in TESTS {
        let case = |cores: u32| Case {
            depth: if test == Test::FrameBw { 1 } else { DEPTH },
            qps: cores,
            cores,
            owner: if test.is_atomic() { WordOwner::Local } else { WordOwner::Spread },
            operation: test.is_atomic().then_some(AtomicKind::FetchAdd),
            ..Case::new(test, test.fixed_bytes().unwrap_or(bytes), session.mtu, path)
        };
        let one = group.add(case(1), budget, &[]);
        group.add(case(session.cores.into()), budget, &[one]);
    }
    session.groups.push(group);
    Plan { sessions: vec![session] }
}

/// Both ends on every core.
fn to_loopback(session: &mut Session, has_core_each: bool) {
    for config in [&mut session.client_config, &mut session.server_setup.config].into_iter().flatten() {
        *config =
            if has_core_each { config.replace("\"yield\"", "\"spin\"") } else { std::mem::take(config) };
    }
    session.server_placement = match session.server_placement {
        ServerPlacement::MemoryThread => ServerPlacement::MemoryLoopback,
        _ => ServerPlacement::RingLoopback,
    };
}

/// Queue pairs on each core, and what each has on its way: enough that a core always has something to do.
const QPS_A_CORE: u32 = 4;
const ATOMICS_DEPTH: u32 = 16;
/// More words than there are operations on their way.
const MANY_WORDS: u32 = 1024;
/// Whose rates are measured: what is done to how many words of whom. One word that all queue pairs of all cores want, a few,
/// many; and many that each core has for itself.
const RATES: [(AtomicKind, u32, WordOwner); 6] = [
    (AtomicKind::FetchAdd, 1, WordOwner::Spread),
    (AtomicKind::FetchAdd, 16, WordOwner::Spread),
    (AtomicKind::FetchAdd, MANY_WORDS, WordOwner::Spread),
    (AtomicKind::FetchAdd, MANY_WORDS, WordOwner::Local),
    (AtomicKind::CmpSwap, 1, WordOwner::Spread),
    (AtomicKind::CmpSwap, MANY_WORDS, WordOwner::Spread),
];

/// Who should change a word. Round trips from one core to a word that is changed by locked instructions, to one that it owns
/// and to one that another core owns; then rates of all cores together. What owners do stands beside the same done locked.
pub fn atomics(mut session: Session, path: PathKind, total: Budget, has_core_each: bool) -> Plan {
    to_loopback(&mut session, has_core_each);
    let budget = Budget { duration: total.duration.map(|all| all / ROUNDS), ..total };
    let mut group = Group { rounds: ROUNDS, ..Group::default() };
    let (cores, mtu) = (u32::from(session.cores), session.mtu);
    let case = |test: Test, operation: AtomicKind| Case {
        operation: Some(operation),
        ..Case::new(test, test.fixed_bytes().unwrap_or(0), mtu, path)
    };
    let lat = |owner, locked| Case { owner, locked, ..case(Test::AtomicLat, AtomicKind::FetchAdd) };
    let locked = group.add(lat(WordOwner::Local, true), budget, &[]);
    let local = group.add(lat(WordOwner::Local, false), budget, &[locked]);
    group.add(lat(WordOwner::Remote, false), budget, &[local]);
    for (operation, words, owner) in RATES {
        let (qps, depth) = (cores * QPS_A_CORE, ATOMICS_DEPTH);
        let bw = |locked| Case { words, owner, locked, cores, qps, depth, ..case(Test::AtomicBw, operation) };
        let locked = group.add(bw(true), budget, &[]);
        group.add(bw(false), budget, &[locked]);
    }
    session.groups.push(group);
    Plan { sessions: vec![session] }
}
