//! Commands and their statuses, without a network: a target and the queues of one host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use iwarp_nvmf::auth::{AuthPolicy, HostSecrets, Secret};
use iwarp_nvmf::target::{
    CapsuleLimits, IoOperation, Namespace, NamespaceInfo, Queue, Response, Step, Subsystem, SubsystemInfo,
    Target, TargetCounter, TargetLimits,
};
use iwarp_nvmf::wire::auth::{Body, Message, command};
use iwarp_nvmf::wire::fabrics::{
    CATTR_DISABLE_SQ_FLOW_CONTROL, CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN, property,
    property_get, property_set,
};
use iwarp_nvmf::wire::identify::cns;
use iwarp_nvmf::wire::log_page::lid;
use iwarp_nvmf::wire::opcode::{admin, fctype, feature, io};
use iwarp_nvmf::wire::sgl::SglDescriptor;
use iwarp_nvmf::wire::{Status, SubmissionQueueEntry};
use zerocopy::IntoBytes;

const NQN: &str = "nqn.2014-08.org.example:disk";
const CLOSED_NQN: &str = "nqn.2014-08.org.example:closed";
const HOST: &str = "nqn.2014-08.org.example:host";
const NOW: CapsuleLimits = CapsuleLimits { bytes: 4096, now_ms: 1000 };

fn namespace(blocks: u64, read_only: bool) -> Namespace {
    Namespace::new(NamespaceInfo {
        backend: 0,
        block_shift: 9,
        blocks,
        read_only,
        uuid: [7; 16],
        nguid: [8; 16],
    })
}

fn target() -> Arc<Target> {
    let limits = TargetLimits {
        controllers: 2,
        io_queues: 4,
        queue_entries: 16,
        transfer_bytes: 64 << 10,
        ..TargetLimits::default()
    };
    let info = |nqn: &str, hosts| SubsystemInfo {
        nqn: nqn.to_owned(),
        serial: "S1".to_owned(),
        model: "M1".to_owned(),
        hosts,
    };
    let namespaces = BTreeMap::from([(1, namespace(1000, false)), (3, namespace(8, true))]);
    let subsystems = vec![
        Subsystem::new(info(NQN, None), namespaces),
        Subsystem::new(
            info(CLOSED_NQN, Some(vec!["nqn.2014-08.org.example:other".to_owned()])),
            BTreeMap::new(),
        ),
    ];
    Arc::new(Target::new(limits, subsystems, vec!["10.0.0.2:4420".parse().expect("an address")]))
}

fn connect_data(cntlid: u16, subnqn: &str) -> ConnectData {
    ConnectData::new([1; 16], cntlid, subnqn, HOST)
}

fn connect(qid: u16) -> Connect {
    Connect { recfmt: 0, qid, sqsize: 15, cattr: 0, kato_ms: 0 }
}

/// Sends a Connect with its data. Returns the response.
fn send_connect(queue: &mut Queue, connect: Connect, data: &ConnectData) -> Response {
    let mut entry = connect.entry(1);
    entry.sgl1 = SglDescriptor::keyed(0x1000, 1024, 5, false);
    assert!(matches!(queue.start(0, &entry, NOW), Step::FromHost { bytes: 1024, .. }));
    respond(queue.received(&entry, data.as_bytes(), NOW.now_ms))
}

#[track_caller]
fn respond(step: Step) -> Response {
    match step {
        Step::Respond(response) => response,
        other => panic!("no response: {other:?}"),
    }
}

#[track_caller]
fn status(queue: &mut Queue, entry: &SubmissionQueueEntry) -> Status {
    respond(queue.start(9, entry, NOW)).status
}

fn admin_queue(target: &Arc<Target>, subnqn: &str) -> (Queue, u16) {
    let mut queue = Queue::new(target.clone(), 0, 32);
    let response = send_connect(&mut queue, connect(0), &connect_data(CNTLID_DYNAMIC, subnqn));
    assert_eq!(response.status, Status::SUCCESS);
    let enable = property_set(2, property::CC, property::CC_EN | property::CC_ENTRY_SIZES);
    assert_eq!(status(&mut queue, &enable), Status::SUCCESS);
    (queue, response.result as u16)
}

fn io_queue(target: &Arc<Target>, cntlid: u16, qid: u16) -> Queue {
    let mut queue = Queue::new(target.clone(), qid, 16);
    let response = send_connect(&mut queue, connect(qid), &connect_data(cntlid, NQN));
    assert_eq!(response.status, Status::SUCCESS);
    queue
}

fn to_host(opcode: u8, nsid: u32, bytes: u32) -> SubmissionQueueEntry {
    let mut entry = SubmissionQueueEntry::new(opcode, 3, nsid);
    entry.sgl1 = SglDescriptor::keyed(0x2000, bytes, 6, false);
    entry
}

fn identify(cns: u8, nsid: u32) -> SubmissionQueueEntry {
    let mut entry = to_host(admin::IDENTIFY, nsid, 4096);
    entry.set_dword(10, cns.into());
    entry
}

