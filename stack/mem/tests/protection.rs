//! What a look-up grants and refuses, and when memory is given up.
#![cfg(not(loom))]

use ironwarp_mem::{
    Access, AccessError, AlignedBuf, CoreError, CoreMem, MemLimits, MemTable, REGIONS_MAX, RangeError,
    RawMemory, Region, RegisterError, StableBytes, TableError, WaitError,
};
use ironwarp_types::{CoreId, PdId, STag};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PD: PdId = PdId(7);
const WRITE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

fn table(regions_max: u32) -> (MemTable, CoreMem) {
    let table = MemTable::with_secret(MemLimits { regions_max, cores_max: 2 }, [3, 4]).expect("a table");
    let core = table.core(CoreId(0)).expect("a free core");
    (table, core)
}

fn region_of(table: &MemTable, len: usize, access: Access) -> Region {
    table.register(PD, vec![0u8; len], access).expect("room for a region")
}

/// An owner that counts how often it has been dropped.
struct DropCounter {
    bytes: Vec<u8>,
    dropped: Arc<AtomicUsize>,
}

// SAFETY: the vector's bytes stay where they are, and nothing here touches them.
unsafe impl StableBytes for DropCounter {
    fn stable_bytes(&mut self) -> NonNull<[u8]> {
        self.bytes.stable_bytes()
    }
}

