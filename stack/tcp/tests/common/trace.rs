//! Segments as text, as tcpdump prints them, and as frames.
//!
//! A segment is written `flags seq[:end(len)] [ack n] [win n] [<options>] [[congestion]]`:
//!
//! - flags from `S F R P . E W U`; the dot is ACK, E and W are ECE and CWR;
//! - numbers relative to each side's initial number; payload is the pattern of its offset: byte `n`
//!   of a stream has the sequence number `n + 1`;
//! - options `mss 1460`, `sackOK`, `TS val 1 ecr 0`, `ws 7` (or `wscale`), `sack 10:20 30:40`,
//!   `nop`, and `raw 0102ff` for octets in hexadecimal, separated by commas; timestamp values are
//!   relative to each side's first value;
//! - congestion bits `[ect0]`, `[ect1]` and `[ce]`; none for packets that are not ECN-capable.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::*;

use super::node::mac;
use super::pattern::bytes_at;

/// The peer's initial sequence number, shortly before the wrap, so that every script crosses it.
pub const PEER_ISS: u32 = u32::MAX - 500;

/// The peer's timestamp clock at time 0 of a script, shortly before its wrap.
pub const PEER_CLOCK: u32 = u32::MAX - 50;

const FLAGS: [(u8, char); 8] =
    [(2, 'S'), (1, 'F'), (4, 'R'), (8, 'P'), (16, '.'), (64, 'E'), (128, 'W'), (32, 'U')];

/// Our initial numbers, as far as the peer has received them.
#[derive(Clone, Copy, Default)]
pub struct OurNumbers {
    pub iss: Option<u32>,
    pub clock: Option<u32>,
}

/// A segment with relative numbers.
#[derive(Clone, Debug, Default)]
pub struct TraceSegment {
    pub flags: u8,
    pub seq: u32,
    pub len: u32,
    pub ack: Option<u32>,
    pub win: u16,
    pub mss: Option<u16>,
    pub ws: Option<u8>,
    pub sack_ok: bool,
    pub timestamps: Option<(u32, u32)>,
    pub sack: Vec<(u32, u32)>,
    pub raw: Vec<u8>,
    pub ecn: u8,
}

