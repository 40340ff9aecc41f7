//! Associations of a host beside those of a peer that lies, or that restarts: the honest ones go
//! on, and every byte arrives.

use ironwarp_llp::Events;
use ironwarp_port::memory::MemoryPort;
use ironwarp_port::{Burst, Frame, Port, TxMeta};
use ironwarp_sctp::SctpConfig;
use ironwarp_sim::{LinkConfig, Node};
use ironwarp_stats::Counter;
use ironwarp_testkit::mpa;
use ironwarp_types::{Nanos, SeededEntropy};
use iwarp_sim::sctp::{Flow, SctpNode, SctpSetup};
use iwarp_sim::tcp::SharedNode;

use crate::adversaries::star::{ATTACKER, CLIENT, SERVER, device, star};

const PORT: u16 = 4_420;
const FROM_PORT: u16 = 50_000;
const LIARS: u16 = 24;
/// The common header of SCTP behind Ethernet and IPv4, and its chunks.
const L4: usize = 34;
const CHUNKS: usize = L4 + 12;
const DATA: u8 = 0;
const SACK: u8 = 3;

fn flow(number: u64) -> Flow {
    Flow {
        stream: number as u16,
        message_bytes: 1_000,
        first_at: Nanos::from_millis(1),
        every: Nanos::from_micros(10),
        ..Flow::bulk(4_000)
    }
}

fn host(host: u8, port: MemoryPort) -> SharedNode<SctpNode> {
    let sctp = SctpConfig { associations_max: 64, ..SctpConfig::default() };
    SharedNode::new(SctpNode::new(SctpSetup { host, device: device(host), sctp, seed: 3 }, port))
}

/// Stands between a host and its cable: loses DATA to it now and then, and changes its packets.
struct Liar {
    /// The port to the host, and the one to the cable.
    ports: [MemoryPort; 2],
    chance: SeededEntropy,
    change: fn(&mut SeededEntropy, &mut [u8]),
}

/// Changes a SACK at the front of a packet.
fn lie(chance: &mut SeededEntropy, packet: &mut [u8]) {
    if packet[12] != SACK {
        return;
    }
    let word = |packet: &[u8], at: usize| u32::from_be_bytes(*packet[at..].first_chunk().unwrap());
    let half = |packet: &[u8], at: usize| u16::from_be_bytes(*packet[at..].first_chunk().unwrap());
    let (cum, gaps, twice) = (word(packet, 16), half(packet, 24), half(packet, 26));
    match chance.below(40) {
        // Reneges: what a block has acknowledged is missing. The blocks become duplicates.
        0..10 => {
            packet[24..26].fill(0);
            packet[26..28].copy_from_slice(&(twice + gaps).to_be_bytes());
        }
        // Acknowledges what is missing, and what was never sent.
        10 => packet[16..20].copy_from_slice(&cum.wrapping_add(1 + chance.below(4) as u32).to_be_bytes()),
        11 => packet[16..20].copy_from_slice(&(chance.below(1 << 32) as u32).to_be_bytes()),
        // A block anywhere.
        12 if gaps > 0 => packet[28..32].copy_from_slice(&(chance.below(1 << 32) as u32).to_be_bytes()),
        13 if gaps > 0 => packet[31] ^= 8,
        // A closed window, or one of any size.
        14 => packet[20..24].fill(0),
        15 => packet[20..24].copy_from_slice(&(chance.below(1 << 32) as u32).to_be_bytes()),
        // Any octet of the chunks.
        16 => packet[12 + chance.below(packet.len() as u64 - 12) as usize] ^= 1 << chance.below(8),
        _ => {}
    }
}

/// Changes a few bits of a packet, half of them in the header of its first chunk.
fn damage(chance: &mut SeededEntropy, packet: &mut [u8]) {
    if chance.chance(20_000) {
        for _ in 0..1 + chance.below(3) {
            let room = if chance.chance(500_000) { 28.min(packet.len()) } else { packet.len() } as u64;
            packet[12 + chance.below(room - 12) as usize] ^= 1 << chance.below(8);
        }
    }
}

impl Liar {
    /// Changes a packet of SCTP, and corrects its checksum.
    fn change(&mut self, frame: &mut [u8]) {
        let is_sctp = frame.get(23) == Some(&132) && frame.len() > CHUNKS + 4;
        let Some(packet) = frame.get_mut(L4..).filter(|_| is_sctp) else { return };
        (self.change)(&mut self.chance, packet);
        packet[8..12].fill(0);
        let checksum = mpa::crc(packet);
        packet[8..12].copy_from_slice(&checksum);
    }
}

