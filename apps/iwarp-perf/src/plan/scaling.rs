//! What more cores bring: the same tests on one core and on all, each core playing both ends over its own queues.

use ironwarp_bench::{Budget, Case, PathKind, Test};

use super::{FarPlace, Group, Plan, Session};

/// Rounds that count.
const ROUNDS: u32 = 10;
/// What is measured, each beside raw frames. Not atomic operations: their words may belong to a core that stands still.
const TESTS: [Test; 4] = [Test::FrameBw, Test::SendBw, Test::WriteBw, Test::ReadBw];
/// Messages on their way, a queue pair: as many as hide how far the ends of a round trip are apart.
const DEPTH: u32 = 64;

/// Every test on one core, then on all; what is compared alternates. A test on all cores has a queue pair on each.
/// `roomy` says that every core has a processor of its own.
pub fn scaling(mut session: Session, path: PathKind, bytes: u64, whole: Budget, roomy: bool) -> Plan {
    for config in [&mut session.near_config, &mut session.far_setup.config].into_iter().flatten() {
        *config = if roomy { config.replace("\"yield\"", "\"spin\"") } else { std::mem::take(config) };
    }
    session.far = match session.far {
        FarPlace::MemoryThread => FarPlace::MemoryStations,
        _ => FarPlace::RingStations,
    };
    let budget = Budget { duration: whole.duration.map(|all| all / ROUNDS), warmup: 0, ..whole };
    let mut group = Group { rounds: ROUNDS, ..Group::default() };
    for test in TESTS {
        let case = |cores: u32| Case {
            depth: if test == Test::FrameBw { 1 } else { DEPTH },
            qps: cores,
            cores,
            ..Case::new(test, bytes, session.mtu, path)
        };
        let one = group.add(case(1), budget, &[]);
        group.add(case(session.cores.into()), budget, &[one]);
    }
    session.groups.push(group);
    Plan { sessions: vec![session] }
}
