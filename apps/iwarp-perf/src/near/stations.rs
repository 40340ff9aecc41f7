//! Measuring stations: every core plays both ends, a thread each, and their rates are added up.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ironwarp_bench::host::{Activity, CorePair, allowed, cpu_ns, hop_ns, pin};
use ironwarp_bench::report::Spread;
use ironwarp_bench::rounds::{self, Interrupted, Pair, Rounds, Tally, alternate};
use ironwarp_bench::{Case, Latency, Pace, Slice, Test, Transport, WordOwner};

use super::NearError;
use super::group::since;
use super::words::Account;
use crate::control::{Channel, FromNear, Measured, ToNear};
use crate::plan::{Group, Session};
use crate::rdma::{RdmaError, Station, Words, open_stations, sum_of};

/// A group over stations.
struct OpenStations<'a> {
    parent: &'a Channel<ToNear>,
    halt: &'a AtomicBool,
    group: &'a Group,
    stations: Vec<Station>,
    /// The same over stacks that change words with locked instructions, where a case asks for them.
    locked: Vec<Station>,
    processors: Vec<usize>,
    /// What became of the operations of the cases that are atomic tests.
    accounts: Vec<Account>,
}

/// Measures a session's groups and tells the parent.
pub fn session(parent: &Channel<ToNear>, halt: &AtomicBool, session: &Session) -> Result<(), NearError> {
    for group in &session.groups {
        let locked = group.cases.iter().any(|case| case.case.locked);
        let locked = locked.then(|| open_stations(session, LOCKED)).transpose()?.unwrap_or_default();
        let (stations, processors) = (open_stations(session, "")?, allowed());
        let accounts = vec![Account::default(); group.cases.len()];
        let mut open = OpenStations { parent, halt, group, stations, locked, processors, accounts };
        connect(group, false, &mut open.stations)?;
        connect(group, true, &mut open.locked)?;
        open.measure(session.device.as_deref())?;
    }
    Ok(())
}

/// What the configurations of such stacks say.
const LOCKED: &str = "[rdmap]\natomic_execution = \"locked\"\n";

/// Who is still at work. Whoever is done polls on for the others, since its core may own their words; one that fails or
/// panics is done too, so nobody waits in vain.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does something at a station, then polls it until the others are done too.
fn beside_others<T>(missing: &AtomicUsize, station: &mut Station, work: impl FnOnce(&mut Station) -> T) -> T {
    let busy = Busy(missing);
    let outcome = work(station);
    drop(busy);
    poll_until_none(missing, station, Station::turn);
    outcome
}

/// Polls a station, by `turn`, as long as others are at work, and until what came last is acknowledged: nobody polls it then, and
/// the next slice would begin with repetitions.
fn poll_until_none(missing: &AtomicUsize, station: &mut Station, turn: impl Fn(&mut Station)) {
    /// An acknowledgement is held for one turn.
    const LAST_TURNS: usize = 4;
    while missing.load(Ordering::Relaxed) > 0 {
        turn(station);
    }
    (0..LAST_TURNS).for_each(|_| station.turn());
}

/// Opens every case at every station that takes part.
fn connect(group: &Group, locked: bool, stations: &mut [Station]) -> Result<(), NearError> {
    let Some(first) = stations.first_mut() else { return Ok(()) };
    let cases: Vec<&Case> = group.cases.iter().map(|case| &case.case).collect();
    let shared = |case: &&Case| (case.owner == WordOwner::Spread).then(|| first.words(case)).transpose();
    let words: Vec<Option<Words>> = cases.iter().map(shared).collect::<Result<_, _>>()?;
    let missing = AtomicUsize::new(stations.len());
    let open = |number: usize, station: &mut Station| {
        let mut pairs = cases.iter().zip(&words);
        pairs.try_for_each(|(case, words)| {
            let takes_part = case.locked == locked && number < case.cores as usize;
            station.open(case, takes_part, words.clone())
        })
    };
    let outcomes: Vec<Result<(), RdmaError>> = thread::scope(|scope| {
        let (open, missing, threads) = (&open, &missing, stations.iter_mut().enumerate());
        let threads: Vec<_> = threads
            .map(|(number, station)| {
                scope.spawn(move || beside_others(missing, station, |station| open(number, station)))
            })
            .collect();
        threads.into_iter().map(joined).collect()
    });
    outcomes.into_iter().try_for_each(|outcome| outcome).map_err(NearError::from)
}