impl TraceSegment {
    /// Parses a line of a script.
    pub fn parse(text: &str) -> Self {
        let mut segment = TraceSegment::default();
        let (text, ecn) = cut(text, '[', ']');
        segment.ecn = match ecn {
            None => 0,
            Some("ect1") => 1,
            Some("ect0") => 2,
            Some("ce") => 3,
            Some(other) => panic!("{other} in {text}"),
        };
        let (text, options) = cut(&text, '<', '>');
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            segment.parse_option(option);
        }
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        for letter in words.next().expect("flags").chars() {
            segment.flags |= FLAGS.iter().find(|&&(_, l)| l == letter).expect("a flag").0;
        }
        (segment.seq, segment.len) = parse_range(words.next().expect("a sequence number"));
        while let Some(word) = words.next() {
            let value = words.next().expect("a value");
            match word {
                "ack" => segment.ack = Some(number(value)),
                "win" => segment.win = number(value) as u16,
                other => panic!("{other} in {text}"),
            }
        }
        assert_eq!(segment.ack.is_some(), segment.flags & 16 != 0, "{text}");
        segment
    }

    fn parse_option(&mut self, option: &str) {
        let words: Vec<&str> = option.trim().split(' ').collect();
        match words[..] {
            ["mss", mss] => self.mss = Some(number(mss) as u16),
            ["ws" | "wscale", shift] => self.ws = Some(number(shift) as u8),
            ["sackOK"] => self.sack_ok = true,
            ["nop"] => {}
            ["TS", "val", value, "ecr", echo] => self.timestamps = Some((number(value), number(echo))),
            ["sack", ref blocks @ ..] => {
                let edges = |block: &&str| {
                    let (start, end) = block.split_once(':').expect("start:end");
                    (number(start), number(end))
                };
                self.sack = blocks.iter().map(edges).collect();
            }
            ["raw", octets] => {
                let pairs = (0..octets.len() / 2).map(|at| &octets[2 * at..2 * at + 2]);
                self.raw = pairs.map(|pair| u8::from_str_radix(pair, 16).expect("octets")).collect();
            }
            _ => panic!("option {option}"),
        }
    }

    /// Returns the options as the peer sends them.
    fn option_octets(&self, our_numbers: OurNumbers) -> Vec<u8> {
        let mut list = self.raw.clone();
        if let Some(mss) = self.mss {
            list.extend([2, 4]);
            list.extend(mss.to_be_bytes());
        }
        if self.sack_ok {
            list.extend([4, 2, 1, 1]);
        }
        if let Some((value, echo)) = self.timestamps {
            let echoed =
                if self.flags & 16 == 0 { echo } else { our_numbers.clock.unwrap_or(0).wrapping_add(echo) };
            list.extend([1, 1, 8, 10]);
            list.extend(PEER_CLOCK.wrapping_add(value).to_be_bytes());
            list.extend(echoed.to_be_bytes());
        }
        if let Some(shift) = self.ws {
            list.extend([3, 3, shift, 1]);
        }
        if !self.sack.is_empty() {
            list.extend([1, 1, 5, 2 + 8 * self.sack.len() as u8]);
        }
        for &(start, end) in &self.sack {
            list.extend(our_numbers.iss.unwrap_or(0).wrapping_add(start).to_be_bytes());
            list.extend(our_numbers.iss.unwrap_or(0).wrapping_add(end).to_be_bytes());
        }
        list.resize(list.len().next_multiple_of(4), 0);
        list
    }

    /// Returns the frame of the segment from the peer's port to ours.
    pub fn encode(&self, our_numbers: OurNumbers, ports: (u16, u16)) -> Vec<u8> {
        let payload = bytes_at(u64::from(self.seq.wrapping_sub(1)), self.len as usize);
        let options = self.option_octets(our_numbers);
        let header_len = 20 + options.len();
        let (src, dst) = (std::net::Ipv4Addr::new(10, 0, 0, 2), std::net::Ipv4Addr::new(10, 0, 0, 1));
        let mut l4 = vec![0; header_len + payload.len()];
        let mut packet = TcpPacket::new_unchecked(&mut l4[..]);
        packet.set_src_port(ports.0);
        packet.set_dst_port(ports.1);
        packet.set_seq_number(TcpSeqNumber(PEER_ISS.wrapping_add(self.seq) as i32));
        let ack = self.ack.map_or(0, |ack| our_numbers.iss.unwrap_or(0).wrapping_add(ack));
        packet.set_ack_number(TcpSeqNumber(ack as i32));
        packet.set_window_len(self.win);
        packet.set_header_len(header_len as u8);
        packet.options_mut().copy_from_slice(&options);
        packet.payload_mut().copy_from_slice(&payload);
        l4[13] = self.flags;
        TcpPacket::new_unchecked(&mut l4[..]).fill_checksum(&src.into(), &dst.into());
        framed(&l4, src, dst, self.ecn)
    }

    /// Parses a frame of ours. Records our initial numbers in `our_numbers`.
    pub fn decode(frame: &[u8], our_numbers: &mut OurNumbers, ports: (u16, u16)) -> Self {
        let ethernet = EthernetFrame::new_checked(frame).expect("a link header");
        assert_eq!(ethernet.dst_addr(), EthernetAddress(mac(2).0));
        let ip = Ipv4Packet::new_checked(ethernet.payload()).expect("a network header");
        assert!(ip.verify_checksum() && ip.dont_frag());
        let (src, dst) = (IpAddress::from(ip.src_addr()), IpAddress::from(ip.dst_addr()));
        let packet = TcpPacket::new_checked(ip.payload()).expect("a segment");
        let repr =
            TcpRepr::parse(&packet, &src, &dst, &ChecksumCapabilities::default()).expect("a valid segment");
        assert_eq!((repr.dst_port, repr.src_port), ports);
        if packet.syn() {
            our_numbers.iss.get_or_insert(repr.seq_number.0 as u32);
        }
        let mut segment = TraceSegment {
            flags: ip.payload()[13],
            seq: (repr.seq_number.0 as u32).wrapping_sub(our_numbers.iss.unwrap_or(0)),
            len: repr.payload.len() as u32,
            ack: repr.ack_number.map(|ack| (ack.0 as u32).wrapping_sub(PEER_ISS)),
            win: repr.window_len,
            mss: repr.max_seg_size,
            ws: repr.window_scale,
            sack_ok: repr.sack_permitted,
            ecn: ip.ecn(),
            ..TraceSegment::default()
        };
        if let Some(stamp) = repr.timestamp {
            let clock = *our_numbers.clock.get_or_insert(stamp.tsval);
            let echo = if packet.ack() { stamp.tsecr.wrapping_sub(PEER_CLOCK) } else { stamp.tsecr };
            segment.timestamps = Some((stamp.tsval.wrapping_sub(clock), echo));
        }
        segment.sack = blocks_in(packet.options());
        if segment.len > 0 {
            let expected = bytes_at(u64::from(segment.seq.wrapping_sub(1)), segment.len as usize);
            assert_eq!(repr.payload, expected, "payload of {}", segment.print(true, true));
        }
        segment
    }

    /// Returns a line of a script, with or without window and timestamps.
    pub fn print(&self, window: bool, timestamps: bool) -> String {
        let mut text: String =
            FLAGS.iter().filter(|&&(bit, _)| self.flags & bit != 0).map(|&(_, letter)| letter).collect();
        text += &format!(" {}", self.seq);
        if self.len > 0 {
            text += &format!(":{}({})", self.seq.wrapping_add(self.len), self.len);
        }
        if let Some(ack) = self.ack {
            text += &format!(" ack {ack}");
        }
        if window {
            text += &format!(" win {}", self.win);
        }
        let mut options = Vec::new();
        options.extend(self.mss.map(|mss| format!("mss {mss}")));
        options.extend(self.sack_ok.then(|| "sackOK".to_string()));
        let timestamps = self.timestamps.filter(|_| timestamps);
        options.extend(timestamps.map(|(value, echo)| format!("TS val {value} ecr {echo}")));
        options.extend(self.ws.map(|shift| format!("ws {shift}")));
        if !self.sack.is_empty() {
            let blocks: Vec<String> = self.sack.iter().map(|(start, end)| format!("{start}:{end}")).collect();
            options.push(format!("sack {}", blocks.join(" ")));
        }
        if !options.is_empty() {
            text += &format!(" <{}>", options.join(","));
        }
        text + ["", " [ect1]", " [ect0]", " [ce]"][usize::from(self.ecn)]
    }
}

