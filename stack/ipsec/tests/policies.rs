//! What policies protect, pass and drop, and which associations are refused.

use std::net::IpAddr;

use ironwarp_ipsec::{
    Action, AddError, AesBits, AssociationConfig, Direction, Endpoints, Event, Hmac, Inbound, KeyMaterial,
    KeySource, Mode, Outbound, Policy, Prefix, Selector, Suite, UdpEncapsulation,
};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::common::*;

fn tcp_between(
    local_ports: std::ops::RangeInclusive<u16>,
    remote_ports: std::ops::RangeInclusive<u16>,
) -> Selector {
    let prefixes = Selector::between(Prefix::host(LEFT), Prefix::host(RIGHT));
    Selector { protocol: Some(6), local_ports, remote_ports, ..prefixes }
}

/// RFC 4301 s4.4.1: the first policy that matches decides, and without one the packet is dropped.
#[test]
fn the_first_policy_that_matches_decides() {
    let mut left = End::new();
    let sent = segment((LEFT, RIGHT), 4);
    let outbound = |left: &mut End| left.ipsec.outbound(NOW, &sent, &mut [0; 200]);
    assert_eq!(outbound(&mut left), Outbound::Dropped(Counter::IpsecDropTxPolicy));
    left.policy(LEFT, RIGHT, Action::Bypass);
    assert_eq!(outbound(&mut left), Outbound::Clear);
    let discard = Policy { selector: tcp_between(5000..=5000, 6000..=6000), action: Action::Discard };
    left.ipsec.add_policy(0, discard.clone()).unwrap();
    assert_eq!(outbound(&mut left), Outbound::Dropped(Counter::IpsecDropTxPolicy));
    assert!(left.ipsec.remove_policy(&discard));
    assert!(!left.ipsec.remove_policy(&discard));
    assert_eq!(outbound(&mut left), Outbound::Clear);
}

/// RFC 4301 s4.4.1.1: addresses by prefix, protocol and ports select a packet, in both directions.
#[test]
fn every_part_of_a_selector_counts() {
    let base = tcp_between(5000..=5000, 6000..=6000);
    let wide = Prefix { addr: "10.0.0.77".parse().unwrap(), bits: 24 };
    let other = Prefix { addr: "10.0.1.0".parse().unwrap(), bits: 24 };
    let cases = [
        (base.clone(), true),
        (Selector { protocol: None, ..base.clone() }, true),
        (Selector { protocol: Some(132), ..base.clone() }, false),
        (Selector { local_ports: 5001..=5001, ..base.clone() }, false),
        (Selector { remote_ports: 0..=5999, ..base.clone() }, false),
        (Selector { local: wide, remote: wide, ..base.clone() }, true),
        (Selector { local: other, ..base.clone() }, false),
        (Selector { remote: other, ..base.clone() }, false),
        (Selector::between(Prefix::host(LEFT_V6), Prefix::host(RIGHT_V6)), false),
        (Selector::between(Prefix { bits: 0, ..wide }, Prefix { bits: 0, ..wide }), true),
    ];
    for (selector, matches) in cases {
        let mut left = End::new();
        left.ipsec.add_policy(0, Policy { selector: selector.clone(), action: Action::Bypass }).unwrap();
        let sent = left.ipsec.outbound(NOW, &segment((LEFT, RIGHT), 4), &mut []);
        assert_eq!(sent == Outbound::Clear, matches, "{selector:?}");
        let mut reply = packet((RIGHT, LEFT), 6, &[0x17, 0x70, 0x13, 0x88]);
        let received = left.ipsec.inbound(NOW, &mut reply);
        assert_eq!(received == Inbound::Clear, matches, "{selector:?}");
    }
}