impl Drop for DropCounter {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn drop_counter(dropped: &Arc<AtomicUsize>) -> DropCounter {
    DropCounter { bytes: vec![0; 16], dropped: Arc::clone(dropped) }
}

// RFC 5041 s7.1, checks of a tagged segment 3 and 4.
// RFC 5041 s8.1 and s8.3.
#[test]
fn every_byte_of_a_region_is_reachable_and_none_beside_it() {
    let (table, core) = table(4);
    let region = region_of(&table, 100, WRITE);
    let at = |to, len| core.resolve(region.stag(), PD, to, len, Access::REMOTE_WRITE).map(|span| span.len());
    let base = region.base_to();
    assert_eq!(at(base, 100), Ok(100));
    assert_eq!(at(base + 99, 1), Ok(1));
    assert_eq!(at(base + 100, 0), Ok(0));
    assert_eq!(at(base + 99, 2), Err(AccessError::Bounds));
    assert_eq!(at(base + 100, 1), Err(AccessError::Bounds));
    assert_eq!(at(base - 1, 1), Err(AccessError::Bounds));
    assert_eq!(at(base - 1, 102), Err(AccessError::Bounds));
    assert_eq!(at(0, 1), Err(AccessError::Bounds));
    assert_eq!(at(base, u32::MAX), Err(AccessError::Bounds));
}

// RFC 5041 s7.1, check 5.
#[test]
fn an_offset_that_wraps_has_an_error_of_its_own() {
    let (table, core) = table(4);
    let region = region_of(&table, 100, WRITE);
    let at = |to, len| core.resolve(region.stag(), PD, to, len, Access::REMOTE_WRITE).err();
    assert_eq!(at(u64::MAX, 1), Some(AccessError::Wrap));
    assert_eq!(at(u64::MAX - 3, 5), Some(AccessError::Wrap));
    assert_eq!(at(u64::MAX, 0), Some(AccessError::Bounds));
    assert_eq!(at(u64::MAX - 4, 4), Some(AccessError::Bounds));
}

// RFC 5041 s8.2: a stream of another protection domain reaches nothing.
#[test]
fn another_protection_domain_reaches_nothing() {
    let (table, core) = table(4);
    let region = region_of(&table, 100, WRITE);
    let seen = core.resolve(region.stag(), PdId(8), region.base_to(), 1, Access::REMOTE_WRITE);
    assert_eq!(seen.err(), Some(AccessError::WrongPd));
}

// RFC 5041 s8.3.1 (5): read, write, or both.
// RFC 5040 s3.2.
#[test]
fn each_right_is_granted_alone() {
    let (table, core) = table(8);
    let rights = [Access::LOCAL_WRITE, Access::REMOTE_READ, WRITE, Access::all()];
    for granted in rights {
        let region = region_of(&table, 8, granted);
        for need in Access::all().iter().chain([Access::empty(), WRITE]) {
            let seen = core.resolve(region.stag(), PD, region.base_to(), 8, need).err();
            let expected = (!granted.contains(need)).then_some(AccessError::NoRight);
            assert_eq!(seen, expected, "{granted:?} against {need:?}");
        }
    }
}

#[test]
fn the_first_failing_check_names_the_error() {
    let (table, core) = table(4);
    let region = region_of(&table, 8, Access::empty());
    let all_wrong = |stag, pd, need| core.resolve(stag, pd, u64::MAX, 9, need).err();
    let unknown = STag(region.stag().0 ^ 1);
    assert_eq!(all_wrong(unknown, PdId(8), Access::REMOTE_READ), Some(AccessError::UnknownStag));
    assert_eq!(all_wrong(region.stag(), PdId(8), Access::REMOTE_READ), Some(AccessError::WrongPd));
    assert_eq!(all_wrong(region.stag(), PD, Access::REMOTE_READ), Some(AccessError::NoRight));
    assert_eq!(all_wrong(region.stag(), PD, Access::empty()), Some(AccessError::Wrap));
    let _token = region.revoke();
    assert_eq!(all_wrong(region.stag(), PdId(8), Access::REMOTE_READ), Some(AccessError::Revoked));
}

#[test]
fn a_tag_that_nobody_gave_out_is_unknown_and_so_is_zero() {
    let (table, core) = table(16);
    let regions: Vec<Region> = (0..16).map(|_| region_of(&table, 8, WRITE)).collect();
    assert!(regions.iter().all(|region| region.stag() != STag(0)));
    for stag in (0..200_000u32).step_by(if cfg!(miri) { 4_999 } else { 1 }) {
        if regions.iter().all(|region| region.stag().0 != stag) {
            let seen = core.resolve(STag(stag), PD, regions[0].base_to(), 1, Access::empty());
            assert_eq!(seen.err(), Some(AccessError::UnknownStag));
        }
    }
}

// RFC 5041 s8.3 (2): the ULP may revoke validity at any time.
// RFC 5040 s8.1.1; RFC 5041 s8.3.1.
#[test]
fn a_deregistered_tag_is_revoked_at_once_and_unknown_when_its_slot_is_free() {
    let (table, mut core) = table(4);
    let region = region_of(&table, 8, WRITE);
    let (stag, base) = (region.stag(), region.base_to());
    assert!(core.resolve(stag, PD, base, 8, Access::REMOTE_WRITE).is_ok());
    let token = region.deregister();
    assert_eq!(core.resolve(stag, PD, base, 8, Access::REMOTE_WRITE).err(), Some(AccessError::Revoked));
    assert!(!token.poll(), "the core is online and has not quiesced");
    core.quiesce();
    assert!(token.poll());
    table.reclaim();
    assert_eq!(core.resolve(stag, PD, base, 8, Access::REMOTE_WRITE).err(), Some(AccessError::UnknownStag));
}

#[test]
fn a_revoked_region_is_still_the_applications() {
    let (table, mut core) = table(4);
    let region = region_of(&table, 8, WRITE);
    core.resolve(region.stag(), PD, region.base_to(), 3, WRITE).unwrap().copy_in(0, b"abc").unwrap();
    let token = region.revoke();
    core.quiesce();
    assert!(token.poll());
    assert_eq!(table.reclaim(), 0);
    let mut seen = [0; 3];
    region.read_at(0, &mut seen).unwrap();
    assert_eq!(&seen, b"abc");
    assert_eq!(table.regions_in_use(), 1);
}

#[test]
fn memory_is_dropped_only_after_every_core_has_quiesced() {
    let (table, mut first) = table(4);
    let mut second = table.core(CoreId(1)).unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    let region = table.register(PD, drop_counter(&dropped), WRITE).unwrap();
    for core in [&first, &second] {
        assert!(core.resolve(region.stag(), PD, region.base_to(), 1, WRITE).is_ok());
    }
    drop(region);
    first.quiesce();
    assert_eq!((table.reclaim(), dropped.load(Ordering::SeqCst)), (0, 0));
    second.go_offline();
    assert_eq!((table.reclaim(), dropped.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(table.regions_in_use(), 0);
}

#[test]
fn the_last_handle_drops_everything() {
    let (table, core) = table(4);
    let dropped = Arc::new(AtomicUsize::new(0));
    let kept = table.register(PD, drop_counter(&dropped), WRITE).unwrap();
    let gone = table.register(PD, drop_counter(&dropped), WRITE).unwrap();
    assert!(core.resolve(gone.stag(), PD, gone.base_to(), 1, WRITE).is_ok());
    drop(gone);
    drop(table);
    drop(core);
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(kept);
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

#[test]
fn the_limit_of_regions_is_a_named_error_and_passes() {
    let (table, mut core) = table(3);
    let regions: Vec<Region> = (0..3).map(|_| region_of(&table, 8, WRITE)).collect();
    let full = Some(RegisterError::TableFull { limit: 3 });
    assert_eq!(table.register(PD, vec![0; 8], WRITE).err(), full);
    assert!(core.resolve(regions[0].stag(), PD, regions[0].base_to(), 1, WRITE).is_ok());
    drop(regions);
    assert_eq!(table.register(PD, vec![0; 8], WRITE).err(), full, "memory in the graveyard counts");
    core.quiesce();
    assert!(table.register(PD, vec![0; 8], WRITE).is_ok());
}

/// RFC 5042 s6.4.1: a context that has taken its whole share, and one that finds the table full,
/// get different errors.
#[test]
fn the_share_of_a_context_is_an_error_of_its_own() {
    let (table, _core) = table(3);
    let (greedy, other) = (table.for_context(1, 2), table.for_context(2, 2));
    let regions: Vec<Region> = (0..2).map(|_| region_of(&greedy, 8, WRITE)).collect();
    let share = Some(RegisterError::QuotaExceeded { limit: 2 });
    assert_eq!(greedy.register(PD, vec![0; 8], WRITE).err(), share);
    let _last = region_of(&other, 8, WRITE);
    assert_eq!(other.register(PD, vec![0; 8], WRITE).err(), Some(RegisterError::TableFull { limit: 3 }));
    drop(regions);
    assert!(greedy.register(PD, vec![0; 8], WRITE).is_ok());
}

/// RFC 5041 s8.3.
#[test]
fn what_makes_no_region_is_a_named_error() {
    let (table, _core) = table(2);
    let error = |bytes: Vec<u8>, access| table.register(PD, bytes, access).err();
    assert_eq!(error(vec![], WRITE), Some(RegisterError::Empty));
    assert_eq!(error(vec![0], Access::REMOTE_WRITE), Some(RegisterError::NeedsLocalWrite));
    assert_eq!(error(vec![0], Access::REMOTE_ATOMIC), Some(RegisterError::NeedsLocalWrite));
    // SAFETY: a range that wraps is refused before anything touches it.
    let wrapping = unsafe { RawMemory::new(NonNull::dangling(), usize::MAX) };
    let wrapping = table.register(PD, wrapping, Access::empty());
    assert_eq!(wrapping.err(), Some(RegisterError::Wrap));
    assert_eq!(table.regions_in_use(), 0);
}

#[test]
fn a_table_out_of_its_limits_is_a_named_error() {
    for regions_max in [0, REGIONS_MAX + 1, u32::MAX] {
        let made = MemTable::new(MemLimits { regions_max, cores_max: 1 });
        assert_eq!(made.err(), Some(TableError::RegionsOutOfRange));
    }
}

#[test]
fn a_core_has_one_handle_at_a_time() {
    let (table, core) = table(2);
    assert_eq!(table.core(CoreId(0)).err(), Some(CoreError::InUse));
    assert_eq!(table.core(CoreId(2)).err(), Some(CoreError::NoSuchCore));
    drop(core);
    assert!(table.core(CoreId(0)).is_ok());
}

#[test]
fn a_thread_that_runs_a_core_may_not_wait() {
    let (table, mut core) = table(2);
    core.record_thread();
    let token = region_of(&table, 8, WRITE).deregister();
    assert_eq!(token.wait(Duration::MAX), Err(WaitError::OnCoreThread));
    assert!(token.poll(), "the core is parked");
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(token.wait(Duration::ZERO), Ok(())));
    });
}

#[test]
fn a_wait_for_a_core_that_nobody_polls_ends() {
    let (table, core) = table(2);
    let region = region_of(&table, 8, WRITE);
    assert!(core.resolve(region.stag(), PD, region.base_to(), 1, WRITE).is_ok());
    let token = region.deregister();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(token.wait(Duration::ZERO), Err(WaitError::TimedOut)));
    });
}

