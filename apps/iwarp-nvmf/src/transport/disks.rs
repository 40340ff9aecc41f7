//! The data buffers that requests to disks have, so that disks that hang together leave some.
//!
//! A request takes its buffers along until the disk answers, also after its command has ended. Half
//! of a core's buffers are divided evenly among its disks. Of the other half a disk may have
//! another one while it has less than [`SHARE`] times what is left of that. So each disk has its
//! part whatever the others do, and however many hosts send to those. Other commands for a disk
//! wait without a buffer, or are refused when it is late ([`super::late`]). A core with one disk
//! has nobody to keep buffers for, and gives it all.

use super::Reactor;
use super::connection::CoreIo;
use super::connection::io::block_request;
use crate::target::IoCommand;

/// What a disk may have of the shared half, in parts of what is left of it.
const SHARE: usize = 2;

/// The buffers of a core that disks have.
#[derive(Debug, Default)]
pub(super) struct DiskBuffers {
    /// By the number of the device.
    by_device: Vec<usize>,
    all: usize,
    /// Disks of the core.
    disks: usize,
    /// The part of each disk, and the half that they share.
    reserve: usize,
    shared: usize,
    /// What disks have beyond their parts.
    shared_held: usize,
}

/// What becomes of a command that needs a buffer and a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DiskAdmission {
    /// It may take a buffer.
    Take,
    /// The disk has its share: it waits for the device.
    Wait,
    /// The disk is late.
    Refuse,
}

impl DiskBuffers {
    /// Divides `buffers` among this many disks.
    pub(super) fn divide(&mut self, buffers: usize, disks: usize) {
        self.disks = disks;
        self.shared = buffers.div_ceil(2);
        self.reserve = (buffers - self.shared) / disks.max(1);
        self.shared_held = self.by_device.iter().map(|held| held.saturating_sub(self.reserve)).sum();
    }

    fn set(&mut self, device: usize, change: impl Fn(usize) -> usize) {
        if self.by_device.len() <= device {
            self.by_device.resize(device + 1, 0);
        }
        let Some(place) = self.by_device.get_mut(device) else { return };
        let (before, after) = (*place, change(*place));
        *place = after;
        self.all = self.all + after - before;
        let beyond = |held: usize| held.saturating_sub(self.reserve);
        self.shared_held = self.shared_held + beyond(after) - beyond(before);
    }

    /// A request with this many buffers goes to a disk.
    pub(super) fn add(&mut self, device: usize, buffers: usize) {
        if buffers > 0 {
            self.set(device, |held| held + buffers);
        }
    }

    /// A disk has answered.
    pub(super) fn remove(&mut self, device: usize, buffers: usize) {
        debug_assert!(self.by_device.get(device).copied().unwrap_or(0) >= buffers, "they were added");
        if buffers > 0 {
            self.set(device, |held| held.saturating_sub(buffers));
        }
    }

    /// Returns whether a disk has its part and its share.
    #[inline]
    pub(super) fn has_its_share(&self, device: usize) -> bool {
        let held = self.by_device.get(device).copied().unwrap_or(0);
        let rest = self.shared.saturating_sub(self.shared_held);
        held > 0 && self.disks > 1 && held >= self.reserve && held - self.reserve >= SHARE * rest
    }

    /// Returns the buffers that all disks have.
    pub(super) fn all(&self) -> usize {
        self.all
    }
}

impl CoreIo {
    /// Decides whether a command may take a data buffer for its disk.
    #[inline]
    pub(super) fn admit_to_disk(&mut self, command: &IoCommand) -> DiskAdmission {
        if self.at_disks.has_its_share(command.backend) {
            self.hold_back(command)
        } else {
            DiskAdmission::Take
        }
    }

    #[cold]
    fn hold_back(&mut self, command: &IoCommand) -> DiskAdmission {
        let request = block_request(command, (0, 0), 0);
        if request.is_some_and(|request| self.must_refuse(command.backend, &request)) {
            return DiskAdmission::Refuse;
        }
        if !self.is_resuming {
            self.waited.device += 1;
        }
        DiskAdmission::Wait
    }
}

impl Reactor {
    /// Finds the backends that have to be polled: the disks.
    pub(super) fn find_disks(&mut self) {
        self.polled_backends = self.io.backends.polled();
        let buffers = self.io.memory.limits().buffers as usize;
        self.io.at_disks.divide(buffers, self.polled_backends.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFERS: usize = 128;

    fn of_disks(disks: usize) -> DiskBuffers {
        let mut buffers = DiskBuffers::default();
        buffers.divide(BUFFERS, disks);
        buffers
    }

    fn fill(buffers: &mut DiskBuffers, device: usize) -> usize {
        let mut taken = 0;
        while taken < BUFFERS && !buffers.has_its_share(device) {
            buffers.add(device, 1);
            taken += 1;
        }
        taken
    }

    #[test]
    fn disks_that_hang_one_after_another_leave_the_next_one_its_part() {
        let mut buffers = of_disks(4);
        assert_eq!([0, 1, 2, 3].map(|device| fill(&mut buffers, device)), [59, 30, 21, 18]);
        buffers.remove(0, 59);
        assert_eq!((fill(&mut buffers, 1), buffers.all()), (24, 93), "what one gives back is shared again");
        buffers.divide(BUFFERS, 2);
        let (by_device, shared_held) = (buffers.by_device.clone(), buffers.shared_held);
        assert_eq!((by_device, shared_held), (vec![0, 54, 21, 18], 22), "a disk more or less");
    }

    #[test]
    fn disks_that_hang_at_the_same_moment_leave_the_last_one_its_part() {
        for disks in 2..20 {
            let mut buffers = of_disks(disks);
            while let Some(device) = (1..disks).find(|&device| !buffers.has_its_share(device)) {
                let least = |one: &usize| buffers.by_device.get(*one).copied().unwrap_or(0);
                // They take turns, as hosts do.
                let next = (device..disks).filter(|&one| !buffers.has_its_share(one)).min_by_key(least);
                buffers.add(next.unwrap_or(device), 1);
            }
            assert!(fill(&mut buffers, 0) >= BUFFERS / (2 * disks), "{disks} disks: {buffers:?}");
            assert!(buffers.all() <= BUFFERS, "{buffers:?}");
        }
    }

    #[test]
    fn one_disk_alone_gets_all() {
        assert_eq!(fill(&mut of_disks(1), 0), BUFFERS);
    }
}
