//! Atomic operations on words of other cores: calls through the mailbox, in the order of their
//! streams, without locks (RFC 7306 s5.4, s7).

use crate::many_cores::bench::{Bench, Node, Plan};
use ironwarp::{
    Access, AccessError, AlignedBuf, AtomicOp, Completion, CompletionOpcode, CompletionStatus, Event,
    Extensions, QueuePair, Region, RemoteMemory, SendWr, Sge, VerbsError, WordError,
};
use ironwarp_types::CoreId;

/// Operations that one core may have outstanding at one other core.
const CREDITS: usize = 32;

/// Two stacks with the operations of RFC 7306, queue joined to queue: core 1 of one stack receives
/// what core 1 of the other sends. Owners do not share their lines.
pub fn bench(cores: u16) -> Bench {
    sharing_bench::<0>(cores)
}

/// As [`bench`]; owners share a line after `SHARE_AFTER` calls of other cores.
pub fn sharing_bench<const SHARE_AFTER: u8>(cores: u16) -> Bench {
    let tune = |config: &mut ironwarp::Config| {
        config.rdmap.extensions = Extensions::Rfc7306;
        config.rdmap.atomic_share_after = SHARE_AFTER;
    };
    Plan { cores, rule: None, tune }.bench()
}

/// A region of zeros on which a peer may run atomic operations.
pub fn words(node: &Node) -> Region {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC | Access::BIND;
    node.ctx.register(node.pd, AlignedBuf::pages(4096).expect("a page"), rights).expect("a region")
}

fn word(region: &Region, at: usize) -> u64 {
    let mut octets = [0; 8];
    region.read_at(at * 8, &mut octets).expect("inside");
    u64::from_ne_bytes(octets)
}

pub fn there(region: &Region, at: usize) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() + at as u64 * 8 }
}

pub fn sink(region: &Region, at: usize) -> [Sge; 1] {
    [region.slice(at * 8, 8).expect("inside")]
}

/// Words of a region that core `owner` of `cores` owns, a cache line apart.
pub fn owned(region: &Region, owner: u16, cores: u16) -> Vec<usize> {
    let is_its = |at: &usize| CoreId::owner_of(region.base_to() + *at as u64 * 8, cores) == CoreId(owner);
    (0..region.len() / 8).step_by(8).filter(is_its).collect()
}

impl Bench {
    pub fn add(&mut self, qp: QueuePair, id: u64, into: [Sge; 1], at: RemoteMemory) {
        self.near.ctx.post_send(qp, &SendWr::atomic(id, &into, at, &AtomicOp::add(1))).expect("room");
    }

    /// Runs turns without one core of the far node.
    fn turns_without(&mut self, core: usize, turns: usize) {
        for _ in 0..turns {
            self.advance(ironwarp::Nanos::from_micros(10));
            self.near.poll();
            let others = (0..self.far.workers.len()).filter(|one| *one != core);
            others.for_each(|one| self.far.poll_core(one));
        }
    }

    fn far_counts(&self) -> [u64; 4] {
        ["atomics_local_core", "atomics_forwarded", "atomics_served_remote", "atomics_stale_replies"]
            .map(|name| self.far.counter(name))
    }

    /// Checks that no operation is outstanding between cores and that none waits for a credit.
    #[track_caller]
    fn mail_is_at_rest(&self) {
        for worker in &self.far.workers {
            let resource_usage = worker.resource_usage();
            assert_eq!(
                (resource_usage.remote_atomics_outstanding, resource_usage.remote_atomics_waiting),
                (0, 0),
                "core {}",
                worker.core()
            );
        }
    }

    fn statuses(&self) -> Vec<(u64, CompletionStatus)> {
        self.near.completions.iter().map(|one| (one.wr_id, one.status)).collect()
    }

    fn terminate(&self) -> Option<[u8; 3]> {
        self.near.events.iter().find_map(|event| match event {
            Event::Terminated { sent: false, terminate, .. } => {
                Some([terminate.layer, terminate.etype, terminate.code])
            }
            _ => None,
        })
    }
}

