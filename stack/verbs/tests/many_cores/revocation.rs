//! The end of a tag waits for all cores: one that looked the tag up may still be copying
//! (RFC 5040 s8.1.1 (6), docs/semantics.md, "Memory").

use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionStatus, QueuePair, Region, RemoteMemory, SendWr,
};

use crate::many_cores::bench::{Bench, Plan, contents};

const LONG: usize = 4 << 20;
const POOL: Access = Access::LOCAL_WRITE.union(Access::BIND);
const OK: CompletionStatus = CompletionStatus::Success;

/// Two stacks of two cores, queue joined to queue, and a queue pair on each core. A long Write to
/// memory of the far node is in progress on core 1: that core is in the middle of an iteration with
/// work until it is polled again.
fn in_progress() -> (Bench, Region) {
    let mut bench = Plan { cores: 2, rule: None, tune: |_| () }.bench();
    let qps = bench.connect([Some(0), Some(1)]);
    assert_eq!(bench.far.spread(), [1, 1]);
    let (source, target) = (bench.near.memory(&vec![1; LONG]), bench.far.memory(&vec![0; LONG]));
    let all = [source.slice(0, LONG as u32).expect("inside")];
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    bench.near.ctx.post_send(qps[1], &SendWr::write(1, &all, remote)).expect("room");
    bench.until("a part of the Write", |_| target.load_u8_acquire(10_000).expect("inside") == 1);
    (bench, target)
}

/// Polls one core of the far node, and lets its application listen.
fn poll_far(bench: &mut Bench, core: usize) {
    for _ in 0..20 {
        bench.far.poll_core(core);
    }
    bench.far.listen_to_events();
}

/// RFC 5040 s8.1.1 (6), RFC 5041 s8.3.1: memory is released when each core has passed, and not
/// before.
#[test]
fn revoked_memory_is_released_after_every_core_has_passed() {
    let (mut bench, target) = in_progress();
    let token = target.revoke();
    assert!(!token.poll(), "core 1 holds the tag");
    poll_far(&mut bench, 0);
    assert!(!token.poll(), "core 0 never used it");
    poll_far(&mut bench, 1);
    assert!(token.poll());
    let then = contents(&target);
    assert!(then.contains(&0), "the Write completed before the revocation");
    (0..200).for_each(|_| bench.turn());
    assert!(contents(&target) == then, "the memory changed after it was released");
}

/// Binds a window of a queue pair of the far node, whose core is 0. Gives its tag's next end, a
/// request to invalidate it.
fn bound(bench: &mut Bench, qp: QueuePair, pool: &Region) -> SendWr<'static> {
    let mut window = bench.far.ctx.create_window(bench.far.pd).expect("a window");
    let piece = [pool.slice(0, 64).expect("inside")];
    let bind = SendWr::bind(10, &mut window, &piece, Access::REMOTE_WRITE);
    bench.far.ctx.post_send(qp, &bind).expect("room");
    poll_far(bench, 0);
    assert_eq!(done(bench), [(10, CompletionOpcode::Bind, OK)], "the queue pair is on core 0");
    SendWr::invalidate(11, window.stag())
}

fn done(bench: &Bench) -> Vec<(u64, CompletionOpcode, CompletionStatus)> {
    let of = |one: &Completion| (one.wr_id, one.opcode, one.status);
    bench.far.completions.iter().map(of).collect()
}

/// docs/semantics.md, "Memory": the completion of a local invalidation waits for the other cores.
#[test]
fn a_local_invalidation_completes_after_every_core_has_passed() {
    let (mut bench, target) = in_progress();
    let pool = bench.far.ctx.register(bench.far.pd, vec![0; 64], POOL).expect("a region");
    let qp = bench.far.accepted[0];
    let invalidate = bound(&mut bench, qp, &pool);
    bench.far.completions.clear();
    bench.far.ctx.post_send(qp, &invalidate).expect("room");
    poll_far(&mut bench, 0);
    assert_eq!(done(&bench), [], "core 1 may hold the tag");
    // Core 1 passes, and core 0 sees that.
    poll_far(&mut bench, 1);
    poll_far(&mut bench, 0);
    assert_eq!(done(&bench), [(11, CompletionOpcode::Invalidate, OK)]);
    assert!(contents(&target).contains(&0), "the Write completed before the invalidation");
}

/// A core that was dropped holds neither the memory nor the number of a context: of one that it
/// knew, and of one that came later.
#[test]
fn contexts_end_although_a_core_was_dropped() {
    for [dropped, other] in [[0, 1], [1, 0]] {
        let mut bench = Plan { cores: 2, rule: None, tune: |config| config.limits.contexts = 2 }.bench();
        let far = &mut bench.far;
        let mut owner = far.stack.context().expect("the second one");
        far.poll();
        drop(far.workers.remove(dropped));
        for ended in 1..4 {
            let _region = owner.register(owner.alloc_pd(), vec![0; 8], Access::all()).expect("a region");
            drop(owner);
            (0..4).for_each(|_| far.poll());
            assert_eq!(far.core_counter(other, "verbs_regions_revoked"), ended, "core {dropped} was dropped");
            owner = far.stack.context().expect("the number is free");
        }
        // The last one that gives it up may be a core that ends.
        far.poll();
        drop(owner);
        far.workers.clear();
        far.stack.context().expect("the number is free");
    }
}
