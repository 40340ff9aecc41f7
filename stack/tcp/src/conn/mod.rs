//! One connection: its state, its two sides, and what it owes.
//!
//! The fields are laid out by heat: what every segment touches comes first, what only set-up and end touch comes last.
//! What a connection does lives beside this module: `input` for segments, `output` for everything sent.

mod keep_alive;
mod path_mtu;
mod receive;
mod receive_ecn;
mod receive_sack;
mod rtt;
mod send;
mod timestamps;

use ironwarp_net::Path;
use ironwarp_types::{Flow, Nanos, Seq};

use crate::TcpConfig;
use crate::congestion::CongestionWindow;
use crate::header::{Flags, Segment, SynOptions, TIMESTAMPS_BYTES};
use crate::ids::ListenerId;

pub use keep_alive::{KeepAlive, TcpTimeouts};
pub(crate) use keep_alive::{KeepAliveAction, KeepAliveTimer};
use path_mtu::BlackHole;
pub(crate) use receive::ReceiveSide;
pub(crate) use receive_ecn::EcnEcho;
pub(crate) use receive_sack::SackRanges;
pub(crate) use send::{SendSide, Timer};
pub(crate) use timestamps::TimestampState;

/// IPv4 and TCP headers without options.
const HEADERS_BYTES: u16 = 40;

/// The segment size of a peer that announces none, in IPv4 and in IPv6 (RFC 9293 s3.7.1).
const MSS_DEFAULT: [u16; 2] = [536, 1_220];

/// The smallest segment size believed. MULPDU is EMSS less 6, less up to 3 for padding and 4 for a marker (RFC 5044
/// s4.5), and must not fall below 128. A peer that announces less means us to send headers without payload; every host
/// takes datagrams of 576 octets (RFC 791 s3.1), so 144 always arrives.
const MSS_MIN: u16 = 144;

/// The states of RFC 9293 s3.3.2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// No connection, or not any more.
    Closed,
    /// Waiting for a SYN. A connection is never seen in it: a half-open one that fails goes back and is forgotten.
    Listen,
    /// Our SYN is on its way.
    SynSent,
    /// Both SYNs are on their way.
    SynReceived,
    /// Open both ways.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed and the peer knows; its FIN is awaited.
    FinWait2,
    /// The peer closed; we have not.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we did; our FIN is not acknowledged.
    LastAck,
    /// Both closed; old segments may still arrive.
    TimeWait,
}

impl State {
    /// Whether payload may be pulled from the layer above.
    #[inline]
    pub(crate) fn may_pull(self) -> bool {
        matches!(self, State::Established | State::CloseWait)
    }

    /// Whether payload that was pulled, or a FIN, may still be sent.
    #[inline]
    pub(crate) fn may_send(self) -> bool {
        self.may_pull() || matches!(self, State::FinWait1 | State::Closing | State::LastAck)
    }

    /// Whether payload of the peer is taken.
    #[inline]
    pub(crate) fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether segments still concern the connection.
    #[inline]
    pub(crate) fn is_live(self) -> bool {
        !matches!(self, State::Closed | State::Listen | State::TimeWait)
    }

    /// Whether both initial sequence numbers are acknowledged.
    #[inline]
    pub(crate) fn is_synchronised(self) -> bool {
        self.is_live() && !matches!(self, State::SynSent | State::SynReceived)
    }
}

/// Acknowledgements owed to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PendingAck {
    /// One is owed; a data segment can carry it.
    pub(crate) pending: bool,
    /// So many must leave in this iteration, each as a segment of its own: the peer counts them.
    pub(crate) immediate: u8,
    /// The round of flushes, [`AckQueue::round`](crate::output::AckLists::round), in which the one that is owed began to be.
    pub(crate) since: u16,
}

/// What both SYNs agreed on; before the peer's has arrived, what ours offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Negotiated {
    /// Every segment carries time stamps (RFC 7323 s3.2).
    pub(crate) timestamps: bool,
    /// Acknowledgements carry SACK blocks (RFC 2018 s2).
    pub(crate) sack: bool,
    /// Congestion is marked, echoed and answered (RFC 3168 s6.1.1).
    pub(crate) ecn: bool,
}

/// A connection.
#[repr(C, align(64))]
pub(crate) struct Conn {
    pub(crate) rcv: ReceiveSide,
    pub(crate) state: State,
    pub(crate) ack: PendingAck,
    pub(crate) opts: Negotiated,
    pub(crate) echo: EcnEcho,
    pub(crate) ts: TimestampState,
    /// When the peer was last heard.
    pub(crate) last_rx_at: Nanos,
    /// Its place in the slab, which is also its timer.
    pub(crate) slot: u32,
    pub(crate) snd: SendSide,
    pub(crate) path: Path,
    pub(crate) flow: Flow,
    pub(crate) cold: Cold,
}

