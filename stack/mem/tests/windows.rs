//! Tags of one stream, windows and fast regions: who may use them, for what, and when they end.

use ironwarp_mem::{
    Access, AccessError, BindError, Binding, CoreMem, InvalidateError, Invalidator, MemLimits, MemTable,
    Reach, Region, Sge,
};
use ironwarp_types::{CoreId, PdId, QpNum, STag};
use std::collections::HashSet;

const PD: PdId = PdId(1);
const NEAR: Reach = Reach::new(PD, QpNum(7));
const OTHER: Reach = Reach::new(PD, QpNum(8));
const POOL: Access = Access::LOCAL_WRITE.union(Access::BIND);

struct House {
    table: MemTable,
    core: CoreMem,
    pool: Region,
}

fn house() -> House {
    let table = MemTable::with_secret(MemLimits { regions_max: 64, cores_max: 2 }, [3, 4]).unwrap();
    let core = table.core(CoreId(0)).unwrap();
    let pool = table.register(PD, vec![0u8; 4096], POOL).unwrap();
    House { table, core, pool }
}

fn window(stag: STag, over: Sge, access: Access) -> Binding {
    Binding { stag, over, access, stream_scope: true }
}

impl House {
    fn piece(&self) -> Sge {
        self.pool.slice(1024, 512).unwrap()
    }

    fn seen(&self, stag: STag, reach: impl Into<Reach>, at: Sge, need: Access) -> Option<AccessError> {
        self.core.resolve(stag, reach, at.addr, at.len, need).err()
    }
}

/// RFC 5040 s8.1.1 (2): a tag limited to one stream is unusable by any other, even of the same domain.
#[test]
fn a_region_of_one_stream_is_closed_to_every_other() {
    let House { table, core, .. } = house();
    let region = table.register_for(NEAR, vec![0u8; 64], Access::all()).unwrap();
    let at = |reach| core.resolve(region.stag(), reach, region.base_to(), 64, Access::REMOTE_READ).err();
    assert_eq!(at(NEAR), None);
    assert_eq!(at(OTHER), Some(AccessError::WrongStream));
    assert_eq!(at(Reach::new(PdId(2), QpNum(7))), Some(AccessError::WrongPd));
    assert_eq!(at(Reach::new(PdId(u32::MAX), QpNum(7))), Some(AccessError::WrongPd));
    assert_eq!(at(PD.into()), Some(AccessError::WrongStream));
}

/// RDMAC verbs s7.10: access by a window is checked against the window, not the region.
#[test]
fn a_window_gives_its_stream_its_own_rights_to_its_piece_alone() {
    let house = house();
    let mut made = house.table.window(PD).unwrap();
    let (stag, piece) = (made.renew(), house.piece());
    house.core.bind(&window(stag, piece, Access::REMOTE_WRITE), NEAR).unwrap();
    assert_eq!(house.seen(stag, NEAR, piece, Access::REMOTE_WRITE), None);
    assert_eq!(house.seen(stag, NEAR, piece, Access::REMOTE_READ), Some(AccessError::NoRight));
    assert_eq!(house.seen(stag, OTHER, piece, Access::REMOTE_WRITE), Some(AccessError::WrongStream));
    for (addr, len) in [(piece.addr - 1, 1), (piece.addr, 513), (piece.addr + 512, 1)] {
        let outside = Sge { addr, len, lkey: stag };
        assert_eq!(house.seen(stag, NEAR, outside, Access::REMOTE_WRITE), Some(AccessError::Bounds));
    }
    // A request of ours may not name a window, whatever it needs.
    assert_eq!(house.seen(stag, NEAR, piece, Access::empty()), Some(AccessError::NoRight));
    assert_eq!(house.seen(stag, NEAR, piece, Access::LOCAL_WRITE), Some(AccessError::NoRight));
}

