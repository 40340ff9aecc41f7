//! An open case: its completion queue and, for each queue pair, two memory regions.
//!
//! `source` holds what is sent, written, and read by the peer; `sink` holds what arrives. Both are
//! divided into slots of one message. Without validation one slot serves all messages, as in
//! perftest.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use ironwarp::{
    Access, AlignedBuf, Completion, CompletionQueue, Extensions, Framing, QpAttr, QueuePair, RecvWr, Region,
    RemoteMemory, STag, SendWr, Sge, SharedReceiveQueue, Window,
};
use ironwarp_bench::pattern::Pattern;
use ironwarp_bench::{Case, Test};
use ironwarp_types::QpNum;
use ironwarp_types::limits::INLINE_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::endpoint::Endpoint;
use crate::error::{Error, Result};

/// Limit for connecting or disconnecting all queue pairs of a case.
pub const CM_TIMEOUT: Duration = Duration::from_secs(10);
/// Receives beyond the credits: for credit updates and the requests to check.
const SPARE_RECEIVES: u32 = 8;
const RECEIVE_LIST_MAX: usize = 16;
/// Sends beyond the depth: for credit updates and the requests to check.
const SPARE_SENDS: u32 = 16;
/// Receives of a latency test. One is used at a time; the others are posted ahead.
const LATENCY_RECEIVES: u32 = 4;
const REAP: usize = 64;
/// Limit of outstanding Reads of one end.
const READS_MAX: u32 = 64;
/// The pattern seed of both ends.
pub const SEED: u64 = 0x1a7;

/// One end of a case.
pub struct OpenCase {
    pub case: Case,
    pub cq: CompletionQueue,
    /// Completions reaped last. Kept between polls: clearing them takes longer than polling an
    /// empty queue.
    pub reaped: Box<[Completion; REAP]>,
    pub qps: Vec<QpContext>,
    /// Where receives come from if queue pairs have none of their own.
    srq: Option<SharedReceives>,
    /// The words of an atomic test, each in its own cache line: one set, or one set per core.
    /// Operations change only the server's.
    pub words: AtomicWords,
}

/// A shared receive queue, and what tells its arrivals apart.
struct SharedReceives {
    queue: SharedReceiveQueue,
    /// The index of each queue pair by its number.
    by_number: HashMap<QpNum, usize>,
}

/// A message that arrived in a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrived {
    /// The queue pair that received it.
    pub index: usize,
    /// The queue pair that the memory of the receive belongs to: another one with a shared receive
    /// queue.
    pub memory_of: usize,
    pub slot: usize,
}

/// Sets of words, which several servers can share.
pub type AtomicWords = Arc<Vec<Region>>;

pub const WORD_STRIDE: usize = 64;

/// One queue pair and its memory.
pub struct QpContext {
    pub qp: QueuePair,
    pub source: Region,
    pub sink: Region,
    /// The peer's regions. In an atomic test `sink` is its words.
    pub remote: RemoteBuffers,
    /// The words of this end in an atomic test.
    words: Option<(u32, u64)>,
    /// Bound to the sink anew for each message of a test of Send with Invalidate.
    pub window: Option<Window>,
    /// Negotiated framing, on the client once connected.
    pub framing: Option<Framing>,
    /// One gather list per slot of `source`.
    pub gather: Vec<[Sge; 1]>,
    /// One scatter list per slot of `sink`.
    pub scatter: Vec<[Sge; 1]>,
    /// Messages sent, over all slices.
    pub sent: u64,
    /// Messages of this end that are known to be complete, over all slices.
    pub completed: u64,
    /// Messages received, over all slices.
    pub received: u64,
    receives_posted: u64,
}

/// STag and tagged offset of both regions of an end.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RemoteBuffers {
    source: (u32, u64),
    sink: (u32, u64),
}

/// The private data of both ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub case: usize,
    pub qp_index: usize,
    pub buffers: RemoteBuffers,
}

impl RemoteBuffers {
    pub fn source(&self, offset: u64) -> RemoteMemory {
        RemoteMemory { stag: STag(self.source.0), tagged_offset: self.source.1.wrapping_add(offset) }
    }

