//! Measures the instructions per full-size segment of our stack and of stock smoltcp. Run it under
//! callgrind.
//!
//! One connection between two hosts of the same stack carries bytes in one direction, sixteen
//! segments per round. Callgrind counts only what happens inside the function `measured`. `receive`
//! covers the frames of a round, reading their bytes in place, and the acknowledgement that is due.
//! `send` covers taking the application's bytes and sending a round's frames. `acked` covers the
//! acknowledgement of a round. One stack may acknowledge two rounds at once, so the program counts
//! segments, not acknowledgements. Both stacks use the same port, whose buffers come from a list,
//! so only the stacks differ. The program prints how many segments, or acknowledged rounds, it
//! counted. `scripts/segment-cost.sh` runs all cases and prints the table.
#![forbid(unsafe_code)]

mod hosts;
mod port;

use std::hint::black_box;
use std::process::ExitCode;

use hosts::{Host, Ironwarp, Smoltcp};
use ironwarp_types::Nanos;
use port::{BenchPort, Carried, Queues, verdict};

/// Segments per round.
const TURN: usize = 16;
/// Rounds that are counted.
const ROUNDS: usize = 2_000;
/// Warm-up rounds, which open the windows.
const WARM_UP: usize = 200;
const MTU_BYTES: u16 = 1_500;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measured {
    Receive,
    Send,
    Acked,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [stack, what, checksums] = words[..] else { return usage() };
    let what = match what {
        "receive" => Measured::Receive,
        "send" => Measured::Send,
        "acked" => Measured::Acked,
        _ => return usage(),
    };
    let offloads = match checksums {
        "device" => true,
        "software" => false,
        _ => return usage(),
    };
    let counted = match stack {
        "ours" => run::<Ironwarp>(what, offloads),
        "smoltcp" => run::<Smoltcp>(what, offloads),
        _ => return usage(),
    };
    println!("{counted}");
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: segment-cost ours|smoltcp receive|send|acked device|software");
    ExitCode::FAILURE
}

/// Runs the rounds. Returns how many full segments, or acknowledged rounds, were counted.
fn run<H: Host>(what: Measured, offloads: bool) -> u64 {
    let queues = [Queues::new(), Queues::new()];
    let [mut a, mut b] = [1, 2].map(|host: u8| {
        let port = BenchPort::new(host, MTU_BYTES, queues[usize::from(host) - 1].clone(), offloads);
        H::new(host, port, offloads)
    });
    b.listen();
    let mut now = Nanos::from_secs(1);
    a.connect(now);
    let (mut turns, mut counted) = (0, Carried::default());
    while turns < WARM_UP + ROUNDS {
        now += Nanos::from_micros(20);
        let is_counted = |of| what == of && turns >= WARM_UP;
        turn(is_counted(Measured::Acked), || a.receive(now));
        turn(is_counted(Measured::Send), || a.send(now));
        let there = queues[0].carry_to(&queues[1], verdict(offloads));
        turn(is_counted(Measured::Receive), || b.receive(now));
        let back = queues[1].carry_to(&queues[0], verdict(offloads));
        if turns >= WARM_UP {
            counted = Carried { full: counted.full + there.full, small: counted.small + back.small };
        }
        turns += usize::from(a.is_open() && b.is_open());
    }
    if what == Measured::Acked { counted.full / TURN as u64 } else { counted.full }
}

fn turn(is_counted: bool, work: impl FnOnce()) {
    if is_counted { measured(work) } else { work() }
}

/// The code whose instructions callgrind counts.
#[inline(never)]
fn measured(work: impl FnOnce()) {
    black_box(work)();
}
