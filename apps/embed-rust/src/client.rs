//! A client that keeps its window full of requests of all kinds and knows what every block must
//! hold.

use core::net::SocketAddr;

use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Context, Event, QpAttr,
    QueuePair, RecvWr, Region, RemoteMemory, SendWr, Stack,
};

use crate::EmbedError;
use crate::protocol::{
    BLOCK_BYTES, BLOCKS_MAX, Operation, Outcome, RESPONSE_BYTES, Request, Response, WINDOW,
};
use crate::server::pages;

/// Counts of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCounts {
    /// Blocks written.
    pub written: u64,
    /// Blocks read. Each was compared with what was written last.
    pub read: u64,
    /// Requests that the server refused, as expected.
    pub refused: u64,
}

/// One connection. It has the part of the disk from `first` on for itself.
pub struct Client {
    ctx: Context,
    cq: CompletionQueue,
    qp: QueuePair,
    /// One buffer for each slot of the window, of the size of the longest request.
    blocks: Region,
    responses: Region,
    /// The expected contents of the blocks: the number from which their bytes are computed.
    expected_values: Vec<u64>,
    first: u64,
    disk_blocks: u64,
    window: [Option<PendingRequest>; WINDOW],
    connected: bool,
    random: u64,
    counts: BlockCounts,
}

/// An outstanding request.
#[derive(Clone, Copy)]
struct PendingRequest {
    request: Request,
    expected: Outcome,
}

