//! Hostile packets that belong to no connection, one for each number.

use std::net::{Ipv4Addr, Ipv6Addr};

use ironwarp_testkit::{ACK, ICMP, ICMP6, Route, SYN, Segment};

use super::Adversary;
use super::honest::PORT;

/// Packet `number` of a kind that needs no stream; `None` for the other kinds. `ports` are those of
/// the adversary's connection, if it has one.
pub fn of_kind(kind: Adversary, route: Route, ports: [u16; 2], number: u32) -> Option<Vec<u8>> {
    // A neighbour of the victim that does not exist.
    let forged = route.from(Ipv4Addr::new(10, 0, 0, 100 + (number % 150) as u8));
    let from_port = [1_024 + (number % 60_000) as u16, PORT];
    let unknown = || Segment::new(from_port, ACK, number, number).frame(forged);
    Some(match kind {
        // A segment of a connection that does not exist, with a wrong checksum.
        Adversary::Garbage => {
            let mut frame = unknown();
            frame.last_mut().into_iter().for_each(|last| *last ^= 0xff);
            frame
        }
        Adversary::ArpRequests => forged.arp(1, route.macs[0]),
        // The sender's address seems to have moved: each gives another link address.
        Adversary::ArpFlaps => route.arp(1, [2, 9, 9, 9, (number >> 8) as u8, number as u8]),
        Adversary::Solicitations => solicitation(route, number),
        Adversary::Echoes => {
            let head = [8, 0, 0, 0, 0, 7, (number >> 8) as u8, number as u8];
            route.packet(ICMP, &[&head[..], &[0x55; 56]].concat())
        }
        Adversary::IcmpErrors => icmp_error(route, ports, number),
        Adversary::Unknown => unknown(),
        Adversary::Syns => Segment::new(from_port, SYN, number.wrapping_mul(0x9e37_79b9), 0).frame(forged),
        _ => return None,
    })
}

/// A neighbour solicitation for the victim's IPv6 address, each from another neighbour (RFC 4861
/// s4.3).
fn solicitation(route: Route, number: u32) -> Vec<u8> {
    let host = |low: u32| Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(low));
    let target = host(route.macs[1][5].into());
    let ips = [host(0x1000 + number).into(), target.into()];
    let head = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets(), &[1, 1], &route.macs[0]].concat();
    Route { ips, ..route }.packet(ICMP6, &head)
}

/// Host unreachable, about a segment that the victim never sent (RFC 5927).
fn icmp_error(route: Route, ports: [u16; 2], number: u32) -> Vec<u8> {
    let quoted =
        Segment::new([ports[1], ports[0]], 0, number.wrapping_mul(0x9e37_79b9), 0).frame(route.back());
    route.packet(ICMP, &[&[3, 1, 0, 0, 0, 0, 0, 0], &quoted[14..]].concat())
}
