//! Cores that copy while application threads poll, revoke and free. `scripts/sanitizers.sh` runs
//! them under Miri and ThreadSanitizer, which look for races and stale memory.
#![cfg(not(loom))]

use ironwarp_mem::{Access, AccessError, CoreMem, MemLimits, MemTable, RawMemory, Region};
use ironwarp_types::{CoreId, PdId};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

const PD: PdId = PdId(1);
const WRITE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
const ROUNDS: u64 = if cfg!(miri) { 12 } else { 2_000 };
const CORES: usize = 2;
/// The bytes of each core: long enough that a revocation often comes in the middle of a copy.
const PIECE: usize = if cfg!(miri) { 48 } else { 32 << 10 };
/// A byte that no core places.
const OWNED: u8 = 0xee;
/// How often the application looks at memory that is its own again.
const LOOKS: u32 = 20;

fn table(cores_max: u16) -> MemTable {
    MemTable::with_secret(MemLimits { regions_max: 32, cores_max }, [8, 9]).expect("a table")
}

fn core_of(table: &MemTable, core: u16) -> CoreMem {
    table.core(CoreId(core)).expect("a free core")
}

/// Writes runs of one byte into a piece of a region until its tag is refused.
fn place_until_revoked(mut core: CoreMem, piece: Target, pauses: bool) {
    let runs = [1, 2].map(|byte| vec![byte; piece.len as usize]);
    for run in runs.iter().cycle() {
        match core.resolve(piece.stag, PD, piece.base, piece.len, WRITE) {
            Ok(span) => span.copy_in(0, run).expect("in range"),
            Err(error) => return assert!(matches!(error, AccessError::Revoked | AccessError::UnknownStag)),
        }
        if pauses {
            core.go_offline()
        } else {
            core.quiesce()
        }
        thread::yield_now();
    }
}

#[derive(Clone, Copy)]
struct Target {
    stag: ironwarp_types::STag,
    base: u64,
    len: u32,
}

fn target(region: &Region) -> Target {
    Target { stag: region.stag(), base: region.base_to(), len: region.len() as u32 }
}

// RFC 5040 s8.1.1 (6): after revocation the network can no longer modify the buffer. A core has
// looked the tag up before it is revoked, and copies afterwards.
#[test]
fn a_token_is_complete_only_after_the_core_that_was_copying() {
    let table = table(2);
    let (mut copying, other) = (core_of(&table, 0), core_of(&table, 1));
    let region = table.register(PD, vec![0u8; 48], WRITE).expect("room");
    let aim = target(&region);
    thread::scope(|scope| {
        // In here, so that a failure ends the other thread too.
        let (looked_up, may_revoke) = mpsc::channel();
        let (revoked, may_copy) = mpsc::channel();
        let (copied, is_copied) = mpsc::channel();
        let (checked, may_quiesce) = mpsc::channel();
        scope.spawn(move || {
            let span = copying.resolve(aim.stag, PD, aim.base, aim.len, WRITE).expect("granted");
            looked_up.send(()).expect("a listener");
            may_copy.recv().expect("the revocation");
            span.copy_in(0, &[7; 48]).expect("in range");
            copied.send(()).expect("a listener");
            may_quiesce.recv().expect("the check");
            copying.quiesce();
        });
        may_revoke.recv().expect("the core has looked up");
        let token = region.revoke();
        assert!(!token.poll(), "a core holds a span");
        revoked.send(()).expect("a listener");
        is_copied.recv().expect("the copy");
        // The other core never used the tag, and the first one may still.
        drop(other);
        assert!(!token.poll(), "the core has not quiesced");
        let mut seen = [0; 48];
        region.read_at(0, &mut seen).expect("in range");
        assert_eq!(seen, [7; 48]);
        checked.send(()).expect("a listener");
        while !token.poll() {
            thread::yield_now();
        }
    });
}

// The same while cores copy without a pause. Once the token is complete, the application fills the
// memory with a byte that no core writes, and nothing changes it any more. Each core has a piece of
// its own, so that there is no race but the one that is looked for: Miri and ThreadSanitizer report
// it even if the bytes survive.
#[test]
fn memory_freed_after_its_token_is_never_touched_by_a_core_that_was_copying() {
    for round in 0..ROUNDS / 4 {
        let table = table(CORES as u16);
        let bytes = NonNull::from(Box::leak(vec![0u8; CORES * PIECE].into_boxed_slice()));
        // SAFETY: freed below, after the token is complete.
        let raw = unsafe { RawMemory::new(bytes.cast(), CORES * PIECE) };
        let region = table.register(PD, raw, WRITE).expect("room");
        let whole = target(&region);
        thread::scope(|scope| {
            for core in 0..CORES as u64 {
                let core_mem = core_of(&table, core as u16);
                let piece = Target { base: whole.base + core * PIECE as u64, len: PIECE as u32, ..whole };
                scope.spawn(move || place_until_revoked(core_mem, piece, (round + core) % 2 == 0));
            }
            while round % 2 == 0 && region.load_u8_acquire(PIECE - 1) == Ok(0) {
                thread::yield_now();
            }
            let token = region.deregister();
            while !token.poll() {
                thread::yield_now();
            }
            // SAFETY: the token is complete, so nobody else touches the bytes; made by `Box::leak`.
            let mut owned = unsafe { Box::from_raw(bytes.as_ptr()) };
            owned.fill(OWNED);
            for _ in 0..LOOKS {
                thread::yield_now();
                // An opaque read: the compiler may assume that nobody else writes.
                assert!(std::hint::black_box(&owned).iter().all(|byte| *byte == OWNED), "round {round}");
            }
        });
    }
}

