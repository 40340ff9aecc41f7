//! Stock smoltcp over a [`Port`]: the baseline of another TCP in user space on the same device.
//!
//! One stream without Nagle's algorithm; everything else is smoltcp's default. A slice has nodes
//! and a connection of its own, so it includes neither end's earlier state. The addresses differ
//! from those of the stack, which drops frames of a slice that are still in a ring. smoltcp
//! computes every checksum in software.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port, TxMeta};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant as SmoltcpInstant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, Ipv4Address};

use super::stream::{self, ByteStream};
use crate::{Case, ServerSlice, Slice, StopCondition, StopSignal};

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
/// Link header, which smoltcp counts in its MTU.
const ETHERNET_BYTES: usize = 14;

/// The client's part of a slice. Also returns the bytes that the server must wait for. `number`
/// differs from slice to slice.
pub fn client<P: Port>(
    port: &mut P,
    case: &Case,
    until: StopCondition<'_>,
    number: &mut u64,
) -> (Slice, u64) {
    *number += 1;
    let Some(mut node) = Node::connect(port, *number - 1) else {
        // Nothing could be sent.
        return (Slice { errors: 1, ..Slice::default() }, 0);
    };
    let Ok(outcome) = stream::client(&mut node, case, until);
    outcome
}

pub fn server<P: Port>(port: &mut P, case: &Case, stop: &StopSignal) -> ServerSlice {
    let Ok(server) = stream::server(&mut Node::server(port), case, stop);
    server
}

/// An end with its socket.
struct Node<'p, P: Port> {
    device: PortDevice<'p, P>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    start: Instant,
}

impl<'p, P: Port> Node<'p, P> {
    fn server(port: &'p mut P) -> Self {
        let mut node = Self::new(port, SERVER_ADDR, 0);
        // Cannot fail: the port is not 0 and the socket is new.
        let _ = node.socket_mut().listen(SERVER_PORT);
        node
    }

    /// A connected client, `None` if no server accepts in time. Clients of consecutive `number`s
    /// have different local ports and sequence numbers.
    fn connect(port: &'p mut P, number: u64) -> Option<Self> {
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
        let mut device = PortDevice { port, rx: Burst::new(), tx: Burst::new() };
        let mut config = Config::new(EthernetAddress(device.port.caps().mac.0).into());
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

/// A port, frames received but not yet processed, and frames not yet sent.
struct PortDevice<'p, P: Port> {
    port: &'p mut P,
    rx: Burst<P::Frame>,
    tx: Burst<<P::Frame as Frame>::Sealed>,
}

impl<P: Port> PortDevice<'_, P> {
    /// Passes waiting frames to the device. Those that it does not take remain.
    fn flush(&mut self) {
        if !self.tx.is_empty() {
            self.port.tx_burst(&mut self.tx);
        }
    }
}

impl<P: Port> Device for PortDevice<'_, P> {
    type RxToken<'a>
        = ReceivedFrame<P::Frame>
    where
        Self: 'a;
    type TxToken<'a>
        = FrameWriter<'a, P>
    where
        Self: 'a;

    fn receive(&mut self, _at: SmoltcpInstant) -> Option<(ReceivedFrame<P::Frame>, FrameWriter<'_, P>)> {
        if self.rx.is_empty() {
            self.port.rx_burst(&mut self.rx);
            // Frames are taken from the end of the list.
            self.rx.reverse();
        }
        let frame = self.rx.pop()?;
        Some((ReceivedFrame(frame), FrameWriter { port: self.port, tx: &mut self.tx }))
    }

    fn transmit(&mut self, _at: SmoltcpInstant) -> Option<FrameWriter<'_, P>> {
        if self.tx.is_full() {
            self.flush();
        }
        let has_room = !self.tx.is_full();
        has_room.then_some(FrameWriter { port: self.port, tx: &mut self.tx })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = usize::from(self.port.caps().mtu_bytes) + ETHERNET_BYTES;
        capabilities
    }
}

struct ReceivedFrame<F>(F);

impl<F: Frame> RxToken for ReceivedFrame<F> {
    fn consume<R, U: FnOnce(&[u8]) -> R>(self, use_frame: U) -> R {
        use_frame(self.0.bytes())
    }
}

/// Builds the next frame.
struct FrameWriter<'a, P: Port> {
    port: &'a mut P,
    tx: &'a mut Burst<<P::Frame as Frame>::Sealed>,
}

impl<P: Port> TxToken for FrameWriter<'_, P> {
    fn consume<R, U: FnOnce(&mut [u8]) -> R>(self, len: usize, write: U) -> R {
        if self.tx.is_full() {
            self.port.tx_burst(self.tx);
        }
        // Without a buffer or a slot the frame is lost, as on a card with a full ring; TCP sends it
        // again.
        let Some(mut frame) = self.port.alloc().filter(|_| !self.tx.is_full()) else {
            return write(&mut vec![0; len]);
        };
        frame.resize(len);
        let result = write(frame.bytes_mut());
        self.tx.push(frame.seal(TxMeta::default()));
        result
    }
}

#[cfg(test)]
mod tests;
