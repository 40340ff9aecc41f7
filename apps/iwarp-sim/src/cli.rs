//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use iwarp_sim::plan::Scenario;
use iwarp_sim::tcp::curves::Point;
use iwarp_sim::trial::Trial;

/// Simulates whole nodes, from verbs to frames, on links that lose, damage, duplicate and reorder
/// frames, in virtual time. Every byte is checked. Each seed runs twice, with the fast path on and
/// off, to verify that it replays exactly and that both paths give the same results.
#[derive(Parser, Debug)]
#[command(name = "iwarp-sim", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Other commands
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Runs the seeds from A to B, B excluded
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with = "seed")]
    pub seeds: Option<(u64, u64)>,

    /// Runs one seed
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// With --seed: describes what the seed does, and writes its frames to a pcapng file
    #[arg(long, requires = "seed")]
    pub trace: bool,

    /// The scenario; --list shows all of them
    #[arg(long, value_name = "NAME", default_value = "mixed", value_parser = scenario)]
    pub scenario: Scenario,

    /// Runs the seeds of every scenario, one seed of each at a time
    #[arg(long, conflicts_with = "scenario")]
    pub every_scenario: bool,

    /// Begins no further seed after N seconds; seeds that did not run are not failures
    #[arg(long, value_name = "N", conflicts_with = "trace")]
    pub seconds: Option<u64>,

    /// Seeds to run in parallel; default: the number of processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,

    /// Folder for the frames of failing seeds
    #[arg(long, value_name = "DIR", default_value = "target/iwarp-sim")]
    pub traces: PathBuf,

    /// Runs the seeds that failed in the past, and no others unless --seed or --seeds is given
    #[arg(long)]
    pub regressions: bool,

    /// Lists the scenarios
    #[arg(long)]
    pub list: bool,
}

/// Commands other than running seeds.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Prints the goodput of TCP against loss, round-trip time, rate and buffer, as CSV
    Curves {
        /// Writes to a file instead of the standard output
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
    /// Prints the goodput of TCP on one link, in virtual time: the same at each run
    Goodput(Point),
}

const EXAMPLES: &str = "\
Examples:
  iwarp-sim --seeds 0..2000                    the acceptance run
  iwarp-sim --seeds 0..500 --scenario churn    many short connections
  iwarp-sim --seeds 0..500 --scenario atomics  atomic operations on hosts of 1 to 8 cores, histories linearizable
  iwarp-sim --seed 83 --trace                  one seed, its frames in a pcapng file
  iwarp-sim --seeds 7000000..7001000 --every-scenario --seconds 60
                                               fresh seeds of all scenarios, for a minute
  iwarp-sim --regressions                      seeds that failed in the past
  cargo run --profile sim -p iwarp-sim         with the stack's own assertions and checked arithmetic
  iwarp-sim curves                             goodput over a grid of links
  iwarp-sim goodput --rtt-us 1000 --window-kib 2048    goodput on one link, with its round-trip time and window

Exit codes: 0 all passed, 1 some failed or the run was stopped, 2 bad arguments.";

/// Seeds that run when none are given.
const SEEDS_USUAL: (u64, u64) = (0, 100);

impl Args {
    pub fn trials(&self) -> Result<Vec<Trial>, String> {
        let mut trials = if self.regressions { iwarp_sim::regressions::all()? } else { Vec::new() };
        let named = match (self.seed, self.seeds) {
            (Some(seed), _) => (seed, seed.saturating_add(1)),
            (None, Some(range)) => range,
            (None, None) if self.regressions => (0, 0),
            (None, None) => SEEDS_USUAL,
        };
        let scenarios =
            if self.every_scenario { Scenario::ALL } else { core::slice::from_ref(&self.scenario) };
        if (named.1 - named.0).saturating_mul(scenarios.len() as u64) > SEEDS_MAX {
            return Err(format!(
                "{} seeds of {} scenarios: at most {SEEDS_MAX} in all",
                named.1 - named.0,
                scenarios.len()
            ));
        }
        let of_seed = |seed| scenarios.iter().map(move |&scenario| Trial { scenario, seed });
        trials.extend((named.0..named.1).flat_map(of_seed));
        Ok(trials)
    }
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let wrong = || "expected two numbers A..B, A smaller than B, such as 0..2000".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
    if from < to && to - from <= SEEDS_MAX { Ok((from, to)) } else { Err(wrong()) }
}

fn scenario(text: &str) -> Result<Scenario, String> {
    let names = Scenario::ALL.iter().map(|scenario| scenario.name()).collect::<Vec<_>>().join(", ");
    Scenario::from_name(text).ok_or_else(|| format!("expected one of {names}"))
}

/// Bounds the memory of the list of trials.
const SEEDS_MAX: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_seeds_is_two_numbers_in_order() {
        assert_eq!(seeds("3..7"), Ok((3, 7)));
        for wrong in ["", "3", "7..3", "3..3", "a..b", "0..-1", "0..18446744073709551615"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_seed_is_one_trial() {
        let args = Args::parse_from(["iwarp-sim", "--scenario", "churn", "--seed", "9"]);
        assert_eq!(args.trials(), Ok(vec![Trial { scenario: Scenario::Churn, seed: 9 }]));
    }

    #[test]
    fn every_scenario_has_its_first_seed_before_any_has_its_second() {
        let args = Args::parse_from(["iwarp-sim", "--every-scenario", "--seeds", "5..7"]);
        let trials = args.trials().expect("few seeds");
        let of_seed = |seed| Scenario::ALL.iter().map(move |&scenario| Trial { scenario, seed });
        let expected = [5, 6].into_iter().flat_map(of_seed);
        assert_eq!(trials, expected.collect::<Vec<_>>());
        let args = Args::parse_from(["iwarp-sim", "--every-scenario", "--seeds", "0..100000000"]);
        assert!(args.trials().is_err_and(|fault| fault.contains("at most 100000000")));
    }
}
