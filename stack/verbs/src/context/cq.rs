//! Completion queues, the application's half.
//!
//! A queue is one ring from each core that feeds it, merged when it is polled; order is kept per queue pair. Every
//! posted work request has a place promised in the queue before it is accepted, so a completion always finds room.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ironwarp_iwarp::Completion;
use ironwarp_rings::notify::Armed;
use ironwarp_rings::spsc;
use rustix::event::EventfdFlags;

use super::Context;
use crate::core_loop::CqCore;
use crate::error::VerbsError;
use crate::link::Control;
use crate::shared::{Lease, Table, next_object};

/// Names a completion queue of one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CompletionQueue {
    index: u32,
    serial: u32,
}

impl CompletionQueue {
    pub(super) fn slot(self) -> usize {
        self.index as usize
    }
}

/// The most completions a queue may be made for: a ring of them takes 64 MiB.
const DEPTH_MAX: u32 = 1 << 20;

/// The application's half of a completion queue.
pub(super) struct AppCq {
    serial: u32,
    rings: Box<[spsc::Consumer<Completion>]>,
    /// The queue's place in each core's table.
    slots: Box<[u32]>,
    /// The ring that the next poll starts with.
    next: usize,
    pub(super) depth: u32,
    /// Places promised to work requests that were posted and not reaped.
    pub(super) promised: u32,
    pub(super) users: u32,
    armed: Arc<Armed>,
    eventfd: Arc<OwnedFd>,
}

impl Context {
    /// A completion queue with places for `depth` work requests that were posted and not reaped.
    pub fn create_cq(&mut self, depth: u32) -> Result<CompletionQueue, VerbsError> {
        if !(1..=DEPTH_MAX).contains(&depth) {
            let allowed = "1 to 1048576";
            return Err(VerbsError::Attribute {
                what: "completion queue depth",
                value: depth.into(),
                allowed,
            });
        }
        let eventfd = Arc::new(eventfd()?);
        let armed = Arc::new(Armed::default());
        let (mut rings, mut slots) = (Vec::new(), Vec::new());
        (0..self.cores.len()).try_for_each(|core| self.expect_room(core, 1))?;
        for core in 0..self.cores.len() {
            let lease = Lease::take(&self.shared, core as u16, Table::CompletionQueues);
            let lease = lease.ok_or(VerbsError::LimitReached("completion queues"))?;
            let slot = lease.slot();
            let (producer, consumer) = spsc::channel(depth as usize);
            let cq = CqCore::new(lease, producer, armed.clone(), eventfd.clone());
            self.control(core, Control::CreateCq(Box::new(cq)))?;
            rings.push(consumer);
            slots.push(slot);
        }
        let serial = next_object();
        let cq = AppCq {
            serial,
            rings: rings.into(),
            slots: slots.into(),
            next: 0,
            depth,
            promised: 0,
            users: 0,
            armed,
            eventfd,
        };
        let index = place(&mut self.cqs, cq);
        Ok(CompletionQueue { index, serial })
    }

    /// Moves completions into `into`, oldest first per queue pair, and answers how many.
    pub fn poll_cq(&mut self, cq: CompletionQueue, into: &mut [Completion]) -> Result<usize, VerbsError> {
        Ok(self.cq_mut(cq)?.poll(into))
    }

    /// Asks for one event on the queue's descriptor at its next completion, or at its next solicited or failed one.
    ///
    /// Arm, then poll once more: a completion that came before arming raises no event.
    pub fn arm_cq(&mut self, cq: CompletionQueue, solicited_only: bool) -> Result<(), VerbsError> {
        self.cq_mut(cq)?.armed.arm(solicited_only);
        Ok(())
    }

    /// A descriptor that becomes readable once for each arming. Read its eight bytes to rearm it.
    pub fn cq_fd(&self, cq: CompletionQueue) -> Result<BorrowedFd<'_>, VerbsError> {
        Ok(self.cq(cq)?.eventfd.as_fd())
    }

    /// Destroys a completion queue that no queue pair uses any more.
    pub fn destroy_cq(&mut self, cq: CompletionQueue) -> Result<(), VerbsError> {
        if self.cq(cq)?.users > 0 {
            return Err(VerbsError::CompletionQueueInUse);
        }
        (0..self.cores.len()).try_for_each(|core| self.expect_room(core, 1))?;
        for core in 0..self.cores.len() {
            let slot = self.cq(cq)?.slots[core];
            self.control(core, Control::DestroyCq { slot })?;
        }
        self.cqs[cq.index as usize] = None;
        Ok(())
    }

    pub(super) fn cq(&self, cq: CompletionQueue) -> Result<&AppCq, VerbsError> {
        let found = self.cqs.get(cq.index as usize).and_then(Option::as_ref);
        found.filter(|found| found.serial == cq.serial).ok_or(VerbsError::UnknownCompletionQueue)
    }

    pub(super) fn cq_mut(&mut self, cq: CompletionQueue) -> Result<&mut AppCq, VerbsError> {
        let found = self.cqs.get_mut(cq.index as usize).and_then(Option::as_mut);
        found.filter(|found| found.serial == cq.serial).ok_or(VerbsError::UnknownCompletionQueue)
    }
}

impl AppCq {
    pub(super) fn slot_on(&self, core: usize) -> u32 {
        self.slots[core]
    }

    fn poll(&mut self, into: &mut [Completion]) -> usize {
        let mut reaped = 0;
        for turn in 0..self.rings.len() {
            let ring = (self.next + turn) % self.rings.len();
            while reaped < into.len() {
                let Some(completion) = self.rings[ring].pop() else { break };
                into[reaped] = completion;
                reaped += 1;
            }
        }
        self.next = if self.next + 1 < self.rings.len() { self.next + 1 } else { 0 };
        self.promised = self.promised.saturating_sub(reaped as u32);
        reaped
    }
}

/// Puts `object` into the first free place.
pub(super) fn place<T>(table: &mut Vec<Option<T>>, object: T) -> u32 {
    let free = table.iter().position(Option::is_none);
    let index = free.unwrap_or_else(|| {
        table.push(None);
        table.len() - 1
    });
    table[index] = Some(object);
    index as u32
}

fn eventfd() -> Result<OwnedFd, VerbsError> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|source| VerbsError::System { what: "eventfd", source: source.into() })
}
