//! The honest host: writes and reads extents of its own, one command for each at a time, and knows
//! what must be there.

use std::collections::BTreeMap;

use ironwarp_types::{Nanos, SeededEntropy};
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::backend::simulated::UNWRITTEN;
use iwarp_nvmf::host::session::Session;
use iwarp_nvmf::host::{BlockRange, Host, Transfer};
use iwarp_nvmf::wire::Status;
use iwarp_nvmf::wire::opcode::io;

use super::{DISK, MEMORY};
use crate::app::SharedOracle;
use crate::plan::StoragePlan;
use crate::text;

/// The time for a response on healthy links. It covers retransmission timers that backed off during
/// the faults, the target's time for a disk, and the time after which it takes buffers from a host
/// that does not move their data.
pub const ANSWER_LIMIT: Nanos = Nanos::from_secs(8);
/// The same for a controller with its queues: slots that others hold are taken from them after some
/// seconds.
pub const CONNECT_LIMIT: Nanos = Nanos::from_secs(30);

/// Extents of each of its namespaces, and blocks from one to the next.
const EXTENTS: usize = 6;
const EXTENT_BLOCKS: u64 = 16;
const CAPSULE_BYTES: usize = 4096;
/// Entries of its I/O queue: more than its commands.
const ENTRIES: u16 = 32;
/// What a command may have if its disk hangs or fails.
const FAILURES: [Status; 4] = [
    Status::INTERNAL_ERROR,
    Status::NAMESPACE_NOT_READY,
    Status::WRITE_FAULT,
    Status::UNRECOVERED_READ_ERROR,
];

/// What an extent has: bytes that are all the same, or those of a Write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    Filled(u8),
    Written(u32),
}

impl Version {
    /// The bytes differ from those of other versions at nearly every offset.
    fn byte(self, at: usize) -> u8 {
        match self {
            Version::Filled(byte) => byte,
            Version::Written(number) => {
                ((number.wrapping_mul(0x9e37_79b1) ^ (at as u32).wrapping_mul(0x85eb_ca6b)) >> 24) as u8
            }
        }
    }

    fn bytes(self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| self.byte(at)).collect()
    }
}

/// A command without a response.
struct Outstanding {
    extent: usize,
    write: Option<Version>,
    sent_at: Nanos,
}

/// What it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Commands,
    /// It reads every extent; the next one to send.
    Verify(usize),
    Done,
}

/// The honest host.
pub struct Honest {
    pub(super) host: Host,
    session: Session,
    plan: StoragePlan,
    /// The time from one command to the next, until the links heal.
    pace: Nanos,
    next_at: Nanos,
    rng: SeededEntropy,
    /// What an extent may have.
    may_have: Vec<Vec<Version>>,
    is_busy: Vec<bool>,
    outstanding: BTreeMap<u16, Outstanding>,
    issued: u32,
    issued_healed: u32,
    writes: u32,
    phase: Phase,
    was_ready: bool,
    oracle: SharedOracle,
}

impl Honest {
    pub fn new(host: Host, plan: &StoragePlan, heal_at: Nanos, oracle: &SharedOracle) -> Self {
        let first = |extent| vec![Version::Filled(if extent < EXTENTS { 0 } else { UNWRITTEN })];
        Honest {
            host,
            session: Session::new(ENTRIES),
            plan: plan.clone(),
            pace: Nanos(heal_at.0 / u64::from(plan.commands)),
            next_at: Nanos::ZERO,
            rng: SeededEntropy::new(plan.seeds[0]),
            may_have: (0..2 * EXTENTS).map(first).collect(),
            is_busy: vec![false; 2 * EXTENTS],
            outstanding: BTreeMap::new(),
            issued: 0,
            issued_healed: 0,
            writes: 0,
            phase: Phase::Commands,
            was_ready: false,
            oracle: oracle.clone(),
        }
    }

    pub fn describe(&self) -> String {
        format!(
            "the honest host: {:?}, {}, {} commands of {} issued, {} without a response",
            self.phase,
            self.session.describe(),
            self.issued,
            self.plan.commands,
            self.outstanding.len()
        )
    }

    pub fn poll(&mut self, now: Nanos) -> Result<bool, String> {
        let mut is_busy = self.host.poll().map_err(text)?;
        self.host.workers_mut().iter_mut().try_for_each(|worker| worker.check())?;
        if self.phase == Phase::Done {
            return Ok(is_busy);
        }
        if let Some(status) = self.session.poll(&mut self.host, now).map_err(text)? {
            return Err(format!("the honest host's Connect fails: {status:?}"));
        }
        let Some([admin, queue]) = self.session.queues() else {
            return self.check_connecting(now).map(|()| is_busy);
        };
        if !core::mem::replace(&mut self.was_ready, true) {
            self.oracle.borrow_mut().totals.established += 1;
        }
        if !self.host.is_up(admin) || !self.host.is_up(queue) {
            return Err("a connection of the honest host has ended".to_owned());
        }
        self.take_responses(now, queue)?;
        self.check_answers(now)?;
        is_busy |= self.go_on(now, queue).map_err(text)?;
        Ok(is_busy)
    }

    pub fn leave(&mut self) -> Result<(), String> {
        self.session.leave(&mut self.host).map_err(text)
    }

    fn healed_at(&self) -> Option<Nanos> {
        let oracle = self.oracle.borrow();
        (!oracle.faulty).then_some(oracle.healed_at)
    }

    fn check_connecting(&self, now: Nanos) -> Result<(), String> {
        match self.healed_at() {
            Some(healed_at) if now > healed_at + CONNECT_LIMIT => {
                Err(format!("no controller {CONNECT_LIMIT:?} after the last fault: {}", self.describe()))
            }
            _ => Ok(()),
        }
    }

