//! A host: random commands on all of its queues, until a connection ends; then it connects again,
//! reads every block, and repeats what had no response, as every NVMe host does.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ironwarp::instrument::PortControl;
use ironwarp::{Config, Stack};
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::host::{Host, HostSettings};
use serde_json::json;

use super::model::{BLOCK_BYTES, BLOCKS, Extent, FILE_NSID, MEMORY_NSID, Model};
use super::work::{EXTENT_BLOCKS, Failure, Kind, Work, violation};
use super::{
    EndError, NQN, Order, REPORT_INTERVAL, epoch_of, held, model_of, nonzero, orders, report, set_faults,
};
use crate::args::EndArgs;

/// The time for a response while a session is set up.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a lost session connects again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The time in which all blocks are verified after the order to stop.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which everything must be released after the last connection.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
const QUEUE_ENTRIES: u16 = 16;
/// The keep-alive timeout: longer than a process is stopped.
const KATO_MS: u32 = 8000;

/// Orders and reports.
struct Control {
    orders: Receiver<Order>,
    ports: Vec<PortControl>,
    fault_seed: u64,
    is_going: bool,
    stop_ordered: Option<Instant>,
    next_report: Instant,
}

impl Control {
    /// Takes orders. Called between polls, also while a session is set up.
    fn turn(&mut self) {
        match self.orders.try_recv() {
            Ok(Order::Go) => self.is_going = true,
            Ok(Order::Faults(rates)) => {
                self.fault_seed += 1;
                set_faults(&self.ports, self.fault_seed, rates);
            }
            Ok(Order::Reload | Order::Disk(_)) | Err(TryRecvError::Empty) => {}
            Ok(Order::Stop) | Err(TryRecvError::Disconnected) => {
                self.stop_ordered.get_or_insert_with(Instant::now);
            }
        }
    }
}

/// Runs a host until it is ordered to stop.
pub(super) fn run(args: &EndArgs) -> Result<(), EndError> {
    let folder = &args.folder;
    let (stack, workers) = Stack::builder(Config::from_file(&args.config[0])?).build()?;
    let ports = workers.iter().flat_map(|worker| worker.port_controls()).collect();
    let settings = HostSettings {
        hostid: [args.number as u8 + 1; 16],
        hostnqn: format!("nqn.2014-08.org.ironwarp:soak-{}", args.number),
        kato_ms: KATO_MS,
        queue_entries: QUEUE_ENTRIES,
        buffer_bytes: EXTENT_BLOCKS * BLOCK_BYTES as u32,
        // Every second host lets the target invalidate the tag of each command.
        invalidate: args.number.is_multiple_of(2),
        timeout: SET_UP_TIMEOUT,
        ..HostSettings::new(args.at, NQN)
    };
    let host = Host::new(&stack, workers, settings)?;
    let model = Model::open(&model_of(folder, args.number), args.number)?;
    let control = Control {
        orders: orders(),
        ports,
        fault_seed: 0,
        is_going: false,
        stop_ordered: None,
        next_report: Instant::now(),
    };
    let work = Work::new(host, model, args.seed);
    let mut end = HostEnd { work, control, queues: args.number as u16 + 1 };
    report("ready", json!({}));
    let outcome = end.serve(folder);
    match &outcome {
        Err(error) => report("failed", json!({ "why": error.to_string() })),
        Ok(()) => {
            let counts = end.work.counts.json(None);
            let details = json!({ "counts": counts, "counters": nonzero(&stack) });
            report("stopped", details);
        }
    }
    outcome
}

struct HostEnd {
    work: Work,
    control: Control,
    queues: u16,
}