    pub fn sink(&self, offset: u64) -> RemoteMemory {
        RemoteMemory { stag: STag(self.sink.0), tagged_offset: self.sink.1.wrapping_add(offset) }
    }
}

/// Slots and queue depths of one end of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSizes {
    pub source_slots: u32,
    /// One per receive, so that no message is overwritten before it is checked.
    pub sink_slots: u32,
    /// Receives that the peer has credits for.
    pub receives: u32,
    pub sends: u32,
    pub reads: u32,
}

impl QueueSizes {
    pub fn of(case: &Case) -> Self {
        let receives = match case.test {
            test if test.consumes_receives() && case.validate => case.depth,
            test if test.consumes_receives() => case.depth * 2,
            _ => LATENCY_RECEIVES,
        };
        let (source_slots, sink_slots) = match case.validate {
            true => (case.depth, receives.max(case.depth) + SPARE_RECEIVES),
            // Each returned value has its own slot.
            false if case.test.is_atomic() => (1, case.depth),
            false => (1, 1),
        };
        // A Write with Immediate is two requests.
        let requests = if case.test == Test::WriteImmBw { case.depth * 2 } else { case.depth };
        let (sends, reads) = (requests + SPARE_SENDS, case.depth.min(READS_MAX));
        QueueSizes { source_slots, sink_slots, receives, sends, reads }
    }

    /// Bytes of the application's memory that messages pass through, at both ends.
    pub fn bytes(case: &Case) -> u64 {
        let sizes = QueueSizes::of(case);
        let directions = 1 + u64::from(case.bidirectional);
        u64::from(sizes.source_slots + sizes.sink_slots) * case.bytes * u64::from(case.qps) * directions
    }

    /// Receives of a queue that all queue pairs share.
    pub fn shared_receives(&self, case: &Case) -> u64 {
        u64::from(self.receives + SPARE_RECEIVES) * u64::from(case.qps)
    }
}

impl OpenCase {
    /// Creates everything but the connections.
    pub fn new(endpoint: &mut Endpoint, case: &Case, shared: Option<AtomicWords>) -> Result<Self> {
        let sizes = QueueSizes::of(case);
        let cqes = (sizes.sends + sizes.receives + SPARE_RECEIVES).next_power_of_two() * 2 * case.qps;
        let cq = endpoint.ctx.create_cq(cqes)?;
        let words = shared.map_or_else(|| words(endpoint, case), Ok)?;
        let mut open = OpenCase { words, ..OpenCase::without_qps(case, cq) };
        match open.create_qps(endpoint, sizes) {
            Ok(()) => Ok(open),
            // A server continues after a case that failed, so its resources are freed.
            Err(error) => open.destroy(endpoint).and(Err(error)),
        }
    }

    /// A case whose queue pairs the test creates itself.
    pub fn without_qps(case: &Case, cq: CompletionQueue) -> Self {
        let (case, reaped) = (case.clone(), Box::new([Completion::default(); REAP]));
        OpenCase { case, cq, reaped, qps: Vec::new(), srq: None, words: AtomicWords::default() }
    }

    fn create_qps(&mut self, endpoint: &mut Endpoint, sizes: QueueSizes) -> Result<()> {
        if self.case.srq {
            // A message needs a receive on its core, and a post chooses the core.
            if endpoint.has_several_cores() {
                let line =
                    "--srq: needs one polled core at each end, because each core has receives of its own";
                return Err(Error::failed(line));
            }
            let (pd, depth) = (endpoint.pd, sizes.shared_receives(&self.case) as u32);
            let queue = endpoint.ctx.create_srq(pd, depth, 1)?;
            self.srq = Some(SharedReceives { queue, by_number: HashMap::new() });
        }
        for index in 0..self.case.qps {
            let queues = (self.cq, self.srq.as_ref().map(|srq| srq.queue));
            let mut qp_ctx = QpContext::new(endpoint, &self.case, sizes, queues, index)?;
            if let Some(srq) = &mut self.srq {
                srq.by_number.insert(qp_ctx.qp.num(), index as usize);
            }
            qp_ctx.words = self.words.iter().cycle().nth(index as usize).map(stag_and_to);
            self.qps.push(qp_ctx);
        }
        for index in 0..self.qps.len() {
            self.post_receives(endpoint, index, u64::from(sizes.receives + SPARE_RECEIVES))?;
        }
        Ok(())
    }

