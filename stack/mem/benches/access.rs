//! What a core pays for registered memory: `cargo bench -p ironwarp-mem`.
//!
//! Each figure is the median of rounds, in nanoseconds an operation. Plain copies stand beside
//! placements, so that what the opaque boundary and the release store cost can be read off.

use ironwarp_mem::{Access, AlignedBuf, CoreMem, MemLimits, MemTable, Region};
use ironwarp_types::{CoreId, PdId};
use std::hint::black_box;
use std::time::Instant;

const PD: PdId = PdId(1);
const WRITE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
const REGIONS: usize = 1024;
const REGION_BYTES: usize = 16 * 1024;

fn main() {
    // `cargo test --benches` only asks whether it runs.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 31 } else { 1 };
    let table = MemTable::new(MemLimits { regions_max: 4096, cores_max: 64 }).expect("a table");
    let mut core = table.core(CoreId(0)).expect("a free core");
    let regions: Vec<Region> = (0..REGIONS).map(|_| region(&table)).collect();

    look_ups(rounds, &core, &regions);
    iterations(rounds, &mut core, &regions[0]);
    for len in [1, 8, 64, 256, 1460, 4096, 8946] {
        copies(rounds, &core, &regions[0], len);
    }
    drop(core);
    report("register and drop 4 KiB", rounds, 2_000, |_| {
        let region = table.register(PD, vec![0u8; 4096], WRITE);
        drop(black_box(region));
    });
}

fn region(table: &MemTable) -> Region {
    table.register(PD, AlignedBuf::pages(REGION_BYTES).expect("memory"), WRITE).expect("room")
}

fn look_ups(rounds: usize, core: &CoreMem, regions: &[Region]) {
    let one = &regions[0];
    report("resolve, one region", rounds, 200_000, |_| {
        let (stag, to) = black_box((one.stag(), one.base_to()));
        black_box(core.resolve(stag, PD, to, 64, WRITE).is_ok());
    });
    let targets: Vec<_> = regions.iter().map(|region| (region.stag(), region.base_to())).collect();
    report("resolve, 1024 regions in turn", rounds, 200_000, |at| {
        let (stag, to) = targets[(at * 7) % REGIONS];
        black_box(core.resolve(stag, PD, to, 64, WRITE).is_ok());
    });
}

fn iterations(rounds: usize, core: &mut CoreMem, region: &Region) {
    report("quiesce", rounds, 200_000, |_| black_box(&mut *core).quiesce());
    report("park and resolve", rounds, 200_000, |_| {
        black_box(&mut *core).go_offline();
        black_box(core.resolve(region.stag(), PD, region.base_to(), 64, WRITE).is_ok());
    });
}

fn copies(rounds: usize, core: &CoreMem, region: &Region, len: usize) {
    let source = vec![7u8; len];
    let mut plain = AlignedBuf::pages(REGION_BYTES).expect("memory");
    report(&format!("plain copy, {len} B"), rounds, 100_000, |_| {
        black_box(&mut plain)[..len].copy_from_slice(black_box(&source));
    });
    report(&format!("resolve and copy_in, {len} B"), rounds, 100_000, |_| {
        let (stag, to) = black_box((region.stag(), region.base_to()));
        let span = core.resolve(stag, PD, to, len as u32, WRITE).expect("granted");
        span.copy_in(0, black_box(&source)).expect("in range");
    });
    let mut sink = vec![0u8; len];
    report(&format!("resolve and copy_out, {len} B"), rounds, 100_000, |_| {
        let (stag, to) = black_box((region.stag(), region.base_to()));
        let span = core.resolve(stag, PD, to, len as u32, Access::empty()).expect("granted");
        span.copy_out(0, black_box(&mut sink)).expect("in range");
    });
}

/// Prints the median over `rounds` of the time that one of `count` operations takes.
fn report(what: &str, rounds: usize, count: usize, mut operation: impl FnMut(usize)) {
    let mut figures: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..count).for_each(&mut operation);
            start.elapsed().as_nanos() as f64 / count as f64
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    println!("{what:32} {:8.2} ns", figures[rounds / 2]);
}
