//! What a hostile host costs an honest one, in virtual time.
//!
//! The core has a capacity (`common::world`): each turn takes as long as the work that it did. An
//! honest host reads at half of it, in bursts. Beside every pattern of a hostile host it keeps 95 %
//! of its rate, and its 99th percentile at most doubles.

use std::collections::VecDeque;

use crate::common::{NQN, target_config};
use crate::world::{Fault, World};
use ironwarp::Nanos;
use iwarp_nvmf::host::{BlockRange, Host, Transfer};
use iwarp_nvmf::target::TargetCounter;
use iwarp_nvmf::transport::party::COMMAND_COST;
use iwarp_nvmf::wire::SubmissionQueueEntry;
use iwarp_nvmf::wire::fabrics::{
    CNTLID_DYNAMIC, CONNECT_DATA_BYTES, CmRequest, Connect, ConnectData, DISCOVERY_NQN, DatasetRange,
};
use iwarp_nvmf::wire::log_page::lid;
use iwarp_nvmf::wire::opcode::{admin, feature, io};
use zerocopy::IntoBytes;

/// Reads of a burst.
const BURST: usize = 32;
/// Bursts of a measurement.
const BURSTS: usize = 120;
const HONEST: usize = 0;
const HOSTILE: usize = 1;
/// The namespace in memory, and the disk.
const MEMORY: u32 = 1;
const DISK: u32 = 2;

fn read(nsid: u32) -> SubmissionQueueEntry {
    BlockRange { nsid, slba: 64, blocks: 8 }.entry(io::READ)
}

fn world() -> World {
    let config = target_config(&format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.memory = {{ mib = 16 }}\n\
         [[subsystem.namespace]]\nnsid = 2\nbackend.null = {{ mib = 16 }}\n"
    ));
    let mut world = World::new(&config, &[1, 3]);
    world.connect(HONEST, 1);
    world
}

/// An honest host: a burst of reads each interval, on its first I/O queue.
struct Honest {
    nsid: u32,
    interval: u64,
    next: u64,
    /// When the commands that found no free identifier were due.
    late: VecDeque<u64>,
    due: Vec<u64>,
    issued: usize,
    latencies: Vec<u64>,
}

/// What the honest host got.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Reads a millisecond of virtual time.
    rate: f64,
    p99_ns: u64,
}

impl Honest {
    fn new(nsid: u32, interval: u64, now: Nanos) -> Self {
        let due = vec![0; 128];
        Honest { nsid, interval, next: now.0, late: VecDeque::new(), due, issued: 0, latencies: Vec::new() }
    }

    fn step(&mut self, host: &mut Host, now: u64) {
        while let Some(done) = host.next_completion(1) {
            assert!(done.entry.status().is_success(), "{:?}", done.entry.status());
            self.latencies.push(now - self.due[usize::from(done.cid)]);
            host.release(1, done.cid);
        }
        while self.next <= now && self.issued < BURST * BURSTS {
            (0..BURST).for_each(|_| self.late.push_back(self.next));
            (self.next, self.issued) = (self.next + self.interval, self.issued + BURST);
        }
        while let Some(&due) = self.late.front() {
            let Some(cid) = host.reserve(1) else { break };
            self.late.pop_front();
            self.due[usize::from(cid)] = due;
            host.send(1, cid, read(self.nsid), Transfer::FromTarget(4096)).expect("sent");
        }
    }

    fn is_done(&self) -> bool {
        self.latencies.len() == BURST * BURSTS
    }

    fn outcome(mut self, span: Nanos) -> Outcome {
        self.latencies.sort_unstable();
        let p99_ns = self.latencies[self.latencies.len() * 99 / 100];
        Outcome { rate: self.latencies.len() as f64 * 1e6 / span.0 as f64, p99_ns }
    }
}

