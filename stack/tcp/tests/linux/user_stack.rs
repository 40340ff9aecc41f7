//! Our side: net and tcp over a device, polled by the test's thread in the order of the core loop,
//! and a transfer per connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironwarp_net::{DuplicateProbes, Net, NetConfig, Received, Route};
use ironwarp_port::dpdk::{DpdkPort, Eal, MbufFrame};
use ironwarp_port::instrument::{Capture, CaptureLimits, Instrumented, PortControl, WallClock};
use ironwarp_port::{Burst, Wire, Wires};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::{ConnId, State, Tcp, TcpConfig, TcpEvents, Transport};
use ironwarp_types::{Flow, MacAddr, Nanos};

use crate::kernel::{is_ipv6, linux};
use crate::pattern::{Pattern, read_all};

/// Our address, in the test's family. The kernel's is [`linux`].
pub fn our_ip() -> IpAddr {
    if is_ipv6() {
        Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 2).into()
    } else {
        Ipv4Addr::new(10, 88, 0, 2).into()
    }
}

/// Not the device's own address, which a tap's kernel end has.
const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x88]);

/// The deadline of a test that makes no progress. Far longer than a loaded machine needs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The environment variable with the path of a capture of the whole test.
const CAPTURE: &str = "IRONWARP_LINUX_PCAP";

pub type LinuxPort = Instrumented<DpdkPort>;

/// Net and tcp over a device.
pub struct UserStack {
    pub net: Net,
    pub tcp: Tcp<LinuxPort>,
    pub wires: Wires<LinuxPort>,
    pub faults: PortControl,
    pub stats: CoreStats,
    /// Connections that the kernel opened and that have no transfer yet, with their events.
    pub accepted: Vec<(ConnId, TcpEvents)>,
    pub transfers: Vec<Transfer>,
    started: Instant,
    _eal: Eal,
}

/// The task and the state of one connection.
pub struct Transfer {
    pub id: ConnId,
    pub source: Pattern,
    /// Bytes read and checked.
    pub taken: u64,
    /// All events so far.
    pub events: TcpEvents,
    /// Read arriving bytes.
    pub reads: bool,
    /// Close our direction once the source is empty.
    pub closes: bool,
    closed: bool,
}

/// Short timeouts, so that a test can wait for silence, but long enough for delayed ACKs of the
/// kernel.
pub fn config() -> TcpConfig {
    TcpConfig {
        connections_max: 128,
        rx_frames_shared: 1024,
        retained_units_shared: 1024,
        rto_min: Nanos::from_millis(50),
        user_timeout: Nanos::from_secs(50),
        ..TcpConfig::default()
    }
}

impl UserStack {
    pub fn new(eal: Eal, port: DpdkPort, mtu_bytes: u16, config: TcpConfig) -> Self {
        let stats = CoreStats::detached();
        let port = Instrumented::new(port, Arc::new(WallClock), stats.clone());
        let faults = port.control();
        if let Ok(path) = std::env::var(CAPTURE) {
            let capture = Capture::create(Path::new(&path), CaptureLimits::default()).expect("a capture");
            faults.start_capture(capture.interface("ours").expect("an interface"));
        }
        let wire = Wire::new(port);
        let bits = if is_ipv6() { 64 } else { 24 };
        let at_once = DuplicateProbes { ipv4: 0, ipv6: 0 };
        let net_config = NetConfig {
            duplicate_probes: at_once,
            ..NetConfig::new(OUR_MAC, our_ip(), bits, mtu_bytes, [3, 5])
        };
        let net = Net::new(net_config, wire.caps(), stats.clone());
        // The process id separates the initial sequence numbers of two runs.
        let secret = [u64::from(std::process::id()), 7];
        let tcp = Tcp::new(config, net.hasher(), secret, stats.clone());
        let started = Instant::now();
        UserStack {
            net,
            tcp,
            wires: Wires::single(wire),
            faults,
            stats,
            accepted: Vec::new(),
            transfers: Vec::new(),
            started,
            _eal: eal,
        }
    }

    pub fn now(&self) -> Nanos {
        Nanos::from(self.started.elapsed()) + Nanos::from_secs(1)
    }

    /// One iteration of a core loop.
    pub fn poll(&mut self) {
        let mut burst = Burst::new();
        self.wires.first_mut().rx_burst(&mut burst);
        self.poll_with(burst);
        std::thread::yield_now();
    }

    /// One iteration with these frames.
    pub fn poll_with(&mut self, burst: Burst<MbufFrame>) {
        let now = self.now();
        for frame in burst {
            if let Some(Received::Packet(segment)) = self.net.on_frame(now, frame, self.wires.first_mut()) {
                let (net, flow, mac) = (&self.net, segment.flow, segment.remote_mac);
                let event = self.tcp.on_segment(now, segment, || net.path_to(&flow, mac), &mut self.wires);
                if let Some((id, events)) = event {
                    record_events(&mut self.transfers, &mut self.accepted, id, events);
                }
            }
        }
        self.net.on_timers(now, self.wires.first_mut());
        let (transfers, accepted) = (&mut self.transfers, &mut self.accepted);
        self.tcp.on_timers(now, &mut self.wires, &mut |id, events| {
            record_events(transfers, accepted, id, events)
        });
        for transfer in &mut self.transfers {
            transfer.poll(now, &mut self.tcp, &mut self.wires);
        }
        self.tcp.flush_acks(now, &mut self.wires);
        self.wires.flush();
        debug_assert_eq!(self.tcp.check(), Ok(()));
    }

