//! Bytes in both directions under every fault of a link. Every byte is checked, the engine checks
//! its invariants, every buffer is returned, and each seed runs twice with the same trace. Stock
//! smoltcp is a peer in the tests of the crate tcp.

use ironwarp_sim::{Bursts, LinkConfig};
use ironwarp_tcp::Congestion;
use ironwarp_types::{Nanos, SeededEntropy};
use iwarp_sim::tcp::{EndAction, Outcome, ReadRate, Task, TwoHostRun};

use super::cable;

/// Bytes in both directions between ends of different congestion control; the seed chooses which of
/// them connects, and the sizes of windows and segments.
fn two_host_run(seed: u64, link: LinkConfig) -> TwoHostRun {
    let mut rng = SeededEntropy::new(seed);
    let mut congestion = [Congestion::NewReno, Congestion::Cubic];
    if !seed.is_multiple_of(2) {
        congestion.reverse();
    }
    let task = Task {
        sends: 40_000 + rng.below(200_000),
        expects: 40_000 + rng.below(200_000),
        sends_from: 0,
        expects_from: 30_000,
        ..Task::default()
    };
    let windows = [0, 1].map(|_| 8_192 << rng.below(7));
    let mtus = [[1_500; 2], [9_000; 2], [9_000, 1_500]][rng.below(3) as usize];
    let tasks = [task.clone(), task.mirrored()];
    TwoHostRun { seed, tasks, windows, mtus, check_every: 8, ..TwoHostRun::new(congestion, link, 0) }
}

/// Runs to the end twice and expects the same result.
fn run(two_host_run: &TwoHostRun) -> Outcome {
    let [first, second] =
        [0, 1].map(|_| two_host_run.run().unwrap_or_else(|error| panic!("{error}: {two_host_run:?}")));
    assert_eq!(first.trace_hash, second.trace_hash, "{two_host_run:?}");
    first
}

/// Runs as above and checks that everything arrived on both sides.
fn run_whole(two_host_run: &TwoHostRun) -> Outcome {
    let outcome = run(two_host_run);
    assert!(outcome.finished, "not finished: {two_host_run:?} {:?}", outcome.task_progress);
    for (task_progress, task) in outcome.task_progress.iter().zip(&two_host_run.tasks) {
        assert_eq!(
            (task_progress.taken, task_progress.left()),
            (task.expects, 0),
            "{two_host_run:?} {:?}",
            outcome.task_progress
        );
    }
    for host in &outcome.hosts {
        let host = host.borrow();
        assert_eq!((host.ends.reset, host.frames_in_use()), (0, 0), "{two_host_run:?}");
    }
    outcome
}

fn seeds_survive(seeds: core::ops::Range<u64>, link: impl Fn(u64) -> LinkConfig) {
    for seed in seeds {
        run_whole(&two_host_run(seed, link(seed)));
    }
}

#[test]
fn both_roles_carry_both_directions_over_a_fault_free_cable() {
    seeds_survive(0..12, |_| cable());
}

#[test]
fn every_byte_arrives_under_loss() {
    seeds_survive(100..124, |seed| LinkConfig { loss_ppm: 2_000 << (seed % 6), ..cable() });
}

#[test]
fn every_byte_arrives_under_loss_in_bursts() {
    seeds_survive(150..166, |seed| {
        let bursts = Bursts { begin_ppm: 1_000 << (seed % 4), end_ppm: 300_000, loss_ppm: 800_000 };
        LinkConfig { bursts, ..cable() }
    });
}

#[test]
fn every_byte_arrives_under_duplication() {
    seeds_survive(200..212, |seed| LinkConfig { duplicate_ppm: 10_000 << (seed % 5), ..cable() });
}

#[test]
fn every_byte_arrives_under_reordering_and_jitter() {
    seeds_survive(300..316, |seed| LinkConfig {
        reorder_ppm: 10_000 << (seed % 5),
        reorder_by: Nanos::from_micros(20 << (seed % 4)),
        jitter: Nanos::from_micros(10 * (seed % 3)),
        ..cable()
    });
}

