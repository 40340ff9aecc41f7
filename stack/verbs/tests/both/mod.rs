//! Stacks with both transports: a connect or listen names one of them.

mod sctp;
mod tcp;

use ironwarp::config::{TransportKind, Transports};
use ironwarp::{
    CompletionStatus, ConnectFailure, ConnectParams, Event, ListenParams, QpAttr, QueuePair, RecvWr, Region,
    RemoteMemory, SendWr, VerbsError,
};

use crate::common::{Node, Pair, contents, pattern};
use crate::sctp::common::joined_over;

const KINDS: [TransportKind; 2] = [TransportKind::Tcp, TransportKind::Sctp];

fn joined(first: TransportKind) -> Pair {
    joined_over(Transports::both(first), crate::common::config)
}

/// A connection over one transport, and the memory of its two ends.
struct Link {
    kind: TransportKind,
    near: QueuePair,
    far: QueuePair,
    source: Region,
    target: Region,
    inbox: Region,
}

const BYTES: usize = 100_000;

impl Link {
    fn new(pair: &mut Pair, kind: TransportKind) -> Self {
        let (near_attr, far_attr) = (QpAttr::new(pair.near.cq), QpAttr::new(pair.far.cq));
        let (near, far) = pair.connect_over(Some(kind), &near_attr, &far_attr);
        let seed = if kind == TransportKind::Tcp { 1 } else { 2 };
        Link {
            kind,
            near,
            far,
            source: pair.near.memory(&pattern(BYTES, seed)),
            target: pair.far.memory(&[0; BYTES]),
            inbox: pair.far.memory(&[0; 64]),
        }
    }

    /// Posts a Write of all bytes, and a Send behind it.
    fn post(&self, pair: &mut Pair) {
        self.target.write_at(0, &[0; BYTES]).unwrap();
        let remote = RemoteMemory { stag: self.target.stag(), tagged_offset: self.target.base_to() };
        let all = [self.source.slice(0, BYTES as u32).unwrap()];
        let text = self.kind.to_string();
        pair.far.ctx.post_recv(self.far, &RecvWr::new(1, &[self.inbox.slice(0, 64).unwrap()])).unwrap();
        pair.near.ctx.post_send(self.near, &SendWr::write(2, &all, remote)).unwrap();
        pair.near.ctx.post_send(self.near, &SendWr::send_inline(3, text.as_bytes())).unwrap();
    }

    fn is_received(&self, node: &Node) -> bool {
        node.completions.iter().any(|one| one.qp == self.far.num() && one.status == CompletionStatus::Success)
    }

    fn check(&self) {
        assert!(contents(&self.target) == contents(&self.source), "{}", self.kind);
        assert!(contents(&self.inbox).starts_with(self.kind.to_string().as_bytes()), "{}", self.kind);
    }
}

/// Bytes move over all links at the same time, and are right.
fn exchange(pair: &mut Pair, links: &[&Link]) {
    pair.far.completions.clear();
    links.iter().for_each(|link| link.post(pair));
    pair.until("the messages of all", |pair| links.iter().all(|link| link.is_received(&pair.far)));
    links.iter().for_each(|link| link.check());
    pair.near.worker.check().expect("consistent");
    pair.far.worker.check().expect("consistent");
}

/// One port number, two connections, and each says what it is over.
#[test]
fn connections_over_both_transports_run_beside_each_other() {
    let mut pair = joined(TransportKind::Tcp);
    let [tcp, sctp] = KINDS.map(|kind| Link::new(&mut pair, kind));
    for link in [&tcp, &sctp] {
        for (node, qp) in [(&mut pair.near, link.near), (&mut pair.far, link.far)] {
            let framing = node.ctx.query_qp(qp).unwrap().framing.expect("a connection");
            assert_eq!(framing.transport, link.kind);
        }
    }
    for _ in 0..3 {
        exchange(&mut pair, &[&tcp, &sctp]);
    }
    for counter in ["tcp_rx_segments", "sctp_rx_packets"] {
        assert!(pair.far.counter(counter) > 100, "{counter}");
    }
}

