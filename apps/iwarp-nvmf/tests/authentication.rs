//! DH-HMAC-CHAP (Base 2.0, 8.13): our host against our target, and hosts that do it wrong.

use crate::common::{AT, HOST_NQN, NQN, Pair, target_config};
use crate::world::World;
use ironwarp::Nanos;
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::auth::{AuthPolicy, DhKey, Exchange, Group, Hash, HostSecrets, Nonce, Secret};
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::host::{Host, HostSettings, Pattern, Transfer, Workload};
use iwarp_nvmf::target::TargetCounter;
use iwarp_nvmf::wire::auth::{AUTH_REQUIRED, Body, Explanation, Message, command};
use iwarp_nvmf::wire::fabrics::{
    CNTLID_DYNAMIC, CmRequest, Connect, ConnectData, DISCOVERY_NQN, property, property_get,
};
use iwarp_nvmf::wire::opcode::{admin, fctype};
use iwarp_nvmf::wire::{Status, SubmissionQueueEntry};
use proptest::prelude::*;
use zerocopy::IntoBytes;

const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const CTRL_SECRET: &str = "DHHC-1:01:gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp9vmVbU:";

fn config(authentication: &str, secrets: &str) -> TargetConfig {
    target_config(&format!(
        "[limits]\nbuffers = 8\ncapsules = 1024\nconnect_timeout_ms = 2000\n[authentication]\n{authentication}\n\
         [[host]]\nnqn = \"{HOST_NQN}\"\n{secrets}\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 4 }}\n"
    ))
}

fn both() -> TargetConfig {
    config("", &format!("dhchap_secret = \"{SECRET}\"\ndhchap_ctrl_secret = \"{CTRL_SECRET}\""))
}

fn secrets(host: &str, controller: Option<&str>) -> Option<HostSecrets> {
    let parse = |text| Secret::parse(text).expect("a secret");
    Some(HostSecrets { host: parse(host), controller: controller.map(parse) })
}

fn settings(secrets: Option<HostSecrets>) -> HostSettings {
    let hostnqn = HOST_NQN.to_owned();
    HostSettings { hostnqn, secrets, ..HostSettings::new(AT.parse().expect("an address"), NQN) }
}

fn connect(pair: &mut Pair, queues: u16) -> Result<(), NvmfError> {
    let Pair { host, side, .. } = pair;
    host.connect(&mut || side.turn())?;
    host.connect_io_queues(queues, &mut || side.turn())
}

fn read_all(pair: &mut Pair) {
    let Pair { host, side, .. } = pair;
    let namespace = host.namespace(1, &mut || side.turn()).expect("a namespace");
    let pattern = Pattern::Random(7);
    let workload = Workload { writes: false, bytes: 4096, depth: 8, commands: 50, pattern, verify: false };
    host.bench(namespace, workload, &mut || side.turn()).expect("read");
}

fn counts(pair: &Pair) -> [u64; 4] {
    use TargetCounter::*;
    let all = [
        AuthenticationFailures,
        AuthenticationMessagesInvalid,
        AuthenticationTimeouts,
        CommandsUnauthenticated,
    ];
    all.map(|one| pair.side.target.counters.read(one))
}

/// A target that allows one hash function and one group, so that the host must follow.
fn authenticates(hash: Hash, group: Group, controller: Option<&str>) {
    let lists = format!("hashes = [\"{hash:?}\"]\ngroups = [\"{group:?}\"]").to_lowercase();
    let all = format!("dhchap_secret = \"{SECRET}\"\ndhchap_ctrl_secret = \"{CTRL_SECRET}\"");
    let mut pair = Pair::with(&config(&lists, &all), settings(secrets(SECRET, controller)));
    connect(&mut pair, 2).unwrap_or_else(|error| panic!("{hash:?} {group:?}: {error}"));
    read_all(&mut pair);
    assert_eq!(counts(&pair), [0; 4]);
}

#[test]
fn every_hash_function_and_group_authenticates_one_way_and_both() {
    for hash in Hash::ALL {
        for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
            authenticates(hash, group, None);
            authenticates(hash, group, Some(CTRL_SECRET));
        }
    }
    for group in [Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192] {
        authenticates(Hash::Sha512, group, Some(CTRL_SECRET));
    }
}

