//! A million atomic operations from two threads at once: none is lost, executed twice or mixed up.
//!
//! Two stacks of two cores, queue joined to queue. Each thread polls one core of either stack and
//! posts on its own queue pairs. So only mailbox messages about words go from thread to thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ironwarp::memory::{MemoryConfig, pair_of_queues};
use ironwarp::{
    Access, AlignedBuf, AtomicOp, Completion, CompletionQueue, CompletionStatus, Config, Context, Event,
    Extensions, MacAddr, ProtectionDomain, QpAttr, QueuePair, Region, RemoteMemory, SendWr, Stack, Worker,
};
use ironwarp_types::CoreId;

use crate::many_cores::bench::far_addr;

const THREADS: u16 = 2;
/// Queue pairs of each thread.
const QPS: usize = 2;
/// Outstanding operations of a queue pair.
const AT_ONCE: usize = 128;
/// How many of those, the last, are on words of the other core: two queue pairs use all the
/// credits.
const ELSEWHERE: usize = 16;
const WORDS: usize = 16;
const ADDITIONS: usize = 1_000_000;
/// Successful swaps of each thread in the chain.
const SWAPS: u64 = 250;
/// Turns without a completion after which an operation counts as stuck. Idle threads yield, so a
/// busy machine does not reach it.
const TURNS_MAX: usize = 20_000_000;

/// The state of one thread.
struct Part {
    core: u16,
    workers: [Worker; 2],
    ctx: Context,
    cq: CompletionQueue,
    qps: Vec<QueuePair>,
    before: Region,
    /// The words to add to, by owner.
    words: [Vec<RemoteMemory>; THREADS as usize],
    /// The word of the chain.
    chain: RemoteMemory,
}

impl Part {
    fn turn(&mut self) {
        let work = self.workers.iter_mut().map(|worker| worker.poll(4).work).sum::<usize>();
        if work == 0 {
            thread::yield_now();
        }
    }

    /// Waits for `count` completions; all must be successful.
    fn reap(&mut self, mut count: usize) {
        let mut reaped = [Completion::default(); 64];
        for _ in 0..TURNS_MAX {
            self.turn();
            let now = self.ctx.poll_cq(self.cq, &mut reaped).expect("it exists");
            assert!(reaped[..now].iter().all(|one| one.status == CompletionStatus::Success));
            count -= now;
            if count == 0 {
                return;
            }
        }
        panic!("core {}: {count} operations do not complete", self.core);
    }

    fn original(&self, slot: usize) -> u64 {
        let mut octets = [0; 8];
        self.before.read_at(slot * 8, &mut octets).expect("inside");
        u64::from_ne_bytes(octets)
    }

    /// Returns the owner and the index of the word for operation `nth` of a queue pair in a round.
    /// Neighbouring operations use different words, so that each round covers all of them.
    fn aim(&self, round: usize, nth: usize) -> (usize, usize) {
        let here = usize::from(self.core);
        let owner = if nth < AT_ONCE - ELSEWHERE { here } else { 1 - here };
        (owner, (round + nth) % self.words[owner].len())
    }

    /// Adds 1 to each chosen word in `rounds` rounds. Returns, for each word, the values that the
    /// additions found.
    fn add(&mut self, rounds: usize) -> [Vec<Vec<u64>>; THREADS as usize] {
        let one = AtomicOp::add(1);
        let mut found = self.words.each_ref().map(|words| vec![vec![]; words.len()]);
        for round in 0..rounds {
            for at in 0..QPS * AT_ONCE {
                let (owner, which) = self.aim(round, at % AT_ONCE);
                let (into, word) =
                    ([self.before.slice(at * 8, 8).expect("inside")], self.words[owner][which]);
                let wr = SendWr::atomic(at as u64, &into, word, &one);
                self.ctx.post_send(self.qps[at / AT_ONCE], &wr).expect("room");
            }
            self.reap(QPS * AT_ONCE);
            for at in 0..QPS * AT_ONCE {
                let (owner, which) = self.aim(round, at % AT_ONCE);
                found[owner][which].push(self.original(at));
            }
        }
        found
    }

