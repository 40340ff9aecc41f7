//! Sessions with a client and a server on every core. Each core has a thread, and the rates of all
//! cores are added up.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ironwarp_bench::host::{CorePair, allowed, cpu_ns, hop_ns, pin};
use ironwarp_bench::report::{CorePolls, MedianRange, Scale};
use ironwarp_bench::rounds::{CaseRunner, EndedEarly, Rounds, alternate};
use ironwarp_bench::{Case, CpuClock, Slice, StopCondition, Test, Transport, UsageMeter, WordOwner};

use super::results::{AtomicTotals, polls_since, send_results};
use crate::control::{Channel, FromClient, ToClient};
use crate::error::{Context, Error, Result};
use crate::plan::{Group, LOCKED, Session};
use crate::rdma::{AtomicWords, DoneGuard, LoopbackWorker, open_loopback_workers, sum_of};

/// A group with open cases.
struct LoopbackGroup<'a> {
    parent: &'a Channel<ToClient>,
    halt: &'a AtomicBool,
    session: &'a Session,
    group: &'a Group,
    workers: Vec<LoopbackWorker>,
    /// Workers of stacks that change words with locked instructions. Empty if no case needs them.
    locked: Vec<LoopbackWorker>,
    processors: Vec<usize>,
    /// The operations of atomic tests, indexed as the cases of the group.
    atomic_totals: Vec<AtomicTotals>,
    /// Frames dropped between cores, by case.
    steering_drops: Vec<u64>,
}

/// Measures the groups of a session and sends their results to the parent.
pub fn session(parent: &Channel<ToClient>, halt: &AtomicBool, session: &Session) -> Result<()> {
    for group in &session.groups {
        let locked = group.cases.iter().any(|case| case.case.locked);
        let locked = locked.then(|| open_loopback_workers(session, LOCKED)).transpose()?.unwrap_or_default();
        let (workers, processors) = (open_loopback_workers(session, "")?, allowed());
        let atomic_totals = vec![AtomicTotals::default(); group.cases.len()];
        let mut open = LoopbackGroup {
            parent,
            halt,
            session,
            group,
            workers,
            locked,
            processors,
            atomic_totals,
            steering_drops: vec![0; group.cases.len()],
        };
        connect(group, false, &mut open.workers)?;
        connect(group, true, &mut open.locked)?;
        open.measure()?;
    }
    Ok(())
}

/// Runs `work` with a worker, then polls it until the other workers are done, because its core may
/// own their words.
fn run_then_poll<T>(
    remaining: &AtomicUsize,
    worker: &mut LoopbackWorker,
    work: impl FnOnce(&mut LoopbackWorker) -> T,
) -> T {
    let guard = DoneGuard(remaining);
    let outcome = work(worker);
    drop(guard);
    poll_until_all_done(remaining, worker, LoopbackWorker::poll);
    outcome
}

/// Calls `poll` while other workers measure. Then polls until the last received data is
/// acknowledged: nothing polls the worker until the next slice, which would begin with
/// retransmissions.
fn poll_until_all_done(remaining: &AtomicUsize, worker: &mut LoopbackWorker, poll: fn(&mut LoopbackWorker)) {
    /// An acknowledgement is delayed by at most one poll.
    const FINAL_POLLS: usize = 4;
    while remaining.load(Ordering::Relaxed) > 0 {
        poll(worker);
    }
    (0..FINAL_POLLS).for_each(|_| worker.poll());
}

/// Runs `work` with the index of each worker, each on a thread of its own.
fn on_threads<T: Send>(
    workers: &mut [LoopbackWorker],
    work: impl Fn(usize, &mut LoopbackWorker) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let workers = workers.iter_mut().enumerate();
        let threads: Vec<_> =
            workers.map(|(index, worker)| scope.spawn(move || work(index, worker))).collect();
        let outcomes: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        outcomes.into_iter().map(|outcome| outcome.unwrap_or(Err(Error::NoDevice))).collect()
    })
}

