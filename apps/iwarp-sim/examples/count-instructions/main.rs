//! The instructions of one operation, or of one hostile packet, for callgrind.
//!
//! Each case warms up, and then does what is counted in a function `measured`, which callgrind
//! collects. The program prints how many operations or packets there were;
//! `scripts/instruction-counts.sh` and `scripts/adversary-costs.sh` divide. One program for all
//! cases: the stack is linked once. Without callgrind the time of an operation, on standard error,
//! says something too.
//!
//! ```text
//! cargo build --release --workspace --no-default-features --example count-instructions
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='count_instructions::*measured*' \
//!     target/release/examples/count-instructions round-trip
//! target/release/examples/count-instructions write-spread 10000        over so many queue pairs
//! target/release/examples/count-instructions write-spread 10000 16     so many of them outstanding
//! target/release/examples/count-instructions round-trip-sctp           an operation over SCTP
//! ```
#![forbid(unsafe_code)]

mod atomics;
mod operations;
mod packets;
mod step_clock;

use ironwarp::config::TransportKind;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let name =
        std::env::args().nth(1).ok_or("usage: count-instructions list|CASE [QUEUE-PAIRS [OUTSTANDING]]")?;
    let number = |at| std::env::args().nth(at).map(|number| number.parse()).transpose();
    if name == "list" {
        packets::list();
        return Ok(());
    }
    let (operation, transport) = match name.strip_suffix("-sctp") {
        Some(operation) => (operation, TransportKind::Sctp),
        None => (&*name, TransportKind::Tcp),
    };
    let counted = if let Some(case) = operations::Case::parse(operation, number(2)?, number(3)?) {
        operations::count(case, transport)?
    } else if name.starts_with("atomic-") {
        atomics::count(&name)?
    } else {
        packets::count(&name)?
    };
    println!("{counted}");
    Ok(())
}
