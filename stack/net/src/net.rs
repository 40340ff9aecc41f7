//! The layer itself: what one core knows of the network.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ironwarp_port::{Frame, Port, PortCaps, TxMeta, TxOffloads, Wire};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{Flow, MacAddr, Nanos};

use crate::config::{Marking, NetConfig};
use crate::core_message::Outbox;
use crate::flow::FlowHasher;
use crate::link::Link;
use crate::neighbour::{Neighbours, arp, nd};
use crate::own::{AddressState, Addresses, Say, Source};
use crate::path::{Path, Station};
use crate::pmtu::PathMtus;
use crate::rate_limit::RateLimiter;
use crate::route::Routes;

/// ICMP errors read at once after a pause: a router that loses a link reports about every connection through it.
const ICMP_ERROR_BURST: u32 = 256;

/// Ethernet, ARP, neighbour discovery, IPv4, IPv6 and ICMP for one core.
///
/// Frames come in through [`Net::on_frame`], ways out are asked for with [`Net::route`], and time passes through
/// [`Net::on_timers`]. Nothing allocates after [`Net::new`].
pub struct Net {
    pub(crate) link: Link,
    /// Our link address as a little-endian word.
    pub(crate) mac_word: u64,
    pub(crate) own: Addresses,
    pub(crate) hasher: FlowHasher,
    pub(crate) stats: CoreStats,
    pub(crate) routes: Routes,
    pub(crate) neighbours: Neighbours,
    pub(crate) path_mtus: PathMtus,
    pub(crate) echo: RateLimiter,
    pub(crate) icmp_errors: RateLimiter,
    pub(crate) route_changes: u32,
    pub(crate) outbox: Outbox,
    port: u8,
    marking: Marking,
    mtu_bytes: u16,
    offloads: TxOffloads,
}

impl Net {
    /// Net over a device. The MTU is the smaller of the configured and the device's.
    pub fn new(cfg: NetConfig, caps: &PortCaps, stats: CoreStats) -> Self {
        let hasher = FlowHasher::new(cfg.hash_secret);
        let [a, b, c, d, e, f] = cfg.mac.0;
        Net {
            mac_word: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            link: Link { mac: cfg.mac, vlan: cfg.vlan },
            own: Addresses::new(&cfg, hasher),
            hasher,
            stats,
            routes: Routes::new(&cfg),
            neighbours: Neighbours::new(cfg.neighbours, hasher),
            path_mtus: PathMtus::new(cfg.path_mtus_max, hasher),
            echo: RateLimiter::new(cfg.echo_per_second, cfg.echo_burst),
            icmp_errors: RateLimiter::new(cfg.icmp_errors_per_second, ICMP_ERROR_BURST),
            route_changes: 0,
            outbox: Outbox::new(cfg.role),
            port: cfg.port,
            marking: cfg.marking,
            mtu_bytes: cfg.mtu_bytes.min(caps.mtu_bytes),
            offloads: caps.tx_offloads,
        }
    }

