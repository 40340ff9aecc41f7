//! One end: an interface with one socket.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ironwarp_port::Port;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant as SmoltcpInstant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, Ipv4Address};

use super::device::PortDevice;
use crate::baseline::stream::ByteStream;

/// Addresses from the block for benchmarks (RFC 2544), in another network than those of the stack.
const CLIENT_ADDR: Ipv4Address = Ipv4Address::new(198, 19, 1, 1);
const SERVER_ADDR: Ipv4Address = Ipv4Address::new(198, 19, 1, 2);
const PREFIX_BITS: u8 = 24;
const SERVER_PORT: u16 = 18_516;
/// Local ports of clients (RFC 6335 s6: the dynamic ports).
const CLIENT_PORTS: std::ops::Range<u16> = 49_152..65_535;
/// A server that does not accept within this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of the receive buffer and of the transmit buffer: more than the path holds.
const BUFFER_BYTES: usize = 256 << 10;

/// An end with its socket.
pub(super) struct Node<'p, P: Port> {
    device: PortDevice<'p, P>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    start: Instant,
}

impl<'p, P: Port> Node<'p, P> {
    /// A server that listens.
    pub(super) fn server(port: &'p mut P) -> Self {
        let mut node = Self::new(port, SERVER_ADDR, 0);
        // Cannot fail: the port is not 0 and the socket is new.
        let _ = node.socket_mut().listen(SERVER_PORT);
        node
    }

    /// A connected client, `None` if no server accepts in time. Clients of consecutive `number`s
    /// have different local ports and sequence numbers.
    pub(super) fn connect(port: &'p mut P, number: u64) -> Option<Self> {
        let mut node = Self::new(port, CLIENT_ADDR, number);
        let local = CLIENT_PORTS.start + (number % CLIENT_PORTS.len() as u64) as u16;
        let socket = node.sockets.get_mut::<Socket<'_>>(node.socket);
        // Cannot fail: both ends are valid and the socket is new.
        let _ = socket.connect(node.interface.context(), (SERVER_ADDR, SERVER_PORT), local);
        while !node.sockets.get::<Socket<'_>>(node.socket).may_send() {
            node.poll();
            if node.start.elapsed() > CONNECT_TIMEOUT {
                return None;
            }
        }
        Some(node)
    }

    fn new(port: &'p mut P, address: Ipv4Address, seed: u64) -> Self {
        let mut device = PortDevice::new(port);
        let mut config = Config::new(EthernetAddress(device.port().caps().mac.0).into());
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut device, SmoltcpInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // The list was empty and has room for more than one address.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(address), PREFIX_BITS));
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Node { device, interface, sockets, socket, start: Instant::now() }
    }

    /// Receives, runs timers and sends.
    fn poll(&mut self) {
        let micros = i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.interface.poll(SmoltcpInstant::from_micros(micros), &mut self.device, &mut self.sockets);
        self.device.flush();
    }

    fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

/// A call that moves nothing polls.
impl<P: Port> ByteStream for Node<'_, P> {
    type Error = Infallible;

    fn send(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let count = self.socket_mut().send_slice(bytes).unwrap_or(0);
        if count == 0 {
            self.poll();
        }
        Ok(count)
    }

    fn recv(&mut self, into: &mut [u8]) -> Result<usize, Infallible> {
        match self.socket_mut().recv_slice(into) {
            Ok(count @ 1..) => Ok(count),
            _ => {
                self.poll();
                Ok(self.socket_mut().recv_slice(into).unwrap_or(0))
            }
        }
    }

    fn is_flushed(&mut self) -> bool {
        self.poll();
        self.socket_mut().send_queue() == 0
    }
}
