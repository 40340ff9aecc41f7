//! Limits in packets and bytes, and the change to a new association.

use ironwarp_ipsec::{AddError, Direction, Event, Lifetime, Mode, Outbound};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::common::*;

fn expired(direction: Direction, is_hard: bool) -> Option<Event> {
    Some(Event::Expired { direction, spi: 0x1000, target: RIGHT, is_hard })
}

/// RFC 4301 s4.4.2.1: the soft limit warns and the hard limit ends, in packets and in bytes, at
/// both ends.
#[test]
fn a_soft_limit_warns_and_a_hard_limit_ends() {
    let sent = segment((LEFT, RIGHT), 60);
    // 80 bytes behind the IP header, 2 of padding and 2 of trailer.
    let plaintext_bytes = 84;
    let in_packets = Lifetime { soft_packets: 2, hard_packets: 4, ..Lifetime::UNLIMITED };
    let in_bytes = Lifetime { soft_bytes: 101, hard_bytes: 4 * plaintext_bytes, ..Lifetime::UNLIMITED };
    for lifetime in [in_packets, in_bytes] {
        let (mut left, _) = pair(Form { lifetime, ..Form::new(GCM, Mode::Transport) });
        let events: Vec<_> = (0..4)
            .map(|_| {
                drop(left.seal(&sent));
                [left.ipsec.next_event(NOW), left.ipsec.next_event(NOW)]
            })
            .collect();
        let (soft, hard) = (expired(Direction::Outbound, false), expired(Direction::Outbound, true));
        assert_eq!(events, [[None, None], [soft, None], [None, None], [hard, None]], "{lifetime:?}");
        let dropped = left.ipsec.outbound(NOW, &sent, &mut [0; 300]);
        assert_eq!(dropped, Outbound::Dropped(Counter::IpsecDropTxNoAssociation));
    }
    let lifetime = Lifetime { soft_bytes: 1, hard_bytes: 2 * plaintext_bytes, ..Lifetime::UNLIMITED };
    let (_, mut right) = pair(Form { lifetime, ..Form::new(GCM, Mode::Transport) });
    let (mut left, _) = pair(Form::new(GCM, Mode::Transport));
    let sealed: Vec<_> = (0..3).map(|_| left.seal(&sent)).collect();
    assert!(right.open(&sealed[0]).is_ok());
    assert_eq!(right.ipsec.next_event(NOW), expired(Direction::Inbound, false));
    assert!(right.open(&sealed[1]).is_ok());
    assert_eq!(right.open(&sealed[2]), Err(Counter::IpsecDropNoAssociation));
    let events = [(); 2].map(|()| right.ipsec.next_event(NOW));
    assert_eq!(events, [expired(Direction::Inbound, true), None]);
}

/// RFC 4301 s4.4.2.1: limits in time, together with the others. The end comes without a packet, and
/// no warning follows it.
#[test]
fn an_association_ends_in_time() {
    let lifetime = Lifetime { soft_time: Nanos(50), hard_time: Nanos(100), ..Lifetime::UNLIMITED };
    let form = Form { lifetime, ..Form::new(GCM, Mode::Transport) };
    let (mut left, mut right) = pair(form);
    let sent = segment(form.ends, 4);
    let sealed = [(); 2].map(|()| left.seal(&sent));
    assert_eq!(left.ipsec.next_event(NOW + Nanos(49)), None);
    let soft = [(); 3].map(|()| left.ipsec.next_event(NOW + Nanos(50)));
    assert_eq!(soft[1..], [expired(Direction::Outbound, false), None]);
    assert_eq!(right.open_at(NOW + Nanos(99), &sealed[0]), Ok(sent.clone()));
    let late = right.open_at(NOW + Nanos(100), &sealed[1]);
    assert_eq!(late, Err(Counter::IpsecDropNoAssociation));
    let dropped = left.ipsec.outbound(NOW + Nanos(100), &sent, &mut [0; 300]);
    assert_eq!(dropped, Outbound::Dropped(Counter::IpsecDropTxNoAssociation));
    let all = std::iter::from_fn(|| right.ipsec.next_event(NOW + Nanos(100)));
    let hard = |event: &Event| matches!(event, Event::Expired { is_hard: true, .. });
    assert_eq!(all.filter(hard).count(), 2, "one of each direction");
}

