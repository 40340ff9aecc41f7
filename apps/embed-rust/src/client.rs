//! A client that keeps its window full of requests of all kinds, and knows what every block must hold.

use core::net::SocketAddr;

use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Context, Event, QpAttr,
    QueuePair, RecvWr, Region, RemoteMemory, SendWr, Stack,
};

use crate::EmbedError;
use crate::protocol::{ANSWER_BYTES, Answer, BLOCK_BYTES, BLOCKS_MAX, Order, Outcome, Request, WINDOW};
use crate::server::pages;

/// What a client did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Blocks written.
    pub written: u64,
    /// Blocks read, each compared with what was written last.
    pub read: u64,
    /// Requests that were refused, as they should be.
    pub refused: u64,
}

/// One connection. It has a part of the disk for itself, from `first` on.
pub struct Client {
    ctx: Context,
    cq: CompletionQueue,
    qp: QueuePair,
    /// For each place in the window, room for the longest request.
    blocks: Region,
    answers: Region,
    /// What the blocks of the part hold: the number that their bytes follow from.
    model: Vec<u64>,
    first: u64,
    disk_blocks: u64,
    window: [Option<Asked>; WINDOW],
    connected: bool,
    random: u64,
    tally: Tally,
}

/// A request under way.
#[derive(Clone, Copy)]
struct Asked {
    request: Request,
    expected: Outcome,
}

