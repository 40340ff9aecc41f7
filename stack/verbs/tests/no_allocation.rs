//! The established data path allocates nothing, shown by an allocator that counts.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{Pair, pattern};
use ironwarp::config::{TransportKind, Transports};
use ironwarp::memory::MemoryConfig;
use ironwarp::{Access, Completion, QpAttr, RecvWr, RemoteMemory, SendWr};

struct Counting;

/// The allocator counts for the whole process, so one test runs at a time.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

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

/// design "The loop never allocates": posting, sending, receiving, placing and completing, on both
/// ends.
#[test]
fn sends_writes_and_reads_allocate_nothing() {
    let [tcp, sctp] = [TransportKind::Tcp, TransportKind::Sctp];
    for transports in [tcp.into(), sctp.into(), Transports::both(tcp), Transports::both(sctp)] {
        sends_writes_and_reads(transports);
    }
}

fn sends_writes_and_reads(transports: Transports) {
    let _turn = TURN.lock();
    let mut pair = Pair::over(&MemoryConfig::default(), |address| {
        let mut config = common::config(address);
        config.stack.transport = transports;
        config
    });
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
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    WATCHING.store(true, Ordering::Relaxed);
    (0..200).for_each(|_| round(&mut pair));
    WATCHING.store(false, Ordering::Relaxed);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "over {transports:?}");
}

/// The same with tags that are bound and invalidated, and with shared receives; on the server a
/// fast region for each round.
#[test]
fn windows_fast_regions_and_shared_receives_allocate_nothing() {
    let _turn = TURN.lock();
    let mut pair = Pair::new();
    let srq = pair.far.ctx.create_srq(pair.far.pd, 8, 1).unwrap();
    let near_attr = QpAttr::new(pair.near.cq);
    let far_attr = QpAttr { srq: Some(srq), ..QpAttr::new(pair.far.cq) };
    let (near, far) = pair.connect_with(&near_attr, &far_attr);
    let lent = Access::LOCAL_WRITE | Access::BIND;
    let pool = pair.far.ctx.register(pair.far.pd, pattern(4096, 1), lent).unwrap();
    let near_pool = pair.near.ctx.register(pair.near.pd, vec![0u8; 4096], lent).unwrap();
    let inbox = pair.far.memory(&[0; 64]);
    let mut window = pair.far.ctx.create_window(pair.far.pd).unwrap();
    let mut fast = pair.near.ctx.create_fast_region(pair.near.pd).unwrap();
    let mut reaped = [Completion::default(); 16];
    let mut round = |pair: &mut Pair| {
        pair.far.ctx.post_srq_recv(srq, &RecvWr::new(1, &[inbox.slice(0, 64).unwrap()])).unwrap();
        let piece = [pool.slice(0, 4096).unwrap()];
        pair.far.ctx.post_send(far, &SendWr::bind(1, &mut window, &piece, Access::REMOTE_READ)).unwrap();
        pair.far.worker.poll(4);
        let over = [near_pool.slice(0, 4096).unwrap()];
        let register = SendWr::fast_register(2, &mut fast, &over, Access::LOCAL_WRITE);
        let sink = [ironwarp::Sge { lkey: fast.stag(), ..over[0] }];
        let source = RemoteMemory { stag: window.stag(), tagged_offset: piece[0].addr };
        let read = SendWr::read_with_invalidate(3, &sink, source);
        let back = SendWr::send_inline(4, b"done").with_invalidate(window.stag()).fenced();
        pair.near.ctx.post_sends(near, &[register, read, back]).unwrap();
        let (mut sent, mut received) = (0, 0);
        for _ in 0..10_000 {
            pair.near.worker.poll(4);
            pair.far.worker.poll(4);
            sent += pair.near.ctx.poll_cq(pair.near.cq, &mut reaped).unwrap();
            received += pair.far.ctx.poll_cq(pair.far.cq, &mut reaped).unwrap();
            if sent == 3 && received == 2 {
                return;
            }
        }
        panic!("a round never ended: {sent} sent, {received} received");
    };
    (0..10).for_each(|_| round(&mut pair));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    WATCHING.store(true, Ordering::Relaxed);
    (0..200).for_each(|_| round(&mut pair));
    WATCHING.store(false, Ordering::Relaxed);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
}