/// Nobody gets in without the secret, and the target knows whom it refused.
#[test]
fn a_wrong_or_missing_secret_is_refused() {
    let one_way = config("", &format!("dhchap_secret = \"{SECRET}\""));
    for (config, own, error, expected) in [
        (both(), secrets(CTRL_SECRET, None), "the target refuses the host: authentication failed", [1, 0]),
        (both(), None, "the host has no secret", [0, 0]),
        // The target cannot prove itself.
        (one_way.clone(), secrets(SECRET, Some(CTRL_SECRET)), "the target refuses the host", [1, 0]),
        // The target's proof is wrong: the host refuses it, and says so.
        (
            both(),
            secrets(SECRET, Some(SECRET)),
            "the host refuses the controller: authentication failed",
            [1, 0],
        ),
    ] {
        let mut pair = Pair::with(&config, settings(own));
        let before = pair.usage();
        let found = connect(&mut pair, 1).expect_err(error);
        assert!(matches!(&found, NvmfError::Authentication(why) if why.contains(error)), "{found}");
        assert_eq!(counts(&pair)[..2], expected, "{error}");
        pair.until("the end of the connection", |pair| pair.usage() == before);
        assert!(pair.side.target.controllers().is_empty());
        // Nothing of the attempt stays: the right secret is admitted.
        pair.host.settings_mut().secrets = secrets(SECRET, None);
        // The host has left a target without a proof itself.
        assert_eq!(
            pair.host.discard(0).is_ok(),
            error != "the host refuses the controller: authentication failed"
        );
        connect(&mut pair, 1).expect("connected");
    }
}

/// A controller that asks for nothing has no proof of itself either: the host does not go on.
#[test]
fn a_host_that_wants_a_proof_accepts_no_target_without_one() {
    let plain = crate::common::memory_subsystem();
    let mut pair = Pair::with(&plain, settings(secrets(SECRET, Some(CTRL_SECRET))));
    let error = connect(&mut pair, 1).expect_err("no proof");
    assert!(matches!(error, NvmfError::Authentication(_)), "{error}");
    let mut pair = Pair::with(&plain, settings(secrets(SECRET, None)));
    connect(&mut pair, 1).expect("its own proof is asked for by the target alone");
}

#[test]
fn hosts_without_a_secret_are_refused_unless_configured() {
    let mut pair = Pair::new(&both());
    let error = connect(&mut pair, 1).expect_err("another NQN, without a secret").to_string();
    assert_eq!(pair.side.target.counters.read(TargetCounter::ConnectsNotAllowed), 1, "{error}");
    let optional = config("required = false", &format!("dhchap_secret = \"{SECRET}\""));
    let mut pair = Pair::new(&optional);
    connect(&mut pair, 1).expect("another NQN, which allow_any_host admits");
    let mut pair = Pair::with(&both(), HostSettings { subnqn: DISCOVERY_NQN.to_owned(), ..settings(None) });
    let Pair { host, side, .. } = &mut pair;
    host.connect(&mut || side.turn()).expect("the discovery log is for everyone");
}

/// Again on live queues while commands go on, with the secrets of that moment; a failure ends the
/// connection. And after a reconnect.
#[test]
fn a_live_queue_authenticates_again() {
    let mut pair = Pair::with(&both(), settings(secrets(SECRET, Some(CTRL_SECRET))));
    connect(&mut pair, 1).expect("connected");
    for queue in [0, 1, 1] {
        let Pair { host, side, .. } = &mut pair;
        host.authenticate(queue, &mut || side.turn()).expect("authenticated again");
        read_all(&mut pair);
    }
    let new = config("", &format!("dhchap_secret = \"{CTRL_SECRET}\""));
    let report = pair.side.namespaces.reload(&new);
    assert_eq!((report.to_string(), report.is_complete()), ("changed: authentication".to_owned(), true));
    read_all(&mut pair);
    pair.host.settings_mut().secrets = secrets(CTRL_SECRET, None);
    let Pair { host, side, .. } = &mut pair;
    host.authenticate(0, &mut || side.turn()).expect("the new secret");
    host.settings_mut().secrets = secrets(SECRET, None);
    host.authenticate(1, &mut || side.turn()).expect_err("the old secret");
    pair.until("the end of the queue", |pair| !pair.host.is_up(1));
    assert!(pair.host.is_up(0) && counts(&pair)[0] == 1);
    let Pair { host, side, .. } = &mut pair;
    host.settings_mut().secrets = secrets(CTRL_SECRET, None);
    host.close(&mut || side.turn()).expect("closed");
    connect(&mut pair, 1).expect("connected again");
    read_all(&mut pair);
}