/// RFC7306-5.3-01, design decision 6: queue pairs on all cores, words of all owners, and two names
/// for each word: its region and a fast region. Every addition takes effect once, and each finds a
/// different sum.
#[test]
fn additions_from_all_cores_to_all_owners_are_all_counted() {
    for cores in [2u16, 3, 4] {
        for bench in [bench(cores), sharing_bench::<1>(cores), sharing_bench::<16>(cores)] {
            count_additions_of_all_cores(cores, bench);
        }
    }
}

fn count_additions_of_all_cores(cores: u16, mut bench: Bench) {
    let qps = bench.connect((0..2 * cores).map(|at| Some(at % cores)));
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 8192]));
    let piece = [target.slice(0, 4096).expect("inside")];
    let far_qp = bench.far.accepted[0];
    let mut fast = bench.far.ctx.create_fast_region(bench.far.pd).expect("room");
    let register = SendWr::fast_register(1, &mut fast, &piece, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC);
    bench.far.ctx.post_send(far_qp, &register).expect("room");
    bench.until("the fast region", |bench| !bench.far.completions.is_empty());
    const WORDS: usize = 16;
    const ROUNDS: u64 = 4;
    let mut seen = vec![vec![]; WORDS];
    for round in 0..ROUNDS {
        for (at, qp) in qps.iter().enumerate() {
            for which in 0..WORDS {
                let mut name = there(&target, which * 8);
                if (at + which) % 2 == 1 {
                    name.stag = fast.stag();
                }
                let slot = at * WORDS + which;
                bench.add(*qp, slot as u64, sink(&before, slot), name);
            }
        }
        let all = qps.len() * WORDS;
        bench.until("a round", |bench| bench.near.completions.len() == all);
        assert!(bench.near.completions.drain(..).all(|one| one.status == CompletionStatus::Success));
        (0..all).for_each(|slot| seen[slot % WORDS].push(word(&before, slot)));
        assert_eq!(word(&target, 0), (round + 1) * qps.len() as u64);
    }
    for (which, sums) in seen.iter_mut().enumerate() {
        sums.sort_unstable();
        assert!(sums.iter().copied().eq(0..ROUNDS * qps.len() as u64), "word {which}: {sums:?}");
    }
    let [here, mailed, answered, unheard] = bench.far_counts();
    let all = qps.len() as u64 * WORDS as u64 * ROUNDS;
    assert_eq!((here + mailed, answered, unheard), (all, mailed, 0));
    assert!(here > 0 && mailed > 0, "{here} local, {mailed} forwarded");
    bench.mail_is_at_rest();
}

/// A window names the same word as its region, for the one stream that the window is bound to.
#[test]
fn a_window_over_a_word_of_another_core_is_that_word() {
    let mut bench = bench(2);
    let near = bench.connect([Some(0)])[0];
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 64]));
    let at = owned(&target, 1, 2)[0];
    let mut window = bench.far.ctx.create_window(bench.far.pd).expect("room");
    let piece = [target.slice(0, 4096).expect("inside")];
    let far = bench.far.accepted[0];
    let bind = SendWr::bind(1, &mut window, &piece, Access::REMOTE_ATOMIC);
    bench.far.ctx.post_send(far, &bind).expect("room");
    bench.until("the binding", |bench| !bench.far.completions.is_empty());
    let by_window = RemoteMemory { stag: window.stag(), ..there(&target, at) };
    bench.add(near, 0, sink(&before, 0), there(&target, at));
    bench.add(near, 1, sink(&before, 1), by_window);
    bench.until("both", |bench| bench.near.completions.len() == 2);
    assert_eq!((word(&before, 0), word(&before, 1), word(&target, at)), (0, 1, 2));
    assert_eq!(bench.far_counts(), [0, 2, 2, 0]);
}

/// RFC7306-5.4-04, RFC7306-5.4-09, RFC7306-7-03 and RFC7306-7-04: whatever the owners, the
/// operations of one stream are executed and get their responses in the order sent. A Read behind
/// them returns the result of all.
#[test]
fn atomics_of_a_stream_execute_in_order_across_owners() {
    for bench in [bench(3), sharing_bench::<1>(3), sharing_bench::<16>(3)] {
        check_order_across_owners(bench);
    }
}

