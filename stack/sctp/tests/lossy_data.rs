//! Messages between two engines over links that lose, repeat, reorder and corrupt packets: each
//! arrives once and unchanged, ordered ones in order, and the association ends in order.

use ironwarp_llp::{ConnId, Events};
use ironwarp_sctp::{MessageHeader, SctpConfig};
use ironwarp_stats::Counter;
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

/// With outages of links, both hosts use the addresses on two links.
fn run(seed: u64, faults: Faults, messages: u64, a_rwnd_bytes: u32, outages: &[Outage]) {
    let mut chance = SeededEntropy::new(seed);
    let config = |host| SctpConfig {
        addresses: if outages.is_empty() { vec![] } else { both_links(host).addresses },
        associations_max: 2,
        a_rwnd_bytes,
        held_messages_shared: 256,
        // RTO.Max bounds the time, and the peer is never given up.
        rto_max: Nanos::from_secs(1),
        association_retries: 200,
        init_retries: 200,
        ..SctpConfig::default()
    };
    let mut ends = [1, 2].map(|host| End::new(host, config(host), &mut chance, messages));
    ends[1].node.listen();
    let start = ends[0].node.now;
    let mut links = [0, 1].map(|_| Link::new(faults, chance.split()));
    ends[0].node.connect(2);
    let mut steps = 0;
    while !ends.iter().all(|end| end.seen.intersects(Events::ENDED)) {
        steps += 1;
        assert!(steps < 200_000, "seed {seed} does not end: {:?}", ends.each_ref().map(|end| end.seen));
        let is_done = ends[0].received.len() == ends[1].to_send.len();
        for side in 0..2 {
            ends[side].run(&mut chance, is_done, side == 0);
            let (now, mut frames) = (ends[side].node.now, ends[side].node.frames());
            frames.retain(|frame| !outages.iter().any(|outage| outage.takes(frame, now.since(start))));
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

/// A link loses every packet for some time.
#[derive(Clone, Copy, Debug)]
struct Outage {
    link: usize,
    from_ms: u64,
    ms: u64,
}

impl Outage {
    fn takes(&self, frame: &[u8], now: Nanos) -> bool {
        let from = Nanos::from_millis(self.from_ms);
        link_of(frame) == self.link && from <= now && now < from + Nanos::from_millis(self.ms)
    }
}

#[test]
fn messages_cross_a_clean_link() {
    run(1, Faults { lost: 0, repeated: 0, late: 0, corrupt: 0 }, 300, 512 * 1024, &[]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With any faults, and windows of a few frames up to many.
    #[test]
    fn messages_cross_a_link_with_faults(
        seed: u64, lost in 0u32..250_000, repeated in 0u32..250_000, late in 0u32..300_000,
        corrupt in 0u32..50_000, frames in 4u32..64,
    ) {
        run(seed, Faults { lost, repeated, late, corrupt }, 60, frames * 2_048, &[]);
    }

    /// RFC 9260 s6.4.1: over two links that fail and return, alone and together.
    #[test]
    fn messages_cross_two_links_that_fail(
        seed: u64, lost in 0u32..100_000, late in 0u32..100_000, frames in 4u32..64,
        outages in prop::collection::vec((0usize..2, 0u64..3_000, 1u64..2_000), 1..6),
    ) {
        let outages: Vec<_> = outages.iter().map(|&(link, from_ms, ms)| Outage { link, from_ms, ms }).collect();
        let faults = Faults { lost, repeated: 0, late, corrupt: 0 };
        run(seed, faults, 400, frames * 2_048, &outages);
    }
}

/// Sends full messages one way, with a round trip of 2 ms. Returns how long they take.
fn time_of(messages: usize, lost: u32) -> (Nanos, Node) {
    let [mut a, mut b] = [1, 2].map(|host| Node::new(host, SctpConfig::default()));
    b.listen();
    b.upper.takes = true;
    let mut chance = SeededEntropy::new(5);
    let faults = Faults { lost, repeated: 0, late: 0, corrupt: 0 };
    let mut links = [0, 1].map(|_| Link::new(faults, chance.split()));
    let (id, start, mut pulled) = (a.connect(2), a.now, 0);
    let header = MessageHeader { stream: 0, ppid: 0, is_unordered: true };
    let payloads: Vec<&[u8]> = vec![&[1; 1_452]; messages];
    for _ in 0..100_000 {
        pulled += a.transmit(id, header, &payloads[pulled..]).0;
        let frames = [a.frames(), b.frames()];
        links.iter_mut().zip(frames).for_each(|(link, frames)| link.send(a.now, frames));
        if b.upper.taken.len() == messages {
            break;
        }
        let timers = [&a, &b].into_iter().filter_map(|node| node.sctp.next_deadline());
        let next = timers.chain(links.iter().filter_map(Link::next)).min().expect("something happens");
        (a.now, b.now) = (next.max(a.now + Nanos(1)), next.max(a.now + Nanos(1)));
        a.timers();
        b.timers();
        links[1].arrived(a.now).iter().for_each(|frame| a.receive(frame));
        links[0].arrived(b.now).iter().for_each(|frame| b.receive(frame));
    }
    assert_eq!(b.upper.taken.len(), messages);
    (a.now.since(start), a)
}

/// RFC 9260 s7.2.1 and s6.1, rule D: a SACK for a burst of packets opens the window as far as one
/// for every second packet would, and lets as many packets leave.
#[test]
fn a_sack_for_many_packets_counts_as_many() {
    let (time, node) = time_of(1_000, 0);
    assert!(time < Nanos::from_millis(60), "{time:?}: 1000 packets, doubling from three");
    assert_eq!(node.read(Counter::SctpFastRecoveries), 0);
}

/// RFC 9260 s6.7 and s7.2.4: each packet behind a gap is reported, so most losses are found without
/// a timeout.
#[test]
fn losses_are_found_by_reports() {
    let (_, node) = time_of(3_000, 10_000);
    let [timeouts, recoveries] =
        [Counter::SctpTimeouts, Counter::SctpFastRecoveries].map(|counter| node.read(counter));
    assert!(recoveries > 15 && timeouts * 3 < recoveries, "{timeouts} timeouts, {recoveries} recoveries");
}
