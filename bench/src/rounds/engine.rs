//! The alternation itself.

use crate::Slice;
use crate::host::Activity;

/// A floor that moves by more than this share under a round spoils the round's ratios.
pub const FLOOR_MOVED_MAX: f64 = 0.2;

/// Two ends that are ready to measure any case of a group, named by its place in the group.
pub trait CaseRunner {
    /// Why a slice could not be measured.
    type Error;

    /// Measures one case for a slice of time.
    fn slice(&mut self, case: usize) -> Result<Slice, Self::Error>;

    /// A cache line's way from one end's core to the other's, in nanoseconds.
    fn hop_ns(&mut self) -> Option<f64>;

    /// What the machine did to us so far.
    fn activity(&mut self) -> Activity;

    /// Whether to stop before the next slice, as a user asked.
    fn interrupted(&mut self) -> bool;
}

/// How a group is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundPlan {
    /// Cases in the group.
    pub cases: usize,
    /// The case that is the group's floor. Absent: the core-to-core hop is.
    pub floor: Option<usize>,
    /// Rounds to measure.
    pub rounds: u32,
    /// Rounds to measure in the stead of dropped ones, at most.
    pub spare_rounds: u32,
}

/// Why the rounds ended before their time.
#[derive(Debug, PartialEq, Eq)]
pub enum EndedEarly<E> {
    /// The user asked.
    ByUser,
    /// A slice failed.
    Failed {
        /// The case.
        case: usize,
        /// Why.
        error: E,
    },
}

/// What a group's rounds gave.
#[derive(Debug)]
pub struct Rounds {
    /// The rounds that ran to their end.
    pub rounds: Vec<Round>,
}

/// One round: every case once.
#[derive(Debug)]
pub struct Round {
    /// A slice a case, in the group's order.
    pub slices: Vec<Slice>,
    /// A cache line's way from core to core.
    pub hop_ns: Option<f64>,
    /// What the machine did to us meanwhile.
    pub activity: Activity,
    /// The floor's relative movement under the round.
    pub floor_moved: Option<f64>,
}

/// One case's slices over the rounds.
pub struct CaseRounds<'a> {
    rounds: &'a Rounds,
    case: usize,
}

/// Measures a group. Complete rounds are given even when the last one was interrupted.
pub fn alternate<P: CaseRunner>(runner: &mut P, plan: &RoundPlan) -> (Rounds, Option<EndedEarly<P::Error>>) {
    let mut done = Rounds { rounds: Vec::new() };
    let mut open: Option<OpenRound> = None;
    loop {
        let next = match begin(runner, plan) {
            Ok(next) => next,
            Err(why) => return (done.close_round(open, None), Some(why)),
        };
        done = done.close_round(open.take(), Some(&next));
        if done.is_enough(plan) {
            return (done, None);
        }
        match finish(runner, plan, next) {
            Ok(round) => open = Some(round),
            Err(why) => return (done, Some(why)),
        }
    }
}

/// A round whose floor at the end is not known yet: it is the floor at the beginning of the next.
struct OpenRound {
    slices: Vec<Option<Slice>>,
    hop_ns: Option<f64>,
    before: Activity,
    after: Activity,
    floor: Option<f64>,
}

/// Measures the floor with which a round begins.
fn begin<P: CaseRunner>(runner: &mut P, plan: &RoundPlan) -> Result<OpenRound, EndedEarly<P::Error>> {
    let before = runner.activity();
    let hop_ns = runner.hop_ns();
    let mut slices: Vec<Option<Slice>> = (0..plan.cases).map(|_| None).collect();
    let floor = match plan.floor {
        Some(case) => {
            let slice = measure(runner, case)?;
            let cost = slice.cost();
            slices[case] = Some(slice);
            cost
        }
        None => hop_ns,
    };
    Ok(OpenRound { slices, hop_ns, before, after: before, floor })
}

/// Measures the cases that are not the floor.
fn finish<P: CaseRunner>(
    runner: &mut P,
    plan: &RoundPlan,
    mut round: OpenRound,
) -> Result<OpenRound, EndedEarly<P::Error>> {
    for case in (0..plan.cases).filter(|&case| plan.floor != Some(case)) {
        round.slices[case] = Some(measure(runner, case)?);
    }
    round.after = runner.activity();
    Ok(round)
}

fn measure<P: CaseRunner>(runner: &mut P, case: usize) -> Result<Slice, EndedEarly<P::Error>> {
    if runner.interrupted() {
        return Err(EndedEarly::ByUser);
    }
    runner.slice(case).map_err(|error| EndedEarly::Failed { case, error })
}

impl Rounds {
    /// Takes a finished round in, with the floor that the next one began with.
    fn close_round(mut self, open: Option<OpenRound>, next: Option<&OpenRound>) -> Self {
        let Some(open) = open else { return self };
        let floor_moved = match (open.floor, next.and_then(|next| next.floor)) {
            (Some(before), Some(after)) if before > 0.0 && after > 0.0 => {
                Some((after - before).abs() / before.min(after))
            }
            _ => None,
        };
        self.rounds.push(Round {
            slices: open.slices.into_iter().flatten().collect(),
            hop_ns: open.hop_ns,
            activity: open.after.since(&open.before),
            floor_moved,
        });
        self
    }

    fn is_enough(&self, plan: &RoundPlan) -> bool {
        let (kept, all) = (self.steady() as u32, self.rounds.len() as u32);
        kept >= plan.rounds || all >= plan.rounds.saturating_add(plan.spare_rounds)
    }

    fn steady(&self) -> usize {
        self.rounds.iter().filter(|round| round.is_steady()).count()
    }

    /// Whether the figures lean on steady rounds. When not a single round was steady all of them count, and the
    /// result says so.
    pub fn has_steady(&self) -> bool {
        self.steady() > 0
    }

    /// Rounds that count.
    pub fn counted(&self) -> impl Iterator<Item = &Round> {
        let any = !self.has_steady();
        self.rounds.iter().filter(move |round| any || round.is_steady())
    }

    /// Rounds that do not.
    pub fn dropped(&self) -> usize {
        self.rounds.len() - self.steady()
    }

    /// One case over the rounds.
    pub fn case(&self, case: usize) -> CaseRounds<'_> {
        CaseRounds { rounds: self, case }
    }
}

impl Round {
    /// Whether the floor held still, as far as is known.
    pub fn is_steady(&self) -> bool {
        self.floor_moved.is_none_or(|moved| moved <= FLOOR_MOVED_MAX)
    }
}

impl<'a> CaseRounds<'a> {
    /// The slices that count.
    pub fn counted(&self) -> impl Iterator<Item = &'a Slice> {
        let case = self.case;
        self.rounds.counted().filter_map(move |round| round.slices.get(case))
    }

    /// Every round with this case's slice in it.
    pub fn all(&self) -> impl Iterator<Item = (&'a Round, &'a Slice)> {
        let case = self.case;
        self.rounds.rounds.iter().filter_map(move |round| Some((round, round.slices.get(case)?)))
    }

    /// The rounds that this case belongs to.
    pub fn rounds(&self) -> &'a Rounds {
        self.rounds
    }
}

#[cfg(test)]
mod tests;
