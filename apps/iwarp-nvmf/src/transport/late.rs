//! A disk that does not answer in time: its commands end with a status, and what it still has stays
//! with it.
//!
//! A command whose request is with a backend for longer than [`super::CoreLimits::disk_timeout_ms`]
//! gets Internal Error without DNR (Base 1.4, 4.6.1): the host may try again. (Command Abort
//! Requested needs an Abort of the host, Command Interrupted a host that has enabled Advanced
//! Command Retry, Transient Transport Error promises that a retry succeeds, and the media errors
//! say that the disk answered.)
//!
//! The kernel may still write to or read from the memory of the request. So that becomes an
//! [`Orphan`], which keeps the data buffers, or the capsule with the data, until the disk answers;
//! the slot gets another capsule. A buffer counts for nobody then. A namespace takes no commands
//! while its disk has [`orphans_max`] of them or more, or all disks together
//! [`orphans_together_max`], and none that changes bytes which one of them may still change: they
//! get Namespace Not Ready. What is in flight when disks begin to hang is bounded by
//! [`super::disks`]. Connections that have ended with a request at the disk are released in the
//! same way. A file or block device keeps what may still change it, also when its namespace is
//! replaced or taken out meanwhile and comes back ([`crate::backend::Claim::late`]).
//!
//! The check looks at each slot of the connections that have requests at backends, some times a
//! second.

use std::sync::atomic::Ordering;

use super::Reactor;
use super::buffers::BufferId;
use super::connection::io::block_request;
use super::connection::slot::{Data, State};
use super::connection::wr_id::WrId;
use super::connection::{Connection, CoreIo};
use crate::NvmfError;
use crate::backend::{BlockOperation, BlockRequest};
use crate::target::IoOperation;
use crate::wire::Status;

/// Checks in the time that a disk has: a command ends at most an eighth of it later.
const CHECKS_PER_TIMEOUT: u64 = 8;

/// Orphans with which a namespace takes no more commands: an eighth of a core's buffers, and far
/// fewer than the slots of a ring, so that no command waits for one of those.
pub(super) fn orphans_max(buffers: u32) -> usize {
    (buffers as usize / 8).clamp(1, 64)
}

/// Orphans of all namespaces of a core with which those that have some take no more commands.
pub(super) fn orphans_together_max(buffers: u32) -> usize {
    2 * orphans_max(buffers)
}

/// In place of a capsule that a connection which has ended left to a disk.
pub(super) const NO_CAPSULE: u32 = u32::MAX;

/// A request that the disk still has, of a command that has ended.
#[derive(Debug)]
struct Orphan {
    wr_id: WrId,
    device: usize,
    buffers: [Option<BufferId>; 2],
    capsule: Option<u32>,
    /// What it may change.
    extent: (u64, u64),
}

/// The orphans of a core.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    all: Vec<Orphan>,
    /// Part of the identifiers of new requests. No orphan has it.
    epoch: u16,
}

impl Orphans {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    #[inline]
    pub(super) fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Returns the buffers that disks still have.
    pub(super) fn buffers(&self) -> Vec<BufferId> {
        self.all.iter().flat_map(|one| one.buffers).flatten().collect()
    }

    /// Returns the capsules that disks still have.
    pub(super) fn capsules(&self) -> impl Iterator<Item = u32> {
        self.all.iter().filter_map(|one| one.capsule)
    }

    pub(super) fn uses_device(&self, device: usize) -> bool {
        self.all.iter().any(|one| one.device == device)
    }

    /// Begins an epoch that no orphan has. There are fewer orphans than epochs, since each holds a
    /// slot of a ring.
    fn begin_epoch(&mut self) {
        loop {
            self.epoch = self.epoch.wrapping_add(1);
            if !self.all.iter().any(|one| one.wr_id.epoch() == self.epoch) {
                return;
            }
        }
    }
}

impl CoreIo {
    /// Returns whether a namespace takes no request, or not this one, until its disk has answered.
    #[inline]
    pub(super) fn must_refuse(&self, device: usize, request: &BlockRequest) -> bool {
        let late = self.backends.get(device).map_or(0, |device| device.counters.late.count());
        late > 0 && self.must_refuse_after(late, device, request)
    }

    #[cold]
    fn must_refuse_after(&self, late: usize, device: usize, request: &BlockRequest) -> bool {
        let Some(device) = self.backends.get(device) else { return false };
        let changes = !matches!(request.operation, BlockOperation::Read | BlockOperation::Flush);
        let conflicts = changes && device.counters.late.may_change((request.offset, request.bytes));
        let buffers = self.memory.limits().buffers;
        let are_many = late >= orphans_max(buffers) || self.orphans.len() >= orphans_together_max(buffers);
        let refuses = are_many || conflicts;
        device.counters.refused.fetch_add(refuses.into(), Ordering::Relaxed);
        refuses
    }

