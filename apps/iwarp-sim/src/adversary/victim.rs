//! A whole node in virtual time whose link ends at an adversary, and an application that accepts every connection.

use ironwarp::memory::{self, FarEnd, MemoryConfig};
use ironwarp::{
    Access, Completion, CompletionQueue, Config, Context, Event, Nanos, ProtectionDomain, QpAttr, QueuePair,
    RecvWr, Region, ResourceUsage, Stack, Worker,
};
use ironwarp_port::{Burst, Frame};
use ironwarp_sim::VirtualClock;
use ironwarp_types::Clock;

/// The number of the victim's host, and the port that it listens on.
pub const VICTIM: u8 = 1;
/// See above.
pub const PORT: u16 = 4_791;

/// Bytes of the victim's memory, which its peers may read and write.
pub const MEMORY_BYTES: usize = 128 << 10;

/// Frames of each pool and each ring.
pub const FRAMES: usize = 1_024;

/// Receives that a queue pair keeps posted, and the bytes of each.
const RECEIVES: u32 = 64;
const RECEIVE_BYTES: u32 = 64;

/// A node and its application.
pub struct Victim {
    clock: VirtualClock,
    far: FarEnd,
    worker: Worker,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: Region,
    qps: Vec<QueuePair>,
    /// Completed receives.
    pub received: u64,
    stack: Stack,
}

impl Victim {
    /// A node with the default configuration, except for what `change` changes.
    pub fn new(change: impl FnOnce(&mut Config)) -> Result<Self, String> {
        let device = MemoryConfig {
            rx_frames: FRAMES,
            tx_frames: FRAMES,
            rx_ring_frames: FRAMES,
            tx_ring_frames: FRAMES,
            ..MemoryConfig::default()
        };
        let (port, far) = memory::detached(&device);
        let mut config = Config::in_memory("10.0.0.1/24").map_err(text)?;
        config.net.addresses = vec!["fd00::1/64".to_owned()];
        config.net.dad_probes_ipv6 = 0;
        config.port.ring_size = FRAMES as u16 / 2;
        (config.port.rx_frames, config.port.tx_frames) = (FRAMES as u32, FRAMES as u32);
        change(&mut config);
        let clock = VirtualClock::new();
        clock.advance_to(Nanos::from_secs(1));
        let (stack, worker) =
            Stack::builder(config).build_replayable(port, clock.clone(), [3, 4]).map_err(text)?;
        let mut ctx = stack.context().map_err(text)?;
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(4_096).map_err(text)?);
        let memory = ctx.register(pd, vec![7; MEMORY_BYTES], Access::all()).map_err(text)?;
        ctx.listen(([0, 0, 0, 0], PORT).into()).map_err(text)?;
        let (qps, received) = (Vec::new(), 0);
        let mut victim = Victim { clock, far, worker, ctx, pd, cq, memory, qps, received, stack };
        victim.settle();
        Ok(victim)
    }

    /// The steering tag and the first tagged offset of its memory.
    pub fn place(&self) -> (u32, u64) {
        (self.memory.stag().0, self.memory.base_to())
    }

    /// Puts frames into the receive ring. Returns how many it accepted.
    pub fn inject(&mut self, frames: &[Vec<u8>]) -> usize {
        frames.iter().filter(|frame| self.far.inject(frame)).count()
    }

    /// Polls the core until nothing is left to do at this time.
    pub fn work(&mut self) {
        for _ in 0..POLLS_MAX {
            if self.worker.poll(BURSTS).work == 0 {
                return;
            }
        }
    }

    /// Lets time pass.
    pub fn advance(&mut self, time: Nanos) {
        self.clock.advance_to(self.now() + time);
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// The application handles its events and completions, and the core its calls.
    pub fn settle(&mut self) {
        loop {
            self.work();
            let handled = self.take_events() + self.take_completions();
            if handled == 0 {
                return;
            }
        }
    }

    /// Takes the frames that the node has sent.
    pub fn collect(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let mut burst = Burst::new();
            self.far.collect(&mut burst);
            if burst.is_empty() {
                return all;
            }
            all.extend(burst.drain(..).map(|frame| frame.bytes().to_vec()));
        }
    }

    /// The resources that the core holds.
    pub fn held(&self) -> ResourceUsage {
        self.worker.resource_usage()
    }

    /// Checks the invariants of the core.
    pub fn check(&mut self) -> Result<(), String> {
        self.worker.check()
    }

    /// The sum of the counters with this name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counters = self.stack.counters();
        let mut of_name = counters.iter().filter(|(one, _)| *one == name).map(|(_, value)| *value).peekable();
        of_name.peek()?;
        Some(of_name.sum())
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

/// Bursts in one iteration.
const BURSTS: usize = 4;

/// Iterations until a node that never rests is left alone.
const POLLS_MAX: usize = 256;

fn text(error: impl core::fmt::Display) -> String {
    error.to_string()
}
