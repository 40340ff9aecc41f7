//! A queue: the commands of one connection.
//!
//! Takes submission queue entries and returns the next [`Step`]. A step that needs data of the host continues with
//! [`Queue::received`]. Each command ends with [`Queue::completion`], which makes its completion queue entry.
//!
//! SQHD moves when a command completes: an entry is consumed when its receive is posted again, and only then may the
//! host send another (Fabrics 1.1, 2.4).

use std::collections::VecDeque;
use std::sync::Arc;

use super::controller::{Controller, ErrorRecord};
use super::subsystem::{Namespace, NamespaceList};
use super::{IoCommand, Target};
use crate::wire::fabrics::SQ_HEAD_FLOW_CONTROL_OFF;
use crate::wire::opcode::{FABRICS, fctype};
use crate::wire::sgl::DataPointer;
use crate::wire::{CompletionQueueEntry, FUSE_MASK, PSDT_MASK, PSDT_SGL, Status, SubmissionQueueEntry};

/// What a capsule and a transfer may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapsuleLimits {
    /// Bytes of data that arrived in the capsule.
    pub bytes: u32,
    /// The time in milliseconds.
    pub now_ms: u64,
}

/// The result and status of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// Dwords 0 and 1.
    pub result: u64,
    /// The status.
    pub status: Status,
}

impl From<Status> for Response {
    fn from(status: Status) -> Self {
        Response { result: 0, status }
    }
}

/// What the transport does next.
#[derive(Debug)]
pub enum Step {
    /// Sends the response.
    Respond(Response),
    /// Moves data to the host, then sends a response of success.
    ToHost {
        /// The data, as long as the pointer says.
        data: Vec<u8>,
        /// Where it goes.
        pointer: DataPointer,
    },
    /// Fetches the first `bytes` bytes, then calls [`Queue::received`].
    FromHost {
        /// Where the data is.
        pointer: DataPointer,
        /// Bytes to fetch, at most the length of the pointer.
        bytes: u32,
    },
    /// Executes an I/O command.
    Io {
        /// The command.
        command: IoCommand,
        /// Where its data is, if it has data.
        pointer: Option<DataPointer>,
    },
    /// Nothing: the command is an Asynchronous Event Request, returned by [`Queue::take_event`].
    Held,
}

/// An Asynchronous Event Request that completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldEvent {
    /// The token of the command.
    pub token: u32,
    /// Its CID.
    pub cid: u16,
    /// Its response.
    pub response: Response,
}

/// A queue of a connection.
pub struct Queue {
    pub(super) target: Arc<Target>,
    /// From the connection request.
    pub(super) qid: u16,
    pub(super) entries: u16,
    pub(super) controller: Option<Arc<Controller>>,
    sq_head: u16,
    pub(super) sq_entries: u16,
    pub(super) flow_control: bool,
    namespaces: NamespaceList,
    namespaces_generation: u64,
    pub(super) held: VecDeque<(u32, u16)>,
}

impl Queue {
    /// A queue that is not connected to a controller yet. `entries` is the size of the submission queue.
    pub fn new(target: Arc<Target>, qid: u16, entries: u16) -> Self {
        Queue {
            target,
            qid,
            entries,
            controller: None,
            sq_head: 0,
            sq_entries: entries,
            flow_control: true,
            namespaces: NamespaceList::default(),
            namespaces_generation: u64::MAX,
            held: VecDeque::new(),
        }
    }

    /// Returns its controller, after Connect.
    pub fn controller(&self) -> Option<&Arc<Controller>> {
        self.controller.as_ref()
    }

