//! The commands that a host has outstanding: each one's blocks, and the check of its response.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ironwarp_types::SeededEntropy;
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::host::{BlockRange, Host, HostCompletion, Transfer};
use iwarp_nvmf::wire::opcode::io;
use iwarp_nvmf::wire::{Status, SubmissionQueueEntry};

use super::model::{BLOCK_BYTES, BLOCKS, Extent, FILE_NSID, FLEETING_NSID, MEMORY_NSID, Model};
use super::{Counts, EndError};

/// Commands outstanding on a queue.
pub(super) const DEPTH: usize = 8;
/// Blocks of a command.
pub(super) const EXTENT_BLOCKS: u32 = 4;
/// The time for a response while the connection stands: longer than any failure.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(40);
/// FUA, bit 30 of dword 12.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// DEAC of Write Zeroes, bit 25 of dword 12.
const DEALLOCATE: u32 = 1 << 25;

/// Why a session ends early.
#[derive(Debug)]
pub(super) enum Failure {
    /// Its connections have ended, or were not established.
    Lost(String),
    /// Something is not as it must be.
    Error(EndError),
}

impl<E: Into<EndError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Error(error.into())
    }
}

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    Write,
    Zeroes,
    Compare,
    Flush,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Read => "reads",
            Kind::Write => "writes",
            Kind::Zeroes => "zeroes",
            Kind::Compare => "compares",
            Kind::Flush => "flushes",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::Zeroes)
    }

    /// The status of a command that the disk fails.
    fn disk_error(self) -> Status {
        match self {
            Kind::Read | Kind::Compare => Status::UNRECOVERED_READ_ERROR,
            Kind::Write | Kind::Zeroes | Kind::Flush => Status::WRITE_FAULT,
        }
    }
}

/// A command without a response.
#[derive(Clone, Copy)]
struct Outstanding {
    kind: Kind,
    extent: Extent,
    since: Instant,
}

/// The host, what it knows, and its commands.
pub(super) struct Work {
    pub(super) host: Host,
    pub(super) model: Model,
    pub(super) counts: Counts,
    /// Commands that the disk has failed, since they were reported last.
    pub(super) disk_errors: Vec<String>,
    rng: SeededEntropy,
    /// By queue and command identifier.
    outstanding: BTreeMap<(usize, u16), Outstanding>,
}