#[test]
fn what_the_region_does_not_allow_is_not_bound() {
    let house = house();
    let read_only = house.table.register(PD, vec![0u8; 64], Access::BIND).unwrap();
    let unlent = house.table.register(PD, vec![0u8; 64], Access::LOCAL_WRITE).unwrap();
    let foreign = house.table.register(PdId(2), vec![0u8; 64], POOL).unwrap();
    let mut made = house.table.window(PD).unwrap();
    let all = |region: &Region| region.slice(0, 64).unwrap();
    let too_long = Sge { len: 5000, ..house.piece() };
    let unknown = Sge { lkey: STag(0x1234), ..house.piece() };
    let mut refused = |over, access| house.core.bind(&window(made.renew(), over, access), NEAR).err();
    let region = |error| Some(BindError::Region(error));
    assert_eq!(refused(all(&read_only), Access::REMOTE_WRITE), region(AccessError::NoRight));
    assert_eq!(refused(all(&unlent), Access::REMOTE_READ), region(AccessError::NoRight));
    assert_eq!(refused(all(&foreign), Access::REMOTE_READ), region(AccessError::WrongPd));
    assert_eq!(refused(too_long, Access::REMOTE_READ), region(AccessError::Bounds));
    assert_eq!(refused(unknown, Access::REMOTE_READ), region(AccessError::UnknownStag));
    assert_eq!(refused(house.piece(), Access::empty()), Some(BindError::NotUnbound));
    assert_eq!(refused(house.piece(), Access::LOCAL_WRITE), Some(BindError::NotUnbound));
    // After all that it can still be bound.
    assert_eq!(refused(all(&read_only), Access::REMOTE_READ), None);
    assert_eq!(refused(house.piece(), Access::REMOTE_READ), Some(BindError::NotUnbound), "it is bound");
}

#[test]
fn a_window_of_another_domain_or_no_window_at_all_is_not_bound() {
    let house = house();
    let mut foreign = house.table.window(PdId(2)).unwrap();
    let binding = window(foreign.renew(), house.piece(), Access::REMOTE_READ);
    assert_eq!(house.core.bind(&binding, NEAR), Err(BindError::Region(AccessError::WrongPd)));
    let region = window(house.pool.stag(), house.piece(), Access::REMOTE_READ);
    assert_eq!(house.core.bind(&region, NEAR), Err(BindError::NotUnbound));
    let stale = house.table.window(PD).unwrap();
    let binding = window(stale.stag(), house.piece(), Access::REMOTE_READ);
    assert_eq!(house.core.bind(&binding, NEAR), Err(BindError::NotUnbound), "a tag is used once");
}

/// A window over a window would outlive what it stands on.
#[test]
fn windows_are_made_over_regions_only() {
    let house = house();
    let (mut first, mut second) = (house.table.fast_region(PD).unwrap(), house.table.window(PD).unwrap());
    let stag = first.renew();
    house.core.bind(&window(stag, house.piece(), Access::LOCAL_WRITE), NEAR).unwrap();
    let over = Sge { lkey: stag, ..house.piece() };
    let refused = house.core.bind(&window(second.renew(), over, Access::REMOTE_READ), NEAR);
    assert_eq!(refused, Err(BindError::Region(AccessError::WrongPd)));
}

/// RFC 5040 s8.1.1 (6): what is bound to a region ends with it at once, and the region goes without waiting.
#[test]
fn a_window_ends_with_its_region() {
    let house = house();
    let mut made = house.table.window(PD).unwrap();
    let (stag, piece) = (made.renew(), house.piece());
    house.core.bind(&window(stag, piece, Access::REMOTE_READ), NEAR).unwrap();
    let House { core, pool, .. } = house;
    let token = pool.deregister();
    assert_eq!(
        core.resolve(stag, NEAR, piece.addr, 1, Access::REMOTE_READ).err(),
        Some(AccessError::Revoked)
    );
    assert!(!token.poll(), "this core has not passed");
}

/// The slot of a region may take the same tag again for other memory: a window left from before must not follow it.
#[test]
fn a_window_never_wakes_up_with_a_later_region() {
    let table = MemTable::with_secret(MemLimits { regions_max: 64, cores_max: 1 }, [3, 4]).unwrap();
    let core = table.core(CoreId(0)).unwrap();
    let pool = table.register(PD, vec![0u8; 64], POOL).unwrap();
    let (mut made, old) = (table.window(PD).unwrap(), pool.stag());
    let (stag, over) = (made.renew(), pool.slice(0, 64).unwrap());
    core.bind(&window(stag, over, Access::REMOTE_READ), NEAR).unwrap();
    drop(core);
    let _ = pool.deregister();
    let core = table.core(CoreId(0)).unwrap();
    for _ in 0..2000 {
        let later = table.register(PD, vec![0u8; 64], POOL).unwrap();
        assert!(later.stag() != old || core.resolve(stag, NEAR, over.addr, 1, Access::REMOTE_READ).is_err());
    }
    assert!(core.resolve(stag, NEAR, over.addr, 1, Access::REMOTE_READ).is_err());
}

