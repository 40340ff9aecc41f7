//! Measuring stations: every core plays both ends, a thread each, and their rates are added up.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ironwarp_bench::host::{Activity, CorePair, allowed, cpu_ns, hop_ns, pin};
use ironwarp_bench::report::MedianRange;
use ironwarp_bench::rounds::{self, CaseRunner, CaseTotals, EndedEarly, Rounds, alternate};
use ironwarp_bench::{Case, Latency, Slice, StopCondition, Test, Transport, WordOwner};

use super::ClientError;
use super::atomic_totals::AtomicTotals;
use super::group::polls_since;
use crate::control::{Channel, FromClient, Measured, ToClient};
use crate::plan::{Group, Session};
use crate::rdma::{AtomicWords, LoopbackWorker, RdmaError, open_loopback_workers, sum_of};

/// A group over stations.
struct LoopbackGroup<'a> {
    parent: &'a Channel<ToClient>,
    halt: &'a AtomicBool,
    group: &'a Group,
    workers: Vec<LoopbackWorker>,
    /// The same over stacks that change words with locked instructions, where a case asks for them.
    locked: Vec<LoopbackWorker>,
    processors: Vec<usize>,
    /// What became of the operations of the cases that are atomic tests.
    atomic_totals: Vec<AtomicTotals>,
}

/// Measures a session's groups and tells the parent.
pub fn session(parent: &Channel<ToClient>, halt: &AtomicBool, session: &Session) -> Result<(), ClientError> {
    for group in &session.groups {
        let locked = group.cases.iter().any(|case| case.case.locked);
        let locked = locked.then(|| open_loopback_workers(session, LOCKED)).transpose()?.unwrap_or_default();
        let (workers, processors) = (open_loopback_workers(session, "")?, allowed());
        let atomic_totals = vec![AtomicTotals::default(); group.cases.len()];
        let mut open = LoopbackGroup { parent, halt, group, workers, locked, processors, atomic_totals };
        connect(group, false, &mut open.workers)?;
        connect(group, true, &mut open.locked)?;
        open.measure(session.device.as_deref())?;
    }
    Ok(())
}

/// What the configurations of such stacks say.
const LOCKED: &str = "[rdmap]\natomic_execution = \"locked\"\n";

/// The loopback workers that still measure. A finished one polls on for the others, since its core may own their words; one that fails or
/// panics is done too, so nobody waits in vain.
struct DoneGuard<'a>(&'a AtomicUsize);

impl Drop for DoneGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does something at a station, then polls it until the others are done too.
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

/// Polls a station, by `poll`, as long as others are at work, and until the last received data is acknowledged: nobody polls it then, and
/// the next slice would begin with repetitions.
fn poll_until_all_done(
    remaining: &AtomicUsize,
    worker: &mut LoopbackWorker,
    poll: impl Fn(&mut LoopbackWorker),
) {
    /// An acknowledgement is held for one turn.
    const FINAL_POLLS: usize = 4;
    while remaining.load(Ordering::Relaxed) > 0 {
        poll(worker);
    }
    (0..FINAL_POLLS).for_each(|_| worker.poll());
}

/// Opens every case at every station that takes part.
fn connect(group: &Group, locked: bool, workers: &mut [LoopbackWorker]) -> Result<(), ClientError> {
    let Some(first) = workers.first_mut() else { return Ok(()) };
    let cases: Vec<&Case> = group.cases.iter().map(|case| &case.case).collect();
    let shared = |case: &&Case| (case.owner == WordOwner::Spread).then(|| first.words(case)).transpose();
    let words: Vec<Option<AtomicWords>> = cases.iter().map(shared).collect::<Result<_, _>>()?;
    let remaining = AtomicUsize::new(workers.len());
    let open = |number: usize, worker: &mut LoopbackWorker| {
        let mut pairs = cases.iter().zip(&words);
        pairs.try_for_each(|(case, words)| {
            let participates = case.locked == locked && number < case.cores as usize;
            worker.open(case, participates, words.clone())
        })
    };
    let outcomes: Vec<Result<(), RdmaError>> = thread::scope(|scope| {
        let (open, remaining, threads) = (&open, &remaining, workers.iter_mut().enumerate());
        let threads: Vec<_> = threads
            .map(|(number, worker)| {
                scope.spawn(move || run_then_poll(remaining, worker, |worker| open(number, worker)))
            })
            .collect();
        threads.into_iter().map(join_thread).collect()
    });
    outcomes.into_iter().try_for_each(|outcome| outcome).map_err(ClientError::from)
}

