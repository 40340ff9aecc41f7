//! The messages of Send with Invalidate.
//!
//! The client binds a window for each message, as the initiator of a storage protocol does for each command. The Send
//! behind the binding carries the STag in its last octets, and the reply invalidates it. The client checks that the
//! completion of its receive names this STag (RFC 5040 s5.3).

use ironwarp::{Access, Completion, CompletionFlags, STag, SendWr};
use ironwarp_bench::Case;

use super::super::endpoint::{Endpoint, RdmaError, Result};
use super::super::open_case::{Arrived, QpContext, wr_id};
use super::latency::{LatencyTest, STAG_BYTES};

impl LatencyTest {
    /// Binds the window to the first slot of the sink, and sends its STag behind the binding.
    pub(super) fn post_with_window(
        &mut self,
        endpoint: &mut Endpoint,
        index: usize,
        message: u64,
    ) -> Result<()> {
        let (case, qp_ctx, id) = (&self.open.case, &mut self.open.qps[index], wr_id(index, 0));
        qp_ctx.fill_source(case, 0, message)?;
        qp_ctx.advertise_window(case)?;
        let window = qp_ctx.window.as_ref().ok_or(RdmaError::NoWindow)?;
        let bind =
            SendWr::bind_with_current_stag(id, window, &qp_ctx.scatter[0], Access::REMOTE_WRITE).unsignaled();
        let send = qp_ctx.message_wr(case, id, 0, None).unsignaled();
        endpoint.ctx.post_sends(qp_ctx.qp, &[bind, send]).map_err(|(_, error)| error.into())
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
        let stag = self.open.qps[memory_of].advertised_stag(case, slot)?;
        qp_ctx.fill_source(case, 0, message)?;
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

impl QpContext {
    /// Takes the next STag of the window and stores it at the end of the message: its last four octets.
    fn advertise_window(&mut self, case: &Case) -> Result<()> {
        let stag = self.window.as_mut().ok_or(RdmaError::NoWindow)?.next_stag();
        Ok(self.source.write_at(case.bytes as usize - STAG_BYTES, &stag.0.to_be_bytes())?)
    }

    /// The STag that the peer stored at the end of the message in a slot of the sink.
    fn advertised_stag(&self, case: &Case, slot: usize) -> Result<STag> {
        let mut octets = [0; STAG_BYTES];
        self.sink.read_at((slot + 1) * case.bytes as usize - STAG_BYTES, &mut octets)?;
        Ok(STag(u32::from_be_bytes(octets)))
    }
}
