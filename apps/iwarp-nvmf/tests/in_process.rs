//! A host and a target in one process: data, queues, kinds of transfers, ends of connections.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{AT, NQN, Pair, memory_subsystem, target_config};
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::host::{BlockRange, Host, HostSettings, NamespaceSummary, Pattern, Transfer, Workload};
use iwarp_nvmf::wire::fabrics::DISCOVERY_NQN;
use iwarp_nvmf::wire::opcode::{admin, feature, io};
use iwarp_nvmf::wire::{Status, SubmissionQueueEntry};

fn workload(writes: bool, bytes: u32) -> Workload {
    let pattern = Pattern::Sequential;
    Workload { writes, bytes, depth: 16, commands: 256, pattern, verify: true }
}

fn settings() -> HostSettings {
    HostSettings::new(AT.parse().expect("an address"), NQN)
}

/// Fabrics 1.1, 3 and 4: what every host does first.
#[test]
fn a_host_connects_identifies_reads_and_writes() {
    let mut pair = Pair::connected(&memory_subsystem(), 1);
    let Pair { host, side, .. } = &mut pair;
    let namespaces = host.namespaces(&mut || side.turn()).expect("namespaces");
    assert_eq!((namespaces[0].nsid, namespaces[0].blocks, namespaces[0].block_bytes), (1, 8192, 512));
    let range = BlockRange { nsid: 1, slba: 17, blocks: 16 };
    let mut data: Vec<u8> = (0..8192).map(|at| (at * 7 % 251) as u8).collect();
    host.write(range, &mut data, &mut || side.turn()).expect("written");
    let mut found = vec![0; 8192];
    host.read(range, &mut found, &mut || side.turn()).expect("read");
    assert_eq!(found, data);
    host.flush(1, &mut || side.turn()).expect("flushed");
}

/// Every byte, through RDMA Read and in the capsule, on several queues, with one tag and with a tag
/// for each command.
#[test]
fn what_is_written_at_depth_is_read_back() {
    for (bytes, queues, invalidate) in [(4096, 1, false), (8192, 3, false), (512, 2, true), (8192, 2, true)] {
        let mut pair = Pair::with(&memory_subsystem(), HostSettings { invalidate, ..settings() });
        pair.connect(queues);
        let Pair { host, side, .. } = &mut pair;
        let namespace = host.namespaces(&mut || side.turn()).expect("namespaces")[0];
        host.bench(namespace, workload(true, bytes), &mut || side.turn()).expect("written");
        let report = host.bench(namespace, workload(false, bytes), &mut || side.turn()).expect("read");
        assert_eq!((report.commands, report.bytes), (256, 256 * u64::from(bytes)));
    }
}

/// A target may report blocks of any size: none that fits 32 bits, or larger than a command.
#[test]
fn a_workload_on_blocks_of_an_impossible_size_is_refused() {
    let mut pair = Pair::with(&memory_subsystem(), settings());
    pair.connect(1);
    let Pair { host, side, .. } = &mut pair;
    let namespace = host.namespaces(&mut || side.turn()).expect("namespaces")[0];
    for block_bytes in [0, 3, 1 << 31] {
        let namespace = NamespaceSummary { block_bytes, ..namespace };
        let refused = host.bench(namespace, workload(true, 4096), &mut || side.turn());
        assert!(matches!(refused, Err(NvmfError::Protocol(_))), "{block_bytes}: {refused:?}");
    }
}

/// Sends one command and returns its completion.
fn complete(
    pair: &mut Pair,
    entry: SubmissionQueueEntry,
    transfer: Transfer,
) -> iwarp_nvmf::host::HostCompletion {
    let cid = pair.host.reserve(1).expect("a command");
    pair.host.send(1, cid, entry, transfer).expect("sent");
    let mut done = None;
    pair.until("a response", |pair| {
        done = done.or_else(|| pair.host.next_completion(1));
        done.is_some()
    });
    pair.host.release(1, cid);
    done.expect("a response")
}

