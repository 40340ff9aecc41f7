//! Measuring stations: every core plays both ends, a thread each, and their rates are added up.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ironwarp_bench::host::{Activity, CorePair, allowed, cpu_ns, hop_ns, pin};
use ironwarp_bench::report::Spread;
use ironwarp_bench::rounds::{self, Interrupted, Pair, Rounds, Tally, alternate};
use ironwarp_bench::{Case, Pace, Slice, Test, Transport};

use super::NearError;
use super::group::since;
use crate::control::{Channel, FromNear, Measured, ToNear};
use crate::plan::{Group, Session};
use crate::rdma::{RdmaError, Station, open_stations};

/// A group over stations.
struct OpenStations<'a> {
    parent: &'a Channel<ToNear>,
    halt: &'a AtomicBool,
    group: &'a Group,
    stations: Vec<Station>,
    processors: Vec<usize>,
}

/// Measures a session's groups and tells the parent.
pub fn session(parent: &Channel<ToNear>, halt: &AtomicBool, session: &Session) -> Result<(), NearError> {
    for group in &session.groups {
        let (stations, processors) = (open_stations(session)?, allowed());
        let mut open = OpenStations { parent, halt, group, stations, processors };
        open.connect()?;
        open.measure(session.device.as_deref())?;
    }
    Ok(())
}

impl OpenStations<'_> {
    /// Opens every case at every station that takes part. Whoever is ready polls on for the others.
    fn connect(&mut self) -> Result<(), NearError> {
        let (missing, failed) = (AtomicUsize::new(self.stations.len()), AtomicBool::new(false));
        let group = self.group;
        let open = |number: usize, station: &mut Station| {
            let mut cases = group.cases.iter().map(|case| &case.case);
            let outcome = cases.try_for_each(|case| station.open(case, number < case.cores as usize));
            failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            missing.fetch_sub(1, Ordering::Relaxed);
            while missing.load(Ordering::Relaxed) > 0 && !failed.load(Ordering::Relaxed) {
                station.turn();
            }
            outcome
        };
        let outcomes = thread::scope(|scope| {
            let (open, threads) = (&open, self.stations.iter_mut().enumerate());
            let threads: Vec<_> =
                threads.map(|(number, station)| scope.spawn(move || open(number, station))).collect();
            threads.into_iter().map(joined).collect::<Vec<_>>()
        });
        outcomes.into_iter().try_for_each(|outcome| outcome).map_err(NearError::from)
    }

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
            measured.result.polls = Some(polls.iter().take(cores).copied().collect());
            measured
        });
        Ok(self.parent.send(&FromNear::Results(results.collect()))?)
    }
}

fn joined(thread: thread::ScopedJoinHandle<'_, Result<(), RdmaError>>) -> Result<(), RdmaError> {
    thread.join().unwrap_or(Err(RdmaError::NoDevice))
}

fn measured(group: &Group, rounds: &Rounds, index: usize, device: Option<&str>) -> Measured {
    let wanted = &group.cases[index];
    let case = &wanted.case;
    let baselines: Vec<_> =
        wanted.against.iter().map(|&other| (&group.cases[other].case, rounds.case(other))).collect();
    let tally = Tally::of(&rounds.case(index));
    let mut result = tally.result(case, device.map(str::to_owned), &rounds.case(index), &baselines);
    if let Some(note) = wanted.against.first().and_then(|&one| scaling_note(group, rounds, one, index)) {
        result.notes.push(note);
    }
    Measured { result, latency: None }
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
        let begin = Barrier::new(case.cores as usize);
        let processors = &self.processors;
        let slices: Vec<Result<Slice, RdmaError>> = thread::scope(|scope| {
            let taking = self.stations.iter_mut().take(case.cores as usize).enumerate();
            let threads: Vec<_> = taking
                .map(|(place, station)| {
                    let (begin, processor) = (&begin, processors.get(place).copied());
                    scope.spawn(move || {
                        // Where there are fewer processors than cores, the system shares them out.
                        processor.map(pin);
                        begin.wait();
                        let before = cpu_ns();
                        let slice = station.slice(number, case, pace)?;
                        Ok(Slice { cpu_ns: Some(cpu_ns().saturating_sub(before)), ..slice })
                    })
                })
                .collect();
            threads.into_iter().map(|one| one.join().unwrap_or(Err(RdmaError::NoDevice))).collect()
        });
        together(case, slices)
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

/// All stations' slices as one: their rates add up, so each is taken to have gone on as long as the longest.
fn together(case: &Case, slices: Vec<Result<Slice, RdmaError>>) -> Result<Slice, NearError> {
    let slices: Vec<Slice> = slices.into_iter().collect::<Result<_, _>>()?;
    let elapsed_ns = slices.iter().map(|slice| slice.elapsed_ns).max().unwrap_or(0);
    let stretched = |slice: &Slice, what: u64| {
        (u128::from(what) * u128::from(elapsed_ns) / u128::from(slice.elapsed_ns.max(1))) as u64
    };
    let messages = slices.iter().map(|slice| stretched(slice, slice.messages)).sum::<u64>();
    let cpu_ns = slices.iter().map(|slice| slice.cpu_ns.map(|ns| stretched(slice, ns))).sum();
    Ok(Slice {
        messages,
        bytes: messages * case.bytes,
        elapsed_ns,
        cpu_ns,
        errors: slices.iter().map(|slice| slice.errors).sum(),
        verified_bytes: slices.iter().map(|slice| slice.verified_bytes).sum(),
        latency: None,
    })
}
