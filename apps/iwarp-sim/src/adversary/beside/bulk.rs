//! An honest application: each end writes into the other's memory as fast as the connections take it.

use std::net::SocketAddr;

use ironwarp::{
    Access, Completion, CompletionQueue, CompletionStatus, Context, Event, ProtectionDomain, QpAttr,
    QueuePair, Region, RemoteMemory, SendWr, Stack,
};

use crate::adversary::acceptor::text;

/// The port that the server listens on.
const PORT: u16 = 4_420;
/// Connections between the two.
const CONNS: usize = 4;
/// Writes of an end outstanding on a connection, and the bytes of each.
const WRITES: u64 = 16;
const WRITE_BYTES: u32 = 16 << 10;

/// One end.
pub struct Bulk {
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: Region,
    remote: Option<RemoteMemory>,
    qps: Vec<QueuePair>,
    /// Bytes of completed Writes.
    pub written_bytes: u64,
    /// Connections that have ended.
    pub ended: u64,
}

impl Bulk {
    /// The server.
    pub fn server(stack: &Stack) -> Result<Self, String> {
        let mut bulk = Self::new(stack)?;
        bulk.ctx.listen(([0, 0, 0, 0], PORT).into()).map_err(text)?;
        Ok(bulk)
    }

    /// The client, which connects to the server at `address`.
    pub fn client(stack: &Stack, address: [u8; 4]) -> Result<Self, String> {
        let mut bulk = Self::new(stack)?;
        for _ in 0..CONNS {
            let qp = bulk.create_qp()?;
            bulk.ctx.connect(qp, SocketAddr::from((address, PORT)), b"").map_err(text)?;
        }
        Ok(bulk)
    }

    fn new(stack: &Stack) -> Result<Self, String> {
        let mut ctx = stack.context().map_err(text)?;
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(1_024).map_err(text)?);
        let memory = ctx.register(pd, vec![7; WRITE_BYTES as usize], Access::all()).map_err(text)?;
        Ok(Bulk { ctx, pd, cq, memory, remote: None, qps: Vec::new(), written_bytes: 0, ended: 0 })
    }

    fn create_qp(&mut self) -> Result<QueuePair, String> {
        let attr = QpAttr { recv_depth: 1, send_depth: WRITES as u32, ..QpAttr::new(self.cq) };
        let qp = self.ctx.create_qp(self.pd, &attr).map_err(text)?;
        self.qps.push(qp);
        Ok(qp)
    }

    /// Its memory, for the other end.
    pub fn memory(&self) -> RemoteMemory {
        RemoteMemory { stag: self.memory.stag(), tagged_offset: self.memory.base_to() }
    }

    /// The other end's memory.
    pub fn set_remote(&mut self, remote: RemoteMemory) {
        self.remote = Some(remote);
    }

    /// Handles events and completions. Returns how many there were.
    pub fn turn(&mut self) -> Result<usize, String> {
        let mut count = 0;
        while let Some(event) = self.ctx.poll_event() {
            count += 1;
            match event {
                Event::ConnectRequest { request, .. } => {
                    let qp = self.create_qp()?;
                    self.ctx.accept(&request, qp, b"").map_err(text)?;
                }
                Event::Established { qp, .. } => {
                    (0..WRITES).try_for_each(|wr_id| self.write(qp, wr_id))?;
                }
                Event::Disconnected { .. } | Event::ConnectFailed { .. } => self.ended += 1,
                _ => {}
            }
        }
        let mut some = [Completion::default(); 64];
        let reaped = self.ctx.poll_cq(self.cq, &mut some).map_err(text)?;
        for completion in &some[..reaped] {
            if completion.status == CompletionStatus::Success {
                self.written_bytes += u64::from(WRITE_BYTES);
                let qp = self.qps.iter().copied().find(|qp| qp.num() == completion.qp);
                self.write(qp.ok_or("a completion of an unknown queue pair")?, completion.wr_id)?;
            }
        }
        Ok(count + reaped)
    }

    fn write(&mut self, qp: QueuePair, wr_id: u64) -> Result<(), String> {
        let remote = self.remote.ok_or("the memory of the other end is not known")?;
        let gather = [self.memory.slice(0, WRITE_BYTES).map_err(text)?];
        self.ctx.post_send(qp, &SendWr::write(wr_id, &gather, remote)).map_err(text)
    }
}
