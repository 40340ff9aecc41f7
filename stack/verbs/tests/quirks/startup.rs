//! Quirks of start-up: what peers reply, refuse, require and omit.

use ironwarp::{
    ConnectFailure, ConnectParams, Event, MpaRevision, NegotiatedParams, READS_UNNEGOTIATED, ReadDepths,
    RtrKinds, SendWr, Terminate, VerbsError,
};

use crate::common::messages::{EMPTY_READ, EMPTY_WRITE, REQUEST, TAKES_WRITES, fpdu, reply, request, send};
use crate::common::peer::{PEER, Scene};

/// Q2: siw and cxgb4 treat any octet behind the reply as an error. So we send nothing after the
/// reply until the initiator's first FPDU arrives. RFC 6581 s6 and s10.
#[test]
fn q2_nothing_follows_the_reply_before_the_initiators_first_fpdu() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.answers(&request(0x40, 1, b""), 20);
    scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"server")).unwrap();
    scene.turns(2000);
    assert_eq!((&scene.peer.heard[..], &scene.peer.segments[..]), (&[][..], &[20][..]));
    scene.peer.say(&fpdu(&EMPTY_WRITE));
    let want = fpdu(&send(1, b"server"));
    assert_eq!(scene.hear("the server's message", want.len()), want);
}

/// Q3: without flag A, siw sends at once: its reply and FPDUs in one segment.
#[test]
fn q3_fpdus_in_the_segment_of_the_reply_are_taken() {
    let mut scene = Scene::new(|_| {});
    let (_, inbox, _) = scene.calls(REQUEST.len());
    scene.peer.say(&[reply(0x50, 2, &[0, 16, 0, 16]), fpdu(&send(1, b"at once"))].concat());
    scene.negotiated();
    scene.received(&inbox, b"at once");
}

/// Q4: siw never asks for CRCs and uses them if we ask, in either role.
#[test]
fn q4_a_peer_that_asks_for_no_crc_gets_them() {
    let mut scene = Scene::new(|_| {});
    let (_, inbox, _) = scene.calls(REQUEST.len());
    // As responder, siw echoes our C. Our C applies even if a responder does not echo it
    // (RFC 5044 s7.1.1).
    scene.peer.say(&[reply(0x10, 2, &[0, 16, 0, 16]), fpdu(&send(1, b"checked"))].concat());
    scene.received(&inbox, b"checked");
    let mut scene = Scene::new(|_| {});
    let (_, inbox, heard) = scene.answers(&request(0x10, 2, &[0, 16, 0, 16]), 24);
    assert_eq!(heard[16], 0x50, "the reply sets C although the request does not");
    scene.peer.say(&fpdu(&send(1, b"checked")));
    scene.received(&inbox, b"checked");
}

/// Q6: siw selects a Write if it is offered, then accepts any first FPDU. Ours has a steering tag
/// other than 0. RFC 5044 s7.1.2; RFC 6581 s9.3.
#[test]
fn q6_the_rtr_that_siw_picks_is_sent_first() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.calls(REQUEST.len());
    scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"behind it")).unwrap();
    scene.peer.say(&reply(0x50, 2, &TAKES_WRITES));
    let want = [fpdu(&EMPTY_WRITE), fpdu(&send(1, b"behind it"))].concat();
    assert_eq!(scene.hear("indication and message", want.len()), want);
}

/// Q6: as initiator with flag A, siw sends a Write or a Read. The connection is then established
/// for our application. RFC 6581 s5.
#[test]
fn q6_the_connection_is_established_when_the_rtr_arrives() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.answers(&request(0x50, 2, &[0x80, 16, 0xc0, 16]), 24);
    scene.turns(500);
    assert!(scene.node.events.is_empty(), "events before the indication: {:?}", scene.node.events);
    assert_eq!(scene.node.ctx.qp_state(qp).unwrap(), ironwarp::QpState::Connecting);
    scene.peer.say(&fpdu(&EMPTY_WRITE));
    let reads = ReadDepths { ird: 16, ord: 16 };
    assert_eq!(scene.negotiated(), NegotiatedParams { revision: 2, peer_reads: Some(reads), reads });
    assert_eq!(scene.node.ctx.qp_state(qp).unwrap(), ironwarp::QpState::Established);
}

