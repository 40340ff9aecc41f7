//! The steps of an input: of either host, of the disks, of the links and of time.

use std::sync::atomic::Ordering;

use crate::Input;
use ironwarp::Nanos;
use iwarp_nvmf::auth::{AuthPolicy, Group, HostSecrets, Secret};
use iwarp_nvmf::config::TargetConfig;

use super::honest::Honest;
use super::hostile::Hostile;
use super::world::{Fault, World};
use super::{AT, NQN};

pub const HONEST: usize = 0;
pub const HOSTILE: usize = 1;
/// The last byte of the addresses of either host.
const HONEST_NUMBER: u8 = 1;
const HOSTILE_NUMBER: u8 = 3;
/// The subsystem of the hostile host. It has namespaces of its own on the same core and disk.
pub const HOSTILE_NQN: &str = "nqn.2014-08.org.example:hostile";
const PAUSE_MAX: Nanos = Nanos::from_millis(200);

fn config() -> TargetConfig {
    let namespaces = "[[subsystem.namespace]]\nnsid = 1\nbackend.memory = { mib = 1 }\n\
                      [[subsystem.namespace]]\nnsid = 2\nbackend.null = { mib = 1 }\n";
    let subsystem = |nqn: &str, serial: u8| {
        format!("[[subsystem]]\nnqn = \"{nqn}\"\nserial = \"{serial}\"\nallow_any_host = true\n{namespaces}")
    };
    let text = format!(
        "listeners = [\"{AT}\"]\n[stack.port]\ndevice.memory = {{}}\n[stack.net]\naddress = \"10.0.0.2/24\"\n\
         [limits]\nbuffers = 16\ntransfer_kib = 8\ncapsules = 512\nconnections = 12\nconnections_per_address = 8\n\
         connect_timeout_ms = 1000\npeer_timeout_ms = 1000\ncontended_timeout_ms = 300\ndisk_timeout_ms = 400\n{}{}",
        subsystem(NQN, 1),
        subsystem(HOSTILE_NQN, 2),
    );
    TargetConfig::from_toml(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// From its second connection on, the hostile host has to prove itself. Without a group, the cost
/// of an input stays small.
fn auth_policy() -> AuthPolicy {
    let secret = Secret::parse("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
    let secrets = HostSecrets { host: secret.expect("a secret"), controller: None };
    let hosts = [("nqn.2014-08.org.example:host3".to_owned(), secrets.into())].into();
    AuthPolicy { hosts, groups: vec![Group::Null], ..AuthPolicy::default() }
}

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(&config(), &[HONEST_NUMBER, HOSTILE_NUMBER]);
    let empty = world.core.reactor.usage();
    world.connect(HONEST, 1);
    let honest_alone = world.core.reactor.usage();
    world.hosts[HOSTILE].host.settings_mut().subnqn = HOSTILE_NQN.to_owned();
    world.connect(HOSTILE, 2);
    world.hosts[HOSTILE].is_confused = true;
    world.core.target.set_auth_policy(auth_policy());
    let (mut honest, mut hostile) = (Honest::new(), Hostile::new());
    while !input.is_empty() {
        step(&mut input, &mut world, (&mut honest, &mut hostile));
        check(&world);
        let host = &world.hosts[HONEST].host;
        assert!(host.is_up(0) && host.is_up(1), "the honest host's connections stand");
    }
    world.core.faults.clear();
    world.core.disk.hangs.store(false, Ordering::Relaxed);
    hostile.leave(&mut world);
    until(&mut world, "the honest host's responses", |world| {
        honest.take(world);
        honest.is_idle()
    });
    world.core.disk.fails.store(false, Ordering::Relaxed);
    until(&mut world, "the end of the other host", |world| world.core.reactor.usage() == honest_alone);
    honest.verify(&mut world);
    for queue in 0..2 {
        world.hosts[HONEST].host.discard(queue).expect("its own queue");
    }
    until(&mut world, "the end of all", |world| world.core.reactor.usage() == empty);
    check(&world);
}

fn step(input: &mut Input<'_>, world: &mut World, (honest, hostile): (&mut Honest, &mut Hostile)) {
    match input.u8() % 16 {
        0..=6 => hostile.step(input, world),
        7..=9 => honest.step(input, world),
        10 => {
            let disk = &world.core.disk;
            let flags = input.u8();
            disk.hangs.store(flags & 1 == 1, Ordering::Relaxed);
            disk.reverses.store(flags & 2 == 2, Ordering::Relaxed);
            disk.fails.store(flags & 4 == 4, Ordering::Relaxed);
        }
        11 => {
            let fault = match input.u8() % 6 {
                0 => Some((HOSTILE_NUMBER, Fault::Unplugged)),
                1 => Some((HOSTILE_NUMBER, Fault::NoData)),
                2 => Some((HOSTILE_NUMBER, Fault::TinyWindow)),
                3 => Some((HONEST_NUMBER, Fault::Lossy)),
                _ => None,
            };
            world.core.faults = fault.into_iter().collect();
        }
        12 => world.core.pause(Nanos(input.nanos()).min(PAUSE_MAX)),
        // The frames of one host wait.
        13 => world.core.turn(),
        _ => (0..input.below(16)).for_each(|_| world.turn()),
    }
    honest.take(world);
}

fn check(world: &World) {
    if let Err(fault) = world.core.reactor.check() {
        panic!("the state of the core is wrong: {fault}");
    }
}

/// Lets time pass until something holds.
pub fn until(world: &mut World, what: &str, mut done: impl FnMut(&mut World) -> bool) {
    for _ in 0..4000 {
        if done(world) {
            return;
        }
        world.core.pause(Nanos::from_millis(5));
        world.turn();
    }
    panic!("it does not happen: {what}: {:?}", world.core.reactor.usage());
}