/// Fabrics 1.1, 2.3: the response invalidates the key if the descriptor asks for it, and only then.
#[test]
fn the_response_invalidates_the_key_when_asked() {
    for invalidate in [false, true] {
        let mut pair = Pair::with(&memory_subsystem(), HostSettings { invalidate, ..settings() });
        pair.connect(1);
        let range = BlockRange { nsid: 1, slba: 0, blocks: 8 };
        let read = complete(&mut pair, range.entry(io::READ), Transfer::FromTarget(4096));
        let write = complete(&mut pair, range.entry(io::WRITE), Transfer::ToTarget(4096));
        let capsule = complete(&mut pair, range.entry(io::WRITE), Transfer::InCapsule(4096));
        let all = [&read, &write, &capsule].map(|one| (one.entry.status(), one.invalidated));
        let success = Status::SUCCESS;
        assert_eq!(all, [(success, invalidate), (success, invalidate), (success, false)]);
    }
}

#[test]
fn sq_flow_control_is_reported_or_off() {
    for no_flow_control in [false, true] {
        let mut pair = Pair::with(&memory_subsystem(), HostSettings { no_flow_control, ..settings() });
        pair.connect(1);
        let range = BlockRange { nsid: 1, slba: 0, blocks: 1 };
        let heads: Vec<u16> = (0..2)
            .map(|_| {
                complete(&mut pair, range.entry(io::READ), Transfer::FromTarget(512)).entry.sq_head.get()
            })
            .collect();
        assert_eq!(heads, if no_flow_control { [0xffff, 0xffff] } else { [2, 3] });
    }
}

#[test]
fn zeros_comparisons_and_deallocation() {
    let mut pair = Pair::connected(&memory_subsystem(), 1);
    commands_besides_read_and_write(&mut pair.host, &mut || pair.side.turn());
}

/// Write Zeroes, Compare, Dataset Management and Flush, on any backend.
fn commands_besides_read_and_write(host: &mut Host, turn: &mut dyn FnMut()) {
    let range = BlockRange { nsid: 1, slba: 64, blocks: 16 };
    let mut data = vec![0x5a; 8192];
    host.write(range, &mut data, turn).expect("written");
    let compare = |host: &mut Host, data: &mut [u8], transfer, turn: &mut dyn FnMut()| {
        let blocks = data.len() as u32 / 512;
        let entry = BlockRange { blocks, ..range }.entry(io::COMPARE);
        host.execute(1, entry, transfer, data, turn).expect("a response").status()
    };
    assert_eq!(compare(host, &mut data, Transfer::ToTarget(8192), turn), Status::SUCCESS);
    assert_eq!(compare(host, &mut data[..4096], Transfer::InCapsule(4096), turn), Status::SUCCESS);
    data[8191] = 0;
    assert_eq!(compare(host, &mut data, Transfer::ToTarget(8192), turn), Status::COMPARE_FAILURE);
    data[8191] = 0x5a;

    let zero = BlockRange { nsid: 1, slba: 64, blocks: 8 };
    assert_eq!(
        host.status(1, zero.entry(io::WRITE_ZEROES), Transfer::None, turn).expect("a response"),
        Status::SUCCESS
    );
    data[..4096].fill(0);
    let mut found = vec![1; 8192];
    host.read(range, &mut found, turn).expect("read");
    assert!(found == data, "the first half is zeros");

    let mut trim = SubmissionQueueEntry::new(io::DATASET_MANAGEMENT, 0, 1);
    trim.set_dword(10, 1);
    trim.set_dword(11, 1 << 2);
    let of = |slba: u64, blocks: u32| [&[0; 4][..], &blocks.to_le_bytes(), &slba.to_le_bytes()].concat();
    let mut ranges = [of(72, 4), of(76, 4)].concat();
    let done = host.execute(1, trim, Transfer::ToTarget(32), &mut ranges, turn).expect("a response");
    assert_eq!(done.status(), Status::SUCCESS);
    host.read(range, &mut found, turn).expect("read");
    assert!(found.iter().all(|&byte| byte == 0), "deallocated blocks read as zeros");
    let mut forced = range.entry(io::WRITE);
    forced.set_dword(12, 15 | 1 << 30);
    let done = host.execute(1, forced, Transfer::ToTarget(8192), &mut data, turn).expect("a response");
    assert_eq!(done.status(), Status::SUCCESS);
    host.flush(1, turn).expect("flushed");
}