#[test]
fn limits_that_are_zero_or_out_of_order_are_refused() {
    let unlimited = Lifetime::UNLIMITED;
    let bad = [
        Lifetime { soft_packets: 0, ..unlimited },
        Lifetime { hard_packets: 5, ..unlimited },
        Lifetime { soft_bytes: 6, hard_bytes: 5, ..unlimited },
        Lifetime { soft_time: Nanos(2), hard_time: Nanos(1), ..unlimited },
    ];
    for lifetime in bad {
        let config = Form { lifetime, ..Form::new(GCM, Mode::Transport) }.association(true, 0x1000, 1);
        let added = End::new().ipsec.add(NOW, Direction::Outbound, config);
        assert_eq!(added, Err(AddError::Lifetime), "{lifetime:?}");
    }
}

/// RFC 4301 s4.4.2.1: both ends count the bytes that the cipher takes, and count the same.
#[test]
fn both_ends_count_the_same() {
    for form in Form::all() {
        let (mut left, mut right) = pair(form);
        let sealed = left.seal(&segment(form.ends, 61));
        right.open(&sealed).unwrap();
        let of = |end: &End| end.ipsec.usages().find(|(_, spi, ..)| *spi == 0x1000).unwrap().3;
        let (sent, received) = (of(&left), of(&right));
        assert_eq!((sent.packets, sent.bytes), (received.packets, received.bytes), "{form:?}");
    }
}

/// RFC 4301 s4.5, RFC 7296 s2.8: a new association takes over at once, and packets of the old one
/// still arrive, so nothing is lost.
#[test]
fn a_rekeyed_flow_loses_nothing() {
    let form = Form::new(GCM, Mode::Transport);
    let (mut left, mut right) = pair(form);
    let sent = segment(form.ends, 8);
    let old = left.seal(&sent);
    right.ipsec.add(NOW, Direction::Inbound, form.association(true, 0x1001, 5)).unwrap();
    left.ipsec.add(NOW, Direction::Outbound, form.association(true, 0x1001, 5)).unwrap();
    let new = left.seal(&sent);
    assert_eq!((&old[20..24], &new[20..24]), (&[0, 0, 0x10, 0][..], &[0, 0, 0x10, 1][..]));
    assert_eq!([right.open(&new), right.open(&old)], [Ok(sent.clone()), Ok(sent.clone())]);
    assert!(left.ipsec.remove(Direction::Outbound, 0x1000, RIGHT));
    assert!(right.ipsec.remove(Direction::Inbound, 0x1000, RIGHT));
    assert_eq!(right.open(&old), Err(Counter::IpsecDropNoAssociation));
    let sealed = left.seal(&sent);
    assert_eq!(right.open(&sealed), Ok(sent));
}

#[test]
fn what_an_association_did_is_known() {
    let (mut left, mut right) = pair(Form::new(GCM, Mode::Transport));
    let sent = segment((LEFT, RIGHT), 60);
    let mut out = [0; 300];
    let Outbound::Sealed(bytes) = left.ipsec.outbound(Nanos(5), &sent, &mut out) else { panic!("not sent") };
    right.open(&out[..bytes]).unwrap();
    let used: Vec<_> = left
        .ipsec
        .usages()
        .map(|(_, spi, _, usage)| (spi, usage.packets, usage.bytes, usage.used_at))
        .collect();
    assert_eq!(used, [(0x2000, 0, 0, None), (0x1000, 1, 84, Some(Nanos(5)))]);
    let used = right.ipsec.usages().map(|(direction, .., usage)| (direction, usage.packets, usage.added_at));
    assert_eq!(used.collect::<Vec<_>>(), [(Direction::Inbound, 1, NOW), (Direction::Outbound, 0, NOW)]);
    assert_eq!(left.stats.read(Counter::IpsecTxSealed), 1);
    assert_eq!(right.stats.read(Counter::IpsecRxOpened), 1);
}
