//! One direction of a link: the transmission time of a frame, and its faults.
//!
//! A frame waits for those before it, leaves at the link's rate, and arrives after the delay and a
//! random part of the jitter. Order is kept, except for frames that are delayed on purpose. Faults
//! are drawn one by one in a fixed order, so a run replays; a fault with rate zero draws no random
//! number.

mod damage;
mod ecn;
mod packet;
mod regroup;
mod too_big;

use arrayvec::ArrayVec;
use ironwarp_types::{Nanos, SeededEntropy};

use packet::Packet;

/// The properties of a link. Rates of faults are frames in a million.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// The rate in bits per second; zero is no limit.
    pub rate_bits_per_s: u64,
    /// The time from the last bit sent to its arrival.
    pub delay: Nanos,
    /// The largest additional delay, uniformly distributed.
    pub jitter: Nanos,
    /// Bytes that may wait to be sent; frames beyond are lost.
    pub queue_bytes: u64,
    /// Whether the link is down.
    pub is_down: bool,
    /// Until this time the link is stopped: frames wait in the queue.
    pub paused_until: Nanos,
    /// The largest packet, in bytes; zero is no limit.
    pub mtu_bytes: u16,
    /// Whether the link returns an ICMP error for a packet that is too large, as a router does,
    /// after its delay.
    pub answers_too_big: bool,
    /// Packets that get a congestion mark, if their sender supports ECN.
    pub mark_ppm: u32,
    /// Marks every packet that finds this many bytes in the queue; zero marks none.
    pub mark_above_bytes: u64,
    /// Frames that are lost independently.
    pub loss_ppm: u32,
    /// Frames that are lost in bursts.
    pub bursts: Bursts,
    /// Frames that arrive twice.
    pub duplicate_ppm: u32,
    /// Frames that are delayed and arrive out of order.
    pub reorder_ppm: u32,
    /// The largest such delay, uniformly distributed.
    pub reorder_by: Nanos,
    /// Frames that are damaged detectably: one byte of a packet of TCP or SCTP. Other frames are
    /// lost instead, as the link's own check would drop them.
    pub corrupt_ppm: u32,
    /// TCP segments whose payload is damaged so that every checksum up to TCP's still matches.
    pub corrupt_unseen_ppm: u32,
    /// Frames that are truncated.
    pub truncate_ppm: u32,
    /// Segments that are joined with the one before them. What is joined may be cut elsewhere.
    pub regroup_ppm: u32,
}

/// Loss in bursts: a link with a good and a bad state that changes between frames (Gilbert 1960,
/// Elliott 1963). A burst has `1 000 000 / end_ppm` frames on average.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bursts {
    /// Changes from good to bad, in a million frames.
    pub begin_ppm: u32,
    /// Changes from bad to good, in a million frames.
    pub end_ppm: u32,
    /// Frames lost in the bad state.
    pub loss_ppm: u32,
}

impl LinkConfig {
    /// Returns a link without limits, delay or faults.
    pub const fn ideal() -> Self {
        LinkConfig {
            rate_bits_per_s: 0,
            delay: Nanos::ZERO,
            jitter: Nanos::ZERO,
            queue_bytes: u64::MAX,
            is_down: false,
            paused_until: Nanos::ZERO,
            mtu_bytes: 0,
            answers_too_big: false,
            mark_ppm: 0,
            mark_above_bytes: 0,
            loss_ppm: 0,
            bursts: Bursts { begin_ppm: 0, end_ppm: 0, loss_ppm: 0 },
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder_by: Nanos::ZERO,
            corrupt_ppm: 0,
            corrupt_unseen_ppm: 0,
            truncate_ppm: 0,
            regroup_ppm: 0,
        }
    }
}

impl Default for LinkConfig {
    /// Returns a good link in one room: 100 Gbit/s, a microsecond, a switch's share of buffer.
    fn default() -> Self {
        LinkConfig {
            rate_bits_per_s: 100_000_000_000,
            delay: Nanos::from_micros(1),
            queue_bytes: 1 << 20,
            ..LinkConfig::ideal()
        }
    }
}

