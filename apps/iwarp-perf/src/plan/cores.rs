//! The run over 1, 2, 4 ... cores a side, each end of a core on a processor of its own.

use std::time::Duration;

use ironwarp_bench::host::{CorePair, physical_first};
use ironwarp_bench::{AtomicKind, Budget, Case, PathKind, Test};

use super::{Group, PairKind, Plan, ServerPlacement, Session};

/// Queue pairs of each core.
const QPS_PER_CORE: u32 = 4;
/// Jumbo frames, which every pair of the run carries.
const MTU: u16 = 9000;
/// More than the outstanding operations of a few cores.
const MANY_WORDS: u32 = 1024;
/// More than four pools of 8192 jumbo frames take.
const BOTH_ENDS_MIB: u32 = 384;
/// A session fails when a slice takes this much longer than planned. Opening takes some of it.
const SPARE_TIME: Duration = Duration::from_secs(30);

/// What is asked for.
pub struct CoresPlan<'a> {
    pub pairs: &'a [PairKind],
    /// The most cores a side.
    pub cores_max: u16,
    /// The processors that may be used.
    pub allowed: &'a [usize],
    /// Also runs what has fewer processors than polled cores.
    pub oversubscribe: bool,
    /// The time of each case, over all rounds.
    pub duration: Duration,
    pub rounds: u32,
}

/// Returns the plan and, for each number of cores that does not fit, the reason. `connect` adds the
/// devices of a pair to a session. Over memif the first session has its ends in two processes, for
/// comparison.
pub fn cores(asked: &CoresPlan<'_>, connect: impl Fn(PairKind, Session) -> Session) -> (Plan, Vec<String>) {
    let &CoresPlan { cores_max, allowed, oversubscribe, duration, rounds, .. } = asked;
    let budget = Budget::duration(duration / rounds, 0);
    let fits = |cores: u16| usize::from(cores) * 2 <= allowed.len();
    let counts: Vec<u16> =
        (0..u16::BITS).map(|power| 1 << power).take_while(|&cores| cores <= cores_max).collect();
    let (run, skipped): (Vec<u16>, Vec<u16>) =
        counts.into_iter().partition(|&cores| fits(cores) || oversubscribe);
    let mut sessions = Vec::new();
    for &pair in asked.pairs {
        let session = |cores: u16, placement: ServerPlacement| {
            let ends = ends(allowed, cores);
            let first = ends.first().copied().unwrap_or(CorePair { client: 0, server: 0 });
            let (client_core, server_core) = (first.client, first.server);
            let mut session =
                connect(pair, Session { client_core, server_core, cores, mtu: MTU, ..Session::default() });
            if placement == ServerPlacement::Loopback {
                (session.ends, session.server_placement) = (ends, placement);
            }
            session.oversubscribed = !fits(cores);
            if fits(cores) {
                session.configs().for_each(|config| *config = config.replace("\"yield\"", "\"spin\""));
            }
            if pair == PairKind::Ring {
                // One DPDK has the buffers of both ends.
                let memory = format!("[eal]\nmemory_mib = {}\n", BOTH_ENDS_MIB * (u32::from(cores) + 1));
                session.configs().for_each(|config| config.push_str(&memory));
            }
            session.silent_max = Some(budget.duration.unwrap_or_default() + SPARE_TIME);
            session.groups.push(group(cores.into(), pair.path(), budget, rounds));
            session
        };
        if !pair.is_one_process() && !run.is_empty() {
            sessions.push(session(1, ServerPlacement::Process));
        }
        sessions.extend(run.iter().map(|&cores| session(cores, ServerPlacement::Loopback)));
    }
    let reason = |cores: u16| {
        format!(
            "{cores} cores a side: need {} processors, and {} may be used",
            u32::from(cores) * 2,
            allowed.len()
        )
    };
    (Plan { sessions }, skipped.into_iter().map(reason).collect())
}

