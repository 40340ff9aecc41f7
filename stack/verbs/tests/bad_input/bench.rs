//! A node with a bystander, which is a connection between two of its own queue pairs, and with
//! victims. A victim is a connection to a fake peer that sends invalid input.

use ironwarp::{
    Access, CompletionStatus, Config, ConnectParams, DisconnectReason, Event, MpaRevision, QpAttr, QueuePair,
    RecvWr, Region, RemoteMemory, SendWr, Terminate,
};

use crate::bad_input::codes;
use crate::common::contents;
use crate::common::messages::{NODE, fpdu, reply, request};
use crate::common::peer::{PEER, Scene};

/// Octets of a victim's buffer, which the peer may write and read; below it, octets of each of its
/// two receives.
pub const BUFFER: usize = 4096;
pub const RECEIVE: usize = 64;
/// The receives of a victim.
pub const RECEIVES: usize = 2;

pub struct Bench {
    pub scene: Scene,
    bystander: QueuePair,
    /// The memory that the bystander writes repeatedly.
    note: Region,
    written: u8,
    /// The IRD of the victims.
    pub ird: u16,
    flags: u8,
}

/// A connection to the peer, with a buffer and receives that must stay unchanged.
pub struct Victim {
    pub qp: QueuePair,
    pub buffer: Region,
    pub inbox: Region,
}

