//! Cores that copy while application threads poll, revoke and free. Miri checks these for races and stale memory.
#![cfg(not(loom))]

use ironwarp_mem::{Access, AccessError, CoreMem, MemLimits, MemTable, Region};
use ironwarp_types::{CoreId, PdId};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

const PD: PdId = PdId(1);
const WRITE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
const ROUNDS: u64 = if cfg!(miri) { 12 } else { 2_000 };

fn table(cores_max: u16) -> MemTable {
    MemTable::with_secret(MemLimits { regions_max: 32, cores_max }, [8, 9]).expect("a table")
}

fn core_of(table: &MemTable, core: u16) -> CoreMem {
    table.core(CoreId(core)).expect("a free core")
}

/// Writes runs of one byte into a region until its tag is refused.
fn place_until_revoked(mut core: CoreMem, region: Target, pauses: bool) {
    for round in 0u64.. {
        match core.resolve(region.stag, PD, region.base, region.len, WRITE) {
            Ok(span) => span.copy_in(0, &vec![round as u8; region.len as usize]).expect("in range"),
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

// RFC 5040 s8.1.1 (6): after revocation the network can no longer modify the buffer.
#[test]
fn memory_freed_after_its_token_is_never_touched_by_a_core_that_was_copying() {
    for round in 0..ROUNDS / 4 {
        let table = table(2);
        let bytes = NonNull::from(Box::leak(vec![0u8; 48].into_boxed_slice()));
        // SAFETY: freed below, after the token is complete.
        let region = unsafe { table.register_raw(PD, bytes.cast(), 48, WRITE) }.expect("room");
        let aim = target(&region);
        thread::scope(|scope| {
            for core in 0..2 {
                let core_mem = core_of(&table, core);
                scope.spawn(move || place_until_revoked(core_mem, aim, (round + u64::from(core)) % 2 == 0));
            }
            while region.load_u8_acquire(47) == Ok(0) && round % 2 == 0 {
                thread::yield_now();
            }
            let token = region.deregister();
            while !token.poll() {
                thread::yield_now();
            }
            // SAFETY: the token is complete, so nobody else touches the bytes; made by `Box::leak`.
            drop(unsafe { Box::from_raw(bytes.as_ptr()) });
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
        published.send(target(&region)).expect("the core listens");
        region.write_at(0, &vec![1; len]).expect("in range");
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
fn a_wait_ends_when_the_cores_thread_quiesces() {
    let table = table(1);
    let region = table.register(PD, vec![0u8; 8], WRITE).expect("room");
    let aim = target(&region);
    let core = core_of(&table, 0);
    thread::scope(|scope| {
        scope.spawn(move || place_until_revoked(core, aim, false));
        let token = region.deregister();
        assert_eq!(token.wait(std::time::Duration::from_secs(60)), Ok(()));
    });
}