    /// A disk has answered. Returns whether the command had ended before.
    #[cold]
    pub(super) fn on_late_answer(&mut self, wr_id: WrId) -> bool {
        let Some(at) = self.orphans.all.iter().position(|one| one.wr_id == wr_id) else { return false };
        let orphan = self.orphans.all.swap_remove(at);
        self.at_disks.remove(orphan.device, orphan.buffers.iter().flatten().count());
        orphan.buffers.into_iter().flatten().for_each(|buffer| self.memory.free_buffer(buffer));
        if let Some(capsule) = orphan.capsule {
            self.memory.return_capsules(&[capsule]);
        }
        if let Some(device) = self.backends.get(orphan.device) {
            device.counters.late_answers.fetch_add(1, Ordering::Relaxed);
            device.counters.late.remove(orphan.extent);
        }
        true
    }
}

impl Connection {
    /// Ends the commands whose requests a disk has had since before `before_ms`. Returns how many.
    fn end_late_commands(&mut self, io: &mut CoreIo, before_ms: u64) -> Result<usize, NvmfError> {
        let mut ended = 0;
        for slot in 0..self.slots.len() as u16 {
            let Some(place) = self.slots.get(usize::from(slot)) else { continue };
            let State::Device(wr_id, since_ms) = place.state else { continue };
            if since_ms < before_ms && self.orphan(io, slot, wr_id)? {
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Ends a command without its request. Returns false if the core has no capsule for the slot
    /// now.
    fn orphan(&mut self, io: &mut CoreIo, slot: u16, wr_id: WrId) -> Result<bool, NvmfError> {
        let index = usize::from(slot);
        let (Some(place), Some(capsule)) = (self.slots.get_mut(index), self.capsules.get_mut(index)) else {
            return Ok(false);
        };
        let Some(command) = &place.command else { return Ok(false) };
        let device = command.backend;
        let mut of_orphan = None;
        if let (IoOperation::Write, Data::Capsule(_)) = (command.operation, place.data) {
            of_orphan = Some(*capsule);
            *capsule = if self.is_ended {
                NO_CAPSULE
            } else {
                let other = io.memory.take_capsules(1).and_then(|taken| taken.first().copied());
                let Some(other) = other else { return Ok(false) };
                place.receive = io.memory.receive(other)?;
                other
            };
        }
        let changes =
            !matches!(command.operation, IoOperation::Read | IoOperation::Compare | IoOperation::Flush);
        let request = block_request(command, (place.range, place.progress), 0).filter(|_| changes);
        let extent = request.map_or((0, 0), |one| (one.offset, one.bytes));
        let data = match core::mem::replace(&mut place.data, Data::None) {
            Data::Buffer(buffer) => Some(buffer),
            _ => None,
        };
        let buffers = [data, place.second.take()];
        buffers.into_iter().flatten().for_each(|buffer| io.memory.orphan(buffer));
        if let Some(device) = io.backends.get(device) {
            device.counters.timeouts.fetch_add(1, Ordering::Relaxed);
            device.counters.late.add(extent);
        }
        io.orphans.all.push(Orphan { wr_id, device, buffers, capsule: of_orphan, extent });
        place.state = State::Receiving;
        self.device_requests = self.device_requests.saturating_sub(1);
        if !self.is_ended {
            self.reply(io, slot, Status::INTERNAL_ERROR.into())?;
        }
        Ok(true)
    }
}

impl Reactor {
    /// Ends what disks have had for too long.
    pub(super) fn check_disks(&mut self) -> Result<(), NvmfError> {
        let (now_ms, timeout_ms) = (self.io.now_ms, self.limits.disk_timeout_ms);
        // What disks answered during a pause is taken first.
        if now_ms < self.next_disk_check_ms || self.catching_up_until_ms.is_some() {
            return Ok(());
        }
        self.next_disk_check_ms = now_ms + timeout_ms / CHECKS_PER_TIMEOUT;
        let Some(before_ms) = now_ms.checked_sub(timeout_ms) else { return Ok(()) };
        let mut ended = 0;
        for index in 0..self.connections.len() {
            let connection = self.connections.get_mut(index).and_then(Option::as_mut);
            let Some(connection) = connection.filter(|one| one.device_requests > 0) else { continue };
            ended += connection.end_late_commands(&mut self.io, before_ms)?;
            if connection.is_ended && connection.device_requests == 0 {
                self.remove(index);
            }
        }
        if ended > 0 {
            self.io.orphans.begin_epoch();
            if self.target.may_log(now_ms) {
                tracing::warn!("{ended} commands end: their disk has not answered within {timeout_ms} ms");
            }
        }
        Ok(())
    }
}