/// Opens an admin queue and sends its Connect, and no message.
fn connect_only(pair: &mut Pair) -> usize {
    let Pair { host, side, .. } = pair;
    let queue = host.open_raw(CmRequest::new(0, 32).as_bytes(), 32, &mut || side.turn()).expect("open");
    let connect = Connect { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 0 };
    let data = ConnectData::new([1; 16], CNTLID_DYNAMIC, NQN, HOST_NQN);
    let entry = host.send_connect(queue, connect, &data, &mut || side.turn()).expect("a response");
    assert_eq!((entry.status(), entry.result.get() >> 16), (Status::SUCCESS, AUTH_REQUIRED >> 16));
    queue
}

/// The status of a command is Authentication Required (191h) until then, and a host that does not
/// go on is ended.
#[test]
fn nothing_is_executed_before_the_proof() {
    let mut pair = Pair::with(&both(), settings(None));
    let before = pair.usage();
    let queue = connect_only(&mut pair);
    let Pair { host, side, .. } = &mut pair;
    for entry in [
        property_get(0, property::CAP, true),
        SubmissionQueueEntry::new(admin::IDENTIFY, 0, 0),
        SubmissionQueueEntry::new(admin::KEEP_ALIVE, 0, 0),
        SubmissionQueueEntry::new(admin::ASYNC_EVENT_REQUEST, 0, 0),
    ] {
        let status = host.status(queue, entry, Transfer::None, &mut || side.turn()).expect("a response");
        assert_eq!(status, Status::AUTHENTICATION_REQUIRED, "{entry:?}");
    }
    pair.until("the end of the connection", |pair| !pair.host.is_up(queue));
    assert_eq!(counts(&pair), [0, 0, 1, 4]);
    pair.until("everything is free", |pair| pair.usage() == before);
}

/// Fetches the controller's message.
fn fetch(pair: &mut Pair, queue: usize) -> Message {
    let Pair { host, side, .. } = pair;
    let (entry, mut data) = (command(0, fctype::AUTH_RECEIVE, 4096), vec![0; 4096]);
    let done = host.execute(queue, entry, Transfer::FromTarget(4096), &mut data, &mut || side.turn());
    assert_eq!(done.expect("a response").status(), Status::SUCCESS);
    Message::decode(&data).expect("a message").0
}

/// Sends bytes as a message, whose length need not fit.
fn send(pair: &mut Pair, queue: usize, bytes: &[u8]) -> Status {
    let Pair { host, side, .. } = pair;
    let entry = command(0, fctype::AUTH_SEND, bytes.len() as u32);
    let (transfer, mut data) = (Transfer::ToTarget(bytes.len() as u32), bytes.to_vec());
    host.execute(queue, entry, transfer, &mut data, &mut || side.turn()).expect("a response").status()
}

fn negotiate(t_id: u16, hashes: &[u8], groups: &[u8]) -> Message {
    Message { t_id, body: Body::Negotiate { sc_c: 0, offer: Some((hashes.to_vec(), groups.to_vec())) } }
}

fn reply(t_id: u16, response: usize, nonce: Option<Nonce>, public: Vec<u8>) -> Message {
    Message { t_id, body: Body::Reply { response: vec![7; response], nonce, public } }
}

