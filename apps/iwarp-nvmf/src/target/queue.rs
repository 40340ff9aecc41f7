//! A queue: the commands of one connection.
//!
//! Takes submission queue entries and returns the next [`Step`]. A step that needs data of the host
//! continues with [`Queue::received`], one that sends more data than a piece with
//! [`Queue::next_piece`]. Each command ends with [`Queue::completion`], which makes its completion
//! queue entry.
//!
//! ```text
//! Fresh --Connect--> Connecting --its data--> Connected --> Closed
//!   ^                    |   |                    ^
//!   +---- refused -------+   +-> Authenticating --+
//! ```
//!
//! Every step checks the state. One Connect is in flight at a time (Fabrics 1.1, 3.3: it is the
//! first command); another one gets Command Sequence Error. A queue of a host with a secret executes
//! nothing but its authentication first, and has no [`Queue::controller`] until then. A closed queue
//! executes nothing. A queue whose controller has ended gives no response, since a host fails a
//! command for good by a status, and repeats it after a lost connection.
//!
//! SQHD moves when a command completes: an entry is consumed when its receive is posted again, and
//! only then may the host send another (Fabrics 1.1, 2.4).

use core::net::{IpAddr, Ipv4Addr};
use std::collections::VecDeque;
use std::sync::Arc;

use super::authenticate::Authentication;
use super::controller::{Controller, ErrorRecord};
use super::membership::Membership;
use super::subsystem::{Namespace, NamespaceList};
use super::{IoCommand, Target, TargetCounter};
use crate::wire::fabrics::SQ_HEAD_FLOW_CONTROL_OFF;
use crate::wire::opcode::{FABRICS, fctype, io};
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

/// Bytes of data that the engine makes or takes at once: as many as every capsule has room for.
pub const PIECE_BYTES: u32 = 4096;

