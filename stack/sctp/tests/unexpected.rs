//! Set-up chunks for an association that exists (RFC 9260 s5.2), and packets without one (s8.4).

use ironwarp_llp::Events;
use ironwarp_sctp::{SctpConfig, State};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::common::*;

/// RFC 9260 s5.1.5: a cookie that is changed, that is of another flow, or whose tag is not that of
/// the packet, opens nothing and is not answered.
#[test]
fn a_forged_cookie_is_dropped() {
    let mut node = Node::listening(2);
    let (tag, cookie) = Peer::cookie(&mut node, &InitChunk::default());
    for at in 0..cookie.len() {
        let mut forged = cookie.clone();
        forged[at] ^= 1;
        assert_eq!(node.answers(1, &echo(tag, &forged)), [], "{at}");
    }
    assert_eq!(node.answers(1, &echo(tag ^ 1, &cookie)), []);
    assert_eq!(node.answers(3, &echo(tag, &cookie)), [], "another host");
    assert_eq!(node.answers(1, &packet([FROM + 1, PORT], tag, &[chunk(COOKIE_ECHO, 0, &cookie)])), []);
    assert_eq!(node.answers(1, &echo(tag, &[])), []);
    assert_eq!(node.read(Counter::SctpDropBadCookie), cookie.len() as u64 + 4);
    assert_eq!(node.associations(), 0);
    assert_eq!(node.answers(1, &echo(tag, &cookie))[0].kinds(), [COOKIE_ACK]);
}

/// RFC 9260 s5.1.5, step 4: an old cookie is answered with an ERROR, and opens nothing.
#[test]
fn a_stale_cookie_is_reported() {
    let mut node = Node::listening(2);
    let (tag, cookie) = Peer::cookie(&mut node, &InitChunk::default());
    node.pass(Nanos::from_secs(60) + Nanos(1));
    let [answer] = &node.answers(1, &echo(tag, &cookie))[..] else { panic!("one answer") };
    assert_eq!((answer.tag, &answer.chunks[..]), (Peer::OWN_TAG, &[(ERROR, 0, tlv(3, &[0; 4]))][..]));
    assert_eq!((node.associations(), node.read(Counter::SctpDropStaleCookie)), (0, 1));
}

/// RFC 9260 s5.2.4, step 3: the cookie of the association itself is never stale.
#[test]
fn the_age_of_a_cookie_counts_unless_both_tags_match() {
    let mut node = Node::listening(2);
    let (tag, cookie) = Peer::cookie(&mut node, &InitChunk::default());
    node.answers(1, &echo(tag, &cookie));
    let (other_tag, other) = Peer::cookie(&mut node, &InitChunk { tag: 77, ..InitChunk::default() });
    node.pass(Nanos::from_secs(61));
    node.sent();
    assert_eq!(node.answers(1, &echo(tag, &cookie))[0].kinds(), [COOKIE_ACK]);
    let stale = node.answers(1, &echo(other_tag, &other)).remove(0);
    assert_eq!((stale.tag, stale.kinds()), (77, vec![ERROR]));
    assert_eq!(node.take_events().len(), 1);
}

/// RFC 9260 s5.2.6: a stale cookie ends the attempt; at any other time the ERROR means nothing.
#[test]
fn a_stale_cookie_error_counts_in_cookie_echoed_only() {
    let mut a = Node::new(1, SctpConfig::default());
    let id = a.connect(2);
    let tag = word(a.sent()[0].value(), 0);
    let stale = packet([PORT, FROM], tag, &[chunk(ERROR, 0, &tlv(3, &[0; 4]))]);
    a.answers(2, &stale);
    assert_eq!(a.state(id), State::CookieWait);
    let init_ack = InitChunk { parameters: vec![tlv(7, b"cookie")], ..InitChunk::default() };
    a.answers(2, &packet([PORT, FROM], tag, &[init_ack.build(INIT_ACK)]));
    a.answers(2, &stale);
    assert_eq!(a.take_events(), [(id, Events::REFUSED)]);

    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    peer.send(&mut node, &[chunk(ERROR, 0, &tlv(3, &[0; 4]))]);
    assert_eq!(node.state(peer.id), State::Established);
}

