//! Ethernet frames with packets of IP, and their checksums.
//!
//! Sources: RFC 791 s3.1, RFC 826, RFC 1071, RFC 8200 s3 and s8.1.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The protocol numbers of ICMP, of TCP and of ICMP for IPv6.
pub const ICMP: u8 = 1;
/// See above.
pub const TCP: u8 = 6;
/// See above.
pub const ICMP6: u8 = 58;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const LINK_BYTES: usize = 14;

/// The addresses of a frame: those of its sender, then those of its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Link addresses.
    pub macs: [[u8; 6]; 2],
    /// Network addresses, both of one version.
    pub ips: [IpAddr; 2],
}

impl Route {
    /// From host `from` to host `to`, whose addresses are 02:00:00:00:00:n and 10.0.0.n.
    pub fn v4(from: u8, to: u8) -> Self {
        Route {
            macs: [from, to].map(|host| [2, 0, 0, 0, 0, host]),
            ips: [from, to].map(|host| Ipv4Addr::new(10, 0, 0, host).into()),
        }
    }

    /// The same with the addresses fd00::n.
    pub fn v6(from: u8, to: u8) -> Self {
        let address = |host: u8| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into();
        Route { ips: [from, to].map(address), ..Route::v4(from, to) }
    }

    /// The way back.
    #[must_use]
    pub fn back(self) -> Self {
        let ([a, b], [c, d]) = (self.macs, self.ips);
        Route { macs: [b, a], ips: [d, c] }
    }

    /// The same from another network address.
    #[must_use]
    pub fn from(self, source: impl Into<IpAddr>) -> Self {
        Route { ips: [source.into(), self.ips[1]], ..self }
    }

    /// A frame with this payload.
    pub fn ethernet(self, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        [&self.macs[1][..], &self.macs[0], &ethertype.to_be_bytes(), payload].concat()
    }

    /// A frame with an IP packet that no router may fragment, with correct checksums.
    pub fn packet(self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = match self.ips {
            [IpAddr::V4(from), IpAddr::V4(to)] => {
                let head = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
                self.ethernet(IPV4, &[&head[..], &from.octets(), &to.octets(), payload].concat())
            }
            [IpAddr::V6(from), IpAddr::V6(to)] => {
                let head = [0x60, 0, 0, 0, 0, 0, protocol, 255];
                self.ethernet(IPV6, &[&head[..], &from.octets(), &to.octets(), payload].concat())
            }
            _ => panic!("the addresses are of two versions"),
        };
        repair(&mut frame);
        frame
    }

    /// An ARP request (1) or reply (2) that says that the sender has the link address `mac`.
    pub fn arp(self, operation: u8, mac: [u8; 6]) -> Vec<u8> {
        let [IpAddr::V4(from), IpAddr::V4(to)] = self.ips else { panic!("ARP is for IPv4") };
        let head = [0, 1, 8, 0, 6, 4, 0, operation];
        let ends = [&mac[..], &from.octets(), &self.macs[1], &to.octets()].concat();
        self.ethernet(ARP, &[&head[..], &ends].concat())
    }

    /// The reply to an ARP request for the address of `host`; `None` for any other frame.
    pub fn arp_reply(host: u8, frame: &[u8]) -> Option<Vec<u8>> {
        let (request, ours) = (frame.get(LINK_BYTES..42)?, Route::v4(host, 0));
        let asked = IpAddr::from(*request[24..].first_chunk::<4>()?);
        if frame[12..14] != ARP.to_be_bytes() || request[7] != 1 || asked != ours.ips[0] {
            return None;
        }
        let (mac, ip) = (*request[8..].first_chunk()?, IpAddr::from(*request[14..].first_chunk::<4>()?));
        let route = Route { macs: [ours.macs[0], mac], ips: [ours.ips[0], ip] };
        Some(route.arp(2, ours.macs[0]))
    }
}

/// Makes the lengths and checksums of a frame right where there are any, so that the fields after
/// them are reached.
pub fn repair(frame: &mut [u8]) {
    let Some((link, packet)) = frame.split_at_mut_checked(LINK_BYTES) else { return };
    match u16::from_be_bytes([link[12], link[13]]) {
        IPV4 => repair_v4(packet),
        IPV6 => repair_v6(packet),
        _ => {}
    }
}

fn repair_v4(packet: &mut [u8]) {
    let Some(head) = packet.first().map(|first| usize::from(first & 0xf) * 4) else { return };
    if head < 20 || packet.len() < head {
        return;
    }
    let total = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&total);
    packet[10..12].fill(0);
    let sum = checksum(&[&packet[..head]]).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    let (protocol, addresses) = (packet[9], packet[12..20].to_vec());
    repair_payload(protocol, &addresses, &mut packet[head..]);
}

fn repair_v6(packet: &mut [u8]) {
    if packet.len() < 40 {
        return;
    }
    let payload = (packet.len() as u16 - 40).to_be_bytes();
    packet[4..6].copy_from_slice(&payload);
    let (protocol, addresses) = (packet[6], packet[8..40].to_vec());
    repair_payload(protocol, &addresses, &mut packet[40..]);
}

fn repair_payload(protocol: u8, addresses: &[u8], payload: &mut [u8]) {
    let at = if protocol == TCP { 16 } else { 2 };
    if !matches!(protocol, TCP | ICMP | ICMP6) || payload.len() < at + 2 {
        return;
    }
    payload[at..at + 2].fill(0);
    let sum = match protocol {
        ICMP => checksum(&[payload]),
        _ => checksum(&[&pseudo_header(protocol, addresses, payload.len()), payload]),
    };
    payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// RFC 9293 s3.1, RFC 8200 s8.1. The order and the width of the fields do not change the sum.
pub fn pseudo_header(protocol: u8, addresses: &[u8], bytes: usize) -> Vec<u8> {
    [addresses, &(bytes as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat()
}

/// The ones' complement sum of 16-bit words: 0 over what contains its own right checksum.
pub fn checksum(pieces: &[&[u8]]) -> u16 {
    let bytes = pieces.concat();
    let words = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
