//! Hosts that hold what others need, ask for more than their share, or are slow: bounds, deadlines
//! and who loses, in virtual time.

use crate::common::{NQN, target_config};
use crate::world::{Fault, World};
use ironwarp::Nanos;
use iwarp_nvmf::host::{BlockRange, Transfer};
use iwarp_nvmf::target::TargetCounter;
use iwarp_nvmf::transport::party::{TURN_COST_ALONE, TURN_COST_SHARED};
use iwarp_nvmf::wire::fabrics::{
    CNTLID_DYNAMIC, CmRequest, Connect, ConnectData, DISCOVERY_NQN, DatasetRange, property, property_get,
};
use iwarp_nvmf::wire::opcode::{admin, io};
use iwarp_nvmf::wire::{Status, SubmissionQueueEntry};
use zerocopy::IntoBytes;

const MEMORY: u32 = 1;
const DISK: u32 = 2;

fn world(limits: &str, numbers: &[u8]) -> World {
    let config = target_config(&format!(
        "[limits]\n{limits}\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 64 }}\n\
         [[subsystem.namespace]]\nnsid = 2\nbackend.null = {{ mib = 16 }}\n"
    ));
    World::new(&config, numbers)
}

fn command(nsid: u32, opcode: u8) -> SubmissionQueueEntry {
    BlockRange { nsid, slba: 64, blocks: 8 }.entry(opcode)
}

/// Sends as many Writes to the disk as two queues take, so that the target fetches their data.
fn write_much(world: &mut World, at: usize) {
    let host = &mut world.hosts[at].host;
    for queue in [1, 2] {
        while let Some(cid) = host.reserve(queue) {
            host.send(queue, cid, command(DISK, io::WRITE), Transfer::ToTarget(4096)).expect("sent");
        }
    }
}

/// One read of a host: its status, and the virtual time that it took.
fn read(world: &mut World, at: usize, nsid: u32) -> (Status, Nanos) {
    let host = &mut world.hosts[at].host;
    let cid = host.reserve(1).expect("a command");
    host.send(1, cid, command(nsid, io::READ), Transfer::FromTarget(4096)).expect("sent");
    let started = world.now();
    let mut status = None;
    world.until("a response", Nanos::from_secs(60), |world| {
        status = status.or_else(|| world.hosts[at].host.next_completion(1));
        status.is_some()
    });
    world.hosts[at].host.release(1, cid);
    (status.expect("a response").entry.status(), world.now() - started)
}

fn count(world: &World, counter: TargetCounter) -> u64 {
    world.core.target.counters.read(counter)
}

/// With the default limits, a host that stopped in the middle of 254 Writes does not delay another
/// host's Read.
#[test]
fn a_stopped_host_delays_nobody() {
    let mut world = world("", &[1, 3]);
    world.connect(0, 2);
    world.connect(1, 1);
    let (_, before) = read(&mut world, 1, DISK);
    write_much(&mut world, 0);
    world.run_host(0);
    world.core.faults.insert(1, Fault::NoData);
    (0..50).for_each(|_| world.turn());
    let held = 128 - world.core.reactor.usage().free_buffers;
    assert_eq!(held, 32, "as many Reads are outstanding as its two connections may have");
    for _ in 0..10 {
        let (status, took) = read(&mut world, 1, DISK);
        assert!(
            status.is_success() && took < Nanos::from_micros(100),
            "{status:?} after {took:?}, before {before:?}"
        );
    }
}

/// Few buffers: a host that never answers holds its share, others still get theirs, and it ends
/// when they have waited.
#[test]
fn a_host_that_holds_what_others_wait_for_ends() {
    let mut world = world("buffers = 4\ncontended_timeout_ms = 100", &[1, 3]);
    world.connect(0, 2);
    world.connect(1, 1);
    write_much(&mut world, 0);
    world.run_host(0);
    world.core.faults.insert(1, Fault::NoData);
    (0..50).for_each(|_| world.turn());
    // The other host wants all that it may have, and more.
    let host = &mut world.hosts[1].host;
    while let Some(cid) = host.reserve(1) {
        host.send(1, cid, command(DISK, io::WRITE), Transfer::ToTarget(4096)).expect("sent");
    }
    world.until("all of the others' commands", Nanos::from_secs(5), |world| {
        while let Some(done) = world.hosts[1].host.next_completion(1) {
            assert!(done.entry.status().is_success());
            world.hosts[1].host.release(1, done.cid);
        }
        world.hosts[1].host.free_commands(1) == 127
    });
    assert!(world.hosts[1].host.is_up(1));
}