/// Every message that is wrong, not due, too long or replayed ends the exchange with its reason,
/// and the connection.
#[test]
fn a_wrong_message_ends_the_exchange_and_the_connection() {
    use Explanation as Why;
    let good = || negotiate(5, &[1, 3], &[1, 2]).encode();
    let value = |last: u8| [vec![0; 383], vec![last]].concat();
    let two = || reply(5, 64, None, value(2));
    let nonce = |seqnum| Some(Nonce { challenge: vec![1; 64], seqnum });
    let longer = |bytes: Vec<u8>| [bytes, vec![0; 4]].concat();
    let message = |body| Message { t_id: 5, body }.encode();
    let secure = message(Body::Negotiate { sc_c: 2, offer: Some((vec![1], vec![1])) });
    let lists = |offset: usize, count| {
        let mut bytes = good();
        bytes[offset] = count;
        bytes
    };
    for (first, second, expected) in [
        // Not due.
        (two().encode(), None, Why::Message),
        (message(Body::Success2), None, Why::Message),
        (message(Body::Failure1(Why::Failed)), None, Why::Message),
        (good(), Some(good()), Why::Message),
        (good(), Some(message(Body::Success2)), Why::Message),
        (message(Body::Failure2(Why::Hash)), None, Why::Hash),
        (good(), Some(message(Body::Failure2(Why::Payload))), Why::Payload),
        // Nothing in common.
        (message(Body::Negotiate { sc_c: 0, offer: None }), None, Why::Protocol),
        (secure, None, Why::SecureChannel),
        (negotiate(5, &[0, 4, 255], &[1]).encode(), None, Why::Hash),
        (negotiate(5, &[], &[1]).encode(), None, Why::Hash),
        // The NULL group and ffdhe4096 are not allowed here.
        (negotiate(5, &[1], &[0, 3, 6, 255]).encode(), None, Why::Group),
        (negotiate(5, &[1], &[]).encode(), None, Why::Group),
        // Lengths.
        (lists(10, 31), None, Why::Payload),
        (lists(11, 31), None, Why::Payload),
        (lists(7, 2), None, Why::Payload),
        (longer(good()), None, Why::Payload),
        (vec![0; 5], None, Why::Payload),
        (vec![0; 8192], None, Why::Payload),
        (vec![9; 64], None, Why::Message),
        (good(), Some(longer(two().encode())), Why::Payload),
        (good(), Some(reply(5, 32, None, value(2)).encode()), Why::Payload),
        (good(), Some(reply(5, 64, None, vec![2; 256]).encode()), Why::Payload),
        (good(), Some(reply(5, 64, None, vec![]).encode()), Why::Payload),
        // Values.
        (good(), Some(reply(6, 64, None, value(2)).encode()), Why::Payload),
        (good(), Some(reply(5, 64, None, value(0)).encode()), Why::Payload),
        (good(), Some(reply(5, 64, None, value(1)).encode()), Why::Payload),
        (good(), Some(reply(5, 64, None, vec![0xff; 384]).encode()), Why::Payload),
        (good(), Some(reply(5, 64, nonce(0), value(2)).encode()), Why::Payload),
        (good(), Some(reply(5, 64, nonce(9), value(2)).encode()), Why::Failed),
        (good(), Some(two().encode()), Why::Failed),
    ] {
        let mut pair = Pair::with(&both(), settings(None));
        let queue = connect_only(&mut pair);
        let what = format!("{first:?} {second:?}");
        assert_eq!(send(&mut pair, queue, &first), Status::SUCCESS, "{what}");
        if let Some(second) = second {
            let challenge = fetch(&mut pair, queue);
            assert!(matches!(challenge.body, Body::Challenge { .. }), "{what}: {challenge:?}");
            assert_eq!(send(&mut pair, queue, &second), Status::SUCCESS, "{what}");
        }
        let failure = fetch(&mut pair, queue).body;
        assert_eq!(failure, Body::Failure1(expected), "{what}");
        // It stays so, whatever comes, until the connection ends.
        assert_eq!(send(&mut pair, queue, &good()), Status::SUCCESS);
        assert_eq!(fetch(&mut pair, queue).body, Body::Failure1(expected));
        pair.until("the end of the connection", |pair| !pair.host.is_up(queue));
        let is_invalid = matches!(expected, Why::Payload | Why::Message);
        assert_eq!(counts(&pair)[..2], if is_invalid { [0, 1] } else { [1, 0] }, "{what}");
    }
}