fn check_order_across_owners(mut bench: Bench) {
    const CORES: u16 = 3;
    let qps = bench.connect([Some(0)]);
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 1024]));
    let of = [0, 1, 2].map(|owner| owned(&target, owner, CORES)[0]);
    // Every sequence of four owners, each with a Read of all three words behind it.
    for sequence in 0..81usize {
        let owners = [1, 3, 9, 27].map(|digit| sequence / digit % 3);
        let counts = of.map(|at| word(&target, at));
        for (id, owner) in owners.into_iter().enumerate() {
            bench.add(qps[0], id as u64, sink(&before, id), there(&target, of[owner]));
        }
        for (which, at) in of.into_iter().enumerate() {
            let into = sink(&before, 4 + which);
            let read = SendWr::read(4 + which as u64, &into, there(&target, at));
            bench.near.ctx.post_send(qps[0], &read).expect("room");
        }
        bench.until("the sequence", |bench| bench.near.completions.len() == 7);
        let order: Vec<u64> = bench.near.completions.drain(..).map(|one| one.wr_id).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6]);
        let mut sums = counts;
        for (id, owner) in owners.into_iter().enumerate() {
            assert_eq!(word(&before, id), sums[owner], "{owners:?}");
            sums[owner] += 1;
        }
        assert_eq!(
            [4, 5, 6].map(|slot| word(&before, slot)),
            sums,
            "{owners:?}: the Reads return the results"
        );
    }
    bench.mail_is_at_rest();
}

/// An operation on another owner's word is not forwarded until the previous ones are complete. One
/// on the same owner's word is.
#[test]
fn requests_before_another_owners_atomic_execute_first() {
    let mut bench = bench(3);
    let near = bench.connect([Some(0)])[0];
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 64]));
    let (one, two) = (owned(&target, 1, 3)[0], owned(&target, 2, 3)[0]);
    for (id, at) in [one, one, two, one].into_iter().enumerate() {
        bench.add(near, id as u64, sink(&before, id), there(&target, at));
    }
    bench.turns_without(1, 20);
    assert_eq!(
        bench.far.workers[0].resource_usage().remote_atomics_outstanding,
        2,
        "two outstanding at one core, and no later operation"
    );
    assert_eq!((word(&target, one), word(&target, two)), (0, 0));
    assert!(bench.near.completions.is_empty());
    bench.until("all four", |bench| bench.near.completions.len() == 4);
    assert_eq!([0, 1, 2, 3].map(|id| word(&before, id)), [0, 1, 0, 2]);
}

/// The core of the connection changes a word that it owns itself, without a message to another
/// core.
#[test]
fn a_locally_owned_word_is_changed_without_a_mailbox_message() {
    let mut bench = bench(2);
    let near = bench.connect([Some(1)])[0];
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 64]));
    let at = owned(&target, 1, 2)[0];
    (0..8).for_each(|id| bench.add(near, id, sink(&before, id as usize), there(&target, at)));
    bench.turns_without(0, 20);
    assert_eq!((bench.near.completions.len(), word(&target, at)), (8, 8));
    assert_eq!(bench.far_counts(), [8, 0, 0, 0]);
}

/// Design decision 6: a range may be pinned to one core. That core owns all its words under all
/// their names, and the application can query the owner of a word.
#[test]
fn a_pinned_range_is_owned_by_its_core_alone() {
    const CORES: u16 = 3;
    let mut bench = bench(CORES);
    let near = bench.connect([Some(0)])[0];
    let before = bench.near.memory(&[0; 128]);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    for core in 0..CORES {
        let page = AlignedBuf::pages(4096).expect("a page");
        let ctx = &bench.far.ctx;
        let target = ctx.register_on_core(bench.far.pd, page, rights, core).expect("a region");
        let owner = |ctx: &ironwarp::Context, at: usize| ctx.owner_core(&target, at * 8).expect("a word");
        assert!((0..512).all(|at| owner(ctx, at) == core));
        let [here, mailed, ..] = bench.far_counts();
        (0..8)
            .for_each(|id| bench.add(near, id, sink(&before, id as usize), there(&target, id as usize * 64)));
        bench.until("all of them", |bench| bench.near.completions.len() == 8);
        bench.near.completions.clear();
        assert!((0..8).all(|id| word(&target, id * 64) == 1));
        let moved = if core == 0 { [here + 8, mailed] } else { [here, mailed + 8] };
        assert_eq!(bench.far_counts()[..2], moved, "pinned to core {core}");
    }
}

