//! Two ends with associations both ways, and packets between them.

// Each program of tests uses a part.
#![allow(dead_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ironwarp_ipsec::{
    Action, AesBits, AssociationConfig, Direction, Endpoints, Hmac, Inbound, Ipsec, IpsecConfig, KeyMaterial,
    KeySource, Lifetime, Mode, Outbound, Policy, Prefix, Selector, Suite, UdpEncapsulation,
};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::Nanos;

pub const LEFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub const LEFT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
pub const RIGHT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
pub const GCM: Suite = Suite::AesGcm(AesBits::Aes128);
pub const CBC: Suite = Suite::AesCbc(AesBits::Aes128, Hmac::Sha256);
pub const NOW: Nanos = Nanos(1_000);
pub const REQID: u32 = 7;

/// How the associations of a pair are.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub suite: Suite,
    pub mode: Mode,
    pub ends: (IpAddr, IpAddr),
    pub in_udp: bool,
    pub extended: bool,
    pub window: u32,
    pub lifetime: Lifetime,
}

impl Form {
    pub fn new(suite: Suite, mode: Mode) -> Self {
        let lifetime = Lifetime::UNLIMITED;
        Form { suite, mode, ends: (LEFT, RIGHT), in_udp: false, extended: true, window: 64, lifetime }
    }

    /// Every suite, mode, family and encapsulation.
    pub fn all() -> impl Iterator<Item = Form> {
        let forms = Suite::ALL
            .into_iter()
            .flat_map(|suite| [Mode::Transport, Mode::Tunnel].map(|mode| Form::new(suite, mode)));
        let forms = forms.flat_map(|form| [false, true].map(|in_udp| Form { in_udp, ..form }));
        let forms = forms.flat_map(|form| [false, true].map(|extended| Form { extended, ..form }));
        forms.flat_map(|form| [(LEFT, RIGHT), (LEFT_V6, RIGHT_V6)].map(|ends| Form { ends, ..form }))
    }

    /// The association from left to right, or back. `key` makes its keys differ.
    pub fn association(&self, to_right: bool, spi: u32, key: u8) -> AssociationConfig {
        let bytes: Vec<u8> = (0..self.suite.key_bytes() as u8).map(|byte| byte ^ key).collect();
        let (source, target) = if to_right { self.ends } else { (self.ends.1, self.ends.0) };
        AssociationConfig {
            spi,
            reqid: REQID,
            endpoints: Endpoints {
                source,
                target,
                encapsulation: self
                    .in_udp
                    .then_some(UdpEncapsulation { source_port: 4500, target_port: 4500 }),
            },
            mode: self.mode,
            selector: all_of(source),
            suite: self.suite,
            key: KeyMaterial::new(self.suite, &bytes).unwrap(),
            key_source: KeySource::Negotiated,
            extended: self.extended,
            lifetime: self.lifetime,
            window: self.window,
        }
    }
}

/// All packets of the family of an address.
pub fn all_of(addr: IpAddr) -> Selector {
    let prefix = Prefix { addr, bits: 0 };
    Selector::between(prefix, prefix)
}

/// One end and what it counted.
pub struct End {
    pub ipsec: Ipsec,
    pub stats: CoreStats,
}

impl End {
    pub fn new() -> Self {
        let stats = CoreStats::detached();
        let config = IpsecConfig { associations_max: 4, policies_max: 4, udp_port: Some(4500) };
        End { ipsec: Ipsec::new(config, stats.clone()), stats }
    }

    pub fn policy(&mut self, local: IpAddr, remote: IpAddr, action: Action) {
        let selector = Selector::between(Prefix::host(local), Prefix::host(remote));
        self.ipsec.add_policy(usize::MAX, Policy { selector, action }).unwrap();
    }

    /// Protects a packet.
    pub fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut out = vec![0xa5; packet.len() + 200];
        match self.ipsec.outbound(NOW, packet, &mut out) {
            Outbound::Sealed(bytes) => out[..bytes].to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// Opens a packet, or returns the counter that it was dropped with.
    pub fn open(&mut self, packet: &[u8]) -> Result<Vec<u8>, Counter> {
        self.open_at(NOW, packet)
    }

    pub fn open_at(&mut self, now: Nanos, packet: &[u8]) -> Result<Vec<u8>, Counter> {
        let mut packet = packet.to_vec();
        match self.ipsec.inbound(now, &mut packet) {
            Inbound::Opened(range) => Ok(packet[range].to_vec()),
            Inbound::Dropped(counter) => Err(counter),
            other => panic!("{other:?}"),
        }
    }
}

/// Two ends that protect everything between them. Left sends with SPI 0x1000, right with 0x2000.
pub fn pair(form: Form) -> (End, End) {
    let (mut left, mut right) = (End::new(), End::new());
    let (a, b) = form.ends;
    left.policy(a, b, Action::Protect { reqid: REQID });
    right.policy(b, a, Action::Protect { reqid: REQID });
    for (to_right, spi, key) in [(true, 0x1000, 0x11), (false, 0x2000, 0x77)] {
        let (sender, receiver) = if to_right { (&mut left, &mut right) } else { (&mut right, &mut left) };
        sender.ipsec.add(NOW, Direction::Outbound, form.association(to_right, spi, key)).unwrap();
        receiver.ipsec.add(NOW, Direction::Inbound, form.association(to_right, spi, key)).unwrap();
    }
    (left, right)
}

/// A TCP segment from port 5000 to 6000 with `payload_bytes`, ECT(0) and "do not fragment". Its
/// checksums of TCP are not filled in.
pub fn segment((source, target): (IpAddr, IpAddr), payload_bytes: usize) -> Vec<u8> {
    let mut tcp = vec![0x13, 0x88, 0x17, 0x70, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    tcp.extend((0..payload_bytes).map(|byte| byte as u8));
    packet((source, target), 6, &tcp)
}

/// An IP packet of `protocol`.
pub fn packet(ends: (IpAddr, IpAddr), protocol: u8, payload: &[u8]) -> Vec<u8> {
    match ends {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let [l0, l1] = (20 + payload.len() as u16).to_be_bytes();
            let fixed = [0x45, 2, l0, l1, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            let mut header = [&fixed[..], &source.octets(), &target.octets()].concat();
            complete_checksum(&mut header);
            [&header, payload].concat()
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let [l0, l1] = (payload.len() as u16).to_be_bytes();
            let fixed = [0x60, 0x20, 0, 0, l0, l1, protocol, 64];
            [&fixed[..], &source.octets(), &target.octets(), payload].concat()
        }
        _ => panic!("two families"),
    }
}

/// Fills in the header checksum of an IPv4 packet; an IPv6 packet has none.
pub fn complete_checksum(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        let header_bytes = usize::from(packet[0] & 0xf) * 4;
        let header = &mut packet[..header_bytes];
        header[10..12].fill(0);
        let sum = !ironwarp_arch::checksum::fold(ironwarp_arch::checksum::sum(header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The ESP packet with number 1 of left, with any text and trailer, whose sum is a multiple.
pub fn craft(form: Form, text: &[u8], trailer: &[u8]) -> Vec<u8> {
    let key = form.association(true, 0x1000, 0x11).key;
    let mut key = ironwarp_crypto::SealingKey::new(form.suite, key, 0x1000, form.extended).unwrap();
    let fixed = 12 + form.suite.iv_bytes() + form.suite.icv_bytes();
    let mut esp = vec![0; fixed + text.len() + trailer.len()];
    key.seal(text, trailer, &mut esp).unwrap();
    packet(form.ends, 50, &esp[4..])
}
