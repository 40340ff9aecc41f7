//! Connection requests: checks of their private data, accept and reject (NVMe RDMA transport,
//! RDMA_CM).
//!
//! [`super::requests`] says when.

use core::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ironwarp::{AcceptParams, ConnectionRequest, KeepAlive, QpAttr, ReadDepths, RejectParams};
use zerocopy::{FromBytes, IntoBytes};

use super::Reactor;
use super::admission::Admission;
use super::connection::Connection;
use super::party::{COMMAND_COST, CONNECTION_COST, Weight};
use super::wait::Who;
use crate::NvmfError;
use crate::target::{ADMIN_QUEUE_ENTRIES, Queue, TargetCounter};
use crate::wire::CQE_BYTES;
use crate::wire::fabrics::{CmAccept, CmRequest, CmStatus};

/// Bytes of private data that are looked at.
const PRIVATE_DATA_BYTES: usize = size_of::<CmRequest>();
/// Work requests of a command: an RDMA Read, then an RDMA Write with its response.
const SENDS_PER_ENTRY: usize = 3;

/// TCP's probes of a silent host: it is given up after some 25 s.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(10), interval: Duration::from_secs(5), probes: 3 };

/// Requests of other cores that are taken in a turn.
const ARRIVALS_PER_TURN: usize = 8;
/// What a reject costs: a frame and a message to the worker.
const REJECT_COST: u64 = COMMAND_COST;

/// A connection request on its way to its core.
#[derive(Debug)]
pub struct Arrival {
    request: ConnectionRequest,
    remote: SocketAddr,
    private_data: Vec<u8>,
    peer_reads: Option<ReadDepths>,
}

impl Arrival {
    pub(super) fn new(
        request: ConnectionRequest,
        remote: SocketAddr,
        private_data: &[u8],
        peer_reads: Option<ReadDepths>,
    ) -> Self {
        let private_data = private_data.get(..PRIVATE_DATA_BYTES).unwrap_or(private_data).to_vec();
        Arrival { request, remote, private_data, peer_reads }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.remote.ip()
    }

    pub(super) fn is_of(&self, request: &ConnectionRequest) -> bool {
        self.request == *request
    }

    #[cfg(test)]
    pub(super) fn number(&self) -> u64 {
        self.request.to_bits()[0]
    }
}

/// What a core tells another about a connection request. The messages of one request arrive in
/// order.
enum RequestMessage {
    /// It has arrived, and is the other core's.
    Arrival(Arrival),
    /// It has ended.
    Ended(ConnectionRequest),
}

/// How connection requests get to their cores.
pub struct Arrivals {
    own: Receiver<RequestMessage>,
    cores: Vec<Sender<RequestMessage>>,
}

/// Returns the ends for each of `cores` cores.
pub fn arrivals(cores: usize) -> Vec<Arrivals> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..cores).map(|_| channel()).unzip();
    receivers.into_iter().map(|own| Arrivals { own, cores: senders.clone() }).collect()
}

/// Returns the completion queue entries that a connection may need.
pub fn entries_reserved(slots: usize) -> u32 {
    let depth = |count: usize| count.next_power_of_two() as u32;
    depth(slots) + depth(slots * SENDS_PER_ENTRY)
}

impl Reactor {
    /// Passes a request to its core.
    pub(super) fn on_arrival(&mut self, arrival: Arrival) -> Result<(), NvmfError> {
        let core = arrival.request.core();
        if core == self.worker.core() {
            return self.take_request(arrival);
        }
        self.pass_to(core, RequestMessage::Arrival(arrival));
        Ok(())
    }

    /// The host of a request has left, or its start-up timeout is over: nothing of it keeps a slot.
    pub(super) fn on_request_ended(&mut self, request: ConnectionRequest) {
        if request.core() == self.worker.core() {
            self.forget(&request);
        } else {
            self.pass_to(request.core(), RequestMessage::Ended(request));
        }
    }

    /// A core that has ended takes nothing; the start-up timeout ends its requests.
    fn pass_to(&self, core: u16, message: RequestMessage) {
        let _ = self.arrivals.cores.get(usize::from(core)).map(|sender| sender.send(message));
    }

