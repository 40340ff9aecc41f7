//! Windows, fast regions and invalidation between two nodes: rights and lifetimes.

use super::common;

use common::{Pair, contents, pattern};
use ironwarp::{
    Access, CompletionFlags, CompletionOpcode, CompletionStatus, Context, Event, QueuePair, RecvWr, Region,
    RemoteMemory, STag, SendWr, Terminate, VerbsError, Window,
};

const OK: CompletionStatus = CompletionStatus::Success;
const POOL: Access = Access::LOCAL_WRITE.union(Access::BIND);

fn at(stag: STag, region: &Region, offset: u64) -> RemoteMemory {
    RemoteMemory { stag, tagged_offset: region.base_to() + offset }
}

/// The server's memory with a pattern, for windows, and the client's buffer.
fn pool(pair: &Pair) -> Region {
    pair.far.ctx.register(pair.far.pd, pattern(8192, 1), POOL).unwrap()
}

#[track_caller]
fn terminated(pair: &mut Pair, far: QueuePair) -> (u8, u8, u8) {
    pair.until("the Terminate", |pair| pair.far.is_disconnected(far));
    let found = pair.far.events.iter().find_map(|event| match event {
        Event::Terminated { qp, sent: true, terminate: Terminate { layer, etype, code } } if *qp == far => {
            Some((*layer, *etype, *code))
        }
        _ => None,
    });
    found.expect("a Terminate was sent")
}

/// The life of a window in a storage target: bound and advertised in one list, read by the peer,
/// invalidated by the peer's Send (RFC 5040 s5.3), bound again with another tag.
#[test]
fn a_window_is_bound_for_the_peer_and_invalidated_by_its_send() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let pool = pool(&pair);
    let (sink, inbox) = (pair.near.memory(&[0; 2048]), pair.far.memory(&[0; 64]));
    let mut window = pair.far.ctx.create_window(pair.far.pd).unwrap();
    let mut tags = Vec::new();
    for round in 0..4u64 {
        let piece = [pool.slice(round as usize * 2048, 2048).unwrap()];
        let bind = SendWr::bind(10, &mut window, &piece, Access::REMOTE_READ);
        pair.far.ctx.post_send(far, &bind).unwrap();
        pair.until("the binding", |pair| pair.far.completions.len() == 1);
        let bound = pair.far.completions.remove(0);
        assert_eq!((bound.wr_id, bound.opcode, bound.status), (10, CompletionOpcode::Bind, OK));

        pair.far.ctx.post_recv(far, &RecvWr::new(20, &[inbox.slice(0, 64).unwrap()])).unwrap();
        let into = [sink.slice(0, 2048).unwrap()];
        let from = at(window.stag(), &pool, round * 2048);
        let give_back = SendWr::send_inline(2, b"done").with_invalidate(window.stag()).fenced();
        pair.near.ctx.post_sends(near, &[SendWr::read(1, &into, from), give_back]).unwrap();
        pair.until("the window's invalidation", |pair| {
            pair.far.completions.len() == 1 && pair.near.completions.len() == 2
        });
        let received = pair.far.completions.remove(0);
        assert_eq!((received.wr_id, received.status, received.invalidated), (20, OK, window.stag()));
        assert!(received.flags.contains(CompletionFlags::INVALIDATED));
        assert_eq!(contents(&sink), contents(&pool)[round as usize * 2048..][..2048]);
        pair.near.completions.clear();
        assert!(!tags.contains(&window.stag()), "a tag is used once");
        tags.push(window.stag());
    }
    assert_eq!(pair.far.counter("iwarp_rx_invalidates"), 4);
    // RFC 5040 s7.2 (4): an invalidated tag is not valid.
    pair.near.ctx.post_send(near, &SendWr::send_inline(3, b"again").with_invalidate(window.stag())).unwrap();
    pair.far.ctx.post_recv(far, &RecvWr::new(21, &[inbox.slice(0, 64).unwrap()])).unwrap();
    assert_eq!(terminated(&mut pair, far), (0, 1, 0));
}