#[test]
fn a_span_granted_for_reading_refuses_to_be_written() {
    let (table, core) = table(2);
    let region = region_of(&table, 8, Access::all());
    for need in [Access::empty(), Access::REMOTE_READ] {
        let span = core.resolve(region.stag(), PD, region.base_to(), 8, need).unwrap();
        assert_eq!(span.copy_in(0, b"x"), Err(RangeError::ReadOnly));
        assert_eq!(span.copy_out(0, &mut [0; 8]), Ok(()));
    }
}

#[test]
fn a_copy_beyond_a_span_touches_nothing() {
    let (table, core) = table(2);
    let region = region_of(&table, 8, WRITE);
    let span = core.resolve(region.stag(), PD, region.base_to() + 2, 4, WRITE).unwrap();
    for (offset, len) in [(0, 5), (4, 1), (5, 0), (usize::MAX, 1)] {
        assert_eq!(span.copy_in(offset, &vec![9; len]), Err(RangeError::OutOfRange));
        assert_eq!(span.copy_out(offset, &mut vec![9; len]), Err(RangeError::OutOfRange));
    }
    let mut seen = [1; 8];
    region.read_at(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 8]);
}

#[test]
fn a_local_element_resolves_to_its_bytes() {
    let (table, core) = table(2);
    let region = region_of(&table, 100, Access::empty());
    region.write_at(40, b"payload").unwrap();
    let sge = region.slice(40, 7).unwrap();
    let mut seen = [0; 7];
    let span = core.resolve(sge.lkey, PD, sge.addr, sge.len, Access::empty()).unwrap();
    span.copy_out(0, &mut seen).unwrap();
    assert_eq!(&seen, b"payload");
    assert_eq!(region.slice(94, 7), Err(RangeError::OutOfRange));
    assert_eq!(region.slice(101, 0), Err(RangeError::OutOfRange));
}

