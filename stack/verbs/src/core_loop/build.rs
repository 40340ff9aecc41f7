//! Building a core loop from a configuration: every table is sized here and never grows.

use core::net::IpAddr;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ironwarp_llp::Transport;
use ironwarp_mem::CoreMem;
use ironwarp_net::{CoreRole, DuplicateProbes, IpHeaderDefaults, Net, NetConfig, VlanTag};
use ironwarp_port::{Burst, PerPort, Port, Wire};
use ironwarp_stats::{ConnectionRows, CoreStats};
use ironwarp_types::{Clock, MacAddr, Nanos};

use super::CoreLoop;
use super::clock::CoreClock;
use super::connection::ConnectionManager;
use super::connection_table::ConnectionTable;
use super::cores::OtherCores;
use super::data_path::prefetch::BurstPrefetch;
use super::data_path::qp::QpTable;
use super::data_path::quantum::Quantum;
use super::data_path::queues::QueueTable;
use super::data_path::remote_atomics::RemoteAtomics;
use super::data_path::{ConnOwner, DataPath};
use super::housekeeping::NetHousekeeping;
use super::lower::Lower;

use crate::config::{Config, ConfigError, DeviceConfig, PortConfig, TransportKind};
use crate::shared::StackShared;
use crate::stack::DriverPort;

/// The parts of a core loop that the configuration does not contain.
pub(crate) struct CoreParts<P: Port, C: Clock> {
    pub(crate) core: u16,
    pub(crate) clock: C,
    /// At least one.
    pub(crate) ports: Vec<P>,
    /// Lends the port as that of its driver, if it is of one.
    pub(crate) lend: fn(&mut P) -> Option<DriverPort<'_>>,
    /// [`Nanos::MAX`]: a link that is up stays up.
    pub(crate) link_poll_interval: Nanos,
    pub(crate) mem: CoreMem,
    pub(crate) stats: CoreStats,
    /// One page of counters for each port.
    pub(crate) port_stats: Vec<CoreStats>,
    /// The rows of the connections in the page; `None` if no other process can read it.
    pub(crate) connection_rows: Option<ConnectionRows>,
    /// The rings to the other cores; `None` on a stack of one core.
    pub(crate) other_cores: Option<Box<OtherCores<P::Frame>>>,
    /// The mailboxes of remote atomics; `None` on a stack of one core.
    pub(crate) remote_atomics: Option<Box<RemoteAtomics>>,
    /// The same for all cores of a stack, so that each can check what another sent. Keys initial
    /// sequence numbers, ephemeral ports and the flow hash.
    pub(crate) secret: [u64; 2],
}

impl<L: Lower, C: Clock> CoreLoop<L, C> {
    pub(crate) fn new(shared: Arc<StackShared>, parts: CoreParts<L::Port, C>) -> Result<Self, ConfigError> {
        let config = &shared.config;
        let limits = &config.limits;
        let now = parts.clock.now();
        let role = parts.other_cores.as_ref().map_or(CoreRole::Single, |other_cores| other_cores.role());
        let mut nets = Vec::new();
        for (number, (port, stats)) in (0..).zip(parts.ports.iter().zip(parts.port_stats)) {
            let net = net_config(&config.for_port(number.into()), port.caps().mac, parts.secret)?;
            let has_sctp = config.stack.transport.has(TransportKind::Sctp);
            let udp_port = if has_sctp { config.sctp.udp_local_port } else { 0 };
            let (transport, other_transport) = (L::PROTOCOL, L::OTHER_PROTOCOL);
            let net = NetConfig { role, port: number, transport, other_transport, udp_port, ..net };
            nets.push(Net::new(net, port.caps(), stats));
        }
        let nets = per_port(nets)?;
        let wires = per_port(parts.ports.into_iter().map(Wire::new))?;
        let llp = L::transport(config, nets.at(0).hasher(), parts.secret, parts.stats.clone());
        let slots = llp.slots();
        let dp: DataPath<L> = DataPath {
            core: parts.core,
            steering: parts.other_cores.as_ref().map(|other_cores| other_cores.steering()),
            other_cores: parts.other_cores,
            llp,
            mem: parts.mem,
            atomic_execution: config.rdmap.atomic_execution,
            rx_burst: Some(Box::new(Burst::new())),
            many_connections: false,
            burst_prefetch: BurstPrefetch::default(),
            scratch: vec![0; L::SCRATCH_BYTES].into(),
            qps: QpTable::new(limits.queue_pairs),
            queues: QueueTable::new(limits, parts.remote_atomics, parts.stats.clone()),
            conn_owners: vec![ConnOwner::Unowned; slots as usize].into(),
            timer_events: Vec::with_capacity(slots as usize),
            tx_ready: VecDeque::with_capacity((limits.queue_pairs + limits.half_open) as usize),
            quantum: Quantum::default(),
            quiescence_waiters: Vec::with_capacity(limits.queue_pairs as usize),
            nets,
            stats: parts.stats.clone(),
            single_max: usize::from(config.stack.fast_path),
            may_be_quiet: role == CoreRole::Single && !wires.has_several(),
            work: 0,
            doorbell_stage_work: 0,
            wires,
        };
        let announced = role == CoreRole::Follower;
        let stats = parts.stats.clone();
        let mut cm = ConnectionManager::new(parts.core, &shared, parts.stats.clone(), now);
        let connection_table = parts.connection_rows.map(|rows| Box::new(ConnectionTable::new(rows, slots)));
        if connection_table.is_some() {
            cm.arm_connection_table(now);
        }
        Ok(CoreLoop {
            dp,
            cm,
            connection_table,
            housekeeping: NetHousekeeping::new(shared.clone(), now, parts.link_poll_interval, announced),
            clock: CoreClock::new(parts.clock, stats),
            lend: parts.lend,
            next_due: None,
            timers_checked_at: Nanos::ZERO,
            pause_iterations: 0,
            idle_until: Nanos::ZERO,
            shared: shared.clone(),
        })
    }
}

