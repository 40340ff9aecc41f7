//! Outer and inner headers.

use ironwarp_ipsec::{Action, AssociationConfig, Direction, Mode};
use ironwarp_stats::Counter;

use crate::common::*;

fn has_right_checksum(header: &[u8]) -> bool {
    ironwarp_arch::checksum::fold(ironwarp_arch::checksum::sum(&header[..20])) == 0xffff
}

/// RFC 4301 s5.1.2.1, RFC 6040 s4.1: class and ECN are those of the inner packet; addresses are the
/// association's. "Do not fragment" is always set, since the identification is 0.
#[test]
fn the_outer_header_of_a_tunnel_follows_the_inner_one() {
    for (dont_fragment, class) in [(0x40, 0xb9), (0, 0), (0x40, 3)] {
        let form = Form::new(GCM, Mode::Tunnel);
        let mut inner = segment(form.ends, 4);
        (inner[1], inner[6]) = (class, dont_fragment);
        complete_checksum(&mut inner);
        let sealed = pair(form).0.seal(&inner);
        assert_eq!(sealed[..2], [0x45, class]);
        assert_eq!(sealed[2..4], (sealed.len() as u16).to_be_bytes());
        assert_eq!([sealed[6], sealed[8], sealed[9]], [0x40, 64, 50]);
        assert_eq!(sealed[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert!(has_right_checksum(&sealed));
    }
}

/// RFC 4301 s5.1.2.2: a tunnel may have another version than its packets.
#[test]
fn a_tunnel_of_one_version_carries_the_other() {
    for (outer, inner) in [((LEFT, RIGHT), (LEFT_V6, RIGHT_V6)), ((LEFT_V6, RIGHT_V6), (LEFT, RIGHT))] {
        let form = Form { ends: outer, ..Form::new(GCM, Mode::Tunnel) };
        let (mut left, mut right) = (End::new(), End::new());
        let config = || AssociationConfig { selector: all_of(inner.0), ..form.association(true, 0x1000, 1) };
        left.policy(inner.0, inner.1, Action::Protect { reqid: REQID });
        left.ipsec.add(NOW, Direction::Outbound, config()).unwrap();
        right.policy(inner.1, inner.0, Action::Protect { reqid: REQID });
        right.ipsec.add(NOW, Direction::Inbound, config()).unwrap();
        let sent = segment(inner, 10);
        let sealed = left.seal(&sent);
        assert_eq!(sealed[0] >> 4, if outer.0.is_ipv4() { 4 } else { 6 });
        assert_eq!(right.open(&sealed), Ok(sent));
    }
}

/// RFC 6040 s4.2: congestion that the outer header saw reaches the inner one. A mark on a packet
/// that is not ECN-capable drops it.
#[test]
fn congestion_in_the_tunnel_reaches_the_inner_packet() {
    // Inner ECN, outer ECN, what is delivered.
    let cases = [
        (0, 0, Some(0)),
        (0, 1, Some(0)),
        (0, 2, Some(0)),
        (0, 3, None),
        (1, 0, Some(1)),
        (1, 2, Some(1)),
        (1, 3, Some(3)),
        (2, 0, Some(2)),
        (2, 1, Some(1)),
        (2, 3, Some(3)),
        (3, 0, Some(3)),
        (3, 3, Some(3)),
    ];
    for (inner_ecn, outer_ecn, delivered) in cases {
        for ends in [(LEFT, RIGHT), (LEFT_V6, RIGHT_V6)] {
            let form = Form { ends, ..Form::new(GCM, Mode::Tunnel) };
            let shift = if ends.0.is_ipv4() { 0 } else { 4 };
            let with_ecn = |packet: &[u8], ecn: u8| {
                let mut packet = packet.to_vec();
                packet[1] = packet[1] & !(3 << shift) | ecn << shift;
                complete_checksum(&mut packet);
                packet
            };
            let (mut left, mut right) = pair(form);
            let sent = with_ecn(&segment(ends, 4), inner_ecn);
            let marked = with_ecn(&left.seal(&sent), outer_ecn);
            let expected = delivered.ok_or(Counter::IpsecDropEcn);
            let ecn = right.open(&marked).map(|packet| packet[1] >> shift & 3);
            assert_eq!(ecn, expected, "inner {inner_ecn}, outer {outer_ecn}");
        }
    }
}

#[test]
fn a_changed_inner_header_has_a_right_checksum() {
    let form = Form::new(GCM, Mode::Tunnel);
    let (mut left, mut right) = pair(form);
    let mut sealed = left.seal(&segment(form.ends, 4));
    sealed[1] |= 3;
    complete_checksum(&mut sealed);
    assert!(has_right_checksum(&right.open(&sealed).unwrap()));
}

/// RFC 1122 s3.2.1.2: a header whose checksum is wrong is dropped, and does not get a right one.
#[test]
fn a_wrong_header_checksum_is_dropped() {
    for mode in [Mode::Transport, Mode::Tunnel] {
        let form = Form::new(GCM, mode);
        let (mut left, mut right) = pair(form);
        let sent = segment(form.ends, 4);
        let sealed = left.seal(&sent);
        let damaged = |packet: &[u8]| [&packet[..8], &[63], &packet[9..]].concat();
        assert_eq!(right.open(&damaged(&sealed)), Err(Counter::IpsecDropMalformed));
        let refused = left.ipsec.outbound(NOW, &damaged(&sent), &mut [0; 300]);
        assert_eq!(refused, ironwarp_ipsec::Outbound::Dropped(Counter::IpsecDropTxMalformed));
        assert_eq!(right.open(&sealed), Ok(sent));
    }
    let form = Form::new(GCM, Mode::Tunnel);
    let mut inner = segment(form.ends, 4);
    inner[8] -= 1;
    assert_eq!(pair(form).1.open(&craft(form, &inner, &[1, 2, 2, 4])), Err(Counter::IpsecDropInner));
}

/// RFC 4303 s3.1.1: transport mode keeps options and extension headers ahead of ESP.
#[test]
fn options_and_extension_headers_stay_ahead_of_esp() {
    let form = Form::new(CBC, Mode::Transport);
    let plain = segment(form.ends, 10);
    let mut sent = [&plain[..20], &[1, 1, 1, 0], &plain[20..]].concat();
    sent[0] = 0x46;
    let total = sent.len() as u16;
    sent[2..4].copy_from_slice(&total.to_be_bytes());
    complete_checksum(&mut sent);
    let (mut left, mut right) = pair(form);
    let sealed = left.seal(&sent);
    assert_eq!((sealed[9], &sealed[20..28]), (50, &[1, 1, 1, 0, 0, 0, 0x10, 0][..]));
    assert_eq!(right.open(&sealed), Ok(sent));

    let form = Form { ends: (LEFT_V6, RIGHT_V6), ..form };
    let tcp = segment(form.ends, 10)[40..].to_vec();
    // Hop-by-hop options of 8 bytes, destination options of 16.
    let options = [&[60, 0, 1, 4, 0, 0, 0, 0, 6, 1, 1, 12][..], &[0; 12]].concat();
    let sent = packet(form.ends, 0, &[options, tcp].concat());
    let (mut left, mut right) = pair(form);
    let sealed = left.seal(&sent);
    assert_eq!([sealed[6], sealed[40], sealed[48]], [0, 60, 50]);
    assert_eq!(sealed[64..68], 0x1000_u32.to_be_bytes());
    assert_eq!(right.open(&sealed), Ok(sent));
}

/// Bytes of the frame behind the IP packet are neither sealed nor opened.
#[test]
fn bytes_behind_the_ip_packet_are_ignored() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, mut right) = pair(form);
    let sent = segment(form.ends, 2);
    let sealed = left.seal(&[&sent[..], &[0; 6]].concat());
    assert_eq!(right.open(&[&sealed[..], &[0; 9]].concat()), Ok(sent));
}

#[test]
fn headers_that_do_not_fit_their_packet_are_refused() {
    let form = Form { ends: (LEFT_V6, RIGHT_V6), ..Form::new(GCM, Mode::Transport) };
    let (mut left, mut right) = pair(form);
    // An extension header that is longer than the packet, one that is cut, and no version.
    for bad in [packet(form.ends, 0, &[6, 9, 0, 0]), packet(form.ends, 43, &[6]), vec![0x70; 60], vec![]] {
        assert_eq!(right.open(&bad), Err(Counter::IpsecDropMalformed));
        let sent = left.ipsec.outbound(NOW, &bad, &mut [0; 300]);
        assert_eq!(sent, ironwarp_ipsec::Outbound::Dropped(Counter::IpsecDropTxMalformed));
    }
}