impl Node for Liar {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let mut more = false;
        for from in [0, 1] {
            let mut burst = Burst::new();
            self.ports[from].rx_burst(&mut burst);
            more |= burst.is_full();
            for frame in burst {
                let mut bytes = frame.bytes().to_vec();
                if from == 0 {
                    self.change(&mut bytes);
                } else if bytes.get(CHUNKS) == Some(&DATA) && self.chance.chance(20_000) {
                    continue;
                }
                let Some(mut copy) = self.ports[1 - from].alloc() else { continue };
                copy.resize(bytes.len());
                copy.bytes_mut().copy_from_slice(&bytes);
                let mut out = Burst::from_iter([copy.seal(TxMeta::default())]);
                self.ports[1 - from].tx_burst(&mut out);
            }
        }
        more.then_some(now)
    }
}

/// RFC 9260 s6.2.1: a sender copes with any SACK. A peer that takes back what it has acknowledged
/// is sent it again; one that acknowledges what was not sent is aborted.
#[test]
fn a_peer_that_lies_harms_its_own_associations_only() {
    let (mut net, [(client_id, client_port), (server_id, server_port), (cable_id, cable_port)]) = star(3);
    let (liar_id, liar_port) = net.add_port(&device(ATTACKER));
    let (between_id, between_port) = net.add_port(&device(ATTACKER));
    net.connect(liar_id, between_id, LinkConfig::default());
    let liar = Liar { ports: [between_port, cable_port], chance: SeededEntropy::new(11), change: lie };
    let [client, server, lied] = [(CLIENT, client_port), (SERVER, server_port), (ATTACKER, liar_port)]
        .map(|(number, port)| host(number, port));
    let honest: Vec<Flow> = (0..4).map(flow).collect();
    let all: Vec<Flow> = (0..4 + u64::from(LIARS)).map(flow).collect();
    for (host, flows) in [(&server, &honest), (&lied, &all)] {
        host.borrow_mut().listen(PORT).unwrap();
        host.borrow_mut().arrivals.expect(flows);
    }
    {
        let mut client = client.borrow_mut();
        client.connect(Nanos::ZERO, (FROM_PORT, (SERVER, PORT)), honest).unwrap();
        for number in 0..LIARS {
            let ends = (FROM_PORT + 1 + number, (ATTACKER, PORT));
            client.connect(Nanos::ZERO, ends, vec![flow(0)]).unwrap();
        }
    }
    net.add_node(Box::new(client.clone()), &[client_id]);
    net.add_node(Box::new(server.clone()), &[server_id]);
    net.add_node(Box::new(lied.clone()), &[liar_id]);
    net.add_node(Box::new(liar), &[between_id, cable_id]);
    let done = net.run_until_done(Nanos::from_millis(60), |_| server.borrow().arrivals.are_complete());
    assert!(done.unwrap(), "all honest messages arrive, each once");
    net.run_until(Nanos::from_millis(200)).unwrap();
    let (client, server) = (client.borrow(), server.borrow());
    assert_eq!((client.sctp.check(), server.sctp.check()), (Ok(()), Ok(())));
    let seen: Vec<Events> = server.events.iter().map(|(_, events)| *events).collect();
    assert_eq!(seen, [Events::ESTABLISHED]);
    let ended = client.events.iter().filter(|(_, events)| events.intersects(Events::ENDED)).count();
    assert!(ended > usize::from(LIARS / 2), "{ended} of {LIARS} associations ended");
    for counter in [Counter::SctpRxPeerReneged, Counter::SctpDropBadChunk, Counter::SctpTxAborts] {
        assert!(client.count(counter) > 5, "{counter:?}: {}", client.count(counter));
    }
}

