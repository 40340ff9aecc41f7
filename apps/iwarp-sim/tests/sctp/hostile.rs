//! A host at the switch that forges packets of an association, replays old ones and floods the
//! server with INITs and cookies: the association goes on, and the server keeps no state for it.

use std::cell::RefCell;
use std::rc::Rc;

use ironwarp_llp::Events;
use ironwarp_sctp::SctpConfig;
use ironwarp_sim::Node;
use ironwarp_stats::Counter;
use ironwarp_testkit::{Route, mpa};
use ironwarp_types::{Nanos, SeededEntropy};
use iwarp_sim::adversary::RawWire;
use iwarp_sim::sctp::{Flow, SctpNode, SctpSetup};
use iwarp_sim::tcp::SharedNode;

use crate::adversaries::star::{ATTACKER, CLIENT, SERVER, device, star};

const PORT: u16 = 4_420;
const FROM_PORT: u16 = 50_000;
const SCTP: u8 = 132;
const ATTACK_EVERY: Nanos = Nanos::from_micros(1);
const RECORDED_MAX: usize = 4_096;
const MESSAGES: u64 = 4_000;

type Recorded = Rc<RefCell<Vec<Vec<u8>>>>;

/// Sends a hostile frame each microsecond.
struct Attacker {
    wire: RawWire,
    chance: SeededEntropy,
    /// Frames of the client that it has seen.
    recorded: Recorded,
    next_at: Nanos,
    sent: u64,
}

impl Attacker {
    fn frame(&mut self) -> Vec<u8> {
        let chance = &mut self.chance;
        let (tag, word) = (chance.below(1 << 32) as u32, chance.below(1 << 32) as u32);
        let any = chance.below(1 << 16) as u16 | 1;
        let host = 4 + chance.below(200) as u8;
        let client = [FROM_PORT, PORT];
        let octets: Vec<u8> = (0..96).map(|_| chance.below(256) as u8).collect();
        match chance.below(6) {
            0 => packet(host, [any, PORT], 0, (1, 0, &init(tag | 1))),
            1 => packet(host, [any, PORT], tag, (10, 0, &octets)),
            2 => packet(CLIENT, client, 0, (1, 0, &init(tag | 1))),
            3 => packet(CLIENT, client, tag, (10, 0, &octets)),
            4 => {
                let value = [word.to_be_bytes(), [0, 0, 255, 255], [0; 4], [0; 4]].concat();
                // DATA, SACK, ABORT with and without T, SHUTDOWN, SHUTDOWN ACK, SHUTDOWN COMPLETE.
                let (kind, flags, bytes) =
                    [(0, 7, 16), (3, 0, 12), (6, 0, 0), (6, 1, 0), (7, 0, 4), (8, 0, 0), (14, 1, 0)]
                        [chance.below(7) as usize];
                packet(CLIENT, client, tag, (kind, flags, &value[..bytes]))
            }
            _ => {
                let recorded = self.recorded.borrow();
                let count = recorded.len() as u64;
                match count {
                    0 => Vec::new(),
                    _ => recorded[self.chance.below(count) as usize].clone(),
                }
            }
        }
    }
}

impl Node for Attacker {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let mut out = Vec::new();
        self.wire.receive(&mut out);
        if now >= self.next_at {
            self.next_at = now + ATTACK_EVERY;
            out.extend(Some(self.frame()).filter(|frame| !frame.is_empty()));
            self.sent += 1;
        }
        self.wire.push(&out);
        self.wire.flush();
        Some(self.next_at)
    }
}

fn init(tag: u32) -> Vec<u8> {
    [&tag.to_be_bytes()[..], &65_536u32.to_be_bytes(), &[0, 64, 0, 64], &[0, 0, 0, 1]].concat()
}

/// A packet with one chunk and a right checksum, to the server.
fn packet(from: u8, ports: [u16; 2], tag: u32, (kind, flags, value): (u8, u8, &[u8])) -> Vec<u8> {
    let [source, destination] = ports.map(u16::to_be_bytes);
    let length = (value.len() as u16 + 4).to_be_bytes();
    let header = [&source[..], &destination, &tag.to_be_bytes(), &[0; 4]].concat();
    let mut packet = [&header[..], &[kind, flags], &length, value].concat();
    let checksum = mpa::crc(&packet);
    packet[8..12].copy_from_slice(&checksum);
    Route::v4(from, SERVER).packet(SCTP, &packet)
}

/// RFC 9260 s5.1.3, s5.2, s8.4 and s8.5.
#[test]
fn forged_replayed_and_flooding_packets_end_and_open_nothing() {
    let (mut net, [(client_id, client_port), (server_id, server_port), (attacker_id, attacker_port)]) =
        star(3);
    let node = |host, port| {
        let sctp = SctpConfig { associations_max: 4, ..SctpConfig::default() };
        SharedNode::new(SctpNode::new(SctpSetup { host, device: device(host), sctp, seed: 3 }, port))
    };
    let (client, server) = (node(CLIENT, client_port), node(SERVER, server_port));
    let recorded = Recorded::default();
    let flow = |number: u64| Flow {
        stream: number as u16,
        message_bytes: 1_000,
        first_at: Nanos::from_millis(1),
        every: Nanos::from_micros(10),
        ..Flow::bulk(MESSAGES)
    };
    let flows: Vec<Flow> = (0..4).map(flow).collect();
    {
        let (mut server, recorded) = (server.borrow_mut(), recorded.clone());
        server.listen(PORT).unwrap();
        server.arrivals.expect(&flows);
        server.rx_filter = Some(Box::new(move |_, frame| {
            let mut recorded = recorded.borrow_mut();
            if recorded.len() < RECORDED_MAX {
                recorded.push(frame.to_vec());
            }
            false
        }));
    }
    client.borrow_mut().connect(Nanos::ZERO, (FROM_PORT, (SERVER, PORT)), flows).unwrap();
    let attacker = SharedNode::new(Attacker {
        wire: RawWire::new(ATTACKER, attacker_port),
        chance: SeededEntropy::new(7),
        recorded,
        next_at: Nanos::ZERO,
        sent: 0,
    });
    net.add_node(Box::new(client.clone()), &[client_id]);
    net.add_node(Box::new(server.clone()), &[server_id]);
    net.add_node(Box::new(attacker.clone()), &[attacker_id]);
    let done = net.run_until_done(Nanos::from_secs(2), |_| server.borrow().arrivals.are_complete());
    assert!(done.unwrap(), "all messages arrive, each once");
    let (client, server) = (client.borrow(), server.borrow());
    for host in [&client, &server] {
        let seen: Vec<Events> = host.events.iter().map(|(_, events)| *events).collect();
        assert_eq!(seen, [Events::ESTABLISHED]);
        assert_eq!(host.sctp.check(), Ok(()));
    }
    let usage = server.sctp.resource_usage();
    assert_eq!((usage.connections, usage.flows), (1, 1), "no state is kept for what is forged");
    assert!(attacker.borrow().sent > 30_000);
    for counter in [Counter::SctpDropTag, Counter::SctpDropBadCookie, Counter::SctpRxDuplicates] {
        assert!(server.count(counter) > 100, "{counter:?}: {}", server.count(counter));
    }
}
