//! The limits of a handle: after a disconnect, in another stack, beyond its own memory.

use crate::common;

use common::Pair;
use ironwarp::{
    Access, CompletionQueue, CompletionStatus, Context, PostError, ProtectionDomain, QpAttr, QpState,
    RawMemory, RemoteMemory, SendWr, VerbsError,
};

/// RFC 5041 s6.2.1 (RFC5041-6.2.1-03): after a disconnect was requested, further requests are
/// refused, even before the core has processed it. Earlier requests are executed.
#[test]
fn nothing_is_posted_after_a_disconnect() {
    let mut pair = Pair::new();
    let (near, far) = pair.connect();
    let target = pair.far.memory(&[0; 8]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"before", remote)).unwrap();
    pair.near.ctx.disconnect(near).unwrap();
    let behind = pair.near.ctx.post_send(near, &SendWr::write_inline(2, b"behind", remote));
    assert!(matches!(behind, Err(PostError::WrongState(QpState::Draining))), "{behind:?}");
    assert_eq!(pair.near.ctx.qp_state(near).unwrap(), QpState::Draining);
    assert_eq!(pair.near.ctx.query_qp(near).unwrap().state, QpState::Draining);
    pair.until("the end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    let done: Vec<_> = pair.near.completions.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(done, [(1, CompletionStatus::Success)]);
    assert_eq!(common::contents(&target), b"before\0\0");
    // A request to a queue pair that has ended completes as flushed.
    pair.near.ctx.post_send(near, &SendWr::write_inline(3, b"after", remote)).unwrap();
    pair.until("the flush", |pair| pair.near.completions.len() == 2);
    assert_eq!(pair.near.completions[1].status, CompletionStatus::FlushedInError);
}

/// A connection in set-up is closed as well, and accepts no more work.
#[test]
fn nothing_is_posted_after_a_disconnect_during_start_up() {
    let mut pair = Pair::new();
    let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
    pair.near.ctx.connect(qp, pair.at, b"").unwrap();
    pair.near.ctx.post_send(qp, &SendWr::send_inline(1, b"held")).unwrap();
    pair.near.ctx.disconnect(qp).unwrap();
    let behind = pair.near.ctx.post_send(qp, &SendWr::send_inline(2, b"behind"));
    assert!(matches!(behind, Err(PostError::WrongState(QpState::Draining))), "{behind:?}");
    pair.until("the end", |pair| !pair.near.completions.is_empty());
    let done: Vec<_> = pair.near.completions.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(done, [(1, CompletionStatus::FlushedInError)]);
}

/// RFC 5042 s5.1 (RFC5040-8.1.2-04): a protection domain belongs to its context or its stack. Every
/// call of another context or another stack in the same process refuses it.
#[test]
fn a_protection_domain_of_another_context_or_stack_is_refused() {
    let mut pair = Pair::new();
    let other = pair.near.stack.context().unwrap();
    for foreign in [pair.far.pd, pair.far.stack.alloc_pd(), other.alloc_pd()] {
        assert_ne!(foreign, pair.near.pd, "no two domains of a process are equal");
        refuses(&mut pair.near.ctx, foreign, pair.near.cq);
    }
    // The refused calls consumed nothing.
    pair.near.ctx.destroy_cq(pair.near.cq).unwrap();
}

#[track_caller]
fn refuses(ctx: &mut Context, foreign: ProtectionDomain, cq: CompletionQueue) {
    let before = ctx.limits();
    let refused = |error| matches!(error, Some(VerbsError::UnknownProtectionDomain));
    assert!(refused(ctx.create_qp(foreign, &QpAttr::new(cq)).err()));
    assert!(refused(ctx.register(foreign, vec![0u8; 8], Access::LOCAL_WRITE).err()));
    assert!(refused(ctx.create_window(foreign).err()));
    assert!(refused(ctx.create_fast_region(foreign).err()));
    assert!(refused(ctx.create_srq(foreign, 4, 1).err()));
    assert_eq!(ctx.limits(), before);
}

/// Contexts share what they register in a domain of the stack: queue pairs of one may use memory of
/// another.
#[test]
fn contexts_share_the_domains_of_their_stack() {
    let mut pair = Pair::new();
    let mut other = pair.far.stack.context().unwrap();
    pair.far.pd = pair.far.stack.alloc_pd();
    let pd = pair.far.pd;
    let region = other.register(pd, vec![0u8; 8], Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let apart = other.alloc_pd();
    assert!(apart != pd && apart != pair.far.ctx.alloc_pd() && apart != pair.far.stack.alloc_pd());
    let (near, _) = pair.connect();
    let remote = RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() };
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"shared", remote)).unwrap();
    pair.until("the Write", |pair| pair.near.completions.len() == 1);
    assert_eq!(common::contents(&region), b"shared\0\0");
    let cq = other.create_cq(4).unwrap();
    other.create_qp(pd, &QpAttr::new(cq)).unwrap();
    other.create_qp(other.alloc_shared_pd(), &QpAttr::new(cq)).unwrap();
}

/// semantics "Memory": memory that the application manages itself, here a mapping, is registered
/// raw. Peers write and read it in place. When the token is complete, it belongs to the application
/// alone, unchanged and still mapped.
#[test]
fn raw_registered_memory_stays_the_applications() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    const LEN: usize = 16 * 4096;
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh anonymous mapping at an address of the system's choice.
    let at = unsafe { mmap_anonymous(std::ptr::null_mut(), LEN, prot, flags) }.expect("a mapping");
    let base = std::ptr::NonNull::new(at.cast::<u8>()).expect("a mapping is not at 0");

    let mut pair = Pair::new();
    let (near, _) = pair.connect();
    // SAFETY: the mapping exists, and is accessed through the region only, until the token is
    // complete.
    let raw = unsafe { RawMemory::new(base, LEN) };
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let pool = pair.far.ctx.register(pair.far.pd, raw, all).unwrap();
    assert_eq!((pool.len(), pool.base_to()), (LEN, at as u64));
    let source = pair.near.memory(&common::pattern(LEN, 5));
    let sink = pair.near.memory(&vec![0; LEN]);
    let remote = RemoteMemory { stag: pool.stag(), tagged_offset: pool.base_to() };
    let (from, into) = ([source.slice(0, LEN as u32).unwrap()], [sink.slice(0, LEN as u32).unwrap()]);
    pair.near.ctx.post_send(near, &SendWr::write(1, &from, remote)).unwrap();
    pair.near.ctx.post_send(near, &SendWr::read(2, &into, remote)).unwrap();
    pair.until("both", |pair| pair.near.completions.len() == 2);
    assert!(pair.near.completions.iter().all(|one| one.status == CompletionStatus::Success));
    assert!(common::contents(&sink) == common::pattern(LEN, 5));

    let token = pool.deregister();
    pair.until("quiescence", |_| token.poll());
    pair.near.ctx.post_send(near, &SendWr::write(3, &from, remote)).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    drop(pair);
    // SAFETY: no other access to the mapping exists; it was never freed.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), LEN) };
    assert!(bytes == common::pattern(LEN, 5), "not changed after its token");
    bytes.fill(1);
    // SAFETY: mapped above, and no reference to it exists.
    unsafe { munmap(at, LEN) }.expect("still mapped");
}