impl Work {
    pub(super) fn new(host: Host, model: Model, seed: u64) -> Self {
        let rng = SeededEntropy::new(seed);
        let (counts, disk_errors) = (Counts::default(), Vec::new());
        Work { host, model, counts, disk_errors, rng, outstanding: BTreeMap::new() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Forgets the commands of connections that have ended. What they wrote stays unconfirmed.
    pub(super) fn forget(&mut self) {
        self.outstanding.clear();
    }

    /// Returns the I/O queue with the fewest commands, if it takes one more.
    pub(super) fn queue_with_room(&self) -> Option<usize> {
        let load = |queue: &usize| self.outstanding.range((*queue, 0)..=(*queue, u16::MAX)).count();
        (1..self.host.queues()).min_by_key(load).filter(|queue| load(queue) < DEPTH)
    }

    /// Sends a random command, unless one of its blocks is in use.
    pub(super) fn send_random(&mut self, queue: usize) -> Result<(), Failure> {
        let nsid = match self.rng.below(8) {
            0..=3 => FILE_NSID,
            4..=6 => MEMORY_NSID,
            _ => FLEETING_NSID,
        };
        let blocks = 1 + self.rng.below(u64::from(EXTENT_BLOCKS)) as u32;
        let first = self.rng.below(u64::from(BLOCKS - blocks + 1)) as u32;
        let extent = Extent { nsid, first, blocks };
        let kind = match self.rng.below(32) {
            0 => Kind::Flush,
            1 | 2 => Kind::Zeroes,
            3 | 4 if nsid != FLEETING_NSID && self.model.is_confirmed(extent) => Kind::Compare,
            5..=17 => Kind::Write,
            _ => Kind::Read,
        };
        if kind != Kind::Flush && self.is_in_use(extent) {
            return Ok(());
        }
        if kind.writes() {
            self.model.send(extent, kind == Kind::Zeroes)?;
        }
        self.send(queue, kind, extent)
    }

    /// Sends a command. A Write carries the versions that the model says were sent.
    pub(super) fn send(&mut self, queue: usize, kind: Kind, extent: Extent) -> Result<(), Failure> {
        let Some(cid) = self.host.reserve(queue) else {
            return Err(violation(format!("queue {queue} has no command identifier left")));
        };
        let bytes = extent.blocks * BLOCK_BYTES as u32;
        let transfer = match kind {
            Kind::Read => Transfer::FromTarget(bytes),
            Kind::Write | Kind::Compare => self.host.transfer_to_target(bytes),
            Kind::Zeroes | Kind::Flush => Transfer::None,
        };
        // What a Read does not overwrite must not look like its result.
        let mut data = vec![0xee; bytes as usize];
        if matches!(kind, Kind::Write | Kind::Compare) {
            self.model.fill(extent, &mut data);
        }
        let entry = self.entry(kind, extent);
        self.host.write_buffer(queue, cid, &data)?;
        self.outstanding.insert((queue, cid), Outstanding { kind, extent, since: Instant::now() });
        match self.host.send(queue, cid, entry, transfer) {
            Ok(()) => Ok(()),
            // The connection has ended, and its event is still to come.
            Err(NvmfError::Verbs(error)) => Err(Failure::Lost(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn entry(&mut self, kind: Kind, extent: Extent) -> SubmissionQueueEntry {
        let range = BlockRange { nsid: extent.nsid, slba: self.model.slba(extent), blocks: extent.blocks };
        let sometimes = |rng: &mut SeededEntropy, flag| if rng.below(8) == 0 { flag } else { 0 };
        let (opcode, flags) = match kind {
            Kind::Read => (io::READ, 0),
            Kind::Write => (io::WRITE, sometimes(&mut self.rng, FORCE_UNIT_ACCESS)),
            Kind::Zeroes => (io::WRITE_ZEROES, sometimes(&mut self.rng, DEALLOCATE)),
            Kind::Compare => (io::COMPARE, 0),
            Kind::Flush => return SubmissionQueueEntry::new(io::FLUSH, 0, extent.nsid),
        };
        let mut entry = range.entry(opcode);
        entry.set_dword(12, entry.dword(12) | flags);
        entry
    }

    /// Takes the responses that have arrived, and checks each.
    pub(super) fn reap(&mut self) -> Result<(), Failure> {
        for queue in 1..self.host.queues() {
            if !self.host.is_up(queue) {
                return Err(Failure::Lost(format!("the connection of queue {queue} has ended")));
            }
            while let Some(done) = self.host.next_completion(queue) {
                self.on_response(&done)?;
                self.host.release(queue, done.cid);
            }
        }
        match self.outstanding.iter().find(|(_, one)| one.since.elapsed() > RESPONSE_TIMEOUT) {
            None => Ok(()),
            Some(((queue, cid), one)) => {
                Err(violation(format!("command {cid} of queue {queue}, {:?}, has no response", one.kind)))
            }
        }
    }

    fn on_response(&mut self, done: &HostCompletion) -> Result<(), Failure> {
        let Some(Outstanding { kind, extent, .. }) = self.outstanding.remove(&(done.queue, done.cid)) else {
            return Err(violation(format!("a response to nothing: {done:?}")));
        };
        let status = done.entry.status();
        if !status.is_success() {
            // A reload has removed it, or made it smaller.
            let is_absent = [Status::INVALID_NAMESPACE, Status::LBA_OUT_OF_RANGE].contains(&status);
            if extent.nsid == FLEETING_NSID && is_absent {
                self.counts.add("absent", 1);
                return Ok(());
            }
            // The run knows whether its disk may fail now. A Write that failed may have taken
            // effect or not, as one without a response.
            if extent.nsid == FILE_NSID && status == kind.disk_error() {
                self.counts.add("failed by the disk", 1);
                self.disk_errors.push(format!("{kind:?}: {status}"));
                return Ok(());
            }
            return Err(violation(format!("{kind:?} of {extent:?}: {status}")));
        }
        let bytes = u64::from(extent.blocks) * BLOCK_BYTES as u64;
        if kind == Kind::Read {
            let mut data = vec![0; bytes as usize];
            self.host.read_buffer(done.queue, done.cid, &mut data)?;
            self.model.check(extent, &data).map_err(|why| violation(format!("Read: {why}")))?;
        }
        if kind.writes() {
            self.model.confirm(extent)?;
        }
        self.counts.add(kind.name(), 1);
        self.counts.add("bytes", if kind == Kind::Flush { 0 } else { bytes });
        Ok(())
    }

    fn is_in_use(&self, extent: Extent) -> bool {
        let overlaps = |one: &Outstanding| {
            let other = one.extent;
            one.kind != Kind::Flush
                && other.nsid == extent.nsid
                && other.first < extent.first + extent.blocks
                && extent.first < other.first + other.blocks
        };
        self.outstanding.values().any(overlaps)
    }
}

pub(super) fn violation(why: String) -> Failure {
    Failure::Error(why.into())
}
