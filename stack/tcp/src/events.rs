//! What the engine tells its caller.

use bitflags::bitflags;

bitflags! {
    /// What happened to a connection.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct TcpEvents: u16 {
        /// The handshake is done, whichever side began it.
        const ESTABLISHED = 1 << 0;
        /// In-order bytes arrived. Told once for each arrival: what is left unread is not told again.
        const READABLE = 1 << 1;
        /// Payload of ours was acknowledged.
        const ACKED = 1 << 2;
        /// A transmission that a window had stopped may go on.
        const WRITABLE = 1 << 3;
        /// The peer's FIN arrived in order: nothing more will be readable.
        const PEER_CLOSED = 1 << 4;
        /// Both directions are closed. TIME-WAIT, where due, goes on without the connection.
        const CLOSED = 1 << 5;
        /// The peer reset the connection.
        const RESET = 1 << 6;
        /// The peer did not answer in time.
        const TIMED_OUT = 1 << 7;
        /// The peer refused the connection.
        const REFUSED = 1 << 8;
        /// Something must be sent again: call transmit.
        const RETRANSMIT = 1 << 9;
        /// Comes with TIMED_OUT: routers had said that the peer cannot be reached.
        const UNREACHABLE = 1 << 10;
        /// Bytes came that are held beyond a gap. Told only where [`Tcp::report_out_of_order`](crate::Tcp::report_out_of_order) asked.
        const OUT_OF_ORDER = 1 << 11;
    }
}

impl TcpEvents {
    /// Any of these ends the connection: read what is left, then release it.
    pub const ENDED: TcpEvents =
        TcpEvents::CLOSED.union(TcpEvents::RESET).union(TcpEvents::TIMED_OUT).union(TcpEvents::REFUSED);
}

/// Why transmission stopped before its budget was used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Blocked {
    /// Nothing stopped it but the budget, or the connection's state has nothing to send.
    #[default]
    None,
    /// The peer's window. A WRITABLE event follows.
    Window,
    /// The congestion window. A WRITABLE event follows.
    Congestion,
    /// The connection retains as much as it may until the peer acknowledges. A WRITABLE event follows.
    Retained,
    /// No transmit buffer, or no room for what all connections retain: try again next iteration.
    Pool,
    /// The device does not take more now: try again next iteration.
    Wire,
    /// The source has nothing.
    Source,
}

/// What one call of transmit did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transmitted {
    /// Segments pushed to the wire, retransmissions included.
    pub units: usize,
    /// Their payload, in bytes.
    pub bytes: usize,
    /// Why it stopped.
    pub blocked: Blocked,
}
