//! Out-of-order placement: what may be placed, what may not, and that nothing else changes.

mod conditions;
mod in_order_delivery;
mod oracle;

use std::collections::BTreeSet;
use std::ops::{Bound, Range, RangeBounds};

use ironwarp_llp::{LatestArrival, OutOfOrderBytes};

use super::*;
use crate::mpa::startup::Markers;

/// A stream of which some octets have arrived, in any order. Octets beyond a gap are presented as
/// TCP does.
struct Arrival {
    octets: Vec<u8>,
    present: Vec<bool>,
    consumed: usize,
    /// The starts of the pieces.
    cuts: BTreeSet<usize>,
    latest: Range<usize>,
}

impl Arrival {
    fn of(octets: Vec<u8>) -> Self {
        let present = vec![false; octets.len()];
        Arrival { octets, present, consumed: 0, cuts: BTreeSet::new(), latest: 0..0 }
    }

    /// The octets of `range` arrive as one segment. Returns whether they are in order.
    fn arrive(&mut self, range: Range<usize>) -> bool {
        let next = self.end_of_run(self.consumed);
        self.present[range.clone()].fill(true);
        self.cuts.extend([range.start, range.end]);
        self.latest = range.clone();
        range.start <= next
    }

    fn end_of_run(&self, from: usize) -> usize {
        (from..self.octets.len()).find(|&at| !self.present[at]).unwrap_or(self.octets.len())
    }

    fn start_of_run(&self, from: usize) -> usize {
        (0..from).rev().find(|&at| !self.present[at]).map_or(0, |gap| gap + 1)
    }

    /// Returns the octets from `at` to the next cut or gap.
    fn from(&self, at: usize) -> &[u8] {
        let cut = self.cuts.range(at + 1..).next().copied().unwrap_or(self.octets.len());
        &self.octets[at..cut.min(self.end_of_run(at)).max(at)]
    }
}

impl ByteStream for Arrival {
    fn available(&self) -> usize {
        self.end_of_run(self.consumed) - self.consumed
    }

    fn front(&self) -> &[u8] {
        self.from(self.consumed)
    }

    fn peek(&self, out: &mut [u8]) -> bool {
        let fits = out.len() <= self.available();
        if fits {
            out.copy_from_slice(&self.octets[self.consumed..self.consumed + out.len()]);
        }
        fits
    }

    fn consume(&mut self, n: usize) {
        self.consumed += n.min(self.available());
    }
}

impl OutOfOrderBytes for Arrival {
    fn latest(&self) -> Option<LatestArrival> {
        let place =
            |range: Range<usize>| (range.start - self.consumed) as u32..(range.end - self.consumed) as u32;
        let run = self.start_of_run(self.latest.start)..self.end_of_run(self.latest.start);
        (run.start > self.consumed)
            .then(|| LatestArrival { piece: place(self.latest.clone()), run: place(run) })
    }

    fn piece(&self, at: u32) -> &[u8] {
        self.from(self.consumed + at as usize)
    }

    fn peek_at(&self, at: u32, out: &mut [u8]) -> bool {
        let at = self.consumed + at as usize;
        let whole = at + out.len() <= self.octets.len()
            && self.present[at..at + out.len()].iter().all(|&present| present);
        if whole {
            out.copy_from_slice(&self.octets[at..at + out.len()]);
        }
        whole
    }
}

impl Endpoint {
    /// A segment arrives. The stream is called as the core loop calls it.
    fn arrive(&mut self, arrival: &mut Arrival, segment: impl RangeBounds<usize>) -> Result<(), StreamError> {
        let next = arrival.arrive(within(segment, arrival.octets.len()));
        let Endpoint { stream, sends, receives, memory, stats, log, scratch, .. } = self;
        let mut io = Io { sends, receives, rq_producer: None, callbacks: log, memory, stats };
        let outcome = if next {
            stream.on_readable(arrival, scratch, &mut io)
        } else {
            stream.on_out_of_order(arrival, scratch, &io);
            Ok(())
        };
        self.check();
        outcome
    }
}

fn within(segment: impl RangeBounds<usize>, end: usize) -> Range<usize> {
    let start = match segment.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(_) | Bound::Unbounded => 0,
    };
    match segment.end_bound() {
        Bound::Excluded(&end) => start..end,
        Bound::Included(_) | Bound::Unbounded => start..end,
    }
}

const OUT_OF_ORDER: bool = true;
const MARKED: Markers = Markers { sent: false, received: true };

/// A side that sends markers.
fn sender() -> Endpoint {
    let mut side = Endpoint::idle(config());
    let markers = Markers { sent: true, received: false };
    side.stream
        .start(StreamStart { framing: Mpa::new(true, markers), ..StreamStart::plain(Role::Initiator, true) });
    side
}

/// A side that receives. With markers and CRCs it may place out of order.
fn receiver(place_out_of_order: bool, markers: Markers, crc: bool) -> Endpoint {
    let mut side = Endpoint::idle(StreamConfig { place_out_of_order, ..config() });
    side.stream
        .start(StreamStart { framing: Mpa::new(crc, markers), ..StreamStart::plain(Role::Responder, crc) });
    side
}

/// Two sides, of which the second asked for markers and places out of order.
fn out_of_order_pair() -> (Endpoint, Endpoint) {
    (sender(), receiver(OUT_OF_ORDER, MARKED, true))
}

/// Returns everything that a side has to send, and the range of each unit.
fn stream_of(side: &mut Endpoint) -> (Arrival, Vec<Range<usize>>) {
    let units = side.pull_all(SEGMENT_BYTES);
    let mut at = 0;
    let ranges = units.iter().map(|unit| {
        at += unit.len();
        at - unit.len()..at
    });
    let ranges = ranges.collect();
    (Arrival::of(units.concat()), ranges)
}

/// Payload octets of a full segment of a marked stream.
const FULL: usize = SEGMENT_BYTES - 3 * 4 - 6 - 14;

/// Returns the number of FPDUs placed out of order.
fn placed(side: &Endpoint) -> u64 {
    side.counted(Counter::IwarpOutOfOrderPlacements)
}
