//! Shared parts of the tests of this crate: a net over an in-memory port, and frames that smoltcp
//! writes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ironwarp_port::memory::{self, FarEnd, MemoryConfig, MemoryControl, MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, Port, RxMeta, Wire};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{MacAddr, Nanos};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
    Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet,
    Ipv6Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};

use crate::{DuplicateProbes, Net, NetConfig, Packet, Prefix, Received, Station};

pub(crate) const OURS: Station = station(1);
pub(crate) const PEER: Station = station(2);
pub(crate) const GATEWAY: Station = station(254);

/// The station 10.0.0.`n` with the link address 02:00:00:00:00:`n`.
pub(crate) const fn station(n: u8) -> Station {
    Station { mac: MacAddr([2, 0, 0, 0, 0, n]), addr: IpAddr::V4(v4(n)) }
}

/// 10.0.0.`n`.
pub(crate) const fn v4(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

/// fd00::`n`.
pub(crate) const fn v6(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)
}

/// The link-local address of the station with the link address 02:00:00:00:00:`n`.
pub(crate) const fn link_local(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, n)
}

/// The link address 02:00:00:00:00:`n`.
pub(crate) const fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

/// One net, its port, the other end of the cable, and a clock.
pub(crate) struct Bench {
    pub(crate) net: Net,
    pub(crate) wire: Wire<MemoryPort>,
    pub(crate) far: FarEnd,
    pub(crate) control: MemoryControl,
    pub(crate) stats: CoreStats,
    pub(crate) now: Nanos,
}

impl Bench {
    /// 10.0.0.1/24 and fd00::1/64, in use, with gateways at 10.0.0.254 and fd00::fe.
    pub(crate) fn dual() -> Self {
        Bench::with(MemoryConfig::default(), dual)
    }

    /// 10.0.0.1/24 with a gateway at 10.0.0.254.
    pub(crate) fn new() -> Self {
        Bench::with(MemoryConfig::default(), |_| ())
    }

    pub(crate) fn with(port: MemoryConfig, configure: impl FnOnce(&mut NetConfig)) -> Self {
        // Few frames wait at a time, and a test that makes many ports fills the buffers of each.
        let port = MemoryConfig { rx_frames: 64, tx_frames: 64, ..port };
        let (port, far) = memory::detached(&port);
        let mut cfg = NetConfig::new(OURS.mac, OURS.addr, 24, 1500, [1, 2]);
        cfg.gateway = Some(v4(254));
        configure(&mut cfg);
        let stats = CoreStats::detached();
        let net = Net::new(cfg, port.caps(), stats.clone());
        let control = port.control();
        Bench { net, wire: Wire::new(port), far, control, stats, now: Nanos::from_secs(1) }
    }

    /// Passes a frame to net, with the port's verdict.
    pub(crate) fn receive(&mut self, frame: &[u8]) -> Option<Packet<MemoryFrame>> {
        assert!(self.far.inject(frame), "the frame fits the port");
        self.take_in()
    }

    /// Passes a frame to net with the device's report `rx`.
    pub(crate) fn receive_with(&mut self, frame: &[u8], rx: RxMeta) -> Option<Packet<MemoryFrame>> {
        assert!(self.far.inject_with(frame, rx), "the frame fits the port");
        self.take_in()
    }

    /// Passes a frame to net and returns the result of any kind.
    pub(crate) fn receive_any(&mut self, frame: &[u8], rx: RxMeta) -> Option<Received<MemoryFrame>> {
        assert!(self.far.inject_with(frame, rx), "the frame fits the port");
        let mut burst = Burst::new();
        self.wire.rx_burst(&mut burst);
        let frame = burst.pop().expect("a frame arrived");
        self.net.on_frame(self.now, frame, &mut self.wire)
    }

    fn take_in(&mut self) -> Option<Packet<MemoryFrame>> {
        let mut burst = Burst::new();
        self.wire.rx_burst(&mut burst);
        let frame = burst.pop().expect("a frame arrived");
        match self.net.on_frame(self.now, frame, &mut self.wire)? {
            Received::Packet(segment) => Some(segment),
            Received::IcmpError(_) | Received::ForLeader(_) => None,
        }
    }

    /// Moves the clock and runs the timers that are due.
    pub(crate) fn pass(&mut self, span: Nanos) {
        self.now += span;
        self.net.on_timers(self.now, &mut self.wire);
    }