/// RFC 4301 s5.2, step 3b: a flow that is to be protected accepts nothing in clear.
#[test]
fn a_packet_in_clear_inside_a_protected_flow_is_dropped() {
    for form in Form::all() {
        let (mut left, mut right) = pair(form);
        let clear = segment(form.ends, 32);
        assert_eq!(right.open(&clear), Err(Counter::IpsecDropClear), "{form:?}");
        let sealed = left.seal(&clear);
        assert_eq!(right.open(&sealed), Ok(clear), "{form:?}: the flow is unharmed");
    }
}

/// RFC 4301 s5.2, steps 4 and 5: an association brings only what its policies select.
#[test]
fn an_association_brings_only_what_its_policies_select() {
    for mode in [Mode::Transport, Mode::Tunnel] {
        let form = Form::new(GCM, mode);
        let (mut left, mut right) = pair(form);
        // The peer protects what we pass in clear, discard, or protect by another association.
        for action in [Action::Bypass, Action::Discard, Action::Protect { reqid: REQID + 1 }] {
            let mut selector = tcp_between(6000..=6000, 5000..=5000);
            (selector.local, selector.remote) = (Prefix::host(RIGHT), Prefix::host(LEFT));
            let policy = Policy { selector, action };
            right.ipsec.add_policy(0, policy.clone()).unwrap();
            let sealed = left.seal(&segment(form.ends, 4));
            assert_eq!(right.open(&sealed), Err(Counter::IpsecDropPolicy), "{action:?}");
            assert!(right.ipsec.remove_policy(&policy));
        }
        let sealed = left.seal(&segment(form.ends, 4));
        assert!(right.open(&sealed).is_ok());
    }
}

/// RFC 4301 s5.2: the packet inside a tunnel is checked, not the tunnel.
#[test]
fn a_tunnel_does_not_bring_packets_of_others() {
    let form = Form::new(GCM, Mode::Tunnel);
    let (mut left, mut right) = pair(form);
    let another = "10.9.9.9".parse().unwrap();
    left.policy(another, RIGHT, Action::Protect { reqid: REQID });
    let sealed = left.seal(&segment((another, RIGHT), 4));
    assert_eq!(right.open(&sealed), Err(Counter::IpsecDropPolicy));
}

/// RFC 4301 s4.4.1, s5.1: without an association nothing is sent, and the key exchange is asked
/// once.
#[test]
fn a_policy_without_an_association_asks_for_one() {
    let mut left = End::new();
    left.policy(LEFT, RIGHT, Action::Protect { reqid: REQID });
    let form = Form::new(GCM, Mode::Transport);
    for _ in 0..3 {
        let dropped = left.ipsec.outbound(NOW, &segment(form.ends, 4), &mut [0; 200]);
        assert_eq!(dropped, Outbound::Dropped(Counter::IpsecDropTxNoAssociation));
    }
    let acquire = Event::Acquire { reqid: REQID, local: LEFT, remote: RIGHT };
    assert_eq!([left.ipsec.next_event(NOW), left.ipsec.next_event(NOW)], [Some(acquire), None]);
    left.ipsec.add(NOW, Direction::Outbound, form.association(true, 0x1000, 1)).unwrap();
    drop(left.seal(&segment(form.ends, 4)));
    assert_eq!(left.ipsec.next_event(NOW), None);
    assert!(left.ipsec.remove(Direction::Outbound, 0x1000, RIGHT));
    let dropped = left.ipsec.outbound(NOW, &segment(form.ends, 4), &mut [0; 200]);
    assert_eq!(dropped, Outbound::Dropped(Counter::IpsecDropTxNoAssociation));
    assert_eq!(left.ipsec.next_event(NOW), Some(acquire), "it is asked again for the next one");
}

