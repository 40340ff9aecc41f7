//! Workers on threads of their own: two stacks of two cores, a thread for each core.

use std::time::{Duration, Instant};

use crate::many_cores::bench::{Node, contents, far_addr, pattern};
use ironwarp::memory::{MemoryConfig, QueueRule, pair_of_queues};
use ironwarp::{
    CompletionStatus, Config, IdlePolicy, MacAddr, RemoteMemory, SendWr, Stack, Worker, WorkerThread,
};

/// Flows hash to either core: with eight flows, one run in a hundred had none for one of the four
/// cores.
const QPS: usize = 24;

/// A stack whose workers run on threads; the node's list of workers is then empty.
fn node(number: u8, ports: Vec<ironwarp::memory::MemoryPort>) -> (Node, Vec<WorkerThread>) {
    let mut config = Config::in_memory(&format!("10.0.0.{number}/24")).expect("a configuration");
    config.core.count = 2;
    config.core.idle = IdlePolicy::Yield;
    let mut node = Node::new(Stack::builder(config).memory_ports(ports).build().expect("a stack"));
    let spawn = |worker: Worker| worker.spawn(None).expect("a thread");
    let threads = node.workers.drain(..).map(spawn).collect();
    (node, threads)
}

#[test]
fn two_stacks_of_two_cores_communicate_on_their_own_threads() {
    // Everything goes to queue 0, so that half of it crosses from thread to thread.
    let device = |number| MemoryConfig {
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        queue_rule: QueueRule::All(0),
        ..MemoryConfig::default()
    };
    let (near, far) = pair_of_queues((&device(1), 2), (&device(2), 2));
    let ((mut near, near_threads), (mut far, far_threads)) = (node(1, near), node(2, far));
    let deadline = Instant::now() + Duration::from_secs(60);
    let until = |near: &mut Node, far: &mut Node, what: &str, done: &dyn Fn(&Node, &Node) -> bool| {
        while !done(near, far) {
            near.listen_to_events();
            far.listen_to_events();
            std::thread::yield_now();
            assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        }
    };
    far.ctx.listen(far_addr()).expect("room");
    let qps: Vec<_> = (0..QPS).map(|_| near.dial(None, far_addr())).collect();
    until(&mut near, &mut far, "connections", &|near, far| {
        far.accepted.len() == QPS
            && qps.iter().all(|qp| near.is_up(*qp))
            && far.accepted.iter().all(|qp| far.is_up(*qp))
    });
    let what = pattern(30_000, 3);
    let source = near.memory(&what);
    let targets: Vec<_> = qps.iter().map(|_| far.memory(&vec![0; what.len()])).collect();
    for (qp, target) in qps.iter().zip(&targets) {
        let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
        let all = [source.slice(0, what.len() as u32).expect("inside")];
        for round in 0..4 {
            near.ctx.post_send(*qp, &SendWr::write(round, &all, remote)).expect("room");
        }
    }
    until(&mut near, &mut far, "every Write", &|near, _| near.completions.len() == 4 * QPS);
    assert!(near.completions.iter().all(|one| one.status == CompletionStatus::Success));
    assert!(targets.iter().all(|target| contents(target) == what));
    let workers = near_threads.into_iter().chain(far_threads).map(|thread| thread.stop().expect("no panic"));
    for mut worker in workers {
        worker.check().expect("a sound core");
        assert!(worker.resource_usage().queue_pairs > 0, "core {} has no queue pair", worker.core());
    }
    assert!(near.stack.counters().iter().any(|(name, n)| *name == "cores_steered_in" && *n > 0));
}
