//! Ethernet frames with TCP segments of any content, built and parsed with smoltcp's wire formats.
//!
//! Nothing here uses an encoder of the stack, so a segment may contradict every rule that TCP keeps.

use std::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpProtocol, Ipv4Packet, Ipv4Repr,
    TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};

use crate::tcp::link_address;

/// The way of a frame: the numbers of the hosts that it leaves from and goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The last octet of the sender's addresses.
    pub from: u8,
    /// The last octet of the receiver's addresses.
    pub to: u8,
}

impl Way {
    /// The way back.
    #[must_use]
    pub fn back(self) -> Self {
        Way { from: self.to, to: self.from }
    }

    /// The address of a host.
    pub fn address(host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, host)
    }

    /// A frame with this payload.
    pub fn frame(self, ethertype: EthernetProtocol, payload: &[u8]) -> Vec<u8> {
        let link = EthernetRepr {
            src_addr: EthernetAddress(link_address(self.from).0),
            dst_addr: EthernetAddress(link_address(self.to).0),
            ethertype,
        };
        let mut bytes = vec![0; link.buffer_len()];
        link.emit(&mut EthernetFrame::new_unchecked(&mut bytes));
        bytes.extend_from_slice(payload);
        bytes
    }

    /// A frame with an IPv4 packet from `source`, which need not be the sender's address.
    pub fn packet(self, source: Ipv4Addr, next_header: IpProtocol, payload: &[u8]) -> Vec<u8> {
        let ip = Ipv4Repr {
            src_addr: source,
            dst_addr: Way::address(self.to),
            next_header,
            payload_len: payload.len(),
            hop_limit: 64,
        };
        let mut bytes = vec![0; ip.buffer_len()];
        ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes), &ChecksumCapabilities::default());
        bytes.extend_from_slice(payload);
        self.frame(EthernetProtocol::Ipv4, &bytes)
    }

    /// A frame with a TCP segment from the sender's address.
    pub fn segment(self, tcp: &TcpRepr<'_>) -> Vec<u8> {
        self.segment_from(Way::address(self.from), tcp)
    }

    /// A frame with a TCP segment from `source`.
    pub fn segment_from(self, source: Ipv4Addr, tcp: &TcpRepr<'_>) -> Vec<u8> {
        let mut bytes = vec![0; tcp.buffer_len()];
        let (from, to) = (source.into(), Way::address(self.to).into());
        tcp.emit(&mut TcpPacket::new_unchecked(&mut bytes), &from, &to, &ChecksumCapabilities::default());
        self.packet(source, IpProtocol::Tcp, &bytes)
    }
}

/// A segment without flags and options.
pub fn plain(ports: [u16; 2], seq: u32, ack: Option<u32>) -> TcpRepr<'static> {
    TcpRepr {
        src_port: ports[0],
        dst_port: ports[1],
        control: TcpControl::None,
        seq_number: TcpSeqNumber(seq as i32),
        ack_number: ack.map(|ack| TcpSeqNumber(ack as i32)),
        window_len: 0xffff,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}

/// A SYN that offers what a usual one does, except timestamps.
pub fn syn(ports: [u16; 2], seq: u32) -> TcpRepr<'static> {
    TcpRepr {
        control: TcpControl::Syn,
        window_scale: Some(WINDOW_SCALE),
        max_seg_size: Some(1_460),
        sack_permitted: true,
        ..plain(ports, seq, None)
    }
}

/// The scale of the windows after a SYN of [`syn`].
pub const WINDOW_SCALE: u8 = 7;

/// A received segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The sender's port and ours.
    pub ports: [u16; 2],
    /// Its sequence number.
    pub seq: u32,
    /// Its acknowledgement.
    pub ack: u32,
    /// Whether it has SYN, FIN and RST.
    pub syn: bool,
    /// See above.
    pub fin: bool,
    /// See above.
    pub rst: bool,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Arrived {
    /// Parses a frame with a TCP segment over IPv4; `None` for any other.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let frame = EthernetFrame::new_checked(frame).ok()?;
        let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
        if frame.ethertype() != EthernetProtocol::Ipv4 || packet.next_header() != IpProtocol::Tcp {
            return None;
        }
        let tcp = TcpPacket::new_checked(packet.payload()).ok()?;
        Some(Arrived {
            ports: [tcp.src_port(), tcp.dst_port()],
            seq: tcp.seq_number().0 as u32,
            ack: tcp.ack_number().0 as u32,
            syn: tcp.syn(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            payload: tcp.payload().to_vec(),
        })
    }
}