/// Returns the SACK blocks of an option list, relative to the peer's numbers.
fn blocks_in(mut list: &[u8]) -> Vec<(u32, u32)> {
    while let Some(&kind) = list.first() {
        let len = if kind == 1 { 1 } else { usize::from(list[1]) };
        if kind == 0 {
            break;
        }
        if kind == 5 {
            let edge = |octets: &[u8]| {
                u32::from_be_bytes(octets.try_into().expect("four octets")).wrapping_sub(PEER_ISS)
            };
            return list[2..len].chunks(8).map(|block| (edge(&block[..4]), edge(&block[4..]))).collect();
        }
        list = &list[len..];
    }
    Vec::new()
}

fn framed(l4: &[u8], src: std::net::Ipv4Addr, dst: std::net::Ipv4Addr, ecn: u8) -> Vec<u8> {
    let link = EthernetRepr {
        src_addr: EthernetAddress(mac(2).0),
        dst_addr: EthernetAddress(mac(1).0),
        ethertype: EthernetProtocol::Ipv4,
    };
    let network = Ipv4Repr {
        src_addr: src,
        dst_addr: dst,
        next_header: IpProtocol::Tcp,
        payload_len: l4.len(),
        hop_limit: 64,
    };
    let mut bytes = vec![0; link.buffer_len() + network.buffer_len()];
    bytes.extend(l4);
    let mut ethernet = EthernetFrame::new_unchecked(&mut bytes[..]);
    link.emit(&mut ethernet);
    let mut ip = Ipv4Packet::new_unchecked(ethernet.payload_mut());
    network.emit(&mut ip, &ChecksumCapabilities::default());
    ip.set_ecn(ecn);
    ip.fill_checksum();
    bytes
}

/// Returns the text between two characters, and the text without it.
fn cut(text: &str, open: char, close: char) -> (String, Option<&str>) {
    match (text.find(open), text.rfind(close)) {
        (Some(from), Some(to)) => {
            (format!("{}{}", &text[..from], &text[to + 1..]), Some(&text[from + 1..to]))
        }
        _ => (text.to_string(), None),
    }
}

fn parse_range(range: &str) -> (u32, u32) {
    let Some((seq, rest)) = range.split_once(':') else { return (number(range), 0) };
    let (end, len) = rest.trim_end_matches(')').split_once('(').expect("end(len)");
    assert_eq!(number(seq).wrapping_add(number(len)), number(end), "{range}");
    (number(seq), number(len))
}

/// Parses a number. A negative one is below the initial number.
fn number(text: &str) -> u32 {
    text.parse::<i64>().unwrap_or_else(|_| panic!("{text} is not a number")) as u32
}
