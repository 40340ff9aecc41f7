//! A peer over a link without loss: it sends in order, acknowledges everything and never resends.

use ironwarp_testkit::{ACK, Conn, Route, SYN, Segment};

use crate::Node;
use crate::node::PORT;

/// One connection to the node.
pub struct Peer(pub Conn);

/// From the peer, host 2, to the node, host 1.
pub fn route(v6: bool) -> Route {
    if v6 { Route::v6(2, 1) } else { Route::v4(2, 1) }
}

impl Peer {
    /// Connects to the node and returns the connection, open unless the node refused it.
    pub fn connect(node: &mut Node, v6: bool, local: u16) -> Self {
        // Makes the peer's link address known to the node.
        let route = route(v6);
        node.inject(&Route::v4(2, 1).arp(1, route.macs[0]));
        node.collect();
        let (conn, syn) = Conn::open(route, [local, PORT], 0x1000);
        node.inject(&syn);
        let mut peer = Peer(conn);
        peer.turn(node);
        peer
    }

    /// Accepts a connection that the node opens to the peer.
    pub fn accept(node: &mut Node) -> Option<Self> {
        let mut sent = node.collect().into_iter().filter_map(|frame| Segment::read(&frame));
        let (route, syn) = sent.find(|(_, sent)| sent.has(SYN))?;
        let (conn, answer) = Conn::accept(route, &syn, 0x2000);
        node.inject(&answer);
        let mut peer = Peer(conn);
        peer.turn(node);
        Some(peer)
    }

    /// A segment without flags and payload at the expected sequence numbers.
    pub fn segment(&self) -> Segment {
        Segment { flags: 0, ack: self.0.rcv_nxt, ..self.0.at(self.0.snd_nxt(), ACK) }
    }

    pub fn inject(&self, node: &mut Node, segment: &Segment) {
        node.inject(&self.0.frame(segment));
    }

    /// Takes what the node sent and acknowledges it until the node sends nothing more.
    pub fn turn(&mut self, node: &mut Node) {
        for _ in 0..64 {
            let frames = node.collect();
            if frames.is_empty() {
                break;
            }
            let mut out = Vec::new();
            let arrived = frames.iter().filter_map(|frame| Segment::read(frame));
            for (_, segment) in arrived.filter(|arrived| self.0.owns(arrived)).collect::<Vec<_>>() {
                self.0.on_segment(&segment, &mut out);
            }
            out.iter().for_each(|frame| node.inject(frame));
        }
    }

    /// Sends bytes of the stream in order.
    pub fn send(&mut self, node: &mut Node, bytes: &[u8]) {
        let mut out = Vec::new();
        self.0.send(bytes, &mut out);
        out.iter().for_each(|frame| node.inject(frame));
        self.turn(node);
    }
}

#[cfg(test)]
mod tests {
    use ironwarp_testkit::{ConnState, mpa, rdmap};

    use super::*;

    /// The targets reach an established stream; without this they would fuzz little.
    #[test]
    fn a_peer_sets_up_a_stream_and_its_message_arrives() {
        for v6 in [false, true] {
            let mut node = Node::new(|_| ());
            let mut peer = Peer::connect(&mut node, v6, 2000);
            assert_eq!(peer.0.state, ConnState::Open);
            peer.send(&mut node, &mpa::request(mpa::CRC, 1, &[]));
            assert!(matches!(mpa::read_reply(&peer.0.heard), Some(Ok(_))), "{:?}", peer.0.heard);
            peer.send(&mut node, &mpa::fpdu(&rdmap::send(1, b"hi", None)));
            assert_eq!(node.established.len(), 1);
            assert_eq!(node.completions.len(), 1, "{:?}", node.completions);
            node.finish();
        }
    }

    #[test]
    fn a_node_connects_to_a_peer() {
        let mut node = Node::new(|_| ());
        Peer::connect(&mut node, false, 1999);
        let qp = node.create_qp().expect("room");
        node.ctx.connect(qp, ([10, 0, 0, 2], 4791).into(), b"").expect("room");
        node.run();
        let peer = Peer::accept(&mut node).expect("a SYN");
        assert!(peer.0.heard.starts_with(b"MPA ID Req Frame"), "{:?}", peer.0.heard);
        node.finish();
    }
}
