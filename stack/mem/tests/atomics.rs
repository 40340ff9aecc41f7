//! Atomic operations on registered words: who may ask, who carries out, what is left in memory.
#![cfg(not(loom))]

use ironwarp_mem::{
    Access, AccessError, AccessScope, AlignedBuf, AtomicCall, AtomicOp, AtomicTarget, Binding, CoreMem,
    MemLimits, MemTable, RawMemory, Region, RegisterError, Sge, WordError,
};
use ironwarp_types::{CoreId, PdId, QpNum, STag};
use proptest::prelude::*;
use std::ptr::NonNull;
use std::thread;

const PD: PdId = PdId(1);
const STREAM: AccessScope = AccessScope::new(PD, QpNum(7));
const ATOMIC: Access = Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC);
const CORES: u16 = 4;
const REGIONS: u32 = if cfg!(miri) { 16 } else { 64 };
const LIMITS: MemLimits = MemLimits { regions_max: REGIONS, cores_max: CORES };
/// The words that are looked at are so far apart: under Miri one of each line.
const STRIDE: usize = if cfg!(miri) { 64 } else { 8 };

fn table() -> MemTable {
    MemTable::with_secret(LIMITS, [3, 4]).unwrap()
}

fn cores(table: &MemTable) -> Vec<CoreMem> {
    (0..CORES).map(|core| table.core(CoreId(core)).unwrap()).collect()
}

fn lines(count: usize) -> AlignedBuf {
    AlignedBuf::zeroed(count * 64, 64).unwrap()
}

fn target_of(stag: STag, to: u64) -> AtomicTarget {
    AtomicTarget { stag, to, scope: STREAM, need: Access::REMOTE_ATOMIC }
}

fn word_of(region: &Region, offset: u64) -> AtomicTarget {
    target_of(region.stag(), region.base_to() + offset)
}

/// Runs an operation where the word belongs, as a stack does: claimed at hand, or mailed.
fn run(cores: &[CoreMem], target: &AtomicTarget, operation: AtomicOp) -> Result<u64, WordError> {
    match cores[0].word(target)?.claim() {
        Ok(word) => Ok(word.apply(&operation)?),
        Err(owner) => {
            let call = AtomicCall::new(77, target, operation);
            let reply = call.run(&cores[usize::from(owner.0)]);
            assert_eq!(reply.token, 77);
            reply.outcome
        }
    }
}

/// Memory that outlives whatever is registered over it.
struct Arena(NonNull<[u64; 64]>);

