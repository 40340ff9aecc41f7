//! One direction of the injector: random faults, and queues of delayed frames.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::SeededEntropy;

use super::direction::Direction;
use super::faults::FaultRates;
use crate::memory::checksummed;
use crate::{Burst, Frame, Port};

/// One direction.
pub(super) struct FaultQueue<P: Port, S: Direction<P>> {
    rates: FaultRates,
    rng: SeededEntropy,
    /// Frames that have passed the injector.
    ready: VecDeque<S::Item>,
    /// Frames delayed for a time, the earliest first.
    delayed: VecDeque<Delayed<S::Item>>,
    /// Frames delayed until others have passed.
    overtaken: ArrayVec<Overtaken<S::Item>, OVERTAKEN_FRAMES_MAX>,
}

struct Delayed<T> {
    frame: T,
    until_poll: u64,
}

struct Overtaken<T> {
    frame: T,
    passes_left: u64,
    until_poll: u64,
}

/// The faults of a frame.
pub(super) struct FaultContext<'a, P: Port> {
    pub(super) port: &'a mut P,
    pub(super) stats: &'a CoreStats,
    pub(super) poll: u64,
}

impl<P: Port, S: Direction<P>> FaultQueue<P, S> {
    pub(super) fn new() -> Self {
        FaultQueue {
            rates: FaultRates::default(),
            rng: SeededEntropy::new(0),
            ready: VecDeque::with_capacity(READY_FRAMES_MAX),
            delayed: VecDeque::with_capacity(DELAYED_FRAMES_MAX),
            overtaken: ArrayVec::new(),
        }
    }

    pub(super) fn set_rates(&mut self, rates: FaultRates, seed: u64) {
        self.rates = rates;
        self.rng = SeededEntropy::new(seed);
    }