/// The address decides the owner of a word in an ordinary region. An offset that is not a word has
/// no owner, and a core that does not exist is refused.
#[test]
fn the_owner_of_a_word_can_be_asked_for() {
    let bench = bench(2);
    let (ctx, target) = (&bench.far.ctx, words(&bench.far));
    let of = |owner| owned(&target, owner, 2).into_iter().map(move |at| (at, owner));
    for (at, owner) in of(0).chain(of(1)) {
        assert_eq!(ctx.owner_core(&target, at * 8).expect("a word"), owner);
    }
    assert!(matches!(ctx.owner_core(&target, 4), Err(VerbsError::Word(WordError::Misaligned))));
    let outside = ctx.owner_core(&target, 4096);
    assert!(matches!(outside, Err(VerbsError::Word(WordError::Access(AccessError::Bounds)))));
    let page = AlignedBuf::pages(4096).expect("a page");
    let refused = ctx.register_on_core(bench.far.pd, page, Access::LOCAL_WRITE, 2);
    assert!(matches!(refused, Err(VerbsError::Register(_))), "{:?}", refused.map(|_| ()));
}

/// The owner shares a line after the set number of calls. From then on the core of the connection
/// changes its words itself, and so does the owner for its own peers and application. Another line
/// is still the owner's alone.
#[test]
fn a_line_that_another_core_wants_often_is_shared() {
    let mut bench = sharing_bench::<4>(2);
    let qps = bench.connect([Some(0), Some(1)]);
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 64]));
    let [at, other] = owned(&target, 1, 2)[..2] else { panic!("a page has several lines of each core") };
    for id in 0..8 {
        bench.add(qps[0], id, sink(&before, id as usize), there(&target, at));
        bench.until("the response", |bench| bench.near.completions.len() as u64 == id + 1);
    }
    assert_eq!((bench.far_counts(), bench.far.counter("atomics_shared")), ([4, 4, 4, 0], 4));
    // The owner stands still, and no operation on the shared line waits for it.
    bench.add(qps[0], 8, sink(&before, 0), there(&target, at + 1));
    bench.turns_without(1, 20);
    assert_eq!(bench.near.completions.len(), 9);
    bench.add(qps[0], 9, sink(&before, 1), there(&target, other));
    bench.add(qps[1], 10, sink(&before, 2), there(&target, at));
    let cq = bench.far.cq;
    bench.far.ctx.atomic(cq, 1, (&target, at * 8), &AtomicOp::add(1)).expect("room");
    bench.until("all", |bench| (bench.near.completions.len(), bench.far.completions.len()) == (11, 1));
    assert_eq!([at, at + 1, other].map(|at| word(&target, at)), [10, 1, 1]);
    assert_eq!((bench.far_counts(), bench.far.counter("atomics_shared")), ([6, 5, 5, 0], 6));
    bench.mail_is_at_rest();
}

/// With the setting "locked", no operation is forwarded to another core.
#[test]
fn with_locked_instructions_no_word_has_an_owner() {
    let tune = |config: &mut ironwarp::Config| {
        config.rdmap.extensions = Extensions::Rfc7306;
        config.rdmap.atomic_execution = ironwarp::config::AtomicExecution::Locked;
    };
    let mut bench = Plan { cores: 2, rule: None, tune }.bench();
    let near = bench.connect([Some(0)])[0];
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 64]));
    let at = owned(&target, 1, 2)[0];
    bench.add(near, 0, sink(&before, 0), there(&target, at));
    bench.until("the response", |bench| bench.near.completions.len() == 1);
    assert_eq!((word(&target, at), bench.far_counts()), (1, [1, 0, 0, 0]));
}