/// Fewer data buffers than commands: they wait for each other and all complete. In a file by
/// io_uring.
#[test]
fn a_file_keeps_what_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::File::create(&path).and_then(|file| file.set_len(4 << 20)).expect("a file");
    let config = |direct| {
        target_config(&format!(
            "[limits]\nbuffers = 4\ncapsules = 512\ntransfer_kib = 16\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[subsystem.namespace]]\nnsid = 1\nbackend.file = {{ path = \"{}\", direct = {direct} }}\n",
            path.display()
        ))
    };
    for (direct, bytes) in [(true, 8192), (false, 4096)] {
        let mut pair = Pair::connected(&config(direct), 2);
        let Pair { host, side, .. } = &mut pair;
        let namespace = host.namespaces(&mut || side.turn()).expect("namespaces")[0];
        host.bench(namespace, workload(true, bytes), &mut || side.turn()).expect("written");
        host.bench(namespace, workload(false, bytes), &mut || side.turn()).expect("read");
        commands_besides_read_and_write(host, &mut || side.turn());
        host.close(&mut || side.turn()).expect("closed");
        pair.until("the target has freed everything", |pair| pair.usage().connections == 0);
        assert_eq!(
            (pair.usage().free_buffers, pair.usage().free_capsules, pair.usage().waiting),
            (4, 512, 0)
        );
    }
    // What a new process reads is in the file.
    let mut pair = Pair::connected(&config(true), 1);
    let Pair { host, side, .. } = &mut pair;
    let mut found = vec![0; 512];
    host.read(BlockRange { nsid: 1, slba: 200, blocks: 1 }, &mut found, &mut || side.turn()).expect("read");
    let mut expected = vec![0; 512];
    iwarp_nvmf::host::pattern_block(1, 200, &mut expected);
    assert_eq!(found, expected);
}

/// A file that became shorter: Reads fail by themselves, the connection stays.
#[test]
fn a_backend_that_fails_is_a_media_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(1 << 20).expect("a size");
    let config = target_config(&format!(
        "[limits]\nbuffers = 4\ncapsules = 512\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.file = {{ path = \"{}\", direct = false }}\n",
        path.display()
    ));
    let mut pair = Pair::connected(&config, 1);
    file.set_len(0).expect("a size");
    let range = BlockRange { nsid: 1, slba: 8, blocks: 8 };
    let read = complete(&mut pair, range.entry(io::READ), Transfer::FromTarget(4096));
    assert_eq!(read.entry.status(), Status::UNRECOVERED_READ_ERROR);
    let namespaces = pair.side.target.subsystems()[0].namespaces();
    assert_eq!(namespaces[&1].counters.media_errors.load(Ordering::Relaxed), 1);
    assert!(namespaces[&1].counters.read_latency.snapshot().percentile_ns(100.0) > 0);
    let write = complete(&mut pair, range.entry(io::WRITE), Transfer::ToTarget(4096));
    assert_eq!(write.entry.status(), Status::SUCCESS);
    let read = complete(&mut pair, range.entry(io::READ), Transfer::FromTarget(4096));
    assert_eq!(read.entry.status(), Status::SUCCESS);
}

