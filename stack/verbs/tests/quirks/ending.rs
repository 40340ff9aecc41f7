//! Quirks at the end of a connection: Terminates in another octet order, no Terminate, resets, no
//! half close.

use ironwarp::{
    CompletionStatus, DisconnectReason, Event, QueuePair, Region, RemoteMemory, STag, SendWr, Terminate,
};

use ironwarp_tcp::TcpEvents;

use crate::common::contents;
use crate::common::messages::{REQUEST, TAKES_WRITES, fpdu, place, reply, request, send, tagged, terminate};
use crate::common::peer::Scene;

/// Q1: siw swaps the nibbles and the header bits of a Terminate. The stack understands both orders.
#[test]
fn q1_a_terminate_in_siws_byte_order_is_understood() {
    for octets in [[0x21, 0x02, 0x03, 0], [0x12, 0x02, 0xc0, 0]] {
        let mut scene = Scene::new(|_| {});
        scene.calls(REQUEST.len());
        let mut ulpdu = vec![0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        ulpdu.extend(octets);
        scene.peer.say(&[reply(0x50, 2, &TAKES_WRITES), fpdu(&ulpdu)].concat());
        assert_eq!(scene.terminated(), (false, Terminate { layer: 1, etype: 2, code: 2 }));
    }
}

/// Q17, RFC5041-6.2.1-06: siw's FIN ends the connection in both directions; it is no half close.
/// Our FIN acknowledges theirs and follows it, without a reset, whichever side connected.
/// RFC 5041 s3 and s6.2.1; RFC 5044 s3 and s7.2.
#[test]
fn q17_a_fin_is_followed_by_our_fin() {
    for calls in [true, false] {
        let mut scene = Scene::new(|_| {});
        if calls {
            scene.calls(REQUEST.len());
            scene.peer.say(&reply(0x50, 2, &TAKES_WRITES));
            scene.hear("the indication", 20);
        } else {
            scene.answers(&request(0x40, 1, b""), 20);
        }
        assert_eq!(scene.peer.events & TcpEvents::ENDED.union(TcpEvents::PEER_CLOSED), TcpEvents::empty());
        scene.peer.close();
        scene.hears_fin();
        assert_eq!(scene.disconnected(), DisconnectReason::Closed);
        scene.until("both directions closed", |scene| scene.peer.events.intersects(TcpEvents::ENDED));
        assert_eq!(scene.peer.events & TcpEvents::ENDED, TcpEvents::CLOSED, "no reset");
        assert!(scene.peer.heard.is_empty(), "octets before the FIN: {:02x?}", scene.peer.heard);
        assert!(!scene.node.events.iter().any(|event| matches!(event, Event::Terminated { .. })));
        assert!(is_flushed(&scene, 1));
    }
}

/// RFC 6581 s9.1, s9.2: the responder accepts with parameters that we cannot meet. Our first FPDU
/// is a Terminate.
#[test]
fn parameters_that_cannot_be_met_end_with_their_terminate() {
    for (octets, code) in [([0x80, 16, 0x80, 17], 6), ([0x80, 16, 0, 16], 7), ([0x80, 0, 0x40, 0], 7)] {
        let mut scene = Scene::new(|_| {});
        let (qp, ..) = scene.calls(REQUEST.len());
        scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"never")).unwrap();
        scene.peer.say(&reply(0x50, 2, &octets));
        assert_eq!(scene.terminated(), (true, Terminate { layer: 2, etype: 0, code }));
        let ulpdu =
            [&[0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0][..], &[0x20, code, 0, 0]].concat();
        assert_eq!(scene.hear("the Terminate", fpdu(&ulpdu).len()), fpdu(&ulpdu));
        scene.until("FIN", |scene| scene.peer.events.contains(ironwarp_tcp::TcpEvents::PEER_CLOSED));
        scene.peer.close();
        scene.event("the end", |event| matches!(event, Event::Disconnected { .. }).then_some(()));
        let reads = scene.node.ctx.qp_negotiated(qp).unwrap().unwrap().peer_reads;
        assert_eq!(reads.map(|reads| reads.ord), Some(u16::from(octets[3])));
    }
}

/// Q13: siw has no receiver-not-ready. If a Send finds no receive there, siw ends the connection
/// with this code, in its octet order. Here everything is flushed and no Terminate is sent back.
#[test]
fn q13_a_send_that_found_no_receive_ends_the_connection() {
    let mut scene = Scene::new(|_| {});
    let (qp, _) = scene.called();
    scene.node.ctx.post_send(qp, &SendWr::send_inline(7, b"nobody waits")).unwrap();
    let sent = scene.segment("the Send");
    scene.peer.say(&fpdu(&terminate(&[&[0x21, 0x02, 0x03, 0, 0, 30][..], &sent[..18]].concat())));
    assert_eq!(scene.terminated(), (false, Terminate { layer: 1, etype: 2, code: 2 }));
    scene.hears_fin();
    assert!(scene.peer.heard.is_empty(), "octets after a received Terminate");
    scene.peer.close();
    assert_eq!(scene.disconnected(), DisconnectReason::Terminated);
    assert!(is_flushed(&scene, 1));
}