    /// Polls until `done`.
    #[track_caller]
    pub fn run_until(&mut self, what: &str, mut done: impl FnMut(&mut UserStack) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !done(self) {
            self.poll();
            assert!(Instant::now() < end, "timed out while waiting for {what}: {}", self.describe());
        }
    }

    /// Waits for a connection from the kernel, and returns the index of its transfer.
    #[track_caller]
    pub fn accept(&mut self, sends: u64) -> usize {
        self.run_until("a connection from Linux", |stack| !stack.accepted.is_empty());
        let (id, events) = self.accepted.remove(0);
        self.transfer(id, sends, events)
    }

    /// Opens a connection, and returns the index of its transfer.
    #[track_caller]
    pub fn connect(&mut self, port: u16, sends: u64) -> usize {
        let remote = SocketAddr::from((linux(), port));
        let local_port = self.tcp.ephemeral_port(self.now(), our_ip(), remote).expect("a free port");
        self.connect_from(local_port, remote, sends)
    }

    #[track_caller]
    pub fn connect_from(&mut self, local_port: u16, remote: SocketAddr, sends: u64) -> usize {
        let flow = Flow { local: SocketAddr::from((our_ip(), local_port)), remote };
        let mut path = None;
        self.run_until("Linux's link address", |stack| {
            let now = stack.now();
            if let Route::Ready(ready) = stack.net.route(now, remote.ip(), stack.wires.first_mut()) {
                path = Some(ready);
            }
            path.is_some()
        });
        let path = path.expect("just found");
        let id = self.tcp.connect(self.now(), flow, path, &mut self.wires).expect("a free slot");
        self.transfer(id, sends, TcpEvents::empty())
    }

    /// Adds a transfer that sends `sends` bytes and stays open.
    fn transfer(&mut self, id: ConnId, sends: u64, events: TcpEvents) -> usize {
        let source = Pattern::new(sends, usize::MAX);
        self.transfers.push(Transfer {
            id,
            source,
            taken: 0,
            events,
            reads: true,
            closes: false,
            closed: false,
        });
        self.transfers.len() - 1
    }

    /// Waits until both directions of every transfer are closed without error.
    #[track_caller]
    pub fn run_until_all_closed(&mut self) {
        self.run_until("the end of every connection", |stack| stack.transfers.iter().all(Transfer::is_over));
        for transfer in &self.transfers {
            let wrong = TcpEvents::RESET | TcpEvents::TIMED_OUT | TcpEvents::REFUSED;
            assert!(!transfer.events.intersects(wrong), "{:?}", transfer.events);
            assert!(
                transfer.events.contains(TcpEvents::CLOSED | TcpEvents::PEER_CLOSED),
                "{:?}",
                transfer.events
            );
        }
    }

    /// Releases every connection, and asserts that no resource leaks.
    #[track_caller]
    pub fn release_all(&mut self) {
        for transfer in self.transfers.drain(..) {
            self.tcp.release(transfer.id);
        }
        self.tcp.check().unwrap_or_else(|fault| panic!("{fault}"));
    }

    pub fn read(&self, counter: Counter) -> u64 {
        self.stats.read(counter)
    }

    /// Returns the state for the message of a failing test.
    pub fn describe(&self) -> String {
        let transfers = self.transfers.iter().map(|transfer| {
            let state = self.tcp.state(transfer.id);
            format!(
                "{state:?}, {} taken, {} to send, {:?}",
                transfer.taken, transfer.source.left, transfer.events
            )
        });
        let counters = Counter::ALL.iter().filter(|&&counter| self.read(counter) > 0);
        let counters = counters.map(|&counter| format!("{} {}", counter.name(), self.read(counter)));
        let (transfers, counters): (Vec<_>, Vec<_>) = (transfers.collect(), counters.collect());
        format!("{}\n{}", transfers.join("\n"), counters.join("\n"))
    }
}

/// Records an event in the transfer that it belongs to.
fn record_events(
    transfers: &mut [Transfer],
    accepted: &mut Vec<(ConnId, TcpEvents)>,
    id: ConnId,
    events: TcpEvents,
) {
    if let Some(transfer) = transfers.iter_mut().find(|transfer| transfer.id == id) {
        transfer.events |= events;
    } else if let Some((_, before)) = accepted.iter_mut().find(|(of, _)| *of == id) {
        *before |= events;
    } else if events.contains(TcpEvents::ESTABLISHED) {
        accepted.push((id, events));
    }
}

impl Transfer {
    pub fn is_over(&self) -> bool {
        self.events.intersects(TcpEvents::ENDED)
    }

    fn poll(&mut self, now: Nanos, tcp: &mut Tcp<LinuxPort>, wires: &mut Wires<LinuxPort>) {
        if self.reads {
            read_all(&mut tcp.rx(self.id), &mut self.taken);
        }
        if self.is_over() {
            return;
        }
        tcp.transmit(now, self.id, &mut self.source, wires, 16);
        let open = matches!(tcp.state(self.id), State::Established | State::CloseWait);
        if self.closes && open && !self.closed && self.source.left == 0 {
            self.closed = true;
            self.events |= tcp.close(now, self.id, wires);
        }
    }
}
