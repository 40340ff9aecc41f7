//! A node with stock smoltcp: one `Interface` with one TCP socket, over the same kind of port as
//! our nodes.
//!
//! Only the glue is ours: the task, and a device over an in-memory port that sends a limited number
//! of frames per poll. smoltcp's time has microseconds, so the node may be polled again within one.

use ironwarp_port::memory::{MemoryConfig, MemoryControl, MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, TxMeta, Wire};
use ironwarp_sim::Node;
use ironwarp_tcp::UnitSource;
use ironwarp_types::Nanos;
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{self, CongestionControl, Socket};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, Ipv4Address};

use super::ironwarp_node::link_address;
use super::progress::{EndAction, Task, TaskProgress};

/// smoltcp's congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SmoltcpCongestion {
    /// None.
    None,
    Reno,
    /// Its CUBIC, which is its default.
    #[default]
    Cubic,
}

/// The setup of a node.
#[derive(Clone)]
pub struct SmoltcpSetup {
    /// Its number: the last byte of its addresses.
    pub host: u8,
    pub device: MemoryConfig,
    /// Bytes of the receive buffer and of the transmit buffer.
    pub buffer_bytes: usize,
    pub congestion: SmoltcpCongestion,
    /// Whether it delays acknowledgements by its default of 10 ms.
    pub delays_acks: bool,
    pub seed: u64,
}

/// A host with smoltcp.
pub struct SmoltcpNode {
    device: SmoltcpDevice,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    pub(super) control: MemoryControl,
    pub(super) frames_made: usize,
    pub task_progress: TaskProgress,
    /// When the connection ended, except for TIME-WAIT.
    pub(super) closed_at: Option<Nanos>,
    pub(super) was_reset: bool,
    started: bool,
}

impl SmoltcpNode {
    /// A host on `port`, which `setup.device` describes.
    pub fn new(setup: &SmoltcpSetup, port: MemoryPort, task: Task) -> Self {
        let control = port.control();
        let frames_made = setup.device.rx_frames + setup.device.tx_frames;
        let mut device = SmoltcpDevice { wire: Wire::new(port), rx: Burst::new(), tx_left: 0 };
        let mut config = Config::new(EthernetAddress(link_address(setup.host).0).into());
        config.random_seed = setup.seed;
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|addrs| {
            // The list was empty and has room for more than one address.
            let _ = addrs.push(IpCidr::new(IpAddress::v4(10, 0, 0, setup.host), 24));
        });
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket(setup));
        SmoltcpNode {
            device,
            interface,
            sockets,
            socket,
            control,
            frames_made,
            task_progress: TaskProgress::new(task),
            closed_at: None,
            was_reset: false,
            started: false,
        }
    }

    pub fn listen(&mut self, port: u16) -> Result<(), tcp::ListenError> {
        self.sockets.get_mut::<Socket>(self.socket).listen(port)
    }

    pub fn connect(&mut self, from: u16, to: (u8, u16)) -> Result<(), tcp::ConnectError> {
        let remote = (IpAddress::Ipv4(Ipv4Address::new(10, 0, 0, to.0)), to.1);
        let socket = self.sockets.get_mut::<Socket>(self.socket);
        socket.connect(self.interface.context(), remote, from)
    }

    pub fn state(&self) -> tcp::State {
        self.sockets.get::<Socket>(self.socket).state()
    }

    fn receive(&mut self, at: Instant) {
        for _ in 0..RX_FRAMES {
            let result = self.interface.poll_ingress_single(at, &mut self.device, &mut self.sockets);
            if matches!(result, PollIngressSingleResult::None) {
                return;
            }
        }
    }

    /// Lets sockets send one frame at a time, until they have nothing left or the limit is reached.
    fn send(&mut self, at: Instant) {
        while self.device.tx_left > 0 {
            let result = self.interface.poll_egress(at, &mut self.device, &mut self.sockets);
            if matches!(result, PollResult::None) {
                return;
            }
        }
    }

    fn run_task(&mut self, now: Nanos) {
        let socket = self.sockets.get_mut::<Socket>(self.socket);
        self.task_progress.set_now(now);
        read(socket, &mut self.task_progress);
        write(socket, &mut self.task_progress);
        if self.task_progress.wants_abort() {
            self.task_progress.closed = true;
            socket.abort();
        } else if socket.may_send() && self.task_progress.wants_close() {
            self.task_progress.closed = true;
            socket.close();
        }
        self.observe(now);
    }

    /// Records the peer's FIN and the end of the connection.
    fn observe(&mut self, now: Nanos) {
        let state = self.state();
        self.started |= !matches!(state, tcp::State::Closed | tcp::State::Listen);
        let peer_closed = matches!(
            state,
            tcp::State::CloseWait | tcp::State::LastAck | tcp::State::Closing | tcp::State::TimeWait
        );
        if peer_closed {
            self.task_progress.peer_closed_at.get_or_insert(now);
        }
        let over = matches!(state, tcp::State::Closed | tcp::State::TimeWait);
        if self.started && over && self.closed_at.is_none() {
            self.closed_at = Some(now);
            // A socket that closed in order has sent its FIN and seen the peer's.
            let in_order = self.task_progress.closed && self.task_progress.peer_closed_at.is_some();
            self.was_reset = !in_order && !matches!(self.task_progress.task.end, EndAction::AbortAfter(_));
        }
    }

    fn next_deadline(&mut self, now: Nanos, at: Instant) -> Option<Nanos> {
        let busy = self.device.tx_left == 0 || !self.device.rx.is_empty();
        if busy || self.device.wire.waiting_frames() > 0 || self.control.rx_waiting_frames() > 0 {
            return Some(now);
        }
        let micros = self.interface.poll_at(at, &self.sockets).map(|at| at.total_micros().max(0) as u64);
        micros.map(Nanos::from_micros).into_iter().chain(self.task_progress.next_read()).min()
    }
}