#[test]
fn every_byte_arrives_when_frames_are_corrupted() {
    seeds_survive(400..416, |seed| LinkConfig { corrupt_ppm: 2_000 << (seed % 5), ..cable() });
}

#[test]
fn every_byte_arrives_when_frames_are_truncated() {
    seeds_survive(500..516, |seed| LinkConfig { truncate_ppm: 2_000 << (seed % 5), ..cable() });
}

#[test]
fn every_byte_arrives_under_all_faults_together() {
    seeds_survive(600..632, |seed| {
        let mut rng = SeededEntropy::new(seed);
        let mut some = |most_ppm: u64| if rng.below(2) == 0 { 0 } else { rng.below(most_ppm) as u32 };
        LinkConfig {
            loss_ppm: some(50_000),
            duplicate_ppm: some(50_000),
            reorder_ppm: some(100_000),
            reorder_by: Nanos::from_micros(100),
            jitter: Nanos(u64::from(some(20_000))),
            corrupt_ppm: some(20_000),
            truncate_ppm: some(20_000),
            ..cable()
        }
    });
}

/// RFC 9293 s3.8.6: a reader that is too slow closes its window and opens it again.
#[test]
fn a_slow_reader_closes_its_window_and_opens_it_again() {
    for seed in 700..712 {
        let link = LinkConfig { loss_ppm: 5_000 * (seed as u32 % 3), ..cable() };
        let mut two_host_run = two_host_run(seed, link);
        two_host_run.windows = [8_192; 2];
        for (task, every) in two_host_run.tasks.iter_mut().zip([1_000, 3_000]) {
            task.read_rate = Some(ReadRate { bytes: 5_000, every: Nanos::from_micros(every) });
        }
        run_whole(&two_host_run);
    }
}

/// RFC 9293 s3.6: the end that has sent everything closes its direction; the other continues.
#[test]
fn a_half_closed_connection_still_carries_the_other_direction() {
    for seed in 800..816 {
        let link = LinkConfig { loss_ppm: 10_000 * (seed as u32 % 3), ..cable() };
        let mut two_host_run = two_host_run(seed, link);
        let first_to_close = (seed / 2 % 2) as usize;
        two_host_run.tasks[first_to_close].end = EndAction::HalfClose;
        two_host_run.tasks[first_to_close].sends = 3_000;
        two_host_run.tasks[1 - first_to_close].expects = 3_000;
        run_whole(&two_host_run);
    }
}

/// Both ends close as soon as they have sent everything: FINs cross or follow each other.
#[test]
fn both_ends_half_close() {
    for seed in 900..912 {
        let mut two_host_run =
            two_host_run(seed, LinkConfig { loss_ppm: 10_000 * (seed as u32 % 3), ..cable() });
        two_host_run.tasks.iter_mut().for_each(|task| task.end = EndAction::HalfClose);
        run_whole(&two_host_run);
    }
}

/// RFC 9293 s3.10.5: an abort ends both sides, and all bytes that had arrived are correct. The
/// other end has bytes in flight, so it detects the abort even when the reset is lost.
#[test]
fn an_abort_ends_the_connection_at_both_ends() {
    for seed in 1_000..1_016 {
        let mut two_host_run =
            two_host_run(seed, LinkConfig { loss_ppm: 10_000 * (seed as u32 % 2), ..cable() });
        let aborts = (seed / 2 % 2) as usize;
        two_host_run.tasks[aborts] = Task {
            end: EndAction::AbortAfter(20_000),
            expects: 9_000_000,
            ..two_host_run.tasks[aborts].clone()
        };
        two_host_run.tasks[1 - aborts].sends = 9_000_000;
        two_host_run.until = Nanos::from_secs(300);
        let outcome = run(&two_host_run);
        assert!(outcome.finished, "{two_host_run:?}");
        assert!(
            outcome.hosts[1 - aborts].borrow().ends.reset == 1
                && outcome.hosts[aborts].borrow().ends.reset == 0,
            "{two_host_run:?}"
        );
        assert!(outcome.task_progress[aborts].taken >= 20_000);
    }
}