    /// Polls, or sleeps where this end waits for events, and reaps. Returns the number of
    /// completions.
    #[inline(always)]
    pub fn poll(&mut self, endpoint: &mut Endpoint) -> Result<usize> {
        endpoint.poll_or_wait_completions(self.cq, &mut *self.reaped)
    }

    /// Reaps without polling.
    #[inline(always)]
    pub fn reap(&mut self, endpoint: &mut Endpoint) -> Result<usize> {
        endpoint.reap(self.cq, &mut *self.reaped)
    }

    /// Messages of each queue pair that are complete, over all slices.
    pub fn completed_by_qp(&self) -> Vec<u64> {
        self.qps.iter().map(|qp_ctx| qp_ctx.completed).collect()
    }

    /// The same since an earlier count.
    pub fn completed_since(&self, before: &[u64]) -> Vec<u64> {
        self.qps.iter().zip(before).map(|(qp_ctx, before)| qp_ctx.completed - before).collect()
    }

    #[inline(always)]
    pub fn arrived(&self, completion: &Completion) -> Arrived {
        let (memory_of, slot) = qp_and_slot(completion.wr_id);
        let index = match &self.srq {
            None => memory_of,
            // Every queue pair of the case is in the map.
            Some(srq) => srq.by_number.get(&completion.qp).copied().unwrap_or(memory_of),
        };
        Arrived { index, memory_of, slot }
    }

    /// Whether receives come from a shared receive queue.
    #[inline(always)]
    pub fn has_srq(&self) -> bool {
        self.srq.is_some()
    }

    /// Posts a receive for the one in which a message arrived.
    pub fn replace_receive(&mut self, endpoint: &mut Endpoint, arrived: Arrived) -> Result<()> {
        let Some(srq) = &self.srq else { return self.post_receives(endpoint, arrived.index, 1) };
        let scatter = &self.qps[arrived.memory_of].scatter[arrived.slot];
        let wr = RecvWr::new(wr_id(arrived.memory_of, arrived.slot), scatter);
        Ok(endpoint.ctx.post_srq_recv(srq.queue, &wr)?)
    }

    /// Posts the next receives of a queue pair, in lists, or the first ones in its memory to the
    /// shared receive queue.
    pub fn post_receives(&mut self, endpoint: &mut Endpoint, index: usize, count: u64) -> Result<()> {
        if self.has_srq() {
            let slots = self.qps[index].scatter.len() as u64;
            return (0..count).try_for_each(|receive| {
                let slot = (receive % slots) as usize;
                self.replace_receive(endpoint, Arrived { index, memory_of: index, slot })
            });
        }
        let qp_ctx = &mut self.qps[index];
        let end = qp_ctx.receives_posted + count;
        while qp_ctx.receives_posted < end {
            let list_end = end.min(qp_ctx.receives_posted + RECEIVE_LIST_MAX as u64);
            let wrs: ArrayVec<RecvWr<'_>, RECEIVE_LIST_MAX> = (qp_ctx.receives_posted..list_end)
                .map(|receive| (receive % qp_ctx.scatter.len() as u64) as usize)
                .map(|slot| RecvWr::new(wr_id(index, slot), &qp_ctx.scatter[slot]))
                .collect();
            endpoint.ctx.post_recvs(qp_ctx.qp, &wrs).map_err(|(_, error)| error)?;
            qp_ctx.receives_posted = list_end;
        }
        Ok(())
    }

    pub fn destroy(&self, endpoint: &mut Endpoint) -> Result<()> {
        self.qps.iter().try_for_each(|qp_ctx| endpoint.ctx.destroy_qp(qp_ctx.qp))?;
        let srq_is_gone = self.srq.as_ref().is_none_or(|srq| endpoint.destroy_srq(srq.queue, CM_TIMEOUT));
        match srq_is_gone && endpoint.destroy_cq(self.cq, CM_TIMEOUT) {
            true => Ok(()),
            false => Err(Error::too_long("giving queue pairs back")),
        }
    }
}

