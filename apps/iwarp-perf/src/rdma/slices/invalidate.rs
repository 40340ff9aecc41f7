//! The messages of Send with Invalidate.
//!
//! The client binds a window for each message, as the initiator of a storage protocol does for each command. The Send
//! behind the binding carries the STag in its last octets, and the reply invalidates it. The client checks that the
//! completion of its receive names this STag (RFC 5040 s5.3).

use ironwarp::{Access, Completion, CompletionFlags, STag, SendWr};

use super::super::endpoint::Endpoint;
use super::super::open_case::{Arrived, wr_id};
use super::latency::{LatencyTest, STAG_BYTES};
use crate::error::{Error, Result};

impl LatencyTest {
    /// Binds the window to the first slot of the sink, and sends its next STag behind the binding.
    pub(super) fn post_with_window(
        &mut self,
        endpoint: &mut Endpoint,
        index: usize,
        message: u64,
    ) -> Result<()> {
        let (case, qp_ctx, id) = (&self.open.case, &mut self.open.qps[index], wr_id(index, 0));
        qp_ctx.fill_source(case, 0, message)?;
        let Some(window) = &mut qp_ctx.window else { return Err(Error::failed("no window in this test")) };
        let stag = window.next_stag().0.to_be_bytes();
        qp_ctx.source.write_at(case.bytes as usize - STAG_BYTES, &stag)?;
        let bind = SendWr::bind_with_current_stag(id, window, &qp_ctx.scatter[0], Access::REMOTE_WRITE);
        let send = SendWr::send(id, &qp_ctx.gather[0]).unsignaled();
        endpoint.ctx.post_sends(qp_ctx.qp, &[bind.unsignaled(), send]).map_err(|(_, error)| error.into())
    }

    /// Replies with a Send that invalidates the STag in the last message.
    pub(super) fn post_invalidating(
        &self,
        endpoint: &mut Endpoint,
        index: usize,
        message: u64,
    ) -> Result<()> {
        let (case, qp_ctx, id) = (&self.open.case, &self.open.qps[index], wr_id(index, 0));
        let Arrived { memory_of, slot, .. } = self.last_arrived;
        let mut octets = [0; STAG_BYTES];
        let end = (slot + 1) * case.bytes as usize;
        self.open.qps[memory_of].sink.read_at(end - STAG_BYTES, &mut octets)?;
        qp_ctx.fill_source(case, 0, message)?;
        let stag = STag(u32::from_be_bytes(octets));
        let wr = qp_ctx.message_wr(case, id, 0, None).with_invalidate(stag).unsignaled();
        Ok(endpoint.ctx.post_send(qp_ctx.qp, &wr)?)
    }

    /// Whether the completion of a receive names the STag of the last binding as invalidated.
    pub(super) fn is_window_invalidated(&self, index: usize, completion: &Completion) -> bool {
        let window = &self.open.qps[index].window;
        completion.flags.contains(CompletionFlags::INVALIDATED)
            && window.as_ref().is_some_and(|window| window.stag() == completion.invalidated)
    }
}