/// What only set-up, end and timers touch.
pub(crate) struct Cold {
    /// The flow's hash, under which the flow table finds the connection.
    pub(crate) hash: u32,
    pub(crate) iss: Seq,
    /// Where the connection came from, when the peer opened it.
    pub(crate) listener: Option<ListenerId>,
    /// When the wait for the peer's FIN ends.
    pub(crate) fin_wait_2_deadline: Nanos,
    /// How long payload may stay unacknowledged.
    pub(crate) user_timeout: Nanos,
    pub(crate) keep_alive: KeepAliveTimer,
    /// The segment size that the peer announced.
    peer_mss: Option<u16>,
    /// The largest packet that the path takes, as far as routers have taught it.
    path_mtu: u16,
    /// A path that swallows large segments.
    pub(crate) black_hole: BlackHole,
    /// A router's claim about the path and the segment it quoted, not confirmed.
    pub(crate) claimed_mtu: Option<(Seq, u16)>,
    /// A router has said that the peer cannot be reached.
    pub(crate) unreachable: bool,
    pub(crate) syn_retries: u8,
    /// Whether the peer's SYN offered to scale windows, or ours does.
    pub(crate) scaled: bool,
    /// Whether the flow table knows the connection.
    pub(crate) in_flow_table: bool,
}

// An idle connection, its timer and its share of the tables stay well below the 2 KiB that design.md allows.
const _: () = assert!(size_of::<Conn>() <= 1024);

/// What a new connection is made from.
pub(crate) struct NewConn {
    pub(crate) slot: u32,
    pub(crate) flow: Flow,
    pub(crate) hash: u32,
    pub(crate) path: Path,
    pub(crate) iss: Seq,
    /// Where the clock of its time stamps stands when ours stands at zero.
    pub(crate) ts_offset: u32,
    pub(crate) now: Nanos,
}

impl Conn {
    /// A connection that we open. Its SYN is about to be sent.
    pub(crate) fn active(config: &TcpConfig, new_conn: NewConn) -> Self {
        let opts = Negotiated { timestamps: config.timestamps, sack: config.sack, ecn: config.ecn };
        let emss = emss(
            mss_default(&new_conn.flow),
            new_conn.path.mtu_bytes() - beyond_ipv4(&new_conn.path),
            opts.timestamps,
        );
        Conn {
            rcv: ReceiveSide::new(config, new_conn.slot),
            state: State::SynSent,
            ack: PendingAck::default(),
            opts,
            echo: EcnEcho::new(config.congestion.uses_dctcp_echo()),
            ts: TimestampState::new(new_conn.ts_offset),
            last_rx_at: new_conn.now,
            slot: new_conn.slot,
            snd: SendSide::new(config, new_conn.iss, emss, new_conn.now),
            path: new_conn.path,
            flow: new_conn.flow,
            cold: Cold {
                hash: new_conn.hash,
                iss: new_conn.iss,
                listener: None,
                fin_wait_2_deadline: Nanos::MAX,
                user_timeout: config.user_timeout,
                keep_alive: KeepAliveTimer::new(None),
                peer_mss: None,
                path_mtu: u16::MAX,
                black_hole: BlackHole::NONE,
                claimed_mtu: None,
                unreachable: false,
                syn_retries: 0,
                scaled: true,
                in_flow_table: false,
            },
        }
    }

    /// A connection that the peer's SYN opens. Its SYN-ACK is about to be sent.
    pub(crate) fn passive(
        config: &TcpConfig,
        new_conn: NewConn,
        listener: ListenerId,
        syn: &Segment,
        options: SynOptions,
    ) -> Self {
        let opened_at = new_conn.now;
        let mut conn = Conn::active(config, new_conn);
        conn.cold.listener = Some(listener);
        conn.state = State::SynReceived;
        conn.on_peer_syn(opened_at, syn, options);
        conn
    }

    /// Takes what the peer's SYN says: its first number, its segment size, what it offers.
    pub(crate) fn on_peer_syn(&mut self, now: Nanos, syn: &Segment, options: SynOptions) {
        let irs = syn.seq;
        self.cold.scaled = options.window_scale.is_some();
        self.rcv.on_syn(irs, self.cold.scaled);
        self.snd.wscale = options.window_scale.unwrap_or(0);
        // RFC 3168 s6.1.1: a SYN asks with both bits, a SYN-ACK agrees with ECE alone.
        let asked = if syn.has(Flags::ACK) { Flags::ECE } else { Flags::ECE | Flags::CWR };
        self.opts.ecn &= syn.flags & (Flags::ECE | Flags::CWR) == asked;
        self.opts.sack &= options.sack_permitted;
        self.opts.timestamps &= options.timestamps.is_some();
        self.ts.on_syn(now, irs, options.timestamps.unwrap_or_default());
        self.cold.peer_mss = options.mss;
        self.set_emss();
    }

