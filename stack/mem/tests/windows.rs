//! Tags of one stream, windows and fast regions: who may use them, for what, and when they end.

use ironwarp_mem::{
    Access, AccessError, AccessScope, BindError, Binding, CoreMem, InvalidateError, Invalidator, MemLimits,
    MemTable, Region, Sge,
};
use ironwarp_types::{CoreId, PdId, QpNum, STag};
use std::collections::HashSet;

const PD: PdId = PdId(1);
const STREAM: AccessScope = AccessScope::new(PD, QpNum(7));
const OTHER: AccessScope = AccessScope::new(PD, QpNum(8));
const POOL: Access = Access::LOCAL_WRITE.union(Access::BIND);

struct Fixture {
    table: MemTable,
    core: CoreMem,
    pool: Region,
}

fn fixture() -> Fixture {
    let table = MemTable::with_secret(MemLimits { regions_max: 64, cores_max: 2 }, [3, 4]).unwrap();
    let core = table.core(CoreId(0)).unwrap();
    let pool = table.register(PD, vec![0u8; 4096], POOL).unwrap();
    Fixture { table, core, pool }
}

fn window(stag: STag, over: Sge, access: Access) -> Binding {
    Binding { stag, over, access, stream_scope: true }
}

impl Fixture {
    fn piece(&self) -> Sge {
        self.pool.slice(1024, 512).unwrap()
    }

    fn resolve_error(
        &self,
        stag: STag,
        scope: impl Into<AccessScope>,
        at: Sge,
        need: Access,
    ) -> Option<AccessError> {
        self.core.resolve(stag, scope, at.addr, at.len, need).err()
    }
}

/// RFC 5040 s8.1.1 (2): a tag limited to one stream is unusable by any other, even of the same
/// domain.
#[test]
fn a_region_of_one_stream_is_closed_to_every_other() {
    let Fixture { table, core, .. } = fixture();
    let region = table.register_in_scope(STREAM, vec![0u8; 64], Access::all()).unwrap();
    let at = |scope| core.resolve(region.stag(), scope, region.base_to(), 64, Access::REMOTE_READ).err();
    assert_eq!(at(STREAM), None);
    assert_eq!(at(OTHER), Some(AccessError::WrongStream));
    assert_eq!(at(AccessScope::new(PdId(2), QpNum(7))), Some(AccessError::WrongPd));
    assert_eq!(at(AccessScope::new(PdId(u32::MAX), QpNum(7))), Some(AccessError::WrongPd));
    assert_eq!(at(PD.into()), Some(AccessError::WrongStream));
}

/// RDMAC verbs s7.10: access by a window is checked against the window, not the region.
#[test]
fn a_window_gives_its_stream_its_own_rights_to_its_piece_alone() {
    let fixture = fixture();
    let mut made = fixture.table.window(PD).unwrap();
    let (stag, piece) = (made.next_stag(), fixture.piece());
    fixture.core.bind(&window(stag, piece, Access::REMOTE_WRITE), STREAM).unwrap();
    assert_eq!(fixture.resolve_error(stag, STREAM, piece, Access::REMOTE_WRITE), None);
    assert_eq!(fixture.resolve_error(stag, STREAM, piece, Access::REMOTE_READ), Some(AccessError::NoRight));
    assert_eq!(
        fixture.resolve_error(stag, OTHER, piece, Access::REMOTE_WRITE),
        Some(AccessError::WrongStream)
    );
    for (addr, len) in [(piece.addr - 1, 1), (piece.addr, 513), (piece.addr + 512, 1)] {
        let outside = Sge { addr, len, lkey: stag };
        assert_eq!(
            fixture.resolve_error(stag, STREAM, outside, Access::REMOTE_WRITE),
            Some(AccessError::Bounds)
        );
    }
    // A request of ours may not name a window, whatever it needs.
    assert_eq!(fixture.resolve_error(stag, STREAM, piece, Access::empty()), Some(AccessError::NoRight));
    assert_eq!(fixture.resolve_error(stag, STREAM, piece, Access::LOCAL_WRITE), Some(AccessError::NoRight));
}