/// RFC 5040 s5.3, s7.2, s8.1.1 (7).
#[test]
fn a_peer_invalidates_what_is_its_streams_alone() {
    let house = house();
    let shared = house.table.register(PD, vec![0u8; 64], Access::all()).unwrap();
    let own = house.table.register_for(NEAR, vec![0u8; 64], Access::REMOTE_READ).unwrap();
    let local = house.table.register_for(NEAR, vec![0u8; 64], Access::LOCAL_WRITE).unwrap();
    let by_peer = |stag, reach| house.core.invalidate(stag, reach, Invalidator::Remote).err();
    let no = |error| Some(InvalidateError::Access(error));
    assert_eq!(by_peer(shared.stag(), NEAR), Some(InvalidateError::Shared));
    assert_eq!(by_peer(shared.stag(), Reach::new(PdId(2), QpNum(9))), no(AccessError::WrongPd));
    assert_eq!(by_peer(STag(0x99), NEAR), no(AccessError::UnknownStag));
    assert_eq!(by_peer(own.stag(), OTHER), no(AccessError::WrongStream));
    assert_eq!(by_peer(local.stag(), NEAR), no(AccessError::NoRight), "it never was the peer's");
    assert_eq!(by_peer(own.stag(), NEAR), None);
    assert_eq!(by_peer(own.stag(), NEAR), no(AccessError::Revoked));
    let seen = house.core.resolve(own.stag(), NEAR, own.base_to(), 1, Access::REMOTE_READ);
    assert_eq!(seen.err(), Some(AccessError::Revoked));
    assert_eq!(own.write_at(0, b"the memory is still ours"), Ok(()));
}

/// RDMAC verbs s7: our own invalidation of what has ended succeeds.
#[test]
fn we_invalidate_whatever_we_may_reach_and_as_often_as_we_like() {
    let house = house();
    let by_us = |stag, reach| house.core.invalidate(stag, reach, Invalidator::Local).map(|_| ());
    assert!(by_us(house.pool.stag(), Reach::new(PdId(2), QpNum(7))).is_err());
    assert_eq!(by_us(house.pool.stag(), NEAR), Ok(()));
    assert_eq!(by_us(house.pool.stag(), NEAR), Ok(()));
    assert_eq!(
        house.seen(house.pool.stag(), NEAR, house.piece(), Access::empty()),
        Some(AccessError::Revoked)
    );
}

/// semantics "Memory": revoked at once; another core may be in the middle of a copy until it quiesces.
#[test]
fn a_window_is_bound_again_when_every_other_core_has_passed() {
    let house = house();
    let mut busy = house.table.core(CoreId(1)).unwrap();
    let mut made = house.table.window(PD).unwrap();
    let (first, piece) = (made.renew(), house.piece());
    house.core.bind(&window(first, piece, Access::REMOTE_READ), NEAR).unwrap();
    assert!(busy.resolve(first, NEAR, piece.addr, 1, Access::REMOTE_READ).is_ok());
    let epoch = house.core.invalidate(first, NEAR, Invalidator::Remote).unwrap();
    assert_eq!(house.seen(first, NEAR, piece, Access::REMOTE_READ), Some(AccessError::Revoked));
    assert!(!house.core.has_passed(epoch));
    let second = window(made.renew(), piece, Access::REMOTE_WRITE);
    assert_eq!(house.core.bind(&second, NEAR), Err(BindError::Soon));
    busy.quiesce();
    assert!(house.core.has_passed(epoch));
    assert_eq!(house.core.bind(&second, NEAR), Ok(()));
    assert_eq!(house.seen(first, NEAR, piece, Access::REMOTE_READ), Some(AccessError::UnknownStag));
}

