//! A disk that fails, moves a part, loses what it has, or hangs: what hosts see, on every core.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{AT, NQN, Pair, target_config};
use iwarp_nvmf::backend::faults::FaultPlan;
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::host::{BlockRange, HostSettings, Transfer};
use iwarp_nvmf::target::IoCounters;
use iwarp_nvmf::wire::opcode::io;
use iwarp_nvmf::wire::{Status, SubmissionQueueEntry};

const QUEUES: u16 = 4;

/// A target of two cores with a file, and a host with queues on both.
struct Bench {
    _folder: tempfile::TempDir,
    config: TargetConfig,
    faults: Arc<FaultPlan>,
    pair: Pair,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let path = folder.path().join("disk");
        std::fs::File::create(&path).and_then(|file| file.set_len(4 << 20)).expect("a file");
        let config = target_config(&format!(
            "[stack.core]\ncount = 2\n[limits]\nbuffers = 8\ncapsules = 1024\n[[subsystem]]\nnqn = \"{NQN}\"\n\
             allow_any_host = true\n[[subsystem.namespace]]\nnsid = 1\nblock_bytes = 4096\n\
             backend.file = {{ path = {path:?} }}\n"
        ));
        let faults = Arc::new(FaultPlan::default());
        let settings = HostSettings::new(AT.parse().expect("an address"), NQN);
        let mut pair = Pair::with_faults(&config, settings, Some(faults.clone()));
        pair.connect(QUEUES);
        Bench { _folder: folder, config, faults, pair }
    }

    /// Executes a command on a queue. Returns its status.
    fn execute(&mut self, queue: u16, entry: SubmissionQueueEntry, data: &mut [u8]) -> Status {
        let Pair { host, side, .. } = &mut self.pair;
        let bytes = data.len() as u32;
        let transfer = match entry.opcode {
            io::READ => Transfer::FromTarget(bytes),
            io::WRITE => Transfer::ToTarget(bytes),
            _ => Transfer::None,
        };
        let done = host.execute(queue.into(), entry, transfer, data, &mut || side.turn());
        done.expect("a response").status()
    }

    fn write(&mut self, queue: u16, slba: u64, flags: u32) -> Status {
        let range = BlockRange { nsid: 1, slba, blocks: 4 };
        let mut entry = range.entry(io::WRITE);
        entry.set_dword(12, entry.dword(12) | flags);
        self.execute(queue, entry, &mut [slba as u8 + 1; 4 * 4096])
    }

    fn read(&mut self, queue: u16, slba: u64) -> Status {
        let mut found = [0; 4 * 4096];
        let status = self.execute(queue, BlockRange { nsid: 1, slba, blocks: 4 }.entry(io::READ), &mut found);
        assert!(
            !status.is_success() || found.iter().all(|&byte| byte == slba as u8 + 1),
            "the data of {slba}"
        );
        status
    }

    fn flush(&mut self, queue: u16) -> Status {
        self.execute(queue, SubmissionQueueEntry::new(io::FLUSH, 0, 1), &mut [])
    }

    fn zeroes(&mut self, queue: u16) -> Status {
        self.execute(queue, BlockRange { nsid: 1, slba: 100, blocks: 4 }.entry(io::WRITE_ZEROES), &mut [])
    }

    fn counters(&self) -> Arc<IoCounters> {
        self.pair.side.target.subsystems()[0].namespaces()[&1].counters.clone()
    }

    /// Reads the same configuration again, while the cores are polled.
    fn reload(&mut self) -> String {
        let crate::common::TargetSide { reactors, namespaces, .. } = &mut self.pair.side;
        let config = &self.config;
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| namespaces.reload(config));
            while !reload.is_finished() {
                reactors.iter_mut().for_each(|one| {
                    one.poll().expect("the target runs");
                });
            }
            reload.join().expect("no panic").to_string()
        })
    }
}

/// FUA, bit 30 of dword 12.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;

