//! A stream as it is saved, to continue on another core loop.
//!
//! ```text
//!   in the rings, which stay with the context    begun requests, receives in use
//!   in the saved state                           positions, message numbers, responses, when requests complete
//!   made again from both                         outstanding requests
//! ```
//! A receive that came from a shared receive queue lies in a ring of the core, so it is saved too.
//! Not saved: what was placed out of order, since it is copied again in order; and what the core
//! began with other cores, for which saving waits ([`SaveError::Busy`]).
//!
//! What can fail: a state that contradicts itself or the rings is refused. Tags and addresses come
//! from the rings or are checked when they are used, so no state gives access to other memory.

use ironwarp_llp::saved::{decode, encode};
use ironwarp_llp::{RestoreError, SaveError};
use ironwarp_mem::{Access, Sge};
use ironwarp_types::STag;
use serde::{Deserialize, Serialize};

use super::complete::SavedProgress;
use super::cursor::SgeCursor;
use super::rtr::RTR_REQUEST;
use super::transmit::{Gate, Sender};
use super::{AtomicForwarder, Io, Stream, StreamState};
use crate::ddp::untagged::UntaggedQueue;
use crate::framing::Framing;
use crate::rdmap::{AtomicRequest, InboundRead, OutstandingRequest, ResponderEntry, Rfc7306Profile};
use crate::setup::{ReadDepths, RtrKinds};
use crate::wr::{RecvWqe, SendOpcode, SendWqe};

/// The version of the format, which changes with every struct that [`SavedStream`] contains.
pub(super) const VERSION: u16 = 1;

#[derive(Serialize, Deserialize)]
pub(super) struct SavedStream<F> {
    extensions: Option<Rfc7306Profile>,
    withheld: u16,
    framing: F,
    places_out_of_order: bool,
    rtr_awaited: u8,
    peer_lacks_atomics: bool,
    peer_has_atomics: bool,
    /// The receive sides of queues 0, 1 and 3.
    rx_queues: [UntaggedQueue; 3],
    recv_cursor: SgeCursor,
    reads: ReadDepths,
    /// Octets that have arrived for the oldest outstanding request.
    placed: u32,
    responses: Vec<SavedResponse>,
    sender: Sender,
    /// The number of the oldest request in the send ring.
    head: u32,
    progress: SavedProgress,
    shared_receives: Vec<SavedReceive>,
}

/// A response to send. Which core owns a word is found out again.
#[derive(Serialize, Deserialize)]
enum SavedResponse {
    Read(InboundRead),
    /// The octets of an Atomic Request, and its number on queue 1.
    Atomic(Vec<u8>, u32),
    /// An operation that another core has carried out.
    Completed {
        identifier: u32,
        msn: u32,
        original: u64,
    },
}

/// A receive that came from a shared receive queue.
#[derive(Serialize, Deserialize)]
struct SavedReceive {
    wr_id: u64,
    /// Address, length and tag of each element.
    list: Vec<(u64, u32, u32)>,
}

