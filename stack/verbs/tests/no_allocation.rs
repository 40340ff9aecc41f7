//! The established data path allocates nothing: an allocator that counts says so.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{Pair, pattern};
use ironwarp::{Completion, RecvWr, RemoteMemory, SendWr};

struct Counting;

static WATCHING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// design "The loop never allocates": posting, sending, receiving, placing and completing, on both ends.
#[test]
fn sends_writes_and_reads_allocate_nothing() {
    let mut pair = Pair::new();
    let (near, far) = pair.connect();
    let (source, target) = (pair.near.memory(&pattern(20_000, 1)), pair.far.memory(&[0; 20_000]));
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let (all, room) = ([source.slice(0, 20_000).unwrap()], [target.slice(0, 20_000).unwrap()]);
    let mut reaped = [Completion::default(); 16];
    let mut round = |pair: &mut Pair| {
        pair.far.ctx.post_recv(far, &RecvWr::new(1, &room)).unwrap();
        pair.near.ctx.post_send(near, &SendWr::write(1, &all, remote)).unwrap();
        pair.near.ctx.post_send(near, &SendWr::send(2, &all)).unwrap();
        pair.near.ctx.post_send(near, &SendWr::read(3, &all, remote)).unwrap();
        let (mut sent, mut received) = (0, 0);
        for _ in 0..10_000 {
            pair.near.worker.poll(4);
            pair.far.worker.poll(4);
            sent += pair.near.ctx.poll_cq(pair.near.cq, &mut reaped).unwrap();
            received += pair.far.ctx.poll_cq(pair.far.cq, &mut reaped).unwrap();
            if sent == 3 && received == 1 {
                return;
            }
        }
        panic!("a round never ended");
    };
    (0..10).for_each(|_| round(&mut pair));
    WATCHING.store(true, Ordering::Relaxed);
    (0..200).for_each(|_| round(&mut pair));
    WATCHING.store(false, Ordering::Relaxed);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
}
