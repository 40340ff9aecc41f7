//! Times one pass over a payload against separate passes: nanoseconds a piece, medians of
//! alternating rounds.
//!
//! `cargo run --release -p ironwarp-arch --example one_pass`

use std::hint::black_box;
use std::time::Instant;

use ironwarp_arch::one_pass::Kernel;
use ironwarp_arch::{checksum, crc32c};

/// Alternating rounds.
const ROUNDS: usize = 41;
/// Bytes that a round passes over.
const ROUND_BYTES: usize = 4 << 20;
/// Payload of a small message, of frames with an MTU of 1500 and of 9000 bytes.
const LENGTHS: [usize; 5] = [256, 512, 1024, 1440, 8940];
/// Bytes of the pieces that are passed over in turn: in the first cache, in the second, beyond.
const WORKING_SETS: [usize; 3] = [16 << 10, 256 << 10, 16 << 20];

fn main() {
    let Some(kernel) = Kernel::detect() else {
        println!("this processor has no kernel for one pass");
        return;
    };
    println!(
        "{:>6} {:>10} {:>22} {:>26}",
        "bytes", "spread KiB", "read: apart, one pass", "copy: apart, one pass"
    );
    for working_set in WORKING_SETS {
        for bytes in LENGTHS {
            let source = vec![0xa5_u8; working_set + 16 * 1024];
            let mut sink = vec![0_u8; working_set + 16 * 1024];
            let apart =
                |piece: &[u8], _: &mut [u8]| u64::from(crc32c(piece)) + u64::from(checksum::sum(piece));
            let read = |piece: &[u8], _: &mut [u8]| u64::from(kernel.read(0, piece).crc);
            let copy_apart = |piece: &[u8], to: &mut [u8]| {
                to.copy_from_slice(piece);
                u64::from(crc32c(to)) + u64::from(checksum::sum(to))
            };
            let copy = |piece: &[u8], to: &mut [u8]| {
                // SAFETY: both have the length of the piece.
                u64::from(unsafe { kernel.copy(0, piece.as_ptr(), to.as_mut_ptr(), piece.len()) }.crc)
            };
            let mut times = [const { Vec::new() }; 4];
            for _ in 0..ROUNDS {
                times[0].push(time(bytes, working_set, &source, &mut sink, apart));
                times[1].push(time(bytes, working_set, &source, &mut sink, read));
                times[2].push(time(bytes, working_set, &source, &mut sink, copy_apart));
                times[3].push(time(bytes, working_set, &source, &mut sink, copy));
            }
            let [a, b, c, d] = times.map(median);
            println!("{bytes:>6} {:>10} {a:>11.1} {b:>10.1} {c:>15.1} {d:>10.1}", working_set >> 10);
        }
    }
}

/// Returns the nanoseconds of a piece.
fn time(
    bytes: usize,
    working_set: usize,
    source: &[u8],
    sink: &mut [u8],
    run: impl Fn(&[u8], &mut [u8]) -> u64,
) -> f64 {
    let pieces = ROUND_BYTES / bytes;
    let (mut at, mut all) = (0, 0_u64);
    let start = Instant::now();
    for _ in 0..pieces {
        // Payload in a frame begins at an odd multiple of two.
        all = all.wrapping_add(run(&source[at + 18..][..bytes], &mut sink[at + 1108..][..bytes]));
        at += bytes.next_multiple_of(64);
        if at >= working_set {
            at = 0;
        }
    }
    black_box(all);
    start.elapsed().as_nanos() as f64 / pieces as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