#[test]
fn what_the_region_does_not_allow_is_not_bound() {
    let fixture = fixture();
    let read_only = fixture.table.register(PD, vec![0u8; 64], Access::BIND).unwrap();
    let unlent = fixture.table.register(PD, vec![0u8; 64], Access::LOCAL_WRITE).unwrap();
    let foreign = fixture.table.register(PdId(2), vec![0u8; 64], POOL).unwrap();
    let mut made = fixture.table.window(PD).unwrap();
    let all = |region: &Region| region.slice(0, 64).unwrap();
    let too_long = Sge { len: 5000, ..fixture.piece() };
    let unknown = Sge { lkey: STag(0x1234), ..fixture.piece() };
    let mut refused = |over, access| fixture.core.bind(&window(made.next_stag(), over, access), STREAM).err();
    let region = |error| Some(BindError::Region(error));
    assert_eq!(refused(all(&read_only), Access::REMOTE_WRITE), region(AccessError::NoRight));
    assert_eq!(refused(all(&unlent), Access::REMOTE_READ), region(AccessError::NoRight));
    assert_eq!(refused(all(&foreign), Access::REMOTE_READ), region(AccessError::WrongPd));
    assert_eq!(refused(too_long, Access::REMOTE_READ), region(AccessError::Bounds));
    assert_eq!(refused(unknown, Access::REMOTE_READ), region(AccessError::UnknownStag));
    assert_eq!(refused(fixture.piece(), Access::empty()), Some(BindError::NotBindable));
    assert_eq!(refused(fixture.piece(), Access::LOCAL_WRITE), Some(BindError::NotBindable));
    // After all that it can still be bound.
    assert_eq!(refused(all(&read_only), Access::REMOTE_READ), None);
    assert_eq!(refused(fixture.piece(), Access::REMOTE_READ), Some(BindError::NotBindable), "it is bound");
}

#[test]
fn a_window_of_another_domain_or_no_window_at_all_is_not_bound() {
    let fixture = fixture();
    let mut foreign = fixture.table.window(PdId(2)).unwrap();
    let binding = window(foreign.next_stag(), fixture.piece(), Access::REMOTE_READ);
    assert_eq!(fixture.core.bind(&binding, STREAM), Err(BindError::Region(AccessError::WrongPd)));
    let region = window(fixture.pool.stag(), fixture.piece(), Access::REMOTE_READ);
    assert_eq!(fixture.core.bind(&region, STREAM), Err(BindError::NotBindable));
    let stale = fixture.table.window(PD).unwrap();
    let binding = window(stale.stag(), fixture.piece(), Access::REMOTE_READ);
    assert_eq!(fixture.core.bind(&binding, STREAM), Err(BindError::NotBindable), "a tag is used once");
}

/// A window over a window would outlive what it stands on.
#[test]
fn windows_are_made_over_regions_only() {
    let fixture = fixture();
    let (mut first, mut second) = (fixture.table.fast_region(PD).unwrap(), fixture.table.window(PD).unwrap());
    let stag = first.next_stag();
    fixture.core.bind(&window(stag, fixture.piece(), Access::LOCAL_WRITE), STREAM).unwrap();
    let over = Sge { lkey: stag, ..fixture.piece() };
    let refused = fixture.core.bind(&window(second.next_stag(), over, Access::REMOTE_READ), STREAM);
    assert_eq!(refused, Err(BindError::Region(AccessError::WrongPd)));
}

/// RFC 5040 s8.1.1 (6): what is bound to a region ends with it at once, and the region goes without
/// waiting.
#[test]
fn a_window_ends_with_its_region() {
    let fixture = fixture();
    let mut made = fixture.table.window(PD).unwrap();
    let (stag, piece) = (made.next_stag(), fixture.piece());
    fixture.core.bind(&window(stag, piece, Access::REMOTE_READ), STREAM).unwrap();
    let Fixture { core, pool, .. } = fixture;
    let token = pool.deregister();
    assert_eq!(
        core.resolve(stag, STREAM, piece.addr, 1, Access::REMOTE_READ).err(),
        Some(AccessError::Revoked)
    );
    assert!(!token.poll(), "this core has not passed");
}

