//! Hosts that do what they must not, or go away: named statuses and rejects, an end only of their
//! own connection, and nothing left behind.

use crate::common::{AT, HOST_NQN, NQN, Pair, memory_subsystem, target_config};
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::host::{BlockRange, HostSettings, Pattern, Transfer, Workload};
use iwarp_nvmf::transport::CoreUsage;
use iwarp_nvmf::wire::fabrics::CmRequest;
use iwarp_nvmf::wire::opcode::{admin, io};
use iwarp_nvmf::wire::sgl::SglDescriptor;
use iwarp_nvmf::wire::{SQE_BYTES, Status, SubmissionQueueEntry};
use zerocopy::IntoBytes;

const RANGE: BlockRange = BlockRange { nsid: 1, slba: 0, blocks: 8 };

fn settings() -> HostSettings {
    HostSettings::new(AT.parse().expect("an address"), NQN)
}

/// Waits until the target holds what it held before anybody connected.
#[track_caller]
fn until_free(pair: &mut Pair, before: CoreUsage) {
    pair.until("the target has freed everything", |pair| pair.usage() == before);
    assert!(pair.side.target.controllers().is_empty());
}

/// The reads of a host that still works.
#[track_caller]
fn still_serves(pair: &mut Pair, queue: usize) {
    let Pair { host, side, .. } = pair;
    let entry = RANGE.entry(io::READ);
    let status = host.status(queue, entry, Transfer::FromTarget(4096), &mut || side.turn());
    assert_eq!(status.expect("a response"), Status::SUCCESS);
}

/// NVMe RDMA transport: each reason of a reject.
#[test]
fn a_bad_connection_request_is_rejected_with_its_reason() {
    let mut pair = Pair::new(&memory_subsystem());
    let before = pair.usage();
    let good = CmRequest::new(1, 16);
    let with = |change: &dyn Fn(&mut CmRequest)| {
        let mut request = good;
        change(&mut request);
        request.as_bytes().to_vec()
    };
    for (private_data, reason) in [
        (good.as_bytes()[..31].to_vec(), "invalid length"),
        (Vec::new(), "invalid length"),
        (with(&|one| one.recfmt = 1.into()), "invalid record format"),
        (with(&|one| one.qid = 17.into()), "invalid queue id"),
        (with(&|one| one.qid = 65_535.into()), "invalid queue id"),
        (with(&|one| one.hsqsize = 0.into()), "invalid host SQ size"),
        (with(&|one| one.hsqsize = 128.into()), "invalid host SQ size"),
        (with(&|one| one.hsqsize = 65_535.into()), "invalid host SQ size"),
        (with(&|one| (one.qid, one.hsqsize) = (0.into(), 32.into())), "invalid host SQ size"),
        (with(&|one| one.hrqsize = 0.into()), "invalid host RQ size"),
    ] {
        let Pair { host, side, .. } = &mut pair;
        let outcome = host.open_raw(&private_data, 16, &mut || side.turn());
        assert!(
            matches!(&outcome, Err(NvmfError::Rejected(why)) if why.contains(reason)),
            "{reason}: {outcome:?}"
        );
    }
    assert_eq!(pair.usage(), before);
    pair.host.close(&mut || pair.side.turn()).expect("closed");
    pair.connect(1);
    still_serves(&mut pair, 1);
}

#[test]
fn a_core_without_capsules_rejects_and_serves_on() {
    let config = target_config(&format!(
        "[limits]\nbuffers = 4\ncapsules = 48\nqueue_entries = 16\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 1 }}\n"
    ));
    let mut pair = Pair::connected(&config, 1);
    let Pair { host, side, .. } = &mut pair;
    let outcome = host.open_raw(CmRequest::new(2, 16).as_bytes(), 16, &mut || side.turn());
    assert!(matches!(&outcome, Err(NvmfError::Rejected(why)) if why.contains("no resources")), "{outcome:?}");
    still_serves(&mut pair, 1);
}

