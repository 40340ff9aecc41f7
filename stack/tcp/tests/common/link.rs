//! A link that loses, repeats, delays and reorders frames, driven by a seed.

use ironwarp_types::Nanos;

/// A small generator of pseudo-random numbers (SplitMix64).
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// The faults of a link, in percent of frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost_percent: u64,
    pub duplicated_percent: u64,
    pub reordered_percent: u64,
}

/// One direction of a link.
pub struct Link {
    faults: Faults,
    delay: Nanos,
    in_flight: Vec<(Nanos, u64, Vec<u8>)>,
    count: u64,
}

impl Link {
    pub fn new(faults: Faults, delay: Nanos) -> Self {
        Link { faults, delay, in_flight: Vec::new(), count: 0 }
    }

    pub fn send(&mut self, now: Nanos, frame: Vec<u8>, rng: &mut Rng) {
        if rng.percent(self.faults.lost_percent) {
            return;
        }
        let copies = 1 + u64::from(rng.percent(self.faults.duplicated_percent));
        for _ in 0..copies {
            let late = if rng.percent(self.faults.reordered_percent) { rng.below(4) + 1 } else { 0 };
            self.count += 1;
            self.in_flight.push((now + self.delay + self.delay.times(late), self.count, frame.clone()));
        }
    }

    /// Returns the frames that have arrived by now, in order of arrival.
    pub fn arrived(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let (mut here, rest): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(|&(at, ..)| at <= now);
        self.in_flight = rest;
        here.sort_by_key(|&(at, count, _)| (at, count));
        here.into_iter().map(|(_, _, frame)| frame).collect()
    }

    pub fn next_arrival(&self) -> Option<Nanos> {
        self.in_flight.iter().map(|&(at, ..)| at).min()
    }
}
