//! One direction of a cable: how long a frame takes, and what happens to it on the way.
//!
//! A frame waits for those before it, leaves at the link's rate, and arrives after the delay and a random part of the
//! jitter. Order is kept, except for frames that are picked to be overtaken. The faults are rolled one by one in a
//! fixed order, so a run replays, and a fault whose rate is zero takes no number from the dice.

mod damage;

use arrayvec::ArrayVec;
use ironwarp_types::{Nanos, SeededEntropy};

/// What a link is like. Rates of faults are frames in a million.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Bits a second on the wire; zero is no limit.
    pub rate_bits_per_s: u64,
    /// From the last bit sent to its arrival.
    pub delay: Nanos,
    /// At most so much more delay, evenly spread.
    pub jitter: Nanos,
    /// Bytes that may wait to be sent; what finds no place is lost.
    pub queue_bytes: u64,
    /// Frames that vanish.
    pub loss_ppm: u32,
    /// Frames that arrive twice.
    pub duplicate_ppm: u32,
    /// Frames that arrive late, out of order.
    pub reorder_ppm: u32,
    /// At most so much later, evenly spread.
    pub reorder_by: Nanos,
    /// Frames that are damaged so that a checksum shows it: one byte of a TCP/IPv4 packet. Other frames are lost
    /// instead, as the link's own check would have it.
    pub corrupt_ppm: u32,
    /// TCP segments whose payload is damaged so that every checksum up to TCP's still matches.
    pub corrupt_unseen_ppm: u32,
    /// Frames that lose their end.
    pub truncate_ppm: u32,
}

impl LinkConfig {
    /// No limit, no delay, no fault.
    pub const fn ideal() -> Self {
        LinkConfig {
            rate_bits_per_s: 0,
            delay: Nanos::ZERO,
            jitter: Nanos::ZERO,
            queue_bytes: u64::MAX,
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder_by: Nanos::ZERO,
            corrupt_ppm: 0,
            corrupt_unseen_ppm: 0,
            truncate_ppm: 0,
        }
    }
}

impl Default for LinkConfig {
    /// A good cable in one room: 100 Gbit/s, a microsecond, a switch's share of buffer.
    fn default() -> Self {
        LinkConfig {
            rate_bits_per_s: 100_000_000_000,
            delay: Nanos::from_micros(1),
            queue_bytes: 1 << 20,
            ..LinkConfig::ideal()
        }
    }
}

/// What became of the frames that were offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounts {
    /// Frames offered to the link.
    pub offered: u64,
    /// Arrivals, duplicates included.
    pub sent: u64,
    /// Frames that vanished.
    pub lost: u64,
    /// Frames that found the queue full.
    pub queue_full: u64,
    /// Frames that arrive twice.
    pub duplicated: u64,
    /// Frames sent late.
    pub reordered: u64,
    /// Frames damaged so that a checksum shows it, and frames lost for having none.
    pub corrupted: u64,
    /// Frames damaged so that TCP's checksum still matches.
    pub corrupted_unseen: u64,
    /// Frames cut short.
    pub truncated: u64,
}

/// When a frame arrives; twice if it was duplicated, never if it was lost.
pub type Arrivals = ArrayVec<Nanos, 2>;

/// One direction of a cable.
#[derive(Clone, Debug)]
pub struct Link {
    /// What the link is like; may be changed at any time, for frames offered from then on.
    pub config: LinkConfig,
    dice: SeededEntropy,
    /// When the last bit of what was accepted has been sent.
    sent_by: Nanos,
    /// When the last frame arrives that keeps the order.
    last_arrival: Nanos,
    counts: LinkCounts,
}

impl Link {
    /// A link that nothing has passed yet.
    pub fn new(config: LinkConfig, dice: SeededEntropy) -> Self {
        Link { config, dice, sent_by: Nanos::ZERO, last_arrival: Nanos::ZERO, counts: LinkCounts::default() }
    }

    /// Takes a frame in, damages it where chance has it so, and answers when it arrives.
    pub fn offer(&mut self, now: Nanos, frame: &mut Vec<u8>) -> Arrivals {
        self.counts.offered += 1;
        let mut arrivals = Arrivals::new();
        if self.is_queue_full(now, frame.len()) {
            self.counts.queue_full += 1;
            return arrivals;
        }
        self.send(now, frame.len());
        if self.dice.chance(self.config.loss_ppm) || !self.damage(frame) {
            self.counts.lost += 1;
            return arrivals;
        }
        arrivals.push(self.arrival());
        if self.dice.chance(self.config.duplicate_ppm) {
            self.counts.duplicated += 1;
            arrivals.push(self.arrival());
        }
        self.counts.sent += arrivals.len() as u64;
        arrivals
    }

    /// What became of the frames until now.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Every frame is accounted for.
    pub fn check(&self) -> Result<(), String> {
        let LinkCounts { offered, sent, lost, queue_full, duplicated, .. } = self.counts;
        if offered + duplicated == sent + lost + queue_full {
            Ok(())
        } else {
            Err(format!("frames are not conserved: {:?}", self.counts))
        }
    }

    fn is_queue_full(&self, now: Nanos, frame_bytes: usize) -> bool {
        if self.config.rate_bits_per_s == 0 {
            return false;
        }
        let backlog_ns = u128::from(self.sent_by.since(now).0);
        let backlog_bytes = backlog_ns * u128::from(self.config.rate_bits_per_s) / BIT_NS_PER_BYTE_S;
        backlog_bytes + frame_bytes as u128 > u128::from(self.config.queue_bytes)
    }

    /// Occupies the link for as long as the frame takes.
    fn send(&mut self, now: Nanos, frame_bytes: usize) {
        let bits = (frame_bytes as u128 + WIRE_OVERHEAD_BYTES) * 8;
        // A rate of zero is no limit: sending takes no time.
        let took_ns =
            (bits * 1_000_000_000).checked_div(u128::from(self.config.rate_bits_per_s)).unwrap_or(0);
        let start = self.sent_by.max(now);
        self.sent_by = start + Nanos(u64::try_from(took_ns).unwrap_or(u64::MAX));
    }

    /// Damages the frame. Answers `false` when the link's own check would have dropped it.
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
            // Those behind it do not wait.
            return at + Nanos(self.dice.below(self.config.reorder_by.0.saturating_add(1)));
        }
        self.last_arrival = self.last_arrival.max(at);
        self.last_arrival
    }
}

/// Preamble, frame check sequence and gap of Ethernet (IEEE 802.3), which take time though nobody sees them.
const WIRE_OVERHEAD_BYTES: u128 = 24;

/// Turns nanoseconds times bits a second into bytes.
const BIT_NS_PER_BYTE_S: u128 = 8_000_000_000;

#[cfg(test)]
mod tests;