impl Arena {
    fn bytes(&self, offset: usize, len: usize) -> NonNull<[u8]> {
        assert!(offset + len <= size_of::<[u64; 64]>());
        // SAFETY: within the allocation.
        NonNull::slice_from_raw_parts(unsafe { self.0.cast::<u8>().add(offset) }, len)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and everything that was registered over it is gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn arena() -> Arena {
    Arena(NonNull::from(Box::leak(Box::new([0; 64]))))
}

fn raw(table: &MemTable, bytes: NonNull<[u8]>, access: Access) -> Result<Region, RegisterError> {
    // SAFETY: every test drops its table and regions before its arena, to which it keeps no
    // reference.
    let raw = unsafe { RawMemory::new(bytes.cast(), bytes.len()) };
    table.register(PD, raw, access)
}

fn raw_pinned(table: &MemTable, bytes: NonNull<[u8]>, core: u16) -> Result<Region, RegisterError> {
    // SAFETY: as in `raw`.
    let raw = unsafe { RawMemory::new(bytes.cast(), bytes.len()) };
    table.register_on_core(PD.into(), raw, ATOMIC, CoreId(core))
}

/// RFC7306-8.2-08: the checks of a Read's source, with a right of its own. Memory stays as it is.
#[test]
fn only_a_live_tag_of_the_stream_with_the_atomic_right_is_granted() {
    let table = table();
    let cores = cores(&table);
    let region = table.register(PD, lines(1), ATOMIC).unwrap();
    let rightless = table.register(PD, lines(1), Access::all().difference(Access::REMOTE_ATOMIC)).unwrap();
    let base = region.base_to();
    let refused = |target: AtomicTarget| run(&cores, &target, AtomicOp::add(1)).err();
    let access = |error| Some(WordError::Access(error));

    assert_eq!(refused(target_of(STag(region.stag().0 ^ 1), base)), access(AccessError::UnknownStag));
    assert_eq!(
        refused(AtomicTarget { scope: PdId(2).into(), ..target_of(region.stag(), base) }),
        access(AccessError::WrongPd)
    );
    assert_eq!(refused(word_of(&rightless, 0)), access(AccessError::NoRight));
    assert_eq!(refused(word_of(&region, 57)), access(AccessError::Bounds));
    assert_eq!(refused(word_of(&region, 64)), access(AccessError::Bounds));
    assert_eq!(refused(target_of(region.stag(), u64::MAX - 6)), access(AccessError::Wrap));
    assert_eq!(
        refused(AtomicTarget { need: Access::empty(), ..word_of(&region, 0) }),
        access(AccessError::NoRight)
    );
    assert_eq!(refused(word_of(&region, 56)), None);
    assert_eq!(region.load_u64_acquire(56), Ok(1));

    let token = region.revoke();
    assert_eq!(refused(word_of(&region, 0)), access(AccessError::Revoked));
    assert_eq!((region.load_u64_acquire(0), region.load_u64_acquire(56)), (Ok(0), Ok(1)));
    assert_eq!(rightless.load_u64_acquire(0), Ok(0));
    drop(token);
}

/// RFC7306-5.1.1-02, RFC7306-5.1.1-03, RFC7306-5.1.2-05, RFC7306-5.1.2-06 and RFC7306-8.2-06: no
/// operation touches a word off a multiple of 8.
#[test]
fn a_word_off_its_alignment_is_refused_and_left_alone() {
    let table = table();
    let cores = cores(&table);
    let region = table.register(PD, lines(1), ATOMIC).unwrap();
    let operations = [AtomicOp::add(1), AtomicOp::compare_and_swap(0, 9), AtomicOp::Swap { swap: 9 }];
    for operation in operations {
        for offset in 1..8 {
            assert_eq!(run(&cores, &word_of(&region, offset), operation), Err(WordError::Misaligned));
        }
    }
    let mut bytes = [0xff; 64];
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 64]);
}

/// RFC7306-5.2.1-05 and RFC7306-5.2.1-06: an offset may be any number; the address behind it is
/// what must be aligned.
#[test]
fn alignment_is_that_of_the_address_and_not_of_the_offset() {
    let arena = arena();
    // Offsets that do not follow from addresses.
    let table = MemTable::replayable(LIMITS, [3, 4]).unwrap();
    let cores = cores(&table);
    let odd = raw(&table, arena.bytes(3, 64), ATOMIC).unwrap();
    assert_eq!(odd.base_to() % 8, 0);
    assert_eq!(run(&cores, &word_of(&odd, 0), AtomicOp::add(1)), Err(WordError::Misaligned));
    assert_eq!(run(&cores, &word_of(&odd, 5), AtomicOp::add(1)), Ok(0));
    assert_eq!(odd.load_u64_acquire(5), Ok(1));
    let whole = raw(&table, arena.bytes(0, 512), ATOMIC).unwrap();
    assert_eq!((whole.load_u64_acquire(0), whole.load_u64_acquire(8)), (Ok(0), Ok(1)));
}

/// RFC7306-5.1.1-07: the operation is done in the machine's order, whatever that is, and on all
/// eight bytes.
#[test]
fn words_are_numbers_of_the_machine() {
    let table = table();
    let cores = cores(&table);
    let region = table.register(PD, lines(1), ATOMIC).unwrap();
    region.write_at(8, &0x0102_0304_0506_07ffu64.to_ne_bytes()).unwrap();
    assert_eq!(run(&cores, &word_of(&region, 8), AtomicOp::add(1)), Ok(0x0102_0304_0506_07ff));
    let mut bytes = [0; 24];
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes[8..16], 0x0102_0304_0506_0800u64.to_ne_bytes());
    assert_eq!((&bytes[..8], &bytes[16..]), (&[0; 8][..], &[0; 8][..]));
}

