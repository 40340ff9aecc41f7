//! One connection: its state, its send and receive sides, and its pending acknowledgements.
//!
//! Fields are ordered by access frequency: fields that every segment touches come first, fields of
//! set-up and teardown last. The modules `input` (segments) and `output` (transmission) implement
//! the behaviour.

mod keep_alive;
mod path_mtu;
mod receive;
mod receive_ecn;
mod receive_sack;
mod send;
mod timestamps;

use core::net::SocketAddr;
use core::num::NonZeroU16;

use ironwarp_net::Path;
use ironwarp_types::{Flow, FlowKeyV4, Nanos, Seq};
use serde::{Deserialize, Serialize};

use crate::ListenerId;
use crate::TcpConfig;
use crate::congestion::CongestionWindow;
use crate::header::{Flags, SackBlock, Segment, SynOptions, TIMESTAMPS_BYTES};
use crate::queue::Progress;
use crate::saved::Rebase;

pub(crate) use keep_alive::{KeepAliveAction, KeepAliveTimer};
use path_mtu::{BlackHole, mtu_floor};
pub(crate) use receive::ReceiveSide;
pub(crate) use receive_ecn::EcnEcho;
pub(crate) use receive_sack::SackRanges;
pub(crate) use send::{SendSide, Timer};
pub(crate) use timestamps::TimestampState;

/// The size of IPv4 and TCP headers without options, in bytes.
const HEADERS_BYTES: u16 = 40;

/// The assumed segment size of a peer that announces none, for IPv4 and IPv6 (RFC 9293 s3.7.1).
const MSS_DEFAULT: [u16; 2] = [536, 1_220];

/// The smallest accepted segment size. MULPDU is EMSS less 6, less up to 3 for padding and 4 for a
/// marker (RFC 5044 s4.5), and must be at least 128. A smaller announcement would make us send
/// mostly headers. Every host accepts datagrams of 576 octets (RFC 791 s3.1), so segments of 144
/// bytes always arrive.
const MSS_MIN: u16 = 144;

/// The states of RFC 9293 s3.3.2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// No connection.
    Closed,
    /// Waiting for a SYN. Callers never see it: a half-open connection that fails is removed.
    Listen,
    /// A SYN was sent.
    SynSent,
    /// Both SYNs were sent; ours is not acknowledged.
    SynReceived,
    /// Open in both directions.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed and our FIN is acknowledged; the peer has not closed.
    FinWait2,
    /// The peer closed; we have not.
    CloseWait,
    /// Both closed at the same time; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we did; our FIN is not acknowledged.
    LastAck,
    /// Both closed; old segments may still arrive.
    TimeWait,
}

impl State {
    /// Returns whether payload may be pulled from the layer above.
    #[inline]
    pub(crate) fn may_pull(self) -> bool {
        matches!(self, State::Established | State::CloseWait)
    }

    /// Returns whether pulled payload or a FIN may still be sent.
    #[inline]
    pub(crate) fn may_send(self) -> bool {
        self.may_pull() || matches!(self, State::FinWait1 | State::Closing | State::LastAck)
    }

    /// Returns whether payload of the peer is accepted.
    #[inline]
    pub(crate) fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Returns whether the connection still processes segments.
    #[inline]
    pub(crate) fn is_live(self) -> bool {
        !matches!(self, State::Closed | State::Listen | State::TimeWait)
    }

    /// Returns whether both initial sequence numbers are acknowledged.
    #[inline]
    pub(crate) fn is_synchronised(self) -> bool {
        self.is_live() && !matches!(self, State::SynSent | State::SynReceived)
    }
}

/// The acknowledgements that are pending.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PendingAck {
    /// An ACK is pending; a data segment can carry it.
    pub(crate) pending: bool,
    /// The number of ACKs that must leave in this iteration as separate segments, since the peer
    /// counts them.
    pub(crate) immediate: u8,
    /// The flush round ([`AckQueue::round`](crate::output::AckQueue::round)) in which the pending
    /// ACK was scheduled.
    #[serde(skip)]
    pub(crate) since: u16,
}

/// The options that both SYNs agreed on. Before the peer's SYN arrives: the options that our SYN
/// offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Negotiated {
    /// Every segment carries timestamps (RFC 7323 s3.2).
    pub(crate) timestamps: bool,
    /// Acknowledgements carry SACK blocks (RFC 2018 s2).
    pub(crate) sack: bool,
    /// ECN is in use (RFC 3168 s6.1.1).
    pub(crate) ecn: bool,
}