impl Client {
    /// A client that connects to a server, with `blocks` blocks from `first` on for itself. `seed`
    /// determines its requests.
    pub fn open(
        stack: &Stack,
        server: SocketAddr,
        (first, blocks): (u64, usize),
        seed: u64,
    ) -> Result<Self, EmbedError> {
        let mut ctx = stack.context()?;
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(4 * WINDOW as u32)?);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let window = ctx.register(pd, pages(WINDOW * SLOT_BYTES)?, rights)?;
        let responses = ctx.register(pd, pages(WINDOW * RESPONSE_BYTES)?, Access::LOCAL_WRITE)?;
        let attr = QpAttr {
            send_depth: 2 * WINDOW as u32,
            recv_depth: WINDOW as u32,
            max_sge: 1,
            ..QpAttr::new(cq)
        };
        let qp = ctx.create_qp(pd, &attr)?;
        for slot in 0..WINDOW {
            let buffer = [responses.slice(slot * RESPONSE_BYTES, RESPONSE_BYTES as u32)?];
            ctx.post_recv(qp, &RecvWr::new(slot as u64, &buffer))?;
        }
        ctx.connect(qp, server, b"")?;
        Ok(Client {
            ctx,
            cq,
            qp,
            blocks: window,
            responses,
            expected_values: vec![0; blocks],
            first,
            disk_blocks: 0,
            window: [None; WINDOW],
            connected: false,
            random: seed | 1,
            counts: BlockCounts::default(),
        })
    }

    /// Handles events and completions and, unless it is stopping, sends the next request. Never
    /// waits.
    pub fn poll(&mut self, more: bool) -> Result<(), EmbedError> {
        while let Some(event) = self.ctx.poll_event() {
            self.on_event(event)?;
        }
        let mut reaped = [Completion::default(); 2 * WINDOW];
        let count = self.ctx.poll_cq(self.cq, &mut reaped)?;
        reaped.iter().take(count).try_for_each(|done| self.on_completion(done))?;
        if !self.connected || !more {
            return Ok(());
        }
        (0..WINDOW)
            .try_for_each(|slot| if self.window[slot].is_none() { self.send_request(slot) } else { Ok(()) })
    }

    /// The counts so far.
    pub fn counts(&self) -> BlockCounts {
        self.counts
    }

    /// Returns whether every request has its response.
    pub fn is_idle(&self) -> bool {
        self.connected && self.window.iter().all(Option::is_none)
    }

    /// Closes the connection. Returns how many are still open.
    pub fn close(&mut self, deadline: std::time::Instant) -> Result<usize, EmbedError> {
        Ok(self.ctx.drain(deadline)?.open)
    }

    fn on_event(&mut self, event: Event) -> Result<(), EmbedError> {
        match event {
            Event::Established { private_data, .. } => {
                let size = private_data.as_slice().try_into().map(u64::from_be_bytes);
                self.disk_blocks =
                    size.map_err(|_| EmbedError::Failed("the server does not tell its size".into()))?;
                self.connected = true;
                Ok(())
            }
            Event::Rejected { private_data, .. } => {
                Err(EmbedError::Rejected(String::from_utf8_lossy(&private_data).into_owned()))
            }
            Event::ConnectFailed { reason, .. } => Err(EmbedError::ConnectionEnded(format!("{reason:?}"))),
            Event::Disconnected { reason, .. } if self.connected && !self.is_idle() => {
                Err(EmbedError::ConnectionEnded(format!("{reason:?}")))
            }
            _ => Ok(()),
        }
    }

    /// The next request of a slot: mostly reads and writes of its own part, sometimes one that must
    /// be refused.
    fn send_request(&mut self, slot: usize) -> Result<(), EmbedError> {
        let blocks = 1 + (self.next() % u64::from(BLOCKS_MAX)) as u32;
        let own = (self.expected_values.len() as u64).saturating_sub(blocks.into());
        let first = self.first + self.next() % (own + 1);
        let operation = if self.next().is_multiple_of(2) { Operation::Read } else { Operation::Write };
        let stag = self.blocks.stag();
        let tagged_offset = self.blocks.base_to() + (slot * SLOT_BYTES) as u64;
        let memory = RemoteMemory { stag, tagged_offset };
        let mut request = Request { operation, blocks, first, memory, tag: slot as u32 };
        let mut expected = Outcome::Done;
        match self.next() % 16 {
            0 => (request.first, expected) = (self.disk_blocks - u64::from(blocks) + 1, Outcome::OutOfRange),
            1 => (request.first, expected) = (u64::MAX - 3, Outcome::OutOfRange),
            2 => (request.blocks, expected) = (BLOCKS_MAX + 1, Outcome::BadLength),
            _ if self.overlaps(&request) => return Ok(()),
            _ if operation == Operation::Write => self.write_blocks(slot, &request)?,
            // Overwrites the former contents, so that they cannot pass for the data that is read.
            _ => self.blocks.fill(slot * SLOT_BYTES, blocks as usize * BLOCK_BYTES as usize, 0xee)?,
        }
        let bytes = request.encode();
        self.ctx.post_send(self.qp, &SendWr::send_inline(slot as u64, &bytes).unsignaled())?;
        self.window[slot] = Some(PendingRequest { request, expected });
        Ok(())
    }

    /// Returns whether an outstanding request concerns the same blocks: two such requests would
    /// have no order.
    fn overlaps(&self, request: &Request) -> bool {
        let end = |request: &Request| request.first + u64::from(request.blocks);
        let in_flight = self.window.iter().flatten().filter(|pending| pending.expected == Outcome::Done);
        in_flight
            .map(|pending| &pending.request)
            .any(|other| request.first < end(other) && other.first < end(request))
    }

    /// Fills a slot with new blocks and records their contents.
    fn write_blocks(&mut self, slot: usize, request: &Request) -> Result<(), EmbedError> {
        for number in 0..request.blocks as usize {
            let value = self.next();
            let at = (request.first - self.first) as usize + number;
            self.expected_values[at] = value;
            self.blocks.write_at(
                slot * SLOT_BYTES + number * BLOCK_BYTES as usize,
                &block(value, request.first + number as u64),
            )?;
        }
        Ok(())
    }

    fn on_completion(&mut self, done: &Completion) -> Result<(), EmbedError> {
        if done.status != CompletionStatus::Success {
            // Receives without a response are flushed at the end.
            let flushed = done.status == CompletionStatus::FlushedInError && self.is_idle();
            return if flushed {
                Ok(())
            } else {
                Err(EmbedError::ConnectionEnded(format!("{:?}", done.status)))
            };
        }
        if done.opcode != CompletionOpcode::Receive {
            return Ok(());
        }
        let (at, mut bytes) = (done.wr_id as usize * RESPONSE_BYTES, [0; RESPONSE_BYTES]);
        self.responses.read_at(at, &mut bytes)?;
        let buffer = [self.responses.slice(at, RESPONSE_BYTES as u32)?];
        self.ctx.post_recv(self.qp, &RecvWr::new(done.wr_id, &buffer))?;
        let response = bytes.get(..done.byte_len as usize).and_then(Response::decode);
        let response = response.ok_or_else(|| EmbedError::Failed("no answer of the protocol".into()))?;
        self.on_response(&response)
    }

    fn on_response(&mut self, response: &Response) -> Result<(), EmbedError> {
        let slot = response.tag as usize;
        let pending = self.window.get_mut(slot).and_then(Option::take);
        let pending =
            pending.ok_or_else(|| EmbedError::Failed(format!("an answer to nothing: {response:?}")))?;
        if (response.outcome, response.first) != (pending.expected, pending.request.first) {
            return Err(EmbedError::Failed(format!("{:?} was answered with {response:?}", pending.request)));
        }
        let blocks = u64::from(pending.request.blocks);
        match (pending.expected, pending.request.operation) {
            (Outcome::Done, Operation::Write) => self.counts.written += blocks,
            (Outcome::Done, Operation::Read) => {
                self.compare(slot, &pending.request)?;
                self.counts.read += blocks;
            }
            _ => self.counts.refused += 1,
        }
        Ok(())
    }

    fn compare(&self, slot: usize, request: &Request) -> Result<(), EmbedError> {
        let mut found = vec![0; BLOCK_BYTES as usize];
        for number in 0..request.blocks as usize {
            self.blocks.read_at(slot * SLOT_BYTES + number * BLOCK_BYTES as usize, &mut found)?;
            let at = request.first + number as u64;
            let value = self.expected_values[(at - self.first) as usize];
            if found != block(value, at) {
                return Err(EmbedError::Failed(format!("block {at} holds other bytes than were written")));
            }
        }
        Ok(())
    }

    /// xorshift64. The requests need not be unpredictable.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Bytes of a slot of the window.
const SLOT_BYTES: usize = BLOCKS_MAX as usize * BLOCK_BYTES as usize;

/// The contents of a block: zeros at first, then bytes computed from a number and the slot.
fn block(value: u64, at: u64) -> Vec<u8> {
    if value == 0 {
        return vec![0; BLOCK_BYTES as usize];
    }
    let mut word = value ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(BLOCK_BYTES as usize);
    while bytes.len() < BLOCK_BYTES as usize {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes
}
