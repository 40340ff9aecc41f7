//! What somebody between the ends can do: nothing is delivered, and the association is unharmed.

use std::collections::BTreeSet;

use ironwarp_ipsec::{Direction, Mode};
use ironwarp_stats::Counter;
use proptest::prelude::*;

use crate::common::*;

/// Tunnel over IPv6 and transport over IPv4, so that both are attacked.
fn forms() -> [Form; 3] {
    let tunnel = Form { ends: (LEFT_V6, RIGHT_V6), ..Form::new(GCM, Mode::Tunnel) };
    [Form::new(GCM, Mode::Transport), tunnel, Form { extended: false, ..Form::new(CBC, Mode::Transport) }]
}

/// RFC 4303 s3.4.4.1: every byte of the ESP packet is authenticated. The outer header is not, and
/// decides at most which association the packet is for.
#[test]
fn an_altered_packet_is_dropped_whichever_byte_it_is() {
    for form in forms() {
        let (mut left, mut right) = pair(form);
        let sent = segment(form.ends, 40);
        let sealed = left.seal(&sent);
        let headers = if form.ends.0.is_ipv4() { 20 } else { 40 };
        for at in headers..sealed.len() {
            for bit in [1, 0x10, 0x80] {
                let mut altered = sealed.clone();
                altered[at] ^= bit;
                let expected =
                    if at < headers + 4 { Counter::IpsecDropNoAssociation } else { Counter::IpsecDropIcv };
                let found = right.open(&altered).unwrap_err();
                // A number of 0 is none, and has no place in the window.
                let is_replay = found == Counter::IpsecDropReplay && at == headers + 7;
                assert!(found == expected || is_replay, "{form:?}, byte {at}: {found:?}");
            }
        }
        assert_eq!(right.open(&sealed), Ok(sent), "the packet itself still passes");
    }
}

#[test]
fn a_truncated_packet_is_dropped() {
    for form in forms() {
        let (mut left, mut right) = pair(form);
        let sent = segment(form.ends, 40);
        let sealed = left.seal(&sent);
        for length in 0..sealed.len() {
            assert!(right.open(&sealed[..length]).is_err(), "{form:?}, cut in the frame");
        }
        // The outer header tells of the shorter length, too.
        let headers = if form.ends.0.is_ipv4() { 20 } else { 40 };
        for length in headers..sealed.len() {
            let cut = packet(form.ends, 50, &sealed[headers..length]);
            let expected =
                if length < headers + 8 { Counter::IpsecDropMalformed } else { Counter::IpsecDropIcv };
            assert_eq!(right.open(&cut), Err(expected), "{form:?}, {length} bytes");
        }
        assert_eq!(right.open(&sealed), Ok(sent));
    }
}

/// RFC 4301 s5.2, step 3a: a packet of no association is dropped, also one of the other direction.
#[test]
fn a_forged_or_reflected_packet_is_dropped() {
    for form in forms() {
        let (mut left, mut right) = pair(form);
        let sealed = left.seal(&segment(form.ends, 40));
        let headers = if form.ends.0.is_ipv4() { 20 } else { 40 };
        let reflected = packet((form.ends.1, form.ends.0), 50, &sealed[headers..]);
        assert_eq!(left.open(&reflected), Err(Counter::IpsecDropNoAssociation));
        // With the SPI of left's own association the keys differ.
        let mut reflected = reflected;
        reflected[headers..headers + 4].copy_from_slice(&0x2000_u32.to_be_bytes());
        assert_eq!(left.open(&reflected), Err(Counter::IpsecDropIcv));
        let elsewhere = packet((form.ends.0, form.ends.0), 50, &sealed[headers..]);
        assert_eq!(right.open(&elsewhere), Err(Counter::IpsecDropNoAssociation));
    }
}