/// Q7: irdma refuses revision 2 without A and an indication by Write or Read, and needs the request
/// in one segment. RFC 5044 s1.2, s4.4, s7.1 and s7.1.2; RFC 6581 s9.2.
#[test]
fn q7_the_request_is_one_that_irdma_takes() {
    let mut scene = Scene::new(|_| {});
    let (.., heard) = scene.calls(REQUEST.len());
    assert_eq!(heard, REQUEST);
    assert_eq!(scene.peer.segments, [REQUEST.len()]);
}

/// Q7: after a reset or a close on revision 2, the stack retries once, in revision 1
/// (RFC 6581 s10).
#[test]
fn q7_a_close_on_revision_2_is_retried_in_revision_1() {
    for resets in [true, false] {
        let mut scene = Scene::new(|_| {});
        let (qp, ..) = scene.calls(REQUEST.len());
        if resets {
            scene.peer.reset()
        } else {
            scene.peer.close()
        }
        scene.until("the second connection", |scene| scene.peer.connections == 2);
        assert_eq!(scene.hear("the second request", 20), request(0x40, 1, b""));
        scene.peer.say(&reply(0x40, 1, b""));
        let reads = ReadDepths { ird: 16, ord: 16 };
        assert_eq!(scene.negotiated(), NegotiatedParams { revision: 1, peer_reads: None, reads });
        assert_eq!(scene.node.counter("iwarp_revision_fallbacks"), 1);
        scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"data")).unwrap();
        scene.hear("no indication, the message", fpdu(&send(1, b"data")).len());
    }
}

/// Q7: it does not retry a second time, nor if the setting forbids it.
#[test]
fn q7_a_close_on_revision_1_too_fails_the_connection() {
    for fallback in [true, false] {
        let mut scene = Scene::new(|config| config.mpa.revision_fallback = fallback);
        scene.calls(REQUEST.len());
        scene.peer.reset();
        if fallback {
            scene.until("the second request", |scene| {
                scene.peer.connections == 2 && scene.peer.heard.len() == 20
            });
            scene.peer.reset();
        }
        let reason = scene.event("the failure", |event| match event {
            Event::ConnectFailed { reason, .. } => Some(*reason),
            _ => None,
        });
        assert_eq!((reason, scene.peer.connections), (ConnectFailure::Closed, 1 + u32::from(fallback)));
    }
}

/// Q8: siw and cxgb4 keep the length of private data in 8 bits. The stack receives up to 512
/// octets, four less in revision 2.
#[test]
fn q8_private_data_of_every_length_that_a_peer_may_send_is_taken() {
    for bytes in [0, 251, 252, 508] {
        let said = [&[0, 16, 0, 16][..], &vec![7; bytes]].concat();
        let (_, heard) = Scene::new(|_| {}).is_asked(&request(0x50, 2, &said));
        assert_eq!(heard, vec![7; bytes]);
    }
    let (_, heard) = Scene::new(|_| {}).is_asked(&request(0x40, 1, &[7; 512]));
    assert_eq!(heard, [7; 512]);
    // The stack sends at most 251 octets, which makes a length of 255.
    let mut scene = Scene::new(|_| {});
    let qp = scene.qp();
    let too_long = scene.node.ctx.connect(qp, PEER.parse().unwrap(), &[7; 252]);
    assert!(matches!(too_long, Err(VerbsError::PrivateDataTooLong(252))));
    scene.node.ctx.connect(qp, PEER.parse().unwrap(), &[7; 251]).unwrap();
    assert_eq!(scene.hear("the request", 20)[18..], [0, 255]);
}

