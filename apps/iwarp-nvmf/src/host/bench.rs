//! A workload: reads or writes at a depth, with a histogram of latencies and, if wanted, a check of
//! every byte.

use hdrhistogram::Histogram;

use super::admin::succeed;
use super::{BlockRange, Host, NamespaceSummary, Transfer};
use crate::NvmfError;
use crate::wire::opcode::io;

/// The order of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Places from a generator with this seed.
    Random(u64),
    /// One after another.
    Sequential,
}

/// What a host does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Whether it writes.
    pub writes: bool,
    /// Bytes of a command.
    pub bytes: u32,
    /// Commands outstanding on each queue.
    pub depth: u16,
    /// Commands in all.
    pub commands: u64,
    /// The order.
    pub pattern: Pattern,
    /// Writes contents that name their block, or checks them.
    pub verify: bool,
}

/// The result of a workload.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// Commands that completed.
    pub commands: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Nanoseconds from the first command to the last response.
    pub elapsed_ns: u64,
    /// Nanoseconds from command to response.
    pub latency_ns: Histogram<u64>,
}

/// Returns the contents of a block that a verified workload writes.
pub fn pattern_block(nsid: u32, lba: u64, block: &mut [u8]) {
    let mut word = lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(nsid) << 48 | 1;
    for bytes in block.chunks_mut(8) {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.iter_mut().zip(word.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    }
}

/// A workload on its way.
struct Run {
    workload: Workload,
    namespace: NamespaceSummary,
    /// Blocks of a command.
    blocks: u32,
    /// Pieces of the namespace, each of the size of a command.
    places: u64,
    issued: u64,
    random: u64,
    /// By queue and command: the first block, and when it was sent.
    sent: Vec<Vec<(u64, u64)>>,
    report: BenchReport,
    scratch: Vec<u8>,
    expected: Vec<u8>,
}

impl Run {
    fn next_place(&mut self) -> u64 {
        let place = match self.workload.pattern {
            Pattern::Sequential => self.issued % self.places,
            Pattern::Random(_) => {
                // xorshift64: the pieces need not be unpredictable.
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.random % self.places
            }
        };
        self.issued += 1;
        place * u64::from(self.blocks)
    }

    fn fill(&self, slba: u64, data: &mut [u8]) {
        let block_bytes = self.namespace.block_bytes as usize;
        for (lba, block) in (slba..).zip(data.chunks_mut(block_bytes)) {
            pattern_block(self.namespace.nsid, lba, block);
        }
    }
}

impl Host {
    /// Runs a workload on all I/O queues.
    ///
    /// # Errors
    ///
    /// A command fails, a connection ends, no response comes, or a byte differs.
    pub fn bench(
        &mut self,
        namespace: NamespaceSummary,
        workload: Workload,
        between: &mut dyn FnMut(),
    ) -> Result<BenchReport, NvmfError> {
        let mut run = self.begin(namespace, workload)?;
        let started = self.now_ns();
        let (mut last, timeout_ns) = (started, self.settings.timeout.as_nanos() as u64);
        while run.report.commands < workload.commands {
            let mut done = 0;
            for queue in 1..self.queues.len() {
                done += self.reap(queue, &mut run)?;
                self.issue(queue, &mut run)?;
            }
            self.poll()?;
            between();
            let now = self.now_ns();
            last = if done > 0 { now } else { last };
            if (1..self.queues.len()).any(|queue| !self.is_up(queue)) {
                return Err(NvmfError::Ended("during the workload".to_owned()));
            }
            if now.saturating_sub(last) > timeout_ns {
                return Err(NvmfError::Ended(format!("no response within {:?}", self.settings.timeout)));
            }
        }
        run.report.elapsed_ns = last - started;
        Ok(run.report)
    }

    fn begin(&self, namespace: NamespaceSummary, workload: Workload) -> Result<Run, NvmfError> {
        // A target may report blocks of any size, and 0 stands for one that does not fit 32 bits.
        let blocks = workload.bytes.checked_div(namespace.block_bytes).unwrap_or(0);
        let places = namespace.blocks.checked_div(blocks.into()).unwrap_or(0);
        let fits = workload.bytes <= self.settings.buffer_bytes
            && workload.bytes.is_multiple_of(namespace.block_bytes);
        if !fits || places == 0 || self.queues.len() < 2 {
            let (bytes, block) = (workload.bytes, namespace.block_bytes);
            return Err(NvmfError::Protocol(format!(
                "commands of {bytes} bytes do not fit blocks of {block}, or the buffers"
            )));
        }
        let seed = if let Pattern::Random(seed) = workload.pattern { seed } else { 0 };
        let latency_ns = Histogram::new_with_bounds(1, 60_000_000_000, 3)
            .map_err(|error| NvmfError::Protocol(error.to_string()))?;
        let bytes = workload.bytes as usize;
        Ok(Run {
            workload,
            namespace,
            blocks,
            places,
            issued: 0,
            random: seed | 1,
            sent: vec![vec![(0, 0); usize::from(self.settings.queue_entries)]; self.queues.len()],
            report: BenchReport { commands: 0, bytes: 0, elapsed_ns: 0, latency_ns },
            scratch: vec![0; bytes],
            expected: vec![0; bytes],
        })
    }

    fn issue(&mut self, queue: usize, run: &mut Run) -> Result<(), NvmfError> {
        let entries = usize::from(self.settings.queue_entries.saturating_sub(1));
        let workload = run.workload;
        while run.issued < workload.commands
            && entries - self.free_commands(queue) < usize::from(workload.depth)
        {
            let Some(cid) = self.reserve(queue) else { return Ok(()) };
            let slba = run.next_place();
            let range = BlockRange { nsid: run.namespace.nsid, slba, blocks: run.blocks };
            let (opcode, transfer) = if workload.writes {
                (io::WRITE, self.transfer_to_target(workload.bytes))
            } else {
                (io::READ, Transfer::FromTarget(workload.bytes))
            };
            if workload.verify {
                let mut data = std::mem::take(&mut run.scratch);
                // Before a Read, other bytes, so that the former contents cannot pass.
                if workload.writes {
                    run.fill(slba, &mut data)
                } else {
                    data.fill(0xee)
                }
                self.write_buffer(queue, cid, &data)?;
                run.scratch = data;
            }
            if let Some(sent) = run.sent.get_mut(queue).and_then(|queue| queue.get_mut(usize::from(cid))) {
                *sent = (slba, self.now_ns());
            }
            self.send(queue, cid, range.entry(opcode), transfer)?;
        }
        Ok(())
    }

    fn reap(&mut self, queue: usize, run: &mut Run) -> Result<u64, NvmfError> {
        let mut done = 0;
        while let Some(completion) = self.next_completion(queue) {
            succeed(if run.workload.writes { "Write" } else { "Read" }, completion.entry)?;
            let sent = run.sent.get(queue).and_then(|queue| queue.get(usize::from(completion.cid)));
            let (slba, at) = sent.copied().unwrap_or_default();
            run.report.latency_ns.saturating_record(self.now_ns().saturating_sub(at));
            run.report.commands += 1;
            run.report.bytes += u64::from(run.workload.bytes);
            done += 1;
            if run.workload.verify && !run.workload.writes {
                self.check(queue, completion.cid, slba, run)?;
            }
            self.release(queue, completion.cid);
        }
        Ok(done)
    }

    fn check(&mut self, queue: usize, cid: u16, slba: u64, run: &mut Run) -> Result<(), NvmfError> {
        let (mut found, mut expected) = (std::mem::take(&mut run.scratch), std::mem::take(&mut run.expected));
        self.read_buffer(queue, cid, &mut found)?;
        run.fill(slba, &mut expected);
        let same = found == expected;
        (run.scratch, run.expected) = (found, expected);
        let differs =
            || NvmfError::Protocol(format!("the blocks from {slba} on hold other bytes than were written"));
        if same { Ok(()) } else { Err(differs()) }
    }
}
