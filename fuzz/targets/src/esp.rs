//! Packets of ESP between two ends: delivered in any order, altered, forged, and sealed by a peer
//! that has a key and means ill.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ironwarp_crypto::SealingKey;
use ironwarp_ipsec::{
    Action, AssociationConfig, Direction, Endpoints, Inbound, Ipsec, IpsecConfig, KeyMaterial, KeySource,
    Lifetime, Mode, Outbound, Policy, Prefix, Selector, Suite,
};
use ironwarp_stats::CoreStats;
use ironwarp_types::Nanos;

use crate::Input;

const WINDOW: usize = 64;
const HOSTILE_SPI: u32 = 0x3000;
const SPI: u32 = 0x1000;

/// The ends of the honest association, and the hostile peer of the second one.
struct Ends {
    left: IpAddr,
    right: IpAddr,
    hostile: IpAddr,
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let suite = Suite::ALL[input.below(Suite::ALL.len())];
    let mode = if input.flag() { Mode::Tunnel } else { Mode::Transport };
    let (extended, v6) = (input.flag(), input.flag());
    let ends = Ends::new(v6);
    let headers = if v6 { 40 } else { 20 };
    let (mut left, mut right) = (ends.empty(), ends.empty());
    let association = |source, spi, key| AssociationConfig {
        spi,
        reqid: spi,
        endpoints: Endpoints { source, target: ends.right, encapsulation: None },
        mode,
        selector: Selector::between(Prefix { addr: source, bits: 0 }, Prefix { addr: source, bits: 0 }),
        suite,
        key: material(suite, key),
        key_source: KeySource::Negotiated,
        extended,
        lifetime: Lifetime::UNLIMITED,
        window: WINDOW as u32,
    };
    ends.protect(&mut left, ends.left, ends.right, SPI);
    ends.protect(&mut right, ends.right, ends.left, SPI);
    ends.protect(&mut right, ends.right, ends.hostile, HOSTILE_SPI);
    left.add(Nanos(0), Direction::Outbound, association(ends.left, SPI, 1)).expect("an empty table");
    right.add(Nanos(0), Direction::Inbound, association(ends.left, SPI, 1)).expect("an empty table");
    right.add(Nanos(0), Direction::Inbound, association(ends.hostile, HOSTILE_SPI, 2)).expect("room");
    let mut hostile =
        SealingKey::new(suite, material(suite, 2), HOSTILE_SPI, extended).expect("a key of the right length");

    let (mut sent, mut sealed) = (Vec::new(), Vec::new());
    let (mut delivered, mut top) = (BTreeSet::new(), 0);
    while !input.is_empty() {
        match input.u8() % 6 {
            0 => {
                let segment = [&[19, 136, 23, 112][..], input.short_bytes()].concat();
                let packet = ends.packet(ends.left, 6, &segment);
                let mut out = vec![0; packet.len() + 200];
                let Outbound::Sealed(length) = left.outbound(Nanos(0), &packet, &mut out) else {
                    panic!("a packet was not protected");
                };
                out.truncate(length);
                sent.push(packet);
                sealed.push(out);
            }
            1 if !sealed.is_empty() => {
                let index = input.below(sealed.len());
                let mut packet = sealed[index].clone();
                let opened = right.inbound(Nanos(0), &mut packet);
                if delivered.contains(&index) || index + WINDOW <= top {
                    assert!(matches!(opened, Inbound::Dropped(_)), "a replay passed: {opened:?}");
                } else {
                    let Inbound::Opened(range) = opened else { panic!("not opened: {opened:?}") };
                    assert_eq!(packet[range], sent[index]);
                    delivered.insert(index);
                    top = top.max(index);
                }
            }
            2 if !sealed.is_empty() => {
                let mut packet = sealed[input.below(sealed.len())].clone();
                let at = headers + input.below(packet.len() - headers);
                packet[at] ^= input.u8().max(1);
                refuses(&mut right, packet);
            }
            3 => refuses(&mut right, ends.packet(ends.left, 50, input.short_bytes())),
            4 => {
                let text = input.short_bytes();
                let whole = text.len() / suite.text_multiple_bytes() * suite.text_multiple_bytes();
                let mut esp = vec![0; 12 + suite.iv_bytes() + whole + suite.icv_bytes()];
                hostile.seal(&text[..whole], &[], &mut esp).expect("a whole number of blocks");
                let mut packet = ends.packet(ends.hostile, 50, &esp[4..]);
                if let Inbound::Opened(range) = right.inbound(Nanos(0), &mut packet) {
                    let source = if v6 { 8..24 } else { 12..16 };
                    assert_eq!(packet[range][source.clone()], ends.packet(ends.hostile, 0, &[])[source]);
                }
            }
            _ => {
                let any = input.short_bytes();
                assert!(!matches!(left.outbound(Nanos(0), any, &mut [0; 64]), Outbound::Clear));
                refuses(&mut right, any.to_vec());
            }
        }
    }
}

impl Ends {
    fn new(v6: bool) -> Self {
        let addr = |host: u8| match v6 {
            true => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into())),
            false => IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)),
        };
        Ends { left: addr(1), right: addr(2), hostile: addr(3) }
    }

    fn empty(&self) -> Ipsec {
        let config = IpsecConfig { associations_max: 2, policies_max: 2, udp_port: None };
        Ipsec::new(config, CoreStats::detached())
    }

    fn protect(&self, end: &mut Ipsec, local: IpAddr, remote: IpAddr, reqid: u32) {
        let selector = Selector::between(Prefix::host(local), Prefix::host(remote));
        end.add_policy(0, Policy { selector, action: Action::Protect { reqid } }).expect("room");
    }

    /// An IP packet to the right end.
    fn packet(&self, source: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
        match (source, self.right) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                let [l0, l1] = (20 + payload.len() as u16).to_be_bytes();
                let fixed = [0x45, 0, l0, l1, 0, 0, 0x40, 0, 64, protocol, 0, 0];
                let mut header = [&fixed[..], &source.octets(), &target.octets()].concat();
                let words =
                    header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
                let sum: u32 = words.sum();
                let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                [&header, payload].concat()
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                let [l0, l1] = (payload.len() as u16).to_be_bytes();
                let fixed = [0x60, 0, 0, 0, l0, l1, protocol, 64];
                [&fixed[..], &source.octets(), &target.octets(), payload].concat()
            }
            _ => unreachable!("ends are of one family"),
        }
    }
}

fn refuses(end: &mut Ipsec, mut packet: Vec<u8>) {
    let outcome = end.inbound(Nanos(0), &mut packet);
    assert!(matches!(outcome, Inbound::Dropped(_)), "a forged packet passed: {outcome:?}");
}

fn material(suite: Suite, key: u8) -> KeyMaterial {
    KeyMaterial::new(suite, &vec![key; suite.key_bytes()]).expect("a key of the right length")
}