/// Runs the honest host's bursts beside `hostile`, which acts before each turn.
fn run(world: &mut World, nsid: u32, interval: u64, mut hostile: impl FnMut(&mut World)) -> Outcome {
    let started = world.now();
    let mut honest = Honest::new(nsid, interval, started);
    while !honest.is_done() {
        hostile(world);
        let now = world.now().0;
        honest.step(&mut world.hosts[HONEST].host, now);
        world.turn();
        assert!(world.hosts[HONEST].host.is_up(1), "the honest host's connection stands");
        assert!(world.now() - started < Nanos::from_secs(2), "{} of all", honest.latencies.len());
    }
    honest.outcome(world.now() - started)
}

/// The interval of bursts that takes half of the core's capacity.
fn half_of_capacity(nsid: u32) -> u64 {
    let full = run(&mut world(), nsid, 0, |_| ());
    2 * (BURST as f64 * 1e6 / full.rate) as u64
}

/// Compares the honest host beside a hostile one with itself alone.
#[track_caller]
fn assert_unharmed(
    nsid: u32,
    mut prepare: impl FnMut(&mut World),
    mut hostile: impl FnMut(&mut World),
) -> World {
    let interval = half_of_capacity(nsid);
    let alone = run(&mut world(), nsid, interval, |_| ());
    let mut world = world();
    prepare(&mut world);
    let beside = run(&mut world, nsid, interval, &mut hostile);
    print_row(alone, beside);
    assert!(beside.rate >= 0.95 * alone.rate, "rate: alone {alone:?}, beside {beside:?}");
    assert!(beside.p99_ns <= 2 * alone.p99_ns, "p99: alone {alone:?}, beside {beside:?}");
    world
}

/// A row of the table in `docs/storage.md`: the pattern, Reads a millisecond and the 99th
/// percentile, alone and beside.
fn print_row(alone: Outcome, beside: Outcome) {
    let thread = std::thread::current();
    let pattern = thread.name().unwrap_or_default().replace('_', " ");
    let us = |outcome: Outcome| outcome.p99_ns as f64 / 1e3;
    println!(
        "| {pattern} | {:.1} | {:.1} | {:.1} µs | {:.1} µs |",
        alone.rate,
        beside.rate,
        us(alone),
        us(beside)
    );
}

/// Keeps as many commands outstanding on a queue of the hostile host as it has identifiers.
fn flood(
    world: &mut World,
    queue: usize,
    mut command: impl FnMut(&mut Host, u16) -> (SubmissionQueueEntry, Transfer),
) -> usize {
    let host = &mut world.hosts[HOSTILE].host;
    let mut done = 0;
    while let Some(completion) = host.next_completion(queue) {
        host.release(queue, completion.cid);
        done += 1;
    }
    while host.is_up(queue)
        && let Some(cid) = host.reserve(queue)
    {
        let (entry, transfer) = command(host, cid);
        host.send(queue, cid, entry, transfer).expect("sent");
    }
    done
}

/// Sends Writes to the disk, whose data the target has to fetch, until nothing more fits.
fn write_much(world: &mut World) {
    world.connect(HOSTILE, 2);
    for queue in [1, 2] {
        flood(world, queue, |_, _| {
            (BlockRange { nsid: DISK, slba: 0, blocks: 8 }.entry(io::WRITE), Transfer::ToTarget(4096))
        });
    }
}

/// SIGSTOP in the middle of its Writes: it holds what it holds.
#[test]
fn a_host_that_stops() {
    let world = assert_unharmed(
        DISK,
        |world| {
            write_much(world);
            world.run_host(HOSTILE);
            world.core.faults.insert(3, Fault::Unplugged);
        },
        |_| (),
    );
    assert!(world.core.reactor.usage().free_buffers < 128, "the stopped host holds buffers");
}

/// Its TCP lives, and its RDMA Reads are never answered.
#[test]
fn a_host_that_never_answers_reads() {
    let world = assert_unharmed(
        DISK,
        |world| {
            write_much(world);
            world.run_host(HOSTILE);
            world.core.faults.insert(3, Fault::NoData);
        },
        |_| (),
    );
    assert_eq!(world.core.target.counters.read(TargetCounter::ContendedTimeouts), 0, "nobody had to wait");
}