/// RFC 5040 s5.3 and s8.1.1 (7): a peer must not invalidate a tag of a whole protection domain.
#[test]
fn a_peer_cannot_invalidate_a_region_that_streams_share() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (shared, inbox) = (pair.far.memory(&[1; 64]), pair.far.memory(&[0; 64]));
    pair.far.ctx.post_recv(far, &RecvWr::new(1, &[inbox.slice(0, 64).unwrap()])).unwrap();
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"x").with_invalidate(shared.stag())).unwrap();
    assert_eq!(terminated(&mut pair, far), (0, 1, 9));
    // It is still valid for another connection.
    pair.far.events.clear();
    let (near, _) = pair.connect();
    pair.near.completions.clear();
    let write = SendWr::write_inline(2, b"still", at(shared.stag(), &shared, 0));
    pair.near.ctx.post_send(near, &write).unwrap();
    pair.until("the Write", |pair| pair.near.completions.iter().any(|one| one.status == OK));
}

/// RFC 5040 s8.1.1 (2, 7): a region of one stream is valid for that stream only, and its peer may
/// invalidate it. RFC 5041 s8.2, s8.3 and s8.3.1; RFC 5042 s6.1.1.
#[test]
fn a_stream_scoped_region_is_invalidated_by_its_peer_and_refused_to_others() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    pair.near.events.clear();
    pair.far.events.clear();
    let (other, other_far) = pair.connect();
    let own =
        pair.far.ctx.register_for_qp(far, vec![0u8; 64], Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let write = |id| SendWr::write_inline(id, b"mine", at(own.stag(), &own, 0));
    pair.near.ctx.post_send(near, &write(1)).unwrap();
    pair.until("the Write", |pair| pair.near.completions.len() == 1);
    assert_eq!(contents(&own)[..4], *b"mine");
    pair.near.ctx.post_send(other, &write(2)).unwrap();
    // RFC 5041 s7.2: the tag is not associated with that stream.
    assert_eq!(terminated(&mut pair, other_far), (1, 1, 2));

    let inbox = pair.far.memory(&[0; 8]);
    pair.far.ctx.post_recv(far, &RecvWr::new(3, &[inbox.slice(0, 8).unwrap()])).unwrap();
    pair.near
        .ctx
        .post_send(near, &SendWr::send_inline(3, b"end").with_invalidate(own.stag()).solicited())
        .unwrap();
    pair.until("the Send", |pair| pair.far.completions.iter().any(|one| one.invalidated == own.stag()));
    pair.near.ctx.post_send(near, &write(4)).unwrap();
    assert_eq!(terminated(&mut pair, far), (1, 1, 0));
}

/// RFC 5040 s8.1.1 (6): deregistering never fails, and invalidates everything that is bound to the
/// region.
#[test]
fn a_window_ends_with_its_region() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let pool = pool(&pair);
    let mut window = pair.far.ctx.create_window(pair.far.pd).unwrap();
    let piece = [pool.slice(0, 4096).unwrap()];
    pair.far.ctx.post_send(far, &SendWr::bind(1, &mut window, &piece, Access::REMOTE_READ)).unwrap();
    pair.until("the binding", |pair| pair.far.completions.len() == 1);
    let from = at(window.stag(), &pool, 0);
    let token = pool.deregister();
    let sink = pair.near.memory(&[7; 64]);
    pair.near.ctx.post_send(near, &SendWr::read(1, &[sink.slice(0, 64).unwrap()], from)).unwrap();
    assert_eq!(terminated(&mut pair, far), (0, 1, 0));
    pair.until("quiescence", |_| token.poll());
    assert_eq!(contents(&sink), [7; 64]);
}

#[test]
fn a_fast_region_is_valid_from_registration_to_invalidation() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    let pool = pair.near.ctx.register(pair.near.pd, vec![0u8; 4096], POOL).unwrap();
    let source = pair.far.memory(&pattern(4096, 9));
    let mut region = pair.near.ctx.create_fast_region(pair.near.pd).unwrap();
    for _ in 0..3 {
        let over = [pool.slice(0, 4096).unwrap()];
        let register = SendWr::fast_register(1, &mut region, &over, Access::LOCAL_WRITE).unsignaled();
        let sink = [ironwarp::Sge { lkey: region.stag(), ..over[0] }];
        let chain = [
            register,
            SendWr::read_with_invalidate(2, &sink, at(source.stag(), &source, 0)),
            SendWr::invalidate(3, region.stag()).locally_fenced(),
        ];
        pair.near.ctx.post_sends(near, &chain).unwrap();
        pair.until("the chain", |pair| pair.near.completions.len() == 2);
        let done: Vec<_> = pair.near.completions.drain(..).map(|one| (one.wr_id, one.status)).collect();
        assert_eq!(done, [(2, OK), (3, OK)]);
        assert_eq!(contents(&pool), pattern(4096, 9));
        pool.fill(0, 4096, 0).unwrap();
    }
    assert_eq!(pair.near.counter("iwarp_local_operations"), 6);
}

