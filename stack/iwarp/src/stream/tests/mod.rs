//! Test fixtures: one side of a connection with its stream, rings, memory and a log of completions.

mod atomic;
mod atomic_forwarding;
mod errors;
mod fast_path;
mod immediate;
mod markers;
mod memory;
mod messages;
mod one_pass;
mod operations;
mod oracle;
mod out_of_order;
mod responses;
mod rfc5040_ordering;
mod rtr;
mod saved;
mod sctp;
mod tx_scheduling;

use std::collections::VecDeque;

use ironwarp_arch::checksum;
use ironwarp_llp::{ByteStream, UnitSource};
use ironwarp_mem::{Access, AtomicOp, AtomicTarget, CoreMem, MemLimits, MemTable, Region, Sge};
use ironwarp_rings::slots::{self, SlotConsumer, SlotProducer};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::limits::FPDU_MARKED_BYTES_MAX;
use ironwarp_types::{CoreId, PdId, QpNum, STag};

use super::*;
use crate::completion::{Completion, CompletionOpcode, CompletionStatus};
use crate::mpa::fpdu;
use crate::wr::{SendFlags, SendOpcode};

/// The payload of a segment at MTU 1500 with timestamps.
const SEGMENT_BYTES: usize = 1448;
const PD: PdId = PdId(1);
const EVERYTHING: Access = Access::all();

/// In-order bytes in pieces.
#[derive(Default)]
struct Pieces(VecDeque<Vec<u8>>);

impl Pieces {
    fn push(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.push_back(bytes.to_vec());
        }
    }
}

impl ByteStream for Pieces {
    fn available(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    fn front(&self) -> &[u8] {
        self.0.front().map_or(&[], Vec::as_slice)
    }

    fn peek(&self, out: &mut [u8]) -> bool {
        let bytes: Vec<u8> = self.0.iter().flatten().copied().take(out.len()).collect();
        if bytes.len() == out.len() {
            out.copy_from_slice(&bytes);
        }
        bytes.len() == out.len()
    }

    fn consume(&mut self, mut n: usize) {
        while let Some(mut piece) = self.0.pop_front() {
            if n < piece.len() {
                self.0.push_front(piece.split_off(n));
                return;
            }
            n -= piece.len();
        }
    }
}

#[derive(Default)]
struct CompletionLog {
    sends: Vec<Completion>,
    receives: Vec<Completion>,
    /// The operations that were forwarded, and the credits that are left.
    forwarded_ops: Vec<(CoreId, u32, AtomicTarget, AtomicOp)>,
    credits: usize,
}

impl CompletionSink for &mut CompletionLog {
    fn on_send_completion(&mut self, completion: Completion) {
        self.sends.push(completion);
    }

    fn on_receive_completion(&mut self, completion: Completion) {
        self.receives.push(completion);
    }
}

impl SharedReceives for &mut CompletionLog {}

impl AtomicForwarder for &mut CompletionLog {
    fn forward_atomic(
        &mut self,
        owner: CoreId,
        serial: u32,
        target: &AtomicTarget,
        operation: AtomicOp,
    ) -> Result<(), NoCredit> {
        self.credits = self.credits.checked_sub(1).ok_or(NoCredit)?;
        self.forwarded_ops.push((owner, serial, *target, operation));
        Ok(())
    }
}

struct Endpoint<F = Mpa> {
    stream: Stream<F>,
    sends: SlotConsumer<SendWqe>,
    receives: SlotConsumer<RecvWqe>,
    sq: SlotProducer<SendWqe>,
    rq: SlotProducer<RecvWqe>,
    table: MemTable,
    memory: CoreMem,
    stats: CoreStats,
    log: CompletionLog,
    arrived: Pieces,
    pulled: u64,
    scratch: Vec<u8>,
}

fn config() -> StreamConfig {
    StreamConfig {
        qp: QpNum(1),
        pd: PD,
        recv_pd: PD,
        ord: 4,
        ird: 4,
        send_depth: 64,
        complete_on_copy: false,
        interleave_untagged: false,
        place_out_of_order: false,
        extensions: None,
        atomic_locked: false,
        fast_path: true,
    }
}

impl<F: Framing> Endpoint<F> {
    fn with_framing(config: StreamConfig) -> Self {
        let (sq, sends) = slots::ring(config.send_depth as usize);
        let (rq, receives) = slots::ring(64);
        let (table, memory) = memory();
        Endpoint {
            stream: Stream::new(config),
            sends,
            receives,
            sq,
            rq,
            table,
            memory,
            stats: CoreStats::detached(),
            log: CompletionLog::default(),
            arrived: Pieces::default(),
            pulled: 0,
            scratch: vec![0; FPDU_MARKED_BYTES_MAX],
        }
    }

