//! Our side: net and tcp over a device, polled by the test's own thread in the core loop's order, and what each
//! connection is to do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use ironwarp_net::{DuplicateProbes, Net, NetConfig, Received, Route};
use ironwarp_port::dpdk::{DpdkPort, Eal, MbufFrame};
use ironwarp_port::instrument::{Capture, CaptureLimits, Instrumented, PortControl, WallClock};
use ironwarp_port::{Burst, Wire};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::{ConnId, State, Tcp, TcpConfig, TcpEvents};
use ironwarp_types::{Flow, MacAddr, Nanos};

use crate::kernel::{is_ipv6, linux};
use crate::pattern::{Pattern, read_all};

/// Our address, in the test's family. The kernel's is [`linux`].
pub fn ours() -> IpAddr {
    if is_ipv6() {
        Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 2).into()
    } else {
        Ipv4Addr::new(10, 88, 0, 2).into()
    }
}

/// Not the device's own: a tap's kernel end has that one.
const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x88]);

/// Ends whatever stands still, with what is known about it. Far beyond what a busy machine needs.
const DEADLINE: Duration = Duration::from_secs(60);

/// Where a capture of the whole test goes when somebody asks for one.
const CAPTURE: &str = "IRONWARP_LINUX_PCAP";

pub type LinuxPort = Instrumented<DpdkPort, WallClock>;

/// Net and tcp over a device.
pub struct Ours {
    pub net: Net,
    pub tcp: Tcp<LinuxPort>,
    pub wire: Wire<LinuxPort>,
    pub faults: PortControl,
    pub stats: CoreStats,
    /// Connections that the kernel opened and nobody has taken up, and what has happened to them.
    pub accepted: Vec<(ConnId, TcpEvents)>,
    pub talks: Vec<Talk>,
    started: Instant,
    _eal: Eal,
}

/// What one connection is to do, and what has become of it.
pub struct Talk {
    pub id: ConnId,
    pub source: Pattern,
    /// Bytes read, each of them right.
    pub taken: u64,
    /// Everything that has happened.
    pub events: TcpEvents,
    /// Whether what arrives is read.
    pub reads: bool,
    /// Whether our direction is closed once the source is empty.
    pub closes: bool,
    closed: bool,
}

/// Small enough that a test can wait for the wire to be quiet, large enough for a kernel that delays its ACKs.
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