/// A key exchange that failed is asked for again, and its flow does not keep the place of others.
#[test]
fn an_acquire_is_raised_again_after_30_s() {
    let mut left = End::new();
    let policy = |remote, action| {
        let selector = Selector::between(Prefix::host(LEFT), Prefix { addr: remote, bits: 24 });
        Policy { selector, action }
    };
    let protect = policy(RIGHT, Action::Protect { reqid: REQID });
    left.ipsec.add_policy(0, protect.clone()).unwrap();
    let peer = |host: u8| IpAddr::from([10, 0, 0, host]);
    let send = |left: &mut End, now: u64, host| {
        let sent = left.ipsec.outbound(Nanos(now), &segment((LEFT, peer(host)), 4), &mut [0; 200]);
        assert_eq!(sent, Outbound::Dropped(Counter::IpsecDropTxNoAssociation));
        left.ipsec.next_event(Nanos(now))
    };
    let acquire = |host| Some(Event::Acquire { reqid: REQID, local: LEFT, remote: peer(host) });
    const AGAIN: u64 = 30_000_000_000;
    // The table has four places.
    for host in 2..6 {
        assert_eq!(send(&mut left, 0, host), acquire(host), "each peer has its own");
    }
    assert_eq!(send(&mut left, AGAIN - 1, 2), None);
    assert_eq!(send(&mut left, AGAIN - 1, 6), None, "no place");
    assert_eq!(send(&mut left, AGAIN, 2), acquire(2));
    assert_eq!(send(&mut left, AGAIN, 6), acquire(6), "in the place of an old one");
    assert!(left.ipsec.remove_policy(&protect));
    left.ipsec.add_policy(0, protect).unwrap();
    assert_eq!(send(&mut left, AGAIN, 6), acquire(6), "the policy was removed meanwhile");
}

/// RFC 4301 s4.4.2, s5.2: transport associations of one policy belong to their addresses. One peer
/// neither gets nor sends another's packets.
#[test]
fn transport_associations_of_one_policy_belong_to_their_addresses() {
    let other = IpAddr::from([10, 0, 0, 3]);
    let (to_right, to_other) = (Form::new(GCM, Mode::Transport), Form::new(GCM, Mode::Transport));
    let to_other = Form { ends: (LEFT, other), ..to_other };
    let mut left = End::new();
    let remote = Prefix { addr: RIGHT, bits: 24 };
    let selector = Selector::between(Prefix::host(LEFT), remote);
    left.ipsec.add_policy(0, Policy { selector, action: Action::Protect { reqid: REQID } }).unwrap();
    left.ipsec.add(NOW, Direction::Outbound, to_right.association(true, 0x1000, 1)).unwrap();
    left.ipsec.add(NOW, Direction::Outbound, to_other.association(true, 0x1001, 2)).unwrap();
    left.ipsec.add(NOW, Direction::Inbound, to_other.association(false, 0x2001, 3)).unwrap();
    assert_eq!(left.seal(&segment((LEFT, RIGHT), 4))[20..24], 0x1000_u32.to_be_bytes());
    assert_eq!(left.seal(&segment((LEFT, other), 4))[20..24], 0x1001_u32.to_be_bytes());
    let dropped = left.ipsec.outbound(NOW, &segment((LEFT, IpAddr::from([10, 0, 0, 4])), 4), &mut [0; 200]);
    assert_eq!(dropped, Outbound::Dropped(Counter::IpsecDropTxNoAssociation));

    let mut peer = End::new();
    peer.policy(other, LEFT, Action::Protect { reqid: REQID });
    peer.ipsec.add(NOW, Direction::Outbound, to_other.association(false, 0x2001, 3)).unwrap();
    let reply = segment((other, LEFT), 4);
    let sealed = peer.seal(&reply);
    let forged = packet((RIGHT, LEFT), 50, &sealed[20..]);
    assert_eq!(left.open(&forged), Err(Counter::IpsecDropPolicy), "the peer says that it is another");
    let sealed = peer.seal(&reply);
    assert_eq!(left.open(&sealed), Ok(reply));
}