/// RFC7306-5.1.2-02 and RFC7306-5.1.2-03: the original value comes back either way, and memory
/// holds one or the other.
#[test]
fn a_comparison_that_fails_changes_nothing_and_tells_the_value_all_the_same() {
    let table = table();
    let cores = cores(&table);
    let region = table.register(PD, lines(1), ATOMIC).unwrap();
    region.store_u64_release(0, 5).unwrap();
    let target = word_of(&region, 0);
    assert_eq!(run(&cores, &target, AtomicOp::compare_and_swap(4, 9)), Ok(5));
    assert_eq!(region.load_u64_acquire(0), Ok(5));
    assert_eq!(run(&cores, &target, AtomicOp::compare_and_swap(5, 9)), Ok(5));
    assert_eq!(region.load_u64_acquire(0), Ok(9));
}

/// Two regions, a window and a fast region over one word: one owner, whom alone the word lets
/// change it.
#[test]
fn all_names_of_a_word_lead_to_one_owner() {
    const SHARED: Access = ATOMIC.union(Access::BIND);
    let arena = arena();
    for replays in [false, true] {
        let table = if replays { MemTable::replayable(LIMITS, [3, 4]).unwrap() } else { table() };
        let cores = cores(&table);
        let whole = raw(&table, arena.bytes(0, 512), SHARED).unwrap();
        let part = raw(&table, arena.bytes(40, 400), SHARED).unwrap();
        let (mut window, mut fast) = (table.window(PD).unwrap(), table.fast_region(PD).unwrap());
        let bind = |stag, over: Sge, access| {
            cores[0].bind(&Binding { stag, over, access, stream_scope: true }, STREAM).unwrap();
            stag
        };
        let window = bind(window.next_stag(), part.slice(8, 300).unwrap(), Access::REMOTE_ATOMIC);
        let fast = bind(fast.next_stag(), whole.slice(48, 300).unwrap(), ATOMIC);
        let mut owners = vec![];
        for address in (48..344).step_by(if cfg!(miri) { 72 } else { 8 }) {
            let (in_whole, in_part) = (whole.base_to() + address, part.base_to() + address - 40);
            let names =
                [(whole.stag(), in_whole), (part.stag(), in_part), (window, in_part), (fast, in_whole)];
            let owner = cores[0].word(&target_of(whole.stag(), in_whole)).unwrap().owner();
            for (stag, to) in names {
                for core in &cores {
                    let word = core.word(&target_of(stag, to)).unwrap();
                    assert_eq!(word.owner(), owner);
                }
                let claims = cores.iter().map(|core| core.word(&target_of(stag, to)).unwrap().claim());
                assert_eq!(claims.filter(Result::is_ok).count(), 1);
            }
            owners.push(owner);
        }
        owners.dedup();
        assert!(owners.len() > 1, "words of several lines have several owners");
    }
}

/// RFC7306-5-01: whichever name a word goes by, operations follow one another.
#[test]
fn a_word_changed_by_one_name_is_seen_changed_by_another() {
    let arena = arena();
    let table = table();
    let cores = cores(&table);
    let regions = [(0, 512), (64, 64)].map(|(at, len)| raw(&table, arena.bytes(at, len), ATOMIC).unwrap());
    let names = [word_of(&regions[0], 72), word_of(&regions[1], 8)];
    for round in 0..10 {
        assert_eq!(run(&cores, &names[round % 2], AtomicOp::add(3)), Ok(3 * round as u64));
    }
}

/// A tag revoked while the request for it was in the mail.
#[test]
fn what_was_revoked_on_the_way_to_the_owner_is_refused_there() {
    let table = table();
    let cores = cores(&table);
    let region = table.register(PD, lines(1), ATOMIC).unwrap();
    let target = word_of(&region, 0);
    let owner = cores[0].word(&target).unwrap().owner();
    let call = AtomicCall::new(1, &target, AtomicOp::add(1));
    assert_eq!(call.run(&cores[usize::from(owner.0)]).outcome, Ok(0));
    let _token = region.revoke();
    let refused = Err(WordError::Access(AccessError::Revoked));
    assert_eq!(call.run(&cores[usize::from(owner.0)]).outcome, refused);
    assert_eq!(region.load_u64_acquire(0), Ok(1));
}