/// Q13: siw uses the same code for a Send that is too long. We have a code for each.
#[test]
fn q13_a_message_too_long_is_not_reported_as_no_buffer() {
    for (messages, code) in [(&[send(1, &[1; 65])][..], 5), (&[send(1, b"first"), send(2, b"second")], 2)] {
        let mut scene = Scene::new(|_| {});
        let (_, _inbox) = scene.called();
        messages.iter().for_each(|message| scene.peer.say(&fpdu(message)));
        assert_eq!(scene.terminated(), (true, Terminate { layer: 1, etype: 2, code }));
    }
}

fn is_flushed(scene: &Scene, wr_id: u64) -> bool {
    let flushed = CompletionStatus::FlushedInError;
    scene.node.completions.iter().any(|done| (done.wr_id, done.status) == (wr_id, flushed))
}

/// Q17: siw ends everything at our FIN. So our FIN follows all posted work, once it is acknowledged
/// and completed.
#[test]
fn q17_our_fin_follows_all_posted_work() {
    let mut scene = Scene::new(|_| {});
    let (qp, _) = scene.called();
    let source = scene.node.memory(&[4; 100_000]);
    let remote = RemoteMemory { stag: STag(9), tagged_offset: 0 };
    let gather = [source.slice(0, 100_000).unwrap()];
    scene.node.ctx.post_send(qp, &SendWr::write(5, &gather, remote)).unwrap();
    scene.node.ctx.post_send(qp, &SendWr::send_inline(6, b"last")).unwrap();
    scene.node.ctx.disconnect(qp).unwrap();
    let mut written = 0;
    loop {
        let segment = scene.segment("the Write and the Send");
        if segment[1] == 0x43 {
            assert_eq!(&segment[18..], b"last");
            break;
        }
        written += segment.len() - 14;
    }
    assert_eq!(written, 100_000);
    scene.hears_fin();
    let done: Vec<_> = scene.node.completions.iter().map(|done| (done.wr_id, done.status)).collect();
    let ok = CompletionStatus::Success;
    assert_eq!(done[..2], [(5, ok), (6, ok)], "completed before the FIN");
    scene.peer.close();
    assert_eq!(scene.disconnected(), DisconnectReason::Closed);
}

/// Q17: siw's close after a Terminate may become a reset that discards the Terminate. A reset right
/// after data ends the connection as a reset: everything is flushed, and data received before it
/// stays delivered.
#[test]
fn q17_a_reset_right_after_data_ends_the_connection() {
    let mut scene = Scene::new(|_| {});
    let (qp, inbox) = scene.called();
    waits_for_an_answer(&mut scene, qp);
    scene.peer.say(&fpdu(&send(1, b"last words")));
    scene.received(&inbox, b"last words");
    scene.peer.reset();
    assert_eq!(scene.disconnected(), DisconnectReason::Reset);
    assert!(is_flushed(&scene, 3));
}

/// Posts a Read to which the peer never responds.
fn waits_for_an_answer(scene: &mut Scene, qp: QueuePair) {
    let sink: &'static Region = Box::leak(Box::new(scene.node.memory(&[0; 8])));
    let remote = RemoteMemory { stag: STag(9), tagged_offset: 0 };
    scene.node.ctx.post_send(qp, &SendWr::read(3, &[sink.slice(0, 8).unwrap()], remote)).unwrap();
    scene.segment("the Read Request");
}

/// Q18: siw sends no Terminate after a partial FPDU; its FIN or a reset follows the sent part. None
/// of it is placed, everything is flushed, and we send no Terminate either.
#[test]
fn q18_half_an_fpdu_and_no_terminate() {
    for resets in [false, true] {
        for cut in [1, 2, 20, 23, 27] {
            let mut scene = Scene::new(|_| {});
            let (qp, _) = scene.called();
            waits_for_an_answer(&mut scene, qp);
            let target = scene.node.memory(&[0; 8]);
            let (stag, to) = place(&target);
            scene.peer.say(&fpdu(&tagged(0, stag, to, b"8 octets"))[..cut]);
            scene.turns(100);
            if resets {
                scene.peer.reset();
            } else {
                scene.peer.close();
            }
            let reason = if resets { DisconnectReason::Reset } else { DisconnectReason::Closed };
            assert_eq!(scene.disconnected(), reason, "after {cut} octets");
            assert!(is_flushed(&scene, 1) && is_flushed(&scene, 3), "after {cut} octets");
            assert_eq!(contents(&target), [0; 8]);
            assert!(scene.peer.heard.is_empty(), "octets after the partial FPDU: {:02x?}", scene.peer.heard);
            assert!(!scene.node.events.iter().any(|event| matches!(event, Event::Terminated { .. })));
        }
    }
}
