//! The parameters that start-up negotiates, in combination (RFC 5044 s4.3, s4.4, s7.1,
//! RFC 6581 s9): read depths, indications, markers and CRCs.

use crate::common;

use common::messages::{reply, request};
use common::peer::Scene;
use common::{Pair, config, contents, pattern};
use ironwarp::memory::MemoryConfig;
use ironwarp::{
    AcceptParams, CompletionStatus, ConnectParams, Event, QpAttr, QueuePair, ReadDepths, RejectParams,
    RemoteMemory, RtrKinds, SendWr,
};

/// Whether both sides ask for markers, and whether both ask for CRCs.
const FRAMINGS: [(bool, bool); 4] = [(false, true), (false, false), (true, true), (true, false)];
const DEPTHS: [(u16, u16); 4] = [(16, 16), (2, 5), (1, 1), (5, 2)];
const KINDS: [RtrKinds; 3] = [RtrKinds::SEND, RtrKinds::WRITE, RtrKinds::READ];
const BYTES: usize = 3000;

fn depths(ird: u16, ord: u16) -> ReadDepths {
    ReadDepths { ird, ord }
}

/// Tests one combination: the indication, the framing that both sides request, and the read depths
/// of each side.
fn combination(kind: RtrKinds, (markers, crc): (bool, bool), ours: ReadDepths, theirs: ReadDepths) {
    let name = format!("{kind:?}, markers {markers}, CRC {crc}, {ours:?}, {theirs:?}");
    let mut pair = Pair::over(&MemoryConfig::default(), |address| {
        let mut config = config(address);
        (config.mpa.markers, config.mpa.crc) = (markers, crc);
        config
    });
    let near = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
    let far = pair.far.ctx.create_qp(pair.far.pd, &QpAttr::new(pair.far.cq)).unwrap();
    pair.far.ctx.listen(pair.at).unwrap();
    pair.far.turn();
    let connect = ConnectParams { reads: Some(ours), rtr: Some(kind), ..Default::default() };
    pair.near.ctx.connect_with(near, pair.at, &connect).unwrap();
    pair.until("the request", |pair| !pair.far.events.is_empty());
    let Event::ConnectRequest { request, mpa_request, .. } = pair.far.events.remove(0) else {
        panic!("{name}")
    };
    assert_eq!((mpa_request.peer_reads, mpa_request.peer_to_peer), (Some(ours), true), "{name}");
    let accept = AcceptParams { reads: Some(theirs), ..Default::default() };
    pair.far.ctx.accept_with(request, far, &accept).unwrap();
    pair.until(&name, |pair| pair.near.is_established(near) && pair.far.is_established(far));
    settles(&pair, [near, far], [ours, theirs], &name);
    assert_eq!((pair.near.counter("iwarp_tx_rtrs"), pair.far.counter("iwarp_rx_rtrs")), (1, 1), "{name}");
    assert_eq!(pair.near.counter("iwarp_streams_with_markers"), markers.into(), "{name}");
    // The responder may send first. Each side may have as many Reads outstanding as was negotiated,
    // and no more.
    reads(&mut pair, far, false, &name);
    reads(&mut pair, near, true, &name);
}

/// RFC 6581 s9.1: neither side has more Reads outstanding than the other side accepts.
fn settles(pair: &Pair, [near, far]: [QueuePair; 2], [ours, theirs]: [ReadDepths; 2], name: &str) {
    let near = pair.near.ctx.qp_negotiated(near).unwrap().unwrap();
    let far = pair.far.ctx.qp_negotiated(far).unwrap().unwrap();
    let from_near = ours.ord.min(theirs.ird);
    let from_far = theirs.ord.min(ours.ird);
    assert_eq!(near.reads, depths(ours.ird, from_near), "{name}");
    assert_eq!(far.reads, depths(theirs.ird, from_far), "{name}");
    assert_eq!((near.peer_reads, far.peer_reads), (Some(depths(theirs.ird, from_far)), Some(ours)), "{name}");
}

