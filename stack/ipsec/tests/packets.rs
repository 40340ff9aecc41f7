//! What passes from one end to the other, and what it looks like on the wire.

use ironwarp_ipsec::{Action, Mode, Outbound, Policy, Prefix, Selector, Suite};
use ironwarp_stats::Counter;

use crate::common::*;

/// RFC 4303 s3.1, RFC 3948 s2.1: transport and tunnel mode, over IPv4 and IPv6, in UDP or not, with
/// every suite, sequence numbers of 32 and 64 bits, and every amount of padding.
#[test]
fn a_packet_arrives_as_it_was_sent() {
    for form in Form::all() {
        let (mut left, mut right) = pair(form);
        for payload_bytes in (0..20).chain([1440]) {
            let sent = segment(form.ends, payload_bytes);
            let sealed = left.seal(&sent);
            assert_eq!(right.open(&sealed), Ok(sent), "{form:?}, {payload_bytes} bytes");
        }
        let reply = segment((form.ends.1, form.ends.0), 8);
        let sealed = right.seal(&reply);
        assert_eq!(left.open(&sealed), Ok(reply), "{form:?}");
    }
}

/// RFC 4303 s2: the protocol is 50, then SPI and sequence number from 1 on. The text is not seen,
/// but by NULL and GMAC.
#[test]
fn the_wire_has_esp_and_no_text() {
    for form in Form::all().filter(|form| !form.in_udp) {
        let (mut left, _) = pair(form);
        let sent = segment(form.ends, 64);
        let (protocol_at, at) = if form.ends.0.is_ipv4() { (9, 20) } else { (6, 40) };
        for number in 1..4 {
            let sealed = left.seal(&sent);
            assert_eq!(sealed[protocol_at], 50);
            assert_eq!(sealed[at..at + 8], [0, 0, 0x10, 0, 0, 0, 0, number], "{form:?}");
            let payload = &sent[at + 20..];
            let is_seen = sealed.windows(payload.len()).any(|window| window == payload);
            assert_eq!(is_seen, matches!(form.suite, Suite::Null(_) | Suite::AesGmac(_)), "{form:?}");
        }
    }
}

/// RFC 4303 s2.4, RFC 4106 s3.2: the trailer ends at the next multiple of 4 bytes, and of the block
/// with CBC.
#[test]
fn the_text_is_padded_to_its_multiple() {
    for form in Form::all() {
        let (mut left, _) = pair(form);
        let headers = if form.ends.0.is_ipv4() { 20 } else { 40 };
        let udp = if form.in_udp { 8 } else { 0 };
        let fixed = headers + udp + 8 + form.suite.iv_bytes() + form.suite.icv_bytes();
        for payload_bytes in 0..20 {
            let sent = segment(form.ends, payload_bytes);
            let text = left.seal(&sent).len() - fixed;
            let least = sent.len() - if form.mode == Mode::Tunnel { 0 } else { headers } + 2;
            assert_eq!(text, least.next_multiple_of(form.suite.text_multiple_bytes()), "{form:?}");
        }
    }
}

/// RFC 3948 s2.1: the checksum of UDP is zero with IPv4; IPv6 has one that is right.
#[test]
fn esp_in_udp_has_the_ports_and_a_checksum_where_it_must() {
    let form = Form { in_udp: true, ..Form::new(GCM, Mode::Transport) };
    let sealed = pair(form).0.seal(&segment(form.ends, 8));
    let length = (sealed.len() - 20) as u16;
    assert_eq!(sealed[9], 17);
    assert_eq!(sealed[20..28], [&[0x11, 0x94, 0x11, 0x94][..], &length.to_be_bytes(), &[0, 0]].concat());
    let form = Form { ends: (LEFT_V6, RIGHT_V6), ..form };
    let sealed = pair(form).0.seal(&segment(form.ends, 8));
    let sum = |bytes| ironwarp_arch::checksum::sum(bytes);
    let total = sum(&sealed[8..40]) + (sealed.len() - 40) as u32 + 17 + sum(&sealed[40..]);
    assert_eq!(ironwarp_arch::checksum::fold(total), 0xffff);
}

/// RFC 4303 s2.6: a dummy packet is sent on request, and dropped by the receiver.
#[test]
fn a_dummy_packet_is_dropped() {
    for form in Form::all() {
        let (mut left, mut right) = pair(form);
        let mut out = [0; 300];
        let Outbound::Sealed(bytes) = left.ipsec.dummy(NOW, 0x1000, form.ends.1, 100, &mut out) else {
            panic!("no dummy packet");
        };
        assert_eq!(right.open(&out[..bytes]), Err(Counter::IpsecRxDummies), "{form:?}");
        assert_eq!(right.open(&out[..bytes]), Err(Counter::IpsecDropReplay), "{form:?}");
    }
}

