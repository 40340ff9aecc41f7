//! Two engines over a link that loses, repeats, reorders and corrupts packets: set-up and teardown
//! always end, and both sides agree in the end.

use ironwarp_llp::Events;
use ironwarp_sctp::SctpConfig;
use ironwarp_types::{Nanos, SeededEntropy};
use proptest::prelude::*;

use crate::common::*;

#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// In millionths of packets.
    pub lost: u32,
    pub repeated: u32,
    pub late: u32,
    pub corrupt: u32,
}

/// One direction of a link.
pub struct Link {
    faults: Faults,
    chance: SeededEntropy,
    in_flight: Vec<(Nanos, Vec<u8>)>,
}

impl Link {
    pub fn new(faults: Faults, chance: SeededEntropy) -> Self {
        Link { faults, chance, in_flight: Vec::new() }
    }

    /// Returns when the next packet arrives.
    pub fn next(&self) -> Option<Nanos> {
        self.in_flight.iter().map(|&(at, _)| at).min()
    }

    pub fn send(&mut self, now: Nanos, frames: Vec<Vec<u8>>) {
        for mut frame in frames {
            if self.chance.chance(self.faults.corrupt) {
                let at = 34 + self.chance.below(frame.len() as u64 - 34) as usize;
                frame[at] ^= 1 << self.chance.below(8);
            }
            for copy in 0..2 {
                if self.chance.chance(if copy == 0 {
                    1_000_000 - self.faults.lost
                } else {
                    self.faults.repeated
                }) {
                    let late =
                        if self.chance.chance(self.faults.late) { 1 + self.chance.below(500) } else { 0 };
                    self.in_flight.push((now + Nanos::from_millis(1 + late), frame.clone()));
                }
            }
        }
    }

    pub fn arrived(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let (here, rest) = self.in_flight.drain(..).partition(|&(at, _)| at <= now);
        self.in_flight = rest;
        Vec::into_iter(here).map(|(_, frame)| frame).collect()
    }
}

/// Opens an association from both sides or from one, and closes it from one or both. Returns how
/// each side ended.
fn run(seed: u64, faults: Faults, simultaneous: bool, both_close: bool) -> [Events; 2] {
    let mut chance = SeededEntropy::new(seed);
    let config = || SctpConfig { associations_max: 4, rto_max: Nanos::from_secs(2), ..SctpConfig::default() };
    let mut nodes = [1, 2].map(|host| Node::new(host, config()));
    nodes[1].listen();
    let mut links = [0, 1].map(|_| Link::new(faults, chance.split()));
    nodes[0].connect(2);
    if simultaneous {
        nodes[1].connect_from(PORT, addr(1, FROM), 1);
    }
    for (node, link) in nodes.iter_mut().zip(&mut links) {
        link.send(node.now, node.frames());
    }
    let mut seen = [Events::empty(); 2];
    // A step is an arrival or a timer: far fewer than this many.
    for _ in 0..10_000 {
        let timers = nodes.iter().filter_map(|node| node.sctp.next_deadline());
        let arrivals = links.iter().filter_map(Link::next);
        let Some(now) = timers.chain(arrivals).min().map(|next| next.max(nodes[0].now + Nanos(1))) else {
            break;
        };
        for side in 0..2 {
            nodes[side].now = now;
            nodes[side].timers();
            for frame in links[1 - side].arrived(now) {
                nodes[side].receive(&frame);
            }
            for (id, events) in nodes[side].take_events() {
                seen[side] |= events;
                if events.contains(Events::ESTABLISHED) && (side == 0 || both_close) {
                    nodes[side].close(id);
                }
                if events.intersects(Events::ENDED) {
                    nodes[side].sctp.release(id);
                }
            }
            let frames = nodes[side].frames();
            links[side].send(now, frames);
        }
    }
    for node in &nodes[..1] {
        assert_eq!((node.associations(), node.sctp.resource_usage().flows), (0, 0), "seed {seed}");
    }
    seen
}

/// Without faults both sides see the whole life.
#[test]
fn both_sides_see_the_whole_life_on_a_clean_link() {
    let clean = Faults { lost: 0, repeated: 0, late: 0, corrupt: 0 };
    for simultaneous in [false, true] {
        let [a, b] = run(1, clean, simultaneous, false);
        assert_eq!(a, Events::ESTABLISHED | Events::CLOSED);
        assert_eq!(b, Events::ESTABLISHED | Events::PEER_CLOSED | Events::CLOSED);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With any faults the side that began ends, with one end, and holds nothing.
    #[test]
    fn set_up_and_teardown_always_end(
        seed: u64, lost in 0u32..400_000, repeated in 0u32..300_000, late in 0u32..300_000,
        corrupt in 0u32..100_000, simultaneous: bool, both_close: bool,
    ) {
        let faults = Faults { lost, repeated, late, corrupt };
        let [a, _] = run(seed, faults, simultaneous, both_close);
        prop_assert_eq!((a & Events::ENDED).bits().count_ones(), 1);
    }
}