/// A connection. Its slot aligns it to cache lines.
#[repr(C)]
pub(crate) struct Conn {
    pub(crate) rcv: ReceiveSide,
    pub(crate) state: State,
    pub(crate) ack: PendingAck,
    pub(crate) opts: Negotiated,
    pub(crate) echo: EcnEcho,
    /// The connection's slot in the slab, which is also its timer id.
    pub(crate) slot: u32,
    pub(crate) ts: TimestampState,
    /// When the last segment of the peer arrived.
    pub(crate) last_rx_at: Nanos,
    /// The local and the remote port.
    pub(crate) ports: [u16; 2],
    /// The flow as received packets hold it.
    pub(crate) key: FlowKeyV4,
    pub(crate) path: Path,
    pub(crate) snd: SendSide,
    pub(crate) cold: Cold,
}

/// Fields that only set-up, teardown, timers and losses touch.
#[derive(Clone, Serialize, Deserialize)]
#[repr(C)]
pub(crate) struct Cold {
    /// When FIN-WAIT-2 ends.
    pub(crate) fin_wait_2_deadline: Nanos,
    /// Black-hole detection state.
    pub(crate) black_hole: BlackHole,
    pub(crate) keep_alive: KeepAliveTimer,
    /// How long the peer's window may stay closed.
    pub(crate) zero_window_timeout: Nanos,
    /// When the first probe of the closed window was due, and the bytes acknowledged by then.
    pub(crate) window_closed: (Nanos, u64),
    /// The ranges for selective acknowledgements.
    pub(crate) sack_ranges: SackRanges,
    /// The most recent bytes beyond a gap.
    pub(crate) latest_out_of_order: SackBlock,
    /// The flow's hash, the connection's key in the flow table.
    #[serde(skip)]
    pub(crate) hash: u32,
    pub(crate) iss: Seq,
    /// The number of the peer's SYN.
    pub(crate) irs: Seq,
    /// The listener of a connection that the peer opened.
    #[serde(skip)]
    pub(crate) listener: Option<ListenerId>,
    /// Progress of the send side while other connections lack units.
    #[serde(skip)]
    pub(crate) tx_progress: Progress,
    /// Progress of the receive side while other connections lack frames.
    #[serde(skip)]
    pub(crate) rx_progress: Progress,
    /// An unconfirmed ICMP claim: the sequence number of the quoted segment and the MTU.
    pub(crate) claimed_mtu: Option<(Seq, NonZeroU16)>,
    /// The segment size that the peer announced.
    peer_mss: Option<u16>,
    /// The path MTU by ICMP messages and black-hole detection.
    path_mtu: u16,
    /// A router reported the peer as unreachable.
    pub(crate) unreachable: bool,
    pub(crate) syn_retries: u8,
    /// Window scaling is offered or agreed.
    pub(crate) scaled: bool,
    /// The connection is in the flow table.
    #[serde(skip)]
    pub(crate) in_flow_table: bool,
}

impl Cold {
    pub(crate) fn rebase(&mut self, clock: Rebase) {
        for at in [&mut self.fin_wait_2_deadline, &mut self.window_closed.0] {
            clock.time(at);
        }
        self.keep_alive.rebase(clock);
        self.black_hole.rebase(clock);
    }

    /// Returns whether the path MTUs are ones that [`Conn::on_path_mtu`] sets.
    pub(crate) fn is_valid(&self, flow: &Flow) -> bool {
        self.path_mtu >= mtu_floor(flow) && self.black_hole.is_valid(flow)
    }
}

/// Arguments of a new connection.
pub(crate) struct NewConn {
    pub(crate) slot: u32,
    pub(crate) flow: Flow,
    pub(crate) hash: u32,
    pub(crate) path: Path,
    pub(crate) iss: Seq,
    /// The offset of its timestamp clock from the core's clock.
    pub(crate) ts_offset: u32,
    pub(crate) now: Nanos,
}

