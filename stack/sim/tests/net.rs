//! Nodes on links: who sees what, when, and that it happens again.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;

use ironwarp_port::instrument::{Capture, CaptureLimits};
use ironwarp_port::memory::{MemoryConfig, MemoryPort};
use ironwarp_port::{Burst, Checksum, Frame, Port, RxMeta, TxMeta};
use ironwarp_sim::{LinkConfig, LinkId, Node, NodeId, PortId, SimError, SimNet};
use ironwarp_types::Nanos;

/// Sends numbered TCP segments at a steady pace, and notes what comes.
struct Station {
    port: MemoryPort,
    to_send: u32,
    sent: u32,
    gap: Nanos,
    echoes: bool,
    polls: Vec<Nanos>,
    got: Vec<Got>,
    broken_after: Option<usize>,
}

#[derive(Clone, PartialEq, Debug)]
struct Got {
    at: Nanos,
    number: Option<u32>,
    bytes: Vec<u8>,
    rx: RxMeta,
}

impl Station {
    fn send(&mut self, bytes: &[u8]) {
        let Some(mut frame) = self.port.alloc() else { return };
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(bytes);
        self.port.tx_burst(&mut Burst::from_iter([frame.seal(TxMeta::default())]));
    }

    fn receive(&mut self, now: Nanos) {
        let mut burst = Burst::new();
        self.port.rx_burst(&mut burst);
        for frame in burst {
            let bytes = frame.bytes().to_vec();
            let number = bytes.get(54..58).map(|four| u32::from_be_bytes(four.try_into().unwrap()));
            if self.echoes {
                self.send(&bytes);
            }
            self.got.push(Got { at: now, number, bytes, rx: frame.rx() });
        }
    }
}

impl Node for Station {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        self.polls.push(now);
        self.receive(now);
        let mut due = self.gap.times(u64::from(self.sent));
        while self.sent < self.to_send && due <= now {
            self.send(&segment(self.sent));
            self.sent += 1;
            due = self.gap.times(u64::from(self.sent));
        }
        (self.sent < self.to_send).then_some(due)
    }

    fn check(&self) -> Result<(), String> {
        match self.broken_after {
            Some(frames) if self.got.len() >= frames => Err("told to break".into()),
            _ => Ok(()),
        }
    }
}

/// A TCP/IPv4 segment of 200 bytes with right checksums, its number in front of its payload.
fn segment(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 200];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 186, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..54].copy_from_slice(&[3, 232, 7, 208, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    frame[54..58].copy_from_slice(&number.to_be_bytes());
    let ip = inverted_sum(0, &frame[14..34]);
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    // Addresses, protocol 6, and the 166 bytes of the segment.
    let pseudo = 10 * 256 * 2 + 1 + 2 + 6 + 166;
    let tcp = inverted_sum(pseudo, &frame[34..]);
    frame[50..52].copy_from_slice(&tcp.to_be_bytes());
    frame
}

/// RFC 1071, word by word.
fn inverted_sum(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(pair[0]) * 256 + u32::from(pair[1]));
    let total = start + words.sum::<u32>();
    !((total % 65_535) as u16)
}

/// Two stations and the links between them; the left one sends.
struct World {
    net: SimNet<Station>,
    nodes: [NodeId; 2],
    ports: [PortId; 2],
    links: [LinkId; 2],
}

fn world(seed: u64, frames: u32, config: LinkConfig) -> World {
    let mut net = SimNet::new(seed);
    let device = MemoryConfig { rx_checksum: true, ..MemoryConfig::default() };
    let ((left, left_port), (right, right_port)) = (net.add_port(&device), net.add_port(&device));
    let links = net.connect(left, right, config);
    let station = |port, to_send| Station {
        port,
        to_send,
        sent: 0,
        gap: Nanos::from_micros(1),
        echoes: false,
        polls: Vec::new(),
        got: Vec::new(),
        broken_after: None,
    };
    let sender = net.add_node(station(left_port, frames), &[left]);
    let receiver = net.add_node(station(right_port, 0), &[right]);
    World { net, nodes: [sender, receiver], ports: [left, right], links }
}

impl World {
    fn run(mut self) -> World {
        self.net.run_until(Nanos::from_millis(100)).unwrap();
        assert_eq!(self.net.frames_in_flight(), 0);
        self
    }

