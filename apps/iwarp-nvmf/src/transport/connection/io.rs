//! I/O commands of a connection: between the host's memory, the data buffers and the backend.
//!
//! A Write or Compare takes its data buffer when its RDMA Read is sent, and no more Reads are
//! outstanding than the host agreed to (ORD). A Read takes it when it goes to the backend. Both
//! keep it until the host has taken part.

use std::sync::atomic::Ordering;

use ironwarp::{RemoteMemory, STag, SendWr};

use super::compare::is_mapped;
use super::slot::{Data, Next, State, Then};
use super::wr_id::WrId;
use super::{Connection, CoreIo, is_full};
use crate::NvmfError;
use crate::backend::{BlockError, BlockOperation, BlockRequest, Submission};
use crate::target::{IoCommand, IoOperation, Step};
use crate::transport::devices::Device;
use crate::transport::disks::DiskAdmission;
use crate::transport::party::Weight;
use crate::transport::wait::Resource;
use crate::wire::Status;
use crate::wire::sgl::DataPointer;

impl Connection {
    /// Begins an I/O command: finds memory for its data, and fetches it if the host sends it.
    #[inline]
    pub(super) fn begin_io(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        command: IoCommand,
        pointer: Option<DataPointer>,
    ) -> Result<(), NvmfError> {
        let index = usize::from(slot);
        let Some(place) = self.slots.get_mut(index) else { return Ok(()) };
        let Some(Device { backend, .. }) = io.backends.get(command.backend) else {
            return self.reply(io, slot, Status::INTERNAL_ERROR.into());
        };
        let reads = command.operation == IoOperation::Read;
        let from_host = !reads && matches!(pointer, Some(DataPointer::Keyed { .. }));
        let data = match pointer {
            None => Data::None,
            Some(DataPointer::Capsule { offset, .. }) => {
                let capsule = self.capsules.get(index).copied().unwrap_or_default();
                Data::Capsule(io.memory.capsule_offset(capsule) + offset as usize)
            }
            Some(pointer @ DataPointer::Keyed { .. }) => {
                let is_compare = command.operation == IoOperation::Compare;
                let mapped = backend.mapped(command.offset, pointer.length(), !reads);
                match mapped.filter(|_| !is_compare) {
                    Some(sge) => Data::Mapped(sge),
                    // `fetch` takes the buffer.
                    None if from_host => Data::None,
                    None => {
                        let admission = io.admit_to_disk(&command);
                        if admission != DiskAdmission::Take {
                            place.pointer = Some(pointer);
                            return self.wait_for_disk(io, slot, (command, pointer), admission);
                        }
                        let Some(buffer) = io.take_buffer(self.who) else {
                            let again = Step::Io { command, pointer: Some(pointer) };
                            self.wait(io, slot, (Resource::Buffers, Next::Run(again)));
                            return Ok(());
                        };
                        Data::Buffer(buffer)
                    }
                }
            }
        };
        (place.data, place.command) = (data, Some(command));
        (place.range, place.progress) = (0, 0);
        // Ranges of Dataset Management came from a pointer that the response may have to
        // invalidate.
        place.pointer = pointer.or(place.pointer);
        if from_host { self.fetch(io, slot, Then::Io) } else { self.continue_io(io, slot) }
    }

    /// Lets a command wait for its disk, or refuses it.
    #[cold]
    fn wait_for_disk(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        (command, pointer): (IoCommand, DataPointer),
        admission: DiskAdmission,
    ) -> Result<(), NvmfError> {
        if admission == DiskAdmission::Refuse {
            return self.reply(io, slot, Status::NAMESPACE_NOT_READY.into());
        }
        let device = command.backend;
        let again = Step::Io { command, pointer: Some(pointer) };
        self.wait(io, slot, (Resource::Device(device), Next::Run(again)));
        Ok(())
    }

