//! Each FPDU vector as our node sends it: the test posts work requests, and a fake peer compares
//! what arrives by TCP.

use ironwarp::{
    Access, AlignedBuf, AtomicOp, ConnectParams, MpaRevision, QueuePair, RecvWr, Region, RemoteMemory,
    RtrKinds, STag, SendWr,
};

use crate::common::messages::{fpdu, place, reply, request};
use crate::common::peer::{PEER, Scene};
use crate::golden::vector::{Vector, named};

/// The target of the vectors' Writes and the source of their Reads.
const REMOTE: RemoteMemory = RemoteMemory { stag: STag(0x1122_3344), tagged_offset: 0x1_5566_7788 };
/// The tag that the vectors' Sends invalidate.
const TAG: STag = STag(0x0102_0304);

/// A node that connected to a peer in revision 1 and is in full operation, with the framing of the
/// vector's stream.
fn caller(vector: &Vector) -> (Scene, QueuePair) {
    let mut scene = Scene::new(|config| {
        (config.mpa.crc, config.rdmap.extensions) = (vector.crc, vector.extensions);
    });
    let qp = scene.qp();
    let params = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
    scene.hear("the request", 20);
    scene.peer.say(&reply(vector.flags(), 1, b""));
    scene.negotiated();
    (scene, qp)
}

/// A region of the node that is never deregistered.
fn kept(scene: &Scene, bytes: &[u8]) -> &'static Region {
    Box::leak(Box::new(scene.node.memory(bytes)))
}

/// Runs `act` on a connection. The peer must receive the vector that `act` returns, and nothing
/// more.
#[track_caller]
fn is_sent(name: &str, act: impl FnOnce(&mut Scene, QueuePair, Vector) -> Vector) {
    let vector = named(name);
    let (mut scene, qp) = caller(&vector);
    let want = act(&mut scene, qp, vector);
    is_heard(&mut scene, &want);
}

#[track_caller]
fn is_heard(scene: &mut Scene, want: &Vector) {
    let heard = scene.hear(&want.name, want.octets.len());
    assert!(heard == want.octets, "{}:\n{heard:02x?}\nand not\n{:02x?}", want.name, want.octets);
    scene.turns(50);
    assert!(scene.peer.heard.is_empty(), "{}: {:02x?} follows", want.name, scene.peer.heard);
}

#[track_caller]
fn posted(name: &str, wrs: &[SendWr<'_>]) {
    is_sent(name, |scene, qp, vector| {
        scene.node.ctx.post_sends(qp, wrs).unwrap();
        vector
    });
}

/// RFC 5044 s4.3, s4.4: the two examples that the RFC prints, and the other possible positions of a
/// marker.
#[test]
fn fpdus_with_markers() {
    let zeros = [0; 24];
    posted("figure 5", &[SendWr::send_inline(1, &zeros)]);
    is_sent("figure 6", |scene, qp, vector| {
        let filler = [kept(scene, &[0x77; 420]).slice(0, 420).unwrap()];
        let wrs = [
            SendWr::send_inline(1, &zeros),
            SendWr::write(2, &filler, REMOTE),
            SendWr::send_inline(3, &zeros),
        ];
        scene.node.ctx.post_sends(qp, &wrs).unwrap();
        vector
    });
    for (name, octet, bytes) in [
        ("marker before the crc", 0x33, 488),
        ("marker behind the crc", 0x44, 484),
        ("markers within", 0x55, 1100),
    ] {
        is_sent(name, |scene, qp, vector| {
            let source = kept(scene, &vec![octet; bytes]);
            let gather = [source.slice(0, bytes as u32).unwrap()];
            scene.node.ctx.post_send(qp, &SendWr::send(1, &gather)).unwrap();
            if vector.fpdus().len() > 1 {
                scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"next")).unwrap();
            }
            vector
        });
    }
}

/// RFC 5044 s4.1: the CRC field without CRCs, and every length of padding.
#[test]
fn fpdus_without_crcs_and_with_padding() {
    posted("no crc", &[SendWr::send_inline(1, b"abc")]);
    posted("no crc, markers", &[SendWr::send_inline(1, b"abc")]);
    let octets = [0xf1, 0xf2, 0xf3, 0xf4];
    posted("padding", &[1, 2, 3, 4].map(|bytes| SendWr::send_inline(1, &octets[..bytes])));
}