impl LoopbackGroup<'_> {
    fn measure(&mut self, device: Option<&str>) -> Result<(), ClientError> {
        let polls: Vec<_> = self.workers.iter().flat_map(LoopbackWorker::polls).collect();
        let group = self.group;
        let plan = rounds::RoundPlan {
            cases: group.cases.len(),
            floor: group.floor,
            rounds: group.rounds,
            spare_rounds: group.spare_rounds,
        };
        let (rounds, why) = alternate(self, &plan);
        if let Some(EndedEarly::Failed { case, error }) = why {
            return Err(ClientError::Case { title: group.cases[case].case.title(), source: Box::new(error) });
        }
        if rounds.rounds.is_empty() {
            return Ok(());
        }
        let polls = polls_since(&polls, self.workers.iter().flat_map(LoopbackWorker::polls).collect());
        let results = (0..group.cases.len()).map(|index| {
            let mut measured = measured(group, &rounds, index, device);
            let cores = group.cases[index].case.cores as usize;
            self.atomic_totals[index].add_notes(&group.cases[index].case, &mut measured.result);
            measured.result.polls = Some(polls.iter().take(cores).copied().collect());
            measured
        });
        Ok(self.parent.send(&FromClient::Results(results.collect()))?)
    }
}

fn join_thread<T>(thread: thread::ScopedJoinHandle<'_, Result<T, RdmaError>>) -> Result<T, RdmaError> {
    thread.join().unwrap_or(Err(RdmaError::NoDevice))
}

fn measured(group: &Group, rounds: &Rounds, index: usize, device: Option<&str>) -> Measured {
    let wanted = &group.cases[index];
    let case = &wanted.case;
    let baselines: Vec<_> =
        wanted.against.iter().map(|&other| (&group.cases[other].case, rounds.case(other))).collect();
    let totals = CaseTotals::of(&rounds.case(index));
    let mut result = totals.result(case, device.map(str::to_owned), &rounds.case(index), &baselines);
    let note = match (case.test, wanted.against.first()) {
        (Test::AtomicLat, Some(&one)) if case.owner == WordOwner::Remote => {
            added_latency_note(rounds, one, index)
        }
        (_, Some(&one)) if case.cores > 1 => scaling_note(group, rounds, one, index),
        _ => None,
    };
    result.notes.extend(note);
    Measured { result, latency: totals.latency.as_ref().map(Latency::to_text) }
}

/// How well a test scales, beside how raw frames do: round by round, the median of the rounds.
fn scaling_note(group: &Group, rounds: &Rounds, one: usize, all: usize) -> Option<String> {
    let is_frames = |cores: bool| {
        group.cases.iter().position(|case| case.case.test == Test::FrameBw && (case.case.cores > 1) == cores)
    };
    let frames = rate_ratios(rounds, is_frames(false)?, is_frames(true)?);
    let ours = rate_ratios(rounds, one, all);
    let case = &group.cases[all].case;
    let times = MedianRange::of(ours.clone())?;
    let (cores, MedianRange { median, min, max }) = (case.cores, times);
    let cost = cpu_ratio(rounds, one, all)?;
    let of_one = format!(
        "{cores} cores carry {median:.2} times what one does [{min:.2}, {max:.2}] at {cost:.2} times its processor time a \
         message"
    );
    if case.test.transport() == Transport::Frames {
        return Some(of_one);
    }
    let MedianRange { median, min, max } =
        MedianRange::of(ours.zip(frames).map(|(ours, frames)| ours / frames))?;
    Some(format!("{of_one}: {median:.3} times as well as raw frames scale [{min:.3}, {max:.3}]"))
}