/// Whatever a call was made of, a core that does not own the word leaves it alone.
#[test]
fn a_call_that_reaches_another_core_than_the_owner_changes_nothing() {
    let table = table();
    let cores = cores(&table);
    let region = table.register(PD, lines(1), ATOMIC).unwrap();
    let target = word_of(&region, 0);
    let owner = usize::from(cores[0].word(&target).unwrap().owner().0);
    let call = AtomicCall::new(1, &target, AtomicOp::add(1));
    for other in (0..cores.len()).filter(|&core| core != owner) {
        assert_eq!(call.run(&cores[other]).outcome, Err(WordError::Access(AccessError::Revoked)));
    }
    assert_eq!(region.load_u64_acquire(0), Ok(0));
}

#[test]
fn a_pinned_range_belongs_to_its_core_by_every_name() {
    let arena = arena();
    for replays in [false, true] {
        let table = if replays { MemTable::replayable(LIMITS, [3, 4]).unwrap() } else { table() };
        let cores = cores(&table);
        let access = ATOMIC | Access::BIND;
        let pinned = table.register_on_core(PD.into(), lines(8), access, CoreId(2)).unwrap();
        let same = [0, 1].map(|at| raw_pinned(&table, arena.bytes(at * 64, 128), 3).unwrap());
        let mut window = table.window(PD).unwrap();
        let over = pinned.slice(0, 512).unwrap();
        let binding =
            Binding { stag: window.next_stag(), over, access: Access::REMOTE_ATOMIC, stream_scope: true };
        cores[0].bind(&binding, STREAM).unwrap();
        for offset in (0..512).step_by(STRIDE) {
            let names = [word_of(&pinned, offset), target_of(window.stag(), pinned.base_to() + offset)];
            for name in names {
                assert_eq!(cores[1].word(&name).unwrap().owner(), CoreId(2));
            }
        }
        for region in &same {
            assert_eq!(cores[1].word(&word_of(region, 64)).unwrap().owner(), CoreId(3));
        }
        // What is not pinned goes on by its hash.
        let free = table.register(PD, lines(8), ATOMIC).unwrap();
        let owner_of = |offset| cores[1].word(&word_of(&free, offset)).unwrap().owner();
        let plain = |offset| CoreId::owner_of(free.base_to() + offset, CORES);
        assert!((0..512).step_by(STRIDE).all(|offset| owner_of(offset) == plain(offset)));
    }
}

/// Two owners for one word would each change it without the other.
#[test]
fn registrations_that_overlap_with_another_pinning_are_refused() {
    let arena = arena();
    let table = table();
    let mut core = table.core(CoreId(0)).unwrap();
    let first = raw_pinned(&table, arena.bytes(64, 64), 1).unwrap();
    let conflict = Some(RegisterError::PinConflict);
    assert_eq!(raw_pinned(&table, arena.bytes(0, 65), 2).err(), conflict);
    assert_eq!(raw(&table, arena.bytes(127, 8), ATOMIC).err(), conflict);
    assert_eq!(raw_pinned(&table, arena.bytes(200, 8), CORES).err(), Some(RegisterError::NoSuchCore));
    assert!(raw_pinned(&table, arena.bytes(127, 8), 1).is_ok());
    assert!(raw(&table, arena.bytes(128, 8), ATOMIC).is_ok());
    // A core may still be at it after the tag is gone: the next pinning waits for that too.
    assert!(core.word(&word_of(&first, 0)).is_ok());
    let token = first.deregister();
    assert_eq!(raw(&table, arena.bytes(64, 8), ATOMIC).err(), conflict);
    core.quiesce();
    assert!(token.poll());
    table.reclaim();
    assert!(raw(&table, arena.bytes(64, 8), ATOMIC).is_ok());
}

/// A refused registration leaves nothing behind, and drops its owner where the owner may use the
/// table.
#[test]
fn a_refused_pinning_takes_no_place() {
    let arena = arena();
    let table = table();
    let _first = raw_pinned(&table, arena.bytes(0, 64), 1).unwrap();
    let before = table.regions_in_use();
    assert!((0..3 * REGIONS).all(|_| raw_pinned(&table, arena.bytes(0, 64), 2).is_err()));
    assert_eq!(table.regions_in_use(), before);
}

