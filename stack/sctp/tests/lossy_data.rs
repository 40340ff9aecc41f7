//! Messages between two engines over links that lose, repeat, reorder and corrupt packets: each
//! arrives once and unchanged, ordered ones in order, and the association ends in order.

use ironwarp_llp::{ConnId, Events};
use ironwarp_sctp::{MessageHeader, SctpConfig};
use ironwarp_types::{Nanos, SeededEntropy};
use proptest::prelude::*;

use crate::common::*;
use crate::lossy_pair::{Faults, Link};

const STREAMS: u16 = 3;

/// One end: what it sends, and what it has received.
struct End {
    node: Node,
    id: Option<ConnId>,
    /// In the order in which they are sent.
    to_send: Vec<(MessageHeader, Vec<u8>)>,
    pulled: usize,
    received: Vec<(MessageHeader, Vec<u8>)>,
    seen: Events,
}

impl End {
    fn new(host: u8, config: SctpConfig, chance: &mut SeededEntropy, messages: u64) -> Self {
        let message = |n| {
            let header = MessageHeader {
                stream: chance.below(STREAMS.into()) as u16,
                ppid: n as u32,
                is_unordered: chance.chance(500_000),
            };
            let most = if chance.chance(500_000) { 40 } else { 1_400 };
            let payload =
                (0..=chance.below(most)).map(|at| (at * 31 + n * 7 + u64::from(host)) as u8).collect();
            (header, payload)
        };
        let to_send = (0..messages).map(message).collect();
        let node = Node::new(host, config);
        End { node, id: None, to_send, pulled: 0, received: vec![], seen: Events::empty() }
    }

    /// One iteration of a core loop.
    fn run(&mut self, chance: &mut SeededEntropy, is_done: bool, closes: bool) {
        // Now and then the reader takes messages as they arrive.
        self.node.upper.takes = chance.chance(500_000);
        for (id, events) in self.node.take_events() {
            self.seen |= events;
            self.id = self.id.or(events.contains(Events::ESTABLISHED).then_some(id));
        }
        self.received.append(&mut self.node.upper.taken);
        let Some(id) = self.id else { return };
        if chance.chance(700_000) || self.seen.intersects(Events::ENDED) {
            self.received.extend(self.node.read_all(id));
        }
        while let Some((header, payload)) = self.to_send.get(self.pulled) {
            if self.node.transmit(id, *header, &[payload]).0 == 0 {
                break;
            }
            self.pulled += 1;
        }
        if closes && is_done && self.pulled == self.to_send.len() {
            self.node.close(id);
        }
        if self.node.sctp.wants_transmit(id) {
            self.node.transmit(id, MessageHeader::default(), &[]);
        }
    }

    /// Compares what has arrived with what was sent.
    fn check(&self, sent: &[(MessageHeader, Vec<u8>)]) {
        assert_eq!(self.received.len(), sent.len());
        for stream in 0..STREAMS {
            let of =
                |&&(header, _): &&(MessageHeader, Vec<u8>)| header.stream == stream && !header.is_unordered;
            assert!(self.received.iter().filter(of).eq(sent.iter().filter(of)), "in order");
        }
        let mut received: Vec<_> = self.received.iter().collect();
        received.sort_by_key(|(header, _)| header.ppid);
        assert!(received.into_iter().eq(sent), "each once and unchanged");
    }
}

fn run(seed: u64, faults: Faults, messages: u64, a_rwnd_bytes: u32) {
    let mut chance = SeededEntropy::new(seed);
    let config = SctpConfig {
        associations_max: 2,
        a_rwnd_bytes,
        held_messages_shared: 256,
        // RTO.Max bounds the time, and the peer is never given up.
        rto_max: Nanos::from_secs(1),
        association_retries: 200,
        init_retries: 200,
        ..SctpConfig::default()
    };
    let mut ends = [1, 2].map(|host| End::new(host, config.clone(), &mut chance, messages));
    ends[1].node.listen();
    let mut links = [0, 1].map(|_| Link::new(faults, chance.split()));
    ends[0].node.connect(2);
    let mut steps = 0;
    while !ends.iter().all(|end| end.seen.intersects(Events::ENDED)) {
        steps += 1;
        assert!(steps < 200_000, "seed {seed} does not end: {:?}", ends.each_ref().map(|end| end.seen));
        let is_done = ends[0].received.len() == ends[1].to_send.len();
        for side in 0..2 {
            ends[side].run(&mut chance, is_done, side == 0);
            let (now, frames) = (ends[side].node.now, ends[side].node.frames());
            links[side].send(now, frames);
        }
        let timers = ends.iter().filter_map(|end| end.node.sctp.next_deadline());
        let next = timers.chain(links.iter().filter_map(Link::next)).min();
        let now = next.map_or(ends[0].node.now + Nanos(1_000), |next| next.max(ends[0].node.now + Nanos(1)));
        for side in 0..2 {
            let end = &mut ends[side];
            end.node.now = now;
            end.node.timers();
            links[1 - side].arrived(now).iter().for_each(|frame| end.node.receive(frame));
        }
    }
    let [mut a, mut b] = ends;
    a.run(&mut chance, false, false);
    b.run(&mut chance, false, false);
    a.check(&b.to_send);
    b.check(&a.to_send);
    // RFC 9260 s8.4: an ABORT may answer a late packet when the side that closed has ended.
    assert_eq!(a.seen & Events::ENDED, Events::CLOSED, "seed {seed}");
    assert!((Events::CLOSED | Events::RESET).contains(b.seen & Events::ENDED), "seed {seed}: {:?}", b.seen);
    for end in [&mut a, &mut b] {
        end.node.sctp.release(end.id.expect("an association"));
        let usage = end.node.sctp.resource_usage();
        assert_eq!((usage.rx_frames, usage.tx_units), (0, 0));
        // A late COOKIE ECHO opens another association at the listener.
        assert!(usage.connections == 0 || end.node.host == 2);
    }
}

#[test]
fn messages_cross_a_clean_link() {
    run(1, Faults { lost: 0, repeated: 0, late: 0, corrupt: 0 }, 300, 512 * 1024);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With any faults, and windows of a few frames up to many.
    #[test]
    fn messages_cross_a_link_with_faults(
        seed: u64, lost in 0u32..250_000, repeated in 0u32..250_000, late in 0u32..300_000,
        corrupt in 0u32..50_000, frames in 4u32..64,
    ) {
        run(seed, Faults { lost, repeated, late, corrupt }, 60, frames * 2_048);
    }
}