/// Fabrics 1.1, 3.3: the queue stays, so that the host may connect after all.
#[test]
fn commands_before_connect_are_sequence_errors() {
    let mut pair = Pair::new(&memory_subsystem());
    let Pair { host, side, .. } = &mut pair;
    let queue = host.open_raw(CmRequest::new(0, 32).as_bytes(), 32, &mut || side.turn()).expect("open");
    for entry in [SubmissionQueueEntry::new(admin::IDENTIFY, 0, 0), RANGE.entry(io::READ)] {
        let status = host.status(queue, entry, Transfer::None, &mut || side.turn()).expect("a response");
        assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
    }
    assert!(host.is_up(queue));
}

#[test]
fn only_allowed_hosts_connect() {
    let config = target_config(&format!(
        "[limits]\nbuffers = 4\ncapsules = 512\n[[subsystem]]\nnqn = \"{NQN}\"\nhosts = [\"{HOST_NQN}\"]\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 1 }}\n"
    ));
    for (hostnqn, subnqn, expected) in [
        (HOST_NQN, NQN, None),
        ("nqn.2014-08.org.example:other", NQN, Some(Status::CONNECT_INVALID_HOST)),
        (HOST_NQN, "nqn.2014-08.org.example:none", Some(Status::CONNECT_INVALID_PARAMETERS)),
    ] {
        let (hostnqn, subnqn) = (hostnqn.to_owned(), subnqn.to_owned());
        let mut pair = Pair::with(&config, HostSettings { hostnqn, subnqn, ..settings() });
        let Pair { host, side, .. } = &mut pair;
        let found = match host.connect(&mut || side.turn()) {
            Err(NvmfError::Command { status, .. }) => Some(status),
            outcome => outcome.map(|_| None).expect("connected"),
        };
        assert_eq!(found, expected);
    }
}

/// A capsule without a whole entry has no command identifier: its connection ends, and no other.
#[test]
fn a_short_capsule_ends_its_connection_alone() {
    let mut pair = Pair::connected(&memory_subsystem(), 2);
    pair.host.send_bytes(2, &[0x02; SQE_BYTES - 1]).expect("sent");
    pair.until("the end of the queue", |pair| !pair.host.is_up(2));
    still_serves(&mut pair, 1);
}

/// A key that the host does not have, in a Read and in a Write: the host's stack ends that
/// connection.
#[test]
fn a_key_that_does_not_exist_ends_its_connection_alone() {
    for opcode in [io::READ, io::WRITE] {
        let mut pair = Pair::connected(&memory_subsystem(), 2);
        let buffers = pair.usage().free_buffers;
        let mut entry = RANGE.entry(opcode);
        entry.sgl1 = SglDescriptor::keyed(0x1234_5678, 4096, 0xdead_beef, false);
        let cid = pair.host.reserve(2).expect("a command");
        pair.host.send(2, cid, entry, Transfer::AsIs).expect("sent");
        pair.until("the end of the queue", |pair| !pair.host.is_up(2) && pair.usage().connections == 2);
        assert_eq!(pair.usage().free_buffers, buffers);
        still_serves(&mut pair, 1);
    }
}

#[test]
fn unknown_opcodes_and_descriptors_are_answered() {
    let mut pair = Pair::connected(&memory_subsystem(), 1);
    let Pair { host, side, .. } = &mut pair;
    for (queue, opcode) in [(0, 0x7c), (0, 0xc1), (1, 0x0e), (1, 0xc0)] {
        let entry = SubmissionQueueEntry::new(opcode, 0, 1);
        let status = host.status(queue, entry, Transfer::None, &mut || side.turn()).expect("a response");
        assert_eq!(status, Status::INVALID_OPCODE);
    }
    let mut entry = RANGE.entry(io::WRITE);
    for (sgl, expected) in [
        (SglDescriptor::in_capsule(0, 4096), Status::DATA_SGL_LENGTH_INVALID),
        (SglDescriptor::in_capsule(1, 4096), Status::SGL_OFFSET_INVALID),
        (SglDescriptor { identifier: 0x30, ..SglDescriptor::default() }, Status::SGL_DESCRIPTOR_TYPE_INVALID),
    ] {
        entry.sgl1 = sgl;
        let status = host.status(1, entry, Transfer::AsIs, &mut || side.turn()).expect("a response");
        assert_eq!(status, expected);
    }
}