#[test]
fn a_fast_region_serves_its_domain_or_its_stream_as_it_was_asked() {
    let house = house();
    let mut made = house.table.fast_region(PD).unwrap();
    let (shared, piece) = (made.renew(), house.piece());
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let binding = Binding { stag: shared, over: piece, access, stream_scope: false };
    house.core.bind(&binding, NEAR).unwrap();
    assert_eq!(house.seen(shared, OTHER, piece, Access::LOCAL_WRITE), None);
    assert_eq!(house.seen(shared, OTHER, piece, Access::empty()), None, "a local source");
    assert_eq!(
        house.core.invalidate(shared, NEAR, Invalidator::Remote),
        Err(InvalidateError::Shared),
        "RFC 5040 s8.1.1 (7)"
    );
    house.core.invalidate(shared, OTHER, Invalidator::Local).unwrap();
    let own = made.renew();
    house.core.bind(&Binding { stag: own, stream_scope: true, ..binding }, NEAR).unwrap();
    assert_eq!(house.seen(own, OTHER, piece, Access::LOCAL_WRITE), Some(AccessError::WrongStream));
    assert!(house.core.invalidate(own, NEAR, Invalidator::Remote).is_ok());
}

/// RFC 5042 s6.1.1: the next tag is hard to predict and reused at a low rate.
#[test]
fn a_windows_tags_do_not_come_back_soon_and_name_its_slot_only() {
    let house = house();
    let mut made = house.table.window(PD).unwrap();
    let tags: HashSet<STag> = (0..500).map(|_| made.renew()).collect();
    assert!(tags.len() > 490 && !tags.contains(&STag(0)) && !tags.contains(&house.pool.stag()));
}

#[test]
fn a_window_that_is_dropped_or_ended_by_hand_is_dead_at_once() {
    let house = house();
    let mut made = house.table.window(PD).unwrap();
    let (stag, piece) = (made.renew(), house.piece());
    house.core.bind(&window(stag, piece, Access::REMOTE_READ), NEAR).unwrap();
    let _ = made.invalidate();
    assert_eq!(house.seen(stag, NEAR, piece, Access::REMOTE_READ), Some(AccessError::Revoked));
    let stag = made.renew();
    house.core.bind(&window(stag, piece, Access::REMOTE_READ), NEAR).unwrap();
    drop(made);
    assert!(house.seen(stag, NEAR, piece, Access::REMOTE_READ).is_some());
    let again = window(stag, piece, Access::REMOTE_READ);
    assert_eq!(house.core.bind(&again, NEAR), Err(BindError::NotUnbound));
}

/// Windows count as regions: a program that makes too many is told so.
#[test]
fn windows_take_places_of_the_table_and_give_them_back() {
    let table = MemTable::with_secret(MemLimits { regions_max: 2, cores_max: 1 }, [3, 4]).unwrap();
    let (one, two) = (table.window(PD).unwrap(), table.fast_region(PD).unwrap());
    assert!(table.window(PD).is_err());
    drop((one, two));
    assert!(table.window(PD).is_ok());
}

/// RFC5040-8.1.1-08: a tag that was drawn, and perhaps told to somebody, is not soon anybody else's though it was never bound.
#[test]
fn a_tag_that_was_drawn_and_never_bound_does_not_come_back() {
    let house = house();
    let mut made = house.table.window(PD).unwrap();
    let drawn: HashSet<STag> = (0..3).map(|_| made.renew()).collect();
    drop(made);
    for _ in 0..500 {
        let mut later = house.table.window(PD).unwrap();
        let tags = [later.stag(), later.renew(), later.renew()];
        assert!(tags.iter().all(|tag| !drawn.contains(tag)), "{tags:?} of {drawn:?}");
    }
}

/// A request may outlive the window that it is to bind, in the queue. It binds nobody else's place.
#[test]
fn a_binding_of_a_window_that_is_gone_binds_no_later_one() {
    let house = house();
    let mut gone = house.table.window(PD).unwrap();
    let late: Vec<Binding> =
        (0..3).map(|_| window(gone.renew(), house.piece(), Access::REMOTE_READ)).collect();
    drop(gone);
    let mut later: Vec<_> = (0..63).map(|_| house.table.window(PD).unwrap()).collect();
    for binding in &late {
        assert_eq!(house.core.bind(binding, NEAR), Err(BindError::NotUnbound));
        assert!(house.seen(binding.stag, NEAR, house.piece(), Access::REMOTE_READ).is_some());
    }
    for window_there in &mut later {
        let own = window(window_there.renew(), house.piece(), Access::REMOTE_READ);
        assert_eq!(house.core.bind(&own, NEAR), Ok(()));
    }
}
