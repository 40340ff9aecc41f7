//! A node of our network and SCTP layers, driven as in the core loop.

use std::net::Ipv4Addr;

use ironwarp_llp::{Blocked, ConnId, ConnectError, Events, ListenError};
use ironwarp_net::{Net, NetConfig, Received, TransportProtocol};
use ironwarp_port::memory::{MemoryConfig, MemoryControl, MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, Wire, Wires};
use ironwarp_sctp::{Message, MessageHeader, Sctp, SctpConfig, UpperLayer};
use ironwarp_sim::Node;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{Flow as Ends, Nanos};

use super::flow::{Arrivals, Due, Flow, Sender};
use crate::tcp::{RxFilter, address, link_address};

/// The setup of a node.
#[derive(Clone)]
pub struct SctpSetup {
    /// Its number: the last byte of its addresses.
    pub host: u8,
    pub device: MemoryConfig,
    pub sctp: SctpConfig,
    /// The key of its tags and cookies.
    pub seed: u64,
}

/// A host with our engine. It takes messages as they arrive.
pub struct SctpNode {
    host: u8,
    config: SctpConfig,
    secret: [u64; 2],
    net: Net,
    /// The engine; tests may inspect it.
    pub sctp: Sctp<MemoryPort>,
    wires: Wires<MemoryPort>,
    control: MemoryControl,
    stats: CoreStats,
    received: Burst<MemoryFrame>,
    /// The associations that it sends on.
    opened: Vec<ConnId>,
    senders: Vec<Sender>,
    /// The number of the next flow that it sends.
    pub next_flow: u16,
    /// A sender stopped although the windows are open.
    is_busy: bool,
    pub arrivals: Arrivals,
    /// The association whose messages are checked, if not those of all.
    pub checked: Option<ConnId>,
    /// Associations with messages that can be read.
    readable: Vec<ConnId>,
    /// Events of its associations.
    pub events: Vec<(ConnId, Events)>,
    /// Drops the received frames that it selects.
    pub rx_filter: Option<RxFilter>,
}

/// The layer above.
struct User<'a> {
    now: Nanos,
    checked: Option<ConnId>,
    arrivals: &'a mut Arrivals,
    events: &'a mut Vec<(ConnId, Events)>,
    readable: &'a mut Vec<ConnId>,
}

impl UpperLayer for User<'_> {
    fn event(&mut self, id: ConnId, events: Events) {
        if events.contains(Events::READABLE) {
            self.readable.push(id);
        }
        let notable = events & (Events::ESTABLISHED | Events::ENDED);
        if !notable.is_empty() {
            self.events.push((id, notable));
        }
    }

    fn message(&mut self, id: ConnId, message: Message<'_>) -> bool {
        if self.checked.is_none_or(|checked| checked == id) {
            self.arrivals.on_message(self.now, message.payload);
        }
        true
    }
}

impl SctpNode {
    /// A host on `port`, which `setup.device` describes.
    pub fn new(setup: SctpSetup, port: MemoryPort) -> Self {
        let SctpSetup { host, device, sctp, seed } = setup;
        let stats = CoreStats::detached();
        let secret = [seed, u64::from(host)];
        let addr = Ipv4Addr::new(10, 0, 0, host);
        let config = NetConfig {
            transport: TransportProtocol::SCTP,
            ..NetConfig::new(link_address(host), addr, 24, device.mtu_bytes, secret)
        };
        let (control, wire) = (port.control(), Wire::new(port));
        let net = Net::new(config, wire.caps(), stats.clone());
        SctpNode {
            host,
            sctp: Sctp::new(sctp.clone(), net.hasher(), secret, stats.clone()),
            config: sctp,
            secret,
            net,
            wires: Wires::single(wire),
            control,
            stats,
            received: Burst::new(),
            opened: Vec::new(),
            senders: Vec::new(),
            next_flow: 0,
            is_busy: false,
            arrivals: Arrivals::default(),
            checked: None,
            readable: Vec::new(),
            events: Vec::new(),
            rx_filter: None,
        }
    }

    pub fn listen(&mut self, port: u16) -> Result<(), ListenError> {
        self.sctp.listen(address(self.host, port)).map(drop)
    }