/// The slot of a region may take the same tag again for other memory: a window left from before
/// must not follow it.
#[test]
fn a_window_never_wakes_up_with_a_later_region() {
    let table = MemTable::with_secret(MemLimits { regions_max: 64, cores_max: 1 }, [3, 4]).unwrap();
    let core = table.core(CoreId(0)).unwrap();
    let pool = table.register(PD, vec![0u8; 64], POOL).unwrap();
    let (mut made, old) = (table.window(PD).unwrap(), pool.stag());
    let (stag, over) = (made.next_stag(), pool.slice(0, 64).unwrap());
    core.bind(&window(stag, over, Access::REMOTE_READ), STREAM).unwrap();
    drop(core);
    let _ = pool.deregister();
    let core = table.core(CoreId(0)).unwrap();
    for _ in 0..2000 {
        let later = table.register(PD, vec![0u8; 64], POOL).unwrap();
        assert!(
            later.stag() != old || core.resolve(stag, STREAM, over.addr, 1, Access::REMOTE_READ).is_err()
        );
    }
    assert!(core.resolve(stag, STREAM, over.addr, 1, Access::REMOTE_READ).is_err());
}

/// RFC 5040 s5.3, s7.2, s8.1.1 (7).
#[test]
fn a_peer_invalidates_what_is_its_streams_alone() {
    let fixture = fixture();
    let shared = fixture.table.register(PD, vec![0u8; 64], Access::all()).unwrap();
    let own = fixture.table.register_in_scope(STREAM, vec![0u8; 64], Access::REMOTE_READ).unwrap();
    let local = fixture.table.register_in_scope(STREAM, vec![0u8; 64], Access::LOCAL_WRITE).unwrap();
    let by_peer = |stag, scope| fixture.core.invalidate(stag, scope, Invalidator::Remote).err();
    let no = |error| Some(InvalidateError::Access(error));
    assert_eq!(by_peer(shared.stag(), STREAM), Some(InvalidateError::NotStreamScoped));
    assert_eq!(by_peer(shared.stag(), AccessScope::new(PdId(2), QpNum(9))), no(AccessError::WrongPd));
    assert_eq!(by_peer(STag(0x99), STREAM), no(AccessError::UnknownStag));
    assert_eq!(by_peer(own.stag(), OTHER), no(AccessError::WrongStream));
    assert_eq!(by_peer(local.stag(), STREAM), no(AccessError::NoRight), "it never was the peer's");
    assert_eq!(by_peer(own.stag(), STREAM), None);
    assert_eq!(by_peer(own.stag(), STREAM), no(AccessError::Revoked));
    let outcome = fixture.core.resolve(own.stag(), STREAM, own.base_to(), 1, Access::REMOTE_READ);
    assert_eq!(outcome.err(), Some(AccessError::Revoked));
    assert_eq!(own.write_at(0, b"the memory is still ours"), Ok(()));
}

/// RDMAC verbs s7: our own invalidation of what has ended succeeds.
#[test]
fn we_invalidate_whatever_we_may_reach_and_as_often_as_we_like() {
    let fixture = fixture();
    let by_us = |stag, scope| fixture.core.invalidate(stag, scope, Invalidator::Local).map(|_| ());
    assert!(by_us(fixture.pool.stag(), AccessScope::new(PdId(2), QpNum(7))).is_err());
    assert_eq!(by_us(fixture.pool.stag(), STREAM), Ok(()));
    assert_eq!(by_us(fixture.pool.stag(), STREAM), Ok(()));
    assert_eq!(
        fixture.resolve_error(fixture.pool.stag(), STREAM, fixture.piece(), Access::empty()),
        Some(AccessError::Revoked)
    );
}

/// semantics "Memory": revoked at once; another core may be in the middle of a copy until it
/// quiesces.
#[test]
fn a_window_is_bound_again_when_every_other_core_has_passed() {
    let fixture = fixture();
    let mut busy = fixture.table.core(CoreId(1)).unwrap();
    let mut made = fixture.table.window(PD).unwrap();
    let (first, piece) = (made.next_stag(), fixture.piece());
    fixture.core.bind(&window(first, piece, Access::REMOTE_READ), STREAM).unwrap();
    assert!(busy.resolve(first, STREAM, piece.addr, 1, Access::REMOTE_READ).is_ok());
    let epoch = fixture.core.invalidate(first, STREAM, Invalidator::Remote).unwrap();
    assert_eq!(fixture.resolve_error(first, STREAM, piece, Access::REMOTE_READ), Some(AccessError::Revoked));
    assert!(!fixture.core.is_quiescent(epoch));
    let second = window(made.next_stag(), piece, Access::REMOTE_WRITE);
    assert_eq!(fixture.core.bind(&second, STREAM), Err(BindError::NotQuiescent));
    busy.quiesce();
    assert!(fixture.core.is_quiescent(epoch));
    assert_eq!(fixture.core.bind(&second, STREAM), Ok(()));
    assert_eq!(
        fixture.resolve_error(first, STREAM, piece, Access::REMOTE_READ),
        Some(AccessError::UnknownStag)
    );
}