impl OpenStations<'_> {
    fn measure(&mut self, device: Option<&str>) -> Result<(), NearError> {
        let polls: Vec<_> = self.stations.iter().flat_map(Station::polls).collect();
        let group = self.group;
        let plan = rounds::Plan {
            cases: group.cases.len(),
            floor: group.floor,
            rounds: group.rounds,
            spare_rounds: group.spare_rounds,
        };
        let (rounds, why) = alternate(self, &plan);
        if let Some(Interrupted::Failed { case, error }) = why {
            return Err(NearError::Case { title: group.cases[case].case.title(), source: Box::new(error) });
        }
        if rounds.rounds.is_empty() {
            return Ok(());
        }
        let polls = since(&polls, self.stations.iter().flat_map(Station::polls).collect());
        let results = (0..group.cases.len()).map(|index| {
            let mut measured = measured(group, &rounds, index, device);
            let cores = group.cases[index].case.cores as usize;
            self.accounts[index].note(&group.cases[index].case, &mut measured.result);
            measured.result.polls = Some(polls.iter().take(cores).copied().collect());
            measured
        });
        Ok(self.parent.send(&FromNear::Results(results.collect()))?)
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T, RdmaError>>) -> Result<T, RdmaError> {
    thread.join().unwrap_or(Err(RdmaError::NoDevice))
}

fn measured(group: &Group, rounds: &Rounds, index: usize, device: Option<&str>) -> Measured {
    let wanted = &group.cases[index];
    let case = &wanted.case;
    let baselines: Vec<_> =
        wanted.against.iter().map(|&other| (&group.cases[other].case, rounds.case(other))).collect();
    let tally = Tally::of(&rounds.case(index));
    let mut result = tally.result(case, device.map(str::to_owned), &rounds.case(index), &baselines);
    let note = match (case.test, wanted.against.first()) {
        (Test::AtomicLat, Some(&one)) if case.owner == WordOwner::Remote => added_note(rounds, one, index),
        (_, Some(&one)) if case.cores > 1 => scaling_note(group, rounds, one, index),
        _ => None,
    };
    result.notes.extend(note);
    Measured { result, latency: tally.latency.as_ref().map(Latency::to_text) }
}

/// How well a test scales, beside how raw frames do: round by round, the median of the rounds.
fn scaling_note(group: &Group, rounds: &Rounds, one: usize, all: usize) -> Option<String> {
    let is_frames = |cores: bool| {
        group.cases.iter().position(|case| case.case.test == Test::FrameBw && (case.case.cores > 1) == cores)
    };
    let frames = growth(rounds, is_frames(false)?, is_frames(true)?);
    let ours = growth(rounds, one, all);
    let case = &group.cases[all].case;
    let times = Spread::of(ours.clone())?;
    let (cores, Spread { median, min, max }) = (case.cores, times);
    let cost = cpu_growth(rounds, one, all)?;
    let of_one = format!(
        "{cores} cores carry {median:.2} times what one does [{min:.2}, {max:.2}] at {cost:.2} times its processor time a \
         message"
    );
    if case.test.transport() == Transport::Frames {
        return Some(of_one);
    }
    let Spread { median, min, max } = Spread::of(ours.zip(frames).map(|(ours, frames)| ours / frames))?;
    Some(format!("{of_one}: {median:.3} times as well as raw frames scale [{min:.3}, {max:.3}]"))
}

/// What a round trip to a remote word takes more than one to a word at hand, beside what two hops between the cores and
/// a tenth of a microsecond take: round by round, the median.
fn added_note(rounds: &Rounds, one: usize, other: usize) -> Option<String> {
    /// What the owner core may take for its part.
    const SPARE_NS: f64 = 100.0;
    let middle = |case: usize| {
        let of = |slice: &Slice| slice.latency.as_ref()?.quantile(0.5);
        rounds.case(case).all().map(|(_, slice)| of(slice)).collect::<Vec<_>>()
    };
    let pairs = middle(other).into_iter().zip(middle(one));
    let added: Vec<Option<f64>> =
        pairs.map(|(other, one)| other.zip(one).map(|(other, one)| other as f64 - one as f64)).collect();
    let allowed = rounds.rounds.iter().map(|round| round.hop_ns.map(|hop| 2.0 * hop + SPARE_NS));
    let both: Vec<(f64, f64)> =
        added.iter().copied().zip(allowed).filter_map(|(added, allowed)| added.zip(allowed)).collect();
    let Spread { median, min, max } = Spread::of(added.into_iter().flatten())?;
    let text = format!("{median:.0} ns above at hand [{min:.0}, {max:.0}]");
    let Some(Spread { median, min, max }) = Spread::of(both.iter().map(|(_, allowed)| *allowed)) else {
        return Some(text);
    };
    let (within, all) = (both.iter().filter(|(added, allowed)| added <= allowed).count(), both.len());
    Some(format!(
        "{text}; two hops and 100 ns are {median:.0} ns [{min:.0}, {max:.0}]; no more than that in {within} of {all} rounds"
    ))
}

/// What all cores carried over what one did, round by round.
fn growth<'r>(rounds: &'r Rounds, one: usize, all: usize) -> impl Iterator<Item = f64> + Clone + 'r {
    let rate = |slice: &Slice| slice.messages as f64 / slice.elapsed_ns.max(1) as f64;
    let rates =
        move |case: usize| rounds.case(case).all().map(move |(_, slice)| rate(slice)).collect::<Vec<_>>();
    let pairs: Vec<f64> = rates(all).into_iter().zip(rates(one)).map(|(all, one)| all / one).collect();
    pairs.into_iter()
}

