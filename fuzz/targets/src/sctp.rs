//! A live node over SCTP as a sequence of packets with the right tags, near the expected numbers,
//! and with any chunks; of cookies that are kept, changed, replayed and late; of packets of another
//! host that knows the tags; of calls of its application, and of steps of its clock.
//!
//! A cookie that was changed, is of another host or is too old opens no association.

use ironwarp_testkit::{Route, mpa};

use crate::{Input, Node};
use ironwarp::SendWr;
use ironwarp::config::TransportKind;

const PORT: u16 = crate::node::PORT;
const SCTP: u8 = 132;
const ASSOCIATIONS_MAX: usize = 4;
const COOKIES_MAX: usize = 8;
/// How long a cookie is valid.
const COOKIE_LIFE_NS: u64 = 60_000_000_000;
/// The tag that the node sends with.
const OWN_TAG: u32 = 0x1234_5678;
const ADAPTATION: [u8; 8] = [0xc0, 6, 0, 8, 0, 0, 0, 1];

const DATA: u8 = 0;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const SACK: u8 = 3;
const HEARTBEAT: u8 = 4;
const HEARTBEAT_ACK: u8 = 5;
const SHUTDOWN: u8 = 7;
const SHUTDOWN_ACK: u8 = 8;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
const SHUTDOWN_COMPLETE: u8 = 14;

/// One side of an association with the node, at host 2.
struct Association {
    /// Its port and that of the node.
    ports: [u16; 2],
    /// The tag that the node expects.
    tag: u32,
    /// The next TSN to send, and the last one that arrived.
    next_tsn: u32,
    last_tsn: u32,
    acknowledges: bool,
}

/// A cookie of the node.
struct Cookie {
    ports: [u16; 2],
    tag: u32,
    initial_tsn: u32,
    octets: Vec<u8>,
    made_at: u64,
}

struct Target {
    node: Node,
    associations: Vec<Association>,
    cookies: Vec<Cookie>,
    next_port: u16,
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut node = Node::new(|config| config.stack.transport = TransportKind::Sctp.into());
    for host in [2, 3] {
        let route = Route::v4(host, 1);
        node.inject(&route.arp(1, route.macs[0]));
    }
    node.collect();
    let mut target = Target { node, associations: Vec::new(), cookies: Vec::new(), next_port: 2_000 };
    target.open(&init(1, &ADAPTATION));
    while !input.is_empty() {
        target.step(&mut input);
        target.node.run();
    }
    target.node.finish();
}

impl Target {
    fn step(&mut self, input: &mut Input<'_>) {
        let kind = input.u8();
        let at = usize::from(kind >> 4);
        match kind & 15 {
            0..=2 => self.send(input, at, data),
            3 | 4 => self.send(input, at, sack),
            5 | 6 => self.send(input, at, chunks),
            7 => self.send(input, at, control),
            8 => {
                let more = if input.flag() { &ADAPTATION[..] } else { input.short_bytes() };
                self.open(&init(input.u8().into(), more));
            }
            9 => self.echo(input, at),
            10 => self.apply(input),
            11 => {
                self.node.control.allow_allocations(if input.flag() { u64::MAX } else { input.u8().into() })
            }
            12 => {
                let packet = input.bytes(1_400).to_vec();
                self.inject(2, packet);
            }
            13 => {
                if let Some(association) = self.associations.get_mut(at) {
                    association.acknowledges = input.flag();
                }
            }
            14 => self.turn(),
            _ => self.node.advance(input.nanos()),
        }
    }

    /// Makes the checksum of a packet right, and sends it.
    fn inject(&mut self, host: u8, mut packet: Vec<u8>) {
        if let Some(place) = packet.get_mut(8..12) {
            place.fill(0);
            // The CRC of MPA is that of SCTP.
            let checksum = mpa::crc(&packet);
            packet[8..12].copy_from_slice(&checksum);
        }
        self.node.inject(&Route::v4(host, 1).packet(SCTP, &packet));
    }