/// A simulation that is run again finds every word with the same owner, wherever the allocator put
/// it this time.
#[test]
fn in_a_table_that_replays_owners_do_not_hang_on_addresses() {
    let owners = || {
        let table = MemTable::replayable(LIMITS, [5, 6]).unwrap();
        let core = table.core(CoreId(1)).unwrap();
        // The boxes keep each other's addresses taken, so that no two runs find the same.
        let regions: Vec<Region> = (0..8).map(|_| table.register(PD, lines(4), ATOMIC).unwrap()).collect();
        let words = regions.iter().flat_map(|region| (0..256).step_by(STRIDE).map(|at| word_of(region, at)));
        let owners: Vec<CoreId> = words.map(|word| core.word(&word).unwrap().owner()).collect();
        (owners, table, regions)
    };
    let (first, second) = (owners(), owners());
    assert_eq!(first.0, second.0);
}

#[test]
fn a_call_says_what_was_put_into_it() {
    let target = AtomicTarget { stag: STag(9), to: u64::MAX, scope: STREAM, need: Access::LOCAL_WRITE };
    let masked = AtomicOp::CmpSwap { compare: 1, compare_mask: 2, swap: 3, swap_mask: 4 };
    for operation in [AtomicOp::FetchAdd { add: 5, mask: 6 }, masked, AtomicOp::Swap { swap: 7 }] {
        let call = AtomicCall::new(8, &target, operation);
        assert_eq!((call.token(), call.target(), call.operation()), (8, target, operation));
    }
}

fn operations() -> impl Strategy<Value = AtomicOp> {
    // Small numbers, so that comparisons match now and then.
    let few = || prop_oneof![0..4u64, Just(u64::MAX), any::<u64>()];
    prop_oneof![
        (few(), few()).prop_map(|(add, mask)| AtomicOp::FetchAdd { add, mask }),
        (few(), few(), few(), few()).prop_map(|(compare, compare_mask, swap, swap_mask)| {
            AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask }
        }),
        few().prop_map(|swap| AtomicOp::Swap { swap }),
    ]
}

/// Operations in a row.
const MOST: usize = if cfg!(miri) { 6 } else { 40 };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        ..Default::default()
    })]

    /// Owner, mail and locked instructions do one and the same to a word.
    #[test]
    fn every_way_of_running_an_operation_agrees(operations in proptest::collection::vec(operations(), 1..MOST)) {
        let table = table();
        let cores = cores(&table);
        let region = table.register(PD, lines(2), ATOMIC).unwrap();
        let (owned, locked) = (word_of(&region, 0), word_of(&region, 64));
        let mut expected = 0;
        for operation in operations {
            prop_assert_eq!(run(&cores, &owned, operation), Ok(expected));
            prop_assert_eq!(cores[3].word(&locked).unwrap().apply_locked(&operation), Ok(expected));
            expected = operation.apply(expected);
            prop_assert_eq!(region.load_u64_acquire(0), Ok(expected));
            prop_assert_eq!(region.load_u64_acquire(64), Ok(expected));
        }
    }
}

/// RFC7306-5.3-01 for the measured alternative: every addition counts, from whatever core, with an
/// instruction for it or without one.
#[test]
fn locked_operations_of_several_cores_lose_nothing() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
    let table = table();
    let region = table.register(PD, lines(1), ATOMIC).unwrap();
    let target = word_of(&region, 0);
    // Bits 0 to 31 by the instruction, 32 to 63 by retrying: the mask keeps them apart.
    let masked = AtomicOp::FetchAdd { add: 1 << 32, mask: 1 << 31 };
    thread::scope(|scope| {
        for core in cores(&table).into_iter().take(2) {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let word = core.word(&target).unwrap();
                    word.apply_locked(&AtomicOp::add(1)).unwrap();
                    word.apply_locked(&masked).unwrap();
                }
            });
        }
    });
    assert_eq!(region.load_u64_acquire(0), Ok((2 * ROUNDS) << 32 | (2 * ROUNDS)));
}