/// Both ends may choose one SPI: it is the receiver's.
#[test]
fn both_ends_may_have_one_spi() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, mut right) = (End::new(), End::new());
    let protect = ironwarp_ipsec::Action::Protect { reqid: REQID };
    left.policy(LEFT, RIGHT, protect);
    right.policy(RIGHT, LEFT, protect);
    let (there, back) = (|| form.association(true, 0x1000, 1), || form.association(false, 0x1000, 2));
    left.ipsec.add(NOW, Direction::Outbound, there()).unwrap();
    right.ipsec.add(NOW, Direction::Inbound, there()).unwrap();
    right.ipsec.add(NOW, Direction::Outbound, back()).unwrap();
    left.ipsec.add(NOW, Direction::Inbound, back()).unwrap();
    let (request, reply) = (segment((LEFT, RIGHT), 4), segment((RIGHT, LEFT), 4));
    let sealed = left.seal(&request);
    assert_eq!(right.open(&sealed), Ok(request));
    assert_eq!(left.open(&packet((RIGHT, LEFT), 50, &sealed[20..])), Err(Counter::IpsecDropIcv), "reflected");
    let sealed = right.seal(&reply);
    assert_eq!(left.open(&sealed), Ok(reply));
}

/// RFC 4303 s3.4.3: nothing moves the window but an authenticated packet.
#[test]
fn forged_numbers_do_not_move_the_window() {
    for form in forms() {
        let (mut left, mut right) = pair(form);
        let headers = if form.ends.0.is_ipv4() { 20 } else { 40 };
        let sent = segment(form.ends, 4);
        let sealed: Vec<_> = (0..3).map(|_| left.seal(&sent)).collect();
        for number in [2_u32, 3, 64, 1000, 1 << 31, u32::MAX] {
            let mut forged = sealed[0].clone();
            forged[headers + 4..headers + 8].copy_from_slice(&number.to_be_bytes());
            assert!(right.open(&forged).is_err(), "{number}");
        }
        for packet in &sealed {
            assert_eq!(right.open(packet), Ok(sent.clone()));
        }
    }
}

/// RFC 4303 s3.4.1: fragments of ESP are dropped before anything else is read.
#[test]
fn fragments_are_dropped() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, mut right) = pair(form);
    let sealed = left.seal(&segment(form.ends, 40));
    for flags in [[0x20, 0], [0, 1], [0x20, 5]] {
        let mut fragment = sealed.clone();
        fragment[6..8].copy_from_slice(&flags);
        complete_checksum(&mut fragment);
        assert_eq!(right.open(&fragment), Err(Counter::IpsecDropFragment));
    }
    let form = Form { ends: (LEFT_V6, RIGHT_V6), ..form };
    let (mut left, mut right) = pair(form);
    let sealed = left.seal(&segment(form.ends, 40));
    let fragment = packet(form.ends, 44, &[&[50, 0, 0, 0, 0, 0, 0, 1][..], &sealed[40..]].concat());
    assert_eq!(right.open(&fragment), Err(Counter::IpsecDropFragment));
}

/// RFC 4301 s7: neither end passes a fragment, in clear or in a tunnel.
#[test]
fn fragments_inside_are_dropped() {
    let form = Form::new(GCM, Mode::Tunnel);
    let (mut left, mut right) = pair(form);
    let mut fragment = segment(form.ends, 4);
    fragment[6] |= 0x20;
    complete_checksum(&mut fragment);
    let sent = left.ipsec.outbound(NOW, &fragment, &mut [0; 300]);
    assert_eq!(sent, ironwarp_ipsec::Outbound::Dropped(Counter::IpsecDropTxMalformed));
    let crafted = craft(form, &fragment, &[1, 2, 2, 4]);
    assert_eq!(right.open(&crafted), Err(Counter::IpsecDropInnerFragment));
}