/// A Receive that nothing is there for, or with no room; and commands of another protocol.
#[test]
fn commands_with_wrong_fields_are_refused() {
    let mut pair = Pair::with(&both(), settings(None));
    let queue = connect_only(&mut pair);
    let Pair { host, side, .. } = &mut pair;
    let mut other = command(0, fctype::AUTH_SEND, 64);
    other.set_dword(10, 0xea01_0100);
    for (entry, transfer) in [
        (other, Transfer::ToTarget(64)),
        (command(0, fctype::AUTH_SEND, 0), Transfer::None),
        (command(0, fctype::AUTH_RECEIVE, 0), Transfer::None),
        (command(0, fctype::AUTH_RECEIVE, 4), Transfer::FromTarget(4)),
    ] {
        let status = host.status(queue, entry, transfer, &mut || side.turn()).expect("a response");
        assert_eq!(status, Status::INVALID_FIELD, "{entry:?}");
    }
    let entry = command(0, fctype::AUTH_SEND, 64);
    let status = host.status(queue, entry, Transfer::ToTarget(32), &mut || side.turn());
    assert_eq!(status.expect("a response"), Status::DATA_SGL_LENGTH_INVALID);
    // The exchange is as it was: it begins, and has no room for its Challenge.
    assert_eq!(send(&mut pair, queue, &negotiate(5, &[1], &[1]).encode()), Status::SUCCESS);
    let Pair { host, side, .. } = &mut pair;
    let (entry, mut data) = (command(0, fctype::AUTH_RECEIVE, 64), vec![0; 64]);
    let done = host.execute(queue, entry, Transfer::FromTarget(64), &mut data, &mut || side.turn());
    assert_eq!(done.expect("a response").status(), Status::SUCCESS);
    let failure = Body::Failure1(Explanation::Payload);
    assert_eq!(Message::decode(&data).expect("a message").0, Message { t_id: 5, body: failure });
    let mut pair = Pair::with(&both(), settings(None));
    let queue = connect_only(&mut pair);
    assert_eq!(fetch(&mut pair, queue).body, Body::Failure1(Explanation::Message));
}

/// A right Reply that was recorded is of no use: each exchange has a challenge of its own.
#[test]
fn a_replayed_reply_is_refused() {
    let mut pair = Pair::with(&both(), settings(None));
    let secrets = secrets(SECRET, None).expect("secrets");
    let mut recorded = None;
    let mut attempt = || {
        let queue = connect_only(&mut pair);
        assert_eq!(send(&mut pair, queue, &negotiate(5, &[3], &[1]).encode()), Status::SUCCESS);
        let Body::Challenge { hash, group, nonce, public } = fetch(&mut pair, queue).body else { panic!() };
        let reply = recorded.get_or_insert_with(|| {
            let key = DhKey::generate(group).expect("random numbers");
            let shared = key.agree(&public).expect("a valid value");
            let (hostnqn, subnqn) = (HOST_NQN.to_owned(), NQN.to_owned());
            let exchange = Exchange { hash, group, t_id: 5, hostnqn, subnqn };
            let response = exchange.host_response(&secrets.host, &shared, &nonce).to_vec();
            let body = Body::Reply { response, nonce: None, public: key.public().to_vec() };
            Message { t_id: 5, body }.encode()
        });
        assert_eq!(send(&mut pair, queue, reply), Status::SUCCESS);
        let answer = fetch(&mut pair, queue).body;
        pair.host.discard(queue).expect("its own queue");
        answer
    };
    assert_eq!(attempt(), Body::Success1 { hash_bytes: 64, response: None });
    assert_eq!(attempt(), Body::Failure1(Explanation::Failed));
}

/// On a live queue, a host that stops half-way loses the exchange after two minutes, and nothing
/// else.
#[test]
fn an_exchange_that_stops_on_a_live_queue_ends_alone() {
    let config = config("required = false", &format!("dhchap_secret = \"{SECRET}\""));
    let mut world = World::new(&config, &[1]);
    world.connect(0, 1);
    let World { core, hosts, .. } = &mut world;
    let host = &mut hosts[0].host;
    let secrets = secrets(SECRET, None).expect("secrets");
    let policy = AuthPolicy {
        hosts: [("nqn.2014-08.org.example:host1".to_owned(), secrets.into())].into(),
        ..AuthPolicy::default()
    };
    core.target.set_auth_policy(policy);
    host.send_message(0, &negotiate(5, &[1], &[1]), &mut || core.turn()).expect("sent");
    core.pause(Nanos::from_secs(121));
    let timeouts = |world: &mut World| world.core.target.counters.read(TargetCounter::AuthenticationTimeouts);
    world.until("the end of the exchange", Nanos::from_secs(3), |world| timeouts(world) == 1);
    let World { core, hosts, .. } = &mut world;
    let host = &mut hosts[0].host;
    // What is late has a reason, and a new exchange may begin.
    let success2 = Message { t_id: 5, body: Body::Success2 };
    for late in [reply(5, 32, None, vec![2; 256]), success2] {
        host.send_message(0, &late, &mut || core.turn()).expect("sent");
        let (entry, mut data) = (command(0, fctype::AUTH_RECEIVE, 4096), vec![0; 4096]);
        let done = host.execute(0, entry, Transfer::FromTarget(4096), &mut data, &mut || core.turn());
        assert_eq!(done.expect("a response").status(), Status::SUCCESS);
        let failure = Body::Failure1(Explanation::Message);
        assert_eq!(Message::decode(&data).expect("a message").0, Message { t_id: 5, body: failure });
    }
    core.pause(Nanos::from_secs(1));
    host.namespaces(&mut || core.turn()).expect("commands go on");
    host.settings_mut().secrets = self::secrets(SECRET, None);
    host.authenticate(0, &mut || core.turn()).expect("again");
    assert_eq!(core.target.counters.read(TargetCounter::AuthenticationMessagesInvalid), 0);
    assert!(host.is_up(0) && host.is_up(1) && timeouts(&mut world) == 1);
}