/// RFC 4301 s4.4.2, s5.2: tunnels of one policy belong to their selectors, both ways.
#[test]
fn a_tunnel_passes_what_its_selector_has() {
    let form = Form::new(GCM, Mode::Tunnel);
    let (mut left, mut right) = (End::new(), End::new());
    let sent = segment(form.ends, 4);
    left.policy(LEFT, RIGHT, Action::Protect { reqid: REQID });
    right.policy(RIGHT, LEFT, Action::Protect { reqid: REQID });
    let add = |end: &mut End, direction, spi, selector| {
        let config = AssociationConfig { selector, ..form.association(true, spi, spi as u8) };
        end.ipsec.add(NOW, direction, config).unwrap();
    };
    add(&mut left, Direction::Outbound, 0x1000, tcp_between(5000..=5000, 6000..=6000));
    add(&mut left, Direction::Outbound, 0x1001, tcp_between(5001..=5001, 6000..=6000));
    let sealed = left.seal(&sent);
    assert_eq!(sealed[20..24], 0x1000_u32.to_be_bytes(), "not the newest");
    let mirrored = |port| {
        let ports = tcp_between(6000..=6000, port..=port);
        Selector { local: ports.remote, remote: ports.local, ..ports }
    };
    add(&mut right, Direction::Inbound, 0x1000, mirrored(5000));
    assert_eq!(right.open(&sealed), Ok(sent.clone()));
    // The same packet by an association of another port.
    let mut right = End::new();
    right.policy(RIGHT, LEFT, Action::Protect { reqid: REQID });
    add(&mut right, Direction::Inbound, 0x1000, mirrored(5001));
    assert_eq!(right.open(&sealed), Err(Counter::IpsecDropPolicy));
}

/// RFC 4106 s10: a negotiated key does not come back, since its numbers would start again.
#[test]
fn a_removed_key_is_refused() {
    let form = Form::new(GCM, Mode::Transport);
    let mut left = End::new();
    let add =
        |left: &mut End, direction, key| left.ipsec.add(NOW, direction, form.association(true, 0x1000, key));
    for direction in [Direction::Inbound, Direction::Outbound] {
        let key = direction as u8;
        add(&mut left, direction, key).unwrap();
        assert!(left.ipsec.remove(direction, 0x1000, RIGHT));
        assert!(!left.ipsec.remove(direction, 0x1000, RIGHT));
        assert_eq!(add(&mut left, direction, key), Err(AddError::KeyRepeated));
        add(&mut left, direction, 0x80 | key).unwrap();
    }
}

/// RFC 7296 s2.23: addresses and ports change; key, sequence numbers and window do not.
#[test]
fn an_association_moves_to_other_endpoints() {
    let form = Form { in_udp: true, ..Form::new(GCM, Mode::Tunnel) };
    let (mut left, mut right) = pair(form);
    let sent = segment(form.ends, 4);
    let old = left.seal(&sent);
    right.open(&old).unwrap();
    let moved = Endpoints {
        source: IpAddr::from([10, 0, 0, 9]),
        target: RIGHT,
        encapsulation: Some(UdpEncapsulation { source_port: 4500, target_port: 777 }),
    };
    assert_eq!(left.ipsec.set_endpoints(Direction::Outbound, 0x1000, RIGHT, moved), Ok(()));
    assert_eq!(right.ipsec.set_endpoints(Direction::Inbound, 0x1000, RIGHT, moved), Ok(()));
    let new = left.seal(&sent);
    assert_eq!((&new[12..16], &new[22..24]), (&[10, 0, 0, 9][..], &777_u16.to_be_bytes()[..]));
    assert_eq!(new[35], 2, "the next number");
    assert_eq!(right.open(&old), Err(Counter::IpsecDropReplay));
    let mut set = |spi, endpoints| left.ipsec.set_endpoints(Direction::Outbound, spi, RIGHT, endpoints);
    assert_eq!(set(0x1001, moved), Err(AddError::NotFound));
    assert_eq!(set(0x1000, Endpoints { source: LEFT_V6, ..moved }), Err(AddError::Addresses));
}