/// Opens every case on every worker that takes part in it.
fn connect(group: &Group, locked: bool, workers: &mut [LoopbackWorker]) -> Result<()> {
    let Some(first) = workers.first_mut() else { return Ok(()) };
    let cases: Vec<&Case> = group.cases.iter().map(|case| &case.case).collect();
    let shared = |case: &&Case| (case.owner == WordOwner::Spread).then(|| first.words(case)).transpose();
    let words: Vec<Option<AtomicWords>> = cases.iter().map(shared).collect::<Result<_, _>>()?;
    let remaining = AtomicUsize::new(workers.len());
    on_threads(workers, |index, worker| {
        run_then_poll(&remaining, worker, |worker| {
            cases.iter().zip(&words).try_for_each(|(case, words)| {
                let participates = case.locked == locked && index < case.cores as usize;
                worker.open(case, participates, words.clone())
            })
        })
    })?;
    Ok(())
}

impl LoopbackGroup<'_> {
    fn measure(&mut self) -> Result<()> {
        let polls_before = self.polls();
        let group = self.group;
        let (rounds, why) = alternate(self, &group.round_plan());
        if let Some(EndedEarly::Failed { case, error }) = why {
            return Err(error).context(group.cases[case].case.title());
        }
        let polls = polls_since(&polls_before, self.polls());
        let cases: Vec<Case> = group.cases.iter().map(|case| case.case.clone()).collect();
        send_results(self.parent, (group, &cases), &rounds, self.session, |index, result| {
            let case = &cases[index];
            result.notes.extend(note(group, &rounds, index));
            self.atomic_totals[index].add_notes(case, result);
            result.polls = Some(polls.iter().take(case.cores as usize).copied().collect());
            result.scale = (!self.session.ends.is_empty()).then(|| Scale {
                processors: self.session.ends.clone(),
                oversubscribed: self.session.oversubscribed,
                steering_drops: self.steering_drops[index],
                fairness: result.fairness(),
                to_one_core: None,
            });
        })
    }

    fn polls(&self) -> Vec<CorePolls> {
        self.workers.iter().flat_map(LoopbackWorker::polls).collect()
    }
}

/// Compares a case with its first baseline, if it is about remote words or several cores.
fn note(group: &Group, rounds: &Rounds, index: usize) -> Option<String> {
    let (case, &baseline) = (&group.cases[index].case, group.cases[index].against.first()?);
    match case.test {
        Test::AtomicLat if case.owner == WordOwner::Remote => added_latency_note(rounds, baseline, index),
        _ if case.cores > 1 => scaling_note(group, rounds, baseline, index),
        _ => None,
    }
}

/// Describes how a test scales, and how raw frames scale in the same rounds.
fn scaling_note(group: &Group, rounds: &Rounds, one: usize, all: usize) -> Option<String> {
    let frames = |several: bool| {
        let mut cases = group.cases.iter().map(|case| &case.case);
        cases.position(|case| case.test == Test::FrameBw && (case.cores > 1) == several)
    };
    let ratios = |over: usize, under: usize, figure: fn(&Slice) -> Option<f64>| -> Vec<f64> {
        let pairs = per_round(rounds, over, figure).zip(per_round(rounds, under, figure));
        pairs.filter_map(|(over, under)| Some(over? / under?)).collect()
    };
    let rate = |slice: &Slice| Some(slice.messages as f64 / slice.elapsed_ns.max(1) as f64);
    let cost = |slice: &Slice| Some(slice.cpu_ns? as f64 / slice.messages.max(1) as f64);
    let frames = ratios(frames(true)?, frames(false)?, rate);
    let ours = ratios(all, one, rate);
    let cost = MedianRange::of(ratios(all, one, cost))?.median;
    let case = &group.cases[all].case;
    let (cores, MedianRange { median, min, max }) = (case.cores, MedianRange::of(ours.clone())?);
    let text = format!(
        "{cores} cores carry {median:.2} times the messages of one core [{min:.2}, {max:.2}] at {cost:.2} times the \
         processor time of a message"
    );
    if case.test.transport() == Transport::Frames {
        return Some(text);
    }
    let against_frames = ours.iter().zip(frames).map(|(ours, frames)| ours / frames);
    let MedianRange { median, min, max } = MedianRange::of(against_frames)?;
    Some(format!("{text}: {median:.3} times as well as raw frames scale [{min:.3}, {max:.3}]"))
}

