//! The packets of one kind that a node receives over a memory port, against an honest Send.

use std::hint::black_box;

use iwarp_sim::adversary::{Adversary, Run};

use crate::Failure;

/// Steps before those that are counted, and steps that are counted.
const WARM_UP: u32 = 50;
const STEPS: u32 = 200;

/// Prints each kind with its bound, in hundredths of an honest Send.
pub fn list() {
    for adversary in Adversary::all() {
        println!("{} {}", adversary.name(), adversary.bounds().instructions_percent);
    }
}

/// Runs a case. Returns how many packets were counted.
pub fn count(kind: &str) -> Result<u64, Failure> {
    let adversary = Adversary::from_name(kind).ok_or_else(|| format!("unknown case: {kind}"))?;
    let mut run = Run::new(adversary)?;
    let before = run.steps(WARM_UP)?.packets;
    for _ in 0..STEPS {
        run.load()?;
        measured(&mut run);
        run.account()?;
    }
    Ok(run.cost().packets - before)
}

/// The work of the core on the packets of a step.
#[inline(never)]
fn measured(run: &mut Run) {
    black_box(run).work();
}