#[test]
fn a_fast_region_serves_its_domain_or_its_stream_as_it_was_asked() {
    let fixture = fixture();
    let mut made = fixture.table.fast_region(PD).unwrap();
    let (shared, piece) = (made.next_stag(), fixture.piece());
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let binding = Binding { stag: shared, over: piece, access, stream_scope: false };
    fixture.core.bind(&binding, STREAM).unwrap();
    assert_eq!(fixture.resolve_error(shared, OTHER, piece, Access::LOCAL_WRITE), None);
    assert_eq!(fixture.resolve_error(shared, OTHER, piece, Access::empty()), None, "a local source");
    assert_eq!(
        fixture.core.invalidate(shared, STREAM, Invalidator::Remote),
        Err(InvalidateError::NotStreamScoped),
        "RFC 5040 s8.1.1 (7)"
    );
    fixture.core.invalidate(shared, OTHER, Invalidator::Local).unwrap();
    let own = made.next_stag();
    fixture.core.bind(&Binding { stag: own, stream_scope: true, ..binding }, STREAM).unwrap();
    assert_eq!(fixture.resolve_error(own, OTHER, piece, Access::LOCAL_WRITE), Some(AccessError::WrongStream));
    assert!(fixture.core.invalidate(own, STREAM, Invalidator::Remote).is_ok());
}

/// RFC 5042 s6.1.1: the next tag is hard to predict and reused at a low rate.
#[test]
fn a_windows_tags_do_not_come_back_soon_and_name_its_slot_only() {
    let fixture = fixture();
    let mut made = fixture.table.window(PD).unwrap();
    let tags: HashSet<STag> = (0..500).map(|_| made.next_stag()).collect();
    assert!(tags.len() > 490 && !tags.contains(&STag(0)) && !tags.contains(&fixture.pool.stag()));
}

#[test]
fn a_window_that_is_dropped_or_ended_by_hand_is_dead_at_once() {
    let fixture = fixture();
    let mut made = fixture.table.window(PD).unwrap();
    let (stag, piece) = (made.next_stag(), fixture.piece());
    fixture.core.bind(&window(stag, piece, Access::REMOTE_READ), STREAM).unwrap();
    let _ = made.invalidate();
    assert_eq!(fixture.resolve_error(stag, STREAM, piece, Access::REMOTE_READ), Some(AccessError::Revoked));
    let stag = made.next_stag();
    fixture.core.bind(&window(stag, piece, Access::REMOTE_READ), STREAM).unwrap();
    drop(made);
    assert!(fixture.resolve_error(stag, STREAM, piece, Access::REMOTE_READ).is_some());
    let again = window(stag, piece, Access::REMOTE_READ);
    assert_eq!(fixture.core.bind(&again, STREAM), Err(BindError::NotBindable));
}

#[test]
fn a_window_names_the_tag_that_is_in_effect() {
    let fixture = fixture();
    let mut made = fixture.table.fast_region(PD).unwrap();
    assert_eq!(made.bound_stag(), None);
    let (first, over) = (made.next_stag(), fixture.piece());
    assert_eq!(made.bound_stag(), None, "not bound yet");
    let binding = Binding { stag: first, over, access: Access::REMOTE_READ, stream_scope: false };
    fixture.core.bind(&binding, STREAM).unwrap();
    made.next_stag();
    assert_eq!(made.bound_stag(), Some(first), "the next tag is only drawn");
    fixture.core.invalidate(first, STREAM, Invalidator::Local).unwrap();
    assert_eq!(made.bound_stag(), None);
}