    /// The frames that net has sent since the last call.
    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            self.wire.flush();
            let mut burst = Burst::new();
            self.far.collect(&mut burst);
            if burst.is_empty() {
                return all;
            }
            all.extend(burst.iter().map(|frame| frame.bytes().to_vec()));
        }
    }

    /// Every counter of this layer that is not zero.
    pub(crate) fn counted(&self) -> Vec<(Counter, u64)> {
        let net = Counter::ALL.iter().filter(|counter| counter.layer() == "net");
        net.map(|&counter| (counter, self.stats.read(counter))).filter(|&(_, n)| n > 0).collect()
    }
}

/// Ethernet header and room for `payload_bytes`.
fn link(from: Station, to: MacAddr, ethertype: EthernetProtocol, payload_bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; 14 + payload_bytes];
    let repr =
        EthernetRepr { src_addr: EthernetAddress(from.mac.0), dst_addr: EthernetAddress(to.0), ethertype };
    repr.emit(&mut EthernetFrame::new_unchecked(&mut frame[..]));
    frame
}

fn ipv4(from: Station, to: Station, next_header: IpProtocol, payload_len: usize) -> Vec<u8> {
    let mut frame = link(from, to.mac, EthernetProtocol::Ipv4, 20 + payload_len);
    let (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) = (from.addr, to.addr) else { panic!("not IPv4") };
    let repr = Ipv4Repr { src_addr, dst_addr, next_header, payload_len, hop_limit: 64 };
    repr.emit(&mut Ipv4Packet::new_unchecked(&mut frame[14..]), &ChecksumCapabilities::default());
    frame
}

/// Adds an IPv6 address that is in use at once, and a gateway.
pub(crate) fn dual(cfg: &mut NetConfig) {
    cfg.addresses.push(Prefix { addr: v6(1).into(), len: 64 });
    cfg.gateway6 = Some(v6(0xfe));
    cfg.duplicate_probes = DuplicateProbes { ipv4: 0, ipv6: 0 };
}

/// An IPv6 packet from `from` to `to` that carries `message` behind its header, in a frame from
/// 02:..:02 to `mac`.
pub(crate) fn ipv6_frame(
    mac: MacAddr,
    (from, to): (Ipv6Addr, Ipv6Addr),
    (next_header, hop_limit): (u8, u8),
    message: &[u8],
) -> Vec<u8> {
    let mut frame = link(PEER, mac, EthernetProtocol::Ipv6, 40 + message.len());
    let repr = Ipv6Repr {
        src_addr: from,
        dst_addr: to,
        next_header: next_header.into(),
        payload_len: message.len(),
        hop_limit,
    };
    repr.emit(&mut Ipv6Packet::new_unchecked(&mut frame[14..]));
    frame[54..].copy_from_slice(message);
    frame
}

/// The same with an ICMPv6 message with a correct checksum.
pub(crate) fn icmpv6_frame(
    mac: MacAddr,
    (from, to): (Ipv6Addr, Ipv6Addr),
    hop_limit: u8,
    message: &[u8],
) -> Vec<u8> {
    let mut message = message.to_vec();
    Icmpv6Packet::new_unchecked(&mut message[..]).fill_checksum(&from, &to);
    ipv6_frame(mac, (from, to), (58, hop_limit), &message)
}

/// An ICMPv6 message: type, code, a word, and the rest.
pub(crate) fn icmpv6(kind: u8, code: u8, word: u32, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(word.to_be_bytes());
    message.extend(rest);
    message
}

/// A TCP segment over IPv6 from fd00::2 port 50000 to fd00::1 port 4420, with a correct checksum.
pub(crate) fn tcp6_frame(payload: &[u8]) -> Vec<u8> {
    let repr = tcp_repr(payload);
    let mut segment = vec![0; repr.buffer_len()];
    let (from, to) = (IpAddress::Ipv6(v6(2)), IpAddress::Ipv6(v6(1)));
    repr.emit(&mut TcpPacket::new_unchecked(&mut segment[..]), &from, &to, &ChecksumCapabilities::default());
    ipv6_frame(OURS.mac, (v6(2), v6(1)), (6, 64), &segment)
}

/// The frame with a VLAN tag: priority in the three highest bits, the VLAN's number in the twelve
/// lowest.
pub(crate) fn with_tag(mut frame: Vec<u8>, control: u16) -> Vec<u8> {
    let [a, b] = control.to_be_bytes();
    frame.splice(12..12, [0x81, 0x00, a, b]);
    frame
}