/// RFC 9260 s5.2.2 and s5.2.4 (A): an INIT changes nothing; the cookie with the tie-tags restarts.
/// The user sees the end of one association and the start of another.
#[test]
fn a_peer_that_restarts_gets_a_new_association() {
    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    let restart = InitChunk { tag: 77, tsn: 500, ..InitChunk::default() };
    let (tag, cookie) = Peer::cookie(&mut node, &restart);
    assert_ne!(tag, peer.tag, "a new tag");
    assert_eq!((node.state(peer.id), node.take_events()), (State::Established, vec![]));
    let [answer] = &node.answers(1, &echo(tag, &cookie))[..] else { panic!("one answer") };
    assert_eq!((answer.tag, answer.kinds()), (77, vec![COOKIE_ACK]));
    let [(peer_id, Events::RESET), (id, Events::ESTABLISHED)] = node.take_events()[..] else {
        panic!("a restart")
    };
    assert_eq!((peer_id, node.state(id), node.read(Counter::SctpRestarts)), (peer.id, State::Established, 1));
    assert_ne!(id, peer.id);
    node.close(id);
    assert_eq!(node.sent()[0].chunks, [(SHUTDOWN, 0, 499u32.to_be_bytes().to_vec())]);
}

/// RFC 9260 s5.2.4, table 12: a cookie from before the association has no tie-tags, and one of an
/// earlier association has others.
#[test]
fn a_cookie_without_the_tie_tags_of_the_association_is_dropped() {
    let mut node = Node::listening(2);
    let (old_tag, old) = Peer::cookie(&mut node, &InitChunk { tag: 55, ..InitChunk::default() });
    let peer = Peer::set_up(&mut node);
    let (tied_tag, tied) = Peer::cookie(&mut node, &InitChunk { tag: 77, ..InitChunk::default() });
    assert_eq!(node.answers(1, &echo(old_tag, &old)), []);
    let same_peer = InitChunk::default();
    let (late_tag, late) = Peer::cookie(&mut node, &same_peer);
    assert_eq!(node.answers(1, &echo(late_tag, &late)), [], "(C)");
    assert_eq!((node.state(peer.id), node.take_events()), (State::Established, vec![]));
    node.sctp.abort(node.now, peer.id, &mut node.wires);
    node.sent();
    let second = Peer::set_up(&mut node);
    assert_eq!(node.answers(1, &echo(tied_tag, &tied)), []);
    assert_eq!(node.state(second.id), State::Established);
}

/// RFC 9260 s5.2.4 (D): the COOKIE ACK was lost.
#[test]
fn a_repeated_cookie_is_acknowledged_again() {
    let mut node = Node::listening(2);
    let (tag, cookie) = Peer::cookie(&mut node, &InitChunk::default());
    for _ in 0..3 {
        assert_eq!(node.answers(1, &echo(tag, &cookie))[0].kinds(), [COOKIE_ACK]);
    }
    assert_eq!((node.take_events().len(), node.associations()), (1, 1));
}

/// RFC 9260 s5.2.1 and s5.2.4 (B, D): both sides send INIT, in every order of arrival.
#[test]
fn both_sides_may_begin_at_once() {
    for order in 0..16u8 {
        let (mut a, mut b) = (Node::new(1, SctpConfig::default()), Node::new(2, SctpConfig::default()));
        let (at_a, at_b) = (a.connect_from(FROM, addr(2, PORT), 2), b.connect_from(PORT, addr(1, FROM), 1));
        let (mut to_b, mut to_a) = (a.frames(), b.frames());
        for step in 0.. {
            let a_first = order >> (step % 4) & 1 == 0;
            if to_a.is_empty() && to_b.is_empty() {
                break;
            }
            if !to_b.is_empty() && (a_first || to_a.is_empty()) {
                b.receive(&to_b.remove(0));
                to_a.extend(b.frames());
            } else {
                a.receive(&to_a.remove(0));
                to_b.extend(a.frames());
            }
        }
        assert_eq!((a.state(at_a), b.state(at_b)), (State::Established, State::Established), "{order}");
        assert_eq!(a.take_events(), [(at_a, Events::ESTABLISHED)]);
        assert_eq!(b.take_events(), [(at_b, Events::ESTABLISHED)]);
        a.close(at_a);
        assert_eq!(
            exchange(&mut a, &mut b),
            [SHUTDOWN, SHUTDOWN_ACK, SHUTDOWN_COMPLETE],
            "both know the tags"
        );
    }
}