#[test]
fn a_host_discovers_what_it_may_use() {
    let mut pair =
        Pair::with(&memory_subsystem(), HostSettings { subnqn: DISCOVERY_NQN.to_owned(), ..settings() });
    let Pair { host, side, .. } = &mut pair;
    host.connect(&mut || side.turn()).expect("connected");
    let records = host.discover(&mut || side.turn()).expect("the log");
    let found: Vec<_> =
        records.iter().map(|one| (&one.subnqn[..], &one.address[..], &one.service[..])).collect();
    assert_eq!(found, [(NQN, "10.0.0.2", "4420")]);
}

/// An event of the target reaches a host that has asked for it.
#[test]
fn a_namespace_that_vanishes_is_reported_and_gone() {
    let mut pair = Pair::connected(&memory_subsystem(), 1);
    let Pair { host, side, .. } = &mut pair;
    let mut config = SubmissionQueueEntry::new(admin::SET_FEATURES, 0, 0);
    config.set_dword(10, feature::ASYNC_EVENT_CONFIG.into());
    config.set_dword(11, 0x100);
    host.property(config, &mut || side.turn()).expect("set");
    let cid = host.reserve(0).expect("a command");
    let request = SubmissionQueueEntry::new(admin::ASYNC_EVENT_REQUEST, 0, 0);
    host.send(0, cid, request, Transfer::None).expect("sent");
    // The request is held before the event happens, since commands are taken in order.
    host.property(SubmissionQueueEntry::new(admin::KEEP_ALIVE, 0, 0), &mut || side.turn()).expect("alive");
    assert!(side.target.change_namespace(NQN, 1, None));
    let mut event = None;
    pair.until("the event", |pair| {
        event = event.or_else(|| pair.host.next_completion(0));
        event.is_some()
    });
    assert_eq!(event.map(|one| (one.cid, one.entry.result.get())), Some((cid, 0x0004_0002)));
    let range = BlockRange { nsid: 1, slba: 0, blocks: 1 };
    let read = complete(&mut pair, range.entry(io::READ), Transfer::FromTarget(512));
    assert_eq!(read.entry.status(), Status::INVALID_NAMESPACE);
}

/// Queues live on the cores at which their connections arrive, and share one namespace.
#[test]
fn queues_spread_over_cores() {
    let config = target_config(&format!(
        "[stack.core]\ncount = 2\n[limits]\nbuffers = 4\ncapsules = 512\nqueue_entries = 16\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         allow_any_host = true\n[[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 4 }}\n"
    ));
    let mut pair = Pair::new(&config);
    let before = pair.usage();
    pair.connect(16);
    let each: Vec<usize> = pair.side.reactors.iter().map(|one| one.usage().connections).collect();
    assert!(each.iter().sum::<usize>() == 17 && each.iter().all(|&count| count > 0), "{each:?}");
    let Pair { host, side, .. } = &mut pair;
    let namespace = host.namespaces(&mut || side.turn()).expect("namespaces")[0];
    let many = |writes| Workload { commands: 1000, depth: 8, ..workload(writes, 4096) };
    host.bench(namespace, many(true), &mut || side.turn()).expect("written");
    host.bench(namespace, many(false), &mut || side.turn()).expect("read");
    host.close(&mut || side.turn()).expect("closed");
    pair.until("the target has freed everything", |pair| pair.usage() == before);
}

/// The target ends while its responses are on their way: they and the end of the connection arrive
/// together.
#[test]
fn responses_beside_the_end_of_a_connection_are_no_error_of_the_host() {
    let mut pair = Pair::connected(&memory_subsystem(), 1);
    for _ in 0..8 {
        let cid = pair.host.reserve(1).expect("a command");
        let entry = BlockRange { nsid: 1, slba: 0, blocks: 8 }.entry(io::READ);
        pair.host.send(1, cid, entry, Transfer::FromTarget(4096)).expect("sent");
    }
    pair.host.poll().expect("the host runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    for _ in 0..8 {
        pair.side.turn();
        pair.side.reactors[0].drain(deadline).expect("the target ends");
    }
    pair.until("the end of the connection", |pair| !pair.host.is_up(1));
}