    /// Returns QID.
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Returns whether its controller has ended.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.controller.as_ref().is_some_and(|controller| controller.is_ended())
    }

    /// Begins a command. `token` comes back with an Asynchronous Event Request.
    #[inline]
    pub fn start(&mut self, token: u32, entry: &SubmissionQueueEntry, capsule: CapsuleLimits) -> Step {
        self.try_start(token, entry, capsule).unwrap_or_else(|status| Step::Respond(status.into()))
    }

    #[inline]
    fn try_start(
        &mut self,
        token: u32,
        entry: &SubmissionQueueEntry,
        capsule: CapsuleLimits,
    ) -> Result<Step, Status> {
        // Fabrics 1.1, 2.3: commands use SGLs; no fused operation is offered.
        if entry.flags & PSDT_MASK != PSDT_SGL || entry.flags & FUSE_MASK != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let Some(controller) = &self.controller else { return self.before_connect(entry, capsule) };
        controller.seen(capsule.now_ms);
        if entry.opcode == FABRICS {
            return self.fabrics(entry);
        }
        if !controller.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        if self.qid == 0 { self.admin(token, entry, capsule) } else { self.io(entry, capsule) }
    }

    /// Fabrics 1.1, 3.3: Connect is the first command of a queue.
    #[cold]
    fn before_connect(&self, entry: &SubmissionQueueEntry, capsule: CapsuleLimits) -> Result<Step, Status> {
        if entry.opcode != FABRICS || entry.fctype() != fctype::CONNECT {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        self.connect(entry, capsule)
    }

    #[cold]
    fn fabrics(&mut self, entry: &SubmissionQueueEntry) -> Result<Step, Status> {
        match entry.fctype() {
            fctype::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR),
            fctype::PROPERTY_GET if self.qid == 0 => self.property_get(entry),
            fctype::PROPERTY_SET if self.qid == 0 => self.property_set(entry),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Continues a command with the data that [`Step::FromHost`] fetched.
    pub fn received(&mut self, entry: &SubmissionQueueEntry, data: &[u8], now_ms: u64) -> Step {
        if entry.opcode == FABRICS {
            return Step::Respond(self.connect_with(entry, data, now_ms));
        }
        self.deallocate(entry, data).unwrap_or_else(|status| Step::Respond(status.into()))
    }

    /// Records the status of a command that ends.
    #[inline]
    pub fn record(&self, entry: &SubmissionQueueEntry, status: Status) {
        if !status.is_success() {
            self.record_error(entry, status);
        }
    }

    /// Returns the completion queue entry of a command that ends. [`Queue::advance`] follows when it is sent.
    #[inline]
    pub fn completion(&self, cid: u16, response: Response) -> CompletionQueueEntry {
        CompletionQueueEntry {
            result: response.result.into(),
            sq_head: self.next_head().into(),
            sq_id: 0.into(),
            cid: cid.into(),
            status: response.status.to_field().into(),
        }
    }

    /// Moves SQHD.
    #[inline]
    pub fn advance(&mut self) {
        self.sq_head = self.next_head();
    }

    #[inline]
    fn next_head(&self) -> u16 {
        match self.sq_head.wrapping_add(1) {
            _ if !self.flow_control => SQ_HEAD_FLOW_CONTROL_OFF,
            next if next >= self.sq_entries => 0,
            next => next,
        }
    }

    #[cold]
    fn record_error(&self, entry: &SubmissionQueueEntry, status: Status) {
        let Some(controller) = &self.controller else { return };
        let lba = if self.qid == 0 { 0 } else { entry.qword(10) };
        controller.record_error(ErrorRecord {
            count: 0,
            sqid: self.qid,
            cid: entry.cid.get(),
            status,
            lba,
            nsid: entry.nsid.get(),
        });
    }

    /// Returns an Asynchronous Event Request that an event completes.
    #[inline]
    pub fn take_event(&mut self) -> Option<HeldEvent> {
        let controller = self.controller.as_ref()?;
        if !controller.has_event() || self.held.is_empty() {
            return None;
        }
        let result = controller.take_event()?;
        let (token, cid) = self.held.pop_front()?;
        let response = Response { result: result.into(), status: Status::SUCCESS };
        Some(HeldEvent { token, cid, response })
    }

    /// Ends the queue with its connection. An admin queue ends its controller (Fabrics 1.1, 2.5).
    pub fn close(&mut self) {
        let Some(controller) = self.controller.take() else { return };
        controller.state().queues.remove(&self.qid);
        if self.qid == 0 {
            controller.end();
            self.target.remove(&controller);
            tracing::info!("{controller} ended");
        }
    }

    /// Returns a namespace by NSID.
    #[inline]
    pub(super) fn namespace(&mut self, nsid: u32) -> Result<&Arc<Namespace>, Status> {
        let controller = self.controller.as_ref().ok_or(Status::COMMAND_SEQUENCE_ERROR)?;
        let generation = controller.subsystem().generation();
        if generation != self.namespaces_generation {
            self.namespaces = controller.subsystem().namespaces();
            self.namespaces_generation = generation;
        }
        self.namespaces.get(&nsid).ok_or(Status::INVALID_NAMESPACE)
    }

    /// Returns the namespaces by NSID.
    pub(super) fn namespaces(&self) -> NamespaceList {
        self.controller.as_ref().map(|controller| controller.subsystem().namespaces()).unwrap_or_default()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the data pointer of a command that moves exactly `bytes` bytes.
#[inline]
pub(super) fn pointer_of(
    entry: &SubmissionQueueEntry,
    capsule: CapsuleLimits,
    bytes: u32,
) -> Result<DataPointer, Status> {
    let pointer = entry.sgl1.data_pointer(capsule.bytes)?;
    if pointer.length() == bytes { Ok(pointer) } else { Err(Status::DATA_SGL_LENGTH_INVALID) }
}

/// The same for data that goes to the host, which cannot be in the capsule.
#[inline]
pub(super) fn pointer_to_host(
    entry: &SubmissionQueueEntry,
    capsule: CapsuleLimits,
    bytes: u32,
) -> Result<DataPointer, Status> {
    match pointer_of(entry, capsule, bytes)? {
        pointer @ DataPointer::Keyed { .. } => Ok(pointer),
        DataPointer::Capsule { .. } => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
    }
}