    /// Sends chunks of an association. Now and then another host does, which changes nothing.
    fn send(
        &mut self,
        input: &mut Input<'_>,
        at: usize,
        chunks: impl Fn(&mut Input<'_>, &mut Association) -> Vec<u8>,
    ) {
        let count = self.associations.len().max(1);
        let Some(association) = self.associations.get_mut(at % count) else { return };
        let from = input.u8();
        let (host, tag) = match from {
            0..=199 => (2, association.tag),
            200..=219 => (2, input.u32()),
            220..=234 => (2, OWN_TAG),
            _ => (3, association.tag),
        };
        let chunks = chunks(input, association);
        let packet = packet(association.ports, tag, &chunks);
        let before = self.node.worker.resource_usage().connections;
        self.inject(host, packet);
        if host == 3 {
            let after = self.node.worker.resource_usage().connections;
            assert_eq!(before, after, "another host ends or opens an association");
        }
    }

    /// Sends an INIT from a new port, and the cookie of its answer.
    fn open(&mut self, init: &[u8]) {
        let ports = [self.next_port, PORT];
        self.next_port = 2_000 + (self.next_port + 1) % 2_000;
        self.node.collect();
        self.inject(2, packet(ports, 0, &chunk(INIT, 0, init)));
        let Some(cookie) = self.read_cookie(ports) else { return };
        let echo = packet(ports, cookie.tag, &chunk(COOKIE_ECHO, 0, &cookie.octets));
        let (tag, initial_tsn) = (cookie.tag, cookie.initial_tsn);
        self.keep(cookie);
        self.inject(2, echo);
        self.associations.push(Association {
            ports,
            tag,
            next_tsn: 100,
            last_tsn: initial_tsn.wrapping_sub(1),
            acknowledges: true,
        });
        if self.associations.len() > ASSOCIATIONS_MAX {
            self.associations.remove(0);
        }
    }

    fn keep(&mut self, cookie: Cookie) {
        self.cookies.push(cookie);
        if self.cookies.len() > COOKIES_MAX {
            self.cookies.remove(0);
        }
    }

    fn read_cookie(&mut self, ports: [u16; 2]) -> Option<Cookie> {
        let made_at = self.now();
        let packets = self.node.collect();
        let init_ack = packets.iter().find_map(|frame| {
            let (_, _, chunks) = read(frame)?;
            chunks.into_iter().find(|(kind, _)| *kind == INIT_ACK)
        });
        let (_, value) = init_ack?;
        let (tag, initial_tsn) = (word(&value, 0)?, word(&value, 12)?);
        let mut parameters = value.get(16..)?;
        while let Some(&[high, low, length_high, length_low]) = parameters.first_chunk::<4>() {
            let length = usize::from(u16::from_be_bytes([length_high, length_low]));
            if [high, low] == [0, 7] {
                let octets = parameters.get(4..length)?.to_vec();
                return Some(Cookie { ports, tag, initial_tsn, octets, made_at });
            }
            parameters = parameters.get(length.next_multiple_of(4)..)?;
        }
        None
    }

    fn now(&self) -> u64 {
        ironwarp_types::Clock::now(&self.node.clock).0
    }

    /// Sends a cookie again: as it is, changed, by another host, or bundled with chunks.
    fn echo(&mut self, input: &mut Input<'_>, at: usize) {
        let now = self.now();
        let count = self.cookies.len().max(1);
        let Some(cookie) = self.cookies.get(at % count) else { return };
        let (change, host) = (input.u8(), if input.u8() < 200 { 2 } else { 3 });
        let mut octets = cookie.octets.clone();
        let place = input.below(octets.len().max(1));
        if let Some(octet) = octets.get_mut(place) {
            *octet ^= change;
        }
        octets.truncate(if input.flag() { input.below(octets.len() + 1) } else { octets.len() });
        let is_whole = octets == cookie.octets && host == 2;
        let is_late = now > cookie.made_at + COOKIE_LIFE_NS;
        let tag = if input.u8() < 230 { cookie.tag } else { input.u32() };
        let mut all = chunk(COOKIE_ECHO, 0, &octets);
        all.extend(chunks(
            input,
            &mut Association { ports: [0; 2], tag, next_tsn: 100, last_tsn: 0, acknowledges: true },
        ));
        let packet = packet(cookie.ports, tag, &all);
        let before = self.node.worker.resource_usage().connections;
        self.inject(host, packet);
        let after = self.node.worker.resource_usage().connections;
        assert!(after <= before || is_whole && !is_late, "a wrong cookie opens an association");
    }

    /// Takes what the node sent, and answers as a peer does, until the node sends nothing more.
    fn turn(&mut self) {
        for _ in 0..32 {
            let frames = self.node.collect();
            if frames.is_empty() {
                return;
            }
            for (ports, tag, chunks) in frames.iter().filter_map(|frame| read(frame)) {
                self.answer(ports, tag, chunks);
            }
        }
    }

    fn answer(&mut self, ports: [u16; 2], tag: u32, chunks: Vec<(u8, Vec<u8>)>) {
        let back = [ports[1], ports[0]];
        let mut at = self.associations.iter().position(|one| one.ports == back);
        let mut replies = Vec::new();
        for (kind, value) in chunks {
            if let (INIT, Some(node_tag), Some(tsn)) = (kind, word(&value, 0), word(&value, 12)) {
                let fields = init(1, &[&ADAPTATION[..], &[0, 7, 0, 8, 1, 2, 3, 4]].concat());
                self.inject(2, packet(back, node_tag, &chunk(INIT_ACK, 0, &fields)));
                let last_tsn = tsn.wrapping_sub(1);
                let one =
                    Association { ports: back, tag: node_tag, next_tsn: 100, last_tsn, acknowledges: true };
                self.associations.retain(|other| other.ports != back);
                self.associations.push(one);
                at = Some(self.associations.len() - 1);
            }
            let Some(association) = at.and_then(|at| self.associations.get_mut(at)) else { continue };
            match kind {
                DATA => {
                    let tsn = word(&value, 0).unwrap_or_default();
                    if tsn == association.last_tsn.wrapping_add(1) {
                        association.last_tsn = tsn;
                    }
                    if association.acknowledges {
                        replies.extend(chunk(SACK, 0, &sack_of(association.last_tsn, 65_536, &[])));
                    }
                }
                HEARTBEAT => replies.extend(chunk(HEARTBEAT_ACK, 0, &value)),
                COOKIE_ECHO => replies.extend(chunk(COOKIE_ACK, 0, &[])),
                SHUTDOWN => replies.extend(chunk(SHUTDOWN_ACK, 0, &[])),
                SHUTDOWN_ACK => replies.extend(chunk(SHUTDOWN_COMPLETE, 0, &[])),
                _ => {}
            }
        }
        let node_tag = at.and_then(|at| self.associations.get(at)).map(|one| one.tag);
        if let Some(node_tag) = node_tag.filter(|_| !replies.is_empty() && tag == OWN_TAG) {
            replies.truncate(1_200);
            self.inject(2, packet(back, node_tag, &replies));
        }
    }

    /// A call of the node's application.
    fn apply(&mut self, input: &mut Input<'_>) {
        let (node, kind) = (&mut self.node, input.u8());
        if kind.is_multiple_of(4) {
            if let Some(qp) = node.create_qp() {
                let _ = node.ctx.connect(qp, ([10, 0, 0, 2], PORT).into(), b"");
            }
            return;
        }
        let Some(&qp) = node.qps.get(usize::from(kind >> 4) % node.qps.len().max(1)) else { return };
        let _ = match kind % 4 {
            1 => node.ctx.post_send(qp, &SendWr::send_inline(4, b"inline")).is_ok(),
            2 => node.ctx.disconnect(qp).is_ok(),
            _ => node.ctx.abort(qp).is_ok(),
        };
    }
}

/// A DATA chunk near the next TSN, most of them of a session of DDP.
fn data(input: &mut Input<'_>, association: &mut Association) -> Vec<u8> {
    let tsn = association.next_tsn.wrapping_add(input.offset());
    let shape = input.u8();
    let stream = u16::from(input.u8() % 66);
    let ssn = u16::from(input.u8());
    let payload = match shape & 3 {
        // An Initiate, and a Send of RDMAP.
        0 => [&ssn.to_be_bytes()[..], &[0, 1]].concat(),
        1 => [&ssn.to_be_bytes()[..], &[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 7]]
            .concat(),
        2 => [&ssn.to_be_bytes()[..], input.short_bytes()].concat(),
        _ => input.short_bytes().to_vec(),
    };
    let ppid = if shape & 4 == 4 { u32::from(input.u8()) } else { 16 + u32::from(shape & 3 == 0) };
    let flags = if shape & 8 == 8 { input.u8() } else { 7 };
    if tsn == association.next_tsn {
        association.next_tsn = tsn.wrapping_add(1);
    }
    let fields = [&tsn.to_be_bytes()[..], &stream.to_be_bytes(), &ssn.to_be_bytes(), &ppid.to_be_bytes()];
    chunk(DATA, flags, &[&fields.concat()[..], &payload].concat())
}

/// A SACK near what the node sent, with up to four blocks.
fn sack(input: &mut Input<'_>, association: &mut Association) -> Vec<u8> {
    let cum = association.last_tsn.wrapping_add(input.offset());
    let a_rwnd = [0, 1_500, 65_536, input.u32()][input.below(4)];
    let blocks: Vec<u16> = (0..2 * input.below(5)).map(|_| input.u8().into()).collect();
    chunk(SACK, 0, &sack_of(cum, a_rwnd, &blocks))
}

fn sack_of(cum: u32, a_rwnd: u32, blocks: &[u16]) -> Vec<u8> {
    let mut value = [cum.to_be_bytes(), a_rwnd.to_be_bytes()].concat();
    value.extend([(blocks.len() as u16 / 2).to_be_bytes(), [0; 2]].concat());
    value.extend(blocks.iter().flat_map(|distance| distance.to_be_bytes()));
    value
}

/// Up to three chunks of any type.
fn chunks(input: &mut Input<'_>, _: &mut Association) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..input.below(4) {
        let (kind, flags) = (input.u8(), input.u8());
        all.extend(chunk(if kind < 200 { kind % 16 } else { kind }, flags, input.short_bytes()));
    }
    all
}