/// Describes the latency that a remote word adds to a local one, and compares it with two hops
/// between the cores plus 100 ns.
fn added_latency_note(rounds: &Rounds, local: usize, remote: usize) -> Option<String> {
    /// The time that the owner core may take for its part.
    const SPARE_NS: f64 = 100.0;
    let p50 = |slice: &Slice| slice.latency.as_ref()?.quantile(0.5).map(|ns| ns as f64);
    let pairs = per_round(rounds, remote, p50).zip(per_round(rounds, local, p50));
    let added: Vec<Option<f64>> = pairs.map(|(remote, local)| Some(remote? - local?)).collect();
    let allowed = rounds.rounds.iter().map(|round| round.hop_ns.map(|hop| 2.0 * hop + SPARE_NS));
    let both: Vec<(f64, f64)> =
        added.iter().zip(allowed).filter_map(|(added, allowed)| added.zip(allowed)).collect();
    let MedianRange { median, min, max } = MedianRange::of(added.into_iter().flatten())?;
    let text = format!("{median:.0} ns more than a local word [{min:.0}, {max:.0}]");
    let Some(MedianRange { median, min, max }) = MedianRange::of(both.iter().map(|(_, allowed)| *allowed))
    else {
        return Some(text);
    };
    let (within, all) = (both.iter().filter(|(added, allowed)| added <= allowed).count(), both.len());
    Some(format!(
        "{text}; two hops and 100 ns are {median:.0} ns [{min:.0}, {max:.0}]; {within} of {all} rounds are within that"
    ))
}

fn per_round(
    rounds: &Rounds,
    case: usize,
    figure: fn(&Slice) -> Option<f64>,
) -> impl Iterator<Item = Option<f64>> {
    rounds.case(case).all().map(move |(_, slice)| figure(slice))
}

impl CaseRunner for LoopbackGroup<'_> {
    type Error = Error;

    fn slice(&mut self, index: usize) -> Result<Slice> {
        let planned = &self.group.cases[index];
        self.parent.send(&FromClient::Slice { title: planned.case.title() })?;
        let until = StopCondition { budget: planned.budget, halt: self.halt };
        let case = &planned.case;
        let workers = if case.locked { &mut self.locked } else { &mut self.workers };
        let executed_before = executed(workers);
        let drops = |workers: &mut [LoopbackWorker]| -> u64 {
            workers.iter_mut().map(LoopbackWorker::steering_drops).sum()
        };
        let drops_before = drops(workers);
        let (measured, polled) = (case.cores as usize, polled_workers(case, workers.len()));
        let (begin, remaining) = (Barrier::new(polled), AtomicUsize::new(measured));
        let (processors, ends) = (&self.processors, &self.session.ends);
        let outcomes = on_threads(&mut workers[..polled], |worker_index, worker| {
            // With fewer processors than cores, the threads are not pinned.
            let own = ends.get(worker_index);
            own.map(|own| own.client).or(processors.get(worker_index).copied()).map(pin);
            begin.wait();
            if worker_index >= measured {
                poll_until_all_done(&remaining, worker, LoopbackWorker::poll_mostly_server);
                return Ok(None);
            }
            run_then_poll(&remaining, worker, |worker| {
                let before = cpu_ns();
                let meters = worker.polls_of_ends().map(|polls| UsageMeter::start(CpuClock::Unknown, polls));
                let server_processor = own.map(|own| own.server);
                let (slice, changed) = worker.slice(index, case, until, server_processor)?;
                // Of both ends, where one thread polls them.
                let cpu_ns = server_processor.is_none().then(|| cpu_ns().saturating_sub(before));
                let [client_polls, server_polls] = worker.polls_of_ends();
                let [client, server] = [meters[0].stop(&client_polls), meters[1].stop(&server_polls)];
                Ok(Some((Slice { cpu_ns, client, server, ..slice }, changed)))
            })
        })?;
        let (slices, changed): (Vec<Slice>, Vec<u64>) = outcomes.into_iter().flatten().unzip();
        let changed = changed.iter().sum();
        self.steering_drops[index] += drops(workers) - drops_before;
        let executed = executed(workers);
        let totals = &mut self.atomic_totals[index];
        totals.changed = changed;
        totals.executed = (!case.locked).then(|| {
            let before = totals.executed.unwrap_or_default();
            std::array::from_fn(|at| before[at] + executed[at] - executed_before[at])
        });
        let combined = combine(case, slices);
        Ok(Slice { errors: combined.errors + word_sum_error(workers, index, case, changed)?, ..combined })
    }

    fn hop_ns(&mut self) -> Option<f64> {
        let first_two = || {
            let (&client, &server) = self.processors.first().zip(self.processors.get(1))?;
            Some(CorePair { client, server })
        };
        self.session.ends.first().copied().or_else(first_two).and_then(hop_ns)
    }

    fn interrupted(&mut self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }
}