/// RFC 9260 s5.2.1: the INIT ACK to a colliding INIT has the tag of our INIT.
#[test]
fn an_init_in_cookie_wait_is_answered_with_the_tag_of_our_init() {
    let mut a = Node::new(1, SctpConfig::default());
    let id = a.connect(2);
    let own = a.sent().remove(0);
    let init = packet([PORT, FROM], 0, &[InitChunk::default().build(INIT)]);
    let init_ack = a.answers(2, &init).remove(0);
    assert_eq!((init_ack.tag, &init_ack.value()[..4]), (Peer::OWN_TAG, &own.value()[..4]));
    assert_eq!(init_ack.value()[12..16], own.value()[12..16], "and its TSN");
    assert_eq!(a.state(id), State::CookieWait);
}

/// RFC 9260 s5.2.3 and s5.2.5: INIT ACK and COOKIE ACK count in one state each.
#[test]
fn a_repeated_init_ack_or_cookie_ack_changes_nothing() {
    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    let init_ack = InitChunk { tag: 9, parameters: vec![tlv(7, b"cookie")], ..InitChunk::default() };
    assert_eq!(peer.send(&mut node, &[init_ack.build(INIT_ACK)]), []);
    assert_eq!(peer.send(&mut node, &[chunk(COOKIE_ACK, 0, &[])]), []);
    assert_eq!((node.state(peer.id), node.read(Counter::SctpDropUnexpectedChunk)), (State::Established, 2));
}

/// RFC 9260 s8.4: which packets without an association are answered, and how.
#[test]
fn a_packet_out_of_the_blue_is_answered_as_its_chunks_ask() {
    let stale = chunk(ERROR, 0, &tlv(3, &[0; 4]));
    let cases: [(&[Vec<u8>], Option<u8>); 11] = [
        (&[chunk(ABORT, 0, &[])], None),
        (&[chunk(ERROR, 0, &tlv(1, &[0; 4])), chunk(ABORT, 1, &[])], None),
        (&[chunk(SHUTDOWN_ACK, 0, &[])], Some(SHUTDOWN_COMPLETE)),
        (&[chunk(SHUTDOWN_COMPLETE, 0, &[])], None),
        (&[stale], None),
        (&[chunk(COOKIE_ACK, 0, &[])], None),
        (&[chunk(DATA, 3, &[1; 13])], Some(ABORT)),
        (&[chunk(SHUTDOWN, 0, &[0; 4])], Some(ABORT)),
        (&[chunk(HEARTBEAT, 0, &tlv(1, b"nonce"))], Some(ABORT)),
        (&[InitChunk::default().build(INIT_ACK)], Some(ABORT)),
        (&[chunk(ERROR, 0, &tlv(1, &[0; 4]))], Some(ABORT)),
    ];
    let mut node = Node::listening(2);
    for (chunks, kind) in cases {
        let answers = node.answers(1, &packet([FROM, PORT], 4242, chunks));
        let expected =
            kind.map(|kind| Sent { ports: [PORT, FROM], tag: 4242, chunks: vec![(kind, 1, vec![])] });
        assert_eq!(answers, Vec::from_iter(expected), "{chunks:?}");
    }
    assert_eq!(node.read(Counter::SctpDropNoAssociation), 11);
    assert_eq!(node.answers(1, &packet([FROM, PORT], 0, &[chunk(HEARTBEAT, 0, &[])])), [], "tag 0");
}

/// Replies to packets without an association are limited.
#[test]
fn replies_out_of_the_blue_are_limited() {
    let config = SctpConfig { replies_per_second: 10, replies_burst: 5, ..SctpConfig::default() };
    let mut node = Node::new(2, config);
    let heartbeat = packet([FROM, PORT], 1, &[chunk(HEARTBEAT, 0, &[])]);
    let answers = |node: &mut Node| (0..20).map(|_| node.answers(1, &heartbeat).len()).sum::<usize>();
    assert_eq!(answers(&mut node), 5);
    assert_eq!(node.read(Counter::SctpTxRepliesRateLimited), 15);
    node.pass(Nanos::from_millis(200));
    assert_eq!(answers(&mut node), 2);
}