    fn receiver(&mut self) -> &mut Station {
        self.net.node_mut(self.nodes[1])
    }

    fn numbers(&self) -> Vec<u32> {
        self.net.node(self.nodes[1]).got.iter().filter_map(|got| got.number).collect()
    }
}

fn bad_link() -> LinkConfig {
    LinkConfig {
        jitter: Nanos(700),
        loss_ppm: 20_000,
        duplicate_ppm: 20_000,
        reorder_ppm: 50_000,
        reorder_by: Nanos::from_micros(5),
        corrupt_ppm: 20_000,
        corrupt_unseen_ppm: 20_000,
        truncate_ppm: 20_000,
        ..LinkConfig::default()
    }
}

#[test]
fn on_a_good_link_every_frame_arrives_once_in_order_and_in_time() {
    let world = world(1, 1_000, LinkConfig { delay: Nanos(3_000), ..LinkConfig::ideal() }).run();
    let got = &world.net.node(world.nodes[1]).got;
    assert_eq!(world.numbers(), (0..1_000).collect::<Vec<_>>());
    assert!(got.iter().all(|got| got.bytes == segment(got.number.unwrap())));
    assert!(got.iter().all(|got| got.at == Nanos(1_000 * u64::from(got.number.unwrap()) + 3_000)));
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| {
        let world = world(seed, 500, bad_link()).run();
        (world.net.trace_hash(), world.net.node(world.nodes[1]).got.clone())
    };
    assert_eq!(run(42), run(42));
    assert_ne!(run(42).0, run(43).0);
}

#[test]
fn a_run_in_pieces_is_the_run_in_one() {
    let whole = world(7, 300, bad_link()).run();
    let mut pieces = world(7, 300, bad_link());
    for n in 0..=1_000 {
        pieces.net.run_until(Nanos::from_micros(100 * n)).unwrap();
    }
    assert_eq!(pieces.net.trace_hash(), whole.net.trace_hash());
}

#[test]
fn frames_are_conserved_on_the_worst_link() {
    let world = world(3, 20_000, bad_link()).run();
    let counts = world.net.link(world.links[0]).counts();
    let got = world.net.node(world.nodes[1]).got.len() as u64;
    assert_eq!(counts.offered, 20_000);
    assert_eq!(counts.offered + counts.duplicated, got + counts.lost + counts.queue_full);
    assert!((300..500).contains(&counts.lost), "{counts:?}");
}

#[test]
fn loss_leaves_the_rest_in_order() {
    let config = LinkConfig { loss_ppm: 100_000, jitter: Nanos(5_000), ..LinkConfig::default() };
    let numbers = world(5, 5_000, config).run().numbers();
    assert!(numbers.is_sorted() && (4_300..4_700).contains(&numbers.len()), "{}", numbers.len());
}

#[test]
fn reordering_changes_the_order_and_nothing_else() {
    let config = LinkConfig { reorder_ppm: 100_000, reorder_by: Nanos(9_000), ..LinkConfig::default() };
    let numbers = world(5, 2_000, config).run().numbers();
    assert!(!numbers.is_sorted());
    assert_eq!((numbers.len(), numbers.iter().collect::<BTreeSet<_>>().len()), (2_000, 2_000));
}

#[test]
fn damage_is_of_the_kind_asked_for() {
    let verdicts = |config| {
        let mut world = world(5, 500, config).run();
        let damaged = |got: &Got| (0..500).all(|n| got.bytes != segment(n));
        let got = std::mem::take(&mut world.receiver().got);
        assert!(got.len() == 500 && got.iter().all(damaged));
        got.iter().map(|got| (got.rx.ip_checksum, got.rx.l4_checksum)).collect::<Vec<_>>()
    };
    // What a checksum shows: every frame is bad, or no longer looks like a TCP segment.
    let seen = verdicts(LinkConfig { corrupt_ppm: 1_000_000, ..LinkConfig::default() });
    assert!(!seen.contains(&(Checksum::Good, Checksum::Good)));
    assert!(
        seen.contains(&(Checksum::Good, Checksum::Bad)) && seen.iter().any(|seen| seen.0 == Checksum::Bad)
    );
    // What no checksum shows: only the CRC above can find it.
    let unseen = verdicts(LinkConfig { corrupt_unseen_ppm: 1_000_000, ..LinkConfig::default() });
    assert!(unseen.iter().all(|seen| *seen == (Checksum::Good, Checksum::Good)));
}