/// An invalid binding is a local error: a completion, QP_FATAL, a Terminate without headers.
#[test]
fn binding_memory_without_the_bind_right_ends_the_connection() {
    let mut pair = common::joined();
    let (_, far) = pair.connect();
    let plain = pair.far.memory(&[0; 64]);
    let mut window = pair.far.ctx.create_window(pair.far.pd).unwrap();
    let piece = [plain.slice(0, 64).unwrap()];
    pair.far.ctx.post_send(far, &SendWr::bind(5, &mut window, &piece, Access::REMOTE_READ)).unwrap();
    pair.until("the end", |pair| pair.far.is_disconnected(far));
    assert_eq!(pair.far.completions[0].status, CompletionStatus::MemoryBind);
    assert!(pair.far.events.iter().any(|event| matches!(event, Event::QueuePairFatal { qp } if *qp == far)));
}

/// The next tag may be sent in the list that binds it, and is bound once.
#[test]
fn a_reserved_stag_is_bound_once_and_never_again() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let pool = pool(&pair);
    let mut window = pair.far.ctx.create_window(pair.far.pd).unwrap();
    let drawn = window.next_stag();
    let piece = [pool.slice(0, 64).unwrap()];
    let bind = SendWr::bind_with_current_stag(1, &window, &piece, Access::REMOTE_READ);
    let end = SendWr::invalidate(2, drawn).locally_fenced();
    pair.far.ctx.post_send(far, &bind).unwrap();
    let sink = pair.near.memory(&[0; 64]);
    pair.until("the binding", |pair| pair.far.completions.len() == 1);
    let into = [sink.slice(0, 64).unwrap()];
    pair.near.ctx.post_send(near, &SendWr::read(3, &into, at(drawn, &pool, 0))).unwrap();
    pair.until("the Read", |pair| pair.near.completions.len() == 1);
    assert_eq!((window.stag(), contents(&sink)), (drawn, pattern(8192, 1)[..64].to_vec()));

    pair.far.ctx.post_sends(far, &[end, bind]).unwrap();
    pair.until("the end", |pair| pair.far.is_disconnected(far));
    let statuses: Vec<_> = pair.far.completions.iter().map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(statuses, [(1, OK), (2, OK), (1, CompletionStatus::MemoryBind)]);
}

/// Tags may be sent in the private data of the reply: they are bound before the peer's first
/// message is processed.
#[test]
fn a_window_bound_before_accept_is_valid_for_the_peers_first_message() {
    let mut pair = common::joined();
    let near = pair.near.ctx.create_qp(pair.near.pd, &ironwarp::QpAttr::new(pair.near.cq)).unwrap();
    let far = pair.far.ctx.create_qp(pair.far.pd, &ironwarp::QpAttr::new(pair.far.cq)).unwrap();
    let pool = pool(&pair);
    let mut window = pair.far.ctx.create_window(pair.far.pd).unwrap();
    pair.far.ctx.listen(common::FAR.parse().unwrap()).unwrap();
    pair.far.turn();
    pair.near.ctx.connect(near, common::FAR.parse().unwrap(), b"").unwrap();
    pair.until("the request", |pair| !pair.far.events.is_empty());
    let piece = [pool.slice(0, 64).unwrap()];
    let bind = SendWr::bind(1, &mut window, &piece, Access::REMOTE_READ);
    if let Event::ConnectRequest { request, .. } = pair.far.events.remove(0) {
        pair.far.ctx.accept(request, far, &window.stag().0.to_be_bytes()).unwrap();
    }
    pair.far.ctx.post_send(far, &bind).unwrap();
    let sink = pair.near.memory(&[0; 64]);
    let from = at(window.stag(), &pool, 0);
    pair.near.ctx.post_send(near, &SendWr::read(2, &[sink.slice(0, 64).unwrap()], from)).unwrap();
    pair.until("the Read", |pair| !pair.near.completions.is_empty());
    assert_eq!(pair.near.completions[0].status, OK);
    assert_eq!(contents(&sink), pattern(8192, 1)[..64]);
    let is_first = |event: &Event| matches!(event, Event::CommunicationEstablished { qp } if *qp == far);
    assert_eq!(pair.far.events.iter().any(is_first), common::FIRST_MESSAGE_IS_AWAITED);
}

