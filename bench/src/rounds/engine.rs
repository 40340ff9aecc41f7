//! The alternation itself.

use crate::Slice;
use crate::host::Activity;
use crate::report::MedianRange;

/// A round whose floor moves by more than this share is dropped.
const FLOOR_MOVED_MAX: f64 = 0.2;
/// Rounds of an unlimited run that are kept in memory, each with a histogram of about 220 KiB.
const ROUNDS_KEPT: usize = 256;

/// Two ends that can measure any case of a group, given by its index.
pub trait CaseRunner {
    /// Why a slice could not be measured.
    type Error;

    fn slice(&mut self, case: usize) -> Result<Slice, Self::Error>;

    /// The transfer time of a cache line between the cores of the two ends, in nanoseconds.
    fn hop_ns(&mut self) -> Option<f64>;

    fn activity(&mut self) -> Activity {
        Activity::now()
    }

    /// Whether to stop before the next slice, as a user asked.
    fn interrupted(&mut self) -> bool;
}

/// How a group is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundPlan {
    pub cases: usize,
    /// The case that is the group's floor. Absent: the core-to-core hop is.
    pub floor: Option<usize>,
    /// Rounds to measure; [`RoundPlan::UNLIMITED`] until the user asks to stop.
    pub rounds: u32,
    /// Limit of additional rounds that replace dropped ones.
    pub spare_rounds: u32,
}

impl RoundPlan {
    /// The number of rounds of a run that ends when the user asks.
    pub const UNLIMITED: u32 = u32::MAX;
}

/// Why the rounds ended before their time.
#[derive(Debug, PartialEq, Eq)]
pub enum EndedEarly<E> {
    ByUser,
    Failed { case: usize, error: E },
}

/// The rounds of a group.
#[derive(Debug)]
pub struct Rounds {
    pub rounds: Vec<Round>,
}

/// One round: every case once.
#[derive(Debug)]
pub struct Round {
    /// One slice per case, in the order of the group.
    pub slices: Vec<Slice>,
    /// The transfer time of a cache line between the two cores.
    pub hop_ns: Option<f64>,
    /// The disturbances during the round.
    pub activity: Activity,
    /// The relative change of the floor during the round.
    pub floor_moved: Option<f64>,
}

/// One case's slices over the rounds.
pub struct CaseRounds<'a> {
    rounds: &'a Rounds,
    case: usize,
}

/// Measures a group. Completed rounds are returned even when the last one was interrupted.
pub fn alternate<P: CaseRunner>(runner: &mut P, plan: &RoundPlan) -> (Rounds, Option<EndedEarly<P::Error>>) {
    let mut done = Rounds { rounds: Vec::new() };
    let why = done.measure(runner, plan).err();
    (done, why)
}

fn measure_case<P: CaseRunner>(runner: &mut P, case: usize) -> Result<Slice, EndedEarly<P::Error>> {
    if runner.interrupted() {
        return Err(EndedEarly::ByUser);
    }
    runner.slice(case).map_err(|error| EndedEarly::Failed { case, error })
}

/// The change of the floor between the beginnings of two rounds.
fn relative_change(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    let (before, after) = (before.filter(|cost| *cost > 0.0)?, after.filter(|cost| *cost > 0.0)?);
    Some((after - before).abs() / before.min(after))
}

impl Rounds {
    /// Adds rounds until the plan is fulfilled. A round ends with the floor that the next one
    /// begins with.
    fn measure<P: CaseRunner>(
        &mut self,
        runner: &mut P,
        plan: &RoundPlan,
    ) -> Result<(), EndedEarly<P::Error>> {
        let mut last_floor = None;
        loop {
            let (before, hop_ns) = (runner.activity(), runner.hop_ns());
            let mut slices: Vec<Option<Slice>> = (0..plan.cases).map(|_| None).collect();
            let mut floor = hop_ns;
            if let Some(case) = plan.floor {
                floor = slices[case].insert(measure_case(runner, case)?).cost();
            }
            if let Some(last) = self.rounds.last_mut() {
                last.floor_moved = relative_change(last_floor, floor);
            }
            if plan.rounds == RoundPlan::UNLIMITED && self.rounds.len() >= ROUNDS_KEPT {
                self.halve();
            }
            if self.is_enough(plan) {
                return Ok(());
            }
            for (case, slice) in slices.iter_mut().enumerate().filter(|(case, _)| plan.floor != Some(*case)) {
                *slice = Some(measure_case(runner, case)?);
            }
            let (slices, activity) =
                (slices.into_iter().flatten().collect(), runner.activity().since(&before));
            self.rounds.push(Round { slices, hop_ns, activity, floor_moved: None });
            last_floor = floor;
        }
    }

    fn is_enough(&self, plan: &RoundPlan) -> bool {
        let (kept, all) = (self.steady() as u32, self.rounds.len() as u32);
        kept >= plan.rounds || all >= plan.rounds.saturating_add(plan.spare_rounds)
    }

    fn steady(&self) -> usize {
        self.rounds.iter().filter(|round| round.is_steady()).count()
    }

    /// Whether any round is steady. Without one all rounds count, and the result has a note.
    pub fn has_steady(&self) -> bool {
        self.steady() > 0
    }

    pub fn counted(&self) -> impl Iterator<Item = &Round> {
        let any = !self.has_steady();
        self.rounds.iter().filter(move |round| any || round.is_steady())
    }

    /// Rounds that do not.
    pub fn dropped(&self) -> usize {
        self.rounds.len() - self.steady()
    }

    pub fn case(&self, case: usize) -> CaseRounds<'_> {
        CaseRounds { rounds: self, case }
    }

    /// Merges pairs of rounds, so that an unlimited run needs a limited amount of memory. Steady
    /// rounds are merged with steady ones, because the others may not count.
    fn halve(&mut self) {
        let (steady, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.rounds).into_iter().partition(Round::is_steady);
        for rounds in [steady, others] {
            let mut rounds = rounds.into_iter();
            while let Some(first) = rounds.next() {
                self.rounds.push(match rounds.next() {
                    Some(second) => first.merge(second),
                    None => first,
                });
            }
        }
    }
}

impl Round {
    /// Adds another round of the same cases.
    fn merge(mut self, other: Round) -> Round {
        self.slices.iter_mut().zip(&other.slices).for_each(|(ours, theirs)| ours.merge(theirs));
        let hops = [self.hop_ns, other.hop_ns];
        self.hop_ns = MedianRange::of(hops.into_iter().flatten()).map(|range| range.median);
        self.activity = self.activity.plus(&other.activity);
        let moved = [self.floor_moved, other.floor_moved];
        self.floor_moved = MedianRange::of(moved.into_iter().flatten()).map(|range| range.max);
        self
    }

    /// Whether the floor moved by at most `FLOOR_MOVED_MAX`, or is unknown.
    pub fn is_steady(&self) -> bool {
        self.floor_moved.is_none_or(|moved| moved <= FLOOR_MOVED_MAX)
    }
}

impl<'a> CaseRounds<'a> {
    pub fn counted(&self) -> impl Iterator<Item = &'a Slice> {
        let case = self.case;
        self.rounds.counted().filter_map(move |round| round.slices.get(case))
    }

    /// Every round with this case's slice in it.
    pub fn all(&self) -> impl Iterator<Item = (&'a Round, &'a Slice)> + use<'a> {
        let case = self.case;
        self.rounds.rounds.iter().filter_map(move |round| Some((round, round.slices.get(case)?)))
    }

    pub fn rounds(&self) -> &'a Rounds {
        self.rounds
    }
}

#[cfg(test)]
mod tests;