/// More operations at once than a core may have outstanding at another: those without a credit wait
/// in order. Nothing is lost, and other queue pairs continue.
#[test]
fn operations_beyond_the_credits_wait_in_order() {
    let mut bench = bench(2);
    let qps = bench.connect([Some(0); 5]);
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 1024]));
    let (at, at_hand) = (owned(&target, 1, 2)[0], owned(&target, 0, 2)[0]);
    for (which, qp) in qps[..4].iter().enumerate() {
        for nth in 0..16 {
            let slot = which * 16 + nth;
            bench.add(*qp, slot as u64, sink(&before, slot), there(&target, at));
        }
    }
    bench.turns_without(1, 20);
    let resource_usage = bench.far.workers[0].resource_usage();
    assert_eq!(
        (resource_usage.remote_atomics_outstanding, resource_usage.remote_atomics_waiting),
        (CREDITS, 2),
        "two queue pairs use all the credits"
    );
    bench.add(qps[4], 99, sink(&before, 99), there(&target, at_hand));
    bench.turns_without(1, 20);
    assert_eq!(bench.statuses(), [(99, CompletionStatus::Success)]);
    bench.until("all of them", |bench| bench.near.completions.len() == 65);
    assert_eq!(word(&target, at), 64);
    let mut sums: Vec<u64> = (0..64).map(|slot| word(&before, slot)).collect();
    assert!(sums.chunks(16).all(|of_one| of_one.is_sorted()), "{sums:?}");
    sums.sort_unstable();
    assert!(sums.into_iter().eq(0..64));
    assert!(bench.far.counter("atomics_no_credit") >= 2);
    bench.mail_is_at_rest();
}

/// RFC7306-8.2-04, docs/semantics.md, "Atomics": memory that is deregistered while an operation on
/// it is forwarded is not touched. The owner refuses the operation. Earlier operations get their
/// responses first, then the stream ends with the Terminate for an invalid STag.
#[test]
fn the_owner_refuses_memory_deregistered_meanwhile_in_order() {
    let mut bench = bench(2);
    let qps = bench.connect([Some(0), Some(0)]);
    let (kept, given_up) = (words(&bench.far), words(&bench.far));
    let before = bench.near.memory(&[0x77; 64]);
    let (at, gone_at) = (owned(&kept, 1, 2)[0], owned(&given_up, 1, 2)[0]);
    bench.add(qps[0], 0, sink(&before, 0), there(&kept, at));
    bench.add(qps[0], 1, sink(&before, 1), there(&given_up, gone_at));
    bench.add(qps[0], 2, sink(&before, 2), there(&kept, at));
    bench.turns_without(1, 20);
    assert_eq!(bench.far.workers[0].resource_usage().remote_atomics_outstanding, 3);
    let quiescent = given_up.revoke();
    bench.until("the end", |bench| bench.near.is_down(qps[0]));
    assert!(quiescent.poll());
    let (good, flushed) = (CompletionStatus::Success, CompletionStatus::FlushedInError);
    assert_eq!(bench.statuses(), [(0, good), (1, flushed), (2, flushed)]);
    assert_eq!(bench.terminate(), Some([0, 1, 0]));
    assert_eq!((word(&before, 0), word(&given_up, gone_at)), (0, 0));
    assert_eq!(word(&kept, at), 1, "a later operation, already forwarded, has no effect");
    // The other queue pair is unaffected.
    bench.add(qps[1], 9, sink(&before, 3), there(&kept, at));
    bench.until("the other", |bench| bench.near.completions.len() == 4);
    assert_eq!(bench.near.completions[3].status, good);
    bench.mail_is_at_rest();
}

/// RFC7306-5.1.1-03, RFC7306-8.2-03, RFC7306-8.2-06 and RFC7306-8.2-07: the receiving core refuses
/// an invalid request, behind earlier requests, for any owner of the word.
#[test]
fn invalid_atomics_are_refused_on_the_receiving_core() {
    type Spoil = fn(&Node, RemoteMemory) -> RemoteMemory;
    let cases: [(Spoil, [u8; 3]); 3] = [
        (|_, at| RemoteMemory { tagged_offset: at.tagged_offset + 4, ..at }, [0, 2, 7]),
        (|_, at| RemoteMemory { tagged_offset: at.tagged_offset + 4096, ..at }, [0, 1, 1]),
        (|_, at| RemoteMemory { stag: ironwarp::STag(at.stag.0 ^ 1), ..at }, [0, 1, 0]),
    ];
    for (spoil, code) in cases {
        let mut bench = bench(2);
        let near = bench.connect([Some(0)])[0];
        let (target, before) = (words(&bench.far), bench.near.memory(&[0; 64]));
        let at = owned(&target, 1, 2)[0];
        let spoilt = spoil(&bench.far, there(&target, at));
        bench.add(near, 1, sink(&before, 1), spoilt);
        bench.until("the end", |bench| bench.near.is_down(near));
        assert_eq!((bench.terminate(), bench.far_counts()), (Some(code), [0; 4]));
        assert!((0..512).all(|at| word(&target, at) == 0));
    }
}