/// Posts twenty Reads at once, more than any depth. All of them complete.
fn reads(pair: &mut Pair, qp: QueuePair, from_near: bool, name: &str) {
    let (home, away) = if from_near { (&mut pair.near, &pair.far) } else { (&mut pair.far, &pair.near) };
    let (source, sink) = (away.memory(&pattern(BYTES, 7)), home.memory(&[0; BYTES]));
    let remote = RemoteMemory { stag: source.stag(), tagged_offset: source.base_to() };
    let into = [sink.slice(0, BYTES as u32).unwrap()];
    (0..20).for_each(|id| home.ctx.post_send(qp, &SendWr::read(id, &into, remote)).unwrap());
    pair.until(name, |pair| {
        let home = if from_near { &pair.near } else { &pair.far };
        home.completions.len() == 20
    });
    let home = if from_near { &mut pair.near } else { &mut pair.far };
    let done: Vec<_> = home.completions.drain(..).map(|one| (one.wr_id, one.status)).collect();
    assert!(done.into_iter().eq((0..20).map(|id| (id, CompletionStatus::Success))), "{name}");
    assert_eq!(contents(&sink), pattern(BYTES, 7), "{name}");
}

/// RFC 6581 s9.1, s9.2 and RFC 5044 s4.3, s4.4: each negotiated parameter in combination with each
/// of the others.
#[test]
fn read_depths_and_rtr_together() {
    for kind in KINDS {
        for framing in FRAMINGS {
            for (ours, theirs) in DEPTHS.into_iter().zip(DEPTHS.into_iter().rev()) {
                combination(kind, framing, depths(ours.0, ours.1), depths(theirs.0, theirs.1));
            }
        }
    }
}

/// RFC6581-9.1-08, RFC6581-9.3-02: a responder cannot send a Terminate before the first FPDU
/// arrives (RFC 5044 s7.1.2). If the peer's IRD is below our ORD, s9.1 gives a responder two
/// choices. It adopts the peer's number, or it rejects and names its own. The Terminate with code 6
/// is for the initiator.
#[test]
fn a_responder_with_too_small_ird_adopts_the_peers_ord_or_rejects() {
    // The peer has an IRD of 2 and an ORD of 4.
    let asks = request(0x50, 2, &[0x80, 2, 0x80, 4]);
    let mut scene = Scene::new(|_| {});
    let (.., heard) = scene.answers(&asks, 24);
    assert_eq!(heard, reply(0x50, 2, &[0x80, 16, 0x80, 2]), "our ORD is the peer's IRD");
    let mut scene = Scene::new(|_| {});
    let (asked, _) = scene.is_asked(&asks);
    let params = RejectParams { reads: Some(depths(0, 8)), ..RejectParams::default() };
    scene.node.ctx.reject_with(asked, &params).unwrap();
    let heard = scene.hear("the refusal", 24);
    assert_eq!(heard, reply(0x70, 2, &[0x80, 0, 0x80, 8]), "the reject names our read depths");
    scene.hears_fin();
    assert!(scene.peer.heard.is_empty(), "a Terminate before the first FPDU");
    assert_eq!(scene.node.counter("iwarp_tx_terminates"), 0);
    let rejected = ["verbs_requests_rejected", "verbs_backlog_rejects"].map(|name| scene.node.counter(name));
    assert_eq!(rejected, [1, 0]);
}

/// RFC 5044 s7.1.1: a Reply Frame with the bit R. The peer gets the same one whatever the reason;
/// the counters differ.
#[test]
fn a_request_that_finds_the_backlog_full_is_counted_apart() {
    let mut scene = Scene::new(|_| {});
    let (asked, _) = scene.is_asked(&request(0x50, 2, &[0x80, 2, 0x80, 4]));
    let params = RejectParams { reads: Some(depths(0, 8)), is_backlog_full: true, ..RejectParams::default() };
    scene.node.ctx.reject_with(&asked, &params).unwrap();
    // A second answer has no effect, and counts nothing.
    scene.node.ctx.reject_with(&asked, &params).unwrap();
    assert_eq!(scene.hear("the refusal", 24), reply(0x70, 2, &[0x80, 0, 0x80, 8]));
    scene.hears_fin();
    let rejected = ["verbs_requests_rejected", "verbs_backlog_rejects"].map(|name| scene.node.counter(name));
    assert_eq!(rejected, [1, 1]);
}
