//! Traffic through the in-memory backend, bare and instrumented, asks the allocator for nothing.
//!
//! One test, so that no other thread of this program allocates while it counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironwarp_port::instrument::{Capture, CaptureLimits, FaultRates, Faults, Instrumented};
use ironwarp_port::memory::{self, MemoryConfig, MemoryFrame};
use ironwarp_port::{Burst, Frame, Port, TxMeta, Wire};
use ironwarp_stats::CoreStats;
use ironwarp_types::Nanos;

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`, and the pointer came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations that `work` makes.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Sends bursts both ways; the far end edits what it received and sends it back.
fn exchange<P, Q>(near: &mut Wire<P>, far: &mut Wire<Q>, bursts: usize) -> usize
where
    P: Port<Frame = MemoryFrame>,
    Q: Port<Frame = MemoryFrame>,
{
    let mut returned = 0;
    let (mut there, mut back) = (Burst::new(), Burst::new());
    for _ in 0..bursts {
        while near.has_room() {
            let Some(mut frame) = near.alloc() else { break };
            frame.resize(1000);
            let sealed = frame.seal(TxMeta::default());
            let retained = sealed.clone();
            near.push(sealed);
            drop(retained);
        }
        near.flush();
        far.rx_burst(&mut there);
        for mut frame in there.drain(..) {
            frame.bytes_mut().fill(1);
            far.push(frame.seal(TxMeta::default()));
        }
        far.flush();
        near.rx_burst(&mut back);
        returned += back.drain(..).count();
    }
    returned
}

#[test]
fn steady_traffic_allocates_nothing() {
    assert_ne!(allocations(|| drop(black_box(Box::new(1)))), 0, "the counter counts");
    bare_ports();
    instrumented_ports();
}

fn bare_ports() {
    let config = MemoryConfig::default().offloading();
    let (near, far) = memory::pair(&config, &config);
    let (mut near, mut far) = (Wire::new(near), Wire::new(far));
    let mut returned = 0;
    let counted = allocations(|| returned = exchange(&mut near, &mut far, 2_000));
    assert!(returned > 40_000);
    assert_eq!(counted, 0);
}

fn instrumented_ports() {
    let config = MemoryConfig::default();
    let (near, far) = memory::pair(&config, &config);
    let near = Instrumented::new(near, Arc::new(|| Nanos(1)), CoreStats::detached());
    let control = near.control();
    let (mut near, mut far) = (Wire::new(near), Wire::new(far));
    let ppm = 10_000;
    let rates = FaultRates {
        drop_ppm: ppm,
        duplicate_ppm: ppm,
        reorder_ppm: ppm,
        corrupt_ppm: ppm,
        truncate_ppm: ppm,
        delay_ppm: ppm,
        delay_polls: 3,
    };
    let capture = Capture::to(std::io::sink(), CaptureLimits::default()).expect("a sink takes everything");
    control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    control.start_capture(capture.interface("near").expect("a sink takes everything"));
    let counted = allocations(|| {
        exchange(&mut near, &mut far, 2_000);
    });
    assert_eq!(counted, 0);
    control.set_faults(Faults::default());
    control.stop_capture().expect("a sink takes everything");
    let counted = allocations(|| {
        exchange(&mut near, &mut far, 2_000);
    });
    assert_eq!(counted, 0);
}