/// It opens its window a byte at a time. Without anybody waiting it has longer, but not for ever.
/// (The stack ends a host that does not answer RDMA Reads.)
#[test]
fn a_host_that_takes_no_data_ends_at_its_deadline() {
    let mut world = world("peer_timeout_ms = 1000", &[1]);
    world.connect(0, 2);
    let before = world.core.reactor.usage();
    let host = &mut world.hosts[0].host;
    for queue in [1, 2] {
        while let Some(cid) = host.reserve(queue) {
            host.send(queue, cid, command(DISK, io::READ), Transfer::FromTarget(4096)).expect("sent");
        }
    }
    world.run_host(0);
    world.core.faults.insert(1, Fault::TinyWindow);
    (0..100).for_each(|_| world.turn());
    assert!(world.core.reactor.usage().free_buffers < before.free_buffers);
    for _ in 0..200 {
        world.core.pause(Nanos::from_millis(10));
        world.turn();
    }
    let counters: Vec<_> = world.core.target.counters.all().filter(|one| one.1 > 0).collect();
    assert_eq!(count(&world, TargetCounter::PeerTimeouts), 2, "its two I/O queues: {counters:?}");
    assert_eq!(world.core.reactor.usage().free_buffers, before.free_buffers);
}

/// NVM Command Set 1.0, 3.2.3: one command of 256 ranges over the whole namespace, which is 64 MiB.
/// No turn of the core does more than its budget, and the blocks are zeros in the end.
#[test]
fn a_large_deallocation_goes_on_from_turn_to_turn() {
    let mut world = world("", &[1]);
    world.connect(0, 1);
    let one = DatasetRange { attributes: 0.into(), blocks: (64u32 << 11).into(), slba: 0.into() };
    let ranges: Vec<u8> = (0..256).flat_map(|_| one.as_bytes().to_vec()).collect();
    let host = &mut world.hosts[0].host;
    let cid = host.reserve(1).expect("a command");
    host.write_buffer(1, cid, &ranges).expect("inside");
    let mut entry = SubmissionQueueEntry::new(io::DATASET_MANAGEMENT, cid, MEMORY);
    entry.set_dword(10, 255);
    entry.set_dword(11, 1 << 2);
    host.send(1, cid, entry, Transfer::ToTarget(4096)).expect("sent");
    let (_, before) = world.core.reactor.spent();
    let (mut turns, mut longest, mut done, mut spent) = (0, 0, None, before);
    while done.is_none() {
        world.turn();
        let now = world.core.reactor.spent().1;
        (turns, longest, spent) = (turns + 1, longest.max(now - spent), now);
        done = world.hosts[0].host.next_completion(1);
        assert!(turns < 10_000, "it ends");
    }
    assert_eq!(done.map(|one| one.entry.status()), Some(Status::SUCCESS));
    // Ranges that overlap are joined: 64 MiB, in turns of at most the budget and one step.
    assert!(longest <= TURN_COST_ALONE + (64 << 10), "{longest} bytes in a turn");
    assert!(spent - before < (64 << 20) + (1 << 20), "{} bytes in all", spent - before);
    assert!(turns >= 128, "{turns} turns");
    const { assert!(TURN_COST_SHARED < TURN_COST_ALONE) };
}

/// A core is full: hosts that have sent no Connect make room for the one with fewer connections.
#[test]
fn a_newcomer_takes_the_place_of_the_greediest_host() {
    let mut world = world("connections = 8\nconnections_per_address = 7", &[1, 3, 5]);
    world.connect(0, 1);
    // The hostile host opens all it may, and says nothing.
    let open: Vec<_> =
        (0..7).map(|_| world.hosts[1].host.begin_raw(CmRequest::new(0, 4).as_bytes(), 4)).collect();
    assert!(open.iter().all(Result::is_ok));
    world.until("6 places are taken", Nanos::from_secs(5), |world| {
        world.core.reactor.usage().connections == 8 && count(world, TargetCounter::ConnectionsFull) > 0
    });
    // Another host comes, with an admin queue and two I/O queues.
    world.connect(2, 2);
    assert_eq!(count(&world, TargetCounter::ConnectionsEvicted), 3);
    assert!(world.hosts[0].host.is_up(0) && world.hosts[0].host.is_up(1), "who had less keeps what it has");
    assert!(read(&mut world, 0, MEMORY).0.is_success() && read(&mut world, 2, MEMORY).0.is_success());
    // One address has a bound of its own.
    let before = count(&world, TargetCounter::ConnectionsPerAddressFull);
    for _ in 0..8 {
        world.hosts[1].host.begin_raw(CmRequest::new(0, 4).as_bytes(), 4).expect("begun");
    }
    world.until("all are answered", Nanos::from_secs(5), |world| {
        let full = [TargetCounter::ConnectionsPerAddressFull, TargetCounter::ConnectionsFull];
        full.into_iter().map(|one| count(world, one)).sum::<u64>() > before + 2
    });
    assert!(world.hosts[2].host.is_up(1) && world.hosts[0].host.is_up(1));
}