/// RFC 5040 s8.1.2 (6): a process's limit of regions includes windows, and the error names it.
#[test]
fn windows_beyond_the_region_limit_are_a_named_error() {
    let mut pair = common::joined_with(|address| {
        let mut config = common::config(address);
        config.limits.regions = 4;
        config
    });
    let (ctx, pd) = (&pair.near.ctx, pair.near.pd);
    let windows: Vec<_> = (0..4).map(|_| ctx.create_window(pd).unwrap()).collect();
    assert!(matches!(ctx.create_window(pd), Err(VerbsError::Register(_))));
    assert!(matches!(ctx.create_fast_region(pd), Err(VerbsError::Register(_))));
    drop(windows);
    pair.until("room again", |pair| pair.near.ctx.create_window(pair.near.pd).is_ok());
}

const LONG: usize = 4 << 20;

/// The server's memory for a long transfer, with a window over all of it.
fn lent(pair: &mut Pair, far: QueuePair, byte: u8, access: Access) -> (Region, ironwarp::Window) {
    let pool = pair.far.ctx.register(pair.far.pd, vec![byte; LONG], POOL).unwrap();
    let mut window = pair.far.ctx.create_window(pair.far.pd).unwrap();
    let piece = [pool.slice(0, LONG as u32).unwrap()];
    pair.far.ctx.post_send(far, &SendWr::bind(1, &mut window, &piece, access)).unwrap();
    pair.until("the binding", |pair| pair.far.completions.len() == 1);
    pair.far.completions.clear();
    (pool, window)
}

/// RFC 5040 s8.1.1 (6): a local invalidation ends a tag at once, in the middle of a long Write.
/// After its completion memory does not change, and the Write's next segment is refused.
#[test]
fn a_local_invalidation_ends_a_write_in_progress() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (pool, window) = lent(&mut pair, far, 0, Access::REMOTE_WRITE);
    let source = pair.near.memory(&vec![1; LONG]);
    let all = [source.slice(0, LONG as u32).unwrap()];
    pair.near.ctx.post_send(near, &SendWr::write(1, &all, at(window.stag(), &pool, 0))).unwrap();
    pair.until("a part of the Write", |_| pool.load_u8_acquire(10_000).unwrap() == 1);
    pair.far.ctx.post_send(far, &SendWr::invalidate(2, window.stag())).unwrap();
    pair.until("the invalidation", |pair| pair.far.completions.len() == 1);
    let done = pair.far.completions[0];
    assert_eq!((done.wr_id, done.opcode, done.status), (2, CompletionOpcode::Invalidate, OK));
    let then = contents(&pool);
    assert!(then.contains(&0), "the Write completed before the invalidation");
    assert_eq!(terminated(&mut pair, far), (1, 1, 0));
    assert!(contents(&pool) == then, "the memory changed after its tag was invalidated");
    pair.until("the near queue pair's end", |pair| pair.near.is_disconnected(near));
    assert_ne!(pair.near.completions[0].status, OK);
}

/// RFC 5040 s5.3: a Send with Invalidate ends a tag during the response to a long Read by it. When
/// the receive completes, the application owns the memory: the peer reads nothing that is written
/// later.
#[test]
fn a_send_with_invalidate_ends_a_read_in_progress() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (pool, window) = lent(&mut pair, far, 1, Access::REMOTE_READ);
    let (sink, inbox) = (pair.near.memory(&vec![0; LONG]), pair.far.memory(&[0; 8]));
    pair.far.ctx.post_recv(far, &RecvWr::new(20, &[inbox.slice(0, 8).unwrap()])).unwrap();
    let into = [sink.slice(0, LONG as u32).unwrap()];
    let chain = [
        SendWr::read(1, &into, at(window.stag(), &pool, 0)),
        SendWr::send_inline(2, b"mine").with_invalidate(window.stag()),
    ];
    pair.near.ctx.post_sends(near, &chain).unwrap();
    pair.until("the receive", |pair| !pair.far.completions.is_empty());
    let received = pair.far.completions[0];
    assert_eq!((received.wr_id, received.status, received.invalidated), (20, OK, window.stag()));
    pool.fill(0, LONG, 9).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    let seen = contents(&sink);
    assert!(seen.contains(&0), "the Read completed before the invalidation");
    assert!(!seen.contains(&9), "the peer read after the tag was invalidated");
    assert_ne!(pair.near.completions[0].status, OK);
}