impl Client {
    /// A client that connects to a server, with `blocks` blocks from `first` on for itself; what it asks for follows from
    /// `seed`.
    pub fn open(
        stack: &Stack,
        server: SocketAddr,
        (first, blocks): (u64, usize),
        seed: u64,
    ) -> Result<Self, EmbedError> {
        let mut ctx = stack.context()?;
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(4 * WINDOW as u32)?);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let window = ctx.register(pd, pages(WINDOW * SPAN)?, rights)?;
        let answers = ctx.register(pd, pages(WINDOW * ANSWER_BYTES)?, Access::LOCAL_WRITE)?;
        let attr = QpAttr {
            send_depth: 2 * WINDOW as u32,
            recv_depth: WINDOW as u32,
            max_sge: 1,
            ..QpAttr::new(cq)
        };
        let qp = ctx.create_qp(pd, &attr)?;
        for place in 0..WINDOW {
            let room = [answers.slice(place * ANSWER_BYTES, ANSWER_BYTES as u32)?];
            ctx.post_recv(qp, &RecvWr::new(place as u64, &room))?;
        }
        ctx.connect(qp, server, b"")?;
        Ok(Client {
            ctx,
            cq,
            qp,
            blocks: window,
            answers,
            model: vec![0; blocks],
            first,
            disk_blocks: 0,
            window: [None; WINDOW],
            connected: false,
            random: seed | 1,
            tally: Tally::default(),
        })
    }

    /// Takes what has come and, unless it is to stop, asks for more. Never waits.
    pub fn step(&mut self, more: bool) -> Result<(), EmbedError> {
        while let Some(event) = self.ctx.poll_event() {
            self.on_event(event)?;
        }
        let mut reaped = [Completion::default(); 2 * WINDOW];
        let count = self.ctx.poll_cq(self.cq, &mut reaped)?;
        reaped.iter().take(count).try_for_each(|done| self.on_completion(done))?;
        if !self.connected || !more {
            return Ok(());
        }
        (0..WINDOW).try_for_each(|place| if self.window[place].is_none() { self.ask(place) } else { Ok(()) })
    }

    /// What has been done so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether every request has been answered.
    pub fn is_idle(&self) -> bool {
        self.connected && self.window.iter().all(Option::is_none)
    }

    /// Closes the connection; answers how many are still open.
    pub fn close(&mut self, deadline: std::time::Instant) -> Result<usize, EmbedError> {
        Ok(self.ctx.drain(deadline)?.open)
    }

    fn on_event(&mut self, event: Event) -> Result<(), EmbedError> {
        match event {
            Event::Established { private_data, .. } => {
                let told = private_data.as_slice().try_into().map(u64::from_be_bytes);
                self.disk_blocks =
                    told.map_err(|_| EmbedError::Wrong("the server does not tell its size".into()))?;
                self.connected = true;
                Ok(())
            }
            Event::Rejected { private_data, .. } => {
                Err(EmbedError::Refused(String::from_utf8_lossy(&private_data).into_owned()))
            }
            Event::ConnectFailed { reason, .. } => Err(EmbedError::Over(format!("{reason:?}"))),
            Event::Disconnected { reason, .. } if self.connected && !self.is_idle() => {
                Err(EmbedError::Over(format!("{reason:?}")))
            }
            _ => Ok(()),
        }
    }

    /// The next request of a place: mostly reads and writes of its own part, now and then one that must be refused.
    fn ask(&mut self, place: usize) -> Result<(), EmbedError> {
        let blocks = 1 + (self.next() % u64::from(BLOCKS_MAX)) as u32;
        let own = (self.model.len() as u64).saturating_sub(blocks.into());
        let first = self.first + self.next() % (own + 1);
        let order = if self.next().is_multiple_of(2) { Order::Read } else { Order::Write };
        let stag = self.blocks.stag();
        let tagged_offset = self.blocks.base_to() + (place * SPAN) as u64;
        let memory = RemoteMemory { stag, tagged_offset };
        let mut request = Request { order, blocks, first, memory, tag: place as u32 };
        let mut expected = Outcome::Done;
        match self.next() % 16 {
            0 => (request.first, expected) = (self.disk_blocks - u64::from(blocks) + 1, Outcome::OutOfRange),
            1 => (request.first, expected) = (u64::MAX - 3, Outcome::OutOfRange),
            2 => (request.blocks, expected) = (BLOCKS_MAX + 1, Outcome::BadLength),
            _ if self.overlaps(&request) => return Ok(()),
            _ if order == Order::Write => self.write_blocks(place, &request)?,
            // What was there before must not pass for what is read.
            _ => self.blocks.fill(place * SPAN, blocks as usize * BLOCK_BYTES as usize, 0xee)?,
        }
        let bytes = request.encode();
        self.ctx.post_send(self.qp, &SendWr::send_inline(place as u64, &bytes).unsignaled())?;
        self.window[place] = Some(Asked { request, expected });
        Ok(())
    }

    /// Requests for the same blocks at once would have no order.
    fn overlaps(&self, request: &Request) -> bool {
        let end = |request: &Request| request.first + u64::from(request.blocks);
        let under_way = self.window.iter().flatten().filter(|asked| asked.expected == Outcome::Done);
        under_way
            .map(|asked| &asked.request)
            .any(|other| request.first < end(other) && other.first < end(request))
    }

    /// Fills a place with new blocks, and notes what they are.
    fn write_blocks(&mut self, place: usize, request: &Request) -> Result<(), EmbedError> {
        for number in 0..request.blocks as usize {
            let value = self.next();
            let at = (request.first - self.first) as usize + number;
            self.model[at] = value;
            self.blocks.write_at(
                place * SPAN + number * BLOCK_BYTES as usize,
                &block(value, request.first + number as u64),
            )?;
        }
        Ok(())
    }

    fn on_completion(&mut self, done: &Completion) -> Result<(), EmbedError> {
        if done.status != CompletionStatus::Success {
            // Receives that no answer came for are flushed at the end.
            let flushed = done.status == CompletionStatus::FlushedInError && self.is_idle();
            return if flushed { Ok(()) } else { Err(EmbedError::Over(format!("{:?}", done.status))) };
        }
        if done.opcode != CompletionOpcode::Receive {
            return Ok(());
        }
        let (at, mut bytes) = (done.wr_id as usize * ANSWER_BYTES, [0; ANSWER_BYTES]);
        self.answers.read_at(at, &mut bytes)?;
        let room = [self.answers.slice(at, ANSWER_BYTES as u32)?];
        self.ctx.post_recv(self.qp, &RecvWr::new(done.wr_id, &room))?;
        let answer = bytes.get(..done.byte_len as usize).and_then(Answer::decode);
        let answer = answer.ok_or_else(|| EmbedError::Wrong("no answer of the protocol".into()))?;
        self.on_answer(&answer)
    }

    fn on_answer(&mut self, answer: &Answer) -> Result<(), EmbedError> {
        let place = answer.tag as usize;
        let asked = self.window.get_mut(place).and_then(Option::take);
        let asked = asked.ok_or_else(|| EmbedError::Wrong(format!("an answer to nothing: {answer:?}")))?;
        if (answer.outcome, answer.first) != (asked.expected, asked.request.first) {
            return Err(EmbedError::Wrong(format!("{:?} was answered with {answer:?}", asked.request)));
        }
        let blocks = u64::from(asked.request.blocks);
        match (asked.expected, asked.request.order) {
            (Outcome::Done, Order::Write) => self.tally.written += blocks,
            (Outcome::Done, Order::Read) => {
                self.compare(place, &asked.request)?;
                self.tally.read += blocks;
            }
            _ => self.tally.refused += 1,
        }
        Ok(())
    }

    fn compare(&self, place: usize, request: &Request) -> Result<(), EmbedError> {
        let mut found = vec![0; BLOCK_BYTES as usize];
        for number in 0..request.blocks as usize {
            self.blocks.read_at(place * SPAN + number * BLOCK_BYTES as usize, &mut found)?;
            let at = request.first + number as u64;
            let value = self.model[(at - self.first) as usize];
            if found != block(value, at) {
                return Err(EmbedError::Wrong(format!("block {at} holds other bytes than were written")));
            }
        }
        Ok(())
    }

    /// xorshift64: what is asked for need not be hard to guess.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Bytes of a place in the window.
const SPAN: usize = BLOCKS_MAX as usize * BLOCK_BYTES as usize;

/// What a block holds: zeros at first, then bytes that follow from a number and its place.
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
