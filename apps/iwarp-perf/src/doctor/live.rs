//! Checks with the device open: its link, address conflicts, and a peer.
//!
//! Addresses are probed before they are announced (RFC 5227 s2.1, RFC 4862 s5.4), so that a host
//! which already has one is not disturbed. A connection to the peer is closed at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ironwarp::config::DeviceConfig;
use ironwarp::host::Finding;
use ironwarp::{Config, ConnectFailure, Context, Event, QpAttr, Stack, VerbsError, Worker};

use super::report::Report;

/// A link that negotiates needs a few seconds.
const LINK_UP_TIMEOUT: Duration = Duration::from_secs(8);
/// A probe is sent within a second; the address is announced two seconds later.
const DAD_DURATION: Duration = Duration::from_millis(3_600);
/// Longer than the limits of [`shorten_timeouts`] on each step of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const DISCONNECT_TIME: Duration = Duration::from_millis(200);

/// A stack whose workers this thread polls.
struct LiveDevice {
    stack: Stack,
    workers: Vec<Worker>,
    ctx: Context,
}

/// Opens the device and checks its link, the addresses, and the peer.
pub fn examine(config: Config, connect: Option<SocketAddr>, report: &Report) {
    let device = config.port.device.clone();
    if matches!(device, DeviceConfig::Memory {} | DeviceConfig::Ring { .. }) {
        let inside = format!("{} lies inside one process: nothing to open", device.kind());
        return report.add(Finding::good("device", inside));
    }
    let ours: Vec<String> = config.addresses().iter().flatten().map(|addr| addr.to_string()).collect();
    let further = config.fabrics.iter().map(|fabric| fabric.port.device.clone());
    let devices: Vec<DeviceConfig> = core::iter::once(device).chain(further).collect();
    match LiveDevice::new(shorten_timeouts(config)) {
        Ok(mut device) => {
            let kinds: Vec<&str> = devices.iter().map(DeviceConfig::kind).collect();
            report.add(Finding::good("device", format!("{}: opens", kinds.join(", "))));
            device.run_checks(&devices, &ours, connect, report);
        }
        Err(line) => report.add(Finding::fault("device", line, "DPDK's own messages above say more")),
    }
    #[cfg(feature = "dpdk")]
    ironwarp::cleanup_dpdk();
}

/// Enables address probes and shortens timeouts.
fn shorten_timeouts(mut config: Config) -> Config {
    for net in
        core::iter::once(&mut config.net).chain(config.fabrics.iter_mut().map(|fabric| &mut fabric.net))
    {
        net.dad_probes_ipv4 = net.dad_probes_ipv4.max(1);
        net.dad_probes_ipv6 = net.dad_probes_ipv6.max(1);
    }
    config.tcp.syn_retries = config.tcp.syn_retries.min(3);
    config.mpa.startup_timeout_ms = config.mpa.startup_timeout_ms.min(4_000);
    config
}

impl LiveDevice {
    fn new(config: Config) -> Result<Self, String> {
        let (stack, workers) = Stack::builder(config).build().map_err(|error| error.to_string())?;
        let ctx = stack.context().map_err(|error| error.to_string())?;
        Ok(LiveDevice { stack, workers, ctx })
    }

