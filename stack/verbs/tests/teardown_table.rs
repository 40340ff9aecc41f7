//! How connections end, as a table. The inputs are the cause and the state of the connection. The
//! results are the events in order, a completion for each request in the order of posting, and the
//! final state of the queue pair.
//!
//! Sources: RFC 5040 s5.4, s6.2, RFC 5041 s6.2, RFC 5044 s7.1.2; RDMAC verbs s6.2.4 for the
//! completions. `timeouts.rs` and `teardown_events.rs` test ends by timeout.

use crate::common;

use common::messages::{fpdu, reply, request, tagged, terminate};
use common::peer::{PEER, Scene};
use ironwarp::{
    CompletionStatus, ConnectFailure, ConnectParams, DisconnectReason, Event, MpaRevision, QpState,
    QueuePair, RecvWr, Region, RemoteMemory, STag, SendWr, Terminate,
};
use ironwarp_tcp::TcpEvents;

const OK: CompletionStatus = CompletionStatus::Success;
const FLUSHED: CompletionStatus = CompletionStatus::FlushedInError;
const LOCAL: CompletionStatus = CompletionStatus::LocalProtection;
/// A steering tag that is not registered.
const NOBODYS: STag = STag(0x1234_5678);
const RECEIVE: u64 = 1;
const READ: u64 = 2;
const SEND: u64 = 3;
const INVALIDATION: u64 = 4;

/// The state of the connection. A receive is posted in each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stands {
    /// The request is sent, a Read and a Send are posted, and no reply has arrived.
    Starting,
    /// Nothing is outstanding.
    Quiet,
    /// A Read has no response yet; the Send behind it is acknowledged.
    Reading,
    /// We have closed our direction.
    HalfClosed,
}

/// What ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Disconnect,
    Abort,
    OwnError,
    Fin,
    Reset,
    Terminate,
    Fault,
}

/// The events of our application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Fatal,
    Sent(u8, u8, u8),
    Heard(u8, u8, u8),
    Failed(ConnectFailure),
    Ended(DisconnectReason),
}

use DisconnectReason as Why;
use Stands::{HalfClosed, Quiet, Reading, Starting};
use Told::{Ended, Failed, Fatal, Heard, Sent};

type Row = (Stands, Cause, &'static [Told], &'static [(u64, CompletionStatus)]);

const UNDONE: &[(u64, CompletionStatus)] = &[(READ, FLUSHED), (SEND, FLUSHED), (RECEIVE, FLUSHED)];
const LEFT: &[(u64, CompletionStatus)] = &[(RECEIVE, FLUSHED)];
const BAD_TAG: Terminate = Terminate { layer: 1, etype: 1, code: 0 };

const TABLE: [Row; 24] = [
    (Starting, Cause::Disconnect, &[Failed(ConnectFailure::Closed)], UNDONE),
    (Starting, Cause::Abort, &[Failed(ConnectFailure::Closed)], UNDONE),
    (Starting, Cause::Fin, &[Failed(ConnectFailure::Closed)], UNDONE),
    (Starting, Cause::Reset, &[Failed(ConnectFailure::Closed)], UNDONE),
    (Starting, Cause::Fault, &[Failed(ConnectFailure::Protocol)], UNDONE),
    (Quiet, Cause::Disconnect, &[Ended(Why::Closed)], LEFT),
    (Quiet, Cause::Abort, &[Ended(Why::Aborted)], LEFT),
    (
        Quiet,
        Cause::OwnError,
        &[Fatal, Sent(0, 0, 0), Ended(Why::Terminated)],
        &[(INVALIDATION, LOCAL), (RECEIVE, FLUSHED)],
    ),
    (Quiet, Cause::Fin, &[Ended(Why::Closed)], LEFT),
    (Quiet, Cause::Reset, &[Ended(Why::Reset)], LEFT),
    (Quiet, Cause::Terminate, &[Heard(1, 2, 2), Ended(Why::Terminated)], LEFT),
    (Quiet, Cause::Fault, &[Sent(1, 1, 0), Ended(Why::Terminated)], LEFT),
    // A drain executes the posted work: the response to the Read arrives before our FIN.
    (Reading, Cause::Disconnect, &[Ended(Why::Closed)], &[(READ, OK), (SEND, OK), (RECEIVE, FLUSHED)]),
    (Reading, Cause::Abort, &[Ended(Why::Aborted)], UNDONE),
    (
        Reading,
        Cause::OwnError,
        &[Fatal, Sent(0, 0, 0), Ended(Why::Terminated)],
        &[(READ, FLUSHED), (SEND, FLUSHED), (INVALIDATION, LOCAL), (RECEIVE, FLUSHED)],
    ),
    (Reading, Cause::Fin, &[Ended(Why::Closed)], UNDONE),
    (Reading, Cause::Reset, &[Ended(Why::Reset)], UNDONE),
    (Reading, Cause::Terminate, &[Heard(1, 2, 2), Ended(Why::Terminated)], UNDONE),
    (Reading, Cause::Fault, &[Sent(1, 1, 0), Ended(Why::Terminated)], UNDONE),
    (HalfClosed, Cause::Abort, &[Ended(Why::Aborted)], LEFT),
    (HalfClosed, Cause::Fin, &[Ended(Why::Closed)], LEFT),
    (HalfClosed, Cause::Reset, &[Ended(Why::Reset)], LEFT),
    (HalfClosed, Cause::Terminate, &[Heard(1, 2, 2), Ended(Why::Terminated)], LEFT),
    // No Terminate follows a FIN.
    (HalfClosed, Cause::Fault, &[Ended(Why::LocalError(BAD_TAG))], LEFT),
];

