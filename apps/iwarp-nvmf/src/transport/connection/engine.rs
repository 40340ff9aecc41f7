//! Data between the host and the engine: Connect, Identify, log pages, the ranges of Dataset
//! Management.
//!
//! It uses no data buffer. Each slot has the memory of its capsule, which is free while its command
//! runs, and the engine makes and takes at most [`PIECE_BYTES`] at once, which every capsule has
//! room for. So no host can keep another from connecting. A longer log page goes piece by piece;
//! its receive is posted when the last one is in its frames.

use super::slot::{Data, Next, Pieces, Then};
use super::{Connection, CoreIo};
use crate::NvmfError;
use crate::target::PIECE_BYTES;
use crate::transport::party::Weight;
use crate::transport::wait::Resource;
use crate::wire::Status;
use crate::wire::sgl::DataPointer;

impl Connection {
    /// Sends data of the engine, of which this is the first piece.
    #[cold]
    pub(super) fn send_data(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        data: &[u8],
        pointer: DataPointer,
    ) -> Result<(), NvmfError> {
        let pieces = Pieces { sent: 0, bytes: data.len() as u32, total: pointer.length() };
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            (place.pointer, place.command) = (Some(pointer), None);
        }
        self.put_piece(io, slot, data, pieces)
    }

    /// Copies a piece into the capsule's memory and sends it, the last one with the response.
    fn put_piece(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        data: &[u8],
        pieces: Pieces,
    ) -> Result<(), NvmfError> {
        let at = self.capsule_offset(io, slot);
        io.memory.write_at(at, data)?;
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        (place.data, place.pieces) = (Data::Capsule(at), Some(pieces));
        if pieces.is_last() {
            self.reply(io, slot, Status::SUCCESS.into())
        } else {
            self.send_piece(io, slot)
        }
    }

    /// A piece is in its frames: the next one follows, or the receive is posted again.
    #[cold]
    pub(in crate::transport) fn on_piece(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some(done) = place.pieces else { return Ok(()) };
        if done.is_last() {
            place.release(&mut io.memory);
            self.repost(io, slot);
            return Ok(());
        }
        if !io.parties.admits(self.who.party) {
            self.wait_for_turn(io, slot, Next::FollowingPiece);
            return Ok(());
        }
        self.next_piece(io, slot)
    }

    /// Makes and sends the piece after the one that is in its frames.
    #[cold]
    pub(super) fn next_piece(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some(done) = place.pieces else { return Ok(()) };
        let sent = done.sent + done.bytes;
        let bytes = (done.total - sent).min(PIECE_BYTES);
        let data = self.queue.next_piece(&place.entry, sent, bytes);
        io.parties.charge(self.who.party, bytes.into(), Weight::Background);
        self.put_piece(io, slot, &data, Pieces { sent, bytes, ..done })
    }

    /// Fetches data for the engine.
    #[cold]
    pub(super) fn take_data(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        pointer: DataPointer,
        bytes: u32,
    ) -> Result<(), NvmfError> {
        let at = self.capsule_offset(io, slot);
        if let DataPointer::Capsule { offset, .. } = pointer {
            return self.pass_to_engine(io, slot, at + offset as usize, bytes);
        }
        if bytes > PIECE_BYTES {
            return self.reply(io, slot, Status::INTERNAL_ERROR.into());
        }
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            (place.data, place.pointer) = (Data::Capsule(at), Some(pointer));
        }
        self.fetch(io, slot, Then::Engine(bytes))
    }

    /// The engine takes data that is in the arena.
    #[cold]
    pub(super) fn pass_to_engine(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        at: usize,
        bytes: u32,
    ) -> Result<(), NvmfError> {
        let mut data = [0; PIECE_BYTES as usize];
        let Some(data) = data.get_mut(..bytes as usize) else {
            return self.reply(io, slot, Status::INTERNAL_ERROR.into());
        };
        io.memory.read_at(at, data)?;
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        place.data = Data::None;
        let step = self.queue.received(&place.entry, data, io.now_ms);
        self.run(io, slot, step)
    }

    /// Returns the first byte of the memory of a slot's capsule.
    pub(super) fn capsule_offset(&self, io: &CoreIo, slot: u16) -> usize {
        let capsule = self.capsules.get(usize::from(slot)).copied().unwrap_or_default();
        io.memory.capsule_offset(capsule)
    }

    /// Lets the rest of a command wait for its host's next share of a turn.
    pub(super) fn wait_for_turn(&mut self, io: &mut CoreIo, slot: u16, next: Next) {
        self.wait(io, slot, (Resource::Turn, next));
    }
}