/// It asks for data and opens its window a byte at a time.
#[test]
fn a_host_with_a_tiny_window() {
    assert_unharmed(
        DISK,
        |world| {
            world.connect(HOSTILE, 2);
            world.core.faults.insert(3, Fault::TinyWindow);
            for queue in [1, 2] {
                flood(world, queue, |_, _| (read(DISK), Transfer::FromTarget(4096)));
            }
        },
        |world| {
            for queue in [1, 2] {
                flood(world, queue, |_, _| (read(DISK), Transfer::FromTarget(4096)));
            }
        },
    );
}

/// Dataset Management and Write Zeroes of as much as they may name, on the namespace that the
/// honest host reads.
#[test]
fn a_flood_of_deallocations_and_zeros() {
    let world = assert_unharmed(
        MEMORY,
        |world| world.connect(HOSTILE, 2),
        |world| {
            flood(world, 1, |host, cid| {
                let range =
                    DatasetRange { attributes: 0.into(), blocks: (32u32 << 10).into(), slba: 0.into() };
                host.write_buffer(1, cid, range.as_bytes()).expect("inside");
                let mut entry = SubmissionQueueEntry::new(io::DATASET_MANAGEMENT, cid, MEMORY);
                entry.set_dword(11, 1 << 2);
                (entry, Transfer::ToTarget(16))
            });
            flood(world, 2, |_, _| {
                let all = BlockRange { nsid: MEMORY, slba: 0, blocks: 16 << 10 };
                (all.entry(io::WRITE_ZEROES), Transfer::None)
            });
        },
    );
    // What the honest host leaves of the core goes to the flood, piece by piece of its 254 commands
    // in turn.
    let honest = (BURST * BURSTS) as u64 * (COMMAND_COST + 4096);
    let filled = world.core.reactor.spent().1 - honest;
    assert!(filled > honest / 4, "{filled} bytes of the flood beside {honest} of the honest host");
}

/// What a flood of connections does with each: it goes on to the next as soon as that has happened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Its connection request is sent.
    Requested,
    Established,
    /// Its Connect has a response: a controller was made.
    Connected,
}

/// Connections of the hostile host that are being made: for each its queue and the number of turns
/// since its request.
struct Connections {
    until: Until,
    private_data: CmRequest,
    open: Vec<(usize, u32)>,
    /// Connections that got as far as they should.
    done: usize,
}

impl Connections {
    /// Connections at once: as many requests as one address may have half open, and some.
    const AT_ONCE: usize = 64;

    fn new(until: Until, private_data: CmRequest) -> Self {
        Connections { until, private_data, open: Vec::new(), done: 0 }
    }

    fn step(&mut self, host: &mut Host) {
        for (queue, turns) in core::mem::take(&mut self.open) {
            let is_up = host.is_up(queue);
            let has_failed = !is_up && !host.is_connecting(queue);
            let is_done = match self.until {
                Until::Requested => turns == 4 || has_failed,
                Until::Established => is_up,
                Until::Connected => {
                    if is_up && host.free_commands(queue) == 31 {
                        let cid = host.reserve(queue).expect("a command");
                        let data =
                            ConnectData::new([9; 16], CNTLID_DYNAMIC, NQN, "nqn.2014-08.org.example:9");
                        host.write_buffer(queue, cid, data.as_bytes()).expect("inside");
                        let connect = Connect { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 0 };
                        let transfer = Transfer::ToTarget(CONNECT_DATA_BYTES);
                        host.send(queue, cid, connect.entry(cid), transfer).expect("sent");
                    }
                    host.next_completion(queue).is_some()
                }
            };
            self.done += usize::from(is_done);
            match is_done || has_failed {
                true => host.discard(queue).expect("discarded"),
                false => self.open.push((queue, turns + 1)),
            }
        }
        // One in each turn is several hundred thousand a second.
        if self.open.len() < Self::AT_ONCE {
            // Without a queue: its own stack has no more queue pairs for the moment.
            let queue = host.begin_raw(self.private_data.as_bytes(), 32);
            self.open.extend(queue.ok().map(|queue| (queue, 0)));
        }
    }
}