/// RFC 3948 s2.2, s2.3: keepalives and IKE are told apart from ESP. RFC 4301 s4.4.1: IKE passes by
/// a policy, as all that is in clear.
#[test]
fn keepalives_and_ike_are_told_from_esp() {
    let (_, mut right) = pair(Form { in_udp: true, ..Form::new(GCM, Mode::Transport) });
    let udp = |payload: &[u8]| {
        let header = [0x11, 0x94, 0x11, 0x94, 0, 8 + payload.len() as u8, 0, 0];
        packet((LEFT, RIGHT), 17, &[&header, payload].concat())
    };
    assert_eq!(right.open(&udp(&[0xff])), Err(Counter::IpsecRxKeepalives));
    let mut ike = udp(&[0, 0, 0, 0, 1, 2, 3]);
    assert_eq!(right.open(&ike), Err(Counter::IpsecDropClear), "the policy protects IKE, too");
    let prefixes = Selector::between(Prefix::host(RIGHT), Prefix::host(LEFT));
    let selector = Selector { protocol: Some(17), local_ports: 4500..=4500, ..prefixes };
    right.ipsec.add_policy(0, Policy { selector, action: Action::Bypass }).unwrap();
    assert_eq!(right.ipsec.inbound(NOW, &mut ike), ironwarp_ipsec::Inbound::Ike(32..35));
    assert_eq!(right.stats.read(Counter::IpsecRxIke), 1);
    assert_eq!(right.open(&udp(&[0xff, 0xff])), Err(Counter::IpsecDropMalformed));
    assert_eq!(right.open(&udp(&[0, 0, 0x10, 0, 0, 0, 0, 1])), Err(Counter::IpsecDropIcv));
}

/// RFC 4303 s2.7: bytes behind the inner packet are padding that hides its length.
#[test]
fn padding_for_traffic_flow_confidentiality_is_removed() {
    for ends in [(LEFT, RIGHT), (LEFT_V6, RIGHT_V6)] {
        let form = Form { ends, ..Form::new(GCM, Mode::Tunnel) };
        let (_, mut right) = pair(form);
        let sent = segment(ends, 10);
        let next_header = if ends.0.is_ipv4() { 4 } else { 41 };
        let padded = [&sent[..], &[0xee; 36]].concat();
        let sealed = craft(form, &padded, &[0, next_header]);
        assert_eq!(right.open(&sealed), Ok(sent));
    }
}

/// RFC 4303 s3.3.4: the largest packet that the path takes is known before one is sent.
#[test]
fn the_largest_packet_fills_the_mtu_and_one_more_byte_does_not_fit() {
    for form in Form::all() {
        let (mut left, _) = pair(form);
        for mtu in [1280, 1499, 1500, 9000] {
            let headers = if form.ends.0.is_ipv4() { 40 } else { 60 };
            let max = left.ipsec.packet_bytes_max(NOW, &segment(form.ends, 0), mtu).unwrap();
            let length = |end: &mut End, bytes: usize| end.seal(&segment(form.ends, bytes - headers)).len();
            assert!(length(&mut left, max) <= mtu, "{form:?}, {max} in {mtu}");
            assert!(length(&mut left, max + 1) > mtu, "{form:?}, {max} in {mtu}");
        }
        assert_eq!(left.ipsec.packet_bytes_max(NOW, &segment(form.ends, 0), 30), Some(0));
    }
}

/// RFC 791 s3.1, RFC 8200 s3: a packet that would have more than 65 535 bytes uses no number.
#[test]
fn a_packet_that_is_too_long_once_protected_uses_no_sequence_number() {
    for ends in [(LEFT, RIGHT), (LEFT_V6, RIGHT_V6)] {
        for mode in [Mode::Transport, Mode::Tunnel] {
            let form = Form { ends, ..Form::new(GCM, mode) };
            let (mut left, _) = pair(form);
            let headers = if ends.0.is_ipv4() { 40 } else { 60 };
            let sent = left.ipsec.outbound(NOW, &segment(ends, 65_535 - headers), &mut vec![0; 70_000]);
            assert_eq!(sent, Outbound::Dropped(Counter::IpsecDropTxTooBig), "{form:?}");
            let number = headers - 20 + 7;
            assert_eq!(left.seal(&segment(ends, 0))[number], 1, "{form:?}");
        }
    }
}

#[test]
fn a_buffer_that_is_too_small_sends_nothing() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, _) = pair(form);
    let sent = segment(form.ends, 100);
    let bytes = left.seal(&sent).len();
    for room in 0..bytes {
        let dropped = left.ipsec.outbound(NOW, &sent, &mut vec![0; room]);
        assert_eq!(dropped, Outbound::Dropped(Counter::IpsecDropTxTooBig));
    }
}