/// What a message costs in processor time on all cores over what it does on one: the median of the rounds. It holds where
/// others want the processors too.
fn cpu_growth(rounds: &Rounds, one: usize, all: usize) -> Option<f64> {
    let cost = |slice: &Slice| slice.cpu_ns.map(|ns| ns as f64 / slice.messages.max(1) as f64);
    let costs =
        |case: usize| rounds.case(case).all().filter_map(|(_, slice)| cost(slice)).collect::<Vec<_>>();
    Spread::of(costs(all).into_iter().zip(costs(one)).map(|(all, one)| all / one)).map(|spread| spread.median)
}

impl Pair for OpenStations<'_> {
    type Error = NearError;

    fn slice(&mut self, number: usize) -> Result<Slice, NearError> {
        let wanted = &self.group.cases[number];
        self.parent.send(&FromNear::Slice { title: wanted.case.title() })?;
        let pace = Pace { budget: wanted.budget, halt: self.halt };
        let case = &wanted.case;
        let stations = if case.locked { &mut self.locked } else { &mut self.stations };
        let done_before = done(stations);
        let (measured, polled) = (case.cores as usize, polled(case, stations.len()));
        let (begin, missing) = (Barrier::new(polled), AtomicUsize::new(measured));
        let processors = &self.processors;
        let outcomes: Vec<Result<(Slice, u64), RdmaError>> = thread::scope(|scope| {
            let taking = stations.iter_mut().take(polled).enumerate();
            let threads: Vec<_> = taking
                .map(|(place, station)| {
                    let (begin, missing, processor) = (&begin, &missing, processors.get(place).copied());
                    scope.spawn(move || {
                        // Where there are fewer processors than cores, the system shares them out.
                        processor.map(pin);
                        begin.wait();
                        if place >= measured {
                            poll_until_none(missing, station, Station::stand_by);
                            return Ok(Default::default());
                        }
                        beside_others(missing, station, |station| {
                            let before = cpu_ns();
                            let (slice, changed) = station.slice(number, case, pace)?;
                            Ok((Slice { cpu_ns: Some(cpu_ns().saturating_sub(before)), ..slice }, changed))
                        })
                    })
                })
                .collect();
            threads.into_iter().map(joined).collect()
        });
        let outcomes: Vec<(Slice, u64)> = outcomes.into_iter().collect::<Result<_, _>>()?;
        let changed = outcomes.iter().map(|(_, changed)| changed).sum();
        let slices = outcomes.into_iter().take(measured).map(|(slice, _)| slice).collect();
        let whole = together(case, slices);
        let done = done(stations);
        let account = &mut self.accounts[number];
        account.changed = changed;
        account.done = (!case.locked).then(|| {
            let before = account.done.unwrap_or_default();
            std::array::from_fn(|at| before[at] + done[at] - done_before[at])
        });
        Ok(Slice { errors: whole.errors + wrong_words(stations, number, case, changed)?, ..whole })
    }

    fn hop_ns(&mut self) -> Option<f64> {
        let pair = self.processors.first().zip(self.processors.get(1));
        pair.and_then(|(&near, &far)| hop_ns(CorePair { near, far }))
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
fn polled(case: &Case, all: usize) -> usize {
    let elsewhere = case.test == Test::AtomicLat || (case.owner != WordOwner::Local && !case.locked);
    if case.test.is_atomic() && elsewhere { all } else { case.cores as usize }
}

/// What the far ends have done with atomic operations so far.
fn done(stations: &mut [Station]) -> [u64; 2] {
    stations.iter_mut().map(Station::atomics).fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
}

/// By how much the words of all stations differ from the number of operations that changed one.
fn wrong_words(stations: &mut [Station], number: usize, case: &Case, changed: u64) -> Result<u64, RdmaError> {
    if !case.test.is_atomic() {
        return Ok(0);
    }
    // Words that stations share are the first one's.
    let own = if case.owner == WordOwner::Spread { 1 } else { case.cores as usize };
    let sets = stations.iter_mut().take(own).map(|station| station.words_of(number));
    let mut sum = 0_u64;
    for words in sets {
        sum = sum.wrapping_add(words?.map_or(Ok(0), |words| sum_of(&words))?);
    }
    Ok(sum.abs_diff(changed))
}

/// All stations' slices as one: their rates add up, so each is taken to have gone on as long as the longest.
fn together(case: &Case, slices: Vec<Slice>) -> Slice {
    let elapsed_ns = slices.iter().map(|slice| slice.elapsed_ns).max().unwrap_or(0);
    let stretched = |slice: &Slice, what: u64| {
        (u128::from(what) * u128::from(elapsed_ns) / u128::from(slice.elapsed_ns.max(1))) as u64
    };
    let messages = slices.iter().map(|slice| stretched(slice, slice.messages)).sum::<u64>();
    let cpu_ns = slices.iter().map(|slice| slice.cpu_ns.map(|ns| stretched(slice, ns))).sum();
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
