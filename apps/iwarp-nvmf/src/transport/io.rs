//! I/O commands of a connection: between the host's memory, the data buffers and the backend.

use std::sync::atomic::Ordering;

use super::arena::BufferId;
use super::connection::{Connection, CoreIo};
use super::devices::Device;
use super::slot::{Data, Next, State, Then};
use super::wr_id::WrId;
use crate::NvmfError;
use crate::backend::{BlockError, BlockOperation, BlockRequest, Submission};
use crate::target::{IoCommand, IoOperation, Step};
use crate::wire::Status;
use crate::wire::sgl::DataPointer;

/// Bytes that Compare and copies from capsules take at once.
const CHUNK_BYTES: usize = 4096;

impl Connection {
    /// Begins an I/O command: finds a place for its data, and fetches it if the host sends it.
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
        let is_compare = command.operation == IoOperation::Compare;
        let data = match pointer {
            None => Data::None,
            Some(DataPointer::Capsule { offset, .. }) => {
                let capsule = self.capsules.get(index).copied().unwrap_or_default();
                Data::Capsule(io.memory.capsule_offset(capsule) + offset as usize)
            }
            Some(pointer @ DataPointer::Keyed { .. }) => {
                let to_medium = command.operation == IoOperation::Write;
                let mapped = backend.mapped(command.offset, pointer.length(), to_medium);
                match mapped.filter(|_| !is_compare) {
                    Some(sge) => Data::Mapped(sge),
                    None => match io.memory.take_buffer() {
                        Some(buffer) => Data::Buffer(buffer),
                        None => {
                            self.wait(io, slot, Next::Run(Step::Io { command, pointer: Some(pointer) }));
                            return Ok(());
                        }
                    },
                }
            }
        };
        let comes_from_host = matches!(pointer, Some(DataPointer::Keyed { .. }))
            && matches!(command.operation, IoOperation::Write | IoOperation::Compare);
        (place.data, place.command, place.range) = (data, Some(command), 0);
        // Ranges of Dataset Management came from a pointer that the response may have to invalidate.
        place.pointer = pointer.or(place.pointer);
        if comes_from_host { self.fetch(io, slot, Then::Io) } else { self.continue_io(io, slot) }
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
            (IoOperation::Write, Data::Capsule(at)) if is_mapped(io, command) => {
                let status = copy_in(io, command, at)?;
                self.reply(io, slot, status.into())
            }
            (IoOperation::Compare, _) => self.compare(io, slot),
            _ => self.submit(io, slot),
        }
    }

    /// Compare: in memory at once, else after a read of the medium.
    #[cold]
    fn compare(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some(command) = &place.command else { return Ok(()) };
        let at = match place.data {
            Data::Capsule(at) => at,
            Data::Buffer(buffer) => io.memory.buffer_offset(buffer),
            Data::None | Data::Mapped(_) => return self.reply(io, slot, Status::INTERNAL_ERROR.into()),
        };
        if is_mapped(io, command) {
            let status = compare_mapped(io, command, at)?;
            return self.reply(io, slot, status.into());
        }
        match io.memory.take_buffer() {
            Some(buffer) => {
                place.second = Some(buffer);
                self.submit(io, slot)
            }
            None if io.memory.limits().buffers < 2 => self.reply(io, slot, Status::INTERNAL_ERROR.into()),
            None => {
                // Two Compares that each hold a buffer and wait for another must not stop each other: this one starts over.
                let again = Step::Io { command: command.clone(), pointer: place.pointer };
                place.release(&mut io.memory);
                self.wait(io, slot, Next::Run(again));
                Ok(())
            }
        }
    }

    /// Passes the command of a slot to its backend.
    #[inline]
    pub(super) fn submit(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some(command) = &place.command else { return Ok(()) };
        let at = match (place.second, place.data) {
            (Some(BufferId(_)), _) => place.second.map_or(0, |buffer| io.memory.buffer_offset(buffer)),
            (None, Data::Buffer(buffer)) => io.memory.buffer_offset(buffer),
            (None, Data::Capsule(at)) => at,
            (None, Data::None | Data::Mapped(_)) => 0,
        };
        let Some(request) = block_request(command, place.range, at) else {
            return self.reply(io, slot, Status::SUCCESS.into());
        };
        let Some(Device { backend, .. }) = io.backends.get_mut(command.backend) else {
            return self.reply(io, slot, Status::INTERNAL_ERROR.into());
        };
        match backend.submit(WrId::read(self.index, slot).0, &request) {
            Submission::Pending => {
                place.state = State::Device;
                self.device_requests += 1;
                Ok(())
            }
            Submission::Done(outcome) => self.on_device_outcome(io, slot, outcome),
            Submission::Busy => {
                self.wait(io, slot, Next::Device);
                Ok(())
            }
        }
    }

    /// A backend has completed a request.
    #[inline]
    pub(super) fn on_device(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        outcome: Result<(), BlockError>,
    ) -> Result<(), NvmfError> {
        self.device_requests = self.device_requests.saturating_sub(1);
        if self.is_ended {
            if let Some(place) = self.slots.get_mut(usize::from(slot)) {
                place.release(&mut io.memory);
            }
            return Ok(());
        }
        self.on_device_outcome(io, slot, outcome)
    }

    fn on_device_outcome(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        outcome: Result<(), BlockError>,
    ) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        place.range += 1;
        let Some(command) = &place.command else { return Ok(()) };
        if let Err(error) = outcome {
            if let Some(device) = io.backends.get(command.backend) {
                device.counters.media_errors.fetch_add(1, Ordering::Relaxed);
            }
            tracing::warn!("a backend failed at byte {} of {}: {error}", command.offset, command.bytes);
            return self.reply(io, slot, Status::from(error).into());
        }
        match (command.operation, place.second) {
            (IoOperation::Deallocate, _) if place.range < command.ranges.len() => self.submit(io, slot),
            (IoOperation::Compare, Some(second)) => {
                let host = match place.data {
                    Data::Capsule(at) => at,
                    Data::Buffer(buffer) => io.memory.buffer_offset(buffer),
                    Data::None | Data::Mapped(_) => 0,
                };
                let status = compare_buffers(io, (host, io.memory.buffer_offset(second)), command.bytes)?;
                self.reply(io, slot, status.into())
            }
            _ => self.reply(io, slot, Status::SUCCESS.into()),
        }
    }
}

