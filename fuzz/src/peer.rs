//! A peer that speaks just enough TCP over a link without loss: it sends in order, acknowledges everything and never
//! resends.

use crate::Node;
use crate::node::PORT;
use crate::packet::{ACK, FIN, RST, SYN, Segment};

/// The largest payload of a segment that the peer sends.
const SEGMENT_BYTES: usize = 1400;

/// One connection.
pub struct Peer {
    pub v6: bool,
    pub local: u16,
    pub remote: u16,
    /// The next sequence number of each direction.
    pub seq: u32,
    pub ack: u32,
    /// The peer answers the node's segments.
    pub acknowledges: bool,
    pub open: bool,
    pub heard: Vec<u8>,
}

impl Peer {
    /// Connects to the node and returns the connection, open unless the node refused it.
    pub fn connect(node: &mut Node, v6: bool, local: u16) -> Self {
        let mut peer = Peer {
            v6,
            local,
            remote: PORT,
            seq: 0x1000,
            ack: 0,
            acknowledges: true,
            open: false,
            heard: Vec::new(),
        };
        peer.introduce(node);
        // MSS, window scale, SACK permitted.
        let options = vec![2, 4, 0x05, 0x78, 1, 3, 3, 7, 4, 2, 1, 1];
        node.inject(&Segment { flags: SYN, options, ..peer.segment() }.frame(v6));
        peer.seq = peer.seq.wrapping_add(1);
        peer.turn(node);
        peer
    }

    /// Accepts a connection that the node opens to the peer.
    pub fn accept(node: &mut Node) -> Option<Self> {
        let syn = node
            .collect()
            .iter()
            .filter_map(|frame| Segment::read(frame))
            .find(|(_, got)| got.flags & SYN != 0);
        let (v6, syn) = syn?;
        let mut peer = Peer {
            v6,
            local: syn.dst,
            remote: syn.src,
            seq: 0x2000,
            ack: syn.seq.wrapping_add(1),
            acknowledges: true,
            open: true,
            heard: Vec::new(),
        };
        node.inject(&Segment { flags: SYN | ACK, ..peer.segment() }.frame(v6));
        peer.seq = peer.seq.wrapping_add(1);
        peer.turn(node);
        Some(peer)
    }

    /// Makes the peer's link address known to the node.
    pub fn introduce(&self, node: &mut Node) {
        use crate::packet::{NODE_V4, PEER_MAC, PEER_V4, ethernet};
        let request = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &PEER_MAC, &PEER_V4, &[0; 6], &NODE_V4].concat();
        node.inject(&ethernet(0x0806, &request));
        node.collect();
    }

    /// A segment without flags and payload at the expected sequence numbers.
    pub fn segment(&self) -> Segment {
        Segment {
            src: self.local,
            dst: self.remote,
            seq: self.seq,
            ack: self.ack,
            window: 0xffff,
            ..Segment::default()
        }
    }

    /// Takes what the node sent and acknowledges it until the node sends nothing more.
    pub fn turn(&mut self, node: &mut Node) {
        for _ in 0..64 {
            let frames = node.collect();
            if frames.is_empty() {
                break;
            }
            let mut owes = false;
            for (v6, got) in frames.iter().filter_map(|frame| Segment::read(frame)) {
                if (v6, got.src, got.dst) == (self.v6, self.remote, self.local) {
                    owes |= self.on_segment(&got);
                }
            }
            if owes && self.acknowledges {
                node.inject(&Segment { flags: ACK, ..self.segment() }.frame(self.v6));
            }
        }
    }

    /// Returns whether the segment is to be acknowledged.
    fn on_segment(&mut self, got: &Segment) -> bool {
        if got.flags & RST != 0 {
            self.open = false;
            return false;
        }
        if got.flags & SYN != 0 {
            self.open = true;
            self.ack = got.seq.wrapping_add(1);
            return true;
        }
        let takes = got.payload.len() as u32 + u32::from(got.flags & FIN != 0);
        if got.seq == self.ack {
            self.ack = self.ack.wrapping_add(takes);
            self.heard.extend(&got.payload);
        }
        takes > 0
    }

    /// Sends bytes of the stream in order.
    pub fn send(&mut self, node: &mut Node, bytes: &[u8]) {
        for payload in bytes.chunks(SEGMENT_BYTES) {
            let segment = Segment { flags: ACK, payload: payload.to_vec(), ..self.segment() };
            node.inject(&segment.frame(self.v6));
            self.seq = self.seq.wrapping_add(payload.len() as u32);
        }
        self.turn(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet;

    /// The targets reach an established stream; without this they would fuzz little.
    #[test]
    fn a_peer_sets_up_a_stream_and_its_message_arrives() {
        for v6 in [false, true] {
            let mut node = Node::new(|_| ());
            let mut peer = Peer::connect(&mut node, v6, 2000);
            assert!(peer.open);
            peer.send(&mut node, &packet::startup(true, 0x40, 1, &[]));
            assert!(peer.heard.starts_with(b"MPA ID Rep Frame"), "{:?}", peer.heard);
            let send = [&[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0][..], b"hi"].concat();
            peer.send(&mut node, &packet::fpdu(&send));
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
        assert!(peer.heard.starts_with(b"MPA ID Req Frame"), "{:?}", peer.heard);
        node.finish();
    }
}