    fn forget(&mut self, request: &ConnectionRequest) {
        self.requests.remove(request);
        self.deferred.retain(|(arrival, _)| !arrival.is_of(request));
    }

    /// Lets a request wait until the core has time for it.
    fn take_request(&mut self, arrival: Arrival) -> Result<(), NvmfError> {
        if self.is_draining {
            return self.reject(&arrival, CmStatus::NoResources, TargetCounter::ConnectionsFull);
        }
        match self.requests.push(arrival) {
            None => Ok(()),
            Some(refused) => self.reject(&refused, CmStatus::NoResources, TargetCounter::RequestsFull),
        }
    }

    /// Takes the requests that other cores passed, and answers one if the turns have paid for the
    /// last answer: one that waits for a slot, else the next one. Returns whether requests wait.
    pub(super) fn answer_requests(&mut self) -> Result<bool, NvmfError> {
        for _ in 0..ARRIVALS_PER_TURN {
            match self.arrivals.own.try_recv() {
                Ok(RequestMessage::Arrival(arrival)) => self.take_request(arrival)?,
                Ok(RequestMessage::Ended(request)) => self.forget(&request),
                Err(_) => break,
            }
        }
        if self.is_draining {
            return self.reject_all().map(|()| false);
        }
        for _ in 0..self.deferred.len() {
            if !self.requests.may_answer() {
                break;
            }
            let Some((arrival, reject_at_ms)) = self.deferred.pop_front() else { break };
            self.answer_at(arrival, Some(reject_at_ms))?;
        }
        if self.requests.may_answer()
            && let Some(arrival) = self.requests.pop()
        {
            self.answer_at(arrival, None)?;
        }
        Ok(self.requests.len() > 0)
    }

    /// Rejects what waits, at the end of the reactor.
    #[cold]
    fn reject_all(&mut self) -> Result<(), NvmfError> {
        let deferred = core::mem::take(&mut self.deferred).into_iter().map(|(arrival, _)| arrival);
        let waiting: Vec<_> = deferred.chain(core::iter::from_fn(|| self.requests.pop())).collect();
        let full = TargetCounter::ConnectionsFull;
        waiting.iter().try_for_each(|one| self.reject(one, CmStatus::NoResources, full))
    }

    /// Accepts, rejects or defers a request. One that was deferred is rejected from `reject_at_ms`
    /// on.
    fn answer_at(&mut self, arrival: Arrival, reject_at_ms: Option<u64>) -> Result<(), NvmfError> {
        let (qid, entries) = match self.check_request(&arrival) {
            Ok(checked) => checked,
            Err(status) => return self.reject(&arrival, status, TargetCounter::ConnectionsInvalid),
        };
        match self.admit(arrival.address(), entries, reject_at_ms.is_some())? {
            Admission::Accept => match self.accept(&arrival, (qid, entries)) {
                Ok(()) => {
                    self.counters.accepted += 1;
                    Ok(())
                }
                Err(status) => self.reject(&arrival, status, TargetCounter::ConnectionsFull),
            },
            Admission::Wait if reject_at_ms.is_none_or(|at| self.io.now_ms < at) => {
                match self.defer(arrival, reject_at_ms) {
                    None => Ok(()),
                    Some(arrival) => {
                        self.reject(&arrival, CmStatus::NoResources, TargetCounter::ConnectionsFull)
                    }
                }
            }
            Admission::Wait => self.reject(&arrival, CmStatus::NoResources, TargetCounter::ConnectionsFull),
            Admission::Refuse(reached) => self.reject(&arrival, CmStatus::NoResources, reached),
        }
    }

    #[cold]
    fn reject(
        &mut self,
        arrival: &Arrival,
        status: CmStatus,
        reason: TargetCounter,
    ) -> Result<(), NvmfError> {
        self.counters.rejected += 1;
        self.io.count(reason);
        self.requests.charge(REJECT_COST);
        if self.target.may_log(self.io.now_ms) {
            tracing::warn!("{} is rejected: {status} ({})", arrival.remote, reason.name());
        }
        let private_data = status.reject();
        let params = RejectParams { private_data: private_data.as_bytes(), ..RejectParams::default() };
        Ok(self.io.ctx.reject_with(&arrival.request, &params)?)
    }

