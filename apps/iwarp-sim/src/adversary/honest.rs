//! The application of a node under attack.
//!
//! It accepts every connection, with memory that its peers may use and receives posted. With an
//! honest partner it also writes in both directions as fast as their connections take it.

use std::net::SocketAddr;

use ironwarp::{
    Access, Completion, CompletionQueue, CompletionStatus, Context, Event, ProtectionDomain, QpAttr,
    QueuePair, RecvWr, Region, RemoteMemory, SendWr, Stack,
};

use super::Place;
use crate::text;

pub const PORT: u16 = 4_791;
const PARTNER_PORT: u16 = 4_420;

/// Bytes of its memory, which its peers may read and write.
const MEMORY_BYTES: usize = 128 << 10;

/// Receives that a queue pair keeps posted, and the bytes of each.
const RECEIVES: u32 = 64;
const RECEIVE_BYTES: u32 = 64;

/// Connections with the partner.
const PARTNER_CONNS: usize = 4;
/// Writes outstanding on each of them, and the bytes of each.
const WRITES: u64 = 16;
const WRITE_BYTES: u32 = 16 << 10;

/// The application.
pub struct Honest {
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: Region,
    pub partner: Option<RemoteMemory>,
    /// Queue pairs with the partner, and with everybody else.
    partner_qps: Vec<QueuePair>,
    qps: Vec<QueuePair>,
    pub received: u64,
    pub written_bytes: u64,
    /// Connections with the partner that have ended.
    pub ended: u64,
}

impl Honest {
    /// Serves on a stack, or connects to the partner at this address.
    pub fn new(stack: &Stack, connect_to: Option<[u8; 4]>) -> Result<Self, String> {
        let mut ctx = stack.context().map_err(text)?;
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(4_096).map_err(text)?);
        let memory = ctx.register(pd, vec![7; MEMORY_BYTES], Access::all()).map_err(text)?;
        let (partner_qps, qps) = (Vec::new(), Vec::new());
        let (received, written_bytes, ended) = (0, 0, 0);
        let mut honest =
            Honest { ctx, pd, cq, memory, partner: None, partner_qps, qps, received, written_bytes, ended };
        let Some(address) = connect_to else {
            for port in [PORT, PARTNER_PORT] {
                honest.ctx.listen(([0, 0, 0, 0], port).into()).map_err(text)?;
            }
            return Ok(honest);
        };
        for _ in 0..PARTNER_CONNS {
            let qp = honest.create_qp().map_err(text)?;
            honest.partner_qps.push(qp);
            let server = SocketAddr::from((address, PARTNER_PORT));
            honest.ctx.connect(qp, server, b"").map_err(text)?;
        }
        Ok(honest)
    }

    pub fn memory(&self) -> RemoteMemory {
        RemoteMemory { stag: self.memory.stag(), tagged_offset: self.memory.base_to() }
    }

    pub fn place(&self) -> Place {
        Place { stag: self.memory.stag().0, to: self.memory.base_to(), bytes: MEMORY_BYTES as u32 }
    }

    /// Handles events and completions. Returns how many there were.
    pub fn turn(&mut self) -> Result<usize, String> {
        Ok(self.take_events()? + self.take_completions()?)
    }

    fn take_events(&mut self) -> Result<usize, String> {
        let mut count = 0;
        while let Some(event) = self.ctx.poll_event() {
            count += 1;
            match event {
                Event::ConnectRequest { request, local, .. } if local.port() == PARTNER_PORT => {
                    let qp = self.create_qp().map_err(text)?;
                    self.partner_qps.push(qp);
                    self.ctx.accept(&request, qp, b"").map_err(text)?;
                }
                Event::ConnectRequest { request, .. } => {
                    if let Ok(qp) = self.create_qp() {
                        self.qps.push(qp);
                        (0..u64::from(RECEIVES)).for_each(|wr_id| self.post_receive(qp, wr_id));
                        // A peer that has left meanwhile raises an event of its own.
                        let _ = self.ctx.accept(&request, qp, b"");
                    }
                }
                Event::Established { qp, .. } if self.partner_qps.contains(&qp) => {
                    (0..WRITES).try_for_each(|wr_id| self.write(qp, wr_id))?;
                }
                Event::Disconnected { qp, .. } | Event::ConnectFailed { qp, .. } => {
                    if self.partner_qps.contains(&qp) {
                        self.ended += 1;
                    } else {
                        self.qps.retain(|open| *open != qp);
                        let _ = self.ctx.destroy_qp(qp);
                    }
                }
                _ => {}
            }
        }
        Ok(count)
    }

    fn take_completions(&mut self) -> Result<usize, String> {
        let mut some = [Completion::default(); 64];
        let count = self.ctx.poll_cq(self.cq, &mut some).map_err(text)?;
        for Completion { qp, status, wr_id, .. } in some[..count].iter().copied() {
            let of = |all: &[QueuePair]| all.iter().copied().find(|one| one.num() == qp);
            if let Some(qp) = of(&self.qps) {
                self.received += 1;
                self.post_receive(qp, wr_id);
            } else if let Some(qp) = of(&self.partner_qps).filter(|_| status == CompletionStatus::Success) {
                self.written_bytes += u64::from(WRITE_BYTES);
                self.write(qp, wr_id)?;
            }
        }
        Ok(count)
    }

    fn create_qp(&mut self) -> Result<QueuePair, ironwarp::VerbsError> {
        let attr = QpAttr { recv_depth: RECEIVES, send_depth: WRITES as u32, ..QpAttr::new(self.cq) };
        self.ctx.create_qp(self.pd, &attr)
    }

    fn post_receive(&mut self, qp: QueuePair, wr_id: u64) {
        let offset = (wr_id as u32 % RECEIVES) * RECEIVE_BYTES;
        if let Ok(sink) = self.memory.slice(offset as usize, RECEIVE_BYTES) {
            // A queue pair that has ended takes none.
            let _ = self.ctx.post_recv(qp, &RecvWr::new(wr_id, &[sink]));
        }
    }

    fn write(&mut self, qp: QueuePair, wr_id: u64) -> Result<(), String> {
        let remote = self.partner.ok_or("the memory of the partner is not known")?;
        let gather = [self.memory.slice(0, WRITE_BYTES).map_err(text)?];
        self.ctx.post_send(qp, &SendWr::write(wr_id, &gather, remote)).map_err(text)
    }
}