/// Counts of the frames that were offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounts {
    /// Frames offered to the link.
    pub offered: u64,
    /// Arrivals, duplicates included.
    pub sent: u64,
    /// Frames lost, those offered to a link that is down included.
    pub lost: u64,
    /// Frames whose packet was too large.
    pub too_big: u64,
    /// ICMP errors for those.
    pub answered: u64,
    /// Packets with a new congestion mark.
    pub marked: u64,
    /// Frames that found the queue full.
    pub queue_full: u64,
    /// Frames that arrive twice.
    pub duplicated: u64,
    /// Frames that were delayed.
    pub reordered: u64,
    /// Frames damaged detectably, and frames lost since they have no checksum.
    pub corrupted: u64,
    /// Frames damaged so that TCP's checksum still matches.
    pub corrupted_unseen: u64,
    /// Frames cut short.
    pub truncated: u64,
    /// Frames before some were joined and cut.
    pub regrouped_from: u64,
    /// Frames afterwards, which were offered.
    pub regrouped_to: u64,
}

/// The arrival times of a frame: two if it was duplicated, none if it was lost.
pub type Arrivals = ArrayVec<Nanos, 2>;

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Link {
    /// The properties; may be changed at any time, for frames offered from then on.
    pub config: LinkConfig,
    dice: SeededEntropy,
    /// When the last bit of the accepted frames has been sent.
    sent_by: Nanos,
    /// When the last frame in order arrives.
    last_arrival: Nanos,
    /// Whether the link is in the bad state.
    is_bad: bool,
    /// The ICMP error for the sender of the last frame.
    answer: Option<Vec<u8>>,
    counts: LinkCounts,
}

impl Link {
    /// Returns an unused link.
    pub fn new(config: LinkConfig, dice: SeededEntropy) -> Self {
        Link {
            config,
            dice,
            sent_by: Nanos::ZERO,
            last_arrival: Nanos::ZERO,
            is_bad: false,
            answer: None,
            counts: LinkCounts::default(),
        }
    }

    /// Joins and cuts segments of frames that are offered together, before any other fault. Frames
    /// are at most `frame_bytes` long afterwards.
    pub fn regroup(&mut self, frames: &mut Vec<Vec<u8>>, frame_bytes: usize) {
        if self.config.regroup_ppm > 0 {
            self.counts.regrouped_from += frames.len() as u64;
            regroup::regroup(frames, self.config.regroup_ppm, frame_bytes, &mut self.dice);
            self.counts.regrouped_to += frames.len() as u64;
        }
    }

    /// Accepts a frame, applies faults, and returns when it arrives.
    pub fn offer(&mut self, now: Nanos, frame: &mut Vec<u8>) -> Arrivals {
        self.counts.offered += 1;
        let mut arrivals = Arrivals::new();
        if self.is_too_big(frame) {
            self.counts.too_big += 1;
            return arrivals;
        }
        let waiting_bytes = self.waiting_bytes(now);
        if self.is_queue_full(waiting_bytes, frame.len()) {
            self.counts.queue_full += 1;
            return arrivals;
        }
        self.send(now, frame.len());
        let is_lost = self.dice.chance(self.config.loss_ppm) | self.is_lost_in_burst();
        if self.config.is_down || is_lost || !self.damage(frame) {
            self.counts.lost += 1;
            return arrivals;
        }
        self.mark(waiting_bytes, frame);
        arrivals.push(self.arrival());
        if self.dice.chance(self.config.duplicate_ppm) {
            self.counts.duplicated += 1;
            arrivals.push(self.arrival());
        }
        self.counts.sent += arrivals.len() as u64;
        arrivals
    }

    /// Returns the counts.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Checks that every frame is counted.
    pub fn check(&self) -> Result<(), String> {
        let LinkCounts { offered, sent, lost, too_big, queue_full, duplicated, .. } = self.counts;
        if offered + duplicated == sent + lost + too_big + queue_full {
            Ok(())
        } else {
            Err(format!("frames are not conserved: {:?}", self.counts))
        }
    }

    /// Returns the ICMP error for the sender of the last frame, and when it arrives.
    pub fn take_answer(&mut self, now: Nanos) -> Option<(Nanos, Vec<u8>)> {
        let answer = self.answer.take()?;
        self.counts.answered += 1;
        Some((now + self.config.delay, answer))
    }

