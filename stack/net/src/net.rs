//! The layer itself: what one core knows of the network.

use core::net::{IpAddr, Ipv4Addr};

use ironwarp_port::{Frame, Port, PortCaps, TxMeta, TxOffloads, Wire};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{Flow, MacAddr, Nanos};

use crate::config::NetConfig;
use crate::flow::FlowHasher;
use crate::neighbour::{self, Neighbours};
use crate::pace::Pace;
use crate::path::{Path, Station};
use crate::pmtu::PathMtus;

/// ICMP errors read at once after a pause: a router that loses a link reports about every connection through it.
const ICMP_ERROR_BURST: u32 = 256;

/// Ethernet, ARP, IPv4 and ICMP for one core and one address.
///
/// Frames come in through [`Net::on_frame`], ways out are asked for with [`Net::route`], and time passes through
/// [`Net::on_timers`]. Nothing allocates after [`Net::new`].
pub struct Net {
    pub(crate) cfg: NetConfig,
    pub(crate) ours: Station,
    /// The bits of an address that name its network.
    pub(crate) network_mask: u32,
    /// Our address as a part of TCP's pseudo-header.
    pub(crate) our_sum: u32,
    pub(crate) hasher: FlowHasher,
    pub(crate) neighbours: Neighbours,
    pub(crate) path_mtus: PathMtus,
    pub(crate) echo: Pace,
    pub(crate) icmp_errors: Pace,
    pub(crate) stats: CoreStats,
    pub(crate) route_changes: u32,
    mtu_bytes: u16,
    offloads: TxOffloads,
}

impl Net {
    /// Net over a device. The MTU is the smaller of the configured and the device's.
    pub fn new(cfg: NetConfig, caps: &PortCaps, stats: CoreStats) -> Self {
        let hasher = FlowHasher::new(cfg.hash_secret);
        let host_bits = 32 - u32::from(cfg.prefix_len.min(32));
        Net {
            ours: Station { mac: cfg.mac, addr: cfg.addr },
            network_mask: u32::MAX.checked_shl(host_bits).unwrap_or(0),
            our_sum: crate::checksum::sum_addr(cfg.addr),
            hasher,
            neighbours: Neighbours::new(cfg.neighbours, hasher),
            path_mtus: PathMtus::new(cfg.path_mtus_max, hasher),
            echo: Pace::new(cfg.echo_per_second, cfg.echo_burst),
            icmp_errors: Pace::new(cfg.icmp_errors_per_second, ICMP_ERROR_BURST),
            stats,
            route_changes: 0,
            mtu_bytes: cfg.mtu_bytes.min(caps.mtu_bytes),
            offloads: caps.tx_offloads,
            cfg,
        }
    }

    /// Our link and network address.
    pub fn station(&self) -> Station {
        self.ours
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
    /// not answer any more. Whoever waits for a way asks again when this differs from what it saw last.
    pub fn route_changes(&self) -> u32 {
        self.route_changes
    }

    /// The way to a flow's far end through the station `mac`: the answer to a segment goes where the segment came from.
    ///
    /// IPv4 only, as is everything that [`Net::on_frame`] lets pass.
    pub fn path_to(&self, flow: &Flow, mac: MacAddr) -> Path {
        self.path_through(flow.remote.ip(), mac)
    }

    pub(crate) fn path_through(&self, dst: IpAddr, mac: MacAddr) -> Path {
        let addr = match dst {
            IpAddr::V4(v4) => v4,
            IpAddr::V6(v6) => v6.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED),
        };
        let mtu_bytes = self.path_mtus.to(dst).map_or(self.mtu_bytes, |limit| limit.min(self.mtu_bytes));
        Path::new(self.ours, Station { mac, addr }, mtu_bytes, self.offloads)
    }

    /// Remembers that packets to `dst` may have at most `mtu_bytes`, for ten minutes: TCP has believed a report that
    /// said so. Paths made from now on keep to it. Never below 576 bytes, or 1280 for IPv6.
    pub fn lower_path_mtu(&mut self, now: Nanos, dst: IpAddr, mtu_bytes: u16) {
        if mtu_bytes < self.mtu_bytes {
            self.path_mtus.lower(now, dst, mtu_bytes);
        }
    }

    /// Repeats ARP requests, probes neighbours in use before they grow stale, forgets the others.
    pub fn on_timers<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        if self.neighbours.next_due().is_some_and(|due| due <= now) {
            self.on_neighbours_due(now, wire);
        }
        if self.path_mtus.next_due() <= now {
            self.path_mtus.on_due(now);
        }
    }

    /// When [`Net::on_timers`] has something to do.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let neighbours = self.neighbours.next_due().unwrap_or(Nanos::MAX);
        let next = neighbours.min(self.path_mtus.next_due());
        (next != Nanos::MAX).then_some(next)
    }

    /// The invariants of the tables, for the simulator to call between steps.
    pub fn check(&self) -> Result<(), &'static str> {
        self.neighbours.check()?;
        self.path_mtus.check()
    }

    #[cold]
    fn on_neighbours_due<P: Port>(&mut self, now: Nanos, wire: &mut Wire<P>) {
        let (ours, stats) = (self.ours, &self.stats);
        let lost = self.neighbours.on_due(now, |addr, mac| send_request(ours, addr, mac, wire, stats));
        self.stats.add(Counter::NetNeighboursLost, u64::from(lost));
        self.route_changes = self.route_changes.wrapping_add(lost);
    }
}

/// Sends one ARP request. One that does not get out is counted and asked again in its turn.
pub(crate) fn send_request<P: Port>(
    ours: Station,
    target: Ipv4Addr,
    mac: Option<MacAddr>,
    wire: &mut Wire<P>,
    stats: &CoreStats,
) {
    let sent = wire.alloc().is_some_and(|mut frame| {
        neighbour::request(&mut frame, ours, target, mac) && wire.push(frame.seal(TxMeta::default()))
    });
    stats.count(if sent { Counter::NetArpRequestsSent } else { Counter::NetNoTxFrame });
}