/// RFC 5040 s4.1: the four kinds of Send, with and without octets.
#[test]
fn sends_of_the_four_kinds() {
    let (full, empty) = (SendWr::send_inline(1, b"iwarp"), SendWr::send_inline(1, b""));
    for (wr, names) in [
        (full, ["send", "send invalidate", "send solicited", "send solicited invalidate"]),
        (
            empty,
            [
                "send empty",
                "send invalidate empty",
                "send solicited empty",
                "send solicited invalidate empty",
            ],
        ),
    ] {
        let kinds = [wr, wr.with_invalidate(TAG), wr.solicited(), wr.solicited().with_invalidate(TAG)];
        for (name, wr) in names.into_iter().zip(kinds) {
            posted(name, &[wr]);
        }
    }
    is_sent("send in two segments", |scene, qp, vector| {
        let gather = [kept(scene, &[0xaa; 1524]).slice(0, 1524).unwrap()];
        scene.node.ctx.post_send(qp, &SendWr::send(1, &gather).with_invalidate(TAG)).unwrap();
        vector
    });
}

/// RFC 5041 s4.2, s5.2: an empty Write, a Write of one segment and a Write of three.
#[test]
fn writes() {
    posted("write", &[SendWr::write_inline(1, b"iwarp", REMOTE)]);
    posted("write empty", &[SendWr::write_inline(1, b"", REMOTE)]);
    is_sent("write in three segments", |scene, qp, vector| {
        let gather = [kept(scene, &[0xbb; 3000]).slice(0, 3000).unwrap()];
        scene.node.ctx.post_send(qp, &SendWr::write(1, &gather, REMOTE)).unwrap();
        vector
    });
}

/// RFC 5040 s4.4: Read Requests. The sink is ours, so the vector takes its tag and offset.
#[test]
fn read_requests() {
    for (name, bytes) in [("read request", 5), ("read request empty", 0), ("read request long", 1500)] {
        is_sent(name, |scene, qp, vector| {
            let sink = kept(scene, &[0; 1500]);
            let into = [sink.slice(0, bytes).unwrap()];
            scene.node.ctx.post_send(qp, &SendWr::read(1, &into, REMOTE)).unwrap();
            let (stag, to) = place(sink);
            vector.with("sink_stag", stag.into()).with("sink_to", to)
        });
    }
}

/// RFC 5040 s4.4, s5.2: the response to a Read Request repeats its sink unchanged.
#[test]
fn read_responses() {
    for (name, asked, octets) in [
        ("read response", "read request", &b"iwarp"[..]),
        ("read response empty", "read request empty", b""),
        ("read response in two segments", "read request long", &[0xcc; 1500]),
    ] {
        is_sent(name, |scene, _, vector| {
            let mut asked = named(asked);
            if !octets.is_empty() {
                let (stag, to) = place(kept(scene, octets));
                asked = asked.with("source_stag", stag.into()).with("source_to", to);
            }
            scene.peer.say(&asked.octets);
            vector
        });
    }
}

/// RFC 6581 s9.2: the indication is the one that the responder names.
#[test]
fn indications() {
    for (name, rtr, said) in [
        ("rtr send", RtrKinds::SEND, [0xc0, 16, 0, 16]),
        ("rtr write", RtrKinds::WRITE, [0x80, 16, 0x80, 16]),
        ("rtr read", RtrKinds::READ, [0x80, 16, 0x40, 16]),
    ] {
        let mut scene = Scene::new(|_| {});
        let qp = scene.qp();
        let params = ConnectParams { rtr: Some(rtr), ..Default::default() };
        scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
        scene.hear("the request", 24);
        scene.peer.say(&reply(0x50, 2, &said));
        is_heard(&mut scene, &named(name));
    }
    let mut scene = Scene::new(|_| {});
    scene.answers(&request(0x50, 2, &[0x80, 16, 0x40, 16]), 24);
    scene.peer.say(&named("rtr read").octets);
    is_heard(&mut scene, &named("rtr read answer"));
}

/// RFC 5040 s4.8: Terminates for errors in received messages.
#[test]
fn terminates_for_received_errors() {
    let mut spoilt = fpdu(&named_ulpdu("send"));
    *spoilt.last_mut().unwrap() ^= 1;
    is_answered("terminate crc", &spoilt);
    is_answered("terminate short segment", &fpdu(&[0x41; 10]));
    is_answered("terminate marked", &fpdu(&[0x41; 10]));
    is_answered("terminate no crc", &fpdu(&[0x41; 10]));
    is_answered("terminate tagged buffer", &named("write").octets);
    is_answered("terminate untagged buffer", &named("send").octets);
    let mut write = named_ulpdu("write");
    write.truncate(15);
    write[1] = 0x43;
    is_answered("terminate tagged operation", &fpdu(&write));
    is_answered("terminate read request", &named("read request").octets);
    for (name, offender) in [
        ("terminate untagged operation", &unknown_operation()),
        ("terminate send invalidate", &named("send invalidate").octets),
    ] {
        is_sent(name, |scene, qp, vector| {
            let inbox = [kept(scene, &[0; 64]).slice(0, 64).unwrap()];
            scene.node.ctx.post_recv(qp, &RecvWr::new(1, &inbox)).unwrap();
            scene.peer.say(offender);
            vector
        });
    }
}