    /// Returns whether no fault is injected and no frame is delayed.
    pub(super) fn is_transparent(&self) -> bool {
        self.rates.is_none() && self.ready.is_empty() && self.delayed.is_empty() && self.overtaken.is_empty()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Appends frames that have passed the injector to `into`, up to its room.
    pub(super) fn drain_into(&mut self, into: &mut Burst<S::Item>) {
        let count = self.ready.len().min(into.remaining_capacity());
        into.extend(self.ready.drain(..count));
    }

    /// Accepts one frame.
    pub(super) fn admit(&mut self, around: &mut FaultContext<'_, P>, frame: S::Item) {
        if self.rng.chance(self.rates.drop_ppm) {
            around.stats.count(Counter::PortFaultDrops);
            return;
        }
        let frame = self.corrupt(around, frame);
        let frame = self.truncate(around, frame);
        let twin = self.duplicate(around, &frame);
        self.place(around, frame);
        if let Some(twin) = twin {
            self.place(around, twin);
        }
    }

    /// Releases frames whose delay is over; all of them if no fault is injected any more.
    pub(super) fn release(&mut self, poll: u64) {
        let all = self.rates.is_none();
        while self.delayed.front().is_some_and(|held| all || held.until_poll <= poll) {
            self.ready.extend(self.delayed.pop_front().map(|held| held.frame));
        }
        self.release_overtaken(|held| all || held.until_poll <= poll);
    }

    fn corrupt(&mut self, around: &mut FaultContext<'_, P>, frame: S::Item) -> S::Item {
        if !self.rng.chance(self.rates.corrupt_ppm) {
            return frame;
        }
        // ARP has no checksum: damage would spread wrong addresses, where a real link drops the
        // frame.
        let Some(covered) = checksummed(S::bytes(&frame)) else { return frame };
        let at = covered.start + self.rng.below(covered.len() as u64) as usize;
        // Never zero. A difference within one byte changes a ones' complement sum (RFC 1071), so
        // every checksum over the byte detects it.
        let difference = 1 + self.rng.below(255) as u8;
        let changed = S::change(around.port, frame, |frame| {
            if let Some(byte) = frame.bytes_mut().get_mut(at) {
                *byte ^= difference;
            }
        });
        counted(around.stats, Counter::PortFaultCorruptions, changed)
    }

    fn truncate(&mut self, around: &mut FaultContext<'_, P>, frame: S::Item) -> S::Item {
        let bytes = S::bytes(&frame).len();
        if bytes <= LINK_HEADER_BYTES || !self.rng.chance(self.rates.truncate_ppm) {
            return frame;
        }
        let kept = LINK_HEADER_BYTES + self.rng.below((bytes - LINK_HEADER_BYTES) as u64) as usize;
        let changed = S::change(around.port, frame, |frame| frame.resize(kept));
        counted(around.stats, Counter::PortFaultTruncations, changed)
    }

    fn duplicate(&mut self, around: &mut FaultContext<'_, P>, frame: &S::Item) -> Option<S::Item> {
        if !self.rng.chance(self.rates.duplicate_ppm) {
            return None;
        }
        let twin = S::copy(around.port, frame);
        let counter = if twin.is_some() { Counter::PortFaultDuplicates } else { Counter::PortFaultsSkipped };
        around.stats.count(counter);
        twin
    }

    /// Delays the frame or lets it pass.
    fn place(&mut self, around: &mut FaultContext<'_, P>, frame: S::Item) {
        let delay = self.rng.chance(self.rates.delay_ppm);
        let reorder = !delay && self.rng.chance(self.rates.reorder_ppm);
        let has_place =
            if delay { self.delayed.len() < DELAYED_FRAMES_MAX } else { !self.overtaken.is_full() };
        match (delay, reorder, has_place) {
            (true, _, true) => {
                around.stats.count(Counter::PortFaultDelays);
                let until_poll = around.poll + u64::from(self.rates.delay_polls);
                self.delayed.push_back(Delayed { frame, until_poll });
            }
            (_, true, true) => {
                around.stats.count(Counter::PortFaultReorders);
                let passes_left = 1 + self.rng.below(PASSES_MAX);
                let until_poll = around.poll + OVERTAKEN_POLLS_MAX;
                self.overtaken.push(Overtaken { frame, passes_left, until_poll });
            }
            (false, false, _) => self.pass(frame),
            _ => {
                around.stats.count(Counter::PortFaultsSkipped);
                self.pass(frame);
            }
        }
    }

    /// Lets the frame pass, and the delayed ones that enough frames have overtaken.
    fn pass(&mut self, frame: S::Item) {
        self.ready.push_back(frame);
        for held in &mut self.overtaken {
            held.passes_left = held.passes_left.saturating_sub(1);
        }
        self.release_overtaken(|held| held.passes_left == 0);
    }

    fn release_overtaken(&mut self, goes: impl Fn(&Overtaken<S::Item>) -> bool) {
        while let Some(at) = self.overtaken.iter().position(&goes) {
            self.ready.push_back(self.overtaken.remove(at).frame);
        }
        debug_assert!(self.ready.len() <= READY_FRAMES_MAX);
    }
}

/// Counts a fault, or that it was not possible.
fn counted<T>(stats: &CoreStats, counter: Counter, outcome: Result<T, T>) -> T {
    match outcome {
        Ok(changed) => {
            stats.count(counter);
            changed
        }
        Err(unchanged) => {
            stats.count(Counter::PortFaultsSkipped);
            unchanged
        }
    }
}

/// The length that truncation keeps: drivers refuse less than an Ethernet header.
const LINK_HEADER_BYTES: usize = 14;

/// The limit of frames delayed for a time, which keep buffers from the stack.
const DELAYED_FRAMES_MAX: usize = 512;

/// The limit of frames delayed until others pass: a few suffice to disturb any order.
const OVERTAKEN_FRAMES_MAX: usize = 16;

/// The limit of frames that overtake one: beyond three, TCP treats it as lost (RFC 5681 s3.2), as
/// after a drop.
const PASSES_MAX: u64 = 3;

/// A delayed frame without a successor is released after this many polls, a fraction of a
/// millisecond on a busy core.
const OVERTAKEN_POLLS_MAX: u64 = 1024;

/// A burst with every frame duplicated, and all delayed frames, released at once.
const READY_FRAMES_MAX: usize =
    3 * ironwarp_types::limits::BURST_FRAMES + DELAYED_FRAMES_MAX + OVERTAKEN_FRAMES_MAX;
