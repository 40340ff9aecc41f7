//! Nodes for networks of more than two hosts: a switch, and a host that forges SYNs.

use std::net::Ipv4Addr;

use ironwarp_port::memory::{MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, Port, TxMeta, Wire};
use ironwarp_sim::Node;
use ironwarp_types::{Entropy, Nanos, SeededEntropy};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpProtocol, Ipv4Packet, Ipv4Repr,
    TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};

use super::ironwarp_node::link_address;

/// A switch: it forwards a frame to the port of its destination address, a group's to all others, or drops it.
pub struct UnicastSwitch {
    /// Each port with the number of its host.
    ports: Vec<(u8, MemoryPort)>,
    received: Burst<MemoryFrame>,
    /// Frames with an unknown destination.
    pub unknown: u64,
    /// Frames dropped for lack of a buffer or a ring entry.
    pub lost: u64,
}

impl UnicastSwitch {
    /// Creates a switch with these hosts on its ports.
    pub fn new(ports: Vec<(u8, MemoryPort)>) -> Self {
        UnicastSwitch { ports, received: Burst::new(), unknown: 0, lost: 0 }
    }

    fn forward(&mut self, from: usize, frame: &MemoryFrame) {
        let Some(mac) = frame.bytes().first_chunk::<6>() else { return };
        let (is_group, to) = (mac[0] & 1 == 1, mac[5]);
        let mut found = false;
        for at in 0..self.ports.len() {
            if if is_group { at != from } else { self.ports[at].0 == to } {
                self.copy_to(at, frame);
                found = true;
            }
        }
        self.unknown += u64::from(!found);
    }

    fn copy_to(&mut self, at: usize, frame: &MemoryFrame) {
        let Some((_, port)) = self.ports.get_mut(at) else { return };
        let copy = port.alloc().map(|mut copy| {
            copy.resize(frame.bytes().len());
            copy.bytes_mut().copy_from_slice(frame.bytes());
            copy.seal(TxMeta::default())
        });
        let had_buffer = copy.is_some();
        let mut burst = Burst::from_iter(copy);
        port.tx_burst(&mut burst);
        // Frames that the ring did not accept, and frames without a buffer.
        self.lost += u64::from(!burst.is_empty() || !had_buffer);
    }
}

impl Node for UnicastSwitch {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let mut is_busy = false;
        for at in 0..self.ports.len() {
            if let Some((_, port)) = self.ports.get_mut(at) {
                port.rx_burst(&mut self.received);
            }
            let mut burst = core::mem::take(&mut self.received);
            is_busy |= burst.is_full();
            burst.drain(..).for_each(|frame| self.forward(at, &frame));
            self.received = burst;
        }
        is_busy.then_some(now)
    }
}

/// Sends SYNs from unused addresses and ports, at a steady rate.
pub struct SynFlooder {
    wire: Wire<MemoryPort>,
    rng: SeededEntropy,
    host: u8,
    to: (u8, u16),
    /// Total number of SYNs to send.
    pub total: u64,
    /// SYNs sent so far.
    pub sent: u64,
    /// Time of the first SYN.
    pub start: Nanos,
    /// Interval between two SYNs.
    pub every: Nanos,
    received: Burst<MemoryFrame>,
    /// Frames received in reply.
    pub answers: u64,
}

impl SynFlooder {
    /// A forger at `host` that attacks a port of another host.
    pub fn new(host: u8, port: MemoryPort, to: (u8, u16), total: u64, every: Nanos, seed: u64) -> Self {
        let rng = SeededEntropy::new(seed);
        let (wire, received, start) = (Wire::new(port), Burst::new(), Nanos::ZERO);
        SynFlooder { wire, rng, host, to, total, sent: 0, start, every, received, answers: 0 }
    }

    fn due(&self) -> Nanos {
        self.start + self.every.times(self.sent)
    }

    /// Sends one SYN with common options. Its source is a forged neighbour of the victim whose frames reach this node.
    fn send_syn(&mut self) -> bool {
        let Some(mut frame) = self.wire.alloc() else { return false };
        let chance = self.rng.next_u64();
        let tcp = syn(chance, self.to.1);
        let source = Ipv4Addr::new(10, 0, 0, 100 + (chance % 150) as u8);
        let ip = Ipv4Repr {
            src_addr: source,
            dst_addr: Ipv4Addr::new(10, 0, 0, self.to.0),
            next_header: IpProtocol::Tcp,
            payload_len: tcp.buffer_len(),
            hop_limit: 64,
        };
        let link = EthernetRepr {
            src_addr: EthernetAddress(link_address(self.host).0),
            dst_addr: EthernetAddress(link_address(self.to.0).0),
            ethertype: EthernetProtocol::Ipv4,
        };
        frame.resize(link.buffer_len() + ip.buffer_len() + tcp.buffer_len());
        emit(frame.bytes_mut(), &link, &ip, &tcp);
        self.wire.push(frame.seal(TxMeta::default()))
    }
}

fn emit(frame: &mut [u8], link: &EthernetRepr, ip: &Ipv4Repr, tcp: &TcpRepr<'_>) {
    let checksums = ChecksumCapabilities::default();
    let mut frame = EthernetFrame::new_unchecked(frame);
    link.emit(&mut frame);
    let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
    ip.emit(&mut packet, &checksums);
    let mut segment = TcpPacket::new_unchecked(packet.payload_mut());
    tcp.emit(&mut segment, &ip.src_addr.into(), &ip.dst_addr.into(), &checksums);
}

impl Node for SynFlooder {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        self.wire.rx_burst(&mut self.received);
        let more = self.received.is_full();
        self.answers += self.received.len() as u64;
        self.received.clear();
        while self.sent < self.total && self.due() <= now && self.send_syn() {
            self.sent += 1;
        }
        self.wire.flush();
        let next = (self.sent < self.total).then(|| self.due());
        if more { Some(now) } else { next }
    }
}

/// A SYN with maximum segment size, window scale and SACK-permitted, with a random port and sequence number.
fn syn(chance: u64, to_port: u16) -> TcpRepr<'static> {
    TcpRepr {
        src_port: (chance >> 16) as u16 | 0x400,
        dst_port: to_port,
        control: TcpControl::Syn,
        seq_number: TcpSeqNumber((chance >> 32) as i32),
        ack_number: None,
        window_len: 0xffff,
        window_scale: Some(7),
        max_seg_size: Some(1_460),
        sack_permitted: true,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}