/// Returns the request to the backend; `None` if nothing is left to do.
#[inline]
fn block_request(command: &IoCommand, range: usize, arena_offset: usize) -> Option<BlockRequest> {
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
    Some(BlockRequest { operation, offset, bytes, arena_offset })
}

fn is_mapped(io: &CoreIo, command: &IoCommand) -> bool {
    let bytes = u32::try_from(command.bytes).unwrap_or(u32::MAX);
    io.backends
        .get(command.backend)
        .is_some_and(|one| one.backend.mapped(command.offset, bytes, true).is_some())
}

/// Copies the data of a capsule into the medium: the one copy that a mapped backend makes.
fn copy_in(io: &CoreIo, command: &IoCommand, at: usize) -> Result<Status, NvmfError> {
    let Some(Device { backend, .. }) = io.backends.get(command.backend) else {
        return Ok(Status::INTERNAL_ERROR);
    };
    let mut chunk = [0; CHUNK_BYTES];
    for (from, to) in chunks(command.bytes) {
        let Some(bytes) = chunk.get_mut(..to - from) else { return Ok(Status::INTERNAL_ERROR) };
        io.memory.read_at(at + from, bytes)?;
        if !backend.write_bytes(command.offset + from as u64, bytes) {
            return Ok(Status::WRITE_FAULT);
        }
    }
    Ok(Status::SUCCESS)
}

fn compare_mapped(io: &CoreIo, command: &IoCommand, at: usize) -> Result<Status, NvmfError> {
    let Some(Device { backend, .. }) = io.backends.get(command.backend) else {
        return Ok(Status::INTERNAL_ERROR);
    };
    let (mut host, mut medium) = ([0; CHUNK_BYTES], [0; CHUNK_BYTES]);
    for (from, to) in chunks(command.bytes) {
        let (Some(host), Some(medium)) = (host.get_mut(..to - from), medium.get_mut(..to - from)) else {
            return Ok(Status::INTERNAL_ERROR);
        };
        io.memory.read_at(at + from, host)?;
        if !backend.read_bytes(command.offset + from as u64, medium) {
            return Ok(Status::UNRECOVERED_READ_ERROR);
        }
        if host != medium {
            return Ok(Status::COMPARE_FAILURE);
        }
    }
    Ok(Status::SUCCESS)
}

fn compare_buffers(io: &CoreIo, (one, other): (usize, usize), bytes: u64) -> Result<Status, NvmfError> {
    let (mut left, mut right) = ([0; CHUNK_BYTES], [0; CHUNK_BYTES]);
    for (from, to) in chunks(bytes) {
        let (Some(left), Some(right)) = (left.get_mut(..to - from), right.get_mut(..to - from)) else {
            return Ok(Status::INTERNAL_ERROR);
        };
        io.memory.read_at(one + from, left)?;
        io.memory.read_at(other + from, right)?;
        if left != right {
            return Ok(Status::COMPARE_FAILURE);
        }
    }
    Ok(Status::SUCCESS)
}

/// Returns the bounds of the pieces of a transfer.
fn chunks(bytes: u64) -> impl Iterator<Item = (usize, usize)> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    (0..bytes).step_by(CHUNK_BYTES).map(move |from| (from, bytes.min(from + CHUNK_BYTES)))
}