impl<L: Lower, C: Clock> Drop for CoreLoop<L, C> {
    /// Ends every connection and flushes every work request, so that no context waits for a core
    /// that is gone. After a panic the core's state may be inconsistent: then as much is done as
    /// succeeds.
    fn drop(&mut self) {
        let core = self.dp.core;
        if std::thread::panicking() {
            tracing::error!(core, "the worker panicked; its queue pairs end");
        }
        if catch_unwind(AssertUnwindSafe(|| self.end_all())).is_err() {
            tracing::error!(core, "not every queue pair of the worker could be ended");
        }
        self.shared.cores[usize::from(core)].mark_dropped();
    }
}

impl<L: Lower, C: Clock> CoreLoop<L, C> {
    fn end_all(&mut self) {
        let now = self.clock.now();
        // Queue pairs and connections that contexts have requested and the core does not know yet.
        self.cm.serve_contexts(&mut self.dp, now, usize::MAX);
        self.cm.end_all(&mut self.dp, now);
        self.dp.wires.flush();
        self.dp.queues.notify();
        self.cm.leave_notifications();
    }
}

/// One value for each port, of which a stack has at least one.
fn per_port<T>(all: impl IntoIterator<Item = T>) -> Result<PerPort<T>, ConfigError> {
    let mut all = all.into_iter();
    let first = all.next().ok_or(ConfigError::Parse("a stack has at least one port".into()))?;
    Ok(PerPort::new(first, all))
}

fn net_config(config: &Config, mac: MacAddr, secret: [u64; 2]) -> Result<NetConfig, ConfigError> {
    let (address, prefix_bits) = config.net.parse()?;
    let mac = local_mac(config, mac, address);
    let net = NetConfig::new(mac, address, prefix_bits, config.port.mtu, secret);
    Ok(NetConfig {
        addresses: config.net.prefixes()?,
        gateway: config.net.gateway,
        gateway6: config.net.gateway6,
        routes: config.net.static_routes()?,
        ip_header: IpHeaderDefaults { hop_limit: config.net.hop_limit, dscp: config.net.dscp },
        vlan: config.net.vlan.map(|id| VlanTag { id, priority: config.net.vlan_priority }),
        duplicate_probes: DuplicateProbes {
            ipv4: config.net.dad_probes_ipv4,
            ipv6: config.net.dad_probes_ipv6,
        },
        fast_path: config.stack.fast_path,
        ..net
    })
}

/// Our link address: the device's, unless it has none (a ring) or the kernel uses it at its end (a
/// tap). In these cases it is a locally administered address made of our network address, so that
/// both ends of a link differ.
pub(crate) fn local_mac(config: &Config, device: MacAddr, address: IpAddr) -> MacAddr {
    let is_the_kernels = match &config.port.device {
        DeviceConfig::Tap { .. } => true,
        DeviceConfig::Dpdk { name, .. } => name.starts_with("net_tap"),
        _ => false,
    };
    if device != MacAddr::default() && !is_the_kernels {
        return device;
    }
    let [a, b, c, d] = match address {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(v6) => (v6.to_bits() as u32).to_be_bytes(),
    };
    MacAddr([0x02, 0x49, a, b, c, d])
}

/// The minimum over all ports: each port has its own pools, and all objects of the stack may use
/// one port.
pub(super) fn min_over_ports(config: &Config, of: impl Fn(&PortConfig) -> u32) -> u32 {
    config.port_configs().map(of).min().unwrap_or_default()
}

/// Received frames that a transport of one core may hold, beyond the device's ring: of two each has
/// half of them. With several cores a frame may
/// come from any queue's pool, so each pool must suffice for all cores and for the steered frames.
pub(super) fn rx_frames_per_core(config: &Config) -> u32 {
    let beyond = min_over_ports(config, |port| port.rx_frames - u32::from(port.ring_size()));
    let of_core = match u32::from(config.core.count) {
        1 => beyond,
        cores => (beyond - beyond / STEERED_DIVISOR) / cores,
    };
    if config.stack.transport.are_both() { of_core / 2 } else { of_core }
}

/// Frames that may be in the ring from one core to another: a power of two.
pub(crate) fn steered_frames(config: &Config) -> usize {
    let beyond = min_over_ports(config, |port| port.rx_frames - u32::from(port.ring_size()));
    let others = u32::from(config.core.count).saturating_sub(1).max(1);
    let share = (beyond / STEERED_DIVISOR / others).clamp(STEERED_MIN, STEERED_MAX);
    // Rounds down to a power of two.
    1 << share.ilog2()
}

/// The divisor for the share of received frames that may be in rings between cores.
const STEERED_DIVISOR: u32 = 4;

/// Four times the steered frames that an iteration takes from one core.
const STEERED_MAX: u32 = 512;

/// Half a burst.
const STEERED_MIN: u32 = 16;
