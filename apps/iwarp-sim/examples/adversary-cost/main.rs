//! The instructions that a node spends on hostile packets, for callgrind.
//!
//! Each case sends packets of one kind to a whole node over a memory port. Callgrind counts only
//! what happens inside the function `measured`: the core's work on the packets of a step. The
//! program prints how many packets there were; `scripts/adversary-costs.sh` divides and compares
//! with an honest Send. `list` prints each kind with its bound, in hundredths of an honest Send.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;

use iwarp_sim::adversary::{Adversary, Run};

/// Steps before those that are counted, and steps that are counted.
const WARM_UP: u32 = 50;
const STEPS: u32 = 200;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [word] = &words[..] else { return usage() };
    if word == "list" {
        for adversary in Adversary::all() {
            println!("{} {}", adversary.name(), adversary.bounds().instructions_percent);
        }
        return ExitCode::SUCCESS;
    }
    let Some(adversary) = Adversary::from_name(word) else { return usage() };
    match packets(adversary) {
        Ok(packets) => {
            println!("{packets}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("{word}: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: adversary-cost list|honest|KIND");
    ExitCode::FAILURE
}

/// Runs a case. Returns how many packets were counted.
fn packets(adversary: Adversary) -> Result<u64, String> {
    let mut run = Run::new(adversary)?;
    let before = run.steps(WARM_UP)?.packets;
    for _ in 0..STEPS {
        run.load()?;
        measured(&mut run);
        run.account()?;
    }
    Ok(run.cost().packets - before)
}

/// The code whose instructions callgrind counts.
#[inline(never)]
fn measured(run: &mut Run) {
    black_box(run).work();
}
