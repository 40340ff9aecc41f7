//! [`Net`]: the network state of one core.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ironwarp_port::{Frame, Port, PortCaps, TxMeta, TxOffloads, Wire};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{Flow, MacAddr, Nanos};

use crate::config::{IpHeaderDefaults, NetConfig, TransportProtocol};
use crate::core_message::Outbox;
use crate::flow::FlowHasher;
use crate::link::Link;
use crate::local_addresses::{AcdMessage, LocalAddresses, SourceAddress};
use crate::neighbour::{NeighbourTable, arp, nd};
use crate::path::{Path, Station};
use crate::pmtu::PathMtuCache;
use crate::rate_limit::RateLimiter;
use crate::route::Routes;

/// ICMP errors that are read in one burst: a router that loses a link reports each connection over
/// it.
const ICMP_ERROR_BURST: u32 = 256;

/// Ethernet, ARP, neighbour discovery, IPv4, IPv6 and ICMP for one core.
///
/// [`Net::on_frame`] takes received frames, [`Net::route`] returns the path to a peer, and
/// [`Net::on_timers`] takes the time. Nothing allocates after [`Net::new`].
pub struct Net {
    pub(crate) link: Link,
    /// The local link address as a little-endian word: what a fast frame is compared with. Off the
    /// fast path, in a VLAN, and for a transport that is not TCP, it is [`NO_MAC_WORD`], which no
    /// frame has.
    pub(crate) fast_mac_word: u64,
    pub(crate) local: LocalAddresses,
    pub(crate) hasher: FlowHasher,
    pub(crate) transport: TransportProtocol,
    pub(crate) other_transport: Option<TransportProtocol>,
    /// Where encapsulated packets arrive. 0: nowhere.
    pub(crate) udp_port: u16,
    pub(crate) stats: CoreStats,
    pub(crate) routes: Routes,
    pub(crate) neighbours: NeighbourTable,
    pub(crate) path_mtus: PathMtuCache,
    pub(crate) echo_limit: RateLimiter,
    pub(crate) icmp_error_limit: RateLimiter,
    pub(crate) outbox: Outbox,
    route_changes: u32,
    port: u8,
    ip_header: IpHeaderDefaults,
    mtu_bytes: u16,
    offloads: TxOffloads,
}

/// No value of six bytes.
const NO_MAC_WORD: u64 = u64::MAX;

impl Net {
    /// Returns the network state for a device. The MTU is the smaller one of the configuration and
    /// the device.
    pub fn new(cfg: NetConfig, caps: &PortCaps, stats: CoreStats) -> Self {
        let hasher = FlowHasher::new(cfg.hash_secret);
        let [a, b, c, d, e, f] = cfg.mac.0;
        Net {
            fast_mac_word: if cfg.fast_path && cfg.vlan.is_none() && cfg.transport == TransportProtocol::TCP {
                u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
            } else {
                NO_MAC_WORD
            },
            link: Link { mac: cfg.mac, vlan: cfg.vlan },
            local: LocalAddresses::new(&cfg, hasher),
            hasher,
            transport: cfg.transport,
            other_transport: cfg.other_transport,
            udp_port: cfg.udp_port,
            stats,
            routes: Routes::new(&cfg),
            neighbours: NeighbourTable::new(cfg.neighbours, hasher),
            path_mtus: PathMtuCache::new(cfg.path_mtus_max, hasher),
            echo_limit: RateLimiter::new(cfg.echo_per_second, cfg.echo_burst),
            icmp_error_limit: RateLimiter::new(cfg.icmp_errors_per_second, ICMP_ERROR_BURST),
            outbox: Outbox::new(cfg.role),
            route_changes: 0,
            port: cfg.port,
            ip_header: cfg.ip_header,
            mtu_bytes: cfg.mtu_bytes.min(caps.mtu_bytes),
            offloads: caps.tx_offloads,
        }
    }