pub fn hello(case: usize, qp_index: usize, ours: &QpContext) -> Vec<u8> {
    let buffers = RemoteBuffers {
        source: stag_and_to(&ours.source),
        sink: ours.words.unwrap_or_else(|| stag_and_to(&ours.sink)),
    };
    // Six numbers take far less than the 512 bytes of private data.
    serde_json::to_vec(&Hello { case, qp_index, buffers }).unwrap_or_default()
}

fn stag_and_to(region: &Region) -> (u32, u64) {
    (region.stag().0, region.base_to())
}

/// Extensions that a case needs; `None` leaves them to the configuration.
pub fn extensions(case: &Case) -> Option<Extensions> {
    case.test.needs_rfc7306().then_some(Extensions::Rfc7306)
}

/// Registers the zeroed words of an atomic test; no region for other tests. Queue pairs are
/// assigned to cores round-robin, and sets of words to queue pairs in the same way.
pub fn words(endpoint: &mut Endpoint, case: &Case) -> Result<AtomicWords> {
    let owners = if case.test.is_atomic() { endpoint.word_owners(case.owner) } else { Vec::new() };
    let (bytes, access) = (case.words as usize * WORD_STRIDE, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC);
    let register = |owner: Option<u16>| match owner {
        Some(core) => {
            Ok(endpoint.ctx.register_on_core(endpoint.pd, AlignedBuf::pages(bytes)?, access, core)?)
        }
        None => Ok(endpoint.ctx.register(endpoint.pd, AlignedBuf::pages(bytes)?, access)?),
    };
    owners.into_iter().map(register).collect::<Result<Vec<Region>>>().map(Arc::new)
}

impl QpContext {
    fn new(
        endpoint: &mut Endpoint,
        case: &Case,
        sizes: QueueSizes,
        (cq, srq): (CompletionQueue, Option<SharedReceiveQueue>),
        index: u32,
    ) -> Result<Self> {
        let bytes = case.bytes as usize;
        let region = |slots: u32, access| -> Result<Region> {
            Ok(endpoint.ctx.register(endpoint.pd, AlignedBuf::pages(bytes * slots as usize)?, access)?)
        };
        let source = region(sizes.source_slots, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
        let has_window = case.test == Test::SendInvLat;
        let bind = if has_window { Access::BIND } else { Access::empty() };
        let sink = region(sizes.sink_slots, Access::LOCAL_WRITE | Access::REMOTE_WRITE | bind)?;
        let window = has_window.then(|| endpoint.ctx.create_window(endpoint.pd)).transpose()?;
        let slots = |region: &Region| -> Result<Vec<[Sge; 1]>> {
            (0..region.len() / bytes)
                .map(|slot| Ok([region.slice(slot * bytes, case.bytes as u32)?]))
                .collect()
        };
        let (gather, scatter) = (slots(&source)?, slots(&sink)?);
        let attr = QpAttr {
            send_depth: sizes.sends,
            recv_depth: sizes.receives + SPARE_RECEIVES,
            max_sge: 1,
            inline_bytes: INLINE_BYTES_MAX.min(case.inline as usize),
            ird: sizes.reads as u16,
            ord: sizes.reads as u16,
            core: endpoint.core_of(index),
            srq,
            ..QpAttr::new(cq)
        };
        let pd = endpoint.pd;
        let qp = endpoint.ctx.create_qp(pd, &attr)?;
        let qp_ctx = QpContext {
            qp,
            source,
            sink,
            remote: RemoteBuffers::default(),
            words: None,
            window,
            framing: None,
            gather,
            scatter,
            sent: 0,
            completed: 0,
            received: 0,
            receives_posted: 0,
        };
        // Reads always return message 0.
        qp_ctx.fill_source(case, 0, 0)?;
        Ok(qp_ctx)
    }

    /// The slot of the receive that the last message consumed, without a shared receive queue.
    pub fn last_slot(&self) -> usize {
        ((self.received - 1) % self.scatter.len() as u64) as usize
    }

    /// Fills a slot of the source with a message's pattern, where the case is validated.
    pub fn fill_source(&self, case: &Case, slot: usize, message: u64) -> Result<()> {
        if !case.validate {
            return Ok(());
        }
        let mut bytes = vec![0; case.bytes as usize];
        Pattern::new(SEED, message).fill(&mut bytes, 0);
        Ok(self.source.write_at(slot * bytes.len(), &bytes)?)
    }

    /// Copies the bytes of an inline message to `buffer`. Returns `None` if messages are not
    /// inline.
    #[inline(always)]
    pub fn inline_bytes<'b>(
        &self,
        case: &Case,
        buffer: &'b mut [u8; INLINE_BYTES_MAX],
    ) -> Result<Option<&'b [u8]>> {
        let can_inline = matches!(case.test, Test::SendLat | Test::SendBw | Test::WriteLat | Test::WriteBw);
        let Some(message) = buffer.get_mut(..case.bytes as usize) else { return Ok(None) };
        if !can_inline || case.bytes > u64::from(case.inline) {
            return Ok(None);
        }
        self.source.read_at(0, message)?;
        Ok(Some(message))
    }

    /// The Send, Write or Read of a message; the Write where Immediate Data follows.
    #[inline(always)]
    pub fn message_wr<'a>(
        &'a self,
        case: &Case,
        id: u64,
        slot: usize,
        inline: Option<&'a [u8]>,
    ) -> SendWr<'a> {
        let there = self.remote.sink(slot as u64 * case.bytes);
        match (case.test, inline) {
            (Test::SendLat | Test::SendBw, Some(bytes)) => SendWr::send_inline(id, bytes),
            (Test::SendLat | Test::SendBw | Test::SendInvLat, None) => SendWr::send(id, &self.gather[slot]),
            (Test::WriteLat | Test::WriteBw, Some(bytes)) => SendWr::write_inline(id, bytes, there),
            (Test::ReadLat | Test::ReadBw, _) => self.read_wr(id, slot),
            _ => SendWr::write(id, &self.gather[slot], there),
        }
    }

    /// A Read of the peer's first message.
    #[inline(always)]
    pub fn read_wr(&self, id: u64, slot: usize) -> SendWr<'_> {
        SendWr::read(id, &self.scatter[slot], self.remote.source(0))
    }

    /// Whether a slot of the sink holds a message's pattern in all but its last
    /// `skipped_tail_bytes` bytes.
    pub fn sink_matches(
        &self,
        case: &Case,
        slot: usize,
        message: u64,
        skipped_tail_bytes: usize,
    ) -> Result<bool> {
        let mut bytes = vec![0; case.bytes as usize];
        self.sink.read_at(slot * bytes.len(), &mut bytes)?;
        let checked = bytes.len().saturating_sub(skipped_tail_bytes);
        Ok(Pattern::new(SEED, message).first_mismatch(&bytes[..checked], 0).is_none())
    }
}