/// A TCP segment from the peer's port 50000 to our port 4420, with correct checksums.
pub(crate) fn tcp_frame(payload: &[u8]) -> Vec<u8> {
    let repr = tcp_repr(payload);
    let mut frame = ipv4(PEER, OURS, IpProtocol::Tcp, repr.buffer_len());
    let (from, to) = (IpAddress::Ipv4(v4(2)), IpAddress::Ipv4(v4(1)));
    repr.emit(&mut TcpPacket::new_unchecked(&mut frame[34..]), &from, &to, &ChecksumCapabilities::default());
    frame
}

fn tcp_repr(payload: &[u8]) -> TcpRepr<'_> {
    TcpRepr {
        src_port: 50_000,
        dst_port: 4_420,
        control: TcpControl::None,
        seq_number: TcpSeqNumber(1_000),
        ack_number: Some(TcpSeqNumber(2_000)),
        window_len: 4_096,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload,
    }
}

/// An echo request from the peer.
pub(crate) fn echo_frame(data: &[u8]) -> Vec<u8> {
    let repr = Icmpv4Repr::EchoRequest { ident: 0x1234, seq_no: 7, data };
    let mut frame = ipv4(PEER, OURS, IpProtocol::Icmp, repr.buffer_len());
    repr.emit(&mut Icmpv4Packet::new_unchecked(&mut frame[34..]), &ChecksumCapabilities::default());
    frame
}

/// An ICMP message of `kind` and `code` from the gateway, whose last header word is `word`, about
/// `quoted`.
pub(crate) fn icmp_error_frame(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    let mut frame = ipv4(GATEWAY, OURS, IpProtocol::Icmp, 8 + quoted.len());
    frame[34..36].copy_from_slice(&[kind, code]);
    frame[38..42].copy_from_slice(&word.to_be_bytes());
    frame[42..].copy_from_slice(quoted);
    Icmpv4Packet::new_unchecked(&mut frame[34..]).fill_checksum();
    frame
}

/// A packet of 1500 bytes from our port 4420 to the peer's port 50000, as a router quotes it: the
/// header and eight bytes more, sequence number 77.
pub(crate) fn quoted_packet() -> Vec<u8> {
    let mut frame = ipv4(OURS, PEER, IpProtocol::Tcp, 1_480);
    frame[34..42].copy_from_slice(&[0x11, 0x44, 0xc3, 0x50, 0, 0, 0, 77]);
    frame[14..42].to_vec()
}

/// An ARP frame from `from` about `target`: a request to all, or a reply to us.
pub(crate) fn arp_frame(operation: ArpOperation, from: Station, target: Ipv4Addr) -> Vec<u8> {
    let IpAddr::V4(sender) = from.addr else { panic!("not IPv4") };
    let to = if operation == ArpOperation::Request { MacAddr::BROADCAST } else { OURS.mac };
    let mut frame = link(from, to, EthernetProtocol::Arp, 28);
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(from.mac.0),
        source_protocol_addr: sender,
        target_hardware_addr: EthernetAddress(if operation == ArpOperation::Request {
            [0; 6]
        } else {
            OURS.mac.0
        }),
        target_protocol_addr: target,
    };
    repr.emit(&mut ArpPacket::new_unchecked(&mut frame[14..]));
    frame
}

/// Reads an ARP frame: its link destination and its contents.
pub(crate) fn read_arp(frame: &[u8]) -> (MacAddr, ArpRepr) {
    let link = EthernetFrame::new_checked(frame).expect("a frame");
    let repr =
        ArpRepr::parse(&ArpPacket::new_checked(link.payload()).expect("an ARP packet")).expect("sound ARP");
    (MacAddr(link.dst_addr().0), repr)
}

/// The frame with other bytes from `at`, and the IPv4 header checksum corrected.
pub(crate) fn with_ip(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    let header_bytes = usize::from(frame[14] & 0x0f) * 4;
    if header_bytes >= 20 && frame.len() >= 14 + header_bytes {
        Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
    }
    frame
}

/// The frame with IPv4 options inserted, padded to a whole word; lengths and header checksum are
/// corrected.
pub(crate) fn with_options(mut frame: Vec<u8>, options: &[u8]) -> Vec<u8> {
    let mut padded = options.to_vec();
    padded.resize(options.len().next_multiple_of(4), 0);
    let total = u16::from_be_bytes([frame[16], frame[17]]) + padded.len() as u16;
    frame[14] = 0x45 + (padded.len() / 4) as u8;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame.splice(34..34, padded);
    with_ip(frame, 14, &[])
}