    /// Returns the local link address.
    pub fn mac(&self) -> MacAddr {
        self.link.mac
    }

    /// Returns the value of a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.stats.read(counter)
    }

    /// Returns the hasher of [`Packet::hash`](crate::Packet::hash), for flows that this
    /// side opens.
    pub fn hasher(&self) -> FlowHasher {
        self.hasher
    }

    /// Counts changes that may change the result of [`Net::route`], modulo 2^32: a neighbour
    /// replied, moved or became unreachable, or a local address became usable. A caller that waits
    /// for a route calls [`Net::route`] again after a change; an owner of paths calls
    /// [`Net::refresh`] for each.
    pub fn route_changes(&self) -> u32 {
        self.route_changes
    }

    pub(crate) fn on_route_change(&mut self, changes: u32) {
        self.route_changes = self.route_changes.wrapping_add(changes);
    }

    /// Sets what the device fills in of frames that are made from now on. A change counts as one of
    /// the routes, so paths are [refreshed](Net::refresh).
    pub fn set_tx_offloads(&mut self, offloads: TxOffloads) {
        if offloads != self.offloads {
            self.offloads = offloads;
            self.on_route_change(1);
        }
    }

    pub(crate) fn tx_offloads(&self) -> TxOffloads {
        self.offloads
    }

    /// Returns the path of a flow over the station `mac`. A reply to a segment uses the link
    /// address that the segment came from.
    pub fn path_to(&self, flow: &Flow, mac: MacAddr) -> Path {
        self.path_over(flow.local.ip(), flow.remote.ip(), mac)
    }

    pub(crate) fn path_over(&self, source: IpAddr, dst: IpAddr, mac: MacAddr) -> Path {
        let mtu_bytes = self.path_mtus.get(dst).map_or(self.mtu_bytes, |limit| limit.min(self.mtu_bytes));
        // A looped-back frame does not pass a device that could fill in its checksum.
        let offloads = if mac == self.link.mac { TxOffloads::empty() } else { self.offloads };
        let defaults = (self.transport, self.ip_header);
        Path::new(&self.link, defaults, source, Station { mac, addr: dst }, mtu_bytes, offloads)
            .with_port(self.port)
    }

    /// Limits packets to `dst` to `mtu_bytes` for ten minutes, after TCP validated a report. The
    /// limit applies to new paths. It is at least 576 bytes, or 1280 for IPv6.
    pub fn lower_path_mtu(&mut self, now: Nanos, dst: IpAddr, mtu_bytes: u16) {
        if mtu_bytes < self.mtu_bytes && self.path_mtus.lower(now, dst, mtu_bytes) {
            self.publish_path_mtu(dst, mtu_bytes);
        }
    }

    /// Starts to probe and to announce the local addresses. Announcements update stations that know
    /// an old link address. The leader core calls this once when the link is up; [`Net::on_timers`]
    /// continues.
    pub fn on_link_up<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        self.local.on_link_up(now);
        self.on_timers(now, wire);
    }

    /// Repeats requests to neighbours, probes those in use before they expire, and removes the
    /// others. Probes and announces local addresses. Removes expired path MTUs.
    pub fn on_timers<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        if self.neighbours.next_due() <= now {
            self.on_neighbours_due(now, wire);
        }
        if self.local.next_due() <= now {
            self.on_local_due(now, wire);
        }
        if self.path_mtus.next_due() <= now {
            self.path_mtus.on_due(now);
        }
    }

    /// Returns the time from which [`Net::on_timers`] has work to do.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let next = self.neighbours.next_due().min(self.path_mtus.next_due()).min(self.local.next_due());
        (next != Nanos::MAX).then_some(next)
    }

    /// Checks the invariants of the tables, for the simulator.
    pub fn check(&self) -> Result<(), &'static str> {
        self.neighbours.check()?;
        self.path_mtus.check()
    }

    #[cold]
    fn on_neighbours_due<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        let (link, local, stats, outbox) = (&self.link, &self.local, &self.stats, &mut self.outbox);
        let is_follower = outbox.is_follower();
        let unreachable = self.neighbours.on_due(now, |addr, mac| {
            if is_follower {
                outbox.push_resolve(addr);
            } else {
                solicit(link, local, stats, (addr, mac), wire);
            }
        });
        self.stats.add(Counter::NetNeighboursUnreachable, u64::from(unreachable));
        self.on_route_change(unreachable);
    }

    #[cold]
    fn on_local_due<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        let (link, stats) = (self.link, &self.stats);
        let usable = self.local.on_due(now, |message, addr| send_acd(&link, stats, message, addr, wire));
        self.on_route_change(usable);
        if usable > 0 {
            self.publish_addresses();
        }
    }

    /// Requests the link address of a neighbour: by unicast if `mac` is known.
    pub(crate) fn solicit<P: Port>(&self, target: IpAddr, mac: Option<MacAddr>, wire: &mut Wire<P>) {
        solicit(&self.link, &self.local, &self.stats, (target, mac), wire);
    }

    /// Announces a local address to all stations.
    pub(crate) fn announce<P: Port>(&self, addr: IpAddr, wire: &mut Wire<P>) {
        send_acd(&self.link, &self.stats, AcdMessage::Announcement, addr, wire);
    }
}