/// A queue pair is destroyed while its operations are at another core. The replies are dropped,
/// even when another queue pair uses its slot. The new queue pair works.
#[test]
fn a_reply_for_a_destroyed_queue_pair_is_dropped() {
    let mut bench = bench(2);
    let gone = bench.connect([Some(0)])[0];
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 64]));
    let at = owned(&target, 1, 2)[0];
    (0..3).for_each(|id| bench.add(gone, id, sink(&before, id as usize), there(&target, at)));
    bench.turns_without(1, 20);
    assert_eq!(bench.far.workers[0].resource_usage().remote_atomics_outstanding, 3);
    let far = bench.far.accepted[0];
    bench.far.ctx.destroy_qp(far).expect("it exists");
    bench.turns_without(1, 20);
    assert_eq!(bench.far.workers[0].resource_usage().queue_pairs, 0);
    bench.until("the end", |bench| bench.near.is_down(gone));
    let next = bench.connect([Some(0)])[0];
    (0..4).for_each(|_| bench.turn());
    assert_eq!(bench.far_counts(), [0, 3, 3, 3]);
    bench.near.completions.clear();
    bench.add(next, 7, sink(&before, 7), there(&target, at));
    bench.until("the next", |bench| !bench.near.completions.is_empty());
    // Whether an operation of an ended stream is executed is unspecified; here all three were.
    assert_eq!((word(&before, 7), word(&target, at)), (3, 4));
    bench.mail_is_at_rest();
}

/// A queue pair that is destroyed while it waits for a credit leaves the queue of waiters.
#[test]
fn a_destroyed_queue_pair_leaves_the_credit_queue() {
    let mut bench = bench(2);
    let qps = bench.connect([Some(0); 4]);
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 1024]));
    let at = owned(&target, 1, 2)[0];
    for (slot, qp) in qps.iter().flat_map(|qp| [*qp; 16]).enumerate() {
        bench.add(qp, slot as u64, sink(&before, slot), there(&target, at));
    }
    bench.turns_without(1, 20);
    assert_eq!(bench.far.workers[0].resource_usage().remote_atomics_waiting, 2);
    for far in bench.far.accepted.clone() {
        bench.far.ctx.destroy_qp(far).expect("it exists");
    }
    bench.turns_without(1, 20);
    assert_eq!(bench.far.workers[0].resource_usage().remote_atomics_waiting, 0);
    bench.until("the end", |bench| qps.iter().all(|qp| bench.near.is_down(*qp)));
    (0..4).for_each(|_| bench.turn());
    assert_eq!(word(&target, at), CREDITS as u64);
    bench.mail_is_at_rest();
}

/// When a core has ended, no request waits for it. Streams with operations at that core, or waiting
/// for it, end. So does any stream that requests its words later. Others are unaffected, and the
/// other cores become idle again.
#[test]
fn a_stopped_core_leaves_no_request_waiting() {
    let mut bench = bench(2);
    let qps = bench.connect([Some(0); 5]);
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 1024]));
    let (at, at_hand) = (owned(&target, 1, 2)[0], owned(&target, 0, 2)[0]);
    for (slot, qp) in qps[..3].iter().flat_map(|qp| [*qp; 16]).enumerate() {
        bench.add(qp, slot as u64, sink(&before, slot), there(&target, at));
    }
    bench.turns_without(1, 20);
    let resource_usage = bench.far.workers[0].resource_usage();
    assert_eq!(
        (resource_usage.remote_atomics_outstanding, resource_usage.remote_atomics_waiting),
        (CREDITS, 1)
    );
    bench.far.workers.truncate(1);
    bench.until("the end of three", |bench| qps[..3].iter().all(|qp| bench.near.is_down(*qp)));
    assert_eq!(bench.terminate(), Some([0, 0, 0]), "a local error");
    bench.mail_is_at_rest();
    bench.add(qps[3], 98, sink(&before, 98), there(&target, at));
    bench.until("the end of a fourth", |bench| bench.near.is_down(qps[3]));
    bench.near.completions.clear();
    bench.add(qps[4], 99, sink(&before, 99), there(&target, at_hand));
    bench.until("a local word", |bench| !bench.near.completions.is_empty());
    assert_eq!(bench.statuses(), [(99, CompletionStatus::Success)]);
    assert_eq!((word(&target, at), word(&target, at_hand)), (0, 1));
    bench.mail_is_at_rest();
}