/// What a round trip to a remote word takes more than one to a word at hand, beside what two hops between the cores and
/// a tenth of a microsecond take: round by round, the median.
fn added_latency_note(rounds: &Rounds, one: usize, other: usize) -> Option<String> {
    /// What the owner core may take for its part.
    const SPARE_NS: f64 = 100.0;
    let medians = |case: usize| {
        let of = |slice: &Slice| slice.latency.as_ref()?.quantile(0.5);
        rounds.case(case).all().map(|(_, slice)| of(slice)).collect::<Vec<_>>()
    };
    let pairs = medians(other).into_iter().zip(medians(one));
    let added: Vec<Option<f64>> =
        pairs.map(|(other, one)| other.zip(one).map(|(other, one)| other as f64 - one as f64)).collect();
    let allowed = rounds.rounds.iter().map(|round| round.hop_ns.map(|hop| 2.0 * hop + SPARE_NS));
    let both: Vec<(f64, f64)> =
        added.iter().copied().zip(allowed).filter_map(|(added, allowed)| added.zip(allowed)).collect();
    let MedianRange { median, min, max } = MedianRange::of(added.into_iter().flatten())?;
    let text = format!("{median:.0} ns above at hand [{min:.0}, {max:.0}]");
    let Some(MedianRange { median, min, max }) = MedianRange::of(both.iter().map(|(_, allowed)| *allowed))
    else {
        return Some(text);
    };
    let (within, all) = (both.iter().filter(|(added, allowed)| added <= allowed).count(), both.len());
    Some(format!(
        "{text}; two hops and 100 ns are {median:.0} ns [{min:.0}, {max:.0}]; no more than that in {within} of {all} rounds"
    ))
}

/// What all cores carried over what one did, round by round.
fn rate_ratios<'r>(rounds: &'r Rounds, one: usize, all: usize) -> impl Iterator<Item = f64> + Clone + 'r {
    let rate = |slice: &Slice| slice.messages as f64 / slice.elapsed_ns.max(1) as f64;
    let rates =
        move |case: usize| rounds.case(case).all().map(move |(_, slice)| rate(slice)).collect::<Vec<_>>();
    let pairs: Vec<f64> = rates(all).into_iter().zip(rates(one)).map(|(all, one)| all / one).collect();
    pairs.into_iter()
}

/// What a message costs in processor time on all cores over what it does on one: the median of the rounds. It holds where
/// others want the processors too.
fn cpu_ratio(rounds: &Rounds, one: usize, all: usize) -> Option<f64> {
    let cost = |slice: &Slice| slice.cpu_ns.map(|ns| ns as f64 / slice.messages.max(1) as f64);
    let costs =
        |case: usize| rounds.case(case).all().filter_map(|(_, slice)| cost(slice)).collect::<Vec<_>>();
    MedianRange::of(costs(all).into_iter().zip(costs(one)).map(|(all, one)| all / one))
        .map(|spread| spread.median)
}