/// Q9: cxgb4 requires the kind of indication that it offers, by default a Read. The responder
/// selects it and sends the Read Response. RFC 5040 s5.2.2.
#[test]
fn q9_an_offer_of_read_alone_is_answered_with_read() {
    let mut scene = Scene::new(|_| {});
    let (.., heard) = scene.answers(&request(0x50, 2, &[0x80, 32, 0x40, 32]), 24);
    assert_eq!(heard[16..], [0x50, 2, 0, 4, 0x80, 16, 0x40, 16]);
    scene.peer.say(&fpdu(&EMPTY_READ));
    let answer = [0xc1, 0x42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(scene.hear("the empty response", fpdu(&answer).len()), fpdu(&answer));
    scene.negotiated();
}

/// Q9: cxgb4 reports parameters that it cannot meet with code 6 or 7. Our application gets the
/// code.
#[test]
fn q9_a_terminate_in_place_of_an_rtr_is_understood() {
    let mut scene = Scene::new(|_| {});
    scene.answers(&request(0x50, 2, &[0x80, 32, 0x40, 32]), 24);
    scene.peer.say(&fpdu(&[0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x20, 7, 0, 0]));
    assert_eq!(scene.terminated(), (false, Terminate { layer: 2, etype: 0, code: 7 }));
}

/// Q10: cxgb4 sends an empty Read first in revision 1 too.
#[test]
fn q10_an_empty_read_in_revision_1_is_answered() {
    let mut scene = Scene::new(|_| {});
    scene.answers(&request(0x40, 1, b""), 20);
    scene.peer.say(&fpdu(&EMPTY_READ));
    let answer = [0xc1, 0x42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(scene.hear("the empty response", fpdu(&answer).len()), fpdu(&answer));
}

/// Q11: peers use the read depths in our reply. So they are real, and 0x3fff only if the request
/// had it.
#[test]
fn q11_the_numbers_of_reads_in_a_reply_are_real() {
    for (asked, answered) in [
        ([0, 4, 0, 128], [0, 16, 0, 4]),
        ([0, 128, 0, 1], [0, 16, 0, 16]),
        ([0x3f, 0xff, 0x3f, 0xff], [0x3f, 0xff, 0x3f, 0xff]),
    ] {
        let mut scene = Scene::new(|_| {});
        let (qp, _, heard) = scene.answers(&request(0x50, 2, &asked), 24);
        assert_eq!(heard[20..], answered);
        let negotiated = scene.negotiated();
        assert_eq!(scene.node.ctx.qp_negotiated(qp).unwrap(), Some(negotiated));
        let number = |octets: &[u8]| u16::from_be_bytes([octets[0] & 0x3f, octets[1]]);
        let peer_reads = ReadDepths { ird: number(&asked), ord: number(&asked[2..]) };
        assert_eq!(negotiated.peer_reads, Some(peer_reads));
        let ord = if peer_reads.ird == READS_UNNEGOTIATED { 16 } else { 16.min(peer_reads.ird) };
        assert_eq!(negotiated.reads, ReadDepths { ird: 16, ord });
    }
}

/// Q20: a reject has R set and keeps its private data; FIN follows. Both layouts.
#[test]
fn q20_a_refusal_keeps_its_private_data_and_ends_with_fin() {
    for (asked, want) in [
        (request(0x40, 1, b""), reply(0x60, 1, b"busy")),
        (request(0x50, 2, &[0x80, 1, 0xc0, 1]), reply(0x70, 2, &[&[0x80, 0, 0xc0, 0][..], b"busy"].concat())),
    ] {
        let mut scene = Scene::new(|_| {});
        let (request, _) = scene.is_asked(&asked);
        scene.node.ctx.reject(request, b"busy").unwrap();
        assert_eq!(scene.hear("the refusal", want.len()), want);
        scene.until("FIN", |scene| scene.peer.events.contains(ironwarp_tcp::TcpEvents::PEER_CLOSED));
        assert!(!scene.peer.events.contains(ironwarp_tcp::TcpEvents::RESET));
    }
}

/// Q20: as initiator, the stack reports the reject, with the read depths that it names.
#[test]
fn q20_a_reject_of_either_layout_is_understood() {
    for (revision, octets, reads) in [
        (MpaRevision::One, reply(0x60, 1, b"busy"), None),
        (MpaRevision::Two, reply(0x70, 2, b"\x00\x00\x00\x20busy"), Some(ReadDepths { ird: 0, ord: 32 })),
    ] {
        let mut scene = Scene::new(|_| {});
        let qp = scene.qp();
        let params = ironwarp::ConnectParams { revision: Some(revision), ..Default::default() };
        scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
        scene.until("the request", |scene| scene.peer.heard.len() >= 20);
        scene.peer.say(&octets);
        let (said, peer_reads) = scene.event("the refusal", |event| match event {
            Event::Rejected { private_data, peer_reads, .. } => Some((private_data.to_vec(), *peer_reads)),
            _ => None,
        });
        assert_eq!((&said[..], peer_reads), (&b"busy"[..], reads));
        // MPA leaves the TCP connection open; the connection manager closes it with FIN.
        scene.until("FIN", |scene| scene.peer.events.contains(ironwarp_tcp::TcpEvents::PEER_CLOSED));
        assert!(!scene.peer.events.contains(ironwarp_tcp::TcpEvents::RESET));
    }
}

/// Q23: siw as responder loses its own first message if ours arrives right behind the reply. The
/// hold-off delays ours, the indication included.
#[test]
fn q23_the_hold_off_delays_the_first_fpdu() {
    let mut scene = Scene::new(|_| {});
    let qp = scene.qp();
    let holdoff = ironwarp::Nanos::from_millis(30);
    let params = ironwarp::ConnectParams { first_fpdu_holdoff: Some(holdoff), ..Default::default() };
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
    scene.hear("the request", REQUEST.len());
    scene.peer.say(&reply(0x50, 2, &TAKES_WRITES));
    scene.negotiated();
    let established = std::time::Instant::now();
    assert!(scene.peer.heard.is_empty());
    scene.hear("the indication", 20);
    assert!(established.elapsed() >= std::time::Duration::from_millis(20), "{:?}", established.elapsed());
}

/// RFC 5044 s7.1.2, rule 10: the responder waits for the indication of a peer-to-peer initiator no
/// longer than for a request.
#[test]
fn a_missing_rtr_times_out_start_up() {
    let mut scene = Scene::new(|config| config.mpa.startup_timeout_ms = 50);
    scene.answers(&request(0x50, 2, &[0x80, 16, 0xc0, 16]), 24);
    let reason = scene.event("the failure", |event| match event {
        Event::ConnectFailed { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(reason, ConnectFailure::TimedOut);
}

/// Q6: siw proposes a Write to an initiator that offers neither Write nor Read. Our initiator,
/// configured to offer Sends only, sends a Terminate.
#[test]
fn q6_an_rtr_that_was_not_offered_is_not_sent() {
    let mut scene = Scene::new(|_| {});
    let qp = scene.qp();
    let params = ConnectParams { rtr: Some(RtrKinds::SEND), ..Default::default() };
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
    scene.hear("the request", REQUEST.len());
    scene.peer.say(&reply(0x50, 2, &TAKES_WRITES));
    assert_eq!(scene.terminated(), (true, Terminate { layer: 2, etype: 0, code: 7 }));
    assert_eq!(scene.segment("the Terminate")[18..], [0x20, 7, 0, 0]);
}

/// Q22: siw refuses a request that asks for markers: M cleared, R set, zeros for the read depths,
/// then FIN.
#[test]
fn q22_a_reject_for_lack_of_markers_is_reported() {
    let mut scene = Scene::new(|config| config.mpa.markers = true);
    let (_, _, heard) = scene.calls(REQUEST.len());
    assert_eq!(heard[16], 0xd0);
    scene.peer.say(&reply(0x70, 2, &[0; 4]));
    scene.event("the refusal", |event| matches!(event, Event::Rejected { .. }).then_some(()));
    scene.peer.close();
    scene.hears_fin();
    assert_eq!(scene.peer.connections, 1, "the node connected again after a reject");
}