impl<F: Framing> Stream<F> {
    /// Returns the open stream as bytes. The stream stays.
    ///
    /// # Errors
    /// [`SaveError::Busy`] while a steering tag is invalidated or bound, or an atomic operation is
    /// with another core.
    #[cold]
    pub fn save<C>(&self, io: &mut Io<'_, C>) -> Result<Vec<u8>, SaveError> {
        if self.state != StreamState::Open {
            return Err(SaveError::NotEstablished);
        }
        if self.awaits_quiescence() {
            return Err(SaveError::Busy("a steering tag"));
        }
        let head = io.sends.head();
        let progress = self.send_progress.save(sequence(head, self.sender.next), io.memory);
        let responses = self.responses.iter().map(SavedResponse::of).collect::<Option<_>>();
        let taken = match io.rq_producer.is_some() {
            true => sequence(io.receives.head(), io.receives.refresh()),
            false => sequence(0, 0),
        };
        let saved = SavedStream {
            extensions: self.config.extensions,
            withheld: self.withheld.bits(),
            framing: &self.framing,
            places_out_of_order: self.out_of_order.as_ref().is_some_and(|placement| placement.is_active()),
            rtr_awaited: self.rtr_awaited.bits(),
            peer_lacks_atomics: self.peer_lacks_atomics,
            peer_has_atomics: self.peer_has_atomics,
            rx_queues: [self.rx_sends, self.rx_requests, self.rx_atomic_responses],
            recv_cursor: self.recv_cursor,
            reads: ReadDepths { ird: self.responses.ird(), ord: self.outstanding.ord() as u16 },
            placed: self.outstanding.front().map_or(0, |request| request.placed),
            responses: responses.ok_or(SaveError::Busy("an atomic operation on another core"))?,
            sender: self.sender,
            head,
            progress: progress.ok_or(SaveError::Busy("a steering tag"))?,
            shared_receives: taken.filter_map(|seq| io.receives.at(seq)).map(SavedReceive::of).collect(),
        };
        Ok(encode(VERSION, &saved))
    }

    /// Continues a saved stream in this one, which has not started. The send ring has the requests
    /// that it had, with the same numbers. Afterwards the stream reads and sends.
    ///
    /// # Errors
    /// The state contradicts itself or the rings. The stream is as before.
    #[cold]
    pub fn restore<C: AtomicForwarder>(
        &mut self,
        saved: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), RestoreError> {
        let saved: SavedStream<F> = decode(VERSION, saved)?;
        let unless = RestoreError::unless;
        unless(self.state == StreamState::Idle, "the queue pair has a connection")?;
        unless(io.sends.head() == saved.head, "the send ring is another one")?;
        io.sends.refresh();
        let mut stream = Stream::new(self.config);
        stream.config.extensions = saved.extensions;
        stream.withheld = Access::from_bits_truncate(saved.withheld);
        stream.rtr_awaited = RtrKinds::from_bits_truncate(saved.rtr_awaited);
        stream.peer_lacks_atomics = saved.peer_lacks_atomics;
        stream.peer_has_atomics = saved.peer_has_atomics;
        [stream.rx_sends, stream.rx_requests, stream.rx_atomic_responses] = saved.rx_queues;
        stream.recv_cursor = saved.recv_cursor;
        stream.sender = saved.sender;
        let begun = saved.sender.next.wrapping_sub(saved.head);
        let has_begun = begun > 0 || saved.progress.rtr_read;
        unless(!(has_begun && matches!(saved.sender.gate, Gate::Rtr(_))), "requests precede the indication")?;
        unless(stream.send_progress.restore(saved.head, begun, &saved.progress), "the begun requests")?;
        let requests = outstanding(&saved, io);
        unless(
            stream.outstanding.restore(saved.reads.ord, requests, saved.placed),
            "the outstanding requests",
        )?;
        let responses = saved.responses.iter().map(|response| response.entry(&stream, io)).collect();
        let responses: Option<Vec<_>> = responses;
        let are_valid = responses.is_some_and(|entries| stream.responses.restore(saved.reads.ird, entries));
        unless(are_valid, "the responses")?;
        stream.enter_full_operation(saved.framing);
        if let Some(placement) = &mut stream.out_of_order
            && !saved.places_out_of_order
        {
            placement.stop();
        }
        stream.check(io).map_err(|fault| RestoreError::Inconsistent(fault.into()))?;
        unless(take_receives(&saved.shared_receives, io), "the receives of a shared receive queue")?;
        *self = stream;
        self.forward_atomics(io);
        Ok(())
    }

    /// Makes the stream a new one that has not started, after it was saved.
    #[cold]
    pub fn forget<C>(&mut self, io: &mut Io<'_, C>) {
        *self = Stream::new(self.config);
        self.sender.skip_to(io.sends.head());
        if io.rq_producer.is_some() {
            let tail = io.receives.refresh();
            io.receives.release_to(tail);
        }
    }
}