impl Node for SmoltcpNode {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let at = Instant::from_micros((now.0 / 1_000) as i64);
        self.device.tx_left = TX_FRAMES_PER_POLL;
        self.interface.poll_maintenance(at);
        self.receive(at);
        self.run_task(now);
        self.send(at);
        // Only an aborted socket reaches its final state by sending.
        self.observe(now);
        self.device.wire.flush();
        self.next_deadline(now, at)
    }

    fn check(&self) -> Result<(), String> {
        self.task_progress.check()
    }
}

fn socket(setup: &SmoltcpSetup) -> Socket<'static> {
    let ring = || tcp::SocketBuffer::new(vec![0; setup.buffer_bytes]);
    let mut socket = Socket::new(ring(), ring());
    socket.set_congestion_control(match setup.congestion {
        SmoltcpCongestion::None => CongestionControl::None,
        SmoltcpCongestion::Reno => CongestionControl::Reno,
        SmoltcpCongestion::Cubic => CongestionControl::Cubic,
    });
    socket.set_nagle_enabled(false);
    if !setup.delays_acks {
        socket.set_ack_delay(None);
    }
    socket
}

fn read(socket: &mut Socket<'_>, task_progress: &mut TaskProgress) {
    if !socket.can_recv() {
        return;
    }
    let mut room = task_progress.may_read();
    while room > 0 && socket.can_recv() {
        let took = socket.recv(|bytes| {
            let bytes = bytes.get(..bytes.len().min(room)).unwrap_or(bytes);
            task_progress.take(bytes);
            (bytes.len(), bytes.len())
        });
        room -= took.unwrap_or(room);
    }
    task_progress.record_arrivals();
}

fn write(socket: &mut Socket<'_>, task_progress: &mut TaskProgress) {
    while socket.can_send() && task_progress.left() > 0 {
        let sent = socket.send(|room| {
            let len = task_progress.fill(room);
            (len, len)
        });
        if sent.is_err() {
            return;
        }
    }
}

/// Frames that one poll receives and sends: the same limit as our nodes'.
const RX_FRAMES: usize = 128;
const TX_FRAMES_PER_POLL: usize = 32;

/// A device over an in-memory port.
struct SmoltcpDevice {
    wire: Wire<MemoryPort>,
    rx: Burst<MemoryFrame>,
    /// Frames that may still be sent in this poll.
    tx_left: usize,
}

struct SmoltcpRxToken(MemoryFrame);

struct SmoltcpTxToken<'a> {
    frame: MemoryFrame,
    device: &'a mut SmoltcpDevice,
}

impl SmoltcpDevice {
    fn next_frame(&mut self) -> Option<SmoltcpTxToken<'_>> {
        let frame = self.wire.alloc()?;
        Some(SmoltcpTxToken { frame, device: self })
    }
}

impl Device for SmoltcpDevice {
    type RxToken<'a> = SmoltcpRxToken;
    type TxToken<'a> = SmoltcpTxToken<'a>;

    fn receive(&mut self, _at: Instant) -> Option<(SmoltcpRxToken, SmoltcpTxToken<'_>)> {
        if self.rx.is_empty() {
            self.wire.rx_burst(&mut self.rx);
            // Frames are taken from the end of the list.
            self.rx.reverse();
        }
        let frame = self.rx.pop()?;
        Some((SmoltcpRxToken(frame), self.next_frame()?))
    }

    fn transmit(&mut self, _at: Instant) -> Option<SmoltcpTxToken<'_>> {
        if self.tx_left == 0 || !self.wire.has_room() {
            return None;
        }
        self.next_frame()
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = usize::from(self.wire.caps().mtu_bytes) + ETHERNET_BYTES;
        capabilities
    }
}

impl RxToken for SmoltcpRxToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, use_frame: F) -> R {
        use_frame(self.0.bytes())
    }
}

impl TxToken for SmoltcpTxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(mut self, len: usize, use_frame: F) -> R {
        self.frame.resize(len);
        let result = use_frame(self.frame.bytes_mut());
        self.device.tx_left = self.device.tx_left.saturating_sub(1);
        // Frames without a ring entry are lost, as on a card with a full ring.
        let _ = self.device.wire.push(self.frame.seal(TxMeta::default()));
        result
    }
}

const ETHERNET_BYTES: usize = 14;