/// Which side connects the victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begins {
    Node,
    Peer,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut flags = 0;
        let mut scene = Scene::new(|config| {
            change(config);
            flags = u8::from(config.mpa.crc) << 6;
        });
        let note = scene.node.memory(&[0; 1]);
        let bystander = connected_to_itself(&mut scene);
        Bench { scene, bystander, note, written: 0, ird: 4, flags }
    }

    /// A connection in revision 1.
    #[track_caller]
    pub fn victim(&mut self, begins: Begins) -> Victim {
        let scene = &mut self.scene;
        let attr = QpAttr { ird: self.ird, ..QpAttr::new(scene.node.cq) };
        let qp = scene.node.ctx.create_qp(scene.node.pd, &attr).unwrap();
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let buffer = scene.node.ctx.register(scene.node.pd, vec![0xb0; BUFFER], all).unwrap();
        let inbox = scene.node.memory(&[0x1b; RECEIVE]);
        let scatter = [inbox.slice(0, RECEIVE as u32).unwrap()];
        for wr_id in 0..RECEIVES as u64 {
            scene.node.ctx.post_recv(qp, &RecvWr::new(wr_id, &scatter)).unwrap();
        }
        match begins {
            Begins::Peer => {
                let (asked, _) = scene.is_asked(&request(self.flags, 1, b""));
                scene.node.ctx.accept(asked, qp, b"").unwrap();
                scene.hear("the reply", 20);
            }
            Begins::Node => {
                let params = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
                scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
                scene.hear("the request", 20);
                scene.peer.say(&reply(self.flags, 1, b""));
            }
        }
        scene.negotiated();
        Victim { qp, buffer, inbox }
    }

    /// The peer sends `segments`, each in an FPDU, all in one TCP segment.
    pub fn says(&mut self, segments: &[Vec<u8>]) {
        let octets: Vec<u8> = segments.iter().flat_map(|segment| fpdu(segment)).collect();
        self.scene.peer.say(&octets);
    }

    /// Runs one bad segment on a fresh connection; `name` is the error that must be reported.
    #[track_caller]
    pub fn refuses(&mut self, begins: Begins, name: &str, make: impl FnOnce(&Victim) -> Vec<u8>) {
        let victim = self.victim(begins);
        let segment = make(&victim);
        self.says(std::slice::from_ref(&segment));
        self.ends_with(victim, name, &segment);
    }

    /// Checks that the Terminate for the error is sent once and shows what it should of `offender`.
    /// Then the connection ends in order. The victim's memory is unchanged.
    #[track_caller]
    pub fn ends_with(&mut self, victim: Victim, name: &str, offender: &[u8]) {
        let intact = (contents(&victim.buffer), contents(&victim.inbox));
        assert_eq!(intact, (vec![0xb0; BUFFER], vec![0x1b; RECEIVE]), "{name}: memory was touched");
        self.reports(victim.qp, name, offender);
        self.is_over(victim, DisconnectReason::Terminated);
    }

    /// Checks that the Terminate is sent and that our application gets the event.
    #[track_caller]
    pub fn reports(&mut self, qp: QueuePair, name: &str, offender: &[u8]) {
        let row = codes::named(name);
        let want = row.terminate(offender);
        let told = self.scene.segment(name);
        assert_eq!(told, want, "{name}, of {offender:02x?}");
        let terminate = Terminate { layer: row.layer, etype: row.etype, code: row.code };
        assert_eq!(self.scene.terminated(), (true, terminate), "{name}");
        assert!(self.scene.node.completions.iter().all(|done| done.qp == qp.num()));
    }

    /// Checks that the peer receives only a FIN, then the peer closes too. Every request is
    /// complete, and there is no other event or message.
    #[track_caller]
    pub fn is_over(&mut self, victim: Victim, reason: DisconnectReason) {
        let scene = &mut self.scene;
        scene.hears_fin();
        scene.peer.close();
        assert_eq!(scene.disconnected(), reason);
        assert!(scene.peer.heard.is_empty(), "further octets: {:02x?}", scene.peer.heard);
        self.leaves_nothing(&victim);
    }

    /// Checks that every receive has a completion, that the victim raises no other event, and that
    /// the bystander still works.
    #[track_caller]
    pub fn leaves_nothing(&mut self, victim: &Victim) {
        let scene = &mut self.scene;
        let receives = scene.node.completions.iter().filter(|done| done.qp == victim.qp.num());
        assert!(receives.count() >= RECEIVES, "{:?}", scene.node.completions);
        let more = scene
            .node
            .events
            .iter()
            .any(|event| matches!(event, Event::Terminated { .. } | Event::Disconnected { .. }));
        assert!(!more, "{:?}", scene.node.events);
        scene.node.ctx.destroy_qp(victim.qp).unwrap();
        scene.node.events.clear();
        scene.node.completions.clear();
        self.bystander_is_well();
    }

    /// Checks that another connection of the node still works.
    #[track_caller]
    fn bystander_is_well(&mut self) {
        self.written = self.written.wrapping_add(1);
        let remote = RemoteMemory { stag: self.note.stag(), tagged_offset: self.note.base_to() };
        let write = SendWr::write_inline(0, std::slice::from_ref(&self.written), remote);
        self.scene.node.ctx.post_send(self.bystander, &write).unwrap();
        self.scene.until("the bystander's Write", |scene| !scene.node.completions.is_empty());
        let done = self.scene.node.completions.remove(0);
        assert_eq!((done.qp, done.status), (self.bystander.num(), CompletionStatus::Success));
        assert_eq!(contents(&self.note), [self.written]);
        assert!(self.scene.node.completions.is_empty() && self.scene.node.events.is_empty());
    }
}

/// A connection of the node with itself.
fn connected_to_itself(scene: &mut Scene) -> QueuePair {
    let (near, far) = (scene.qp(), scene.qp());
    scene.node.ctx.listen(NODE.parse().unwrap()).unwrap();
    scene.turn();
    scene.node.ctx.connect(near, NODE.parse().unwrap(), b"").unwrap();
    scene.until("the connection request", |scene| !scene.node.events.is_empty());
    let Event::ConnectRequest { request, .. } = scene.node.events.remove(0) else { panic!("another event") };
    scene.node.ctx.accept(request, far, b"").unwrap();
    scene.until("both sides", |scene| scene.node.is_established(near) && scene.node.is_established(far));
    scene.turns(20);
    scene.node.events.clear();
    near
}
