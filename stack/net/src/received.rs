//! What a received frame turns out to be for the layers above.

use ironwarp_types::{Flow, Seq};

use crate::segment::TcpSegment;

/// What [`Net::on_frame`](crate::Net::on_frame) makes of a frame that it does not keep to itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received<F> {
    /// A TCP segment, whole and right.
    Segment(TcpSegment<F>),
    /// Somebody on the way reports about a segment of ours. Not to be believed before TCP has compared `seq` with what
    /// it has in flight (RFC 5927 s4.1).
    IcmpError(IcmpError),
    /// A frame of ARP or neighbour discovery, on a core that follows: the core that leads takes it, as if it had come
    /// there.
    ForLeader(F),
}

/// An ICMP error about a TCP segment that we may have sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// The connection that the quoted segment names, seen from here.
    pub flow: Flow,
    /// [`FlowHasher::hash`](crate::FlowHasher::hash) of the flow.
    pub hash: u32,
    /// The sequence number of the quoted segment.
    pub seq: Seq,
    /// What is reported.
    pub kind: IcmpErrorKind,
}

/// What an ICMP error reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpErrorKind {
    /// The packet was too large for the next link, whose MTU in bytes this is: RFC 1191 s4, RFC 8201 s4. A router that
    /// does not say how large is answered for by net, with the next lower plateau of RFC 1191 s7.1.
    TooBig {
        /// The largest IP packet that passes.
        mtu_bytes: u16,
    },
    /// Network, host or route unreachable, time exceeded: soft for a connection that is open (RFC 1122 s4.2.3.9).
    Soft,
    /// Protocol or port unreachable, administratively prohibited: hard in RFC 1122, soft for a synchronised connection
    /// by RFC 5927 s5.
    Hard,
}
