//! A disk that does not answer: its commands end at their deadline, nothing is lost or overwritten
//! later, and other namespaces and hosts do not notice. In virtual time.

use std::sync::atomic::Ordering;

use crate::common::{NQN, target_config};
use crate::world::World;
use ironwarp::Nanos;
use iwarp_nvmf::host::{BlockRange, Transfer};
use iwarp_nvmf::target::IoCounters;
use iwarp_nvmf::transport::CoreUsage;
use iwarp_nvmf::wire::opcode::io;
use iwarp_nvmf::wire::{Status, SubmissionQueueEntry};
use std::sync::Arc;

const MEMORY: u32 = 1;
const DISK: u32 = 2;
const BLOCKS: u32 = 8;
const BYTES: u32 = BLOCKS * 512;
/// The time that the disk has.
const TIMEOUT: Nanos = Nanos::from_millis(1000);

fn world(buffers: u32) -> World {
    let config = target_config(&format!(
        "[limits]\nbuffers = {buffers}\ndisk_timeout_ms = 1000\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         allow_any_host = true\n[[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 16 }}\n\
         [[subsystem.namespace]]\nnsid = 2\nbackend.null = {{ mib = 16 }}\n"
    ));
    let mut world = World::new(&config, &[1, 3]);
    world.connect(0, 1);
    world.connect(1, 1);
    world
}

fn counters(world: &World) -> Arc<IoCounters> {
    world.core.target.subsystems()[0].namespaces()[&DISK].counters.clone()
}

/// Timeouts, late answers, refused commands.
fn counts(world: &World) -> [u64; 3] {
    let counters = counters(world);
    [&counters.timeouts, &counters.late_answers, &counters.refused].map(|one| one.load(Ordering::Relaxed))
}

fn range(nsid: u32, slba: u64) -> BlockRange {
    BlockRange { nsid, slba, blocks: BLOCKS }
}

/// Sends a command whose data are these bytes. Returns its identifier.
fn send(world: &mut World, at: usize, entry: SubmissionQueueEntry, fill: u8) -> u16 {
    let host = &mut world.hosts[at].host;
    let cid = host.reserve(1).expect("a command");
    host.write_buffer(1, cid, &[fill; BYTES as usize]).expect("room");
    let transfer = match entry.opcode {
        io::WRITE if fill.is_multiple_of(2) => Transfer::InCapsule(BYTES),
        io::WRITE | io::COMPARE => Transfer::ToTarget(BYTES),
        io::READ => Transfer::FromTarget(BYTES),
        _ => Transfer::None,
    };
    host.send(1, cid, entry, transfer).expect("sent");
    cid
}

fn status_of(world: &mut World, at: usize, cid: u16, limit: Nanos) -> Status {
    let mut status = None;
    world.until("a response", limit, |world| {
        while let Some(done) = world.hosts[at].host.next_completion(1) {
            assert_eq!(done.cid, cid, "one response for each command");
            assert!(status.replace(done.entry.status()).is_none());
        }
        status.is_some()
    });
    world.hosts[at].host.release(1, cid);
    status.expect("a response")
}

fn execute(world: &mut World, at: usize, entry: SubmissionQueueEntry, fill: u8) -> Status {
    let cid = send(world, at, entry, fill);
    status_of(world, at, cid, Nanos::from_millis(5))
}

/// What a Read of the disk returns, if all bytes are the same.
fn read(world: &mut World, at: usize, slba: u64) -> u8 {
    let cid = send(world, at, range(DISK, slba).entry(io::READ), 0);
    assert_eq!(status_of(world, at, cid, Nanos::from_millis(5)), Status::SUCCESS);
    let mut found = [0; BYTES as usize];
    world.hosts[at].host.read_buffer(1, cid, &mut found).expect("inside");
    assert!(found.iter().all(|byte| *byte == found[0]), "a mixture");
    found[0]
}

/// Lets virtual time pass, a millisecond in each turn.
fn pass(world: &mut World, span: Nanos) {
    let end = world.now() + span;
    while world.now() < end {
        world.core.pause(Nanos::from_millis(1));
        world.turn();
    }
}