/// Linux reports a write-back error to one fdatasync. No other Flush, of any core and host, may
/// hide it.
#[test]
fn a_failed_sync_fails_all_that_follows_on_every_core() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(1, 0, FORCE_UNIT_ACCESS), Status::SUCCESS);
    assert_eq!(bench.flush(1), Status::SUCCESS);
    bench.faults.lose_sync.store(true, Ordering::Relaxed);
    assert_eq!(bench.flush(1), Status::WRITE_FAULT);
    assert!(!bench.faults.lose_sync.load(Ordering::Relaxed), "it was lost once");
    for queue in 1..=QUEUES {
        assert_eq!(bench.flush(queue), Status::WRITE_FAULT, "queue {queue}");
        assert_eq!(bench.write(queue, 8, 0), Status::WRITE_FAULT);
        assert_eq!(bench.write(queue, 8, FORCE_UNIT_ACCESS), Status::WRITE_FAULT);
        assert_eq!(bench.zeroes(queue), Status::WRITE_FAULT);
        assert_eq!(bench.read(queue, 0), Status::SUCCESS);
    }
    assert_eq!(bench.counters().sync_errors.load(Ordering::Relaxed), 1);
    // A reload of the same configuration opens the medium again.
    assert_eq!(bench.reload(), format!("changed: {NQN} 1"));
    for queue in 1..=QUEUES {
        assert_eq!(bench.write(queue, 8, FORCE_UNIT_ACCESS), Status::SUCCESS);
        assert_eq!((bench.flush(queue), bench.read(queue, 8)), (Status::SUCCESS, Status::SUCCESS));
    }
    assert_eq!(bench.reload(), "nothing has changed");
}

#[test]
fn errors_of_the_disk_are_named_and_counted_and_pass() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(1, 0, 0), Status::SUCCESS);
    bench.faults.eio.store(65_536, Ordering::Relaxed);
    assert_eq!(bench.read(1, 0), Status::UNRECOVERED_READ_ERROR);
    assert_eq!(bench.write(2, 8, 0), Status::WRITE_FAULT);
    bench.faults.eio.store(0, Ordering::Relaxed);
    assert_eq!((bench.read(1, 0), bench.write(2, 8, 0)), (Status::SUCCESS, Status::SUCCESS));
    let counters = bench.counters();
    let counts =
        [&counters.read_errors, &counters.write_errors, &counters.media_errors, &counters.sync_errors];
    assert_eq!(counts.map(|one| one.load(Ordering::Relaxed)), [1, 1, 2, 0]);
}

#[test]
fn what_the_disk_moves_in_parts_arrives_whole() {
    let mut bench = Bench::new();
    bench.faults.short.store(65_536, Ordering::Relaxed);
    for slba in 0..8 {
        assert_eq!(bench.write(1 + slba as u16 % QUEUES, slba * 4, 0), Status::SUCCESS);
    }
    for slba in 0..8 {
        assert_eq!(bench.read(1 + slba as u16 % QUEUES, slba * 4), Status::SUCCESS);
    }
    assert!(bench.counters().short_transfers.load(Ordering::Relaxed) >= 16);
    assert_eq!(bench.counters().media_errors.load(Ordering::Relaxed), 0);
}

/// The data buffer stays with the Write until the disk has it.
#[test]
fn a_disk_that_hangs_completes_when_it_comes_back() {
    let mut bench = Bench::new();
    bench.faults.hang.store(true, Ordering::Relaxed);
    let Pair { host, .. } = &mut bench.pair;
    let cid = host.reserve(1).expect("a command");
    host.write_buffer(1, cid, &[9; 4 * 4096]).expect("room");
    let transfer = host.transfer_to_target(4 * 4096);
    host.send(1, cid, BlockRange { nsid: 1, slba: 8, blocks: 4 }.entry(io::WRITE), transfer).expect("sent");
    bench.pair.until("the disk has the Write", |pair| {
        pair.side.reactors.iter().map(|one| one.usage().free_buffers).sum::<usize>() < 16
    });
    bench.faults.hang.store(false, Ordering::Relaxed);
    let mut status = None;
    bench.pair.until("its response", |pair| {
        status = pair.host.next_completion(1).map(|done| done.entry.status());
        status.is_some()
    });
    assert_eq!(status, Some(Status::SUCCESS));
}