impl CaseRunner for LoopbackGroup<'_> {
    type Error = ClientError;

    fn slice(&mut self, number: usize) -> Result<Slice, ClientError> {
        let wanted = &self.group.cases[number];
        self.parent.send(&FromClient::Slice { title: wanted.case.title() })?;
        let until = StopCondition { budget: wanted.budget, halt: self.halt };
        let case = &wanted.case;
        let workers = if case.locked { &mut self.locked } else { &mut self.workers };
        let executed_before = executed(workers);
        let (measured, polled) = (case.cores as usize, polled_workers_of(case, workers.len()));
        let (begin, remaining) = (Barrier::new(polled), AtomicUsize::new(measured));
        let processors = &self.processors;
        let outcomes: Vec<Result<(Slice, u64), RdmaError>> = thread::scope(|scope| {
            let polled_workers = workers.iter_mut().take(polled).enumerate();
            let threads: Vec<_> = polled_workers
                .map(|(index, worker)| {
                    let (begin, remaining, processor) = (&begin, &remaining, processors.get(index).copied());
                    scope.spawn(move || {
                        // Where there are fewer processors than cores, the system shares them out.
                        processor.map(pin);
                        begin.wait();
                        if index >= measured {
                            poll_until_all_done(remaining, worker, LoopbackWorker::poll_mostly_server);
                            return Ok(Default::default());
                        }
                        run_then_poll(remaining, worker, |worker| {
                            let before = cpu_ns();
                            let (slice, changed) = worker.slice(number, case, until)?;
                            Ok((Slice { cpu_ns: Some(cpu_ns().saturating_sub(before)), ..slice }, changed))
                        })
                    })
                })
                .collect();
            threads.into_iter().map(join_thread).collect()
        });
        let outcomes: Vec<(Slice, u64)> = outcomes.into_iter().collect::<Result<_, _>>()?;
        let changed = outcomes.iter().map(|(_, changed)| changed).sum();
        let slices = outcomes.into_iter().take(measured).map(|(slice, _)| slice).collect();
        let whole = combine(case, slices);
        let executed = executed(workers);
        let totals = &mut self.atomic_totals[number];
        totals.changed = changed;
        totals.executed = (!case.locked).then(|| {
            let before = totals.executed.unwrap_or_default();
            std::array::from_fn(|at| before[at] + executed[at] - executed_before[at])
        });
        Ok(Slice { errors: whole.errors + word_sum_error(workers, number, case, changed)?, ..whole })
    }

    fn hop_ns(&mut self) -> Option<f64> {
        let pair = self.processors.first().zip(self.processors.get(1));
        pair.and_then(|(&client, &server)| hop_ns(CorePair { client, server }))
    }

    fn activity(&mut self) -> Activity {
        Activity::now()
    }

    fn interrupted(&mut self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }
}

/// Stations that are polled: all of them where the core of one that is not measured may own a word. Latency of words at hand
/// is measured beside others that are not, so it is measured alike.
fn polled_workers_of(case: &Case, all: usize) -> usize {
    let may_own_word = case.test == Test::AtomicLat || (case.owner != WordOwner::Local && !case.locked);
    if case.test.is_atomic() && may_own_word { all } else { case.cores as usize }
}

/// What the far ends have done with atomic operations so far.
fn executed(workers: &mut [LoopbackWorker]) -> [u64; 2] {
    workers
        .iter_mut()
        .map(LoopbackWorker::atomics)
        .fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
}

/// By how much the words of all stations differ from the number of operations that changed one.
fn word_sum_error(
    workers: &mut [LoopbackWorker],
    number: usize,
    case: &Case,
    changed: u64,
) -> Result<u64, RdmaError> {
    if !case.test.is_atomic() {
        return Ok(0);
    }
    // Words that stations share are the first one's.
    let own = if case.owner == WordOwner::Spread { 1 } else { case.cores as usize };
    let sets = workers.iter_mut().take(own).map(|worker| worker.words_of(number));
    let mut sum = 0_u64;
    for words in sets {
        sum = sum.wrapping_add(words?.map_or(Ok(0), |words| sum_of(&words))?);
    }
    Ok(sum.abs_diff(changed))
}

/// All stations' slices as one: their rates add up, so each is taken to have gone on as long as the longest.
fn combine(case: &Case, slices: Vec<Slice>) -> Slice {
    let elapsed_ns = slices.iter().map(|slice| slice.elapsed_ns).max().unwrap_or(0);
    let scaled = |slice: &Slice, what: u64| {
        (u128::from(what) * u128::from(elapsed_ns) / u128::from(slice.elapsed_ns.max(1))) as u64
    };
    let messages = slices.iter().map(|slice| scaled(slice, slice.messages)).sum::<u64>();
    let cpu_ns = slices.iter().map(|slice| slice.cpu_ns.map(|ns| scaled(slice, ns))).sum();
    Slice {
        messages,
        bytes: messages * case.bytes,
        elapsed_ns,
        cpu_ns,
        errors: slices.iter().map(|slice| slice.errors).sum(),
        verified_bytes: slices.iter().map(|slice| slice.verified_bytes).sum(),
        latency: latency_of(slices),
    }
}

/// The round trips of all stations.
fn latency_of(slices: Vec<Slice>) -> Option<Latency> {
    slices.into_iter().filter_map(|slice| slice.latency).reduce(|mut all, one| {
        all.merge(&one);
        all
    })
}