    /// Connects from a port to a port of a host, and sends flows in addition to others.
    pub fn connect(
        &mut self,
        now: Nanos,
        (from, to): (u16, (u8, u16)),
        flows: Vec<Flow>,
    ) -> Result<(), ConnectError> {
        let ends = Ends { local: address(self.host, from), remote: address(to.0, to.1) };
        let path = self.net.path_to(&ends, link_address(to.0));
        let id = self.sctp.connect(now, ends, path, &mut self.wires)?;
        self.opened.push(id);
        for flow in flows {
            self.senders.push(Sender { id, flow, number: self.next_flow, sent: 0 });
            self.next_flow += 1;
        }
        Ok(())
    }

    /// Forgets all associations, as a host that starts again. Its peers get no packet.
    pub fn restart(&mut self) {
        self.secret[0] += 1;
        self.sctp = Sctp::new(self.config.clone(), self.net.hasher(), self.secret, self.stats.clone());
        self.opened.clear();
        self.senders.clear();
        self.readable.clear();
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.stats.read(counter)
    }

    fn receive(&mut self, now: Nanos) {
        for _ in 0..BURSTS {
            self.wires.first_mut().rx_burst(&mut self.received);
            if self.received.is_empty() {
                return;
            }
            let mut burst = core::mem::take(&mut self.received);
            burst.drain(..).for_each(|frame| self.on_frame(now, frame));
            self.received = burst;
        }
    }

    fn on_frame(&mut self, now: Nanos, frame: MemoryFrame) {
        if self.rx_filter.as_mut().is_some_and(|is_lost| is_lost(now, frame.bytes())) {
            return;
        }
        let received = self.net.on_frame(now, frame, self.wires.first_mut());
        let Some(Received::Packet(packet)) = received else { return };
        let (net, flow, mac) = (&self.net, packet.flow, packet.remote_mac);
        let (arrivals, events, readable) = (&mut self.arrivals, &mut self.events, &mut self.readable);
        let mut user = User { now, checked: self.checked, arrivals, events, readable };
        self.sctp.on_packet(now, packet, || net.path_to(&flow, mac), &mut self.wires, &mut user);
        self.read(now);
    }

    /// Reads the ordered messages that waited for an earlier one.
    fn read(&mut self, now: Nanos) {
        while let Some(id) = self.readable.pop() {
            while let Some(stream) = self.sctp.readable_stream(id) {
                let is_checked = self.checked.is_none_or(|checked| checked == id);
                if let Some(message) = self.sctp.message(id, stream).filter(|_| is_checked) {
                    self.arrivals.on_message(now, message.payload);
                }
                self.sctp.consume(id, stream);
            }
        }
    }

    fn transmit(&mut self, now: Nanos) {
        self.is_busy = false;
        for sender in &mut self.senders {
            let (id, header) = (sender.id, sender.flow.header());
            let sent =
                self.sctp.transmit(now, id, header, &mut Due(sender, now), &mut self.wires, TURN_UNITS);
            self.is_busy |= matches!(sent.blocked, Blocked::Pool | Blocked::Wire) || sent.units == TURN_UNITS;
        }
        for &id in &self.opened {
            if self.sctp.wants_transmit(id) {
                self.sctp.transmit(now, id, MessageHeader::default(), &mut (), &mut self.wires, TURN_UNITS);
            }
        }
        // The flows take turns.
        let turn = self.senders.len().min(1);
        self.senders.rotate_left(turn);
    }

    fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let waits = self.wires.waiting_frames() > 0 || self.control.rx_waiting_frames() > 0;
        if self.is_busy || waits || self.sctp.has_pending_acks() {
            return Some(now);
        }
        let due = self.senders.iter().filter_map(Sender::next_at).filter(|at| *at > now);
        due.chain(self.sctp.next_deadline()).chain(self.net.next_deadline()).min()
    }
}

impl Node for SctpNode {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        self.receive(now);
        self.net.on_timers(now, self.wires.first_mut());
        let (arrivals, events, readable) = (&mut self.arrivals, &mut self.events, &mut self.readable);
        let mut user = User { now, checked: self.checked, arrivals, events, readable };
        self.sctp.on_timers(now, &mut self.wires, &mut user);
        self.transmit(now);
        self.sctp.flush_acks(now, &mut self.wires);
        self.wires.flush();
        self.next_deadline(now)
    }

    fn check(&self) -> Result<(), String> {
        match &self.arrivals.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }
}

/// Bursts received in one iteration.
const BURSTS: usize = 4;

/// Messages that one flow may send per round, as in the core loop.
const TURN_UNITS: usize = 16;
