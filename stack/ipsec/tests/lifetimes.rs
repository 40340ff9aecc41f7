//! Limits in packets and bytes, and the change to a new association.

use ironwarp_ipsec::{Direction, Event, Lifetime, Mode, Outbound};
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
    let sealed_bytes = pair(Form::new(GCM, Mode::Transport)).0.seal(&sent).len() as u64;
    assert_eq!(sent.len(), 100);
    let in_packets = Lifetime { soft_packets: 2, hard_packets: 4, ..Lifetime::UNLIMITED };
    let in_bytes = Lifetime { soft_bytes: 101, hard_bytes: 400, ..Lifetime::UNLIMITED };
    for lifetime in [in_packets, in_bytes] {
        let (mut left, _) = pair(Form { lifetime, ..Form::new(GCM, Mode::Transport) });
        let events: Vec<_> = (0..4)
            .map(|_| {
                drop(left.seal(&sent));
                [left.ipsec.next_event(), left.ipsec.next_event()]
            })
            .collect();
        let (soft, hard) = (expired(Direction::Outbound, false), expired(Direction::Outbound, true));
        assert_eq!(events, [[None, None], [soft, None], [None, None], [hard, None]], "{lifetime:?}");
        let dropped = left.ipsec.outbound(NOW, &sent, &mut [0; 300]);
        assert_eq!(dropped, Outbound::Dropped(Counter::IpsecDropTxNoAssociation));
    }
    let lifetime = Lifetime { hard_bytes: 2 * sealed_bytes, ..in_packets };
    let (_, mut right) = pair(Form { lifetime, ..Form::new(GCM, Mode::Transport) });
    let (mut left, _) = pair(Form::new(GCM, Mode::Transport));
    let sealed: Vec<_> = (0..3).map(|_| left.seal(&sent)).collect();
    assert!(right.open(&sealed[0]).is_ok() && right.open(&sealed[1]).is_ok());
    assert_eq!(right.open(&sealed[2]), Err(Counter::IpsecDropNoAssociation));
    let events = [(); 3].map(|()| right.ipsec.next_event());
    assert_eq!(events, [expired(Direction::Inbound, true), expired(Direction::Inbound, false), None]);
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
    assert_eq!(used, [(0x2000, 0, 0, None), (0x1000, 1, 100, Some(Nanos(5)))]);
    let used = right.ipsec.usages().map(|(direction, .., usage)| (direction, usage.packets, usage.added_at));
    assert_eq!(used.collect::<Vec<_>>(), [(Direction::Inbound, 1, NOW), (Direction::Outbound, 0, NOW)]);
    assert_eq!(left.stats.read(Counter::IpsecTxSealed), 1);
    assert_eq!(right.stats.read(Counter::IpsecRxOpened), 1);
}