/// A peer that claims the NQN of a connected host takes no number of its queues, neither before its
/// proof nor by it.
#[test]
fn a_queue_has_no_number_before_its_proof() {
    let mut world = World::new(&both(), &[1, 3]);
    for peer in &mut world.hosts {
        let settings = peer.host.settings_mut();
        (settings.hostnqn, settings.hostid) = (HOST_NQN.to_owned(), [1; 16]);
        settings.secrets = secrets(SECRET, None);
    }
    world.connect(0, 0);
    let World { core, hosts, .. } = &mut world;
    let [owner, thief] = &mut hosts[..] else { panic!("two hosts") };
    let request = CmRequest::new(1, 32);
    let queue = thief.host.open_raw(request.as_bytes(), 32, &mut || core.turn()).expect("open");
    let connect = Connect { recfmt: 0, qid: 1, sqsize: 31, cattr: 0, kato_ms: 0 };
    let cntlid = core.target.controllers()[0].cntlid();
    let data = ConnectData::new([1; 16], cntlid, NQN, HOST_NQN);
    let entry = thief.host.send_connect(queue, connect, &data, &mut || core.turn()).expect("a response");
    assert_eq!(entry.status(), Status::SUCCESS);
    owner.host.connect_io_queues(1, &mut || core.turn()).expect("its own number");
    thief.host.authenticate(queue, &mut || core.turn()).expect_err("the number is taken");
    assert!(owner.host.is_up(1) && !thief.host.is_up(queue));
}

/// Hosts that claim an NQN and do not prove it take no controller from the one that does.
#[test]
fn a_claimed_nqn_does_not_count_before_its_proof() {
    let mut config = both();
    config.limits.controllers_per_host = 2;
    let mut world = World::new(&config, &[1, 3, 5]);
    for at in 0..3 {
        world.hosts[at].host.settings_mut().hostnqn = HOST_NQN.to_owned();
    }
    let open = |world: &mut World, at: usize| {
        let World { core, hosts, .. } = world;
        let host: &mut Host = &mut hosts[at].host;
        let error = host.connect(&mut || core.turn()).expect_err("it has no secret");
        assert!(matches!(error, NvmfError::Authentication(_)), "{error}");
    };
    open(&mut world, 1);
    open(&mut world, 2);
    assert_eq!(world.core.target.controllers().len(), 2, "both wait for a proof");
    world.hosts[0].host.settings_mut().secrets = secrets(SECRET, None);
    world.connect(0, 1);
    world.core.pause(Nanos::from_secs(3));
    world.until("the others end", Nanos::from_secs(3), |world| world.core.target.controllers().len() == 1);
    assert!(world.hosts[0].host.is_up(0) && world.hosts[0].host.is_up(1));
}

proptest! {
    /// Any bytes are a message or an error; a message keeps its meaning.
    #[test]
    fn messages_of_any_bytes(
        start in prop::sample::select(vec![[0, 0], [1, 1], [1, 2], [1, 3], [1, 4], [0, 0xf0], [0, 0xf1]]),
        lengths in prop::sample::select(vec![[32u8, 0, 1, 1], [48, 0, 2, 0], [64, 0, 1, 2], [0, 1, 1, 1]]),
        rest in prop::collection::vec(any::<u8>(), 0..1400),
    ) {
        let bytes = [&start[..], &[0, 0, 1, 0], &lengths, &rest].concat();
        for bytes in [&bytes[..], &rest] {
            if let Ok((message, behind)) = Message::decode(bytes) {
                prop_assert!(behind.len() <= bytes.len());
                let encoded = message.encode();
                prop_assert_eq!(Message::decode(&encoded), Ok((message, &[][..])));
            }
        }
    }
}