fn rw(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> SubmissionQueueEntry {
    let mut entry = to_host(opcode, nsid, blocks * 512);
    entry.set_qword(10, slba);
    entry.set_dword(12, blocks - 1);
    entry
}

#[track_caller]
fn data(step: Step) -> Vec<u8> {
    match step {
        Step::ToHost { data, .. } => data,
        other => panic!("no data: {other:?}"),
    }
}

/// Fabrics 1.1, 3.3: each field of Connect that can be wrong, and the offset that the result names.
#[test]
fn a_bad_connect_names_its_parameter() {
    let target = target();
    let (_admin, cntlid) = admin_queue(&target, NQN);
    let in_data = 1 << 16;
    let other_host = ConnectData::new([1; 16], cntlid, NQN, "nqn.2014-08.org.example:thief");
    let other_id = ConnectData::new([2; 16], cntlid, NQN, HOST);
    let no_zero = {
        let mut data = connect_data(CNTLID_DYNAMIC, NQN);
        data.subnqn.fill(b'x');
        data
    };
    let table = [
        (
            0,
            Connect { recfmt: 1, ..connect(0) },
            connect_data(CNTLID_DYNAMIC, NQN),
            Status::CONNECT_INCOMPATIBLE_FORMAT,
            0,
        ),
        (
            0,
            Connect { sqsize: 0, ..connect(0) },
            connect_data(CNTLID_DYNAMIC, NQN),
            Status::CONNECT_INVALID_PARAMETERS,
            44,
        ),
        (
            0,
            Connect { sqsize: 65_535, ..connect(0) },
            connect_data(CNTLID_DYNAMIC, NQN),
            Status::CONNECT_INVALID_PARAMETERS,
            44,
        ),
        (0, connect(1), connect_data(cntlid, NQN), Status::CONNECT_INVALID_PARAMETERS, 42),
        (0, connect(0), connect_data(7, NQN), Status::CONNECT_INVALID_PARAMETERS, in_data | 16),
        (
            0,
            connect(0),
            connect_data(CNTLID_DYNAMIC, "nqn.x"),
            Status::CONNECT_INVALID_PARAMETERS,
            in_data | 256,
        ),
        (0, connect(0), no_zero, Status::CONNECT_INVALID_PARAMETERS, in_data | 256),
        (
            0,
            connect(0),
            ConnectData::new([1; 16], CNTLID_DYNAMIC, NQN, ""),
            Status::CONNECT_INVALID_PARAMETERS,
            in_data | 512,
        ),
        (0, connect(0), connect_data(CNTLID_DYNAMIC, CLOSED_NQN), Status::CONNECT_INVALID_HOST, 0),
        (1, connect(1), connect_data(77, NQN), Status::CONNECT_INVALID_PARAMETERS, in_data | 16),
        (1, connect(1), other_host, Status::CONNECT_INVALID_PARAMETERS, in_data | 16),
        (1, connect(1), other_id, Status::CONNECT_INVALID_PARAMETERS, in_data | 16),
        (1, connect(1), connect_data(cntlid, CLOSED_NQN), Status::CONNECT_INVALID_HOST, 0),
    ];
    for (qid, connect, data, status, result) in table {
        let mut queue = Queue::new(target.clone(), qid, 16);
        let response = send_connect(&mut queue, connect, &data);
        assert_eq!(response, Response { result, status }, "{connect:?}");
        assert!(queue.controller().is_none());
    }
}

#[test]
fn a_queue_identifier_is_used_once_and_is_free_again_after_the_end() {
    let target = target();
    let (_admin, cntlid) = admin_queue(&target, NQN);
    let first = io_queue(&target, cntlid, 1);
    let mut second = Queue::new(target.clone(), 1, 16);
    let again = send_connect(&mut second, connect(1), &connect_data(cntlid, NQN));
    assert_eq!(again.status, Status::COMMAND_SEQUENCE_ERROR);
    drop(first);
    io_queue(&target, cntlid, 1);
}

/// Fabrics 1.1, 3.3: Connect is the first command of a queue. Others that arrive while its data is
/// on its way are refused, and no step but the one that is due changes anything.
#[test]
fn a_second_connect_in_flight_is_refused_and_leaves_nothing() {
    let target = target();
    let data = connect_data(CNTLID_DYNAMIC, DISCOVERY_NQN);
    for connection in 0..3 {
        let mut queue = Queue::new(target.clone(), 0, 32);
        let mut entries: Vec<_> = (0..32).map(|cid| connect(0).entry(cid)).collect();
        entries.iter_mut().for_each(|entry| entry.sgl1 = SglDescriptor::keyed(0x1000, 1024, 5, false));
        assert!(matches!(queue.start(0, &entries[0], NOW), Step::FromHost { .. }));
        for (token, entry) in (1..).zip(&entries[1..]) {
            assert_eq!(respond(queue.start(token, entry, NOW)).status, Status::COMMAND_SEQUENCE_ERROR);
        }
        // Data of a Connect that was refused, and then that of the one in flight, twice.
        let statuses = [&entries[1], &entries[0], &entries[0]]
            .map(|entry| respond(queue.received(entry, data.as_bytes(), 1)).status);
        let refused = Status::COMMAND_SEQUENCE_ERROR;
        assert_eq!(statuses, [refused, Status::SUCCESS, refused]);
        assert_eq!(target.controllers().len(), 1, "connection {connection}");
        target.check();
        drop(queue);
        assert!(target.controllers().is_empty());
    }
    assert_eq!(target.counters.read(TargetCounter::ConnectsOutOfOrder), 3 * 31);
}

#[test]
fn a_closed_queue_executes_nothing() {
    let target = target();
    let (mut queue, _) = admin_queue(&target, NQN);
    let mut late = Queue::new(target.clone(), 0, 32);
    let mut entry = connect(0).entry(1);
    entry.sgl1 = SglDescriptor::keyed(0x1000, 1024, 5, false);
    assert!(matches!(late.start(0, &entry, NOW), Step::FromHost { .. }));
    for queue in [&mut queue, &mut late] {
        queue.close();
        let data = connect_data(CNTLID_DYNAMIC, NQN);
        assert_eq!(
            respond(queue.received(&entry, data.as_bytes(), 1)).status,
            Status::COMMAND_SEQUENCE_ERROR
        );
        assert_eq!(status(queue, &entry), Status::COMMAND_SEQUENCE_ERROR);
        assert_eq!(status(queue, &property_get(1, property::CAP, true)), Status::COMMAND_SEQUENCE_ERROR);
        assert!(queue.take_event().is_none() && queue.controller().is_none());
    }
    assert!(target.controllers().is_empty());
}

/// A name with a line feed would write a line of the log.
#[test]
fn names_with_control_characters_are_invalid() {
    let target = target();
    for (subnqn, hostnqn, at) in [
        ("nqn.x\n2026 ERROR", HOST, 256),
        (NQN, "nqn.x\nERROR", 512),
        (NQN, "nqn.\u{1b}[2J", 512),
        (NQN, "nqn.\u{85}", 512),
    ] {
        let mut queue = Queue::new(target.clone(), 0, 32);
        let data = ConnectData::new([1; 16], CNTLID_DYNAMIC, subnqn, hostnqn);
        let response = send_connect(&mut queue, connect(0), &data);
        let expected = Response { result: 1 << 16 | at, status: Status::CONNECT_INVALID_PARAMETERS };
        assert_eq!(response, expected, "{hostnqn:?}");
    }
    let mut queue = Queue::new(target.clone(), 0, 32);
    let data = ConnectData::new([1; 16], CNTLID_DYNAMIC, NQN, "nqn.\u{202e}x");
    assert!(send_connect(&mut queue, connect(0), &data).status.is_success());
    let line = target.controllers()[0].to_string();
    assert!(line.contains("nqn.\\u{202e}x"), "{line}");
}

/// A status that forbids a retry would reach the file system of a host whose other queue was lost.
/// Base 1.4, 4.6.1.
#[test]
fn a_command_of_a_controller_that_has_ended_has_no_response_and_ends_its_connection() {
    let target = target();
    let (mut admin, cntlid) = admin_queue(&target, NQN);
    let mut io = io_queue(&target, cntlid, 1);
    let mut deallocate = to_host(io::DATASET_MANAGEMENT, 1, 16);
    deallocate.set_dword(11, 4);
    assert!(matches!(io.start(1, &deallocate, NOW), Step::FromHost { .. }));
    admin.close();
    assert!(matches!(io.received(&deallocate, &[0; 16], 0), Step::End));
    for entry in [rw(io::READ, 1, 0, 1), rw(io::FLUSH, 1, 0, 1), property_get(2, property::CAP, true)] {
        assert!(matches!(io.start(2, &entry, NOW), Step::End), "{entry:?}");
    }
}

/// A second Connect on a connected queue (Fabrics 1.1, 3.3).
#[test]
fn a_queue_connects_once() {
    let (mut queue, _) = admin_queue(&target(), NQN);
    let mut entry = connect(0).entry(1);
    entry.sgl1 = SglDescriptor::keyed(0x1000, 1024, 5, false);
    assert_eq!(status(&mut queue, &entry), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn controllers_are_limited_and_end_with_their_admin_queue() {
    let target = target();
    let (first, cntlid) = admin_queue(&target, NQN);
    let (_second, other) = admin_queue(&target, NQN);
    assert_ne!(cntlid, other);
    let mut third = Queue::new(target.clone(), 0, 32);
    let data = connect_data(CNTLID_DYNAMIC, NQN);
    assert_eq!(send_connect(&mut third, connect(0), &data).status, Status::CONNECT_CONTROLLER_BUSY);
    let orphan = io_queue(&target, cntlid, 1);
    drop(first);
    assert!(orphan.is_ended());
    assert_eq!(send_connect(&mut third, connect(0), &data).status, Status::SUCCESS);
}

/// A queue of a host at an address, after its Connect.
fn connected(target: &Arc<Target>, subnqn: &str, (host, address): (&str, &str)) -> (Queue, Status) {
    let address = address.parse().expect("an address");
    let mut queue = Queue::new(target.clone(), 0, 32).from_address(address);
    let data = ConnectData::new([1; 16], CNTLID_DYNAMIC, subnqn, host);
    let status = send_connect(&mut queue, connect(0), &data).status;
    (queue, status)
}

fn target_of(limits: TargetLimits) -> Arc<Target> {
    let info = SubsystemInfo { nqn: NQN.to_owned(), ..SubsystemInfo::default() };
    let subsystems = vec![Subsystem::new(info, BTreeMap::from([(1, namespace(1000, false))]))];
    Arc::new(Target::new(limits, subsystems, vec!["10.0.0.2:4420".parse().expect("an address")]))
}

#[test]
fn discovery_has_a_limit_of_its_own_and_an_activity_timeout() {
    let target =
        target_of(TargetLimits { controllers: 4, discovery_controllers: 3, ..TargetLimits::default() });
    let outsider = |n: u32| connected(&target, DISCOVERY_NQN, ("nqn.outsider", &format!("10.0.9.{n}")));
    let held: Vec<_> = (0..8).map(outsider).collect();
    assert_eq!(held.iter().filter(|(_, status)| status.is_success()).count(), 3);
    assert_eq!(target.counters.read(TargetCounter::DiscoveryControllersFull), 5);
    let (_queue, status) = connected(&target, NQN, (HOST, "10.0.0.1"));
    assert!(status.is_success(), "the host of a disk connects");
    // KATO is 0: the fixed timeout of two minutes (Fabrics 1.1, 5.3), for discovery only.
    target.expire_keep_alive(NOW.now_ms + 120_000);
    assert_eq!(target.controllers().len(), 4);
    target.expire_keep_alive(NOW.now_ms + 120_001);
    assert_eq!(target.controllers().len(), 1);
    assert!(outsider(9).1.is_success());
}

#[test]
fn a_host_has_at_most_its_number_of_controllers_by_name_and_by_address() {
    let target = target_of(TargetLimits { controllers_per_host: 2, ..TargetLimits::default() });
    let held: Vec<_> = (0..3).map(|n| connected(&target, NQN, ("nqn.a", &format!("10.0.0.{n}")))).collect();
    let same_address: Vec<_> =
        (0..3).map(|n| connected(&target, NQN, (&format!("nqn.b{n}"), "10.0.1.1"))).collect();
    for queues in [held, same_address] {
        let busy = Status::CONNECT_CONTROLLER_BUSY;
        assert_eq!(
            queues.iter().map(|(_, status)| *status).collect::<Vec<_>>()[1..],
            [Status::SUCCESS, busy]
        );
    }
    assert_eq!(target.counters.read(TargetCounter::ControllersPerHostFull), 2);
}

/// The secret of [`HOST`]; the others need none.
fn auth_policy() -> AuthPolicy {
    let host = Secret::parse("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
    let secrets = HostSecrets { host: host.expect("a secret"), controller: None };
    AuthPolicy { hosts: [(HOST.to_owned(), secrets.into())].into(), ..AuthPolicy::default() }
}

/// Sends a Negotiate, which waits for its computation.
fn negotiate(queue: &mut Queue, now_ms: u64) {
    let message = Message { t_id: 1, body: Body::Negotiate { sc_c: 0, offer: Some((vec![1], vec![1])) } };
    let bytes = message.encode();
    let mut entry = command(1, fctype::AUTH_SEND, bytes.len() as u32);
    entry.sgl1 = SglDescriptor::keyed(0x1000, bytes.len() as u32, 5, false);
    assert!(matches!(queue.start(0, &entry, NOW), Step::FromHost { .. }));
    assert!(matches!(queue.received(&entry, &bytes, now_ms), Step::Authenticating));
}

/// An address has four places for its computations; the others' are free.
#[test]
fn negotiates_of_one_address_wait_and_another_gets_in() {
    let target = target_of(TargetLimits::default());
    target.set_auth_policy(auth_policy());
    let mut greedy: Vec<_> = (0..6).map(|_| connected(&target, NQN, (HOST, "10.0.0.9")).0).collect();
    let (mut other, _) = connected(&target, NQN, (HOST, "10.0.0.1"));
    greedy.iter_mut().chain([&mut other]).for_each(|queue| negotiate(queue, NOW.now_ms));
    let run_all = || core::iter::from_fn(|| target.jobs.run_next(Duration::ZERO).then_some(())).count();
    let done = |queue: &mut Queue| matches!(queue.authenticating(NOW.now_ms), Step::Respond(_));
    assert_eq!(run_all(), 5);
    assert!(done(&mut other));
    assert_eq!(greedy.iter_mut().filter_map(|queue| done(queue).then_some(())).count(), 4);
    assert_eq!(run_all(), 2);
    assert!(greedy.iter_mut().all(done));
}

/// Claims alone take no controller from a host that was admitted.
#[test]
fn controllers_without_a_proof_give_way_first() {
    let target = target_of(TargetLimits { controllers: 3, ..TargetLimits::default() });
    target.set_auth_policy(auth_policy());
    let admitted = ["nqn.a", "nqn.b"].map(|host| connected(&target, NQN, (host, "10.0.0.1")).0);
    let (first, _) = connected(&target, NQN, (HOST, "10.0.0.8"));
    let (second, status) = connected(&target, NQN, (HOST, "10.0.0.9"));
    assert!(status.is_success() && first.is_ended() && !second.is_ended());
    let (third, status) = connected(&target, NQN, ("nqn.c", "10.0.0.1"));
    assert!(status.is_success() && second.is_ended() && !third.is_ended());
    let (_, status) = connected(&target, NQN, (HOST, "10.0.0.7"));
    assert_eq!(status, Status::CONNECT_CONTROLLER_BUSY);
    assert!(admitted.iter().all(|queue| !queue.is_ended()));
}

/// An IPv6 host has 2^64 addresses.
#[test]
fn the_addresses_of_an_ipv6_network_are_one_host() {
    let target = target_of(TargetLimits { controllers_per_host: 2, ..TargetLimits::default() });
    let of = |n: u32| connected(&target, NQN, (&format!("nqn.{n}"), &format!("2001:db8::{n}")));
    let queues: Vec<_> = (1..4).map(of).collect();
    assert_eq!(queues.iter().filter(|(_, status)| status.is_success()).count(), 2);
}

/// Base 1.4, 7.12: a host that authenticates is there.
#[test]
fn a_message_of_an_authentication_is_a_sign_of_life() {
    let target = target_of(TargetLimits::default());
    target.set_auth_policy(auth_policy());
    let mut queue = Queue::new(target.clone(), 0, 32);
    let connect = Connect { kato_ms: 1000, ..connect(0) };
    assert!(send_connect(&mut queue, connect, &connect_data(CNTLID_DYNAMIC, NQN)).status.is_success());
    negotiate(&mut queue, NOW.now_ms + 900);
    target.expire_keep_alive(NOW.now_ms + 1500);
    assert!(!queue.is_ended());
    target.expire_keep_alive(NOW.now_ms + 2000);
    assert!(queue.is_ended());
}

/// As in the stack's limit of half-open connections: when all are in use, the host with the most
/// loses its oldest.
#[test]
fn the_most_greedy_host_loses_a_controller_first() {
    let target = target_of(TargetLimits { controllers: 5, ..TargetLimits::default() });
    let greedy: Vec<_> =
        (0..4).map(|n| connected(&target, NQN, (&format!("nqn.g{n}"), "10.0.0.9"))).collect();
    let (modest, _) = connected(&target, NQN, (HOST, "10.0.0.1"));
    let (newcomer, status) = connected(&target, NQN, ("nqn.new", "10.0.0.2"));
    assert!(status.is_success());
    let ended: Vec<_> = greedy.iter().map(|(queue, _)| queue.is_ended()).collect();
    assert_eq!(ended, [true, false, false, false]);
    assert!(!modest.is_ended() && !newcomer.is_ended());
    // Two more than the newcomer's: 3 against 1 gives way, then 2 against 2 does not.
    let (second, status) = connected(&target, NQN, ("nqn.new2", "10.0.0.2"));
    assert!(status.is_success() && greedy[1].0.is_ended() && !second.is_ended());
    let (_, status) = connected(&target, NQN, ("nqn.new3", "10.0.0.2"));
    assert_eq!(status, Status::CONNECT_CONTROLLER_BUSY);
    let counters = &target.counters;
    use TargetCounter::{ControllersEvicted, ControllersFull};
    assert_eq!((counters.read(ControllersEvicted), counters.read(ControllersFull)), (2, 1));
    target.check();
}

/// Base 1.4, 5.21.1.15: a timeout between two steps of KAS is rounded up.
#[test]
fn the_keep_alive_timeout_is_rounded_up_to_its_granularity() {
    for (requested, kato_ms) in [(0, 0), (1, 100), (100, 100), (101, 200), (u32::MAX, u32::MAX / 100 * 100)] {
        let target = target();
        let mut queue = Queue::new(target.clone(), 0, 32);
        let timed = Connect { kato_ms: requested, ..connect(0) };
        send_connect(&mut queue, timed, &connect_data(CNTLID_DYNAMIC, NQN));
        assert_eq!(target.controllers()[0].kato_ms(), kato_ms);
        target.expire_keep_alive(NOW.now_ms + u64::from(kato_ms));
        assert!(!queue.is_ended());
        target.expire_keep_alive(NOW.now_ms + u64::from(kato_ms) + 1);
        assert_eq!(queue.is_ended(), requested != 0);
    }
}

/// What live hosts sent while the program was paused is read before their silence is judged.
#[test]
fn keep_alive_is_not_judged_before_waiting_frames_are_read() {
    let target = target();
    let mut queue = Queue::new(target.clone(), 0, 32);
    let timed = Connect { kato_ms: 1000, ..connect(0) };
    send_connect(&mut queue, timed, &connect_data(CNTLID_DYNAMIC, NQN));
    target.judge_keep_alive_from(20_100);
    target.expire_keep_alive(20_000);
    assert!(!queue.is_ended());
    target.expire_keep_alive(20_100);
    assert!(queue.is_ended());
}

/// Base 1.4, 3.1 and 7.6: properties, and CC in a wrong order or with wrong values.
#[test]
fn properties_follow_the_order_of_initialization() {
    let target = target();
    let mut queue = Queue::new(target.clone(), 0, 32);
    assert_eq!(status(&mut queue, &property_get(1, property::CAP, true)), Status::COMMAND_SEQUENCE_ERROR);
    let cntlid = send_connect(&mut queue, connect(0), &connect_data(CNTLID_DYNAMIC, NQN)).result as u16;
    assert_eq!(status(&mut queue, &identify(cns::CONTROLLER, 0)), Status::COMMAND_SEQUENCE_ERROR);
    let mut early = Queue::new(target.clone(), 1, 16);
    let response = send_connect(&mut early, connect(1), &connect_data(cntlid, NQN));
    assert_eq!(response.status, Status::COMMAND_SEQUENCE_ERROR);
    let get = |queue: &mut Queue, offset, wide| respond(queue.start(0, &property_get(1, offset, wide), NOW));
    assert_eq!(get(&mut queue, property::CAP, true).result & 0xffff, 15);
    assert_eq!(get(&mut queue, property::VS, false).result, 0x1_0400);
    for (offset, wide) in [(property::CAP, false), (property::CC, true), (4, false), (u32::MAX, false)] {
        assert_eq!(get(&mut queue, offset, wide).status, Status::INVALID_FIELD);
    }
    let set = |queue: &mut Queue, value| status(queue, &property_set(1, property::CC, value));
    assert_eq!(set(&mut queue, property::CC_EN), Status::SUCCESS);
    assert_eq!(get(&mut queue, property::CSTS, false).result, u64::from(property::CSTS_CFS));
    assert_eq!(set(&mut queue, 0), Status::SUCCESS);
    let good = property::CC_EN | property::CC_ENTRY_SIZES;
    assert_eq!(set(&mut queue, good), Status::SUCCESS);
    assert_eq!(get(&mut queue, property::CSTS, false).result, u64::from(property::CSTS_RDY));
    assert_eq!(set(&mut queue, good | property::CC_SHN_NORMAL), Status::SUCCESS);
    let done = u64::from(property::CSTS_RDY | property::CSTS_SHST_COMPLETE);
    assert_eq!(get(&mut queue, property::CSTS, false).result, done);
    assert_eq!(status(&mut queue, &property_set(1, property::CSTS, 0)), Status::INVALID_FIELD);
}

#[test]
fn identify_describes_the_controller_and_its_namespaces() {
    let (mut queue, cntlid) = admin_queue(&target(), NQN);
    let controller = data(queue.start(0, &identify(cns::CONTROLLER, 0), NOW));
    assert_eq!(controller[4..7], *b"S1 ");
    assert_eq!(controller[78..80], cntlid.to_le_bytes());
    assert_eq!((controller[77], controller[111]), (4, 1), "MDTS of 64 KiB, an I/O controller");
    assert_eq!(controller[768..768 + NQN.len()], *NQN.as_bytes());
    let list = data(queue.start(0, &identify(cns::ACTIVE_NAMESPACES, 0), NOW));
    assert_eq!(list[..12], [1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let after = data(queue.start(0, &identify(cns::ACTIVE_NAMESPACES, 1), NOW));
    assert_eq!(after[..8], [3, 0, 0, 0, 0, 0, 0, 0]);
    let read_only = data(queue.start(0, &identify(cns::NAMESPACE, 3), NOW));
    assert_eq!((read_only[0], read_only[99], read_only[130]), (8, 1, 9));
    assert!(data(queue.start(0, &identify(cns::NAMESPACE, 2), NOW)).iter().all(|&byte| byte == 0));
    let descriptors = data(queue.start(0, &identify(cns::NAMESPACE_DESCRIPTORS, 1), NOW));
    assert_eq!(descriptors[..4], [2, 16, 0, 0]);
    for (cns, nsid, expected) in [
        (cns::NAMESPACE, 0, Status::INVALID_NAMESPACE),
        (cns::NAMESPACE, u32::MAX, Status::INVALID_NAMESPACE),
        (cns::ACTIVE_NAMESPACES, u32::MAX, Status::INVALID_NAMESPACE),
        (cns::NAMESPACE_DESCRIPTORS, 2, Status::INVALID_NAMESPACE),
        (0x55, 1, Status::INVALID_FIELD),
    ] {
        assert_eq!(status(&mut queue, &identify(cns, nsid)), expected, "{cns} {nsid}");
    }
}

#[test]
fn log_pages_are_read_in_pieces_and_their_ends_are_checked() {
    let (mut queue, _) = admin_queue(&target(), NQN);
    let page = |identifier: u8, bytes: u32, offset: u64| {
        let mut entry = to_host(admin::GET_LOG_PAGE, u32::MAX, bytes);
        entry.set_dword(10, (bytes / 4 - 1) << 16 | u32::from(identifier));
        entry.set_qword(12, offset);
        entry
    };
    assert_eq!(status(&mut queue, &to_host(0x7e, 0, 0)), Status::INVALID_OPCODE);
    let entry = to_host(0x7e, 0, 0);
    queue.record(&entry, Status::INVALID_OPCODE);
    let errors = data(queue.start(0, &page(lid::ERROR, 64, 0), NOW));
    assert_eq!(
        (errors[0], errors[10], errors[12..14].to_vec()),
        (1, 3, Status::INVALID_OPCODE.to_field().to_le_bytes().to_vec())
    );
    assert_eq!(data(queue.start(0, &page(lid::SMART, 512, 0), NOW))[3], 100);
    assert_eq!(data(queue.start(0, &page(lid::FIRMWARE_SLOT, 512, 0), NOW))[0], 1);
    assert_eq!(data(queue.start(0, &page(lid::COMMAND_EFFECTS, 4096, 0), NOW))[1024 + 4], 3);
    for (identifier, bytes, offset, expected) in [
        (0x99, 512, 0, Status::INVALID_LOG_PAGE),
        (lid::DISCOVERY, 1024, 0, Status::INVALID_LOG_PAGE),
        (lid::SMART, 512, 2, Status::INVALID_FIELD),
        (lid::SMART, 512, 516, Status::INVALID_FIELD),
        (lid::SMART, 512, u64::MAX - 3, Status::INVALID_FIELD),
        (lid::SMART, 128 << 10, 0, Status::INVALID_FIELD),
    ] {
        assert_eq!(status(&mut queue, &page(identifier, bytes, offset)), expected);
    }
    let mut short = page(lid::SMART, 512, 0);
    short.sgl1 = SglDescriptor::keyed(0, 500, 6, false);
    assert_eq!(status(&mut queue, &short), Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn features_are_set_and_read() {
    let (mut queue, _) = admin_queue(&target(), NQN);
    let feature = |opcode, identifier: u8, value| {
        let mut entry = SubmissionQueueEntry::new(opcode, 1, 0);
        entry.set_dword(10, identifier.into());
        entry.set_dword(11, value);
        entry
    };
    let set = |queue: &mut Queue, identifier, value| {
        respond(queue.start(0, &feature(admin::SET_FEATURES, identifier, value), NOW))
    };
    let get = |queue: &mut Queue, identifier| {
        respond(queue.start(0, &feature(admin::GET_FEATURES, identifier, 0), NOW))
    };
    assert_eq!(set(&mut queue, feature::NUMBER_OF_QUEUES, 0x001f_001f).result, 0x0003_0003);
    assert_eq!(set(&mut queue, feature::NUMBER_OF_QUEUES, 0xffff).status, Status::INVALID_FIELD);
    assert_eq!(set(&mut queue, feature::KEEP_ALIVE_TIMER, 5000).status, Status::SUCCESS);
    assert_eq!(get(&mut queue, feature::KEEP_ALIVE_TIMER).result, 5000);
    assert_eq!(set(&mut queue, feature::ASYNC_EVENT_CONFIG, 0x100).status, Status::SUCCESS);
    assert_eq!(get(&mut queue, feature::ASYNC_EVENT_CONFIG).result, 0x100);
    assert_eq!(set(&mut queue, feature::VOLATILE_WRITE_CACHE, 0).status, Status::FEATURE_NOT_CHANGEABLE);
    assert_eq!(get(&mut queue, feature::VOLATILE_WRITE_CACHE).result, 1);
    assert_eq!(set(&mut queue, 0x66, 0).status, Status::INVALID_FIELD);
    assert_eq!(get(&mut queue, 0x66).status, Status::INVALID_FIELD);
    let mut save = feature(admin::SET_FEATURES, feature::KEEP_ALIVE_TIMER, 1);
    save.set_dword(10, 1 << 31 | u32::from(feature::KEEP_ALIVE_TIMER));
    assert_eq!(status(&mut queue, &save), Status::FEATURE_NOT_SAVEABLE);
}

/// Base 1.4, 7.12: a controller whose host is silent ends, with its queues; commands keep it.
#[test]
fn a_silent_host_loses_its_controller() {
    let target = target();
    let mut admin = Queue::new(target.clone(), 0, 32);
    let timed = Connect { kato_ms: 100, ..connect(0) };
    send_connect(&mut admin, timed, &connect_data(CNTLID_DYNAMIC, NQN));
    target.expire_keep_alive(1100);
    assert!(!admin.is_ended());
    let keep_alive = SubmissionQueueEntry::new(admin::KEEP_ALIVE, 1, 0);
    admin.start(0, &keep_alive, CapsuleLimits { bytes: 0, now_ms: 1100 });
    target.expire_keep_alive(1200);
    assert!(!admin.is_ended());
    target.expire_keep_alive(1201);
    assert!(admin.is_ended());
    assert!(target.controllers().is_empty());
}

#[test]
fn an_event_completes_one_request_and_its_log_page_rearms_it() {
    let target = target();
    let (mut queue, _) = admin_queue(&target, NQN);
    let request = SubmissionQueueEntry::new(admin::ASYNC_EVENT_REQUEST, 40, 0);
    for token in 0..4 {
        assert!(matches!(queue.start(token, &request, NOW), Step::Held));
    }
    assert_eq!(status(&mut queue, &request), Status::ASYNC_EVENT_LIMIT_EXCEEDED);
    let mut config = SubmissionQueueEntry::new(admin::SET_FEATURES, 1, 0);
    config.set_dword(10, feature::ASYNC_EVENT_CONFIG.into());
    config.set_dword(11, 0x100);
    assert_eq!(status(&mut queue, &config), Status::SUCCESS);
    assert!(queue.take_event().is_none());
    assert!(target.change_namespace(NQN, 9, Some(namespace(1, false))));
    let event = queue.take_event().expect("an event");
    assert_eq!((event.token, event.cid, event.response.result), (0, 40, 0x0004_0002));
    target.change_namespace(NQN, 3, None);
    assert!(queue.take_event().is_none(), "the host has not read the log page");
    let mut log = to_host(admin::GET_LOG_PAGE, u32::MAX, 4096);
    log.set_dword(10, 1023 << 16 | u32::from(lid::CHANGED_NAMESPACES));
    assert_eq!(data(queue.start(0, &log, NOW))[..12], [3, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    target.change_namespace(NQN, 9, None);
    assert_eq!(queue.take_event().map(|event| event.token), Some(1));
}

/// Every way in which an I/O command can be wrong.
#[test]
fn io_commands_have_the_status_that_the_specification_names() {
    let target = target();
    let (_admin, cntlid) = admin_queue(&target, NQN);
    let mut queue = io_queue(&target, cntlid, 1);
    let with = |mut entry: SubmissionQueueEntry, change: &dyn Fn(&mut SubmissionQueueEntry)| {
        change(&mut entry);
        entry
    };
    let table = [
        (rw(io::READ, 1, 999, 2), Status::LBA_OUT_OF_RANGE),
        (rw(io::READ, 1, u64::MAX, 1), Status::LBA_OUT_OF_RANGE),
        (rw(io::WRITE, 1, 1000, 1), Status::LBA_OUT_OF_RANGE),
        (rw(io::READ, 2, 0, 1), Status::INVALID_NAMESPACE),
        (rw(io::READ, 0, 0, 1), Status::INVALID_NAMESPACE),
        (rw(io::READ, u32::MAX, 0, 1), Status::INVALID_NAMESPACE),
        (rw(io::READ, 1, 0, 129), Status::INVALID_FIELD),
        (rw(io::WRITE, 3, 0, 1), Status::NAMESPACE_WRITE_PROTECTED),
        (rw(io::WRITE_ZEROES, 3, 0, 1), Status::NAMESPACE_WRITE_PROTECTED),
        (rw(0x04, 1, 0, 1), Status::INVALID_OPCODE),
        (rw(0xff, 1, 0, 1), Status::INVALID_OPCODE),
        (with(rw(io::READ, 1, 0, 1), &|one| one.flags = 0), Status::INVALID_FIELD),
        (with(rw(io::READ, 1, 0, 1), &|one| one.flags = 0x80), Status::INVALID_FIELD),
        (with(rw(io::READ, 1, 0, 1), &|one| one.flags = 0x41), Status::INVALID_FIELD),
        (with(rw(io::READ, 1, 0, 1), &|one| one.sgl1.identifier = 0x20), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (
            with(rw(io::READ, 1, 0, 1), &|one| one.sgl1 = SglDescriptor::in_capsule(0, 512)),
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            with(rw(io::READ, 1, 0, 2), &|one| one.sgl1 = SglDescriptor::keyed(0, 512, 1, false)),
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            with(rw(io::WRITE, 1, 0, 1), &|one| one.sgl1 = SglDescriptor::in_capsule(4096, 512)),
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            with(rw(io::WRITE, 1, 0, 1), &|one| one.sgl1 = SglDescriptor::in_capsule(5000, 512)),
            Status::SGL_OFFSET_INVALID,
        ),
        (property_get(1, property::CSTS, false), Status::INVALID_OPCODE),
    ];
    for (entry, expected) in table {
        assert_eq!(status(&mut queue, &entry), expected, "{entry:?}");
    }
    assert!(target.change_namespace(NQN, 1, None));
    assert_eq!(status(&mut queue, &rw(io::READ, 1, 0, 1)), Status::INVALID_NAMESPACE);
}

#[test]
fn io_commands_become_bytes_of_a_backend() {
    let target = target();
    let (_admin, cntlid) = admin_queue(&target, NQN);
    let mut queue = io_queue(&target, cntlid, 1);
    for (opcode, operation) in [
        (io::READ, IoOperation::Read),
        (io::WRITE, IoOperation::Write),
        (io::COMPARE, IoOperation::Compare),
        (io::WRITE_ZEROES, IoOperation::WriteZeroes),
    ] {
        let mut entry = rw(opcode, 1, 10, 4);
        entry.set_dword(12, 3 | 1 << 30);
        let Step::Io { command, .. } = queue.start(0, &entry, NOW) else { panic!("{opcode}") };
        assert_eq!((command.operation, command.offset, command.bytes), (operation, 5120, 2048));
        let writes = matches!(operation, IoOperation::Write | IoOperation::WriteZeroes);
        assert_eq!(command.force_unit_access, writes);
    }
    let mut trim = SubmissionQueueEntry::new(io::DATASET_MANAGEMENT, 1, 1);
    assert_eq!(status(&mut queue, &trim), Status::SUCCESS, "hints have no effect");
    trim.set_dword(10, 1);
    trim.set_dword(11, 1 << 2);
    trim.sgl1 = SglDescriptor::keyed(0, 4096, 1, false);
    assert!(matches!(queue.start(0, &trim, NOW), Step::FromHost { bytes: 32, .. }));
    let range = |blocks: u32, slba: u64| [&[0; 4][..], &blocks.to_le_bytes(), &slba.to_le_bytes()].concat();
    let ranges = [range(8, 0), range(1, 999)].concat();
    let Step::Io { command, .. } = queue.received(&trim, &ranges, 0) else { panic!("no command") };
    assert_eq!(command.ranges, [(0, 4096), (999 * 512, 512)]);
    let joined = [range(4, 100), range(8, 96), range(1, 104)].concat();
    let Step::Io { command, .. } = queue.received(&trim, &joined, 0) else { panic!("no command") };
    assert_eq!(command.ranges, [(96 * 512, 9 * 512)], "each block is deallocated once");
    let outside = [range(8, 0), range(2, 999)].concat();
    assert_eq!(respond(queue.received(&trim, &outside, 0)).status, Status::LBA_OUT_OF_RANGE);
    trim.sgl1 = SglDescriptor::keyed(0, 16, 1, false);
    assert_eq!(status(&mut queue, &trim), Status::DATA_SGL_LENGTH_INVALID);
    trim.sgl1 = SglDescriptor::keyed(0, 4096, 1, false);
    trim.set_dword(10, 255);
    assert!(
        matches!(queue.start(0, &trim, NOW), Step::FromHost { bytes: 4096, .. }),
        "as many as the field has"
    );
}

/// NVM Command Set 1.0, 4.1.5.4: what Identify reports is what is enforced.
#[test]
fn limits_of_commands_without_data_are_reported_and_enforced() {
    let target = target();
    let (mut admin, cntlid) = admin_queue(&target, NQN);
    let limits = data(admin.start(0, &identify(cns::COMMAND_SET_CONTROLLER, 0), NOW));
    assert_eq!((limits[1], limits[3]), (0, 0), "no limit of WZSL and DMRL");
    assert_eq!((limits[4..8].to_vec(), limits[8..12].to_vec()), (vec![0xff; 4], vec![0xff; 4]));
    assert!(target.change_namespace(NQN, 9, Some(namespace(1 << 33, false))));
    let mut queue = io_queue(&target, cntlid, 1);
    let mut zeroes = rw(io::WRITE_ZEROES, 9, 0, 1);
    zeroes.set_dword(12, 0xffff);
    let Step::Io { command, .. } = queue.start(0, &zeroes, NOW) else { panic!("no command") };
    assert_eq!(command.bytes, 512 << 16, "as many blocks as NLB can say");
    let mut trim = SubmissionQueueEntry::new(io::DATASET_MANAGEMENT, 1, 9);
    (trim.sgl1, trim.cdw[1]) = (SglDescriptor::keyed(0, 32, 1, false), (1 << 2).into());
    trim.set_dword(10, 1);
    let whole = |slba: u64| [&[0; 4][..], &[0xff; 4], &slba.to_le_bytes()].concat();
    let ranges = [whole(0), whole(1 << 32)].concat();
    assert_eq!(respond(queue.received(&trim, &ranges, 0)).status, Status::COMMAND_SIZE_LIMIT_EXCEEDED);
    assert_eq!(target.counters.read(TargetCounter::SizeLimitsExceeded), 1);
}

/// Fabrics 1.1, 4: what a discovery controller answers, and to whom it shows what.
#[test]
fn a_discovery_controller_lists_what_the_host_may_use() {
    let target = target();
    let (mut queue, cntlid) = admin_queue(&target, DISCOVERY_NQN);
    assert_eq!(data(queue.start(0, &identify(cns::CONTROLLER, 0), NOW))[111], 2);
    let mut log = to_host(admin::GET_LOG_PAGE, 0, 3072);
    log.set_dword(10, 767 << 16 | u32::from(lid::DISCOVERY));
    let page = data(queue.start(0, &log, NOW));
    assert_eq!(page[8], 1, "the subsystem for other hosts is not shown");
    let entry = &page[1024..2048];
    assert_eq!((entry[0], entry[1], entry[2]), (1, 1, 2));
    assert_eq!((&entry[32..37], &entry[512..521]), (&b"4420 "[..], &b"10.0.0.2 "[..]));
    assert_eq!(entry[256..256 + NQN.len()], *NQN.as_bytes());
    assert_eq!(entry[768..771], [1, 5, 1], "connected, iWARP, RDMA_CM");
    let part = |bytes: u32, offset: u64| {
        let mut part = to_host(admin::GET_LOG_PAGE, 0, bytes);
        part.set_dword(10, (bytes / 4 - 1) << 16 | u32::from(lid::DISCOVERY));
        part.set_qword(12, offset);
        part
    };
    let mut rest = data(queue.start(0, &part(4, 1020), NOW));
    rest.extend(data(queue.start(0, &part(1028, 1024), NOW)));
    assert_eq!(rest[..1028], page[1020..2048], "any part of the log is the same");
    assert_eq!(rest[1028..], [0; 4]);
    let first = data(queue.start(0, &part(8192, 0), NOW));
    assert_eq!((first.len(), queue.next_piece(&part(8192, 0), 4096, 4096)), (4096, vec![0; 4096]));
    assert_eq!(queue.next_piece(&part(8192, 0), 1024, 1024), entry);
    assert_eq!(status(&mut queue, &part(4, 2052)), Status::INVALID_FIELD);
    assert_eq!(status(&mut queue, &identify(cns::NAMESPACE, 1)), Status::INVALID_FIELD);
    assert_eq!(status(&mut queue, &SubmissionQueueEntry::new(admin::ABORT, 1, 0)), Status::INVALID_OPCODE);
    let mut io = Queue::new(target.clone(), 1, 16);
    let response = send_connect(&mut io, connect(1), &connect_data(cntlid, DISCOVERY_NQN));
    assert_eq!(response.status, Status::CONNECT_INVALID_PARAMETERS);
}

/// Fabrics 1.1, 2.4: SQHD counts consumed entries, or is FFFFh.
#[test]
fn sqhd_wraps_at_the_size_of_the_queue() {
    let target = target();
    let (_admin, cntlid) = admin_queue(&target, NQN);
    let mut queue = io_queue(&target, cntlid, 1);
    let mut heads = Vec::new();
    for _ in 0..17 {
        heads.push(queue.completion(1, Status::SUCCESS.into()).sq_head.get());
        queue.advance();
    }
    assert_eq!((heads[0], heads[14], heads[15], heads[16]), (1, 15, 0, 1));
    let mut free = Queue::new(target.clone(), 2, 16);
    let off = Connect { cattr: CATTR_DISABLE_SQ_FLOW_CONTROL, ..connect(2) };
    send_connect(&mut free, off, &connect_data(cntlid, NQN));
    assert_eq!(free.completion(1, Status::SUCCESS.into()).sq_head.get(), 0xffff);
}
