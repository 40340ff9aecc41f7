//! One peer: its memory, its receives, and the echo of each message.
//!
//! The offered memory is valid for the peer's stream only, so the peer may invalidate its tag by a
//! Send with Invalidate (RFC 5040 s5.3, s8.1.1). Each receive buffer is either posted or being
//! echoed. A peer that respects the number of receives always finds one posted.

use ironwarp::{
    Access, AtomicOp, Completion, CompletionFlags, CompletionOpcode, CompletionQueue, CompletionStatus,
    Context, PostError, ProtectionDomain, QpAttr, QueuePair, RecvWr, Region, RemoteMemory, STag, SendWr, Sge,
    VerbsError,
};

use crate::args::{Args, RequestOperation};

/// The number of a request that is not an echo.
const REQUEST_WR_ID: u64 = u64::MAX;
/// The offered memory of a peer that offered none.
const INVALID_REMOTE: RemoteMemory = RemoteMemory { stag: STag(1), tagged_offset: 0 };

/// The operand memory of an atomic operation.
const WORD_BYTES: u32 = 8;

/// A peer's queue pair and its buffers.
pub(crate) struct Connection {
    pub(crate) qp: QueuePair,
    /// The memory that the peer may read and write.
    region: Region,
    /// Receive buffers, one after the other.
    buffers: Region,
    buffer_bytes: u32,
}

impl Connection {
    pub(crate) fn new(
        ctx: &mut Context,
        pd: ProtectionDomain,
        cq: CompletionQueue,
        args: &Args,
        receive_bytes: usize,
    ) -> Result<Self, VerbsError> {
        let buffers = ctx.register(pd, zeros(receive_bytes)?, Access::LOCAL_WRITE)?;
        let attr = QpAttr { send_depth: args.receives, recv_depth: args.receives, ..QpAttr::new(cq) };
        let qp = ctx.create_qp(pd, &attr)?;
        Self::with_queues(ctx, qp, buffers, args).or_else(|error| ctx.destroy_qp(qp).and(Err(error)))
    }

    fn with_queues(
        ctx: &mut Context,
        qp: QueuePair,
        buffers: Region,
        args: &Args,
    ) -> Result<Self, VerbsError> {
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let region = ctx.register_for_qp(qp, zeros(args.bytes as usize)?, all)?;
        let connection = Connection { qp, region, buffers, buffer_bytes: args.message_bytes };
        (0..args.receives.into()).try_for_each(|buffer| connection.post_receive(ctx, buffer))?;
        Ok(connection)
    }

    /// STag, tagged offset and length of the offered memory, big-endian.
    pub(crate) fn advertisement(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.region.stag().0.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.region.base_to().to_be_bytes());
        bytes[12..].copy_from_slice(&(self.region.len() as u32).to_be_bytes());
        bytes
    }

    /// Echoes the message of a receive, and posts the buffer again when the echo is complete.
    pub(crate) fn on_completion(&self, ctx: &mut Context, completion: &Completion) -> Result<(), PostError> {
        if completion.status != CompletionStatus::Success {
            return Ok(());
        }
        match completion.opcode {
            CompletionOpcode::Receive => self.echo(ctx, completion),
            _ if completion.wr_id == REQUEST_WR_ID => Ok(()),
            _ => self.post_receive(ctx, completion.wr_id),
        }
    }

    /// Posts an operation that not every peer supports. Its completion reports the result.
    pub(crate) fn post_request(
        &self,
        ctx: &mut Context,
        operation: RequestOperation,
    ) -> Result<(), PostError> {
        let before = Sge { addr: self.region.base_to(), len: WORD_BYTES, lkey: self.region.stag() };
        match operation {
            RequestOperation::Immediate => {
                ctx.post_send(self.qp, &SendWr::immediate(REQUEST_WR_ID, b"ironwarp"))
            }
            RequestOperation::FetchAdd => {
                let add = AtomicOp::add(1);
                ctx.post_send(self.qp, &SendWr::atomic(REQUEST_WR_ID, &[before], INVALID_REMOTE, &add))
            }
        }
    }

    /// Echoes a Send, with a solicited event if the Send had one.
    fn echo(&self, ctx: &mut Context, received: &Completion) -> Result<(), PostError> {
        let bytes = [self.sge(received.wr_id, received.byte_len)];
        let echo = SendWr::send(received.wr_id, &bytes);
        let solicited = received.flags.contains(CompletionFlags::SOLICITED);
        match ctx.post_send(self.qp, &if solicited { echo.solicited() } else { echo }) {
            // The peer is closing and does not need the echo.
            Err(PostError::WrongState(_)) => Ok(()),
            posted => posted,
        }
    }

    fn post_receive(&self, ctx: &mut Context, buffer: u64) -> Result<(), PostError> {
        ctx.post_recv(self.qp, &RecvWr::new(buffer, &[self.sge(buffer, self.buffer_bytes)]))
    }

    fn sge(&self, buffer: u64, bytes: u32) -> Sge {
        let addr = self.buffers.base_to() + buffer * u64::from(self.buffer_bytes);
        Sge { addr, len: bytes, lkey: self.buffers.stag() }
    }
}

/// Zeroed memory, or an error if the system has none: a peer must not be able to end the program by
/// connecting.
fn zeros(bytes: usize) -> Result<Vec<u8>, VerbsError> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|source| VerbsError::System {
        what: "memory for a peer",
        source: std::io::Error::new(std::io::ErrorKind::OutOfMemory, source),
    })?;
    memory.resize(bytes, 0);
    Ok(memory)
}