    fn with<R>(&mut self, call: impl FnOnce(&mut Stream<F>, &mut Io<'_, &mut CompletionLog>) -> R) -> R {
        let Endpoint { stream, sends, receives, memory, stats, log, .. } = self;
        call(stream, &mut Io { sends, receives, rq_producer: None, callbacks: log, memory, stats })
    }

    fn region(&self, bytes: usize, access: Access) -> Region {
        self.table.register(PD, vec![0u8; bytes], access).unwrap()
    }

    fn filled(&self, bytes: usize, access: Access) -> Region {
        let region = self.region(bytes, access);
        region.write_at(0, &pattern(bytes)).unwrap();
        region
    }

    fn post(&mut self, wr_id: u64, opcode: SendOpcode, write: impl FnOnce(&mut SendWqe)) {
        let staged = self.sq.stage(|wqe| {
            (wqe.wr_id, wqe.opcode, wqe.flags) = (wr_id, opcode, SendFlags::SIGNALED);
            write(wqe);
        });
        assert!(staged.is_ok());
        self.sq.publish();
    }

    fn send(&mut self, wr_id: u64, gather: &[Sge]) {
        self.post(wr_id, SendOpcode::Send, |wqe| wqe.set_gather(gather));
    }

    fn send_inline(&mut self, wr_id: u64, bytes: &[u8]) {
        self.post(wr_id, SendOpcode::Send, |wqe| wqe.set_inline(bytes));
    }

    fn write(&mut self, wr_id: u64, gather: &[Sge], remote: (STag, u64)) {
        self.post(wr_id, SendOpcode::Write, |wqe| at_remote(wqe, gather, remote));
    }

    fn read(&mut self, wr_id: u64, sink: Sge, remote: (STag, u64)) {
        self.post(wr_id, SendOpcode::Read, |wqe| at_remote(wqe, &[sink], remote));
    }

    fn receive(&mut self, wr_id: u64, scatter: &[Sge]) {
        let staged = self.rq.stage(|wqe| {
            wqe.wr_id = wr_id;
            wqe.set_scatter(scatter);
        });
        assert!(staged.is_ok());
        self.rq.publish();
    }

    /// Returns the next unit, empty if there is nothing to send.
    fn pull(&mut self, room: usize) -> Vec<u8> {
        let mut out = vec![0xee; room];
        let Endpoint { stream, sends, receives, memory, stats, log, .. } = self;
        let mut source = stream.limited_source(
            Io { sends, receives, rq_producer: None, callbacks: log, memory, stats },
            i64::MAX,
        );
        let bytes = source.fill(&mut out);
        if let Some(sum) = source.sum() {
            assert_eq!(checksum::fold(sum), checksum::fold(checksum::sum(&out[..bytes])), "{bytes} octets");
        }
        self.pulled += bytes as u64;
        self.check();
        out.truncate(bytes);
        out
    }

    fn pull_all(&mut self, room: usize) -> Vec<Vec<u8>> {
        std::iter::repeat_with(|| self.pull(room)).take_while(|unit| !unit.is_empty()).collect()
    }

    fn check(&mut self) {
        assert_eq!(self.with(|stream, io| stream.check(io)), Ok(()));
    }

    /// Acknowledges everything that was pulled.
    fn ack_all(&mut self) {
        let total = self.pulled;
        self.with(|stream, io| stream.on_acked(total, io));
        self.check();
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.stats.read(counter)
    }
}

impl Endpoint {
    fn idle(config: StreamConfig) -> Self {
        Endpoint::with_framing(config)
    }

    fn started(config: StreamConfig, role: Role, crc: bool) -> Self {
        let mut side = Endpoint::idle(config);
        side.stream.start(StreamStart::plain(role, crc));
        side
    }

    fn bytes(region: &Region) -> Vec<u8> {
        let mut bytes = vec![0; region.len()];
        region.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn initiator() -> Self {
        Endpoint::started(config(), Role::Initiator, true)
    }

    fn responder() -> Self {
        Endpoint::started(config(), Role::Responder, true)
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.arrived.push(bytes);
        let Endpoint { stream, sends, receives, memory, stats, log, arrived, scratch, .. } = self;
        let mut io = Io { sends, receives, rq_producer: None, callbacks: log, memory, stats };
        let outcome = stream.on_readable(arrived, scratch, &mut io);
        self.check();
        outcome
    }
}

fn at_remote(wqe: &mut SendWqe, gather: &[Sge], (stag, to): (STag, u64)) {
    wqe.set_gather(gather);
    wqe.remote_stag = stag;
    wqe.remote_to = to;
}

fn memory() -> (MemTable, CoreMem) {
    // A known secret, so that every run has the same tags.
    let table = MemTable::with_secret(MemLimits { regions_max: 256, cores_max: 2 }, [1, 2]).unwrap();
    let core = table.core(CoreId(0)).unwrap();
    (table, core)
}

/// Octets that differ from zero and from their neighbours.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8 + 1).collect()
}

fn all(region: &Region) -> Sge {
    region.slice(0, region.len() as u32).unwrap()
}

fn remote(region: &Region) -> (STag, u64) {
    (region.stag(), region.base_to())
}

/// Returns the FPDU of a ULPDU.
fn framed(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = vec![0; fpdu::fpdu_bytes(ulpdu.len())];
    fpdu[2..2 + ulpdu.len()].copy_from_slice(ulpdu);
    assert_eq!(fpdu::encode(&mut fpdu, ulpdu.len(), true), fpdu.len());
    fpdu
}

/// Returns the ULPDUs of a unit, which must consist of whole FPDUs (RFC 5044 s5.1).
fn ulpdus(mut unit: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !unit.is_empty() {
        let whole = fpdu::fpdu_bytes(u16::from_be_bytes([unit[0], unit[1]]).into());
        found.push(fpdu::decode(&unit[..whole], true).unwrap().to_vec());
        unit = &unit[whole..];
    }
    found
}

/// Exchanges and acknowledges units until neither side has more to send.
fn run(a: &mut Endpoint, b: &mut Endpoint) {
    loop {
        let (from_a, from_b) = (a.pull(SEGMENT_BYTES), b.pull(SEGMENT_BYTES));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        let _ = b.feed(&from_a);
        let _ = a.feed(&from_b);
        a.ack_all();
        b.ack_all();
    }
}

fn pair() -> (Endpoint, Endpoint) {
    (Endpoint::initiator(), Endpoint::responder())
}

fn ids(completions: &[Completion]) -> Vec<(u64, CompletionStatus)> {
    completions.iter().map(|completion| (completion.wr_id, completion.status)).collect()
}

const OK: CompletionStatus = CompletionStatus::Success;
const FLUSHED: CompletionStatus = CompletionStatus::FlushedInError;