/// Sends one request. A request that cannot be sent is counted; the table repeats it.
fn solicit<P: Port>(
    link: &Link,
    local: &LocalAddresses,
    stats: &CoreStats,
    (target, mac): (IpAddr, Option<MacAddr>),
    wire: &mut Wire<P>,
) {
    // RFC 4861 s7.2.2: any local address may be the source.
    let SourceAddress::Addr(source) = local.source_for(target, target) else { return };
    send(wire, stats, request_counter(target), |frame| match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => arp::write_request(frame, link, source, target, mac),
        (IpAddr::V6(source), IpAddr::V6(target)) => nd::write_solicitation(frame, link, source, target, mac),
        _ => false,
    });
}

/// Sends a probe or an announcement of `addr` to all stations.
fn send_acd<P: Port>(link: &Link, stats: &CoreStats, message: AcdMessage, addr: IpAddr, wire: &mut Wire<P>) {
    use AcdMessage::{Announcement, Probe};
    let counter = match (message, addr) {
        (Announcement, IpAddr::V6(_)) => Counter::NetNdUnsolicitedSent,
        _ => request_counter(addr),
    };
    send(wire, stats, counter, |frame| match (message, addr) {
        // RFC 5227 s1.1 and s2.3: a probe has no sender address; in an announcement sender and
        // target are equal.
        (Probe, IpAddr::V4(addr)) => arp::write_request(frame, link, Ipv4Addr::UNSPECIFIED, addr, None),
        (Announcement, IpAddr::V4(addr)) => arp::write_request(frame, link, addr, addr, None),
        (Probe, IpAddr::V6(addr)) => nd::write_solicitation(frame, link, Ipv6Addr::UNSPECIFIED, addr, None),
        (Announcement, IpAddr::V6(addr)) => nd::write_advertisement(frame, link, addr, None),
    });
}

fn request_counter(addr: IpAddr) -> Counter {
    if addr.is_ipv4() { Counter::NetArpRequestsSent } else { Counter::NetNdSolicitationsSent }
}

/// Writes a new frame with `write` and sends it. Counts `sent`, or that there was no buffer.
fn send<P: Port>(
    wire: &mut Wire<P>,
    stats: &CoreStats,
    sent: Counter,
    write: impl FnOnce(&mut P::Frame) -> bool,
) {
    let is_sent =
        wire.alloc().is_some_and(|mut frame| write(&mut frame) && wire.push(frame.seal(TxMeta::default())));
    stats.count(if is_sent { sent } else { Counter::NetTxNoBuffer });
}