/// The ID of a work request: queue pair in the upper half, slot in the lower half.
pub fn wr_id(qp_index: usize, slot: usize) -> u64 {
    (qp_index as u64) << 32 | slot as u64
}

/// The queue pair and slot of a work request's ID.
pub fn qp_and_slot(wr_id: u64) -> (usize, usize) {
    ((wr_id >> 32) as usize, (wr_id & 0xffff_ffff) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironwarp_bench::PathKind;

    #[test]
    fn a_number_holds_lane_and_slot() {
        assert_eq!(qp_and_slot(wr_id(1023, 4095)), (1023, 4095));
    }

    #[test]
    fn validated_messages_have_a_slot_each() {
        let mut case = Case::new(Test::SendBw, 1 << 20, 9000, PathKind::Memif);
        case.depth = 8;
        assert_eq!((QueueSizes::of(&case).source_slots, QueueSizes::of(&case).sink_slots), (1, 1));
        case.validate = true;
        let sizes = QueueSizes::of(&case);
        assert_eq!((sizes.source_slots, sizes.receives), (8, 8));
        assert!(sizes.sink_slots >= sizes.receives + SPARE_RECEIVES);
    }

    #[test]
    fn places_fit_private_data() {
        let buffers = RemoteBuffers { source: (u32::MAX, u64::MAX), sink: (u32::MAX, u64::MAX) };
        let bytes = serde_json::to_vec(&Hello { case: usize::MAX, qp_index: usize::MAX, buffers })
            .expect("plain data");
        assert!(bytes.len() <= 512, "{}", bytes.len());
    }
}