/// RFC 5042 s5.1: what a context registered in a domain of its own, another context of the stack
/// cannot use, bind or invalidate, though it has the tags.
#[test]
fn memory_of_another_context_is_out_of_reach() {
    type Request = fn(&Region, &mut Window, &mut Window, &dyn Fn(&SendWr<'_>));
    const PROTECTION: CompletionStatus = CompletionStatus::LocalProtection;
    const BIND: CompletionStatus = CompletionStatus::MemoryBind;
    let requests: [(CompletionStatus, Request); 5] = [
        (PROTECTION, |theirs, _, _, post| post(&SendWr::send(1, &[theirs.slice(0, 8).unwrap()]))),
        (PROTECTION, |theirs, _, _, post| {
            post(&SendWr::read(1, &[theirs.slice(0, 8).unwrap()], at(STag(1), theirs, 0)))
        }),
        (BIND, |theirs, _, own, post| {
            post(&SendWr::bind(1, own, &[theirs.slice(0, 8).unwrap()], Access::REMOTE_READ))
        }),
        (BIND, |theirs, window, _, post| {
            post(&SendWr::bind(1, window, &[theirs.slice(0, 8).unwrap()], Access::REMOTE_READ))
        }),
        (PROTECTION, |theirs, _, _, post| post(&SendWr::invalidate(1, theirs.stag()))),
    ];
    for (status, request) in requests {
        let mut pair = common::joined();
        let (near, _) = pair.connect();
        let owner = pair.near.stack.context().unwrap();
        let pd = owner.alloc_pd();
        let theirs = owner.register(pd, pattern(64, 1), Access::all()).unwrap();
        let (mut window, mut own) =
            (owner.create_window(pd).unwrap(), pair.near.ctx.create_window(pair.near.pd).unwrap());
        let ctx = std::cell::RefCell::new(&mut pair.near.ctx);
        request(&theirs, &mut window, &mut own, &|wr| ctx.borrow_mut().post_send(near, wr).unwrap());
        pair.until("the end", |pair| pair.near.is_disconnected(near));
        assert_eq!((pair.near.completions.len(), pair.near.completions[0].status), (1, status));
        assert_eq!((contents(&theirs), window.bound_stag()), (pattern(64, 1), None));
    }
}

/// What a context registered ends with it, also in a domain of the stack, where other contexts have
/// queue pairs. Its memory is kept for its handles.
#[test]
fn memory_ends_with_its_context() {
    let mut pair = common::joined();
    pair.far.pd = pair.far.stack.alloc_pd();
    let pd = pair.far.pd;
    let (near, far) = pair.connect();
    let owner = pair.far.stack.context().unwrap();
    let register = |ctx: &Context| ctx.register(pd, vec![0u8; 4], Access::all()).unwrap();
    let (region, kept) = (register(&owner), register(&pair.far.ctx));
    let (_window, _fast) = (owner.create_window(pd).unwrap(), owner.create_fast_region(pd).unwrap());
    for (id, target) in [(1, &region), (2, &kept)] {
        let to = at(target.stag(), target, 0);
        pair.near.ctx.post_send(near, &SendWr::write_inline(id, b"here", to)).unwrap();
    }
    pair.until("both Writes", |pair| pair.near.completions.len() == 2);
    drop(owner);
    pair.until("its end", |pair| pair.far.counter("verbs_regions_revoked") > 0);
    assert_eq!(pair.far.counter("verbs_regions_revoked"), 3);
    // The number of the context that is gone is given again.
    let next = register(&pair.far.stack.context().unwrap());
    for (id, target) in [(3, &kept), (4, &region)] {
        let to = at(target.stag(), target, 0);
        pair.near.ctx.post_send(near, &SendWr::write_inline(id, b"gone", to)).unwrap();
    }
    assert_eq!(terminated(&mut pair, far), (1, 1, 0));
    assert_eq!([&region, &kept, &next].map(contents), [b"here", b"gone", &[0; 4]]);
}