/// Connections without end, each of which ends as soon as it has got so far.
#[track_caller]
fn assert_connections_harm_nobody(until: Until, private_data: CmRequest, least: usize) {
    let mut connections = Connections::new(until, private_data);
    assert_unharmed(MEMORY, |_| (), |world| connections.step(&mut world.hosts[HOSTILE].host));
    assert!(connections.done > least, "{} connections of the flood", connections.done);
}

#[test]
fn a_flood_of_connects() {
    assert_connections_harm_nobody(Until::Connected, CmRequest::new(0, 32), 20);
}

#[test]
fn a_flood_of_connections() {
    assert_connections_harm_nobody(Until::Established, CmRequest::new(0, 32), 20);
}

#[test]
fn a_flood_of_requests_that_nobody_waits_for() {
    assert_connections_harm_nobody(Until::Requested, CmRequest::new(0, 32), 100);
}

/// An entry of the queue less than the least: a reject for each.
#[test]
fn a_flood_of_bad_requests() {
    assert_connections_harm_nobody(Until::Requested, CmRequest::new(0, 1), 100);
}

/// The discovery log, as much and as often as it goes.
#[test]
fn a_flood_of_discovery() {
    let mut done = 0;
    assert_unharmed(
        MEMORY,
        |world| {
            world.hosts[HOSTILE].host.settings_mut().subnqn = DISCOVERY_NQN.to_owned();
            let World { core, hosts, .. } = world;
            hosts[HOSTILE].host.connect(&mut || core.turn()).expect("connected");
        },
        |world| {
            done += flood(world, 0, |_, cid| {
                let mut entry = SubmissionQueueEntry::new(admin::GET_LOG_PAGE, cid, 0);
                entry.set_dword(10, (16384 / 4 - 1) << 16 | u32::from(lid::DISCOVERY));
                (entry, Transfer::FromTarget(16384))
            });
        },
    );
    assert!(done > 100, "{done} log pages");
}

/// Valid reads as many as two queues hold, from two connections against one: each host gets its
/// share, which is half.
#[test]
fn a_flood_of_valid_commands() {
    let mut world = world();
    world.connect(HOSTILE, 2);
    let mut done = 0;
    // It asks for more than half: all that the core would do for it alone.
    let interval = half_of_capacity(MEMORY) / 2;
    run(&mut world, MEMORY, interval, |world| {
        for queue in [1, 2] {
            done += flood(world, queue, |_, _| (read(MEMORY), Transfer::FromTarget(4096)));
        }
    });
    let honest = BURST * BURSTS;
    assert!(honest * 100 >= done * 95, "the flood got {done} reads, the honest host {honest}");
    assert!(done * 2 > honest, "the flood got {done} reads: it has a share too");
    assert!(world.core.target.counters.read(TargetCounter::WaitsForTurn) > 0);
}

/// Keep Alive and new timeouts without end.
#[test]
fn a_flood_of_keep_alives() {
    let mut done = 0;
    assert_unharmed(
        MEMORY,
        |world| world.connect(HOSTILE, 1),
        |world| {
            done += flood(world, 0, |_, cid| {
                let mut entry = SubmissionQueueEntry::new(admin::SET_FEATURES, cid, 0);
                entry.set_dword(10, feature::KEEP_ALIVE_TIMER.into());
                entry.set_dword(11, u32::from(cid) * 7919);
                let keep_alive = SubmissionQueueEntry::new(admin::KEEP_ALIVE, cid, 0);
                (if cid % 2 == 0 { entry } else { keep_alive }, Transfer::None)
            });
        },
    );
    assert!(done > 1000, "{done} commands");
}