/// The ULPDU of a vector of one FPDU without markers.
fn named_ulpdu(name: &str) -> Vec<u8> {
    let vector = named(name);
    vector.octets[2..2 + vector.number("ulpdu_length") as usize].to_vec()
}

/// An untagged segment for queue 0 with operation 15 and one octet of payload.
fn unknown_operation() -> Vec<u8> {
    let mut ulpdu = named_ulpdu("send");
    ulpdu.truncate(19);
    ulpdu[1] = 0x4f;
    fpdu(&ulpdu)
}

#[track_caller]
fn is_answered(name: &str, offender: &[u8]) {
    is_sent(name, |scene, _, vector| {
        scene.peer.say(offender);
        vector
    });
}

/// RFC 5044 s8: a wrong marker pointer with a correct CRC.
#[test]
fn a_terminate_for_a_marker_error() {
    let vector = named("terminate marker");
    let mut scene = Scene::new(|config| config.mpa.markers = true);
    let qp = scene.qp();
    let params = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
    scene.hear("the request", 20);
    scene.peer.say(&reply(0x40, 1, b""));
    scene.negotiated();
    let mut marked = named("figure 5").octets;
    marked[3] = 4;
    let end = marked.len() - 4;
    let crc = crate::common::messages::crc(&marked[..end]);
    marked[end..].copy_from_slice(&crc);
    scene.peer.say(&marked);
    is_heard(&mut scene, &vector);
}

/// RFC 5040 s7.1, case 1: the Terminate for a local error shows no headers.
#[test]
fn a_terminate_for_a_local_error() {
    is_sent("terminate local catastrophic", |scene, qp, vector| {
        let source = scene.node.memory(&[1; 8]);
        let gather = [source.slice(0, 8).unwrap()];
        drop(source);
        scene.node.ctx.post_send(qp, &SendWr::send(1, &gather)).unwrap();
        vector
    });
}

/// RFC 6581 s8, s9: the responder accepts with parameters that we cannot meet.
///
/// "terminate startup local" with code 5 is not among them. Every local error here is known before
/// the request is sent.
#[test]
fn terminates_for_start_up_errors() {
    for (name, said) in [
        ("terminate insufficient ird", [0x80, 16, 0x80, 17]),
        ("terminate no matching rtr", [0x80, 16, 0, 16]),
    ] {
        let mut scene = Scene::new(|_| {});
        scene.calls(24);
        scene.peer.say(&reply(0x50, 2, &said));
        is_heard(&mut scene, &named(name));
    }
}

/// RFC 7306 s6.3: Immediate Data of both kinds, numbered with the Sends around it.
#[test]
fn immediates() {
    let octets = b"8 octets";
    posted("immediate", &[SendWr::immediate(1, octets)]);
    posted("immediate solicited", &[SendWr::immediate(1, octets).solicited()]);
    let among = [
        SendWr::immediate(1, &[0xa1; 8]),
        SendWr::send_inline(2, b"iwarp"),
        SendWr::immediate(3, &[0xa3; 8]).solicited(),
    ];
    posted("immediates among sends", &among);
    posted("immediate by figure 2", &[SendWr::immediate(1, octets)]);
    posted("immediate solicited by figure 2", &[SendWr::immediate(1, octets).solicited()]);
    is_sent("solicited immediate behind an atomic, by figure 2", |scene, qp, vector| {
        let sink = [kept(scene, &[0; 8]).slice(0, 8).unwrap()];
        let add = AtomicOp::add(1);
        let wrs = [SendWr::atomic(1, &sink, REMOTE, &add), SendWr::immediate(2, octets).solicited()];
        scene.node.ctx.post_sends(qp, &wrs).unwrap();
        vector
    });
}