    /// A SYN cookie without time stamps has no room for more than the segment size.
    pub(crate) fn clear_offer(&mut self) {
        (self.opts.sack, self.opts.ecn, self.cold.scaled) = (false, false, false);
    }

    /// What of an offer both sides will use.
    pub(crate) fn negotiated_options(&self, offer: SynOptions) -> SynOptions {
        SynOptions { sack_permitted: self.opts.sack, ..offer }
    }

    /// The SYN-ACK that bore a cookie was sent as if this connection had sent it.
    pub(crate) fn on_cookie_syn_ack_sent(&mut self) {
        self.rcv.advertise_window_in_syn();
        (self.snd.snd_nxt, self.snd.snd_max) = (self.snd.snd_end, self.snd.snd_end);
    }

    fn set_emss(&mut self) {
        let peer_mss = self.cold.peer_mss.unwrap_or(mss_default(&self.flow));
        self.snd.emss = emss(peer_mss, self.mtu_bytes() - beyond_ipv4(&self.path), self.opts.timestamps);
        self.snd.cc.on_segment_size(u32::from(self.snd.emss));
    }

    /// The segment size that our SYN announces: what one frame of this path holds.
    pub(crate) fn advertised_mss(&self) -> u16 {
        self.path.mtu_bytes().saturating_sub(HEADERS_BYTES + beyond_ipv4(&self.path))
    }

    /// Opens the congestion window when the handshake is done.
    pub(crate) fn init_cwnd(&mut self, config: &TcpConfig) {
        // RFC 5681 s3.1: a lost SYN or SYN-ACK leaves one segment.
        let segments = if self.cold.syn_retries == 0 { u32::from(config.initial_window_segments) } else { 1 };
        let emss = u32::from(self.snd.emss);
        self.snd.cc = CongestionWindow::new(config.congestion, emss, emss * segments, self.snd.snd_una);
    }

    /// When the connection's timer must fire.
    #[inline]
    pub(crate) fn deadline(&self) -> Nanos {
        let timer = match self.snd.timer_at {
            Nanos::MAX => Nanos::MAX,
            at => at.min(self.snd.progress_at + self.cold.user_timeout),
        };
        timer
            .min(self.cold.fin_wait_2_deadline)
            .min(self.cold.black_hole.raise_at)
            .min(self.last_rx_at + self.cold.keep_alive.wait)
    }

    /// The invariants of the numbers alone.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.rcv.rcv_adv.lt(self.rcv.rcv_nxt) && self.state.is_synchronised() && self.rcv.fin.is_none() {
            return Err(format!("rcv_nxt {:?} lies beyond rcv_adv {:?}", self.rcv.rcv_nxt, self.rcv.rcv_adv));
        }
        if self.state.is_live() { self.snd.check(self.state.is_synchronised()) } else { Ok(()) }
    }
}

/// What the network header takes of a packet beyond IPv4's: 20 bytes in IPv6. No path is narrower than that.
fn beyond_ipv4(path: &Path) -> u16 {
    (path.ip_bytes() - 20).min(usize::from(path.mtu_bytes())) as u16
}

/// What a peer that announces no segment size takes.
fn mss_default(flow: &Flow) -> u16 {
    MSS_DEFAULT[usize::from(flow.remote.is_ipv6())]
}

/// The largest payload of a segment: what the peer takes and the path holds, less the options that every segment
/// carries (RFC 9293 s3.7.1).
fn emss(peer_mss: u16, mtu_bytes: u16, timestamps: bool) -> u16 {
    let path = mtu_bytes.saturating_sub(HEADERS_BYTES);
    let options = if timestamps { TIMESTAMPS_BYTES as u16 } else { 0 };
    peer_mss.min(path).saturating_sub(options).max(MSS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9293 s3.7.1 (MUST-15): 536 in IPv4 and 1220 in IPv6 when the peer announces nothing.
    #[test]
    fn the_segment_size_is_the_smaller_of_peer_and_path() {
        assert_eq!(emss(1_460, 9_000, false), 1_460);
        assert_eq!(emss(8_960, 1_500, false), 1_460);
        assert_eq!(emss(8_960, 1_500, true), 1_448);
        let to = |remote: &str| Flow {
            local: remote.parse().expect("an address"),
            remote: remote.parse().expect("an address"),
        };
        assert_eq!([mss_default(&to("10.0.0.1:1")), mss_default(&to("[fd00::1]:1"))], [536, 1_220]);
    }

    /// RFC 5044 s4.5: EMSS - (6 + 4 * ceil(EMSS / 512) + EMSS mod 4) must not fall below 128.
    #[test]
    fn a_tiny_segment_size_still_leaves_a_mulpdu_of_128() {
        let emss = emss(1, 1_500, true);
        assert!(emss - (6 + 4 * emss.div_ceil(512) + emss % 4) >= 128);
    }
}