/// The checksum of RFC 9260 s6.8 does not show such damage. Whatever it changes, chunk types,
/// lengths, TSNs and streams among it, only its own associations end.
#[test]
fn damage_under_a_right_checksum_harms_its_own_associations_only() {
    let (mut net, [(client_id, client_port), (server_id, server_port), (cable_id, cable_port)]) = star(3);
    let (damaged_id, damaged_port) = net.add_port(&device(ATTACKER));
    let (between_id, between_port) = net.add_port(&device(ATTACKER));
    net.connect(damaged_id, between_id, LinkConfig::default());
    let liar = Liar { ports: [between_port, cable_port], chance: SeededEntropy::new(11), change: damage };
    let [client, server, damaged] = [(CLIENT, client_port), (SERVER, server_port), (ATTACKER, damaged_port)]
        .map(|(number, port)| host(number, port));
    let honest: Vec<Flow> = (0..4).map(flow).collect();
    server.borrow_mut().listen(PORT).unwrap();
    server.borrow_mut().arrivals.expect(&honest);
    client.borrow_mut().connect(Nanos::ZERO, (FROM_PORT, (SERVER, PORT)), honest).unwrap();
    net.add_node(Box::new(client.clone()), &[client_id]);
    net.add_node(Box::new(server.clone()), &[server_id]);
    net.run_until(Nanos::from_micros(500)).unwrap();
    let (first, _) = server.borrow().events[0];
    server.borrow_mut().checked = Some(first);
    for number in 0..LIARS {
        let ends = (FROM_PORT + 1 + number, (SERVER, PORT));
        damaged.borrow_mut().connect(net.now(), ends, vec![flow(0)]).unwrap();
    }
    net.add_node(Box::new(damaged.clone()), &[damaged_id]);
    net.add_node(Box::new(liar), &[between_id, cable_id]);
    let done = net.run_until_done(Nanos::from_millis(60), |_| server.borrow().arrivals.are_complete());
    assert!(done.unwrap(), "all honest messages arrive, each once");
    let (client, server) = (client.borrow(), server.borrow());
    assert_eq!((client.sctp.check(), server.sctp.check()), (Ok(()), Ok(())));
    let ended = |(id, events): &&(_, Events)| events.intersects(Events::ENDED) && *id != first;
    let count = server.events.iter().filter(ended).count();
    assert!(count > usize::from(LIARS / 2), "{count} of {LIARS} associations ended");
    assert!(!server.events.iter().any(|(id, events)| *id == first && events.intersects(Events::ENDED)));
}

/// RFC 9260 s5.2.2 and s5.2.4 (A): a peer that restarts in the midst of its messages begins with
/// another tag at the same ports. Its old association ends, and that of another host goes on.
#[test]
fn a_peer_that_restarts_gets_a_new_association_beside_others() {
    let (mut net, ports) = star(3);
    let [client_id, server_id, other_id] = ports.each_ref().map(|(id, _)| *id);
    let mut numbers = [CLIENT, SERVER, ATTACKER].into_iter();
    let [client, server, other] = ports.map(|(_, port)| host(numbers.next().unwrap(), port));
    server.borrow_mut().listen(PORT).unwrap();
    // The first flow never ends: its host forgets it.
    let flows: Vec<Flow> = (0..3).map(flow).collect();
    server.borrow_mut().arrivals.expect(&flows);
    client.borrow_mut().connect(Nanos::ZERO, (FROM_PORT, (SERVER, PORT)), vec![flows[0]]).unwrap();
    other.borrow_mut().next_flow = 1;
    other.borrow_mut().connect(Nanos::ZERO, (FROM_PORT, (SERVER, PORT)), vec![flows[1]]).unwrap();
    let client_node = net.add_node(Box::new(client.clone()), &[client_id]);
    net.add_node(Box::new(server.clone()), &[server_id]);
    net.add_node(Box::new(other.clone()), &[other_id]);
    net.run_until(Nanos::from_millis(20)).unwrap();
    {
        let mut client = client.borrow_mut();
        client.restart();
        client.next_flow = 2;
        client.connect(net.now(), (FROM_PORT, (SERVER, PORT)), vec![flows[2]]).unwrap();
    }
    net.wake(client_node);
    let is_done = |_: &_| [1, 2].into_iter().all(|flow| server.borrow().arrivals.is_complete(flow));
    assert!(net.run_until_done(Nanos::from_secs(1), is_done).unwrap(), "all messages arrive, each once");
    let (server, client) = (server.borrow(), client.borrow());
    assert!(!server.arrivals.is_complete(0));
    assert_eq!((server.sctp.check(), client.sctp.check()), (Ok(()), Ok(())));
    assert_eq!(server.count(Counter::SctpRestarts), 1);
    let of = |wanted: Events| server.events.iter().filter(|(_, seen)| seen.intersects(wanted)).count();
    assert_eq!((of(Events::ESTABLISHED), of(Events::ENDED)), (3, 1));
}
