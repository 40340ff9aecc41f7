//! Several disks that hang: what all of them may hold together, and what is left for the others. In
//! virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{NQN, target_config};
use crate::world::{DiskPlan, World};
use ironwarp::Nanos;
use iwarp_nvmf::host::{BlockRange, Transfer};
use iwarp_nvmf::wire::Status;
use iwarp_nvmf::wire::opcode::io;

const BUFFERS: usize = 64;
/// Namespaces on disks: the first three hang.
const DISKS: [u32; 4] = [2, 4, 6, 8];
const HUNG: usize = 3;
/// The host that reads from the disk that does not hang, after one host for each of the others.
const HONEST: usize = 3;
/// Reads that it has at once.
const READS: usize = 8;

fn world(plans: &[Arc<DiskPlan>]) -> World {
    let namespace = |nsid: u32| {
        let backend = if nsid.is_multiple_of(2) { "null" } else { "memory" };
        format!("[[subsystem.namespace]]\nnsid = {nsid}\nbackend.{backend} = {{ mib = 1 }}\n")
    };
    let namespaces: String = (1..=8).map(namespace).collect();
    let config = target_config(&format!(
        "[limits]\nbuffers = {BUFFERS}\ndisk_timeout_ms = 1000\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         allow_any_host = true\n{namespaces}"
    ));
    let mut world = World::with_disks(&config, &[1, 3, 5, 7], plans);
    (0..4).for_each(|at| world.connect(at, 1));
    world
}

fn read(nsid: u32) -> iwarp_nvmf::wire::SubmissionQueueEntry {
    BlockRange { nsid, slba: 0, blocks: 8 }.entry(io::READ)
}

/// A host sends all it can to its disk.
fn flood(world: &mut World, at: usize) {
    let host = &mut world.hosts[at].host;
    while let Some(done) = host.next_completion(1) {
        let status = done.entry.status();
        assert!(
            [Status::SUCCESS, Status::INTERNAL_ERROR, Status::NAMESPACE_NOT_READY].contains(&status),
            "{status:?}"
        );
        host.release(1, done.cid);
    }
    while let Some(cid) = host.reserve(1) {
        host.send(1, cid, read(DISKS[at]), Transfer::FromTarget(4096)).expect("sent");
    }
}

/// The honest host reads, several at once, and waits for all of them.
fn assert_others_go_on(world: &mut World) {
    for _ in 0..READS {
        let host = &mut world.hosts[HONEST].host;
        let cid = host.reserve(1).expect("a command");
        host.send(1, cid, read(DISKS[HONEST]), Transfer::FromTarget(4096)).expect("sent");
    }
    let mut done = 0;
    world.until("the reads of the disk that does not hang", Nanos::from_millis(1), |world| {
        let host = &mut world.hosts[HONEST].host;
        while let Some(completion) = host.next_completion(1) {
            assert_eq!(completion.entry.status(), Status::SUCCESS);
            host.release(1, completion.cid);
            done += 1;
        }
        done == READS
    });
}

/// Lets virtual time pass, a millisecond in each turn.
fn pass(world: &mut World, span: Nanos) {
    let end = world.now() + span;
    while world.now() < end {
        world.core.pause(Nanos::from_millis(1));
        world.turn();
    }
}

/// Floods the disks that hang for some seconds. `hangs` says whether a disk hangs in a round. The
/// other disk keeps its part: half of the buffers are divided among the disks.
fn run(hangs: impl Fn(usize, usize) -> bool) {
    let plans: Vec<Arc<DiskPlan>> = (0..DISKS.len()).map(|_| Arc::default()).collect();
    let mut world = world(&plans);
    let before = world.core.reactor.usage();
    for round in 0..60 {
        for (disk, plan) in plans.iter().enumerate().take(HUNG) {
            plan.hangs.store(hangs(disk, round), Ordering::Relaxed);
        }
        (0..HUNG).filter(|&at| hangs(at, round)).for_each(|at| flood(&mut world, at));
        pass(&mut world, Nanos::from_millis(100));
        assert_others_go_on(&mut world);
        // The buffer of the last response is free in the next turn.
        world.turn();
        world.core.reactor.check().expect("the state of the core");
        let usage = world.core.reactor.usage();
        assert!(usage.free_buffers >= BUFFERS / 2 / DISKS.len(), "round {round}: {usage:?}");
    }
    assert!(world.core.reactor.usage().orphaned >= HUNG, "all of them are late");
    plans.iter().for_each(|plan| plan.hangs.store(false, Ordering::Relaxed));
    world.until("all responses", Nanos::from_secs(1), |world| {
        for at in 0..HUNG {
            let host = &mut world.hosts[at].host;
            while let Some(done) = host.next_completion(1) {
                host.release(1, done.cid);
            }
        }
        (0..HUNG).all(|at| world.hosts[at].host.free_commands(1) == 127)
    });
    pass(&mut world, Nanos::from_millis(5));
    assert_eq!(world.core.reactor.usage(), before, "nothing is lost");
    world.core.reactor.check().expect("the state of the core");
}

/// Three of four hang at the same time.
#[test]
fn disks_that_hang_together_leave_the_others_their_part() {
    run(|_, _| true);
}

/// One after another, each when those before it are late.
#[test]
fn disks_that_hang_one_after_another_leave_the_others_their_part() {
    run(|disk, round| round >= 15 * disk);
}
