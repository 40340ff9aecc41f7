//! Compare, and copies into a mapped medium: the work that a core does on data itself.
//!
//! A Compare goes on from turn to turn: each time it compares as many bytes as
//! [`crate::backend::BUDGET_BYTES_MAX`] and what is left of the turn allow.

use super::slot::{Data, Next};
use super::{Connection, CoreIo};
use crate::NvmfError;
use crate::backend::Budget;
use crate::target::{IoCommand, Step};
use crate::transport::devices::Device;
use crate::transport::party::Weight;
use crate::transport::wait::Resource;
use crate::wire::Status;

/// Bytes that Compare and copies from capsules take at once.
const CHUNK_BYTES: usize = 4096;

impl Connection {
    /// Compare, when the data of the host is here: with mapped memory, or after a read of the
    /// medium.
    #[cold]
    pub(super) fn compare(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some(command) = &place.command else { return Ok(()) };
        if is_mapped(io, command) {
            return self.continue_compare(io, slot);
        }
        match io.memory.take_buffer(self.who) {
            Some(buffer) => {
                place.second = Some(buffer);
                self.submit(io, slot)
            }
            None if io.memory.limits().buffers < 2 => self.reply(io, slot, Status::INTERNAL_ERROR.into()),
            None => {
                // Two Compares that each hold a buffer and wait for another must not stop each
                // other: this one starts over.
                let again = Step::Io { command: command.clone(), pointer: place.pointer };
                place.release(&mut io.memory);
                self.wait(io, slot, (Resource::Buffers, Next::Run(again)));
                Ok(())
            }
        }
    }

    /// Compares as much as the turn allows.
    #[cold]
    pub(super) fn continue_compare(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let mut budget = io.budget();
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some(command) = &place.command else { return Ok(()) };
        let host = match place.data {
            Data::Capsule(at) => at,
            Data::Buffer(buffer) => io.memory.buffer_offset(buffer),
            Data::None | Data::Mapped(_) => return self.reply(io, slot, Status::INTERNAL_ERROR.into()),
        };
        let second = place.second.map(|buffer| io.memory.buffer_offset(buffer));
        let (before, mut status) = (budget.left(), Status::SUCCESS);
        while place.progress < command.bytes && status.is_success() {
            let bytes = budget.take((command.bytes - place.progress).min(CHUNK_BYTES as u64));
            if bytes == 0 {
                break;
            }
            status = compare_piece(io, command, (host, second), (place.progress, bytes))?;
            place.progress += bytes;
        }
        let is_done = place.progress >= command.bytes || !status.is_success();
        io.parties.charge(self.who.party, before - budget.left(), Weight::Io);
        if is_done {
            return self.reply(io, slot, status.into());
        }
        self.wait_for_turn(io, slot, Next::Compare);
        Ok(())
    }

    /// Copies the data of a capsule into the medium: the one copy that a mapped backend makes.
    pub(super) fn copy_in(&mut self, io: &mut CoreIo, slot: u16, at: usize) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get(usize::from(slot)) else { return Ok(()) };
        let Some(command) = &place.command else { return Ok(()) };
        io.parties.charge(self.who.party, command.bytes, Weight::Io);
        let status = copy_in(io, command, at)?;
        self.reply(io, slot, status.into())
    }
}

pub(super) fn is_mapped(io: &CoreIo, command: &IoCommand) -> bool {
    let bytes = u32::try_from(command.bytes).unwrap_or(u32::MAX);
    io.backends
        .get(command.backend)
        .is_some_and(|one| one.backend.mapped(command.offset, bytes, true).is_some())
}

/// Copies at most what a capsule holds.
fn copy_in(io: &CoreIo, command: &IoCommand, at: usize) -> Result<Status, NvmfError> {
    let Some(Device { backend, .. }) = io.backends.get(command.backend) else {
        return Ok(Status::INTERNAL_ERROR);
    };
    let mut chunk = [0; CHUNK_BYTES];
    let bytes = usize::try_from(command.bytes).unwrap_or(usize::MAX);
    for from in (0..bytes).step_by(CHUNK_BYTES) {
        let to = bytes.min(from + CHUNK_BYTES);
        let Some(bytes) = chunk.get_mut(..to - from) else { return Ok(Status::INTERNAL_ERROR) };
        io.memory.read_at(at + from, bytes)?;
        if !backend.write_bytes(command.offset + from as u64, bytes) {
            return Ok(Status::WRITE_FAULT);
        }
    }
    Ok(Status::SUCCESS)
}

/// Compares `bytes` bytes, at most a chunk, from an offset on: the host's with those of the second
/// buffer or the medium.
fn compare_piece(
    io: &CoreIo,
    command: &IoCommand,
    (host, second): (usize, Option<usize>),
    (from, bytes): (u64, u64),
) -> Result<Status, NvmfError> {
    let (mut left, mut right) = ([0; CHUNK_BYTES], [0; CHUNK_BYTES]);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let (Some(left), Some(right)) = (left.get_mut(..bytes), right.get_mut(..bytes)) else {
        return Ok(Status::INTERNAL_ERROR);
    };
    io.memory.read_at(host + from as usize, left)?;
    match second {
        Some(second) => io.memory.read_at(second + from as usize, right)?,
        None => {
            let Some(Device { backend, .. }) = io.backends.get(command.backend) else {
                return Ok(Status::INTERNAL_ERROR);
            };
            if !backend.read_bytes(command.offset + from, right) {
                return Ok(Status::UNRECOVERED_READ_ERROR);
            }
        }
    }
    Ok(if left == right { Status::SUCCESS } else { Status::COMPARE_FAILURE })
}

impl CoreIo {
    /// Returns what one call may touch in this turn.
    pub(super) fn budget(&self) -> Budget {
        Budget::new(self.parties.left())
    }
}