    /// Increments the word of the chain by swaps. Each swap expects the value that the previous
    /// swap, of either thread, has left.
    fn swap(&mut self) -> Vec<u64> {
        let (mut known, mut swapped) = (0, vec![]);
        while (swapped.len() as u64) < SWAPS {
            let into = [self.before.slice(0, 8).expect("inside")];
            let swap = AtomicOp::compare_and_swap(known, known + 1);
            self.ctx.post_send(self.qps[0], &SendWr::atomic(0, &into, self.chain, &swap)).expect("room");
            self.reap(1);
            let found = self.original(0);
            if found == known {
                swapped.push(known);
            }
            known = if found == known { known + 1 } else { found };
        }
        swapped
    }
}

/// A stack of two cores.
fn stack(number: u8, share_after: u8, ports: Vec<ironwarp::memory::MemoryPort>) -> (Stack, Vec<Worker>) {
    let mut config = Config::in_memory(&format!("10.0.0.{number}/24")).expect("a configuration");
    config.core.count = THREADS;
    config.rdmap.extensions = Extensions::Rfc7306;
    config.rdmap.atomic_share_after = share_after;
    Stack::builder(config).memory_ports(ports).build().expect("a stack")
}

fn attr(cq: CompletionQueue, core: Option<u16>) -> QpAttr {
    let depth = AT_ONCE as u32;
    let (ord, ird) = (AT_ONCE as u16, AT_ONCE as u16);
    QpAttr { core, send_depth: depth, recv_depth: 1, ord, ird, ..QpAttr::new(cq) }
}

/// Connects every queue pair of the near contexts from the core of its thread.
fn connect(
    workers: &mut [Worker],
    near: &mut [(Context, ProtectionDomain, CompletionQueue)],
    (far, pd, far_cq): (&mut Context, ProtectionDomain, CompletionQueue),
) -> Vec<Vec<QueuePair>> {
    far.listen(far_addr()).expect("room");
    (0..4).for_each(|_| workers.iter_mut().for_each(|worker| _ = worker.poll(4)));
    let qps: Vec<Vec<_>> = (0..)
        .zip(near.iter_mut())
        .map(|(core, (ctx, pd, cq))| {
            let dial = |_| {
                let qp = ctx.create_qp(*pd, &attr(*cq, Some(core))).expect("a queue pair");
                ctx.connect(qp, far_addr(), b"").expect("room");
                qp
            };
            (0..QPS).map(dial).collect()
        })
        .collect();
    let mut up = 0;
    for _ in 0..TURNS_MAX {
        workers.iter_mut().for_each(|worker| _ = worker.poll(4));
        while let Some(event) = far.poll_event() {
            if let Event::ConnectRequest { request, .. } = event {
                let qp = far.create_qp(pd, &attr(far_cq, None)).expect("a queue pair");
                far.accept(request, qp, b"").expect("room");
            }
        }
        for (ctx, ..) in near.iter_mut() {
            while let Some(event) = ctx.poll_event() {
                up += usize::from(matches!(event, Event::Established { .. }));
            }
        }
        if up == QPS * usize::from(THREADS) {
            return qps;
        }
    }
    panic!("{up} connections");
}

/// design decision 6, RFC7306-5.3-01: from two threads of queue pairs to sixteen words, one million
/// times. One addition finds each value of each word, and one swap makes each link of a chain of
/// swaps.
#[test]
fn a_million_operations_from_two_threads_execute_once_each() {
    let far = operate_from_two_threads(0);
    assert!(counted(&far, "atomics_forwarded") as usize >= ADDITIONS * ELSEWHERE / AT_ONCE);
    assert_eq!(counted(&far, "atomics_shared"), 0);
}

/// The same while owners share the lines that both cores want: each addition and each swap is
/// executed once.
#[test]
fn a_million_operations_on_lines_that_become_shared_execute_once_each() {
    let far = operate_from_two_threads(200);
    assert!(counted(&far, "atomics_shared") as usize >= ADDITIONS / 2);
    assert!(counted(&far, "atomics_forwarded") > 0);
}

fn counted(stack: &Stack, name: &str) -> u64 {
    stack.counters().iter().find(|(one, _)| *one == name).expect("a counter").1
}