/// The processors of each core's ends. Second threads of physical cores come last.
fn ends(allowed: &[usize], cores: u16) -> Vec<CorePair> {
    let mut processors = physical_first(allowed).into_iter().cycle();
    let mut next = || processors.next().unwrap_or(0);
    (0..cores).map(|_| CorePair { client: next(), server: next() }).collect()
}

/// Small messages alone and in lists, large ones, and atomic operations on many words and on one.
fn group(cores: u32, path: PathKind, budget: Budget, rounds: u32) -> Group {
    let qps = cores * QPS_PER_CORE;
    let case =
        |test: Test, bytes: u64, depth: u32| Case { qps, cores, depth, ..Case::new(test, bytes, MTU, path) };
    let atomic = |words: u32| {
        let operation = Some(AtomicKind::FetchAdd);
        Case { operation, words, ..case(Test::AtomicBw, 8, 16) }
    };
    let cases = [
        case(Test::SendBw, 64, 64),
        Case { post_list: 16, signal_every: 16, ..case(Test::WriteBw, 64, 64) },
        case(Test::WriteBw, 64 << 10, 16),
        case(Test::WriteBw, 1 << 20, 2),
        atomic(MANY_WORDS),
        atomic(1),
    ];
    let mut group = Group { rounds, ..Group::default() };
    cases.into_iter().for_each(|case| {
        group.add(case, budget, &[]);
    });
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(allowed: &[usize], oversubscribe: bool) -> (Plan, Vec<String>) {
        let duration = Duration::from_secs(1);
        let pairs = [PairKind::MemifNative, PairKind::Memory];
        let asked = CoresPlan { pairs: &pairs, cores_max: 8, allowed, oversubscribe, duration, rounds: 2 };
        cores(&asked, |pair, session| pair.connect(session, std::path::Path::new("/run/x")))
    }

    fn counts(plan: &Plan) -> Vec<u16> {
        plan.sessions.iter().map(|session| session.cores).collect()
    }

    #[test]
    fn both_ends_of_every_core_have_a_processor_of_their_own_or_the_count_is_skipped() {
        // Numbers that no machine has: each is a physical core.
        let sixteen: Vec<usize> = (9000..9016).collect();
        let (plan, skipped) = plan(&sixteen, false);
        assert_eq!((counts(&plan), skipped.len()), (vec![1, 1, 2, 4, 8, 1, 2, 4, 8], 0));
        let last = plan.sessions.last().expect("a session");
        let mut used: Vec<usize> = last.ends.iter().flat_map(|pair| [pair.client, pair.server]).collect();
        used.sort_unstable();
        assert_eq!((used, last.oversubscribed), (sixteen, false));
        assert!(last.client_config.as_deref().is_some_and(|config| config.contains("\"spin\"")));
    }

    #[test]
    fn two_processors_carry_one_core_a_side_and_more_only_when_asked() {
        let (fitting, skipped) = plan(&[9000, 9001], false);
        assert_eq!(counts(&fitting), [1, 1, 1]);
        assert!(
            skipped.len() == 3 && skipped[0].contains("2 cores a side: need 4 processors, and 2"),
            "{skipped:?}"
        );
        let (all, skipped) = plan(&[9000, 9001], true);
        assert_eq!((counts(&all), skipped.len()), (vec![1, 1, 2, 4, 8, 1, 2, 4, 8], 0));
        let eight = all.sessions.last().expect("a session");
        assert!(
            eight.oversubscribed
                && eight.client_config.as_deref().is_some_and(|config| config.contains("\"yield\""))
        );
    }

    #[test]
    fn the_first_session_over_memif_has_two_processes() {
        let (plan, _) = plan(&[9000, 9001], false);
        let placements: Vec<_> = plan.sessions.iter().map(|session| session.server_placement).collect();
        let (process, loopback) = (ServerPlacement::Process, ServerPlacement::Loopback);
        assert_eq!(placements, [process, loopback, loopback]);
        assert!(
            plan.sessions[0].ends.is_empty() && plan.sessions[0].server_core != plan.sessions[0].client_core
        );
    }
}