/// A log page that is longer than a piece, and everything of it is free again.
#[test]
fn a_long_log_page_goes_piece_by_piece_without_a_data_buffer() {
    let mut world = world("buffers = 2", &[1]);
    world.hosts[0].host.settings_mut().subnqn = DISCOVERY_NQN.to_owned();
    let World { core, hosts, .. } = &mut world;
    let host = &mut hosts[0].host;
    host.connect(&mut || core.turn()).expect("connected");
    let mut entry = SubmissionQueueEntry::new(admin::GET_LOG_PAGE, 0, 0);
    entry.set_dword(10, (16384 / 4 - 1) << 16 | 0x70);
    let mut data = vec![0xee; 16384];
    for _ in 0..40 {
        let done = host.execute(0, entry, Transfer::FromTarget(16384), &mut data, &mut || core.turn());
        assert_eq!(done.expect("a response").status(), Status::SUCCESS);
    }
    assert_eq!((data[8], &data[1024 + 256..1024 + 256 + NQN.len()]), (1, NQN.as_bytes()));
    assert!(data[2048..].iter().all(|&byte| byte == 0), "zeros beyond the end of the page");
    // All 32 receives are posted again: 31 commands at once are answered.
    for _ in 0..31 {
        let cid = host.reserve(0).expect("a command");
        host.send(0, cid, property_get(cid, property::CAP, true), Transfer::None).expect("sent");
    }
    let mut done = 0;
    world.until("31 responses", Nanos::from_secs(1), |world| {
        while world.hosts[0].host.next_completion(0).is_some() {
            done += 1;
        }
        done == 31
    });
}

/// Base 1.4, 7.12: after a pause that is longer than the timeout, the frames that waited are read
/// first.
#[test]
fn a_pause_of_the_core_ends_no_live_host() {
    let mut world = world("", &[1, 3]);
    world.hosts[0].host.settings_mut().kato_ms = 500;
    world.hosts[1].host.settings_mut().kato_ms = 500;
    world.connect(0, 1);
    world.connect(1, 1);
    let idle = |world: &mut World, pauses: usize| {
        for _ in 0..pauses {
            world.core.pause(Nanos::from_millis(10));
            world.core.turn();
        }
    };
    // The first host is alive: it sends while the core is paused.
    let host = &mut world.hosts[0].host;
    let cid = host.reserve(0).expect("a command");
    host.send(0, cid, SubmissionQueueEntry::new(admin::KEEP_ALIVE, cid, 0), Transfer::None).expect("sent");
    host.poll().expect("the host runs");
    world.core.pause(Nanos::from_secs(3));
    world.core.turn();
    assert_eq!(world.core.target.controllers().len(), 2, "nobody is judged yet");
    idle(&mut world, 30);
    let left = world.core.target.controllers();
    assert_eq!(left.len(), 1, "the silent host is judged");
    assert!(left[0].hostnqn().ends_with("host1"));
    assert_eq!(count(&world, TargetCounter::Pauses), 1);
    idle(&mut world, 60);
    assert!(world.core.target.controllers().is_empty());
}

/// Fabrics 1.1, 3.3: Connects whose data is fetched at the same time. One is in flight; no
/// controller is left behind.
#[test]
fn many_connects_of_one_queue_make_one_controller() {
    let mut world = world("", &[1]);
    let World { core, hosts, .. } = &mut world;
    let host = &mut hosts[0].host;
    let queue = host.open_raw(CmRequest::new(0, 32).as_bytes(), 32, &mut || core.turn()).expect("open");
    let data = ConnectData::new([3; 16], CNTLID_DYNAMIC, DISCOVERY_NQN, "nqn.2014-08.org.example:outsider");
    for _ in 0..8 {
        let cid = host.reserve(queue).expect("a command");
        host.write_buffer(queue, cid, data.as_bytes()).expect("inside");
        let connect = Connect { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 0 };
        host.send(queue, cid, connect.entry(cid), Transfer::ToTarget(1024)).expect("sent");
    }
    let mut statuses = Vec::new();
    world.until("all responses", Nanos::from_secs(1), |world| {
        statuses.extend(
            core::iter::from_fn(|| world.hosts[0].host.next_completion(queue)).map(|one| one.entry.status()),
        );
        statuses.len() == 8
    });
    assert_eq!(statuses.iter().filter(|status| status.is_success()).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|one| one.is_success() || *one == Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(world.core.target.controllers().len(), 1);
    world.hosts[0].host.abort(queue).expect("aborted");
    world.until("the end", Nanos::from_secs(1), |world| world.core.reactor.usage().connections == 0);
    assert!(world.core.target.controllers().is_empty());
}
