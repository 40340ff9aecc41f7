//! The end of a command: its data goes to the host, then its response, and its receive is posted
//! again.

use ironwarp::{Context, PostError, QueuePair, RemoteMemory, STag, SendWr, Sge};
use zerocopy::IntoBytes;

use super::slot::{Data, Next, Slot, State};
use super::wr_id::WrId;
use super::{Answered, Connection, CoreIo, is_full};
use crate::NvmfError;
use crate::target::{IoOperation, Response};
use crate::transport::arena::CoreMemory;
use crate::transport::wait::Resource;
use crate::wire::sgl::DataPointer;

/// Where data for the host is, and where it goes.
type Source = Option<(Sge, RemoteMemory)>;

impl Connection {
    /// Ends a command: moves data to the host if the command reads, sends the response, posts the
    /// receive again.
    #[inline]
    pub(in crate::transport) fn reply(
        &mut self,
        io: &mut CoreIo,
        slot: u16,
        response: Response,
    ) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let cqe = self.queue.completion(place.entry.cid.get(), response);
        let source = if response.status.is_success() { source(place, &io.memory)? } else { None };
        let buffer = match place.data {
            Data::Buffer(buffer) => Some(buffer),
            _ => None,
        };
        let key = place.pointer.and_then(|pointer| pointer.key_to_invalidate());
        // A buffer is free when its bytes are copied into frames, which the completion of the
        // response shows.
        let held = buffer.filter(|_| source.is_some());
        let is_piece = place.pieces.is_some() && source.is_some();
        let wr_id = if is_piece {
            WrId::piece(self.who.connection, slot)
        } else {
            WrId::send(self.who.connection, held)
        };
        let ids = (self.qp, wr_id, is_piece || held.is_some());
        match post_reply(&mut io.ctx, ids, cqe.as_bytes(), (source, key)) {
            Ok(()) => {
                self.queue.record(&place.entry, response.status);
                self.queue.advance();
                if held.is_some() {
                    self.sends_since.push_back(io.now_ms);
                } else if let Some(buffer) = buffer {
                    io.memory.free_buffer(buffer);
                }
                if let Some(second) = place.second.take() {
                    io.memory.free_buffer(second);
                }
                if let Some(command) = &place.command {
                    let reads = matches!(command.operation, IoOperation::Read | IoOperation::Compare);
                    let (backend, started_ns) = (command.backend, place.started_ns);
                    io.answered.push(Answered { backend, reads, started_ns });
                }
                (place.data, place.pointer, place.command) = (Data::None, None, None);
                if is_piece {
                    // The receive writes to where the piece is: it is posted when the piece is in
                    // its frames.
                    place.state = State::Sending;
                } else {
                    (place.state, place.pieces) = (State::Receiving, None);
                    self.repost(io, slot);
                }
                Ok(())
            }
            Err(error) if is_full(&error) => {
                self.wait(io, slot, (Resource::Send, Next::Reply(response)));
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }
}

/// Returns where data for the host is, and where it goes.
#[inline]
fn source(slot: &Slot, memory: &CoreMemory) -> Result<Source, NvmfError> {
    let reads = slot.command.as_ref().is_some_and(|command| command.operation == IoOperation::Read);
    let Some(DataPointer::Keyed { address, length, key, .. }) = slot.pointer else { return Ok(None) };
    let (sge, tagged_offset) = match (slot.data, &slot.pieces) {
        (Data::Capsule(at), Some(piece)) => {
            (memory.slice(at, piece.bytes)?, address.wrapping_add(piece.sent.into()))
        }
        (Data::Buffer(buffer), _) if reads => (memory.slice(memory.buffer_offset(buffer), length)?, address),
        (Data::Mapped(sge), _) if reads => (sge, address),
        _ => return Ok(None),
    };
    Ok(Some((sge, RemoteMemory { stag: STag(key), tagged_offset })))
}

/// Posts the RDMA Write of data and the response, both or none. The response arrives after the data
/// (RFC 5040 s5.5).
#[inline]
fn post_reply(
    ctx: &mut Context,
    (qp, wr_id, is_signaled): (QueuePair, WrId, bool),
    cqe: &[u8],
    (source, key): (Source, Option<u32>),
) -> Result<(), PostError> {
    let mut response = SendWr::send_inline(wr_id.0, cqe);
    if let Some(key) = key {
        response = response.with_invalidate(STag(key));
    }
    if !is_signaled {
        response = response.unsignaled();
    }
    match source {
        Some((sge, to)) => {
            // Both complete when the connection ends, and only the response gives its buffer back.
            let write_id = WrId::send(wr_id.connection() as u32, None);
            let write = SendWr::write(write_id.0, core::slice::from_ref(&sge), to).unsignaled();
            ctx.post_all(qp, &[write, response])
        }
        None => ctx.post_send(qp, &response),
    }
}

impl Connection {
    /// Posts the RDMA Write of a piece that others follow.
    pub(super) fn send_piece(&mut self, io: &mut CoreIo, slot: u16) -> Result<(), NvmfError> {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return Ok(()) };
        let Some((sge, to)) = source(place, &io.memory)? else { return Ok(()) };
        let write = SendWr::write(WrId::piece(self.who.connection, slot).0, core::slice::from_ref(&sge), to);
        match io.ctx.post_send(self.qp, &write) {
            Ok(()) => place.state = State::Sending,
            Err(error) if is_full(&error) => self.wait(io, slot, (Resource::Send, Next::Piece)),
            // The connection is ending.
            Err(_) => {}
        }
        Ok(())
    }
}