/// RFC 7306 leaves open which core changes a word. Memory that is pinned to a core is changed by
/// that core only, under all its names. Pinning to a core that does not exist is refused.
#[test]
fn the_words_of_pinned_memory_are_changed_by_one_core() {
    let mut bench = bench(2);
    let qps = bench.connect([Some(0), Some(1)]);
    let before = bench.near.memory(&[0; 1024]);
    let (rights, far) = (Access::LOCAL_WRITE | Access::REMOTE_ATOMIC, &bench.far);
    let pinned = |core| {
        let bytes = AlignedBuf::pages(4096).expect("a page");
        far.ctx.register_on_core(far.pd, bytes, rights, core)
    };
    assert!(matches!(pinned(2), Err(VerbsError::Register(ironwarp::RegisterError::NoSuchCore))));
    let target = pinned(1).expect("a region");
    for (slot, qp) in qps.iter().flat_map(|qp| [*qp; 16]).enumerate() {
        bench.add(qp, slot as u64, sink(&before, slot), there(&target, slot % 16 * 8));
    }
    let (cq, own) = (bench.far.cq, (&target, 0));
    bench.far.ctx.atomic(cq, 1, own, &AtomicOp::add(1)).expect("room");
    bench.until("all", |bench| (bench.near.completions.len(), bench.far.completions.len()) == (32, 1));
    assert_eq!([0, 8, 120].map(|at| word(&target, at)), [3, 2, 2]);
    assert_eq!(
        bench.far_counts(),
        [16, 16, 16, 0],
        "operations of core 0 were forwarded, those of core 1 were not"
    );
    assert_eq!([0, 1].map(|core| bench.far.core_counter(core, "atomics_application")), [0, 1]);
    bench.mail_is_at_rest();
}

/// An orderly disconnect waits for operations that other cores still execute.
#[test]
fn a_disconnect_waits_for_atomics_on_other_cores() {
    let mut bench = bench(2);
    let near = bench.connect([Some(0)])[0];
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 64]));
    let at = owned(&target, 1, 2)[0];
    bench.add(near, 1, sink(&before, 0), there(&target, at));
    bench.turns_without(1, 20);
    let far = bench.far.accepted[0];
    bench.far.ctx.disconnect(far).expect("established");
    bench.turns_without(1, 20);
    assert!(bench.near.completions.is_empty() && !bench.near.is_down(near));
    bench.until("the response", |bench| bench.near.completions.len() == 1);
    assert_eq!(bench.statuses(), [(1, CompletionStatus::Success)]);
    bench.near.ctx.disconnect(near).expect("established");
    bench.until("the end", |bench| bench.near.is_down(near));
}

/// Atomic operations of the application go to the owner cores too. No addition of the application
/// or of peers is lost, and the completion returns the previous value.
#[test]
fn local_atomics_execute_on_the_owner_core() {
    let mut bench = bench(3);
    let qps = bench.connect([Some(0), Some(1)]);
    let (target, before) = (words(&bench.far), bench.near.memory(&[0; 1024]));
    let of = [0, 1, 2].map(|owner| owned(&target, owner, 3)[0]);
    let mut sums = vec![vec![]; 3];
    for round in 0..8 {
        for (which, at) in of.into_iter().enumerate() {
            let (cq, word) = (bench.far.cq, (&target, at * 8));
            bench.far.ctx.atomic(cq, which as u64, word, &AtomicOp::add(1)).expect("room");
            for (nth, qp) in qps.iter().enumerate() {
                let slot = which * 2 + nth;
                bench.add(*qp, slot as u64, sink(&before, slot), there(&target, at));
            }
        }
        bench.until("a round", |bench| (bench.near.completions.len(), bench.far.completions.len()) == (6, 3));
        bench.near.completions.clear();
        for done in bench.far.completions.drain(..) {
            assert_eq!((done.status, done.byte_len), (CompletionStatus::Success, 8));
            assert_eq!(done.opcode, CompletionOpcode::FetchAdd);
            sums[done.wr_id as usize].push(done.original().expect("a successful atomic"));
        }
        (0..6).for_each(|slot| sums[slot / 2].push(word(&before, slot)));
        assert!(of.into_iter().all(|at| word(&target, at) == (round + 1) * 3));
    }
    for mut of_one in sums {
        of_one.sort_unstable();
        assert!(of_one.into_iter().eq(0..24));
    }
    for core in 0..3 {
        assert_eq!(
            bench.far.core_counter(core, "atomics_application"),
            8,
            "core {core} executed the operations on its words"
        );
    }
}