/// What the transport does next.
#[derive(Debug)]
pub enum Step {
    /// Sends the response.
    Respond(Response),
    /// Moves data to the host, then sends a response of success.
    ToHost {
        /// The first piece: as long as the pointer says, at most [`PIECE_BYTES`].
        /// [`Queue::next_piece`] returns the others.
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
    /// Nothing: the command waits for a computation. [`Queue::authenticating`] returns the next
    /// step.
    Authenticating,
    /// Ends the connection: the controller has ended, on this core or on another.
    End,
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

/// Where a queue is in its life.
#[derive(Debug)]
enum State {
    /// No Connect has arrived, or the last one was refused.
    Fresh,
    /// The data of the Connect with this CID is on its way.
    Connecting(u16),
    /// It belongs to a controller, and its host has to prove itself.
    Authenticating(Membership),
    /// It belongs to a controller.
    Connected(Membership),
    /// Its connection has ended.
    Closed,
}

/// A queue of a connection.
pub struct Queue {
    pub(super) target: Arc<Target>,
    /// Where its connection comes from.
    pub(super) address: IpAddr,
    /// From the connection request.
    pub(super) qid: u16,
    pub(super) entries: u16,
    state: State,
    sq_head: u16,
    pub(super) sq_entries: u16,
    pub(super) flow_control: bool,
    namespaces: NamespaceList,
    namespaces_generation: u64,
    pub(super) held: VecDeque<(u32, u16)>,
    pub(super) auth: Authentication,
}

impl Queue {
    /// A queue that is not connected to a controller yet. `entries` is the size of the submission
    /// queue.
    pub fn new(target: Arc<Target>, qid: u16, entries: u16) -> Self {
        Queue {
            target,
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            qid,
            entries,
            state: State::Fresh,
            sq_head: 0,
            sq_entries: entries,
            flow_control: true,
            namespaces: NamespaceList::default(),
            namespaces_generation: u64::MAX,
            held: VecDeque::new(),
            auth: Authentication::default(),
        }
    }

    /// The same with the address of its host, by which controllers are counted.
    #[must_use]
    pub fn from_address(self, address: IpAddr) -> Self {
        Queue { address, ..self }
    }

    /// Returns its controller, after Connect and authentication.
    #[inline]
    pub fn controller(&self) -> Option<&Arc<Controller>> {
        match &self.state {
            State::Connected(member) => Some(member.controller()),
            _ => None,
        }
    }

    /// Returns its place in a controller, also before its authentication.
    pub(super) fn member(&self) -> Option<&Membership> {
        match &self.state {
            State::Authenticating(member) | State::Connected(member) => Some(member),
            State::Fresh | State::Connecting(_) | State::Closed => None,
        }
    }

    /// Returns whether its host has to prove itself before anything else.
    pub fn awaits_authentication(&self) -> bool {
        matches!(self.state, State::Authenticating(_))
    }

    /// Returns its controller, if that executes commands.
    #[inline]
    fn ready_controller(&self) -> Result<&Arc<Controller>, Status> {
        self.controller().filter(|one| one.is_ready()).ok_or(Status::COMMAND_SEQUENCE_ERROR)
    }

    /// Returns QID.
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Returns whether its controller has ended.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.member().is_some_and(|member| member.controller().is_ended())
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
        let Some(controller) = self.controller() else { return self.before_connect(entry, capsule) };
        if controller.is_ended() {
            return Ok(Step::End);
        }
        controller.seen(capsule.now_ms);
        if entry.opcode == FABRICS {
            return self.fabrics(entry, capsule);
        }
        self.ready_controller()?;
        if self.qid == 0 { self.admin(token, entry, capsule) } else { self.io(entry, capsule) }
    }

    /// Fabrics 1.1, 3.3: Connect is the first command of a queue.
    #[cold]
    fn before_connect(
        &mut self,
        entry: &SubmissionQueueEntry,
        capsule: CapsuleLimits,
    ) -> Result<Step, Status> {
        let fctype = (entry.opcode == FABRICS).then(|| entry.fctype());
        let is_connect = fctype == Some(fctype::CONNECT);
        match self.state {
            State::Authenticating(_) if self.is_ended() => Ok(Step::End),
            State::Authenticating(_) => match fctype {
                Some(fctype::AUTH_SEND) => self.auth_send(entry, capsule),
                Some(fctype::AUTH_RECEIVE) => self.auth_receive(entry, capsule),
                _ => {
                    self.target.counters.add(TargetCounter::CommandsUnauthenticated);
                    Err(Status::AUTHENTICATION_REQUIRED)
                }
            },
            State::Fresh if is_connect => {
                let step = self.connect(entry, capsule)?;
                self.state = State::Connecting(entry.cid.get());
                Ok(step)
            }
            State::Connecting(_) if is_connect => {
                self.target.counters.add(TargetCounter::ConnectsOutOfOrder);
                Err(Status::COMMAND_SEQUENCE_ERROR)
            }
            _ => Err(Status::COMMAND_SEQUENCE_ERROR),
        }
    }

    #[cold]
    fn fabrics(&mut self, entry: &SubmissionQueueEntry, capsule: CapsuleLimits) -> Result<Step, Status> {
        match entry.fctype() {
            fctype::CONNECT => {
                self.target.counters.add(TargetCounter::ConnectsOutOfOrder);
                Err(Status::COMMAND_SEQUENCE_ERROR)
            }
            fctype::AUTH_SEND => self.auth_send(entry, capsule),
            fctype::AUTH_RECEIVE => self.auth_receive(entry, capsule),
            fctype::PROPERTY_GET if self.qid == 0 => self.property_get(entry),
            fctype::PROPERTY_SET if self.qid == 0 => self.property_set(entry),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Continues a command with the data that [`Step::FromHost`] fetched.
    pub fn received(&mut self, entry: &SubmissionQueueEntry, data: &[u8], now_ms: u64) -> Step {
        let step = match self.state {
            State::Connecting(cid) if cid == entry.cid.get() && entry.opcode == FABRICS => {
                self.state = State::Fresh;
                return Step::Respond(self.connect_with(entry, data, now_ms));
            }
            State::Authenticating(_) | State::Connected(_) if self.is_ended() => return Step::End,
            State::Authenticating(_) | State::Connected(_)
                if entry.opcode == FABRICS && entry.fctype() == fctype::AUTH_SEND =>
            {
                return self.auth_message(entry, data, now_ms);
            }
            State::Connected(_) if self.qid > 0 && entry.opcode == io::DATASET_MANAGEMENT => {
                self.ready_controller().map(drop).and_then(|()| self.deallocate(entry, data))
            }
            _ => Err(Status::COMMAND_SEQUENCE_ERROR),
        };
        step.unwrap_or_else(|status| Step::Respond(status.into()))
    }

    /// Returns `bytes` bytes, at most [`PIECE_BYTES`], of the data that a [`Step::ToHost`] began,
    /// from byte `from` on.
    ///
    /// Only a log page can be longer than a piece. What it has changed to since the first piece is
    /// shown, as the specification lets a host find out by the generation counter (Fabrics 1.1,
    /// 5.4).
    pub fn next_piece(&self, entry: &SubmissionQueueEntry, from: u32, bytes: u32) -> Vec<u8> {
        self.log_piece(entry, u64::from(from), bytes.min(PIECE_BYTES))
    }

    /// The queue belongs to a controller, which its host may use after [`Queue::admit`].
    pub(super) fn join(&mut self, member: Membership) {
        self.state = State::Authenticating(member);
    }

    /// Its host need not prove itself, or has done so, for the first time or again. Returns `false`
    /// if the controller has another queue of this number: this one belongs to none then.
    pub(super) fn admit(&mut self, now_ms: u64) -> bool {
        let mut member = match core::mem::replace(&mut self.state, State::Fresh) {
            State::Authenticating(member) => member,
            other => {
                self.state = other;
                return true;
            }
        };
        let is_taken = member.take(self.qid);
        let controller = member.controller();
        if !is_taken {
            if self.target.may_log(now_ms) {
                tracing::warn!("{controller} has another queue {}: that of {} ends", self.qid, self.address);
            }
            return false;
        }
        controller.admit();
        controller.seen(now_ms);
        if self.qid == 0 && self.target.may_log(now_ms) {
            tracing::info!("{controller} connected");
        }
        self.state = State::Connected(member);
        true
    }

    /// Records the status of a command that ends.
    #[inline]
    pub fn record(&self, entry: &SubmissionQueueEntry, status: Status) {
        if !status.is_success() {
            self.record_error(entry, status);
        }
    }

    /// Returns the completion queue entry of a command that ends. [`Queue::advance`] follows when
    /// it is sent.
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
        let Some(controller) = self.controller() else { return };
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
        let controller = self.controller()?;
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
        self.held.clear();
        self.auth = Authentication::default();
        // The guard gives the place back.
        self.state = State::Closed;
    }

    /// Returns a namespace by NSID.
    #[inline]
    pub(super) fn namespace(&mut self, nsid: u32) -> Result<&Arc<Namespace>, Status> {
        let subsystem = self.controller().ok_or(Status::COMMAND_SEQUENCE_ERROR)?.subsystem();
        let generation = subsystem.generation();
        if generation != self.namespaces_generation {
            self.namespaces = subsystem.namespaces();
            self.namespaces_generation = generation;
        }
        self.namespaces.get(&nsid).ok_or(Status::INVALID_NAMESPACE)
    }

    /// Returns the namespaces by NSID.
    pub(super) fn namespaces(&self) -> NamespaceList {
        self.controller().map(|controller| controller.subsystem().namespaces()).unwrap_or_default()
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