/// Windows count as regions: a program that makes too many gets an error.
#[test]
fn windows_take_places_of_the_table_and_give_them_back() {
    let table = MemTable::with_secret(MemLimits { regions_max: 2, cores_max: 1 }, [3, 4]).unwrap();
    let (one, two) = (table.window(PD).unwrap(), table.fast_region(PD).unwrap());
    assert!(table.window(PD).is_err());
    drop((one, two));
    assert!(table.window(PD).is_ok());
}

/// RFC5040-8.1.1-08: a tag that was drawn, and perhaps told to somebody, is not soon anybody else's
/// though it was never bound.
#[test]
fn a_tag_that_was_drawn_and_never_bound_does_not_come_back() {
    let fixture = fixture();
    let mut made = fixture.table.window(PD).unwrap();
    let drawn: HashSet<STag> = (0..3).map(|_| made.next_stag()).collect();
    drop(made);
    for _ in 0..500 {
        let mut later = fixture.table.window(PD).unwrap();
        let tags = [later.stag(), later.next_stag(), later.next_stag()];
        assert!(tags.iter().all(|tag| !drawn.contains(tag)), "{tags:?} of {drawn:?}");
    }
}

/// A request may outlive the window that it is to bind, in the queue. It binds no other object in
/// that slot.
#[test]
fn a_binding_of_a_window_that_is_gone_binds_no_later_one() {
    let fixture = fixture();
    let mut gone = fixture.table.window(PD).unwrap();
    let late: Vec<Binding> =
        (0..3).map(|_| window(gone.next_stag(), fixture.piece(), Access::REMOTE_READ)).collect();
    drop(gone);
    let mut later: Vec<_> = (0..63).map(|_| fixture.table.window(PD).unwrap()).collect();
    for binding in &late {
        assert_eq!(fixture.core.bind(binding, STREAM), Err(BindError::NotBindable));
        assert!(fixture.resolve_error(binding.stag, STREAM, fixture.piece(), Access::REMOTE_READ).is_some());
    }
    for window_there in &mut later {
        let own = window(window_there.next_stag(), fixture.piece(), Access::REMOTE_READ);
        assert_eq!(fixture.core.bind(&own, STREAM), Ok(()));
    }
}

/// What a context registered ends with it, in one call: regions, windows and fast regions, bound or
/// not. What others registered stays, and its number may be given again. RFC 5040 s8.1.1 (6).
#[test]
fn everything_of_a_context_is_revoked_at_once_and_nothing_of_another() {
    let Fixture { table, mut core, pool } = fixture();
    let ending = table.for_context(1, 8);
    let (region, revoked) =
        [(); 2].map(|()| ending.register(PD, vec![7u8; 64], Access::all()).unwrap()).into();
    let _ = revoked.revoke();
    let (mut bound, mut unbound) = (ending.window(PD).unwrap(), ending.fast_region(PD).unwrap());
    let others = table.for_context(2, 8);
    let other = others.register(PD, vec![0u8; 64], Access::all()).unwrap();
    let piece = pool.slice(0, 8).unwrap();
    core.bind(&window(bound.next_stag(), piece, Access::REMOTE_READ), STREAM).unwrap();

    assert_eq!(table.revoke_context(1), 3);
    let at = |tag| core.resolve(tag, STREAM, region.base_to(), 8, Access::REMOTE_READ).err();
    assert_eq!([region.stag(), bound.stag()].map(at), [Some(AccessError::Revoked); 2]);
    for tag in [bound.next_stag(), unbound.next_stag()] {
        assert_eq!(core.bind(&window(tag, piece, Access::REMOTE_READ), STREAM), Err(BindError::NotBindable));
    }
    for region in [&other, &pool] {
        assert!(core.resolve(region.stag(), STREAM, region.base_to(), 8, Access::empty()).is_ok());
    }
    assert_eq!(table.revoke_context(1), 0);
    // The memory is the region's until that is dropped.
    let mut bytes = [0; 64];
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 64]);

    let next = table.for_context(1, 8);
    let _of_next = next.register(PD, vec![0u8; 64], Access::all()).unwrap();
    drop((region, revoked, bound, unbound));
    core.quiesce();
    table.reclaim();
    assert_eq!((table.regions_in_use(), table.revoke_context(1)), (3, 1));
}