/// Runs the operations. Owners share a line after `share_after` calls. Returns the stack that
/// executed them.
fn operate_from_two_threads(share_after: u8) -> Stack {
    let device = |number| MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, number]), ..MemoryConfig::default() };
    let cores = usize::from(THREADS);
    let (near_ports, far_ports) = pair_of_queues((&device(1), cores), (&device(2), cores));
    let ((near, near_workers), (far, far_workers)) =
        (stack(1, share_after, near_ports), stack(2, share_after, far_ports));
    let mut far_ctx = far.context().expect("a context");
    let (far_pd, far_cq) = (far_ctx.alloc_pd(), far_ctx.create_cq(1024).expect("room"));
    let rights = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let target =
        far_ctx.register(far_pd, AlignedBuf::pages(16_384).expect("memory"), rights).expect("a region");
    let lines = (0..target.len()).step_by(64).map(|at| target.base_to() + at as u64);
    let owned = |owner| {
        let is_its = move |to: &u64| CoreId::owner_of(*to, THREADS) == CoreId(owner);
        let named = |tagged_offset| RemoteMemory { stag: target.stag(), tagged_offset };
        lines.clone().filter(is_its).map(named).take(WORDS / cores + 1).collect::<Vec<_>>()
    };
    let mut words = [owned(0), owned(1)];
    let chain = words.each_mut().map(|of_one| of_one.pop().expect("there are many"))[0];
    let context = |_| {
        let mut ctx = near.context().expect("a context");
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq((QPS * AT_ONCE) as u32).expect("room"));
        (ctx, pd, cq)
    };
    let mut contexts: Vec<_> = (0..THREADS).map(context).collect();
    let mut workers: Vec<Worker> = near_workers.into_iter().chain(far_workers).collect();
    let qps = connect(&mut workers, &mut contexts, (&mut far_ctx, far_pd, far_cq));
    let far_workers = workers.split_off(cores);
    let parts = (0..).zip(workers).zip(far_workers).zip(contexts).zip(qps).map(
        |((((core, near_worker), far_worker), (ctx, pd, cq)), qps)| {
            let before = ctx.register(pd, vec![0; QPS * AT_ONCE * 8], Access::LOCAL_WRITE).expect("a region");
            let workers = [near_worker, far_worker];
            Part { core, workers, ctx, cq, qps, before, words: words.clone(), chain }
        },
    );
    let rounds = ADDITIONS.div_ceil(cores * QPS * AT_ONCE);
    let busy = Arc::new(AtomicUsize::new(cores));
    let begin = |part| {
        let busy = busy.clone();
        thread::spawn(move || work(part, rounds, &busy))
    };
    let threads: Vec<_> = parts.map(begin).collect();
    let done: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    let mut total = 0;
    for owner in 0..cores {
        for which in 0..WORDS / cores {
            let mut found: Vec<u64> =
                done.iter().flat_map(|(found, _)| found[owner][which].clone()).collect();
            found.sort_unstable();
            assert!(found.iter().copied().eq(0..found.len() as u64), "word {which} of core {owner}");
            let at = (words[owner][which].tagged_offset - target.base_to()) as usize;
            assert_eq!(target.load_u64_acquire(at).expect("inside"), found.len() as u64);
            total += found.len();
        }
    }
    assert!(total >= ADDITIONS);
    let mut links: Vec<u64> = done.iter().flat_map(|(_, links)| links.clone()).collect();
    links.sort_unstable();
    assert!(links.into_iter().eq(0..SWAPS * u64::from(THREADS)));
    assert_eq!(counted(&far, "atomics_forwarded"), counted(&far, "atomics_served_remote"));
    assert_eq!(counted(&far, "atomics_stale_replies"), 0);
    far
}

/// Runs one thread's operations, then polls until the other threads no longer need its cores.
fn work(mut part: Part, rounds: usize, busy: &AtomicUsize) -> ([Vec<Vec<u64>>; THREADS as usize], Vec<u64>) {
    let found = part.add(rounds);
    let links = part.swap();
    busy.fetch_sub(1, Ordering::Relaxed);
    while busy.load(Ordering::Relaxed) > 0 {
        part.turn();
    }
    part.workers.iter_mut().for_each(|worker| worker.check().expect("a sound core"));
    (found, links)
}