/// A chunk without a value, or with a TSN, of the rules for closing.
fn control(input: &mut Input<'_>, association: &mut Association) -> Vec<u8> {
    let kind = 4 + input.u8() % 11;
    let value = match kind {
        SHUTDOWN => association.last_tsn.wrapping_add(input.offset()).to_be_bytes().to_vec(),
        _ => input.short_bytes().to_vec(),
    };
    chunk(kind, input.u8() & 1, &value)
}

/// The fields of an INIT. Other shapes than 1 have bad ones.
fn init(shape: u32, parameters: &[u8]) -> Vec<u8> {
    let a_rwnd: u32 = if shape % 7 == 3 { shape } else { 65_536 };
    let streams = if shape % 7 == 5 { shape as u16 } else { 64 };
    let tag = if shape % 16 == 15 { 0 } else { OWN_TAG };
    let fixed = [tag.to_be_bytes(), a_rwnd.to_be_bytes()].concat();
    [&fixed[..], &streams.to_be_bytes(), &64u16.to_be_bytes(), &100u32.to_be_bytes(), parameters].concat()
}

fn packet(ports: [u16; 2], tag: u32, chunks: &[u8]) -> Vec<u8> {
    let [from, to] = ports.map(u16::to_be_bytes);
    [&from[..], &to, &tag.to_be_bytes(), &[0; 4], chunks].concat()
}

fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    let mut octets = [&[kind, flags][..], &(value.len() as u16 + 4).to_be_bytes(), value].concat();
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// The type and the value of each chunk.
type Chunks = Vec<(u8, Vec<u8>)>;

/// Reads ports, tag and chunks of a frame with IPv4.
fn read(frame: &[u8]) -> Option<([u16; 2], u32, Chunks)> {
    if frame.get(12..14)? != [8, 0] || frame.get(23) != Some(&SCTP) {
        return None;
    }
    let packet = frame.get(34..)?;
    let ports = word(packet, 0)?;
    let (mut chunks, mut rest) = (Vec::new(), packet.get(12..)?);
    while let Some(&[kind, _, high, low]) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        chunks.push((kind, rest.get(4..length)?.to_vec()));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(([(ports >> 16) as u16, ports as u16], word(packet, 4)?, chunks))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target reaches an association and a session; without this it would fuzz little.
    #[test]
    fn an_association_and_a_session_are_set_up_and_a_message_arrives() {
        let mut node = Node::new(|config| config.stack.transport = TransportKind::Sctp.into());
        node.collect();
        let mut target = Target { node, associations: Vec::new(), cookies: Vec::new(), next_port: 2_000 };
        target.open(&init(1, &ADAPTATION));
        assert_eq!(target.node.worker.resource_usage().connections, 1);
        for step in [&[0, 0, 0, 0, 0, 0][..], &[14], &[0, 0, 0, 1, 0, 1], &[14]] {
            target.step(&mut Input::new(step));
            target.node.run();
        }
        assert_eq!((target.node.established.len(), target.node.completions.len()), (1, 1));
        target.node.finish();
    }
}