    /// Our link address, and the first of our network addresses.
    pub fn station(&self) -> Station {
        let first = self.own.iter().next().map(|(prefix, _)| prefix.addr);
        Station { mac: self.link.mac, addr: first.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) }
    }

    /// Our link address.
    pub fn mac(&self) -> MacAddr {
        self.link.mac
    }

    /// How an address of ours stands; `None` for any other. The link-local address made for IPv6 is one of ours.
    pub fn address_state(&self, addr: IpAddr) -> Option<AddressState> {
        self.own.state_of(addr)
    }

    /// Our addresses in the configured order, a link-local one that was made last.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.own.iter().map(|(prefix, _)| prefix.addr)
    }

    /// What one of its counters says.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.stats.read(counter)
    }

    /// The largest IP packet we send, in bytes.
    pub fn mtu_bytes(&self) -> u16 {
        self.mtu_bytes
    }

    /// The hash that [`TcpSegment::hash`](crate::TcpSegment::hash) carries, for flows that we open.
    pub fn hasher(&self) -> FlowHasher {
        self.hasher
    }

    /// How often the answer of [`Net::route`] may have changed, modulo 2^32: a neighbour answered, moved, or did
    /// not answer any more, or an address of ours came into use. A caller that waits for a route asks again when this differs
    /// from what it saw last; an owner of paths updates them with [`Net::refresh`].
    pub fn route_changes(&self) -> u32 {
        self.route_changes
    }

    pub(crate) fn on_route_change(&mut self, changes: u32) {
        self.route_changes = self.route_changes.wrapping_add(changes);
    }

    /// The way to a flow's far end through the station `mac`: the answer to a segment goes where the segment came from.
    pub fn path_to(&self, flow: &Flow, mac: MacAddr) -> Path {
        self.path_over(flow.local.ip(), flow.remote.ip(), mac)
    }

    pub(crate) fn path_over(&self, source: IpAddr, dst: IpAddr, mac: MacAddr) -> Path {
        let mtu_bytes = self.path_mtus.to(dst).map_or(self.mtu_bytes, |limit| limit.min(self.mtu_bytes));
        // A frame to ourselves meets no device that could finish its checksum.
        let offloads = if mac == self.link.mac { TxOffloads::empty() } else { self.offloads };
        Path::over(&self.link, self.marking, source, Station { mac, addr: dst }, mtu_bytes, offloads)
            .through(self.port)
    }

    /// Remembers that packets to `dst` may have at most `mtu_bytes`, for ten minutes: TCP has believed a report that
    /// said so. Paths made from now on keep to it. Never below 576 bytes, or 1280 for IPv6.
    pub fn lower_path_mtu(&mut self, now: Nanos, dst: IpAddr, mtu_bytes: u16) {
        if mtu_bytes < self.mtu_bytes && self.path_mtus.lower(now, dst, mtu_bytes) {
            self.publish_path_mtu(dst, mtu_bytes);
        }
    }

    /// The link is up: our addresses are asked for where that is configured, and announced, so that stations which knew
    /// another of theirs learn it. Once, on the core that leads; what follows happens in [`Net::on_timers`].
    pub fn on_link_up<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        self.own.begin(now);
        self.on_timers(now, wire);
    }

    /// Repeats requests to neighbours, probes those in use before they grow stale, forgets the others; asks for and
    /// announces our own addresses; forgets path MTUs that are old.
    pub fn on_timers<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        if self.neighbours.next_due().is_some_and(|due| due <= now) {
            self.on_neighbours_due(now, wire);
        }
        if self.own.next_due() <= now {
            self.on_own_due(now, wire);
        }
        if self.path_mtus.next_due() <= now {
            self.path_mtus.on_due(now);
        }
    }

    /// When [`Net::on_timers`] has something to do.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let neighbours = self.neighbours.next_due().unwrap_or(Nanos::MAX);
        let next = neighbours.min(self.path_mtus.next_due()).min(self.own.next_due());
        (next != Nanos::MAX).then_some(next)
    }

    /// The invariants of the tables, for the simulator to call between steps.
    pub fn check(&self) -> Result<(), &'static str> {
        self.neighbours.check()?;
        self.path_mtus.check()
    }

    #[cold]
    fn on_neighbours_due<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        let (link, own, stats, outbox) = (&self.link, &self.own, &self.stats, &mut self.outbox);
        let follows = outbox.follows();
        let lost = self.neighbours.on_due(now, |addr, mac| {
            if follows {
                outbox.ask(addr);
            } else {
                solicit(link, own, stats, (addr, mac), wire);
            }
        });
        self.stats.add(Counter::NetNeighboursUnreachable, u64::from(lost));
        self.on_route_change(lost);
    }

    #[cold]
    fn on_own_due<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        let (link, stats) = (self.link, &self.stats);
        let usable = self.own.on_due(now, |say, addr| tell_all(&link, stats, say, addr, wire));
        self.on_route_change(usable);
        if usable > 0 {
            self.publish_addresses();
        }
    }

    /// Asks a neighbour for its link address.
    pub(crate) fn solicit<P: Port>(&self, target: IpAddr, mac: Option<MacAddr>, wire: &mut Wire<P>) {
        solicit(&self.link, &self.own, &self.stats, (target, mac), wire);
    }

    /// Says to everybody that an address is ours.
    pub(crate) fn announce<P: Port>(&self, addr: IpAddr, wire: &mut Wire<P>) {
        tell_all(&self.link, &self.stats, Say::Announce, addr, wire);
    }
}

/// Sends one request. One that does not get out is counted and asked again in its turn.
fn solicit<P: Port>(
    link: &Link,
    own: &Addresses,
    stats: &CoreStats,
    (target, mac): (IpAddr, Option<MacAddr>),
    wire: &mut Wire<P>,
) {
    // RFC 4861 s7.2.2: any address of ours will do; the one that packets will come from is known there anyway.
    let Source::Addr(ours) = own.source(target, target) else { return };
    send(wire, stats, asked_by(target), |frame| match (ours, target) {
        (IpAddr::V4(ours), IpAddr::V4(target)) => arp::request(frame, link, ours, target, mac),
        (IpAddr::V6(ours), IpAddr::V6(target)) => nd::solicitation(frame, link, ours, target, mac),
        _ => false,
    });
}

/// Asks everybody for an address that we want to use, or tells everybody that we use it.
fn tell_all<P: Port>(link: &Link, stats: &CoreStats, say: Say, addr: IpAddr, wire: &mut Wire<P>) {
    let counter = match (say, addr) {
        (Say::Announce, IpAddr::V6(_)) => Counter::NetNdUnsolicitedSent,
        _ => asked_by(addr),
    };
    send(wire, stats, counter, |frame| match (say, addr) {
        // RFC 5227 s1.1 and s2.3: a probe names no sender, an announcement asks for the sender itself.
        (Say::Probe, IpAddr::V4(addr)) => arp::request(frame, link, Ipv4Addr::UNSPECIFIED, addr, None),
        (Say::Announce, IpAddr::V4(addr)) => arp::request(frame, link, addr, addr, None),
        (Say::Probe, IpAddr::V6(addr)) => nd::solicitation(frame, link, Ipv6Addr::UNSPECIFIED, addr, None),
        (Say::Announce, IpAddr::V6(addr)) => nd::advertisement(frame, link, addr, None),
    });
}

fn asked_by(addr: IpAddr) -> Counter {
    if addr.is_ipv4() { Counter::NetArpRequestsSent } else { Counter::NetNdSolicitationsSent }
}

/// Fills a fresh frame and sends it, counted as `sent` or as not sent.
fn send<P: Port>(
    wire: &mut Wire<P>,
    stats: &CoreStats,
    sent: Counter,
    fill: impl FnOnce(&mut P::Frame) -> bool,
) {
    let left =
        wire.alloc().is_some_and(|mut frame| fill(&mut frame) && wire.push(frame.seal(TxMeta::default())));
    stats.count(if left { sent } else { Counter::NetTxNoBuffer });
}