fn hang(world: &World, hangs: bool) {
    world.core.disk.hangs.store(hangs, Ordering::Relaxed);
}

/// Everything is as it was: no buffer, capsule or slot is lost.
#[track_caller]
fn assert_as_before(world: &mut World, before: CoreUsage) {
    pass(world, Nanos::from_millis(5));
    assert_eq!(world.core.reactor.usage(), before);
    world.core.reactor.check().expect("the state of the core");
}

/// Each kind of data: none, in a buffer, in the capsule. The memory stays with the disk; the slot
/// is free at once.
#[test]
fn commands_end_at_the_deadline_and_their_memory_when_the_disk_answers() {
    for (entry, fill, buffers, capsules) in [
        (range(DISK, 0).entry(io::READ), 0, 1, 0),
        (range(DISK, 0).entry(io::WRITE), 1, 1, 0),
        (range(DISK, 0).entry(io::WRITE), 2, 0, 1),
        (range(DISK, 0).entry(io::COMPARE), 7, 2, 0),
        (range(DISK, 0).entry(io::WRITE_ZEROES), 0, 0, 0),
        (SubmissionQueueEntry::new(io::FLUSH, 0, DISK), 0, 0, 0),
    ] {
        let mut world = world(64);
        let before = world.core.reactor.usage();
        hang(&world, true);
        let cid = send(&mut world, 0, entry, fill);
        pass(&mut world, Nanos::from_millis(900));
        assert!(world.hosts[0].host.next_completion(1).is_none(), "it has time");
        pass(&mut world, Nanos::from_millis(300));
        let status = status_of(&mut world, 0, cid, Nanos::from_millis(1));
        assert!(status == Status::INTERNAL_ERROR && !status.do_not_retry(), "{status:?}");
        let usage = world.core.reactor.usage();
        assert_eq!(before.free_buffers - usage.free_buffers, buffers, "opcode {}", entry.opcode);
        assert_eq!((before.free_capsules - usage.free_capsules, usage.orphaned), (capsules, 1));
        world.core.reactor.check().expect("the state of the core");
        // All 128 entries of the queue are usable: the slots have receives.
        for _ in 0..300 {
            assert_eq!(execute(&mut world, 0, range(MEMORY, 0).entry(io::READ), 0), Status::SUCCESS);
        }
        hang(&world, false);
        assert_as_before(&mut world, before);
        assert_eq!(counts(&world), [1, 1, 0]);
        assert!(world.hosts[0].host.next_completion(1).is_none(), "no second response");
    }
}

/// The late Write, whose data is in a capsule or in a buffer, must not replace a newer one.
#[test]
fn nothing_changes_the_bytes_of_a_late_write_until_it_is_over() {
    for late_fill in [3, 4] {
        let mut world = world(64);
        hang(&world, true);
        let cid = send(&mut world, 0, range(DISK, 8).entry(io::WRITE), late_fill);
        pass(&mut world, TIMEOUT + Nanos::from_millis(200));
        assert_eq!(status_of(&mut world, 0, cid, Nanos::from_millis(1)), Status::INTERNAL_ERROR);
        // Either host, each way to change the bytes, and a part of them.
        for (at, slba, opcode) in [(0, 8, io::WRITE), (1, 15, io::WRITE), (1, 1, io::WRITE_ZEROES)] {
            let status = execute(&mut world, at, range(DISK, slba).entry(opcode), 9);
            assert_eq!(status, Status::NAMESPACE_NOT_READY, "block {slba}");
        }
        assert_eq!(counts(&world)[2], 3);
        // Its neighbours are free, also while the disk has the late one: it comes back, but not for
        // that.
        let cid = send(&mut world, 1, range(DISK, 16).entry(io::WRITE), 11);
        hang(&world, false);
        assert_eq!(status_of(&mut world, 1, cid, Nanos::from_millis(5)), Status::SUCCESS);
        assert_eq!(read(&mut world, 0, 8), late_fill, "the late Write took effect");
        assert_eq!(execute(&mut world, 0, range(DISK, 8).entry(io::WRITE), 9), Status::SUCCESS);
        pass(&mut world, Nanos::from_millis(50));
        assert_eq!((read(&mut world, 1, 8), read(&mut world, 1, 16)), (9, 11));
    }
}

