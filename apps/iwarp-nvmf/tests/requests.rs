//! Connection requests: of hosts that leave before they are answered, and of many hosts at once. In
//! virtual time.

use std::sync::atomic::Ordering;

use crate::common::{NQN, target_config};
use crate::world::{Peer, World};
use ironwarp::Nanos;
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::host::{BlockRange, Host, Transfer};
use iwarp_nvmf::wire::fabrics::{
    CNTLID_DYNAMIC, CONNECT_DATA_BYTES, CmRequest, Connect, ConnectData, property, property_set,
};
use iwarp_nvmf::wire::opcode::io;
use zerocopy::IntoBytes;

const DISK: u32 = 2;

fn config(limits: &str) -> TargetConfig {
    target_config(&format!(
        "[limits]\n{limits}\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 1 }}\n\
         [[subsystem.namespace]]\nnsid = 2\nbackend.null = {{ mib = 1 }}\n"
    ))
}

/// The core is full, and the connection that ends for the newcomer waits for a disk. The newcomer
/// leaves: its place among those that wait is free at once, and not when it would have been
/// rejected.
#[test]
fn a_request_whose_host_leaves_is_forgotten() {
    let mut world = World::new(&config("connections = 3\nconnections_per_address = 3"), &[1, 3]);
    world.connect(0, 2);
    world.core.disk.hangs.store(true, Ordering::Relaxed);
    for queue in [1, 2] {
        let host = &mut world.hosts[0].host;
        let cid = host.reserve(queue).expect("a command");
        let read = BlockRange { nsid: DISK, slba: 0, blocks: 8 }.entry(io::READ);
        host.send(queue, cid, read, Transfer::FromTarget(4096)).expect("sent");
    }
    (0..100).for_each(|_| world.turn());
    assert_eq!(world.core.reactor.usage().waiting, 0);
    let request = CmRequest::new(0, 32);
    let queue = world.hosts[1].host.begin_raw(request.as_bytes(), 32).expect("begun");
    world.until("the request waits", Nanos::from_millis(5), |world| world.core.reactor.usage().waiting == 1);
    (0..1000).for_each(|_| world.turn());
    assert_eq!(world.core.reactor.usage().waiting, 1, "the disk has not answered");
    world.hosts[1].host.discard(queue).expect("discarded");
    world.until("the request is forgotten", Nanos::from_millis(5), |world| {
        world.core.reactor.usage().waiting == 0
    });
    assert_eq!(world.core.reactor.counters().rejected, 0, "nobody is there to be rejected");
}

/// How far a host has its controller with an I/O queue (Fabrics 1.1, 3.3 and 1.5.6). Queue `n` of
/// the host has QID `n`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Opening(usize),
    Connecting(usize),
    Enabling,
    Ready,
}

impl Stage {
    /// Begins the next step if the one before it is done.
    fn advance(&mut self, peer: &mut Peer, cntlid: &mut u16) {
        let Peer { host, number, .. } = peer;
        let open = |host: &mut Host, qid: usize| {
            let request = CmRequest::new(qid as u16, 32);
            assert_eq!(host.begin_raw(request.as_bytes(), 32).expect("begun"), qid);
            Stage::Opening(qid)
        };
        match *self {
            Stage::New => *self = open(host, 0),
            Stage::Opening(qid) if host.is_up(qid) => {
                let hostnqn = format!("nqn.2014-08.org.example:host{number}");
                let data = ConnectData::new([*number; 16], *cntlid, NQN, &hostnqn);
                let connect = Connect { recfmt: 0, qid: qid as u16, sqsize: 31, cattr: 0, kato_ms: 0 };
                let cid = host.reserve(qid).expect("a command");
                host.write_buffer(qid, cid, data.as_bytes()).expect("inside");
                let transfer = Transfer::ToTarget(CONNECT_DATA_BYTES);
                host.send(qid, cid, connect.entry(cid), transfer).expect("sent");
                *self = Stage::Connecting(qid);
            }
            Stage::Opening(qid) => assert!(host.is_connecting(qid), "the connection of queue {qid} fails"),
            Stage::Connecting(0) => {
                let Some(result) = response(host, 0) else { return };
                *cntlid = result as u16;
                let cid = host.reserve(0).expect("a command");
                let mut enable = property_set(0, property::CC, property::CC_EN | property::CC_ENTRY_SIZES);
                enable.cid = cid.into();
                host.send(0, cid, enable, Transfer::None).expect("sent");
                *self = Stage::Enabling;
            }
            Stage::Enabling => {
                if response(host, 0).is_some() {
                    *self = open(host, 1);
                }
            }
            Stage::Connecting(qid) => {
                if response(host, qid).is_some() {
                    *self = Stage::Ready;
                }
            }
            Stage::Ready => {}
        }
    }
}

/// The result of the only command of a queue, if it has its response.
fn response(host: &mut Host, queue: usize) -> Option<u32> {
    let done = host.next_completion(queue)?;
    host.release(queue, done.cid);
    assert!(done.entry.status().is_success(), "{:?}", done.entry.status());
    Some(done.entry.result.get() as u32)
}

/// Their switch comes back: 64 hosts connect at once, beside one that opens connections without end
/// and leaves them.
#[test]
fn many_hosts_connect_at_once_beside_a_flood() {
    const HOSTS: usize = 64;
    let numbers: Vec<u8> = (3..4 + HOSTS as u8).collect();
    let limits = "connections = 256\ncontrollers = 80\ncapsules = 8192";
    let mut world = World::new(&config(limits), &numbers);
    let mut stages = [(Stage::New, CNTLID_DYNAMIC); HOSTS];
    let mut flood = Vec::new();
    let started = world.now();
    world.until("all hosts have a controller and a queue", Nanos::from_millis(100), |world| {
        for ((stage, cntlid), peer) in stages.iter_mut().zip(&mut world.hosts) {
            stage.advance(peer, cntlid);
        }
        let host = &mut world.hosts[HOSTS].host;
        flood.extend(host.begin_raw(CmRequest::new(0, 32).as_bytes(), 32));
        if flood.len() > 32 {
            host.discard(flood.remove(0)).expect("discarded");
        }
        stages.iter().all(|(stage, _)| *stage == Stage::Ready)
    });
    println!("{HOSTS} hosts after {:?}", world.now() - started);
    world.core.reactor.check().expect("the state of the core");
}