/// Each ends alone, in order and by a reset.
#[test]
fn the_end_of_one_connection_leaves_that_over_the_other_transport() {
    for [ending, staying] in [KINDS, [KINDS[1], KINDS[0]]] {
        for in_order in [true, false] {
            let mut pair = joined(staying);
            let (first, second) = (Link::new(&mut pair, ending), Link::new(&mut pair, staying));
            exchange(&mut pair, &[&first, &second]);
            match in_order {
                true => pair.near.ctx.disconnect(first.near).unwrap(),
                false => pair.near.ctx.abort(first.near).unwrap(),
            }
            pair.until("the end of the first", |pair| {
                pair.near.is_disconnected(first.near) && pair.far.is_disconnected(first.far)
            });
            exchange(&mut pair, &[&second]);
            assert!(!pair.near.is_disconnected(second.near) && !pair.far.is_disconnected(second.far));
        }
    }
}

/// A peer that is gone ends connections over both.
#[test]
fn the_end_of_the_peer_ends_both() {
    let mut pair = joined(TransportKind::Sctp);
    let links = KINDS.map(|kind| Link::new(&mut pair, kind));
    pair.far.restart();
    pair.until("the end of both", |pair| links.iter().all(|link| pair.near.is_disconnected(link.near)));
}

/// A connect or listen without a transport takes the first of the configuration.
#[test]
fn the_first_transport_is_the_default() {
    for kind in KINDS {
        let mut pair = joined(kind);
        let (near, far) = pair.connect();
        for (node, qp) in [(&mut pair.near, near), (&mut pair.far, far)] {
            assert_eq!(node.ctx.query_qp(qp).unwrap().framing.map(|framing| framing.transport), Some(kind));
        }
    }
}

/// An address in use is reported with its transport, and the end of one listener leaves the other.
#[test]
fn listeners_of_both_have_one_port() {
    let mut pair = joined(TransportKind::Tcp);
    let over = |transport| ListenParams { transport: Some(transport) };
    for kind in KINDS {
        pair.far.ctx.listen_with(pair.at, &over(kind)).unwrap();
    }
    pair.far.turn();
    assert!(pair.far.events.is_empty(), "{:?}", pair.far.events);
    pair.far.ctx.listen_with(pair.at, &over(TransportKind::Sctp)).unwrap();
    pair.until("the refusal", |pair| !pair.far.events.is_empty());
    assert!(
        matches!(pair.far.events[..], [Event::ListenFailed { local, transport: TransportKind::Sctp }] if local == pair.at)
    );
    pair.far.events.clear();

    pair.far.ctx.unlisten_with(pair.at, &over(TransportKind::Tcp)).unwrap();
    pair.far.turn();
    let [refused, asked] = KINDS.map(|kind| {
        let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
        let params = ConnectParams { transport: Some(kind), ..ConnectParams::default() };
        pair.near.ctx.connect_with(qp, pair.at, &params).unwrap();
        qp
    });
    pair.until("both outcomes", |pair| !pair.near.events.is_empty() && !pair.far.events.is_empty());
    assert!(
        matches!(pair.near.events[..], [Event::ConnectFailed { qp, reason: ConnectFailure::Refused }] if qp == refused),
        "{asked:?}"
    );
    let Event::ConnectRequest { mpa_request, .. } = &pair.far.events[0] else {
        panic!("{:?}", pair.far.events)
    };
    assert_eq!(mpa_request.transport, TransportKind::Sctp);
}

/// A stack with one transport says so at once.
#[test]
fn a_transport_that_the_stack_has_not_got_is_refused() {
    for [only, other] in [KINDS, [KINDS[1], KINDS[0]]] {
        let mut pair = joined_over(only.into(), crate::common::config);
        let (node, at, transport) = (&mut pair.near, pair.at, Some(other));
        let qp = node.ctx.create_qp(node.pd, &QpAttr::new(node.cq)).unwrap();
        let params = ConnectParams { transport, ..ConnectParams::default() };
        let listen = ListenParams { transport };
        let errors = [
            node.ctx.connect_with(qp, at, &params).unwrap_err(),
            node.ctx.listen_with(at, &listen).unwrap_err(),
            node.ctx.unlisten_with(at, &listen).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, VerbsError::NoTransport(kind) if kind == other), "{error}");
            assert_eq!(error.to_string(), format!("the stack has no {other}; add it to stack.transport"));
        }
        let params = ConnectParams { transport: Some(only), ..ConnectParams::default() };
        node.ctx.connect_with(qp, at, &params).expect("the queue pair is unused");
    }
}
