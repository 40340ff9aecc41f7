//! What an idle, connected queue pair takes of the heap, shown by an allocator that counts bytes.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Pair;
use ironwarp::QpAttr;

struct Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Queue pairs at each end: a power of two after the first ones, so that the application's
/// table has no spare entries.
const QPS: usize = 64;

/// Connects 64 queue pairs at each end. Returns the bytes of one, without its share of the core's
/// tables.
fn bytes_per_qp(reads: u16) -> usize {
    let mut pair = Pair::new();
    let [near, far] = [pair.near.cq, pair.far.cq].map(|cq| QpAttr {
        send_depth: 1,
        recv_depth: 1,
        ird: reads,
        ord: reads,
        ..QpAttr::new(cq)
    });
    let mut connect = |count| {
        for _ in 0..count {
            pair.connect_with(&near, &far);
            pair.near.events = Vec::new();
            pair.far.events = Vec::new();
        }
    };
    connect(QPS);
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    connect(QPS);
    (LIVE_BYTES.load(Ordering::Relaxed) - before) / (2 * QPS)
}

/// The limits are what it takes, plus 1 %, so that it does not rise unnoticed. The rings of one
/// request each are in it.
#[test]
fn an_idle_queue_pair_takes_no_more_memory_than_recorded() {
    let (without_reads, with_reads) = (bytes_per_qp(1), bytes_per_qp(16));
    println!("{without_reads} bytes with IRD and ORD 1, {with_reads} with 16");
    assert!(without_reads <= 2466, "{without_reads}");
    assert!(with_reads <= 2456, "{with_reads}");
}