/// How many workers are polled: all of them if a core that is not measured may own a word. The
/// latency of local words is measured under the same load as that of remote words.
fn polled_workers(case: &Case, all: usize) -> usize {
    let may_own_word = case.test == Test::AtomicLat || (case.owner != WordOwner::Local && !case.locked);
    if case.test.is_atomic() && may_own_word { all } else { case.cores as usize }
}

/// The atomic operations so far that the receiving core executed, those that it forwarded, and
/// those of the first on shared lines.
fn executed(workers: &mut [LoopbackWorker]) -> [u64; 3] {
    let counts = workers.iter_mut().map(LoopbackWorker::atomics);
    counts.fold([0; 3], |sum, one| std::array::from_fn(|at| sum[at] + one[at]))
}

/// The difference between the sum of all words and the number of operations that changed one.
fn word_sum_error(workers: &mut [LoopbackWorker], index: usize, case: &Case, changed: u64) -> Result<u64> {
    if !case.test.is_atomic() {
        return Ok(0);
    }
    // The first worker has the words that all workers share.
    let own = if case.owner == WordOwner::Spread { 1 } else { case.cores as usize };
    let mut sum = 0_u64;
    for worker in workers.iter_mut().take(own) {
        sum = sum.wrapping_add(worker.words_of(index)?.map_or(Ok(0), |words| sum_of(&words))?);
    }
    Ok(sum.abs_diff(changed))
}

/// Combines the slices of all workers. Their rates add up, so each slice is scaled to the duration
/// of the longest.
fn combine(case: &Case, slices: Vec<Slice>) -> Slice {
    let elapsed_ns = slices.iter().map(|slice| slice.elapsed_ns).max().unwrap_or(0);
    let mut sum = Slice { cpu_ns: Some(0), ..Slice::default() };
    let mut messages_by_qp = Vec::new();
    for mut slice in slices {
        let own_ns = u128::from(slice.elapsed_ns.max(1));
        let scaled = |count: u64| (u128::from(count) * u128::from(elapsed_ns) / own_ns) as u64;
        (slice.messages, slice.cpu_ns) = (scaled(slice.messages), slice.cpu_ns.map(scaled));
        messages_by_qp.append(&mut slice.messages_by_qp);
        sum.merge(&slice);
    }
    Slice { bytes: sum.messages * case.bytes, elapsed_ns, messages_by_qp, ..sum }
}
