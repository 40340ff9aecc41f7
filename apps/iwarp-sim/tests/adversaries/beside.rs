//! An honest client and a server of whole nodes, and a hostile host that attacks the server beside
//! them.
//!
//! The client and the server write into each other's memory over four connections, which fills the
//! client's cable in both directions. The server's core is busy for [`FRAME_COST`] with an honest
//! frame, and for each frame of the hostile host as much longer as the packets of its kind cost
//! more instructions than an honest one (`iwarp_sim::adversary::Bounds`). All frames of the hostile
//! host cost that, those of its handshakes too.

use ironwarp::{Config, ResourceUsage};
use ironwarp_sim::PortId;
use ironwarp_types::Nanos;

use iwarp_sim::adversary::{Adversary, Host};
use iwarp_sim::tcp::{SharedNode, link_address};

use super::flood::{Schedule, Visitors};
use super::star::{ATTACKER, CLIENT, FRAME_COST, FRAMES, RING_FRAMES, SERVER, StarNet, star};

/// The connections have reached their steady rate by then.
const START: Nanos = Nanos::from_millis(20);
const ATTACK: Nanos = Nanos::from_millis(30);

/// The three hosts.
pub struct Beside {
    net: StarNet,
    server_port: PortId,
    client: SharedNode<Host>,
    server: SharedNode<Host>,
    attacker: Option<(Adversary, SharedNode<Visitors>)>,
}

/// What was left of the honest traffic, and what the attack was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    /// Bytes that both ends wrote during the attack.
    pub bytes: u64,
    pub ended: u64,
    /// Hostile packets, those in reply included, and those that found no room in the server's
    /// receive ring.
    pub hostile: u64,
    #[expect(dead_code, reason = "the tests print it")]
    pub refused: u64,
    /// The attacker's connections that send packets of the kind, and those that the server has
    /// ended.
    pub conns: usize,
    pub ended_conns: u64,
    pub counted: u64,
    pub held: ResourceUsage,
}

impl Beside {
    /// The hosts without an attacker; their connections request markers or not.
    pub fn calm(markers: bool) -> Result<Self, String> {
        Self::new(None, markers)
    }

    /// The hosts with an attacker of a kind, which has `conns` connections if it needs any.
    pub fn attacked(kind: Adversary, every: Nanos, conns: u16) -> Result<Self, String> {
        let schedule = Schedule { kind, start: START, every, conns };
        Self::new(Some(schedule), kind == Adversary::Markers)
    }

    fn new(schedule: Option<Schedule>, markers: bool) -> Result<Self, String> {
        let (mut net, [client_port, server_port, attacker_port]) = star(11);
        let change = |config: &mut Config| {
            config.port.ring_size = Some(RING_FRAMES as u16);
            config.mpa.markers = markers;
            // A host that guesses is refused for a while. Here each guess counts.
            config.limits.protection_errors = 0;
        };
        let mut server = Host::new(SERVER, (server_port.1, FRAMES), net.clock(), None, change)?;
        let address = Some([10, 0, 0, SERVER]);
        let mut client = Host::new(CLIENT, (client_port.1, FRAMES), net.clock(), address, change)?;
        client.app.partner = Some(server.app.memory());
        server.app.partner = Some(client.app.memory());
        let place = server.app.place();
        let (client, server) = (SharedNode::new(client), SharedNode::new(server));
        net.add_node(Box::new(client.clone()), &[client_port.0]);
        let id = net.add_node(Box::new(server.clone()), &[server_port.0]);
        net.set_frame_cost(id, FRAME_COST);
        let attacker = schedule.map(|schedule| {
            let extra = extra_cost(schedule.kind);
            let source = link_address(ATTACKER).0;
            net.set_arrival_cost(
                id,
                Box::new(move |frame| if frame.get(6..12) == Some(&source) { extra } else { Nanos::ZERO }),
            );
            let node = SharedNode::new(Visitors::new(attacker_port.1, [ATTACKER, SERVER], place, schedule));
            net.add_node(Box::new(node.clone()), &[attacker_port.0]);
            (schedule.kind, node)
        });
        Ok(Beside { net, server_port: server_port.0, client, server, attacker })
    }

    /// Runs the hosts through the time of the attack.
    pub fn run(mut self) -> Result<Kept, String> {
        self.net.run_until(START).map_err(|error| error.to_string())?;
        let before = self.written_bytes();
        self.net.run_until(START + ATTACK).map_err(|error| error.to_string())?;
        let bytes = self.written_bytes() - before;
        let (client, server) = (self.client.borrow(), self.server.borrow());
        let mut kept = Kept {
            bytes,
            ended: client.app.ended + server.app.ended,
            refused: self.net.refused_frames(self.server_port),
            held: server.held(),
            ..Kept::default()
        };
        if let Some((kind, attacker)) = &self.attacker {
            let attacker = attacker.borrow();
            kept.hostile = attacker.sent + attacker.replies;
            (kept.conns, kept.ended_conns) = (attacker.open_conns(), attacker.ended);
            kept.counted = server.counter(kind.bounds().counter).unwrap_or(0);
        }
        Ok(kept)
    }

    fn written_bytes(&self) -> u64 {
        self.client.borrow().app.written_bytes + self.server.borrow().app.written_bytes
    }
}

/// The time of a packet beyond that of an honest frame. The frames in reply cost what frames cost.
fn extra_cost(kind: Adversary) -> Nanos {
    let bounds = kind.bounds();
    let own_percent = bounds.instructions_percent.saturating_sub(100 + bounds.sent_percent);
    Nanos(FRAME_COST.0 * own_percent / 100)
}