/// The admin queue ends: the controller ends, and every queue with it.
#[test]
fn a_lost_admin_queue_ends_the_controller() {
    let mut pair = Pair::new(&memory_subsystem());
    let before = pair.usage();
    pair.connect(2);
    pair.host.abort(0).expect("aborted");
    pair.until("the end of all queues", |pair| (0..3).all(|queue| !pair.host.is_up(queue)));
    until_free(&mut pair, before);
}

/// A host that goes away in the middle of its commands, on a backend that still works on them.
#[test]
fn a_host_that_goes_away_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::File::create(&path).and_then(|file| file.set_len(4 << 20)).expect("a file");
    let config = target_config(&format!(
        "[limits]\nbuffers = 4\ncapsules = 512\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.file = {{ path = \"{}\" }}\n",
        path.display()
    ));
    for stop_after in 0..12 {
        let mut pair = Pair::new(&config);
        let before = pair.usage();
        pair.connect(2);
        for (queue, opcode) in [(1, io::READ), (2, io::WRITE), (1, io::WRITE)] {
            for _ in 0..8 {
                let cid = pair.host.reserve(queue).expect("a command");
                let transfer = if opcode == io::READ { Transfer::FromTarget } else { Transfer::ToTarget };
                pair.host.send(queue, cid, RANGE.entry(opcode), transfer(4096)).expect("sent");
            }
        }
        for _ in 0..stop_after {
            pair.host.poll().expect("the host runs");
            pair.side.turn();
        }
        (0..3).for_each(|queue| pair.host.abort(queue).expect("aborted"));
        until_free(&mut pair, before);
    }
}

/// Base 1.4, 7.12: without commands the controller ends; everything of it is free.
#[test]
fn a_silent_host_is_disconnected_after_its_keep_alive_timeout() {
    let mut pair = Pair::with(&memory_subsystem(), HostSettings { kato_ms: 200, ..settings() });
    let before = pair.usage();
    pair.connect(2);
    assert_eq!(pair.side.target.controllers()[0].kato_ms(), 200);
    pair.until("the end of all queues", |pair| (0..3).all(|queue| !pair.host.is_up(queue)));
    until_free(&mut pair, before);
}

/// Another host may connect its own queues only.
#[test]
fn a_queue_of_another_host_is_refused() {
    let mut pair = Pair::connected(&memory_subsystem(), 1);
    let Pair { host, side, .. } = &mut pair;
    host.settings_mut().hostnqn = "nqn.2014-08.org.example:thief".to_owned();
    let entry = host.connect_queue(2, 16, &mut || side.turn()).expect("a response");
    assert_eq!((entry.status(), entry.result.get()), (Status::CONNECT_INVALID_PARAMETERS, 1 << 16 | 16));
    still_serves(&mut pair, 1);
}

/// A host that leaves in order, and comes back.
#[test]
fn a_host_reconnects() {
    let mut pair = Pair::new(&memory_subsystem());
    let before = pair.usage();
    for _ in 0..3 {
        pair.connect(2);
        let Pair { host, side, .. } = &mut pair;
        let namespace = host.namespaces(&mut || side.turn()).expect("namespaces")[0];
        let pattern = Pattern::Random(7);
        let workload =
            Workload { writes: false, bytes: 4096, depth: 32, commands: 200, pattern, verify: false };
        host.bench(namespace, workload, &mut || side.turn()).expect("read");
        host.close(&mut || side.turn()).expect("closed");
        until_free(&mut pair, before);
    }
}

/// A host that opens a connection and then sends no Connect.
#[test]
fn a_connection_without_connect_ends() {
    let config = target_config(&format!(
        "[limits]\nbuffers = 4\ncapsules = 512\nconnect_timeout_ms = 100\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n"
    ));
    let mut pair = Pair::new(&config);
    let before = pair.usage();
    let Pair { host, side, .. } = &mut pair;
    let queue = host.open_raw(CmRequest::new(0, 32).as_bytes(), 32, &mut || side.turn()).expect("open");
    assert_eq!(pair.usage().connections, 1);
    pair.until("the end of the queue", |pair| !pair.host.is_up(queue));
    until_free(&mut pair, before);
}