    /// Posts the RDMA Read of the host's data into a data buffer, the medium, or the capsule's
    /// memory.
    #[inline]
    pub(super) fn fetch(&mut self, io: &mut CoreIo, slot: u16, then: Then) -> Result<(), NvmfError> {
        if self.reads_since.len() >= usize::from(self.ord)
            || !io.is_resuming && io.waits.reads.has_connection(self.who)
        {
            self.wait(io, slot, (Resource::Reads, Next::Fetch(then)));
            return Ok(());
        }
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some(DataPointer::Keyed { address, length, key, .. }) = place.pointer else { return Ok(()) };
        let bytes = if let Then::Engine(bytes) = then { bytes } else { length };
        if place.data == Data::None
            && let Some(command) = &place.command
        {
            match io.admit_to_disk(command) {
                DiskAdmission::Take => {}
                DiskAdmission::Wait => {
                    let device = command.backend;
                    self.wait(io, slot, (Resource::Device(device), Next::Fetch(then)));
                    return Ok(());
                }
                DiskAdmission::Refuse => return self.reply(io, slot, Status::NAMESPACE_NOT_READY.into()),
            }
        }
        if place.data == Data::None {
            let Some(buffer) = io.take_buffer(self.who) else {
                self.wait(io, slot, (Resource::Buffers, Next::Fetch(then)));
                return Ok(());
            };
            place.data = Data::Buffer(buffer);
        }
        let sink = match place.data {
            Data::Buffer(buffer) => io.memory.slice(io.memory.buffer_offset(buffer), bytes)?,
            Data::Capsule(at) => io.memory.slice(at, bytes)?,
            Data::Mapped(sge) => sge,
            Data::None => return Ok(()),
        };
        let from = RemoteMemory { stag: STag(key), tagged_offset: address };
        let wr_id = WrId::read(self.who.connection, slot).0;
        match io.ctx.post_send(self.qp, &SendWr::read(wr_id, &[sink], from)) {
            Ok(()) => {
                place.state = State::Fetching(then);
                self.reads_since.push_back(io.now_ms);
            }
            Err(error) if is_full(&error) => {
                if let Data::Buffer(buffer) = place.data {
                    io.memory.free_buffer(buffer);
                    place.data = Data::None;
                }
                self.wait(io, slot, (Resource::Send, Next::Fetch(then)));
            }
            // The connection is ending; the slot is released with it.
            Err(_) => {}
        }
        Ok(())
    }

    /// The data of the host has arrived.
    #[inline]
    pub(in crate::transport) fn on_fetched(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get(usize::from(slot)) else { return Ok(()) };
        match (&place.state, place.data) {
            (State::Fetching(Then::Io), _) => self.continue_io(io, slot),
            (State::Fetching(Then::Engine(bytes)), Data::Capsule(at)) => {
                let bytes = *bytes;
                self.pass_to_engine(io, slot, at, bytes)
            }
            _ => Ok(()),
        }
    }

    /// Continues when the data of the host, if there is any, is here.
    #[inline]
    pub(super) fn continue_io(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get(usize::from(slot)) else { return Ok(()) };
        let Some(command) = &place.command else { return Ok(()) };
        match (command.operation, place.data) {
            // RDMA moves it between the host and the medium.
            (IoOperation::Read | IoOperation::Write, Data::Mapped(_)) => {
                self.reply(io, slot, Status::SUCCESS.into())
            }
            (IoOperation::Write, Data::Capsule(at)) if is_mapped(io, command) => self.copy_in(io, slot, at),
            (IoOperation::Compare, _) => self.compare(io, slot),
            _ => self.submit(io, slot),
        }
    }

    /// Passes the command of a slot, or what is left of it, to its backend.
    #[inline]
    pub(super) fn submit(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let mut budget = io.budget();
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some(command) = &place.command else { return Ok(()) };
        let at = match (place.second, place.data) {
            (Some(second), _) => io.memory.buffer_offset(second),
            (None, Data::Buffer(buffer)) => io.memory.buffer_offset(buffer),
            (None, Data::Capsule(at)) => at,
            (None, Data::None | Data::Mapped(_)) => 0,
        };
        let Some(request) = block_request(command, (place.range, place.progress), at) else {
            return self.reply(io, slot, Status::SUCCESS.into());
        };
        let device = command.backend;
        if !io.is_resuming && !io.waits.list(Resource::Device(device)).is_empty() {
            self.wait_behind(io, slot, device);
            return Ok(());
        }
        if io.must_refuse(device, &request) {
            return self.reply(io, slot, Status::NAMESPACE_NOT_READY.into());
        }
        let Some(Device { backend, .. }) = io.backends.get_mut(device) else {
            return self.reply(io, slot, Status::INTERNAL_ERROR.into());
        };
        let buffers = place.buffers();
        if buffers > 0 && io.at_disks.has_its_share(device) {
            io.waited.device += u64::from(!io.is_resuming);
            self.wait_behind(io, slot, device);
            return Ok(());
        }
        let before = budget.left();
        // A disk touches nothing on this core. Its commands do not hold a buffer until their next
        // turn.
        if before == 0 && !backend.needs_poll() {
            self.wait_for_turn(io, slot, Next::Submit);
            return Ok(());
        }
        let wr_id = WrId::device(self.who.connection, slot, io.orphans.epoch());
        let submission = backend.submit(wr_id.0, &request, &mut budget);
        io.parties.charge(self.who.party, before - budget.left(), Weight::Background);
        match submission {
            Submission::Pending => {
                place.state = State::Device(wr_id, io.now_ms);
                self.device_requests += 1;
                io.at_disks.add(device, buffers);
                Ok(())
            }
            Submission::Progress(bytes) => {
                place.progress += bytes;
                self.wait_for_turn(io, slot, Next::Submit);
                Ok(())
            }
            Submission::Done(outcome) => self.on_device_outcome(io, slot, outcome),
            Submission::Busy => {
                io.waited.device += 1;
                self.wait(io, slot, (Resource::Device(device), Next::Submit));
                Ok(())
            }
        }
    }