impl Conn {
    /// Creates a connection that we open. The caller sends its SYN.
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
            ports: new_conn.flow.ports(),
            key: FlowKeyV4::from(&new_conn.flow),
            cold: Cold {
                hash: new_conn.hash,
                iss: new_conn.iss,
                irs: Seq(0),
                listener: None,
                fin_wait_2_deadline: Nanos::MAX,
                zero_window_timeout: config.zero_window_timeout,
                window_closed: (Nanos::MAX, 0),
                tx_progress: Progress::default(),
                rx_progress: Progress::default(),
                keep_alive: KeepAliveTimer::new(None),
                sack_ranges: SackRanges::default(),
                latest_out_of_order: SackBlock { start: Seq(0), end: Seq(0) },
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

    /// Creates a connection that the peer's SYN opens. The caller sends the SYN-ACK.
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

    /// Applies the peer's SYN: initial sequence number, segment size and offered options.
    pub(crate) fn on_peer_syn(&mut self, now: Nanos, syn: &Segment, options: SynOptions) {
        let irs = syn.seq;
        self.cold.irs = irs;
        self.cold.scaled = options.window_scale.is_some();
        self.rcv.on_syn(irs, self.cold.scaled);
        self.snd.wscale = options.window_scale.unwrap_or(0);
        // RFC 3168 s6.1.1: a SYN offers ECN with ECE and CWR, a SYN-ACK accepts it with ECE alone.
        let asked = if syn.has(Flags::ACK) { Flags::ECE } else { Flags::ECE | Flags::CWR };
        self.opts.ecn &= syn.flags & (Flags::ECE | Flags::CWR) == asked;
        self.opts.sack &= options.sack_permitted;
        self.opts.timestamps &= options.timestamps.is_some();
        self.ts.on_syn(now, irs, options.timestamps.unwrap_or_default());
        self.cold.peer_mss = options.mss;
        self.set_emss();
    }

    /// Withdraws all options but the segment size. A SYN cookie without timestamps has no room for
    /// them.
    pub(crate) fn clear_offer(&mut self) {
        (self.opts.sack, self.opts.ecn, self.cold.scaled) = (false, false, false);
    }

    /// Returns the part of an offer that both sides will use.
    pub(crate) fn negotiated_options(&self, offer: SynOptions) -> SynOptions {
        SynOptions { sack_permitted: self.opts.sack, ..offer }
    }

    /// Records that a stateless SYN-ACK with a cookie was sent for this connection.
    pub(crate) fn on_cookie_syn_ack_sent(&mut self) {
        self.rcv.advertise_window_in_syn();
        (self.snd.snd_nxt, self.snd.snd_max) = (self.snd.snd_end, self.snd.snd_end);
    }

    /// The ranges for selective acknowledgements, which the next ACK may report.
    pub(crate) fn sack_ranges(&mut self) -> &mut SackRanges {
        self.rcv.may_report_ranges = true;
        &mut self.cold.sack_ranges
    }

    /// Returns both endpoints, from the path and the ports.
    pub(crate) fn flow(&self) -> Flow {
        let [local, remote] = self.ports;
        Flow {
            local: SocketAddr::new(self.path.local_addr(), local),
            remote: SocketAddr::new(self.path.remote_addr(), remote),
        }
    }

    pub(crate) fn set_emss(&mut self) {
        let peer_mss = self.cold.peer_mss.unwrap_or(mss_default(&self.flow()));
        self.snd.emss = emss(peer_mss, self.mtu_bytes() - beyond_ipv4(&self.path), self.opts.timestamps);
        self.snd.cc.on_segment_size(u32::from(self.snd.emss));
    }

    /// Returns the segment size that our SYN announces: the payload of one frame on this path.
    pub(crate) fn advertised_mss(&self) -> u16 {
        self.path.mtu_bytes().saturating_sub(HEADERS_BYTES + beyond_ipv4(&self.path))
    }

    /// Sets the initial congestion window at the end of the handshake.
    pub(crate) fn init_cwnd(&mut self, config: &TcpConfig) {
        // RFC 5681 s3.1: after a lost SYN or SYN-ACK the initial window is one segment.
        let segments = if self.cold.syn_retries == 0 { u32::from(config.initial_window_segments) } else { 1 };
        let emss = u32::from(self.snd.emss);
        self.snd.cc = CongestionWindow::new(config.congestion, emss, emss * segments, self.snd.snd_una);
    }

    /// Returns when the connection's timer must fire.
    #[inline]
    pub(crate) fn deadline(&self) -> Nanos {
        let transmission = match self.snd.timer_at {
            Nanos::MAX => Nanos::MAX,
            _ => self.transmission_deadline(),
        };
        transmission
            .min(self.cold.fin_wait_2_deadline)
            .min(self.cold.black_hole.raise_at)
            .min(self.last_rx_at + self.cold.keep_alive.wait)
    }

    /// Returns when the timer that transmission runs must fire: for a retransmission or the user
    /// timeout.
    #[inline]
    pub(crate) fn transmission_deadline(&self) -> Nanos {
        self.snd.timer_at.min(self.snd.progress_at + self.snd.user_timeout)
    }

    /// Checks the invariants of the sequence numbers.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.rcv.rcv_adv.lt(self.rcv.rcv_nxt) && self.state.is_synchronised() && self.rcv.fin.is_none() {
            return Err(format!("rcv_nxt {:?} lies beyond rcv_adv {:?}", self.rcv.rcv_nxt, self.rcv.rcv_adv));
        }
        if self.state.is_live() { self.snd.check(self.state.is_synchronised()) } else { Ok(()) }
    }
}

/// Returns the size of the network header beyond IPv4's: 20 bytes for IPv6. Every path's MTU is
/// larger.
fn beyond_ipv4(path: &Path) -> u16 {
    (path.ip_bytes() - 20).min(usize::from(path.mtu_bytes())) as u16
}

/// Returns the segment size of a peer that announces none.
fn mss_default(flow: &Flow) -> u16 {
    let [ipv4, ipv6] = MSS_DEFAULT;
    if flow.remote.is_ipv6() { ipv6 } else { ipv4 }
}

/// Returns the largest payload of a segment: the smaller of the peer's segment size and the path's,
/// less the options that every segment carries (RFC 9293 s3.7.1).
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
