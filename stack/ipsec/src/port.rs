//! A port that protects what it sends and opens what it receives.
//!
//! Takes and gives frames, as any port. A protected packet is sealed into a second frame, since the
//! first one may be sent again. A received packet is opened in its frame, and moves behind the link
//! header. Frames without IP pass. Source: RFC 4301 s5, RFC 894, RFC 2464.
//!
//! What can fail: a packet that the policies or the ciphers refuse is dropped and counted. So is
//! one for which the pool has no second frame; it used no sequence number.

use std::sync::Arc;

use ironwarp_port::{
    Burst, Frame, LinkState, Port, PortCaps, RxMeta, Sealed, TxMeta, TxOffloads, WakeSource,
};
use ironwarp_types::Clock;

use crate::{Inbound, Ipsec, Outbound};

/// The most bytes that protection adds: an outer IPv6 header, UDP, ESP, IV, 15 bytes of padding,
/// the trailer and the ICV.
pub const OVERHEAD_BYTES_MAX: u16 = 40 + 8 + 8 + 16 + 15 + 2 + 16;

/// An IPsec boundary around a port.
pub struct SecurePort<P: Port> {
    port: P,
    ipsec: Ipsec,
    clock: Arc<dyn Clock + Send + Sync>,
    caps: PortCaps,
    /// Received frames that are not opened yet, the last one first.
    arriving: Burst<P::Frame>,
    /// The frame that the next protected packet is sealed into.
    second: Option<P::Frame>,
    /// Frames that the device has not taken.
    leaving: Burst<SealedOf<P>>,
}

type SealedOf<P> = <<P as Port>::Frame as Frame>::Sealed;

const IPV4: [u8; 2] = 0x0800_u16.to_be_bytes();
const IPV6: [u8; 2] = 0x86dd_u16.to_be_bytes();
const VLAN: [u8; 2] = 0x8100_u16.to_be_bytes();

impl<P: Port> SecurePort<P> {
    /// Puts `ipsec` around `port`.
    pub fn new(port: P, ipsec: Ipsec, clock: Arc<dyn Clock + Send + Sync>) -> Self {
        // The device can neither sum nor cut what it cannot read.
        let mtu_bytes = port.caps().mtu_bytes.saturating_sub(OVERHEAD_BYTES_MAX);
        let caps = PortCaps { mtu_bytes, tx_offloads: TxOffloads::empty(), ..port.caps().clone() };
        SecurePort { port, ipsec, clock, caps, arriving: Burst::new(), second: None, leaving: Burst::new() }
    }

    /// Returns the policies and associations.
    pub fn ipsec_mut(&mut self) -> &mut Ipsec {
        &mut self.ipsec
    }

    /// Returns the inner port.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the frame with its packet in clear, or `None` if it is dropped.
    fn open(&mut self, mut frame: P::Frame) -> Option<P::Frame> {
        let Some(l3) = l3_offset(frame.bytes()) else { return Some(frame) };
        let packet = frame.bytes_mut().get_mut(l3..)?;
        match self.ipsec.inbound(self.clock.now(), packet) {
            Inbound::Dropped(_) => None,
            // IKE has no receiver here yet; `net` counts what it does not know.
            Inbound::Clear | Inbound::Ike(_) => Some(frame),
            Inbound::Opened(range) => {
                let bytes = range.len();
                packet.copy_within(range, 0);
                let ethertype = if packet.first()? >> 4 == 4 { IPV4 } else { IPV6 };
                frame.bytes_mut().get_mut(l3 - 2..l3)?.copy_from_slice(&ethertype);
                frame.resize(l3 + bytes);
                // The device has not seen this packet.
                frame.set_rx(RxMeta::default());
                Some(frame)
            }
        }
    }

    /// Returns what is sent in place of a frame.
    fn protect(&mut self, frame: SealedOf<P>) -> Option<SealedOf<P>> {
        let Some(l3) = l3_offset(frame.bytes()) else { return Some(frame) };
        let (link, packet) = frame.bytes().split_at_checked(l3)?;
        let mut second = self.second.take().or_else(|| self.port.alloc());
        let (link_place, out) = match &mut second {
            Some(second) => {
                second.resize(second.capacity());
                second.bytes_mut().split_at_mut_checked(l3)?
            }
            // Nothing fits here, but a packet in clear needs no room.
            None => Default::default(),
        };
        let bytes = match self.ipsec.outbound(self.clock.now(), packet, out) {
            Outbound::Sealed(bytes) => bytes,
            outcome => {
                self.second = second;
                return (outcome == Outbound::Clear).then_some(frame);
            }
        };
        let ethertype = if out.first()? >> 4 == 4 { IPV4 } else { IPV6 };
        link_place.copy_from_slice(link);
        link_place.get_mut(l3 - 2..)?.copy_from_slice(&ethertype);
        let mut second = second?;
        second.resize(l3 + bytes);
        Some(second.seal(TxMeta::default()))
    }
}

impl<P: Port> Port for SecurePort<P> {
    type Frame = P::Frame;

    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx_burst(&mut self, into: &mut Burst<P::Frame>) {
        if self.arriving.is_empty() {
            self.port.rx_burst(&mut self.arriving);
            self.arriving.reverse();
        }
        while !into.is_full()
            && let Some(frame) = self.arriving.pop()
        {
            into.extend(self.open(frame));
        }
    }

    fn tx_burst(&mut self, from: &mut Burst<SealedOf<P>>) {
        let room = self.leaving.remaining_capacity();
        for frame in from.drain(..room.min(from.len())) {
            let protected = self.protect(frame);
            self.leaving.extend(protected);
        }
        self.port.tx_burst(&mut self.leaving);
    }

    fn alloc(&mut self) -> Option<P::Frame> {
        self.port.alloc()
    }

    // Not the inner port's `alloc_long`: its peer could read the text of such a frame.

    fn tx_offloads(&self) -> TxOffloads {
        self.caps.tx_offloads
    }

    fn link(&self) -> LinkState {
        self.port.link()
    }

    fn take_wake_source(&mut self) -> Option<WakeSource> {
        self.port.take_wake_source()
    }
}

/// Returns where the IP packet of a frame begins, or `None` if it has none.
fn l3_offset(frame: &[u8]) -> Option<usize> {
    let ethertype = |at| frame.get(at..at + 2);
    let at = if ethertype(12)? == VLAN { 16 } else { 12 };
    let ethertype = ethertype(at)?;
    (ethertype == IPV4 || ethertype == IPV6).then_some(at + 2)
}