/// RFC 4106 s2: static keys would repeat nonces after a restart.
#[test]
fn static_keys_have_cbc_with_hmac_sha_256_only() {
    for suite in Suite::ALL {
        let mut config = Form::new(suite, Mode::Transport).association(true, 0x1000, 1);
        config.key_source = KeySource::Static;
        let added = End::new().ipsec.add(NOW, Direction::Outbound, config);
        let expected = match suite {
            Suite::AesCbc(_, Hmac::Sha256) => Ok(()),
            _ => Err(AddError::StaticKey),
        };
        assert_eq!(added, expected, "{suite:?}");
    }
}

/// RFC 4106 s10, RFC 4303 s2.1: what would break the protection, or never match, is refused.
#[test]
fn bad_associations_and_policies_are_refused() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, _) = pair(form);
    let mut refused = |change: &dyn Fn(&mut ironwarp_ipsec::AssociationConfig)| {
        let mut config = form.association(true, 0x3000, 3);
        change(&mut config);
        left.ipsec.add(NOW, Direction::Outbound, config).unwrap_err()
    };
    assert_eq!(refused(&|config| config.spi = 255), AddError::ReservedSpi);
    assert_eq!(refused(&|config| config.spi = 0x1000), AddError::Duplicate);
    assert_eq!(refused(&|config| config.endpoints.source = LEFT_V6), AddError::Addresses);
    assert_eq!(refused(&|config| config.mode = Mode::Tunnel), AddError::Mode);
    assert_eq!(refused(&|config| config.selector.local = Prefix::host(RIGHT)), AddError::Selector);
    assert_eq!(refused(&|config| config.window = 31), AddError::Window);
    assert_eq!(refused(&|config| config.window = 4097), AddError::Window);
    for key in [0x11, 0x77] {
        let repeated = form.association(true, 0x3000, key).key;
        let repeated = std::cell::RefCell::new(Some(repeated));
        let error = refused(&|config| config.key = repeated.take().unwrap());
        assert_eq!(error, AddError::KeyRepeated, "the key of either direction");
    }
    let other = Suite::AesGcm(AesBits::Aes256);
    let error = refused(&|config| config.key = KeyMaterial::new(other, &[9; 36]).unwrap());
    assert!(matches!(error, AddError::Key(_)));
    let policy = |selector| left.ipsec.add_policy(0, Policy { selector, action: Action::Discard });
    let host = Prefix::host(LEFT);
    let selectors = [
        Selector::between(Prefix { bits: 33, ..host }, host),
        Selector::between(host, Prefix::host(RIGHT_V6)),
        #[allow(clippy::reversed_empty_ranges)]
        tcp_between(2..=1, 0..=1),
        // ICMP has no ports.
        Selector { protocol: Some(1), ..tcp_between(2..=2, 0..=u16::MAX) },
    ];
    let errors = selectors.map({
        let mut policy = policy;
        move |selector| policy(selector)
    });
    assert_eq!(errors, [Err(AddError::Selector); 4]);
}

#[test]
fn the_tables_are_bounded() {
    let form = Form::new(GCM, Mode::Transport);
    let mut left = End::new();
    for (number, direction) in [Direction::Inbound, Direction::Outbound].into_iter().enumerate() {
        for entry in 0..6 {
            let config = form.association(true, 0x1000 + entry, (16 * number as u32 + entry) as u8);
            let expected = if entry < 4 { Ok(()) } else { Err(AddError::Full) };
            assert_eq!(left.ipsec.add(NOW, direction, config), expected);
        }
    }
    let policy = Policy { selector: tcp_between(1..=1, 1..=1), action: Action::Bypass };
    let added = [(); 5].map(|()| left.ipsec.add_policy(0, policy.clone()));
    assert_eq!(added, [Ok(()), Ok(()), Ok(()), Ok(()), Err(AddError::Full)]);
}
