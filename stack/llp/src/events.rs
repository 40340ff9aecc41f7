//! Events and results that a transport reports to its caller.

use bitflags::bitflags;

bitflags! {
    /// Events of one connection.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Events: u16 {
        /// The handshake is complete.
        const ESTABLISHED = 1 << 0;
        /// In-order bytes arrived. Reported once per arrival, not again for bytes left unread.
        const READABLE = 1 << 1;
        /// The peer acknowledged payload.
        const ACKED = 1 << 2;
        /// A transmission that a window or the limit of retained units stopped may continue.
        const WRITABLE = 1 << 3;
        /// The peer closed its direction, in order. No more bytes will become readable.
        const PEER_CLOSED = 1 << 4;
        /// Both directions are closed. What must still be remembered of it, as TCP's TIME-WAIT,
        /// continues without it.
        const CLOSED = 1 << 5;
        /// The peer aborted the connection.
        const RESET = 1 << 6;
        /// The peer did not answer in time.
        const TIMED_OUT = 1 << 7;
        /// The peer refused the connection.
        const REFUSED = 1 << 8;
        /// A retransmission is pending: call transmit.
        const RETRANSMIT = 1 << 9;
        /// Set with TIMED_OUT when a router reported the peer as unreachable.
        const UNREACHABLE = 1 << 10;
        /// Bytes beyond a gap arrived and are held. Reported only after
        /// [`Transport::report_out_of_order`](crate::Transport::report_out_of_order).
        const OUT_OF_ORDER = 1 << 11;
    }
}

impl Events {
    /// The events that end a connection. After one of them, read the remaining bytes, then release
    /// the connection.
    pub const ENDED: Events =
        Events::CLOSED.union(Events::RESET).union(Events::TIMED_OUT).union(Events::REFUSED);
}

/// The reason why a transmission stopped before its budget was used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Blocked {
    /// Nothing but the budget stopped it, or the connection's state permits no transmission.
    #[default]
    None,
    /// The peer's receive window is full. A WRITABLE event follows.
    Window,
    /// The congestion window is full. A WRITABLE event follows.
    Congestion,
    /// It retains its maximum of unacknowledged units. A WRITABLE event follows.
    Retained,
    /// No transmit buffer is free, or the shared limit of retained units is reached. Try again in
    /// the next iteration.
    Pool,
    /// The device's transmit queue is full. Try again in the next iteration.
    Wire,
    /// The source is empty.
    Source,
}

/// The result of one call of transmit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transmitted {
    /// Packets pushed to the wire, including retransmissions.
    pub units: usize,
    /// Their payload, in bytes.
    pub bytes: usize,
    /// Why the transmission stopped.
    pub blocked: Blocked,
}
