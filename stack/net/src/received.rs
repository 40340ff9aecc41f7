//! The results of a received frame for the layers above.

use ironwarp_types::Flow;

use crate::packet::Packet;

/// What [`Net::on_frame`](crate::Net::on_frame) returns to its caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received<F> {
    /// A packet of the transport.
    Packet(Packet<F>),
    /// An ICMP error about a packet of ours. Anybody can send one: the transport must first compare
    /// `quoted` with what is in flight (RFC 5927 s4.1).
    IcmpError(IcmpError),
    /// A frame of ARP or neighbour discovery that a follower core received. The leader core handles
    /// it with [`Net::on_forwarded_frame`](crate::Net::on_forwarded_frame).
    ForLeader(F),
}

/// An ICMP error about a packet of the transport that we may have sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// The flow of the quoted packet; `local` is our side.
    pub flow: Flow,
    /// [`FlowHasher::hash`](crate::FlowHasher::hash) of the flow.
    pub hash: u32,
    /// The number of the transport's protocol.
    pub protocol: u8,
    /// The word after the ports of the quoted packet: in TCP the sequence number.
    pub quoted: u32,
    /// The reported problem.
    pub kind: IcmpErrorKind,
}

/// The problem that an ICMP error reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpErrorKind {
    /// The packet was larger than the MTU of the next link (RFC 1191 s4, RFC 8201 s4).
    TooBig {
        /// The largest IP packet that passes, in bytes. If the router did not report it, the next
        /// lower plateau of RFC 1191 s7.1.
        mtu_bytes: u16,
    },
    /// Network, host or route unreachable, or time exceeded: soft for an open connection
    /// (RFC 1122 s4.2.3.9).
    Soft,
    /// Protocol or port unreachable, or administratively prohibited: hard in RFC 1122, soft for a
    /// synchronised connection in RFC 5927 s5.
    Hard,
}