/// A host sends all it can to the hung disk, again and again. Another host's memory namespace
/// answers as before.
#[test]
fn a_namespace_that_hangs_takes_no_more_commands_than_its_share() {
    let mut world = world(64);
    let before = world.core.reactor.usage();
    hang(&world, true);
    let mut ended = [0; 2];
    for _ in 0..40 {
        let host = &mut world.hosts[0].host;
        while let Some(done) = host.next_completion(1) {
            let status = done.entry.status();
            assert!([Status::INTERNAL_ERROR, Status::NAMESPACE_NOT_READY].contains(&status), "{status:?}");
            ended[usize::from(status == Status::NAMESPACE_NOT_READY)] += 1;
            host.release(1, done.cid);
        }
        while world.hosts[0].host.free_commands(1) > 0 {
            send(&mut world, 0, range(DISK, 0).entry(io::READ), 0);
        }
        pass(&mut world, Nanos::from_millis(100));
        let started = world.now();
        assert_eq!(execute(&mut world, 1, range(MEMORY, 0).entry(io::READ), 0), Status::SUCCESS);
        assert!(world.now() - started < Nanos::from_millis(1), "{:?}", world.now() - started);
        world.core.reactor.check().expect("the state of the core");
    }
    let usage = world.core.reactor.usage();
    assert!(usage.orphaned >= 8 && usage.orphaned <= 64, "{usage:?}");
    assert!(usage.free_buffers >= 8, "others have buffers: {usage:?}");
    assert!(ended[0] as usize == usage.orphaned && ended[1] > 100, "{ended:?}");
    hang(&world, false);
    world.until("the last response", Nanos::from_secs(1), |world| {
        while let Some(done) = world.hosts[0].host.next_completion(1) {
            world.hosts[0].host.release(1, done.cid);
        }
        world.hosts[0].host.free_commands(1) == 127
    });
    assert_as_before(&mut world, before);
    let [timeouts, late_answers, _] = counts(&world);
    assert_eq!(timeouts, late_answers);
    assert_eq!(execute(&mut world, 0, range(DISK, 0).entry(io::READ), 0), Status::SUCCESS);
}

/// The host goes while the disk hangs, and another connection gets its slot. The late answer is for
/// nobody.
#[test]
fn a_connection_that_ends_leaves_its_requests_to_the_disk() {
    let mut world = world(64);
    let before = world.core.reactor.usage();
    hang(&world, true);
    for (slba, fill) in [(0, 1), (8, 2), (16, 3), (24, 4)] {
        send(&mut world, 0, range(DISK, slba).entry(io::WRITE), fill);
    }
    pass(&mut world, Nanos::from_millis(20));
    let World { core, hosts, .. } = &mut world;
    hosts[0].host.close(&mut || core.turn()).expect("closed");
    pass(&mut world, Nanos::from_millis(20));
    assert_eq!(world.core.reactor.usage().connections, 2 + 1, "the I/O queue waits for the disk");
    pass(&mut world, TIMEOUT + Nanos::from_millis(200));
    let usage = world.core.reactor.usage();
    assert_eq!((usage.connections, usage.orphaned), (2, 4), "until the deadline");
    world.core.reactor.check().expect("the state of the core");
    world.connect(0, 1);
    let mut cids = Vec::new();
    for _ in 0..6 {
        cids.push(send(&mut world, 0, range(DISK, 100).entry(io::READ), 0));
    }
    hang(&world, false);
    for cid in cids {
        assert_eq!(status_of(&mut world, 0, cid, Nanos::from_millis(5)), Status::SUCCESS);
    }
    for (slba, fill) in [(0, 1), (8, 2), (16, 3), (24, 4)] {
        assert_eq!(read(&mut world, 1, slba), fill);
    }
    assert_as_before(&mut world, before);
}