    fn is_too_big(&mut self, frame: &[u8]) -> bool {
        let mtu_bytes = self.config.mtu_bytes;
        if mtu_bytes == 0 || self.config.is_down {
            return false;
        }
        let is_too_big = Packet::locate(frame).is_some_and(|packet| packet.bytes() > usize::from(mtu_bytes));
        if is_too_big && self.config.answers_too_big {
            self.answer = too_big::answer(frame, mtu_bytes);
        }
        is_too_big
    }

    fn is_lost_in_burst(&mut self) -> bool {
        let Bursts { begin_ppm, end_ppm, loss_ppm } = self.config.bursts;
        let turns = if self.is_bad { end_ppm } else { begin_ppm };
        // A link without bursts is in the good state.
        self.is_bad = (self.is_bad != self.dice.chance(turns)) && loss_ppm > 0;
        self.is_bad && self.dice.chance(loss_ppm)
    }

    fn mark(&mut self, waiting_bytes: u128, frame: &mut [u8]) {
        let above = self.config.mark_above_bytes;
        let is_long = above > 0 && waiting_bytes >= u128::from(above);
        if (self.dice.chance(self.config.mark_ppm) || is_long) && ecn::mark(frame) {
            self.counts.marked += 1;
        }
    }

    /// Returns the bytes that wait to be sent.
    fn waiting_bytes(&self, now: Nanos) -> u128 {
        let backlog_ns = u128::from(self.sent_by.since(now.max(self.config.paused_until)).0);
        backlog_ns * u128::from(self.config.rate_bits_per_s) / BIT_NS_PER_BYTE_S
    }

    fn is_queue_full(&self, waiting_bytes: u128, frame_bytes: usize) -> bool {
        let is_limited = self.config.rate_bits_per_s > 0;
        is_limited && waiting_bytes + frame_bytes as u128 > u128::from(self.config.queue_bytes)
    }

    /// Occupies the link for the frame's transmission time.
    fn send(&mut self, now: Nanos, frame_bytes: usize) {
        let bits = (frame_bytes as u128 + WIRE_OVERHEAD_BYTES) * 8;
        // A rate of zero is no limit: transmission takes no time.
        let took_ns =
            (bits * 1_000_000_000).checked_div(u128::from(self.config.rate_bits_per_s)).unwrap_or(0);
        let start = self.sent_by.max(now).max(self.config.paused_until);
        self.sent_by = start + Nanos(u64::try_from(took_ns).unwrap_or(u64::MAX));
    }

    /// Damages the frame. Returns `false` if the link's own check would have dropped it.
    fn damage(&mut self, frame: &mut Vec<u8>) -> bool {
        if self.dice.chance(self.config.truncate_ppm) && damage::truncate(frame, &mut self.dice) {
            self.counts.truncated += 1;
        }
        let unseen = self.dice.chance(self.config.corrupt_unseen_ppm);
        if unseen && damage::corrupt_unseen(frame, &mut self.dice) {
            self.counts.corrupted_unseen += 1;
        }
        if self.dice.chance(self.config.corrupt_ppm) {
            self.counts.corrupted += 1;
            return damage::corrupt(frame, &mut self.dice);
        }
        true
    }

    fn arrival(&mut self) -> Nanos {
        let jitter = self.dice.below(self.config.jitter.0.saturating_add(1));
        let at = self.sent_by + self.config.delay + Nanos(jitter);
        if self.dice.chance(self.config.reorder_ppm) {
            self.counts.reordered += 1;
            // Frames after it do not wait.
            return at + Nanos(self.dice.below(self.config.reorder_by.0.saturating_add(1)));
        }
        self.last_arrival = self.last_arrival.max(at);
        self.last_arrival
    }
}

/// Preamble, frame check sequence and gap of Ethernet (IEEE 802.3), which take time on the link.
const WIRE_OVERHEAD_BYTES: u128 = 24;

/// Converts nanoseconds times bits per second to bytes.
const BIT_NS_PER_BYTE_S: u128 = 8_000_000_000;

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