#[test]
fn words_are_whole_and_aligned() {
    let (table, _core) = table(2);
    let region = table.register(PD, AlignedBuf::pages(32).unwrap(), WRITE).unwrap();
    region.store_u64_release(16, 0x0102_0304_0506_0708).unwrap();
    assert_eq!(region.load_u64_acquire(16), Ok(0x0102_0304_0506_0708));
    assert_eq!(region.load_u8_acquire(16), Ok(0x0102_0304_0506_0708u64.to_ne_bytes()[0]));
    assert_eq!(region.load_u64_acquire(17), Err(RangeError::Misaligned));
    assert_eq!(region.store_u64_release(25, 0), Err(RangeError::OutOfRange));
    assert_eq!(region.load_u8_acquire(32), Err(RangeError::OutOfRange));
    region.fill(14, 4, 0xaa).unwrap();
    let mut seen = [0; 6];
    region.read_at(13, &mut seen).unwrap();
    assert_eq!(
        (seen[0], &seen[1..5], seen[5]),
        (0, &[0xaa; 4][..], 0x0102_0304_0506_0708u64.to_ne_bytes()[2])
    );
}

#[test]
fn a_boxed_slice_is_an_owner_too() {
    let (table, core) = table(2);
    let region = table.register(PD, vec![5u8; 10].into_boxed_slice(), WRITE).unwrap();
    let span = core.resolve(region.stag(), PD, region.base_to(), 10, WRITE).unwrap();
    span.copy_in(9, &[6]).unwrap();
    assert_eq!((region.load_u8_acquire(8), region.load_u8_acquire(9)), (Ok(5), Ok(6)));
}