#[test]
fn truncated_frames_are_beginnings() {
    let config = LinkConfig { truncate_ppm: 1_000_000, ..LinkConfig::default() };
    let mut world = world(5, 200, config).run();
    assert_eq!(world.receiver().got.len(), 200);
    assert!(world.receiver().got.iter().all(|got| (14..200).contains(&got.bytes.len())));
}

#[test]
fn knobs_turn_in_the_middle_of_a_run() {
    let mut world = world(1, 30, LinkConfig::ideal());
    let dead = LinkConfig { loss_ppm: 1_000_000, ..LinkConfig::ideal() };
    // Planned before the frame of the same instant is sent, so that one is lost already.
    world.net.change_link_at(Nanos::from_micros(10), world.links[0], dead);
    world.net.run_until(Nanos(19_500)).unwrap();
    world.net.link_mut(world.links[0]).config = LinkConfig::ideal();
    assert_eq!(world.run().numbers(), (0..10).chain(20..30).collect::<Vec<_>>());
}

#[test]
fn both_directions_have_faults_of_their_own() {
    let mut world = world(1, 200, LinkConfig::default());
    world.receiver().echoes = true;
    world.net.link_mut(world.links[1]).config.loss_ppm = 500_000;
    let world = world.run();
    let back = world.net.node(world.nodes[0]).got.len();
    assert_eq!(world.numbers().len(), 200);
    assert!((70..130).contains(&back), "{back}");
}

#[test]
fn a_node_sleeps_until_its_deadline_or_a_frame() {
    let mut world = world(1, 3, LinkConfig { delay: Nanos(400), ..LinkConfig::ideal() }).run();
    // At the start, and for each of three frames.
    assert_eq!(world.receiver().polls, [0, 400, 1_400, 2_400].map(Nanos));
}

#[test]
fn a_deadline_that_a_node_no_longer_has_does_not_wake_it() {
    struct Sleeper(Vec<Nanos>);
    impl Node for Sleeper {
        fn poll(&mut self, now: Nanos) -> Option<Nanos> {
            self.0.push(now);
            (now == Nanos::ZERO).then_some(Nanos(1_000))
        }
    }
    let mut net = SimNet::new(1);
    let node = net.add_node(Sleeper(Vec::new()), &[]);
    net.run_until(Nanos(500)).unwrap();
    net.wake(node);
    net.run_until(Nanos(2_000)).unwrap();
    assert_eq!(net.node(node).0, [0, 500].map(Nanos));
}

#[test]
fn a_node_that_always_wants_more_does_not_stop_the_clock() {
    struct Restless(u64);
    impl Node for Restless {
        fn poll(&mut self, _now: Nanos) -> Option<Nanos> {
            self.0 += 1;
            Some(Nanos::ZERO)
        }
    }
    let mut net = SimNet::new(1);
    net.set_loop_time(Nanos(100));
    let node = net.add_node(Restless(0), &[]);
    net.run_until(Nanos(1_000)).unwrap();
    assert_eq!((net.node(node).0, net.now()), (11, Nanos(1_000)));
}

#[test]
fn frames_cost_a_node_its_time() {
    let mut world = world(1, 6, LinkConfig { delay: Nanos(400), ..LinkConfig::ideal() });
    world.net.set_frame_cost(world.nodes[1], Nanos(2_300));
    let world = world.run();
    // Busy with the first frame for 2.5 us with the loop's turn, it finds two; then, after 4.8 us,
    // the other three.
    assert_eq!(world.net.node(world.nodes[1]).polls, [0, 400, 2_900, 7_700].map(Nanos));
    assert_eq!(world.numbers(), (0..6).collect::<Vec<_>>());
}

/// The same as above, if every frame costs the same by its bytes.
#[test]
fn a_frame_costs_its_node_what_its_bytes_say() {
    let mut world = world(1, 6, LinkConfig { delay: Nanos(400), ..LinkConfig::ideal() });
    let cost = |frame: &[u8]| if frame.is_empty() { Nanos::ZERO } else { Nanos(2_300) };
    world.net.set_arrival_cost(world.nodes[1], Box::new(cost));
    let world = world.run();
    assert_eq!(world.net.node(world.nodes[1]).polls, [0, 400, 2_900, 7_700].map(Nanos));
    assert_eq!(world.numbers(), (0..6).collect::<Vec<_>>());
}