/// An invalid operation of the application on its own memory is refused at once, or by the owner if
/// the tag was invalidated in between. It reserves an entry in the completion queue like any other
/// request.
#[test]
fn local_atomics_are_checked_and_reserve_a_completion_slot() {
    let mut bench = bench(2);
    let (cq, add) = (bench.far.ctx.create_cq(2).expect("room"), AtomicOp::add(1));
    let target = words(&bench.far);
    let readable = bench.far.ctx.register(bench.far.pd, vec![0; 64], Access::REMOTE_READ).expect("a region");
    let (alien, ctx) = (words(&bench.near), &mut bench.far.ctx);
    let refused = |outcome| match outcome {
        Err(VerbsError::Word(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(ctx.atomic(cq, 1, (&target, 4), &add)), WordError::Misaligned);
    assert_eq!(refused(ctx.atomic(cq, 1, (&target, 4096), &add)), AccessError::Bounds.into());
    assert_eq!(refused(ctx.atomic(cq, 1, (&readable, 0), &add)), AccessError::NoRight.into());
    assert_eq!(refused(ctx.atomic(cq, 1, (&alien, 0), &add)), AccessError::UnknownStag.into());
    ctx.atomic(cq, 1, (&target, 0), &add).expect("room");
    ctx.atomic(cq, 2, (&target, 0), &AtomicOp::compare_and_swap(1, 7)).expect("room");
    assert!(matches!(ctx.atomic(cq, 3, (&target, 0), &add), Err(VerbsError::CqFull)));
    (0..4).for_each(|_| bench.turn());
    let mut reaped = [Completion::default(); 4];
    assert_eq!(bench.far.ctx.poll_cq(cq, &mut reaped).expect("it exists"), 2);
    let told: Vec<_> = reaped[..2].iter().map(|one| (one.wr_id, one.original())).collect();
    assert_eq!((told, word(&target, 0)), (vec![(1, Some(0)), (2, Some(1))], 7));
    bench.far.ctx.atomic(cq, 4, (&target, 0), &add).expect("entries are free again");
    let _quiescent = target.revoke();
    (0..4).for_each(|_| bench.turn());
    assert_eq!(bench.far.ctx.poll_cq(cq, &mut reaped).expect("it exists"), 1);
    assert_eq!((reaped[0].status, reaped[0].original()), (CompletionStatus::LocalProtection, None));
    assert_eq!(word(&target, 0), 7);
}

/// Requests that a context makes before it is dropped are executed before its slots are released.
/// None of their completions reaches the queues of the next user of the slots.
#[test]
fn requests_of_a_dropped_context_reach_no_other() {
    const ASKED: u64 = 40;
    let mut bench = bench(2);
    let target = words(&bench.far);
    let at = owned(&target, 1, 2)[0];
    let mut gone = bench.far.stack.context().expect("room");
    let cq = gone.create_cq(64).expect("room");
    (0..ASKED).for_each(|id| gone.atomic(cq, id, (&target, at * 8), &AtomicOp::add(1)).expect("room"));
    drop(gone);
    // The number exceeds what a core takes from one context at a time. The leader core, which
    // releases the context, is slow.
    bench.far.poll_core(1);
    let next = bench.far.ctx.create_cq(64).expect("room");
    (0..8).for_each(|_| bench.far.poll_core(1));
    let mut reaped = [Completion::default(); 64];
    assert_eq!(bench.far.ctx.poll_cq(next, &mut reaped).expect("it exists"), 0);
    assert_eq!(word(&target, at), ASKED);
    (0..8).for_each(|_| bench.turn());
    assert_eq!(bench.far.ctx.poll_cq(next, &mut reaped).expect("it exists"), 0);
}
