//! The messages of a fake peer above TCP, and the steps of a connection with it.

use ironwarp::{
    CompletionStatus, ConnectParams, ConnectionRequest, DisconnectReason, Event, MpaRevision,
    NegotiatedParams, QpAttr, QueuePair, RecvWr, Region, Terminate,
};

pub use ironwarp_testkit::mpa::{crc, fpdu, reply, request, ulpdu};
pub use ironwarp_testkit::rdmap::{
    atomic_request, atomic_response, immediate, read_request, tagged, terminate, untagged,
};

use super::peer::{PEER, Scene};

/// The address on which our node listens for a fake peer.
pub const NODE: &str = "10.0.0.1:4791";

/// The key at the start of a start-up frame.
pub const KEY: usize = 16;

/// The request that our initiator sends by default: CRC, revision 2, peer to peer, every
/// indication, 16 Reads each way.
pub const REQUEST: [u8; 24] = *b"MPA ID Req Frame\x50\x02\x00\x04\xc0\x10\xc0\x10";

/// The enhanced data of a responder of revision 2 that accepts an indication by Write, with 16
/// Reads each way.
pub const TAKES_WRITES: [u8; 4] = [0x80, 16, 0x80, 16];

/// The segment of an RDMA Write of no octets to steering tag 1.
pub const EMPTY_WRITE: [u8; 14] = [0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The segment of an RDMA Read of no octets from steering tag 1 to steering tag 1, the first of its
/// stream.
pub const EMPTY_READ: [u8; 46] = {
    let mut ulpdu = [0; 46];
    (ulpdu[0], ulpdu[1], ulpdu[9], ulpdu[13]) = (0x41, 0x41, 1, 1);
    (ulpdu[21], ulpdu[37]) = (1, 1);
    ulpdu
};

/// The segment of a whole Send.
pub fn send(msn: u8, payload: &[u8]) -> Vec<u8> {
    untagged(3, 0, msn.into(), 0, payload)
}

/// The segment of a FetchAdd of `add` without fields.
pub fn fetch_add(msn: u32, word: (u32, u64), add: u64) -> Vec<u8> {
    atomic_request(msn, 0x1d, 0, word, [add, 0, 0, u64::MAX])
}

/// Returns the steering tag and tagged offset of a region's first byte.
pub fn place(region: &Region) -> (u32, u64) {
    (region.stag().0, region.base_to())
}

impl Scene {
    pub fn qp(&mut self) -> QueuePair {
        let attr = QpAttr::new(self.node.cq);
        self.node.ctx.create_qp(self.node.pd, &attr).unwrap()
    }

    /// Connects a queue pair, with a receive of 64 bytes, to the peer. Returns the request too.
    pub fn calls(&mut self, bytes: usize) -> (QueuePair, Region, Vec<u8>) {
        let (qp, inbox) = (self.qp(), self.node.memory(&[0; 64]));
        self.node.ctx.post_recv(qp, &RecvWr::new(1, &[inbox.slice(0, 64).unwrap()])).unwrap();
        self.node.ctx.connect(qp, PEER.parse().unwrap(), b"").unwrap();
        let heard = self.hear("the request", bytes);
        (qp, inbox, heard)
    }

    pub fn negotiated(&mut self) -> NegotiatedParams {
        self.event("established", |event| match event {
            Event::Established { negotiated, .. } => Some(*negotiated),
            _ => None,
        })
    }

    /// The peer connects and sends `octets`. Returns the connection request and its private data.
    pub fn is_asked(&mut self, octets: &[u8]) -> (ConnectionRequest, Vec<u8>) {
        let _ = self.node.ctx.listen(NODE.parse().unwrap());
        self.turn();
        self.node.events.retain(|event| !matches!(event, Event::ListenFailed { .. }));
        self.peer.connect(NODE);
        self.peer.say(octets);
        let is_request = |event: &Event| matches!(event, Event::ConnectRequest { .. });
        self.until("the request", |scene| scene.node.events.iter().any(is_request));
        let at = self.node.events.iter().position(is_request).unwrap();
        match self.node.events.remove(at) {
            Event::ConnectRequest { request, private_data, .. } => (request, private_data.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// The peer connects and our application accepts. Returns the reply too.
    pub fn answers(&mut self, octets: &[u8], bytes: usize) -> (QueuePair, Region, Vec<u8>) {
        let (request, _) = self.is_asked(octets);
        let (qp, inbox) = (self.qp(), self.node.memory(&[0; 64]));
        self.node.ctx.post_recv(qp, &RecvWr::new(1, &[inbox.slice(0, 64).unwrap()])).unwrap();
        self.node.ctx.accept(request, qp, b"").unwrap();
        let heard = self.hear("the reply", bytes);
        (qp, inbox, heard)
    }

    pub fn received(&mut self, inbox: &Region, want: &[u8]) {
        self.until("the message", |scene| !scene.node.completions.is_empty());
        assert_eq!(self.node.completions[0].status, CompletionStatus::Success);
        assert_eq!(super::contents(inbox)[..want.len()], *want);
    }

    /// Removes and returns the next segment that the peer receives.
    #[track_caller]
    pub fn segment(&mut self, what: &str) -> Vec<u8> {
        self.until(what, |scene| ulpdu(&scene.peer.heard).is_some());
        let (segment, whole) = ulpdu(&self.peer.heard).unwrap();
        self.peer.heard.drain(..whole);
        segment
    }

    /// A connection in revision 1 that the node requested, with a receive of 64 bytes.
    pub fn called(&mut self) -> (QueuePair, Region) {
        let (qp, inbox) = (self.qp(), self.node.memory(&[0; 64]));
        self.node.ctx.post_recv(qp, &RecvWr::new(1, &[inbox.slice(0, 64).unwrap()])).unwrap();
        let params = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
        self.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
        self.hear("the request", 20);
        self.peer.say(&reply(0x40, 1, b""));
        self.negotiated();
        (qp, inbox)
    }

    /// Waits for the end of the connection and returns its reason.
    pub fn disconnected(&mut self) -> DisconnectReason {
        self.event("the end", |event| match event {
            Event::Disconnected { reason, .. } => Some(*reason),
            _ => None,
        })
    }

    /// Waits until the peer receives our FIN.
    #[track_caller]
    pub fn hears_fin(&mut self) {
        self.until("FIN", |scene| scene.peer.events.contains(ironwarp_tcp::TcpEvents::PEER_CLOSED));
    }

    /// Returns the Terminate, and true if our side sent it.
    pub fn terminated(&mut self) -> (bool, Terminate) {
        self.event("the Terminate", |event| match event {
            Event::Terminated { sent, terminate, .. } => Some((*sent, *terminate)),
            _ => None,
        })
    }
}