    /// Returns QID and the entries of the submission queue.
    fn check_request(&self, arrival: &Arrival) -> Result<(u16, u16), CmStatus> {
        let (request, _) =
            CmRequest::read_from_prefix(&arrival.private_data).map_err(|_| CmStatus::InvalidLength)?;
        if request.recfmt.get() != 0 {
            return Err(CmStatus::InvalidRecordFormat);
        }
        let qid = request.qid.get();
        let limits = &self.target.limits;
        if qid > limits.io_queues {
            return Err(CmStatus::InvalidQueueId);
        }
        // HSQSIZE is 0's based.
        let entries_max = if qid == 0 { ADMIN_QUEUE_ENTRIES } else { limits.queue_entries };
        let entries = request.hsqsize.get().checked_add(1).ok_or(CmStatus::InvalidHsqsize)?;
        if entries < 2 || entries > entries_max {
            return Err(CmStatus::InvalidHsqsize);
        }
        if request.hrqsize.get() == 0 {
            return Err(CmStatus::InvalidHrqsize);
        }
        // Data of Writes is pulled by RDMA Read.
        if arrival.peer_reads.is_some_and(|reads| reads.ird == 0) {
            return Err(CmStatus::InvalidIrd);
        }
        Ok((qid, entries))
    }

    /// Accepts a request, for which there is room.
    fn accept(&mut self, arrival: &Arrival, (qid, entries): (u16, u16)) -> Result<(), CmStatus> {
        let place = self.free_place();
        let capsules = self.io.memory.take_capsules(entries).ok_or(CmStatus::NoResources)?;
        let party = self.io.parties.join(arrival.address());
        let who = Who { party, connection: place as u32 };
        self.io.parties.charge(party, CONNECTION_COST, Weight::Background);
        self.requests.charge(CONNECTION_COST);
        match self.try_accept(arrival, who, (qid, entries), capsules.clone()) {
            Ok(connection) => {
                if qid > 0 {
                    self.io.memory.buffers().reserve(who);
                }
                self.by_qp.insert(connection.qp.num().0, who.connection);
                if place == self.connections.len() {
                    self.connections.push(None);
                }
                if let Some(free) = self.connections.get_mut(place) {
                    *free = Some(Box::new(connection));
                }
                self.reserved += u64::from(entries_reserved(entries.into()));
                Ok(())
            }
            Err(error) => {
                if self.target.may_log(self.io.now_ms) {
                    tracing::warn!("{} is not accepted: {error}", arrival.remote);
                }
                self.io.memory.return_capsules(&capsules);
                self.io.parties.leave(party);
                Err(CmStatus::NoResources)
            }
        }
    }

    fn try_accept(
        &mut self,
        arrival: &Arrival,
        who: Who,
        (qid, entries): (u16, u16),
        capsules: Vec<u32>,
    ) -> Result<Connection, NvmfError> {
        let attr = QpAttr {
            send_depth: (usize::from(entries) * SENDS_PER_ENTRY) as u32,
            recv_depth: entries.into(),
            max_sge: 2,
            inline_bytes: CQE_BYTES,
            // The host has nothing to read here.
            ird: 1,
            ord: self.limits.reads,
            complete_on_copy: true,
            // A host that vanishes sends nothing, and may have no keep-alive timer (NVMe).
            keep_alive: Some(KEEP_ALIVE),
            ..QpAttr::new(self.cq)
        };
        let qp = self.io.ctx.create_qp(self.pd, &attr)?;
        let queue = Queue::new(self.target.clone(), qid, entries).from_address(arrival.address());
        let private_data = CmAccept::new(entries);
        let params = AcceptParams { private_data: private_data.as_bytes(), ..AcceptParams::default() };
        let made = Connection::new(&mut self.io, who, qp, queue, capsules)
            .and_then(|made| Ok(self.io.ctx.accept_with(&arrival.request, qp, &params).map(|()| made)?));
        if made.is_err() {
            self.destroy(qp)?;
        }
        made
    }
}