impl HostEnd {
    fn serve(&mut self, folder: &Path) -> Result<(), EndError> {
        while !self.control.is_going && self.control.stop_ordered.is_none() {
            self.turn()?;
        }
        loop {
            match self.session(folder) {
                Ok(()) => break,
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Lost(reason)) => {
                    self.work.counts.add("lost", 1);
                    report("lost", json!({ "reason": reason }));
                }
            }
            self.work.forget();
            self.close()?;
            let again = Instant::now() + RETRY_INTERVAL;
            while Instant::now() < again {
                self.turn()?;
            }
            if self.control.stop_ordered.is_some_and(|at| at.elapsed() > VERIFY_TIMEOUT) {
                let why = format!("the blocks are not verified {VERIFY_TIMEOUT:?} after the order to stop");
                return Err(why.into());
            }
        }
        set_faults(&self.control.ports, 0, Default::default());
        self.close()?;
        self.release()
    }

    /// Connects, verifies and works until the order to stop, then verifies again.
    fn session(&mut self, folder: &Path) -> Result<(), Failure> {
        let HostEnd { work, control, queues } = self;
        work.host.connect(&mut || control.turn()).map_err(set_up_failure)?;
        work.host.connect_io_queues(*queues, &mut || control.turn()).map_err(set_up_failure)?;
        work.counts.add("connects", 1);
        // The connections are with the target that runs now. If it is killed, they end before the
        // next one is there.
        work.model.begin_epoch(epoch_of(folder)?)?;
        self.verify()?;
        while self.control.stop_ordered.is_none() {
            while let Some(queue) = self.work.queue_with_room() {
                self.work.send_random(queue)?;
            }
            self.step()?;
        }
        set_faults(&self.control.ports, 0, Default::default());
        self.verify()
    }

    /// Reads every block, then repeats the Writes without a response.
    fn verify(&mut self) -> Result<(), Failure> {
        self.drain()?;
        let all = |nsid| Extent { nsid, first: 0, blocks: BLOCKS }.each();
        let blocks = || [FILE_NSID, MEMORY_NSID].into_iter().flat_map(all);
        self.send_all(blocks().map(|block| (Kind::Read, block)).collect())?;
        let repeat = |block| match self.work.model.is_zeros(block) {
            true => (Kind::Zeroes, block),
            false => (Kind::Write, block),
        };
        let unconfirmed = blocks().filter(|&block| !self.work.model.is_confirmed(block)).map(repeat);
        let unconfirmed: VecDeque<_> = unconfirmed.collect();
        self.work.counts.add("repeated", unconfirmed.len() as u64);
        self.send_all(unconfirmed)
    }

    fn send_all(&mut self, mut commands: VecDeque<(Kind, Extent)>) -> Result<(), Failure> {
        while !commands.is_empty() {
            while let Some(queue) = self.work.queue_with_room() {
                let Some((kind, extent)) = commands.pop_front() else { break };
                self.work.send(queue, kind, extent)?;
            }
            self.step()?;
        }
        self.drain()
    }

    fn drain(&mut self) -> Result<(), Failure> {
        while !self.work.is_idle() {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Failure> {
        self.turn()?;
        self.work.reap()
    }

    /// Polls, takes orders and reports.
    fn turn(&mut self) -> Result<(), NvmfError> {
        if !self.work.host.poll()? {
            std::thread::yield_now();
        }
        self.control.turn();
        for what in self.work.disk_errors.drain(..) {
            report("disk", json!({ "what": what }));
        }
        if Instant::now() >= self.control.next_report {
            self.control.next_report = Instant::now() + REPORT_INTERVAL;
            let counts = self.work.counts.json(Some(self.work.host.queues()));
            report("stats", counts);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), NvmfError> {
        let HostEnd { work, control, .. } = self;
        work.host.close(&mut || control.turn())
    }

    /// Waits until the stack holds nothing of the connections.
    fn release(&mut self) -> Result<(), EndError> {
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        loop {
            self.turn()?;
            let usages = self.work.host.workers().iter().map(|worker| worker.resource_usage());
            let held: Vec<_> = usages.filter_map(held).collect();
            if held.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("held after the last connection: {held:?}").into());
            }
        }
    }
}

/// Whatever fails while a session is set up may be the end of a connection, or the controller of a
/// session before it.
fn set_up_failure(error: NvmfError) -> Failure {
    match error {
        NvmfError::Protocol(why) => violation(why),
        error => Failure::Lost(error.to_string()),
    }
}