// docs/semantics.md, "Placement": applications poll the last byte.
#[test]
fn a_reader_of_the_last_byte_sees_the_whole_message() {
    let table = table(1);
    let mut core = core_of(&table, 0);
    let region = table.register(PD, vec![0u8; 65], WRITE).expect("room");
    let aim = target(&region);
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for message in 1..=ROUNDS {
                let span = core.resolve(aim.stag, PD, aim.base, aim.len, WRITE).expect("granted");
                span.copy_in(0, &[message as u8; 65]).expect("in range");
                core.quiesce();
                while seen.load(Ordering::Acquire) != message {
                    thread::yield_now();
                }
            }
        });
        for message in 1..=ROUNDS {
            while region.load_u8_acquire(64) != Ok(message as u8) {
                thread::yield_now();
            }
            let mut bytes = [0; 65];
            region.read_at(0, &mut bytes).expect("in range");
            assert_eq!(bytes, [message as u8; 65]);
            seen.store(message, Ordering::Release);
        }
    });
}

#[test]
fn a_core_keeps_looking_up_while_other_threads_register_and_drop() {
    let table = table(1);
    let mut core = core_of(&table, 0);
    let (published, to_try) = mpsc::channel::<Target>();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let churners = [3, 7].map(|len| {
            let (table, published) = (table.clone(), published.clone());
            scope.spawn(move || churn(&table, len, &published))
        });
        let done = &done;
        scope.spawn(move || {
            while core_tries(&core, &to_try) || !done.load(Ordering::Acquire) {
                core.quiesce();
                thread::yield_now();
            }
        });
        churners.into_iter().for_each(|churner| churner.join().expect("no failure"));
        done.store(true, Ordering::Release);
    });
    while table.reclaim() > 0 {}
    assert_eq!(table.regions_in_use(), 0);
}

/// Registers, publishes and drops regions of `len` bytes; waits where the graveyard is full.
fn churn(table: &MemTable, len: usize, published: &mpsc::Sender<Target>) {
    for _ in 0..ROUNDS {
        let region = loop {
            match table.register(PD, vec![0u8; len], WRITE) {
                Ok(region) => break region,
                Err(_) => thread::yield_now(),
            }
        };
        // The first byte is the application's, the others the core's: no two threads write the same
        // byte.
        let whole = target(&region);
        let others = Target { base: whole.base + 1, len: whole.len - 1, ..whole };
        published.send(others).expect("the core listens");
        region.write_at(0, &[1]).expect("in range");
    }
}

/// Writes to one published region, which may be gone by then; says whether there was one.
fn core_tries(core: &CoreMem, to_try: &mpsc::Receiver<Target>) -> bool {
    let Ok(aim) = to_try.try_recv() else { return false };
    match core.resolve(aim.stag, PD, aim.base, aim.len, WRITE) {
        Ok(span) => span.copy_in(0, &vec![2; aim.len as usize]).expect("in range"),
        Err(error) => assert!(matches!(error, AccessError::Revoked | AccessError::UnknownStag)),
    }
    true
}

#[test]
fn a_wait_ends_when_the_cores_thread_quiesces_and_not_before() {
    let table = table(1);
    let region = table.register(PD, vec![0u8; 8], WRITE).expect("room");
    let aim = target(&region);
    let mut core = core_of(&table, 0);
    let quiesced = AtomicBool::new(false);
    thread::scope(|scope| {
        let (looked_up, may_revoke) = mpsc::channel();
        let quiesced = &quiesced;
        scope.spawn(move || {
            assert!(core.resolve(aim.stag, PD, aim.base, aim.len, WRITE).is_ok());
            looked_up.send(()).expect("a listener");
            while core.resolve(aim.stag, PD, aim.base, aim.len, WRITE).is_ok() {
                thread::yield_now();
            }
            // The other thread is about to wait, or waits.
            (0..LOOKS).for_each(|_| thread::yield_now());
            quiesced.store(true, Ordering::Relaxed);
            core.quiesce();
        });
        may_revoke.recv().expect("the core has looked up");
        let token = region.deregister();
        assert_eq!(token.wait(std::time::Duration::from_secs(60)), Ok(()));
        // Ordered by the core's announcement.
        assert!(quiesced.load(Ordering::Relaxed));
    });
}