impl Ours {
    pub fn new(eal: Eal, port: DpdkPort, mtu_bytes: u16, config: TcpConfig) -> Self {
        let stats = CoreStats::detached();
        let port = Instrumented::new(port, WallClock, stats.clone());
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
            ..NetConfig::new(OUR_MAC, ours(), bits, mtu_bytes, [3, 5])
        };
        let net = Net::new(net_config, wire.caps(), stats.clone());
        // A process number keeps the initial sequence numbers of two runs apart.
        let secret = [u64::from(std::process::id()), 7];
        let tcp = Tcp::new(config, net.hasher(), secret, stats.clone());
        let started = Instant::now();
        Ours { net, tcp, wire, faults, stats, accepted: Vec::new(), talks: Vec::new(), started, _eal: eal }
    }

    pub fn now(&self) -> Nanos {
        Nanos::from(self.started.elapsed()) + Nanos::from_secs(1)
    }

    /// One iteration of a core loop.
    pub fn turn(&mut self) {
        let mut burst = Burst::new();
        self.wire.rx_burst(&mut burst);
        self.turn_with(burst);
        std::thread::yield_now();
    }

    /// One iteration with these frames.
    pub fn turn_with(&mut self, burst: Burst<MbufFrame>) {
        let now = self.now();
        for frame in burst {
            if let Some(Received::Segment(segment)) = self.net.on_frame(now, frame, &mut self.wire) {
                let (net, flow, mac) = (&self.net, segment.flow, segment.remote_mac);
                let event = self.tcp.on_segment(now, segment, || net.path_to(&flow, mac), &mut self.wire);
                if let Some((id, events)) = event {
                    note(&mut self.talks, &mut self.accepted, id, events);
                }
            }
        }
        self.net.on_timers(now, &mut self.wire);
        let (talks, accepted) = (&mut self.talks, &mut self.accepted);
        self.tcp.on_timers(now, &mut self.wire, &mut |id, events| note(talks, accepted, id, events));
        for talk in &mut self.talks {
            talk.turn(now, &mut self.tcp, &mut self.wire);
        }
        self.tcp.flush_acks(now, &mut self.wire);
        self.wire.flush();
        debug_assert_eq!(self.tcp.check(), Ok(()));
    }

    /// Goes on until `done`.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Ours) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !done(self) {
            self.turn();
            assert!(Instant::now() < end, "waited in vain for {what}: {}", self.describe());
        }
    }

    /// The number of a talk over a connection that the kernel opens.
    #[track_caller]
    pub fn accept(&mut self, sends: u64) -> usize {
        self.until("a connection from Linux", |ours| !ours.accepted.is_empty());
        let (id, events) = self.accepted.remove(0);
        self.talk(id, sends, events)
    }

    /// The number of a talk over a connection that we open.
    #[track_caller]
    pub fn connect(&mut self, port: u16, sends: u64) -> usize {
        let remote = SocketAddr::from((linux(), port));
        let local_port = self.tcp.ephemeral_port(ours(), remote).expect("a free port");
        self.connect_from(local_port, remote, sends)
    }

    #[track_caller]
    pub fn connect_from(&mut self, local_port: u16, remote: SocketAddr, sends: u64) -> usize {
        let flow = Flow { local: SocketAddr::from((ours(), local_port)), remote };
        let mut path = None;
        self.until("Linux's link address", |ours| {
            let now = ours.now();
            if let Route::Ready(ready) = ours.net.route(now, remote.ip(), &mut ours.wire) {
                path = Some(ready);
            }
            path.is_some()
        });
        let path = path.expect("just found");
        let id = self.tcp.connect(self.now(), flow, path, &mut self.wire).expect("a free place");
        self.talk(id, sends, TcpEvents::empty())
    }

    /// A talk over a connection, which sends so many bytes and stays open.
    fn talk(&mut self, id: ConnId, sends: u64, events: TcpEvents) -> usize {
        let source = Pattern::new(sends, usize::MAX);
        self.talks.push(Talk { id, source, taken: 0, events, reads: true, closes: false, closed: false });
        self.talks.len() - 1
    }

    /// Both directions of every talk are closed and nothing went wrong.
    #[track_caller]
    pub fn until_all_closed(&mut self) {
        self.until("the end of every connection", |ours| ours.talks.iter().all(Talk::is_over));
        for talk in &self.talks {
            let wrong = TcpEvents::RESET | TcpEvents::TIMED_OUT | TcpEvents::REFUSED;
            assert!(!talk.events.intersects(wrong), "{:?}", talk.events);
            assert!(talk.events.contains(TcpEvents::CLOSED | TcpEvents::PEER_CLOSED), "{:?}", talk.events);
        }
    }

    /// Gives back every connection, and finds nothing left of any.
    #[track_caller]
    pub fn release_all(&mut self) {
        for talk in self.talks.drain(..) {
            self.tcp.release(talk.id);
        }
        self.tcp.check().unwrap_or_else(|fault| panic!("{fault}"));
    }

    pub fn read(&self, counter: Counter) -> u64 {
        self.stats.read(counter)
    }

    /// What a failing test says.
    pub fn describe(&self) -> String {
        let talks = self.talks.iter().map(|talk| {
            let state = self.tcp.state(talk.id);
            format!("{state:?}, {} taken, {} to send, {:?}", talk.taken, talk.source.left, talk.events)
        });
        let counters = Counter::ALL.iter().filter(|&&counter| self.read(counter) > 0);
        let counters = counters.map(|&counter| format!("{} {}", counter.name(), self.read(counter)));
        let (talks, counters): (Vec<_>, Vec<_>) = (talks.collect(), counters.collect());
        format!("{}\n{}", talks.join("\n"), counters.join("\n"))
    }
}

/// Tells an event to the talk it belongs to.
fn note(talks: &mut [Talk], accepted: &mut Vec<(ConnId, TcpEvents)>, id: ConnId, events: TcpEvents) {
    if let Some(talk) = talks.iter_mut().find(|talk| talk.id == id) {
        talk.events |= events;
    } else if let Some((_, before)) = accepted.iter_mut().find(|(of, _)| *of == id) {
        *before |= events;
    } else if events.contains(TcpEvents::ESTABLISHED) {
        accepted.push((id, events));
    }
}

impl Talk {
    pub fn is_over(&self) -> bool {
        self.events.intersects(TcpEvents::OVER)
    }

    fn turn(&mut self, now: Nanos, tcp: &mut Tcp<LinuxPort>, wire: &mut Wire<LinuxPort>) {
        if self.reads {
            read_all(&mut tcp.rx(self.id), &mut self.taken);
        }
        if self.is_over() {
            return;
        }
        tcp.transmit(now, self.id, &mut self.source, wire, 16);
        let open = matches!(tcp.state(self.id), State::Established | State::CloseWait);
        if self.closes && open && !self.closed && self.source.left == 0 {
            self.closed = true;
            self.events |= tcp.close(now, self.id, wire);
        }
    }
}