/// The numbers from `head` to `tail`.
fn sequence(head: u32, tail: u32) -> impl Iterator<Item = u32> {
    (0..tail.wrapping_sub(head)).map(move |at| head.wrapping_add(at))
}

/// The indication, if it is a Read that is not answered, and the begun requests that wait for a
/// response: all but the first ones, which are answered.
fn outstanding<C, F>(saved: &SavedStream<F>, io: &Io<'_, C>) -> impl Iterator<Item = OutstandingRequest> {
    let begun = sequence(saved.head, saved.sender.next).map_while(|seq| Some((seq, io.sends.at(seq)?)));
    let waiting =
        begun.filter(|(_, wqe)| wqe.opcode.expects_response()).skip(saved.progress.reads_done as usize);
    let indication = saved.progress.rtr_read.then_some(RTR_REQUEST);
    indication.into_iter().chain(waiting.filter_map(|(seq, wqe)| outstanding_request(seq, wqe)))
}

fn outstanding_request(seq: u32, wqe: &SendWqe) -> Option<OutstandingRequest> {
    let sink = wqe.gather().at(0)?;
    let request = OutstandingRequest::new(sink.lkey, sink.addr, wqe.message_bytes(), seq);
    let invalidates = wqe.opcode == SendOpcode::ReadInvalidate;
    Some(OutstandingRequest { invalidates, atomic: !wqe.opcode.is_read(), ..request })
}

impl SavedResponse {
    /// Returns `None` if another core has the operation, or has refused it.
    fn of(entry: &ResponderEntry) -> Option<Self> {
        match *entry {
            ResponderEntry::Read(read) => Some(SavedResponse::Read(read)),
            ResponderEntry::Atomic { request, msn, .. } => {
                Some(SavedResponse::Atomic(request.encode().to_vec(), msn))
            }
            ResponderEntry::Completed { identifier, msn, outcome } => {
                outcome.ok().map(|original| SavedResponse::Completed { identifier, msn, original })
            }
            ResponderEntry::Forwarded { .. } => None,
        }
    }

    fn entry<F: Framing, C>(&self, stream: &Stream<F>, io: &Io<'_, C>) -> Option<ResponderEntry> {
        let profile = stream.config.extensions;
        match self {
            SavedResponse::Read(read) => Some(ResponderEntry::Read(*read)),
            SavedResponse::Atomic(octets, msn) => {
                let request = AtomicRequest::decode(octets, profile?).ok()?;
                // A tag that is gone is found when the operation is carried out.
                let word = io.memory.word(&stream.atomic_target(&request)).ok();
                let owner = word.filter(|_| !stream.config.atomic_locked).and_then(|word| word.claim().err());
                Some(ResponderEntry::Atomic { request, msn: *msn, owner })
            }
            SavedResponse::Completed { identifier, msn, original } => {
                profile?;
                let outcome = Ok(*original);
                Some(ResponderEntry::Completed { identifier: *identifier, msn: *msn, outcome })
            }
        }
    }
}

impl SavedReceive {
    fn of(wqe: &RecvWqe) -> Self {
        let list = wqe.scatter();
        let elements = (0..list.len()).filter_map(|at| list.at(at));
        SavedReceive { wr_id: wqe.wr_id, list: elements.map(|sge| (sge.addr, sge.len, sge.lkey.0)).collect() }
    }
}

/// Posts receives of a shared receive queue to the ring of the core. Returns whether they fit.
fn take_receives<C>(receives: &[SavedReceive], io: &mut Io<'_, C>) -> bool {
    let Some(producer) = io.rq_producer.as_deref_mut() else { return receives.is_empty() };
    producer.has_room(receives.len())
        && receives.iter().all(|receive| {
            let sge = |&(addr, len, lkey): &(u64, u32, u32)| Sge { addr, len, lkey: STag(lkey) };
            let list: Vec<Sge> = receive.list.iter().map(sge).collect();
            let write = |wqe: &mut RecvWqe| {
                wqe.wr_id = receive.wr_id;
                wqe.set_scatter(&list);
            };
            producer.post(write).is_ok()
        })
}
