//! An application that accepts every connection, with memory that its peers may use and receives posted.

use ironwarp::{
    Access, Completion, CompletionQueue, Context, Event, ProtectionDomain, QpAttr, QueuePair, RecvWr, Region,
    Stack,
};

use super::Place;

/// The port that it listens on.
pub const PORT: u16 = 4_791;

/// Bytes of its memory, which its peers may read and write.
const MEMORY_BYTES: usize = 128 << 10;

/// Receives that a queue pair keeps posted, and the bytes of each.
const RECEIVES: u32 = 64;
const RECEIVE_BYTES: u32 = 64;

/// The application.
pub struct Acceptor {
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: Region,
    qps: Vec<QueuePair>,
    /// Completed receives.
    pub received: u64,
}

impl Acceptor {
    /// Listens on [`PORT`] of a stack.
    pub fn new(stack: &Stack) -> Result<Self, String> {
        let mut ctx = stack.context().map_err(text)?;
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(4_096).map_err(text)?);
        let memory = ctx.register(pd, vec![7; MEMORY_BYTES], Access::all()).map_err(text)?;
        ctx.listen(([0, 0, 0, 0], PORT).into()).map_err(text)?;
        Ok(Acceptor { ctx, pd, cq, memory, qps: Vec::new(), received: 0 })
    }

    /// Its memory.
    pub fn place(&self) -> Place {
        Place { stag: self.memory.stag().0, to: self.memory.base_to(), bytes: MEMORY_BYTES as u32 }
    }

    /// Handles events and completions. Returns how many there were.
    pub fn turn(&mut self) -> usize {
        self.take_events() + self.take_completions()
    }

    fn take_completions(&mut self) -> usize {
        let mut some = [Completion::default(); 64];
        let count = self.ctx.poll_cq(self.cq, &mut some).unwrap_or(0);
        for completion in &some[..count] {
            if let Some(qp) = self.qps.iter().copied().find(|qp| qp.num() == completion.qp) {
                self.received += 1;
                self.post(qp, completion.wr_id);
            }
        }
        count
    }

    fn post(&mut self, qp: QueuePair, wr_id: u64) {
        let offset = (wr_id as u32 % RECEIVES) * RECEIVE_BYTES;
        if let Ok(sink) = self.memory.slice(offset as usize, RECEIVE_BYTES) {
            // A queue pair that has ended takes none.
            let _ = self.ctx.post_recv(qp, &RecvWr::new(wr_id, &[sink]));
        }
    }

    fn take_events(&mut self) -> usize {
        let mut count = 0;
        while let Some(event) = self.ctx.poll_event() {
            count += 1;
            match event {
                Event::ConnectRequest { request, .. } => {
                    let attr = QpAttr { recv_depth: RECEIVES, send_depth: 16, ..QpAttr::new(self.cq) };
                    if let Ok(qp) = self.ctx.create_qp(self.pd, &attr) {
                        self.qps.push(qp);
                        (0..u64::from(RECEIVES)).for_each(|wr_id| self.post(qp, wr_id));
                        // A peer that has left meanwhile raises an event of its own.
                        let _ = self.ctx.accept(&request, qp, b"");
                    }
                }
                Event::Disconnected { qp, .. } | Event::ConnectFailed { qp, .. } => {
                    self.qps.retain(|open| *open != qp);
                    let _ = self.ctx.destroy_qp(qp);
                }
                _ => {}
            }
        }
        count
    }
}

pub(super) fn text(error: impl core::fmt::Display) -> String {
    error.to_string()
}
