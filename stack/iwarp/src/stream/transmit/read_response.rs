//! The segments of a Read Response (RFC 5040 s5.2.2).

use ironwarp_mem::{Access, AccessError, Span};

use super::segment_space::SegmentSpace;
use crate::ddp::{TAGGED_BYTES, Tagged};
use crate::framing::Framing;
use crate::rdmap::{InboundRead, Opcode, RdmapFault, ResponderEntry};
use crate::stream::{AtomicForwarder, CompletionSink, Io, Stream};

impl<F: Framing> Stream<F> {
    /// Writes a segment of the oldest Read Response. The source is resolved for every segment,
    /// because it may have been revoked, and always copied, because it may change at any time.
    #[inline(never)]
    pub(super) fn response_segment<C: CompletionSink + AtomicForwarder>(
        &mut self,
        room: &mut SegmentSpace<'_>,
        io: &mut Io<'_, C>,
    ) -> Option<usize> {
        let entry = *self.responses.sendable()?;
        let ResponderEntry::Read(response) = entry else {
            return self.atomic_response(entry, room, io);
        };
        let InboundRead { request, sent, .. } = response;
        let left = request.bytes.saturating_sub(sent);
        let payload_bytes = room.payload(&self.framing, TAGGED_BYTES, left)?;
        let last = payload_bytes == left as usize;
        let tagged_offset = request.sink_to.wrapping_add(sent.into());
        let header =
            Tagged { last, ulp: Opcode::ReadResponse.control(), stag: request.sink_stag, tagged_offset };
        let written = match self.response_frame(&response, &header, room, payload_bytes, io) {
            Ok(written) => written?,
            Err(fault) => {
                self.fail(fault, response.terminated_headers(), io);
                return None;
            }
        };
        self.responses.advance(payload_bytes as u32, last);
        self.sender.responses_first &= !(last || self.config.interleave_untagged);
        if last && self.responses.next_to_forward().is_some() {
            self.forward_atomics(io);
        }
        Some(written)
    }

    /// Writes the frame of a response. Returns its length, or `None` if it does not fit.
    fn response_frame<C>(
        &mut self,
        response: &InboundRead,
        header: &Tagged,
        room: &mut SegmentSpace<'_>,
        payload_bytes: usize,
        io: &Io<'_, C>,
    ) -> Result<Option<usize>, RdmapFault> {
        if let Some(mut frame) = self.one_pass_frame(room.bytes, TAGGED_BYTES, payload_bytes) {
            header.encode(frame.headers());
            let source = self.source(response, payload_bytes, io)?;
            let copy =
                |kernel, crc, payload: &mut [u8]| source.copy_out_in_one_pass(0, payload, (kernel, crc));
            let written = frame.complete(copy).map_err(AccessError::from)?;
            return Ok(Some(self.on_written(written)));
        }
        let ulpdu = room.ulpdu(&self.framing, TAGGED_BYTES + payload_bytes);
        let Some((place, payload)) = ulpdu.and_then(|ulpdu| ulpdu.split_at_mut_checked(TAGGED_BYTES)) else {
            return Ok(None);
        };
        // RFC 5040 s5.2.1: steering tag and offset of an empty Read are not checked.
        if payload_bytes > 0 {
            let source = self.source(response, payload_bytes, io)?;
            source.copy_out(0, payload).map_err(AccessError::from)?;
        }
        header.encode(place);
        Ok(Some(self.complete_frame(room.bytes, TAGGED_BYTES + payload_bytes)))
    }

    /// Returns the next octets that a Read asks for.
    fn source<'m, C>(
        &self,
        response: &InboundRead,
        bytes: usize,
        io: &Io<'m, C>,
    ) -> Result<Span<'m>, RdmapFault> {
        let InboundRead { request, sent, .. } = response;
        let to = request.source_to.checked_add(u64::from(*sent)).ok_or(RdmapFault::TaggedOffsetWrap)?;
        let scope = self.access_scope();
        self.check_withheld(Access::REMOTE_READ)?;
        Ok(io.memory.resolve(request.source_stag, scope, to, bytes as u32, Access::REMOTE_READ)?)
    }
}