/// RFC 7306 s5.2.1: Atomic Requests, with the drafts' Swap, and the numbers on queue 1 that they
/// share with Reads.
#[test]
fn atomic_requests() {
    let fields = AtomicOp::FetchAdd { add: 0x0000_0001_ffff_ffff, mask: 0x8000_0000_8000_8080 };
    let masked = AtomicOp::CmpSwap {
        compare: 0x3333_3333_4444_4444,
        compare_mask: 0x00ff_00ff_00ff_00ff,
        swap: 0x1111_1111_2222_2222,
        swap_mask: 0xffff_0000_ffff_0000,
    };
    let swap = AtomicOp::Swap { swap: 0x0102_0304_0506_0708 };
    for (name, operation) in [
        ("fetch add", AtomicOp::add(0x0102_0304_0506_0708)),
        ("fetch add with fields", fields),
        ("cmp swap", masked),
        ("fetch add, marked", AtomicOp::add(1)),
        ("cmp swap, no crc", AtomicOp::compare_and_swap(0, 1)),
        ("swap", swap),
        ("swap by draft 01", swap),
    ] {
        is_sent(name, |scene, qp, vector| {
            let sink = [kept(scene, &[0; 8]).slice(0, 8).unwrap()];
            scene.node.ctx.post_send(qp, &SendWr::atomic(1, &sink, REMOTE, &operation)).unwrap();
            vector
        });
    }
    is_sent("atomic behind a read", |scene, qp, vector| {
        let sink = kept(scene, &[0; 16]);
        let (into, before) = ([sink.slice(0, 5).unwrap()], [sink.slice(8, 8).unwrap()]);
        let add = AtomicOp::add(1);
        let wrs = [SendWr::read(1, &into, REMOTE), SendWr::atomic(2, &before, REMOTE, &add)];
        scene.node.ctx.post_sends(qp, &wrs).unwrap();
        let (stag, to) = place(sink);
        vector.with("sink_stag", stag.into()).with("sink_to", to)
    });
}

/// A word of the node that is never deregistered, with every right for the peer.
fn word(scene: &Scene, value: u64) -> &'static Region {
    let mut page = AlignedBuf::pages(4096).unwrap();
    page[..8].copy_from_slice(&value.to_ne_bytes());
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    Box::leak(Box::new(scene.node.ctx.register(scene.node.pd, page, rights).unwrap()))
}

/// The request of another vector, with `target` as its word.
fn about(name: &str, target: &Region) -> Vector {
    let (stag, to) = place(target);
    named(name).with("remote_stag", stag.into()).with("remote_to", to)
}

/// RFC 7306 s5.2.2: the responses to Atomic Requests, with the identifiers of the requests, on
/// either queue. RFC7306-5-05 and RFC7306-4.1-06: all control fields, on queue 3 unless a draft
/// says otherwise.
#[test]
fn atomic_responses() {
    for (name, asked) in [
        ("atomic response", "fetch add"),
        ("atomic response", "fetch add with fields"),
        ("atomic response", "cmp swap"),
        ("atomic response by figure 2", "swap by draft 01"),
    ] {
        is_sent(name, |scene, _, vector| {
            let target = word(scene, 0x0102_0304_0506_0708);
            // The responder repeats any identifier.
            scene.peer.say(&about(asked, target).with("request_id", 0xdead_beef).octets);
            vector.with("original_id", 0xdead_beef)
        });
    }
    is_sent("atomic responses", |scene, _, vector| {
        let target = word(scene, 0x1001);
        let mut second = about("fetch add, marked", target);
        // Without its marker, and with its own message number and identifier.
        second.octets.drain(..4);
        let mut first = second.octets.clone();
        let second = &mut second.octets;
        (second[2 + 13], second[2 + 18 + 7]) = (2, 1);
        for request in [&mut first, second] {
            let end = request.len() - 4;
            let crc = crate::common::messages::crc(&request[..end]);
            request[end..].copy_from_slice(&crc);
            scene.peer.say(request);
        }
        vector
    });
}

/// RFC 7306 s1.1, s8.1, s8.2: the Terminates for errors in Atomic and Immediate messages. They show
/// the DDP header only.
#[test]
fn terminates_for_atomics_and_immediates() {
    is_sent("terminate misaligned", |scene, _, vector| {
        let target = word(scene, 0);
        let asked = about("fetch add", target);
        let to = asked.number("remote_to");
        scene.peer.say(&asked.with("remote_to", to + 4).octets);
        vector
    });
    is_sent("terminate atomic code", |scene, _, vector| {
        let target = word(scene, 0);
        scene.peer.say(&about("swap", target).octets);
        vector
    });
    is_answered("terminate atomic tag", &named("fetch add").octets);
    is_answered("terminate atomic not there", &named("fetch add").octets);
    is_answered("terminate atomic response", &named("atomic response").octets);
    let nine = [&named_ulpdu("immediate")[..], &[0]].concat();
    for (name, offender) in [
        ("terminate immediate not there", named("immediate").octets),
        ("terminate immediate long", fpdu(&nine)),
    ] {
        is_sent(name, |scene, qp, vector| {
            scene.node.ctx.post_recv(qp, &RecvWr::new(1, &[])).unwrap();
            scene.peer.say(&offender);
            vector
        });
    }
}