#[test]
fn an_owner_may_use_the_table_while_it_is_dropped() {
    struct Chain(Vec<u8>, Option<MemTable>, Arc<AtomicUsize>);
    // SAFETY: the vector's bytes stay where they are, and nothing here touches them.
    unsafe impl StableBytes for Chain {
        fn stable_bytes(&mut self) -> NonNull<[u8]> {
            self.0.stable_bytes()
        }
    }
    impl Drop for Chain {
        fn drop(&mut self) {
            let in_use = self.1.take().map_or(0, |table| table.regions_in_use());
            self.2.store(in_use + 1, Ordering::SeqCst);
        }
    }
    let (table, _core) = table(2);
    let seen = Arc::new(AtomicUsize::new(0));
    let owner = Chain(vec![0; 4], Some(table.clone()), Arc::clone(&seen));
    drop(table.register(PD, owner, WRITE).unwrap());
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

/// Memory is released by a later call or an idle core: a panic in its owner's destructor ends
/// there.
#[test]
fn an_owner_that_panics_when_dropped_harms_nobody() {
    struct Faulty(Vec<u8>);
    // SAFETY: the vector's bytes stay where they are, and nothing here touches them.
    unsafe impl StableBytes for Faulty {
        fn stable_bytes(&mut self) -> NonNull<[u8]> {
            self.0.stable_bytes()
        }
    }
    impl Drop for Faulty {
        fn drop(&mut self) {
            panic!("a destructor of the application");
        }
    }
    let (table, _core) = table(2);
    let faulty = table.register(PD, Faulty(vec![0; 4]), WRITE).unwrap();
    let other = table.register(PD, vec![0u8; 4], WRITE).unwrap();
    drop((faulty, other));
    table.reclaim();
    assert_eq!(table.regions_in_use(), 0);
}

/// A table made to replay: tags and tagged offsets are the same in two tables, wherever the memory
/// lies.
#[test]
fn a_replayable_table_gives_the_same_tags_and_offsets_again() {
    let limits = MemLimits { regions_max: 16, cores_max: 1 };
    let make = || {
        let table = MemTable::replayable(limits, [7, 8]).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let regions: Vec<_> =
            (0..4).map(|_| table.register(PdId(1), vec![0u8; 100], access).unwrap()).collect();
        let names: Vec<_> = regions.iter().map(|region| (region.stag(), region.base_to())).collect();
        let core = table.core(CoreId(0)).unwrap();
        for region in &regions {
            let right = core.resolve(region.stag(), PdId(1), region.base_to() + 60, 40, access).unwrap();
            right.copy_in(39, b"x").unwrap();
            assert_eq!(region.load_u8_acquire(99), Ok(b'x'));
            let beyond = core.resolve(region.stag(), PdId(1), region.base_to() + 61, 40, access);
            assert_eq!(beyond.err(), Some(AccessError::Bounds));
            assert_eq!(region.slice(10, 5).unwrap().addr, region.base_to() + 10);
        }
        names
    };
    assert_eq!(make(), make());
}
