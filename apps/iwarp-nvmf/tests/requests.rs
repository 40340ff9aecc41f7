//! Connection requests: of hosts that leave before they are answered, and of many hosts at once. In
//! virtual time.

use std::sync::atomic::Ordering;

use crate::common::{NQN, target_config};
use crate::world::World;
use ironwarp::Nanos;
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::host::session::Session;
use iwarp_nvmf::host::{BlockRange, Transfer};
use iwarp_nvmf::wire::fabrics::CmRequest;
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

/// Their switch comes back: 64 hosts connect at once, beside one that opens connections without end
/// and leaves them.
#[test]
fn many_hosts_connect_at_once_beside_a_flood() {
    const HOSTS: usize = 64;
    let numbers: Vec<u8> = (3..4 + HOSTS as u8).collect();
    let limits = "connections = 256\ncontrollers = 80\ncapsules = 8192";
    let mut world = World::new(&config(limits), &numbers);
    let mut sessions: Vec<_> = (0..HOSTS).map(|_| Session::new(32)).collect();
    let mut flood = Vec::new();
    let started = world.now();
    world.until("all hosts have a controller and a queue", Nanos::from_millis(100), |world| {
        let now = world.now();
        for (session, peer) in sessions.iter_mut().zip(&mut world.hosts) {
            assert_eq!(session.poll(&mut peer.host, now).expect("the host runs"), None);
        }
        let host = &mut world.hosts[HOSTS].host;
        flood.extend(host.begin_raw(CmRequest::new(0, 32).as_bytes(), 32));
        if flood.len() > 32 {
            host.discard(flood.remove(0)).expect("discarded");
        }
        sessions.iter().all(|session| session.queues().is_some())
    });
    println!("{HOSTS} hosts after {:?}", world.now() - started);
    assert!(sessions.iter().all(|session| session.failures == 0));
    world.core.reactor.check().expect("the state of the core");
}
