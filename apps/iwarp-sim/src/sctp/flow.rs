//! Messages of flows: when they are due, what they hold, and when they arrived.

use std::collections::BTreeMap;

use ironwarp_llp::{ConnId, UnitSource};
use ironwarp_sctp::MessageHeader;
use ironwarp_types::Nanos;

/// Messages that belong together, as those of a queue pair. The receiver delivers them in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The SCTP stream.
    pub stream: u16,
    /// Whether SCTP delivers them in the order of its stream, and not the receiver.
    pub is_ordered: bool,
    /// Octets of a message. It is as long as a packet takes, if that is less.
    pub message_bytes: usize,
    pub count: u64,
    /// When the first one is due, and the time between two.
    pub first_at: Nanos,
    pub every: Nanos,
}

impl Flow {
    /// Messages of whole packets, all due at once.
    pub fn bulk(count: u64) -> Self {
        Flow {
            stream: 0,
            is_ordered: false,
            message_bytes: usize::MAX,
            count,
            first_at: Nanos::ZERO,
            every: Nanos::ZERO,
        }
    }

    pub(super) fn header(&self) -> MessageHeader {
        MessageHeader { stream: self.stream, ppid: 0, is_unordered: !self.is_ordered }
    }

    fn due_at(&self, number: u64) -> Nanos {
        self.first_at + self.every.times(number)
    }
}

/// A flow that is being sent.
pub(super) struct Sender {
    pub id: ConnId,
    pub flow: Flow,
    /// Its place among the flows.
    pub number: u16,
    pub sent: u64,
}

impl Sender {
    /// Returns when the next message is due.
    pub fn next_at(&self) -> Option<Nanos> {
        (self.sent < self.flow.count).then(|| self.flow.due_at(self.sent))
    }
}

/// The messages of a flow that are due.
pub(super) struct Due<'a>(pub &'a mut Sender, pub Nanos);

impl UnitSource for Due<'_> {
    fn is_empty(&mut self) -> bool {
        self.0.next_at().is_none_or(|at| at > self.1)
    }

    fn fill(&mut self, room: &mut [u8]) -> usize {
        if self.is_empty() || room.len() < HEADER_BYTES {
            return 0;
        }
        let Due(sender, now) = self;
        let len = sender.flow.message_bytes.clamp(HEADER_BYTES, room.len());
        // A message that is due from the start counts from when it is sent.
        let due_at = if sender.flow.every == Nanos::ZERO { *now } else { sender.flow.due_at(sender.sent) };
        let header = [sender.number.into(), sender.sent, due_at.0].map(u64::to_be_bytes);
        let (front, rest) = room[..len].split_at_mut(HEADER_BYTES);
        front.copy_from_slice(header.as_flattened());
        rest.fill(sender.sent as u8);
        sender.sent += 1;
        len
    }
}

/// The number of its flow, its own, and when it was due.
const HEADER_BYTES: usize = 24;

/// What has arrived.
#[derive(Debug, Default)]
pub struct Arrivals {
    flows: Vec<FlowArrivals>,
    pub bytes: u64,
    /// When the first message was due.
    pub first_due_at: Option<Nanos>,
    /// When the last message arrived.
    pub last_at: Nanos,
    pub(super) fault: Option<String>,
}

#[derive(Debug, Default)]
struct FlowArrivals {
    count: u64,
    delivered: u64,
    /// When messages ahead of their turn were due.
    early: BTreeMap<u64, Nanos>,
    /// From when it was due until it was delivered, for each message.
    latencies: Vec<Nanos>,
}

impl Arrivals {
    pub fn expect(&mut self, flows: &[Flow]) {
        self.flows =
            flows.iter().map(|flow| FlowArrivals { count: flow.count, ..Default::default() }).collect();
    }

    pub fn are_complete(&self) -> bool {
        (0..self.flows.len()).all(|flow| self.is_complete(flow))
    }

    pub fn is_complete(&self, flow: usize) -> bool {
        self.flows.get(flow).is_some_and(|flow| flow.delivered == flow.count)
    }

    pub(super) fn on_message(&mut self, now: Nanos, payload: &[u8]) {
        let bytes = payload.len();
        let Some((header, rest)) = payload.split_first_chunk::<HEADER_BYTES>() else {
            return self.report(format!("a message of {bytes} bytes"));
        };
        let word = |at: usize| header[8 * at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
        let [flow, number, due_at] = [0, 1, 2].map(word);
        let due_at = Nanos(due_at);
        if rest.iter().any(|octet| *octet != number as u8) {
            self.report(format!("message {number} of flow {flow} is changed"));
        }
        let Some(arrivals) = self.flows.get_mut(flow as usize) else {
            return self.report(format!("a message of flow {flow}"));
        };
        if number < arrivals.delivered || arrivals.early.insert(number, due_at).is_some() {
            return self.report(format!("message {number} of flow {flow} arrived twice"));
        }
        while let Some(due_at) = arrivals.early.remove(&arrivals.delivered) {
            arrivals.delivered += 1;
            arrivals.latencies.push(now.since(due_at));
        }
        self.bytes += bytes as u64;
        self.first_due_at.get_or_insert(due_at);
        self.last_at = now;
    }

    fn report(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    /// Returns the time below which the latency of `percent` of the messages of some flows is.
    pub fn percentile(&self, flows: core::ops::Range<usize>, percent: usize) -> Nanos {
        let mut all: Vec<Nanos> = self.flows[flows].iter().flat_map(|flow| flow.latencies.clone()).collect();
        all.sort_unstable();
        all.get(all.len() * percent / 100).copied().unwrap_or(Nanos::MAX)
    }

    /// Returns the bits per second, from the first message's time to the last arrival.
    pub fn goodput_bits_per_s(&self) -> u64 {
        let took = self.last_at.since(self.first_due_at.unwrap_or_default()).0.max(1);
        u64::try_from(u128::from(self.bytes) * 8_000_000_000 / u128::from(took)).unwrap_or(u64::MAX)
    }
}