    fn run_checks(
        &mut self,
        devices: &[DeviceConfig],
        ours: &[String],
        connect: Option<SocketAddr>,
        report: &Report,
    ) {
        let start = Instant::now();
        for (port, device) in (0..).zip(devices) {
            // A memif must not be polled without a link.
            while !self.workers.iter_mut().all(|worker| worker.port_link_up(port)) {
                if start.elapsed() > LINK_UP_TIMEOUT {
                    let which = match devices.len() {
                        1 => "the device".to_owned(),
                        _ => format!("the device of port {port}"),
                    };
                    let found = format!("{which} has no link");
                    return report.add(Finding::fault("link", found, link_remedy(device)));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        report.add(Finding::good("link", "up"));
        self.poll_for(DAD_DURATION);
        let list = ours.join(", ");
        if self.counter("net_addresses_duplicate") > 0 {
            return report.add(Finding::fault(
                "address",
                format!("another station on the link has an address of net.address or net.addresses ({list})"),
                "give each node an address of its own; `arping -D` from a third one names the other's link address",
            ));
        }
        report.add(Finding::good("address", format!("{list}: nobody else has it")));
        let Some(peer) = connect else { return };
        let finding = self.check_peer(peer);
        report.add(finding.unwrap_or_else(|error| Finding::fault("peer", error.to_string(), "")));
    }

    fn poll_for(&mut self, span: Duration) {
        let start = Instant::now();
        while start.elapsed() < span {
            self.poll();
        }
    }

    fn poll(&mut self) {
        self.workers.iter_mut().for_each(|worker| {
            worker.poll(1);
        });
        std::thread::yield_now();
    }

    fn counter(&self, name: &str) -> u64 {
        self.stack.counters().iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }

    fn check_peer(&mut self, peer: SocketAddr) -> Result<Finding, VerbsError> {
        let (pd, cq) = (self.ctx.alloc_pd(), self.ctx.create_cq(16)?);
        let qp = self.ctx.create_qp(pd, &QpAttr::new(cq))?;
        self.ctx.connect(qp, peer, b"")?;
        let start = Instant::now();
        while start.elapsed() < CONNECT_TIMEOUT {
            self.poll();
            let speaks = |how: &str| Ok(Finding::good("peer", format!("{peer}: speaks iWARP, and {how}")));
            match self.ctx.poll_event() {
                Some(Event::Established { .. }) => {
                    self.ctx.disconnect(qp)?;
                    self.poll_for(DISCONNECT_TIME);
                    return speaks("took a connection");
                }
                Some(Event::Rejected { .. }) => return speaks("refused ours, as servers of one program do"),
                Some(Event::ConnectFailed { reason, .. }) => return Ok(self.connect_finding(peer, reason)),
                _ => {}
            }
        }
        Ok(self.connect_finding(peer, ConnectFailure::TimedOut))
    }

    /// Explains a failure. TCP connected if it sent bytes, so a later failure is one of iWARP.
    fn connect_finding(&self, peer: SocketAddr, reason: ConnectFailure) -> Finding {
        let tcp = self.counter("tcp_tx_bytes") > 0;
        let other = "it speaks another protocol at this port, or its MPA is set so that ours is refused";
        let name = "name the port of an iWARP server; a capture (--pcap) shows what it said";
        let (found, remedy) = match reason {
            ConnectFailure::Unreachable => (
                "nobody answers for the address on the link, or no route leads there",
                "check cable, net.vlan, net.gateway and the prefix of net.address; a polled far end answers only while \
                 its program runs",
            ),
            ConnectFailure::Refused => (
                "the host is there, and nobody listens at this port",
                "start the server there, or name its port",
            ),
            ConnectFailure::Closed | ConnectFailure::Protocol | ConnectFailure::Terminated => (other, name),
            ConnectFailure::TimedOut if tcp => {
                ("TCP connects, and no iWARP answer comes: another protocol?", name)
            }
            ConnectFailure::TimedOut => (
                "the host's link address is known, and TCP gets no answer",
                "look for a firewall there, and for a way back to net.address",
            ),
            _ => ("no connection could be begun", "see the limits in the configuration"),
        };
        Finding::fault("peer", format!("{peer}: {found}"), remedy)
    }
}

fn link_remedy(device: &DeviceConfig) -> &'static str {
    match device {
        DeviceConfig::Memif { .. } => "start the program at the other end of the socket",
        DeviceConfig::Vhost { .. } => "start the virtual machine whose card connects to the socket",
        DeviceConfig::Tap { interface: _ } => "sudo ip link set the interface up",
        _ => "plug the cable in, or bring the far end up",
    }
}