    fn check_answers(&self, now: Nanos) -> Result<(), String> {
        let Some(healed_at) = self.healed_at() else { return Ok(()) };
        let is_late = |one: &&Outstanding| now > one.sent_at.max(healed_at) + ANSWER_LIMIT;
        match self.outstanding.values().find(is_late) {
            Some(late) => {
                Err(format!("no response to the command of {:?}: {}", late.sent_at, self.describe()))
            }
            None => Ok(()),
        }
    }

    /// Sends what it may now. Returns whether it did.
    fn go_on(&mut self, now: Nanos, queue: usize) -> Result<bool, NvmfError> {
        let is_healed = self.healed_at().is_some();
        let before = self.issued;
        while self.outstanding.len() < self.plan.depth {
            match self.phase {
                Phase::Commands
                    if self.issued >= self.plan.commands && self.issued_healed >= self.plan.commands / 2 =>
                {
                    if !self.outstanding.is_empty() {
                        break;
                    }
                    self.phase = Phase::Verify(0);
                }
                Phase::Commands
                    if !is_healed && (now < self.next_at || self.issued >= self.plan.commands) =>
                {
                    break;
                }
                Phase::Commands => {
                    let extent = self.rng.below(2 * EXTENTS as u64) as usize;
                    let is_write = self.rng.chance(self.plan.write_ppm);
                    if self.is_busy[extent] {
                        break;
                    }
                    self.writes += u32::from(is_write);
                    let write = is_write.then_some(Version::Written(self.writes));
                    self.send(now, queue, extent, write)?;
                    self.next_at = self.next_at.max(now) + self.pace;
                    self.issued_healed += u32::from(is_healed);
                }
                Phase::Verify(extent) if extent < 2 * EXTENTS => {
                    self.send(now, queue, extent, None)?;
                    self.phase = Phase::Verify(extent + 1);
                }
                Phase::Verify(_) if self.outstanding.is_empty() => {
                    self.phase = Phase::Done;
                    self.oracle.borrow_mut().open -= 1;
                    break;
                }
                Phase::Verify(_) | Phase::Done => break,
            }
        }
        Ok(self.issued > before)
    }

    fn send(
        &mut self,
        now: Nanos,
        queue: usize,
        extent: usize,
        write: Option<Version>,
    ) -> Result<(), NvmfError> {
        let none = || NvmfError::Protocol("the honest host has no command identifier".to_owned());
        let cid = self.host.reserve(queue).ok_or_else(none)?;
        let bytes = bytes_of(extent);
        let data = write.map_or_else(|| vec![0xee; bytes], |version| version.bytes(bytes));
        self.host.write_buffer(queue, cid, &data)?;
        let in_capsule = bytes <= CAPSULE_BYTES && self.rng.chance(self.plan.in_capsule_ppm);
        let (opcode, transfer) = match write {
            Some(_) if in_capsule => (io::WRITE, Transfer::InCapsule(bytes as u32)),
            Some(_) => (io::WRITE, Transfer::ToTarget(bytes as u32)),
            None => (io::READ, Transfer::FromTarget(bytes as u32)),
        };
        self.host.send(queue, cid, range_of(extent).entry(opcode), transfer)?;
        self.is_busy[extent] = true;
        self.issued += 1;
        self.outstanding.insert(cid, Outstanding { extent, write, sent_at: now });
        Ok(())
    }

    /// Takes its responses: one for each command, with the right data.
    fn take_responses(&mut self, now: Nanos, queue: usize) -> Result<(), String> {
        while let Some(done) = self.host.next_completion(queue) {
            let one = self.outstanding.remove(&done.cid);
            let one = one.ok_or_else(|| format!("a second response to command {}", done.cid))?;
            self.is_busy[one.extent] = false;
            let status = done.entry.status();
            let mut found = vec![0; bytes_of(one.extent)];
            self.host.read_buffer(queue, done.cid, &mut found).map_err(text)?;
            self.host.release(queue, done.cid);
            self.check_response(&one, status, &found)?;
            let mut oracle = self.oracle.borrow_mut();
            oracle.totals.succeeded += u64::from(status.is_success());
            oracle.totals.bytes += found.len() as u64;
            oracle.hash_event(now, one.extent, usize::from(status.is_success()), &done.cid.to_be_bytes());
        }
        Ok(())
    }

    fn check_response(&mut self, one: &Outstanding, status: Status, found: &[u8]) -> Result<(), String> {
        let may_have = &mut self.may_have[one.extent];
        if !status.is_success() {
            let may_fail = one.extent >= EXTENTS && self.plan.honest_may_fail() && FAILURES.contains(&status);
            // It took effect, did not, or will.
            may_have.extend(one.write);
            return if may_fail { Ok(()) } else { Err(format!("extent {}: {status:?}", one.extent)) };
        }
        if let Some(version) = one.write {
            *may_have = vec![version];
            return Ok(());
        }
        let is = |version: &Version| found.iter().enumerate().all(|(at, byte)| *byte == version.byte(at));
        match may_have.iter().any(is) {
            true => Ok(()),
            false => {
                Err(format!("extent {} begins with {:?} and not {may_have:?}", one.extent, found.get(..8)))
            }
        }
    }
}

fn range_of(extent: usize) -> BlockRange {
    let nsid = if extent < EXTENTS { MEMORY } else { DISK };
    let blocks = 1 + (extent as u32 * 7) % EXTENT_BLOCKS as u32;
    BlockRange { nsid, slba: (extent % EXTENTS) as u64 * EXTENT_BLOCKS, blocks }
}

fn bytes_of(extent: usize) -> usize {
    range_of(extent).blocks as usize * 512
}