#[test]
fn a_full_receive_ring_refuses_and_the_net_counts_it() {
    let mut net = SimNet::new(1);
    let (left, mut left_port) = net.add_port(&MemoryConfig::default());
    let (right, _right_port) = net.add_port(&MemoryConfig { rx_ring_frames: 4, ..MemoryConfig::default() });
    net.connect(left, right, LinkConfig::default());
    let send = move |_now: Nanos| {
        let mut frame = left_port.alloc()?;
        frame.resize(60);
        left_port.tx_burst(&mut Burst::from_iter([frame.seal(TxMeta::default())]));
        Some(Nanos::ZERO)
    };
    net.add_node(ironwarp_sim::FnNode(send), &[left]);
    net.run_until(Nanos(2_500)).unwrap();
    // Thirteen sent, one every 200 ns; those after 1.4 us are still under way; nobody reads the
    // ring of four.
    assert_eq!(net.refused_frames(right) + 4 + net.frames_in_flight() as u64, 13);
    assert!(net.refused_frames(right) > 0);
}

#[test]
fn a_burst_longer_than_the_ring_leaves_all_the_same() {
    let mut net = SimNet::new(1);
    let small = MemoryConfig { rx_ring_frames: 8, ..MemoryConfig::default() };
    let (left, mut left_port) = net.add_port(&small);
    let (right, _right_port) = net.add_port(&MemoryConfig::default());
    let [there, _] = net.connect(left, right, LinkConfig::ideal());
    let mut started = false;
    let send = move |_now: Nanos| {
        let frames = if started { 0 } else { 20 };
        started = true;
        for _ in 0..frames {
            let mut frame = left_port.alloc()?;
            frame.resize(60);
            left_port.tx_burst(&mut Burst::from_iter([frame.seal(TxMeta::default())]));
        }
        left_port.rx_burst(&mut Burst::new());
        None
    };
    net.add_node(ironwarp_sim::FnNode(send), &[left]);
    net.run_until(Nanos::from_micros(5)).unwrap();
    assert_eq!(net.link(there).counts().offered, 20);
}

#[test]
fn a_broken_node_ends_the_run_and_says_when() {
    let mut world = world(1, 100, LinkConfig { delay: Nanos(400), ..LinkConfig::ideal() });
    world.receiver().broken_after = Some(3);
    let error = world.net.run_until(Nanos::from_millis(1)).unwrap_err();
    let SimError::Node { node, at, what } = error else { panic!("{error}") };
    assert_eq!((node, at, what.as_str()), (1, Nanos(2_400), "told to break"));
}

#[test]
fn a_run_may_end_when_a_condition_holds() {
    let mut world = world(1, 100, LinkConfig::default());
    let receiver = world.nodes[1];
    let done = world.net.run_until_done(Nanos::from_millis(1), |net| net.node(receiver).got.len() == 5);
    assert!(done.unwrap());
    assert_eq!(world.receiver().got.len(), 5);
    let never = world.net.run_until_done(Nanos::from_millis(1), |_| false);
    assert!(!never.unwrap());
    assert_eq!(world.net.now(), Nanos::from_millis(1));
}

#[test]
fn nothing_is_refused_by_a_node_that_keeps_up() {
    let world = world(1, 2_000, LinkConfig::default()).run();
    assert_eq!(world.ports.map(|port| world.net.refused_frames(port)), [0, 0]);
}

#[test]
fn wireshark_reads_a_captured_run() {
    let path = std::env::temp_dir().join(format!("ironwarp-sim-{}.pcapng", std::process::id()));
    let capture = Capture::create(&path, CaptureLimits::default()).unwrap();
    let mut world = world(1, 3, LinkConfig { delay: Nanos(250), ..LinkConfig::ideal() });
    world.net.capture(&capture).unwrap();
    world.net.run_until(Nanos::from_millis(1)).unwrap();
    capture.flush().unwrap();
    let fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.interface_name"];
    let output = Command::new("tshark").args(fields).arg("-r").arg(&path).output();
    std::fs::remove_file(&path).unwrap();
    let Ok(output) = output else {
        return writeln!(std::io::stderr(), "\nSKIPPED: tshark is not installed").expect("a terminal");
    };
    let seen = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[..2], ["0.000000000\tport0", "0.000000250\tport1"]);
    assert_eq!(lines.len(), 6);
}