    /// Lets a command wait for a device that others wait for. A Read has nothing in its buffer: it
    /// waits without one.
    #[cold]
    fn wait_behind(&mut self, io: &mut CoreIo, slot: u16, device: usize) {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return };
        let mut next = Next::Submit;
        if let (Data::Buffer(buffer), Some(command)) = (place.data, &place.command)
            && command.operation == IoOperation::Read
        {
            next = Next::Run(Step::Io { command: command.clone(), pointer: place.pointer });
            io.memory.free_buffer(buffer);
            place.data = Data::None;
        }
        self.wait(io, slot, (Resource::Device(device), next));
    }

    /// A backend has completed a request.
    #[inline]
    pub(in crate::transport) fn on_device(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        outcome: Result<(), BlockError>,
    ) -> Result<(), NvmfError> {
        self.device_requests = self.device_requests.saturating_sub(1);
        if let Some(place) = self.slots.get(usize::from(slot))
            && let Some(command) = &place.command
        {
            io.at_disks.remove(command.backend, place.buffers());
        }
        if self.is_ended {
            if let Some(place) = self.slots.get_mut(usize::from(slot)) {
                place.release(&mut io.memory);
            }
            return Ok(());
        }
        // The backend is done with its buffers: should the response not be posted, they end with
        // the connection.
        self.set(slot, State::Receiving);
        self.on_device_outcome(io, slot, outcome)
    }

    fn on_device_outcome(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        outcome: Result<(), BlockError>,
    ) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        (place.range, place.progress) = (place.range + 1, 0);
        let Some(command) = &place.command else { return Ok(()) };
        if let Err(error) = outcome {
            if let Some(device) = io.backends.get(command.backend) {
                device.counters.media_errors.fetch_add(1, Ordering::Relaxed);
            }
            if io.target.may_log(io.now_ms) {
                tracing::warn!("a backend failed at byte {} of {}: {error}", command.offset, command.bytes);
            }
            return self.reply(io, slot, Status::from(error).into());
        }
        match (command.operation, place.second) {
            (IoOperation::Deallocate, _) if place.range < command.ranges.len() => self.submit(io, slot),
            (IoOperation::Compare, Some(_)) if io.parties.left() > 0 => self.continue_compare(io, slot),
            (IoOperation::Compare, Some(_)) => {
                self.wait_for_turn(io, slot, Next::Compare);
                Ok(())
            }
            _ => self.reply(io, slot, Status::SUCCESS.into()),
        }
    }
}

/// Returns the request to the backend; `None` if nothing is left to do.
#[inline]
pub(in crate::transport) fn block_request(
    command: &IoCommand,
    (range, progress): (usize, u64),
    arena_offset: usize,
) -> Option<BlockRequest> {
    let (mut offset, mut bytes) = (command.offset, command.bytes);
    let durable = command.force_unit_access;
    let operation = match command.operation {
        IoOperation::Read | IoOperation::Compare => BlockOperation::Read,
        IoOperation::Write => BlockOperation::Write { durable },
        IoOperation::Flush => BlockOperation::Flush,
        IoOperation::WriteZeroes => {
            BlockOperation::WriteZeroes { durable, may_deallocate: command.may_deallocate }
        }
        IoOperation::Deallocate => {
            (offset, bytes) = *command.ranges.get(range)?;
            BlockOperation::Deallocate
        }
    };
    (offset, bytes) = (offset + progress, bytes.saturating_sub(progress));
    Some(BlockRequest { operation, offset, bytes, arena_offset })
}
