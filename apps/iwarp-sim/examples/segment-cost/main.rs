//! What a full-size segment costs in instructions, ours and stock smoltcp's: a program to run under callgrind.
//!
//! One connection is established between two hosts of the same stack and carries bytes one way, sixteen segments a
//! turn. Only what happens inside the function `measured` is to be counted: `receive` (the frames of a turn, reading
//! their bytes in place, and the acknowledgement that is due), `send` (taking the application's bytes and sending a
//! turn's frames) or `acked` (the acknowledgement of a turn: one stack may acknowledge two turns at once, so a
//! turn's segments are counted, not acknowledgements). Both stacks have the same port, whose buffers come from a
//! list, so that nothing but the stack differs. Prints how many segments, or turns of them acknowledged, were counted.
//! `scripts/segment-cost.sh` runs all cases and prints the table.
#![forbid(unsafe_code)]

mod hosts;
mod port;

use std::hint::black_box;
use std::process::ExitCode;

use hosts::{Host, Ironwarp, Smoltcp};
use ironwarp_types::Nanos;
use port::{BenchPort, Carried, Queues, verdict};

/// Segments of one turn.
const TURN: usize = 16;
/// Turns that are counted.
const ROUNDS: usize = 2_000;
/// Turns before, so that windows are open.
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

/// Runs the turns. Answers how many full segments, or turns of them acknowledged, were counted.
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

/// What callgrind is told to count.
#[inline(never)]
fn measured(work: impl FnOnce()) {
    black_box(work)();
}