/// A queue pair and the memory that its requests name.
struct Ours {
    qp: QueuePair,
    memory: Region,
}

fn reads_and_sends(scene: &mut Scene, ours: &Ours) {
    let remote = RemoteMemory { stag: STag(9), tagged_offset: 0 };
    let sink = [ours.memory.slice(0, 8).unwrap()];
    scene.node.ctx.post_send(ours.qp, &SendWr::read(READ, &sink, remote)).unwrap();
    scene.node.ctx.post_send(ours.qp, &SendWr::send_inline(SEND, b"behind it")).unwrap();
}

/// Brings the connection to the state of the row. Returns the Read Request if the peer received
/// one.
fn stands(scene: &mut Scene, stands: Stands) -> (Ours, Vec<u8>) {
    let ours = Ours { qp: scene.qp(), memory: scene.node.memory(&[0; 64]) };
    let scatter = [ours.memory.slice(8, 56).unwrap()];
    scene.node.ctx.post_recv(ours.qp, &RecvWr::new(RECEIVE, &scatter)).unwrap();
    let params = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
    scene.node.ctx.connect_with(ours.qp, PEER.parse().unwrap(), &params).unwrap();
    if stands == Starting {
        reads_and_sends(scene, &ours);
    }
    assert_eq!(scene.hear("the request", 20), request(0x40, 1, b""));
    let mut asked = Vec::new();
    if stands != Starting {
        scene.peer.say(&reply(0x40, 1, b""));
        scene.negotiated();
    }
    if stands == Reading {
        reads_and_sends(scene, &ours);
        asked = scene.segment("the Read Request");
        scene.segment("the Send");
        scene.turns(100);
    }
    if stands == HalfClosed {
        scene.node.ctx.disconnect(ours.qp).unwrap();
        scene.hears_fin();
    }
    (ours, asked)
}

/// Applies the cause, and the peer's reaction to it.
fn happens(scene: &mut Scene, cause: Cause, stands: Stands, ours: &Ours, asked: &[u8]) {
    match cause {
        Cause::Disconnect => scene.node.ctx.disconnect(ours.qp).unwrap(),
        Cause::Abort => scene.node.ctx.abort(ours.qp).unwrap(),
        Cause::OwnError => {
            let bad = SendWr::invalidate(INVALIDATION, NOBODYS);
            scene.node.ctx.post_send(ours.qp, &bad).unwrap();
        }
        Cause::Fin => scene.peer.close(),
        Cause::Reset => scene.peer.reset(),
        Cause::Terminate => scene.peer.say(&fpdu(&terminate(&[0x12, 2, 0, 0]))),
        Cause::Fault if stands == Starting => scene.peer.say(&request(0x40, 1, b"")),
        Cause::Fault => scene.peer.say(&fpdu(&tagged(0, NOBODYS.0, 0, b"x"))),
    }
    if cause == Cause::Disconnect && stands == Reading {
        scene.turns(200);
        assert!(!scene.peer.events.contains(TcpEvents::PEER_CLOSED), "FIN before the Read Response");
        let to = ours.memory.base_to();
        assert_eq!(asked[18..22], ours.memory.stag().0.to_be_bytes());
        scene.peer.say(&fpdu(&tagged(2, ours.memory.stag().0, to, b"answered")));
    }
    if cause != Cause::Reset {
        scene.until("our FIN or RST", |scene| {
            let ends = match cause {
                // RFC 5041 s6.2.2: an abortive end.
                Cause::Abort => TcpEvents::RESET,
                _ => TcpEvents::PEER_CLOSED.union(TcpEvents::ENDED),
            };
            scene.peer.has_said_all() && scene.peer.events.intersects(ends)
        });
        scene.peer.close();
    }
}

fn told(event: &Event) -> Option<Told> {
    Some(match event {
        Event::QueuePairFatal { .. } => Fatal,
        Event::Terminated { sent, terminate: Terminate { layer, etype, code }, .. } => {
            if *sent {
                Sent(*layer, *etype, *code)
            } else {
                Heard(*layer, *etype, *code)
            }
        }
        Event::ConnectFailed { reason, .. } => Failed(*reason),
        Event::Disconnected { reason, .. } => Ended(*reason),
        other => panic!("{other:?}"),
    })
}

/// semantics "Sending", "Terminate": one final event, last of all, after every request has its
/// completion.
#[test]
fn every_teardown_raises_the_events_of_the_table() {
    for (stand, cause, events, completions) in TABLE {
        let row = format!("{stand:?}, {cause:?}");
        let mut scene = Scene::new(|_| {});
        let (ours, asked) = stands(&mut scene, stand);
        happens(&mut scene, cause, stand, &ours, &asked);
        let is_last = |event: &Event| matches!(told(event), Some(Failed(_) | Ended(_)));
        scene.until(&row, |scene| scene.node.events.iter().any(is_last));
        let done: Vec<_> = scene.node.completions.iter().map(|one| (one.wr_id, one.status)).collect();
        assert_eq!(done, completions, "{row}");
        scene.turns(300);
        assert_eq!(scene.node.events.iter().filter_map(told).collect::<Vec<_>>(), events, "{row}");
        assert_eq!(scene.node.completions.len(), completions.len(), "{row}: nothing follows");
        let left = scene.node.ctx.query_qp(ours.qp).unwrap();
        assert_eq!((left.state, left.sends_outstanding, left.receives_outstanding), (QpState::Error, 0, 0));
        assert_eq!(scene.node.worker.resource_usage().connections, 0, "{row}");
    }
}