/// RFC 4303 s2.4, s2.5, s2.6: a peer that authenticates nonsense delivers none of it.
#[test]
fn an_authenticated_packet_with_a_bad_trailer_is_dropped() {
    let transport = Form::new(GCM, Mode::Transport);
    let tunnel = Form::new(GCM, Mode::Tunnel);
    let inner = segment(transport.ends, 4);
    let cases: [(Form, &[u8], &[u8], Counter); 7] = [
        (transport, &[], &[], Counter::IpsecDropPadding),
        (transport, &[], &[0, 0, 3, 6], Counter::IpsecDropPadding),
        (transport, &[0; 4], &[2, 1, 2, 6], Counter::IpsecDropPadding),
        // TCP without ports.
        (transport, &[], &[1, 2, 2, 6], Counter::IpsecDropInner),
        // A tunnel without a packet, with one of another family, and with another protocol.
        (tunnel, &[], &[1, 2, 2, 4], Counter::IpsecDropInner),
        (tunnel, &inner, &[1, 2, 2, 41], Counter::IpsecDropInner),
        (tunnel, &inner, &[1, 2, 2, 6], Counter::IpsecDropInner),
    ];
    for (form, text, trailer, counter) in cases {
        let (_, mut right) = pair(form);
        assert_eq!(right.open(&craft(form, text, trailer)), Err(counter), "{trailer:?}");
        assert_eq!(right.stats.read(counter), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { source_file: Some(file!()), ..ProptestConfig::with_cases(64) })]

    /// RFC 4303 s3.4.3: whatever order packets come in, and however often, each is delivered at
    /// most once, and one that is no further back than the window is.
    #[test]
    fn each_packet_is_delivered_once_in_any_order(
        window in prop::sample::select(vec![32_u32, 64, 128]),
        extended in any::<bool>(),
        order in prop::collection::vec(0_usize..200, 1..400),
    ) {
        let form = Form { window, extended, ..Form::new(GCM, Mode::Transport) };
        let (mut left, mut right) = pair(form);
        let sent = segment(form.ends, 8);
        let sealed: Vec<_> = (0..200).map(|_| left.seal(&sent)).collect();
        let (mut seen, mut top) = (BTreeSet::new(), 0);
        for index in order {
            let is_new = seen.insert(index);
            let is_old = index + window as usize <= top;
            let expected = match (is_old, is_new) {
                (false, true) => Ok(sent.clone()),
                // Below the window an extended number is one of the next 2^32, with another ICV.
                (true, _) if extended => Err(Counter::IpsecDropIcv),
                _ => Err(Counter::IpsecDropReplay),
            };
            prop_assert_eq!(right.open(&sealed[index]), expected, "number {}, top {}", index, top);
            top = top.max(index);
        }
    }

    /// No bytes panic, and none are delivered.
    #[test]
    fn arbitrary_packets_are_dropped(
        v6 in any::<bool>(),
        in_udp in any::<bool>(),
        spi in prop::sample::select(vec![0_u32, 0x1000, 0x2000]),
        number in any::<u32>(),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let ends = if v6 { (LEFT_V6, RIGHT_V6) } else { (LEFT, RIGHT) };
        let (_, mut right) = pair(Form { ends, in_udp, ..Form::new(GCM, Mode::Tunnel) });
        let esp = [&spi.to_be_bytes()[..], &number.to_be_bytes(), &bytes].concat();
        let udp = [&[0x11, 0x94, 0x11, 0x94, 0, 8 + esp.len() as u8, 0, 0][..], &esp].concat();
        let arriving = if in_udp { packet(ends, 17, &udp) } else { packet(ends, 50, &esp) };
        prop_assert!(right.open(&arriving).is_err());
        let inbound = right.ipsec.inbound(NOW, &mut bytes.clone());
        prop_assert!(matches!(inbound, ironwarp_ipsec::Inbound::Dropped(_)), "{:?}", inbound);
        let outbound = right.ipsec.outbound(NOW, &bytes, &mut [0; 256]);
        prop_assert!(matches!(outbound, ironwarp_ipsec::Outbound::Dropped(_)), "{:?}", outbound);
    }
}
